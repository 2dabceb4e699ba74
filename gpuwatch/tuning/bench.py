"""Has settings and steps measured in a process beside this one, and survives all it does.

The measuring process prints into a pipe that is read here and shown only where something fails. One
that goes silent is ended with all its workers, and the next measurement starts another.
"""

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from dataclasses import KW_ONLY, dataclass
from multiprocessing import Pipe
from multiprocessing.connection import Connection
from pathlib import Path
from select import select
from typing import Any

from gpuwatch.core.text import clean
from gpuwatch.jobs.run.trees import kill_all, tree_of
from gpuwatch.tuning import failures
from gpuwatch.tuning.failures import STACKS_SIGNAL, MeasureError
from gpuwatch.tuning.records import (
    Answer,
    ClosedError,
    Failure,
    MemoryOrder,
    MemoryPoint,
    Order,
    Request,
    Start,
    Visit,
    receive,
    send,
)

LOAD_SECONDS = 300.0
LOOK_SECONDS = 10.0
"""A target that is being imported for longer is mentioned."""
STACK_SECONDS = 5.0
"""At most, until a process that is stuck has written where it is: on a machine whose cores are
all taken it is woken late."""
OUTPUT_KEPT = 64 * 1024
_TICK_SECONDS = 0.25
_UNDER_MAIN = "under if __name__ == '__main__':"
# This very gpuwatch and no other that is installed; of what lies beside it, nothing comes before
# the user's own.
_BOOT = (
    "import sys; p = sys.argv[2]; sys.path[:1] = [p]; import gpuwatch; sys.path[:1] = []; "
    "sys.path[len(sys.path):] = [] if p in sys.path else [p]; "
    "from gpuwatch.tuning.child import main; main(int(sys.argv[1]))"
)


@dataclass
class Bench:
    """Measures a loader, a step or both. ``tick`` is called while it waits, a few times a second.

    ``patience_seconds``: how long a batch (or the steps at one batch size) may take before it
    counts as hung. ``notice`` is given a sentence where the target takes long to import.
    """

    target: str | None
    _: KW_ONLY
    batch_size: int | None = None
    step: str | None = None
    device: int | None = None
    patience_seconds: float = 60.0
    load_seconds: float = LOAD_SECONDS
    tick: Callable[[], None] = lambda: None
    notice: Callable[[str], None] = lambda _sentence: None

    def __post_init__(self) -> None:
        self._shown = clean(self.target or self.step or "", 200)
        self._output = bytearray()
        self.process: subprocess.Popen[bytes] | None = None
        self._connection: Connection | None = None

    # --- start and end -----------------------------------------------------------------------

    def open(self) -> Answer:
        """Start a measuring process and import the target in it; return what it is. Raises
        ``MeasureError``."""
        self.close()
        self._output.clear()
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
        start = Start(
            target=self.target, step=self.step, batch_size=self.batch_size, device=self.device
        )
        try:
            send(self._connection, start)
            answer = self._loaded()
        except ClosedError:
            sentence = self._ended_while_loading()
        else:
            if answer.failure is None:
                return answer
            sentence = answer.failure.sentence
        self.close()
        raise MeasureError(sentence, output=failures.output_lines(self.output()))

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

    def _loaded(self) -> Answer:
        """Raises ``ClosedError`` where the process ended by itself."""
        assert self.process is not None
        heard = self._hear(LOAD_SECONDS)
        if heard is not None and heard.kind == "alive":
            # PyTorch is there; from now on it is the user's own code.
            heard = self._hear(min(LOOK_SECONDS, self.load_seconds))
            if heard is None and self.load_seconds > LOOK_SECONDS:
                line = self._stuck_at([self.process.pid])
                self.notice(
                    f"{self._shown} is still being imported{f', and is at {line}' if line else ''}."
                    f" If it is training, press Ctrl-C and put what trains {_UNDER_MAIN}."
                )
                heard = self._hear(self.load_seconds - LOOK_SECONDS)
        if heard is not None:
            return heard
        line = self._stuck_at([self.process.pid])
        sentence = (
            f"{self._shown} was not imported within {self.load_seconds:.0f} s"
            f"{f': it is at {line}' if line else ''}. What trains belongs {_UNDER_MAIN}."
        )
        return Answer(kind="failed", failure=Failure(code="hang", sentence=sentence))

    def _ended_while_loading(self) -> str:
        assert self.process is not None
        code = self.process.wait()
        how = "ended by itself (os._exit)"
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        at = failures.at(failures.crashed_at(self.output()))
        return f"The process that imported {self._shown} {how}{at}."

    # --- measuring ---------------------------------------------------------------------------

    def visit(self, order: Order) -> Visit | Failure:
        """Measure one setting. Raises ``MeasureError`` where the target can no longer be
        imported."""
        answer = self._ask(Request(visit=order), "A batch")
        if answer.failure is not None:
            return answer.failure
        assert answer.visit is not None
        return answer.visit

    def measure_memory(
        self, batch_size: int, precision: str | None = None, *, limit_bytes: int | None = None
    ) -> MemoryPoint:
        """Run steps at one batch size in a process of its own. Raises ``MeasureError``, with the
        code ``no_memory`` where memory ran out."""
        on_cpu = self.device is None
        self.open()
        order = MemoryOrder(
            batch_size=batch_size, precision=precision, on_cpu=on_cpu, limit_bytes=limit_bytes
        )
        answer = self._ask(Request(memory=order), "The steps")
        self.close()
        failure = answer.failure
        if failure is not None:
            # The kernel ends a step where memory runs out faster than an exception can be raised;
            # on a GPU it is the host's memory that ran out.
            ended = on_cpu and failure.code == "killed" and "SIGKILL" in failure.sentence
            raise MeasureError(failure.sentence, "no_memory" if ended else failure.code)
        assert answer.point is not None
        return answer.point

    def _ask(self, request: Request, doing: str) -> Answer:
        if self.process is None:
            self.open()
        assert self.process is not None
        assert self._connection is not None
        self._output.clear()
        try:
            send(self._connection, request)
            heard = self._hear(self.patience_seconds)
            while heard is not None and heard.kind == "alive":
                heard = self._hear(self.patience_seconds)
        except ClosedError:
            status = self.process.wait()
            self.close()
            failure = failures.from_exit_code(status, self.output())
        else:
            if heard is None:
                workers = sorted(tree_of(self.process.pid).keys() - {self.process.pid})
                line = self._stuck_at([*workers, self.process.pid])
                failure = failures.hung(doing, self.patience_seconds, line)
            elif heard.failure is None:
                return heard
            else:
                failure = heard.failure
            # Whatever it left behind, the next setting begins without.
            self.close()
        return Answer(kind="failed", failure=failures.completed(failure, self.output()))

    # --- what comes back ---------------------------------------------------------------------

    def _hear(self, patience: float) -> Answer | None:
        """Return the next message; ``None``: none came in time. Raises ``ClosedError``."""
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
                return receive(self._connection, Answer)
            if ended:
                raise ClosedError
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

    def _stuck_at(self, pids: Sequence[int]) -> str | None:
        """Return the user's own line that one of the processes is at, as faulthandler prints it:
        one after the other, since two that write at a time write into each other's lines."""
        before, line = self.output(), None
        for pid in pids:
            if line is not None or not _catches(pid, STACKS_SIGNAL):
                continue
            begun, seen = self.output(), None
            with contextlib.suppress(OSError):
                os.kill(pid, STACKS_SIGNAL)
            deadline = time.monotonic() + STACK_SECONDS
            # Until something has come, and nothing more does.
            while time.monotonic() < deadline and (seen in (None, begun) or seen != self.output()):
                seen = self.output()
                time.sleep(0.05)
            line = failures.line_in(self.output().removeprefix(begun))
        # The stacks are no words of the user's own.
        self._output[:] = before.encode()
        return line


def _catches(pid: int, number: int) -> bool:
    """Return whether a process handles a signal and is not ended by it (proc(5): SigCgt)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/status").read_text()
        mask = int(text.split("SigCgt:")[1].split()[0], 16)
        return bool(mask >> (number - 1) & 1)
    return False
