"""``gpuwatch report``: which report is meant, what is printed, how it fails."""

import json
import os
import re
import subprocess
import sys
import termios
from functools import partial
from pathlib import Path

import pytest

from gpuwatch.outputs.report.model import Report, decode, replaced
from gpuwatch.outputs.report.store import ReportStore
from tests.commands.conftest import Gpuwatch
from tests.commands.running import environment_in, everything
from tests.outputs.report.stories import UNIX, of_job, recorded, training
from tests.support.children import ran

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


@pytest.fixture
def report(gpuwatch: Gpuwatch) -> Gpuwatch:
    return partial(gpuwatch, "report")


@pytest.mark.usefixtures("filled")
def test_without_an_argument_the_last_report_is_shown(report: Gpuwatch) -> None:
    """Compared with the run before it; with --ascii in ASCII, charts included."""
    done = report()
    assert done.err == ""
    assert "PID 5002" in done.out
    assert "4 loader workers, pinned memory on" in done.out
    assert "Compared with the last run" in done.words
    assert "GPU busy 58% 89% +31 points better" in done.words
    assert max(len(line) for line in done.out.splitlines()) <= EIGHTY
    assert "\x1b" not in done.out
    plain = report("--ascii").out
    assert plain.isascii()
    assert "100%|" in plain


def test_a_report_is_named_by_number_pid_or_file(
    report: Gpuwatch, filled: list[Path], tmp_path: Path
) -> None:
    """The first run has none before it to be compared with; a file may be anywhere, whether or not
    any report is kept here."""
    elsewhere = tmp_path / "elsewhere.json"
    elsewhere.write_bytes(filled[0].read_bytes())
    for reference in ("3", "5000", str(elsewhere)):
        if reference == str(elsewhere):
            for path in filled:
                path.unlink()
        out = report(reference).out
        assert "PID 5000" in out
        assert "last run" not in out


def test_the_list_has_a_line_for_each(report: Gpuwatch, filled: list[Path]) -> None:
    """The newest first, with the numbers that the command takes; as JSON with their files."""
    titles, *rows = report("--list").out.splitlines()
    assert " ".join(titles.split()) == "NO STARTED TOOK EXIT GPUS BUSY IDLE GPU-S COMMAND"
    assert [row.split()[0] for row in rows] == ["1", "2", "3"]
    assert ["89%" in rows[0], "58%" in rows[1], "29%" in rows[2]] == [True] * 3
    assert max(len(line) for line in (titles, *rows)) <= EIGHTY
    reports = report("--list", "--json").json["reports"]
    assert [each["path"] for each in reports] == [str(path) for path in reversed(filled)]
    assert [each["number"] for each in reports] == [1, 2, 3]
    assert all(each["duration_seconds"] == 30 for each in reports)


@pytest.mark.usefixtures("filled")
def test_json_is_the_report_that_was_kept(report: Gpuwatch, runs: list[Report]) -> None:
    """With the sums a reader wants beside it."""
    done = report("2", "--json")
    assert decode(done.out.encode()).key == runs[1].key
    assert done.json["schema"] == 2
    assert done.json["total"]["busy_percent"] == pytest.approx(58, abs=0.5)
    assert done.json["total"]["idle_gpu_seconds"] == pytest.approx(29 * 0.42, abs=0.1)


@pytest.mark.usefixtures("filled")
def test_any_two_are_compared(gpuwatch: Gpuwatch) -> None:
    """By their numbers, in the order in which they are named."""
    [busy] = [x for x in gpuwatch("compare", "3", "1").out.splitlines() if x.startswith("GPU busy")]
    assert busy.split()[2:4] == ["29%", "89%"]
    value = gpuwatch("compare", "3", "1", "--json").json
    assert (value["before"]["pid"], value["after"]["pid"]) == (5000, 5002)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "No report is saved yet"),
        (("--list",), "No report is saved yet"),
        (("--list", "--json"), "No report is saved yet"),
        (("4",), "No report is saved yet"),
        (("--list", "4"), "--list shows all"),
        (("--list", "--html", "-"), "it takes no --html"),
        (("train.py",), "is not a file"),
        (("/",), "rank all recordings in it with gpuwatch report / --by user"),
    ],
)
@pytest.mark.usefixtures("store")
def test_what_cannot_be_shown_is_one_sentence_and_exit_code_two(
    report: Gpuwatch, arguments: tuple[str, ...], says: str
) -> None:
    """Nothing on standard output, where a script would read it."""
    errors = report(*arguments, code=2).err
    assert says in errors
    assert len(errors.splitlines()) == 1


def test_reports_of_an_older_version_are_passed_over_with_a_sentence(
    report: Gpuwatch, filled: list[Path]
) -> None:
    """The others are listed; one that is asked for says what it is, and a number that is too large
    how many there are."""
    old = {"kind": "report", "schema": 1, "pid": 5002}
    filled[2].write_text(json.dumps(old), encoding="utf-8")
    done = report("--list")
    assert len(done.out.splitlines()) == 3
    assert "1 of the saved reports cannot be read: damaged, or of an older gpuwatch." in done.err
    assert "reads schema 2 only" in report("1", code=2).err
    assert "gpuwatch report --list shows all 3" in report("77", code=2).err


@pytest.mark.usefixtures("filled")
def test_a_kept_report_is_written_in_any_form(report: Gpuwatch, tmp_path: Path) -> None:
    """As that of a recording."""
    page = tmp_path / "report.html"
    assert report("1", "--html", str(page)).out == ""
    assert "4 loader workers, pinned memory on" in page.read_text(encoding="utf-8")


@pytest.mark.usefixtures("store")
def test_a_file_that_is_no_report_says_what_it_is(report: Gpuwatch, tmp_path: Path) -> None:
    """A broken recording differs from any other file; escapes in its name are harmless."""
    for name, text, says in (
        ("r.jsonl", '{"kind":"header","schema":1}\n', "cannot be read"),
        ("t\x1b[31mxt.json", "hello", "is neither"),
    ):
        (tmp_path / name).write_text(text)
        assert says in report(str(tmp_path / name), code=2).err


def on_a_terminal(folder: Path, **environment: str) -> str:
    """What ``gpuwatch report`` prints on a terminal of 60 columns."""
    ours, theirs = os.openpty()
    termios.tcsetwinsize(theirs, (40, 60))
    environment |= {**environment_in(folder), "LC_ALL": "C.UTF-8", "TERM": "xterm-256color"}
    command = [sys.executable, "-m", "gpuwatch", "report"]
    process = subprocess.Popen(command, stdout=theirs, env=environment)
    os.close(theirs)
    shown = everything(ours)
    assert process.wait(timeout=60) == 0
    return shown.replace("\r\n", "\n")


@pytest.mark.usefixtures("filled")
def test_on_a_terminal_the_report_has_its_width_and_colours(tmp_path: Path) -> None:
    """Unless NO_COLOR says otherwise."""
    text = on_a_terminal(tmp_path)
    assert "\x1b[1m" in text
    plain = re.sub(r"\x1b\[\d*m", "", text)
    assert max(len(line) for line in plain.splitlines()) == 60
    assert on_a_terminal(tmp_path, NO_COLOR="1") == plain


@pytest.mark.usefixtures("filled")
def test_the_list_needs_no_charts(tmp_path: Path) -> None:
    """Textual is not imported for what does not draw."""
    script = (
        "import sys; from gpuwatch.commands.cli import run; run(['report', '--list']);"
        "print(sorted({'textual', 'asyncio'} & set(sys.modules)))"
    )
    assert ran("-c", script, env=environment_in(tmp_path)).stdout.endswith("[]\n")
