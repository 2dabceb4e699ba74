"""Data that comes too late: workers, the main process, the disk."""

from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.core.model import JobMember, JobRank, NetworkMount
from gpuwatch.diagnosis.facts.window import GpuFacts, JobFacts, LoopFacts, Window
from gpuwatch.diagnosis.signals.waveform import Waveform
from tests.diagnosis import windows as w
from tests.diagnosis.rules.cases import Cases, above

GPUS = (w.gpu(busy=w.swinging(0.4)),)
BUSY = w.workers(2, cpu_percent=98.0)


def starved(count: int = 2, cores: int = 16, **facts: Any) -> Window:
    """Two workers at their limit, the GPU busy at 40%."""
    busy = w.workers(count, cpu_percent=98.0, run_queue_wait_percent=0.5)
    known: dict[str, Any] = {
        "model": {"usable_cores": float(cores), "affinity_cores": cores},
        "cpu_cores": count + 0.4, "main_thread_percent": 30.0,
        "main_thread_when_idle_percent": 5.0, "workers": busy, "workers_when_idle_percent": 99.0,
        "workers_when_busy_percent": 96.0,
        "ranks": (w.rank(loader_workers=count, workers=busy),),
    }  # fmt: skip
    cpu = min(100.0, 100.0 * (count + 0.5) / cores)
    host = w.host(core_count=cores, cpu_percent=cpu)
    return w.window(gpus=GPUS, job=w.job(**(known | facts)), host=host)


def with_workers(count: float, **facts: Any) -> Window:
    """All of them the one rank's."""
    own = w.workers(count, **facts)
    return starved(
        round(count), workers=own, ranks=(w.rank(loader_workers=round(count), workers=own),)
    )


def two_ranks(
    *cpus: float, gpus: tuple[GpuFacts, ...] = (GPUS[0], w.gpu(1)), **facts: Any
) -> Window:
    """Of two workers each, that use so much of a core."""
    ranks = tuple(
        w.rank(n, loader_workers=2, workers=w.workers(2, cpu_percent=cpu))
        for n, cpu in enumerate(cpus)
    )
    known: dict[str, Any] = {"ranks": ranks, "main_thread_when_idle_percent": 10.0}
    return w.window(gpus=gpus, job=w.job(**(known | facts)), host=w.host(cpu_percent=32.0))


def main_at(percent: float) -> Window:
    """Of a core, and samples do not show when."""
    own = w.rank(loader_workers=2, workers=BUSY, main_thread_percent=percent)
    return starved(ranks=(own,), main_thread_when_idle_percent=None)


def on_the_cpu() -> Window:
    own = w.rank(
        loader_workers=2, pinned_memory=False, gpu_uuids=(), workers=BUSY,
        loop=LoopFacts(data_wait_share=0.5)
    )  # fmt: skip
    return w.window(gpus=(), job=w.job(ranks=(own,), workers=BUSY))


def no_more_workers(advice: Any) -> bool:
    return all("Raise num_workers" not in one.action for one in advice)


HELD_DOWN = {"cpu_clock_mhz": 1200.0, "cpu_clock_base_mhz": 2400.0, "cpu_clock_max_mhz": 3900.0}


def slowed(**facts: Any) -> Window:
    found = starved()
    return replace(found, host=replace(found.host, **(HELD_DOWN | facts)))


PAUSED = w.window(
    gpus=(w.gpu(busy=w.steady(80.0)),), job=starved().job,
    pauses=(w.pause(30.0, 12.0, wrote_bytes=9e9),)
)  # fmt: skip
UNPINNED = (w.rank(loader_workers=2, pinned_memory=False, workers=BUSY),)
CPU_BOUND = Cases("loader_cpu_bound", {
    "cores that heat holds down": (
        slowed(cpu_thermal_share=0.5), {"says": "cores are held down by their temperature"},
    ),
    "cores that a governor holds down": (
        slowed(cpu_governor="powersave"), {"says": 'as the governor "powersave" has it'},
    ),
    "cores at the clock that they are made for say nothing": (
        slowed(cpu_clock_mhz=2600.0, cpu_governor="powersave"),
        {"says": lambda text: "held down" not in text},
    ),
    # 2 workers x 0.985 / 0.39 busy x 1.25
    "too few workers, free cores: their number is named": (
        starved(),
        {"advice.0.setting": "num_workers", "advice.0.present": "2", "advice.0.wanted": "6",
         "lost_share": pytest.approx(0.608), "explains": {"oscillation"}, "strength": above(0.9)},
    ),
    "a rank keeps a core for its main thread": (starved(cores=6), {"advice.0.wanted": "5"}),
    "all cores are at work": (
        starved(count=4, cores=4),
        {"advice": no_more_workers, "advice.0.action": "cheaper", "summary": "no cores are free",
         "advice.0.why": lambda why: "of 4 cores the job may use, no cores are free" in why},
    ),
    "one core": (
        starved(count=1, cores=1, cpu_cores=0.99),
        {"advice.0.why": lambda why: "of 1 core the job" in why, "summary": "and no cores are"},
    ),
    "128 cores and a GPU that hardly works": (
        replace(starved(count=8, cores=128), gpus=(w.gpu(busy=w.swinging(0.03)),)),
        {"advice.0.wanted": "16", "summary": "119 cores sit idle"},
    ),
    "two cores, and a GPU that hardly works: one more": (
        replace(
            starved(count=1, cores=2, cpu_cores=1.0), gpus=(w.gpu(busy=w.swinging(0.03)),)
        ),
        {"advice.0.present": "1", "advice.0.wanted": "2"},
    ),
    "another job has the cores": (
        w.window(gpus=GPUS, job=starved().job, host=w.host(cpu_percent=99.0)),
        {"advice": no_more_workers},
    ),
    "two ranks share 16 cores": (
        two_ranks(
            98.0, 98.0, gpus=tuple(w.gpu(n, busy=w.swinging(0.2)) for n in range(2)),
            model={"ranks": w.model_job().ranks * 2}, cpu_cores=5.0,
            workers=w.workers(4, cpu_percent=98.0),
        ),
        {"advice.0.wanted": "7", "gpus": ("GPU-0", "GPU-1"), "explains": {"collective_wait"}},
    ),
    "one rank starves: that it is late is the finding": (
        two_ranks(98.0, 30.0),
        {"gpus": ("GPU-0",), "explains": lambda rules: "collective_wait" not in rules},
    ),
    "both starve: the waits in collectives are explained": (
        two_ranks(98.0, 98.0), {"explains": {"collective_wait"}},
    ),
    "60% of a core and 38% in the run queue is a worker at its limit":
        with_workers(4, cpu_percent=60.0, run_queue_wait_percent=38.0),
    "samples do not show when the main thread works: it may spin while its GPU is busy": (
        main_at(65.0),
        {"evidence.2.says": "it may only spin", "evidence.2.value": above(40.0)},
    ),
    # 2 workers of 4 cores, 0.39 busy: 5 of them could use 20 cores and there are 16.
    "child processes work for them, on four cores each": (
        with_workers(2, cpu_percent=400.0), {"advice.0.wanted": "3"},
    ),
    "the workers of a second loader rest": (
        with_workers(2, cpu_percent=98.0, resting=2),
        {"advice.0.present": "2", "summary": "2 loader workers are maxed out",
         "says": "second loader"},
    ),
    "pinning is a second advice, not the cause": (
        starved(ranks=UNPINNED, workers=BUSY), {"settings": ["num_workers", "pin_memory"]},
    ),
    "without a GPU there is no copy to speed up": (
        on_the_cpu(), {"advice.0.setting": "num_workers",
                       "advice": lambda all_of: "pin_memory" not in [a.setting for a in all_of]},
    ),
}, {
    "workers rest": w.window(gpus=GPUS),
    "main thread computes": starved(main_thread_when_idle_percent=97.0),
    "main thread works for longer than its GPU does": main_at(90.0),
    "no workers": starved(count=0, ranks=(w.rank(loader_workers=0),)),
    "the job has ended": starved(model={"ended_at_unix_seconds": 1_700_000_000.0}),
    "a checkpoint is no idling for data, however busy the workers are": PAUSED,
    "workers that wait for the disk": with_workers(4, cpu_percent=30.0, disk_wait_percent=65.0),
}, {
    "no samples": (w.window(gpus=(w.gpu(busy=None),)), "utilisation"),
    "no workers read": (
        starved(workers=None, ranks=(w.rank(loader_workers=None, workers=None),)),
        "loader workers",
    ),
    "no CPU read": (with_workers(2, cpu_percent=None), "CPU"),
    "starting": (w.window(gpus=GPUS, starting=True), "starting"),
})  # fmt: skip


def waiting(pressure: float = 70.0, **facts: Any) -> Window:
    slow = w.workers(4, **({"cpu_percent": 12.0, "disk_wait_percent": 85.0} | facts))
    own = w.job(
        workers=slow, main_thread_when_idle_percent=3.0, read_bytes_per_second=150e6,
        ranks=(w.rank(loader_workers=4, workers=slow),)
    )  # fmt: skip
    gpus = (w.gpu(busy=w.swinging(0.35)),)
    return w.window(gpus=gpus, job=own, host=w.host(pressure_io_percent=pressure))


def over_network(
    share: float | None = 0.9, receives: float = 1e5, cpu: float = 3.0, **facts: Any
) -> Window:
    """Workers asleep; ``receives``: of the machine."""
    slow = w.workers(4, cpu_percent=cpu, awaits_network_share=share)
    known: dict[str, Any] = {
        "workers": slow, "main_thread_when_idle_percent": 3.0, "read_bytes_per_second": 0.0,
        "network_receive_bytes_per_second": 5e6, "network_send_bytes_per_second": 1e4,
        "ranks": (w.rank(loader_workers=4, workers=slow),),
    }  # fmt: skip
    host = w.host(network_receive_bytes_per_second=receives)
    return w.window(gpus=GPUS, job=w.job(**(known | facts)), host=host)


WAITS = (("waiting_for_data", 97.0, "train.py:41 (main)"), ("computing", 3.0, None))
OTHERWISE = (("synchronising", 95.0, "train.py:50 (main)"), ("waiting_for_data", 5.0, None))


def asleep(
    count: int = 2, share: float | None = None, busy: float = 0.33, cpu: float = 2.0, **facts: Any
) -> Window:
    """Workers that use next to no CPU, wait for no disk and no connection, beside a main thread
    that rests; ``share``: of the looks that found them within a batch."""
    cores = facts.pop("cores", 4.0)
    held = facts.pop("held", None)
    own = w.workers(
        count, cpu_percent=cpu, disk_wait_percent=0.0, in_disk_wait_share=0.0,
        awaits_network_share=0.0, at_work_share=share, resting=facts.pop("resting", 0),
    )  # fmt: skip
    members = tuple(
        JobMember(pid=7000 + n, role="loader_worker", memory_proportional_bytes=held)
        for n in range(count)
    )
    model = {"usable_cores": cores, "affinity_cores": int(cores), "members": members}
    known: dict[str, Any] = {
        "model": model, "workers": own, "main_thread_when_idle_percent": 3.0, "cpu_cores": 0.1,
        "main_thread_percent": 4.0, "read_bytes_per_second": 0.0,
        "ranks": (w.rank(loader_workers=count, main_thread_percent=4.0, workers=own),),
    }  # fmt: skip
    host = w.host(core_count=int(cores), cpu_percent=facts.pop("host_cpu", 5.0))
    gpus = (w.gpu(busy=w.steady(100.0 * busy)),)
    return w.window(gpus=gpus, job=w.job(**(known | facts)), host=host)


def reports(wait: float) -> dict[str, Any]:
    own = w.workers(2, cpu_percent=2.0, disk_wait_percent=0.0, in_disk_wait_share=0.0)
    return {"ranks": (w.rank(loader_workers=2, workers=own, loop=LoopFacts(data_wait_share=wait)),)}


ASKS_ITSELF = (w.rank(loader_workers=0, workers=None, awaits_network_share=0.55),)


def waiting_alone(reads: float, writes: float = 0.0) -> Window:
    """The training process itself."""
    ranks = (w.rank(loader_workers=0, workers=None, disk_wait_percent=50.0),)
    own = w.job(
        workers=None, ranks=ranks, read_bytes_per_second=reads, write_bytes_per_second=writes
    )
    return w.window(gpus=GPUS, job=own, host=w.host(pressure_io_percent=60.0))


UNCOUNTED = (w.rank(loader_workers=None, workers=None),)
NFS = NetworkMount("/data", "nfs4", 900.0, 260e6, 0.4, 14.0, 6.5)


def served() -> Window:
    found = waiting()
    return replace(found, job=replace(own_job(found), read_bytes_per_second=0.0))


def own_job(found: Window) -> JobFacts:
    assert found.job is not None
    return found.job


IO_BOUND = Cases("loader_io_bound", {
    "workers in disk wait: more of them are no help": (
        waiting(),
        {"advice.0.action": "storage", "strength": above(0.9),
         "advice": lambda all_of: "num_workers" not in [one.setting for one in all_of]},
    ),
    "no accounts of the wait: looks at the state count":
        waiting(disk_wait_percent=None, in_disk_wait_share=0.6),
    "accounts that are off: looks at the state count":
        waiting(disk_wait_percent=0.0, in_disk_wait_share=0.6),
    "a calm machine speaks against it": (
        waiting(1.0),
        {"against": True, "weaker": "workers in disk wait: more of them are no help"},
    ),
    "what it reads was in memory before: the page cache is too small": (
        replace(waiting(), host=w.host(cache_refault_bytes_per_second=120e6)),
        {"summary": "reads again", "advice.0.action": "fit into memory", "says": "page cache"},
    ),
    "the pressure of its own group counts, not the machine's": (
        replace(waiting(1.0), job=replace(own_job(waiting()), pressure_io_percent=70.0)),
        {"says": "tasks of the job's group are stalled", "strength": above(0.9)},
    ),
    # Workers in state D, the host receives 260 MB/s, and no disk is read.
    "for an NFS mount, which is named with its times": (
        replace(served(), host=w.host(network_mounts=(NFS,))),
        {"summary": "wait for /data (nfs4)", "advice.0.action": "from /data (nfs4) to a local disk",
         "says": "of each of 900 requests/s"},
    ),
    "for a mount whose requests queue here": (
        replace(served(), host=w.host(network_mounts=(NFS._replace(queue_milliseconds=80.0),))),
        {"says": "80.0 ms in the queue of this machine: more connections (nconnect)"},
    ),
    "for storage on the network of another kind": (
        replace(served(), host=w.host(network_receive_bytes_per_second=260e6)),
        {"summary": "wait for storage on the network", "advice.0.action": "to a local disk"},
    ),
    "for a disk, beside a mount that is hardly used": (
        replace(waiting(), host=w.host(network_mounts=(NFS._replace(waiting_requests=0.1),))),
        {"summary": "wait for the disk"},
    ),
    "the training process waits itself": (
        waiting_alone(90e6), {"advice.-1.setting": "num_workers"},
    ),
    # 4 / 0.39 busy x 1.25
    "for the network: more of them than the cores": (
        over_network(model={"usable_cores": 4.0, "affinity_cores": 4}),
        {"advice.0.setting": "num_workers", "advice.0.wanted": "12", "summary": "for the network",
         "strength": above(0.9)},
    ),
    "their connections were not read, the machine receives": (
        over_network(None, 80e6),
        {"missing": ("the loader workers' connections",),
         "weaker": "for the network: more of them than the cores"},
    ),
    "without workers it asks itself": (
        over_network(workers=None, ranks=ASKS_ITSELF), {"advice.0.present": "0"},
    ),
    # 2 / 0.33 busy x 1.25; measured: 2, 4 and 8 deliver 66, 131 and 200 samples/s, the GPU's most.
    "stacks show that it waits for workers that sleep": (
        asleep(stacks=WAITS),
        {"advice.0.action": "Raise num_workers from 2 to 8", "summary": "2 loader workers sleep",
         "says": "train.py:41", "strength": above(0.9), "missing": (),
         "explains": {"oscillation"}},
    ),
    "so does its own report": (asleep(**reports(0.65)), {"advice.0.wanted": "8", "missing": ()}),
    "without either: they are found asleep within a batch": (
        asleep(share=1.0),
        {"advice.0.wanted": "8", "missing": ("stacks of the main thread",),
         "weaker": "stacks show that it waits for workers that sleep"},
    ),
    "their memory has no room for as many": (
        asleep(stacks=WAITS, held=14 * w.GIB), {"advice.0.wanted": "5"},
    ),
    "what they compute has no room for as many": (
        asleep(stacks=WAITS, cpu=50.0, cores=3.0, cpu_cores=1.0),
        {"advice.0.wanted": "6", "summary": "compute and sleep in turns"},
    ),
    "no core is free for what they compute": (
        asleep(stacks=WAITS, cpu=50.0, cores=2.0, cpu_cores=1.9, host_cpu=98.0),
        {"advice.0.action": "cheaper"},
    ),
    "beside a second loader that rests": (
        asleep(share=1.0, resting=3), {"advice.0.present": "2", "says": "second loader"},
    ),
}, {
    "connections open for messages, and workers that compute": over_network(0.3, cpu=90.0),
    "nothing comes in": over_network(None, 2e5, workers=w.workers(4), ranks=(w.rank(),)),
    "it sends, and is answered": over_network(
        workers=None, ranks=(replace(ASKS_ITSELF[0], disk_wait_percent=1.0),),
        network_send_bytes_per_second=5e6,
    ),
    "no disk wait": w.window(gpus=GPUS),
    "its workers wait to be asked: it waits for something else": (
        asleep(share=0.05), "wait to be asked for batches 95% of the time",
    ),
    "stacks show another wait": asleep(share=1.0, stacks=OTHERWISE),
    "it reports to have its data": asleep(share=1.0, **reports(0.02)),
    "a main thread that computes": asleep(share=1.0, main_thread_when_idle_percent=90.0),
    "computes more": waiting(cpu_percent=60.0, disk_wait_percent=30.0),
    "a checkpoint is written": waiting_alone(0.0, 400e6),
}, {
    "workers that rest or sleep, and a main thread that rests": (asleep(), "stacks of the main"),
    "no wait read": (waiting(disk_wait_percent=None, in_disk_wait_share=None), "disk wait"),
    "no workers": (
        w.window(gpus=GPUS, job=w.job(workers=None, ranks=UNCOUNTED)), "loader workers",
    ),
})  # fmt: skip


def alone(wave: Waveform | None = None, shm: int = 64 * w.GIB, **facts: Any) -> Window:
    """One process that loads for 60% of the time and trains for 40%."""
    known: dict[str, Any] = {
        "workers": None, "workers_when_idle_percent": None, "workers_when_busy_percent": None,
        "cpu_cores": 1.0, "main_thread_percent": 80.0, "main_thread_when_idle_percent": 99.0,
        "main_thread_phase": -0.8,
        "ranks": (w.rank(loader_workers=0, pinned_memory=None, workers=None),),
    }  # fmt: skip
    return w.window(
        gpus=(w.gpu(busy=wave or w.swinging(0.4)),), job=w.job(**(known | facts)),
        host=w.host(shm_total_bytes=shm)
    )  # fmt: skip


def in_threads(percent: float, **facts: Any) -> Window:
    """``percent`` of a core by the whole process."""
    ranks = (w.rank(loader_workers=0, workers=None, main_thread_percent=6.0, cpu_percent=percent),)
    ranks = (replace(ranks[0], **facts),)
    return alone(main_thread_when_idle_percent=4.0, main_thread_phase=0.1, ranks=ranks)


def with_stacks(window: Window, stacks: tuple[tuple[str, float, str | None], ...]) -> Window:
    assert window.job is not None
    return replace(window, job=replace(window.job, stacks=stacks))


NO_CPU: dict[str, Any] = {
    "main_thread_percent": None, "main_thread_when_idle_percent": None,
    "ranks": (w.rank(loader_workers=0, main_thread_percent=None, workers=None),),
}  # fmt: skip
NO_WORKERS = JobRank(pid=w.PID, gpu_uuids=("GPU-0",), loader_workers=0)


NOTEBOOK = {"ranks": (NO_WORKERS,), "command": "python -m ipykernel_launcher -f k.json"}
NOW_AND_THEN = replace(w.swinging(0.4, period_seconds=12.0), period_seconds=None)


def other(what: str, value: str) -> Window:
    """Training from a loader is not what it does."""
    return alone(model={"ranks": (NO_WORKERS,), what: value})


IN_LOADER = (("loading_data", 55.0, "train.py:12 in __getitem__"), ("computing", 45.0, None))
BOTH = tuple([w.rank(n, loader_workers=0, workers=None) for n in range(2)])
MAIN_PROCESS = Cases("loader_in_main_process", {
    "stacks show that it waits for threads that sleep": (
        with_stacks(in_threads(8.0), WAITS),
        {"summary": "of its own ... sleep while making its batches", "says": "train.py:41",
         "advice.0.action": "more threads", "missing": (), "strength": above(0.9)},
    ),
    "stacks show that it waits for threads that compute": (
        with_stacks(in_threads(420.0), WAITS),
        {"summary": "cannot load it faster", "advice.0.action": "more threads", "missing": ()},
    ),
    # 0.61 of the time loading over 0.39 of the time training, with headroom.
    "in anti-phase: a number of workers that keeps up": (
        alone(),
        {"settings": ["num_workers"], "advice.0.wanted": "2",
         "advice.0.action": "check whether it loads data (gpuwatch diagnose --stacks --pid 4242)",
         "summary": "may be loading data", "advice.0.check_first": True,
         "explains": {"oscillation", "python_bound"}, "missing": ("stacks of the main thread",)},
    ),
    "on two cores": (
        alone(w.swinging(0.1), model={"usable_cores": 2.0}), {"advice.0.wanted": "2"},
    ),
    "on six cores": (
        alone(w.swinging(0.1), model={"usable_cores": 6.0}), {"advice.0.wanted": "5"},
    ),
    # Recorded: a practice job on two cores that others took, too.
    "in phase, as both rest while others take its core": (
        alone(w.steady(53.0), main_thread_phase=0.72, main_thread_when_idle_percent=None,
              main_thread_percent=80.7, ranks=(w.rank(
                  loader_workers=0, workers=None, main_thread_percent=80.7,
                  run_queue_wait_percent=19.3),)),
        {"missing": ("stacks of the main thread",)},
    ),
    "too fast to be seen: stacks would make it surer": (
        alone(w.steady(45.0), main_thread_phase=None),
        {"missing": ("stacks of the main thread",),
         "weaker": "in anti-phase: a number of workers that keeps up"},
    ),
    "stacks name the line": (
        alone(stacks=IN_LOADER),
        {"says": "train.py:12", "settings": ["num_workers", "persistent_workers"]},
    ),
    "all ranks do: none is the late one": (
        replace(alone(ranks=BOTH), gpus=tuple([w.gpu(n, busy=w.swinging(0.4)) for n in range(2)])),
        {"explains": {"collective_wait"}},
    ),
    "64 MB of /dev/shm: workers would crash": (
        alone(shm=64 * 1024**2), {"advice.-1.setting": "shm-size"},
    ),
    "threads load while it rests, on one core for all": (
        in_threads(110.0),
        {"advice.0.setting": "num_workers", "advice.0.action": "processes", "summary": "1.0 cores"},
    ),
    "threads that use several cores": (
        in_threads(420.0), {"advice.0.action": "more threads", "settings": [None, None]},
    ),
    "one worker is worse than none, whatever others take of two cores": (
        replace(
            alone(model={"usable_cores": 2.0, "affinity_cores": 2}),
            host=w.host(core_count=2, cpu_percent=100.0),
        ),
        {"advice.0.present": "0", "advice.0.wanted": "2"},
    ),
    "a main thread that waits for a core would load": alone(
        main_thread_when_idle_percent=40.0,
        ranks=(w.rank(loader_workers=0, workers=None, run_queue_wait_percent=45.0),),
    ),
}, {
    "no workers, fed all the same": alone(w.steady(97.0)),
    "has workers": w.window(gpus=(w.gpu(busy=w.swinging()),)),
    "main thread rests": alone(main_thread_when_idle_percent=10.0),
    "the backward pass is a thread, too": in_threads(110.0, main_thread_percent=40.0),
    "now and then, for seconds on end": (alone(NOW_AND_THEN), "at length"),
    "a notebook, without a rhythm": (
        alone(replace(NOW_AND_THEN, idle=w.swinging(0.4).idle), model=NOTEBOOK), "at length",
    ),
    "writes a checkpoint": alone(write_when_idle_bytes_per_second=8e8),
    "stacks say otherwise": alone(stacks=(("synchronising", 90.0, None),)),
    "environments": (other("simulates", "MuJoCo is loaded in it"), "steps environments"),
    "JAX": (other("framework", "jax"), "no PyTorch DataLoader"),
}, {
    "gloo keeps the CPU busy, too": (
        alone(model={"collectives": "gloo"}, ranks=(w.rank(0, loader_workers=0),) * 2), "gloo",
    ),
    "an optimizer on 29 cores keeps the main thread busy, too": (
        alone(cpu_cores=29.0), "offload",
    ),
    "weights that go to the GPU and gradients that come back keep it busy, too": (
        replace(alone(), gpus=(w.gpu(busy=w.swinging(0.4), pcie_rx_bytes_per_second=3.7e9,
                                     pcie_tx_bytes_per_second=3.7e9),)), "offload",
    ),
    "others use its GPU, too": (
        replace(alone(), gpus=(w.gpu(busy=w.swinging(0.4), foreign_busy_percent=30.0),)), "others",
    ),
    "number of workers unknown": (alone(ranks=UNCOUNTED), "loader workers"),
    "no CPU": (alone(**NO_CPU), "main thread"),
    "a main thread in phase needs stacks": (alone(w.steady(60.0), main_thread_phase=0.6), "stacks"),
})  # fmt: skip


SHORT_GAPS = w.gpu(busy=replace(w.swinging(0.92), mean_percent=80.0))
LATE: dict[str, Any] = {
    "busiest_worker_when_idle_percent": 96.0, "other_workers_when_idle_percent": 4.0,
}  # fmt: skip
LATE_BATCHES = Cases("late_batches", {
    "one works while the others rest": (
        w.window(gpus=GPUS, job=w.job(**LATE)),
        {"settings": ["prefetch_factor", "in_order", None], "explains": {"oscillation"},
         "strength": above(0.9)},
    ),
}, {
    "several work": w.window(
        gpus=GPUS, job=w.job(**(LATE | {"other_workers_when_idle_percent": 60.0}))
    ),
    "all are at their limit": starved(**LATE),
    "gaps shorter than a batch": w.window(gpus=(SHORT_GAPS,), job=w.job(**LATE)),
    "a single worker": starved(count=1, **LATE),
}, {
    "not seen apart": (w.window(gpus=GPUS), "what each loader worker does"),
    "no workers read": (
        w.window(gpus=GPUS, job=w.job(workers=None, ranks=UNCOUNTED)), "loader workers",
    ),
})  # fmt: skip


def threaded(threads: int, main_percent: float) -> tuple[JobMember, ...]:
    """Two workers that use 97% of a core each, ``main_percent`` of it by their first thread."""
    return tuple(
        JobMember(
            pid=6000 + n, role="loader_worker", threads=threads, cpu_percent=97.0,
            main_thread_cpu_percent=main_percent
        )
        for n in range(2)
    )  # fmt: skip


def crowded(count: int = 24, main_queue: float = 25.0, **facts: Any) -> Window:
    many = w.workers(count, cpu_percent=62.0, run_queue_wait_percent=36.0)
    known: dict[str, Any] = {
        "workers": many, "cpu_cores": 15.5,
        "ranks": (
            w.rank(loader_workers=count, workers=many, run_queue_wait_percent=main_queue),
        ),
    }  # fmt: skip
    return w.window(gpus=(w.gpu(busy=w.swinging(0.6)),), job=w.job(**(known | facts)))


PUSHED = w.workers(
    24, cpu_percent=62.0, run_queue_wait_percent=None, involuntary_switches_per_second=110.0
)
TOO_MANY = Cases("too_many_workers", {
    "a core of the 16 is the main thread's": (
        crowded(),
        {"advice.0.present": "24", "advice.0.wanted": "15", "explains": {"loader_cpu_bound"},
         "summary": "24 loader workers share 16 cores"},
    ),
    "the main thread gets its core: fewer would only make fewer batches": (
        crowded(main_queue=0.3),
        {"advice.0.action": "Give the job more cores", "advice.0.setting": None,
         "advice.1.action": "Make transforms cheaper"},
    ),
    "threads of a worker that compute and compete": (
        crowded(2, model={"usable_cores": 2.0, "members": threaded(10, 16.0)}, cpu_cores=1.9),
        {"advice.0.action": "cv2.setNumThreads(0)",
         "advice.0.why": lambda why: "10 threads" in why},
    ),
    "threads that a library made and that sleep": (
        crowded(2, model={"usable_cores": 2.0, "members": threaded(10, 96.0)}, cpu_cores=1.9),
        {"advice": lambda every: not any("setNumThreads" in one.action for one in every)},
    ),
    "one, and one core": (
        crowded(1, model={"usable_cores": 1.0}, cpu_cores=1.0),
        {"summary": "1 loader worker and the main thread share 1 core"},
    ),
    "the wait is not read: they are pushed off cores that are all used": (
        crowded(workers=PUSHED),
        {"missing": ("run-queue wait",), "weaker": "a core of the 16 is the main thread's"},
    ),
}, {
    "many, and the GPU is fed": w.window(gpus=(w.gpu(),), job=crowded().job),
    "fewer than cores: others take them": crowded(count=12),
    "nobody waits for a core": crowded(workers=w.workers(24, run_queue_wait_percent=2.0)),
    "a quota": crowded(model={"quota_cores": 4.0, "usable_cores": 4.0}, cpu_throttled_percent=60.0),
    "they wait for disks":
        crowded(workers=w.workers(24, disk_wait_percent=80.0, run_queue_wait_percent=12.0)),
    "others crowd the cores": crowded(cpu_cores=4.0),
}, {
    "no cores": (crowded(model={"usable_cores": None}), "cores"),
    "no wait": (crowded(workers=w.workers(24, run_queue_wait_percent=None)), "run-queue"),
})  # fmt: skip


def left_over(count: int, *, orphaned: bool = True) -> Window:
    members = tuple(
        JobMember(
            pid=5000 + n, role="loader_worker", orphaned=orphaned, name="pt_data_worker",
            memory_resident_bytes=1_000_000_000
        )
        for n in range(count)
    )  # fmt: skip
    return w.window(job=w.job(model={"ranks": (), "members": members}, ranks=(), workers=None))


ORPHANS = Cases("orphaned_workers", {
    "their PIDs, and what they hold": (
        left_over(3),
        {"advice.0.action": "doing nothing ... kill 5000 5001 5002", "summary": "GPU memory",
         "explains": {"idle_holding_memory"}},
    ),
    "many are not all listed": (left_over(40), {"advice.0.action": "28 more"}),
    "a count alone suffices": w.window(job=w.job(workers=w.workers(2, orphaned=2))),
}, {
    "alive": left_over(3, orphaned=False),
}, {
    "no processes": (w.window(job=w.job(workers=None)), "job's processes"),
})  # fmt: skip


def shm(used: float | None, total: int = 16 * w.GIB, **model: Any) -> Window:
    share = None if used is None else used * total
    host = w.host(shm_total_bytes=total, shm_used_bytes=share)
    return w.window(job=w.job(model=model), host=host)


SHM = Cases("shm_full", {
    "twice the size is named": (
        shm(0.9),
        {"advice.0.wanted": "32g", "advice.0.action": "remount", "severity": "warning"},
    ),
    "at 97% the next batch can crash the job": (shm(0.97), {"severity": "error"}),
    "a container's default is judged earlier": (
        shm(0.6, 64 * 1024**2, container="8f3c1d20ab54"), {"advice.0.action": "--shm-size=8g"},
    ),
}, {
    "room": shm(0.6),
    "a job without workers": shm(0.99, ranks=(JobRank(pid=4242, loader_workers=0),)),
    "ended": shm(0.99, ended_at_unix_seconds=1.0),
}, {
    "not read": (shm(None), "/dev/shm"),
})  # fmt: skip
