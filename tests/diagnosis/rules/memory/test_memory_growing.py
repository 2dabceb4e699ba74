"""A GPU's memory that grows."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis.windows import GIB, check_of, fires, gpu, gpu_only, is_clear, window

check = check_of("memory_growing")

MIB = 1024**2


def _growing(rate: float, error: float, **fields: Any) -> Window:
    grows = gpu(
        memory_used_bytes=100.0 * GIB,
        memory_slope_bytes_per_second=rate,
        memory_slope_error_bytes_per_second=error,
    )
    return window(gpus=(grows,), **fields)


def test_growth_fires_with_a_range_of_time_until_full() -> None:
    """40 GiB at 20 MiB/s, give or take two errors of 1 MiB/s: 31 to 38 minutes."""
    said = fires(check(_growing(20.0 * MIB, 1.0 * MIB)))
    assert said.severity == "warning"
    assert "31 min to 38 min" in said.summary
    assert "memory_nearly_full" in said.explains


def test_the_surer_the_slope_the_narrower_the_range() -> None:
    """A slope without error gives one time."""
    assert "about 34 min" in fires(check(_growing(20.0 * MIB, 0.0))).summary


@pytest.mark.parametrize(
    ("rate", "severity"), [(200.0 * MIB, "error"), (20.0 * MIB, "warning"), (1.5 * MIB, "info")]
)
def test_the_nearer_the_end_the_more_severe(rate: float, severity: str) -> None:
    """Minutes are an error, hours a warning, most of a day information."""
    assert fires(check(_growing(rate, rate / 50.0))).severity == severity


def test_surer_the_longer_it_was_watched() -> None:
    """Allocators settle within minutes."""
    early = fires(check(_growing(20.0 * MIB, 1.0 * MIB, steady_seconds=100.0)))
    late = fires(check(_growing(20.0 * MIB, 1.0 * MIB, steady_seconds=600.0)))
    assert early.strength < late.strength


def test_the_sooner_the_clearer_it_must_be() -> None:
    """An allocator that settles bends; a leak goes on at its pace."""
    bend, leak = 20.0 * MIB / 6.0, 20.0 * MIB / 25.0
    is_clear(check(_growing(20.0 * MIB, bend, steady_seconds=60.0)))
    fires(check(_growing(20.0 * MIB, leak, steady_seconds=60.0)))
    fires(check(_growing(20.0 * MIB, bend, steady_seconds=400.0)))


QUIET = {
    "when the slope is within its error": _growing(20.0 * MIB, 8.0 * MIB),
    "when it would last for days": _growing(0.2 * MIB, 0.001 * MIB),
    "at the start": _growing(500.0 * MIB, 1.0 * MIB, starting=True),
}


UNKNOWN = {
    "in the first half minute": (
        _growing(200.0 * MIB, 1.0 * MIB, steady_seconds=20.0),
        "steady work",
    ),
    "without a slope": (gpu_only(gpu(memory_slope_bytes_per_second=None)), "memory used"),
}
