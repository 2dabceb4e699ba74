"""The command line, as a person and as a script meet it."""

import csv
import io
import json
import os
import pty
import re
import resource
import select
import signal
import subprocess
import sys
import termios
import time
from pathlib import Path
from typing import Any

import click
import pytest

from gpuwatch import __version__
from gpuwatch.commands import cli, watching
from gpuwatch.core.codec import Decoder, Header, decode_status
from gpuwatch.sources.simulated.source import SCENARIOS
from tests.support.fake_nvml import INIT_FUNCTIONS, create_or_skip

COMMAND = [sys.executable, "-m", "gpuwatch"]


def gpuwatch(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """Run the real program, with no terminal anywhere."""
    settings = {"stdin": subprocess.DEVNULL, "timeout": 60} | settings
    if "stdout" not in settings:
        settings["stdout"] = subprocess.PIPE
    return subprocess.run(
        [*COMMAND, *arguments], stderr=subprocess.PIPE, text=True, check=False, **settings
    )


def on_a_terminal(
    *arguments: str, columns: int = 100, keys: bytes = b"", **environment: str
) -> tuple[int, str]:
    """Run the real program on a pseudo-terminal; its exit code and what arrived there.

    ``keys`` are typed once the word SIMULATED has been drawn.
    """
    keep = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (40, columns))
    process = subprocess.Popen(
        [*COMMAND, *arguments],
        stdin=slave,
        stdout=slave,
        stderr=slave,
        env=keep | {"TERM": "xterm-256color"} | environment,
    )
    os.close(slave)
    arrived = b""
    deadline = time.monotonic() + 60
    while time.monotonic() < deadline:
        if select.select([master], [], [], 1)[0]:
            try:
                chunk = os.read(master, 65536)
            except OSError:
                break
            if not chunk:
                break
            arrived += chunk
            if keys and b"SIMULATED" in arrived:
                os.write(master, keys)
                keys = b""
    os.close(master)
    return process.wait(60), arrived.decode()


def run_here(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    """The same without a new process."""
    code = cli.run(arguments)
    out, err = capsys.readouterr()
    return code, out, err


# --- what must not be loaded ------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("status", "--json", "--quick"), ("status", "--demo", "--csv")],
)
def test_scripts_pay_for_no_interface(arguments: tuple[str, ...]) -> None:
    """Neither help nor status imports Textual, Rich, plotext or torch."""
    done = subprocess.run(
        [sys.executable, "-X", "importtime", "-m", "gpuwatch", *arguments],
        capture_output=True,
        text=True,
        check=True,
        timeout=60,
    )
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "click" in imported
    assert imported.isdisjoint({"textual", "rich", "plotext", "torch"})


# --- status -----------------------------------------------------------------------------------


def test_status_of_this_machine_is_a_snapshot() -> None:
    """On whatever machine this runs, the JSON is whole, real and readable back."""
    done = gpuwatch("status", "--json")
    assert done.returncode == 0, done.stderr
    snapshot = decode_status(done.stdout)
    assert not snapshot.simulated
    assert snapshot.host.memory_total_bytes
    # A rate: there only because two reads were made.
    assert snapshot.host.cpu_percent is not None


def test_status_says_simulated(capsys: pytest.CaptureFixture[str]) -> None:
    """The demo is marked as one in the table, in the JSON and in the CSV."""
    code, page, _ = run_here(capsys, "status", "--demo")
    assert code == 0
    assert "SIMULATED" in page.splitlines()[0]
    _, text, _ = run_here(capsys, "status", "--demo", "starved", "--gpus", "3", "--json")
    value = json.loads(text)
    assert value["simulated"] is True
    assert len(value["gpus"]) == 3
    _, text, _ = run_here(capsys, "status", "--demo", "--gpus", "2", "--csv")
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["simulated"] for row in rows] == ["true", "true"]


@pytest.mark.parametrize("scenario", list(SCENARIOS))
def test_status_shows_every_scenario(scenario: str, capsys: pytest.CaptureFixture[str]) -> None:
    """Each scenario gives a page no wider than asked for and a JSON object."""
    code, page, err = run_here(capsys, "status", "--demo", scenario, "--gpus", "2")
    assert (code, err) == (0, "")
    assert max(map(len, page.splitlines())) <= 120
    code, text, _ = run_here(capsys, "status", "--demo", scenario, "--gpus", "2", "--json")
    assert decode_status(text).simulated


def test_status_without_a_terminal_has_no_escape_codes() -> None:
    """A pipe gets plain text, whatever the environment says about colours."""
    done = gpuwatch(
        "status", "--demo", "lost", "--gpus", "2", env=os.environ | {"FORCE_COLOR": "1"}
    )
    assert done.returncode == 0
    assert "\x1b" not in done.stdout


def test_status_on_a_terminal_fits_and_is_coloured() -> None:
    """On a terminal the titles are bold and every line fits its width."""
    code, text = on_a_terminal("status", "--demo", columns=60)
    assert code == 0
    assert "\x1b[1m" in text
    plain = text.replace("\x1b[1m", "").replace("\x1b[0m", "")
    assert max(map(len, plain.splitlines())) <= 60


@pytest.mark.parametrize("environment", [{"NO_COLOR": "1"}, {"TERM": "dumb"}])
def test_status_on_a_plain_terminal_has_no_escape_codes(environment: dict[str, str]) -> None:
    """NO_COLOR and TERM=dumb are obeyed."""
    code, text = on_a_terminal("status", "--demo", **environment)
    assert code == 0
    assert "SIMULATED" in text
    assert "\x1b" not in text


def test_status_in_a_locale_without_the_characters() -> None:
    """Characters that the output's encoding lacks are replaced, not an error."""
    done = gpuwatch("status", "--demo", env=os.environ | {"PYTHONIOENCODING": "ascii"})
    assert done.returncode == 0
    assert done.stdout.isascii()


# --- stream -----------------------------------------------------------------------------------


def test_stream_is_a_header_and_snapshots() -> None:
    """As many snapshots as asked for, after a header, each a line the codec reads."""
    done = gpuwatch("stream", "--demo", "--gpus", "2", "--count", "3", "--interval", "0.1")
    assert done.returncode == 0, done.stderr
    decoder = Decoder()
    header, *snapshots = [decoder.decode(line) for line in done.stdout.splitlines()]
    assert isinstance(header, Header)
    assert header.simulated
    assert [len(snapshot.gpus) for snapshot in snapshots] == [2, 2, 2]  # type: ignore[union-attr]


def start_stream(**settings: Any) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [*COMMAND, "stream", "--demo", "--interval", "0.1"],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        **settings,
    )


def test_stream_is_flushed_and_ends_with_its_pipe() -> None:
    """A line arrives while the stream runs; once the reader is gone it ends, without a word."""
    with start_stream() as process:
        assert process.stdout is not None
        assert process.stderr is not None
        assert json.loads(process.stdout.readline())["kind"] == "header"
        assert json.loads(process.stdout.readline())["kind"] == "snapshot"
        process.stdout.close()
        assert process.wait(60) == 0
        assert process.stderr.read() == ""


def test_ctrl_c_ends_a_stream_quietly() -> None:
    """An interrupt ends with 130 and without a traceback."""
    with start_stream() as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.readline()
        process.send_signal(signal.SIGINT)
        assert process.wait(60) == 130
        assert process.stderr.read() == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", [("stream", "--count", "1"), ("status",), ("--help",)])
def test_full_disk_is_a_sentence(command: tuple[str, ...]) -> None:
    """An output that cannot be written is said in one line, with an exit code of its own."""
    with Path("/dev/full").open("w") as full:
        done = gpuwatch(*command, "--demo", stdout=full)
    assert done.returncode == 74
    assert done.stderr == "gpuwatch: The output cannot be written: No space left on device.\n"


def test_status_waits_for_a_driver_that_wakes(tmp_path: Path) -> None:
    """A driver that takes a moment to start has its GPUs on the page all the same."""
    fake = create_or_skip(tmp_path, gpus=2)
    for function in INIT_FUNCTIONS:
        fake.delay(function, 0.6)
    done = gpuwatch("status", "--json", "--quick", env=fake.env())
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["gpus"]) == 2


def test_a_silent_driver_has_its_exit_code(tmp_path: Path) -> None:
    """What there is is printed, and the exit code says that the GPUs are missing from it."""
    fake = create_or_skip(tmp_path, gpus=1)
    fake.hang("nvmlDeviceGetUtilizationRates")
    program = (
        "from gpuwatch.commands import cli; from gpuwatch.outputs.status import once; "
        "look = once.look_once; "
        "once.look_once = lambda *a, **k: look(*a, patience_seconds=2.0, **k); "
        "cli.main(['status', '--json', '--quick'])"
    )
    done = subprocess.run(
        [sys.executable, "-c", program],
        env=fake.env(),
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    status = json.loads(done.stdout)
    assert done.returncode == 69
    assert status["host"]["memory_total_bytes"]
    assert "has not answered" in status["problems"][0]["message"]


@pytest.mark.parametrize("command", ["status", "stream"])
def test_closed_output_is_a_sentence(command: str) -> None:
    """Standard output closed before the start is no traceback."""
    done = gpuwatch(command, "--demo", preexec_fn=lambda: os.close(1))
    assert done.returncode == 74
    assert done.stderr.count("\n") == 1
    assert "closed" in done.stderr


@pytest.mark.parametrize("command", [(), ("status",), ("run", "--", "true")], ids=" ".join)
def test_too_few_open_files_are_a_sentence(command: tuple[str, ...]) -> None:
    """Where next to no file can be opened (``ulimit -n 16``) it says so, and what to do."""
    few = (16, 16)
    done = gpuwatch(*command, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "Only 16 files" in done.stderr
    assert "ulimit -n" in done.stderr


# --- the dashboard's door ----------------------------------------------------------------------


def test_dashboard_without_a_terminal_says_what_to_use() -> None:
    """In a pipe the dashboard names the commands that work there."""
    done = gpuwatch()
    assert done.returncode == 2
    assert "gpuwatch status" in done.stderr
    assert "gpuwatch stream" in done.stderr
    assert done.stdout == ""


def test_dashboard_on_a_dumb_terminal_says_what_to_use() -> None:
    """A terminal that cannot place text gets a sentence instead of rubbish."""
    code, text = on_a_terminal("--demo", TERM="dumb")
    assert code == 2
    assert "TERM=dumb" in text
    assert "gpuwatch status" in text


def test_dashboard_with_redirected_errors_says_so() -> None:
    """Textual draws on standard error, so ``2>log`` would leave the screen empty."""
    master, slave = pty.openpty()
    done = gpuwatch("--demo", stdin=slave, stdout=slave)
    os.close(slave)
    os.close(master)
    assert done.returncode == 2
    assert "standard error" in done.stderr


def test_dashboard_opens_and_quits() -> None:
    """On a terminal the dashboard takes the screen, obeys ``q`` and gives the screen back."""
    code, text = on_a_terminal("--demo", keys=b"q")
    assert code == 0
    assert "SIMULATED" in text
    assert "\x1b[?1049h" in text
    assert text.rindex("\x1b[?1049l") > text.rindex("\x1b[?1049h")


def test_unknown_theme_lists_the_known() -> None:
    """A misspelt theme is refused before the screen is taken."""
    code, text = on_a_terminal("--demo", "--theme", "pink")
    assert code == 2
    assert "'pink'" in text
    assert "gpuwatch-dark" in text
    assert "\x1b[?1049h" not in text


# --- bad requests -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--bogus",), "No such option"),
        (("statsu",), "No such command"),
        (("status", "--demo", "nope"), "no scenario 'nope': --demo list names"),
        (("status", "--demo", "a\x1b[2Jb"), "no scenario 'a\ufffd"),
        (("--demo", "starvd"), "did you mean starved"),
        (("status", "--json", "--csv"), "one of --json and --csv"),
        (("status", "--gpus", "2"), "add --demo"),
        (("status", "--demo", "--gpus", "-1"), "-1"),
        (("stream", "--interval", "0"), "0.1 seconds and 1 hour"),
        (("stream", "--interval", "nan"), "is not a time"),
        (("stream", "--interval", "soon"), "soon"),
        (("stream", "--count", "0"), "0"),
        (("--interval", "2", "stream"), "gpuwatch stream --interval"),
        (("--theme", "dark", "status"), "--theme is for the dashboard"),
        (("--gpus", "2", "--demo", "status"), "gpuwatch status --demo"),
    ],
)
def test_bad_request_is_one_sentence(
    arguments: tuple[str, ...], says: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each misuse exits with 2 and one line that says what was wrong."""
    code, out, err = run_here(capsys, *arguments)
    assert code == 2
    assert out == ""
    assert err.count("\n") == 1
    assert "\x1b" not in err
    assert re.search(says, err)


def test_version(capsys: pytest.CaptureFixture[str]) -> None:
    """--version prints name and version."""
    assert run_here(capsys, "--version") == (0, f"gpuwatch {__version__}\n", "")


def test_scenarios_are_listed(capsys: pytest.CaptureFixture[str]) -> None:
    """--demo list names each with what happens in it."""
    code, out, err = run_here(capsys, "--demo", "list")
    assert (code, err) == (0, "")
    assert re.search("(?m)^no_gpu +A machine without", out)


def test_every_option_has_a_help_text() -> None:
    """No option is left unexplained."""
    context = click.Context(cli.cli)
    names = cli.cli.list_commands(context)
    for command in (cli.cli, *[cli.cli.get_command(context, name) for name in names]):
        assert command is not None
        assert command.help
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{command.name} {parameter.name}"


# --- bugs -------------------------------------------------------------------------------------


class BrokenSource:
    """Raises what no source should."""

    simulated = True

    def __init__(self) -> None:
        from gpuwatch.core.source import ReadOptions

        self.options = ReadOptions()

    def open(self) -> None:
        raise ZeroDivisionError("x\x1by")

    def read(self) -> Any:
        raise AssertionError

    def close(self) -> None:
        pass


@pytest.mark.parametrize("debug", [False, True])
def test_bug_is_a_sentence_and_a_traceback_only_on_request(
    debug: bool, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected exception exits with 70; GPUWATCH_DEBUG=1 shows where it came from."""
    monkeypatch.setattr(watching, "make_source", lambda *_: BrokenSource())
    monkeypatch.setenv("GPUWATCH_DEBUG", "1" if debug else "0")
    code, _, err = run_here(capsys, "status")
    assert code == 70
    assert "ZeroDivisionError" in err.splitlines()[-1]
    assert "bug" in err.splitlines()[-1]
    assert ("Traceback" in err) is debug
