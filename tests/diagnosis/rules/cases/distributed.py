"""Ranks that wait for one of them."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import GpuFacts, JobFacts, Window
from tests.diagnosis import windows as w
from tests.diagnosis.rules.cases import Cases

WAITS: dict[str, Any] = {
    "power_mean_watts": 430.0, "power_busy_watts": 430.0, "sm_active_percent": 56.0,
    "busy": w.steady(99.0),
}  # fmt: skip
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


VERY_LATE: dict[str, Any] = {
    "busy": w.swinging(0.15), "sm_active_percent": 12.8, "power_mean_watts": 155.0
}  # fmt: skip
DOES: dict[str, dict[str, Any]] = {
    "writes 114.4M/s, a checkpoint": {"write_bytes_per_second": 120e6},
    "2 loader workers are at the limit": {"workers": w.workers(2.0, cpu_percent=98.0)},
    "waits for the disk 70%": {"workers": w.workers(8.0, disk_wait_percent=70.0)},
    "batches in the main process": {"loader_workers": 0, "main_thread_percent": 99.0},
    "Python thread is at work": {"main_thread_percent": 99.0},
    "waits for a CPU core 40%": {"run_queue_wait_percent": 40.0},
}
TROUBLES: dict[str, dict[str, Any]] = {
    "loaders": {"workers": w.workers(3.0, cpu_percent=98.0)},
    "disk": {"workers": w.workers(8.0, cpu_percent=10.0, disk_wait_percent=70.0)},
    "cores": {"run_queue_wait_percent": 60.0},
    "no workers": {"loader_workers": 0, "main_thread_percent": 80.0},
}
UNSEEN = "what cannot be seen is advice, too"
COLLECTIVE = Cases("collective_wait", {
    UNSEEN: (
        with_late_first(),
        {"summary": "wait for rank 0 on GPU 0 ... does not show",
         "lost_share": pytest.approx(0.4, abs=0.02),
         "gpus": lambda gpus: gpus[0] == "GPU-0", "missing": lambda names: "stacks" in names,
         "explains": {"oscillation", "loader_cpu_bound", "busy_without_work"}},
    ),
    # What the others do not share is a diagnosis of its own, and a surer one.
    **{
        says: (late(**facts), {"summary": says, "strength": lambda own: own > 0.8})
        for says, facts in DOES.items()
    },
    # A seventh of the time at 87% of its SMs: a collective that spins on 18% of them all the rest
    # of the time adds up to more than that, and is no work. At 85% it would be.
    "a very late rank": (
        with_late_first(others={"sm_active_percent": 28.0}, **VERY_LATE),
        {"says": "while GPU 0 idles, 2"},
    ),
    "what all ranks do is no reason": (
        with_late_first(alike(main_thread_percent=99.0)), {"summary": "does not show"},
    ),
    "the busy shares alone": (
        with_late_first(others=BLIND, **BLIND),
        {"weaker": UNSEEN, "missing": lambda names: "power or SM activity" in names},
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
}, {
    "the other ranks are on other machines":
        (w.window(job=w.job(model={"world_size": 16})), "other machines"),
    "no job": (w.gpu_only(late_gpu(0), w.gpu(1, **WAITS)), "processes"),
})  # fmt: skip


def spinning(index: int, **facts: Any) -> GpuFacts:
    return w.gpu(index, **({"power_mean_watts": 390.0, "sm_active_percent": 44.0} | facts))


def four(*gpus: GpuFacts) -> Window:
    return w.window(gpus=gpus, job=FOUR)


OLD = {"sm_active_percent": None, "memory_controller_percent": 3.0}
LIGHT = {"sm_active_percent": None, "power_mean_watts": 200.0}
UNREAD = BLIND | {"sm_clock_busy_mhz": None, "memory_controller_percent": None}
STRAGGLER = Cases("straggler", {
    "one of four does twice as much": (
        four(spinning(0), spinning(1), w.gpu(2), spinning(3)),
        {"summary": "wait for rank 2 on GPU 2", "gpus": lambda gpus: gpus[0] == "GPU-2",
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
    "no job": (w.gpu_only(w.gpu(0), spinning(1)), "processes"),
    "neither power nor SM activity":
        (four(w.gpu(0, **UNREAD), w.gpu(1, **UNREAD)), "SM activity"),
})  # fmt: skip
