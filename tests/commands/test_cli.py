"""The command line, as a person and as a script meet it."""

import contextlib
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
from pathlib import Path
from typing import Any

import click
import pytest

from gpuwatch import __version__
from gpuwatch.commands import cli, watching
from gpuwatch.commands.options import Look
from gpuwatch.core.codec import Decoder, Header
from tests.commands.conftest import Gpuwatch
from tests.commands.running import program
from tests.support.children import ran
from tests.support.fake_nvml import INIT_FUNCTIONS, create_or_skip
from tests.support.snapshots import decode_status

COMMAND = [sys.executable, "-m", "gpuwatch"]


def on_a_terminal(*arguments: str, columns: int = 100, **environment: str) -> tuple[int, str]:
    """Run the real program on a pseudo-terminal; its exit code and what arrived there."""
    keep = {key: value for key, value in os.environ.items() if key != "NO_COLOR"}
    master, slave = pty.openpty()
    termios.tcsetwinsize(slave, (40, columns))
    environment = keep | {"TERM": "xterm-256color"} | environment
    process = subprocess.Popen(
        [*COMMAND, *arguments], stdin=slave, stdout=slave, stderr=slave, env=environment
    )
    os.close(slave)
    arrived = b""
    with contextlib.suppress(OSError):
        while select.select([master], [], [], 60)[0] and (chunk := os.read(master, 65536)):
            arrived += chunk
    os.close(master)
    return process.wait(60), arrived.decode()


@pytest.mark.parametrize(
    "arguments",
    [("--help",), ("--version",), ("status", "--json", "--quick"), ("status", "--demo", "--csv")],
)
def test_scripts_pay_for_no_interface(arguments: tuple[str, ...]) -> None:
    """Neither help nor status imports Textual, Rich or torch; help not even the model."""
    done = ran("-X", "importtime", "-m", "gpuwatch", *arguments)
    assert done.returncode == 0
    imported = {line.rsplit("|", 1)[-1].strip().split(".")[0] for line in done.stderr.splitlines()}
    assert "click" in imported
    assert imported.isdisjoint({"textual", "rich", "torch"})
    if "status" not in arguments:
        assert imported.isdisjoint({"msgspec", "dataclasses", "json", "asyncio", "psutil"})


def test_the_help_lists_every_command_on_a_whole_line(gpuwatch: Gpuwatch) -> None:
    """In groups, after four examples, and none is cut off at 80 columns."""
    said = gpuwatch("--help").out
    assert all(f"{title}:" in said for title in cli.GROUPS)
    assert "..." not in said.partition("Examples:")[2]
    assert max(map(len, said.splitlines())) <= 80
    context = click.Context(cli.cli)
    for name in cli.cli.list_commands(context):
        assert cli.cli.get_command(context, name) is not None
        assert f"\n  {name} " in said


def test_status_shows_the_processes_and_jobs_of_one_user(gpuwatch: Gpuwatch) -> None:
    """``-u`` names one user, or several with commas."""
    everybody = gpuwatch("status", "--demo", "starved:3", "--json").json
    both = {one["user"] for one in everybody["processes"]}
    assert {"ada", "grace"} <= both
    hers = gpuwatch("status", "--demo", "starved:3", "-u", "ada", "--json").json
    assert {one["user"] for one in hers["processes"]} == {"ada"}
    assert {one["user"] for one in hers["jobs"]} == {"ada"}
    assert {one["uuid"] for one in hers["gpus"]} == {
        one["gpu_uuid"] for one in hers["processes"] if one.get("gpu_uuid")
    }


@pytest.mark.parametrize("command", ["status", "diagnose"])
def test_gpus_are_chosen_by_one_option(command: str, gpuwatch: Gpuwatch) -> None:
    """``-g 1`` leaves out the others, wherever a machine is watched."""
    found = gpuwatch(command, "--demo", "starved:3", "-g", "1", "--json", code=None).json
    assert len(found["gpus"]) == 1


@pytest.mark.parametrize("command", ["diagnose", "report"])
def test_gpus_and_users_of_a_recording_are_chosen_by_the_same_options(
    command: str, gpuwatch: Gpuwatch, tmp_path: Path
) -> None:
    """``-g`` and ``-u`` leave out the others where FILE is read, too."""
    path = tmp_path / "run.jsonl"
    stream = gpuwatch("stream", "--demo", "starved:3", "--count", "3", "-i", "0.1").out
    path.write_text(stream)
    found = gpuwatch(command, str(path), "-g", "1", "--json", code=None).json
    assert [one["index"] for one in found["gpus"]] == [1]
    of_grace = gpuwatch(command, str(path), "-u", "grace", "--json", code=None).out
    assert '"ada"' not in of_grace


@pytest.mark.parametrize("command", ["diagnose", "report"])
def test_a_recording_of_a_simulated_machine_is_said_to_be_one(
    command: str, gpuwatch: Gpuwatch, tmp_path: Path
) -> None:
    """Nobody takes its verdict for that of a real one."""
    path = tmp_path / "run.jsonl"
    path.write_text(gpuwatch("stream", "--demo", "starved:1", "--count", "2", "-i", "0.1").out)
    assert "simulated" in gpuwatch(command, str(path), code=None).out.lower()


@pytest.mark.parametrize("command", [("diagnose",), ("report",), ("compare", "run.jsonl")])
def test_gpus_and_users_that_a_recording_lacks_are_bad_input(
    command: tuple[str, ...], gpuwatch: Gpuwatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """No report of the rest, which would be of other GPUs or blame another cause."""
    monkeypatch.chdir(tmp_path)
    stream = gpuwatch("stream", "--demo", "starved:2", "--count", "3", "-i", "0.1").out
    Path("run.jsonl").write_text(stream)
    ran = gpuwatch(*command, "run.jsonl", "-g", "12", code=2)
    assert ran.err == "gpuwatch: run.jsonl has no GPU 12.\n"
    ran = gpuwatch(*command, "run.jsonl", "-u", "adda", code=2)
    assert ran.err == "gpuwatch: run.jsonl has no process of adda.\n"


def test_the_jobs_of_one_user_are_diagnosed(gpuwatch: Gpuwatch) -> None:
    """``-u`` leaves out those of others, and their GPUs, where a machine is watched: without its
    processes a GPU looks as if nobody knew what it does."""
    found = gpuwatch("diagnose", "--demo", "starved:3", "-u", "grace", "--json", code=None).json
    (job,) = {tuple(one["job"] or ()) for one in found["findings"]}
    assert job
    assert len(found["gpus"]) == 2


def test_a_stream_has_the_processes_of_one_user(gpuwatch: Gpuwatch) -> None:
    """As status has."""
    said = gpuwatch("stream", "--demo", "starved:3", "--count", "1", "-u", "grace").out
    assert '"grace"' in said
    assert '"ada"' not in said


def test_status_without_a_driver_is_no_error(gpuwatch: Gpuwatch) -> None:
    """Why there is no GPU stands where the GPUs would be."""
    said = gpuwatch("status", "--demo", "no_gpu").out
    assert "error:" not in said
    assert "kernel module is not loaded" in said


def test_the_version_is_printed(gpuwatch: Gpuwatch) -> None:
    """By its short option, too."""
    assert gpuwatch("-V").out == gpuwatch("--version").out


def test_status_of_this_machine_is_a_snapshot() -> None:
    """On whatever machine this runs, the JSON is whole, real and readable back."""
    done = program("status", "--json")
    assert done.returncode == 0, done.stderr
    snapshot = decode_status(done.stdout)
    assert not snapshot.simulated
    assert snapshot.host.memory_total_bytes
    # A rate: there only because two reads were made.
    assert snapshot.host.cpu_percent is not None


def test_status_says_simulated(gpuwatch: Gpuwatch) -> None:
    """The demo is marked as one in the table, in the JSON and in the CSV."""
    assert "SIMULATED" in gpuwatch("status", "--demo").out.splitlines()[0]
    value = gpuwatch("status", "--demo", "starved:3", "--json").json
    assert value["simulated"] is True
    assert len(value["gpus"]) == 3
    text = gpuwatch("status", "--demo", "starved:2", "--csv").out
    rows = list(csv.DictReader(io.StringIO(text)))
    assert [row["simulated"] for row in rows] == ["true", "true"]


@pytest.mark.parametrize("environment", [{"FORCE_COLOR": "1"}, {"PYTHONIOENCODING": "ascii"}])
def test_status_without_a_terminal_is_plain(environment: dict[str, str]) -> None:
    """Whatever the environment says about colours; characters that the output's encoding lacks
    are replaced, not an error."""
    done = program("status", "--demo", "lost:2", env=os.environ | environment)
    assert done.returncode == 0
    assert "\x1b" not in done.stdout
    assert done.stdout.isascii() or "FORCE_COLOR" in environment


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


def test_stream_is_a_header_and_snapshots() -> None:
    """As many snapshots as asked for, after a header, each a line the codec reads."""
    done = program("stream", "--demo", "starved:2", "--count", "3", "--interval", "0.1")
    assert done.returncode == 0, done.stderr
    decoder = Decoder()
    header, *read = [decoder.decode(line) for line in done.stdout.splitlines()]
    snapshots = [one for one in read if one is not None]
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


@pytest.mark.parametrize("how", ["its reader goes", "Ctrl-C"])
def test_stream_is_flushed_and_ends_without_a_word(how: str) -> None:
    """A line arrives while the stream runs; an interrupt ends it with 130, a closed pipe with 0."""
    with start_stream() as process:
        kinds = [json.loads(process.stdout.readline())["kind"] for _ in range(3)]
        assert kinds == ["header", "identities", "snapshot"]
        if how == "Ctrl-C":
            process.send_signal(signal.SIGINT)
        else:
            process.stdout.close()
        assert process.wait(60) == (130 if how == "Ctrl-C" else 0)
        assert process.stderr.read() == ""


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs /dev/full")
@pytest.mark.parametrize("command", [("stream", "--count", "1"), ("status",), ("--help",)])
def test_full_disk_is_a_sentence(command: tuple[str, ...]) -> None:
    """An output that cannot be written is said in one line, with an exit code of its own."""
    with Path("/dev/full").open("w") as full:
        done = program(*command, "--demo", stdout=full)
    assert done.returncode == 74
    assert done.stderr == "gpuwatch: The output cannot be written: No space left on device.\n"


def test_status_waits_for_a_driver_that_wakes(tmp_path: Path) -> None:
    """A driver that takes a moment to start has its GPUs on the page all the same."""
    fake = create_or_skip(tmp_path, gpus=2)
    for function in INIT_FUNCTIONS:
        fake.delay(function, 0.6)
    done = program("status", "--json", "--quick", env=fake.env())
    assert done.returncode == 0
    assert len(json.loads(done.stdout)["gpus"]) == 2


def test_a_silent_driver_has_its_exit_code(tmp_path: Path) -> None:
    """What there is is printed, and the exit code says that the GPUs are missing from it."""
    fake = create_or_skip(tmp_path, gpus=1)
    fake.hang("nvmlDeviceGetUtilizationRates")
    program = (
        "from gpuwatch.commands import cli; from gpuwatch.commands import watching as once; "
        "look = once.look_once; "
        "once.look_once = lambda *a, **k: look(*a, patience_seconds=2.0, **k); "
        "cli.main(['status', '--json', '--quick'])"
    )
    done = ran("-c", program, env=fake.env())
    status = json.loads(done.stdout)
    assert done.returncode == 69
    assert status["host"]["memory_total_bytes"]
    # On a busy machine it had hardly been asked.
    said = status["problems"][0]["message"]
    assert "has not answered" in said or said.startswith("Waiting for the NVIDIA driver")


@pytest.mark.parametrize("command", ["status", "stream"])
def test_closed_output_is_a_sentence(command: str) -> None:
    """Standard output closed before the start is no traceback."""
    done = program(command, "--demo", preexec_fn=lambda: os.close(1))
    assert done.returncode == 74
    assert done.stderr.count("\n") == 1
    assert "closed" in done.stderr


@pytest.mark.parametrize("command", [(), ("status",), ("run", "--", "true")], ids=" ".join)
def test_too_few_open_files_are_a_sentence(command: tuple[str, ...]) -> None:
    """Where next to no file can be opened (``ulimit -n 16``) it says so, and what to do."""
    few = (16, 16)
    done = program(*command, preexec_fn=lambda: resource.setrlimit(resource.RLIMIT_NOFILE, few))
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr.count("\n") == 1
    assert "Only 16 files" in done.stderr
    assert "ulimit -n" in done.stderr


def test_dashboard_without_a_terminal_says_what_to_use() -> None:
    """In a pipe the dashboard names the commands that work there."""
    done = program()
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
    done = program("--demo", stdin=slave, stdout=slave)
    os.close(slave)
    os.close(master)
    assert done.returncode == 2
    assert "standard error" in done.stderr


@pytest.mark.parametrize(
    ("given", "theme"),
    [("light", "gpuwatch-light"), ("ansi", "ansi-dark"), ("dracula", "dracula")],
)
def test_themes_by_short_names_and_of_textual(given: str, theme: str) -> None:
    """All that the help of --theme promises."""
    assert Look(None, given, None, None).checked().theme == theme


def test_unknown_theme_lists_the_known() -> None:
    """A misspelt theme is refused before the screen is taken."""
    code, text = on_a_terminal("--demo", "--theme", "pink")
    assert code == 2
    assert "'pink'" in text
    assert "gpuwatch-dark" in text
    assert "\x1b[?1049h" not in text


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--bogus",), "No such option"),
        (("statsu",), "did you mean status?"),
        (("status", "--demo", "nope"), "no scenario 'nope': --demo list names"),
        (("status", "--demo", "a\x1b[2Jb"), "no scenario 'a\ufffd"),
        (("--demo", "starvd"), "did you mean starved"),
        (("status", "--json", "--csv"), "one of --json and --csv"),
        (("--gpus", "0,2"), "--gpu"),
        (("diagnose", "--gpus", "2"), "--demo starved:8"),
        (("exporter", "--pid", "2"), "serve their PIDs with --pids"),
        (("compare", "--pid", "2", "a", "b"), "gpuwatch report BEFORE --pid PID --json"),
        (("report", "-g", "0", "1"), "--gpu is for the report of a recording"),
        (("replay", "-g", "0,x", "a"), "'0,x' names no GPUs"),
        (("dignose",), "did you mean diagnose?"),
        (("foo",), "gpuwatch --help lists the commands"),
        (("export",), "gpuwatch report FILE --csv OUT"),
        (("--host", "box1", "status"), "gpuwatch status --host ..."),
        (("status", "--demo", "--fro", "2"), "No such option:? '?--fro"),
        (("--gpus", "0"), "No such option:? '?--gpus.* Did you mean '?--gpu"),
        (("stacks",), "gpuwatch diagnose --stacks"),
        (("status", "--demo", "-g", "0,x"), "'0,x' names no GPUs"),
        (("status", "--demo", "-g", "12"), "no GPU 12 here: this machine has GPU 0"),
        (("status", "--demo", "starved:-1"), "no number of GPUs"),
        (("status", "--demo", "starved:0"), "no number of GPUs"),
        (("status", "--demo", f"starved:{'9' * 5000}"), "no number of GPUs"),
        (("diagnose", "/"), "/ is a folder: name a recording or log in it"),
        (("exporter", "--listen", "127.0.0.1:99999"), "write a number from 0 to 65535"),
        (("stream", "--interval", "0"), "0.1 seconds and 1 hour"),
        (("stream", "--interval", "nan"), "is not a time"),
        (("stream", "--interval", "soon"), "soon"),
        (("stream", "--count", "0"), "0"),
        (("--interval", "2", "stream"), "gpuwatch stream --interval"),
        (("--theme", "dark", "status"), "--theme is for the dashboard"),
        (("--demo", "status"), "gpuwatch status --demo"),
    ],
)
def test_bad_request_is_one_sentence(
    arguments: tuple[str, ...], says: str, gpuwatch: Gpuwatch
) -> None:
    """Each misuse exits with 2 and one line that says what was wrong."""
    err = gpuwatch(*arguments, code=2).err
    assert err.count("\n") == 1
    assert re.search(says, err)


def test_version_and_scenarios_are_printed(gpuwatch: Gpuwatch) -> None:
    """--version prints name and version, --demo list each scenario with what happens in it."""
    assert gpuwatch("--version").out == f"gpuwatch {__version__}\n"
    done = gpuwatch("--demo", "list")
    assert done.err == ""
    assert re.search("(?m)^no_gpu +A machine without", done.out)


def test_every_option_has_a_help_text() -> None:
    """No option is left unexplained."""
    context = click.Context(cli.cli)
    names = cli.cli.list_commands(context)
    for command in (cli.cli, *[cli.cli.get_command(context, name) for name in names]):
        assert command.help
        for parameter in command.params:
            if isinstance(parameter, click.Option):
                assert parameter.help, f"{command.name} {parameter.name}"


@pytest.mark.parametrize("shell", ["bash", "zsh", "fish"])
def test_a_shell_can_complete(shell: str) -> None:
    """What is printed for it asks gpuwatch, which answers with commands and names."""
    asked = {"_GPUWATCH_COMPLETE": f"{shell}_source"}
    assert "_GPUWATCH_COMPLETE" in program(env={**os.environ, **asked}).stdout
    for typed, wanted in (("gpuwatch dia", "diagnose"), ("gpuwatch explain loader_c", "cpu_bound")):
        words = typed.split()
        place = words[-1] if shell == "fish" else str(len(words) - 1)
        asked = {"COMP_WORDS": typed, "COMP_CWORD": place}
        asked["_GPUWATCH_COMPLETE"] = f"{shell}_complete"
        assert wanted in program(env={**os.environ, **asked}).stdout


# --- bugs -------------------------------------------------------------------------------------


@pytest.mark.parametrize("debug", [False, True])
def test_bug_is_a_sentence_and_a_traceback_only_on_request(
    debug: bool, gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An unexpected exception exits with 70; GPUWATCH_DEBUG=1 shows where it came from."""

    def broken(*_: object) -> None:
        raise ZeroDivisionError("x\x1by")

    monkeypatch.setattr(watching, "make_source", broken)
    monkeypatch.setenv("GPUWATCH_DEBUG", "1" if debug else "0")
    err = gpuwatch("status", code=70).err
    assert "ZeroDivisionError" in err.splitlines()[-1]
    assert "bug" in err.splitlines()[-1]
    assert ("Traceback" in err) is debug


def test_a_scenario_has_the_gpus_that_it_needs(gpuwatch: Gpuwatch) -> None:
    """Eight stories are on eight cards, also where no number is given; a number wins."""
    for demo, count in (("mixed", 8), ("imbalanced", 4), ("starved", 1), ("mixed:3", 3)):
        told = json.loads(gpuwatch("status", "--demo", demo, "--quick", "--json").out)
        assert len(told["gpus"]) == count
