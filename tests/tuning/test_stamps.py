"""The pace of workers, from the times at which they finished their batches."""

from __future__ import annotations

import struct
from collections.abc import Mapping, Sequence
from pathlib import Path

import pytest

from gpuwatch.tuning.child.stamps import Stamps


def stamped(times: Mapping[int, Sequence[float]]) -> Stamps:
    stamps = Stamps(lambda samples: samples)
    pairs = sorted((at, worker) for worker, its in times.items() for at in its)
    Path(stamps.path).write_bytes(b"".join(struct.pack("=qd", w, at) for at, w in pairs))
    return stamps


def every(seconds: float, begin: float, end: float) -> list[float]:
    return [begin + number * seconds for number in range(1, int((end - begin) / seconds) + 1)]


@pytest.mark.parametrize("late", [0.0, 0.3, 0.99])
def test_pace_does_not_depend_on_where_a_window_begins(late: float) -> None:
    """Two workers that take a second for a batch make two a second, wherever the window is cut."""
    its = stamped({0: every(1.0, 0, 20), 1: every(1.0, 0.5, 20)})
    assert its.pace(5 + late, 15) == pytest.approx(2.0)


def test_worker_that_waited_before_is_not_slow() -> None:
    """A worker had a full queue until the window began: only its work within it counts, and never
    more than it can do."""
    its = stamped({0: [1.0, 2.0, *every(1.0, 10, 30)], 1: every(1.0, 0.5, 30)})
    pace = its.pace(10.2, 30)
    assert pace is not None
    assert 1.8 <= pace <= 2.0


def test_worker_furthest_behind_tells_what_is_ready() -> None:
    """Batches are taken in turn, so what counts is the worker that has the fewest ready."""
    its = stamped({0: every(1.0, 0, 5), 1: every(1.0, 0, 3)})
    assert its.least_ready(0.0, 10.0, 4) == 1
    assert its.least_ready(0.0, 10.0, 6) == 0


def test_no_batch_is_no_pace() -> None:
    """Where nothing was made the pace is unknown."""
    assert stamped({}).pace(0.0, 1.0) is None
    assert stamped({0: [0.5]}).pace(1.0, 2.0) is None
