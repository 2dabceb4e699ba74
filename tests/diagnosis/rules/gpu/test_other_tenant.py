"""Processes of others on the job's GPU."""

from __future__ import annotations

import pytest

from tests.diagnosis.windows import GIB, check_of, fires, gpu, gpu_only, window

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


QUIET = {
    "beside a desktop": window(
        gpus=(gpu(foreign_busy_percent=3.0, foreign_memory_bytes=0.4 * GIB),)
    ),
    "for a job that runs nothing itself": window(
        gpus=(
            gpu(foreign_busy_percent=97.0, foreign_memory_bytes=60.0 * GIB, own_busy_percent=0.0),
        )
    ),
    "where nobody else holds memory though shares are not read": window(
        gpus=(gpu(foreign_busy_percent=None),)
    ),
}


UNKNOWN = {
    "without the jobs processes": (gpu_only(), "processes"),
    "where the driver does not tell by process": (
        window(gpus=(gpu(foreign_busy_percent=None, foreign_memory_bytes=None),)),
        "SM share",
    ),
}
