"""Starting a job, and what can be done to it."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.core.source import ManualClock
from gpuwatch.jobs.run.job import (
    AGAIN_SECONDS,
    CannotStartError,
    RunningJob,
    Start,
    initial_environment,
    spawn,
    start_in_terminal,
    start_plain,
)
from gpuwatch.jobs.run.output import open_chosen
from gpuwatch.sources.linux import procfs
from tests.support.children import children_of, wait_until

ENVIRONMENT = {b"PATH": os.environb[b"PATH"], b"LC_ALL": b"C.UTF-8"}
START = Start(ENVIRONMENT, frozenset())


@contextlib.contextmanager
def ended(job: RunningJob) -> Iterator[RunningJob]:
    """``job``, killed with all its processes at the end."""
    try:
        yield job
    finally:
        job.kill()
        job.wait(60)
        job.close()


def python(code: str, *arguments: str) -> list[str]:
    return [sys.executable, "-S", "-c", code, *arguments]


def in_terminal(
    path: Path, command: list[str], clock: ManualClock | None = None, most_bytes: int | None = None
) -> contextlib.AbstractContextManager[RunningJob]:
    job = start_in_terminal(
        command, START, output=open_chosen(path), path=path, clock=clock, most_bytes=most_bytes
    )
    return ended(job)


def kept(job: RunningJob) -> bytes:
    """All that the job printed, once it has ended."""
    assert job.wait(60) is not None
    wait_until(lambda: job.output_complete)
    return job.output_path.read_bytes()


def says(path: Path, text: bytes) -> None:
    wait_until(lambda: text in path.read_bytes())


def both_say(path: Path, text: bytes) -> None:
    for who in (b"parent ", b"child "):
        says(path, who + text)


class TestStart:
    def test_key(self) -> None:
        """Its key is the one that the sources give the same process."""
        with ended(start_plain(["sleep", "60"], START, shares_group=False)) as job:
            assert job.key == (job.pid, procfs.read_start(job.pid))
            assert job.poll() is None
            assert job.ended_at_unix_seconds is None
            assert job.command == "sleep 60"

    @pytest.mark.parametrize(
        ("command", "code", "says"),
        [
            ("no-such-command-here", 127, "'no-such-command-here' was not found on PATH."),
            ("./no-such-file", 127, "There is no file ./no-such-file."),
            ("plain.py", 127, "not found on PATH (it is here: put ./ before it)."),
            ("./plain.py", 126, "is not executable: name the program that runs it: python"),
            ("./folder", 126, "is a folder"),
            ("./orphan", 126, "first line (#!)"),
            ("", 127, "not found"),
            ("bad\x1b[31mname", 127, "bad\N{REPLACEMENT CHARACTER}[31mname"),
        ],
    )
    def test_cannot_start(
        self, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, command: str, code: int, says: str
    ) -> None:
        """A command that is not there or cannot be executed is said in a says, with the exit
        code a shell has for it."""
        monkeypatch.chdir(tmp_path)
        (tmp_path / "plain.py").write_text("print()")
        (tmp_path / "folder").mkdir()
        (tmp_path / "orphan").write_text("#!/nowhere/python\n")
        (tmp_path / "orphan").chmod(0o755)
        with pytest.raises(CannotStartError) as caught:
            start_plain([command], START, shares_group=False)
        assert caught.value.exit_code == code
        assert says in str(caught.value)

    def test_finds_what_the_given_path_names(self, tmp_path: Path) -> None:
        """The command is looked for where the given environment says, past files of its name that
        may not be executed; a script without a first line is run by the shell. Arguments that are
        no UTF-8 arrive as they are."""
        for name, mode in (("first", 0o644), ("second", 0o755)):
            (tmp_path / name).mkdir()
            (tmp_path / name / "tool").write_text('printf "%s|" "$0" "$@"')
            (tmp_path / name / "tool").chmod(mode)
        reader, writer = os.pipe()
        path = f"{tmp_path}/nowhere:{tmp_path}/first:{tmp_path}/second".encode()
        word = os.fsdecode(b"\xff\xfe \n*")
        pid = spawn(["tool", word, ""], {b"PATH": path}, descriptors={1: writer})
        os.close(writer)
        with open(reader, "rb") as said:  # noqa: PTH123
            assert said.read() == f"{tmp_path}/second/tool|".encode() + b"\xff\xfe \n*||"
        os.waitpid(pid, 0)


def test_initial_environment_is_the_kernels(tmp_path: Path) -> None:
    """What the interpreter does to the environment on its way up is not in it: in the C locale it
    adds LC_CTYPE. Where the kernel's copy cannot be read, the interpreter's is taken."""
    assert initial_environment(tmp_path / "none") == dict(os.environb)
    code = (
        "import os, sys; from gpuwatch.jobs.run.job import initial_environment;"
        "os.environ['ADDED'] = '1';"
        "sys.stdout.buffer.write(repr((initial_environment(), 'LC_CTYPE' in os.environ)).encode())"
    )
    given = {b"PATH": ENVIRONMENT[b"PATH"], b"LANG": b"C", b"ODD": b"\xff=\n"}
    said = subprocess.run(
        [sys.executable, "-c", code], env=given, stdout=subprocess.PIPE, check=True, cwd=ROOT
    )
    assert eval(said.stdout) == (given, True)


ROOT = Path(__file__).resolve().parents[2]


class TestTerminal:
    def test_prints_to_a_terminal_that_is_not_its_own(self, tmp_path: Path) -> None:
        """Its output is a terminal of the size asked for, it has none that could hang up on it or
        send it signals, no input, and a session of its own. It learns of a new size, and every
        byte it prints is in the file, unchanged and in order, both streams alike."""
        code = (
            "import os, signal, sys, time\n"
            "changed = []\n"
            "signal.signal(signal.SIGWINCH, lambda *_: changed.append(os.get_terminal_size(1)))\n"
            "print(sys.stdout.isatty(), sys.stderr.isatty(), os.get_terminal_size(2))\n"
            "print(repr(sys.stdin.read()), os.getsid(0) == os.getpid() == os.getpgrp())\n"
            "try: os.open('/dev/tty', os.O_RDWR)\n"
            "except OSError as error: print('no tty', flush=True)\n"
            "while not changed: time.sleep(0.01)\n"
            "print('%d %d' % changed[-1], flush=True)\n"
            "for n in range(200):\n"
            "    os.write(1, bytes(range(256)) * 4)\n"
            "    os.write(2, b'\\r\\n\\x1b[31m%d\\n' % n)\n"
        )
        with in_terminal(tmp_path / "log", python(code)) as job:
            says(tmp_path / "log", b"no tty")
            job.resize(132, 43)
            *lines, rest = kept(job).split(b"\n", 4)
        assert b"\n".join(lines).decode().splitlines() == [
            "True True os.terminal_size(columns=80, lines=24)",
            "'' True",
            "no tty",
            "132 43",
        ]
        assert rest == b"".join(bytes(range(256)) * 4 + b"\r\n\x1b[31m%d\n" % n for n in range(200))

    def test_inherits_what_was_passed_on_and_nothing_of_ours(self, tmp_path: Path) -> None:
        """It has its three streams and what the caller of this process meant to be inherited."""
        ours = {int(path.name) for path in Path("/proc/self/fd").iterdir()}
        code = "import os; print(*os.listdir('/proc/self/fd'))"
        passed_on = os.open(os.devnull, os.O_RDONLY)
        os.set_inheritable(passed_on, True)
        with in_terminal(tmp_path / "log", python(code)) as job:
            theirs = {int(name) for name in kept(job).split()}
        inheritable = {number for number in ours if is_inheritable(number)}
        os.close(passed_on)
        # Besides, there is the one that the listing itself needs.
        assert len(theirs - (inheritable | {0, 1, 2, passed_on})) == 1
        assert {0, 1, 2, passed_on} <= theirs

    def test_output_of_a_grandchild_is_kept(self, tmp_path: Path) -> None:
        """What processes that the job has left behind print later is kept too."""
        path, gate = tmp_path / "log", tmp_path / "gate"
        os.mkfifo(gate)
        script = f"(read _ < {gate}; echo late) & echo early"
        with in_terminal(path, ["sh", "-c", script]) as job:
            assert job.wait(60) == 0
            says(path, b"early")
            assert not job.output_complete
            gate.write_text("go\n")
            wait_until(lambda: job.output_complete)
            assert path.read_bytes() == b"early\nlate\n"


def is_inheritable(number: int) -> bool:
    with contextlib.suppress(OSError):
        return os.get_inheritable(number)
    return False


FAMILY = (
    "import os, signal, sys, time\n"
    "who = 'child' if os.fork() == 0 else 'parent'\n"
    "if 'apart' in sys.argv and who == 'child': os.setsid()\n"
    "def heard(number, _):\n"
    "    os.write(1, f'{who} {number}\\n'.encode())\n"
    "for number in (1, 2, 3, 10, 12, 15): signal.signal(number, heard)\n"
    "os.write(1, f'{who} ready {os.getpid()}\\n'.encode())\n"
    "while True: time.sleep(0.01)\n"
)
"""Two processes that say which signals they get, and end by none that can be caught."""


class TestSignals:
    @contextlib.contextmanager
    def family(
        self, path: Path, *arguments: str, clock: ManualClock | None = None
    ) -> Iterator[RunningJob]:
        with in_terminal(path, python(FAMILY, *arguments), clock) as job:
            both_say(path, b"ready")
            yield job

    def test_interrupt_terminate_kill(self, tmp_path: Path) -> None:
        """One Ctrl-C interrupts, the next soon after terminates, the third kills; each says what
        it did. One long after the last begins again; a job that is stopped hears it too."""
        path, clock = tmp_path / "log", ManualClock()
        with self.family(path, clock=clock) as job:
            for _ in range(2):
                os.killpg(job.pid, signal.SIGSTOP)
                assert "SIGINT" in job.stop_step()
                clock.advance(AGAIN_SECONDS + 0.1)
            says(path, b"parent 2\n")
            assert "SIGINT" in job.stop_step()
            clock.advance(AGAIN_SECONDS - 0.1)
            assert "SIGTERM" in job.stop_step()
            both_say(path, b"15\n")
            assert job.poll() is None
            assert "killed" in job.stop_step()
            assert job.wait(60) == -signal.SIGKILL
            assert job.stop_step() == "the job has ended"
            assert not job.signal(signal.SIGINT)

    def test_kill_reaches_other_sessions(self, tmp_path: Path) -> None:
        """Killing the job kills what it has started in sessions of their own, as torchrun does."""
        path = tmp_path / "log"
        with self.family(path, "apart") as job:
            (child,) = children_of(job.pid)
            assert os.getsid(child) != job.pid
            job.kill()
            assert job.wait(60) == -signal.SIGKILL
            wait_until(lambda: (stat := procfs.read_stat(child)) is None or stat.state in "ZX")

    def test_end_asks_first(self, tmp_path: Path) -> None:
        """Ended for good, a job that obeys SIGTERM is not killed, and one that does not is."""
        with in_terminal(tmp_path / "a", ["sleep", "60"]) as job:
            assert job.end(20) == -signal.SIGTERM
        with self.family(tmp_path / "b") as job:
            assert job.end(0.1) == -signal.SIGKILL
            assert b"parent 15" in (tmp_path / "b").read_bytes()


def test_the_middle_of_very_much_output_is_left_out(tmp_path: Path) -> None:
    """The file has how it began and how it ended, and says how much is missing in between."""
    path = tmp_path / "log"
    code = "for number in range(300_000): print(f'line {number:7}')"
    with in_terminal(path, python(code), most_bytes=1 << 20) as job:
        lines = kept(job).decode().splitlines()
    assert path.stat().st_size < (1 << 20) + (1 << 16)
    assert (lines[0], lines[-1]) == ("line       0", "line  299999")
    ((at, note),) = [(at, line) for at, line in enumerate(lines) if line[:4] != "line"]
    missing = 300_000 - (len(lines) - 1)
    assert int(lines[at + 1].split()[1]) - int(lines[at - 1].split()[1]) == missing + 1
    assert note == (
        f"[gpuwatch: {missing * 13 >> 20} MiB of output are omitted here: the file is kept below "
        "1 MiB]"
    )
