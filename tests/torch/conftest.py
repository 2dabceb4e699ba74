"""What tests report of this process, nobody hears afterwards."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.torch.reporter import REPORTER


@pytest.fixture(autouse=True)
def reports_below(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The process's reporter begins anew, in a folder of the test's own. A process that reports of
    a loop is a job, and so would be whatever other tests start."""
    tmp_path.chmod(0o700)
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path))
    for name in ("RANK", "LOCAL_RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    REPORTER.close()
    REPORTER.forget()
    yield tmp_path
    REPORTER.close()
    REPORTER.forget()
