"""The watch of ``gpuwatch run --plain`` over a job that its readings are made up for."""

from types import SimpleNamespace
from typing import Any

import pytest

from gpuwatch.commands import run as plain
from gpuwatch.core.model import Snapshot
from gpuwatch.core.source import ReadOptions
from gpuwatch.outputs.report.text import report_text
from tests.diagnosis.engines import machine


class Readings:
    """A source of these snapshots; after them the job has ended."""

    def __init__(self, snapshots: list[Snapshot]) -> None:
        self.options = ReadOptions()
        self.watch: plain.JobWatch | None = None
        self._left = list(reversed(snapshots))

    def open(self) -> None: ...

    def read(self) -> Snapshot:
        one = self._left.pop()
        if not self._left and self.watch is not None:
            self.watch._ended.set()
            self._left.append(one)
        return one

    def close(self) -> None: ...


def test_the_report_at_the_end_names_what_was_found(monkeypatch: pytest.MonkeyPatch) -> None:
    """With what it cost until the last look, and what to do about it."""
    snapshots = list(machine("starved", 90))
    readings = Readings(snapshots)
    monkeypatch.setattr(plain, "make_source", lambda *_: readings)
    job: Any = SimpleNamespace(key=snapshots[0].jobs[0].key, command="python train.py")
    watch = readings.watch = plain.JobWatch(job, 1e-6, None)
    recorder = watch.finish() if watch._watching.wait(60.0) else None
    assert watch.error is None
    assert recorder is not None
    report = recorder.report()
    (found,) = report.findings
    assert found.rule == "loader_cpu_bound"
    assert found.cost_gpu_seconds == pytest.approx(report.total.idle_gpu_seconds, rel=0.05)
    text = report_text(report, width=80)
    assert "GPU 0 waited for data" in text
    assert "Raise num_workers from 2 to 8" in text
