"""A job that gpuwatch starts, and what can be done to it while it runs.

Two ways. **Plain**: the job has this program's own standard input, output and error. With a
controlling terminal it also stays in this process group, so that the kernel gives the keyboard's
signals to both, the shell's job control moves both, and a pager at the end of a pipe or a script
around it sees what it would see without gpuwatch; without one, the job gets a process group of
its own, which signals can be sent to. **In a terminal of its own**: a session of its own, with a
pseudo-terminal that does not control it for its output (a program that prints to a terminal
prints line by line and draws progress bars), which a separate process (``keeper``) writes to a
file. It needs nothing of gpuwatch then, and goes on when gpuwatch ends, however it ends.

The job is started as if the shell had started it: nothing of this process shows in it. What a child
inherits and an interpreter changes on its way up: the environment (PEP 538 puts ``LC_CTYPE`` into
it where the locale is C) and the signals that are ignored (SIGPIPE and SIGXFSZ). ``subprocess``
also closes the descriptors that the shell opened for the command (``3> log``), and hands on the
signal mask; hence posix_spawn(3), which does neither and runs nothing of this program in the child.
"""

from __future__ import annotations

import contextlib
import errno
import math
import os
import re
import shutil
import signal
import sys
import termios
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, NamedTuple

from gpuwatch.core.model import ProcessKey
from gpuwatch.core.source import Clock, SystemClock
from gpuwatch.core.text import SentenceError, clean
from gpuwatch.jobs.run import keeper, trees
from gpuwatch.sources.linux import procfs

# Starting a program

EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127

SHELL = b"/bin/sh"
_DEFAULT_PATH = b"/bin:/usr/bin"

# Ignored by CPython itself (Py_InitializeEx), so what they were before is not known.
_IGNORED_BY_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})


class CannotStartError(SentenceError):
    """The command was not started; the exit code is what a shell gives for it: 127 where there is
    no such command, 126 where it cannot be executed."""


def initial_environment(path: Path = Path("/proc/self/environ")) -> dict[bytes, bytes]:
    """Return the environment this process was started with, in its order. The kernel's copy:
    ``os.environ`` has what the interpreter and libraries did to it since."""
    try:
        data = path.read_bytes()
    except OSError:
        return dict(os.environb)
    found: dict[bytes, bytes] = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        # The first of two with one name is the one that getenv(3) gives.
        if name and equals:
            found.setdefault(name, value)
    return found


def spawn(
    command: Sequence[str],
    environment: Mapping[bytes, bytes],
    *,
    group: str = "shared",
    descriptors: Mapping[int, int] | None = None,
    mask: frozenset[int] = frozenset(),
) -> int:
    """Start ``command``, found on the environment's ``PATH``; its PID once it is executed.

    ``group`` is ``shared`` (this process group), ``own``, or ``session`` (a session of its own,
    without a controlling terminal). ``descriptors`` says which of ours become which there,
    ``mask`` is its signal mask. Raises ``CannotStartError``.
    """
    words = [os.fsencode(word) for word in command]
    places = os.fsdecode(environment.get(b"PATH", _DEFAULT_PATH))
    path = shutil.which(command[0], path=places)
    if path is None:
        is_there = shutil.which(command[0], os.F_OK, places) is not None
        raise _not_found(command[0], is_there)
    given: dict[str, Any] = {"setsigmask": mask, "setsigdef": _IGNORED_BY_PYTHON}
    if group == "own":
        given["setpgroup"] = 0
    elif group == "session":
        given["setsid"] = True
    given["file_actions"] = [
        (os.POSIX_SPAWN_DUP2, here, there) for there, here in (descriptors or {}).items()
    ]
    try:
        try:
            return os.posix_spawn(path, words, environment, **given)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without a first line that says what runs it: the shell does.
            return os.posix_spawn(
                SHELL, [SHELL, os.fsencode(path), *words[1:]], environment, **given
            )
    except OSError as error:
        why = os.strerror(error.errno or errno.EINVAL).lower()
        if error.errno == errno.ENOENT:
            why = "what its first line (#!) asks for, or the loader it was built for, is not there"
        said = f"{clean(command[0], 200)} cannot be run: {why}."
        raise CannotStartError(said, EXIT_NOT_EXECUTABLE) from None


def _not_found(name: str, is_there: bool) -> CannotStartError:
    """Say why no command of this name can be run; ``is_there``: a file is, but not executable."""
    shown = clean(name, 200)
    if is_there:
        hint = f": python {shown}, say," if name.endswith(".py") else ""
        return CannotStartError(
            f"{shown} is not executable: name the program that runs it{hint} or make it "
            "executable (chmod +x).",
            EXIT_NOT_EXECUTABLE,
        )
    if name in (".", "..") or ("/" in name and Path(name).is_dir()):
        return CannotStartError(f"{shown} is a folder, not a command.", EXIT_NOT_EXECUTABLE)
    if "/" not in name:
        near = " (it is here: put ./ before it)" if Path(name).is_file() else ""
        said = f"The command {shown!r} was not found on PATH{near}."
        return CannotStartError(said, EXIT_NOT_FOUND)
    return CannotStartError(f"There is no file {shown}.", EXIT_NOT_FOUND)


# The pseudo-terminal that a job prints to, and the process that keeps what comes out


class OutputTerminal:
    """The pseudo-terminal that a job prints to, and its keeper: ``keep`` starts it, ``let_go``
    leaves the terminal to the job."""

    def __init__(
        self, output: int, path: Path, environment: Mapping[bytes, bytes], most_bytes: int | None
    ) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._environment = environment
        self._output = output
        self._near, self.far_end = os.openpty()
        self._keeper: int | None = None
        self._size: tuple[int, int] | None = None
        settings = termios.tcgetattr(self.far_end)
        # Bytes as they are: no carriage return before each line feed.
        settings[1] &= ~termios.OPOST
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(self.far_end, termios.TCSANOW, settings)

    def keep(self) -> None:
        """Start the keeper. Raises ``CannotStartError``."""
        # The numbers after ours are free for the child.
        near = max(self._near, self._output) + 1
        said = [near, near + 1, *([] if self._most_bytes is None else [self._most_bytes])]
        # Neither site packages nor variables meant for the job lead it astray.
        command = [sys.executable, "-I", "-S", "-B", keeper.__file__, *map(str, said)]
        files: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3)
        ]
        files += [(os.POSIX_SPAWN_DUP2, self._near, near)]
        files += [(os.POSIX_SPAWN_DUP2, self._output, near + 1)]
        given: dict[str, Any] = {"file_actions": files, "setsid": True, "setsigmask": ()}
        try:
            self._keeper = os.posix_spawn(command[0], command, self._environment, **given)
        except OSError as error:
            raise CannotStartError(
                f"The job's output cannot be kept: {sys.executable}: {error.strerror}.",
                EXIT_NOT_EXECUTABLE,
            ) from None

    def is_kept(self) -> bool:
        """True if the keeper still waits for output."""
        if self._keeper is not None:
            with contextlib.suppress(ChildProcessError):
                if os.waitpid(self._keeper, os.WNOHANG)[0] == 0:
                    return True
            self._keeper = None
        return False

    def resize(self, columns: int, rows: int) -> bool:
        """True if that is another size than before."""
        size = (max(1, columns), max(1, rows))
        if size == self._size or self._near < 0:
            return False
        self._size = size
        termios.tcsetwinsize(self._near, (size[1], size[0]))
        return True

    def let_go(self) -> None:
        """Close the job's end of the terminal, so that its last process closes it for good."""
        os.close(self.far_end)

    def close(self) -> None:
        if self._near >= 0:
            os.close(self._near)
            os.close(self._output)
            self._near = self._output = -1


# The job

EXIT_UNKNOWN = 255
"""The exit code of a job that somebody else has waited for."""

NO_INPUT = (
    "the job asked for input, which it does not have in the dashboard: gpuwatch run --plain lets "
    "it read from this terminal"
)
"""A sentence for ``RunningJob.missed_input``."""

AGAIN_SECONDS = 10.0
"""A Ctrl-C that follows this soon on another asks for more than that one did. Later it is a new
request: the job may well have been saving a checkpoint since."""

_STEPS = (
    (signal.SIGINT, "sent SIGINT to the job; Ctrl-C again sends SIGTERM"),
    (signal.SIGTERM, "sent SIGTERM to the job; Ctrl-C again kills it"),
    (signal.SIGKILL, "killed the job and all its processes"),
)


class Start(NamedTuple):
    """The way this process itself was started, and what a job it starts is to be given; taken
    before anything of it is changed."""

    environment: Mapping[bytes, bytes]
    mask: frozenset[int]

    @classmethod
    def now(cls) -> Start:
        return cls(initial_environment(), frozenset(signal.pthread_sigmask(signal.SIG_BLOCK, ())))


def has_controlling_terminal() -> bool:
    """True if this process has a terminal that sends it signals."""
    with contextlib.suppress(OSError):
        os.close(os.open("/dev/tty", os.O_RDWR | os.O_NOCTTY | os.O_CLOEXEC))
        return True
    return False


class RunningJob:
    """One job that this process has started, and waits for. For one thread. ``pid`` is also the
    number of its process group (and session) unless ``shares_group``."""

    def __init__(
        self,
        pid: int,
        command: Sequence[str],
        *,
        shares_group: bool,
        terminal: OutputTerminal | None = None,
        clock: Clock | None = None,
    ) -> None:
        self.pid = pid
        self.command = clean(" ".join(command))
        self.shares_group = shares_group
        self.clock: Clock = SystemClock() if clock is None else clock
        # Not waited for yet: its number cannot be another's.
        self.started_at_unix_seconds = procfs.read_start(pid)
        """As the sources say it: with ``pid`` it makes the key of the job's first process."""
        self.ends_with_gpuwatch = False
        """Leaving gpuwatch ends it; else it goes on."""
        self.ended_at_unix_seconds: float | None = None
        self._exit_code: int | None = None
        self._terminal = terminal
        self._step = 0
        self._stepped_at = float("-inf")

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.started_at_unix_seconds)

    @property
    def output_path(self) -> Path | None:
        """The file that what the job prints goes to; ``None``: it goes where gpuwatch's does."""
        return None if self._terminal is None else self._terminal.path

    @property
    def output_complete(self) -> bool:
        """No process of the job can print any more, and all that was printed is in the file."""
        return self._terminal is None or not self._terminal.is_kept()

    @property
    def missed_input(self) -> bool:
        """True if it failed because it asked for input: the last that it printed is Python's
        EOFError. Only where its output is kept; then it has no input."""
        if self._terminal is None or not self.poll():
            return False
        try:
            with self._terminal.path.open("rb") as file:
                file.seek(max(0, file.seek(0, os.SEEK_END) - 1024))
                last = file.read().rstrip().rpartition(b"\n")[2]
            # In colour, from Python 3.13 on.
            return re.match(rb"(\x1b\[[0-9;]*m)*EOFError\b", last) is not None
        except OSError:
            # A pipe, say.
            return False

    def poll(self) -> int | None:
        """Return the job's exit code, negative for the signal that ended it; ``None``: it runs."""
        if self._terminal is not None:
            self._terminal.is_kept()
        if self._exit_code is None:
            try:
                pid, status = os.waitpid(self.pid, os.WNOHANG)
                if pid:
                    self._exit_code = os.waitstatus_to_exitcode(status)
            except ChildProcessError:
                self._exit_code = EXIT_UNKNOWN
            if self._exit_code is not None:
                self.ended_at_unix_seconds = self.clock.unix()
        return self._exit_code

    def wait(self, timeout: float | None = None) -> int | None:
        """Wait until the job has ended, at most ``timeout`` seconds; what ``poll`` says then."""
        until, pause = time.monotonic() + (math.inf if timeout is None else timeout), 0.001
        while (code := self.poll()) is None and (left := until - time.monotonic()) > 0:
            time.sleep(min(pause, left))
            pause = min(0.05, 2 * pause)
        return code

    def signal(self, number: int) -> bool:
        """Send a signal to the job's process group; whether there was somebody to send it to. A job
        that shares this one's gets it as the processes of the group that descend from it."""
        if self.poll() is not None:
            return False
        if self.shares_group:
            return trees.signal_tree(self.pid, number, group=os.getpgrp())
        try:
            os.killpg(self.pid, number)
        except (ProcessLookupError, PermissionError):
            return trees.signal_tree(self.pid, number)
        return True

    def kill(self) -> None:
        """End the job and all that descends from it, at once: also the ranks of torchrun, which
        have sessions of their own and would go on without it."""
        if self.poll() is None:
            trees.kill_tree(self.pid)

    def end(self, patience_seconds: float = 10.0) -> int | None:
        """Ask the job to end (TERM), and kill it if it has not within ``patience_seconds``."""
        self.signal(signal.SIGTERM)
        self.signal(signal.SIGCONT)
        if self.wait(patience_seconds) is None:
            self.kill()
        return self.wait(1.0)

    def stop_step(self) -> str:
        """Do what Ctrl-C does: SIGINT, soon after that SIGTERM, soon after that SIGKILL to all of
        it. A sentence for a person, without a full stop."""
        if self.poll() is not None:
            return "the job has ended"
        now = self.clock.monotonic()
        if now - self._stepped_at > AGAIN_SECONDS:
            self._step = 0
        self._stepped_at = now
        number, says = _STEPS[self._step]
        self._step = min(self._step + 1, len(_STEPS) - 1)
        if number == signal.SIGKILL:
            self.kill()
            return says
        if not self.signal(number):
            return f"you may not signal process {self.pid}"
        # One that was stopped would not see the other before it is continued.
        self.signal(signal.SIGCONT)
        return says

    def resize(self, columns: int, rows: int) -> None:
        """Tell the job how wide the place is in which its output is shown."""
        if self._terminal is not None and self._terminal.resize(columns, rows):
            self.signal(signal.SIGWINCH)

    def close(self) -> None:
        """Let go of the job and of its output; both go on, unless it ends with gpuwatch: then what
        it has left behind in its own process group is asked to end."""
        if self.ends_with_gpuwatch and not self.shares_group:
            # The number stays the group's for as long as there is anybody in it.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self.pid, signal.SIGTERM)
        if self._terminal is not None:
            self._terminal.close()


def start_plain(
    command: Sequence[str],
    start: Start,
    *,
    shares_group: bool,
    output: int | None = None,
) -> RunningJob:
    """Start ``command`` with this program's own standard streams, or with its output in the file
    ``output`` (a descriptor). Raises ``CannotStartError``."""
    pid = spawn(
        command,
        start.environment,
        group="shared" if shares_group else "own",
        descriptors={} if output is None else {1: output, 2: output},
        mask=start.mask,
    )
    return RunningJob(pid, command, shares_group=shares_group)


def start_in_terminal(
    command: Sequence[str],
    start: Start,
    *,
    output: int,
    path: Path,
    most_bytes: int | None = None,
    size: tuple[int, int] = (80, 24),
    clock: Clock | None = None,
) -> RunningJob:
    """Start ``command`` so that it can outlive this program, what it prints going to ``path``.

    ``output`` is that file, open for appending: it belongs to the job from here on, and loses its
    middle once it has more than ``most_bytes``. ``size`` is in columns and rows. Raises
    ``CannotStartError``.
    """
    terminal = OutputTerminal(output, path, start.environment, most_bytes)
    terminal.resize(*size)
    nothing = os.open(os.devnull, os.O_RDONLY | os.O_CLOEXEC)
    try:
        terminal.keep()
        pid = spawn(
            command,
            start.environment,
            group="session",
            descriptors={0: nothing, 1: terminal.far_end, 2: terminal.far_end},
            mask=start.mask,
        )
    except BaseException:
        terminal.close()
        raise
    finally:
        os.close(nothing)
        terminal.let_go()
    return RunningJob(pid, command, shares_group=False, terminal=terminal, clock=clock)
