"""Processes of others on the job's GPU."""

from __future__ import annotations

import pytest

from tests.diagnosis.windows import GIB, check_of, fires, gpu, gpu_only, is_clear, misses, window

check = check_of("other_tenant")


def test_an_sm_share_of_others_fires_with_that_cost() -> None:
    """What they take is what the job loses."""
    said = fires(check(window(gpus=(gpu(0), gpu(1, foreign_busy_percent=40.0)))))
    assert said.gpus == ("GPU-1",)
    assert said.lost_share == pytest.approx(0.4)


def test_memory_of_others_alone_is_information() -> None:
    """It costs no time."""
    said = fires(check(window(gpus=(gpu(foreign_memory_bytes=20.0 * GIB),))))
    assert said.severity == "info"
    assert said.lost_share is None


def test_memory_of_others_on_a_full_card_is_a_warning() -> None:
    """What they hold is what is missing."""
    full = gpu(foreign_memory_bytes=40.0 * GIB, memory_used_bytes=135.0 * GIB)
    assert fires(check(window(gpus=(full,)))).severity == "warning"


def test_quiet_beside_a_desktop() -> None:
    """A little memory and a redraw now and then are no tenant."""
    is_clear(check(window(gpus=(gpu(foreign_busy_percent=3.0, foreign_memory_bytes=0.4 * GIB),))))


def test_quiet_for_a_job_that_runs_nothing_itself() -> None:
    """It loses nothing to a neighbour that works."""
    beside = gpu(foreign_busy_percent=97.0, foreign_memory_bytes=60.0 * GIB, own_busy_percent=0.0)
    is_clear(check(window(gpus=(beside,))))


def test_quiet_where_nobody_else_holds_memory_though_shares_are_not_read() -> None:
    """Who holds no memory runs nothing."""
    is_clear(check(window(gpus=(gpu(foreign_busy_percent=None),))))


def test_unknown_without_the_jobs_processes() -> None:
    """Without a job nobody is foreign."""
    misses(check(gpu_only()), "processes")


def test_unknown_where_the_driver_does_not_tell_by_process() -> None:
    """As inside most containers."""
    blind = gpu(foreign_busy_percent=None, foreign_memory_bytes=None)
    misses(check(window(gpus=(blind,))), "SM share")
