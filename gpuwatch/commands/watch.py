"""``gpuwatch watch``: what is found, to a log, a command or a webhook.

Exit codes: 0 when it was stopped or its job has ended, 1 on what --exit-on names.
"""

from __future__ import annotations

import contextlib
import os
import re
import shlex
import shutil
import signal
import socket
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable, Iterator
from dataclasses import replace
from functools import partial
from threading import Event as Flag
from threading import Timer
from typing import IO, TYPE_CHECKING, Any, cast

import click
from msgspec import structs

from gpuwatch import __version__
from gpuwatch.commands.diagnose import problem_of
from gpuwatch.commands.explain import find_rule, rules_begun
from gpuwatch.commands.options import (
    Duration,
    option_json,
    remote_options,
    watched_options,
)
from gpuwatch.commands.printing import complain, open_output, print_text
from gpuwatch.commands.watching import terminated_as_interrupted, watch
from gpuwatch.core import memory_trim, units
from gpuwatch.core.background import DaemonWorker
from gpuwatch.core.text import clean
from gpuwatch.outputs.alerts import Event
from gpuwatch.outputs.report.model import dumps

if TYPE_CHECKING:
    from collections.abc import Sequence
    from http.client import HTTPResponse
    from urllib.request import BaseHandler, Request

    from gpuwatch.commands.options import Remote, Watched
    from gpuwatch.core.model import Snapshot
    from gpuwatch.diagnosis.finding import Diagnosis
    from gpuwatch.diagnosis.ledger import Episode, Ledger
    from gpuwatch.recording.hosts.brief import Brief, Found
    from gpuwatch.recording.hosts.remote import RemoteHost

ANY = "any"
EXIT_FOUND = 1
FOR_MOST_SECONDS = 24 * 3600.0
DEMO_SPEED = 20.0
"""Times as fast as a clock: nobody waits for a simulated fault as long as for a real one."""
_RULES: dict[str, Any] = {"multiple": True, "metavar": "RULE", "shell_complete": rules_begun}


@click.command("watch")
@click.option(
    *("--held", "seconds"),
    type=Duration(0.0, FOR_MOST_SECONDS),
    default="1m",
    show_default=True,
    help="How long a finding must hold without a break to be raised; an error is raised at once.",
)
@click.option(
    *("--rule", "rules"),
    help="Only this rule (repeat it for more).  [default: all but info]",
    **_RULES,
)
@click.option("--on-finding", metavar="CMD", help="Run CMD for each event: JSON on standard input.")
@click.option("--shell", is_flag=True, help="Have a shell (/bin/sh) run CMD.")
@click.option(
    "--webhook", envvar="GPUWATCH_WEBHOOK", metavar="URL", help="POST each event to URL as JSON."
)
@click.option(
    "--exit-on", help="End with exit code 1 once this rule is raised (any: whichever).", **_RULES
)
@option_json("Print each event as a line of JSON.")
@watched_options(processes=False)
@remote_options()
def watch_command(
    seconds: float,
    rules: tuple[str, ...],
    on_finding: str | None,
    shell: bool,
    webhook: str | None,
    exit_on: tuple[str, ...],
    as_json: bool,
    watched: Watched,
    remote: Remote,
) -> int:
    """Report findings as they come and go: to a log, a command, a webhook.

    Prints a line when a finding has held for a while (raised), and one when it has been gone for a
    minute (cleared). Runs until Ctrl-C, or with --pid until the job has ended; never ends or
    signals a job. A command that takes over 30 seconds is killed, a webhook is tried four times.
    The time of a simulated machine passes 20 times as fast. See docs/diagnosis.md.
    """
    out = open_output()
    from gpuwatch.diagnosis.catalogue import RULES

    only = {find_rule(name, RULES).name for name in rules}
    ends_on = {ANY if name.lower() == ANY else find_rule(name, RULES).name for name in exit_on}
    command = [] if on_finding is None else [Command(on_finding, shell=shell)]
    deliveries = [*command, *([] if webhook is None else [Webhook(webhook)])]

    import asyncio

    from gpuwatch.diagnosis.engine import Engine
    from gpuwatch.outputs.alerts import RAISED, Alerts
    from gpuwatch.outputs.report.model import dumps

    def wanted(one: Episode) -> bool:
        return one.rule in only | ends_on or (one.severity != "info" and not only)

    engine, every, code = Engine(), defaultdict[str, Alerts](lambda: Alerts(wanted, seconds)), 0

    def judge(snapshot: Snapshot, ledger: Ledger, where: str = "") -> bool:
        nonlocal code
        if where not in every and not snapshot.gpus:
            complain(f"{where}{problem_of(snapshot) or 'There is no GPU to look at.'}")
        for event in every[where].push(snapshot, ledger):
            when = time.strftime("%Y-%m-%d %H:%M:%S", time.localtime(event.at_unix_seconds))
            print_text(dumps(event, indent=None) if as_json else f"{when} {event.text}", out)
            for one in deliveries:
                one.give(event)
            if event.event == RAISED and ends_on & {ANY, event.finding.rule}:
                code = EXIT_FOUND
        memory_trim.settle()
        if snapshot.sequence % 600 == 599:
            memory_trim.tidy()
        return bool(code)

    def take(snapshot: Snapshot, _passed: float) -> bool:
        engine.push(snapshot)
        return judge(snapshot, engine.ledger)

    hosts = remote.open(findings=True) if remote else []
    sampler, notes = (None, ()) if hosts else watched.sampler(DEMO_SPEED)
    held = f"a finding is raised once it has held for {units.age(seconds)}"
    for note in (*notes, f"watching; {held} (Ctrl-C ends it)."):
        complain(note)
    # To be stopped is how it ends.
    with contextlib.suppress(KeyboardInterrupt), terminated_as_interrupted():
        try:
            if sampler is None:
                _watch_hosts(hosts, judge)
            else:
                asyncio.run(watch(watched.pid, sampler, take, users=watched.users))
            for one in deliveries:
                one.finish()
        finally:
            for started in command:
                started.stop()
    return code


def _watch_hosts(hosts: Sequence[RemoteHost], judge: Callable[..., bool]) -> None:
    """Have ``judge`` look at what each finds, by the name it was given, until it says that it is
    enough: as the host says itself, or by its readings where it has no gpuwatch, or an older one.
    Closes ``hosts``."""
    from gpuwatch.recording.hosts.remote import install_note

    for host in hosts:
        # Nobody looks back.
        host.kept_seconds = 300.0
        host.start()
    elsewhere = {host.name: Elsewhere(host) for host in hosts}
    silent: set[str] = set()
    try:
        while True:
            for host in hosts:
                name, why, one = host.name, host.silence, elsewhere[host.name]
                if why is not None and name not in silent:
                    silent.add(name)
                    complain(f"{name} is not watched: {why.rstrip('.')}.{install_note(name, why)}")
                first = not one.is_known
                if why is not None or not one.has_news():
                    continue
                if name in silent:
                    silent.remove(name)
                    complain(f"{name} is back.")
                elif first and host.gpu_only:
                    complain(f"{name}: {host.why_gpu_only}; only nvidia-smi is read there.")
                if judge(one.snapshot(), one.ledger, f"{name}: "):
                    return
            time.sleep(hosts[0].interval_seconds / 4)
    finally:
        for host in hosts:
            host.leave()
        for host in hosts:
            host.close()


class Elsewhere:
    """Findings of a host over all its connections."""

    def __init__(self, host: RemoteHost) -> None:
        from gpuwatch.diagnosis.ledger import Ledger

        self.host = host
        self.is_known = False
        """Whether anything has come in yet."""
        self._ledger = Ledger(newest=True)
        self._brief: Brief | None = None
        self._found: Found | None = None
        self._judged: tuple[Snapshot, Diagnosis] | None = None

    def has_news(self) -> bool:
        """Take what came in since the last time, and return whether there was anything."""
        found, tape, latest = self.host.found, self.host.tape, self.host.latest
        if found is not None:
            news = self._take_found(self.host.brief, found)
        else:
            before, diagnosis = self._judged, None if tape is None else tape.diagnosis
            if latest is not None and diagnosis is not None:
                self._judged = latest, diagnosis
            news = self._judged != before
        self.is_known = self.is_known or news
        return news

    def _take_found(self, brief: Brief | None, found: Found) -> bool:
        from gpuwatch.core.store import GAP_INTERVALS
        from gpuwatch.diagnosis.engine import LONGEST_STEP_SECONDS
        from gpuwatch.diagnosis.finding import WINDOW_SECONDS, Diagnosis

        before = self._brief
        if brief is None or brief is before:
            return False
        self._brief = brief
        if before is not None:
            passed = brief.taken_at_unix_seconds - before.taken_at_unix_seconds
            longest = max(LONGEST_STEP_SECONDS, GAP_INTERVALS * brief.interval_seconds)
            self._ledger.advance(max(0.0, min(passed, longest)))
        if found is self._found:
            return True
        findings = found.findings
        if self._found is not None and found.watched_seconds < WINDOW_SECONDS:
            # It was started anew, and finds again what still holds within the minute.
            again = {(one.rule, one.job, one.gpus) for one in findings}
            kept = [
                one for one in self._found.findings if (one.rule, one.job, one.gpus) not in again
            ]
            found = structs.replace(found, findings=(*findings, *kept))
        self._found = found
        self._ledger.add_diagnosis(
            Diagnosis(
                taken_at_unix_seconds=found.taken_at_unix_seconds,
                watched_seconds=found.watched_seconds,
                verdict="",
                findings=found.findings,
            )
        )
        return True

    @property
    def ledger(self) -> Ledger:
        tape = self.host.tape
        return self._ledger if self._brief is not None or tape is None else tape.ledger

    def snapshot(self) -> Snapshot:
        """Return the newest moment, with the name that the host was given and our time."""
        from gpuwatch.core.model import Gpu, GpuReading, Host, Job, Snapshot

        host, brief, found = self.host, self._brief, self._found
        if brief is None or found is None:
            assert self._judged is not None
            latest = self._judged[0]
        else:
            latest = Snapshot(
                sequence=0,
                taken_at_unix_seconds=brief.taken_at_unix_seconds,
                monotonic_seconds=brief.taken_at_unix_seconds,
                interval_seconds=brief.interval_seconds,
                simulated=brief.simulated,
                host=Host(name=host.name),
                gpus=tuple([Gpu(identity=one, reading=GpuReading()) for one in found.gpus]),
                jobs=tuple([Job(**structs.asdict(one)) for one in found.jobs]),
                problems=() if brief.problem is None else (brief.problem,),
            )
        at = latest.taken_at_unix_seconds - host.clock_error_seconds
        named = replace(latest.host, name=host.name)
        return replace(latest, host=named, taken_at_unix_seconds=at)


# How events leave: a command that is run, a webhook. Each has a thread of its own, so that what
# hangs never holds up the watching.

COMMAND_SECONDS = 30.0
OUTPUT_BYTES = 10_000
"""Output of a command that is shown for one event; a log would fill up with more."""
_OUTPUT_SECONDS = 1.0
ANSWER_SECONDS = 10.0
AGAIN_AFTER_SECONDS = (1.0, 4.0, 16.0)
"""A webhook that cannot be reached, is overloaded or broken is tried so often again."""
WAITING_MOST = 32
FINISH_SECONDS = 60.0
_ADDRESS = re.compile(
    r"(https?://(?:[\w.-]+|\[[\da-f:.]+\])(?::\d{1,5})?)(?:[/?][!-~]*)?", re.A | re.I
)


class Delivery:
    """Takes events, one after the other; what goes wrong is a sentence on standard error."""

    def __init__(self, name: str) -> None:
        self._name = name
        self._worker = DaemonWorker("gpuwatch-delivery")
        self._waiting = 0

    def give(self, event: Event) -> None:
        if self._waiting < WAITING_MOST:
            self._waiting += 1
            self._worker.submit(partial(self._give, event))
        else:
            complain(f"{self._name} missed an event: {WAITING_MOST} are already waiting.")

    def _give(self, event: Event) -> None:
        try:
            why = self.send(event, dumps(event, indent=None).encode() + b"\n")
        except Exception as error:
            why = getattr(error, "strerror", None) or type(error).__name__
        self._waiting -= 1
        if why is not None:
            complain(f"{self._name} failed: {why}.")

    def send(self, event: Event, data: bytes) -> str | None:
        """Send one event; returns why it failed, if it did."""
        raise NotImplementedError

    def finish(self) -> None:
        """Wait until all have been sent, for a minute at most."""
        if not self._worker.submit(int).wait(FINISH_SECONDS):
            complain(f"{self._name} was not waited for: {self._waiting} events were not delivered.")


class Command(Delivery):
    """Run for each event. What it prints first goes to standard error. Raises
    ``click.UsageError``."""

    def __init__(self, text: str, *, shell: bool, seconds: float = COMMAND_SECONDS) -> None:
        try:
            words = shlex.split(text)
        except ValueError as error:
            raise click.UsageError(f"--on-finding cannot be split into words: {error}.") from None
        name = clean(" ".join(words[:1]), 100)
        if not words or not (shell or shutil.which(words[0])):
            raise click.UsageError(f"There is no command {name!r}: name a program, or add --shell.")
        super().__init__("the shell" if shell else name)
        self._arguments = ["/bin/sh", "-c", text] if shell else words
        self._seconds = seconds
        self._process: subprocess.Popen[bytes] | None = None
        self._stopped = False

    def send(self, event: Event, data: bytes) -> str | None:
        if self._stopped:
            return None
        one = event.finding
        words = {"EVENT": event.event, "RULE": one.rule, "SEVERITY": one.severity}
        # A pipe would have somebody wait until all is read.
        with os.fdopen(os.memfd_create("event"), "w+b") as given:
            given.write(data)
            given.seek(0)
            self._process = process = subprocess.Popen(
                self._arguments,
                stdin=given,
                stdout=subprocess.PIPE,
                stderr=subprocess.STDOUT,
                env=os.environ | {f"GPUWATCH_{name}": word for name, word in words.items()},
                start_new_session=True,
            )
        # What it has started may print for longer than it runs itself.
        printing = DaemonWorker("gpuwatch-command-output")
        shown = printing.submit(partial(self._show, cast("IO[bytes]", process.stdout)))
        printing.stop()
        try:
            code = process.wait(0.0 if self._stopped else self._seconds)
        except subprocess.TimeoutExpired:
            self._kill()
            process.wait()
            return f"it took over {self._seconds:g} s and was ended"
        finally:
            shown.wait(_OUTPUT_SECONDS)
        return units.exit_words(code) if code and not self._stopped else None

    def _show(self, printed: IO[bytes]) -> None:
        """Copy the beginning of what a command prints to standard error, and read the rest."""
        left = OUTPUT_BYTES
        with printed:
            while part := os.read(printed.fileno(), 65_536):
                with contextlib.suppress(OSError):
                    os.write(2, part[:left])
                if 0 < left < len(part):
                    complain(f"{self._name} printed more than {OUTPUT_BYTES:,} bytes: cut here.")
                left = max(0, left - len(part))

    def stop(self) -> None:
        """Start no more, and end the one that runs."""
        self._stopped = True
        self._kill()

    def _kill(self) -> None:
        """Kill a command with all processes that it started."""
        if self._process is not None and self._process.poll() is None:
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self._process.pid, signal.SIGKILL)


class Webhook(Delivery):
    """Gets each event by POST. Of its address, which may be a secret, only the host is ever shown.
    Raises ``click.UsageError``."""

    def __init__(self, url: str, pause: Callable[[float], None] = time.sleep) -> None:
        found = _ADDRESS.fullmatch(url)
        if found is None:
            raise click.UsageError(
                "--webhook takes an address such as https://host/path, without a user name."
            )
        super().__init__(found[1])
        self._url, self._pause = url, pause
        memory_trim.load_encryption()
        from urllib import request

        # Nothing here follows to another address.
        self._opener = request.OpenerDirector()
        for handler in (request.ProxyHandler(), *_cutting_handlers(self._opened)):
            self._opener.add_handler(handler)
        self._connection: socket.socket | None = None

    def _opened(self, connection: socket.socket) -> None:
        # Encryption takes the socket over, but not its duplicate.
        self._connection = connection.dup()

    @contextlib.contextmanager
    def _limited(self) -> Iterator[Flag]:
        """End what is inside after so many seconds in all, by cutting its connection: the time
        limit of a socket begins anew with each byte. The flag is set then."""
        over = Flag()

        def cut() -> None:
            over.set()
            if self._connection is not None:
                with contextlib.suppress(OSError):
                    self._connection.shutdown(socket.SHUT_RDWR)

        timer = Timer(ANSWER_SECONDS, cut)
        timer.daemon = True
        timer.start()
        try:
            yield over
        finally:
            timer.cancel()
            timer.join()
            if self._connection is not None:
                self._connection.close()
                self._connection = None

    def send(self, event: Event, data: bytes) -> str | None:
        from http.client import HTTPException
        from urllib.request import Request

        del event
        headers = {"Content-Type": "application/json", "User-Agent": f"gpuwatch/{__version__}"}
        why = None
        for wait in (0.0, *AGAIN_AFTER_SECONDS):
            self._pause(wait)
            with self._limited() as over:
                try:
                    request = Request(self._url, data, headers)
                    with self._opener.open(request, timeout=ANSWER_SECONDS) as answer:
                        code = answer.status
                    if over.is_set():
                        raise TimeoutError
                    why = f"it answered {code}"
                    if code < 500 and code != 429:
                        return why if code >= 300 else None
                except (OSError, ValueError, HTTPException) as error:
                    reason = getattr(error, "reason", error)
                    late = over.is_set() or isinstance(reason, TimeoutError)
                    known = getattr(reason, "strerror", None) or "no answer"
                    why = "it is too slow" if late else known
        return why


def _cutting_handlers(opened: Callable[[socket.socket], None]) -> tuple[BaseHandler, ...]:
    """Return handlers of http and https addresses that tell ``opened`` of each socket, before
    anything comes in over it."""
    from http.client import HTTPConnection, HTTPSConnection
    from urllib.request import HTTPHandler, HTTPSHandler

    class Told:
        _socket: socket.socket | None = None

        @property
        def sock(self) -> socket.socket | None:
            return self._socket

        @sock.setter
        def sock(self, made: socket.socket | None) -> None:
            if made is not None and self._socket is None:
                opened(made)
            self._socket = made

    class Plain(Told, HTTPConnection):
        """Connection without encryption."""

    class Encrypted(Told, HTTPSConnection):
        """Connection with encryption."""

    class PlainHandler(HTTPHandler):
        def http_open(self, request: Request) -> HTTPResponse:
            return self.do_open(Plain, request)

    class EncryptedHandler(HTTPSHandler):
        def https_open(self, request: Request) -> HTTPResponse:
            return self.do_open(Encrypted, request)

    return PlainHandler(), EncryptedHandler()
