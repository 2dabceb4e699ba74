"""Knobs of the GPU, its memory, its surroundings and its neighbours."""

from dataclasses import replace

from gpuwatch.sources.simulated.device import Cooling
from gpuwatch.sources.simulated.plans import JobPlan, Slot
from tests.evaluation.case import HEALTHY
from tests.evaluation.jobs.physics import Work
from tests.evaluation.jobs.scene import GIB, Bench, Scene, always, with_either


def memory_nearly_full(bench: Bench) -> Scene:
    bench.discrete()
    draw = bench.draw
    work = bench.healthy_work()
    label = always("memory_nearly_full")
    share = draw.line(0.975, 0.998) - 0.47 * GIB / bench.card.memory_bytes
    return bench.scene(work, label, filled=((0, share),), in_log=True)


def memory_growing(bench: Bench) -> Scene:
    bench.discrete()
    draw = bench.draw
    work = bench.healthy_work()
    total = bench.card.memory_bytes
    start = draw.line(0.3, 0.6)
    minutes = draw.span(8.0, 50.0)
    every = draw.span(0.5, 8.0)
    plan = JobPlan(
        gpus=(), memory_bytes=total * start, leak_every_seconds=every,
        leak_bytes_per_step=total * (0.98 - start) * every / (60.0 * minutes)
    )  # fmt: skip
    label = always("memory_growing")
    return bench.scene(work, label, plan=plan, seconds=300.0, in_log=True)


def thermal_throttle(bench: Bench) -> Scene:
    draw = bench.draw
    work = bench.healthy_work()
    card = bench.card
    work = replace(work, compute=work.compute._replace(power=draw.line(0.75, 0.97)))
    power = work.compute.power * card.limit_watts
    air = draw.line(32.0, 50.0)
    begin = draw.any((-55.0, 5.0))
    # How much of its power the cooling carries away before it slows down.
    carried = draw.line(0.4, 0.9)
    per_watt = (card.slowdown_celsius - 1.0 - air) / (carried * power)
    hot = Cooling(air_celsius=air, celsius_per_watt=per_watt, from_second=begin)
    slots = list(bench.slots)
    victims = range(bench.gpus) if draw.chance(0.4) else (0,)
    for gpu in victims:
        slots[gpu] = Slot(card=card, cooling=hot)
    right = {"thermal_throttle"}
    if 0 < len(victims) < bench.gpus:
        right |= {"straggler"}
    if carried > 0.85:
        right.add(HEALTHY)
    label = always("thermal_throttle", *right)
    return bench.scene(work, label, slots=tuple(slots), seconds=180.0,
        from_seconds=max(0.0, begin) + 30.0, in_log=True
    )  # fmt: skip


def power_throttle(bench: Bench) -> Scene:
    bench.discrete()
    draw = bench.draw
    work = bench.healthy_work()
    card = bench.card
    work = replace(work, compute=work.compute._replace(power=draw.line(0.8, 0.98)))
    share = draw.line(0.45, 0.85)
    limit = card.limit_watts * share * work.compute.power
    slots = list(bench.slots)
    victims = range(bench.gpus) if draw.chance(0.6) else (0,)
    for gpu in victims:
        slots[gpu] = Slot(card=card, power_limit_watts=limit)
    right = {"power_throttle"}
    if 0 < len(victims) < bench.gpus:
        right |= {"straggler"}
    if share > 0.8:
        right.add(HEALTHY)
    label = always("power_throttle", *right)
    return bench.scene(work, label, slots=tuple(slots), in_log=True)


def pcie_degraded(bench: Bench) -> Scene:
    draw = bench.draw
    work = bench.healthy_work()
    best = bench.card.pcie_generation
    generation, width = draw.one(
        ((1, 16), (best, 4), (2, 8), (best, 8), (1, 4), (best - 2, 16), (1, 8), (best, 2))
    )
    generation = max(1, generation)
    rate = bench.link_rate(generation, width)
    batch = min(3e9, max(work.batch_bytes, rate * work.gpu * draw.span(0.05, 1.5)))
    work = replace(work, batch_bytes=batch, copy_rate=rate)
    slots = tuple(
        Slot(card=bench.card, pcie_generation=generation, pcie_width=width)
        for _ in range(bench.gpus)
    )
    label = bench.judged(work, {"pcie_degraded": replace(work, copy_rate=bench.link)})
    if label[0] == HEALTHY:
        # It costs this job nothing, and is worth a word all the same.
        label = always("pcie_degraded", HEALTHY)
    if not work.pinned and work.workers:
        label = with_either(label, "memory_not_pinned")
    return bench.scene(work, label, slots=slots, in_log=True)


def hardware_errors(bench: Bench) -> Scene:
    work = bench.healthy_work()
    begin = bench.draw.line(5.0, 30.0)
    slots = list(bench.slots)
    slots[0] = Slot(card=bench.card, errors_from=begin)
    # Eight corrected errors make the first uncorrected one.
    label = always("hardware_errors")
    if not bench.card.ecc:
        label = always(HEALTHY)
    return bench.scene(work, label, slots=tuple(slots), from_seconds=begin + 24.0, seconds=120.0)


def gpu_lost(bench: Bench) -> Scene:
    work = bench.healthy_work()
    begin = bench.draw.line(10.0, 50.0)
    slots = list(bench.slots)
    slots[0] = Slot(card=bench.card, lost_from=begin)
    return bench.scene(work, always("gpu_lost"), slots=tuple(slots), from_seconds=begin)


def other_tenant(bench: Bench) -> Scene:
    draw = bench.draw
    bench.gpus = 1
    work = bench.healthy_work()
    share = draw.line(0.15, 0.6)
    work = replace(
        work, gpu=work.gpu / (1 - share), batch_cpu=work.batch_cpu / (1 - share),
        python=work.python
    )  # fmt: skip
    total = bench.card.memory_bytes
    theirs = JobPlan(
        gpus=(0,), user="margaret", command="python sweep.py --trials 400 --device cuda:0",
        memory_bytes=total * draw.line(0.08, 0.35), gpu_share=share, age_seconds=610.0
    )  # fmt: skip
    plan = JobPlan(gpus=(), gpu_share=1 - share, memory_bytes=total * draw.line(0.2, 0.45))
    return bench.scene(work, always("other_tenant"), plan=plan, beside=(theirs,))


def quiet_neighbour(bench: Bench) -> Scene:
    """Somebody's notebook holds a little memory on the same GPU and does nothing."""
    work = bench.healthy_work()
    theirs = JobPlan(
        gpus=(0,), user="margaret", command="python -m ipykernel_launcher -f kernel.json",
        memory_bytes=bench.draw.span(0.4, 2.0) * GIB, age_seconds=41_000.0
    )  # fmt: skip
    plan = JobPlan(gpus=(), memory_bytes=bench.card.memory_bytes * 0.4)
    label = always(HEALTHY, "idle_holding_memory")
    return bench.scene(work, label, plan=plan, beside=(theirs,))


def idle_holding_memory(bench: Bench) -> Scene:
    draw = bench.draw
    plan = JobPlan(
        gpus=(), training=None, command="python -m ipykernel_launcher -f kernel.json",
        memory_bytes=bench.card.memory_bytes * draw.line(0.12, 0.8),
        age_seconds=draw.span(3_000.0, 90_000.0)
    )  # fmt: skip
    label = always("idle_holding_memory")
    return Scene(
        work=Work(), label=label, cores=32, plan=plan, seconds=400.0, interval=2.0, log_label=label
    )


def orphaned_workers(bench: Bench) -> Scene:
    draw = bench.draw
    bench.gpus = 1
    plan = JobPlan(
        gpus=(), training=None, orphaned=True, name="pt_data_worker",
        memory_bytes=draw.line(0.5, 3.0) * GIB, resident_bytes=1.1 * GIB, age_seconds=7200.0
    )  # fmt: skip
    more = tuple(replace(plan, gpus=(0,)) for _ in range(draw.rng.randrange(1, 6)))
    label = always("orphaned_workers")
    return Scene(work=Work(), label=label, cores=32, plan=plan, beside=more, seconds=200.0)
