"""Knobs of how data reaches the GPU, and the healthy jobs that look like them."""

from dataclasses import replace

from gpuwatch.sources.simulated.plans import JobPlan
from tests.evaluation.case import COSTS_LITTLE, COSTS_NOTHING, judge
from tests.evaluation.jobs.scene import GIB, Bench, Scene, always, fed, starved, with_either


def healthy(bench: Bench) -> Scene:
    work = bench.healthy_work()
    draw = bench.draw
    kind = draw.any(("plain", "plain", "just enough", "in memory", "tight", "long", "plateau"))
    if kind == "just enough":
        # Workers near a full core each, and the GPU still gets all it can take.
        work = starved(work, draw.line(1.12, 1.35))
        work = replace(work, prefetch=4, batch_spread=0.1)
    elif kind == "in memory":
        # The data set is a tensor: no workers, and a batch costs an index.
        work = replace(work, workers=0, batch_cpu=0.002 * work.gpu, read_bytes=0.0)
    elif kind == "tight":
        # Launching takes nearly as long as the kernels.
        work = replace(work, python=0.85 * work.gpu, spins=True)
    label = with_either(bench.judged(work, {"loader_cpu_bound": fed(work)}), "oscillation")
    plan, seconds = None, 120.0
    if kind == "plateau" and not bench.card.unified:
        # The caching allocator grows with the longest sequences, and then stays.
        held = draw.line(0.4, 0.75)
        plan = JobPlan(
            gpus=(),
            memory_bytes=bench.card.memory_bytes * held,
            leak_bytes_per_step=bench.card.memory_bytes * draw.line(0.008, 0.02),
            leak_every_seconds=draw.line(6.0, 20.0),
            full_share=held + draw.line(0.04, 0.1),
        )
        seconds = 300.0
    return bench.scene(work, label, plan=plan, seconds=seconds, in_log=True)


def loader_cpu_bound(bench: Bench) -> Scene:
    work = bench.healthy_work()
    draw = bench.draw
    work = replace(work, workers=draw.one((1, 2, 3, 4, 5, 6, 8, 10)))
    # From a GPU that idles six seconds of seven to one that is 97% busy.
    work = starved(work, draw.span(0.15, 1.0))
    label = bench.judged(work, {"loader_cpu_bound": fed(work)})
    cores = bench.gpus * (work.workers + 2)
    if not draw.chance(0.2):
        cores = max(cores + 4, draw.any((16, 24, 32, 64, 96)))
    return Scene(work=work, label=label, cores=cores)


def just_started(bench: Bench) -> Scene:
    """A person starts a job that is short of data, and looks."""
    draw = bench.draw
    work = bench.healthy_work()
    if draw.chance(0.5):
        work = starved(replace(work, workers=draw.one((1, 2, 3, 4))), draw.span(0.15, 0.8))
        cures = {"loader_cpu_bound": fed(work)}
    else:
        seconds = work.gpu * draw.span(0.3, 4.0)
        work = replace(work, workers=0, batch_cpu=seconds, pinned=False, log_every=1)
        cures = {"loader_in_main_process": fed(work)}
    label = bench.judged(work, cures)
    loading = draw.span(4.0, 20.0)
    plan = JobPlan(gpus=(), begin=2.0, loading_seconds=loading, age_seconds=0.0)
    return Scene(
        work=work,
        label=label,
        cores=bench.cores_for(work) + 4,
        plan=plan,
        from_seconds=2.0 + loading,
    )


def loader_io_bound(bench: Bench) -> Scene:
    work = bench.healthy_work()
    draw = bench.draw
    # Cold files on a network or spinning disk: megabytes to a gigabyte a batch.
    work = starved(work, draw.span(0.15, 0.95), disk=draw.line(0.6, 0.97))
    work = replace(work, batch_spread=draw.span(0.1, 0.5), read_bytes=work.batch_bytes)
    return bench.scene(work, bench.judged(work, {"loader_io_bound": fed(work)}))


def loader_in_main_process(bench: Bench) -> Scene:
    work = bench.healthy_work()
    draw = bench.draw
    work = replace(
        work, workers=0, batch_cpu=work.gpu * draw.span(0.08, 5.0), pinned=draw.chance(0.3),
        log_every=draw.any((1, 1, 10, 50))
    )  # fmt: skip
    return bench.scene(work, bench.judged(work, {"loader_in_main_process": fed(work)}))


def too_many_workers(bench: Bench) -> Scene:
    """More workers than cores: everything, the main process too, gets a part of a core, and the
    switching costs some of it."""
    draw = bench.draw
    work = bench.healthy_work()
    cores = draw.one((4, 6, 8, 10, 12, 16)) * bench.gpus
    workers = int(cores / bench.gpus * draw.line(1.4, 3.5))
    each = cores / bench.gpus
    speed = (each - 0.8) / workers
    kept = draw.line(0.7, 0.88)
    # Without the crowd the workers would nearly keep up, so they are never idle with it.
    alone = work.gpu * (each - 0.8) / draw.line(0.85, 1.02)
    work = replace(work, workers=workers, python=work.gpu * draw.line(0.1, 0.4))
    # A main thread that slept is let in before the workers, which never sleep.
    late = work.python / max(0.5, speed**0.5)
    slow = replace(work, batch_cpu=alone / kept, worker_speed=speed, python=late)
    fewer = replace(work, workers=int(each) - 1, batch_cpu=alone)
    cures = {"too_many_workers": fewer, "loader_cpu_bound": fed(work)}
    label, right, _ = judge(slow, bench.gpus, cures)
    _, _, share = judge(slow, bench.gpus, {"too_many_workers": fewer})
    if share >= COSTS_NOTHING:
        right = right | {"too_many_workers"}
    if share >= COSTS_LITTLE:
        # That was the knob, even where the transforms cost more than the crowd.
        label = "too_many_workers"
    return Scene(work=slow, label=(label, right), cores=cores)


def cpu_quota(bench: Bench) -> Scene:
    draw = bench.draw
    work = bench.healthy_work()
    work = replace(work, workers=draw.one((3, 4, 6, 8, 10, 12)))
    each = max(1.6, work.workers * draw.line(0.2, 0.6))
    speed = min(1.0, (each - 0.6) / (work.workers + 0.4))
    supply = draw.line(1.4, 3.0)
    work = starved(work, supply)
    slow = replace(work, worker_speed=speed, python=work.python / max(0.4, speed))
    label, right, _ = judge(slow, bench.gpus, {"cpu_quota": work})
    plan = JobPlan(gpus=(), container="8f3c1d20ab54")
    quota = each * bench.gpus
    cores = max(draw.any((16, 32, 64, 96)), int(quota * 2), bench.gpus * (work.workers + 2))
    return Scene(work=slow, label=(label, right), cores=cores, quota=quota, plan=plan)


def memory_not_pinned(bench: Bench) -> Scene:
    draw = bench.draw
    work = bench.healthy_work()
    rate = draw.span(1.5e9, 6e9)
    batch = work.gpu * draw.span(0.04, 1.2) * rate
    gpu = work.gpu
    if batch > 4e9:
        # Video and volumes; more does not fit in shared memory.
        gpu, batch = gpu * 4e9 / batch, 4e9
    work = replace(work, pinned=False, batch_bytes=batch, copy_rate=rate, gpu=gpu)
    work = replace(work, python=gpu * 0.3, batch_cpu=work.workers * gpu / 3.0)
    pinned = replace(work, pinned=True, copy_rate=bench.link)
    return bench.scene(work, bench.judged(work, {"memory_not_pinned": pinned}))


def shm_full(bench: Bench) -> Scene:
    draw = bench.draw
    work = bench.healthy_work()
    work = replace(work, batch_bytes=min(0.1 * work.gpu * work.copy_rate, draw.span(20e6, 600e6)))
    queued = work.workers * work.prefetch * work.batch_bytes * bench.gpus
    return Scene(
        work=work, label=always("shm_full"), cores=bench.cores_for(work),
        shm_bytes=int(queued * draw.line(0.9, 1.02))
    )  # fmt: skip


def host_memory_growing(bench: Bench) -> Scene:
    """Copy-on-write of Python objects: each worker gains pages at every pass over its list."""
    draw = bench.draw
    work = bench.healthy_work()
    processes = bench.gpus * (work.workers + 1)
    machine = draw.any((64, 128, 256)) * GIB * max(1, bench.gpus // 2)
    free = max(0.2 * machine, machine - processes * 2.0 * GIB)
    minutes = draw.span(8.0, 45.0)
    plan = JobPlan(
        gpus=(), resident_growth_bytes_per_second=free / (60.0 * minutes * processes),
        resident_bytes=2.0 * GIB
    )  # fmt: skip
    label = always("host_memory_growing")
    return bench.scene(work, label, plan=plan, memory_bytes=int(machine), seconds=300.0)
