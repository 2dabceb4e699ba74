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
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path
from select import select
from typing import Any

import psutil

from gpuwatch.core.text import SentenceError, clean
from gpuwatch.jobs.run.trees import family, kill_all
from gpuwatch.tuning import failures
from gpuwatch.tuning.failures import STACKS_SIGNAL
from gpuwatch.tuning.records import (
    Answer,
    Channel,
    ClosedError,
    Failure,
    MemoryPoint,
    Order,
    Start,
    Visit,
)

LOAD_SECONDS = 300.0
LOOK_SECONDS = 10.0
"""How often to look at a target that is being imported."""
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


class BenchError(SentenceError):
    """Nothing can be measured. ``output``: the last lines that the user's code printed."""

    def __init__(self, sentence: str, output: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.output = output


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
        self._channel: Channel | None = None

    # --- start and end -----------------------------------------------------------------------

    def open(self) -> Answer:
        """Start a measuring process and import the target in it; return what it is. Raises
        ``BenchError``."""
        self.close()
        self._output.clear()
        self._channel, its = Channel.pair()
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
            self._channel.send(start)
            return self._loaded()
        except ClosedError:
            sentence = self._ended_while_loading()
        self.close()
        raise BenchError(sentence, failures.output_lines(self.output()))

    def close(self) -> None:
        """End the measuring process and everything that it started."""
        if self.process is None or self._channel is None:
            return
        self._channel.close()
        pid = self.process.pid
        kill_all(lambda one, found: pid in (one, found.session))
        self.process.wait()
        self._drain()
        assert self.process.stdout is not None
        self.process.stdout.close()
        self.process = self._channel = None

    def _loaded(self) -> Answer:
        """Raises ``BenchError``, and ``ClosedError`` where the process ended by itself."""
        deadline = time.monotonic() + LOAD_SECONDS
        look, noticed = LOAD_SECONDS, False
        while True:
            heard = self._hear(max(0.0, min(look, deadline - time.monotonic())))
            if heard is None:
                over = time.monotonic() >= deadline
                if not over and noticed:
                    continue
                assert self.process is not None
                line = failures.line_in(self._stacks([self.process.pid]))
                if over:
                    self.close()
                    raise BenchError(
                        f"{self._shown} was not imported within {self.load_seconds:.0f} s"
                        f"{f': it is at {line}' if line else ''}. What trains belongs "
                        f"{_UNDER_MAIN}.",
                        failures.output_lines(self.output()),
                    )
                noticed = True
                self.notice(
                    f"{self._shown} is still being imported{f', and is at {line}' if line else ''}."
                    f" If it is training, press Ctrl-C and put what trains {_UNDER_MAIN}."
                )
            elif heard.kind == "alive":
                # PyTorch is there; from now on it is the user's own code.
                look, deadline = LOOK_SECONDS, time.monotonic() + self.load_seconds
            elif heard.failure is not None:
                self.close()
                raise BenchError(heard.failure.sentence, failures.output_lines(self.output()))
            else:
                return heard

    def _ended_while_loading(self) -> str:
        assert self.process is not None
        code = self.process.wait()
        line = failures.crashed_at(self.output())
        how = "ended by itself (os._exit)"
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        return f"The process that imported {self._shown} {how}{f' at {line}' if line else ''}."

    # --- measuring ---------------------------------------------------------------------------

    def visit(self, order: Order) -> Visit | Failure:
        """Measure one setting. Raises ``BenchError`` where the target can no longer be imported."""
        answer = self._ask(order)
        if isinstance(answer, Failure):
            return answer
        assert answer.visit is not None
        return answer.visit

    def measure_memory(
        self, batch_size: int, precision: str, *, limit_bytes: int | None = None
    ) -> MemoryPoint:
        """Run steps at one batch size in a process of its own. Raises ``MeasureError``."""
        on_cpu = self.device is None
        self.open()
        answer = self._ask(
            Order(
                what="memory",
                batch_size=batch_size,
                precision=precision,
                on_cpu=on_cpu,
                limit_bytes=limit_bytes,
            )
        )
        self.close()
        if isinstance(answer, Failure):
            raise failures.of_memory(answer, on_cpu=on_cpu)
        assert answer.point is not None
        return answer.point

    def _ask(self, order: Order) -> Answer | Failure:
        if self.process is None:
            self.open()
        assert self.process is not None
        assert self._channel is not None
        self._output.clear()
        killed_before = _killed_for_memory()
        try:
            self._channel.send(order)
            heard = self._hear(self.patience_seconds)
            while heard is not None and heard.kind == "alive":
                heard = self._hear(self.patience_seconds)
        except ClosedError:
            status = self.process.wait()
            self.close()
            failure = failures.from_exit_code(status, self.output())
        else:
            if heard is None:
                failure = failures.hung(
                    self.patience_seconds,
                    self._stacks(self._workers() or [self.process.pid]),
                    of_step=order.what == "memory",
                )
                self.close()
            elif heard.failure is None:
                return heard
            else:
                failure = heard.failure
                # Whatever it left behind, the next setting begins without.
                self.close()
        out_of_memory = _killed_for_memory() > killed_before
        return failures.completed(failure, self.output(), out_of_memory=out_of_memory)

    def _workers(self) -> list[int]:
        assert self.process is not None
        pid = self.process.pid
        return [one for one in family(lambda one, _found: one == pid) if one != pid]

    # --- what comes back ---------------------------------------------------------------------

    def _hear(self, patience: float) -> Answer | None:
        """Return the next message; ``None``: none came in time. Raises ``ClosedError``."""
        assert self.process is not None
        assert self._channel is not None
        deadline = time.monotonic() + patience
        watched: list[Any] = [self._channel, self.process.stdout]
        while True:
            self.tick()
            ready, _, _ = select(watched, [], [], _TICK_SECONDS)
            if self.process.stdout in ready and not self._drain():
                watched = [self._channel]
            if self._channel in ready:
                return self._channel.receive(Answer)
            if self.process.poll() is not None:
                # Its last message may have come since.
                if select([self._channel], [], [], 0)[0]:
                    return self._channel.receive(Answer)
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
        """Return what the user's code printed since the last order."""
        self._drain()
        return self._output.decode("utf-8", "replace")

    def _stacks(self, pids: list[int]) -> str:
        """Return where processes are, as faulthandler prints it: one after the other, since two
        that write at a time write into each other's lines, until one is at the user's own."""
        self._drain()
        before = len(self._output)

        def written() -> str:
            self._drain()
            return self._output[min(before, len(self._output)) :].decode("utf-8", "replace")

        asked, stacks = 0, ""
        for pid in pids:
            with contextlib.suppress(OSError):
                if _catches(pid, STACKS_SIGNAL):
                    os.kill(pid, STACKS_SIGNAL)
                    asked += 1
                    stacks = failures.await_stacks(written, asked)
            if failures.line_in(stacks):
                break
        # They are no words of the user's own.
        del self._output[before:]
        return stacks


def _catches(pid: int, number: int) -> bool:
    """Return whether a process handles a signal and is not ended by it (proc(5): SigCgt)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/status").read_text()
        mask = int(text.split("SigCgt:")[1].split()[0], 16)
        return bool(mask >> (number - 1) & 1)
    return False


def _killed_for_memory() -> int:
    """How many processes the kernel has killed for memory on this machine (Linux 4.13)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(psutil.PROCFS_PATH, "vmstat").read_text().split("oom_kill ")[1].split()[0])
    return 0
