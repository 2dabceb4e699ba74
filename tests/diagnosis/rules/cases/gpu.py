"""Faults of a GPU, and of who uses it."""

from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.core.model import Process, ReasonSeconds, XidError
from gpuwatch.diagnosis.facts.window import GpuFacts, JobFacts, PortFacts, Window
from tests.diagnosis.rules.cases import Cases
from tests.diagnosis.windows import (
    GIB,
    NOW,
    gpu,
    gpu_only,
    host,
    identity,
    job,
    steady,
    swinging,
    window,
)


def reported(code: int, *, ago: float = 30.0, count: int = 1) -> tuple[XidError, ...]:
    return (XidError(code, count, NOW - ago),)


LOST = Cases("gpu_lost", {
    "alone of two, at full cost": (
        window(gpus=(gpu(0), gpu(1, lost=True, busy=None))),
        {"severity": "error", "gpus": ("GPU-1",), "lost_share": 1.0,
         "summary": "GPU 1 no longer answers",
         "explains": {"collective_wait", "straggler", "oscillation"}},
    ),
    "without a job": (gpu_only(gpu(lost=True)), {"gpus": ("GPU-0",)}),
    "the driver said why": (
        window(gpus=(gpu(0), gpu(1, lost=True, busy=None, xid_errors=reported(79)))),
        {"summary": "reported Xid 79 (the GPU fell off the bus)", "evidence.1.name": "GPU 1 Xid 79",
         "advice.0.action": "Restart the machine"},
    ),
}, {
    "every gpu answers": window(gpus=(gpu(0), gpu(1))),
}, {
    "no gpu": (window(gpus=()), "a GPU"),
})  # fmt: skip

NO_COUNTERS: dict[str, Any] = {
    "ecc_uncorrected_new": None, "ecc_corrected_new": None,
    "remapped_rows_failed": None, "remapped_rows_pending": None,
}  # fmt: skip
ERRORS = Cases("hardware_errors", {
    "an uncorrectable error": (
        window(gpus=(gpu(0), gpu(1, ecc_uncorrected_new=1))),
        {"severity": "error", "gpus": ("GPU-1",)},
    ),
    "a failed remapping: no spare rows are left": (
        window(gpus=(gpu(0), gpu(1, remapped_rows_failed=True))),
        {"severity": "error", "gpus": ("GPU-1",), "advice.1.action": "replaced"},
    ),
    "a pending remapping: nothing is lost yet": (
        gpu_only(gpu(remapped_rows_pending=True)),
        {"severity": "warning", "advice.0.action": "Reset"},
    ),
    "many corrected errors cost nothing": (
        gpu_only(gpu(ecc_corrected_new=40)), {"severity": "info"},
    ),
    "a card without counters whose driver reports one": (
        window(gpus=(gpu(0), gpu(1, **NO_COUNTERS, xid_errors=reported(48)))),
        {"severity": "error", "gpus": ("GPU-1",), "summary": "Xid 48 (an uncorrectable memory"},
    ),
    "a row that will be replaced at the next reset": (
        gpu_only(gpu(xid_errors=reported(63))),
        {"severity": "warning", "advice.0.action": "Reset"},
    ),
}, {
    "a few corrected errors": gpu_only(gpu(ecc_corrected_new=3)),
    "an error of the day before": gpu_only(gpu(xid_errors=reported(48, ago=86_400.0))),
}, {
    "neither ecc nor a row remapper": (gpu_only(gpu(**NO_COUNTERS)), "ECC"),
})  # fmt: skip


NO_LINKS: dict[str, Any] = {
    "pcie_replays_new": None, "nvlink_replays_new": None, "nvlink_recoveries_new": None,
}  # fmt: skip
PORT = PortFacts(
    device="mlx5_0", name="InfiniBand port mlx5_0/1", link_downed_new=0, link_recovery_new=0,
    receive_errors_new=0, symbol_errors_new=0
)  # fmt: skip


def with_port(*gpus: GpuFacts, **facts: Any) -> Window:
    return window(gpus=gpus or (gpu(),), host=host(ports=(replace(PORT, **facts),)))


LINKS = Cases("link_errors", {
    "an NVLink that is trained again stalls all ranks": (
        window(gpus=(gpu(0), gpu(1, nvlink_recoveries_new=2, nvlink_replays_new=5))),
        {"severity": "error", "gpus": ("GPU-1",), "summary": "NVLinks of GPU 1 failed",
         "evidence.0.value": 2.0, "advice.0.action": "nvidia-smi nvlink -e"},
    ),
    "an NVLink that sends again": (
        window(gpus=(gpu(0, nvlink_replays_new=1), gpu(1))),
        {"severity": "warning", "gpus": ("GPU-0",), "summary": "NVLinks of GPU 0 had errors"},
    ),
    "more PCIe replays than NVIDIA's limit": (
        gpu_only(gpu(pcie_replays_new=30, link_errors_seconds=120.0)),
        {"severity": "warning", "summary": "sent again, 15 a minute",
         "advice.0.action": "Reseat"},
    ),
    "a port that went down and came back": (
        with_port(link_downed_new=1),
        {"severity": "error", "summary": "InfiniBand port mlx5_0/1 went down",
         "advice.0.action": "mlxlink -d mlx5_0"},
    ),
    "a port that was active, and is down": (
        with_port(is_active=False),
        {"severity": "error", "summary": "mlx5_0/1 went down", "says": "is not any more"},
    ),
    "a port with many errors, where the GPUs have no counters": (
        with_port(gpu(**NO_LINKS), symbol_errors_new=40),
        {"severity": "warning", "summary": "mlx5_0/1 had 40 errors", "evidence.0.value": 40.0},
    ),
}, {
    "no new errors": window(gpus=(gpu(0), gpu(1))),
    "some PCIe replays, fewer than the limit": gpu_only(
        gpu(pcie_replays_new=60, link_errors_seconds=900.0)
    ),
    "a port that nobody uses": with_port(is_active=False, was_active=False),
    "a few errors of a port": with_port(symbol_errors_new=3),
}, {
    "neither a link's counters nor a port": (gpu_only(gpu(**NO_LINKS)), "link errors"),
})  # fmt: skip


XIDS = Cases("xid_errors", {
    "a program's error on one of two": (
        window(gpus=(gpu(0, xid_errors=()), gpu(1, xid_errors=reported(31, count=2)))),
        {"severity": "error", "gpus": ("GPU-1",), "evidence.0.value": 2.0,
         "summary": "Xid 31 (a program used GPU memory", "advice.0.action": "compute-sanitizer"},
    ),
    "an error that this list does not have": (
        gpu_only(gpu(xid_errors=reported(199))),
        {"severity": "error", "advice.0.action": "NVIDIA's Xid catalogue"},
    ),
    "a program that was killed is only information": (
        gpu_only(gpu(xid_errors=reported(45))), {"severity": "info"},
    ),
    "ranks wait for what it ended": (
        window(gpus=(gpu(busy=steady(0.0), xid_errors=reported(119)),)),
        {"explains": {"collective_wait", "idle_holding_memory"}},
    ),
}, {
    "none was reported": window(gpus=(gpu(xid_errors=()),)),
    "those of memory are said with its counters": gpu_only(gpu(xid_errors=reported(94))),
    "it was before the job began": window(
        gpus=(gpu(xid_errors=reported(31, ago=600.0)),),
        job=job(model={"started_at_unix_seconds": NOW - 300.0}),
    ),
    "it was an hour ago": gpu_only(gpu(xid_errors=reported(31, ago=3600.0))),
}, {
    "no events, and a log that may not be read": (gpu_only(gpu(xid_errors=None)), "Xid"),
})  # fmt: skip


def left(how: str | None, held: float = 9.0) -> GpuFacts:
    dead = Process(pid=4711, unseen=how, gpu_uuid="GPU-0", gpu_memory_bytes=round(held * GIB))
    return gpu(busy=steady(0.0), others=(dead,), foreign_memory_bytes=held * GIB)


LEFT = Cases("memory_left_behind", {
    "of a process that died": (
        gpu_only(left("gone")),
        {"gpus": ("GPU-0",), "summary": "holds 9.0G of memory for PID 4711, which no longer",
         "advice.0.action": "--gpu-reset", "explains": {"idle_holding_memory"},
         "hold_seconds": 30.0},
    ),
    "beside a job that runs": (window(gpus=(left("gone"),)), {"gpus": ("GPU-0",)}),
}, {
    "its process is there": gpu_only(left(None)),
    "a context that is just being given back": gpu_only(left("gone", 0.1)),
}, {
    "seen from inside a container": (gpu_only(left("elsewhere")), "outside this container"),
    "hidden by hidepid": (gpu_only(left("hidden")), "of other users"),
    "no list of processes": (gpu_only(gpu(others=None)), "the processes on the GPU"),
})  # fmt: skip


def asleep(cores: float | None = 0.02, **fields: Any) -> Window:
    idle = gpu(busy=steady(0.0), own_memory_bytes=18.0 * GIB)
    return window(gpus=(idle,), job=at_rest(cores), **fields)


def at_rest(cores: float | None = 0.02, **facts: Any) -> JobFacts:
    return job(cpu_cores=cores, **({"read_bytes_per_second": 0.0} | facts))


def held_by(others: float | None) -> GpuFacts:
    return gpu(busy=steady(0.0), memory_used_bytes=20.0 * GIB, foreign_memory_bytes=others)


IDLE = Cases("idle_holding_memory", {
    "a job that sleeps": (
        asleep(),
        {"severity": "info", "lost_share": 1.0, "summary": "18.0G",
         "advice.0.action": "--stacks --pid 4242. If nobody uses it any more, shut it down"},
    ),
    "its other GPU works: nothing is to be ended": (
        window(gpus=(*asleep().gpus, gpu(1)), job=at_rest(model={"user": "ann"})),
        {"advice.0.action": lambda said: said
         == "Check what PID 4242 (ann: python train.py) is doing: gpuwatch diagnose --stacks "
         "--pid 4242."},
    ),
    "GPUs alone: who holds the memory is not known": (
        gpu_only(held_by(None)),
        {"missing": lambda names: "the processes that hold it" in names,
         "weaker": "a job that sleeps", "advice.0.action": "Ask whoever started what is"},
    ),
    "memory was held for half of the minute: only that is lost": (
        gpu_only(gpu(busy=steady(0.0), memory_used_bytes=5.0 * GIB,
                     memory_highest_bytes=10.0 * GIB)),
        {"lost_share": 0.5},
    ),
    "no process is listed: a container's, or what a crash left": (
        gpu_only(held_by(0.0)),
        {"summary": "by no process that the driver lists", "advice.0.action": "fuser"},
    ),
}, {
    "an unused gpu": gpu_only(gpu(busy=steady(0.0), memory_used_bytes=0.6 * GIB)),
    "the job works on the cpu": asleep(cores=3.0),
    "the rank that saves": (
        window(gpus=asleep().gpus, job=at_rest(write_bytes_per_second=2e8)), "write",
    ),
    "at the start": asleep(starting=True),
    "its memory fills: a model is loaded": (
        window(gpus=(replace(asleep().gpus[0], memory_used_bytes=10.0 * GIB,
                             memory_highest_bytes=20.0 * GIB),), job=at_rest()),
        "still filling",
    ),
}, {
    "before half a minute": (asleep(watched_seconds=10.0), "s of data"),
    "without the busy share": (gpu_only(gpu(busy=None)), "utilisation"),
})  # fmt: skip

GIVEN: dict[str, Any] = {
    "busy": steady(0.0), "memory_used_bytes": 0.5 * GIB, "others": (), "allocated_to": ("4711",),
    "allocated_seconds": 60.0,
}  # fmt: skip
ALLOCATED = Cases("allocated_unused", {
    "a GPU that its job has not touched": (
        gpu_only(gpu(2, **GIVEN)),
        {"severity": "warning", "lost_share": 1.0, "gpus": ("GPU-2",), "hold_seconds": 300.0,
         "summary": "GPU 2 is allocated to job 4711, but no process uses it"},
    ),
    "of two jobs": (
        gpu_only(gpu(**GIVEN | {"allocated_to": ("17", "4711_2")})),
        {"summary": "job 17 and job 4711_2"},
    ),
}, {
    "nothing says whose it is": (
        gpu_only(gpu(**GIVEN | {"allocated_to": None})), "no scheduler is known",
    ),
    "its job has just begun": (gpu_only(gpu(**GIVEN | {"allocated_seconds": 5.0})), "only just"),
    "it is free": gpu_only(gpu(**GIVEN | {"allocated_to": ()})),
    "a process has just begun": gpu_only(gpu(**GIVEN | {"others": (Process(pid=8),)})),
    "a process that the driver does not list holds memory":
        gpu_only(gpu(**GIVEN | {"memory_used_bytes": 20.0 * GIB})),
    "its job runs": window(gpus=(gpu(allocated_to=("4711",)),)),
}, {
    "whether a process is on it": (gpu_only(gpu(**GIVEN | {"others": None})), "processes"),
    "without the busy share": (gpu_only(gpu(**GIVEN | {"busy": None})), "utilisation"),
    "without its memory": (gpu_only(gpu(**GIVEN | {"memory_used_bytes": None})), "memory"),
})  # fmt: skip

FULL_CARD = gpu(foreign_memory_bytes=40.0 * GIB, memory_used_bytes=135.0 * GIB)
OTHERS = (
    Process(pid=8, gpu_busy_percent=3.0),
    Process(pid=9, user="bob", command="python big.py", gpu_busy_percent=37.0),
)
UNSHOWN = gpu(foreign_busy_percent=None, foreign_memory_bytes=None)


def of_ann(count: int, **facts: Any) -> tuple[Process, ...]:
    known: dict[str, Any] = {"user": "ann", "command": "ffmpeg -i a.mp4", "gpu_busy_percent": 9.0}
    return tuple([Process(pid=100 + number, **(known | facts)) for number in range(count)])


def shared(*others: Process, user: str = "ann", **facts: Any) -> Window:
    """A job of ann's that has a third of the GPU; the others take twice that."""
    card = gpu(own_busy_percent=33.0, foreign_busy_percent=66.0, others=others, **facts)
    return window(gpus=(card,), job=job(model={"user": user}))


MPS = Process(pid=3, user="root", name="nvidia-cuda-mps-server", gpu_memory_bytes=30 << 20)
TENANT = Cases("other_tenant", {
    "programs of the same user are no others": (
        shared(*of_ann(4), encoder_percent=85.0),
        {"severity": "info", "lost_share": None,
         "summary": "with 4 other programs of the same user ... encoder is 85% busy",
         "advice.0.action": "Leave it as it is"},
    ),
    "under MPS nothing takes turns": (
        shared(*of_ann(2), MPS),
        {"severity": "info", "lost_share": None,
         "summary": "with 2 other programs through MPS, side by side"},
    ),
    "one of them is somebody else's": (
        shared(*of_ann(1), *OTHERS), {"severity": "warning", "summary": "take turns"},
    ),
    "in containers everybody is root": (
        shared(*of_ann(1, user="root", container="1f2e"), user="root"),
        {"severity": "warning", "summary": "take turns"},
    ),
    "what others take is what the job loses": (
        window(gpus=(gpu(0), gpu(1, foreign_busy_percent=40.0))),
        {"gpus": ("GPU-1",), "lost_share": pytest.approx(0.4),
         "advice.0.action": "Move PID 4242 (python train.py) or the others (nvidia-smi"},
    ),
    "both are named": (
        window(gpus=(gpu(foreign_busy_percent=40.0, others=OTHERS),)),
        {"advice.0.action": "PID 8 or PID 9 (bob: python big.py) to another GPU, or agree"},
    ),
    "memory of others alone costs no time": (
        window(gpus=(gpu(foreign_memory_bytes=20.0 * GIB),)),
        {"severity": "info", "lost_share": None},
    ),
    "nobody is asked to free their own memory": (
        window(
            job=job(model={"user": "ann"}),
            gpus=(gpu(foreign_busy_percent=2.0, foreign_memory_bytes=20.0 * GIB,
                      others=of_ann(2)),),
        ),
        {"severity": "info", "summary": "Other programs of the same user hold 20",
         "advice.0.action": "Count what"},
    ),
    "on a full card, what they hold is missing": (
        window(gpus=(FULL_CARD,)), {"severity": "warning"},
    ),
}, {
    "a desktop": window(gpus=(gpu(foreign_busy_percent=3.0, foreign_memory_bytes=0.4 * GIB),)),
    "a job that runs nothing itself": window(gpus=(
        gpu(foreign_busy_percent=97.0, foreign_memory_bytes=60.0 * GIB, own_busy_percent=0.0),
    )),
    "nobody else holds memory, though shares are not read":
        window(gpus=(gpu(foreign_busy_percent=None),)),
}, {
    "no processes": (gpu_only(), "processes"),
    "a driver that reports nothing by process": (window(gpus=(UNSHOWN,)), "SM share"),
})  # fmt: skip

FIRST_BY_FOUR = {"pcie_generation_busy": 1, "pcie_width_busy": 4}
UNREAD: dict[str, Any] = {"pcie_rx_idle_bytes_per_second": None, "pcie_rx_bytes_per_second": None}
PCIE = Cases("pcie_degraded", {
    "copies over a slow link are waited for": (
        gpu_only(gpu(busy=swinging(0.35), pcie_rx_idle_bytes_per_second=0.8e9, **FIRST_BY_FOUR)),
        {"severity": "warning", "lost_share": lambda lost: 0.5 < lost < 0.7,
         "explains": {"memory_not_pinned"}, "advice.0.present": "generation 1 x4"},
    ),
    "fed in an external box, whose traffic is not read: nothing is lost": (
        gpu_only(gpu(pcie_generation_busy=3, pcie_width_busy=4, **UNREAD)),
        {"severity": "info", "lost_share": None, "explains": frozenset(),
         "advice.0.action": "Leave it as it is"},
    ),
    "nothing waits for a slow link": (
        gpu_only(gpu(**FIRST_BY_FOUR)), {"severity": "info", "lost_share": None},
    ),
    "half of the lanes, and copies are waited for": gpu_only(
        gpu(pcie_width_busy=8, busy=swinging(0.4), pcie_rx_idle_bytes_per_second=25e9)
    ),
    "whether copies fill the link was not read": (
        gpu_only(gpu(busy=steady(40.0), **UNREAD, **FIRST_BY_FOUR)),
        {"missing": ("PCIe traffic",)},
    ),
}, {
    "a starved gpu idles on a good link": gpu_only(gpu(busy=swinging(0.3))),
    "half of the lanes, as two cards in one slot have": gpu_only(gpu(pcie_width_busy=8)),
}, {
    "the link was not read under load": (gpu_only(gpu(pcie_generation_busy=None)), "under load"),
})  # fmt: skip

CAPPED = (ReasonSeconds("sw_power_cap", 55.0),)


def capped(*others: GpuFacts, **facts: Any) -> Window:
    lowered: dict[str, Any] = {
        "throttle_shares": CAPPED, "power_limit_watts": 400.0, "power_busy_watts": 396.0,
        "sm_clock_busy_mhz": 1485.0,
    }  # fmt: skip
    return gpu_only(gpu(**(lowered | facts)), *[replace(one, **lowered) for one in others])


POWER = Cases("power_throttle", {
    "a lowered limit: both limits are named, the cost is the clock": (
        capped(),
        {"lost_share": pytest.approx(0.25),
         "advice.0.present": "400 W", "advice.0.wanted": "700 W"},
    ),
    "two of three cards: the command is for both": (
        capped(gpu(1, identity=identity(1, power_limit_default_watts=None)), gpu(3)),
        {"advice.0.action": "-i 0,3 -pl 700"},
    ),
    "power at a lowered limit, without reasons": (
        capped(throttle_shares=None),
        {"missing": ("throttle reasons",),
         "weaker": "a lowered limit: both limits are named, the cost is the clock"},
    ),
    "a power brake at any limit": (
        gpu_only(gpu(throttle_shares=(ReasonSeconds("hw_power_brake_slowdown", 3.0),))),
        {"summary": "brake"},
    ),
    "clocks that somebody locked": (
        gpu_only(gpu(sm_clock_busy_mhz=990.0)),
        {"lost_share": pytest.approx(0.5), "advice.0.action": "nvidia-smi -i 0 -rgc",
         "summary": "50% below"},
    ),
    "application clocks, which the driver names": (
        gpu_only(gpu(sm_clock_busy_mhz=990.0, throttle_shares=(
            ReasonSeconds("applications_clocks_setting", 60.0),
        ))),
        {"advice.0.action": "-rac"},
    ),
    "a cap that hardly slows": (
        capped(sm_clock_busy_mhz=1970.0), {"lost_share": lambda lost: lost < 0.03},
    ),
}, {
    "low clocks for a reason": (
        gpu_only(gpu(sm_clock_busy_mhz=990.0, power_busy_watts=695.0, throttle_shares=CAPPED)),
        "own power limit",
    ),
    "a little below what the card could":  gpu_only(gpu(sm_clock_busy_mhz=1500.0)),
    "a lowered limit that is not reached": capped(throttle_shares=(), power_busy_watts=300.0),
    "at the card's own limit, which is full speed": (
        gpu_only(gpu(throttle_shares=CAPPED, power_busy_watts=695.0, sm_clock_busy_mhz=1500)),
        "own power limit",
    ),
}, {
    "capped at a limit whose default is not known": (
        capped(identity=identity(power_limit_default_watts=None)), "default power limit",
    ),
    "without reasons and power": (
        gpu_only(gpu(throttle_shares=None, power_limit_watts=None)),
        "throttle reasons", "the power limit",
    ),
})  # fmt: skip


def hot(index: int = 0, **facts: Any) -> GpuFacts:
    known: dict[str, Any] = {
        "throttle_shares": (ReasonSeconds("sw_thermal_slowdown", 30.0),),
        "temperature_highest_celsius": 88.0, "sm_clock_busy_mhz": 1600.0,
    }  # fmt: skip
    return gpu(index, **(known | facts))


SLOW = (ReasonSeconds("hw_slowdown", 20.0),)
HEAT = Cases("thermal_throttle", {
    "half a minute, at the cost of the clock against a sibling's": (
        window(gpus=(hot(0), gpu(1, sm_clock_busy_mhz=2000.0))),
        {"gpus": ("GPU-0",), "lost_share": pytest.approx(0.2), "explains": {"straggler"},
         "summary": "thermally throttled (88 C): its clock is 20% lower"},
    ),
    "alone": gpu_only(hot()),
    "a clock that is not lower: no warning, nothing to lower": (
        window(gpus=(hot(sm_clock_busy_mhz=1975.0),)),
        {"severity": "info", "lost_share": None, "explains": frozenset(), "settings": [None],
         "summary": "at its temperature limit 50% of the time ... at full clock speed"},
    ),
    "a hardware slowdown near the slowdown temperature": gpu_only(hot(throttle_shares=SLOW)),
    "temperature and clock, without reasons": (
        gpu_only(hot(throttle_shares=None)),
        {"missing": ("throttle reasons",), "weaker": "alone"},
    ),
}, {
    "a hardware slowdown of a cool card":
        gpu_only(hot(throttle_shares=SLOW, temperature_highest_celsius=60.0)),
    "a moment of it": gpu_only(hot(throttle_shares=(ReasonSeconds("sw_thermal_slowdown", 2.0),))),
    "far below the slowdown even without reasons":
        gpu_only(gpu(throttle_shares=None, temperature_highest_celsius=60.0)),
}, {
    "without reasons and temperature": (
        gpu_only(gpu(throttle_shares=None, temperature_highest_celsius=None)), "throttle reasons",
    ),
})  # fmt: skip
