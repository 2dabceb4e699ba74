"""The training loop: kernels too small or too slow to launch, waits for the device, pauses."""

from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import GpuFacts, LoopFacts, RankFacts, Window
from gpuwatch.diagnosis.signals.waveform import Runs, Waveform
from tests.diagnosis import windows as w
from tests.diagnosis.rules.cases import Cases, above

LITTLE: dict[str, Any] = {
    "power_mean_watts": 210.0, "power_busy_watts": 212.0, "power_plateau_watts": 220.0,
    "sm_active_percent": 14.0, "dram_active_percent": 8.0, "memory_controller_percent": 6.0,
}  # fmt: skip
NO_SM: dict[str, Any] = {"sm_active_percent": None}
NEITHER: dict[str, Any] = {"power_mean_watts": None, "power_busy_watts": None} | NO_SM
IN_VAIN = Cases("busy_without_work", {
    "low power and low SM activity": (
        w.window(gpus=(w.gpu(**LITTLE),)), {"summary": "97% busy at 210 W", "missing": ()},
    ),
    "power alone: cards before Hopper have no SM activity": (
        w.gpu_only(w.gpu(**(LITTLE | NO_SM))),
        {"missing": lambda names: "SM activity" in names,
         "weaker": "low power and low SM activity"},
    ),
    "its ranks exchange over the network: that wait needs time to show": (
        w.window(gpus=(w.gpu(**LITTLE), w.gpu(1, **LITTLE)),
                 host=w.host(network_transmit_bytes_per_second=800e6)),
        {"hold_seconds": 90.0},
    ),
    "far below the job's own plateau: it worked before": (
        w.window(gpus=(w.gpu(**(LITTLE | {"power_plateau_watts": 640.0})),)),
        {"summary": "it is waiting, not working"},
    ),
    "hardly any power is no work whatever the activities say": w.gpu_only(
        w.gpu(power_mean_watts=150.0, power_busy_watts=150.0, power_plateau_watts=155.0)
    ),
}, {
    "it works": w.window(),
    "bound by memory bandwidth": w.gpu_only(w.gpu(**(LITTLE | {"dram_active_percent": 75.0}))),
    "no SM activity and a busy memory controller":
        w.gpu_only(w.gpu(**(LITTLE | NO_SM | {"memory_controller_percent": 70.0}))),
    "not busy all the time": w.gpu_only(w.gpu(busy=w.steady(45.0), **LITTLE)),
    "a video encoder works": (w.gpu_only(w.gpu(encoder_percent=85.0, **LITTLE)), "video encoder"),
    "on a rank that waits for one that idles":
        w.window(gpus=(w.gpu(0, **LITTLE), w.gpu(1, busy=w.steady(50.0)))),
}, {
    "neither power nor SM activity": (w.gpu_only(w.gpu(**NEITHER)), "SM activity", "power"),
})  # fmt: skip


def small(index: int = 0, **facts: Any) -> GpuFacts:
    """35 of 140 GiB are used."""
    known = LITTLE | {"power_busy_watts": 210.0, "tensor_active_percent": 5.0}
    room = {"memory_used_bytes": 35.0 * w.GIB, "memory_highest_bytes": 35.0 * w.GIB}
    return w.gpu(index, **(known | room | facts))


FOUR_OF_EIGHT = {"collectives": "nccl", "world_size": 8}
FLAT_SMALL = (small(busy=w.steady(70.0)),)
BATCH = Cases("batch_too_small", {
    "to 90% of the memory the batch can go for sure": (
        w.window(gpus=(small(),)),
        {"advice.0.wanted": "3.6 times", "explains": {"busy_without_work"}},
    ),
    "tensor cores that do nothing": (
        w.window(gpus=(small(tensor_active_percent=0.0),)),
        {"settings": ["batch size", "precision"]},
    ),
    "a server takes its requests one by one": (
        w.window(gpus=(small(),), job=w.job(model={"serves": "it listens on TCP port 8000"})),
        {"advice.0.action": "several requests in one batch", "advice.0.wanted": None},
    ),
    "tensor cores that were not read": (
        w.window(gpus=(small(tensor_active_percent=None),)), {"settings": ["batch size"]},
    ),
    "power alone": (
        w.gpu_only(small(**NO_SM)),
        {"missing": lambda names: "SM activity" in names,
         "weaker": "to 90% of the memory the batch can go for sure"},
    ),
    "a flat level below full: launches leave gaps":
        w.window(gpus=FLAT_SMALL, job=w.job(main_thread_percent=50.0)),
}, {
    "the gpu is filled": w.window(),
    "a video encoder works": (
        w.window(gpus=(small(encoder_percent=85.0),)), "video encoder",
    ),
    "on the edge of two readings": w.window(
        gpus=(small(power_busy_watts=410.0, sm_active_percent=48.0),)
    ),
    "one sibling works hard": w.window(gpus=(small(0), w.gpu(1))),
    "a starved gpu": w.window(gpus=(small(busy=w.swinging(0.4)),)),
    "it drew more power before": w.window(gpus=(small(power_plateau_watts=600.0),)),
    "a main thread at its limit explains a flat level better":
        w.window(gpus=FLAT_SMALL, job=w.job(main_thread_percent=99.0)),
    "no larger batch would fit": (
        w.window(gpus=(
            small(memory_used_bytes=90.0 * w.GIB, memory_highest_bytes=90.0 * w.GIB),
        )),
        "no room",
    ),
}, {
    "its kernels may wait for ranks of other machines":
        (w.window(gpus=(small(),), job=w.job(model=FOUR_OF_EIGHT)), "ranks on other machines"),
    "no size of the memory":
        (w.gpu_only(small(identity=w.identity(memory_total_bytes=None))), "memory"),
    "neither power nor SM activity": (w.gpu_only(small(**NEITHER)), "SM activity"),
})  # fmt: skip

FLAT = w.gpu(busy=w.steady(45.0), power_busy_watts=240.0)
RESTING = w.workers(8, cpu_percent=30.0)


def launching(gpus: tuple[GpuFacts, ...] = (FLAT,), **facts: Any) -> Window:
    known: dict[str, Any] = {
        "main_thread_percent": 96.0, "main_thread_when_idle_percent": None, "workers": RESTING,
        "cpu_cores": 3.5, "ranks": (w.rank(main_thread_percent=96.0, workers=RESTING),),
    }  # fmt: skip
    return w.window(gpus=gpus, job=w.job(**(known | facts)))


HALF = w.rank(main_thread_percent=52.0, workers=RESTING)
NO_WORKERS = (w.rank(loader_workers=0, main_thread_percent=96.0, workers=None),)
SLOW_LINK = w.gpu(
    busy=w.steady(75.0), pcie_generation_busy=1, pcie_width_busy=4,
    pcie_rx_bytes_per_second=0.2e9, pcie_rx_idle_bytes_per_second=None
)  # fmt: skip
PYTHON = Cases("python_bound", {
    "flat and middling, with a full core": (
        launching(),
        {"lost_share": pytest.approx(0.55), "advice.1.action": "torch.compile",
         "missing": ("stacks of the main thread",)},
    ),
    "the backward pass on a thread of its own": (
        launching(cpu_cores=3.4, main_thread_percent=52.0, ranks=(HALF,)),
        {"weaker": "flat and middling, with a full core"},
    ),
    "something longer than a launch delays a GPU that swings": (
        launching(gpus=(w.gpu(busy=w.swinging(0.5)),), main_thread_when_idle_percent=95.0),
        {"against": True, "weaker": "flat and middling, with a full core"},
    ),
    "polls that show most of the time idle": launching(gpus=(
        w.gpu(busy=w.steady(40.0, sample_seconds=1.0), busy_polled_evenly=True),
    )),
    "stacks decide without workers": launching(
        ranks=NO_WORKERS, workers=None,
        stacks=(("computing", 80.0, None), ("loading_data", 8.0, None)),
    ),
}, {
    "a full core, and the GPU is fed": launching(gpus=(w.gpu(),)),
    "the main thread rests":
        launching(main_thread_percent=35.0, ranks=(w.rank(main_thread_percent=35.0),)),
    "it waits while idle": launching(main_thread_when_idle_percent=8.0),
    "workers at their limit": launching(
        ranks=(w.rank(main_thread_percent=96.0, workers=w.workers(2, cpu_percent=97.0)),)
    ),
    "unpinned copies": launching(
        gpus=(w.gpu(busy=w.steady(45.0), pcie_rx_idle_bytes_per_second=3e9),),
        ranks=(w.rank(main_thread_percent=96.0, pinned_memory=False),),
    ),
    "stacks wait for data": launching(stacks=(("waiting_for_data", 60.0, None),)),
    "in a pause that goes on": launching(
        gpus=(w.gpu(busy=replace(w.swinging(0.6), idle=Runs(count=0), busy=Runs(count=0))),)
    ),
    "it compiles": (launching(compile_share=0.5), "compiles"),
    "no kernel at all": launching(gpus=(w.gpu(busy=w.steady(0.3)),)),
    "copies fill a slow link": launching(gpus=(SLOW_LINK,)),
    "an optimizer on 29 cores of the host": (launching(cpu_cores=31.4), "each rank computes on 29"),
    "weights come over PCIe in each step": (
        launching(gpus=(w.gpu(busy=w.steady(45.0), pcie_rx_bytes_per_second=12e9),)),
        "11.2G/s cross PCIe",
    ),
    "weights and gradients that cross PCIe both ways": (
        launching(gpus=(w.gpu(busy=w.steady(45.0), pcie_rx_bytes_per_second=3.7e9,
                              pcie_tx_bytes_per_second=3.7e9),)),
        "3.4G/s cross PCIe",
    ),
    "gradients go to the host, where they are kept": (
        launching(gpus=(w.gpu(busy=w.steady(45.0), pcie_tx_bytes_per_second=8e9),)), "PCIe",
    ),
}, {
    "may be loading": (launching(ranks=NO_WORKERS), "stacks"),
    "steps as long as the time between polls, which meet the same moment of each": (
        launching(gpus=(
            w.gpu(busy=w.steady(84.0, sample_seconds=1.0), busy_polled_evenly=True),
        )),
        "finer than 1 s",
    ),
    "no CPU": (
        launching(main_thread_percent=None, ranks=(w.rank(main_thread_percent=None),)),
        "main thread",
    ),
})  # fmt: skip

LINE = "train.py:88 in step: total += loss.item()"


def synchronising(percent: float = 60.0, busy: float = 62.0, **facts: Any) -> Window:
    stacks = (("synchronising", percent, LINE), ("computing", 100.0 - percent, None))
    return w.window(gpus=(w.gpu(busy=w.steady(busy)),), job=w.job(**({"stacks": stacks} | facts)))


SYNCS = Cases("sync_every_step", {
    "the user's line": (
        synchronising(),
        {"summary": LINE, "explains": {"python_bound"}},
    ),
}, {
    "Python waits for a GPU that is fed": synchronising(95.0, busy=98.0),
    "rarely": synchronising(8.0),
    "waits for data more":
        synchronising(stacks=(("waiting_for_data", 55.0, None), ("synchronising", 30.0, None))),
}, {
    "no stacks": (synchronising(stacks=()), "stacks"),
})  # fmt: skip


def pausing(*before: float, seconds: float = 8.0, **facts: Any) -> Window:
    return w.window(pauses=tuple(w.pause(at, seconds, **facts) for at in before))


SAVES, RARE = (145.0, 100.0, 55.0, 10.0), (370.0, 250.0, 130.0, 10.0)
SAVED = Cases("checkpoint_pauses", {
    "in a rhythm, with writes": (
        pausing(*SAVES, wrote_bytes=16e9),
        {"summary": "every 45 s", "lost_share": pytest.approx(32.0 / 600.0), "severity": "warning",
         "explains": {"collective_wait", "oscillation"}, "strength": above(0.9)},
    ),
    "sent to other storage": (
        pausing(*SAVES, wrote_bytes=2e5, sent_bytes=2e9),
        {"summary": "was sent over the network: checkpoints", "says": "a checkpoint's size"},
    ),
    "once: the writes say what it was": (
        pausing(20.0, wrote_bytes=16e9),
        {"weaker": "in a rhythm, with writes"},
    ),
    "a job without a GPU is a loop, and reports it": (
        replace(pausing(*SAVES, seconds=3.0, phase="checkpoint"), gpus=()),
        {"summary": "The training loop paused every 45 s, for up to 3 s: checkpoints",
         "evidence": lambda rows: not any("GPU" in row.says for row in rows)},
    ),
}, {
    "no writes": pausing(100.0, 55.0, wrote_bytes=2e5),
    "a trickle is no save": pausing(200.0, seconds=120.0, wrote_bytes=40e6),
}, {
    "writes not read": (pausing(100.0, 55.0), "written"),
})  # fmt: skip
ASLEEP = (100.0, 81.0, 10.0)
AT_WORK: dict[str, Any] = {
    "wrote_bytes": 0.0, "main_thread_percent": 1.0, "busiest_worker_percent": 95.0,
}  # fmt: skip
COMPILED = Cases("recompiles", {
    "a batch of another length, again and again": (
        pausing(*SAVES, seconds=7.0, wrote_bytes=1e5, compiled=True, main_thread_percent=60.0),
        {"summary": "every 45 s, for up to 7 s, while compilers ran: the job recompiles",
         "severity": "info", "advice.0.action": "TORCH_LOGS=recompiles"},
    ),
    "beyond 10% of the time it is a warning": (
        pausing(*SAVES, seconds=20.0, compiled=True), {"severity": "warning"},
    ),
    "JAX has another log": (
        replace(pausing(*SAVES, compiled=True), job=w.job(model={"framework": "jax"})),
        {"advice.0.action": "jax_log_compiles"},
    ),
}, {
    "once: the first validation": pausing(60.0, wrote_bytes=1e5, compiled=True),
    "pauses without compilers": pausing(*SAVES, wrote_bytes=1e5),
}, {})  # fmt: skip
EPOCHS = {"seconds": 6.0, "restart_seconds": 6.0, "epoch_seconds": 30.0, "busy_percent": 0.0}


def restarting(
    *before: float, share: float = 0.5, busy: Waveform | None = None, **facts: Any
) -> Window:
    """Eight workers, at work for a ``share`` of the time; epochs of 30 s."""
    own = w.workers(8, cpu_percent=100.0 * share)
    found = pausing(*before, **(EPOCHS | facts))
    gpus = found.gpus if busy is None else (w.gpu(busy=busy),)
    return replace(found, gpus=gpus, job=w.job(workers=own))


RESTARTED = Cases("workers_restart", {
    # Steps of 0.2 s at most show: 8 workers x 0.51 x 0.2 s for a batch.
    "new workers in each epoch": (
        restarting(*SAVES, busy=replace(w.steady(45.0), faster_than_seen=True)),
        {"advice.0.setting": "persistent_workers", "advice.0.wanted": "True",
         "strength": above(0.9), "summary": "4 times, for up to 6 s",
         "lost_share": pytest.approx(4 * (6.0 - 0.816) / 120.0)},
    ),
    "once, in the second epoch": (
        restarting(10.0, share=0.05), {"weaker": "new workers in each epoch"},
    ),
    "the first batch takes its time with workers that stay, too": (
        restarting(*SAVES, busy=w.swinging(0.5, period_seconds=0.5)),
        {"lost_share": pytest.approx(4 * (6.0 - 2.04) / 120.0),
         "says": "workers that stay take as long"},
    ),
}, {
    "pauses without new workers": pausing(*SAVES, seconds=6.0),
    "a worker that takes as long for a batch": (
        restarting(*SAVES, share=0.9, busy=w.swinging(0.5, period_seconds=1.0)), "less than 1%",
    ),
    "epochs of ten minutes": restarting(*SAVES, share=0.05, epoch_seconds=600.0),
}, {
    "workers that were not read": (
        w.window(job=w.job(
            workers=None, ranks=(w.rank(loader_workers=None, workers=None),),
            model={"ranks": ()},
        )),
        "loader workers",
    ),
})  # fmt: skip
VALIDATED = Cases("validation_pauses", {
    "rare pauses without writes": (
        pausing(*RARE, seconds=6.0, wrote_bytes=1e5),
        {"severity": "info", "summary": "every", "advice": ()},
    ),
    "beyond 5% of the time something is advised": (
        pausing(*RARE, seconds=20.0, wrote_bytes=1e5), {"advice.0.action": "Validate less often"},
    ),
    "what new workers take of it is not validation": (
        pausing(*RARE, seconds=20.0, wrote_bytes=0.0, busy_percent=0.0, restart_seconds=5.0),
        {"lost_share": pytest.approx(60.0 / 600.0)},
    ),
    "only what nothing else shows is guessed": (
        pausing(*RARE, seconds=6.0, wrote_bytes=1e5),
        {"summary": "validation, or metrics and logging", "missing": ("stacks in a pause",)},
    ),
    "workers that end and begin show an epoch": (
        pausing(*RARE, seconds=6.0, wrote_bytes=1e5, restart_seconds=1.0),
        {"summary": "ends of epochs", "missing": ()},
    ),
    "half of the GPU is used meanwhile, half of it is lost": (
        pausing(*RARE, seconds=20.0, wrote_bytes=0.0, busy_percent=50.0),
        {"lost_share": pytest.approx(40.0 / 600.0)},
    ),
    "a job without a GPU is a loop, and reports it": (
        replace(pausing(*SAVES, seconds=6.0, phase="validation"), gpus=()),
        {"summary": "The training loop paused every 45 s",
         "evidence": lambda rows: not any("GPU" in row.says for row in rows)},
    ),
}, {
    "once": pausing(60.0, wrote_bytes=1e5),
    "saves": pausing(100.0, 55.0, 10.0, wrote_bytes=9e9),
    "uploads": pausing(100.0, 55.0, 10.0, wrote_bytes=0.0, sent_bytes=9e9),
    "recompiles": (pausing(*RARE, wrote_bytes=1e5, compiled=True), "compilers"),
    "workers that start anew": pausing(*RARE, seconds=6.0, wrote_bytes=1e5, restart_seconds=5.0),
    "waits of workers at their limit": pausing(*ASLEEP, busy_percent=30.0, **AT_WORK),
    "a single worker makes a late batch": pausing(*ASLEEP, busy_percent=0.0, **AT_WORK),
}, {
    "writes not read": (pausing(100.0, 55.0), "written"),
    "memory was freed in them, as who waits for requests does": (
        pausing(*RARE, seconds=6.0, wrote_bytes=1e5, memory_freed_share=0.5), "stacks",
    ),
    "they take half of the time": (
        pausing(*RARE, seconds=160.0, wrote_bytes=1e5), "stacks",
    ),
    "nothing loads data: a program that makes pictures pauses in a rhythm, too": (
        replace(
            pausing(*RARE, seconds=6.0, wrote_bytes=1e5, main_thread_percent=95.0),
            job=w.job(workers=None, ranks=(w.rank(loader_workers=0, workers=None),)),
        ),
        "stacks",
    ),
    "it plays games between its updates": (
        replace(
            pausing(*RARE, seconds=6.0, wrote_bytes=1e5),
            job=w.job(model={"simulates": "MuJoCo is loaded in it"}),
        ),
        "stacks",
    ),
    "two in which the GPU rests: a queue of jobs, perhaps": (
        pausing(100.0, 55.0, wrote_bytes=1e5, busy_percent=0.0), "nothing to do",
    ),
    "nothing of the job works in them": (
        pausing(*RARE, wrote_bytes=0.0, busy_percent=0.0, main_thread_percent=1.0), "stacks",
    ),
})  # fmt: skip


def calling(share: float | None = 0.25, idle: float = 30.0, **facts: Any) -> Window:
    """The training process waits for answers for so much of the time; its workers rest."""
    known: dict[str, Any] = {
        "main_thread_when_idle_percent": 4.0, "network_receive_bytes_per_second": 4e3,
        "network_send_bytes_per_second": 9e3, "ranks": (w.rank(awaits_network_share=share),),
    }  # fmt: skip
    return w.window(gpus=(w.gpu(busy=w.steady(100.0 - idle)),), job=w.job(**(known | facts)))


CALLS = Cases("network_calls", {
    "a call of 0.25 s in steps of a second": (calling(0.25, 25.0), {"lost_share": above(0.2)}),
    "asleep for an answer, with batches ready": (
        calling(),
        {"summary": "sat idle 30% of the time: the training loop waits for answers",
         "advice.0.action": "from a thread", "missing": ("stacks of the main thread",)},
    ),
    "without workers, and answers are short": (
        calling(ranks=(w.rank(awaits_network_share=0.25, loader_workers=0),)),
        {"summary": "the training loop waits for answers"},
    ),
    # A GPU step of 0.2 s and a call of 0.25 s after its launch.
    "a call that is longer than the step that runs meanwhile": (
        calling(0.95, 24.0, workers=w.workers(2, cpu_percent=3.0)),
        {"weaker": "asleep for an answer, with batches ready"},
    ),
    "less than half of the time on a crowded machine, of which the rest is waited for a core": (
        calling(0.33, 68.0, ranks=(
            w.rank(awaits_network_share=0.33, run_queue_wait_percent=20.0),)),
        {"lost_share": pytest.approx(0.48)},
    ),
}, {
    "seldom": calling(0.05),
    "longer for a core": calling(ranks=(
        w.rank(awaits_network_share=0.25, run_queue_wait_percent=33.0),)),
    "main thread computes": calling(main_thread_when_idle_percent=97.0),
    "its workers ask as well": calling(ranks=(w.rank(
        awaits_network_share=0.25, workers=w.workers(awaits_network_share=0.9)),
    )),
    "without workers, data comes": calling(
        ranks=(w.rank(awaits_network_share=0.25, loader_workers=0),),
        network_receive_bytes_per_second=4e6,
    ),
    "uploads": calling(network_send_bytes_per_second=40e6),
    "it waits for its data": calling(ranks=(w.rank(
        awaits_network_share=0.25, loop=LoopFacts(data_wait_share=0.3)),
    )),
    "idles at length": w.window(
        gpus=(w.gpu(busy=w.swinging(0.5, period_seconds=20.0)),), job=calling(0.4).job
    ),
}, {
    "not read": (calling(None), "connections"),
    "ranks elsewhere": (calling(model={"world_size": 16}), "connections"),
    "without workers, and what came is not known: it may be data": (
        calling(ranks=(w.rank(awaits_network_share=0.25, loader_workers=0),),
                network_receive_bytes_per_second=None), "what the training process receives",
    ),
    "without workers, and what came may be either": (
        calling(ranks=(w.rank(awaits_network_share=0.25, loader_workers=0),),
                network_receive_bytes_per_second=400e3), "what the training process receives",
    ),
    "another thread calls all the time, perhaps": (
        calling(1.0, main_thread_when_idle_percent=40.0), "stacks",
    ),
})  # fmt: skip

STOP: dict[str, Any] = {"state": "T", "stopped_seconds": 9.0}


def ranks(*those: RankFacts) -> Window:
    gpus = tuple([w.gpu(n) for n in range(len(those))])
    return w.window(gpus=gpus, job=w.job(ranks=those))


STOPPED = Cases("job_stopped", {
    "its PID, how to continue it, and nothing else": (
        ranks(w.rank(None, **STOP)),
        {"summary": "The job (PID 4242) is stopped", "advice.0.action": "kill -CONT 4242 ",
         "explains": {"loader_cpu_bound", "oscillation", "idle_holding_memory"},
         "lost_share": None},
    ),
    "all its ranks": (
        ranks(*[w.rank(n, **STOP) for n in range(3)]),
        {"summary": "All 3 ranks of the job are stopped", "gpus": (),
         "advice.0.action": "kill -CONT 4242 4243 4244 "},
    ),
    "one rank of several, with its GPU": (
        ranks(w.rank(0), w.rank(1, **STOP), w.rank(2)),
        {"summary": "Rank 1 is stopped, and the others wait for it", "gpus": ("GPU-1",),
         "explains": {"collective_wait"}},
    ),
    "two ranks of several": (
        ranks(w.rank(0), w.rank(1, **STOP), w.rank(2, **STOP)),
        {"summary": "Rank 1 and rank 2 are stopped, and the others wait for them"},
    ),
    "a debugger holds it: no signal is of use": (
        ranks(w.rank(None, state="t", stopped_seconds=60.0)),
        {"summary": "held by a debugger",
         "advice": lambda advice: "kill" not in advice[0].action},
    ),
}, {
    "starved": w.window(gpus=(w.gpu(busy=w.swinging(0.2)),)),
    "idle, and runs": w.window(gpus=(w.gpu(busy=w.steady(0.0)),)),
}, {
    "no state": (ranks(w.rank(None, state=None, stopped_seconds=None)), "state"),
    "no ranks": (w.window(job=w.job(ranks=())), "state"),
})  # fmt: skip
