"""Reports of simulated machines, made once for all tests of how they are written."""

import pytest

from gpuwatch.outputs.report.model import Report
from tests.support.recordings import simulated, summed

SCENARIOS = ("starved", "checkpoint", "healthy", "lost", "mig", "no_gpu", "mixed")


@pytest.fixture(scope="session")
def summaries() -> dict[str, Report]:
    return {
        name: summed(simulated(name, 100, gpus=0 if name == "no_gpu" else 4, interval=2.0))
        for name in SCENARIOS
    }
