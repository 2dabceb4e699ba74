"""``gpuwatch report FILE``, ``compare`` and ``export``: what is printed and written, how they
fail."""

import csv
import gzip
import io
import os
import signal
import stat
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.commands import printing, reading
from gpuwatch.commands.cli import run
from gpuwatch.core.model import Snapshot
from gpuwatch.outputs.report.accumulator import Accumulator
from tests.commands.conftest import Gpuwatch
from tests.support.recordings import recorded, simulated, written

LOG = """timestamp, index, uuid, name, utilization.gpu [%], memory.used [MiB], power.draw [W]
"""


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    made = tmp_path_factory.mktemp("recordings")
    recorded(made / "starved.jsonl", "starved")
    recorded(made / "healthy.jsonl.gz", "healthy")
    return made


@pytest.fixture
def starved(folder: Path) -> str:
    return str(folder / "starved.jsonl")


@pytest.fixture
def healthy(folder: Path) -> str:
    return str(folder / "healthy.jsonl.gz")


@pytest.fixture
def log(tmp_path: Path) -> Path:
    """Ten minutes of what ``nvidia-smi --query-gpu`` printed, a line in two seconds."""
    path = tmp_path / "smi.csv"
    rows = [
        f"2026/03/01 20:{second // 60:02}:{second % 60:02}.000, 0, GPU-1, NVIDIA H200, "
        f"{100 if second % 20 < 10 else 0} %, 1000 MiB, 200.00 W\n"
        for second in range(0, 600, 2)
    ]
    path.write_text(LOG + "".join(rows), encoding="utf-8")
    return path


def test_a_recording_has_a_report(starved: str, gpuwatch: Gpuwatch) -> None:
    """In 80 columns where there is no terminal, without colours."""
    text = gpuwatch("report", starved).out
    assert "loader is CPU-bound" in text
    assert "\x1b" not in text
    assert max(len(line) for line in text.split("\n")) <= 80


def test_standard_input_is_read(
    starved: str, gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """As ``-``."""
    monkeypatch.setattr("sys.stdin", io.TextIOWrapper(io.BytesIO(Path(starved).read_bytes())))
    assert gpuwatch("report", "-", "--json").json["source"]["name"] == "standard input"


def test_an_nvidia_smi_log_has_a_report(log: Path, gpuwatch: Gpuwatch) -> None:
    """Busy, energy and memory are those of its lines."""
    value = gpuwatch("report", str(log), "--json").json
    (gpu,) = value["gpus"]
    assert value["source"]["kind"] == "query"
    assert gpu["busy_percent"] == pytest.approx(50, abs=1)
    assert gpu["energy_joules"] == pytest.approx(200 * 598, rel=0.01)
    assert gpu["memory_peak_bytes"] == 1000 * 2**20
    assert gpu["period_seconds"] == pytest.approx(20, abs=1)


def test_a_part_of_the_time_alone(starved: str, gpuwatch: Gpuwatch) -> None:
    """From the start, from the end, and between the two."""

    def time(*cut: str) -> dict[str, Any]:
        return gpuwatch("report", starved, "--json", *cut).json["time"]

    whole = time()
    assert time("--from", "+40s")["begin_unix_seconds"] == whole["begin_unix_seconds"] + 40
    assert time("--to", "-20s")["end_unix_seconds"] == whole["end_unix_seconds"] - 20
    assert time("--from", "-50s", "--to", "+30s")["snapshots"] == 22


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ("report FILE --from +10m", "nothing between --from and --to"),
        ("report FILE --from +30s --to +20s", "--to is not after --from"),
        ("report FILE --from noon", "write it as 14:30"),
        ("report FILE --pid 99", "no job with a process 99"),
        ("report FILE --html EMPTY", "is empty"),
        ("report FILE --csv EMPTY", "is empty"),
        ("report 1 --pid 7", "report FILE --pid"),
        ("report x --json --html y", "Choose one"),
        ("compare FILE", "Name two recordings"),
        ("compare - -", "Only one of the two"),
        (
            "compare FILE OTHER --fail-if busy<-5",
            "is no condition: write busy<-5% (with one of busy",
        ),
        ("compare FILE OTHER --fail-if new:fault", "new:RULE with a rule that gpuwatch explain"),
        ("report FILE --csv x --json", "Choose one of CSV"),
        ("report FILE FILE --csv x", "Name one recording"),
        ("report FILE --csv - --csv-host -", "same place"),
        # What is read is never overwritten, under any name.
        ("report FILE --html FILE", "is the recording itself"),
        ("compare FILE OTHER --html RELATIVE", "is the recording itself"),
        ("report FILE --csv FILE", "is the recording itself"),
    ],
)
def test_what_cannot_be_done_is_said(
    starved: str, healthy: str, gpuwatch: Gpuwatch, arguments: str, says: str
) -> None:
    """With exit code 2, and the recording is left as it was."""
    before = Path(starved).read_bytes()
    names = {"FILE": starved, "OTHER": healthy, "EMPTY": "", "RELATIVE": os.path.relpath(starved)}
    given = [names.get(word, word) for word in arguments.split()]
    assert says in gpuwatch(*given, code=2).err
    assert Path(starved).read_bytes() == before


def test_one_job_is_reported_alone(starved: str, gpuwatch: Gpuwatch) -> None:
    """That of any of its processes."""
    job = gpuwatch("report", starved, "--json").json["jobs"][0]["pid"]
    value = gpuwatch("report", starved, "--pid", str(job), "--json").json
    assert value["pid"] == job
    assert [each["pid"] for each in value["jobs"]] == [job]


def test_html_is_one_whole_file(starved: str, tmp_path: Path, gpuwatch: Gpuwatch) -> None:
    """Another of that name is replaced, nothing is left beside it, nothing is printed."""
    out = tmp_path / "out.html"
    out.write_text("old", encoding="utf-8")
    assert gpuwatch("report", starved, "--html", str(out)).out == ""
    text = out.read_text(encoding="utf-8")
    assert text.startswith("<!doctype html>")
    assert text.endswith("</html>\n")
    assert os.listdir(tmp_path) == ["out.html"]  # noqa: PTH208 - names are enough
    # It has command lines in it, as the recording has.
    assert stat.S_IMODE(out.stat().st_mode) == 0o600


def test_what_is_cut_off_is_read_as_far_as_it_goes(
    starved: str, tmp_path: Path, gpuwatch: Gpuwatch
) -> None:
    """And what was left out is said."""
    data = Path(starved).read_bytes()
    torn, packed = tmp_path / "torn.jsonl", tmp_path / "torn.jsonl.gz"
    torn.write_bytes(data[: len(data) * 2 // 3])
    value = gpuwatch("report", str(torn), "--json").json
    assert 20 < value["time"]["snapshots"] < 60
    assert value["source"]["left_out_lines"] == 1
    whole = gzip.compress(data)
    packed.write_bytes(whole[: len(whole) * 2 // 3])
    value = gpuwatch("report", str(packed), "--json").json
    assert 0 < value["time"]["snapshots"] < 60
    assert value["source"]["notes"]


@pytest.mark.parametrize(
    "content",
    [b"", b"\n\n", b"hello\n", b"\x1f\x8b broken", b"{}\n", b"\0" * 99, b'{"hello": 1}\n' * 20],
)
def test_what_is_no_recording_is_refused(
    tmp_path: Path, gpuwatch: Gpuwatch, content: bytes
) -> None:
    """In one sentence, by each of the commands."""
    path, out = tmp_path / "nothing", tmp_path / "out.csv"
    path.write_bytes(content)
    for command in (("report",), ("compare", str(path)), ("report", "--csv", str(out))):
        said = gpuwatch(*command, str(path), code=2).err
        assert said.count("\n") <= 4
        assert "no reading of a GPU" in said or b'hello"' not in content
    assert not out.exists()


def test_what_cannot_be_written_is_said(
    starved: str, healthy: str, tmp_path: Path, gpuwatch: Gpuwatch
) -> None:
    """The exit code is 74."""
    nowhere = str(tmp_path / "no" / "out")
    for arguments in (
        ("report", starved, "--html", nowhere),
        ("report", starved, "--html", "/dev/full"),
        ("compare", starved, healthy, "--html", nowhere),
        ("report", starved, "--csv", nowhere),
        ("report", starved, "--csv", "/dev/full"),
    ):
        assert "cannot be written" in gpuwatch(*arguments, code=74).err


def test_hostile_names_reach_no_terminal(tmp_path: Path, gpuwatch: Gpuwatch) -> None:
    """A recording that somebody made by hand."""
    path = written(tmp_path / "hostile.jsonl", simulated("starved", 20))
    text = path.read_text(encoding="utf-8").replace("train.py", "\\u001b]0;x\\u0007\\u202e")
    path.write_text(text, encoding="utf-8")
    for form in ((), ("--html", "-"), ("--json",)):
        out = gpuwatch("report", str(path), *form).out
        assert "\x1b" not in out
        assert "\u202e" not in out


def test_two_recordings_are_compared(
    starved: str, healthy: str, tmp_path: Path, gpuwatch: Gpuwatch
) -> None:
    """As text, JSON and HTML."""
    command = ("compare", starved, healthy)
    assert "Gone: loader is CPU-bound." in gpuwatch(*command).words
    value = gpuwatch(*command, "--json").json
    assert value["comparable"] is True
    assert [found["state"] for found in value["findings"]] == ["gone"]
    out = tmp_path / "out.html"
    gpuwatch(*command, "--html", str(out))
    assert "Gone: loader is CPU-bound" in out.read_text(encoding="utf-8")


@pytest.mark.parametrize(
    ("conditions", "code", "says"),
    [
        ("busy<-5%", 1, "busy<-5%: GPU busy 98% before, 36% after (-61.5 points)."),
        ("energy<=-10%", 1, "GPU energy 20.6Wh before, 9.3Wh after (-54.8%)."),
        ("new", 1, "new: loader_cpu_bound found after, not before."),
        ("new:loader_cpu_bound samples/s<0%", 1, "loader_cpu_bound found after"),
        ("busy>5% memory>1% new:power_throttle", 0, ""),
        ("samples/s<-5%", 3, "unknown: samples/s was not measured before or after."),
        ("throttled>=0% disk<1%", 2, "'disk<1%' is no condition"),
        ("new:sync_every_step", 3, "unknown: what was read after does not decide it."),
    ],
)
def test_a_comparison_is_a_gate_for_ci(
    starved: str, healthy: str, gpuwatch: Gpuwatch, conditions: str, code: int, says: str
) -> None:
    """A condition that holds is a sentence with both figures and exit code 1; what was not measured
    is unknown and never zero: 3 if nothing holds. The comparison is printed all the same."""
    asked = [part for one in conditions.split() for part in ("--fail-if", one)]
    done = gpuwatch("compare", healthy, starved, *asked, "--json", code=code)
    assert says in done.err
    if code != 2:
        assert bool(done.json["failed"]) == (code == 1)
        assert bool(done.json["undecided"]) == (code == 3 or "samples/s" in conditions)
        printed = done.json["failed"] + done.json["undecided"]
        assert [f"gpuwatch: {one['condition']}: {one['says']}" for one in printed] == (
            done.err.splitlines()
        )


def test_a_log_and_a_recording_are_compared_with_doubts(
    starved: str, log: Path, gpuwatch: Gpuwatch
) -> None:
    """They are of other machines and lengths."""
    value = gpuwatch("compare", starved, str(log), "--json").json
    assert value["comparable"] is False
    assert len(value["doubts"]) >= 2


def test_tables_are_written(starved: str, tmp_path: Path, gpuwatch: Gpuwatch) -> None:
    """One row per GPU and time, one per process and time, one per time; gzip by ending."""
    gpus, processes, host = (tmp_path / name for name in ("g.csv", "p.csv.gz", "h.csv"))
    arguments = ["--csv", str(gpus), "--csv-processes", str(processes), "--csv-host", str(host)]
    assert gpuwatch("report", starved, *arguments).out == ""
    rows = list(csv.DictReader(io.StringIO(gpus.read_text(encoding="utf-8"))))
    assert len(rows) == 120
    assert len(host.read_text(encoding="utf-8").split("\n")) == 62
    with gzip.open(processes, "rt", encoding="utf-8") as file:
        found = list(csv.DictReader(file))
    assert {row["role"] for row in found} >= {"launcher", "rank", "loader_worker"}
    assert {stat.S_IMODE(path.stat().st_mode) for path in (gpus, processes, host)} == {0o600}


def test_csv_goes_to_standard_output(starved: str, gpuwatch: Gpuwatch) -> None:
    """As ``-``, of the part of the time that is asked for."""
    printed = gpuwatch("report", starved, "--csv", "-", "--from", "+50s").out
    rows = list(csv.DictReader(io.StringIO(printed)))
    assert len(rows) == 20
    assert rows[0]["time_utc"] == "2026-03-01T20:00:50.000Z"


# --- a long log: how far it is, and ended early ----------------------------------------------


def long_log(folder: Path) -> Path:
    log = folder / "smi.csv"
    rows = [f"{1_738_326_896 + second}, 0, 90 %" for second in range(200)]
    log.write_text("\n".join(["timestamp, index, utilization.gpu [%]", *rows, ""]))
    return log


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
@pytest.mark.parametrize("command", ["report", "diagnose", "compare"])
def test_a_signal_ends_the_reading_with_a_sentence(
    command: str,
    number: signal.Signals,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """``report`` and ``compare`` say no more and give 130; ``diagnose`` says what is known."""
    push, pushed = Accumulator.push, 0

    def ended(self: Accumulator, snapshot: Snapshot) -> None:
        nonlocal pushed
        push(self, snapshot)
        pushed += 1
        if pushed == 120:
            os.kill(os.getpid(), number)

    monkeypatch.setattr(Accumulator, "push", ended)
    log = str(long_log(tmp_path))
    before = signal.getsignal(signal.SIGTERM)
    code = run([command, log, *([log] if command == "compare" else [])])
    out, said = capsys.readouterr()
    assert "Interrupted when 120 moments" in said or "Interrupted when 121 moments" in said
    assert signal.getsignal(signal.SIGTERM) is before
    if command == "diagnose":
        assert code != 130
        assert "of 1m59" in out
    else:
        assert code == 130
        assert out == ""


@pytest.mark.parametrize("terminal", [True, False])
def test_progress_is_shown_on_a_terminal_alone(
    terminal: bool,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """How much of the file is read, on standard error, and gone at the end."""
    monkeypatch.setattr(reading, "_PROGRESS_SECONDS", 0.0)
    monkeypatch.setattr(printing, "is_terminal", lambda stream: terminal and stream is sys.stderr)
    monkeypatch.setattr(printing, "terminal_width", lambda _stream: 500)
    monkeypatch.setenv("TERM", "xterm")
    assert run(["report", str(long_log(tmp_path))]) == 0
    said = capsys.readouterr().err
    assert ("reading" in said and "100%, 200 moments so far" in said) == terminal
    assert said.endswith("\r") == terminal
