"""Logs as people paste them: quoted, indented, in colours, in a table, with their command line."""

import textwrap
from datetime import datetime
from pathlib import Path

import pytest

from gpuwatch.recording.file import open_any
from gpuwatch.sources.logs.text import LogError, LogStats
from tests.sources.logs.test_formats import OLD_TABLE, REPORT, TABLE
from tests.sources.smi_writing import MIB, busy, read

QUERY = "timestamp, index, utilization.gpu [%], memory.used [MiB]\n" + "".join(
    f"2025/01/31 12:00:0{second}.000, 0, {10 * second} %, 8530 MiB\n" for second in range(1, 5)
)
DMON = "# gpu   pwr    sm    fb\n# Idx     W     %    MB\n" + "".join(
    f"    0    66    {10 * second}  8530\n" for second in range(1, 5)
)
GPUSTAT = """\
node7                 Thu Apr  9 00:12:{second:02d} 2020  410.104
[0] Tesla V100-SXM2   | 43'C,  {busy} % |  8530 / 16130 MB | ada:python/4242(8520M) bob/17(10M)
[1] Tesla V100-SXM2   | 34'C,   0 % |     0 / 16130 MB |
"""


def said(stats: LogStats) -> str:
    return " ".join(stats.sentences())


def over_time(document: str, times: int = 3) -> str:
    return "".join(document.format(second=2 * i, busy=10 * (i + 1)) for i in range(times))


# --- what stands around it -------------------------------------------------------------------


@pytest.mark.parametrize("before", ["> ", ">", ">> ", "> > ", "    ", "\t", "    > ", "  >  > "])
@pytest.mark.parametrize("text", [over_time(TABLE), over_time(REPORT), QUERY, DMON])
def test_a_log_that_is_quoted_or_indented_is_read(before: str, text: str) -> None:
    """It says what it says without that, also where editors took the spaces from empty lines."""
    stats = LogStats()
    pasted = textwrap.indent(text, before, bool)
    pasted = "\n".join(
        line.rstrip() if not line.strip(" >\t") else line for line in pasted.split("\n")
    )
    assert busy(read(f"On Thu somebody wrote:\n{pasted}", stats)) == busy(read(text))
    assert stats.other_lines <= 1


def test_a_table_in_a_comment_of_a_program_is_read() -> None:
    """Each line of it begins with the sign of a comment."""
    found = read(textwrap.indent(over_time(OLD_TABLE), "#   "))
    assert [row[0] for row in busy(found)] == [10.0, 20.0, 30.0]


def test_fences_and_rules_are_no_lines_that_were_skipped() -> None:
    """They frame the log and say nothing."""
    stats = LogStats()
    read(f"---\n```text\n{QUERY}```\n~~~\n", stats)
    assert said(stats) == ""


def test_colours_and_moves_of_the_cursor_are_taken_out() -> None:
    """A terminal's session that was recorded has them in every line."""
    plain = over_time(GPUSTAT)
    coloured = "".join(
        f"\x1b[H\x1b[J\x1b[1m\x1b[37m{line[:3]}\x1b(B\x1b[m\x1b[36m{line[3:]}\x1b[0;10m\x1b[K\n"
        for line in plain.splitlines()
    )
    assert busy(read(coloured)) == busy(read(plain)) == [[10.0, 0.0], [20.0, 0.0], [30.0, 0.0]]


# --- gpustat ---------------------------------------------------------------------------------


def test_lines_of_gpustat_are_read() -> None:
    """The header gives the time, a line the GPU and its processes; a word before a process's number
    is its command where the user stands before it, and either of them where it stands alone."""
    stats = LogStats()
    found = read(f"$ gpustat -cup -i 2\n{over_time(GPUSTAT)}", stats)
    assert stats.kind == "gpustat"
    began = datetime(2020, 4, 9, 0, 12).astimezone().timestamp()
    assert [each.taken_at_unix_seconds - began for each in found] == [0.0, 2.0, 4.0]
    card = found[0].gpus[0]
    assert (card.identity.name, card.identity.index) == ("Tesla V100-SXM2", 0)
    assert card.reading.memory_used_bytes == 8530 * MIB
    assert card.identity.memory_total_bytes == 16130 * MIB
    assert card.reading.temperature_celsius == 43.0
    processes = {process.pid: process for process in found[0].processes}
    assert (processes[4242].name, processes[4242].gpu_memory_bytes) == ("python", 8520 * MIB)
    assert processes[17].name is None


@pytest.mark.parametrize(
    ("line", "expected"),
    [
        ("[3] GeForce GTX TITAN X | 71°C,  39 % | 11721 / 12287 MB |", (71.0, None, 39.0, None)),
        ("[3] 71'C,  39 % | 11721 / 12287 MB", (71.0, None, 39.0, None)),
        ("[3] A | 71C,  16 %,  39 % | 11721 / 12287 MB | a(1M)", (71.0, 16.0, 39.0, None)),
        ("[3] A | 71'C,  39 %,  125 / 250 W | 1 / 2 MB | a(?M)", (71.0, None, 39.0, 125.0)),
        ("[3] A | 71'C,  39 %,  125 W | 11721 / 12287 MB |", (71.0, None, 39.0, 125.0)),
        ("[3] A | 71\ufffdC,  39 % (E:   8 %  D:   7 %) | 1 / 2 MB", (71.0, None, 39.0, None)),
        ("[3] A | ??'C,  ?? %,  ?? %,   ?? / ?? W | 1 / 2 MB |", (None, None, None, None)),
    ],
)
def test_gpustat_with_other_options_is_read(line: str, expected: tuple[float | None, ...]) -> None:
    """Without names; with fans, codecs and power; with what it does not know."""
    (snapshot,) = read(line + "\n ├─  48448 (  85%,  257MB): python train.py\n")
    reading = snapshot.gpus[0].reading
    assert expected == (
        reading.temperature_celsius,
        reading.fan_percent,
        reading.busy_percent,
        reading.power_watts,
    )


def test_gpustat_without_a_header_begins_anew_with_its_first_gpu() -> None:
    """So do the looks of a loop that prints none."""
    lines = [line for line in over_time(GPUSTAT).splitlines() if line.startswith("[")]
    assert busy(read("\n".join(lines))) == [[10.0, 0.0], [20.0, 0.0], [30.0, 0.0]]


def test_a_gpu_that_gpustat_calls_lost_is_lost() -> None:
    """It writes that in the place of its name."""
    lost = "[1] ((GPU is lost))   | ??'C,  ?? % |    ?? /    ?? MB | (Not Supported)"
    (snapshot,) = read(f"{over_time(GPUSTAT, 1).splitlines()[1]}\n{lost}\n")
    assert [gpu.lost for gpu in snapshot.gpus] == [False, True]


# --- tables and command lines ----------------------------------------------------------------


@pytest.mark.parametrize(
    "table",
    [
        "| timestamp | index | utilization.gpu [%] | memory.used [MiB] |\n|-|:-:|-:|-|\n{rows}",
        "timestamp | index | utilization.gpu [%] | memory.used [MiB]\n---|---|---|---\n{bare}",
        "| **Time** | **GPU** | `GPU util (%)` | GPU memory used (MB) |\n|:-|-|-|-|\n{rows}",
        "+---+---+---+---+\n| time | gpu | gpu_util_pct | mem_used_mb |\n+---+---+---+---+\n{rows}",
    ],
    ids=["plain", "without outer bars", "bold", "with frames"],
)
def test_a_table_of_markdown_is_read(table: str) -> None:
    """Its line below the headings is no line that was skipped."""
    cells = [f"2025-01-31 12:00:0{i} | 0 | {10 * i} % | 8530 MiB" for i in range(1, 5)]
    text = table.format(rows="\n".join(f"| {row} |" for row in cells), bare="\n".join(cells))
    stats = LogStats()
    found = read(text, stats)
    assert busy(found) == [[10.0], [20.0], [30.0], [40.0]]
    assert found[0].gpus[0].reading.memory_used_bytes == 8530 * MIB
    assert said(stats) == ""


def test_a_used_amount_with_its_total_in_one_cell_is_the_used() -> None:
    """As in tables that people write by hand."""
    (snapshot,) = read("| GPU | Util | Power (W) |\n|-|-|-|\n| 0 | 42% | 124/245 W (51%) |\n")
    assert snapshot.gpus[0].reading.power_watts == 124.0


ASKED = "timestamp,index,utilization.gpu,memory.used"


@pytest.mark.parametrize(
    "command",
    [
        f"$ nvidia-smi --query-gpu={ASKED} --format=csv,noheader -l 1",
        f'nvidia-smi -l 1 --format=csv,noheader --query-gpu "{ASKED}" gives',
        f"+ nvidia-smi --query-gpu='{ASKED.replace(',', ', ')}' --format=csv,noheader",
        f'["nvidia-smi", "--query-gpu={ASKED}", "--format=csv,noheader,nounits"]',
        f"Every 1.0s: nvidia-smi --query-gpu={ASKED} --format=csv,noheader",
    ],
)
@pytest.mark.parametrize("units", [True, False])
def test_rows_after_the_command_that_names_their_columns_are_read(
    command: str, units: bool
) -> None:
    """However the command is written, with other lines in between, and with units or without."""
    rows = "\n".join(QUERY.splitlines()[1:])
    rows = rows if units else rows.replace(" %", "").replace(" MiB", "")
    stats = LogStats()
    assert busy(read(f"{command}\n\nit says\n{rows}\n", stats)) == busy(read(QUERY))
    assert stats.notes == []


def test_a_command_whose_output_says_nothing_of_a_load_names_no_columns() -> None:
    """A script asks for the cards' names before it logs."""
    first = (
        "nvidia-smi --query-gpu=name,memory.total --format=csv,noheader\nTesla V100, 16160 MiB\n"
    )
    assert busy(read(first + QUERY)) == busy(read(QUERY))


def test_the_output_of_a_second_command_has_its_own_columns() -> None:
    """They are known from the second command."""
    first = f"$ nvidia-smi --query-gpu={ASKED} --format=csv,noheader\n{QUERY.splitlines()[1]}\n"
    second = "$ nvidia-smi --query-gpu=index,utilization.gpu --format=csv,noheader\n0, 99 %\n"
    assert busy(read(first + second))[-1] == [99.0]


# --- headings --------------------------------------------------------------------------------


@pytest.mark.parametrize("time_heading", ["t", "sec", "seconds", "t_s", "uptime", "uptime_s"])
@pytest.mark.parametrize("power_heading", ["watts", "gpu_watts", "gpu_power_w"])
def test_seconds_since_a_start_and_watts_are_known(time_heading: str, power_heading: str) -> None:
    """By the short names that people's own programs give them."""
    rows = "".join(f"{10 + 5 * i},{i},{200 + i}\n" for i in range(4))
    found = read(f"{time_heading},gpu_util_pct,{power_heading}\n{rows}")
    assert found[-1].monotonic_seconds - found[0].monotonic_seconds == 15.0
    assert [one.gpus[0].reading.power_watts for one in found] == [200.0, 201.0, 202.0, 203.0]


@pytest.mark.parametrize("encoding", ["latin-1", "cp1252", "utf-8", "utf-16", "utf-8-sig", "cp437"])
def test_headings_in_any_encoding_are_known(tmp_path: Path, encoding: str) -> None:
    """The sign of a degree is the only letter of theirs that is not ASCII; a card's name in the
    column of GPUs is its name."""
    path = tmp_path / "log.csv"
    rows = "".join(f"2025-05-19 16:00:0{i},RTX 3070,4{i} °C,99,909.8\n" for i in range(5))
    path.write_text("Time,GPU,Temp (°C),Util (%),Memory Used (MB)\n" + rows, encoding=encoding)
    with open_any(str(path)) as log:
        found = list(log.snapshots)
    assert [one.gpus[0].reading.temperature_celsius for one in found] == [40, 41, 42, 43, 44]
    assert {one.gpus[0].identity.name for one in found} == {"RTX 3070"}


# --- rows and headings that do not fit -------------------------------------------------------


@pytest.mark.parametrize(
    ("heading", "row"),
    [
        ("time,gpu_index,gpu_name,gpu_util_percent", "{},2025/01/31 12:00:00.1{}, 0, L4, 55"),
        ("timestamp,gpu_index,gpu_util_percent", "{},0,55,"),
        ("timestamp,gpu_index,gpu_util_percent", "7,{},0,55"),
        ("timestamp,gpu_index,gpu_util_percent", "{},0,Tesla L4,55"),
    ],
    ids=["two times", "a comma at the end", "row numbers", "a name"],
)
def test_a_field_more_than_the_header_names_is_left_out_where_it_is_plain(
    heading: str, row: str
) -> None:
    """It is the one without which the others are values of the columns; a sentence says which."""
    stats = LogStats()
    rows = [row.format(f"2025-01-31 12:00:0{second}", second) for second in range(5)]
    found = read("\n".join([heading, *rows]), stats)
    assert busy(found) == [[55.0]] * 5
    assert "one field more than the header names" in said(stats)


def test_a_field_more_is_not_guessed() -> None:
    """Where any of several could be too many, a person is asked for the names."""
    with pytest.raises(LogError, match=r"names 3 columns and its rows have 4 fields.*--columns"):
        read("index,gpu_util_pct,gpu_temp_c\n0,55,41,30\n0,56,41,30\n")


# --- power that no card draws ----------------------------------------------------------------


@pytest.mark.parametrize(
    ("values", "read_as", "sentence"),
    [
        # Among watts it is nonsense.
        (["66", "250", "6600", "67"], [66.0, 250.0, None, 67.0], "rows: power.draw (1)"),
        (["66000", "301500"], [None, None], "No value of power.draw could be read"),
        (["66000 mW", "301500 mW"], [66.0, 301.5], ""),
    ],
    ids=["one", "all in milliwatts", "with their unit"],
)
def test_a_power_that_no_card_draws_is_not_read(
    values: list[str], read_as: list[float | None], sentence: str
) -> None:
    """It is said; milliwatts are known by their unit."""
    stats = LogStats()
    rows = [f"2025-01-31 12:00:{i:02d},0,50,{value}" for i, value in enumerate(values)]
    found = read("\n".join(["timestamp,index,gpu_util_pct,power_draw", *rows]), stats)
    assert [one.gpus[0].reading.power_watts for one in found] == read_as
    assert sentence in said(stats)


# --- hostile lines ---------------------------------------------------------------------------


@pytest.mark.parametrize(
    "line",
    [
        "[0] x" + " " * 60_000,
        "[0] a | 7C, 3 %, 1" + " " * 60_000 + "x",
        "[0] a | 7C, 3 % | 1 / 2 MB |" + "a:" * 30_000,
        "> " * 30_000 + "|",
        "\x1b" * 60_000,
        "nvidia-smi --query-gpu=" + "," * 60_000,
        "|" * 60_000,
    ],
)
def test_a_long_line_of_any_kind_does_no_harm(line: str) -> None:
    """What is left of the log is read."""
    assert busy(read(f"{line}\n{QUERY}")) == busy(read(QUERY))


@pytest.mark.parametrize("printed", [OLD_TABLE, GPUSTAT])
def test_what_is_printed_once_before_a_log_is_not_the_log(printed: str) -> None:
    """Printed twice it is."""
    assert busy(read(over_time(printed, 1) + QUERY)) == busy(read(QUERY))
    assert len(read(over_time(printed, 2) + QUERY)) == 2
