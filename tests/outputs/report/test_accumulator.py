"""A recording's numbers: the same as sums made another way."""

import random
from dataclasses import replace

import pytest

from gpuwatch.core.model import BusySample, Gpu, GpuReading, Snapshot
from tests.support.recordings import simulated, summed

GIB = 2**30


@pytest.fixture(scope="module")
def starved() -> list[Snapshot]:
    return simulated("starved", 120)


def with_readings(
    taken: list[Snapshot], readings: list[GpuReading | None], *, gap_at: int | None = None
) -> list[Snapshot]:
    """``taken`` with one GPU of these readings (``None``: lost); before ``gap_at`` a gap of ten
    minutes."""
    out = []
    for place, (snapshot, reading) in enumerate(zip(taken, readings, strict=True)):
        late = 600.0 if gap_at is not None and place >= gap_at else 0.0
        identity = snapshot.gpus[0].identity
        gpu = Gpu(identity=identity, reading=reading or GpuReading(), lost=reading is None)
        out.append(
            replace(
                snapshot,
                gpus=(gpu,),
                processes=(),
                jobs=(),
                taken_at_unix_seconds=snapshot.taken_at_unix_seconds + late,
                monotonic_seconds=snapshot.monotonic_seconds + late,
            )
        )
    return out


def test_host_memory_and_disk_are_summed(starved: list[Snapshot]) -> None:
    """Rates times the time since the snapshot before; peaks are the highest value."""
    host = summed(starved).host
    reads = sum(s.host.disk_read_bytes_per_second or 0.0 for s in starved[1:])
    percents = [s.host.cpu_percent or 0.0 for s in starved[1:]]
    assert host.disk_read_bytes == pytest.approx(reads)
    assert host.cpu_mean_percent == pytest.approx(sum(percents) / len(percents))
    assert host.memory_peak_bytes == max(s.host.memory_used_bytes or 0 for s in starved)


def test_a_process_on_two_gpus_counts_its_cpu_once(starved: list[Snapshot]) -> None:
    """It is listed once for each GPU, with the same host readings."""
    taken = []
    for snapshot in starved[:11]:
        (one,) = [p for p in snapshot.processes if p.gpu_uuid == snapshot.gpus[0].uuid][:1]
        one = replace(one, cpu_percent=50.0, gpu_memory_bytes=GIB)
        two = replace(one, gpu_uuid=snapshot.gpus[1].uuid)
        taken.append(replace(snapshot, processes=(one, two), jobs=()))
    (process,) = summed(taken).processes
    assert process.cpu_core_seconds == pytest.approx(5.0)
    assert process.gpu_held_seconds == pytest.approx(20.0)
    assert process.gpu_memory_peak_bytes == 2 * GIB
    assert len(process.gpus) == 2


def test_the_starved_loader_is_found_and_its_cost_is_the_idle_time(starved: list[Snapshot]) -> None:
    """The finding holds to the end, and costs no more than the GPUs idled."""
    report = summed(starved)
    use = next(use for use in report.findings if use.rule == "loader_cpu_bound")
    assert use.holds_at_end
    assert use.stretches[-1].end_unix_seconds == report.time.end_unix_seconds
    assert 0.7 * report.total.idle_gpu_seconds < use.cost_gpu_seconds
    assert use.cost_gpu_seconds < 1.1 * report.total.idle_gpu_seconds


def test_a_healthy_gpu_does_not_oscillate() -> None:
    """Nothing is found, nothing swings."""
    report = summed(simulated("healthy", 90))
    assert report.findings == ()
    assert report.total.oscillating_share == 0.0
    assert report.total.period_seconds is None
    assert report.total.busy_percent > 95


def test_a_finding_that_comes_back_has_two_stretches() -> None:
    """Healthy time in between parts them, and each has its own cost."""
    from tests.support.long_recording import Piece, snapshots

    pieces = tuple(Piece(name, 150) for name in ("starved", "healthy", "starved"))
    uses = [
        use
        for use in summed(snapshots(pieces, gpus=1, interval=1.0)).findings
        if use.rule == "loader_cpu_bound"
    ]
    stretches = sorted(
        (stretch for use in uses for stretch in use.stretches),
        key=lambda stretch: stretch.begin_unix_seconds,
    )
    assert len(stretches) == 2
    assert stretches[1].begin_unix_seconds - stretches[0].end_unix_seconds > 60
    for stretch in stretches:
        assert stretch.cost_gpu_seconds == pytest.approx(100, abs=30)


def test_a_gap_is_nothing_that_was_measured(starved: list[Snapshot]) -> None:
    """Ten minutes without a snapshot are told as a gap, and no sum grows by them."""
    reading = GpuReading(busy_percent=50.0, power_watts=100.0, memory_used_bytes=GIB)
    report = summed(with_readings(starved[:20], [reading] * 20, gap_at=10))
    assert report.time.gap_count == 1
    assert report.time.gap_seconds == pytest.approx(601.0)
    assert report.time.covered_seconds == pytest.approx(18.0)
    assert report.total.energy_joules == pytest.approx(1800.0)
    (gpu,) = report.gpus
    assert gpu.busy_seconds == pytest.approx(9.0)
    middle = gpu.profiles["power_watts"].mean[len(gpu.profiles["power_watts"].mean) // 2]
    assert middle is None


def test_a_clock_that_is_set_back_loses_no_time(starved: list[Snapshot]) -> None:
    """Time goes on by the monotonic clock, and it is told."""
    reading = GpuReading(busy_percent=50.0)
    taken = with_readings(starved[:21], [reading] * 21)
    set_back = [
        replace(s, taken_at_unix_seconds=s.taken_at_unix_seconds - (3600.0 if n > 10 else 0.0))
        for n, s in enumerate(taken)
    ]
    report = summed(set_back)
    assert report.time.clock_set_back == 1
    assert report.time.seconds == pytest.approx(20.0)
    assert report.total.busy_gpu_seconds == pytest.approx(10.0)


def test_samples_on_a_clock_set_back_are_counted(starved: list[Snapshot]) -> None:
    """The driver's stamps are wall time, too."""
    taken = []
    for number, snapshot in enumerate(starved[:31]):
        back = 3600.0 if number > 10 else 0.0
        at = snapshot.taken_at_unix_seconds - back
        samples = tuple(BusySample(at - 0.8 + 0.2 * n, 40.0) for n in range(5))
        (made,) = with_readings([snapshot], [GpuReading(busy_samples=samples)])
        taken.append(replace(made, taken_at_unix_seconds=at))
    assert summed(taken).total.busy_gpu_seconds == pytest.approx(12.0, abs=0.1)


def test_mig_instances_are_not_added_to_their_card() -> None:
    """The totals are those of the cards."""
    report = summed(simulated("mig", 30))
    assert len(report.gpus) == 5
    assert len(report.cards) == 2
    energies = [gpu.energy_joules for gpu in report.cards]
    assert report.total.energy_joules == pytest.approx(sum(e for e in energies if e is not None))


@pytest.mark.parametrize("scenario", ["no_gpu", "mixed"])
def test_every_machine_has_a_summary(scenario: str) -> None:
    """Busy and idle time are the time watched, and no share leaves its bounds."""
    report = summed(simulated(scenario, 100, gpus=0 if scenario == "no_gpu" else 4))
    for gpu in report.gpus:
        if gpu.busy_seconds is not None and gpu.watched_seconds is not None:
            assert 0 <= gpu.busy_seconds <= gpu.watched_seconds <= report.time.seconds + 1
        for profile in gpu.profiles.values():
            for low, mean, high in zip(profile.minimum, profile.mean, profile.maximum, strict=True):
                assert (low is None) == (mean is None) == (high is None)
                if low is not None and mean is not None and high is not None:
                    assert low <= mean + 0.06
                    assert mean <= high + 0.06
    for use in report.findings:
        for stretch in use.stretches:
            assert report.time.begin_unix_seconds <= stretch.begin_unix_seconds
            assert stretch.begin_unix_seconds <= stretch.end_unix_seconds
            assert stretch.end_unix_seconds <= report.time.end_unix_seconds


def test_memory_is_bounded_by_what_is_kept(starved: list[Snapshot]) -> None:
    """Thousands of short processes leave only those that used most, and it is told."""
    taken = []
    random_numbers = random.Random(1)
    for number, snapshot in enumerate(starved[:60]):
        many = tuple(
            replace(
                snapshot.processes[0],
                pid=100_000 + 100 * number + n,
                gpu_uuid=None,
                cpu_percent=random_numbers.uniform(1, 100),
            )
            for n in range(100)
        )
        taken.append(replace(snapshot, processes=many, jobs=()))
    report = summed(taken)
    assert len(report.processes) <= 1124
    assert report.left_out_processes + len(report.processes) == 6000


def test_snapshots_of_equal_times_do_not_divide_by_zero(starved: list[Snapshot]) -> None:
    """A single moment is a report of no length."""
    report = summed([starved[0], starved[0]])
    assert report.time.seconds == 0.0
    assert report.total.busy_percent is None
