"""Knobs of the training loop and its ranks."""

from dataclasses import replace

from gpuwatch.sources.simulated.plans import JobPlan
from tests.evaluation.case import HEALTHY, UNDECIDED, judge
from tests.evaluation.jobs.physics import Checkpoint, Validation
from tests.evaluation.jobs.scene import (
    Bench,
    Scene,
    always,
    fed,
    small_kernels,
    starved,
    with_either,
)


def healthy_at_limit(bench: Bench) -> Scene:
    """Big matrices take a card to its own power limit, which costs it a few percent of clock:
    that is how it is meant to run."""
    work = bench.healthy_work()
    work = replace(work, compute=work.compute._replace(power=bench.draw.line(1.0, 1.07)))
    label = always(HEALTHY, "power_throttle")
    return bench.scene(work, label, in_log=True)


def starting(bench: Bench) -> Scene:
    """Imports, the model, compilation, the first batches: nothing to complain about yet."""
    draw = bench.draw
    work = bench.healthy_work()
    plan = JobPlan(gpus=(), begin=3.0, loading_seconds=draw.span(8.0, 70.0), age_seconds=0.0)
    label = always(HEALTHY, UNDECIDED)
    return bench.scene(work, label, plan=plan, seconds=100.0)


def python_bound(bench: Bench) -> Scene:
    draw = bench.draw
    work = bench.healthy_work()
    gpu = draw.span(0.03, 0.5)
    work = replace(
        work, gpu=gpu, python=gpu * draw.span(1.05, 5.0), main_share=draw.line(0.6, 0.97),
        batch_cpu=work.workers * gpu / 4.0,
        batch_bytes=min(work.batch_bytes, 0.02 * gpu * work.copy_rate)
    )  # fmt: skip
    return bench.scene(work, bench.judged(work, {"python_bound": replace(work, python=0.3 * gpu)}))


def sync_every_step(bench: Bench) -> Scene:
    """Without stacks all that is seen is Python that the GPU waits for, and that is right too."""
    draw = bench.draw
    work = bench.healthy_work()
    gpu = draw.span(0.03, 0.4)
    work = replace(
        work, gpu=gpu, python=gpu * draw.line(0.3, 0.95), syncs=True,
        after_sync=gpu * draw.span(0.05, 0.8), batch_cpu=work.workers * gpu / 4.0,
        batch_bytes=min(work.batch_bytes, 0.02 * gpu * work.copy_rate)
    )  # fmt: skip
    cured = replace(work, syncs=False, after_sync=0.0)
    label = with_either(bench.judged(work, {"sync_every_step": cured}), "python_bound")
    if not work.spins:
        # A main thread that sleeps while it waits is at no limit: only stacks could tell.
        label = with_either(label, UNDECIDED)
    return bench.scene(work, label)


def checkpoint_pauses(bench: Bench) -> Scene:
    draw = bench.draw
    work = bench.healthy_work()
    rate = draw.span(0.15e9, 3e9)
    seconds = draw.span(2.0, 40.0)
    every = seconds + draw.span(15.0, 120.0)
    saved = Checkpoint(
        every=every, bytes=seconds * rate, rate=rate, cpu=draw.line(0.2, 1.0),
        first=draw.line(3.0, 15.0), all_wait=draw.chance(0.4)
    )  # fmt: skip
    work = replace(work, checkpoint=saved)
    label = bench.judged(work, {"checkpoint_pauses": replace(work, checkpoint=None)})
    if bench.gpus > 1 and not saved.all_wait:
        label = with_either(label, "collective_wait")
    return bench.scene(work, label, seconds=max(120.0, 4.3 * every), from_seconds=saved.first,
        log_label=with_either(label, "validation_pauses", UNDECIDED)
    )  # fmt: skip


def validation_pauses(bench: Bench) -> Scene:
    draw = bench.draw
    work = bench.healthy_work()
    seconds = draw.any((0.0, draw.span(6.0, 60.0)))
    restart = draw.span(1.0, 4.0) if seconds else draw.span(2.0, 15.0)
    every = seconds + restart + draw.span(25.0, 140.0)
    pause = Validation(
        every=every, seconds=seconds, restart=restart, busy=draw.line(0.3, 0.95),
        power=draw.line(0.3, 0.7), first=draw.line(3.0, 20.0)
    )  # fmt: skip
    work = replace(work, validation=pause)
    # It is worth a word, and not to say it is no mistake.
    label = always("validation_pauses", HEALTHY)
    return bench.scene(work, label, seconds=max(120.0, 4.3 * every), from_seconds=pause.first,
        log_label=with_either(label, UNDECIDED, "checkpoint_pauses")
    )  # fmt: skip


def collective_wait(bench: Bench) -> Scene:
    """The ranks here wait for one whose loader is slow, or for another machine."""
    draw = bench.draw
    bench.gpus = max(bench.gpus, draw.any((2, 4, 8)))
    work = bench.healthy_work()
    if draw.chance(0.4):
        work = replace(work, remote_wait=work.gpu * draw.span(0.15, 2.0))
        label = bench.judged(work, {"collective_wait": replace(work, remote_wait=0.0)})
        label = with_either(label, "busy_without_work")
        if work.remote_wait < work.gpu:
            # All GPUs here look like those of a job bound by memory bandwidth, mean power
            # included: nobody could tell it from here.
            label = (label[0], label[1] | {HEALTHY, UNDECIDED})
        factor = 2
    else:
        slow = draw.rng.randrange(bench.gpus)
        room = work.workers * work.gpu / work.batch_cpu
        work = replace(work, slow_loaders=((slow, room * draw.span(1.15, 3.0)),))
        label = bench.judged(work, {"collective_wait": replace(work, slow_loaders=())})
        # Each of these names the rank that is waited for.
        label = with_either(label, "loader_cpu_bound", "straggler")
        factor = 1
    return bench.scene(work, label, world_size_factor=factor)


def straggler(bench: Bench) -> Scene:
    draw = bench.draw
    bench.gpus = max(bench.gpus, draw.any((2, 4, 8)))
    work = bench.healthy_work()
    slow = draw.rng.randrange(bench.gpus)
    work = replace(work, slow_gpus=((slow, draw.span(1.12, 2.5)),))
    label = bench.judged(work, {"straggler": replace(work, slow_gpus=())})
    return bench.scene(work, with_either(label, "collective_wait"))


def busy_without_work(bench: Bench) -> Scene:
    """Small kernels in a job that fills its memory, so that a larger batch is no way out."""
    draw = bench.draw
    work = replace(bench.healthy_work(), compute=small_kernels(draw))
    label = always("busy_without_work")
    plan = JobPlan(gpus=(), memory_bytes=bench.card.memory_bytes * draw.line(0.65, 0.8))
    return bench.scene(work, label, plan=plan, in_log=True)


def batch_too_small(bench: Bench) -> Scene:
    draw = bench.draw
    gpu = draw.span(0.006, 0.05)
    work = replace(
        bench.healthy_work(), gpu=gpu, compute=small_kernels(draw), batch_cpu=0.3 * gpu, workers=4,
        python=gpu * draw.line(0.4, 1.6), batch_bytes=draw.span(0.05e6, 2e6), read_bytes=0.1e6,
        log_every=100, gpu_spread=0.02, reduce=gpu * 0.1
    )  # fmt: skip
    right = {"batch_too_small", "busy_without_work"}
    if work.python > work.gpu:
        right.add("python_bound")
    label = always("batch_too_small", *right)
    # Launches that take longer than the kernels do not show in a log.
    log = with_either(label, UNDECIDED) if work.python > work.gpu else label
    plan = JobPlan(gpus=(), memory_bytes=bench.card.memory_bytes * draw.line(0.04, 0.25))
    return bench.scene(work, label, plan=plan, log_label=log)


def two_causes(bench: Bench) -> Scene:
    """Two knobs at once: what would gain most must be named first."""
    draw = bench.draw
    work = bench.healthy_work()
    work = replace(work, batch_cpu=work.workers * work.gpu / 3.0)
    saved = Checkpoint(
        every=draw.line(30.0, 70.0), bytes=draw.line(2.0, 15.0) * 1e9, rate=1e9,
        first=draw.line(3.0, 15.0), all_wait=True
    )  # fmt: skip
    pair = draw.any(("loader+checkpoint", "python+checkpoint", "main+sync", "loader+validation"))
    seconds = 200.0
    if pair == "loader+checkpoint":
        both = starved(replace(work, checkpoint=saved), draw.span(0.35, 0.95))
        cures = {"loader_cpu_bound": fed(both), "checkpoint_pauses": replace(both, checkpoint=None)}
        seconds = 4.3 * saved.every
    elif pair == "python+checkpoint":
        both = replace(work, checkpoint=saved, python=work.gpu * draw.span(1.1, 3.0))
        cures = {
            "python_bound": replace(both, python=0.3 * work.gpu),
            "checkpoint_pauses": replace(both, checkpoint=None),
        }
        seconds = 4.3 * saved.every
    elif pair == "main+sync":
        gpu = min(work.gpu, 0.4)
        both = replace(
            work, workers=0, gpu=gpu, batch_cpu=gpu * draw.span(0.1, 2.0), pinned=False,
            python=0.5 * gpu, syncs=True, after_sync=gpu * draw.span(0.05, 0.4)
        )  # fmt: skip
        cures = {
            "loader_in_main_process": fed(both),
            "sync_every_step": replace(both, syncs=False, after_sync=0.0),
        }
    else:
        pause = Validation(every=60.0, seconds=12.0, restart=2.0, busy=0.8, power=0.6)
        both = starved(replace(work, validation=pause), draw.span(0.35, 0.8))
        cures = {"loader_cpu_bound": fed(both)}
    # What one takes of the time the other cannot: half as costly is still a right answer.
    label, right, _ = judge(both, bench.gpus, cures, near=0.5)
    if label == "sync_every_step":
        label, right = with_either((label, right), "python_bound")
    return Scene(
        work=both, label=(label, right), cores=bench.cores_for(both) + 8 * bench.gpus,
        seconds=seconds
    )  # fmt: skip
