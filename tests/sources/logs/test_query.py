"""``nvidia-smi --query-gpu`` logs: what was written comes back, whatever the columns."""

import random
import time
from collections.abc import Iterator, Sequence
from itertools import pairwise
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuwatch.commands.reading import read_report
from gpuwatch.core.model import Snapshot
from gpuwatch.sources.logs.headings import parse_columns
from gpuwatch.sources.logs.source import LogOptions, read_lines
from gpuwatch.sources.logs.text import LogError, LogStats
from tests.sources.smi_writing import ALL, MIB, USUAL, busy, query_log, read, row, simulated, stamp

HEADER = "timestamp, index, utilization.gpu [%], memory.used [MiB]"


def assert_read_back(
    written: Sequence[Snapshot], found: Sequence[Snapshot], columns: Sequence[str]
) -> None:
    """To the digits that nvidia-smi writes."""
    for before, after in zip(written, found, strict=True):
        assert [row(gpu, 0.0, columns) for gpu in after.gpus] == [
            row(gpu, 0.0, columns) for gpu in before.gpus
        ]


@pytest.mark.parametrize("gpus", [1, 2, 8])
@pytest.mark.parametrize("units", [True, False])
def test_a_simulated_machine_s_log_reads_back_the_same(gpus: int, units: bool) -> None:
    """Every column that is kept gives the numbers that were written."""
    written = simulated(gpus=gpus, count=10)
    found = read(query_log(written, ALL, units=units))
    assert_read_back(written, found, ALL)


@pytest.mark.parametrize("seed", range(6))
def test_columns_may_stand_in_any_order(seed: int) -> None:
    """A shuffled selection reads back the same."""
    chance = random.Random(seed)
    columns = chance.sample(ALL, len(ALL))[: chance.randint(4, len(ALL))]
    if not {"index", "uuid", "pci.bus_id"} & set(columns):
        columns.append("index")
    if "utilization.gpu" not in columns:
        columns.insert(0, "utilization.gpu")
    written = simulated(gpus=3, count=6)
    assert_read_back(written, read(query_log(written, columns)), columns)


def test_a_misspelled_column_names_its_neighbour() -> None:
    """The sentence says which field was meant, and is no traceback."""
    with pytest.raises(LogError, match=r"is it utilization\.gpu"):
        parse_columns("timestamp,utilizatoin.gpu")


@pytest.mark.parametrize(
    "columns", ["", "-,-", "serial", "x" * 5000, ",".join(["index"] * 1000), "\x1b[31m,index"]
)
def test_columns_that_say_nothing_are_refused(columns: str) -> None:
    """With a sentence that holds no control character."""
    with pytest.raises(LogError) as caught:
        parse_columns(columns)
    assert str(caught.value).isprintable()


def test_old_and_new_names_mean_the_same() -> None:
    """Throttle reasons are event reasons; clocks.sm is clocks.current.sm."""
    old = "index, clocks.sm [MHz], clocks_throttle_reasons.sw_power_cap, gpu_name\n"
    new = "index, clocks.current.sm [MHz], clocks_event_reasons.sw_power_cap, name\n"
    rows = "0, 1980 MHz, Active, NVIDIA H200\n1, 345 MHz, Not Active, NVIDIA H200\n"
    for head in (old, new):
        (snapshot,) = read(head + rows)
        assert [gpu.reading.throttle_reasons for gpu in snapshot.gpus] == [("sw_power_cap",), ()]
        assert [gpu.reading.sm_clock_mhz for gpu in snapshot.gpus] == [1980, 345]
        assert snapshot.gpus[0].identity.name == "NVIDIA H200"


def test_reason_counters_become_durations() -> None:
    """Microseconds since the driver was loaded: the differences, none for the first row."""
    head = "timestamp, clocks_event_reasons_counters.sw_power_cap [us], utilization.gpu [%]\n"
    text = head + "".join(
        f"2025/01/31 12:00:0{second}.000, {1_000_000 + second * 250_000} us, 99 %\n"
        for second in range(4)
    )
    found = read(text)
    assert found[0].gpus[0].reading.throttle_durations is None
    durations = found[2].gpus[0].reading.throttle_durations
    assert durations is not None
    assert durations[0] == ("sw_power_cap", pytest.approx(0.25))


def test_the_instant_power_is_preferred_to_the_average() -> None:
    """Where a log has both; the average alone is marked as such."""
    both = "power.draw.average [W], power.draw.instant [W]\n100.00 W, 300.00 W\n"
    alone = "power.draw.average [W]\n100.00 W\n"
    assert read(both)[0].gpus[0].reading.power_watts == 300.0
    assert not read(both)[0].gpus[0].reading.power_is_average
    assert read(alone)[0].gpus[0].reading.power_is_average


def test_free_memory_says_what_is_used() -> None:
    """Total less free."""
    text = "memory.total [MiB], memory.free [MiB]\n1000 MiB, 400 MiB\n"
    assert read(text)[0].gpus[0].reading.memory_used_bytes == 600 * MIB


@pytest.mark.parametrize(
    "absent",
    [
        "[N/A]", "N/A", "[Not Supported]", "[Unknown Error]", "", "[Insufficient Permissions]",
        "ERR!", "nan", "inf", "-1 %", "101 %", "1e999", "0x", "\x1b[2J", "9" * 400,
    ],
)  # fmt: skip
def test_what_was_not_read_is_none_and_counted(absent: str) -> None:
    """Never a zero, and the other readings of the row stay."""
    stats = LogStats()
    text = f"{HEADER}\n2025/01/31 12:00:00.000, 0, {absent}, 100 MiB\n"
    text += "2025/01/31 12:00:01.000, 0, 50 %, 100 MiB\n"
    found = read(text, stats)
    assert busy(found) == [[None], [50.0]]
    assert found[0].gpus[0].reading.memory_used_bytes == 100 * MIB
    assert stats.unread_values == 1


def test_a_lost_gpu_is_lost() -> None:
    """A row that says so, and a GPU that is missing after nvidia-smi said so."""
    text = f"""{HEADER}
2025/01/31 12:00:00.000, 0, 50 %, 100 MiB
2025/01/31 12:00:00.001, 1, 50 %, 100 MiB
2025/01/31 12:00:01.000, 0, 50 %, 100 MiB
2025/01/31 12:00:01.001, 1, [GPU is lost], [GPU is lost]
Unable to determine the device handle for GPU 0000:41:00.0: GPU is lost.  Reboot the system
2025/01/31 12:00:02.000, 0, 50 %, 100 MiB
2025/01/31 12:00:03.000, 0, 50 %, 100 MiB
"""
    stats = LogStats()
    found = read(text, stats)
    assert [[gpu.lost for gpu in snapshot.gpus] for snapshot in found] == [
        [False, False],
        [False, True],
        [False, True],
        [False, True],
    ]
    problems = [problem.message for snapshot in found for problem in snapshot.problems]
    assert len(problems) == 1
    assert "GPU is lost" in problems[0]
    assert stats.other_lines == 1


def test_rubbish_between_the_rows_is_left_out_and_counted() -> None:
    """Blank lines, repeated headers, warnings, a byte-order mark and line ends of Windows."""
    lines = ["\ufeff" + HEADER]
    for second in range(20):
        lines += [f"2025/01/31 12:00:{second:02d}.000, 0, {second} %, 100 MiB", ""]
        if second % 5 == 0:
            lines += [HEADER, "WARNING: infoROM is corrupted at gpu 0000:C1:00.0"]
    stats = LogStats()
    found = list(read_lines([line + "\r" for line in lines], stats))
    assert busy(found) == [[float(second)] for second in range(20)]
    assert stats.other_lines == 4
    assert any("infoROM" in sentence for sentence in stats.sentences())


def test_a_header_with_other_columns_starts_anew() -> None:
    """Two logs in one file are read each by its own header."""
    text = (
        "index, utilization.gpu [%]\n0, 10 %\n0, 20 %\n"
        "utilization.gpu [%], index, temperature.gpu\n30 %, 0, 55\n"
    )
    assert busy(read(text)) == [[10.0], [20.0], [30.0]]


def test_gpus_without_index_are_those_of_one_moment() -> None:
    """Rows a few milliseconds apart are one moment; an incomplete one is left out."""
    columns = ("timestamp", "utilization.gpu", "memory.used")
    written = simulated(gpus=4, count=30)
    lines = query_log(written, columns).splitlines()
    del lines[1 + 4 * 10 + 2]
    stats = LogStats()
    found = list(read_lines(lines, stats))
    assert len(found) == 29
    assert {len(snapshot.gpus) for snapshot in found} == {4}
    assert stats.incomplete_ticks == 1
    assert stats.missing_ticks == 1


def test_a_clock_that_goes_back_does_not_turn_time_back() -> None:
    """Summer time ends: the stamps repeat an hour, the time axis goes on."""
    hours = ["02:59:58", "02:59:59", "02:00:00", "02:00:01", "02:00:02"]
    text = "timestamp, utilization.gpu [%]\n" + "".join(
        f"2025/10/26 {clock}.000, 50 %\n" for clock in hours
    )
    stats = LogStats()
    found = read(text, stats)
    axis = [snapshot.monotonic_seconds for snapshot in found]
    steps = [after - before for before, after in pairwise(axis)]
    assert steps == pytest.approx([1.0, 1.0, 1.0, 1.0])
    assert stats.clock_jumps == 1


def test_runs_on_one_node_after_the_other_are_of_one_gpu() -> None:
    """Its bus differs; what damage left of a date is no time."""
    times = ["2025/01/01 00:00:01", "2025", "2025/01/01 09:00:01"]
    rows = [f"{time}, 0, 0000:0{number}:00.0, 50 %" for number, time in enumerate(times)]
    found = read("\n".join(["timestamp, index, pci.bus_id, utilization.gpu [%]", *rows]))
    assert len({gpu.identity.uuid for snapshot in found for gpu in snapshot.gpus}) == 1
    assert found[-1].taken_at_unix_seconds - found[0].taken_at_unix_seconds == 32_400.0


def test_missing_moments_are_counted_and_leave_a_gap() -> None:
    """The time axis keeps the hole."""
    seconds = [*range(10), *range(15, 25)]
    text = "timestamp, utilization.gpu [%]\n" + "".join(
        f"2025/01/31 12:00:{second:02d}.000, 50 %\n" for second in seconds
    )
    stats = LogStats()
    found = read(text, stats)
    assert stats.missing_ticks == 5
    assert any("longest gap 6s" in sentence for sentence in stats.sentences())
    assert found[10].monotonic_seconds - found[9].monotonic_seconds == pytest.approx(6.0)


def usage(times: Sequence[float], busy_from: float, path: Path) -> tuple[dict[str, Any], str]:
    """The report of GPU 0 that idles at 50 W, and is 90% busy at 300 W from ``busy_from`` on; and
    what is said of how well the log could be read."""
    start = time.mktime((2025, 1, 31, 10, 0, 0, 0, 0, -1))
    rows = [
        f"{stamp(start + at)}, 0, {'90 %, 300' if at >= busy_from else '0 %, 50'}.00 W"
        for at in times
    ]
    path.write_text("\n".join(["timestamp, index, utilization.gpu [%], power.draw [W]", *rows, ""]))
    report = read_report([str(path)])
    assert report.source is not None
    return msgspec.to_builtins(report.gpus[0]), " ".join(report.source.notes)


@pytest.mark.parametrize(
    "later",
    [
        [1800.0 + 60.0 * number for number in range(60)],
        [1800.0 + 15.0 * (number // 2) + 2.0 * (number % 2) for number in range(480)],
        [1800.0 + 0.5 * number for number in range(1200)],
    ],
    ids=["every minute", "two loggers", "every half second"],
)
def test_where_the_spacing_changes_means_and_energy_are_those_of_the_time(
    later: list[float], tmp_path: Path
) -> None:
    """Every 5 s for half an hour, then otherwise for long: a step that recurs is no gap."""
    times = [*[5.0 * number for number in range(360)], *later]
    gpu, said = usage(times, 1800.0, tmp_path / "smi.csv")
    seconds = times[-1] - times[0]
    worked = times[-1] - 1795.0
    assert gpu["watched_seconds"] == pytest.approx(seconds)
    assert gpu["busy_seconds"] == pytest.approx(0.9 * worked)
    assert gpu["energy_joules"] == pytest.approx(300.0 * worked + 50.0 * (seconds - worked))
    assert "missing" not in said


@pytest.mark.parametrize("holes", [[100, 300], [100, 101]], ids=str)
def test_a_hole_now_and_then_stays_a_gap(holes: list[int], tmp_path: Path) -> None:
    """Of a minute each, in a log of one reading a second: nothing is known of that time."""
    times = [number + 60.0 * sum(number >= hole for hole in holes) for number in range(600)]
    gpu, said = usage(times, 1e9, tmp_path / "smi.csv")
    assert gpu["watched_seconds"] == pytest.approx(599.0 - len(holes))
    assert f"{60 * len(holes)} moments are missing" in said


def test_what_comes_after_a_hole_is_not_kept_back_for_long() -> None:
    """A few moments later it is known whether it is one; at the end at once."""
    seconds = [*range(20), *range(50, 70), 100]
    taken: list[str] = []

    def source() -> Iterator[str]:
        for line in lines:
            taken.append(line)
            yield line

    lines = ["timestamp, index, utilization.gpu [%]"]
    lines += [f"{stamp(1_738_326_896 + second)}, 0, 5 %" for second in seconds]
    came = [
        (snapshot.monotonic_seconds, len(taken))
        for snapshot in read_lines(source(), LogStats(), LogOptions())
    ]
    assert [round(at - came[0][0]) for at, _ in came] == seconds
    late = [lines_taken - place for place, (_, lines_taken) in enumerate(came)]
    assert max(late) <= 8
    # The heading, the row that begins the next moment, and one in which the log may be cut off.
    assert late[30] == 4


@pytest.mark.parametrize("interval", [None, 0.2])
def test_a_log_without_times_has_the_interval_that_is_given(interval: float | None) -> None:
    """One second where none is, and that is said."""
    stats = LogStats()
    found = read("utilization.gpu [%]\n" + "50 %\n" * 5, stats, interval_seconds=interval)
    step = found[1].monotonic_seconds - found[0].monotonic_seconds
    assert step == pytest.approx(interval or 1.0)
    assert any("assumed" in note for note in stats.notes) == (interval is None)


def test_stamps_are_local_time() -> None:
    """As nvidia-smi writes them; unix seconds and ISO 8601 with a zone are read too."""
    at = 1_738_326_896.25
    for written in (stamp(at), "1738326896.250", "2025-01-31T12:34:56.250Z"):
        (found,) = read(f"timestamp, utilization.gpu [%]\n{written}, 50 %\n")
        assert found.taken_at_unix_seconds == pytest.approx(at, abs=0.002)


def test_more_gpus_than_there_can_be_are_left_out() -> None:
    """An index of thousands costs no memory and no screen."""
    text = "index, utilization.gpu [%]\n" + "".join(f"{index}, 5 %\n" for index in range(3000))
    assert max(len(snapshot.gpus) for snapshot in read(text)) <= 64


def test_a_row_is_read_by_the_header_s_place_not_by_luck() -> None:
    """A row with a column too many or too few is left out."""
    gpu = simulated(gpus=1, count=1)[0].gpus[0]
    good = row(gpu, 1_700_000_000.0, USUAL)
    stats = LogStats()
    text = query_log([], USUAL) + f"{good}\n{good}, 5\n{good.rpartition(',')[0]}\n"
    assert len(read(text, stats)) == 1
    assert stats.other_lines == 2
