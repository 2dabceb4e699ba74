"""Reports of simulated machines, each made once for all tests of how they are written."""

import pytest

from gpuwatch.outputs.report.model import Report
from tests.support.recordings import simulated, summed


class Summaries(dict[str, Report]):
    """Reports by their scenarios, made when they are asked for."""

    def __missing__(self, name: str) -> Report:
        gpus = 0 if name == "no_gpu" else 4
        self[name] = summed(simulated(name, 100, gpus=gpus, interval=2.0))
        return self[name]


@pytest.fixture(scope="session")
def summaries() -> dict[str, Report]:
    return Summaries()
