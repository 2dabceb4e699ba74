"""The loader workers wait: for a disk, for the network, or for a slow store, pipe or process.

What it checks
    GPUs of the job idle for 10% of the time or more while their loader workers are in disk wait
    (the kernel's state D, or its accounts of block I/O), or wait for answers on TCP connections
    that they made, or sleep on anything else while they make a batch, and use little CPU.

Why it matters
    Faster CPUs or cheaper transforms do not help, nor more workers on a disk at its maximum rate.
    Elsewhere each sample costs a wait, and waits overlap: there more workers than cores are right.

Evidence needed
    The GPUs' utilisation, the workers' CPU and their disk wait; where the kernel does not account
    for that (it is off by default since Linux 5.14), how often a worker was seen in state D, the
    I/O pressure (PSI) of the job's cgroup, else of the machine. Of NFS the times of its requests
    (/proc/self/mountstats); other storage on the network by what the machine receives while its
    disks are not read. Connections of the job that gpuwatch is attached to, in
    its own network namespace; else what the machine receives while the workers rest, a weaker sign.
    That it waits for its workers at all, where neither shows: stacks of the main thread, or the
    job's own report, decide. Without them (only of the attached job): in which kernel function a
    worker sleeps (/proc/PID/wchan). One without work sleeps in poll, on the queue from which it
    gets its next indices; one that makes a batch sleeps elsewhere. Where that is not known
    either, resting workers beside a resting main thread stay open: it may wait for anything.

When it is wrong
    A store at its maximum rate serves more workers no faster: gpuwatch tune measures what a number
    of them delivers.
    I/O pressure is that of the job's own cgroup where it has one, else the machine's, and may come
    from another job. The first epoch reads from the
    disk, later ones may be served from memory. A connection kept open for messages seems to wait.

What to do
    Put the data on local or faster storage (where it is NFS, the mount that is waited for is
    named); pack small files into shards (WebDataset, tar, LMDB, Parquet) that are read in sequence;
    keep what fits in memory; smaller or pre-resized
    files. For all other waits: raise num_workers to the number named, beyond the cores as far as
    memory allows (gpuwatch tune measures up to eight times as many), or fetch the samples of a
    batch at once.

Thresholds
    workers waiting for 25% of their time: less can hardly cost a GPU 10%, since the other workers
    keep going. SageMaker's IOBottleneck requires 50% of the machine's time.
    50% of the reads for pages that the kernel had dropped (workingset_refault): the page cache is
    too small for the dataset, and each epoch reads it again.
    I/O pressure "some" of 20%: PSI says that some task was stalled for that share of the time.
    within a batch at 75% of the looks: a worker whose queue is full waits to be asked.
    15% of the stacks, and half of the idle time: see loader_in_main_process.

Sources
    SageMaker Debugger, IOBottleneck (I/O wait over 50% while the GPU is under 10%).
    Linux, Documentation/accounting/psi.rst and delay-accounting.rst; sock_diag(7), tcp_info;
    proc_pid_wchan(5). nfs-utils, mountstats(8).
    PyTorch, torch/utils/data/_utils/worker.py (index_queue.get).
    Svogor et al., "Profiling and Improving the PyTorch Dataloader for High-Latency Storage" (2022).
"""

from gpuwatch.core.model import NetworkMount
from gpuwatch.diagnosis.facts.window import WorkerFacts
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Unknown, Verdict, Window
from gpuwatch.diagnosis.rules.shared import loaders, words
from gpuwatch.diagnosis.rules.shared.loading import NO_WORKERS, Underfed, starved

_SHARDS = Advice(
    "Pack small files into shards that are read in sequence (WebDataset, LMDB).",
    brief="Pack small files into shards (WebDataset)",
    why="reading in sequence is many times faster than many small reads",
)
_AHEAD = Advice(
    "Let workers read ahead: num_workers of 4 or more, persistent_workers=True.",
    setting="num_workers",
    present="0",
    wanted="4",
    why="the wait then overlaps with the GPU's work",
)
_AT_ONCE = Advice(
    "Fetch the samples of a batch at once (threads or asyncio in the dataset's __getitems__), or "
    "pack them into shards; keep a copy on a local disk if there is room.",
    brief="Fetch the samples of a batch at once",
    why="each worker asks for one sample after the other and sleeps until it is there",
)
RULE = Rule(
    title="loader waits for I/O",
    gives_back="some",
    uses_workers=True,
    cure=(_SHARDS,),
    explains={"oscillation", "loader_in_main_process", "batch_too_small", "straggler"},
    look_alike=8,
    charts=("wait", "worker", "read"),
)
DISK_WAIT_PERCENT = 25.0  # of the workers' time
IO_PRESSURE_PERCENT = 20.0
"""PSI "some" of the machine: supports, never suffices."""
AGAIN_SHARE = 0.5  # of what is read
READ_BYTES_PER_SECOND = 1e6
"""Loading reads more than this; disk wait without reads is for something else."""
WAITING_REQUESTS = 0.25
"""Requests to a server on their way at any time, on average: one worker that waits for a quarter of
its time has as many."""
SERVED_BYTES_PER_SECOND = 10e6
"""Least rate of a loader that reads from a server: a machine at rest receives less."""
REST_PERCENT = 40.0
"""Percent of a core: beyond it what the machine receives does not show that it is waited for."""
COMPUTES_PERCENT = 25.0
"""Percent of a core: workers that use less need no core of their own."""
AT_WORK_SHARE = 0.75
"""Share of the looks at workers: with full queues they would wait to be asked for their next
batch."""


def check(window: Window) -> Verdict:
    found = starved(window)
    if found.worker_count == 0:
        return _in_main_process(window, found)
    workers = words.required(found.workers, *NO_WORKERS)
    waits, used = loaders.in_disk_wait(workers), workers.cpu_percent
    network = loaders.in_network_wait(workers)
    if network >= max(DISK_WAIT_PERCENT, waits or 0.0, used or 0.0):
        return _over_network(window, found, network, workers)
    if _rests_and_receives(window, found, workers) and (waits or 0.0) < DISK_WAIT_PERCENT:
        return _over_network(window, found, None, workers)
    asleep = _without_a_disk(window, found, workers) if (waits or 0.0) < DISK_WAIT_PERCENT else None
    if asleep is not None:
        return asleep
    waits = words.required(waits, "the loader workers' disk wait")
    if waits < DISK_WAIT_PERCENT:
        return Clear(f"the loader workers {words.waits_little('for the disk', waits)}")
    if used is not None and used > waits:
        return Clear(f"the loader workers compute more ({used:.0f}%) than they wait for disks")
    return _firing(window, found, waits, workers)


def _in_main_process(window: Window, found: Underfed) -> Verdict:
    """Judge a job without loader workers: its training process itself waits for the disk."""
    waits = words.mean([rank.disk_wait_percent for rank in found.ranks])
    network = 100.0 * (words.mean([rank.awaits_network_share for rank in found.ranks]) or 0.0)
    if network >= max(DISK_WAIT_PERCENT, waits or 0.0) and loaders.is_asked_for_data(found.job):
        return _over_network(window, found, network, None)
    waits = words.required(waits, "the training process's disk wait")
    if waits < DISK_WAIT_PERCENT:
        return Clear(f"the training process {words.waits_little('for the disk', waits, one=True)}")
    if (found.job.write_bytes_per_second or 0.0) > (found.job.read_bytes_per_second or 0.0):
        return Clear("the training process waits for writes, not for its data")
    return _firing(window, found, waits, None)


def _rests_and_receives(window: Window, found: Underfed, workers: WorkerFacts) -> bool:
    """Check by the machine's traffic, where whose connections there are was not read."""
    receives, reads = window.host.network_receive_bytes_per_second, found.job.read_bytes_per_second
    if workers.awaits_network_share is not None or receives is None:
        return False
    # Ranks on other machines send their gradients.
    alone = (found.job.job.world_size or 1) <= len(found.job.ranks)
    rest = [workers.cpu_percent, found.main_idle_percent]
    rests = None not in rest and max(one or 0.0 for one in rest) < REST_PERCENT
    return alone and rests and receives >= max(READ_BYTES_PER_SECOND, 2.0 * (reads or 0.0))


def _over_network(
    window: Window, found: Underfed, waits: float | None, workers: WorkerFacts | None
) -> Firing:
    """``waits``: percent of the time; ``None``: judged by what the machine receives."""
    used = 0.0 if workers is None else workers.cpu_percent or 0.0
    who, by = ("the job", found.job) if waits is not None else ("the machine", window.host)
    receives = by.network_receive_bytes_per_second
    evidence = [
        Evidence("waits for the network", waits, "% of the time", DISK_WAIT_PERCENT,
                 "an answer was due on a connection that it made"),
        None if workers is None else
        Evidence("loader workers' CPU", used, "% of a core each",
                 says="they have little to compute"),
        Evidence("received", receives, "bytes/s", says=f"by {who}"),
    ]  # fmt: skip
    return found.starves(
        f"{_they_wait(workers)} for the network",
        (f"{_they_wait(workers, briefly=True)} for the network", "slow network"),
        evidence,
        (0.3 if waits is None else words.ramp(waits, DISK_WAIT_PERCENT - 5.0, 60.0),),
        advice=_more_at_once(window, found, workers),
        missing=("the loader workers' connections",) if waits is None else (),
        explains=RULE.explains,
        shared=loaders.is_shared(
            found.job, lambda one: loaders.in_network_wait(one) >= DISK_WAIT_PERCENT
        ),
    )


def _more_at_once(window: Window, found: Underfed, workers: WorkerFacts | None) -> list[Advice]:
    count, used = found.worker_count or 0, 0.0 if workers is None else workers.cpu_percent or 0.0
    better = loaders.overlapping_workers(window.host, found.job, count, workers, found.busy_share)
    spare = loaders.spare_cores(window.host, found.job)
    if used >= COMPUTES_PERCENT and spare is not None and spare < words.SPARE_LEAST_CORES:
        why = f"they use {used:.0f}% of a core each and {words.free(spare)}"
        return [loaders.cheaper_transforms(why), _SHARDS]
    why = (
        f"workers mostly wait ({used:.0f}% of a core each): more of them than cores is right here, "
        "and twice as many deliver about twice as much, if the source keeps up"
    )
    if used >= COMPUTES_PERCENT:
        why = (
            f"workers wait in turns ({used:.0f}% of a core each): more of them than cores is right "
            "here, as long as cores are free"
        )
    raised = [loaders.set_workers("Raise num_workers", count, better, why)]
    return [*(raised if better > count else ()), _AT_ONCE]


def _without_a_disk(window: Window, found: Underfed, workers: WorkerFacts) -> Verdict | None:
    """Workers that neither compute all the time nor wait for a disk, in a job that waits for them:
    they sleep on something else. ``None``: it is not known that it does."""
    need, main = loaders.wanted(workers), found.main_idle_percent
    if need is None or need >= loaders.WORKERS_AT_LIMIT_PERCENT:
        return None
    if found.waits_for_data:
        return _firing_asleep(window, found, workers)
    if found.job.stacks or found.reported_wait is not None:
        return None
    if main is None or main >= REST_PERCENT:
        return None
    share = workers.at_work_share
    if share is None:
        if need >= REST_PERCENT:
            return None
        disk = ("the loader workers' disk wait",) if loaders.in_disk_wait(workers) is None else ()
        return Unknown((*disk, "stacks of the main thread, which rests as its workers do"))
    if share < AT_WORK_SHARE:
        return Clear(
            f"the loader workers wait to be asked for batches {1.0 - share:.0%} of the time"
        )
    return _firing_asleep(window, found, workers)


def _firing_asleep(window: Window, found: Underfed, workers: WorkerFacts) -> Firing:
    share, used = workers.at_work_share, workers.cpu_percent or 0.0
    sure, main = found.waits_for_data, found.main_idle_percent
    busy = 0.0 if share is None else words.ramp(share, AT_WORK_SHARE - 0.1, 0.95)
    one = round(workers.count) == 1
    rest = do = "sleeps" if one else "sleep"
    if used >= COMPUTES_PERCENT:
        rest = f"often {do}"
        do = "computes and sleeps in turns" if one else "compute and sleep in turns"
    evidence = [
        found.stacks_evidence,
        Evidence("loader workers' CPU", used, "% of a core each",
                 loaders.WORKERS_AT_LIMIT_PERCENT, "with their child processes; it is not what "
                 "limits them"),
        Evidence("loader workers within a batch", 100.0 * share, "% of the looks",
                 100.0 * AT_WORK_SHARE, "they are making one, asleep or not, "
                 "rather than waiting to be asked for it") if share is not None else None,
        Evidence("main thread's CPU while the GPU idles", main, "% of a core", REST_PERCENT,
                 "it waits", supports=(main or 0.0) < REST_PERCENT),
    ]  # fmt: skip
    return found.starves(
        f"{words.counted(workers.count, 'loader worker')} {do} while making batches, as if "
        "waiting for slow storage, a pipe or another process",
        (
            f"{words.counted(workers.count, 'worker')} {rest}, as if on slow storage",
            "worker sleeps" if one else "workers sleep",
        ),
        evidence,
        (1.0,) if sure else (busy, 1.0 - words.ramp(main or 0.0, 10.0, REST_PERCENT), 0.5),
        advice=_more_at_once(window, found, workers),
        missing=() if sure else ("stacks of the main thread",),
        explains=RULE.explains,
        shared=found.waits_for_data
        and loaders.is_shared(found.job, lambda one: not loaders.is_at_limit(one)),
    )


def _they_wait(workers: WorkerFacts | None, *, briefly: bool = False) -> str:
    if workers is None:
        return "the training process waits"
    wait = "waits" if workers.count == 1 else "wait"
    return f"{words.counted(workers.count, 'worker' if briefly else 'loader worker')} {wait}"


def _firing(window: Window, found: Underfed, waits: float, workers: WorkerFacts | None) -> Firing:
    over, again = _from_a_server(window, found), _read_again(window, found)
    who = f"{_they_wait(workers)} for {over or 'the disk'}"
    near = "storage on the network" if over else "the disk"
    briefly = f"{_they_wait(workers, briefly=True)} for {near}"
    pressure, reads = _io_pressure(window, found), found.job.read_bytes_per_second
    pressed = 0.5 if pressure is None else words.ramp(pressure, IO_PRESSURE_PERCENT / 2.0, 40.0)
    rate = "" if reads is None else f" ({words.amount(reads)}/s are read now)"
    storage = Advice(
        "Put the data on local or faster storage, or keep in memory what fits.",
        brief="Put the data on local or faster storage",
        why=f"{who}, not for a core{'' if over else rate}",
    )
    if over:
        storage = Advice(
            f"Copy the data from {over} to a local disk, before the run, or keep in memory what "
            "fits.",
            brief="Copy the data to a local disk before the run",
            why=f"{_they_wait(workers)} for its answers, not for a core or a local disk",
        )
    if again >= AGAIN_SHARE:
        who += ", which reads again what memory could not keep"
        briefly += ", for want of memory"
        storage = Advice(
            "Make the dataset fit into memory (smaller or pre-resized files, half the image size), "
            "or give the job more of it (Slurm --mem, the container's limit); fewer workers that "
            "each hold a copy leave more to the page cache.",
            brief="Make the dataset smaller, or give more memory",
            why=f"{again:.0%} of what is read had been in the page cache and was dropped",
        )
    return found.starves(
        who,
        (briefly, "slow storage" if over else "slow disk"),
        _evidence(window, found, waits, again, workers),
        (words.ramp(waits, DISK_WAIT_PERCENT - 5.0, 60.0), pressed),
        advice=(storage, *RULE.cure, *((_AHEAD,) if found.worker_count == 0 else ())),
        missing=("I/O pressure (PSI)",) if pressure is None else (),
        explains=RULE.explains,
        shared=loaders.is_shared(
            found.job, lambda one: (loaders.in_disk_wait(one) or 0.0) >= DISK_WAIT_PERCENT
        ),
    )


def _waiting_mount(window: Window, found: Underfed) -> NetworkMount | None:
    """Return the mount on a server that the loader waits for; ``None``: none is waited for, or a
    local disk gives as much."""
    reads = found.job.read_bytes_per_second or 0.0
    for mount in window.host.network_mounts or ():
        if mount.waiting_requests >= WAITING_REQUESTS and mount.read_bytes_per_second >= reads:
            return mount
    return None


def _from_a_server(window: Window, found: Underfed) -> str | None:
    """Return the storage that is waited for, where that is no local disk: ``/data (nfs4)``."""
    mount = _waiting_mount(window, found)
    if mount is not None:
        return f"{mount.mount_point} ({mount.kind})"
    receives, reads = window.host.network_receive_bytes_per_second, found.job.read_bytes_per_second
    # Ranks on other machines send their gradients.
    alone = (found.job.job.world_size or 1) <= len(found.job.ranks)
    if reads is None or receives is None or not alone:
        return None
    much = receives >= max(SERVED_BYTES_PER_SECOND, 2.0 * reads)
    return "storage on the network" if much and reads < READ_BYTES_PER_SECOND else None


def _mount_evidence(window: Window, found: Underfed) -> list[Evidence]:
    mount = _waiting_mount(window, found)
    if mount is None:
        return []
    queues = mount.queue_milliseconds > mount.round_trip_milliseconds
    queued = f", after {mount.queue_milliseconds:.1f} ms in the queue of this machine"
    return [
        Evidence(f"round trip of {mount.mount_point}", mount.round_trip_milliseconds,
                 "ms", says=f"of each of {mount.requests_per_second:.0f} requests/s"
                 + (f"{queued}: more connections (nconnect) may help" if queues else "")),
        Evidence(f"waiting for {mount.mount_point}", mount.waiting_requests, "requests",
                 WAITING_REQUESTS, f"{mount.kind} delivers "
                 f"{words.amount(mount.read_bytes_per_second)}/s"),
    ]  # fmt: skip


def _io_pressure(window: Window, found: Underfed) -> float | None:
    """Return the share of the time in which some task of the job waited for I/O; where its cgroup
    does not say, of the machine."""
    own = found.job.pressure_io_percent
    return window.host.pressure_io_percent if own is None else own


def _read_again(window: Window, found: Underfed) -> float:
    """0 to 1: how much of what the job reads had been in the page cache shortly before."""
    again = window.host.cache_refault_bytes_per_second or 0.0
    reads = found.job.read_bytes_per_second or 0.0
    return min(1.0, again / reads) if reads >= READ_BYTES_PER_SECOND else 0.0


def _evidence(
    window: Window, found: Underfed, waits: float, again: float, workers: WorkerFacts | None
) -> list[Evidence | None]:
    pressure, reads = _io_pressure(window, found), found.job.read_bytes_per_second
    pressed = (pressure or 0.0) >= IO_PRESSURE_PERCENT
    own = found.job.pressure_io_percent is not None
    tasks, whole = ("the job's group", "it") if own else ("this machine", "the machine as a whole")
    stalled = f"tasks of {tasks} are" if pressed else f"{whole} is hardly"
    much = (reads or 0.0) >= READ_BYTES_PER_SECOND
    over, takes = _from_a_server(window, found), window.host.disk_read_milliseconds
    little = "" if much else ", so little that many small files or high latency must be the cause"
    return [
        Evidence("disk wait", waits, "% of the time", DISK_WAIT_PERCENT,
                 f"the {'workers wait' if workers else 'process waits'} for storage"),
        found.workers_evidence("they have little to compute") if workers else None,
        Evidence("I/O pressure", pressure, "%", IO_PRESSURE_PERCENT,
                 f"{stalled} stalled by I/O", supports=pressed),
        Evidence("read again", 100.0 * again, "% of the reads", 100.0 * AGAIN_SHARE,
                 "it had been in the page cache") if again >= AGAIN_SHARE else None,
        *_mount_evidence(window, found),
        Evidence("received", window.host.network_receive_bytes_per_second, "bytes/s",
                 says="the machine gets it while its disks give the job nothing")
        if over and not _mount_evidence(window, found) else None,
        Evidence("reads", reads, "bytes/s", supports=much,
                 says=f"by the job, from storage{little}")
        if not over else None,
        Evidence("time of a disk's read", takes, "ms", says="on average, of all disks")
        if much and not over else None,
    ]  # fmt: skip
