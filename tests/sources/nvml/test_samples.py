"""The driver's fine utilisation samples."""

from gpuwatch.core.model import BusySample
from tests.sources.nvml.watch import START_UNIX_SECONDS, Watch

START_US = round(START_UNIX_SECONDS * 1e6)


def percents(watch: Watch) -> list[float]:
    samples = watch.reading().busy_samples
    assert samples is not None
    return [sample.percent for sample in samples]


def test_the_first_read_brings_the_history_the_driver_holds(watch: Watch) -> None:
    """At start the whole ring is taken, oldest first."""
    watch.fake.gpu[0].set_samples([(START_US - 2000, 10), (START_US - 1000, 90)])
    watch.tick()
    assert watch.reading().busy_samples == (
        BusySample((START_US - 2000) / 1e6, 10.0),
        BusySample((START_US - 1000) / 1e6, 90.0),
    )


def test_each_sample_is_delivered_once(watch: Watch) -> None:
    """The newest time stamp is handed to the driver, so only new samples follow."""
    gpu = watch.fake.gpu[0]
    gpu.set_samples([(START_US - 1000, 10)])
    watch.tick()
    gpu.set_samples([(START_US - 1000, 10), (START_US + 500, 20), (START_US + 900, 30)])
    watch.tick()
    assert percents(watch) == [20, 30]


def test_an_oscillation_is_seen_whole_between_two_reads(watch: Watch) -> None:
    """A 0/99 square wave faster than the interval shows both its levels in one read."""
    watch.fake.gpu[0].set(sample_period_us=20_000)
    watch.fake.gpu[0].waveform("square", period_seconds=0.4)
    watch.ticks(2)
    assert min(percents(watch)) == 0
    assert max(percents(watch)) == 99
    assert 45 <= len(percents(watch)) <= 51


def test_a_gpu_without_samples_says_so_and_is_polled(watch: Watch) -> None:
    """NOT_SUPPORTED gives None and one sentence about dips; the percentage is still read."""
    watch.fake.fault("nvmlDeviceGetSamples", "NOT_SUPPORTED")
    watch.fake.gpu[0].set(utilization=55)
    watch.ticks(3)
    assert watch.reading().busy_samples is None
    assert watch.reading().busy_percent == 55
    assert watch.problem("dips shorter than the interval").severity == "info"
    assert watch.fake.calls("nvmlDeviceGetSamples") == 1


def test_samples_survive_a_clock_set_back(watch: Watch) -> None:
    """After the wall clock stepped back an hour, samples come again within seconds."""
    watch.fake.gpu[0].waveform("steady", level_percent=70)
    watch.ticks(2)
    watch.clock.unix_epoch_seconds -= 3600
    watch.ticks(15)
    assert percents(watch)
    assert set(percents(watch)) == {70}


def test_no_sample_twice_when_the_reading_is_not_due(watch: Watch) -> None:
    """When the sample call got slow and is skipped for a tick, the last samples do not repeat."""
    watch.fake.gpu[0].waveform("steady", level_percent=70)
    watch.costs["nvmlDeviceGetSamples"] = 0.15
    stamps: list[float] = []
    empty = 0
    for _ in range(8):
        watch.tick()
        samples = watch.reading().busy_samples
        assert samples is not None
        empty += not samples
        stamps += [sample.at_unix_seconds for sample in samples]
    assert len(stamps) == len(set(stamps))
    assert empty >= 1


def test_a_growing_ring_is_asked_for_its_size_again(watch: Watch) -> None:
    """INSUFFICIENT_SIZE makes the source ask for the size once more, not fail."""
    watch.fake.gpu[0].set_samples([(START_US - 1000, 1)])
    watch.tick()
    watch.fake.gpu[0].set_samples([(START_US + n, n % 100) for n in range(1, 100)])
    watch.tick()
    assert len(percents(watch)) == 99
    assert watch.last.problems == ()
