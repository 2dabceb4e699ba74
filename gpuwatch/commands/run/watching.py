"""Watching a job from a thread of its own, for a command whose main thread waits for the job."""

from __future__ import annotations

import threading
import time
from typing import TYPE_CHECKING

from gpuwatch.commands.common import make_source

if TYPE_CHECKING:
    from gpuwatch.core.model import ProcessKey
    from gpuwatch.outputs.report.recorder import JobRecorder

_PATIENCE_SECONDS = 3.0
"""How long the end of a job waits for one more reading, which has what the driver's buffer holds
of its last moments, and the end itself."""
_READ_SHARE_MOST = 0.2
"""Of the time: the job is to have the rest."""


class JobWatch:
    """Reads the machine on a daemon thread, and records one job. Nothing that is slow, hangs or
    fails in it can hold up or end the program."""

    def __init__(self, key: ProcessKey, interval_seconds: float) -> None:
        self.error: BaseException | None = None
        """What ended the watching: a bug."""
        self._key = key
        self._interval_seconds = interval_seconds
        self._thread = threading.Thread(target=self._run, name="gpuwatch-watch", daemon=True)
        self._recorder: JobRecorder | None = None
        self._ended = threading.Event()

    def start(self) -> None:
        """Begin; the thread also does the imports, so that the main thread is free at once."""
        self._thread.start()

    def finish(self) -> JobRecorder | None:
        """Take a last look at the job, which has ended, and stop; what was recorded. ``None`` if it
        was never seen, or the watching has failed (see ``error``) or hangs."""
        recorder = self._recorder
        if self._thread.is_alive() and (recorder is None or not recorder.seen):
            # It ended before there was a first look at it.
            return None
        self._ended.set()
        self._thread.join(_PATIENCE_SECONDS)
        return None if self._thread.is_alive() or self.error is not None else recorder

    def _run(self) -> None:
        try:
            self._watch()
        except Exception as error:
            self.error = error

    def _watch(self) -> None:
        from gpuwatch.outputs.report.recorder import JobRecorder

        source = make_source(None, None, False, self._interval_seconds)
        source.options.attached = self._key
        source.options.interval_seconds = self._interval_seconds
        self._recorder = JobRecorder(self._key)
        source.open()
        last = False
        while not last:
            last = self._ended.is_set()
            began = time.monotonic()
            self._recorder.push(source.read())
            took = time.monotonic() - began
            self._ended.wait(max(self._interval_seconds - took, took / _READ_SHARE_MOST - took))
        source.close()
