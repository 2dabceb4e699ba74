"""orphaned_workers: firing, quiet, unknown."""

from __future__ import annotations

import pytest

from gpuwatch.core.model import JobMember
from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis.windows import check_of, fires, gpu_only, job, misses, window, workers

check = check_of("orphaned_workers")


def left_over(count: int, *, orphaned: bool = True) -> Window:
    members = tuple(
        JobMember(
            pid=5000 + n,
            role="loader_worker",
            orphaned=orphaned,
            name="pt_data_worker",
            memory_resident_bytes=1_000_000_000,
        )
        for n in range(count)
    )
    return window(job=job(model={"ranks": (), "members": members}, ranks=(), workers=None))


def test_workers_without_a_parent() -> None:
    """Their PIDs are in the advice, and what they hold is told."""
    firing = fires(check(left_over(3)))
    assert "kill 5000 5001 5002" in firing.advice[0].action
    assert "GPU memory" in firing.summary
    assert "idle_holding_memory" in firing.explains


def test_many_are_not_all_listed() -> None:
    """A line stays a line."""
    firing = fires(check(left_over(40)))
    assert "28 more" in firing.advice[0].action


@pytest.mark.parametrize(
    "unknown",
    [
        pytest.param(gpu_only(), id="no job"),
        pytest.param(window(job=job(workers=None)), id="no processes"),
    ],
)
def test_unknown(unknown: Window) -> None:
    """Without processes nothing can be said."""
    misses(check(unknown), "job's processes")


QUIET = {"healthy": window(), "alive": left_over(3, orphaned=False)}


FIRING = {"a count alone suffices": window(job=job(workers=workers(2, orphaned=2)))}
