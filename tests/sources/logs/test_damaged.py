"""No log, however damaged, crashes the reader; and reading takes no memory for what was read."""

import contextlib
import math
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.sources.logs.headings import parse_columns
from gpuwatch.sources.logs.source import LogOptions, read_lines
from gpuwatch.sources.logs.stamps import StampReader
from gpuwatch.sources.logs.text import LogError, LogStats
from tests.sources.logs.test_dmon import DMON, DMON_ALL, PMON
from tests.sources.logs.test_formats import DCGMI, DOCUMENTS, TIDY, WANDB
from tests.sources.smi_writing import USUAL, query_log, simulated
from tests.support.memory import held_bytes, traced

WRITTEN = simulated(gpus=2, count=8)
LOGS = (
    query_log(WRITTEN), query_log(WRITTEN, (*USUAL[:3], *USUAL[4:5]), with_header=False),
    query_log(WRITTEN, USUAL[2:]), DMON, DMON_ALL, PMON,
    *(document.format(second=1, busy=20) * 2 for document in DOCUMENTS), DCGMI, WANDB, TIDY,
)  # fmt: skip
CELL_ROWS = (
    "0|1|99|50 %|-|[N/A]|GPU-1234abcd|2025/01/31 12:00:00.000|P0|x|31000 MiB|212.34 W|Active",
    "0x0000000000000004|1980 MHz|#||index|gpu|timestamp|utilization.gpu [%]|12:00:00|20250131",
    "999999999999999999999999999999|1e400|\x1b[2J",
)
CELLS = st.sampled_from([cell for row in CELL_ROWS for cell in row.split("|")])


def drain(lines: list[str], options: LogOptions | None = None) -> None:
    """Read all; what is given out must hold, whatever went in."""
    axis = -math.inf
    with contextlib.suppress(LogError):
        for snapshot in read_lines(lines, LogStats(), options):
            assert snapshot.monotonic_seconds > axis
            axis = snapshot.monotonic_seconds
            uuids = [gpu.uuid for gpu in snapshot.gpus]
            assert len(set(uuids)) == len(uuids)
            for gpu in snapshot.gpus:
                percent = gpu.reading.busy_percent
                assert percent is None or 0.0 <= percent <= 100.0
                assert gpu.identity.name.isprintable()


@given(st.lists(st.text(max_size=60), max_size=20))
def test_any_text_is_read_or_refused(lines: list[str]) -> None:
    """A sentence or snapshots, nothing else."""
    drain(lines)


@given(
    st.lists(st.lists(CELLS, min_size=1, max_size=6), min_size=1, max_size=20),
    st.sampled_from([",", ", ", "  "]),
    st.sampled_from([None, "index,utilization.gpu", "gpu,sm,-", "timestamp,-,utilization.gpu"]),
)
def test_any_rows_are_read_or_refused(rows: list[list[str]], gap: str, columns: str | None) -> None:
    """Cells that logs have, in any order and number."""
    options = LogOptions(columns=None if columns is None else parse_columns(columns))
    drain([gap.join(row) for row in rows], options)


@given(st.sampled_from(LOGS), st.data())
def test_a_damaged_log_is_read_as_far_as_it_goes(log: str, data: st.DataObject) -> None:
    """Cut, spliced and overwritten anywhere."""
    text = log
    for _ in range(data.draw(st.integers(1, 4))):
        at = data.draw(st.integers(0, len(text)))
        length = data.draw(st.integers(0, 40))
        text = text[:at] + data.draw(st.text(max_size=10)) + text[at + length :]
    drain(text.splitlines())


@given(
    st.text(max_size=40) | st.from_regex(r"\d{4}/\d\d/\d\d \d\d:\d\d:\d\d\.\d{3}", fullmatch=True)
)
def test_any_stamp_is_a_time_or_none(text: str) -> None:
    """Days that do not exist and clocks of 99 hours are no time."""
    found = StampReader().stamp(text)
    assert found is None or math.isfinite(found)


def endless(rows: int, read: list[int]) -> Iterator[str]:
    """``read``: what is counted up for each row that is taken."""
    yield "index, utilization.gpu [%], memory.used [MiB]"
    for number in range(rows):
        read[0] += 1
        yield f"{number % 2}, {number % 100} %, {number % 7000} MiB"


def test_a_long_log_takes_no_more_memory_than_a_short_one() -> None:
    """One moment of two rows is held at a time: what is read ahead does not grow, nor what is held
    of what was given out, 4,500 rows later."""
    read, ahead, held = [0], [], []
    with traced():
        for number, _ in enumerate(read_lines(endless(5_000, read), LogStats())):
            if number in (250, 2_499):
                ahead.append(read[0] - 2 * number)
                held.append(held_bytes("sources"))
    assert max(ahead) < 100
    assert held[1] - held[0] < 4_500 * 10


@pytest.mark.parametrize("log", LOGS, ids=range(len(LOGS)))
def test_the_samples_themselves_are_read(log: str) -> None:
    """The logs that the tests above damage are good ones."""
    assert list(read_lines(log.splitlines(), LogStats(), LogOptions(gpus=2)))
