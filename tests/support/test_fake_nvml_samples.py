"""Fine samples and moving loads of the simulated library."""

from __future__ import annotations

import itertools
from typing import Any

import pynvml as nv
import pytest

from tests.support.fake_nvml import FakeNvml

NOW = 1_800_000_000.0
PERIOD_US = 167_000


def samples(handle: Any, after: int = 0, kind: int = nv.NVML_GPU_UTILIZATION_SAMPLES) -> list[Any]:
    return list(nv.nvmlDeviceGetSamples(handle, kind, after)[1])


def levels(handle: Any) -> list[int]:
    return [sample.sampleValue.uiVal for sample in samples(handle)]


def test_the_ring_is_full_spaced_evenly_and_ends_now(fake: FakeNvml, handle: Any) -> None:
    """120 samples, a sample period apart, the last within a period of now."""
    fake.set_clock(NOW)
    stamps = [sample.timeStamp for sample in samples(handle)]
    assert len(stamps) == 120
    assert {b - a for a, b in itertools.pairwise(stamps)} == {PERIOD_US}
    assert 0 <= NOW * 1e6 - stamps[-1] < PERIOD_US


def test_square_wave_shows_both_levels_and_its_mean(fake: FakeNvml, handle: Any) -> None:
    """A 30% duty cycle is 0 and 99 in the samples, about 30 on average."""
    fake.set_clock(NOW)
    fake.gpu[0].waveform("square", period_seconds=1.67, duty_percent=30)
    seen = levels(handle)
    assert (min(seen), max(seen)) == (0, 99)
    assert sum(seen) / len(seen) == pytest.approx(0.30 * 99, abs=2)


def test_flicker_visits_each_of_its_levels(fake: FakeNvml, handle: Any) -> None:
    """The 0/50/80/99 pattern is visible as these four levels."""
    fake.set_clock(NOW)
    fake.gpu[0].waveform("flicker", period_seconds=8 * PERIOD_US / 1e6)
    assert set(levels(handle)) == {0, 50, 80, 99}


def test_sine_swings_around_half_its_level(fake: FakeNvml, handle: Any) -> None:
    """A sine passes smoothly between 0 and the level."""
    fake.set_clock(NOW)
    fake.gpu[0].waveform("sine", level_percent=80, period_seconds=20 * PERIOD_US / 1e6)
    seen = levels(handle)
    assert min(seen) <= 2
    assert max(seen) >= 78
    assert sum(seen) / len(seen) == pytest.approx(40, abs=2)


def test_power_follows_load_with_lag(fake: FakeNvml, handle: Any) -> None:
    """Just after the load starts power is still low; later it is near the limit."""
    fake.gpu[0].waveform("square", period_seconds=40.0)
    start = 45_000_000 * 40.0
    readings = []
    for seconds in (0.0, 0.1, 3.0, 19.0):
        fake.set_clock(start + seconds)
        readings.append(nv.nvmlDeviceGetPowerUsage(handle))
    assert readings == sorted(readings)
    assert readings[0] < 90_000
    assert readings[1] < 300_000
    assert readings[3] > 600_000


def test_an_idle_moment_drops_the_clock_and_says_so(fake: FakeNvml, handle: Any) -> None:
    """A GPU at rest reports its idle clock and the idle reason, a busy one neither."""
    fake.set_clock(NOW)
    fake.gpu[0].waveform("steady", level_percent=0)
    assert nv.nvmlDeviceGetClockInfo(handle, nv.NVML_CLOCK_SM) == 345
    assert nv.nvmlDeviceGetCurrentClocksEventReasons(handle) & 1
    fake.gpu[0].waveform("steady", level_percent=99)
    assert nv.nvmlDeviceGetClockInfo(handle, nv.NVML_CLOCK_SM) == 1980
    assert not nv.nvmlDeviceGetCurrentClocksEventReasons(handle) & 1


def test_energy_grows_by_power_times_time(fake: FakeNvml, handle: Any) -> None:
    """A steady load adds its power, second by second."""
    fake.gpu[0].set(energy_mj=1000, energy_since_us=round(NOW * 1e6))
    fake.gpu[0].waveform("steady", level_percent=100)
    fake.set_clock(NOW + 10.0)
    before = nv.nvmlDeviceGetTotalEnergyConsumption(handle)
    fake.set_clock(NOW + 20.0)
    watts = (nv.nvmlDeviceGetTotalEnergyConsumption(handle) - before) / 1000 / 10.0
    assert watts == pytest.approx(nv.nvmlDeviceGetPowerUsage(handle) / 1000, rel=0.01)
