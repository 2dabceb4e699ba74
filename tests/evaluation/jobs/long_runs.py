"""Healthy machines watched for long: what false alarms are counted on."""

from dataclasses import replace

from gpuwatch.sources.simulated.cards import Card
from gpuwatch.sources.simulated.plans import USERS, JobPlan, Setup, Slot
from gpuwatch.sources.simulated.training import Training
from tests.evaluation.case import HEALTHY, Case, Subject
from tests.evaluation.jobs import cards
from tests.evaluation.jobs.draw import Draw
from tests.evaluation.jobs.machine import Rig, Sensors
from tests.evaluation.jobs.physics import Checkpoint, Validation, Work
from tests.evaluation.jobs.scene import Bench

KIND = "long"
GPUS = 8
SECONDS = 1800.0


def healthy(seed: int, hours: float, *, held_out: bool) -> list[Case]:
    """Machines of eight GPUs with a job on each, half an hour each, so many GPU-hours in all."""
    count = round(hours * 3600.0 / (GPUS * SECONDS))
    return [_machine(f"{seed}/{number}", held_out=held_out) for number in range(count)]


def _machine(seed: str, *, held_out: bool) -> Case:
    draw = Draw(f"long/{seed}", held_out=held_out)
    card = draw.any([one for one in _cards(held_out) if not one.unified])
    bench = Bench(draw, card, 1)
    works = tuple(_job(bench) for _ in range(GPUS))
    jobs = tuple(
        JobPlan(
            gpus=(gpu,),
            training=Training(workers=work.workers, prefetch=work.prefetch, pinned=work.pinned),
            user=USERS[gpu % len(USERS)],
            memory_bytes=card.memory_bytes * draw.line(0.3, 0.8),
            age_seconds=draw.span(100.0, 80_000.0),
        )
        for gpu, work in enumerate(works)
    )
    slots = tuple(Slot(card=card) for _ in works)
    cores = sum(bench.cores_for(work) for work in works)
    split = "held-out" if held_out else "tuning"
    return Case(
        name=f"{split}/long/{seed}",
        kind=KIND,
        subjects=tuple(
            Subject(gpus=(gpu,), label=HEALTHY, accepted=_right(work))
            for gpu, work in enumerate(works)
        ),
        rig=Rig(
            setup=Setup(slots=slots, jobs=jobs, cores=min(256, cores)),
            works=works,
            seconds=SECONDS,
            seed=draw.rng.randrange(1 << 30),
            sensors=Sensors(
                interval=2.0, average_ticks=draw.any((1, 3, 6)), fine=draw.chance(0.8),
                attached=False, gap_every=300.0
            )
        )
    )  # fmt: skip


def _cards(held_out: bool) -> tuple[Card, ...]:
    return cards.HELD_OUT if held_out else cards.TUNING


def _right(work: Work) -> frozenset[str]:
    """A word about a pause that is there is no false alarm."""
    right = {HEALTHY}
    if work.checkpoint is not None:
        right.add("checkpoint_pauses")
    if work.validation is not None:
        right.add("validation_pauses")
    return frozenset(right)


def _job(bench: Bench) -> Work:
    """Healthy, with the short saves and evaluations of real ones (under 3% of the time)."""
    draw = bench.draw
    work = bench.healthy_work()
    if work.batch_cpu * 1.5 > work.workers * work.gpu:
        work = replace(work, batch_cpu=work.workers * work.gpu / 1.5)
    if draw.chance(0.4):
        every = draw.span(120.0, 900.0)
        seconds = every * draw.line(0.003, 0.02)
        saved = Checkpoint(every=every, bytes=seconds * 1e9, rate=1e9, first=draw.line(5.0, 100.0))
        work = replace(work, checkpoint=saved)
    if draw.chance(0.4):
        every = draw.span(200.0, 1200.0)
        pause = Validation(
            every=every, seconds=every * draw.line(0.01, 0.08), restart=draw.line(0.5, 2.0),
            busy=draw.line(0.6, 0.95), power=draw.line(0.4, 0.8), first=draw.line(5.0, 200.0)
        )  # fmt: skip
        work = replace(work, validation=pause)
    return work
