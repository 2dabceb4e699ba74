"""What tests report of this process, nobody hears afterwards."""

from collections.abc import Iterator

import pytest

from gpuwatch.torch.reporter import REPORTER


@pytest.fixture(autouse=True)
def nothing_is_reported_any_more() -> Iterator[None]:
    """A process that reports of a loop is a job, and so would be whatever other tests start."""
    yield
    REPORTER.close()
