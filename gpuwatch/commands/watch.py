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
import subprocess
import time
from collections import defaultdict
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TYPE_CHECKING, Any

import click

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

    from gpuwatch.commands.options import Remote, Watched
    from gpuwatch.core.model import Snapshot
    from gpuwatch.diagnosis.finding import Diagnosis
    from gpuwatch.diagnosis.ledger import Episode, Ledger
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

    hosts = remote.open() if remote else []
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
    """Have ``judge`` look at what comes in from each, by the name it was given, until it says that
    it is enough. Closes ``hosts``."""
    for host in hosts:
        # Nobody looks back.
        host.kept_seconds = 300.0
        host.read_in_full(judge)
        host.start()
    judged: dict[str, tuple[Snapshot, Diagnosis]] = {}
    silent: set[str] = set()
    try:
        while True:
            for host in hosts:
                name, latest, why = host.name, host.latest, host.silence
                if why is not None and name not in silent:
                    silent.add(name)
                    complain(f"{name} is not watched: {why.rstrip('.')}.")
                found = None if host.tape is None else host.tape.diagnosis
                before = judged.get(name)
                if why or latest is None or found is None or before == (latest, found):
                    continue
                if name in silent:
                    silent.remove(name)
                    complain(f"{name} is back.")
                elif before is None and host.gpu_only:
                    complain(f"{name} has no gpuwatch: only nvidia-smi is read there.")
                judged[name] = latest, found
                at = latest.taken_at_unix_seconds - host.clock_error_seconds
                named = replace(latest.host, name=name)
                timed = replace(latest, host=named, taken_at_unix_seconds=at)
                if host.tape is not None and judge(timed, host.tape.ledger, f"{name}: "):
                    return
            time.sleep(hosts[0].interval_seconds / 4)
    finally:
        for host in hosts:
            host.leave()
        for host in hosts:
            host.close()


# How events leave: a command that is run, a webhook. Each has a thread of its own, so that what
# hangs never holds up the watching.

COMMAND_SECONDS = 30.0
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
    """Run for each event. What it prints goes to standard error. Raises ``click.UsageError``."""

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
                stdout=2,
                env=os.environ | {f"GPUWATCH_{name}": word for name, word in words.items()},
                start_new_session=True,
            )
        try:
            code = process.wait(0.0 if self._stopped else self._seconds)
        except subprocess.TimeoutExpired:
            self._kill()
            process.wait()
            return f"it took over {self._seconds:g} s and was ended"
        return units.exit_words(code) if code and not self._stopped else None

    def stop(self) -> None:
        """Start no more, and end the one that runs."""
        self._stopped = True
        self._kill()

    def _kill(self) -> None:
        """With all that it started."""
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
        for handler in (request.ProxyHandler, request.HTTPHandler, request.HTTPSHandler):
            self._opener.add_handler(handler())

    def send(self, event: Event, data: bytes) -> str | None:
        from http.client import HTTPException
        from urllib.request import Request

        del event
        headers = {"Content-Type": "application/json", "User-Agent": f"gpuwatch/{__version__}"}
        why = None
        for wait in (0.0, *AGAIN_AFTER_SECONDS):
            self._pause(wait)
            try:
                request = Request(self._url, data, headers)
                with self._opener.open(request, timeout=ANSWER_SECONDS) as answer:
                    code = answer.status
                why = f"it answered {code}"
                if code < 500 and code != 429:
                    return why if code >= 300 else None
            except (OSError, ValueError, HTTPException) as error:
                reason = getattr(error, "reason", error)
                late = isinstance(reason, TimeoutError)
                why = "it is too slow" if late else getattr(reason, "strerror", None) or "no answer"
        return why
