"""The simulated source keeps the promises every source makes, and those of a simulation."""

from dataclasses import fields
from itertools import pairwise

import pytest

from gpuwatch.core.model import GpuReading, OwnCost, Snapshot
from gpuwatch.core.source import ManualClock, ReadOptions, SystemClock
from gpuwatch.sources.simulated.source import SCENARIOS, SimulatedSource
from tests.support.memory import held_bytes, traced
from tests.support.simulated import looks


def run(scenario: str, seconds: float = 40.0, step: float = 1.0, **more: object) -> list[Snapshot]:
    """Snapshots from time zero on, one every ``step``."""
    return list(looks(scenario, int(seconds / step) + 1, interval=step, **more))  # type: ignore[arg-type]


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_snapshots_follow_from_the_seed_and_the_clock(scenario: str) -> None:
    """Two sources that differ in nothing show the same machine; with another seed it is another."""
    found = run(scenario, 6.0, gpus=2, seed=7)
    assert run(scenario, 6.0, gpus=2, seed=7) == found
    assert run(scenario, 6.0, gpus=2, seed=8)[-1].host != found[-1].host
    assert [item.sequence for item in found] == list(range(7))
    assert all(item.simulated for item in found)


@pytest.mark.parametrize("scenario", ["throttled", "checkpoint"])
def test_state_does_not_depend_on_how_often_it_is_read(scenario: str) -> None:
    """After half a minute the card is in the same state for a fast, a slow and a lazy reader."""
    fast = run(scenario, 30.0, 0.1)
    slow = run(scenario, 30.0, 2.0)
    lazy = run(scenario, 30.0, 30.0)
    for name in (
        "busy_percent", "power_watts", "temperature_celsius", "energy_joules", "sm_clock_mhz",
        "memory_used_bytes", "throttle_reasons",
    ):  # fmt: skip
        values = {getattr(found[-1].gpus[0].reading, name) for found in (fast, slow, lazy)}
        assert len(values) == 1, name
    assert slow[-1].host.load_average_1_minute == fast[-1].host.load_average_1_minute


def test_fine_samples_are_the_same_however_often_they_are_fetched() -> None:
    """Fetched in small or large portions, the samples are the same sequence without doubles."""

    def samples(step: float) -> list[tuple[float, float]]:
        found = run("starved", 12.0, step)
        return [sample for item in found for sample in item.gpus[0].reading.busy_samples or ()]

    assert samples(0.25) == samples(1.0) == samples(4.0)
    times = [at for at, _ in samples(1.0)]
    assert all(0.15 < later - earlier < 0.18 for earlier, later in pairwise(times))


def test_first_snapshot_brings_the_past_of_the_buffer() -> None:
    """The first read has twenty seconds of samples, all before now, in order."""
    first = run("starved", 0.0)[0]
    samples = first.gpus[0].reading.busy_samples
    assert samples is not None
    assert len(samples) == 120
    assert samples[-1].at_unix_seconds <= first.taken_at_unix_seconds
    assert first.taken_at_unix_seconds - samples[0].at_unix_seconds == pytest.approx(20, abs=0.5)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_reading_is_physically_possible(scenario: str) -> None:
    """Percentages, power, memory, clocks and counters stay within what a card can do."""
    last_energy: dict[str, float] = {}
    found = run(scenario, 40.0, 5.0, gpus=5)
    for item in found:
        for gpu in item.gpus:
            check_reading(gpu.reading, gpu.identity.sm_clock_max_mhz)
            reading = gpu.reading
            if gpu.lost:
                assert reading == GpuReading()
            limit = reading.power_limit_watts or gpu.identity.power_limit_default_watts
            if reading.power_watts is not None and limit is not None:
                assert 0 < reading.power_watts <= limit * 1.05
            total = gpu.identity.memory_total_bytes
            if reading.memory_used_bytes is not None and total is not None:
                assert 0 <= reading.memory_used_bytes <= total
            if reading.energy_joules is not None:
                assert reading.energy_joules > last_energy.get(gpu.uuid, 0.0)
                last_energy[gpu.uuid] = reading.energy_joules
        check_host(item)


def check_reading(reading: GpuReading, clock_max: int | None) -> None:
    for field in fields(reading):
        value = getattr(reading, field.name)
        if field.name.endswith("_percent") and value is not None:
            assert 0 <= value <= 100, field.name
    for sample in reading.busy_samples or ():
        assert 0 <= sample.percent <= 100
        assert sample.percent == int(sample.percent)
    for span in reading.throttle_durations or ():
        assert 0 <= span.seconds <= 5.2
    if reading.temperature_celsius is not None:
        assert 20 <= reading.temperature_celsius <= 92
    if reading.sm_clock_mhz is not None and clock_max is not None:
        assert 0 < reading.sm_clock_mhz <= clock_max


def check_host(item: Snapshot) -> None:
    host = item.host
    assert host.core_percents is not None
    assert all(core is not None and 0 <= core <= 100 for core in host.core_percents)
    assert host.cpu_percent is not None
    assert host.cpu_percent + (host.cpu_iowait_percent or 0) <= 100
    assert (host.memory_used_bytes or 0) <= (host.memory_total_bytes or 0)
    assert (host.shm_used_bytes or 0) <= (host.shm_total_bytes or 0)
    once = {process.key: process.cpu_percent or 0.0 for process in item.processes}
    assert sum(once.values()) / len(host.core_percents) <= host.cpu_percent + 1.0
    assert len(once) == len(item.processes)
    assert len({process.pid for process in item.processes}) == len(item.processes)


@pytest.mark.parametrize("scenario", ["healthy", "starved", "mig"])
def test_gpu_memory_is_the_sum_of_its_processes_and_the_driver(scenario: str) -> None:
    """What processes hold explains what the card has in use, but for the driver's own part."""
    item = run(scenario, 10.0, gpus=2)[-1]
    for gpu in item.gpus:
        held = sum(
            process.gpu_memory_bytes or 0
            for process in item.processes
            if process.gpu_uuid == gpu.uuid
        )
        if gpu.identity.mig_mode:
            continue
        assert gpu.reading.memory_used_bytes is not None
        assert 0 <= gpu.reading.memory_used_bytes - held < 2**29


def test_reading_twice_at_one_moment_changes_nothing() -> None:
    """Without time between two reads there are no new samples, and every rate stays."""
    clock = ManualClock()
    source = SimulatedSource("starved", clock=clock)
    source.read()
    clock.advance(1.0)
    one = source.read()
    two = source.read()
    assert two.gpus[0].reading.busy_samples == ()
    assert two.processes == one.processes
    assert two.host == one.host
    assert two.gpus[0].reading.sm_active_percent == one.gpus[0].reading.sm_active_percent


def test_a_long_sleep_is_not_caught_up_and_keeps_process_identities() -> None:
    """After a week's sleep the machine goes on, its processes still the same ones."""
    clock = ManualClock()
    source = SimulatedSource("healthy", clock=clock)
    before = source.read()
    clock.advance(7 * 86400.0)
    after = source.read()
    assert [item.key for item in after.processes] == [item.key for item in before.processes]
    samples = after.gpus[0].reading.busy_samples
    assert samples
    assert samples[-1].at_unix_seconds == pytest.approx(after.taken_at_unix_seconds, abs=0.5)


def test_memory_does_not_grow_with_time() -> None:
    """After four minutes the simulation holds no more than after two."""
    clock = ManualClock()
    source = SimulatedSource("starved", clock=clock)

    def held_after(minutes: int) -> int:
        for _ in range(minutes):
            clock.advance(60.0)
            source.read()
        return held_bytes("sources", "core")

    with traced():
        early = held_after(2)
        late = held_after(2)
    # Tuples that were there before it was traced are used again, and not counted at first; kept
    # for two minutes, what a job does takes more than twice as much.
    assert late - early < 20_000


def test_other_processes_come_only_when_asked_for() -> None:
    """``all_processes`` adds what neither is on a GPU nor belongs to one that is."""
    clock = ManualClock()
    options = ReadOptions()
    source = SimulatedSource("starved", clock=clock, options=options)
    few = {item.key for item in source.read().processes}
    options.all_processes = True
    many = {item.key for item in source.read().processes}
    assert few < many
    assert 1 in {pid for pid, _ in many}


def test_own_cost_is_measured_only_against_real_time() -> None:
    """With an injected clock cost is unknown, so that snapshots stay equal; else it is real."""
    assert run("healthy", 1.0)[-1].own_cost == OwnCost()
    source = SimulatedSource("healthy", clock=SystemClock())
    assert source.simulated
    source.read()
    cost = source.read().own_cost
    assert cost.memory_resident_bytes is not None
    assert cost.memory_resident_bytes > 2**20
    assert cost.cpu_percent is None, "the start does not count"
    assert cost.read_milliseconds is not None
    assert cost.nvml_calls_per_second is None


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_a_scenario_without_gpus_shows_the_host_and_says_why(scenario: str) -> None:
    """Zero GPUs is a machine without a driver: host readings and one sentence."""
    item = run(scenario, 1.0, gpus=0)[-1]
    assert item.gpus == ()
    assert item.host.cpu_percent is not None
    assert ["driver" in problem.message for problem in item.problems] == [True]


def test_unknown_scenarios_and_negative_counts_are_refused() -> None:
    """The mistake is named, with the scenarios there are."""
    with pytest.raises(ValueError, match=r"'starve'.*starved"):
        SimulatedSource("starve")
    with pytest.raises(ValueError, match="below zero"):
        SimulatedSource("starved", gpus=-1)
