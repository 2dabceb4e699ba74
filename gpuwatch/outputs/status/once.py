"""One look at a machine, for commands that print and end."""

import time
from collections.abc import Callable

from gpuwatch.core.background import DaemonWorker
from gpuwatch.core.model import Snapshot
from gpuwatch.core.source import Source
from gpuwatch.core.text import SentenceError

SETTLE_SECONDS = 0.12
"""Between the two reads that rates need: the least that the driver wants between two samples of
what its units did (``schedule.PAIR_SECONDS``). Clocks of processes count nanoseconds."""
HOST_SECONDS = 0.21
"""From opening to the second read: the kernel counts the CPU time of cores in ticks of 10 ms, and
the host's rates are over this time (``host.MINIMUM_SECONDS``)."""

PATIENCE_SECONDS = 30.0
"""A first driver call can take several seconds (without the persistence daemon, say)."""
LAST_WAIT_SECONDS = 0.5
HOST_PATIENCE_SECONDS = 5.0
"""How much longer than the driver the rest of a read may take."""
_NOTICED_SECONDS = 1.5


class NoAnswerError(SentenceError):
    """A read did not end in time."""


def look_once(
    source: Source,
    *,
    settle_seconds: float = SETTLE_SECONDS,
    patience_seconds: float = PATIENCE_SECONDS,
    host_patience_seconds: float = HOST_PATIENCE_SECONDS,
    pause: Callable[[float], None] = time.sleep,
    on_wait: Callable[[], None] | None = None,
) -> Snapshot:
    """Open ``source``, read it twice with a pause between, and give the second snapshot.

    With ``settle_seconds`` 0 it is read once, and readings that are rates are ``None``. A
    simulated machine has a past and is read once. The driver is waited for, all in all,
    ``patience_seconds``; what it has not said by then is missing from the snapshot. Raises
    ``NoAnswerError`` if a read takes ``host_patience_seconds`` more than that, and whatever
    escapes from the source. ``on_wait`` is called once if there is a wait worth explaining.
    """
    worker = DaemonWorker("gpuwatch-look")
    give_up_at = time.monotonic() + patience_seconds
    explain = on_wait

    def call(function: Callable[[], Snapshot | None]) -> Snapshot | None:
        nonlocal explain
        # A driver that used it all up is not waited for a second time, but for one that answers
        # slowly there is time enough to give what it has said.
        left = max(LAST_WAIT_SECONDS, give_up_at - time.monotonic())
        source.options.driver_wait_seconds = left
        task = worker.submit(function)
        if explain is not None and not task.wait(min(left, _NOTICED_SECONDS)):
            explain()
            explain = None
        if not task.wait(left + host_patience_seconds):
            raise NoAnswerError(
                f"The machine has not answered for {left + host_patience_seconds:.0f} s: a disk "
                "or a network file system may hang. The kernel log (dmesg) may say why.",
                69,
            )
        return task.result()

    try:
        source.options.interval_seconds = settle_seconds or source.options.interval_seconds
        call(source.open)
        opened_at = time.monotonic()
        snapshot = call(source.read)
        if settle_seconds > 0 and not source.simulated:
            pause(max(settle_seconds, HOST_SECONDS - (time.monotonic() - opened_at)))
            snapshot = call(source.read)
        assert snapshot is not None
        return snapshot
    finally:
        worker.submit(source.close)
        worker.stop()
