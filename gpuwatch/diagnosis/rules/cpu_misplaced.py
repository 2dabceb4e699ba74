"""A rank runs on cores of another NUMA node than its GPU's.

What it checks
    Whether any core that a rank may use belongs to the NUMA node its GPU is attached to.

Why it matters
    Everything the rank sends to its GPU then crosses the link between the sockets: copies are
    slower, launches take longer, and all misplaced ranks share that one link.

Evidence needed
    The GPU's NUMA node (from the kernel's PCI devices) and the rank's affinity.

When it is wrong
    A virtual machine can show nodes that the hardware does not have, and cards behind one switch
    can be equally far from both sockets. Where the GPU stays busy, it is information only. A rank
    whose affinity spans several nodes is not checked, nor is the placement of its memory.

What to do
    Bind each rank to cores of its GPU's node: numactl --cpunodebind=N --membind=N, Slurm's
    --gpu-bind=closest with --cpu-bind, torchrun's --numa-binding where it exists, the topology
    manager in Kubernetes (single-numa-node). nvidia-smi topo -m shows which cores are local.

Thresholds
    None of the cores on the GPU's node; a partial mismatch is not reported.
    GPUs idle 10% of the time for a warning: see loader_cpu_bound.

Sources
    Linux, /sys/bus/pci/devices/*/numa_node and /sys/devices/system/node/node*/cpulist.
    NVIDIA, nvidia-smi topo -m (CPU and NUMA affinity of each GPU).
"""

from typing import NamedTuple

from gpuwatch.diagnosis.facts.window import GpuFacts, JobFacts
from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Unknown, Verdict, Window
from gpuwatch.diagnosis.rules.shared.loading import IDLE_SHARE, job_of
from gpuwatch.diagnosis.rules.shared.pauses import idle_outside_pauses
from gpuwatch.diagnosis.rules.shared.words import clear_if, keys
from gpuwatch.diagnosis.sentence import GPUS, IS, either

RULE = Rule(title="cores far from GPU", has_look_alikes=False)
FAR_STRENGTH = 0.6
"""Where the cores are is certain; that it costs time is not measured."""
NAMED_MOST = 4
"""GPUs with a line of evidence each."""


class _Place(NamedTuple):
    """A GPU's NUMA node, and those of the cores that its rank may use."""

    gpu: GpuFacts
    node: int
    cores: tuple[int, ...]

    @property
    def of_cores(self) -> str:
        return ", ".join(map(str, self.cores))


def check(window: Window) -> Verdict:
    job = job_of(window)
    places = _places(window, job)
    if not places:
        return Unknown(_missing(window, job))
    far = [one for one in places if one.node not in one.cores]
    clear_if(not far, "each rank may use cores of its GPU's NUMA node")
    first, alike = far[0], len({(one.node, one.cores) for one in far}) == 1
    where = f" (node {first.of_cores} instead of {first.node})" if alike else ""
    to = first.node if alike else "N"
    bind = Advice(
        f"Bind each rank to its GPU's node: numactl --cpunodebind={to} --membind={to}.",
        setting="numactl",
        present=first.of_cores if alike else None,
        wanted=str(to) if alike else None,
        why="what it sends to its GPU now crosses the link between the sockets",
    )
    evidence = [
        Evidence(f"NUMA node of the cores for GPU {one.gpu.identity.index}", one.of_cores,
                 says=f"the GPU is attached to node {one.node}")
        for one in far[:NAMED_MOST]
    ]  # fmt: skip
    gpus = [one.gpu for one in far]
    idles = any(gpu.busy and idle_outside_pauses(window, gpu) >= IDLE_SHARE for gpu in gpus)
    return Firing(
        summary=f"{GPUS} {IS} driven from cores of another NUMA node{where}",
        short=(
            f"{GPUS} {IS} driven from cores of another NUMA node",
            f"{GPUS} {either('uses', 'use')} a far NUMA node",
        ),
        evidence=evidence,
        advice=(bind,),
        severity=None if idles else "info",
        strength=FAR_STRENGTH,
        gpus=keys(gpus),
    )


def _places(window: Window, job: JobFacts) -> list[_Place]:
    """Return the GPUs of which both nodes are known."""
    cores = {uuid: rank.numa_nodes for rank in job.job.ranks for uuid in rank.gpu_uuids}
    known = [(gpu, gpu.identity.numa_node, cores.get(gpu.uuid)) for gpu in window.gpus]
    return [
        _Place(gpu, node, nodes)
        for gpu, node, nodes in known
        if node is not None and nodes is not None
    ]


def _missing(window: Window, job: JobFacts) -> tuple[str, ...]:
    known = any(rank.numa_nodes is not None and rank.gpu_uuids for rank in job.job.ranks)
    missing = [] if known else ["the NUMA nodes of the job's cores"]
    if all(gpu.identity.numa_node is None for gpu in window.gpus):
        missing.append("the GPUs' NUMA nodes")
    return tuple(missing) or ("which rank drives which GPU",)
