"""The answer of NVIDIA's own tool, to hold ours against."""

import os
import re
import shutil
import subprocess
import time
from collections.abc import Mapping
from contextlib import suppress

from gpuwatch.core.background import DaemonWorker, Task
from gpuwatch.core.model import Gpu
from gpuwatch.core.text import clean
from gpuwatch.core.units import duration
from gpuwatch.sources.logs.source import read_lines
from gpuwatch.sources.logs.text import LogError, LogStats

PATIENCE_SECONDS = 10.0
_FIELDS = (
    *("index", "uuid", "name", "driver_version", "utilization.gpu", "utilization.memory"),
    *("memory.used", "memory.total", "power.draw", "power.limit", "temperature.gpu"),
    *("clocks.sm", "clocks.mem", "pstate", "fan.speed"),
    *("pcie.link.gen.current", "pcie.link.width.current"),
)
_UNKNOWN_FIELD = re.compile(r'Field "([^"]{1,60})" is not a valid field to query')
_TRIES = 4
_KILL_SECONDS = 1.0


def _no_answer() -> str:
    return f"it has not answered for {PATIENCE_SECONDS:g} s"


class NvidiaSmi:
    """``ask`` once; it waits ``PATIENCE_SECONDS`` at most, also for a program that nothing ends."""

    def __init__(self) -> None:
        self.path = shutil.which("nvidia-smi") or shutil.which(
            "nvidia-smi", path="/usr/lib/wsl/lib"
        )
        self.gpus: dict[str, Gpu] = {}
        """By the uuid."""
        self.error: str | None = None
        """Why it gave nothing, as it says itself or as a sentence."""
        self.seconds: float | None = None
        self._task: Task[None] | None = None

    def ask(self) -> None:
        """Have it answer, unless it was asked before."""
        if self.path is None or self._task is not None:
            return
        worker, started = DaemonWorker("gpuwatch-nvidia-smi"), time.perf_counter()
        self._task = worker.submit(self._run)
        if not self._task.wait(PATIENCE_SECONDS + 2 * _KILL_SECONDS):
            self.error = _no_answer()
        elif self._task.error is not None:
            why = getattr(self._task.error, "strerror", None) or self._task.error
            self.error = clean(f"it cannot be run ({why})", 200)
        else:
            self.seconds = time.perf_counter() - started
        worker.stop()

    @property
    def answer(self) -> str:
        """Outcome in a few words."""
        if self.error is not None:
            return self.error
        return f"it answered in {duration(self.seconds)}"

    def _run(self) -> None:
        fields = list(_FIELDS)
        for _ in range(_TRIES):
            said = self._said(fields)
            if said is None:
                return
            code, text = said
            unknown = _UNKNOWN_FIELD.search(text)
            if unknown is None or unknown[1] not in fields:
                break
            fields.remove(unknown[1])
        if code:
            lines = [line.strip() for line in text.splitlines() if line.strip()]
            self.error = clean(lines[0] if lines else f"it ended with exit code {code}", 200)
            return
        try:
            for snapshot in read_lines(text.splitlines(), LogStats(), shown="Its answer"):
                self.gpus = {gpu.uuid: gpu for gpu in snapshot.gpus}
                return
        except LogError as error:
            self.error = str(error)

    def _said(self, fields: list[str]) -> tuple[int, str] | None:
        """Exit code and output; ``None``: it did not answer. Raises ``OSError``."""
        assert self.path is not None
        environment: Mapping[str, str] = {**os.environ, "LC_ALL": "C"}
        process = subprocess.Popen(
            [self.path, f"--query-gpu={','.join(fields)}", "--format=csv"],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            env=environment,
            text=True,
            errors="replace",
        )
        try:
            text, _ = process.communicate(timeout=PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            process.kill()
            # Not for longer: while it hangs in the driver no signal reaches it.
            with suppress(subprocess.TimeoutExpired):
                process.communicate(timeout=_KILL_SECONDS)
            self.error = _no_answer()
            return None
        return process.returncode, text[: 1 << 20]
