"""A job that gpuwatch started: its output, how it is interrupted, how it ends."""

from __future__ import annotations

from typing import TYPE_CHECKING

from gpuwatch.core.model import Job, ProcessKey
from gpuwatch.core.text import clean
from gpuwatch.tui.controllers.following import find
from gpuwatch.tui.view import View

if TYPE_CHECKING:
    from gpuwatch.jobs.launch.output import OutputTail
    from gpuwatch.jobs.launch.runner import RunningJob

POLL_SECONDS = 0.25
"""Of output that comes in: soon enough to read along."""


class Running:
    """What the dashboard does with the job it was started for."""

    def __init__(self, job: RunningJob, view: View) -> None:
        self._job = job
        self._view = view
        self._names: set[ProcessKey] = {job.key}
        self._tail: OutputTail | None = None
        self._is_read = False
        """All that it printed before it ended."""
        self.quits_when_ended = False
        """The person pressed Ctrl-C: what they wanted is to be done with it."""
        if job.output_path is not None:
            from gpuwatch.jobs.launch.output import OutputTail  # noqa: PLC0415

            self._tail = OutputTail(job.output_path)
            view.job.output = self._tail
            view.job.output_name = clean(str(job.output_path))

    @property
    def key(self) -> ProcessKey:
        return self._job.key

    @property
    def command(self) -> str:
        return self._job.command

    @property
    def ends_with_gpuwatch(self) -> bool:
        return self._job.ends_with_gpuwatch

    def is_in(self, job: Job | None) -> bool:
        """Whether ``job`` is the one that was started: while it lives its first process says so."""
        if job is None:
            return False
        if job.key not in self._names and find((job,), self._job.key) is not None:
            self._names.add(job.key)
        return job.key in self._names

    @property
    def runs(self) -> bool:
        return self._job.poll() is None

    @property
    def raw_code(self) -> int | None:
        """Its exit code, negative for the signal that ended it; ``None``: it runs."""
        return self._job.poll()

    @property
    def exit_code(self) -> int | None:
        """As a shell has it: 128 and more for a signal."""
        code = self._job.poll()
        return code if code is None or code >= 0 else 128 - code

    @property
    def ended_at_unix_seconds(self) -> float | None:
        return self._job.ended_at_unix_seconds

    def read_output(self) -> bool:
        """Take what it printed since; whether there is anything new to show."""
        tail = self._tail
        if tail is None:
            return False
        came = tail.poll()
        if came or self._is_read or self.runs or not self._job.output_complete:
            return came
        self._is_read = True
        if self._job.missed_input:
            from gpuwatch.jobs.launch.runner import NO_INPUT  # noqa: PLC0415

            tail.say(NO_INPUT)
        return self._job.missed_input

    def fit_output(self, columns: int, rows: int) -> None:
        """Tell it how wide the pane is."""
        self._job.resize(columns, rows)

    def interrupt(self) -> str:
        """One step: what was done, as a sentence."""
        self.quits_when_ended = True
        return self._job.stop_step()

    def close(self) -> None:
        if self._tail is not None:
            self._tail.close()
