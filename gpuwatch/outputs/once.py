"""One look at a machine, for commands that print and end."""

from __future__ import annotations

import time
from collections.abc import Callable

from gpuwatch.model import Snapshot
from gpuwatch.sources.background import DaemonWorker
from gpuwatch.sources.base import Source

SETTLE_SECONDS = 0.7
"""Between the two reads that rates need: seventy of the kernel's 10 ms ticks, so that a CPU
percent is no accident, and still short for somebody who waits."""

PATIENCE_SECONDS = 30.0
"""A first driver call can take several seconds (without the persistence daemon, say)."""


class NoAnswerError(Exception):
    """A read did not end in time; the message is a sentence."""


def look_once(
    source: Source,
    *,
    settle_seconds: float = SETTLE_SECONDS,
    patience_seconds: float = PATIENCE_SECONDS,
    pause: Callable[[float], None] = time.sleep,
) -> Snapshot:
    """Open ``source``, read it twice with a pause between, and give the second snapshot.

    With ``settle_seconds`` 0 it is read once, and readings that are rates are ``None``. A
    simulated machine has a past and is read once. Raises ``NoAnswerError`` if a call takes
    longer than ``patience_seconds``, and whatever escapes from the source.
    """
    worker = DaemonWorker("gpuwatch-look")

    def call(function: Callable[[], Snapshot | None]) -> Snapshot | None:
        task = worker.submit(function)
        if not task.wait(patience_seconds):
            raise NoAnswerError(
                f"The driver or the machine has not answered for {patience_seconds:g} s; "
                "nvidia-smi probably hangs too. The kernel log (dmesg) may say why."
            )
        return task.result()

    try:
        source.options.interval_seconds = settle_seconds or source.options.interval_seconds
        call(source.open)
        snapshot = call(source.read)
        if settle_seconds > 0 and not source.simulated:
            pause(settle_seconds)
            snapshot = call(source.read)
        assert snapshot is not None
        return snapshot
    finally:
        worker.submit(source.close)
        worker.stop()
