"""How much memory some code holds, whatever else this process makes meanwhile."""

import gc
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager

import gpuwatch

_FOLDER = gpuwatch.__path__[0]


@contextmanager
def traced() -> Iterator[None]:
    """``held_bytes`` counts what is made within."""
    tracemalloc.start()
    try:
        yield
    finally:
        tracemalloc.stop()


def held_bytes(*parts: str) -> int:
    """What code of these folders of the package has made and still holds. (Other threads, and what
    earlier tests left to be tidied up, are none of it.)"""
    gc.collect()
    wanted = [tracemalloc.Filter(True, f"{_FOLDER}/{part}/*") for part in parts]
    traces = tracemalloc.take_snapshot().filter_traces(wanted)
    return sum(statistic.size for statistic in traces.statistics("filename"))
