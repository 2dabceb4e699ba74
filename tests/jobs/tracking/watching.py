"""Watching jobs in tests as ``LocalSource`` does, and stand-ins for processes of a job."""

import os
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from gpuwatch.core.model import Job, JobMember, Problem, Process, ProcessKey
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.jobs.loop import writer
from gpuwatch.jobs.loop.reader import LoopReader
from gpuwatch.jobs.tracking.tracker import JobTracker
from gpuwatch.sources.gpu_source import GpuProcess
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.processes import ProcessSource


def key_of(pid: int) -> ProcessKey:
    return (pid, procfs.read_start(pid))


def own_loop_reader(proc: Path = procfs.PROC) -> LoopReader:
    """Only what this test's own processes report."""
    return LoopReader(proc, folders=lambda uid: writer.folders(uid, os.environ)[:1])


class Watch:
    """A tracker and a process source on one clock that only the test turns."""

    def __init__(self, proc: Path = procfs.PROC, *, attached: ProcessKey | None = None) -> None:
        self.clock = ManualClock(1000.0, time.time() - 1000.0)
        self.options = ReadOptions(attached=attached)
        self.source = ProcessSource(self.clock, self.options, proc)
        self.tracker = JobTracker(self.clock, self.options, proc, own_loop_reader(proc))
        self.processes: tuple[Process, ...] = ()
        self.problems: tuple[Problem, ...] = ()

    def look_at_all(self, *gpu_pids: int, after: float = 0.0) -> tuple[Job, ...]:
        """The jobs now, with each of ``gpu_pids`` on a GPU of its own."""
        self.clock.advance(after)
        on_gpus = [GpuProcess(pid, f"GPU-{index}") for index, pid in enumerate(gpu_pids)]
        roots = self.tracker.roots(gpu_pids)
        self.processes, _ = self.source.read(on_gpus, roots)
        jobs, self.problems = self.tracker.read(self.processes)
        return jobs

    def look(self, *gpu_pids: int, after: float = 0.0) -> tuple[Job, ...]:
        """The same without what other programs on this machine have left over."""
        return tuple(
            [job for job in self.look_at_all(*gpu_pids, after=after) if job.attached or job.ranks]
        )

    def job(self, *gpu_pids: int, after: float = 0.0) -> Job:
        """The only job there is."""
        (job,) = self.look(*gpu_pids, after=after)
        return job

    @property
    def messages(self) -> list[str]:
        return [problem.message for problem in self.problems]

    def close(self) -> None:
        self.tracker.close()
        self.source.close()


@contextmanager
def watching(pid: int | None = None) -> Iterator[Watch]:
    """Attached to the real process ``pid``, if there is one to attach to."""
    watch = Watch(attached=None if pid is None else key_of(pid))
    try:
        yield watch
    finally:
        watch.close()


def members(job: Job) -> dict[int, JobMember]:
    return {member.pid: member for member in job.members}


def roles(job: Job) -> dict[int, str]:
    return {member.pid: member.role for member in job.members}
