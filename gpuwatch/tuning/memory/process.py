"""Has measuring processes run the user's step, one for each batch size."""

from __future__ import annotations

import json
import os
import select
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from time import monotonic
from typing import IO, Any

from gpuwatch.core import units
from gpuwatch.core.text import clean
from gpuwatch.tuning.bench import failing
from gpuwatch.tuning.memory.point import (
    BEGINS,
    MeasureError,
    MemoryPoint,
    NoMemoryError,
    TooSlowError,
)

# Without the working folder on the path, whose files could be called as modules of Python's own;
# with this very gpuwatch, wherever it was started from and whichever is installed.
_BOOT = (
    "import sys; p = sys.argv[3]; sys.path[:1] = [p]; import gpuwatch; sys.path[:1] = []; "
    "p in sys.path or sys.path.append(p); "
    "from gpuwatch.tuning.memory.child import main; main()"
)
STEPS = 3
TAIL_BYTES = 64 * 1024
LOOK_SECONDS = 0.5
"""How often a process that says nothing is looked at."""
PROBE_SECONDS = 120.0
START_SECONDS = 300.0
"""For importing torch and the user's module and making a batch, before the steps begin."""


@dataclass(frozen=True, slots=True)
class Gpu:
    """A CUDA device as torch sees it."""

    name: str
    total_bytes: int
    free_bytes: int
    bfloat16: bool


@dataclass(frozen=True, slots=True)
class Torch:
    """What there is to measure on. ``why``: why no GPU, a clause."""

    version: str
    gpus: tuple[Gpu, ...]
    why: str = ""


def probe() -> Torch:
    """Ask torch for its devices. Raises ``MeasureError`` where there is no torch."""
    answer = _ask({"action": "probe"}, os.environ, PROBE_SECONDS)
    return Torch(
        version=clean(str(answer["torch"]), 40),
        gpus=tuple(Gpu(**gpu) for gpu in answer["gpus"]),
        why=str(answer.get("why", "")),
    )


def visible_devices(environment: Mapping[str, str], index: int) -> str:
    """``CUDA_VISIBLE_DEVICES`` for a process that is to see only torch's device ``index``.

    >>> visible_devices({"CUDA_VISIBLE_DEVICES": "2,GPU-5f"}, 1)
    'GPU-5f'
    """
    given = [one.strip() for one in environment.get("CUDA_VISIBLE_DEVICES", "").split(",")]
    return given[index] if index < len(given) and given[index] else str(index)


class ChildMeasurer:
    """``device``: ``cpu``, or the index of a CUDA device, which is then the only one the step
    sees, as ``cuda`` and ``cuda:0``. ``seconds``: what the steps of one size may take."""

    def __init__(
        self,
        *,
        step: str,
        loader: str | None,
        device: str | int,
        limit_bytes: int | None = None,
        steps: int = STEPS,
        seconds: float = 300.0,
    ) -> None:
        self._seconds = seconds
        self._environment = dict(os.environ)
        if isinstance(device, int):
            self._environment["CUDA_VISIBLE_DEVICES"] = visible_devices(os.environ, device)
        self._request = {
            "action": "measure",
            "step": step,
            "loader": loader,
            "device": "cuda" if isinstance(device, int) else device,
            "limit_bytes": limit_bytes,
            "steps": steps,
        }

    def measure(self, batch_size: int, precision: str) -> MemoryPoint:
        """Raises ``NoMemoryError``, ``TooSlowError`` and ``MeasureError``."""
        request = {**self._request, "batch_size": batch_size, "precision": precision}
        try:
            answer = _ask(request, self._environment, self._seconds)
        except KilledError as error:
            if self._request["device"] == "cpu":
                raise NoMemoryError(str(error)) from None
            raise MeasureError(
                f"{error} On a GPU step it is the host's memory that ran out then."
            ) from None
        return MemoryPoint(**answer["point"])


class KilledError(MeasureError):
    """Something ended the process with SIGKILL."""


def _ask(request: Mapping[str, Any], environment: Mapping[str, str], seconds: float) -> Any:
    """The answer of a measuring process, which may take ``seconds`` once it has begun to measure.

    Raises ``MeasureError`` and what stands below it.
    """
    # A file and not a pipe: what the user's code prints must never make it wait.
    with tempfile.TemporaryFile() as output:
        reading, writing = os.pipe()
        try:
            with subprocess.Popen(
                [
                    *(sys.executable, "-c", _BOOT),
                    *(str(writing), json.dumps(request), str(Path(__file__).parents[3])),
                ],
                env=environment,
                stdin=subprocess.DEVNULL,
                stdout=output,
                stderr=subprocess.STDOUT,
                pass_fds=[writing],
                # Ctrl-C is for gpuwatch, which then ends this one and the workers it started.
                start_new_session=True,
            ) as child:
                os.close(writing)
                writing = -1
                try:
                    answer = _answer(child, reading, seconds)
                except TooSlowError as error:
                    raise _where(error, child, output) from None
                finally:
                    _end(child)
        finally:
            for descriptor in (reading, writing):
                if descriptor >= 0:
                    os.close(descriptor)
        if answer is None:
            raise _died(child.returncode, output)
    if "no_memory" in answer:
        raise NoMemoryError(clean(str(answer["no_memory"]), 800))
    if "error" in answer:
        raise MeasureError(clean(str(answer["error"]), 800))
    return answer


def _answer(child: subprocess.Popen[bytes], descriptor: int, seconds: float) -> Any:
    """Its last line; ``None``: it died before. Raises ``TooSlowError``."""
    got = b""
    deadline, what = monotonic() + START_SECONDS, "Importing the step"
    while True:
        *lines, got = got.split(b"\n")
        for line in lines:
            found = json.loads(line)
            if found != BEGINS:
                return found
            deadline, what = monotonic() + seconds, "The steps"
        left = deadline - monotonic()
        if left <= 0:
            raise TooSlowError(f"{what} took longer than {units.age(_limit(what, seconds))}")
        # A worker of the step's can hold the pipe open after its parent's end.
        ended = _has_ended(child)
        if select.select([descriptor], [], [], 0.0 if ended else min(left, LOOK_SECONDS))[0]:
            part = os.read(descriptor, 65536)
            if not part:
                return None
            got += part
        elif ended:
            return None


def _limit(what: str, seconds: float) -> float:
    return seconds if what == "The steps" else START_SECONDS


def _where(error: TooSlowError, child: subprocess.Popen[bytes], output: IO[bytes]) -> TooSlowError:
    """The same with the user's line that the process is at."""
    before = os.fstat(output.fileno()).st_size
    with suppress(ProcessLookupError):
        os.kill(child.pid, signal.SIGUSR1)
    tail = failing.await_stacks(lambda: _tail(output, before), 1)
    line = failing.line_in(tail, innermost_last=False)
    return TooSlowError(f"{error}{f' and were at {line}' if line else ''} (--timeout).")


def _has_ended(child: subprocess.Popen[bytes]) -> bool:
    """Without taking it off the list of processes: its pid stays its own."""
    return os.waitid(os.P_PID, child.pid, os.WEXITED | os.WNOHANG | os.WNOWAIT) is not None


def _end(child: subprocess.Popen[bytes]) -> None:
    """With all that it started. One that has ended by itself keeps its own exit code."""
    with suppress(ProcessLookupError, PermissionError):
        os.killpg(child.pid, signal.SIGKILL)
    child.wait()


def _died(code: int, output: IO[bytes]) -> MeasureError:
    tail = _tail(output)
    last = clean(next((one.strip() for one in reversed(tail.splitlines()) if one.strip()), ""), 300)
    says = f" Its last line: {last}" if last else ""
    if code == -signal.SIGKILL:
        return KilledError(
            "The step's process was killed (SIGKILL), as the kernel does when memory runs out."
        )
    if code < 0:
        try:
            name = signal.Signals(-code).name
        except ValueError:
            name = f"signal {-code}"
        line = failing.line_in(tail, innermost_last=False) if "Fatal Python" in tail else None
        at = f" at {line}." if line else f".{says}"
        return MeasureError(f"The step's process crashed ({name}){at}")
    return MeasureError(f"The step's process ended by itself with exit code {code}.{says}")


def _tail(output: IO[bytes], begin: int = 0) -> str:
    # Not by seeking: the child writes where this reads.
    size = os.fstat(output.fileno()).st_size
    begin = max(begin, size - TAIL_BYTES)
    return os.pread(output.fileno(), size - begin, begin).decode("utf-8", "replace")
