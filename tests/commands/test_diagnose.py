"""``gpuwatch diagnose`` and ``gpuwatch explain``: what they print, and how they end."""

from __future__ import annotations

import contextlib
import fcntl
import io
import json
import os
import signal
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.commands import cli
from gpuwatch.commands.diagnose import exit_code
from gpuwatch.commands.diagnosing import Collector, file_source, live_source
from gpuwatch.commands.explain import paragraphs, rule_list, rule_page
from gpuwatch.core.model import Snapshot
from gpuwatch.diagnosis.engine.catalogue import RULES
from gpuwatch.diagnosis.finding import Diagnosis, Finding
from gpuwatch.outputs.status.jsonlines import JsonLinesWriter
from gpuwatch.outputs.terminal.table import cell_width
from gpuwatch.recording.reader import open_any
from tests.commands.running import environment_in
from tests.jobs.stacks.support import SPIN, require_py_spy
from tests.sources.smi_writing import query_log, simulated
from tests.support.children import Children, children

GPUWATCH_DIAGNOSE = (sys.executable, "-m", "gpuwatch", "diagnose")


def run(*arguments: str) -> int:
    return cli.run(["diagnose", *arguments])


def said(capsys: pytest.CaptureFixture[str]) -> dict[str, Any]:
    found = json.loads(capsys.readouterr().out)
    assert isinstance(found, dict)
    return found


def recorded(folder: Path, snapshots: list[Snapshot]) -> str:
    out = io.StringIO()
    writer = JsonLinesWriter(out)
    for snapshot in snapshots:
        writer.write(snapshot)
    path = folder / "recording.jsonl"
    path.write_text(out.getvalue())
    return str(path)


def logged(folder: Path, text: str) -> str:
    path = folder / "gpus.csv"
    path.write_text(text)
    return str(path)


# --- what it finds ---------------------------------------------------------------------------


def test_a_starved_machine_is_told_and_ends_with_1(capsys: pytest.CaptureFixture[str]) -> None:
    """The cause, the change to make, and the evidence."""
    assert run("--demo", "starved") == 1
    page = capsys.readouterr().out
    assert "loader_cpu_bound" in page
    assert "num_workers" in page
    assert "Because" in page


def test_a_healthy_machine_ends_with_0(capsys: pytest.CaptureFixture[str]) -> None:
    """And says what was seen."""
    assert run("--demo", "healthy") == 0
    assert "busy" in capsys.readouterr().out


def test_too_short_a_look_cannot_tell_and_ends_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    """And says what would decide."""
    assert run("--demo", "healthy", "--for", "2s") == 3
    assert "Needed for a diagnosis" in capsys.readouterr().out


def test_without_a_gpu_it_says_why_and_ends_with_3(capsys: pytest.CaptureFixture[str]) -> None:
    """The driver's trouble is the verdict."""
    assert run("--demo", "no_gpu") == 3
    assert "driver" in capsys.readouterr().out


def test_the_json_has_what_its_documentation_says(capsys: pytest.CaptureFixture[str]) -> None:
    """Names, nulls and kinds of values."""
    assert run("--demo", "starved", "--json") == 1
    found = said(capsys)
    assert found["schema"] == 1
    assert found["source"]["kind"] == "simulated"
    assert found["decided"] is True
    finding = found["findings"][0]
    assert finding["rule"] == "loader_cpu_bound"
    assert finding["until_unix_seconds"] is None
    assert 0.0 <= finding["confidence"] <= 1.0
    assert set(finding["cost"]) == {"share", "gpu_seconds"}
    assert finding["job"]["pid"] == 4242
    assert finding["gpus"] == [found["gpus"][0]["uuid"]]
    assert {"name", "value", "unit", "threshold", "says", "supports"} == set(finding["evidence"][0])
    assert {"action", "setting", "from", "to", "why"} == set(finding["advice"][0])
    assert all(set(each) == {"rule", "why"} for each in finding["ruled_out"])
    assert all(each["missing"] for each in found["unknown"])


def test_one_job_of_the_machine_is_diagnosed_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """--pid takes any of its processes."""
    assert run("--demo", "starved", "--gpus", "2", "--pid", "4242", "--json") == 1
    jobs = {finding["job"]["pid"] for finding in said(capsys)["findings"] if finding["job"]}
    assert jobs == {4242}


# --- files -----------------------------------------------------------------------------------


def test_a_recording_gives_the_findings_of_the_machine(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """No rule asks where a snapshot came from."""
    path = recorded(tmp_path, simulated("starved", gpus=1, count=31))
    assert run(path, "--json") == 1
    found = said(capsys)
    assert run("--demo", "starved", "--json") == 1
    live = said(capsys)
    assert [each["rule"] for each in found["findings"]] == [
        each["rule"] for each in live["findings"]
    ]
    assert found["source"]["kind"] == "recording"


def test_one_job_of_a_recording_is_diagnosed_alone(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """And a job that is not in it is bad input."""
    path = recorded(tmp_path, simulated("starved", gpus=1, count=31))
    assert run(path, "--pid", "4242") == 1
    capsys.readouterr()
    assert run(path, "--pid", "2") == 2
    assert "no job with a process 2" in capsys.readouterr().err


def test_a_log_of_a_waiting_gpu_shows_the_pattern(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """From the GPU alone: what it may be, and what would decide."""
    path = logged(tmp_path, query_log(simulated("starved", gpus=2, count=300, interval=0.2)))
    assert run(path) == 1
    page = capsys.readouterr().out
    assert "oscillation" in page
    assert "num_workers" in page
    assert page.count("pin_memory") == 1


def test_a_log_of_a_fed_gpu_ends_with_0(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Nothing is invented for want of readings."""
    path = logged(tmp_path, query_log(simulated("healthy", gpus=2, count=90)))
    assert run(path) == 0
    assert "nvidia-smi query log of 2 GPUs" in " ".join(capsys.readouterr().out.split())


def test_a_log_without_utilisation_cannot_tell(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Power alone decides nothing, and it says which column is missing."""
    columns = ("timestamp", "index", "power.draw")
    path = logged(tmp_path, query_log(simulated("starved", count=60), columns))
    assert run(path) == 3
    assert "utilization.gpu" in capsys.readouterr().out


def test_what_was_left_out_of_a_log_is_said_and_counted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """On standard error, and in the JSON."""
    text = query_log(simulated("healthy", gpus=1, count=60))
    path = logged(tmp_path, text + "Segmentation fault\n" + "2025/01/")
    assert run(path, "--json") == 0
    out, err = capsys.readouterr()
    source = json.loads(out)["source"]
    assert (source["other_lines"], source["torn_lines"]) == (1, 1)
    assert "Segmentation fault" in err


def test_named_columns_make_an_ambiguous_log_readable(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It asks for them, and takes them."""
    path = logged(tmp_path, "0, 0, 41\n" * 60)
    assert run(path) == 2
    assert "--columns" in capsys.readouterr().err
    assert run(path, "--columns", "index,utilization.gpu,temperature.gpu", "--json") in {0, 1, 3}
    assert said(capsys)["gpus"][0]["busy_percent"] == 0.0


def test_findings_that_ended_are_told_after_those_that_hold() -> None:
    """A log's beginning counts too."""
    collector = Collector(engine=_Scripted())  # type: ignore[arg-type]
    for snapshot in simulated(gpus=1, count=9):
        collector.push(snapshot)
    report = collector.report(live_source(collector, simulated=True))
    assert [finding.rule for finding in report.diagnosis.findings] == ["holds"]
    assert [each.finding.rule for each in report.ended] == ["ended"]
    assert report.ended[0].until_unix_seconds == pytest.approx(1_700_000_002.0)
    assert exit_code(report) == 1


def test_an_ended_finding_is_told_as_it_was_when_it_was_clear() -> None:
    """Not by its last moments, in which it faded; what it cost counts to its end."""
    collector = Collector(engine=_Fading())  # type: ignore[arg-type]
    for snapshot in simulated(gpus=1, count=4):
        collector.push(snapshot)
    (ended,) = collector.report(live_source(collector, simulated=True)).ended
    assert (ended.finding.summary, ended.finding.confidence) == ("clear", 0.9)
    assert ended.finding.cost_gpu_seconds == 3.0


class _Fading:
    """A finding that is clear, then less so, then gone."""

    def __init__(self) -> None:
        self._looks = 0
        self.diagnosis = Diagnosis(taken_at_unix_seconds=0.0, watched_seconds=0.0, verdict="-")

    def push(self, snapshot: Snapshot) -> None:
        self._looks += 1
        said = [("rising", 0.8), ("clear", 0.9), ("fading", 0.7)][self._looks - 1 :][:1]
        found = [
            Finding(
                rule="one",
                severity="warning",
                summary=summary,
                confidence=confidence,
                cost_gpu_seconds=float(self._looks),
            )
            for summary, confidence in said
        ]
        self.diagnosis = replace(self.diagnosis, findings=tuple(found), verdict=str(self._looks))


class _Scripted:
    """An engine whose findings are known: one for the first three looks, one from the sixth on."""

    def __init__(self) -> None:
        self._looks = 0
        self.diagnosis = Diagnosis(taken_at_unix_seconds=0.0, watched_seconds=0.0, verdict="-")

    def push(self, snapshot: Snapshot) -> None:
        self._looks += 1
        rules = ["ended"] if self._looks <= 3 else ["holds"] if self._looks >= 6 else []
        self.diagnosis = Diagnosis(
            taken_at_unix_seconds=snapshot.taken_at_unix_seconds,
            watched_seconds=float(self._looks),
            verdict="-",
            findings=tuple(
                [
                    Finding(rule=rule, severity="warning", confidence=0.9, summary=rule)
                    for rule in rules
                ]
            ),
        )


def test_a_finding_that_comes_back_is_told_once() -> None:
    """As the one that holds."""
    collector = Collector(engine=_Scripted())  # type: ignore[arg-type]
    snapshots = simulated(gpus=1, count=4)
    for snapshot in snapshots:
        collector.push(snapshot)
    engine = collector.engine
    engine._looks = 0  # type: ignore[attr-defined]
    collector.push(snapshots[-1])
    report = collector.report(live_source(collector, simulated=True))
    assert [finding.rule for finding in report.diagnosis.findings] == ["ended"]
    assert report.ended == ()


def test_the_counts_of_a_log_reach_its_report(tmp_path: Path) -> None:
    """As they are when it has been read."""
    path = logged(tmp_path, query_log(simulated("healthy", gpus=2, count=10)) + "\n\noops\n")
    collector = Collector()
    with open_any(path) as log:
        for snapshot in log.snapshots:
            collector.push(snapshot)
        source = file_source(log, collector)
    assert (source.kind, source.snapshots, source.other_lines) == ("query", 10, 1)
    assert source.seconds == pytest.approx(9.0, abs=0.01)


# --- bad input -------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("/nowhere/at/all",), "no such file"),
        (("/",), "folder"),
        (("--columns", "index"), "give its file"),
        (("x", "--demo"), "Choose either"),
        (("x", "--stacks"), "does not apply to a file"),
        (("x", "--for", "3s"), "read as a whole"),
        (("--for", "soon"), "60s, 2m or 1h"),
        (("--for", "0s"), "between 1 second and 24 hours"),
        (("--demo", "starved", "--stacks"), "no stacks"),
        (("--demo", "nothing-like-it"), "no scenario"),
        (("--demo", "starved", "--pid", "99999"), "no process 99999"),
        (("--interval", "0.01"), "too short"),
        (("--interval", "nan"), "not between"),
        (("x", "--columns", "nonsense!"), "not a column of nvidia-smi"),
        (("x", "--gpus", "0"), "at least one GPU"),
    ],
)
def test_what_cannot_be_done_is_said_and_ends_with_2(
    arguments: tuple[str, ...], sentence: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """One sentence on standard error, nothing on standard output."""
    assert run(*arguments) == 2
    out, err = capsys.readouterr()
    assert out == ""
    assert sentence in err
    assert "Traceback" not in err


def test_a_log_that_holds_nothing_ends_with_2(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """It is neither a recording nor a log."""
    assert run(logged(tmp_path, "dear diary\n")) == 2
    assert "dear diary" in capsys.readouterr().err


# --- this machine ----------------------------------------------------------------------------


def test_this_machine_is_watched_for_as_long_as_asked(capsys: pytest.CaptureFixture[str]) -> None:
    """With real readings, whether it has a GPU or not."""
    assert run("--for", "1s", "--interval", "0.2", "--json") in {0, 1, 3}
    found = said(capsys)
    assert found["source"]["kind"] == "live"
    assert found["source"]["snapshots"] >= 2


def everything(terminal: int) -> str:
    """What was written to a terminal that nobody holds any more."""
    parts = []
    with os.fdopen(terminal, "rb", buffering=0) as file, contextlib.suppress(OSError):
        while part := file.read(4096):
            parts.append(part)
    return b"".join(parts).decode()


def test_a_terminal_sees_how_far_it_is_and_then_nothing_of_it(tmp_path: Path) -> None:
    """The line is drawn over on standard error; standard output has the page alone."""
    main, other = os.openpty()
    process = subprocess.run(
        [*GPUWATCH_DIAGNOSE, "--for", "1s"],
        stdout=subprocess.PIPE,
        stderr=other,
        env=environment_in(tmp_path),
        timeout=60,
        check=False,
    )
    os.close(other)
    shown = everything(main)
    assert "watching" in shown
    assert shown.endswith("\r")
    assert b"watching" not in process.stdout


def test_ctrl_c_tells_what_is_known(tmp_path: Path) -> None:
    """And ends with the exit code of what was found."""
    log = query_log(simulated("starved", gpus=1, count=300, interval=0.2))
    with subprocess.Popen(
        [*GPUWATCH_DIAGNOSE, "-", "--json"],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment_in(tmp_path),
        start_new_session=True,
    ) as process:
        assert process.stdin is not None
        # Far more than a pipe holds: once it is written, most of it has been read.
        for _ in range(12):
            process.stdin.write(log.encode())
        process.stdin.flush()
        process.send_signal(signal.SIGINT)
        assert process.stdout is not None
        out = process.stdout.read()
        process.stdin.close()
        code = process.wait(timeout=60)
    found = json.loads(out)
    assert found["source"]["snapshots"] > 0
    assert code == (1 if found["findings"] else 3)


def started_diagnosis(folder: Path, *arguments: str) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [*GPUWATCH_DIAGNOSE, *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        env=environment_in(folder),
        start_new_session=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_long_watch_that_is_ended_early_tells_what_it_saw(
    tmp_path: Path, number: signal.Signals
) -> None:
    """With the exit code of that: ``timeout`` and batch systems send SIGTERM."""
    main, other = os.openpty()
    process = subprocess.Popen(
        [*GPUWATCH_DIAGNOSE, "--for", "2h", "--interval", "0.1", "--json"],
        stdout=subprocess.PIPE,
        stderr=other,
        env=environment_in(tmp_path),
        start_new_session=True,
    )
    os.close(other)
    # Its line says that it watches.
    assert b"watching" in os.read(main, 200)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    os.close(main)
    found = json.loads(out)
    assert found["source"]["snapshots"] >= 1
    assert process.returncode == (1 if found["findings"] else 0 if found["decided"] else 3)


def test_a_pipe_is_diagnosed_as_far_as_it_came(tmp_path: Path) -> None:
    """Ctrl-C ends ``nvidia-smi -l 1 | gpuwatch diagnose -``: what came before the last row, which
    may be cut off, is diagnosed."""
    with started_diagnosis(tmp_path, "-", "--json") as process:
        assert process.stdin is not None
        assert process.stdout is not None
        text = "utilization.gpu [%], memory.used [MiB]\n" + "50 %, 100 MiB\n" * 100
        # It takes the second part when it is through with the first.
        for part in (text, "60 %, 100 MiB\n"):
            process.stdin.write(part.encode())
            process.stdin.flush()
            wait_until_read(process.stdin.fileno())
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
        process.stdin.close()
        assert process.wait(timeout=60) == 3
    assert json.loads(out)["source"]["snapshots"] >= 99


def wait_until_read(pipe: int) -> None:
    """Until nothing is left in it: the process that reads it has taken all."""
    deadline = time.monotonic() + 30.0
    while time.monotonic() < deadline:
        left = fcntl.ioctl(pipe, termios.FIONREAD, bytes(4))
        if int.from_bytes(left, sys.byteorder) == 0:
            return
        time.sleep(0.02)
    raise AssertionError("the pipe was not read")


def test_a_job_without_a_gpu_is_said_to_have_none() -> None:
    """Not that the machine has none."""
    (first, *_) = simulated(gpus=1, count=2)
    collector = Collector()
    collector.push(replace(first, gpus=()))
    report = collector.report(live_source(collector, simulated=True))
    assert "process 4242 uses no GPU" in report.verdict
    assert exit_code(report) == 3


@pytest.mark.parametrize(
    ("columns", "rows", "wanted"),
    [
        (("timestamp", "index", "utilization.gpu"), 60, "on the machine while the job runs"),
        (("timestamp", "index", "power.draw"), 60, "values of utilization.gpu"),
    ],
)
def test_a_log_that_cannot_tell_says_what_would(
    columns: tuple[str, ...],
    rows: int,
    wanted: str,
    tmp_path: Path,
    capsys: pytest.CaptureFixture[str],
) -> None:
    """Not a longer one where it is long, nor a finer one where it is fine."""
    snapshots = simulated("starved", gpus=1, count=rows, interval=0.2)
    half = [middling(snapshot) for snapshot in snapshots]
    assert run(logged(tmp_path, query_log(half, columns))) == 3
    page = " ".join(capsys.readouterr().out.split())
    _, _, decides = page.partition("Needed for a diagnosis: ")
    assert wanted in decides
    assert "finer" not in decides


def middling(snapshot: Snapshot) -> Snapshot:
    """Half busy throughout: neither idle nor fed."""
    gpus = tuple(
        [replace(gpu, reading=replace(gpu.reading, busy_percent=50.0)) for gpu in snapshot.gpus]
    )
    return replace(snapshot, gpus=gpus)


@pytest.fixture
def started() -> Iterator[Children]:
    with children() as some:
        require_py_spy(some)
        yield some


def test_stacks_are_sampled_while_it_watches(
    started: Children, capsys: pytest.CaptureFixture[str]
) -> None:
    """The lines are told with the findings."""
    child = started.python(SPIN)
    started.ready(child)
    assert run("--pid", str(child.pid), "--for", "5s", "--stacks", "--json") in {0, 1, 3}
    stacks = said(capsys)["stacks"]
    assert [each["pid"] for each in stacks] == [child.pid]
    assert stacks[0]["problem"] is None
    assert stacks[0]["shares"]


# --- explain ---------------------------------------------------------------------------------


def test_explain_lists_every_rule(capsys: pytest.CaptureFixture[str]) -> None:
    """With its first line."""
    assert cli.run(["explain"]) == 0
    page = capsys.readouterr().out
    assert all(rule.name in page for rule in RULES)
    assert max(map(len, page.splitlines())) <= 80


@pytest.mark.parametrize("name", ["oscillation", "loader-cpu-bound", "Loader_CPU_bound"])
def test_explain_prints_a_rule_s_documentation(
    name: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """By its name, in any case, with dashes too."""
    assert cli.run(["explain", name]) == 0
    page = capsys.readouterr().out
    assert page.startswith(name.lower().replace("-", "_"))
    assert "What it checks" in page


def test_explain_as_json_has_the_whole_text(capsys: pytest.CaptureFixture[str]) -> None:
    """For whoever shows it elsewhere."""
    assert cli.run(["explain", "oscillation", "--json"]) == 0
    one = said(capsys)
    assert cli.run(["explain", "--json"]) == 0
    every = said(capsys)["rules"]
    assert one["rule"] == "oscillation"
    assert [each["rule"] for each in every] == [rule.name for rule in RULES]
    assert one["documentation"] in [each["documentation"] for each in every]


@pytest.mark.parametrize(("name", "near"), [("oscilation", "oscillation"), ("loader", "loader_")])
def test_explain_knows_names_that_are_close(
    name: str, near: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """A misspelled one, and a part of some."""
    assert cli.run(["explain", name]) == 2
    assert near in capsys.readouterr().err


def test_explain_of_nothing_like_a_rule_is_one_sentence(capsys: pytest.CaptureFixture[str]) -> None:
    """Harmless, whatever was typed."""
    assert cli.run(["explain", "\x1b[2Jzzzz"]) == 2
    err = capsys.readouterr().err
    assert "There is no rule" in err
    assert "\x1b" not in err


@pytest.mark.parametrize("width", [40, 60, 80, 120])
def test_documentation_is_wrapped_and_loses_no_word(width: int) -> None:
    """At every width; headings and lists stay on lines of their own."""
    for rule in RULES:
        page = rule_page(rule, width)
        assert max(map(cell_width, page.splitlines())) <= width
        kept = page.replace("…", "").split()
        if width >= 80:
            assert kept == [rule.name, *rule.documentation.split()]
    assert max(map(cell_width, rule_list(RULES, width).splitlines())) <= width


def test_lines_that_only_their_length_parted_are_put_together() -> None:
    """A heading, a list item and another indent begin anew."""
    text = "First line\nof it.\n\nHeading\n    Some text\n    that goes on\n    - one\n    - two"
    assert paragraphs(text) == [
        "First line of it.",
        "",
        "Heading",
        "    Some text that goes on",
        "    - one",
        "    - two",
    ]
