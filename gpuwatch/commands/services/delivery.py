"""How events leave: a command that is run, a webhook. Each has a thread of its own, so that what
hangs never holds up the watching.
"""

from __future__ import annotations

import os
import re
import shlex
import shutil
import signal
import subprocess
import time
from collections.abc import Callable
from contextlib import suppress
from functools import partial

import click

from gpuwatch import __version__
from gpuwatch.commands.printing import complain
from gpuwatch.core.background import DaemonWorker
from gpuwatch.core.memory_trim import load_encryption
from gpuwatch.core.text import clean
from gpuwatch.core.units import exit_words
from gpuwatch.outputs.alerts import Event
from gpuwatch.outputs.report.model import dumps

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
        """Why it failed, if it did."""
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
        return exit_words(code) if code and not self._stopped else None

    def stop(self) -> None:
        """Start no more, and end the one that runs."""
        self._stopped = True
        self._kill()

    def _kill(self) -> None:
        """With all that it started."""
        if self._process is not None and self._process.poll() is None:
            with suppress(ProcessLookupError):
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
        load_encryption()
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
