"""Has settings measured, each in a process of its own, and survives whatever happens there.

The process that a person types at imports neither torch nor the user's module: a host process
does (``host``), and forks a measuring process for each visit. Both print into a pipe that is
read here and shown only where something fails. A visit that goes silent is ended with all its
workers.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from select import select
from typing import Any

from gpuwatch.core.text import clean
from gpuwatch.tuning.bench import failing, processes, usage
from gpuwatch.tuning.bench.channel import Channel, ClosedError
from gpuwatch.tuning.bench.crash import STACKS_SIGNAL
from gpuwatch.tuning.search.setting import Failure, Setting, Visit

# This very gpuwatch and no other that is installed; of what lies beside it, nothing comes before
# the user's own.
_BOOT = (
    "import sys; p = sys.argv[2]; sys.path[:1] = [p]; import gpuwatch; sys.path[:1] = []; "
    "sys.path[len(sys.path):] = [] if p in sys.path else [p]; "
    "from gpuwatch.tuning.child.host import main; main(int(sys.argv[1]))"
)
OUTPUT_KEPT = 64 * 1024
LOAD_SECONDS = 300.0
LOOK_SECONDS = 10.0
"""How often to look what a target does while it is imported."""
END_SECONDS = 10.0
ABORT_SECONDS = 30.0
_TICK = 0.25

Tick = Callable[[], None]
Notice = Callable[[str], None]


class BenchError(Exception):
    """Nothing can be measured; the message is a sentence for a person. ``output``: what the
    user's code printed last."""

    def __init__(self, sentence: str, output: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.output = output


class Bench:
    """Measures settings of one target. ``tick`` is called while it waits, a few times a second.

    ``patience_seconds``: how long a batch may take before it counts as hung. ``notice`` is given
    a sentence where the target takes long to import.
    """

    def __init__(
        self,
        target: str,
        *,
        batch_size: int | None = None,
        step: str | None = None,
        patience_seconds: float = 60.0,
        load_seconds: float = LOAD_SECONDS,
        look_seconds: float = LOOK_SECONDS,
        tick: Tick = lambda: None,
        notice: Notice = lambda _sentence: None,
    ) -> None:
        self._target = target
        self._batch_size = batch_size
        self._step = step
        self._patience = patience_seconds
        self._load_seconds = load_seconds
        self._look_seconds = look_seconds
        self.tick = tick
        self._notice = notice
        self._host: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._output = bytearray()
        self._load_first = True
        self._loading = False
        self._session: int | None = None
        self.description: dict[str, Any] = {}
        self.reloads_because: str | None = None
        """Why each measurement imports the target anew; ``None``: it need not."""

    # --- start and end -----------------------------------------------------------------------

    def open(self) -> dict[str, Any]:
        """Load the target; what it is. Raises ``BenchError``."""
        self._launch()
        told = self._await_loading()
        unsafe = told.pop("unsafe", None)
        if unsafe is not None:
            self.reloads_because = str(unsafe)
            self._load_first = False
            self.close()
            self._launch()
            self._await_loading()
        self.description = told
        return told

    def close(self) -> None:
        """End everything that was started."""
        if self._channel is not None:
            self._channel.close()
            self._channel = None
        host, self._host = self._host, None
        if host is not None:
            # It ends by itself when the channel is closed, and clears up; unless it is stuck.
            with contextlib.suppress(subprocess.TimeoutExpired):
                host.wait(0 if self._loading else 3.0)
            processes.kill_session(host.pid)
            if self._session is not None:
                processes.kill_session(self._session)
            host.wait()
            assert host.stdout is not None
            host.stdout.close()
        self._session = None

    def _launch(self) -> None:
        mine, its = Channel.pair()
        environment = dict(os.environ)
        # Asks the driver's library instead of making a context, which forks do not survive.
        environment.setdefault("PYTORCH_NVML_BASED_CUDA_CHECK", "1")
        arguments = [sys.executable, "-c", _BOOT, str(its.fileno())]
        self._host = subprocess.Popen(
            [*arguments, str(Path(__file__).parents[3])],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[its.fileno()],
            start_new_session=True,
            env=environment,
        )
        its.close()
        assert self._host.stdout is not None
        os.set_blocking(self._host.stdout.fileno(), False)
        self._channel = mine
        self._output.clear()
        self._loading = True
        self._channel.send(
            {
                "target": self._target,
                "batch_size": self._batch_size,
                "step": self._step,
                "load_first": self._load_first,
            }
        )

    def _await_loading(self) -> dict[str, Any]:
        try:
            told = self._hear(LOAD_SECONDS)
            while told is not None and told["kind"] == "alive":
                told = self._hear_of_import()
        except ClosedError:
            raise BenchError(*self._ended_while_loading()) from None
        if told is None:
            stacks = self._stacks([self._host.pid] if self._host else [])
            line = failing.line_in(stacks, innermost_last=False)
            self._kill_host()
            raise BenchError(
                f"{clean(self._target, 200)} was not imported within {self._load_seconds:.0f} s"
                f"{f': it is at {line}' if line else ''}. What trains belongs under if __name__ "
                "== '__main__':.",
                self._last_lines(),
            )
        self._loading = False
        if told["kind"] == "unusable":
            raise BenchError(told["sentence"], self._last_lines())
        return told

    def _hear_of_import(self) -> dict[str, Any] | None:
        """As ``_hear``, for as long as an import may take. Raises ``BenchError`` for one that
        trains, which may take days."""
        deadline = time.monotonic() + self._load_seconds
        trains = noticed = False
        while True:
            left = deadline - time.monotonic()
            told = self._hear(max(0.0, min(self._look_seconds, left)))
            if told is not None and told["kind"] == "trains":
                trains = True
                continue
            if told is not None or left <= self._look_seconds:
                return told
            if noticed and not trains:
                continue
            stacks = self._stacks([self._host.pid] if self._host else [])
            line = failing.line_in(stacks, innermost_last=False)
            shown = clean(self._target, 200)
            if trains:
                self._kill_host()
                raise BenchError(
                    f"{shown} trains while it is imported{f' (at {line})' if line else ''}: put "
                    "what trains under if __name__ == '__main__':, and try again.",
                    self._last_lines(),
                )
            noticed = True
            self._notice(
                f"{shown} is still being imported{f', and is at {line}' if line else ''}. If it "
                "is training, press Ctrl-C and put what trains under if __name__ == '__main__':."
            )

    def _ended_while_loading(self) -> tuple[str, tuple[str, ...]]:
        assert self._host is not None
        code = self._host.wait()
        self._drain()
        output = self._output.decode("utf-8", "replace")
        line = failing.line_in(output, innermost_last=False) if "Fatal Python" in output else None
        shown = clean(self._target, 200)
        how = (
            f"was killed by {signal.Signals(-code).name}"
            if code < 0
            else "ended by itself (os._exit)"
        )
        sentence = f"The process that imported {shown} {how}{f' at {line}' if line else ''}."
        return sentence, self._last_lines()

    def _kill_host(self) -> None:
        if self._host is not None:
            processes.kill_session(self._host.pid)

    # --- measuring ---------------------------------------------------------------------------

    def visit(
        self,
        setting: Setting,
        *,
        round_number: int,
        seconds: float,
        limit_seconds: float,
        seed: int,
        whole_epochs: bool = False,
        restart: bool = False,
    ) -> Visit | Failure:
        """Measure ``setting`` once."""
        told = self._ask(
            {
                "what": "visit",
                "setting": setting.as_dict(),
                "round": round_number,
                "seconds": seconds,
                "limit_seconds": limit_seconds,
                "seed": seed,
                "whole_epochs": whole_epochs,
                "restart": restart,
            }
        )
        return told if isinstance(told, Failure) else Visit.from_dict(told["visit"])

    def copies(self, setting: Setting) -> dict[str, Any] | None:
        """How fast a batch gets to the GPU; ``None`` without CUDA or if it fails."""
        told = self._ask({"what": "copies", "setting": setting.as_dict()})
        return None if isinstance(told, Failure) else told["copies"]

    def _ask(self, order: dict[str, Any]) -> dict[str, Any] | Failure:
        if self._host is None:
            self._launch()
            self._await_loading()
        self._output.clear()
        oom_before = usage.killed_for_memory()
        try:
            assert self._channel is not None
            self._channel.send({"kind": "order", **order})
            answer = self._answer()
        except ClosedError:
            # The host was killed, with it what it measured.
            self.close()
            answer = Failure(
                code="killed",
                sentence="The measuring processes were killed from outside, or for memory.",
            )
        if isinstance(answer, Failure):
            return self._finished(answer, usage.killed_for_memory() > oom_before)
        return answer

    def _finished(self, failure: Failure, out_of_memory: bool) -> Failure:
        self._drain()
        if out_of_memory and failure.code in ("worker_killed", "killed"):
            failure = failing.memory_killed(failure)
        elif failure.code in ("worker_killed", "worker_exited"):
            failure = failing.placed(failure, self._output.decode("utf-8", "replace"))
        return Failure(
            code=failure.code,
            sentence=failure.sentence,
            line=failure.line,
            output=self._last_lines(),
        )

    def _answer(self) -> dict[str, Any] | Failure:
        """What the measuring process says, or why it says nothing. Raises ``ClosedError``."""
        answer: dict[str, Any] | Failure | None = None
        aborted = False
        patience = self._patience + (self._load_seconds if not self._load_first else 0.0)
        while True:
            told = self._hear(patience)
            if told is None:
                if aborted:
                    raise ClosedError
                aborted = True
                answer = answer or self._hung()
                assert self._channel is not None
                self._channel.send({"kind": "abort"})
                patience = ABORT_SECONDS
                continue
            kind = told["kind"]
            if kind == "started":
                self._session = told["pid"]
            elif kind in ("alive", "trains"):
                patience = self._patience
            elif kind == "ended":
                self._session = None
                if answer is None:
                    self._drain()
                    output = self._output.decode("utf-8", "replace")
                    return failing.from_status(told["status"], out_of_memory=False, output=output)
                return answer
            elif kind == "failed":
                answer = answer or Failure(
                    code=told["code"], sentence=told["sentence"], line=told["line"]
                )
            else:
                # Its workers have this long to end in their own way.
                answer, patience = answer or told, END_SECONDS

    def _hung(self) -> Failure:
        if self._session is None:
            return failing.hung(self._patience, "")
        workers = [pid for pid in processes.of_session(self._session) if pid != self._session]
        stacks = self._stacks(workers or [self._session])
        return failing.hung(self._patience, stacks)

    def _stacks(self, pids: list[int]) -> str:
        """Where they are, as faulthandler prints it."""
        self._drain()
        before = len(self._output)
        asked = 0
        for pid in pids:
            if _catches(pid, STACKS_SIGNAL):
                with contextlib.suppress(OSError):
                    os.kill(pid, STACKS_SIGNAL)
                    asked += 1

        def written() -> str:
            self._drain()
            return self._output[min(before, len(self._output)) :].decode("utf-8", "replace")

        stacks = failing.await_stacks(written, asked)
        # They are no words of the user's own.
        del self._output[before:]
        return stacks

    # --- listening ---------------------------------------------------------------------------

    def _hear(self, patience: float) -> dict[str, Any] | None:
        """The next message; ``None``: none came in time. Raises ``ClosedError``."""
        assert self._channel is not None
        assert self._host is not None
        assert self._host.stdout is not None
        deadline = time.monotonic() + patience
        watched: list[Any] = [self._channel, self._host.stdout]
        while True:
            self.tick()
            ready, _, _ = select(watched, [], [], _TICK)
            if self._host.stdout in ready and not self._drain():
                watched = [self._channel]
            if self._channel in ready:
                return self._channel.receive()
            if self._host.poll() is not None:
                # What it said last may have come since.
                ready, _, _ = select([self._channel], [], [], 0)
                if ready:
                    return self._channel.receive()
                raise ClosedError
            if time.monotonic() >= deadline:
                return None

    def _drain(self) -> bool:
        """Take what was printed; ``False``: nobody can print any more."""
        if self._host is None or self._host.stdout is None or self._host.stdout.closed:
            return False
        while True:
            try:
                data = os.read(self._host.stdout.fileno(), 65536)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._output += data
            if len(self._output) > 2 * OUTPUT_KEPT:
                del self._output[:-OUTPUT_KEPT]

    def _last_lines(self) -> tuple[str, ...]:
        self._drain()
        return failing.output_lines(self._output.decode("utf-8", "replace"))


def _catches(pid: int, number: int) -> bool:
    """Whether a process handles a signal, so that it is not ended by it (proc(5): SigCgt)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/status").read_text()
        mask = int(text.split("SigCgt:")[1].split()[0], 16)
        return bool(mask >> (number - 1) & 1)
    return False
