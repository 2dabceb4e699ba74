"""oscillation: firing, quiet, unknown."""

from __future__ import annotations

from dataclasses import replace

import pytest

from tests.diagnosis.windows import check_of, fires, gpu, gpu_only, pause, steady, swinging, window

check = check_of("oscillation")


def test_only_gpu_readings() -> None:
    """num_workers and pinned memory come first, then what would decide."""
    firing = fires(check(gpu_only(gpu(busy=swinging(0.5)))))
    assert [advice.setting for advice in firing.advice[:2]] == ["num_workers", "pin_memory"]
    assert "gpuwatch beside the job" in firing.advice[2].action
    assert firing.missing == ("the job's processes",)
    assert firing.lost_share == pytest.approx(0.51)
    assert firing.strength < 0.8


def test_only_the_gpus_that_swing_are_named() -> None:
    """A sibling that is fed is left alone."""
    firing = fires(check(gpu_only(gpu(0), gpu(1, busy=swinging(0.5)))))
    assert firing.gpus == ("GPU-1",)


def test_copies_while_idle_point_to_unpinned_memory() -> None:
    """PCIe traffic is the one thing that tells more from the GPU alone."""
    copying = gpu(busy=swinging(0.5), pcie_rx_idle_bytes_per_second=3e9)
    firing = fires(check(gpu_only(copying)))
    assert any("unpinned" in evidence.says for evidence in firing.evidence)


LOW = replace(steady(30.0), middling_share=0.0)
TWO_PEAKS = replace(swinging(0.5, period_seconds=40.0), period_seconds=None)
FAST = replace(steady(50.0, sample_seconds=1.0), faster_than_seen=True, middling_share=0.9)


QUIET = {
    "healthy": gpu_only(),
    "idle": gpu_only(gpu(busy=steady(0.0))),
    "a low mean": gpu_only(gpu(busy=LOW)),
    "two peaks, few runs": gpu_only(gpu(busy=TWO_PEAKS)),
    "flat, finely sampled": gpu_only(gpu(busy=steady(45.0))),
    "pauses": window(
        gpus=(gpu(busy=swinging(0.8, period_seconds=12.0)),),
        pauses=(pause(50.0, 9.0), pause(20.0, 9.0)),
    ),
}


UNKNOWN = {
    "too fast to be seen": (gpu_only(gpu(busy=FAST)), "finer than 1 s"),
    "no samples": (gpu_only(gpu(busy=None)), "utilisation"),
    "too short": (gpu_only(gpu(busy=replace(swinging(), seconds=4.0))), "8 seconds"),
}
