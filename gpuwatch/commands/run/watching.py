"""Watching a job from a thread of its own, for a command whose main thread waits for the job."""

from __future__ import annotations

import asyncio
import contextlib
import threading
from typing import TYPE_CHECKING

from gpuwatch.commands.common import make_source

if TYPE_CHECKING:
    from gpuwatch.core.model import ProcessKey, Snapshot
    from gpuwatch.outputs.report.recorder import JobRecorder

LAST_LOOK_SECONDS = 1.0
"""How long the end of a job waits for one more reading, which has what the driver's buffer holds
of its last moments, and the end itself."""
_PATIENCE_SECONDS = LAST_LOOK_SECONDS + 2.0


class JobWatch:
    """Reads the machine on a daemon thread, and records one job. Nothing that is slow, hangs or
    fails in it can hold up or end the program."""

    def __init__(self, key: ProcessKey, interval_seconds: float) -> None:
        self.error: BaseException | None = None
        """What ended the watching: a bug."""
        self._key = key
        self._interval_seconds = interval_seconds
        self._thread = threading.Thread(target=self._run, name="gpuwatch-watch", daemon=True)
        self._loop: asyncio.AbstractEventLoop | None = None
        self._recorder: JobRecorder | None = None
        self._ended_at: float | None = None
        self._stop = asyncio.Event()

    def start(self) -> None:
        """Begin; the thread also does the imports, so that the main thread is free at once."""
        self._thread.start()

    def finish(self, ended_at_unix_seconds: float) -> JobRecorder | None:
        """Take a last look at the job, and stop; what was recorded. ``None`` if it was never
        seen, or the watching has failed (see ``error``) or hangs."""
        self._ended_at = ended_at_unix_seconds
        loop, recorder = self._loop, self._recorder
        if self._thread.is_alive() and (loop is None or recorder is None or not recorder.seen):
            # It ended before there was a first look at it.
            return None
        if loop is not None and not loop.is_closed():
            # It can close in this moment.
            with contextlib.suppress(RuntimeError):
                loop.call_soon_threadsafe(self._stop.set)
        self._thread.join(_PATIENCE_SECONDS)
        if self._thread.is_alive() or self.error is not None:
            return None
        return recorder

    def _run(self) -> None:
        try:
            asyncio.run(self._watch())
        except Exception as error:
            self.error = error

    async def _watch(self) -> None:
        from gpuwatch.core.sampler import INTERVAL_MIN_SECONDS, Sampler
        from gpuwatch.outputs.report.recorder import JobRecorder

        source = make_source(None, None, False, self._interval_seconds)
        source.options.attached = self._key
        sampler = Sampler(source, self._interval_seconds)
        recorder = JobRecorder(self._key)
        looked = asyncio.Event()

        def deliver(snapshot: Snapshot) -> None:
            recorder.push(snapshot)
            if self._ended_at is not None and snapshot.taken_at_unix_seconds >= self._ended_at:
                looked.set()

        self._recorder, self._loop = recorder, asyncio.get_running_loop()
        sampling = asyncio.create_task(sampler.run(deliver))
        stopping = asyncio.create_task(self._stop.wait())
        try:
            await asyncio.wait((sampling, stopping), return_when=asyncio.FIRST_COMPLETED)
            if not sampling.done():
                # At once, and not only when the interval is over.
                sampler.interval_seconds = INTERVAL_MIN_SECONDS
                looking = asyncio.create_task(looked.wait())
                await asyncio.wait(
                    (sampling, looking),
                    timeout=LAST_LOOK_SECONDS,
                    return_when=asyncio.FIRST_COMPLETED,
                )
                looking.cancel()
            if sampling.done():
                sampling.result()
        finally:
            stopping.cancel()
            sampling.cancel()
            sampler.close(0.0)
