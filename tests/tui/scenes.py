"""Simulated machines as the dashboard sees them, built once and shared by the tests."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, replace
from functools import cache
from typing import Any

from gpuwatch.core.model import Job, JobMember, JobRank, Problem, Snapshot
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.core.store import Store
from gpuwatch.jobs.run.output import OutputTail
from gpuwatch.sources.simulated.source import SimulatedSource
from gpuwatch.tui.charts.strips import ASCII, DOTS, UNICODE, StripCache
from gpuwatch.tui.pages import job, overview
from gpuwatch.tui.terminal.frame import Line, plain, width_of
from gpuwatch.tui.view import View
from tests.support.snapshots import gpu, snapshot

GLYPHS = (UNICODE, DOTS, ASCII)

_LATER = 8


@dataclass(frozen=True)
class Scene:
    """A machine with a past. Snapshots are a second apart; the last of ``past`` is now."""

    past: tuple[Snapshot, ...]
    later: tuple[Snapshot, ...]
    history: Store

    @property
    def now(self) -> Snapshot:
        return self.past[-1]


def with_unified_memory(one: Snapshot) -> Snapshot:
    """Return the machine with GPUs that share the host's memory, as a GB10 does."""
    gpus = tuple(
        replace(
            each,
            identity=replace(
                each.identity,
                name="NVIDIA GB10",
                memory_total_bytes=None,
                memory_unified=True,
                power_limit_default_watts=None,
                power_limit_max_watts=None,
            ),
            reading=replace(each.reading, memory_used_is_process_sum=True, power_limit_watts=None),
        )
        for each in one.gpus
    )
    return replace(one, gpus=gpus)


@cache
def scene(
    scenario: str = "starved",
    gpus: int = 1,
    *,
    seconds: int = 40,
    all_processes: bool = False,
    attached: bool = False,
) -> Scene:
    """The same scene for the same arguments. Nobody may push into its history. ``attached``: to the
    first job, as if it had been asked for at the start. ``unified`` is no scenario: a healthy
    machine with unified memory."""
    clock = ManualClock(seconds=1000.0 - seconds)
    options = ReadOptions(all_processes=all_processes)
    unified = scenario == "unified"
    simulated = "healthy" if unified else scenario
    source = SimulatedSource(simulated, gpus, clock=clock, options=options)
    snapshots = []
    for _ in range(seconds + 1 + _LATER):
        one = with_unified_memory(source.read()) if unified else source.read()
        if attached and options.attached is None and one.jobs:
            options.attached = one.jobs[0].key
        snapshots.append(one)
        clock.advance(1.0)
    past, later = snapshots[:-_LATER], snapshots[-_LATER:]
    return Scene(tuple(past), tuple(later), history_of(past))


KEY = (4242, 1000.0)


def member(pid: int = 4242, **fields: Any) -> JobMember:
    started = {"started_at_unix_seconds": 1000.0 if pid == 4242 else 1001.0}
    return JobMember(pid=pid, **(started | fields))


def one_job(**fields: Any) -> Job:
    """A training process and a loader worker on ``GPU-a``; its key is ``KEY``."""
    rank = JobRank(
        pid=4242,
        started_at_unix_seconds=1000.0,
        gpu_uuids=("GPU-a",),
        loader_workers=1,
        pinned_memory=True,
    )
    settings: dict[str, Any] = {
        "pid": 4242,
        "started_at_unix_seconds": 1000.0,
        "command": "python train.py",
        "user": "ada",
        "ranks": (rank,),
        "members": (
            member(
                role="rank",
                command="python train.py",
                cpu_percent=40.0,
                main_thread_cpu_percent=40.0,
            ),
            member(
                4250,
                role="loader_worker",
                command="python train.py",
                parent_pid=4242,
                cpu_percent=90.0,
            ),
        ),
        "gpu_uuids": ("GPU-a",),
    }
    return Job(**(settings | fields))


def machine(*jobs: Job, at: float = 100.0, **fields: Any) -> Snapshot:
    """A machine with one GPU, half busy, and these jobs."""
    return replace(snapshot(at=at, gpus=(gpu(busy_percent=50.0),)), jobs=jobs, **fields)


def without_driver() -> Snapshot:
    """A machine without a GPU, which says so, and a job on its CPU."""
    says = (
        "No NVIDIA driver was found (libnvidia-ml.so.1 is not there or cannot be loaded), so there "
        "is no GPU to show; gpuwatch --demo has simulated ones. If there is an NVIDIA card, "
        "install a driver."
    )
    rank = JobRank(pid=4242, started_at_unix_seconds=1000.0, loader_workers=1, pinned_memory=False)
    problem = Problem(source="nvml", message=says, severity="error")
    return machine(one_job(ranks=(rank,), gpu_uuids=()), gpus=(), problems=(problem,))


class Printed(OutputTail):
    """Output of a job that is all there; lines before number ``first`` are no longer kept."""

    first = 0

    def __init__(self, texts: Sequence[str]) -> None:
        self.texts = list(texts)

    @property
    def total(self) -> int:
        return len(self.texts)

    def lines(self, first: int, count: int) -> Sequence[str]:
        first = max(first, self.first)
        return self.texts[first : first + count]


def history_of(snapshots: Iterable[Snapshot]) -> Store:
    history = Store()
    for one in snapshots:
        history.push(one)
    return history


def view_of(what: Scene | Snapshot, **fields: Any) -> View:
    """A view as the app makes it at the first snapshot, with its own strips."""
    if isinstance(what, Snapshot):
        now, history = what, history_of([what])
    else:
        now, history = what.now, what.history
    settings: dict[str, Any] = {
        "snapshot": now,
        "history": history,
        "strips": StripCache(),
        "focus": "gpus" if now.gpus else "processes",
        "selected_gpu": now.gpus[0].uuid if now.gpus else None,
        "all_processes": not now.gpus,
    }
    return View(**(settings | fields))


def job_view_of(what: Scene | Snapshot, **fields: Any) -> View:
    """The same, looking at the attached job, or the first."""
    view = view_of(what, **fields)
    jobs = view.snapshot.jobs
    chosen = next((one for one in jobs if one.attached), jobs[0])
    view.job.look_at(chosen.key)
    view.job.last = chosen
    return view


def fresh(view: View, **fields: Any) -> View:
    """The same view with other settings, drawn from scratch."""
    return replace(view, strips=StripCache(), **fields)


def texts(lines: Iterable[Line]) -> list[str]:
    return [plain(line) for line in lines]


def job_drawn(view: View, width: int, height: int) -> list[str]:
    """The job screen as plain lines."""
    return texts(job.draw(view, width, height).lines)


def drawn(view: View, width: int, height: int) -> list[str]:
    """The overview as plain lines."""
    return texts(overview.draw(view, width, height).lines)


def widths(lines: Iterable[Line]) -> set[int]:
    return {sum(width_of(text) for text, _ in line) for line in lines}


def controls(text: str) -> set[str]:
    """Characters a terminal could obey, or that have no picture."""
    return {character for character in text if not character.isprintable()}
