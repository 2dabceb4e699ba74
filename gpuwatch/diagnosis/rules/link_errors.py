"""Errors of a link come in: PCIe, NVLink, or a port of InfiniBand or RoCE.

What it checks
    By how much the error counters of the GPUs' links and of the machine's ports have risen in the
    last quarter of an hour, and whether a port that was active has gone down meanwhile.

Why it matters
    Each error costs little: the packet is sent again. But a link that has many fails sooner or
    later. An NVLink that is trained again stalls all ranks that use it; when a port goes down, NCCL
    ends the job, or waits until it times out.

Evidence needed
    NVML's counters of PCIe replays and of NVLink errors (data-center cards; a card without NVLink
    has none), and /sys/class/infiniband on machines that have such ports.

When it is wrong
    Errors from before the first reading do not count, however many: counters run since the driver
    was loaded. A port that somebody takes down on purpose goes down, too. Most of the counters of
    ports stop at their end (255 for a link that went down): perfquery -R sets them to 0.

What to do
    NVLink: nvidia-smi nvlink -e says which link it is; look for Xid 74; drain the machine if the
    count grows. Port: clean or replace the cable or transceiver (mlxlink, ibstat), look at the
    switch port. PCIe: reseat the card, its riser or cable at the next maintenance.

Thresholds
    NVLink: one recovery or replay. CRC errors are repaired by a replay and not counted twice.

    PCIe: more than 8 replays a minute, NVIDIA's limit (DCGM's health check).

    Port: going down once; more than 10 other errors, from which on ibcheckerrors warns.

Sources
    NVIDIA, DCGM's health checks; NVML, NVML_FI_DEV_NVLINK_*; infiniband-diags, ibcheckerrors;
    Linux, Documentation/ABI/stable/sysfs-class-infiniband.
"""

from gpuwatch.diagnosis.facts.window import GpuFacts, PortFacts
from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared.cards import present
from gpuwatch.diagnosis.rules.shared.words import clear_if, counted, keys, named, unknown_if
from gpuwatch.diagnosis.sentence import GPUS, number

# There is nothing to weigh.
RULE = Rule(title="link errors", trust=1.03, has_look_alikes=False)
REPLAYS_PER_MINUTE = 8.0
PORT_ERRORS = 10

_NVLINK = Advice(
    "See which link it is (nvidia-smi nvlink -e) and look for Xid 74 in the kernel log; drain the "
    "machine if the count grows.",
    brief="See which link it is: nvidia-smi nvlink -e",
    why="jobs on several GPUs stall or end with NCCL errors when a link fails",
)
_PCIE = Advice(
    "Reseat the card, its riser or cable at the next maintenance; try another slot if that does "
    "not help.",
    brief="Reseat the card, its riser or its cable",
    why="packets that are sent again take bandwidth from copies",
)


def check(window: Window) -> Verdict:
    gpus, ports = present(window), window.host.ports or ()
    read = [gpu for gpu in gpus if _counts(gpu) != (None, None, None)]
    unknown_if(not read and not ports, "counters of link errors (PCIe, NVLink, InfiniBand)")
    down = [port for port in ports if port.went_down]
    failed = [gpu for gpu in read if gpu.nvlink_recoveries_new]
    noisy = [port for port in ports if port.errors_new > PORT_ERRORS]
    resent = [gpu for gpu in read if gpu.nvlink_replays_new]
    slow = [gpu for gpu in read if _replays_per_minute(gpu) > REPLAYS_PER_MINUTE]
    clear_if(
        not (down or failed or noisy or resent or slow),
        "no link had new errors",
        at_once=True,
    )
    about: list[GpuFacts] = []
    short: tuple[str, ...] = ()
    if down:
        summary = f"{_names(down)} went down"
        short = (f"{counted(len(down), 'InfiniBand port')} went down",)
    elif failed:
        about, summary = failed, f"NVLinks of {GPUS} failed and were trained again"
        short = (f"NVLinks of {GPUS} failed",)
    elif noisy:
        errors = sum([port.errors_new for port in noisy])
        summary = f"{_names(noisy)} had {number(errors)} errors"
        ports_had = f"{counted(len(noisy), 'InfiniBand port')} had"
        short = (f"{ports_had} {number(errors)} errors", f"{ports_had} errors")
    elif resent:
        about, summary = resent, f"NVLinks of {GPUS} had errors"
    else:
        often = max([_replays_per_minute(gpu) for gpu in slow])
        about = slow
        summary = f"PCIe packets of {GPUS} are sent again, {number(round(often))} a minute"
        short = (f"PCIe of {GPUS} resends {number(round(often))} a minute",)
    return Firing(
        severity="error" if down or failed else "warning",
        summary=summary,
        short=short,
        evidence=[
            *[item for port in ports if port in down or port in noisy for item in _of_port(port)],
            *[item for gpu in read for item in _of_gpu(gpu)],
        ],
        advice=[
            *[_port_advice(port) for port in dict.fromkeys([*down, *noisy])],
            *([_NVLINK] if failed or resent else []),
            *([_PCIE] if slow else []),
        ],
        gpus=keys(about),
    )


def _counts(gpu: GpuFacts) -> tuple[int | None, int | None, int | None]:
    return gpu.pcie_replays_new, gpu.nvlink_replays_new, gpu.nvlink_recoveries_new


def _replays_per_minute(gpu: GpuFacts) -> float:
    minutes = max(1.0, (gpu.link_errors_seconds or 0.0) / 60.0)
    return (gpu.pcie_replays_new or 0) / minutes


def _names(ports: list[PortFacts]) -> str:
    return ", ".join([port.name for port in ports])


def _of_port(port: PortFacts) -> list[Evidence]:
    rows = (
        ("link went down", port.link_downed_new),
        ("link recovered", port.link_recovery_new),
        ("receive errors", port.receive_errors_new),
        ("symbol errors", port.symbol_errors_new),
    )
    found = [Evidence(f"{port.name} {name}", float(new), "new") for name, new in rows if new]
    says = "was active, and is not any more"
    return found or [Evidence(f"{port.name} active", value=False, says=says)]


def _of_gpu(gpu: GpuFacts) -> list[Evidence]:
    rows = (
        ("NVLink recoveries", gpu.nvlink_recoveries_new),
        ("NVLink replays", gpu.nvlink_replays_new),
        ("PCIe replays", gpu.pcie_replays_new),
    )
    return [Evidence(f"{named([gpu])} {name}", float(new), "new") for name, new in rows if new]


def _port_advice(port: PortFacts) -> Advice:
    return Advice(
        f"Clean or replace the cable of {port.name}, or its transceiver, and look at the switch "
        f"port (ibstat, mlxlink -d {port.device}); drain the machine if it goes down again.",
        brief="Clean or replace the cable of that port",
        why="NCCL jobs over this port end, or wait until they time out, when it goes down",
    )
