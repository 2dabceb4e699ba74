"""``gpuwatch run`` in a terminal: the keyboard, job control, the dashboard, and its end."""

import json
import shlex
import signal
import sys
from collections.abc import Iterator
from contextlib import AbstractContextManager
from pathlib import Path

import pytest

from tests.commands.running import GPUWATCH_RUN, ends, environment_in, job
from tests.support.children import wait_until
from tests.tui.terminal.pseudo_terminal import PseudoTerminal, terminal

CTRL_C, CTRL_Z, CTRL_BACKSLASH = "\x03", "\x1a", "\x1c"

PRINTS = (
    "import os, signal, sys, time\n"
    "def heard(number, _): os.write(1, b'heard %d\\n' % number)\n"
    "if 'stubborn' in sys.argv:\n"
    "    for number in (1, 2, 10, 15): signal.signal(number, heard)\n"
    "print('ready', os.getpid())\n"
    "count = 0\n"
    "while not os.path.exists('enough'):\n"
    "    count += 1\n"
    "    print('line', count)\n"
    "    time.sleep(0.02)\n"
    "print('the end')\n"
    "sys.exit(7)\n"
)
"""A job that prints line after line until there is a file called ``enough``."""


@pytest.fixture(autouse=True)
def _enough(tmp_path: Path) -> Iterator[None]:
    """The jobs of a test that failed end with it."""
    yield
    (tmp_path / "enough").touch()


def in_terminal(folder: Path, *arguments: str) -> AbstractContextManager[PseudoTerminal]:
    """``python ARGUMENTS`` in ``folder``, in a terminal wide enough for a file's name."""
    environment = {**environment_in(folder), "TERM": "xterm-256color", "COLORTERM": "truecolor"}
    return terminal(*arguments, size=(180, 30), environment=environment, folder=folder)


def gpuwatch_run(folder: Path, *arguments: str) -> AbstractContextManager[PseudoTerminal]:
    return in_terminal(folder, *GPUWATCH_RUN[1:], *arguments)


def in_bash(folder: Path, line: str) -> AbstractContextManager[PseudoTerminal]:
    """A script run by bash, in a terminal of its own."""
    return in_terminal(folder, "-c", f"import os; os.execlp('bash', 'bash', '-c', {line!r})")


RUN = shlex.join(GPUWATCH_RUN)


class TestPlain:
    """The keyboard reaches the job as it does without gpuwatch."""

    def plain(
        self, folder: Path, code: str, *arguments: str
    ) -> AbstractContextManager[PseudoTerminal]:
        return gpuwatch_run(folder, "--plain", "--no-report", "--", *job(code, *arguments))

    def test_signals_reach_the_job_once(self, tmp_path: Path) -> None:
        """The job hears Ctrl-C once, and what is sent to gpuwatch and not by the keyboard;
        gpuwatch ends when the job does and as it does."""
        with self.plain(tmp_path, PRINTS, "stubborn") as it:
            it.until_it_says("ready")
            it.type(CTRL_C)
            it.until_it_says("heard 2")
            # What gpuwatch does about this comes after what it did about that.
            it.program.send_signal(signal.SIGUSR1)
            it.until_it_says("heard 10")
            assert it.raw.count(b"heard 2") == 1
            for number in (signal.SIGTERM, signal.SIGINT):
                it.program.send_signal(number)
                heard = b"heard %d" % number
                it.until(lambda heard=heard: it.raw.count(heard) == 1 + (heard == b"heard 2"))  # type: ignore[misc]
            (tmp_path / "enough").touch()
            assert it.end() == 7

    def test_a_key_ends(self, tmp_path: Path) -> None:
        """A job that Ctrl-Backslash ends takes gpuwatch with it, by the same signal."""
        with self.plain(tmp_path, "import time; print('ready', flush=True); time.sleep(60)") as it:
            it.until_it_says("ready")
            it.type(CTRL_BACKSLASH)
            assert it.end() == -signal.SIGQUIT

    def test_the_terminal_is_the_jobs(self, tmp_path: Path) -> None:
        """It can ask a question, at its input and at the terminal itself."""
        code = (
            "print('name?', flush=True); name = input()\n"
            "terminal = open('/dev/tty'); print('colour?', flush=True)\n"
            "print(name, 'likes', terminal.readline())"
        )
        with self.plain(tmp_path, code) as it:
            it.until_it_says("name?")
            it.type("Ada\n")
            it.until_it_says("colour?")
            it.type("green\n")
            assert it.end() == 0
            assert "Ada likes green" in it.text

    def test_a_script_around_it_ends_on_ctrl_c(self, tmp_path: Path) -> None:
        """Ctrl-C ends a script that runs one job after another, and not one job only."""
        # Not a shell: one that gets the signal while it starts its own command can miss it.
        waits = job("import time; print('ready', flush=True); time.sleep(60)")
        one = f"{RUN} --plain --no-report -- {shlex.join(waits)}"
        with in_bash(tmp_path, f"for n in 1 2 3; do {one}; echo next; done") as it:
            it.until_it_says("ready")
            it.type(CTRL_C)
            assert it.end() == -signal.SIGINT
            assert "next" not in it.text

    def test_stopped_and_continued(self, tmp_path: Path) -> None:
        """Ctrl-Z stops it all and the shell has its prompt back; fg continues it all."""
        code = (
            "import os, select, signal\n"
            "signal.signal(signal.SIGCONT, lambda *_: os.write(1, b'continued\\n'))\n"
            "print('ready', flush=True)\n"
            # Stopped just before it reads, it would tell only after it has read.
            "while not select.select([0], [], [], 0.1)[0]: pass\n"
            "print('got', input())\n"
        )
        (tmp_path / "job.py").write_text(code)
        with in_bash(tmp_path, "PS1='prompt> ' bash --norc --noprofile -i") as it:
            it.until_it_says("prompt>")
            it.type(f"{RUN} --plain --no-report -- {sys.executable} -S job.py\n")
            it.until_it_says("ready")
            it.type(CTRL_Z)
            it.until_it_says("Stopped")
            it.until(lambda: it.text.count("prompt>") == 2)
            it.type("fg\n")
            it.until_it_says("continued")
            it.type("some words\n")
            it.until_it_says("got some words")
            it.type("exit 5\n")
            assert it.end() == 5

    def test_a_pager_behind_it_has_the_keyboard(self, tmp_path: Path) -> None:
        """What reads its output can read keys from the terminal meanwhile, as a pager does."""
        reader = "(read key < /dev/tty; echo key $key; touch enough; tail -n 1)"
        command = shlex.join(job(PRINTS))
        with in_bash(tmp_path, f"{RUN} --no-report -- {command} | {reader}") as it:
            it.type("w\n")
            it.until_it_says("key w")
            it.until_it_says("the end")
            assert it.end() == 0

    def test_is_chosen_where_there_is_no_screen(self, tmp_path: Path) -> None:
        """With its output piped or on a dumb terminal there is no dashboard to be asked away."""
        for line in (
            f"{RUN} --no-report -- echo out | cat",
            f"TERM=dumb {RUN} --no-report -- echo out",
        ):
            with in_bash(tmp_path, line) as it:
                assert it.end() == 0
                assert it.raw == b"out\r\n"


class TestDashboard:
    def shown(
        self, folder: Path, *arguments: str, code: str = PRINTS, stubborn: bool = False
    ) -> AbstractContextManager[PseudoTerminal]:
        words = ("stubborn",) if stubborn else ()
        return gpuwatch_run(folder, "-i", "0.2", *arguments, "--", *job(code, *words))

    def log(self, folder: Path) -> Path:
        (path,) = (folder / "state" / "gpuwatch" / "runs").iterdir()
        return path

    def pid(self, path: Path) -> int:
        wait_until(lambda: b"ready" in path.read_bytes())
        return int(path.read_text().partition("ready ")[2].split()[0])

    def goes_on(self, path: Path) -> bool:
        """Whether the job prints more now than it had."""
        size = path.stat().st_size
        wait_until(lambda: path.stat().st_size > size + 20)
        return True

    def test_output_is_shown_and_kept(self, tmp_path: Path) -> None:
        """What the job prints is in the pane and in the file that the title names, for its owner
        alone. When the job ends the dashboard stays; left then, gpuwatch ends with its code."""
        with self.shown(tmp_path) as it:
            it.until_it_says("line ")
            path = self.log(tmp_path)
            it.until_it_says(path.name)
            assert path.stat().st_mode & 0o777 == 0o600
            assert path.parent.stat().st_mode & 0o777 == 0o700
            self.pid(path)
            (tmp_path / "enough").touch()
            it.until_it_says("the end")
            wait_until(lambda: path.read_bytes().endswith(b"the end\n"))
            it.until_it_says("exit code 7")
            assert it.program.poll() is None
            it.type("q")
            assert it.end() == 7

    def test_a_job_that_asks_for_input_is_explained(self, tmp_path: Path) -> None:
        """It has none here: below its error, and when gpuwatch is left, is what gives it some."""
        with self.shown(tmp_path, code="print('ready'); input('name? ')") as it:
            it.until_it_says("EOFError: EOF when reading a line")
            it.until_it_says("gpuwatch run --plain lets it read from this terminal")
            it.type("q")
            assert it.end() == 1
            assert b"gpuwatch run --plain" in it.raw.rpartition(b"\x1b[?1049l")[2]

    def test_left_while_the_job_runs(self, tmp_path: Path) -> None:
        """Left, gpuwatch ends with 0 and says where the job is; the job goes on and prints on."""
        with self.shown(tmp_path) as it:
            it.until_it_says("line ")
            path = self.log(tmp_path)
            pid = self.pid(path)
            it.type("q")
            it.until_it_says("leave it running")
            it.type("l")
            assert it.end() == 0
            said = it.raw.rpartition(b"\x1b[?1049l")[2].decode()
            assert f"gpuwatch --pid {pid}" in said
            assert path.name in said
        # Its terminal is gone now, too.
        self.runs_to_its_end(path, pid)

    def test_the_job_survives(self, tmp_path: Path) -> None:
        """gpuwatch killed outright: the job runs and its output is kept."""
        with self.shown(tmp_path) as it:
            it.until_it_says("line ")
            path = self.log(tmp_path)
            pid = self.pid(path)
            it.program.kill()
            it.program.wait(60)
        self.runs_to_its_end(path, pid)

    def runs_to_its_end(self, path: Path, pid: int) -> None:
        assert self.goes_on(path)
        assert not ends(pid)
        path.parents[3].joinpath("enough").touch()
        wait_until(lambda: path.read_bytes().endswith(b"the end\n"))
        wait_until(lambda: ends(pid))

    @pytest.mark.parametrize(
        ("options", "before"),
        [((), ""), (("--kill-on-exit",), "trap '' HUP; ")],
        ids=["goes on", "ends with it, without a word"],
    )
    def test_the_terminal_goes(self, tmp_path: Path, options: tuple[str, ...], before: str) -> None:
        """Closing the terminal is leaving, also under nohup, where no SIGHUP comes: the job goes on
        or not, as was asked for, and the report so far is kept, since nobody watches on."""
        line = shlex.join([*GPUWATCH_RUN, "-i", "0.2", *options, "--", *job(PRINTS)])
        with in_bash(tmp_path, f"{before}exec {line}") as it:
            it.until_it_says("line ")
            path = self.log(tmp_path)
            pid = self.pid(path)
            it.type("R")
            it.until_it_says("still running after")
            it.hang_up()
            code = it.end()
        assert not before or code == (128 + signal.SIGTERM if options else 0)
        (kept,) = (tmp_path / "state" / "gpuwatch" / "reports").glob("*.json")
        assert json.loads(kept.read_text())["pid"] == pid
        if options:
            wait_until(lambda: ends(pid))
        else:
            self.runs_to_its_end(path, pid)

    def test_kill_on_exit(self, tmp_path: Path) -> None:
        """Asked to, gpuwatch ends the job when it is left, and ends as the job does."""
        with self.shown(tmp_path, "--kill-on-exit") as it:
            it.until_it_says("line ")
            pid = self.pid(self.log(tmp_path))
            it.type("q")
            it.until_it_says("as --kill-on-exit asks")
            it.type("l")
            assert it.end() == 128 + signal.SIGTERM
            assert ends(pid)

    def test_kill_on_exit_ends_what_the_job_left_behind(self, tmp_path: Path) -> None:
        """A child in the background goes with it, though Ctrl-C does not reach that."""
        script = "sleep 600 & echo started $! $$; exec sleep 601"
        options = ("-i", "0.2", "--kill-on-exit", "--", "sh", "-c", script)
        with gpuwatch_run(tmp_path, *options) as it:
            it.until_it_says("started ")
            left, shell = map(int, self.log(tmp_path).read_text().split()[1:])
            # A shell that gets the signal while it starts a command can miss it.
            command = Path(f"/proc/{shell}/cmdline")
            wait_until(lambda: command.read_bytes() == b"sleep\x00601\x00")
            it.type(CTRL_C)
            assert it.end() == -signal.SIGINT
            wait_until(lambda: ends(left))

    def test_ctrl_c_interrupts_the_job(self, tmp_path: Path) -> None:
        """Ctrl-C is for the job: once it has ended by it, gpuwatch ends as it did."""
        with self.shown(tmp_path) as it:
            it.until_it_says("line ")
            # Seen, so that there is something to report.
            it.until_it_says("main thread")
            it.type(CTRL_C)
            assert it.end() == -signal.SIGINT
            assert "gpuwatch report" in it.raw.rpartition(b"\x1b[?1049l")[2].decode()
        assert b"KeyboardInterrupt" in self.log(tmp_path).read_bytes()
        (kept,) = (tmp_path / "state" / "gpuwatch" / "reports").iterdir()
        report = json.loads(kept.read_text())["jobs"][0]
        assert report["exit_code"] == -signal.SIGINT
        assert report["ended_at_unix_seconds"] > report["started_at_unix_seconds"]

    def test_ctrl_c_three_times(self, tmp_path: Path) -> None:
        """A job that minds neither Ctrl-C nor the second is killed by the third. With --output
        FILE that is the file, and no other is made."""
        with self.shown(tmp_path, "-o", "out.log", stubborn=True) as it:
            it.until_it_says("out.log")
            path = tmp_path / "out.log"
            self.pid(path)
            assert not (tmp_path / "state" / "gpuwatch" / "runs").exists()
            it.type(CTRL_C)
            wait_until(lambda: b"heard 2" in path.read_bytes())
            it.type(CTRL_C)
            wait_until(lambda: b"heard 15" in path.read_bytes())
            it.type(CTRL_C)
            assert it.end() == 128 + signal.SIGKILL

    def test_signals_sent_to_gpuwatch_are_the_jobs(self, tmp_path: Path) -> None:
        """SIGUSR1 goes to the job and the dashboard stays; SIGTERM does too, and gpuwatch then
        waits for the job to end, without its dashboard; the report has its exit code."""
        with self.shown(tmp_path, stubborn=True) as it:
            it.until_it_says("main thread")
            path = self.log(tmp_path)
            self.pid(path)
            it.program.send_signal(signal.SIGUSR1)
            wait_until(lambda: b"heard 10" in path.read_bytes())
            assert it.program.poll() is None
            it.program.send_signal(signal.SIGTERM)
            wait_until(lambda: b"heard 15" in path.read_bytes())
            it.until(lambda: b"sent SIGTERM to the job" in it.raw.partition(b"\x1b[?1049l")[2])
            it.program.send_signal(signal.SIGUSR1)
            wait_until(lambda: path.read_bytes().count(b"heard 10") == 2)
            (tmp_path / "enough").touch()
            assert it.end() == 7
        (kept,) = (tmp_path / "state" / "gpuwatch" / "reports").iterdir()
        assert json.loads(kept.read_text())["jobs"][0]["exit_code"] == 7

    def test_cannot_start(self, tmp_path: Path) -> None:
        """A command that is not there opens no dashboard and leaves no file."""
        with gpuwatch_run(tmp_path, "--", "no-such-command-here") as it:
            assert it.end() == 127
            assert b"\x1b[?1049h" not in it.raw
            assert "not found" in it.text
        assert list((tmp_path / "state" / "gpuwatch" / "runs").iterdir()) == []

    def test_nothing_of_the_dashboard_is_in_the_job(self, tmp_path: Path) -> None:
        """Its environment is the one gpuwatch was given, though the dashboard changes its own."""
        given = {"NO_COLOR": "", "COLUMNS": "33", "LINES": "11", "TERM": "xterm-256color"}
        environment, log = {**environment_in(tmp_path), **given}, tmp_path / "log"
        script = "env -0; printf 'end %s.' $$"
        arguments = (*GPUWATCH_RUN[1:], "-o", "log", "--", "sh", "-c", script)
        with terminal(*arguments, environment=environment, folder=tmp_path) as it:
            it.until(lambda: log.exists() and log.read_bytes().endswith(b"."))
            it.until_it_says("q quit")
            it.until(lambda: ends(int(log.read_bytes().split()[-1][:-1])))
            it.type("q")
            assert it.end() == 0
        seen = set(log.read_bytes().split(b"\0")[:-1])
        shells_own = {b"PWD", b"OLDPWD", b"_", b"SHLVL"}
        expected = {f"{name}={value}".encode() for name, value in environment.items()}
        odd = {entry.partition(b"=")[0] for entry in seen ^ expected}
        assert odd <= shells_own
