"""Young jobs, from their first second on: when it is said why their GPU idles, and what is said
before their first steps."""

import random
from collections.abc import Iterator
from dataclasses import dataclass, replace
from typing import Any

import pytest

from gpuwatch.core.model import BusySample, Host, Job, JobMember, JobRank, Snapshot
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.diagnosis.facts.startup import LONGEST_SECONDS
from tests.diagnosis.engines import rules_of
from tests.support.snapshots import gpu, snapshot

BEGAN = 1_700_000_100.0
TICKS = 6
"""The driver's samples in a second."""
LONG = 130.0


@dataclass(frozen=True, kw_only=True)
class Phase:
    """What a job does for a while: its steps, its processes, its memory."""

    every: float = 0.05
    busy: float = 0.0
    """Of each step, 0 to 1."""
    spread: float = 0.0
    main: float = 99.0
    workers: float | None = None
    workers_began: float = 0.0
    on_disk: bool = False
    """Its workers wait for one."""
    compiles: bool = False
    grows: bool = False


LOADS = Phase(grows=True, every=0.7, busy=0.05, spread=1.0)
SHARDS = Phase(grows=True, every=2.0, busy=0.11)
INDEXES = Phase()
TUNES = Phase(compiles=True, every=0.4, busy=0.3)
COMPILES = Phase(compiles=True, every=9.0, busy=0.01, spread=1.0)
RESTS = Phase(main=0.1)
FLAT = Phase(every=0.17, busy=0.05, main=20.0, workers=98.0)
IN_STEPS = Phase(every=1.7, busy=0.2, main=20.0, workers=98.0)
IN_BURSTS = Phase(every=16.0, busy=0.22, main=8.0, workers=1.0, on_disk=True)
FIRST_BATCH = replace(IN_BURSTS, busy=0.0, workers_began=12.9)
TRACES = replace(IN_BURSTS, busy=0.0, main=99.0)
VALIDATES = Phase(every=0.1, busy=0.6, workers=15.0)
TRIES = Phase(every=0.1, busy=0.5)
TRAINS = Phase(every=0.3, busy=0.97, main=60.0, workers=15.0)
LAUNCHES = Phase(every=0.02, busy=0.12, workers=15.0)


def life(*parts: tuple[Phase, float], age: float, fine: bool = True) -> Iterator[Snapshot]:
    """What is seen of a job from ``age`` seconds on; each phase lasts until its second number."""
    rng, work, at = random.Random(1), list[tuple[float, float]](), 0.0
    for phase, end in parts:
        while at < end:
            work.append((at, at + phase.busy * phase.every))
            at += phase.every * rng.lognormvariate(0.0, phase.spread)
    while age < parts[-1][1]:
        now = next(phase for phase, end in parts if age < end)
        near = [one for one in work if age - 1.2 < one[1] and one[0] < age]
        ends = [age - 1.0 + (number + 1) / TICKS for number in range(TICKS)]
        busy = [BusySample(BEGAN + end, mean(near, end - 1 / TICKS, end)) for end in ends]
        card = gpu(
            busy_percent=mean(near, age - 1.0, age), busy_samples=tuple(busy) if fine else None,
            memory_used_bytes=2**30 * (1 + round(2 * age if now.grows else 20)),
        )  # fmt: skip
        host = Host(name="box", cpu_percent=20.0, core_count=16, usable_cores=16.0)
        yield snapshot(100.0 + age, round(age), gpus=(card,), jobs=(job_of(now),), host=host)
        age += 1.0


def mean(work: list[tuple[float, float]], begin: float, end: float) -> float:
    return 100.0 * sum(max(0.0, min(b, end) - max(a, begin)) for a, b in work) / (end - begin)


def job_of(phase: Phase) -> Job:
    key: dict[str, Any] = {"pid": 1, "started_at_unix_seconds": BEGAN}
    main = {"main_thread_cpu_percent": phase.main, "cpu_percent": phase.main}
    members = [JobMember(role="rank", read_bytes_per_second=0.0, **main, **key)]
    count = 0 if phase.workers is None else 4
    used: dict[str, Any] = {"cpu_percent": phase.workers, "run_queue_wait_percent": 0.0}
    used["state"] = "D" if phase.on_disk else "S"
    pids = range(10, 10 + count)
    used["started_at_unix_seconds"] = BEGAN + phase.workers_began
    members += [JobMember(pid=pid, role="loader_worker", **used) for pid in pids]
    if phase.compiles:
        members.append(JobMember(pid=99, role="helper", role_sign="it is a compiler"))
    rank = JobRank(gpu_uuids=("GPU-a",), loader_workers=count, pinned_memory=True, **key)
    return Job(
        ranks=(rank,), members=tuple(members), gpu_uuids=("GPU-a",), framework="torch",
        usable_cores=16.0, **key,
    )  # fmt: skip


@pytest.mark.parametrize(("age", "fine"), [(2.0, True), (15.0, False), (120.0, True)])
@pytest.mark.parametrize(
    ("before", "until", "steps", "cause"),
    [
        (LOADS, 8.0, FLAT, "loader_cpu_bound"),
        (LOADS, 8.0, IN_STEPS, "loader_cpu_bound"),
        (SHARDS, 30.0, IN_STEPS, "loader_cpu_bound"),
        (LOADS, 8.0, LAUNCHES, "python_bound"),
        (TUNES, LONG, FLAT, "loader_cpu_bound"),
        (COMPILES, LONG, LAUNCHES, "python_bound"),
        (INDEXES, LONG, IN_STEPS, "loader_cpu_bound"),
    ],
)
def test_a_cause_is_named_soon_after_the_first_steps(
    before: Phase, until: float, steps: Phase, cause: str, age: float, fine: bool
) -> None:
    """Within 20 s of them, or of the first look, at any age; until then nothing is blamed."""
    engine, blamed = Engine(), list[tuple[float, str]]()
    end = max(age, until) + 20.0
    for one in life((before, until), (steps, end), age=age, fine=fine):
        engine.push(one)
        blamed += [(one.monotonic_seconds - 100.0, rule) for rule in rules_of(engine.diagnosis)]
    assert {rule for _, rule in blamed} == {cause}
    assert blamed[0][0] > until


@pytest.mark.parametrize("fine", [True, False])
@pytest.mark.parametrize(
    ("age", "parts", "causes"),
    [
        (2.0, ((LOADS, 8.0), (IN_BURSTS, 25.0)), {"loader_io_bound"}),
        # A sanity check has workers of its own, and a main thread that works may compile.
        (2.0, ((LOADS, 8.0), (IN_BURSTS, 13.0), (FIRST_BATCH, 40.0)), set()),
        (2.0, ((LOADS, 8.0), (IN_BURSTS, 13.0), (TRACES, 40.0)), set()),
        # Kernels that are tried out when watching begins run before the first workers come.
        (111.0, ((TRIES, 117.0), (replace(TRAINS, workers_began=117.0), 150.0)), set()),
        # Watching begins in a validation: it is blamed where it lasts.
        (300.0, ((RESTS, 299.0), (VALIDATES, 325.0), (TRAINS, 350.0)), set()),
        (300.0, ((RESTS, 299.0), (VALIDATES, 345.0)), {"python_bound"}),
    ],
)
def test_a_loop_is_judged_by_its_own_steps(
    age: float, parts: tuple[tuple[Phase, float], ...], causes: set[str], fine: bool
) -> None:
    """One burst of them suffices where the workers that brought it load; others show nothing."""
    engine, blamed = Engine(), set[str]()
    for one in life(*parts, age=age, fine=fine):
        engine.push(one)
        blamed.update(rules_of(engine.diagnosis))
    assert blamed == causes


@pytest.mark.parametrize("age", [2.0, 200.0])
@pytest.mark.parametrize(
    ("phase", "words"),
    [
        (COMPILES, "has been starting up for 4 min (it compiles)"),
        (INDEXES, "has been starting up for 4 min (its main thread is busy, no steps yet)"),
        (RESTS, "GPU 0 is idle, and nothing waits for it"),
    ],
)
def test_a_long_start_is_told_from_slow_python(phase: Phase, words: str, age: float) -> None:
    """One busy thread and an idle GPU for minutes: what it does is said, and no cure is given. A
    job that does nothing starts for no longer than three."""
    engine = Engine()
    for one in life((phase, 240.0), age=age):
        engine.push(one)
    assert words in engine.diagnosis.verdict
    assert rules_of(engine.diagnosis) == []


@pytest.mark.parametrize("busy", [0.74, 0.95])
def test_steady_work_is_no_start_though_compilers_run(busy: float) -> None:
    """Something of the job compiles all the time, for twelve minutes, while its GPU works."""
    engine = Engine()
    for one in life((replace(TRAINS, busy=busy, compiles=True), 720.0), age=2.0):
        engine.push(one)
        if one.monotonic_seconds > 100.0 + LONGEST_SECONDS + 10.0:
            assert "start" not in engine.diagnosis.verdict
    assert rules_of(engine.diagnosis) == []


def test_polls_in_step_with_the_loop_show_no_gaps() -> None:
    """Steps take a second, and so do polls, each of the same sixth of a second: in it the GPU idles
    for a quarter of the time, and in truth for 4% of it."""
    engine = Engine()
    loop = replace(LAUNCHES, every=1.0, busy=0.96)
    for one in life((loop, 400.0), age=300.0, fine=False):
        reading = replace(one.gpus[0].reading, busy_percent=100.0 * (1.0 - 0.04 * TICKS))
        engine.push(replace(one, gpus=(replace(one.gpus[0], reading=reading),)))
    assert rules_of(engine.diagnosis) == []
    assert not engine.diagnosis.decided
