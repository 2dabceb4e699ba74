"""What runs out on a machine: memory of GPUs and of the host, cores, a CPU quota."""

from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.core.model import JobRank, TrainingLoop
from gpuwatch.diagnosis.facts.window import LoopFacts, Window
from gpuwatch.diagnosis.signals.waveform import Waveform
from tests.diagnosis import windows as w
from tests.diagnosis.rules.cases import Cases
from tests.diagnosis.windows import GIB

MIB = 1024**2


def growing(rate: float, error: float, rises: int = 30, **fields: Any) -> Window:
    """``fields`` of the GPU, or of the window."""
    of_gpu = {name: fields.pop(name) for name in ("busy", "memory_trend_seconds") if name in fields}
    grows = w.gpu(
        **of_gpu,
        memory_used_bytes=100.0 * GIB,
        memory_slope_bytes_per_second=rate,
        memory_slope_error_bytes_per_second=error,
        memory_rises=rises,
    )
    return w.window(gpus=(grows,), **fields)


GROWS = Cases("memory_growing", {
    # 40 GiB at 20 MiB/s, give or take two errors of 1 MiB/s.
    "in a range of time": (
        growing(20.0 * MIB, 1.0 * MIB),
        {"severity": "warning", "summary": "31 min to 38 min", "explains": {"memory_nearly_full"}},
    ),
    "a slope without error gives one time": (
        growing(20.0 * MIB, 0.0), {"summary": "about 34 min"},
    ),
    "minutes are an error": (growing(200.0 * MIB, 4.0 * MIB), {"severity": "error"}),
    "most of a day is information": (growing(1.5 * MIB, 0.03 * MIB), {"severity": "info"}),
    "watched for less long": (
        growing(20.0 * MIB, 1.0 * MIB, steady_seconds=100.0), {"weaker": "in a range of time"},
    ),
    "a leak goes on at its pace": growing(20.0 * MIB, 20.0 * MIB / 25.0, steady_seconds=60.0),
    "a bend of many minutes": growing(20.0 * MIB, 20.0 * MIB / 6.0, steady_seconds=400.0),
    "a server's cache may have a limit": (
        growing(200.0 * MIB, 4.0 * MIB, job=w.job(model={"serves": "it listens on TCP port 80"})),
        {"severity": "warning", "advice.1.action": "limit"},
    ),
}, {
    "an allocator that settles bends": growing(20.0 * MIB, 20.0 * MIB / 6.0, steady_seconds=60.0),
    "an allocator that meets its longest sequences rises a few times":
        growing(20.0 * MIB, 1.0 * MIB, rises=4),
    "the slope is within its error": growing(20.0 * MIB, 8.0 * MIB),
    "it would last for days": growing(0.2 * MIB, 0.001 * MIB),
    "at the start": growing(500.0 * MIB, 1.0 * MIB, starting=True),
    "a model is loaded while next to nothing runs":
        growing(500.0 * MIB, 1.0 * MIB, busy=w.steady(4.0)),
}, {
    "a server's first work has just begun": (
        growing(200.0 * MIB, 1.0 * MIB, memory_trend_seconds=30.0), "steady work",
    ),
    "in the first half minute": (
        growing(200.0 * MIB, 1.0 * MIB, steady_seconds=20.0), "steady work",
    ),
    "without a slope": (w.gpu_only(w.gpu(memory_slope_bytes_per_second=None)), "memory used"),
})  # fmt: skip

FULL: dict[str, Any] = {"memory_used_bytes": 136.0 * GIB, "memory_highest_bytes": 138.0 * GIB}
UNSIZED = w.gpu(identity=w.identity(memory_total_bytes=None))
NEARLY_FULL = Cases("memory_nearly_full", {
    "a peak that nearly filled it": (
        w.window(gpus=(w.gpu(0), w.gpu(1, **FULL))),
        {"gpus": ("GPU-1",), "summary": "99% used: 2.0G", "severity": "info",
         "advice.1.setting": "PYTORCH_ALLOC_CONF"},
    ),
    "a log, in which the framework may reserve the card": (
        w.gpu_only(w.gpu(**FULL)),
        {"advice.0.action": "reserved from the start", "settings": ["batch size"]},
    ),
    "part of it is not the job's to give back": (
        w.window(gpus=(w.gpu(foreign_memory_bytes=60.0 * GIB, **FULL),)),
        {"summary": "other processes"},
    ),
}, {
    "ninety percent":
        w.gpu_only(w.gpu(memory_used_bytes=126 * GIB, memory_highest_bytes=127 * GIB)),
    "a framework that reserves by design":
        w.window(gpus=(w.gpu(**FULL),), job=w.job(model={"framework": "jax"})),
}, {
    "while it is loaded, what steps need is not known":
        (w.window(gpus=(w.gpu(**FULL),), starting=True), "steady work"),
    "without the size of the memory": (w.gpu_only(UNSIZED), "memory size"),
})  # fmt: skip


def leaking(own: float | None = 50e6, **facts: Any) -> Window:
    rates = {"memory_slope_bytes_per_second": 55e6, "memory_slope_error_bytes_per_second": 1e6}
    workers = w.workers(8, memory_slope_bytes_per_second=own)
    return w.window(job=w.job(workers=workers), host=w.host(**(rates | facts)))


HOST = Cases("host_memory_growing", {
    "workers that grow": (
        leaking(),
        {"summary": "loader workers' memory", "advice.0.action": "numpy", "lost_share": None,
         "severity": "error"},
    ),
    "growth that is not the workers'": (
        leaking(own=0.0), {"advice.0.action": "training process"},
    ),
    "nobody knows whose growth it is: fewer workers may be no help": (
        leaking(own=None), {"settings": [None, None]},
    ),
    "swapping, whatever the trend": (
        leaking(swap_growth_bytes=2e9, memory_slope_bytes_per_second=0.0),
        {"summary": "the machine swapped 1.9G"},
    ),
}, {
    "scatter": leaking(memory_slope_error_bytes_per_second=40e6),
    "lasts for days": leaking(memory_slope_bytes_per_second=1.2e6),
    "shrinks": leaking(memory_slope_bytes_per_second=-5e6),
}, {
    "no trend": (leaking(memory_slope_bytes_per_second=None), "trend"),
    "starting": (replace(leaking(), starting=True), "starting"),
    "too young": (replace(leaking(), steady_seconds=20.0), "past start-up"),
    "its GPUs have just begun to work": (leaking(memory_trend_seconds=30.0), "past start-up"),
})  # fmt: skip


def placed(
    nodes: tuple[int, ...] | None, node: int | None = 1, wave: Waveform | None = None
) -> Window:
    """One rank on the cores of ``nodes``, its GPU on ``node``."""
    ranks = (JobRank(pid=4242, gpu_uuids=("GPU-0",), numa_nodes=nodes),)
    card = w.gpu(identity=w.identity(0, numa_node=node), busy=wave or w.steady())
    return w.window(gpus=(card,), job=w.job(model={"ranks": ranks}))


PLACED = Cases("cpu_misplaced", {
    "on the other node, while the GPU is fed": (
        placed((0,)),
        {"advice.0.action": "--cpunodebind=1", "advice.0.present": "0", "advice.0.wanted": "1",
         "severity": "info"},
    ),
    "an idle GPU may wait for that": (
        placed((0,), wave=w.swinging(0.5)), {"severity": "warning"},
    ),
}, {
    "same node": placed((1,)), "all nodes": placed((0, 1)), "one node": placed((0,), 0),
}, {
    "no affinity": (w.window(), "cores"),
    "no node of the GPU": (placed((0,), None), "GPUs' NUMA"),
})  # fmt: skip

GPUS = (w.gpu(busy=w.swinging(0.6)),)
QUOTA = {"quota_cores": 4.0, "usable_cores": 4.0, "container": "8f3c1d20ab54"}


def held_back(**facts: Any) -> Window:
    slow = w.workers(8, cpu_percent=38.0, run_queue_wait_percent=55.0)
    known: dict[str, Any] = {
        "model": QUOTA, "workers": slow, "cpu_cores": 3.9, "cpu_throttled_percent": 90.0,
        "ranks": (w.rank(loader_workers=8, workers=slow),),
    }  # fmt: skip
    return w.window(gpus=GPUS, job=w.job(**(known | facts)))


def on_the_cpu(wait: float, throttled: float) -> Window:
    ranks = (w.rank(loader_workers=8, loop=LoopFacts(data_wait_share=wait)),)
    return w.window(gpus=(), job=held_back(cpu_throttled_percent=throttled, ranks=ranks).job)


CROWDED = w.job(
    model=QUOTA, cpu_cores=3.9, cpu_throttled_percent=90.0,
    ranks=tuple(w.rank(n, run_queue_wait_percent=60.0) for n in range(2))
)  # fmt: skip
LIMITED = Cases("cpu_quota", {
    "a larger quota, and workers that fit into this one": (
        held_back(),
        {"settings": ["cpu quota", "num_workers"], "advice.0.present": "4",
         "advice.0.wanted": "16", "advice.1.wanted": "3",
         "explains": {"too_many_workers", "loader_cpu_bound"}},
    ),
    "on the CPU, with its data in time: what that costs is not known": (
        on_the_cpu(0.02, 95.0),
        {"summary": "The steps of the training loop are slow: a CPU quota of 4",
         "lost_share": None, "advice.0.setting": "cpu quota",
         "evidence": lambda rows: "waits for data" not in [row.name for row in rows]},
    ),
    "on the CPU, waiting for data": (on_the_cpu(0.4, 95.0), {"lost_share": pytest.approx(0.4)}),
    "ranks that wait for cores, while collectives make their GPUs look busy": (
        w.window(gpus=(w.gpu(0), w.gpu(1)), job=CROWDED),
        {"summary": "waited for a core 60% of the time", "lost_share": None,
         "explains": {"collective_wait"}},
    ),
}, {
    "throttled, and the GPU is fed": w.window(job=held_back().job),
    "no quota": held_back(model={}),
    "as large as the machine": held_back(model={"quota_cores": 16.0}),
    "not throttled": held_back(cpu_throttled_percent=2.0),
    "on the CPU, throttled now and then": on_the_cpu(0.02, 15.0),
}, {
    "no throttling read": (held_back(cpu_throttled_percent=None), "throttled"),
    "no cores read": (held_back(model={"usable_cores": None}), "quota"),
})  # fmt: skip


def on_cores(cores: float | None = 12.0, seen: int | None = None, **model: Any) -> Window:
    """A job without a GPU, on a machine with an idle one."""
    ranks = (JobRank(pid=w.PID, visible_gpus=seen),)
    known = {"gpu_uuids": (), "ranks": ranks} | model
    idle = w.gpu(busy=w.steady(0.0))
    own = w.job(model=known, workers=None, cpu_cores=cores)
    return w.window(gpus=(), job=own, unused=(idle,))


LOOP = TrainingLoop(pid=w.PID, compute_on_device=False)
ON_CPU = Cases("trains_on_cpu", {
    "a PyTorch without CUDA": (
        on_cores(cpu_build=True),
        {"severity": "warning", "summary": "GPU 0 sits idle: its PyTorch is built without CUDA",
         "gpus": ("GPU-0",), "advice.0.action": "Install"},
    ),
    "hidden GPUs": (
        on_cores(seen=0, cpu_build=False), {"advice.0.setting": "CUDA_VISIBLE_DEVICES"},
    ),
    "its loop reports it": (
        on_cores(framework=None, loops=(LOOP,)), {"severity": "warning", "advice.0.action": "cuda"},
    ),
    "no reason is known": (
        on_cores(cpu_build=False),
        {"severity": "info", "missing": ("why it uses no GPU",), "weaker": "hidden GPUs"},
    ),
}, {
    "no GPU here": replace(on_cores(), unused=()),
    "others use the GPU": replace(on_cores(), unused=(w.gpu(),)),
    "one thread of Python": on_cores(1.0, cpu_build=True),
    "not training": on_cores(framework=None),
}, {
    "no CPU read": (on_cores(None), "CPU"),
})  # fmt: skip
