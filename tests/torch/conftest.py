"""What tests report of this process, nobody hears afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.torch.reporter import REPORTER, Reporter
from tests.torch.support import reporter_in


@pytest.fixture(autouse=True)
def nothing_is_reported_any_more() -> Iterator[None]:
    """A process that reports of a loop is a job, and so would be whatever other tests start."""
    yield
    REPORTER.close()


@pytest.fixture
def reporter(tmp_path: Path) -> Iterator[Reporter]:
    made = reporter_in(tmp_path)
    yield made
    made.close()
