"""What a second of watching costs, in counts that are the same on every machine."""

import os
import threading
from operator import is_
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.core.model import Job, JobMember, JobRank, Process
from tests.jobs.tracking.watching import Watch
from tests.support.fake_proc import FakeProc

LAUNCHER = 1 << 22
"""The kernel gives no process such a number: asked for the cores of one, it would answer for a real
process that comes and goes."""
RANKS = range(LAUNCHER + 1, LAUNCHER + 9)
WORKERS = range(LAUNCHER + 9, LAUNCHER + 65)
TICKS = 60


def process_at_rest(fake: FakeProc, pid: int, parent: int, name: str) -> None:
    fake.process(pid, parent=parent, name=name)
    fake.write(f"{pid}/schedstat", "1000000 1000 50\n")
    fake.write(f"{pid}/io", "rchar: 9\nread_bytes: 0\nwrite_bytes: 0\ncancelled_write_bytes: 0\n")


def counted(patch: pytest.MonkeyPatch) -> tuple[list[str], list[str]]:
    """What the kernel is asked, and what is made, from now on by this thread."""
    asked: list[str] = []
    made: list[str] = []

    def count(where: Any, name: str, counts: list[str]) -> None:
        function = getattr(where, name)

        def call(*arguments: Any, **options: Any) -> Any:
            # Another samples by the clock.
            if threading.current_thread() is threading.main_thread():
                counts.append(name)
            return function(*arguments, **options)

        patch.setattr(where, name, call)

    for name in ("open", "read", "pread", "listdir", "readlink", "stat"):
        count(os, name, asked)
    for kind in (Job, JobMember, JobRank, Process):
        count(kind, "__init__", made)
    return asked, made


@pytest.mark.parametrize(
    ("one_job", "has_clocks", "asked_most", "made_most"),
    [
        (False, False, 170, 14),
        (True, True, 16, 11),
    ],
)
def test_what_rests_is_hardly_asked_for(
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    one_job: bool,
    has_clocks: bool,
    asked_most: int,
    made_most: int,
) -> None:
    """64 processes, each a job of its own, or all of one that somebody is attached to: three
    questions for each a second at most (and a sample of each that is attached), and one for four
    where the kernel has clocks of them; what is unchanged is the same object, and few are made to
    find that out."""
    # Another test's jobs may have left a folder there, which would be looked at.
    monkeypatch.setenv("XDG_RUNTIME_DIR", str(tmp_path / "none"))
    fake = FakeProc(tmp_path)
    if has_clocks:
        fake.clocks(monkeypatch)
    for pid in RANKS:
        process_at_rest(fake, pid, LAUNCHER if one_job else 1, "python")
    for pid in WORKERS:
        parent = RANKS[pid % 8] if one_job else 1
        process_at_rest(fake, pid, parent, "pt_data_worker" if one_job else "python")
    process_at_rest(fake, LAUNCHER, 1, "torchrun")
    on_gpus = RANKS if one_job else [*RANKS, *WORKERS]
    watch = Watch(tmp_path, attached=(RANKS[0], None) if one_job else None)
    for _ in range(4 * TICKS):
        jobs = watch.look_at_all(*on_gpus, after=1.0)
    asked, made = counted(monkeypatch)
    for _ in range(TICKS):
        jobs_before, rows = jobs, watch.processes
        jobs = watch.look_at_all(*on_gpus, after=1.0)
        assert one_job or all(map(is_, jobs, jobs_before))
        assert all(map(is_, watch.processes, rows))
    watch.close()
    assert len(asked) <= asked_most * TICKS
    assert len(made) <= made_most * TICKS
