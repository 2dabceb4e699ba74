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

from gpuwatch.diagnosis.facts.window import WorkerFacts
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Unknown, Verdict, Window
from gpuwatch.diagnosis.rules.shared.loading import NO_WORKERS, Underfed, starved
from gpuwatch.diagnosis.rules.shared.words import amount, counted, mean, ramp
from gpuwatch.diagnosis.rules.shared.workers import in_disk_wait, is_shared

_SHARDS = Advice(
    "Pack small files into shards that are read in sequence (WebDataset, LMDB).",
    why="reading in sequence is many times faster than many small reads",
)
_AHEAD = Advice(
    "Let workers read ahead: num_workers of 4 or more, persistent_workers=True.",
    setting="num_workers",
    present="0",
    wanted="4",
    why="the wait then overlaps with the GPU's work",
)
RULE = Rule(
    title="loader waits for disk",
    cure=(_SHARDS,),
    explains=frozenset({"oscillation", "loader_in_main_process", "batch_too_small", "straggler"}),
    look_alike=8,
    suspect="slow storage",
    suspected=2,
    chart="read",
)
DISK_WAIT_PERCENT = 25.0  # of the workers' time
IO_PRESSURE_PERCENT = 20.0
"""PSI "some" of the machine: supports, never suffices."""
READ_BYTES_PER_SECOND = 1e6
"""Loading reads more than this; disk wait without reads is for something else."""


def check(window: Window) -> Verdict:
    found = starved(window)
    if not isinstance(found, Underfed):
        return found
    if found.worker_count == 0:
        return _in_main_process(window, found)
    workers = found.workers
    if workers is None:
        return Unknown(NO_WORKERS)
    waits, used = in_disk_wait(workers), workers.cpu_percent
    if waits is None:
        return Unknown(("the loader workers' disk wait",))
    if waits < DISK_WAIT_PERCENT:
        return Clear(f"the loader workers wait for the disk for only {waits:.0f}% of the time")
    if used is not None and used > waits:
        return Clear(f"the loader workers compute more ({used:.0f}%) than they wait for disks")
    count = counted(workers.count, "loader worker")
    return _firing(window, found, waits, f"{count} wait for the disk", workers)


def _in_main_process(window: Window, found: Underfed) -> Verdict:
    """Without workers the training process itself waits for the disk."""
    waits = mean([rank.disk_wait_percent for rank in found.ranks])
    if waits is None:
        return Unknown(("the training process's disk wait",))
    if waits < DISK_WAIT_PERCENT:
        return Clear(f"the training process waits for the disk for only {waits:.0f}% of the time")
    if (found.job.write_bytes_per_second or 0.0) > (found.job.read_bytes_per_second or 0.0):
        return Clear("the training process waits for writes, not for its data")
    return _firing(window, found, waits, "the training process waits for the disk", None)


def _firing(
    window: Window, found: Underfed, waits: float, who: str, workers: WorkerFacts | None
) -> Firing:
    pressure, reads = window.host.pressure_io_percent, found.job.read_bytes_per_second
    pressed = 0.5 if pressure is None else ramp(pressure, IO_PRESSURE_PERCENT / 2.0, 40.0)
    rate = "" if reads is None else f" ({amount(reads)}/s are read now)"
    storage = Advice(
        "Put the data on local or faster storage, or keep in memory what fits.",
        why=f"the workers wait for storage and not for a core{rate}",
    )
    return found.starves(
        who,
        _evidence(window, found, waits, workers),
        (ramp(waits, DISK_WAIT_PERCENT - 5.0, 60.0), pressed),
        advice=(storage, *RULE.cure, *((_AHEAD,) if found.worker_count == 0 else ())),
        missing=("I/O pressure (PSI)",) if pressure is None else (),
        explains=RULE.explains,
        shared=is_shared(found.job, lambda one: (in_disk_wait(one) or 0.0) >= DISK_WAIT_PERCENT),
    )


def _evidence(
    window: Window, found: Underfed, waits: float, workers: WorkerFacts | None
) -> list[Evidence | None]:
    cpu = None if workers is None else workers.cpu_percent
    pressure, reads = window.host.pressure_io_percent, found.job.read_bytes_per_second
    pressed = (pressure or 0.0) >= IO_PRESSURE_PERCENT
    stalled = "tasks of this machine are stalled by I/O"
    if not pressed:
        stalled = "the machine as a whole is hardly stalled by I/O"
    gets = f"the job gets {amount(reads or 0.0)}/s from storage"
    much = (reads or 0.0) >= READ_BYTES_PER_SECOND
    if not much:
        gets += ": so little that many small files or high latency must be the cause"
    return [
        Evidence("disk wait", round(waits, 1), "% of the time", DISK_WAIT_PERCENT,
                 f"the {'workers wait' if workers else 'process waits'} for storage"),
        None if cpu is None else
        Evidence("loader workers' CPU", round(cpu, 1), "% of a core each",
                 says="they have little to compute"),
        None if pressure is None else
        Evidence("I/O pressure", round(pressure, 1), "%", IO_PRESSURE_PERCENT, stalled,
                 supports=pressed),
        None if reads is None else
        Evidence("reads", round(reads), "bytes/s", says=gets, supports=much),
    ]  # fmt: skip
