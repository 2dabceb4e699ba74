"""Logs that other programs have had in their hands, and files that are no logs at all."""

import itertools
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import pytest

from gpuwatch.core.model import Snapshot
from gpuwatch.recording.file import open_any
from gpuwatch.sources.logs import text as log_text
from gpuwatch.sources.logs.headings import parse_columns
from gpuwatch.sources.logs.source import read_lines
from gpuwatch.sources.logs.text import LogError, LogStats
from tests.sources.logs.test_dmon import DMON
from tests.sources.smi_writing import busy, read, stamp

HEADER = "timestamp, index, utilization.gpu [%]"
START = time.mktime((2025, 1, 31, 12, 0, 0, 0, 0, -1))


def first_busy(snapshots: Sequence[Snapshot]) -> list[float | None]:
    return [row[0] for row in busy(snapshots)]


def steps(snapshots: Sequence[Snapshot]) -> set[float]:
    axis = [snapshot.monotonic_seconds for snapshot in snapshots]
    return {round(after - before, 3) for before, after in itertools.pairwise(axis)}


def rows(count: int = 30) -> list[tuple[str, str, str]]:
    return [(stamp(START + number), "0", f"{number * 37 % 101} %") for number in range(count)]


BUSY = [float(number * 37 % 101) for number in range(30)]


def said(stats: LogStats) -> str:
    return " ".join(stats.sentences())


# --- what other programs make of a log -------------------------------------------------------


@pytest.mark.parametrize("separator", [", ", ",", "; ", ";", "\t", "    "])
def test_columns_may_be_parted_otherwise(separator: str) -> None:
    """By what a table program writes, or ``column -t``; the header tells."""
    head = HEADER.replace(", ", separator)
    stats = LogStats()
    found = read("\n".join([head, *(separator.join(row) for row in rows())]), stats)
    assert first_busy(found) == BUSY
    assert said(stats) == ""


@pytest.mark.parametrize(
    "text",
    [
        "index; utilization.gpu [%]; power.draw [W]\n0; 50 %; 212,34 W\n",
        '"index","name","utilization.gpu [%]"\n"0","NVIDIA, of a kind","50 %"\n',
        ",timestamp, index, utilization.gpu [%]\n7,2025/01/31 12:00:00.000, 0, 50 %\n",
        "index, utilization.gpu [%], dpu.something_new [furlong]\n0, 50 %, 3\n",
        "\ufeffindex, utilization.gpu [%]\r\n0, 50 %\r\n",
    ],
    ids=["decimal comma", "quotes", "row numbers", "newer driver", "byte-order mark"],
)
def test_what_other_programs_make_of_a_log_is_read(text: str) -> None:
    """A name may hold the separator; columns that are not known are left out."""
    stats = LogStats()
    (snapshot,) = read(text, stats)
    assert first_busy([snapshot]) == [50.0]
    assert snapshot.gpus[0].identity.index == 0
    assert stats.other_lines == 0


@pytest.mark.parametrize(
    "form", ["%d/%m/%Y %I:%M:%S %p", "%d.%m.%Y %H:%M:%S", "%m/%d/%y %H:%M:%S", "%d.%m.%Y, %H:%M:%S"]
)
def test_times_that_were_written_otherwise_keep_their_distances(form: str) -> None:
    """Which number is the day cannot be told; the time of day goes on over noon and midnight."""
    if "," in form:
        form = form.replace(",", "")
    for start in (START - 10, START + 12 * 3600 - 10):
        lines = [
            f"{time.strftime(form, time.localtime(start + 2 * number))}, 0, 5 %"
            for number in range(20)
        ]
        stats = LogStats()
        found = read("\n".join([HEADER, *lines]), stats)
        assert steps(found) == {2.0}
        assert said(stats) == ""


def test_times_that_cannot_be_read_are_told() -> None:
    """The interval is then assumed, and nobody is left to believe otherwise."""
    stats = LogStats()
    found = read(
        "\n".join([HEADER, *(f"31 Jan 12h{number}, 0, 5 %" for number in range(5))]), stats
    )
    assert len(found) == 5
    assert stats.unread_times == 5
    assert '5 rows have a time that cannot be read, as "31 Jan 12h0".' in stats.sentences()


def test_times_in_whole_seconds_may_repeat() -> None:
    """A script that looks five times a second and writes the second: time does not run away."""
    lines = [f"{stamp(START + number // 5)[:19]}, 0, 5 %" for number in range(1500)]
    stats = LogStats()
    found = read("\n".join([HEADER, *lines]), stats)
    passed = found[-1].monotonic_seconds - found[0].monotonic_seconds
    assert passed == pytest.approx(300.0, rel=0.05)
    assert stats.interval_seconds == pytest.approx(0.2, rel=0.1)
    assert stats.missing_ticks == 0


# --- what is said of it ----------------------------------------------------------------------


def test_values_that_some_rows_lack_are_told() -> None:
    """Those that a driver never has are no news."""
    text = "index, utilization.gpu [%], fan.speed [%]\n0, 5 %, [N/A]\n0, [Unknown Error], [N/A]\n"
    stats = LogStats()
    read(text, stats)
    assert stats.unread_values == 3
    assert "Without a value in some of 2 rows: utilization.gpu (1)." in stats.sentences()


def test_a_line_that_is_no_row_has_no_values_to_miss() -> None:
    """What a script has written above the log counts as one line, no more."""
    command = "$ ./log-the-gpus --to gpus.csv, every 1 s, 2 GPUs"
    stats = LogStats()
    found = read("\n".join([command, HEADER, *map(", ".join, rows())]), stats)
    assert first_busy(found) == BUSY
    assert (stats.other_lines, stats.torn_lines, stats.unread_values) == (1, 0, 0)
    assert stats.unread_times == 0
    assert "Without" not in said(stats)


def test_a_log_that_is_being_written_is_read_line_by_line() -> None:
    """With a header that says all, the first moment does not wait for hundreds of lines."""
    taken = 0

    def lines() -> Iterator[str]:
        nonlocal taken
        yield HEADER
        for row in rows():
            taken += 1
            yield ", ".join(row)

    next(read_lines(lines(), LogStats()))
    assert taken <= 3


def test_an_interrupted_log_keeps_its_last_row() -> None:
    """Ctrl-C while the next line is waited for: what was written counts, also without an index."""

    def lines() -> Iterator[str]:
        yield from ("utilization.gpu [%]", "10 %", "20 %")
        raise KeyboardInterrupt

    found = read_lines(lines(), LogStats())
    assert first_busy([next(found), next(found)]) == [10.0, 20.0]
    with pytest.raises(KeyboardInterrupt):
        next(found)


# --- without nvidia-smi's headings -----------------------------------------------------------


def proposed(error: LogError) -> str:
    """The value of ``--columns`` in the sentence: its last word, so that it can be pasted."""
    before, _, value = str(error).rpartition("--columns ")
    assert before
    return value


def test_columns_are_known_by_units_that_no_other_column_has() -> None:
    """And by forms of their own; bare numbers are left out, and that is said."""
    stats = LogStats()
    text = "2025/01/31 12:00:00.000, GPU-1234abcd, P0, 50 %, 100 MiB, 212.34 W, 41\n"
    (gpu,) = read(text, stats)[0].gpus
    reading = gpu.reading
    assert (gpu.uuid, reading.performance_state, reading.busy_percent) == ("GPU-1234abcd", 0, 50.0)
    assert (reading.power_watts, reading.temperature_celsius) == (212.34, None)
    assert any("no header" in note for note in stats.notes)


@pytest.mark.parametrize(
    "line",
    [
        "2025/01/31 12:00:00.000, 50 %, 20 %, 100 MiB, 9000 MiB, 212.34 W, 700.00 W, 41",
        "50 %, 20 %",
    ],
)
def test_columns_of_the_same_unit_are_asked_for(line: str) -> None:
    """In the order in which nvidia-smi's users write them, to be pasted if it is right."""
    with pytest.raises(LogError) as caught:
        read(line)
    assert first_busy(read(line, columns=parse_columns(proposed(caught.value)))) == [50.0]


@pytest.mark.parametrize("text", ["0, 0, 41\n", "50\n", "1700000000,50,40\n"])
def test_bare_numbers_are_never_guessed(text: str) -> None:
    """The sentence asks for the names."""
    with pytest.raises(LogError, match=r"name its \d columns with .* --columns"):
        read(text * 50)


def test_dmon_without_its_header_needs_the_names() -> None:
    """dmon's own do."""
    text = "\n".join(DMON.splitlines()[2:])
    with pytest.raises(LogError, match="dmon without its header"):
        read(text)
    columns = "gpu,pwr,gtemp,mtemp,sm,mem,enc,dec,-,-,mclk,pclk"
    found = read(text, columns=parse_columns(columns))
    assert [gpu.reading.busy_percent for gpu in found[0].gpus] == [92.0, 0.0]
    assert [gpu.reading.power_watts for gpu in found[0].gpus] == [250.0, 71.0]


def test_columns_that_no_row_has_are_refused() -> None:
    """A sentence, not an empty diagnosis."""
    with pytest.raises(LogError, match="does not begin with a row of 2 columns"):
        read("0, 1, 2\n" * 5, columns=parse_columns("index,utilization.gpu"))


# --- what is no log --------------------------------------------------------------------------


def opened(folder: Path, data: bytes) -> list[Snapshot]:
    path = folder / "log"
    path.write_bytes(data)
    with open_any(str(path)) as log:
        return list(log.snapshots)


@pytest.mark.parametrize("encoding", ["utf-16-le", "utf-16-be"])
def test_utf_16_without_its_mark_is_read(tmp_path: Path, encoding: str) -> None:
    """Not taken for text full of zeros, whose numbers mean nothing."""
    text = "\r\n".join([HEADER, *map(", ".join, rows()), ""])
    assert first_busy(opened(tmp_path, text.encode(encoding))) == BUSY


def test_zeros_before_a_log_are_passed_over(tmp_path: Path) -> None:
    """What ``logrotate`` leaves where it cuts a file that is being written."""
    text = "\n".join(["", HEADER, *map(", ".join, rows()), ""])
    assert first_busy(opened(tmp_path, bytes(5000) + text.encode())) == BUSY


@pytest.mark.parametrize(
    ("data", "sentence"),
    [
        (b"", "is empty"),
        (b"\n\n \n", "holds no text"),
        (bytes(5000), "holds no text"),
        (b"\x89PNG\r\n\x1a\n" + bytes(range(256)) * 20, "is not text"),
        (b'<?xml version="1.0" ?>\n<!DOCTYPE nvidia_smi_log SYSTEM "x">\n<a/>\n', "no reading"),
        (b"0, gpuUtil , 1700000000000000, 98\n" * 20, "Log with nvidia-smi --query-gpu"),
        (b"sepal_length,species\n5.1,setosa\n" * 20, "neither a recording"),
    ],
)
def test_what_is_no_log_is_said_to_be_none(tmp_path: Path, data: bytes, sentence: str) -> None:
    """In words for what it is, as far as can be told."""
    with pytest.raises(LogError, match=sentence) as caught:
        opened(tmp_path, data)
    assert str(caught.value).isprintable()


def test_a_line_that_never_ends_is_given_up(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A device gives zeros for ever."""
    monkeypatch.setattr(log_text, "ENDLESS_LENGTH", 20_000_000)
    with pytest.raises(LogError, match="does not end"), open_any("/dev/zero"):
        pass


# --- times on lines of their own -------------------------------------------------------------

DATES = [
    "%a %b %d %H:%M:%S UTC %Y",
    "%a %b %d %I:%M:%S %p EST %Y",
    "%a, %d %b %Y %H:%M:%S +0000",
    "Mi %d. Feb %H:%M:%S CET %Y",
    "mer. %d févr. %Y %H:%M:%S CET",
    "%Y年 02月 %d日 水曜日 %H:%M:%S JST",
    "%d.%m.%Y %H:%M:%S",
    "%m/%d/%Y, %I:%M:%S %p",
    "%Y-%m-%dT%H:%M:%S+00:00",
    "%Y-%m-%d %H:%M:%S.250000000",
    "%Y%m%d_%H%M%S",
    "=== %Y-%m-%d %H:%M:%S ===",
    "# %Y-%m-%d %H:%M:%S",
    "Timestamp: %Y-%m-%d %H:%M:%S",
    "Current time: %H:%M:%S",
    "%H:%M:%S",
    "%I:%M:%S %p",
    "%s",
    "time=%s.5",
]
"""As ``date`` prints it, in several languages, and as scripts write it."""


def dated(form: str, head: str, *rows: str) -> str:
    """Blocks 7 s apart that a line with the time begins, over noon."""
    start = time.mktime((2025, 2, 26, 11, 59, 30, 0, 0, -1))
    blocks = []
    for number in range(12):
        at = start + 7 * number
        line = time.strftime(form.replace("%s", f"{at:.0f}"), time.localtime(at))
        blocks += [line, *([head] if head else []), *rows]
    return "\n".join(blocks)


@pytest.mark.parametrize("form", DATES)
@pytest.mark.parametrize("gpus", [1, 2])
@pytest.mark.parametrize(
    ("head", "columns"),
    [
        ("utilization.gpu [%], memory.used [MiB], power.draw [W]", None),
        ("", "utilization.gpu,memory.used,power.draw"),
        ("# gpu sm mem enc dec", None),
    ],
    ids=["heading", "--columns", "dmon"],
)
def test_a_line_that_says_a_time_is_the_stamp_of_the_rows_after_it(
    form: str, gpus: int, head: str, columns: str | None
) -> None:
    """In any format of ``date``, under headings or with names that were given; never a reading."""
    rows = ["90 %, 7042 MiB, 82.53 W", "40 %, 4 MiB, 32.10 W"]
    if "dec" in head:
        rows = ["0 90 3 0 0", "1 40 3 0 0"]
    options = {} if columns is None else {"columns": parse_columns(columns)}
    stats = LogStats()
    found = read(dated(form, head, *rows[:gpus]), stats, **options)
    assert steps(found) == {7.0}
    assert busy(found) == [[90.0, 40.0][:gpus]] * 12
    assert stats.other_lines == stats.torn_lines == 0


def test_units_keep_their_columns_behind_a_line_with_the_date() -> None:
    """Used and total memory, temperature and power stay what ``--columns`` names them."""
    columns = "utilization.gpu,memory.used,memory.total,temperature.gpu,power.draw"
    row = "7 %, 7042 MiB, 46068 MiB, 32, 82.53 W"
    for form in DATES:
        found = read(dated(form, "", row), columns=parse_columns(columns))
        gpu = found[0].gpus[0]
        assert gpu.identity.memory_total_bytes == 46_068 * 2**20
        assert gpu.reading.memory_used_bytes == 7042 * 2**20
        assert (gpu.reading.temperature_celsius, gpu.reading.power_watts) == (32, 82.53)


def test_blocks_without_headings_are_known_by_their_units() -> None:
    """One row after each time: the times are none of the columns."""
    found = read(dated("%s", "", "7 %, 7042 MiB, 82.53 W"))
    assert steps(found) == {7.0}
    assert first_busy(found) == [7.0] * 12


@pytest.mark.parametrize(
    "line",
    [
        "Elapsed: 00:05:00",
        "Uptime: 03:02:01",
        "Job 12345 started 13:50:00",
        "Epoch 3 13:50:00",
        "Error at 13:50:00: no GPU is there",
        "GPU 00000000:17:00.0",
    ],
)
def test_a_line_that_says_more_than_a_time_is_no_stamp(line: str) -> None:
    """Durations, bus ids and sentences with a time in them are left out and counted."""
    stats = LogStats()
    read(f"utilization.gpu [%], power.draw [W]\n{line}\n" + "5 %, 7 W\n" * 5, stats)
    assert stats.other_lines == 1
    assert any("no timestamps" in note for note in stats.notes)
