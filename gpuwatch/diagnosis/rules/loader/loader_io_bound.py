"""The loader workers wait for storage.

What it checks
    GPUs of the job idle for 10% of the time or more while their loader workers are in disk wait
    (the kernel's state D, or its accounts of block I/O) and use little CPU.

Why it matters
    Faster CPUs or cheaper transforms do not help, and on a disk at its maximum rate neither do
    more workers.

Evidence needed
    The GPUs' utilisation, the workers' CPU, and their disk wait. Where the kernel does not account
    for the wait (delay accounting is off by default since Linux 5.14), how often a worker was
    seen in state D, and the machine's I/O pressure (PSI) and iowait.

    Where the job reports its own loop (gpuwatch.torch), that decides: waiting for data below 5% of
    the time rules this out, 10% or more confirms it, and that wait is the time counted as lost.

When it is wrong
    Network and FUSE file systems can let a process sleep in state S instead of D; then the wait
    is invisible and the workers merely look idle. I/O pressure is the machine's and may come from
    another job. The first epoch reads from the disk, later ones may be served from memory.

What to do
    Put the data on local or faster storage; pack small files into shards (WebDataset, tar,
    LMDB, Parquet) that are read in sequence; keep what fits in memory; smaller or pre-resized
    files. Where storage has bandwidth left but high latency (network storage), more workers hide
    the latency.

Thresholds
    workers waiting for 25% of their time: less can hardly cost a GPU 10%, since the other workers
    keep going. SageMaker's IOBottleneck requires 50% of the machine's time.
    I/O pressure "some" of 20%: PSI says that some task was stalled for that share of the time.

Sources
    SageMaker Debugger, IOBottleneck (I/O wait over 50% while the GPU is under 10%).
    Linux, Documentation/accounting/psi.rst and delay-accounting.rst.
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import Window, WorkerFacts
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.common import (
    NO_WORKERS,
    Underfed,
    amount,
    counted,
    in_disk_wait,
    is_shared,
    strength,
    underfed,
)
from gpuwatch.diagnosis.rules.shared.gpus import ramp
from gpuwatch.diagnosis.rules.shared.reported import not_starved, wait_evidence

DISK_WAIT_PERCENT = 25.0
"""Of the workers' time."""

IO_PRESSURE_PERCENT = 20.0
"""PSI "some" of the machine: supports, never suffices."""

READ_BYTES_PER_SECOND = 1e6
"""Loading reads more than this; disk wait without reads is for something else."""


SYMPTOMS = frozenset({"oscillation", "loader_in_main_process", "batch_too_small", "straggler"})


def check(window: Window) -> Verdict:
    found = underfed(window, by_telling=True)
    if not isinstance(found, Underfed):
        return found
    fed = not_starved(found.ranks)
    if fed is not None:
        return fed
    if found.worker_count == 0:
        return _in_main_process(window, found)
    if found.workers is None:
        return Unknown(missing=(NO_WORKERS,))
    return _by_workers(window, found, found.workers)


def _by_workers(window: Window, found: Underfed, workers: WorkerFacts) -> Verdict:
    waits = in_disk_wait(workers)
    if waits is None:
        return Unknown(missing=("the loader workers' disk wait",))
    if waits < DISK_WAIT_PERCENT:
        return Clear(why=f"the loader workers wait for the disk for only {waits:.0f}% of the time")
    used = workers.cpu_percent
    if used is not None and used > waits:
        return Clear(why=f"the loader workers compute more ({used:.0f}%) than they wait for disks")
    count = counted(workers.count, "loader worker")
    return _firing(window, found, waits, f"{count} wait for the disk", workers)


def _in_main_process(window: Window, found: Underfed) -> Verdict:
    """Without workers the training process itself waits for the disk."""
    known = [r.disk_wait_percent for r in found.ranks if r.disk_wait_percent is not None]
    if not known:
        return Unknown(missing=("the training process's disk wait",))
    waits = sum(known) / len(known)
    if waits < DISK_WAIT_PERCENT:
        return Clear(
            why=f"the training process waits for the disk for only {waits:.0f}% of the time"
        )
    if (found.job.write_bytes_per_second or 0.0) > (found.job.read_bytes_per_second or 0.0):
        return Clear(why="the training process waits for writes, not for its data")
    return _firing(window, found, waits, "the training process waits for the disk", None)


def _waits(workers: WorkerFacts) -> bool:
    return (in_disk_wait(workers) or 0.0) >= DISK_WAIT_PERCENT


def _firing(
    window: Window, found: Underfed, waits: float, who: str, workers: WorkerFacts | None
) -> Firing:
    pressure = window.host.pressure_io_percent
    missing = ("I/O pressure (PSI)",) if pressure is None else ()
    return Firing(
        summary=f"{found.who} waited for data {found.waited_share:.0%} of the time: {who}",
        evidence=tuple(_evidence(window, found, waits, workers)),
        advice=_advice(found),
        strength=strength(
            *found.waited_clearness,
            ramp(waits, DISK_WAIT_PERCENT - 5.0, 60.0),
            0.5 if pressure is None else ramp(pressure, IO_PRESSURE_PERCENT / 2.0, 40.0),
            missing=len(missing),
        ),
        missing=missing,
        gpus=found.keys,
        lost_share=found.waited_share,
        lost_while_busy=found.told_only,
        explains=(SYMPTOMS if found.is_for_data else frozenset[str]())
        | ({"collective_wait"} if is_shared(found.job, _waits) else set()),
    )


def _evidence(
    window: Window, found: Underfed, waits: float, workers: WorkerFacts | None
) -> list[Evidence]:
    host = window.host
    evidence = [
        found.evidence,
        *([] if found.told_only else wait_evidence(found.ranks)),
        Evidence(
            name="disk wait",
            value=round(waits, 1),
            unit="% of the time",
            threshold=DISK_WAIT_PERCENT,
            says="the workers wait for storage" if workers else "the process waits for storage",
        ),
    ]
    if workers is not None and workers.cpu_percent is not None:
        says = "they have little to compute"
        evidence.append(
            Evidence(
                name="loader workers' CPU",
                value=round(workers.cpu_percent, 1),
                unit="% of a core each",
                says=says,
            )
        )
    if host.pressure_io_percent is not None:
        supports = host.pressure_io_percent >= IO_PRESSURE_PERCENT
        evidence.append(
            Evidence(
                name="I/O pressure",
                value=round(host.pressure_io_percent, 1),
                unit="%",
                threshold=IO_PRESSURE_PERCENT,
                says="tasks of this machine are stalled by I/O"
                if supports
                else "the machine as a whole is hardly stalled by I/O",
                supports=supports,
            )
        )
    return evidence + _reads(found)


def _reads(found: Underfed) -> list[Evidence]:
    reads = found.job.read_bytes_per_second
    if reads is None:
        return []
    supports = reads >= READ_BYTES_PER_SECOND
    says = f"the job gets {amount(reads)}/s from storage"
    if not supports:
        says += ": so little that many small files or high latency must be the cause"
    return [
        Evidence(name="reads", value=round(reads), unit="bytes/s", says=says, supports=supports)
    ]


def _advice(found: Underfed) -> tuple[Advice, ...]:
    reads = found.job.read_bytes_per_second
    rate = "" if reads is None else f" ({amount(reads)}/s are read now)"
    storage = Advice(
        action="Put the data on local or faster storage, or keep in memory what fits.",
        why=f"the workers wait for storage and not for a core{rate}",
    )
    shards = Advice(
        action="Pack small files into shards that are read in sequence (WebDataset, LMDB).",
        why="reading in sequence is many times faster than many small reads",
    )
    if found.worker_count == 0:
        workers = Advice(
            action="Let workers read ahead: num_workers of 4 or more, persistent_workers=True.",
            setting="num_workers",
            present="0",
            wanted="4",
            why="the wait then overlaps with the GPU's work",
        )
        return (storage, shards, workers)
    return (storage, shards)
