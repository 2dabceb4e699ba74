"""Other machines over the user's own ``ssh``: each a tape, which goes on after a lost connection.

What a machine prints is text from outside, read as a recording or a log of anybody is. The command
goes to whatever shell the user has there, so ``sh`` is given it as one word.
"""

from __future__ import annotations

import io
import os
import shlex
import signal
import subprocess
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import IO, cast

from gpuwatch.core.background import DaemonWorker
from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import REPLACEMENT, bug_place, clean
from gpuwatch.recording.file import RECORDING, OpenedLog, open_any
from gpuwatch.recording.hosts.names import HostNameError, host_names
from gpuwatch.recording.replay import KeptTape, share
from gpuwatch.sources.logs.source import LogOptions
from gpuwatch.sources.logs.text import LogError, LogStats, TextLines

SSH = (
    *("ssh", "-T", "-C", "-o", "BatchMode=yes", "-o", "ConnectTimeout=15"),
    *("-o", "ServerAliveInterval=5", "-o", "ServerAliveCountMax=3"),
)
"""Command that asks nothing on the terminal, and notices after 15 s that a host vanished; output
takes a thirtieth compressed."""
_FIELDS = (
    *("index", "uuid", "name", "driver_version", "utilization.gpu", "utilization.memory"),
    *("memory.used", "memory.total", "power.draw", "power.limit", "temperature.gpu"),
    *("clocks.sm", "clocks.max.sm", "pcie.link.gen.current", "pcie.link.width.current"),
)
"""Fields asked of nvidia-smi where there is no gpuwatch. Not the time: it would be local, without
zone."""
_CONNECTING = threading.Semaphore(32)
_PAUSE_SECONDS, _PAUSE_MOST_SECONDS = 1.0, 60.0
_END_SECONDS = 2.0
_SAID_BYTES = 4096
_LATE_INTERVALS = 3.0
_CHUNK_SECONDS = 10.0
"""Seconds in a chunk: a minute of a large machine is some 25 MiB unpacked."""
_GREETING_BYTES = 1 << 20
NEITHER = "neither gpuwatch nor nvidia-smi was found there"
_BEGINS = "gpuwatch-begins"
"""Line before the answer: what a host's shell prints ahead of it is none."""
_ANSWER_SECONDS = 60.0
"""Time to wait for the first snapshot: a driver that wakes up takes several seconds."""
_CLOCK_SET_SECONDS = 60.0
_AHEAD_SECONDS, _BEHIND_SECONDS = 2.0, 10.0
"""Clock differences beyond doubt: late arrival over a slow link looks like a clock that is
behind."""


def remote_command(interval_seconds: float, gpuwatch: str = "gpuwatch") -> str:
    """Return the command for the shell of another host; ``gpuwatch``: how it is called there."""
    loop = f"-lms {interval_seconds * 1000:.0f}"
    query = f"nvidia-smi --query-gpu={','.join(_FIELDS)} --format=csv {loop}"
    stream = f"{gpuwatch} stream --interval {interval_seconds:g}s"
    there = "command -v {} >/dev/null 2>&1".format
    return _in_sh(
        f"echo {_BEGINS}; echo {_BEGINS} >&2; if {there(gpuwatch)}; then exec {stream}; fi; "
        f"if {there('nvidia-smi')}; then exec {query}; fi; echo {NEITHER} >&2; exit 127"
    )


def _in_sh(script: str) -> str:
    """Return the script as a command for any shell, which finds what pip installs for a user."""
    script = f'PATH="$PATH:$HOME/.local/bin:$HOME/.gpuwatch/bin"; {script}'
    return f"exec sh -c {shlex.quote(script)}"


def run_there(hosts: Sequence[str], arguments: Sequence[str], gpuwatch: str = "gpuwatch") -> int:
    """Run ``gpuwatch ARGUMENTS`` on each of ``hosts``, one after the other, with this program's
    terminal; its input is for an argument that is ``-``. Gives the highest exit code, 255 where
    ssh fails. Raises ``HostNameError``."""
    names = host_names(hosts, None, None)
    if len(names) > 1 and arguments[0] in ("stream", "record"):
        raise HostNameError(f"{arguments[0]} takes one --host: it goes on until it is stopped.")
    here = all(os.isatty(descriptor) for descriptor in range(3))
    # With a terminal there, Ctrl-C reaches what runs there.
    ssh = [*SSH[:1], "-t", *SSH[2:]] if here else SSH
    run, given = f"exec {gpuwatch} {shlex.join(arguments)}", None
    if not here and "-" not in arguments:
        # Its input ends with this program or with ssh: what would go on for ever is stopped then.
        given = os.pipe()[0]
        run = f"exec 3<&0; {{ cat <&3; kill $$; }} >/dev/null 2>&1 & {run} </dev/null 3<&-"
    codes = []
    try:
        for name in names:
            ended = subprocess.run([*ssh, "--", name, _in_sh(run)], check=False, stdin=given)
            codes.append(abs(ended.returncode))
    except OSError as error:
        raise HostNameError(f"ssh cannot be run: {error.strerror}.") from None
    return max(codes)


class _ClockSetError(Exception):
    """The clock of a host was set: its tape cannot go on."""


class RemoteTape:
    """A tape that grows by the snapshots that ``_snapshots`` yields, from ``start`` to ``close``.
    All of it may be asked on any thread."""

    gpu_only = False
    """Whether the host has no gpuwatch: nvidia-smi is read, and causes on the host's side are
    unknown."""
    kept_seconds = 4 * 3600.0
    """Length of the tape: 8 GPUs with 64 jobs are some 40 MB an hour in a temporary file."""

    def __init__(self, name: str, interval_seconds: float) -> None:
        self.name = name
        self.interval_seconds = interval_seconds
        self.tape: KeptTape | None = None
        """The tape, from the first snapshot on."""
        self.latest: Snapshot | None = None
        self.trouble: str | None = None
        """Why nothing comes in now, as a clause; ``None`` while something does, or before."""
        self._closed = threading.Event()
        self._stream: Generator[Snapshot, None, None] | None = None

    def start(self) -> None:
        """Begin to take snapshots, without waiting."""
        self._stream = self._snapshots()
        worker = DaemonWorker("gpuwatch-incoming")
        worker.submit(self._open)
        worker.stop()

    @property
    def age_seconds(self) -> float | None:
        """Time since the latest snapshot came in."""
        return None if self.latest is None else time.monotonic() - self.latest.monotonic_seconds

    @property
    def is_late(self) -> bool:
        """Whether the latest snapshot is too old to be taken for now."""
        return False

    @property
    def silence(self) -> str | None:
        """Why nothing of it is known now, as a clause, if that is so."""
        if self.tape is not None and self.tape.error is not None:
            return f"reading it failed: {bug_place(self.tape.error)}"
        return self.trouble or ("it does not answer" if self.is_late else None)

    @property
    def ended_seconds(self) -> float | None:
        """Time since it ended, if it did."""
        return None

    @property
    def clock_error_seconds(self) -> float:
        """Seconds that its clock is ahead (less than 0: behind), where that is beyond doubt, else
        0."""
        return 0.0

    def leave(self) -> None:
        """Stop taking snapshots, without waiting."""
        self._closed.set()

    def close(self) -> None:
        self.leave()
        if self.tape is not None:
            self.tape.close()
        if self._stream is not None:
            # Where it stands at a snapshot that nobody takes any more, it ends only now.
            with suppress(ValueError):
                self._stream.close()

    def _snapshots(self) -> Generator[Snapshot, None, None]:
        raise NotImplementedError

    def _open(self) -> None:
        stats = LogStats()
        none = TextLines(self.name, stats, stream=io.BytesIO())
        assert self._stream is not None
        log = OpenedLog(RECORDING, self._stream, stats, self.name, none)
        try:
            self.tape = KeptTape(
                log, end=self.leave, chunk_seconds=_CHUNK_SECONDS, kept_seconds=self.kept_seconds
            )
        except LogError:
            # Closed before there was anything.
            return
        if self._closed.is_set():
            self.tape.close()


class RemoteHost(RemoteTape):
    """A host over ssh; ``command`` reads it, as in ``(*SSH, "--", name, remote_command(1.0))``."""

    def __init__(self, name: str, command: Sequence[str], interval_seconds: float) -> None:
        super().__init__(name, interval_seconds)
        self.clock_ahead_seconds: float | None = None
        """Least seconds that its clock is ahead of ours, by the quickest snapshot of this
        connection; it can be ahead by the time more that this one took."""
        self._command = command
        self._arrived_at: float | None = None
        self._arrived_unix_seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._said = b""

    @property
    def age_seconds(self) -> float | None:
        return None if self._arrived_at is None else time.monotonic() - self._arrived_at

    @property
    def is_late(self) -> bool:
        age = self.age_seconds
        return age is not None and age > _LATE_INTERVALS * max(1.0, self.interval_seconds) + 1.0

    @property
    def clock_error_seconds(self) -> float:
        ahead = self.clock_ahead_seconds or 0.0
        return ahead if ahead > _AHEAD_SECONDS or ahead < -_BEHIND_SECONDS else 0.0

    def leave(self) -> None:
        """Close the connection, without waiting, and make no other."""
        self._closed.set()
        self._end()

    def _end(self) -> None:
        process = self._process
        if process is not None and process.poll() is None:
            # With what a wrapper around ssh has started.
            with suppress(OSError):
                os.killpg(process.pid, signal.SIGKILL)

    # On threads of the tape.

    def _snapshots(self) -> Generator[Snapshot, None, None]:
        """Yield all snapshots that come in, connection after connection, until it is closed."""
        pause = _PAUSE_SECONDS
        while not self._closed.is_set():
            try:
                for snapshot in self._connection():
                    pause = _PAUSE_SECONDS
                    yield snapshot
            except _ClockSetError:
                # Times on a tape ascend: another begins.
                self._closed.wait(pause)
                self.start()
                return
            self._closed.wait(pause)
            pause = min(2 * pause, _PAUSE_MOST_SECONDS)

    def _connection(self) -> Iterator[Snapshot]:
        self._said, why, begins, answered = b"", "the connection was closed", b"", False
        with ExitStack() as first:
            first.enter_context(_CONNECTING)
            if self._closed.is_set():
                return
            try:
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.DEVNULL,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.PIPE,
                    # Ctrl-C in this terminal is not for it.
                    start_new_session=True,
                )
            except OSError as error:
                self.trouble = f"{self._command[0]} cannot be run: {error.strerror}"
                return
            self._process = process
            stream = cast("io.BufferedReader", process.stdout)
            worker = DaemonWorker("gpuwatch-ssh-says")
            listening = worker.submit(lambda: self._listen(process.stderr))
            worker.stop()
            silent = threading.Timer(_ANSWER_SECONDS, self._end)
            silent.daemon = True
            silent.start()
            try:
                if not self._closed.is_set() and self._passed_greeting(stream):
                    begins = stream.peek(1)
                if begins:
                    for snapshot in self._logged(stream):
                        answered = True
                        first.close()
                        silent.cancel()
                        yield self._taken(snapshot)
            except LogError as error:
                shown = clean(begins.decode(errors="replace").strip().split("\n")[0], 200)
                why = str(error) if shown.startswith("{") or REPLACEMENT in shown else shown
            finally:
                if silent.finished.is_set() and not answered:
                    why = f"nothing that can be read came in {_ANSWER_SECONDS:.0f} s"
                silent.cancel()
                # Ended by itself, it has a code of its own.
                with suppress(subprocess.TimeoutExpired):
                    process.wait(0.0 if self._closed.is_set() else _END_SECONDS)
                self._end()
                code = process.wait()
                stream.close()
                listening.wait(_END_SECONDS)
                said = self._said.decode(errors="replace").rpartition(_BEGINS)[2].splitlines()
                said = [line for line in said if line.strip() and not line.startswith("Warning:")]
                self.trouble = clean(said[-1], 200) if said and code > 0 else why

    def _passed_greeting(self, stream: io.BufferedReader) -> bool:
        """Read what the shell there prints by itself, and return whether the answer follows."""
        greeting = 0
        while greeting < _GREETING_BYTES and (line := stream.readline(_SAID_BYTES)):
            if line.strip() == _BEGINS.encode():
                return True
            greeting += len(line)
        return False

    def _logged(self, stream: io.BufferedReader) -> Iterator[Snapshot]:
        log = open_any(self.name, LogOptions(interval_seconds=self.interval_seconds), stream=stream)
        self.gpu_only, self.clock_ahead_seconds = log.kind != RECORDING, None
        yield from log.snapshots

    def _listen(self, stderr: IO[bytes] | None) -> None:
        """Keep the end of what ssh and the machine say: a full pipe would hold them up."""
        assert stderr is not None
        with stderr, suppress(OSError):
            while said := os.read(stderr.fileno(), _SAID_BYTES):
                self._said = (self._said + said)[-_SAID_BYTES:]

    def _taken(self, snapshot: Snapshot) -> Snapshot:
        now, before = time.time(), self.latest
        if before is not None:
            moved = snapshot.taken_at_unix_seconds - before.taken_at_unix_seconds
            passed = now - self._arrived_unix_seconds
            # Against its own other clock as well: what was held up on the way comes late.
            own = snapshot.monotonic_seconds - before.monotonic_seconds
            least = min(abs(moved - passed), abs(moved - own))
            if not self.gpu_only and least > _CLOCK_SET_SECONDS:
                self.latest = None
                raise _ClockSetError
        if self.gpu_only:
            host = replace(snapshot.host, name=self.name)
            snapshot = replace(
                snapshot, host=host, taken_at_unix_seconds=now, monotonic_seconds=now
            )
        else:
            ahead = snapshot.taken_at_unix_seconds - now
            known = self.clock_ahead_seconds
            self.clock_ahead_seconds = ahead if known is None else max(ahead, known)
        if before is not None:
            snapshot = share(snapshot, before)
        self._arrived_unix_seconds = now
        self._arrived_at, self.trouble, self.latest = time.monotonic(), None, snapshot
        return snapshot
