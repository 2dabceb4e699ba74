"""``gpuwatch report``: which report is meant, what is printed, how it fails."""

import fcntl
import json
import os
import re
import struct
import subprocess
import sys
import termios
from pathlib import Path

import pytest

from gpuwatch.commands.cli import run
from gpuwatch.outputs.report.encoding import decode
from gpuwatch.outputs.report.model import Report
from gpuwatch.outputs.report.parts import replaced
from gpuwatch.outputs.report.store import ReportStore
from gpuwatch.tuning.search import result as tunings
from tests.commands.running import environment_in
from tests.outputs.report.stories import UNIX, of_job, recorded, training
from tests.tuning.test_tune_command import found as tuned

EIGHTY = 80


@pytest.fixture
def store(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> ReportStore:
    """The user's own, in a folder of this test."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "state"))
    return ReportStore()


@pytest.fixture(scope="module")
def runs() -> list[Report]:
    """Three runs of one command, an hour apart, with 0, 2 and 4 workers."""
    out = []
    for number, (workers, busy) in enumerate(((0, 0.3), (2, 0.6), (4, 0.9))):
        report = recorded(training(seconds=30, workers=workers, busy_share=busy))
        begin = UNIX + 3600 * number
        job = replaced(
            of_job(report),
            pid=5000 + number,
            started_at_unix_seconds=begin,
            ended_at_unix_seconds=begin + 30,
        )
        time = replaced(report.time, begin_unix_seconds=begin + 1, end_unix_seconds=begin + 30)
        out.append(replaced(report, pid=job.pid, jobs=(job,), time=time))
    return out


@pytest.fixture
def filled(store: ReportStore, runs: list[Report]) -> list[Path]:
    return [store.save(report) for report in runs]


def said(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """Exit code, output and errors of ``gpuwatch report ARGUMENTS``."""
    code = run(["report", *arguments])
    out, errors = capsys.readouterr()
    return code, out, errors


@pytest.mark.usefixtures("filled")
def test_without_an_argument_the_last_report_is_shown(capsys: pytest.CaptureFixture[str]) -> None:
    """Compared with the run before it."""
    code, out, errors = said(capsys)
    assert (code, errors) == (0, "")
    assert "PID 5002" in out
    assert "4 loader workers, pinned memory on" in out
    assert "loader workers 2 -> 4, busy 58% -> 89%" in " ".join(out.split())
    assert max(len(line) for line in out.splitlines()) <= EIGHTY
    assert "\x1b" not in out


@pytest.mark.parametrize("reference", ["3", "5000"])
@pytest.mark.usefixtures("filled")
def test_a_report_is_named_by_number_or_pid(
    capsys: pytest.CaptureFixture[str], reference: str
) -> None:
    """The first run has none before it to be compared with."""
    code, out, _ = said(capsys, reference)
    assert code == 0
    assert "PID 5000" in out
    assert "Since the last run" not in out


def test_a_report_is_named_by_its_file(
    capsys: pytest.CaptureFixture[str], filled: list[Path], tmp_path: Path
) -> None:
    """Wherever it is, and whether or not any is kept here."""
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_bytes(filled[0].read_bytes())
    for path in filled:
        path.unlink()
    code, out, _ = said(capsys, str(elsewhere))
    assert code == 0
    assert "PID 5000" in out


@pytest.mark.usefixtures("filled")
def test_the_list_has_a_line_for_each(capsys: pytest.CaptureFixture[str]) -> None:
    """The newest first, with the numbers that the command takes."""
    code, out, _ = said(capsys, "--list")
    titles, *rows = out.splitlines()
    assert code == 0
    assert " ".join(titles.split()) == "NO STARTED TOOK EXIT GPUS BUSY IDLE GPU-S COMMAND"
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    assert ["89%" in rows[0], "58%" in rows[1], "29%" in rows[2]] == [True] * 3
    assert max(len(line) for line in out.splitlines()) <= EIGHTY


def test_json_is_the_report_that_was_kept(
    capsys: pytest.CaptureFixture[str], filled: list[Path], runs: list[Report]
) -> None:
    """With the sums a reader wants beside it."""
    code, out, _ = said(capsys, "2", "--json")
    assert code == 0
    assert decode(out.encode()).key == runs[1].key
    value = json.loads(out)
    assert value["schema"] == 2
    assert value["total"]["busy_percent"] == pytest.approx(58, abs=0.5)
    assert value["total"]["idle_gpu_seconds"] == pytest.approx(29 * 0.42, abs=0.1)
    assert len(filled) == 3


def test_what_was_tuned_in_the_jobs_folder_is_shown(
    capsys: pytest.CaptureFixture[str], store: ReportStore, runs: list[Report]
) -> None:
    """As text and as JSON; what was tuned elsewhere, or by another version, is not."""
    job = replaced(of_job(runs[0]), working_directory="/home/ada/train")
    store.save(replaced(runs[0], jobs=(job,)))
    tunings.save(tuned(folder="/home/ada/other", target="other.py:x", taken_at_unix_seconds=2e9))
    assert json.loads(said(capsys, "--json")[1])["tuning"] is None
    tunings.save(tuned(target="train.py:\x1b[2Jloader"))
    out = said(capsys)[1]
    measured = "num_workers=4: 790 samples/s (95%: 766 to 814)"
    assert measured in " ".join(out.split())
    assert "\x1b" not in out
    assert "other.py" not in out
    tuning = json.loads(said(capsys, "--json")[1])["tuning"]
    assert tuning["recommended"]["num_workers"] == 4
    assert tuning["samples_per_second"] == 790
    for part, other in (('"settings":[', '"settings":1,"x":['), ("2500000000.0", "1e300")):
        path = tunings.save(tuned(target="broken.py:x", taken_at_unix_seconds=2.5e9))
        path.write_text(path.read_text().replace(part, other))
        assert json.loads(said(capsys, "--json")[1])["tuning"] == tuning


def test_the_list_as_json_names_the_files(
    capsys: pytest.CaptureFixture[str], filled: list[Path]
) -> None:
    """So that a script can read each."""
    code, out, _ = said(capsys, "--list", "--json")
    assert code == 0
    reports = json.loads(out)["reports"]
    assert [each["path"] for each in reports] == [str(path) for path in reversed(filled)]
    assert [each["number"] for each in reports] == [1, 2, 3]
    assert all(each["duration_seconds"] == 30 for each in reports)


@pytest.mark.parametrize("arguments", [("--compare", "3"), ("3", "--compare", "1")])
@pytest.mark.usefixtures("filled")
def test_any_two_are_compared_the_earlier_run_first(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...]
) -> None:
    """In whatever order they are named."""
    code, out, _ = said(capsys, *arguments)
    assert code == 0
    [busy] = [line for line in out.splitlines() if line.startswith("GPU busy")]
    assert busy.split()[2:4] == ["29%", "89%"]
    code, out, _ = said(capsys, *arguments, "--json")
    value = json.loads(out)
    assert (value["before"]["pid"], value["after"]["pid"]) == (5000, 5002)


@pytest.mark.usefixtures("filled")
def test_ascii_on_request(capsys: pytest.CaptureFixture[str]) -> None:
    """Charts included."""
    _, out, _ = said(capsys, "--ascii")
    assert out.isascii()
    assert "100%|" in out


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "No report is saved yet"),
        (("--list",), "No report is saved yet"),
        (("--list", "--json"), "No report is saved yet"),
        (("4",), "No report is saved yet"),
        (("--list", "4"), "--list shows all"),
        (("--list", "--md"), "no --md and no --html"),
        (("--list", "--html", "-"), "no --md and no --html"),
        (("train.py",), "is not a file"),
        (("/",), "is a folder"),
    ],
)
@pytest.mark.usefixtures("store")
def test_what_cannot_be_shown_is_one_sentence_and_exit_code_two(
    capsys: pytest.CaptureFixture[str], arguments: tuple[str, ...], says: str
) -> None:
    """Nothing on standard output, where a script would read it."""
    code, out, errors = said(capsys, *arguments)
    assert (code, out) == (2, "")
    assert says in errors
    assert len(errors.splitlines()) == 1


def test_reports_of_an_older_version_are_passed_over_with_a_sentence(
    capsys: pytest.CaptureFixture[str], filled: list[Path]
) -> None:
    """The others are listed; one that is asked for says what it is."""
    old = {"kind": "report", "schema": 1, "pid": 5002}
    filled[2].write_text(json.dumps(old), encoding="utf-8")
    code, out, errors = said(capsys, "--list")
    assert (code, len(out.splitlines())) == (0, 3)
    assert "1 of the saved reports cannot be read: damaged, or of an older gpuwatch." in errors
    code, _, errors = said(capsys, "1")
    assert code == 2
    assert "written by an older gpuwatch" in errors


@pytest.mark.usefixtures("filled")
def test_a_kept_report_is_written_in_any_form(
    capsys: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """As that of a recording."""
    assert said(capsys, "1", "--md")[1].startswith("# GPU report")
    page = tmp_path / "report.html"
    assert said(capsys, "1", "--html", str(page))[:2] == (0, "")
    assert "4 loader workers, pinned memory on" in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("filled")
def test_a_number_too_large_says_how_many_there_are(capsys: pytest.CaptureFixture[str]) -> None:
    """And how to see them."""
    code, _, errors = said(capsys, "77")
    assert code == 2
    assert "gpuwatch report --list shows all 3" in errors


def test_a_file_that_is_no_report_says_what_it_is(
    capsys: pytest.CaptureFixture[str], store: ReportStore, tmp_path: Path
) -> None:
    """A broken recording differs from any other file; escapes in its name are harmless."""
    assert store.folder.parent.name == "gpuwatch"
    recording = tmp_path / "r.jsonl"
    recording.write_text('{"kind":"header","schema":1}\n')
    text = tmp_path / "t\x1b[31mxt.json"
    text.write_text("hello")
    for path, says in ((recording, "cannot be read"), (text, "is neither")):
        code, _, errors = said(capsys, str(path))
        assert code == 2
        assert says in errors
        assert "\x1b" not in errors


def on_a_terminal(folder: Path, columns: int, **environment: str) -> str:
    """What ``gpuwatch report`` prints on a terminal this wide."""
    ours, theirs = os.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 40, columns, 0, 0))
    process = subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "report"],
        stdout=theirs,
        env={**environment_in(folder), "LC_ALL": "C.UTF-8", **environment},
    )
    os.close(theirs)
    parts = []
    while True:
        try:
            part = os.read(ours, 65536)
        except OSError:
            # The other side has closed.
            break
        if not part:
            break
        parts.append(part)
    os.close(ours)
    assert process.wait(timeout=60) == 0
    return b"".join(parts).decode().replace("\r\n", "\n")


@pytest.mark.usefixtures("filled")
def test_on_a_terminal_the_report_has_its_width_and_colours(tmp_path: Path) -> None:
    """Unless NO_COLOR says otherwise."""
    text = on_a_terminal(tmp_path, 60, TERM="xterm-256color")
    assert "\x1b[1m" in text
    plain = re.sub(r"\x1b\[\d*m", "", text)
    assert max(len(line) for line in plain.splitlines()) == 60
    assert on_a_terminal(tmp_path, 60, TERM="xterm-256color", NO_COLOR="1") == plain


@pytest.mark.usefixtures("filled")
def test_the_list_needs_no_charts(tmp_path: Path) -> None:
    """Neither plotext nor Textual is imported for what does not draw."""
    script = (
        "import sys; from gpuwatch.commands.cli import run; run(['report', '--list']);"
        "print(sorted({'plotext', 'textual', 'asyncio'} & set(sys.modules)))"
    )
    done = subprocess.run(
        [sys.executable, "-c", script],
        capture_output=True,
        text=True,
        check=True,
        env=environment_in(tmp_path),
    )
    assert done.stdout.endswith("[]\n")
