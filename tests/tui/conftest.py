"""Settings for the tests of the dashboard."""

import os
import time
from collections.abc import Iterator

import pytest


@pytest.fixture(scope="package", autouse=True)
def _utc() -> Iterator[None]:
    """Clock times on the screen are local: here local is UTC."""
    before = os.environ.get("TZ")
    os.environ["TZ"] = "UTC"
    time.tzset()
    yield
    if before is None:
        del os.environ["TZ"]
    else:
        os.environ["TZ"] = before
    time.tzset()
