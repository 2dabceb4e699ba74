"""The host process, as gpuwatch sees it: started, heard, asked where it is, ended."""

import contextlib
import os
import subprocess
import sys
import time
from collections.abc import Callable
from pathlib import Path
from select import select
from typing import Any

from gpuwatch.tuning import failures, processes
from gpuwatch.tuning.child.crash import STACKS_SIGNAL
from gpuwatch.tuning.messages import Answer, Channel, ClosedError, Order, Start

# This very gpuwatch and no other that is installed; of what lies beside it, nothing comes before
# the user's own.
_BOOT = (
    "import sys; p = sys.argv[2]; sys.path[:1] = [p]; import gpuwatch; sys.path[:1] = []; "
    "sys.path[len(sys.path):] = [] if p in sys.path else [p]; "
    "from gpuwatch.tuning.child.host import main; main(int(sys.argv[1]))"
)
OUTPUT_KEPT = 64 * 1024
_TICK = 0.25


class HostProcess:
    """Started at once. ``tick`` is called while it is listened to, a few times a second."""

    def __init__(self, start: Start, tick: Callable[[], None]) -> None:
        self._tick = tick
        self._output = bytearray()
        self.loading = True
        self.session: int | None = None
        """Of the measuring process."""
        self._channel, its = Channel.pair()
        # Asks the driver's library instead of making a context, which forks do not survive.
        environment = {"PYTORCH_NVML_BASED_CUDA_CHECK": "1", **os.environ}
        arguments = [sys.executable, "-c", _BOOT, str(its.fileno()), str(Path(__file__).parents[2])]
        self._process = subprocess.Popen(
            arguments,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            pass_fds=[its.fileno()],
            start_new_session=True,
            env=environment,
        )
        its.close()
        assert self._process.stdout is not None
        self._pipe = self._process.stdout
        os.set_blocking(self._pipe.fileno(), False)
        self.pid = self._process.pid
        self.send(start)

    def send(self, message: Start | Order) -> None:
        """Raises ``ClosedError``."""
        self._channel.send(message)

    def wait(self) -> int:
        return self._process.wait()

    def kill(self) -> None:
        processes.kill_session(self.pid)

    def close(self) -> None:
        self._channel.close()
        # It ends by itself when the channel is closed, and clears up; unless it is stuck.
        with contextlib.suppress(subprocess.TimeoutExpired):
            self._process.wait(0 if self.loading else 3.0)
        self.kill()
        if self.session is not None:
            processes.kill_session(self.session)
        self._process.wait()
        self._pipe.close()

    def hear(self, patience: float) -> Answer | None:
        """The next message; ``None``: none came in time. Raises ``ClosedError``."""
        deadline = time.monotonic() + patience
        watched: list[Any] = [self._channel, self._pipe]
        while True:
            self._tick()
            ready, _, _ = select(watched, [], [], _TICK)
            if self._pipe in ready and not self._drain():
                watched = [self._channel]
            if self._channel in ready:
                return self._channel.receive(Answer)
            if self._process.poll() is not None:
                # Its last message may have come since.
                if select([self._channel], [], [], 0)[0]:
                    return self._channel.receive(Answer)
                raise ClosedError
            if time.monotonic() >= deadline:
                return None

    def _drain(self) -> bool:
        """Take what was printed; ``False``: nobody can print any more."""
        while True:
            try:
                data = os.read(self._pipe.fileno(), 65536)
            except BlockingIOError:
                return True
            if not data:
                return False
            self._output += data
            if len(self._output) > 2 * OUTPUT_KEPT:
                del self._output[:-OUTPUT_KEPT]

    def forget_output(self) -> None:
        self._output.clear()

    def output(self) -> str:
        self._drain()
        return self._output.decode("utf-8", "replace")

    def stacks(self, pids: list[int]) -> str:
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

        stacks = failures.await_stacks(written, asked)
        # They are no words of the user's own.
        del self._output[before:]
        return stacks


def _catches(pid: int, number: int) -> bool:
    """True if a process handles a signal, so that it is not ended by it (proc(5): SigCgt)."""
    with contextlib.suppress(OSError, ValueError, IndexError):
        text = Path(f"/proc/{pid}/status").read_text()
        mask = int(text.split("SigCgt:")[1].split()[0], 16)
        return bool(mask >> (number - 1) & 1)
    return False
