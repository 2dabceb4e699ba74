"""Bounded history: what goes in comes out as columns, and nothing in between is lost."""

import math
from bisect import bisect_left
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.core.model import BusySample, Host, Job, JobMember, Process, Snapshot
from gpuwatch.core.store import (
    JOBS_KEPT,
    Column,
    SampledSeries,
    Series,
    Stat,
    Store,
    Table,
    bucket_index,
    merged,
    stat_of,
)
from tests.support.snapshots import gpu, snapshot


def one(value: float) -> Column:
    return Column(value, value, value)


def polled(values: list[float | None], start: float = 0.0, step: float = 1.0) -> SampledSeries:
    series = SampledSeries()
    for place, value in enumerate(values):
        series.add_reading(start + (place + 1) * step, value, start + place * step)
    return series


def figures(stat: Stat | None) -> tuple[float | None, ...] | None:
    return None if stat is None else (stat.low, stat.mean, stat.high, stat.seconds)


def test_readings_that_speak_for_no_time_count_alike() -> None:
    """Two at one moment have a mean; no time is divided by."""
    stat = stat_of([10.0, 30.0], [0.0, 0.0])
    assert stat is not None
    assert (stat.low, stat.mean, stat.high) == (10.0, pytest.approx(20.0), 30.0)


def test_statistics_of_two_times_add_up() -> None:
    """Each mean counts for its time; nothing together with nothing is nothing."""
    both = merged([Stat(1.0, 3.0, 4.0, 2.0), Stat(5.0, 5.0, 30.0, 6.0)])
    assert both == Stat(1.0, 5.0, 34.0, 8.0)
    assert merged([]) is merged([Stat()]) is None


# --- buckets ----------------------------------------------------------------------------------


def test_reading_on_a_boundary_belongs_to_the_time_it_covers() -> None:
    """The bucket that ends at 3.0 holds the moment 3.0, float rounding or not."""
    assert bucket_index(3.0, 1.0) == 2
    assert bucket_index(3.0001, 1.0) == 3
    assert bucket_index(0.1 + 0.2, 0.1) == 2
    assert bucket_index(0.3, 0.1) == 2
    assert bucket_index(0.0, 1.0) == -1


# --- what one series draws --------------------------------------------------------------------

NAN, INFINITY = math.nan, math.inf


@pytest.mark.parametrize(
    ("readings", "end", "width", "expected"),
    [
        ([], 9.0, 1.0, [None]),
        # As they came, oldest first.
        ([(1, 10, 0), (2, 20, 1), (3, 30, 2)], 3.4, 1.0, [one(20), one(30), None]),
        # A poll of two seconds speaks for all the half seconds since the one before.
        ([(2, 10, 0), (4, 20, 2)], 4.0, 0.5, [one(10)] * 4 + [one(20)] * 4),
        # What speaks only for itself leaves gaps around it.
        ([(1.5, 50, None)], 3.0, 1.0, [None, one(50), None]),
        # What held three times as long counts three times.
        ([(1, 0, 0), (4, 100, 1)], 4.0, 4.0, [Column(0, 75, 100)]),
        # A missing reading and a measured zero differ, alone and beside others.
        ([(1, 0, 0), (2, None, 1), (3, 5, 2)], 3.0, 1.0, [one(0), None, one(5)]),
        ([(1, 0, 0), (2, None, 1), (3, 5, 2), (4, None, 3)], 4.0, 2.0, [one(0), one(5)]),
        ([(1, NAN, 0), (2, INFINITY, 1), (3, 1e300, 2)], 3.0, 1.0, [None] * 3),
        # Off the boundaries too, a column of one poll's width shows one poll.
        ([(1.37, 0, 0.37), (2.37, 9, 1.37)], 2.37, 1.0, [one(0), one(9)]),
    ],
)
def test_what_is_drawn_of_a_few_readings(
    readings: list[tuple[float, float | None, float | None]],
    end: float,
    width: float,
    expected: list[Column | None],
) -> None:
    """Readings are (when, value, since when it holds)."""
    series = SampledSeries()
    for at, value, since in readings:
        series.add_reading(at, value, since)
    assert series.columns(end, width, len(expected)) == expected
    assert series.columns(end, width, 0) == []


def test_samples_cover_the_time_since_the_one_before() -> None:
    """Samples half a second apart fill quarter seconds; more than a second apart they do not."""
    series = SampledSeries()
    series.add_samples([(1.0, 10), (1.5, 20), (4.0, 30)])
    columns = series.columns(4.0, 0.25, 16)
    assert columns[3:6] == [one(10), one(20), one(20)]
    assert columns[6:] == [None] * 9 + [one(30)]


def test_a_sample_that_is_not_newer_is_dropped() -> None:
    """A buffer that is read twice brings the same samples again."""
    series = SampledSeries()
    series.add_samples([(1.0, 10), (1.2, 20), (2.0, 90)])
    columns = series.columns(2.0, 1.0, 2)
    series.add_samples([(1.2, 20), (1.6, 0), (2.0, 90)])
    assert series.columns(2.0, 1.0, 2) == columns
    assert len(series.table) == 3


# --- tiers ------------------------------------------------------------------------------------


@pytest.mark.parametrize("step", [0.1, 7.0])
def test_memory_is_bounded(step: float) -> None:
    """However long it runs, the number of values kept does not grow."""
    series = SampledSeries(readings_kept=64)
    sizes = []
    for number in range(12_000):
        series.add_reading(number * step, 1.0, (number - 1) * step)
        if number in {6000, 11_999}:
            table = series.table
            sizes.append(len(table) + sum(len(tier) for tier in table.tiers))
    bound = 64 + 600 + 900 + 720 + 1440
    assert max(sizes) < bound


def test_columns_across_the_fold_agree_with_the_readings() -> None:
    """Columns that need folded and unfolded readings show the same as the readings do."""
    series = SampledSeries(readings_kept=70)
    values = [float((number * 37) % 101) for number in range(600)]
    for number, value in enumerate(values):
        series.add_reading(number + 1.0, value, float(number))
    for width in (5, 30, 60):
        count = 600 // width
        expected = [values[k * width : (k + 1) * width] for k in range(count)]
        columns = series.columns(600.0, float(width), count)
        for column, held in zip(columns, expected, strict=True):
            assert column is not None
            assert (column.minimum, column.maximum) == (min(held), max(held))
            assert column.mean == pytest.approx(sum(held) / len(held), rel=5e-4)


@pytest.mark.parametrize("seconds", [40, 400, 6000])
def test_mean_of_what_is_shown_is_that_of_its_columns(seconds: int) -> None:
    """Whether it is of few readings, of many, or of what was folded; without a reading there is
    none."""
    series = polled([float(number * 37 % 101) for number in range(6000)])
    width = seconds / 20
    means = [one.mean for one in series.columns(6000.0, width, 20) if one is not None]
    assert series.mean(6000.0, width, 20) == pytest.approx(sum(means) / 20, rel=1e-3)
    assert polled([None] * 40).mean(40.0, 2.0, 20) is None


# --- properties -------------------------------------------------------------------------------

PERCENTS = st.floats(0, 100, width=32)

HOURS = st.lists(
    st.tuples(
        st.sampled_from([0.2, 1.0, 1.0, 7.0, 29.0, 61.0, 400.0, 1700.0]),
        st.none() | PERCENTS,
        st.integers(1, 40),
    ),
    max_size=12,
)
"""(pause between readings, what is read, how many such readings)."""

RANGES = st.tuples(
    st.sampled_from([15.0, 60.0, 900.0, 3600.0, 3 * 3600.0, 12 * 3600.0]), st.integers(1, 180)
).map(lambda range_: range_[0] / range_[1])
"""What a column of a chart covers: any range, any width."""


def fed(series: SampledSeries, stretches: list[tuple[float, float | None, int]]) -> list[Any]:
    """Push the readings of ``stretches``; their (time, value), of which half speak for the time
    before them."""
    at, found = 0.0, []
    for pause, value, count in stretches:
        for number in range(count):
            before, at = at, at + pause
            series.add_reading(at, value, before if number % 2 else None)
            found.append((at, value))
            if number % 7 == 0:
                # Asking in between changes nothing of what is drawn later.
                series.columns(at, 1.0, 20)
    return found


COLUMNS = 400


def pages(
    series: SampledSeries, times: list[float], width: float
) -> Iterator[tuple[int, float, list[Column | None]]]:
    """The number of its first column, the end and the columns of charts that end at some of these
    times: now, and as one goes back in the last twelve hours."""
    oldest = bucket_index(max(0.0, times[-1] - 11.9 * 3600), width)
    for end in sorted({times[part * (len(times) - 1) // 8] for part in range(9)}):
        last = bucket_index(end, width)
        first = max(oldest, last - COLUMNS + 1)
        if last >= first:
            yield first, end, series.columns(end, width, last - first + 1)


@given(HOURS, RANGES, st.integers(4, 40))
@settings(max_examples=40, deadline=None)
def test_no_extreme_of_hours_is_lost_at_any_range(
    stretches: list[tuple[float, float | None, int]], width: float, kept: int
) -> None:
    """Whatever tier a reading has got into, and however wide the columns are, it is within the
    range of its column (to the precision of a tier), of all of the last twelve hours."""
    series = SampledSeries(readings_kept=kept)
    readings = fed(series, stretches)
    for first, end, columns in pages(series, [at for at, _ in readings], width) if readings else ():
        for at, value in readings:
            if value is None or not (first + 1) * width < at <= end:
                continue
            column = columns[bucket_index(at, width) - first]
            assert column is not None
            slack = max(1e-4, 5e-4 * abs(value))
            assert column.minimum - slack <= value <= column.maximum + slack
            assert column.minimum - 1e-3 <= column.mean <= column.maximum + 1e-3


@given(HOURS, RANGES, st.integers(4, 40))
@settings(max_examples=30, deadline=None)
def test_a_silence_is_a_gap_at_any_range(
    stretches: list[tuple[float, float | None, int]], width: float, kept: int
) -> None:
    """A column is drawn only where something was read in it, or in the tier's bucket at its
    edge: silence never becomes a value."""
    series = SampledSeries(readings_kept=kept)
    times, spoken = [0.0], []
    for pause, value, count in stretches:
        for _ in range(count):
            times.append(times[-1] + pause)
            series.add_reading(times[-1], value)
            if value is not None:
                spoken.append(times[-1])
    for first, _, columns in pages(series, times, width):
        for number, column in enumerate(columns):
            begin = (first + number) * width
            next_spoken = bisect_left(spoken, begin - 30.01)
            near = spoken[next_spoken : next_spoken + 1]
            assert column is None or (near and near[0] <= begin + width + 30.01)


def test_a_half_minute_counts_for_the_part_that_lies_in_a_column() -> None:
    """A column that cuts half minutes has the mean of its own time, and their extremes."""
    history = Store()
    for block, mean in enumerate((0.0, 40.0, 100.0)):
        history.take_block(block * 30.0, {}, {"cpu_percent": (0, mean, 100)})
    history.push(snapshot(at=90.5, host=Host(name="box", cpu_percent=0.0)))
    series = history.host("cpu_percent")
    assert series is not None
    # 0 to 50 s: all of the first, twenty seconds of the second.
    column = series.columns(100.0, 50.0, 2)[0]
    assert column is not None
    assert column.minimum == 0
    assert column.maximum == 100
    assert column.mean == pytest.approx((0.0 * 30 + 40.0 * 20) / 50)


def test_a_half_minute_of_which_nothing_is_charted_is_a_gap() -> None:
    """A recording's overview may know a GPU's busy share alone, or nothing."""
    history = Store()
    history.take_block(0.0, {"a": {"busy_percent": (0, 40, 100)}}, {})
    history.take_block(30.0, {"a": {"power_watts": (100, 200, 300)}}, {})
    busy, power = history.gpu("a", "busy_percent"), history.gpu("a", "power_watts")
    assert columns_of(busy, 60.0, 60)[29:31] == [Column(0, 40, 100), None]
    assert columns_of(power, 60.0, 60)[29:31] == [None, Column(100, 200, 300)]


def test_the_past_that_was_loaded_stays_when_snapshots_come() -> None:
    """A replay loads half minutes before the first snapshot that it shows: of every reading."""
    history = Store()
    for number in range(2):
        history.take_block(30.0 * number, {"a": {"power_watts": (100, 200, 300)}}, {})
    history.push(snapshot(at=60.5, gpus=(gpu("a", power_watts=50.0),)))
    power = history.gpu("a", "power_watts")
    assert columns_of(power, 60.0, 60)[:60:30] == [Column(100, 200, 300)] * 2


def test_column_that_has_ended_is_left_as_it_was() -> None:
    """Later readings do not change a column whose time is over, so little is redrawn."""
    series = polled([float(n * 13 % 17) for n in range(40)], start=0.37)
    before = series.columns(40.37, 2.0, 15)
    series.add_reading(41.37, 1000.0, 40.37)
    series.add_reading(42.37, 1000.0, 41.37)
    after = series.columns(42.37, 2.0, 16)
    assert after[:14] == before[:14]
    assert after[15] is not None


# --- what is asked of a table -----------------------------------------------------------------


def table(*names: str, keep: float = 100.0, **options: Any) -> Table:
    return Table(names, tiers=(), code="d", keep_seconds=keep, **options)


def test_statistics_leave_out_what_was_not_read_and_what_is_old() -> None:
    """Weighted by the time each reading speaks for."""
    made = table("rises", "odd")
    for at in range(100):
        made.add_row(float(at), 1.0, (float(at), None if at % 2 else 4.0))
    assert figures(made.over("rises", 89.0)) == (90.0, pytest.approx(94.5), 99.0, 10.0)
    assert figures(made.over("rises", 10.0, 12.0)) == (11.0, pytest.approx(11.5), 12.0, 2.0)
    assert figures(made.over("odd", 89.0)) == (4.0, 4.0, 4.0, 5.0)
    assert made.means(89.0) == [pytest.approx(94.5), 4.0]
    assert made.seconds_since(89.0) == pytest.approx(10.0)
    made.add_row(102.0, 3.0, (0.0, None))
    assert made.means(98.0) == [pytest.approx(99.0 / 4), None]
    assert made.means(200.0) == [None, None]
    with pytest.raises(KeyError):
        made.over("falls", 0.0)


def test_fast_readings_weigh_by_their_time() -> None:
    """Ten a second, half of them 10 and then half of them 30, are 20."""
    made = table("read")
    for number in range(1, 401):
        made.add_row(number / 10, 0.1, (10.0 if number <= 200 else 30.0,))
    assert made.means(0.0) == [pytest.approx(20.0)]
    assert made.seconds_since(0.0) == pytest.approx(40.0)


@pytest.mark.parametrize("kept", [1024, 40])
def test_statistics_reach_into_what_was_folded(kept: int) -> None:
    """Whether the readings are kept as they came or in buckets of five seconds."""
    made = Table(("level", "rate"), kept, ((5.0, 900.0),))
    for at in range(1, 301):
        made.add_row(float(at), 1.0, (float(at % 50), 100.0 if 150 < at <= 160 else 0.0))
    found = made.over("level", 50.0, 250.0)
    assert figures(found) == pytest.approx((0.0, 24.5, 49.0, 200.0), rel=1e-3)
    assert made.total("rate", 148.0, 162.0) == pytest.approx(1000.0, rel=1e-3)
    assert made.means(0.0)[1] == pytest.approx(1000.0 / 300.0, rel=1e-3)


def test_a_table_forgets_what_is_older_than_it_keeps() -> None:
    """However many readings come, and at most so many of them."""
    made, fast = table("read", keep=60.0), table("read", keep=60.0, kept=100)
    for number in range(1, 5001):
        made.add_row(float(number), 1.0, (90.0 if number == 4000 else 50.0,))
        fast.add_row(number / 100, 0.01, (1.0,))
    assert figures(made.over("read", 0.0)) == (50.0, 50.0, 50.0, float(len(made)))
    assert 60 <= len(made) <= 60 * 1.25 + 32
    assert len(fast) <= 132


def test_a_total_is_what_went_through() -> None:
    """Between any two moments that are kept, of parts of a reading as well."""
    made = table("written", "unread", "counted")
    for at in range(1, 200):
        made.add_row(float(at), 1.0, (100.0 if 150 < at <= 160 else 0.0, None, at))
    assert made.total("written", 148.0, 162.0) == pytest.approx(1000.0)
    assert made.total("written", 152.25, 154.5) == pytest.approx(225.0)
    assert made.mean("written", 152.0, 154.0) == pytest.approx(100.0)
    assert made.total("unread", 150.0, 160.0) is None
    assert made.total("written", 5.0, 10.0) is None


def test_a_total_counts_no_more_than_was_read() -> None:
    """A reading after a gap of a minute speaks for its own second."""
    made = table("read", keep=100.0)
    for number in range(1, 101):
        made.add_row(number / 10, 0.1, (10.0 if number <= 45 else 30.0,))
    assert made.total("read", 0.0, 10.0) == pytest.approx(4.5 * 10 + 5.5 * 30)
    for number in range(3):
        made.add_row(70.0 + number, 1.0, (30.0,))
    assert made.total("read", 10.0, 72.0) == pytest.approx(90.0)


# --- Store ----------------------------------------------------------------------------------


def pushed(*snapshots: Snapshot) -> Store:
    history = Store()
    for item in snapshots:
        history.push(item)
    return history


def columns_of(series: Series | None, end: float, count: int) -> list[Column | None]:
    assert series is not None
    return series.columns(end, 1.0, count)


def test_readings_of_a_gpu_are_series() -> None:
    """Each GPU has its own series, by uuid, under the model's names."""
    history = pushed(
        *(
            snapshot(
                at=float(at),
                gpus=(gpu("a", 0, power_watts=100.0 + at), gpu("b", 1, power_watts=200.0)),
            )
            for at in (1, 2)
        )
    )
    assert columns_of(history.gpu("a", "power_watts"), 2.0, 2) == [one(101), one(102)]
    assert columns_of(history.gpu("b", "power_watts"), 2.0, 1) == [one(200)]
    assert history.gpu("c", "power_watts") is None
    assert history.gpu("a", "fan_percent") is None
    assert history.latest_at == 2.0
    with pytest.raises(KeyError):
        history.gpu("a", "power")


@pytest.mark.parametrize(
    ("pushes", "expected"),
    [
        # Neither a reading that failed nor a hang of ten seconds is drawn over.
        ([(1, 1, 1.0), (2, 1, None), (3, 1, 3.0), (5, 1, 5.0)], [1, None, 3, 5, 5]),
        ([(1, 1, 1.0), (15, 1, 15.0)], [1, *[None] * 13, 15]),
        # The first poll after a change from ten seconds to one still speaks for the ten.
        ([(10, 10, 1.0), (20, 1, 2.0)], [2] * 10),
        # A series that begins late has a gap before.
        ([(1, 1, None), (2, 1, 0.0), (3, 1, 30.0)], [None, 0, 30]),
    ],
)
def test_a_poll_speaks_for_its_interval(
    pushes: list[tuple[float, float, float | None]], expected: list[float | None]
) -> None:
    """Pushes are (when, interval, value)."""
    taken = [
        snapshot(at=float(at), interval_seconds=float(every), gpus=(gpu(power_watts=value),))
        for at, every, value in pushes
    ]
    series = pushed(*taken).gpu("GPU-a", "power_watts")
    columns = columns_of(series, float(pushes[-1][0]), len(expected))
    assert columns == [None if value is None else one(value) for value in expected]


def test_busy_without_samples_is_the_polled_value() -> None:
    """An empty buffer adds nothing; all of a lost GPU is a gap until it is there again."""
    taken = ({"busy_percent": 10.0}, {"busy_samples": ()}, {"lost": True}, {"busy_percent": 0.0})
    history = pushed(
        *(snapshot(at=float(at), gpus=(gpu("a", **what),)) for at, what in enumerate(taken, 1))
    )
    found = columns_of(history.gpu("a", "busy_percent"), 4.0, 4)
    assert (found[0], found[2]) == (one(10), None)


def test_busy_is_fed_by_the_fine_samples() -> None:
    """Wall-clock stamps of the driver become monotonic times; the average is not used."""
    stamps = [1_700_000_000.0 + at for at in (4.25, 4.5, 4.75, 5.0)]
    samples = tuple(BusySample(at, 99.0 * (n % 2)) for n, at in enumerate(stamps))
    history = pushed(snapshot(at=5.0, gpus=(gpu(busy_percent=50.0, busy_samples=samples),)))
    series = history.gpu("GPU-a", "busy_percent")
    assert series is not None
    assert series.columns(5.0, 0.25, 4) == [one(0), one(99), one(0), one(99)]
    assert columns_of(series, 5.0, 1) == [Column(0, pytest.approx(66), 99)]


def test_host_and_cores_are_series() -> None:
    """Host readings by name, cores by number; a core that goes offline leaves a gap."""
    history = pushed(
        snapshot(at=1.0, host=Host(name="x", cpu_percent=0.0, core_percents=(1.0, 2.0))),
        snapshot(at=2.0, host=Host(name="x", cpu_percent=9.0, core_percents=(3.0,))),
        snapshot(at=3.0, host=Host(name="x", core_percents=(4.0, 5.0, 6.0))),
    )
    assert columns_of(history.host("cpu_percent"), 3.0, 3) == [one(0), one(9), None]
    assert columns_of(history.host_core(0), 3.0, 3) == [one(1), one(3), one(4)]
    assert columns_of(history.host_core(1), 3.0, 3) == [one(2), None, one(5)]
    assert columns_of(history.host_core(2), 3.0, 3) == [None, None, one(6)]
    assert history.host_core(3) is None
    with pytest.raises(KeyError):
        history.host("cpu")


def worker(pid: int, started: float = 1.0, **readings: float) -> Process:
    return Process(pid=pid, started_at_unix_seconds=started, **readings)  # type: ignore[arg-type]


def test_processes_are_told_apart_by_start_and_gpu() -> None:
    """A reused PID, and the same process on two GPUs, are series of their own."""
    taken = (
        Process(pid=7, started_at_unix_seconds=1.0, gpu_uuid="a", gpu_busy_percent=10.0),
        Process(pid=7, started_at_unix_seconds=1.0, gpu_uuid="b", gpu_busy_percent=20.0),
        Process(pid=7, started_at_unix_seconds=2.0, gpu_uuid="a", gpu_busy_percent=30.0),
    )
    history = pushed(snapshot(at=1.0, processes=taken))
    for process, value in zip(taken, (10, 20, 30), strict=True):
        series = history.process(process.key, process.gpu_uuid, "gpu_busy_percent")
        assert columns_of(series, 1.0, 1) == [one(value)]


def test_process_is_forgotten_a_minute_after_its_end() -> None:
    """A process that is gone keeps its series for a while, then frees the memory."""
    history = pushed(snapshot(at=1.0, processes=(worker(7, cpu_percent=50.0),)))
    key = (7, 1.0)
    for at in range(2, 56):
        history.push(snapshot(at=float(at)))
    assert history.process(key, None, "cpu_percent") is not None
    for at in range(56, 80):
        history.push(snapshot(at=float(at)))
    assert history.process(key, None, "cpu_percent") is None


def test_number_of_processes_followed_is_bounded() -> None:
    """Of thousands of processes without a GPU some have no series; one on a GPU always has."""
    crowd = tuple(worker(pid, cpu_percent=1.0) for pid in range(2000))
    on_gpu = Process(pid=9999, started_at_unix_seconds=1.0, gpu_uuid="a", cpu_percent=2.0)
    history = pushed(snapshot(at=1.0, processes=(*crowd, on_gpu)))
    followed = [process for process in crowd if history.process(process.key, None, "cpu_percent")]
    assert len(followed) == 512
    assert history.process(on_gpu.key, "a", "cpu_percent") is not None


def test_snapshot_delivered_again_changes_nothing() -> None:
    """After a failed read the last snapshot comes again: it is no new reading."""
    taken = snapshot(at=5.0, gpus=(gpu(busy_percent=50.0, power_watts=9.0),))
    history = pushed(taken, taken, snapshot(at=4.0, gpus=(gpu(power_watts=1.0),)))
    assert columns_of(history.gpu("GPU-a", "power_watts"), 5.0, 2) == [None, one(9)]


def test_long_run_of_a_history_folds_all_alike() -> None:
    """After half an hour at one a second every kind of series still shows its swings."""
    history = Store()
    for at in range(1, 1800):
        value = 100.0 * (at % 2)
        history.push(
            snapshot(
                at=float(at),
                gpus=(gpu(power_watts=value),),
                host=Host(name="x", cpu_percent=value, core_percents=(value,)),
                processes=(worker(1, cpu_percent=value),),
            )
        )
    for series in (
        history.gpu("GPU-a", "power_watts"),
        history.host("cpu_percent"),
        history.host_core(0),
        history.process((1, 1.0), None, "cpu_percent"),
    ):
        assert series is not None
        columns = series.columns(1790.0, 30.0, 59)
        assert all(column is not None for column in columns)
        assert all(c is not None and (c.minimum, c.maximum) == (0, 100) for c in columns)


def test_a_first_reading_behind_columns_already_asked_for_is_shown() -> None:
    """Columns asked for while a series was empty show what arrives late for them."""
    series = SampledSeries()
    assert series.columns(100.0, 1.0, 5) == [None] * 5
    series.add_samples([(98.0, 40.0)])
    assert series.columns(101.0, 1.0, 5)[1] == (40.0, 40.0, 40.0)


# --- jobs -------------------------------------------------------------------------------------


def job(pid: int = 7, main: float | None = 50.0, **fields: Any) -> Job:
    """A rank that uses 80% with its main thread at ``main``, and a worker at 95%."""
    members = (
        JobMember(
            pid=pid,
            started_at_unix_seconds=1.0,
            role="rank",
            cpu_percent=80.0,
            main_thread_cpu_percent=main,
            read_bytes_per_second=5.0,
        ),
        JobMember(pid=pid + 1, started_at_unix_seconds=2.0, role="loader_worker", cpu_percent=95.0),
    )
    return Job(**({"pid": pid, "started_at_unix_seconds": 1.0, "members": members} | fields))


def test_readings_of_a_job_are_series() -> None:
    """A job's sums and means over its processes can be drawn; what it lacks has no series."""
    history = pushed(*(snapshot(at, jobs=(job(main=at),)) for at in (1.0, 2.0)))
    key = (7, 1.0)
    assert columns_of(history.job(key, "read_bytes_per_second"), 2.0, 2)[1] == one(5.0)
    assert columns_of(history.job(key, "main_thread_cpu_percent"), 2.0, 2)[1] == one(2.0)
    assert columns_of(history.job(key, "loader_worker_cpu_percent"), 2.0, 2)[1] == one(95.0)
    assert history.job(key, "write_bytes_per_second") is None
    assert history.job((7, 9.0), "read_bytes_per_second") is None
    with pytest.raises(KeyError):
        history.job(key, "mood")


def test_fine_samples_of_a_job_are_drawn_as_they_are() -> None:
    """An anti-phase finer than the snapshots is still there, on the charts' own time axis."""
    wall = 1_700_000_000.0
    main = tuple(BusySample(wall + 9.0 + at, p) for at, p in ((0.25, 100.0), (0.5, 0.0)))
    worker = tuple(BusySample(wall + 9.0 + at, p) for at, p in ((0.25, 3.0), (0.5, 97.0)))
    taken = snapshot(10.0, jobs=(job(main_thread_samples=main, loader_worker_samples=worker),))
    history = pushed(taken)
    series = history.job((7, 1.0), "main_thread_cpu_percent")
    workers = history.job((7, 1.0), "loader_worker_cpu_percent")
    assert series is not None
    assert workers is not None
    assert series.columns(9.5, 0.25, 2) == [one(100.0), one(0.0)]
    assert workers.columns(9.5, 0.25, 2) == [one(3.0), one(97.0)]


def test_job_that_is_attached_later_goes_on_in_the_same_series() -> None:
    """The readings before the fine samples began stay beside them."""
    fine = (BusySample(1_700_000_001.5, 10.0), BusySample(1_700_000_002.0, 30.0))
    history = pushed(
        snapshot(0.5, jobs=(job(),)),
        snapshot(1.0, jobs=(job(),)),
        snapshot(2.0, jobs=(job(main_thread_samples=fine),)),
    )
    series = history.job((7, 1.0), "main_thread_cpu_percent")
    assert series is not None
    assert series.columns(2.0, 0.5, 3) == [one(50.0), one(10.0), one(30.0)]


def test_job_is_forgotten_a_minute_after_it_left_the_snapshots() -> None:
    """A job that ended but is still shown keeps its series; one that is gone loses it."""
    ended = job(pid=20, ended_at_unix_seconds=1.0, members=())
    history = pushed(snapshot(1.0, jobs=(job(), ended)))
    for at in range(2, 140):
        history.push(snapshot(float(at), jobs=(ended,)))
    assert history.job((7, 1.0), "read_bytes_per_second") is None
    assert history.process((8, 2.0), None, "cpu_percent") is None
    kept = job(pid=20, ended_at_unix_seconds=1.0)
    history.push(snapshot(140.0, jobs=(kept,)))
    columns = columns_of(history.job((20, 1.0), "read_bytes_per_second"), 140.0, 2)
    assert columns == [None, one(5.0)]


def test_number_of_jobs_followed_is_bounded() -> None:
    """Beyond a number of jobs at once, later ones have no series."""
    many = tuple(job(pid=10 * number) for number in range(JOBS_KEPT + 2))
    history = pushed(snapshot(1.0, jobs=many))
    assert history.job((10 * (JOBS_KEPT - 1), 1.0), "read_bytes_per_second") is not None
    assert history.job((10 * JOBS_KEPT, 1.0), "read_bytes_per_second") is None


def test_reading_that_is_late_is_a_gap() -> None:
    """What a GPU does can have changed since a late reading; what it holds hardly has."""
    history = Store()
    late = (("busy_percent", 9.0), ("memory_used_bytes", 9.0), ("power_watts", 9.0), ("name", 9.0))
    values = {"busy_percent": 99.0, "power_watts": 119.0, "memory_used_bytes": 1 << 30}
    for at, ages in ((1.0, ()), (2.0, late), (3.0, ())):
        history.push(snapshot(at, gpus=(gpu(late_readings=ages, **values),)))
    assert columns(history, "busy_percent") == [one(99.0), None, one(99.0)]
    assert columns(history, "power_watts") == [one(119.0), None, one(119.0)]
    assert columns(history, "memory_used_bytes") == [one(float(1 << 30))] * 3


def columns(history: Store, name: str) -> list[Column | None]:
    series = history.gpu(gpu().uuid, name)
    assert series is not None
    return series.columns(3.0, 1.0, 3)


def test_bytes_of_hours_ago_are_right_to_a_twentieth_of_a_percent() -> None:
    """Large and small ones alike, though what is old is kept in half precision."""
    history, traffic = Store(), 3e3
    for minute in range(2400):
        used = gpu(
            "a", memory_used_bytes=151_000_000_000 + minute, pcie_rx_bytes_per_second=traffic
        )
        history.push(snapshot(30.0 * minute, interval_seconds=30.0, gpus=(used,)))
    for name, value in (("memory_used_bytes", 151e9), ("pcie_rx_bytes_per_second", traffic)):
        series = history.gpu("a", name)
        assert series is not None
        (column,) = series.columns(30.0 * 2400 - 11 * 3600, 60.0, 1)
        assert column == pytest.approx((value, value, value), rel=5e-4)
