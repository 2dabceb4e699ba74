"""Whether NVIDIA's own tool works, and what it says where it does not."""

import os
import shutil
import subprocess
from contextlib import suppress
from typing import NamedTuple

from gpuwatch.core.background import DaemonWorker
from gpuwatch.core.text import clean

PATIENCE_SECONDS = 10.0
_KILL_SECONDS = 1.0


class SmiAnswer(NamedTuple):
    """The GPUs that nvidia-smi lists, or why it gave none: in its own words or as a sentence."""

    gpu_count: int = 0
    error: str | None = None


def ask_nvidia_smi() -> SmiAnswer | None:
    """Have nvidia-smi list the GPUs; ``None`` where it is not installed. Waits for
    ``PATIENCE_SECONDS`` and little more, also for a program that nothing ends."""
    path = shutil.which("nvidia-smi") or shutil.which("nvidia-smi", path="/usr/lib/wsl/lib")
    if path is None:
        return None
    late = SmiAnswer(error=f"it has not answered for {PATIENCE_SECONDS:g} s")
    worker = DaemonWorker("gpuwatch-nvidia-smi")
    task = worker.submit(lambda: _run(path))
    answered = task.wait(PATIENCE_SECONDS + 2 * _KILL_SECONDS)
    worker.stop()
    if not answered:
        return late
    try:
        return task.result()
    except subprocess.TimeoutExpired:
        return late
    except OSError as error:
        return SmiAnswer(error=clean(f"it cannot be run ({error.strerror or error})", 200))


def _run(path: str) -> SmiAnswer:
    process = subprocess.Popen(
        [path, "--list-gpus"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.STDOUT,
        env={**os.environ, "LC_ALL": "C"},
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
        raise
    lines = [line.strip() for line in text[: 1 << 20].splitlines() if line.strip()]
    if process.returncode:
        words = lines[0] if lines else f"it ended with exit code {process.returncode}"
        return SmiAnswer(error=clean(words, 200))
    return SmiAnswer(gpu_count=sum(line.startswith("GPU ") for line in lines))
