"""``gpuwatch run`` without a terminal: the job is what it would be without gpuwatch."""

import json
import os
import signal
import stat
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from gpuwatch.commands.run import run_command
from tests.commands.running import GPUWATCH_RUN, ends, environment_in, job, run, start
from tests.support.children import wait_until
from tests.support.fake_nvml import INIT_FUNCTIONS, create_or_skip

NOISE = os.urandom(50_000) + bytes(range(256)) * 4 + b"\r\n\x1b[31m\xff"


@pytest.fixture(autouse=True)
def _enough(tmp_path: Path) -> Iterator[None]:
    """The jobs of a test that failed end with it."""
    yield
    (tmp_path / "enough").touch()


class TestStreams:
    def test_bytes_pass_untouched(self, tmp_path: Path) -> None:
        """What the job reads and prints is not changed by a byte, and nothing is added to it."""
        code = (
            "import sys\n"
            "data = sys.stdin.buffer.read()\n"
            "sys.stdout.buffer.write(data)\n"
            "sys.stderr.buffer.write(data[::-1])\n"
        )
        done = run(tmp_path, "--no-report", "--", *job(code), given=NOISE)
        assert done == (0, NOISE, NOISE[::-1])

    def test_the_streams_are_gpuwatchs_own(self, tmp_path: Path) -> None:
        """The job has the very files that gpuwatch was given, so that nothing stands between."""
        out = tmp_path / "out"
        code = "import os; print(*(os.readlink(f'/proc/self/fd/{n}') for n in (0, 1, 2)))"
        with out.open("wb") as file:
            run(tmp_path, "--no-report", "--", *job(code), stdout=file, stdin=subprocess.DEVNULL)
        first, second, third = out.read_text().split()
        assert (first, second) == ("/dev/null", str(out))
        assert third.startswith("pipe:")

    def test_output_to_a_file(self, tmp_path: Path) -> None:
        """With --output both streams of the job go to the file, emptied first, and nowhere else."""
        log = tmp_path / "log"
        log.write_text("old" * 1000)
        code, out, errors = run(
            tmp_path, "-o", str(log), "--no-report", "--", "sh", "-c", "echo out; echo err >&2"
        )
        assert (code, out, errors) == (0, b"", b"")
        assert log.read_text() == "out\nerr\n"

    def test_output_that_cannot_be_written(self, tmp_path: Path) -> None:
        """A file that cannot be written is said before the job starts, and it does not start."""
        code, _, errors = run(tmp_path, "--output", "/nowhere/x", "--", "touch", "started")
        assert code == 2
        assert b"/nowhere/x" in errors
        assert b"No such file or directory" in errors
        assert not (tmp_path / "started").exists()


class TestExit:
    @pytest.mark.parametrize(
        ("script", "code"),
        [
            ("exit 3", 3),
            ("kill -KILL $$", -signal.SIGKILL),
            ("kill -INT $$", -signal.SIGINT),
        ],
    )
    def test_ends_as_the_job_ends(self, tmp_path: Path, script: str, code: int) -> None:
        """The exit code is the job's, and a signal that ended the job ends gpuwatch."""
        assert run(tmp_path, "--no-report", "--", "sh", "-c", script) == (code, b"", b"")

    def test_cannot_start(self, tmp_path: Path) -> None:
        """A command that cannot be started is a sentence and a shell's exit code for it."""
        found, out, errors = run(tmp_path, "--", ".")
        assert (found, out) == (126, b"")
        assert errors.startswith(b"gpuwatch: ")
        assert errors.count(b"\n") == 1

    def test_exit_code_where_children_are_not_waited_for(self, tmp_path: Path) -> None:
        """A caller that ignores the end of its children does not cost gpuwatch the exit code."""
        done = run(
            tmp_path,
            *("--no-report", "--", "sh", "-c", "exit 3"),
            preexec_fn=lambda: signal.signal(signal.SIGCHLD, signal.SIG_IGN),
        )
        assert done == (3, b"", b"")


class TestCommandLine:
    def test_options_of_the_command_are_its_own(self, tmp_path: Path) -> None:
        """What follows the command belongs to it, with or without -- before it."""
        words = ("-i", "--plain", "--help", "--", "-o")
        for dashes in ((), ("--",)):
            code, out, _ = run(tmp_path, "--no-report", *dashes, "printf", "%s|", *words)
            assert (code, out) == (0, b"".join(f"{word}|".encode() for word in words))

    @pytest.mark.parametrize(
        ("arguments", "sentence"),
        [
            ((), "gpuwatch run -- python train.py"),
            (("--",), "gpuwatch run -- python train.py"),
            (("--interval", "0", "true"), "0.1"),
        ],
    )
    def test_refused(self, arguments: tuple[str, ...], sentence: str) -> None:
        """A request that makes no sense is refused with what to write instead."""
        done = CliRunner().invoke(run_command, arguments)
        assert done.exit_code == 2
        assert sentence in done.output


def without_the_c_librarys(said: bytes) -> list[str]:
    """Lines without the two signals that the C library keeps to itself: its posix_spawn has them
    ignored, and no program can ask for them."""
    lines = []
    for line in said.decode().splitlines():
        name, _, mask = line.partition(":\t")
        lines.append(f"{name} {int(mask, 16) & ~(0b11 << 31)}" if name[:3] == "Sig" else line)
    return lines


class TestSurroundings:
    """The same job, once started by gpuwatch and once by itself, sees the same."""

    def both(
        self, folder: Path, command: tuple[str, ...], **options: object
    ) -> tuple[bytes, bytes]:
        given = {"cwd": folder, "env": environment_in(folder), "close_fds": False, **options}
        alone = subprocess.run(command, stdout=subprocess.PIPE, check=True, **given)  # type: ignore[call-overload]
        inside = subprocess.run(
            [*GPUWATCH_RUN, "--plain", "--no-report", "--", *command],
            stdout=subprocess.PIPE,
            check=True,
            start_new_session=True,
            **given,
        )
        return alone.stdout, inside.stdout

    def test_environment(self, tmp_path: Path) -> None:
        """The environment is the same in every byte and in its order, also in a C locale, which
        the interpreter changes for itself, and with what the dashboard would change."""
        environment = {
            "PATH": os.environ["PATH"],
            "PYTHONPATH": environment_in(tmp_path)["PYTHONPATH"],
            "NO_COLOR": "",
            "COLUMNS": "33",
            "LC_ALL": "",
            "LANG": "C",
            "ODD": "\udcff=\n\x1b",
            "XDG_STATE_HOME": str(tmp_path),
        }
        alone, inside = self.both(tmp_path, ("env", "-0"), env=environment)
        assert inside == alone
        assert b"ODD=\xff=\n\x1b\0" in inside

    def test_all_else_that_a_process_inherits(self, tmp_path: Path) -> None:
        """Descriptors that the shell opened for the command, signals that are blocked or ignored,
        folder, limits, priority, cores and the mask for new files are the same."""
        log = os.open(tmp_path / "log", os.O_WRONLY | os.O_CREAT)
        os.set_inheritable(log, True)

        def odd() -> None:
            os.nice(3)
            os.umask(0o027)
            signal.signal(signal.SIGHUP, signal.SIG_IGN)
            signal.signal(signal.SIGINT, signal.SIG_IGN)
            signal.pthread_sigmask(signal.SIG_BLOCK, {signal.SIGUSR2, signal.SIGALRM})

        wanted = "'^(Umask|Cpus|Groups|NoNewPrivs|Cap|Sig(Blk|Ign|Cgt))' /proc/self/status"
        script = (
            "for n in /proc/self/fd/*; do readlink $n | sed 's/:.*//'; done; pwd; umask; nice; "
            f"ulimit -a; cat /proc/self/oom_score_adj; grep -E {wanted}"
        )
        status = ("sh", "-c", script)
        for preparation in (None, odd):
            alone, inside = self.both(tmp_path, status, preexec_fn=preparation)
            assert without_the_c_librarys(inside) == without_the_c_librarys(alone)
            assert f"{tmp_path}/log\n".encode() in inside
        os.close(log)
        assert b"0027" in inside


FAMILY = (
    "import os, signal, sys, time\n"
    "child = os.fork() == 0\n"
    "who = 'child' if child else 'parent'\n"
    "def heard(number, _):\n"
    "    os.write(1, f'{who} {number}\\n'.encode())\n"
    "for number in (2, 3, 10, 12, 15): signal.signal(number, heard)\n"
    "if 'nohup' not in sys.argv: signal.signal(1, heard)\n"
    "os.write(1, f'{who} ready {os.getpid()}\\n'.encode())\n"
    "while not os.path.exists('enough'): time.sleep(0.01)\n"
    "if not child: os.wait(); sys.exit(7)\n"
)
"""Two processes that say which signals they get, until there is a file called ``enough``."""


class TestSignals:
    def family(
        self, folder: Path, *arguments: str, **options: object
    ) -> tuple[subprocess.Popen[bytes], Path]:
        log = folder / "log"
        command = ("--no-report", "-o", str(log), "--", *job(FAMILY, *arguments))
        process = start(folder, *command, **options)  # type: ignore[arg-type]
        wait_until(lambda: log.exists() and log.read_bytes().count(b"ready") == 2)
        return process, log

    def test_sent_to_gpuwatch_reach_the_jobs_group(self, tmp_path: Path) -> None:
        """A signal to gpuwatch alone reaches the job and what it has started; gpuwatch waits for
        what the job makes of it, and ends with its exit code."""
        process, log = self.family(tmp_path)
        for name in ("SIGTERM", "SIGINT", "SIGHUP", "SIGQUIT", "SIGUSR1", "SIGUSR2"):
            heard = f" {getattr(signal, name):d}\n".encode()
            process.send_signal(getattr(signal, name))
            wait_until(lambda heard=heard: log.read_bytes().count(heard) == 2)
            assert process.poll() is None
        (tmp_path / "enough").touch()
        out, errors = process.communicate(timeout=60)
        assert (process.returncode, out, errors) == (7, b"", b"")

    def test_ignored_stay_ignored(self, tmp_path: Path) -> None:
        """Under nohup neither gpuwatch nor the job minds a hangup."""
        process, log = self.family(
            tmp_path, "nohup", preexec_fn=lambda: signal.signal(signal.SIGHUP, signal.SIG_IGN)
        )
        process.send_signal(signal.SIGHUP)
        process.send_signal(signal.SIGUSR1)
        wait_until(lambda: log.read_bytes().count(b" 10\n") == 2)
        (tmp_path / "enough").touch()
        process.communicate(timeout=60)
        assert process.returncode == 7
        assert b" 1\n" not in log.read_bytes()

    def test_in_the_background_of_a_script_they_reach_the_job_too(self, tmp_path: Path) -> None:
        """There the shell has SIGINT and SIGQUIT ignored: by gpuwatch, and by a job that has no
        handlers of its own."""
        log = tmp_path / "log"
        background = ("sh", "-c", '"$@" & wait $!', "sh", *GPUWATCH_RUN)
        command = (*background, "--no-report", "-o", str(log), "--", *job(FAMILY))
        process = subprocess.Popen(
            command,
            cwd=tmp_path,
            env=environment_in(tmp_path),
            stdin=subprocess.DEVNULL,
            start_new_session=True,
        )
        try:
            wait_until(lambda: log.exists() and log.read_bytes().count(b"ready") == 2)
            gpuwatch = psutil.Process(process.pid).children()[0]
            for number in (signal.SIGINT, signal.SIGQUIT):
                gpuwatch.send_signal(number)
                heard = b" %d\n" % number
                wait_until(lambda heard=heard: log.read_bytes().count(heard) == 2)
        finally:
            (tmp_path / "enough").touch()
        assert process.wait(60) == 7

    def test_the_job_outlives_gpuwatch(self, tmp_path: Path) -> None:
        """Killing gpuwatch leaves the job as it is."""
        process, log = self.family(tmp_path)
        process.kill()
        process.communicate(timeout=60)
        pid = int(log.read_text().partition("parent ready ")[2].split()[0])
        assert not ends(pid)
        (tmp_path / "enough").touch()
        wait_until(lambda: ends(pid))


class TestReport:
    def test_is_kept_however_often_the_terminal_hangs_up(self, tmp_path: Path) -> None:
        """A connection that drops sends SIGHUP to the shell, by the shell, and when that ends."""
        code = (
            "import os, signal, sys, time\nsignal.signal(1, signal.SIG_IGN)\n"
            "print(os.getpid(), flush=True)\ntime.sleep(float(sys.argv[1]))\n"
        )
        for seconds in self.LONG_ENOUGH:
            process = start(tmp_path, "-i", "0.2", "--", *job(code, str(seconds)))
            pid = int(process.stdout.readline())
            wait_until(lambda pid=pid: ends(pid))
            while process.poll() is None:
                process.send_signal(signal.SIGHUP)
                time.sleep(0.001)
            _, errors = process.communicate(timeout=60)
            assert process.returncode == 0
            if b"before it could be watched" not in errors:
                break
        assert len(list((tmp_path / "state" / "gpuwatch" / "reports").glob("*.json"))) == 1

    LONG_ENOUGH = (1.0, 5.0, 30.0)
    """Seconds; what a busy machine may need until gpuwatch has looked at the job."""

    WORK = "import sys, time; print('working'); time.sleep(float(sys.argv[1]))"

    def seen(
        self, folder: Path, *options: str, command: tuple[str, ...], **more: object
    ) -> tuple[int, bytes, bytes]:
        """Run a job, which gets its seconds as its last argument, for so long that it is seen."""
        for seconds in self.LONG_ENOUGH:
            done = run(folder, "-i", "0.2", *options, "--", *command, str(seconds), **more)
            if b"before it could be watched" not in done[2]:
                break
        return done

    def test_goes_to_standard_error_and_is_kept(self, tmp_path: Path) -> None:
        """At the end a report is on standard error, and kept for its owner alone; standard output
        is the job's. One that is killed has its report too, with the signal."""
        command = ("sh", "-c", "echo working; sleep $0; kill -9 $$")
        code, out, errors = self.seen(tmp_path, command=command)
        assert (code, out) == (-signal.SIGKILL, b"working\n")
        assert "echo working" in errors.decode()
        assert b"\x1b" not in errors
        (kept,) = (tmp_path / "state" / "gpuwatch" / "reports").iterdir()
        assert stat.S_IMODE(kept.stat().st_mode) == 0o600
        report = json.loads(kept.read_text())["jobs"][0]
        assert report["exit_code"] == -signal.SIGKILL
        assert 0.9 < report["ended_at_unix_seconds"] - report["started_at_unix_seconds"] < 60

    def test_too_short_to_be_seen(self, tmp_path: Path) -> None:
        """A job that ends at once keeps nobody waiting: one sentence says there is no report."""
        code, out, errors = run(tmp_path, "--", "true")
        assert (code, out) == (0, b"")
        assert b"before it could be watched" in errors
        assert errors.count(b"\n") == 1

    def test_nowhere_to_print_to(self, tmp_path: Path) -> None:
        """Closed streams take nothing from the job's exit code."""
        command = [*GPUWATCH_RUN, "-i", "0.2", "--", "sh", "-c", "sleep 1; exit 5"]
        closed = ["sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh", *command]
        done = subprocess.run(closed, env=environment_in(tmp_path), cwd=tmp_path, check=False)
        assert done.returncode == 5

    def test_where_nothing_can_be_kept(self, tmp_path: Path) -> None:
        """A state folder that cannot be written costs a sentence, and neither job nor report."""
        environment = {**environment_in(tmp_path), "XDG_STATE_HOME": "/proc/none"}
        command = job(self.WORK)
        code, out, errors = self.seen(tmp_path, command=command, environment=environment)
        assert (code, out) == (0, b"working\n")
        assert b"cannot be saved" in errors
        assert b"time.sleep" in errors


def test_a_driver_that_hangs_does_not_touch_the_job(tmp_path: Path) -> None:
    """With a driver that never answers the job starts, runs and ends as it would, and gpuwatch
    with it."""
    machine = create_or_skip(tmp_path / "nvml", gpus=1)
    for function in INIT_FUNCTIONS:
        machine.hang(function)
    environment = {**environment_in(tmp_path), **machine.env()}
    code, out, errors = run(
        tmp_path, "--", "sh", "-c", "sleep 1.5; echo done", environment=environment
    )
    assert (code, out) == (0, b"done\n")
    assert b"Traceback" not in errors


def test_nothing_heavy_is_imported_before_the_job_starts(tmp_path: Path) -> None:
    """The job does not wait for gpuwatch's imports."""
    heavy = "{'asyncio', 'textual', 'psutil', 'pynvml'}"
    modules = "gpuwatch.commands.cli, gpuwatch.commands.run"
    code = f"import sys, {modules}; print(*sorted({heavy} & set(sys.modules)))"
    command, environment = [sys.executable, "-c", code], environment_in(tmp_path)
    assert subprocess.check_output(command, env=environment) == b"\n"
