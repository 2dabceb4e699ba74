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
import sys
import tempfile
import threading
import time
from collections.abc import Generator, Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import replace
from typing import IO, cast

from gpuwatch.core.background import DaemonWorker
from gpuwatch.core.codec import CodecError, Decoder, Header
from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import REPLACEMENT, SentenceError, bug_place, clean
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.recording.file import LINE_LENGTH, RECORDING, OpenedLog, open_any
from gpuwatch.recording.hosts.brief import (
    BEGINS_WITH,
    Brief,
    Found,
    brief_of,
    decode,
    upgrade_note,
    version_in,
)
from gpuwatch.recording.hosts.names import HostNameError, host_names, install_command
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
NO_START = "gpuwatch does not start there"
NEITHER = "neither gpuwatch nor nvidia-smi was found there"
_BEGINS = "gpuwatch-begins"
"""Line before the answer: what a host's shell prints ahead of it is none."""
_MISSING_CODE, _NO_START_CODE, _SSH_FAILED_CODE, _OUTPUT_CODE = 113, 114, 255, 74
"""Exit codes: of a command on a host that has no gpuwatch, or one that does not start (gpuwatch has
no such codes itself), of ssh, of output that cannot be written."""
_INSTEAD = "gpuwatch-instead"
"""Line before what nvidia-smi prints."""
_BROKEN = "gpuwatch-broken"
"""Line on standard error after what a gpuwatch said that could not start."""
_ANSWER_SECONDS = 60.0
"""Time to wait for the first snapshot: a driver that wakes up takes several seconds."""
_CLOCK_SET_SECONDS = 60.0
_AHEAD_SECONDS, _BEHIND_SECONDS = 2.0, 10.0
"""Clock differences beyond doubt: late arrival over a slow link looks like a clock that is
behind."""


def remote_command(
    interval_seconds: float, gpuwatch: str = "gpuwatch", *, findings: bool = False
) -> str:
    """Return the command for the shell of another host; ``gpuwatch``: how it is called there;
    ``findings``: in full, for alerts.

    An older gpuwatch, which refuses these options, streams whole snapshots. Where Python does not
    get as far as gpuwatch (its exit codes are never these), nvidia-smi is read as if there were
    none.
    """
    loop = f"-lms {interval_seconds * 1000:.0f}"
    query = f"nvidia-smi --query-gpu={','.join(_FIELDS)} --format=csv {loop}"
    stream = f"{gpuwatch} stream --interval {interval_seconds:g}s"
    brief = f"{stream} --brief{' --findings' * findings}"
    return _in_sh(
        f"echo {_BEGINS}; echo {_BEGINS} >&2; code=0; "
        f"if {_is_there(gpuwatch)}; then {brief}; code=$?; case $code in "
        f"2) exec {stream};; 1|126|127) echo {_BROKEN} >&2;; *) exit $code;; esac; fi; "
        f"if {_is_there('nvidia-smi')}; then echo {_INSTEAD}; exec {query}; fi; "
        f"if [ $code = 0 ]; then echo {NEITHER} >&2; fi; exit 127"
    )


def _is_there(program: str) -> str:
    """Return the test of a shell for a program, which is as it is typed there."""
    return f"command -v {program} >/dev/null 2>&1"


def _in_sh(script: str) -> str:
    """Return the script as a command for any shell, which finds what pip installs for a user."""
    script = f'PATH="$PATH:$HOME/.local/bin:$HOME/.gpuwatch/bin"; {script}'
    return f"exec sh -c {shlex.quote(script)}"


def run_there(hosts: Sequence[str], arguments: Sequence[str], gpuwatch: str = "gpuwatch") -> int:
    """Run ``gpuwatch ARGUMENTS`` on each of ``hosts``, one after the other, with this program's
    terminal; its input is for an argument that is ``-``. Where a host cannot be reached, or has no
    gpuwatch that starts, a sentence with its name is on standard error. Gives the highest exit
    code, 255 where ssh fails. Raises ``HostNameError``."""
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
    run = f"{_is_there(gpuwatch)} || exit {_MISSING_CODE}; {run}"
    # What the host's shell prints before is none of the answer: a program reads that.
    run = run if here else f"echo {_BEGINS}; {run}"
    codes = [0]
    for name in names:
        # What ssh itself says, apart from what the command says.
        with tempfile.NamedTemporaryFile(prefix="gpuwatch-") as log:
            command = [*ssh, "-E", log.name, "--", name, _in_sh(run)]
            try:
                code, silent = _run(command, given, None if here else subprocess.PIPE)
                if code == 1 and silent:
                    # Also the code of what was found: a Python that is broken prints no answer.
                    version = _in_sh(f"exec {gpuwatch} --version >/dev/null 2>&1")
                    code, _ = _run([*SSH, "--", name, version], subprocess.DEVNULL, None)
                    code = _NO_START_CODE if code == 1 else 1
            except BrokenPipeError:
                # Whoever has read enough has no fault to look for.
                return max(codes)
            except OSError as error:
                raise HostNameError(f"ssh cannot be run: {error.strerror}.") from None
            said = _lines(log.read(_SAID_BYTES).decode(errors="replace"))
        if why := _why_not_run(name, code, said):
            print(f"gpuwatch: {name}: {why}", file=sys.stderr)
        codes.append(127 if code in (_MISSING_CODE, _NO_START_CODE) else code)
    return max(codes)


def _run(command: Sequence[str], given: int | None, output: int | None) -> tuple[int, bool]:
    """Run a command to its end and return its exit code, and whether it may have printed nothing;
    of its ``output``, if that is a pipe, pass on what follows the line with which the answer
    begins. Raises ``BrokenPipeError`` where nobody
    reads that any more, and ``SentenceError`` where it cannot be written."""
    silent = True
    with subprocess.Popen(command, stdin=given, stdout=output) as process:
        try:
            if process.stdout is not None:
                printed = cast("io.BufferedReader", process.stdout)
                while (line := printed.readline(_SAID_BYTES)) and line.strip() != _BEGINS.encode():
                    pass
                while part := printed.read1():
                    silent = False
                    while part:
                        part = part[os.write(1, part) :]
        except BrokenPipeError:
            process.kill()
            raise
        except OSError as error:
            process.kill()
            why = f"The output cannot be written: {error.strerror}."
            raise SentenceError(why, _OUTPUT_CODE) from None
        return abs(process.wait()), silent


def _why_not_run(name: str, code: int, said: Sequence[str]) -> str | None:
    """Return why a command did not run on a host, as a sentence that may end with a command, if it
    did not."""
    if code == _MISSING_CODE:
        return f"there is no gpuwatch there. To install it: {install_command(name)}"
    if code in (126, 127, _NO_START_CODE):
        reason = "its Python cannot run it" if code == _NO_START_CODE else "its Python is missing"
        return f"{NO_START}: {reason}. To install it anew: {install_command(name)}"
    if code != _SSH_FAILED_CODE:
        return None
    why = ssh_failure(name, said) if said else f"ssh failed (exit code {code})"
    return f"{why.rstrip('.')}."


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
        self._made: tuple[Snapshot, Diagnosis | None, Brief] | None = None
        self._closed = threading.Event()
        self._stream: Generator[Snapshot, None, None] | None = None

    def start(self) -> None:
        """Begin to take snapshots, without waiting."""
        self._stream = self._snapshots()
        worker = DaemonWorker("gpuwatch-incoming")
        worker.submit(self._open)
        worker.stop()

    @property
    def brief(self) -> Brief | None:
        """State of the host and its findings, as of the latest snapshot."""
        latest, found = self.latest, None if self.tape is None else self.tape.diagnosis
        made = self._made
        if latest is None:
            return None
        if made is None or made[0] is not latest or made[1] is not found:
            made = self._made = latest, found, brief_of(latest, found)
        return made[2]

    @property
    def why_gpu_only(self) -> str:
        """Why nvidia-smi is read there, as a clause."""
        return ""

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
    """A host over ssh; ``command`` reads it, as in ``(*SSH, "--", name, remote_command(1.0))``.

    It sends what it finds in brief lines. Whole snapshots come in, and there is a tape of them,
    only while somebody reads it in full; of an older gpuwatch and of nvidia-smi always.
    """

    def __init__(self, name: str, command: Sequence[str], interval_seconds: float) -> None:
        super().__init__(name, interval_seconds)
        self.clock_ahead_seconds: float | None = None
        """Least seconds that its clock is ahead of ours, by the quickest line of this connection;
        it can be ahead by the time more that this one took."""
        self.version: str | None = None
        """Version of gpuwatch there."""
        self._command = command
        self._arrived_at: float | None = None
        self._arrived_unix_seconds = 0.0
        self._process: subprocess.Popen[bytes] | None = None
        self._said = b""
        self._received: Brief | None = None
        """The latest brief line; ``None`` where it sends none."""
        self.found: Found | None = None
        """All that was found there when it last said so; ``None`` where it was not asked to."""
        self._sends_briefs = False
        """Whether it does in this connection, and so can be asked."""
        self._before: Snapshot | None = None
        """The snapshot that came in last, however old."""
        self._readers: dict[object, bool] = {}
        """Readers of full snapshots; true: from ten minutes ago on."""
        self._asking = threading.Lock()

    @property
    def brief(self) -> Brief | None:
        return self._received or super().brief

    @property
    def why_gpu_only(self) -> str:
        said, broken, _ = self._spoken().partition(_BROKEN)
        if not broken:
            return "no gpuwatch there"
        lines = _lines(said)
        return f"{NO_START}: {lines[-1]}" if lines else NO_START

    def read_in_full(self, reader: object, *, from_past: bool = False) -> None:
        """Have whole snapshots come in until ``read_in_brief`` was called for each ``reader``.
        ``from_past``: with those of the last ten minutes, as far as they are not on the tape."""
        with self._asking:
            first = not self._readers
            self._readers.setdefault(reader, from_past)
            if first and self._sends_briefs:
                self._ask_in_full()

    def read_in_brief(self, reader: object) -> None:
        with self._asking:
            if self._readers.pop(reader, None) is None or self._readers:
                return
            if self._sends_briefs:
                self._ask("brief")
                # What came in last grows old from now on.
                self.latest = None

    def _ask_in_full(self) -> None:
        assert self._received is not None
        since = self._received.taken_at_unix_seconds
        if any(self._readers.values()):
            since = 0.0 if self._before is None else self._before.taken_at_unix_seconds
        self._ask(f"full {since:.6f}")

    def _ask(self, what: str) -> None:
        process = self._process
        if process is not None and process.stdin is not None:
            # A connection that is lost is asked again once it is back.
            with suppress(OSError, ValueError):
                process.stdin.write(f"{what}\n".encode())
                process.stdin.flush()

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
        self._said, why, answered = b"", "the connection was closed", False
        with ExitStack() as first:
            first.enter_context(_CONNECTING)
            if self._closed.is_set():
                return
            try:
                process = subprocess.Popen(
                    self._command,
                    stdin=subprocess.PIPE,
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
                    for one in self._answer(stream):
                        answered = True
                        first.close()
                        silent.cancel()
                        if isinstance(one, Found):
                            self.found = one
                        elif isinstance(one, Brief):
                            self._take_brief(one)
                        elif (taken := self._taken(one)) is not None:
                            yield taken
            except LogError as error:
                why = str(error)
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
                with suppress(OSError):
                    cast("IO[bytes]", process.stdin).close()
                listening.wait(_END_SECONDS)
                self._sends_briefs = False
                said = _lines(self._spoken().rpartition(_BROKEN)[2])
                if said and code > 0:
                    why = ssh_failure(self.name, said)
                elif _BROKEN in self._spoken() and not answered:
                    why = self.why_gpu_only
                self.trouble = why

    def _spoken(self) -> str:
        """Return what the host said on standard error since it began to answer."""
        return self._said.decode(errors="replace").rpartition(_BEGINS)[2]

    def _passed_greeting(self, stream: io.BufferedReader) -> bool:
        """Read what the shell there prints by itself, and return whether the answer follows."""
        greeting = 0
        while greeting < _GREETING_BYTES and (line := stream.readline(_SAID_BYTES)):
            if line.strip() == _BEGINS.encode():
                return True
            greeting += len(line)
        return False

    def _answer(self, stream: io.BufferedReader) -> Iterator[Brief | Found | Snapshot]:
        """Yield what comes in. Which program there prints it, the command says, not what it looks
        like: a line that is none of its own is passed over. Raises ``LogError`` where nothing could
        be read."""
        decoder, trouble, answered = Decoder(), None, False
        self.gpu_only, self.clock_ahead_seconds, self.version = False, None, None
        while line := stream.readline(LINE_LENGTH):
            if not line.endswith(b"\n"):
                if len(line) >= LINE_LENGTH:
                    raise LogError("a line of it does not end")
                break
            text = line.strip(b" \t\r\n\0").decode(errors="replace")
            if text == _INSTEAD:
                yield from self._printed_by_nvidia_smi(stream)
                return
            if not text:
                continue
            try:
                one = decode(text) if text.startswith(BEGINS_WITH) else decoder.decode(text)
            except CodecError as error:
                shown = str(error) if text.startswith("{") else clean(text, 200)
                trouble = trouble or upgrade_note(version_in(text)) or shown
                continue
            if isinstance(one, Header):
                self.version = one.gpuwatch or "older"
            elif one is not None:
                answered = True
                yield one
        if trouble is not None and not answered:
            raise LogError(trouble)

    def _printed_by_nvidia_smi(self, stream: io.BufferedReader) -> Iterator[Snapshot]:
        self.gpu_only = True
        begins = stream.peek(1)
        try:
            log = open_any(
                self.name, LogOptions(interval_seconds=self.interval_seconds), stream=stream
            )
            yield from log.snapshots
        except LogError as error:
            shown = clean(begins.decode(errors="replace").strip().split("\n")[0], 200)
            raise LogError(str(error) if REPLACEMENT in shown or not shown else shown) from None

    def _listen(self, stderr: IO[bytes] | None) -> None:
        """Keep the end of what ssh and the machine say: a full pipe would hold them up."""
        assert stderr is not None
        with stderr, suppress(OSError):
            while said := os.read(stderr.fileno(), _SAID_BYTES):
                self._said = (self._said + said)[-_SAID_BYTES:]

    def _take_brief(self, brief: Brief) -> None:
        ahead, known = brief.taken_at_unix_seconds - time.time(), self.clock_ahead_seconds
        was_set = known is not None and abs(ahead - known) > _CLOCK_SET_SECONDS
        self.clock_ahead_seconds = ahead if known is None or was_set else max(ahead, known)
        self.version = brief.gpuwatch
        with self._asking:
            first, self._received, self._sends_briefs = not self._sends_briefs, brief, True
            if first and self._readers:
                self._ask_in_full()
        self._arrived_at, self.trouble = time.monotonic(), None

    def _taken(self, snapshot: Snapshot) -> Snapshot | None:
        """Take a snapshot; ``None`` for one that was there before."""
        now, before = time.time(), self._before
        if before is not None:
            moved = snapshot.taken_at_unix_seconds - before.taken_at_unix_seconds
            passed = now - self._arrived_unix_seconds
            # Against its own other clock as well: what was held up on the way comes late.
            own = snapshot.monotonic_seconds - before.monotonic_seconds
            least = min(abs(moved - passed), abs(moved - own))
            if not self.gpu_only and least > _CLOCK_SET_SECONDS:
                self.latest = self._before = None
                raise _ClockSetError
            if self._sends_briefs and moved <= 0.0 and own <= 0.0:
                return None
        if self.gpu_only:
            host = replace(snapshot.host, name=self.name)
            snapshot = replace(
                snapshot, host=host, taken_at_unix_seconds=now, monotonic_seconds=now
            )
        elif not self._sends_briefs:
            # A brief line comes at once, what was read before it does not.
            ahead = snapshot.taken_at_unix_seconds - now
            known = self.clock_ahead_seconds
            self.clock_ahead_seconds = ahead if known is None else max(ahead, known)
        if before is not None:
            snapshot = share(snapshot, before)
        self._before, self._arrived_unix_seconds = snapshot, now
        self._arrived_at, self.trouble = time.monotonic(), None
        if not self._sends_briefs:
            self._received = self.found = None
        if not self._sends_briefs or self._readers:
            self.latest = snapshot
        return snapshot


def install_note(name: str, why: str) -> str:
    """Return the sentence, after a space, that says how to install gpuwatch on a host, if ``why``
    nothing comes in from it is that there is none which starts; else nothing."""
    if why != NEITHER and not why.startswith(NO_START):
        return ""
    return f" To install gpuwatch there: {install_command(name)}"


def _lines(said: str) -> list[str]:
    found = [line for line in said.splitlines() if line.strip() and not line.startswith("Warning:")]
    return [clean(line.strip(), 200) for line in found]


def ssh_failure(name: str, said: Sequence[str]) -> str:
    """Return why a host cannot be reached, as a clause, by the lines that ssh, or the host, said;
    there is one at least."""
    last = said[-1]
    if last.startswith("Host key verification failed"):
        known = "in ~/.ssh/known_hosts"
        if any("HOST IDENTIFICATION HAS CHANGED" in line for line in said):
            return (
                f"its host key is not the one {known}: it was installed anew, or another machine "
                f"answers in its place (if it is right: ssh-keygen -R {shlex.quote(name)})"
            )
        return f"its host key is not {known}: run 'ssh {shlex.quote(name)}' once and accept it"
    return last
