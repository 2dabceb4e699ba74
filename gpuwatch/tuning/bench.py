"""Has settings and steps measured in a process beside this one, and survives all it does.

The measuring process prints into a pipe that is read here and shown only where something fails. One
that goes silent is ended with all its workers, and the next measurement starts another.
"""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from select import select
from typing import Any

from gpuwatch.core import units
from gpuwatch.core.text import clean
from gpuwatch.jobs.run.trees import kill_all, tree_of
from gpuwatch.tuning import failures
from gpuwatch.tuning.failures import STACKS_SIGNAL, MeasureError
from gpuwatch.tuning.records import Failure, Loaded, MemoryPoint, Order, Visit
from gpuwatch.tuning.target import UNDER_MAIN

LOAD_SECONDS = 300.0
STACK_SECONDS = 1.0
"""Longest wait for a stuck process to write where it is."""
OUTPUT_KEPT = 64 * 1024
_TICK_SECONDS = 0.25
# This very gpuwatch and no other that is installed; of what lies beside it, nothing comes before
# the user's own.
_BOOT = (
    "import sys; p = sys.argv[2]; sys.path[:1] = [p]; import gpuwatch; sys.path[:1] = []; "
    "sys.path[len(sys.path):] = [] if p in sys.path else [p]; "
    "from gpuwatch.tuning.child import main; main(int(sys.argv[1]))"
)


class Bench:
    """Measures a loader, a step or both. ``tick`` is called while it waits, a few times a second.

    ``patience_seconds``: how long a batch (or the steps at one batch size) may take before it
    counts as hung.
    """

    def __init__(
        self,
        target: str | None,
        *,
        step: str | None = None,
        batch_size: int | None = None,
        patience_seconds: float = 60.0,
        tick: Callable[[], None] = lambda: None,
    ) -> None:
        self._target: dict[str, Any] = {"target": target, "step": step, "batch_size": batch_size}
        self._patience = patience_seconds
        self._output = bytearray()
        self._connection: Connection | None = None
        self.tick = tick
        self.process: subprocess.Popen[bytes] | None = None

    def open(self) -> Loaded:
        """Start a measuring process and import the target in it. Raises ``MeasureError``."""
        self.close()
        self._connection, its = Pipe()
        self.process = subprocess.Popen(
            [sys.executable, "-c", _BOOT, str(its.fileno()), str(Path(__file__).parents[2])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[its.fileno()],
            start_new_session=True,
        )
        its.close()
        assert self.process.stdout is not None
        os.set_blocking(self.process.stdout.fileno(), False)
        doing = f"The import of {clean(self._target['target'] or self._target['step'] or '', 200)}"
        found = self._ask("load", doing, LOAD_SECONDS, **self._target)
        if isinstance(found, Failure):
            says = found.sentence
            if found.code == "hang":
                says += f" What trains belongs {UNDER_MAIN}."
            raise MeasureError(says, output=found.output)
        loaded: Loaded = found
        return loaded

    def close(self) -> None:
        """End the measuring process and everything that it started."""
        if self.process is None or self._connection is None:
            return
        self._connection.close()
        pid = self.process.pid
        kill_all(lambda one, found: pid in (one, found.session))
        self.process.wait()
        self._drain()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = self._connection = None

    def visit(self, order: Order) -> Visit | Failure:
        """Measure one setting. Raises ``MeasureError`` where the target can no longer be
        imported."""
        if self.process is None:
            self.open()
        found: Visit | Failure = self._ask("visit", "A batch", self._patience, order=order)
        return found

    def measure_memory(
        self, batch_size: int, *, on_cpu: bool, limit_bytes: int | None = None
    ) -> MemoryPoint:
        """Run steps at one batch size in a process of its own. Raises ``MeasureError``, with the
        code ``no_memory`` where memory ran out."""
        self.open()
        request = {"batch_size": batch_size, "on_cpu": on_cpu, "limit_bytes": limit_bytes}
        found = self._ask("memory", "The steps", self._patience, **request)
        self.close()
        if isinstance(found, Failure):
            # The kernel ends a step where memory runs out faster than an exception can be raised;
            # on a GPU it is the host's memory that ran out.
            ended = on_cpu and found.code == "killed" and "SIGKILL" in found.sentence
            raise MeasureError(found.sentence, "no_memory" if ended else found.code)
        point: MemoryPoint = found
        return point

    # What is asked and what comes back

    def _ask(self, method: str, doing: str, patience: float, **arguments: object) -> Any:
        """Return what a method of ``child.Measuring`` does, or a ``Failure``: the process is ended
        then, so that whatever it left behind, the next setting begins without."""
        assert self.process is not None
        assert self._connection is not None
        self._output.clear()
        try:
            self._connection.send((method, arguments))
            found = self._hear(patience)
            while found == (None,):
                found = self._hear(patience)
        except (OSError, EOFError):
            status = self.process.wait()
            self._drain()
            failure = failures.from_exit_code(status, self.output())
        else:
            if found is not None and not isinstance(found[0], Failure):
                return found[0]
            failure = self._hung(doing, patience) if found is None else found[0]
        self.close()
        return failures.completed(failure, self.output())

    def _hear(self, patience: float) -> tuple[Any] | None:
        """Return the next message; ``None``: none came in time. Raises ``OSError`` or ``EOFError``
        where the process has ended."""
        assert self.process is not None
        assert self._connection is not None
        deadline = time.monotonic() + patience
        watched: list[Any] = [self._connection, self.process.stdout]
        while True:
            self.tick()
            ended = self.process.poll() is not None
            ready, _, _ = select(watched, [], [], 0 if ended else _TICK_SECONDS)
            if self.process.stdout in ready and not self._drain():
                watched = [self._connection]
            if self._connection in ready:
                return (self._connection.recv(),)
            if ended:
                raise EOFError
            if time.monotonic() >= deadline:
                return None

    def _drain(self) -> bool:
        """Take what was printed; ``False``: nobody can print any more."""
        if self.process is None or self.process.stdout is None or self.process.stdout.closed:
            return False
        while True:
            try:
                data = os.read(self.process.stdout.fileno(), 65536)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._output += data
            if len(self._output) > 2 * OUTPUT_KEPT:
                del self._output[:-OUTPUT_KEPT]

    def output(self) -> str:
        """Return what the user's code printed since the last request."""
        self._drain()
        return self._output.decode("utf-8", "replace")

    def _hung(self, doing: str, seconds: float) -> Failure:
        line = self._stuck_at()
        said = f"{doing} took longer than {units.age(seconds)}"
        said += f"; it was at {line}." if line else "."
        return Failure(code="hang", sentence=said, line=line)

    def _stuck_at(self) -> str | None:
        """Return the user's own line that a worker, or the process itself, is at, as faulthandler
        prints it: one after the other, since two that write at a time write into each other's
        lines."""
        assert self.process is not None
        before, line, own = self.output(), None, self.process.pid
        for pid in [*sorted(tree_of(own).keys() - {own}), own]:
            begun, deadline = len(self.output()), time.monotonic() + STACK_SECONDS
            with contextlib.suppress(OSError):
                os.kill(pid, STACKS_SIGNAL)
            while line is None and time.monotonic() < deadline:
                time.sleep(0.05)
                line = failures.line_in(self.output()[begun:])
            if line is not None:
                break
        # The stacks are no words of the user's own.
        self._output[:] = before.encode()
        return line
