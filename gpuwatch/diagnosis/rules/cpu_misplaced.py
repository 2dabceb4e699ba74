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

from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Unknown, Verdict, Window
from gpuwatch.diagnosis.rules.shared.loading import IDLE_SHARE, job_of
from gpuwatch.diagnosis.rules.shared.pauses import idle_outside_pauses
from gpuwatch.diagnosis.rules.shared.words import keys
from gpuwatch.diagnosis.sentence import GPUS, IS

RULE = Rule(title="cores far from GPU", has_look_alikes=False)
FAR_STRENGTH = 0.6
"""Where the cores are is certain; that it costs time is not measured."""


def check(window: Window) -> Verdict:
    job = job_of(window)
    cores = {
        uuid: rank.numa_nodes
        for rank in job.job.ranks
        if rank.numa_nodes is not None
        for uuid in rank.gpu_uuids
    }
    known = [
        (gpu, gpu.identity.numa_node, cores[gpu.uuid])
        for gpu in window.gpus
        if gpu.identity.numa_node is not None and gpu.uuid in cores
    ]
    if not known:
        missing = [] if cores else ["the NUMA nodes of the job's cores"]
        if all(gpu.identity.numa_node is None for gpu in window.gpus):
            missing.append("the GPUs' NUMA nodes")
        return Unknown(tuple(missing) or ("which rank drives which GPU",))
    far = [(gpu, node, nodes) for gpu, node, nodes in known if node not in nodes]
    if not far:
        return Clear("each rank may use cores of its GPU's NUMA node")
    gpus, node, there = [gpu for gpu, _, _ in far], far[0][1], _listed(far[0][2])
    idles = any(gpu.busy and idle_outside_pauses(window, gpu) >= IDLE_SHARE for gpu in gpus)
    one = len({(node, nodes) for _, node, nodes in far}) == 1
    where = f" (on NUMA node {node}; the cores are on {there})" if one else ""
    to = node if one else "N"
    bind = Advice(
        f"Bind each rank to its GPU's node: numactl --cpunodebind={to} --membind={to}.",
        setting="numactl",
        present=there if one else None,
        wanted=str(node) if one else None,
        why="what it sends to its GPU now crosses the link between the sockets",
    )
    evidence = [
        Evidence(f"NUMA node of the cores for GPU {gpu.identity.index}", _listed(nodes), None,
                 float(node), f"the GPU is attached to node {node}")
        for gpu, node, nodes in far[:4]
    ]  # fmt: skip
    return Firing(
        summary=f"{GPUS} {IS} driven from cores on another NUMA node{where}",
        evidence=evidence,
        advice=(bind,),
        severity=None if idles else "info",
        strength=FAR_STRENGTH,
        gpus=keys(gpus),
    )


def _listed(nodes: tuple[int, ...]) -> str:
    return ", ".join(map(str, nodes))
