"""Jobs with something wrong: what is changed of a plain job, or what runs in its place."""

from typing import Any

from tests.evaluation.simulator import others
from tests.evaluation.simulator.machine import GIB, Device
from tests.evaluation.simulator.setting import (
    Kind,
    Setting,
    killed,
    late_save,
    new_epoch,
    optimizer_on_host,
    recompile,
    save,
    send,
    stopped,
    validation,
)
from tests.evaluation.simulator.training import Rank


def _starved(s: Setting, **more: Any) -> None:
    workers = s.pick((1, 2, 3, 4, 6))
    s.train(workers=workers, gpu=s.pick((0.1, 0.2, 0.4)), loads=s.some(1.3, 4.0), **more)


def _disk(s: Setting, speed: float, latency: float, cached: float) -> None:
    disk, gpu = s.machine.disk, s.pick((0.1, 0.2, 0.4))
    disk.speed, disk.latency = speed, latency
    s.machine.memory_used = 0.9 * s.machine.memory_total
    size = speed * gpu * s.some(1.5, 4.0) / (1.0 - cached)
    s.train(gpu=gpu, batch_bytes=size, cached=cached, requests=20, batch_cpu=0.06)


def _object_storage(s: Setting) -> None:
    workers, gpu, network = s.pick((2, 4, 8)), s.pick((0.1, 0.3)), s.machine.network
    network.latency = s.some(0.02, 0.08)
    requests = gpu * workers * s.some(1.6, 4.0) / network.latency
    s.train(workers=workers, gpu=gpu, cached=0.0, remote=True, requests=requests, batch_cpu=0.03)


def _slow_batches(s: Setting) -> None:
    tail, factor = s.some(0.02, 0.05), s.some(15.0, 30.0)
    s.train(workers=s.pick((4, 8)), gpu=0.15, loads=0.25, prefetch=1, tail=tail, tail_factor=factor)


def _crowded(s: Setting) -> None:
    cores = s.computer(cores=s.pick((4, 6))).cores.number
    s.train(workers=int(cores * s.some(2.5, 5.0)), gpu=0.15, batch_cpu=0.21 * cores, host=0.08)


def _neighbours(s: Setting) -> None:
    s.computer(cores=16).hog(40.0)
    s.train(workers=6, gpu=0.15, loads=0.7)


def _quota(s: Setting) -> None:
    quota = s.pick((2.0, 3.0, 4.0))
    s.computer(cores=32, quota=quota)
    s.train(workers=8, gpu=0.15, batch_cpu=0.15 * quota * s.some(1.5, 3.0))


def _little_shared_memory(s: Setting) -> None:
    s.machine.shm_total, s.machine.shm_used = 0.0625 * GIB, 0.0615 * GIB
    s.train(workers=4)


def _saves(s: Setting, remote: bool) -> None:
    store = s.machine.network if remote else s.machine.disk
    store.speed, every = s.some(2.5e8, 1e9), s.some(18.0, 32.0)
    size = every * s.some(0.15, 0.4) / (1.0 / store.speed + 1.0 / 1.5e9)
    s.train(gpu=0.2, pauses=((every, save(size, remote=remote)),))


def _saves_often(s: Setting) -> None:
    s.machine.disk.speed = s.some(4e8, 1e9)
    s.train(
        gpu=0.2, pauses=((s.some(9.0, 12.0), late_save(s.some(0.6e9, 1.5e9), s.some(2.0, 3.0))),)
    )


def _one_saves(s: Setting) -> None:
    ranks, remote = s.several(), s.pick((True, False))
    s.machine.network.speed = 5e8
    pauses = ((s.some(20.0, 30.0), save(s.some(4e9, 9e9), remote=remote)),)
    s.train(ranks=ranks, gpu=0.25, workers=s.pick((0, 4)), batch_cpu=0.02, pauses=pauses)


def _validates(s: Setting) -> None:
    length = s.some(5.0, 10.0)
    s.train(gpu=0.2, pauses=((length + s.some(14.0, 22.0), validation(length, s.some(0.3, 0.5))),))


def _tracks_remotely(s: Setting) -> None:
    every = s.some(0.3, 1.5)
    s.train(gpu=0.1, pauses=((every, send(every * s.some(0.4, 1.0))),))


def _one_is_late(s: Setting) -> None:
    ranks, gpu = s.several(), 0.25
    slow, late = s.draw.randrange(ranks), gpu * s.some(0.4, 1.0)
    s.train(ranks=ranks, gpu=gpu, late=lambda rank: late * (rank.number == slow))


def _another_each_time(s: Setting) -> None:
    ranks, gpu, draw = s.several(), 0.2, s.world.random

    def late(_rank: Rank) -> float:
        # Collections of garbage, retries, a neighbour's burst: seldom more than a second or two.
        share = min(2.0, gpu * draw.paretovariate(1.6) * 0.4)
        return share if draw.random() < 1.5 / ranks else 0.0

    s.train(ranks=ranks, gpu=gpu, late=late)


def _one_gpu_is_slow(s: Setting) -> None:
    ranks = s.several()
    s.train(ranks=ranks, gpu=0.25)
    device = s.machine.gpus[s.draw.randrange(ranks)]
    device.slowness, device.clock = 1.7, int(device.card.clock * 0.95)


def _one_loads_slowly(s: Setting) -> None:
    ranks, gpu = s.several(), 0.25
    rank = s.train(ranks=ranks, gpu=gpu, workers=2)[s.draw.randrange(ranks)]
    rank.loader.slowness = 2 * gpu * s.some(1.5, 2.5) / rank.recipe.batch_cpu


def _reduces_on_processors(s: Setting) -> None:
    ranks = len(s.computer(s.pick((2, 4)), 32).gpus)
    s.train(ranks=ranks, gpu=0.2, gloo=True, reduce=s.some(0.12, 0.3))


def _stages_take_turns(s: Setting) -> None:
    stages = len(s.computer(s.pick((2, 4)), 32).gpus)
    s.train(stages=stages, gpu=s.pick((0.05, 0.3)), command="python generate_split.py")


def _items(s: Setting) -> None:
    parts = s.pick((8, 20, 40))
    s.train(gpu=0.2, awaited=parts, gap=0.2 / parts * s.some(0.4, 1.0), host=0.05)


def _optimizer_on_host(s: Setting) -> None:
    cores, gpu = s.computer(cores=s.pick((32, 64))).cores.number, s.some(0.3, 0.8)
    update = optimizer_on_host(s.some(1e9, 4e9), 2e10, gpu * s.some(0.4, 1.2), int(cores * 0.9))
    s.train(gpu=gpu, batch_cpu=0.05, pauses=((0.0, update),), command="python pretrain.py")


def _weights_on_host(s: Setting) -> None:
    """FSDP with offload: the weights of each layer are fetched before it, its gradients leave."""
    s.computer(cores=32)
    gpu, speed = s.some(0.15, 0.4), s.some(1.2e10, 2.4e10)
    copies = optimizer_on_host(speed * gpu * s.some(0.4, 1.0), speed, 0.0, 0)
    s.train(gpu=gpu, batch_cpu=0.03, pauses=((0.0, copies),))


def _slow_python(s: Setting) -> None:
    gpu = s.pick((0.03, 0.1))
    s.train(gpu=gpu, host=gpu * s.some(1.4, 4.0), work=s.some(0.3, 0.7))


def _tiny_batches(s: Setting) -> None:
    s.train(
        gpu=0.004, host=s.some(0.0045, 0.007), gap=0.0003, work=0.12, workers=2, batch_cpu=0.001,
        batch_bytes=1e5, cached=1.0, copied=1e5, memory_gib=1.1
    )  # fmt: skip


def _rollouts(s: Setting) -> None:
    s.run(others.policy_gradient, s.pick((4, 8, 16)), s.some(0.004, 0.02), s.pick((True, False)))


def _slowed(s: Setting, clock: float, *reasons: str, **recipe: Any) -> Device:
    s.train(**recipe)
    device = s.machine.gpus[0]
    device.clock, device.slowness = int(device.card.clock * clock), 1.0 / clock
    device.reasons = reasons
    device.celsius = 88.0 if "thermal" in "".join(reasons) else None
    return device


def _capped(s: Setting) -> None:
    device = _slowed(s, 0.6, "sw_power_cap", work=0.95)
    device.watts_limit = round(device.card.watts * 0.5)


def _narrow_link(s: Setting) -> None:
    s.machine.gpus[0].link_width = s.pick((1, 2, 4))
    s.train(copied=6e7)


def _damaged(s: Setting, *, lost: bool) -> None:
    s.young = False
    s.several()
    s.train()
    if lost:
        s.machine.gpus[-1].lost_at = 45.0
    else:
        s.machine.gpus[0].errors_at = 45.0


def _leaks(s: Setting) -> None:
    device = s.machine.gpus[0]
    s.train(memory_gib=0.4 * device.card.gib)
    device.leak = device.card.gib * GIB * s.some(0.001, 0.0025)


def _host_leaks(s: Setting) -> None:
    s.machine.memory_total = 64 * GIB
    s.train()[0].proc.growth = s.some(0.08, 0.2) * GIB


def _shared(s: Setting) -> None:
    s.train(gpu=0.2)
    s.run(others.tenant, s.some(0.3, 0.6))


def _one_of_four_starves(s: Setting) -> None:
    s.computer(4, 64)
    for device in s.machine.gpus:
        heavy = {"workers": 2, "loads": s.some(1.6, 3.0)}
        s.train(gpu=0.2, first=device.index, **(heavy if device.index == 1 else {"workers": 4}))


def _threads(s: Setting) -> dict[str, Any]:
    return {
        "framework": s.pick(("tensorflow", "jax", "torch")), "names_threads": False, "workers": 0,
        "threads": s.pick((2, 4)), "gpu": 0.15, "command": "python train_input.py"
    }  # fmt: skip


_HOT = ("sw_thermal_slowdown",)
FAULTS = (
    Kind("heavy_transforms", "loader_cpu_bound", _starved, 2),
    Kind("no_workers", "loader_in_main_process", lambda s: s.train(
        workers=0, gpu=s.pick((0.1, 0.2, 0.4)), loads=s.some(0.4, 2.5), awaited=1), 2),
    Kind("cold_disk", "loader_io_bound", lambda s: _disk(s, s.some(8e7, 2.5e8), 0.008, 0.0)),
    Kind("cache_too_small", "loader_io_bound", lambda s: _disk(s, 4e8, 0.004, s.some(0.4, 0.75))),
    Kind("object_storage", "loader_network", _object_storage, 2),
    Kind("input_threads", "loader_threads",
         lambda s: s.train(loads=s.some(1.4, 3.0), **_threads(s)), 2),
    Kind("slow_batches", "loader_tail", _slow_batches, 2),
    Kind("crowded", "too_many_workers", _crowded),
    Kind("neighbours", "cores_taken", _neighbours),
    Kind("quota", "cpu_quota", _quota),
    Kind("pageable", "memory_not_pinned", lambda s: s.train(
        gpu=0.2, pinned=False, copied=s.some(4e8, 8e8), names_threads=True, awaited=1)),
    Kind("little_shared_memory", "shm_full", _little_shared_memory),
    Kind("local_saves", "checkpoint_pauses", lambda s: _saves(s, False), 2),
    Kind("remote_saves", "checkpoint_pauses", lambda s: _saves(s, True), 2),
    Kind("one_saves", "saving_rank", _one_saves, 2),
    Kind("saves_often", "checkpoint_pauses", _saves_often),
    Kind("recompiles", "recompiles", lambda s: s.train(
        gpu=0.2, pauses=((s.some(18.0, 28.0), recompile(s.some(5.0, 9.0))),))),
    Kind("validates", "validation_pauses", _validates),
    Kind("short_epochs", "workers_restart", lambda s: s.train(
        gpu=0.15, workers=4, pauses=((s.some(14.0, 24.0), new_epoch(s.some(3.0, 6.0))),))),
    Kind("tracks_remotely", "logging", _tracks_remotely),
    Kind("one_is_late", "late_rank", _one_is_late, 2),
    Kind("another_each_time", "late_rank", _another_each_time),
    Kind("one_gpu_is_slow", "late_rank", _one_gpu_is_slow),
    Kind("one_loads_slowly", "late_loader", _one_loads_slowly),
    Kind("reduces_on_processors", "gloo", _reduces_on_processors),
    Kind("stages_take_turns", "pipeline", _stages_take_turns, 2),
    Kind("items", "sync_every_step", _items),
    Kind("slow_python", "python_bound", _slow_python, 2),
    Kind("optimizer_on_host", "offload", _optimizer_on_host, 2),
    Kind("weights_on_host", "offload", _weights_on_host, 2),
    Kind("tiny_batches", "batch_too_small", _tiny_batches),
    Kind("rollouts", "environments", _rollouts, 2),
    Kind("few_actors", "environments",
         lambda s: s.run(others.learner, s.pick((4, 6)), s.some(0.2, 0.4))),
    Kind("without_gpu", "processor", lambda s: s.run(others.on_processor)),
    Kind("locked_low", "clocks", lambda s: _slowed(
        s, s.some(0.25, 0.6), *s.pick(((), ("applications_clocks_setting",))))),
    Kind("hot", "thermal_throttle", lambda s: _slowed(
        s, 0.6, s.pick((*_HOT, "hw_thermal_slowdown")), work=0.9)),
    Kind("capped", "power_throttle", _capped),
    Kind("narrow_link", "pcie_degraded", _narrow_link),
    Kind("falls_off", "gpu_lost", lambda s: _damaged(s, lost=True)),
    Kind("memory_errors", "hardware_errors", lambda s: _damaged(s, lost=False)),
    Kind("leaks", "memory_growing", _leaks),
    Kind("brim", "memory_nearly_full",
         lambda s: s.train(memory_gib=0.995 * s.machine.gpus[0].card.gib - 0.6)),
    Kind("host_leaks", "host_memory_growing", _host_leaks),
    Kind("shared", "other_tenant", _shared),
    Kind("stopped", "job_stopped", lambda s: s.train(pauses=((9.0, stopped),))),
    Kind("left_behind", "orphaned_workers", lambda s: s.train(pauses=((9.0, killed),), workers=4)),
    Kind("forgotten", "idle_holding_memory", lambda s: s.run(others.notebook, 1e9)),
    Kind("starved_and_saving", "loader_cpu_bound",
         lambda s: _starved(s, pauses=((28.0, save(2e9, remote=False)),)),
         also="checkpoint_pauses"),
    Kind("starved_and_hot", "loader_cpu_bound", lambda s: _slowed(
        s, 0.6, *_HOT, gpu=0.1, workers=2, loads=1.6 * s.some(1.8, 3.0)), also="thermal_throttle"),
    Kind("one_of_four_starves", "loader_cpu_bound", _one_of_four_starves, gpu=1),
)  # fmt: skip
