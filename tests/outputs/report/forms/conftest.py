"""Reports of simulated machines, made once for all tests of how they are written."""

import time
from collections.abc import Iterator

import pytest

from gpuwatch.outputs.report.model import Report
from tests.support.recordings import simulated, summed

SCENARIOS = ("starved", "checkpoint", "healthy", "lost", "mig", "unified", "no_gpu", "mixed")


@pytest.fixture(autouse=True)
def utc(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """Times of day are local ones."""
    monkeypatch.setenv("TZ", "UTC")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.fixture(scope="session")
def summaries() -> dict[str, Report]:
    return {
        name: summed(simulated(name, 100, gpus=0 if name == "no_gpu" else 4, interval=2.0))
        for name in SCENARIOS
    }
