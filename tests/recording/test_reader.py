"""Recordings, and telling them from logs by what is in them."""

import gzip
import json
import os
import re
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.commands.cli import run
from gpuwatch.core.model import Snapshot
from gpuwatch.recording.file import open_any
from gpuwatch.sources.logs import text as log_text
from gpuwatch.sources.logs.source import LogOptions
from gpuwatch.sources.logs.text import LogError, LogStats, zstd
from tests.sources.smi_writing import query_log, simulated
from tests.support.recordings import streamed

SNAPSHOTS = simulated("starved", gpus=2, count=5)
LOG = query_log(SNAPSHOTS)


def written(folder: Path, data: str | bytes, name: str = "log") -> str:
    path = folder / name
    path.write_bytes(data.encode() if isinstance(data, str) else data)
    return str(path)


def read(path: str, options: LogOptions | None = None) -> tuple[list[Snapshot], LogStats]:
    with open_any(path, options) as log:
        return list(log.snapshots), log.stats


def test_a_recording_reads_back_what_was_streamed(tmp_path: Path) -> None:
    """Every snapshot, whole."""
    found, stats = read(written(tmp_path, streamed(SNAPSHOTS)))
    assert found == SNAPSHOTS
    assert (stats.kind, stats.snapshots, stats.other_lines) == ("recording", 5, 0)


@pytest.mark.parametrize("text", [streamed(SNAPSHOTS), LOG], ids=["recording", "log"])
@pytest.mark.parametrize("pack", [gzip.compress, zstd.compress])
def test_packed_files_are_known_by_their_first_bytes(
    tmp_path: Path, text: str, pack: Callable[[bytes], bytes]
) -> None:
    """Whatever the file is called."""
    path = written(tmp_path, pack(text.encode()), "no-ending")
    assert len(read(path)[0]) == 5


def test_a_last_line_that_is_cut_off_is_left_out(tmp_path: Path) -> None:
    """A crash or a full disk costs one snapshot."""
    text = streamed(SNAPSHOTS)
    found, stats = read(written(tmp_path, text[: len(text) - 200]))
    assert found == SNAPSHOTS[:-1]
    assert stats.torn_lines == 1


def test_a_log_s_last_line_without_its_end_is_left_out(tmp_path: Path) -> None:
    """Its last number may have lost digits."""
    text = "index, utilization.gpu\n0, 90\n0, 95\n0, 9"
    found, stats = read(written(tmp_path, text))
    assert [snapshot.gpus[0].reading.busy_percent for snapshot in found] == [90.0, 95.0]
    assert stats.torn_lines == 1


@pytest.mark.parametrize(
    ("name", "at"),
    [("taken_at", "1e300"), ("taken_at", "-62135596800.0"), ("started_at", "2.6e11")],
)
def test_a_time_that_no_calendar_has_costs_its_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], name: str, at: str
) -> None:
    """It is counted and the rest is read; no command that shows times fails over it."""
    lines = streamed(SNAPSHOTS).splitlines()
    for place in (0, 2) if name == "started_at" else (3,):
        lines.insert(place, re.sub(rf'("{name}_unix_seconds":)[^,]+', rf"\g<1>{at}", lines[place]))
    path = written(tmp_path, "\n".join(lines) + "\n", "run.jsonl")
    found, stats = read(path)
    assert (found, stats.other_lines) == (SNAPSHOTS, len(lines) - 7)
    for command in ("report", "report --from 00:00", "diagnose", "export --csv -"):
        assert run([*command.split()[:1], path, *command.split()[1:]]) != 70, command
    assert "_unix_seconds" in capsys.readouterr().err


@pytest.mark.parametrize("at", ["0001/01/01 00:00:00", "9999/12/31 23:59:59"])
def test_a_date_at_the_end_of_the_calendar_is_no_time(tmp_path: Path, at: str) -> None:
    """In local time it would lie outside of it; rows without a time are counted."""
    row = f"{at}.000, 0, NVIDIA H200, 5 %\n"
    path = written(tmp_path, "timestamp, index, name, utilization.gpu [%]\n" + row * 5)
    _, stats = read(path)
    assert stats.unread_times == 5
    assert run(["report", path, "--from", "00:00"]) in (0, 2)


@pytest.mark.parametrize("indent", [None, 2])
def test_what_a_command_printed_is_no_log(tmp_path: Path, indent: int | None) -> None:
    """The result of a diagnosis is not taken for a log of one GPU: a sentence says what it is."""
    text = json.dumps({"kind": "diagnosis", "gpus": [{"index": 0}]}, indent=indent)
    with pytest.raises(LogError, match=r"a result that gpuwatch printed \(diagnosis\)"):
        read(written(tmp_path, text, "found.json"))


def test_damaged_lines_are_left_out_and_counted(tmp_path: Path) -> None:
    """Those around them are read."""
    lines = streamed(SNAPSHOTS).splitlines()
    kinds = [json.loads(line)["kind"] for line in lines]
    assert kinds == ["header", "identities", *["snapshot"] * 5]
    lines[3] = lines[3][:50]
    lines.insert(5, "gpuwatch: out of memory")
    lines.insert(6, "")
    found, stats = read(written(tmp_path, "\n".join(lines) + "\n"))
    times = [each.taken_at_unix_seconds for each in SNAPSHOTS]
    assert [each.taken_at_unix_seconds for each in found] == [times[0], *times[2:]]
    assert found[-1].processes == SNAPSHOTS[-1].processes
    assert stats.other_lines == 2


@pytest.mark.parametrize("encoding", ["utf-8-sig", "utf-16"])
def test_byte_order_marks_are_passed_over(tmp_path: Path, encoding: str) -> None:
    """Also UTF-16, which Windows PowerShell writes."""
    text = LOG.replace("\n", "\r\n")
    assert len(read(written(tmp_path, text.encode(encoding)))[0]) == 5


def test_standard_input_is_read(monkeypatch: pytest.MonkeyPatch) -> None:
    """``-`` is what a pipe brings, and it stays open for who owns it."""
    reading, writing = os.pipe()
    os.write(writing, LOG.encode())
    os.close(writing)
    with os.fdopen(reading, "r") as pipe:
        monkeypatch.setattr(sys, "stdin", pipe)
        found, _ = read("-")
        assert len(found) == 5
        assert not pipe.buffer.closed


def test_a_line_without_end_is_left_out(tmp_path: Path) -> None:
    """It is counted, and what follows is read."""
    long = "x" * (2 * log_text.LINE_LENGTH)
    lines = LOG.splitlines()
    text = "\n".join([*lines[:3], long, *lines[3:]]) + "\n"
    found, stats = read(written(tmp_path, text))
    assert len(found) == 5
    assert stats.overlong_lines == 1


@pytest.mark.parametrize(
    "data",
    [
        b"",
        b"{}\n",
        b"{\n",
        b'{"kind":"header","schema":99}\n',
        b'{"schema": 1, "gpus": []}\n',
        b'{"kind":"snapshot"}\n',
        b"\x1f\x8b",
        b"\x1f\x8bnot gzip at all",
        gzip.compress(b"", mtime=0),
        b"\x28\xb5\x2f\xfd",
        b"\x28\xb5\x2f\xfdnot zstd at all",
        zstd.compress(b""),
        bytes(range(256)) * 10,
        b"\x7fELF\x02\x01\x01" + bytes(500),
    ],
)
def test_what_is_neither_is_refused_in_a_sentence(tmp_path: Path, data: bytes) -> None:
    """That can be printed and says the file."""
    with pytest.raises(LogError) as caught:
        read(written(tmp_path, data))
    assert str(caught.value).isprintable()
    assert "log" in str(caught.value)


@pytest.mark.parametrize("share", [0.0, 0.1, 0.9])
def test_a_recording_without_a_whole_reading_is_refused_in_a_sentence(
    tmp_path: Path, share: float
) -> None:
    """Of a block that was cut off nothing can be unpacked."""
    packed = zstd.compress(streamed(SNAPSHOTS[:1]).encode())
    path = written(tmp_path, packed[: 4 + int(share * (len(packed) - 4))])
    with pytest.raises(LogError) as caught:
        read(path)
    says = "ends before its first reading does: it has only just begun, or was cut off."
    assert str(caught.value) == f"{path} {says}"


@pytest.mark.parametrize("path", ["/nowhere/at/all", ".", "a\x00b", "x" * 5000, "\x1b[2J"])
def test_what_cannot_be_opened_is_said(path: str) -> None:
    """No file, a folder, no name of a file."""
    with pytest.raises(LogError, match=r"cannot be read: .*\.|is a folder: name a") as caught:
        read(path)
    assert str(caught.value).isprintable()
