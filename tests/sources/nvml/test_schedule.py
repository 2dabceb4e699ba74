"""Slow driver calls: timed, made less often, spread over the ticks."""

from collections import Counter
from pathlib import Path

import pytest

from gpuwatch.commands.watching import SETTLE_SECONDS
from gpuwatch.sources.nvml.schedule import (
    BURST,
    SHARE_MAX,
)
from tests.sources.nvml.watch import (
    REAL_SECONDS,
    Watch,
    asked_of_a_real_driver,
    present,
    watching,
)
from tests.support.fake_nvml import GpuProcess


def test_a_driver_call_that_gets_slow_is_made_less_often(watch: Watch) -> None:
    """A tenth of a second for the temperature makes it a tenth as often asked, and its last value
    is shown meanwhile; when it is quick again it is asked every second."""
    watch.tick()
    watch.fake.reset_counters()
    watch.costs["nvmlDeviceGetTemperature"] = 0.1
    shown = [watch.tick().gpus[0].reading.temperature_celsius for _ in range(10)]
    assert watch.fake.calls("nvmlDeviceGetTemperature") == 1
    assert shown == [40.0] * 10
    watch.costs.clear()
    watch.ticks(30)
    watch.fake.reset_counters()
    watch.ticks(10)
    assert watch.fake.calls("nvmlDeviceGetTemperature") == 10


def test_slow_calls_of_several_gpus_do_not_fall_on_one_tick(tmp_path: Path) -> None:
    """Once known to be slow, the call is made for one GPU a tick, and each GPU gets its turn."""
    with watching(tmp_path, gpus=4) as watch:
        watch.costs["nvmlDeviceGetTemperature"] = 0.08
        watch.tick()
        counts = []
        for _ in range(60):
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


def test_the_steady_state_makes_no_needless_calls(pair: Watch) -> None:
    """Between two enumerations no handle, name or identity is asked again."""
    pair.ticks(3)
    pair.fake.reset_counters()
    pair.ticks(20)
    counts = pair.fake.call_counts()
    for name in ("HandleByIndex_v2", "UUID", "Name", "PciInfo_v3", "CudaComputeCapability"):
        assert counts.get(f"nvmlDeviceGet{name}", 0) == 0
    assert counts["nvmlDeviceGetSamples"] == 40
    assert sum(counts.values()) <= 16 * 40


def shown(folder: Path, seconds: float, gpus: int, *, warm_up: int) -> tuple[set[float], float]:
    """Where every call takes so long: which shares of the rows (a GPU in a snapshot) show a field,
    of those that a quick driver gives; and the driver's share of the time."""
    counts: Counter[str] = Counter()
    with watching(folder, gpus=gpus) as watch:
        watch.ticks(10)
        # Of the time since the snapshot before, so that a snapshot without the reading has none.
        expected = present(watch.reading()) - {"throttle_durations"}
        watch.call_seconds = seconds
        watch.ticks(warm_up)
        looks = [watch.tick() for _ in range(40)]
    for gpu in (gpu for look in looks for gpu in look.gpus):
        counts.update(present(gpu.reading) & expected)
    shares = {counts[name] / (40 * gpus) for name in expected}
    return shares, sum(look.call_seconds for look in looks) / 40


@pytest.mark.parametrize(("milliseconds", "gpus"), [(2.5, 2), (2.5, 8), (10.0, 8)])
@pytest.mark.parametrize(("warm_up", "factor"), [(0, BURST), (40, 1.25)])
def test_a_slow_driver_takes_no_reading_away(
    tmp_path: Path, milliseconds: float, gpus: int, warm_up: int, factor: float
) -> None:
    """From the moment that every call is slow each GPU shows every reading in every snapshot, in
    about a tenth of the time at most."""
    shares, of_the_time = shown(tmp_path, milliseconds / 1000, gpus, warm_up=warm_up)
    assert shares == {1.0}
    assert of_the_time < SHARE_MAX * factor


@pytest.mark.parametrize(("gpus", "share"), [(1, 0.01), (8, 0.01), (16, 0.02)])
def test_a_real_driver_is_asked_for_a_hundredth_of_the_time(
    tmp_path: Path, gpus: int, share: float
) -> None:
    """Of eight GPUs, two of sixteen, with what its calls take on real ones; and what is worth
    knowing at every look is read at every look."""
    with watching(tmp_path, gpus=gpus) as watch:
        asked = asked_of_a_real_driver(watch, 120)
    assert sum(calls * seconds for calls, seconds in asked.values()) < share * 1.2
    assert asked["nvmlDeviceGetUtilizationRates"][0] == gpus


@pytest.mark.parametrize("gpus", [1, 8, 16])
def test_gpm_is_there_in_a_single_look(tmp_path: Path, gpus: int) -> None:
    """Two reads as close together as those of ``status`` give the activities of every GPU, with
    what calls take on real drivers."""
    with watching(tmp_path, gpus=gpus) as watch:
        watch.options.interval_seconds = SETTLE_SECONDS
        watch.options.driver_wait_seconds = 30.0
        watch.costs = dict(REAL_SECONDS)
        watch.tick()
        watch.tick(SETTLE_SECONDS)
        assert {gpu.reading.sm_active_percent for gpu in watch.last.gpus} == {82.0}


def test_a_new_process_is_listed_at_once_where_lists_are_slow(watch: Watch) -> None:
    """By the memory in use, which is quick to ask: it moves when a process comes or goes."""
    watch.costs["nvmlDeviceGetComputeRunningProcesses_v3"] = 0.1
    watch.ticks(30)
    gpu = watch.fake.gpu[0]
    for pids in ((), (7,), (7, 8), (8,)):
        gpu.processes = [GpuProcess(pid=pid, used_bytes=1 << 30) for pid in pids]
        gpu.set(memory_used_bytes=len(pids) << 30)
        watch.ticks(3)
        assert tuple(process.pid for process in watch.last.processes) == pids


def test_a_slow_driver_is_explained_in_one_sentence(tmp_path: Path) -> None:
    """How long a call takes, and how seldom some readings are refreshed for it; it goes when the
    driver is quick again."""
    with watching(tmp_path, gpus=8) as watch:
        watch.call_seconds = 0.005
        watch.ticks(60)
        (problem,) = watch.last.problems
        assert problem.message == (
            "The NVIDIA driver takes about 5 ms a call, so some readings of GPUs 0 to 7 are "
            "refreshed less often, the most seldom every 60 s."
        )
        watch.call_seconds = 0.0
        watch.ticks(60)
        assert watch.last.problems == ()


def test_a_reading_that_is_shown_late_says_its_age(watch: Watch) -> None:
    """Its fields are listed with the seconds since they were read, those of processes too; what
    is read at every look is not listed."""
    for function in ("Temperature", "ProcessUtilization"):
        watch.costs[f"nvmlDeviceGet{function}"] = 0.1
    seen: set[str] = set()
    temperatures = []
    for step in range(60):
        watch.fake.gpu[0].set(temperature_c=40 + step)
        watch.tick()
        reading = watch.reading()
        ages = dict(reading.late_readings)
        temperatures.append(reading.temperature_celsius)
        if "temperature_celsius" in ages:
            assert temperatures[-1] == 40 + step - ages["temperature_celsius"]
        seen |= set(ages)
    assert len(set(temperatures)) > 2
    assert seen == {"temperature_celsius", "gpu_busy_percent"}
    watch.costs.clear()
    watch.ticks(60)
    assert watch.reading().late_readings == ()


def test_a_quick_driver_has_nothing_late(tmp_path: Path) -> None:
    """Readings that are taken every few seconds on any driver are not called late."""
    with watching(tmp_path, gpus=2, preset="rtx4090") as watch:
        late = [gpu.reading.late_readings for _ in range(30) for gpu in watch.tick().gpus]
        assert set(late) == {()}


def test_what_matters_most_of_each_gpu_is_read_first(tmp_path: Path) -> None:
    """With 8 GPUs and a tenth of a second a call, no look takes long and each shows more: how busy
    all are, then the rest of what is important, then all others."""
    fields = ("busy_percent", "memory_used_bytes", "temperature_celsius", "encoder_percent")
    with watching(tmp_path, gpus=8) as watch:
        watch.call_seconds = 0.1
        first: dict[str, int] = {}
        for number in range(200):
            assert watch.tick().call_seconds < 1.5
            for name in fields:
                if all(getattr(gpu.reading, name) is not None for gpu in watch.last.gpus):
                    first.setdefault(name, number)
        assert [*first] == [*fields]
        assert all(gpu.identity.pcie_width_max for gpu in watch.last.gpus)


def test_memory_in_use_is_unknown_until_the_processes_are_listed(tmp_path: Path) -> None:
    """On unified memory it is their sum, and that of a list never read is not 0."""
    with watching(tmp_path, gpus=1, preset="gb10") as watch:
        watch.fake.gpu[0].processes = [GpuProcess(pid=1, used_bytes=7)]
        watch.call_seconds = 0.1
        sums = [watch.tick().gpus[0].reading.memory_used_bytes for _ in range(20)]
        assert set(sums) == {None, 7}


def test_a_slow_driver_is_seldom_asked_which_gpus_there_are(tmp_path: Path) -> None:
    """Nine calls of a tenth of a second every ten seconds would be a tenth of the time."""
    with watching(tmp_path, gpus=8) as watch:
        watch.call_seconds = 0.1
        watch.ticks(20)
        watch.fake.reset_counters()
        watch.ticks(80)
        assert watch.fake.calls("nvmlDeviceGetCount_v2") <= 1
