"""Has settings and steps measured, each in a process of its own, and survives whatever happens.

The process that a person types at imports neither torch nor the user's module: a host process
does (``child.host``), and forks a measuring process for each measurement. Both print into a pipe
that is read here and shown only where something fails. A measurement that goes silent is ended
with all its workers.
"""

import contextlib
import signal
import time
from collections.abc import Callable
from dataclasses import KW_ONLY, dataclass
from pathlib import Path

import psutil

from gpuwatch.core.text import SentenceError, clean
from gpuwatch.tuning import failures, processes
from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.host_process import HostProcess
from gpuwatch.tuning.memory import MemoryPoint
from gpuwatch.tuning.messages import Answer, ClosedError, Order, Start
from gpuwatch.tuning.settings import Description, Failure, Visit

LOAD_SECONDS = 300.0
LOOK_SECONDS = 10.0
"""How often to look at a target that is being imported."""
END_SECONDS = 10.0
ABORT_SECONDS = 30.0
_UNDER_MAIN = "under if __name__ == '__main__':"


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
    patience_seconds: float = 60.0
    load_seconds: float = LOAD_SECONDS
    look_seconds: float = LOOK_SECONDS
    tick: Callable[[], None] = lambda: None
    notice: Callable[[str], None] = lambda _sentence: None
    host: HostProcess | None = None
    reloads_because: str | None = None
    """Why each measurement imports the target anew; ``None``: it need not."""

    def __post_init__(self) -> None:
        self._start = Start(target=self.target, step=self.step, batch_size=self.batch_size)
        self._shown = clean(self.target or self.step or "", 200)

    # --- start and end -----------------------------------------------------------------------

    def open(self) -> Description | None:
        """Import the target; what it is, ``None`` where only a step was named. Raises
        ``BenchError``."""
        loaded = self._load()
        if loaded.unsafe is not None:
            self.reloads_because = loaded.unsafe
            self._start.load_first = False
            self.close()
            self._load()
        return loaded.description

    def close(self) -> None:
        host, self.host = self.host, None
        if host is not None:
            host.close()

    def _load(self) -> Answer:
        """Raises ``BenchError``."""
        # Not bound to the tick of this moment.
        host = self.host = HostProcess(self._start, lambda: self.tick())  # noqa: PLW0108
        deadline = time.monotonic() + LOAD_SECONDS
        look, noticed = LOAD_SECONDS, False
        while True:
            try:
                heard = host.hear(max(0.0, min(look, deadline - time.monotonic())))
            except ClosedError:
                raise BenchError(self._ended_while_loading(host), _printed(host)) from None
            if heard is None:
                over = time.monotonic() >= deadline
                if not over and noticed:
                    continue
                line = failures.line_in(host.stacks([host.pid]))
                if over:
                    host.kill()
                    raise BenchError(
                        f"{self._shown} was not imported within {self.load_seconds:.0f} s"
                        f"{f': it is at {line}' if line else ''}. What trains belongs "
                        f"{_UNDER_MAIN}.",
                        _printed(host),
                    )
                noticed = True
                self.notice(
                    f"{self._shown} is still being imported{f', and is at {line}' if line else ''}."
                    f" If it is training, press Ctrl-C and put what trains {_UNDER_MAIN}."
                )
            elif heard.kind == "alive":
                # PyTorch is there; from now on it is the user's own code.
                look, deadline = self.look_seconds, time.monotonic() + self.load_seconds
            elif heard.failure is not None:
                raise BenchError(heard.failure.sentence, _printed(host))
            else:
                host.loading = False
                return heard

    def _ended_while_loading(self, host: HostProcess) -> str:
        code = host.wait()
        line = failures.crashed_at(host.output())
        how = "ended by itself (os._exit)"
        if code < 0:
            how = f"was killed by {signal.Signals(-code).name}"
        return f"The process that imported {self._shown} {how}{f' at {line}' if line else ''}."

    # --- measuring ---------------------------------------------------------------------------

    def visit(self, order: Order) -> Visit | Failure:
        answer = self.ask(order)
        if isinstance(answer, Failure):
            return answer
        assert answer.visit is not None
        return answer.visit

    def list_gpus(self) -> Answer:
        """The devices that torch can measure on. Raises ``MeasureError``."""
        answer = self.ask(Order(what="gpus"))
        if isinstance(answer, Failure):
            raise MeasureError(answer.sentence)
        return answer

    def measure_memory(
        self, batch_size: int, precision: str, *, device: int | None, limit_bytes: int | None
    ) -> MemoryPoint:
        """Steps at one batch size. ``device``: a CUDA device as torch numbers it; ``None``: the
        CPU. Raises ``MeasureError``."""
        order = Order(
            what="memory",
            batch_size=batch_size,
            precision=precision,
            device=device,
            limit_bytes=limit_bytes,
        )
        answer = self.ask(order)
        if isinstance(answer, Failure):
            raise failures.of_memory(answer, on_cpu=device is None)
        assert answer.point is not None
        return answer.point

    def ask(self, order: Order) -> Answer | Failure:
        """Have something measured. Raises ``BenchError`` where the target can no longer be
        imported."""
        if self.host is None:
            self._load()
        host = self.host
        assert host is not None
        host.forget_output()
        killed_before = _killed_for_memory()
        try:
            host.send(order)
            answer = self._answer(host, order)
        except ClosedError:
            # The host was killed, with it what it measured.
            self.close()
            return Failure(
                code="killed",
                sentence="The measuring processes were killed from outside, or for memory.",
            )
        if isinstance(answer, Answer):
            return answer
        out_of_memory = _killed_for_memory() > killed_before
        return failures.completed(answer, host.output(), out_of_memory=out_of_memory)

    def _answer(self, host: HostProcess, order: Order) -> Answer | Failure:
        """From a measuring process, or why it says nothing. Raises ``ClosedError``."""
        found: Answer | Failure | None = None
        aborted = False
        patience = self.patience_seconds
        if order.what == "memory" or not self._start.load_first:
            # An import, a batch and a model are made before it says that it is alive.
            patience += self.load_seconds
        while True:
            heard = host.hear(patience)
            if heard is None:
                if aborted:
                    raise ClosedError
                aborted = True
                found = found or self._hung(host, order)
                host.send(Order(what="abort"))
                patience = ABORT_SECONDS
            elif heard.kind == "started":
                host.session = heard.pid
            elif heard.kind == "alive":
                patience = self.patience_seconds
            elif heard.kind == "ended":
                host.session = None
                return found or failures.from_status(heard.status, host.output())
            else:
                # Its workers have this long to end in their own way.
                found, patience = found or heard.failure or heard, END_SECONDS

    def _hung(self, host: HostProcess, order: Order) -> Failure:
        stacks = ""
        if host.session is not None:
            workers = [pid for pid in processes.of_session(host.session) if pid != host.session]
            stacks = host.stacks(workers or [host.session])
        return failures.hung(self.patience_seconds, stacks, of_step=order.what == "memory")


def _printed(host: HostProcess) -> tuple[str, ...]:
    return failures.output_lines(host.output())


def _killed_for_memory() -> int:
    """How many processes the kernel has killed for memory on this machine (Linux 4.13)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        return int(Path(psutil.PROCFS_PATH, "vmstat").read_text().split("oom_kill ")[1].split()[0])
    return 0
