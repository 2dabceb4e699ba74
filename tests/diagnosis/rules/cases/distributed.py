"""Ranks that wait for one of them."""

from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.core.model import JobRank
from gpuwatch.diagnosis.facts.window import GpuFacts, JobFacts, Window
from gpuwatch.diagnosis.signals.load import Exchange
from tests.diagnosis import windows as w
from tests.diagnosis.rules.cases import Cases

WAITS: dict[str, Any] = {
    "power_mean_watts": 430.0, "power_busy_watts": 430.0, "sm_active_percent": 56.0,
    "busy": w.steady(99.0),
}  # fmt: skip
OFF_WORK = {"power_mean_watts": 180.0, "power_busy_watts": 180.0, "power_plateau_watts": 190.0}
BLIND: dict[str, Any] = {
    "power_mean_watts": None, "power_busy_watts": None, "sm_active_percent": None
}  # fmt: skip


def alike(count: int = 4, **facts: Any) -> JobFacts:
    return w.job(ranks=tuple([w.rank(n, **facts) for n in range(count)]))


FOUR = alike()


def late_gpu(index: int, **facts: Any) -> GpuFacts:
    working = {"busy": w.swinging(0.6), "power_mean_watts": 400.0, "sm_active_percent": 55.0}
    return w.gpu(index, **(working | facts))


def with_late_first(job: JobFacts = FOUR, others: Any = WAITS, **late: Any) -> Window:
    """Rank 0 of four is late."""
    gpus = (late_gpu(0, **late), *[w.gpu(n, **(WAITS | others)) for n in range(1, 4)])
    return w.window(gpus=gpus, job=job)


def late(**rank: Any) -> Window:
    """The late one differs from the others."""
    return with_late_first(w.job(ranks=(w.rank(0, **rank), *FOUR.ranks[1:])))


def counted(*behind: float) -> JobFacts:
    """How far each rank is behind by NCCL's count."""
    return w.job(ranks=tuple([w.rank(n, collectives_behind=own) for n, own in enumerate(behind)]))


def in_turns(job: JobFacts) -> Window:
    """All four wait in collectives, and none does more or less than the others."""
    gpus = tuple([w.gpu(n, **WAITS, spins_share=0.3, spins=6) for n in range(4)])
    return w.window(gpus=gpus, job=job)


SENDS = {"network_transmit_bytes_per_second": 9e8}


def sending(
    share: float | None = None,
    rests: float | None = 0.7,
    phase: float | None = -0.4,
    world_size: int = 8,
    **host: Any,
) -> Window:
    """Four of eight ranks, whose memory rests and whose power falls while the machine sends."""
    gpus = [w.gpu(n, **WAITS, memory_rests_share=rests) for n in range(4)]
    return replace(
        w.window(gpus=tuple(gpus), job=alike(), host=w.host(**(SENDS | host))),
        job=w.job(ranks=FOUR.ranks, model={
            "world_size": world_size, "ranks": tuple([JobRank(pid=n) for n in range(4)]),
        }),
        exchange=Exchange(phase, share),
    )  # fmt: skip


VERY_LATE: dict[str, Any] = {
    "busy": w.swinging(0.15), "sm_active_percent": 12.8, "power_mean_watts": 155.0
}  # fmt: skip
DOES: dict[str, dict[str, Any]] = {
    "writes 114.4M/s, most likely a checkpoint": {"write_bytes_per_second": 120e6},
    "2 loader workers are maxed out": {"workers": w.workers(2.0, cpu_percent=98.0)},
    "waits for the disk 70%": {"workers": w.workers(8.0, disk_wait_percent=70.0)},
    "evaluating or loading": {"loader_workers": 0, "main_thread_percent": 99.0},
    "main thread is busy": {"main_thread_percent": 99.0},
    "waits for a CPU core 40%": {"run_queue_wait_percent": 40.0},
}
TROUBLES: dict[str, dict[str, Any]] = {
    "loaders": {"workers": w.workers(3.0, cpu_percent=98.0)},
    "disk": {"workers": w.workers(8.0, cpu_percent=10.0, disk_wait_percent=70.0)},
    "cores": {"run_queue_wait_percent": 60.0},
}


UNSEEN = "what cannot be seen is advice, too"
IN_TURNS = "each other, in turns"
COLLECTIVE = Cases("collective_wait", {
    UNSEEN: (
        with_late_first(),
        {"summary": "in collectives for rank 0 on GPU 0: ... does not show",
         "lost_share": pytest.approx(0.4, abs=0.02),
         "gpus": lambda gpus: gpus[0] == "GPU-0", "late": ("GPU-0",),
         "missing": lambda names: "stacks" in names,
         "explains": {"oscillation", "loader_cpu_bound", "busy_without_work"}},
    ),
    # What the others do not share is a diagnosis of its own, and a surer one.
    **{
        says: (late(**facts), {"summary": says, "strength": lambda own: own > 0.8})
        for says, facts in DOES.items()
    },
    # More workers help where there are cores for them.
    "workers at their limit, and cores are free": (
        late(workers=w.workers(2.0, cpu_percent=98.0)),
        {"advice.0.action": "Raise num_workers", "wait_share": pytest.approx(0.4, abs=0.02)},
    ),
    "workers at their limit, and no core is free": (
        with_late_first(w.job(
            ranks=(w.rank(0, workers=w.workers(2.0, cpu_percent=98.0)), *FOUR.ranks[1:]),
            cpu_cores=float(w.CORES),
        )),
        {"advice.0.action": "no cores are free"},
    ),
    "a very late rank": with_late_first(others={"power_mean_watts": 300.0}, **VERY_LATE),
    # A thread that spins for its GPU is at a full core, whether it has workers or not.
    "what all ranks do is no reason": (
        with_late_first(alike(main_thread_percent=99.0, loader_workers=0)),
        {"summary": "does not show", "settings": lambda names: not any(names)},
    ),
    "in a log, of which nothing shows whether it is one job": (
        w.gpu_only(*with_late_first(others=OFF_WORK, busy=w.steady(0.0)).gpus),
        {"summary": "or separate jobs", "missing": ("the process that runs on it",),
         "explains": {"idle_holding_memory"}, "weaker": UNSEEN},
    ),
    "by NCCL's count the same rank is behind": (
        with_late_first(counted(8.4, 0.0, 0.3, 0.2)),
        {"evidence.3.value": 8.4, "evidence.3.supports": True},
    ),
    "by NCCL's count another one is behind": (
        with_late_first(counted(0.2, 8.4, 0.0, 0.3)), {"evidence.3.supports": False},
    ),
    IN_TURNS: (
        in_turns(FOUR), {"summary": "a different rank is late at each step", "late": ()},
    ),
    "in turns, and by NCCL's count it is always the same": (
        in_turns(counted(0.1, 0.0, 5.0, 0.3)),
        {"summary": "rank 2 launches its collectives last", "late": ("GPU-2",),
         "strength": lambda own: own > 0.8},
    ),
    "in turns, and by NCCL's count in turns, too": (
        in_turns(counted(2.0, 1.8, 2.1, 1.5)),
        {"summary": "a different rank is late at each step", "evidence.4.supports": False},
    ),
    "for a rank on another machine": (
        in_turns(w.job(ranks=FOUR.ranks, model={"behind_elsewhere": "rank 21 on 10.0.0.3"})),
        {"summary": "rank 21 on 10.0.0.3 launches its collectives last"},
    ),
    "for the network, by their memory": (
        sending(),
        {"summary": "wait for the network about 70% of the time ... the machine sends 858.3M/s",
         "lost_share": pytest.approx(0.7), "settings": ["NCCL_SOCKET_IFNAME", None]},
    ),
    "for the network, by their activity": (
        sending(share=0.5, rests=None), {"summary": "about 50%", "says": "without the exchange"},
    ),
    "the busy shares alone": (
        with_late_first(others=BLIND, **BLIND),
        {"weaker": UNSEEN, "missing": lambda names: "power" in names},
    ),
}, {
    "the others work beside a very late rank":
        with_late_first(others={"sm_active_percent": 85.0}, **VERY_LATE),
    "stages and replicas are unequal by design": (
        w.window(gpus=(
            late_gpu(0, power_mean_watts=300.0, sm_active_percent=30.0),
            *[w.gpu(n) for n in range(1, 4)],
        )),
        "more work",
    ),
    # Which of them is last is chance.
    **{
        f"all in the trouble of the late one: {name}": (
            with_late_first(alike(**trouble)), "same problem"
        )
        for name, trouble in TROUBLES.items()
    },
    "a small gap that nothing explains": with_late_first(busy=w.steady(88.0)),
    "all ranks starve alike": w.window(gpus=tuple([late_gpu(n) for n in range(4)])),
    "one gpu": w.window(),
    "what is sent is sent while they work": sending(phase=0.1),
    "a little of the exchange shows": sending(rests=0.1),
    "its ranks are all here, and something else sends": sending(world_size=4),
    "a monitor sends a little": sending(network_transmit_bytes_per_second=1e5),
    "work and waits are not seen apart": sending(rests=None),
}, {
    "what is sent was not read":
        (sending(phase=None, network_transmit_bytes_per_second=None), "sends over its network"),
    "the other ranks are on other machines":
        (w.window(job=w.job(model={"world_size": 16})), "other machines"),
    "two GPUs of no known job": (w.gpu_only(late_gpu(0), w.gpu(1, **WAITS)), "processes"),
})  # fmt: skip


def spinning(index: int, **facts: Any) -> GpuFacts:
    return w.gpu(index, **({"power_mean_watts": 390.0, "sm_active_percent": 44.0} | facts))


def four(*gpus: GpuFacts) -> Window:
    return w.window(gpus=gpus, job=FOUR)


TAKEN = {"memory_used_bytes": 126.0 * w.GIB}
OLD = {"sm_active_percent": None, "memory_controller_percent": 3.0}
LIGHT = {"sm_active_percent": None, "power_mean_watts": 200.0}
UNREAD = BLIND | {"sm_clock_busy_mhz": None, "memory_controller_percent": None}
STRAGGLER = Cases("straggler", {
    "one of four does twice as much": (
        four(spinning(0), spinning(1), w.gpu(2), spinning(3)),
        {"summary": "waiting for rank 2 on GPU 2", "gpus": lambda gpus: gpus[0] == "GPU-2",
         "lost_share": pytest.approx(0.5 * 3 / 4)},
    ),
    "one of two": four(spinning(0), w.gpu(1)),
    "power alone": (
        four(spinning(0, **OLD), w.gpu(1, **OLD)),
        {"missing": ("SM activity",), "weaker": "one of two"},
    ),
    "a light model: power hardly differs, the memory controller does": (
        four(w.gpu(0, memory_controller_percent=66.0, **LIGHT),
             w.gpu(1, memory_controller_percent=76.0, **LIGHT)),
        {"gpus": ("GPU-1", "GPU-0")},
    ),
    "a slower clock": (
        four(w.gpu(0), w.gpu(1, sm_clock_busy_mhz=1500.0), w.gpu(2)),
        {"summary": "1500 MHz", "gpus": lambda gpus: gpus[0] == "GPU-1"},
    ),
}, {
    "all do the same": four(w.gpu(0), w.gpu(1, power_mean_watts=570.0, sm_active_percent=86.0)),
    "two work and two do not": four(w.gpu(0), w.gpu(1), spinning(2), spinning(3)),
    "a gpu idles": four(w.gpu(0), w.gpu(1, busy=w.swinging(0.5))),
    "different models":
        four(w.gpu(0), spinning(1, identity=w.identity(1, name="NVIDIA A100"))),
    "one gpu": w.window(),
}, {
    "two GPUs of no known job": (w.gpu_only(w.gpu(0), spinning(1)), "processes"),
    "memory that was taken in advance": (
        w.gpu_only(w.gpu(0, **TAKEN), *[spinning(n, **TAKEN) for n in range(1, 8)]), "processes",
    ),
    "neither power nor SM activity":
        (four(w.gpu(0, **UNREAD), w.gpu(1, **UNREAD)), "SM activity"),
})  # fmt: skip


def stages(together: float | None, **facts: Any) -> Window:
    """Four, of one process, busy a quarter of the time each."""
    quarter = {"busy": w.swinging(0.25, period_seconds=4.0)} | facts
    gpus = tuple([w.gpu(n, **quarter) for n in range(4)])
    return w.window(gpus=gpus, busy_together=together, power_together=together)


RECEIVING = {"busy": w.steady(99.0), "spins_share": 0.6, "spins": 15}
PIPELINE = Cases("pipeline_bubbles", {
    "one at a time": (
        stages(-0.33),
        {"summary": "in turns, 1.0 of 4 at a time", "lost_share": pytest.approx(0.75, abs=0.02),
         "advice.0.action": "micro-batches", "explains": {"oscillation", "collective_wait"}},
    ),
    "kernels that wait to receive": (
        stages(-0.3, **RECEIVING), {"lost_while_busy": True, "weaker": "one at a time"},
    ),
    "too fast to be seen": (
        stages(None, busy=w.steady(25.0)),
        {"summary": "one after the other, it seems", "weaker": "one at a time",
         "missing": ("utilisation finer than the steps",)},
    ),
}, {
    "in step": (stages(0.9), "not work in turns"),
    "fed": (stages(-0.3, busy=w.steady(97.0)), "not all"),
    "one gpu": w.window(),
}, {
    "nothing moves": (stages(None), "finer"),
    "too fast, and a process for each": (
        replace(stages(None, busy=w.steady(25.0)), job=FOUR), "finer"
    ),
})  # fmt: skip


def held(*busy: float, **model: Any) -> Window:
    """A job of one process that holds memory on as many GPUs as there are shares."""
    gpus = tuple([w.gpu(n, busy=w.steady(share)) for n, share in enumerate(busy)])
    return w.window(gpus=gpus, job=w.job(model=model))


ONE_OF_MANY = Cases("one_of_many_gpus", {
    "it works on one": (
        held(97.0, 0.0, 0.0, 0.0),
        {"summary": "uses only GPU 0: GPUs 1 to 3 run nothing", "lost_share": 1.0,
         "gpus": ("GPU-1", "GPU-2", "GPU-3"), "advice.0.action": "torchrun --nproc_per_node=4"},
    ),
    "it was given four": (
        held(97.0, ranks=(JobRank(pid=w.PID, visible_gpus=4),)),
        {"summary": "3 more that it may use are untouched", "lost_share": None},
    ),
    "of JAX": (held(97.0, 0.0, framework="jax"), {"advice.0.action": "jax.devices()"}),
}, {
    "it works on all": held(97.0, 60.0),
    "it works on none now": held(0.0, 0.0),
    "a rank that waits": w.window(gpus=(w.gpu(0, busy=w.steady(0.0)), w.gpu(1)), job=FOUR),
}, {
    "a few seconds": (replace(held(97.0, 0.0), watched_seconds=9.0), "30 s"),
})  # fmt: skip
