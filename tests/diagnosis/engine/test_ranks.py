"""Ranks of one job held against each other: streams of GPUs, with and without their processes.

Physics as anybody can measure it: a kernel of NCCL that waits counts as 100% busy and draws a third
of what work draws; the thread that launched it spins, too.
"""

import random
from collections.abc import Callable, Iterator

import pytest

from gpuwatch.core.model import Gpu, GpuReading, Host, Job, JobMember, JobRank, Snapshot
from gpuwatch.diagnosis.engine import Engine
from tests.diagnosis import windows as w
from tests.diagnosis.engines import rules_of

CELL = 0.05
IDLE, SAVES, SPINS, WORKS = (0, 75, 2), (0, 75, 100), (100, 190, 100), (100, 620, 100)
"""(busy percent, watts, percent of a core that the main thread uses)."""
Ranks = list[list[tuple[int, int, int]]]
"""What each rank does in each ``CELL`` of time."""
Cost = Callable[[int, random.Random], float]


def ranks(count: int, seconds: float, at: Callable[[float, int], tuple[int, int, int]]) -> Ranks:
    cells = range(int(seconds / CELL))
    return [[at(n * CELL + 1e-9, rank) for n in cells] for rank in range(count)]


def steps(count: int, seconds: float, work: Cost, load: Cost = lambda *_: 0.0) -> Ranks:
    """Data-parallel steps: each rank waits for its batch, works, and spins for the last."""
    rng = random.Random(7)
    out: Ranks = [[] for _ in range(count)]
    while len(out[0]) * CELL < seconds:
        plans = [(load(rank, rng), work(rank, rng)) for rank in range(count)]
        cells = round((max(map(sum, plans)) + 0.05) / CELL)
        for row, (loads, works) in zip(out, plans, strict=True):
            idle = [IDLE] * round(loads / CELL)
            row.extend([*idle, *[WORKS] * round(works / CELL), *[SPINS] * cells][:cells])
    return out


def saving(second: float, rank: int) -> tuple[int, int, int]:
    """Rank 0 writes a checkpoint now and then; the others run into the next collective."""
    return WORKS if second % 40.0 >= 12.0 else SPINS if rank else SAVES


def runs(second: float, rank: int) -> tuple[int, int, int]:
    """Each trains and evaluates by itself."""
    return IDLE if (second + 9.0 * rank) % (31.0 + 4.0 * rank) < 7.0 else WORKS


def stream(made: Ranks, interval: float, *, job: bool) -> Iterator[Snapshot]:
    """As a driver shows it: means over each interval, memory that is alike."""
    cells = round(interval / CELL)
    for at in range(len(made[0]) // cells):
        part = slice(at * cells, at * cells + cells)
        means = [[sum(one) / cells for one in zip(*row[part], strict=True)] for row in made]
        gpus = [
            Gpu(
                identity=w.identity(rank),
                reading=GpuReading(
                    busy_percent=busy,
                    power_watts=watts,
                    power_limit_watts=700.0,
                    memory_used_bytes=41 * w.GIB + rank,
                ),
            )
            for rank, (busy, watts, _) in enumerate(means)
        ]
        yield Snapshot(
            sequence=at,
            taken_at_unix_seconds=w.NOW + at * interval,
            monotonic_seconds=at * interval,
            interval_seconds=interval,
            simulated=True,
            host=Host(name="box", core_count=64),
            gpus=tuple(gpus),
            jobs=(job_of([cpu for *_, cpu in means]),) if job else (),
        )


def job_of(cpus: list[float]) -> Job:
    """Ranks without loader workers."""
    uuids = tuple([f"GPU-{n}" for n in range(len(cpus))])
    made = [
        (
            JobRank(pid=w.PID + n, rank=n, gpu_uuids=uuids[n : n + 1], loader_workers=0),
            JobMember(pid=w.PID + n, rank=n, role="rank", state="R", main_thread_cpu_percent=cpu),
        )
        for n, cpu in enumerate(cpus)
    ]
    parts = {"ranks": tuple([one for one, _ in made]), "members": tuple([one for _, one in made])}
    return w.model_job(gpu_uuids=uuids, **parts)


JITTER = steps(4, 120.0, lambda *_: 0.9, lambda _, rng: max(0.0, rng.gauss(0.1, 0.8)))
STREAMS: dict[str, tuple[Ranks, float, str | None, str]] = {
    # A main thread that saves is at work as one that spins is: nothing says that it loads.
    "one saves": (ranks(8, 110.0, saving), 1.0, "collective_wait", "in collectives for ... GPU 0"),
    "one has more to do": (
        steps(8, 90.0, lambda rank, _: 0.5 if rank == 3 else 0.25), 1.0, "straggler", "GPU 3",
    ),
    "another is late at every step": (JITTER, 0.2, "collective_wait", "wait for each other"),
    "the same, seen rarely": (JITTER, 1.0, "collective_wait", "wait for each other"),
    "one model on four GPUs": (
        ranks(4, 100.0, lambda second, rank: WORKS if second // 2 % 4 == rank else IDLE), 1.0,
        "pipeline_bubbles", "in turns, 1.0 of 4 at a time",
    ),
    "all starve alike": (steps(8, 90.0, lambda *_: 1.0, lambda *_: 1.5), 0.2, None, "GPUs 0 to 7"),
    "healthy": (steps(8, 90.0, lambda *_: 0.5), 1.0, None, "GPUs 0 to 7 are kept busy"),
}  # fmt: skip
BLAMED = {"collective_wait", "straggler", "pipeline_bubbles"}


@pytest.mark.parametrize("job", [False, True])
@pytest.mark.parametrize("name", STREAMS)
def test_ranks_are_judged_together(name: str, *, job: bool) -> None:
    """One finding that names all GPUs, with the job in sight or not, and never a loader for what
    a rank does to the others."""
    made, interval, rule, words = STREAMS[name]
    engine = Engine()
    for one in stream(made, interval, job=job):
        engine.push(one)
    said = engine.diagnosis
    verdict = said.verdict.replace("All 8 GPUs", "GPUs 0 to 7")
    assert all(part in verdict for part in words.split(" ... "))
    assert BLAMED.intersection(rules_of(said)) == ({rule} if rule else set())
    if rule:
        (finding,) = said.findings
        assert len(finding.gpus) == len(made)
        assert "num_workers" not in {one.setting for one in finding.advice}
        assert job or "one job" in said.verdict


ALONE: dict[str, tuple[Ranks, str]] = {
    "runs of a sweep": (ranks(4, 120.0, runs), ""),
    "three work, the fourth has ended": (ranks(4, 90.0, lambda _, n: WORKS if n else IDLE), ""),
    "two at low power, one at rest": (ranks(2, 90.0, lambda _, n: SPINS if n else IDLE), ""),
    "seven at low power, one at rest": (
        ranks(8, 90.0, lambda _, n: SPINS if n else IDLE), "or separate jobs",
    ),
}  # fmt: skip


@pytest.mark.parametrize("name", ALONE)
def test_gpus_that_may_be_of_separate_jobs(name: str) -> None:
    """Nobody is said to wait for another, unless with both readings of what is seen."""
    made, words = ALONE[name]
    engine = Engine()
    for one in stream(made, 1.0, job=False):
        engine.push(one)
    blames = [one for one in engine.diagnosis.findings if one.rule in BLAMED]
    assert bool(blames) is bool(words)
    assert all(words in one.summary and one.confidence < 0.85 for one in blames)
