"""Slow driver calls: timed, made less often, spread over the ticks."""

from __future__ import annotations

from pathlib import Path

import pytest

from gpuwatch.sources.nvml import NvmlSource
from gpuwatch.sources.nvml_schedule import PERIOD_MAX_SECONDS, Reading, Slot
from tests.sources.nvml_watch import watching


def slot(period_seconds: float = 0.0, expected_seconds: float = 0.0) -> Slot:
    reading = Reading(
        "the test value",
        ("busy_percent",),
        lambda _: None,
        period_seconds,
        expected_seconds=expected_seconds,
    )
    return Slot(reading, due_at=0.0)


def test_a_cheap_reading_keeps_its_period() -> None:
    """Microseconds do not put a reading off."""
    cheap = slot(period_seconds=2.0)
    cheap.measured(10.0, 5e-6, gpu_count=16, factor=1.0)
    assert cheap.due_at == 12.0


def test_a_costly_reading_takes_at_most_one_percent_of_the_time() -> None:
    """20 ms a call means at most one call every two seconds."""
    costly = slot()
    costly.measured(10.0, 0.020, gpu_count=1, factor=1.0)
    assert costly.due_at == 12.0


def test_many_gpus_share_the_budget_of_a_reading() -> None:
    """With 16 GPUs the same call is made less often for each, so the sum stays bounded."""
    costly = slot()
    costly.measured(10.0, 0.020, gpu_count=16, factor=1.0)
    assert costly.due_at == pytest.approx(18.0)
    assert 16 * 0.020 / (costly.due_at - 10.0) <= 0.04 + 1e-9


def test_a_reading_never_waits_longer_than_a_minute() -> None:
    """Even a call of ten seconds is made again."""
    awful = slot()
    awful.measured(10.0, 10.0, gpu_count=8, factor=1.0)
    assert awful.due_at == 10.0 + PERIOD_MAX_SECONDS


def test_one_outlier_does_not_silence_a_cheap_reading() -> None:
    """A single slow call among quick ones is forgotten within some reads."""
    reading = slot()
    for _ in range(5):
        reading.measured(0.0, 20e-6, gpu_count=8, factor=1.0)
    reading.measured(0.0, 0.010, gpu_count=8, factor=1.0)
    assert reading.due_at <= 1.0
    for _ in range(20):
        reading.measured(0.0, 20e-6, gpu_count=8, factor=1.0)
    assert reading.due_at == 0.0


def test_a_detailed_gpu_is_read_more_often() -> None:
    """The GPU somebody looks at has a quarter of the period."""
    costly = slot(period_seconds=4.0)
    costly.measured(0.0, 1e-6, gpu_count=1, factor=0.25)
    assert costly.due_at == 1.0


def test_a_value_is_outdated_after_two_periods() -> None:
    """A slow value is kept for two periods and no longer."""
    reading = slot(period_seconds=5.0)
    reading.measured(100.0, 1e-6, gpu_count=1, factor=1.0)
    assert not reading.outdated(110.0, gpu_count=1)
    assert reading.outdated(110.1, gpu_count=1)


def test_what_is_known_to_be_slow_is_planned_for() -> None:
    """A reading with an expected cost counts as slow before it was ever measured."""
    assert slot(expected_seconds=0.04).slow
    assert not slot().slow


def test_a_driver_call_that_gets_slow_is_made_less_often(tmp_path: Path) -> None:
    """Twenty milliseconds for the temperature halve how often it is asked, and its last value
    is shown meanwhile; when it is quick again it is asked at every look."""
    with watching(tmp_path, gpus=1) as watch:
        watch.costs["nvmlDeviceGetTemperature"] = 0.020
        shown = [watch.tick().gpus[0].reading.temperature_celsius for _ in range(10)]
        assert watch.fake.calls("nvmlDeviceGetTemperature") == 5
        assert shown == [40.0] * 10
        watch.costs.clear()
        watch.ticks(30)
        watch.fake.reset_counters()
        watch.ticks(5)
        assert watch.fake.calls("nvmlDeviceGetTemperature") == 5


def test_slow_calls_of_several_gpus_do_not_fall_on_one_tick(tmp_path: Path) -> None:
    """Once known to be slow, the call is made for one GPU a tick, and each GPU gets its turn."""
    with watching(tmp_path, gpus=4) as watch:
        watch.costs["nvmlDeviceGetTemperature"] = 0.055
        watch.tick()
        counts = []
        for _ in range(12):
            watch.fake.reset_counters()
            watch.tick()
            counts.append([gpu.calls("nvmlDeviceGetTemperature") for gpu in watch.fake.gpu[:4]])
        assert max(sum(tick) for tick in counts) == 1
        assert all(sum(of_gpu) >= 1 for of_gpu in zip(*counts, strict=True))


def test_slow_timers_do_not_follow_a_fast_interval(tmp_path: Path) -> None:
    """At ten reads a second the readings on slow timers are asked no more often."""
    with watching(tmp_path, gpus=1, preset="rtx4090") as watch:
        watch.options.interval_seconds = 0.1
        watch.ticks(50, 0.1)
        assert watch.fake.calls("nvmlDeviceGetUtilizationRates") == 50
        assert watch.fake.calls("nvmlDeviceGetFanSpeed") <= 2
        assert watch.fake.calls("nvmlDeviceGetComputeRunningProcesses_v3") <= 6


def test_the_detailed_gpu_gets_its_slow_readings_more_often(tmp_path: Path) -> None:
    """Options name the GPU somebody looks at; the others keep their pace."""
    with watching(tmp_path, gpus=2, preset="rtx4090") as watch:
        watch.tick()
        watch.options.detailed_gpu = watch.gpu(1).uuid
        watch.fake.reset_counters()
        watch.ticks(20)
        fan = "nvmlDeviceGetFanSpeed"
        assert watch.fake.gpu[1].calls(fan) >= 2 * watch.fake.gpu[0].calls(fan) > 0


def test_the_steady_state_makes_no_needless_calls(tmp_path: Path) -> None:
    """Between two enumerations no handle, name or identity is asked again."""
    with watching(tmp_path, gpus=2) as watch:
        watch.ticks(3)
        watch.fake.reset_counters()
        watch.ticks(20)
        counts = watch.fake.call_counts()
        for name in ("HandleByIndex_v2", "UUID", "Name", "PciInfo_v3", "CudaComputeCapability"):
            assert counts.get(f"nvmlDeviceGet{name}", 0) == 0
        assert counts["nvmlDeviceGetSamples"] == 40


def test_a_value_that_had_to_wait_for_too_long_is_dropped(tmp_path: Path) -> None:
    """With calls so slow that not every GPU gets its turn in time, the last value of those that
    wait becomes unknown instead of being shown as if it were new."""
    with watching(tmp_path, gpus=16) as watch:
        watch.options.interval_seconds = 10.0
        watch.costs["nvmlDeviceGetTemperature"] = 2.0
        watch.tick()
        assert all(gpu.reading.temperature_celsius == 40 for gpu in watch.last.gpus)
        watch.ticks(13, 10.0)
        values = [gpu.reading.temperature_celsius for gpu in watch.last.gpus]
        assert 40 in values
        assert None in values


def test_time_in_the_driver_is_measured(tmp_path: Path) -> None:
    """A call that really takes 5 ms shows as at least that in the cost of the look."""
    with watching(tmp_path, gpus=1, opened=False) as watch:
        source = NvmlSource(watch.clock, watch.options)
        source.open()
        source.read()
        watch.fake.delay("nvmlDeviceGetUtilizationRates", 0.005)
        watch.clock.advance(1.0)
        assert source.read().call_seconds >= 0.005
        source.close()
