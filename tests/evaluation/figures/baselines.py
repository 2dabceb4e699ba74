"""The two rules that a user gets elsewhere, on the same snapshots.

``fluctuation`` is that of SageMaker Debugger's LowGPUUtilization and GPU-fluctuation rules: over
a window, a 95th percentile of the utilisation under 70% is under-use, and one above it with a 5th
percentile under 10% is a bottleneck in the data. ``threshold`` is that of monitoring scripts and
courses: utilisation under 40% with more than half the memory held is a slow data loader.

Both only ever blame loading, so any cause in loading counts as found, whichever it was.
"""

from array import array

from gpuwatch.core.model import GpuKey, Snapshot
from tests.evaluation.case import HEALTHY, LOADING, Subject

NAMES = ("fluctuation", "threshold")
WINDOW_SECONDS = 120.0

_LOW_P95 = 70.0
_LOW_P5 = 10.0
_LOW_BUSY = 40.0
_HIGH_MEMORY = 0.5


class Baseline:
    """Collects a subject's polls: their busy percent (mean of its GPUs) and memory share."""

    def __init__(self) -> None:
        self._at = array("d")
        self._busy = array("d")
        self._memory = array("d")

    def push(self, snapshot: Snapshot, keys: frozenset[GpuKey]) -> None:
        busy, memory = [], []
        for gpu in snapshot.gpus:
            if gpu.identity.uuid not in keys or gpu.reading.busy_percent is None:
                continue
            busy.append(gpu.reading.busy_percent)
            used, total = gpu.reading.memory_used_bytes, gpu.identity.memory_total_bytes
            memory.append(used / total if used is not None and total else 0.0)
        if busy:
            self._at.append(snapshot.monotonic_seconds)
            self._busy.append(sum(busy) / len(busy))
            self._memory.append(sum(memory) / len(memory))

    def answers(self, subject: Subject) -> dict[str, str]:
        """What each would have said first, at the end."""
        begin = next((n for n, at in enumerate(self._at) if at >= self._at[-1] - WINDOW_SECONDS), 0)
        busy = sorted(self._busy[begin:])
        if not busy:
            return dict.fromkeys(NAMES, HEALTHY)
        loading = sorted(subject.accepted & LOADING)
        loader = subject.label if subject.label in LOADING else (loading or ["loader_cpu_bound"])[0]
        low, high = busy[int(0.05 * (len(busy) - 1))], busy[int(0.95 * (len(busy) - 1))]
        mean, memory = sum(busy) / len(busy), self._memory[-1]
        fluctuation = HEALTHY
        if high < _LOW_P95:
            fluctuation = "batch_too_small"
        elif low < _LOW_P5:
            fluctuation = loader
        waits = mean < _LOW_BUSY and memory > _HIGH_MEMORY
        return {"fluctuation": fluctuation, "threshold": loader if waits else HEALTHY}
