"""Cost of this process itself, all its threads together."""

import time

from gpuwatch.sources.linux import procfs

START_SECONDS = 2.0
"""Imports, the first picture and a screen's first drawing are over by then; counted in, a monitor
would be said to cost ten times what it costs."""


class OwnUse:
    """Its share of one core and its memory."""

    def __init__(self) -> None:
        self._began: float | None = None
        self._before: tuple[float, float] | None = None
        self._statm = procfs.KernelFile(procfs.PROC / "self" / "statm")

    def cpu_percent(self, now: float) -> float | None:
        """Since the reading before; ``now``: monotonic seconds. ``None`` until the start is
        over."""
        if self._began is None:
            self._began = now
        before, self._before = self._before, (now, time.process_time())
        if before is None or now <= before[0] or before[0] - self._began < START_SECONDS:
            return None
        return 100.0 * (self._before[1] - before[1]) / (now - before[0])

    def resident_bytes(self) -> int | None:
        """``None`` where the kernel does not say."""
        try:
            return int(self._statm.read().split(None, 2)[1]) * procfs.PAGE_BYTES
        except OSError:
            return None

    def close(self) -> None:
        self._statm.close()
