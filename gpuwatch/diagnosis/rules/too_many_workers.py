"""More loader workers than cores: they take turns and slow the main thread down.

What it checks
    GPUs of the job idle for 10% of the time or more, the job has more processes that could run
    than cores it may use, and its workers wait in the run queue.

Why it matters
    Beyond one worker per core nothing is gained: each batch takes longer, the caches are shared,
    and the main thread, which launches the kernels and writes checkpoints, waits for a core too.

Evidence needed
    The number of workers, the cores the job may use, the workers' run-queue wait. Stronger with
    involuntary switches and the number of runnable processes.

When it is wrong
    Where other jobs take the cores, the workers themselves are not too many: then this does not
    fire, and loader_cpu_bound covers the cores. A CPU quota below the cores is for cpu_quota.
    Workers that mostly wait for a disk may rightly outnumber the cores.

What to do
    Lower num_workers to the number named (the cores one rank may use, less one for its main
    thread, and no more than it needs), then make the transforms cheaper if it does not suffice.
    Where the main thread itself gets its core, fewer workers would only make fewer batches: more
    cores or cheaper transforms. Where each worker has threads of its own that compete (OpenCV,
    OpenMP), one thread each.

Thresholds
    1.1 workers and main threads for each usable core: PyTorch warns as soon as num_workers
    exceeds the cores of the affinity; a tenth is left for processes that mostly sleep.
    run-queue wait 10%: a machine with free cores shows below 2%. Where it is not read: 30
    involuntary switches per second and worker, in a job that uses 85% of its cores (a worker
    alone on a core has one or two; this project's choice).

Sources
    PyTorch, DataLoader.check_worker_number_rationality ("slow or even freeze").
    Linux, /proc/PID/schedstat (time on the run queue).
"""

from gpuwatch.diagnosis.facts.window import JobFacts, WorkerFacts
from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import loaders, words
from gpuwatch.diagnosis.rules.shared.loading import NO_WORKERS, Underfed, underfed, waits_for_cores
from gpuwatch.diagnosis.rules.shared.words import clear_if
from gpuwatch.diagnosis.sentence import number

RULE = Rule(
    title="too many workers",
    gives_back="some",
    uses_workers=True,
    explains={"oscillation", "loader_cpu_bound", "batch_too_small", "straggler", "collective_wait"},
    charts=("worker",),
)
CROWDING = 1.1  # for each core
OWN_SHARE = 0.4
"""Share of the cores it may use: a job that gets less of them than this is crowded by others."""
DISK_WAIT_PERCENT = 50.0
"""Workers that mostly wait for disks do not crowd the cores."""
PUSHED_PER_SECOND = 30.0  # of each worker
FILLED_SHARE = 0.85  # of the cores


def check(window: Window) -> Verdict:
    found = underfed(window, waits_for_cores, by_report=True)
    job = found.job
    clear_if(found.worker_count == 0, "the job has no loader workers")
    workers = words.required(job.workers, *NO_WORKERS)
    cores = words.required(job.job.usable_cores, "the cores the job may use")
    queue = workers.run_queue_wait_percent
    queue = _by_switches(job, workers, cores) if queue is None else queue
    queue = words.required(queue, "the loader workers' run-queue wait")
    used = cores if job.cpu_cores is None else job.cpu_cores
    crowded = f"the job uses only {words.cores_of(used)}: others take them"
    clear_if(used < OWN_SHARE * cores, crowded)
    crowding = (workers.count + len(job.ranks)) / max(1.0, cores)
    room = "there is a core for each loader worker and each main thread"
    clear_if(crowding < CROWDING, room)
    little = f"the loader workers {words.waits_little('for a core', queue)}"
    clear_if(queue < loaders.QUEUED_PERCENT, little)
    disk = (loaders.in_disk_wait(workers) or 0.0) >= DISK_WAIT_PERCENT
    clear_if(disk, "the loader workers mostly wait for the disk")
    spare = loaders.spare_cores(window.host, job) or 0.0
    fill = loaders.wait_by_turns(workers) and spare >= words.SPARE_LEAST_CORES
    clear_if(fill, "the loader workers also wait for something else, and leave cores free")
    throttled = (job.cpu_throttled_percent or 0.0) >= loaders.THROTTLED_PERCENT
    quota = bool(job.job.quota_cores) and throttled
    clear_if(quota, "a CPU quota throttles the job, not the number of workers")
    return _firing(window, found, workers, crowding, queue, cores)


def _by_switches(job: JobFacts, workers: WorkerFacts, cores: float) -> float | None:
    """The wait for a core where the kernel's accounts of it are not read: workers that are pushed
    off their cores all the time, of a job that fills its cores, would have run on. ``None``: not
    known."""
    pushed, cpu, used = workers.involuntary_switches_per_second, workers.cpu_percent, job.cpu_cores
    if pushed is None or cpu is None or used is None:
        return None
    if pushed < PUSHED_PER_SECOND or used < FILLED_SHARE * cores:
        return None
    return max(0.0, 100.0 - cpu - (loaders.in_disk_wait(workers) or 0.0))


ONE_THREAD = (
    "Let each worker compute with one thread: cv2.setNumThreads(0), torch.set_num_threads(1), "
    "OMP_NUM_THREADS=1."
)
MANY_THREADS = 4.0  # of a worker
"""PyTorch gives the pool of a worker one thread; OpenCV and OpenMP take one for each core."""
OTHER_THREADS_SHARE = 0.5
"""Share of a worker's CPU that its other threads use: eight of OpenMP on two cores used 0.85, and
those of a worker that computes with one, 0.01. Pools of threads that a library made and that sleep
use nothing."""


def _threads_each(job: JobFacts) -> float | None:
    """Return the threads of a worker where they compete with one another; else ``None``."""
    members = [one for one in job.job.members if one.role == "loader_worker"]
    threads = words.mean([one.threads for one in members])
    used = words.mean([one.cpu_percent for one in members])
    main = words.mean([one.main_thread_cpu_percent for one in members])
    if threads is None or not used or main is None or threads < MANY_THREADS:
        return None
    return threads if 1.0 - main / used >= OTHER_THREADS_SHARE else None


def _firing(
    window: Window,
    found: Underfed,
    workers: WorkerFacts,
    crowding: float,
    queue: float,
    cores: float,
) -> Firing:
    ranks = len(found.job.ranks)
    share = words.cores_of(cores)
    count = found.worker_count or round(workers.count / max(1, ranks))
    better = loaders.fewer_workers(window.host, found.job, count, found.busy_share)
    missing = ("run-queue wait",) if workers.run_queue_wait_percent is None else ()
    advice = [loaders.cheaper_transforms(f"{share} cannot serve them all")]
    waits = words.mean([rank.run_queue_wait_percent for rank in found.ranks])
    if waits is not None and waits < loaders.QUEUED_PERCENT:
        # The main threads get their cores: fewer workers would only make fewer batches.
        why = "the main thread gets its core, so fewer workers would only make fewer batches"
        advice.insert(0, Advice("Give the job more cores.", why=why))
    elif better is not None:
        why = "more workers than cores take turns and slow the main thread down"
        advice.insert(0, loaders.set_workers("Lower num_workers", count, better, why))
    threads = _threads_each(found.job)
    if threads is not None:
        why = f"each worker has {number(threads)} threads, which push one another off {share}"
        advice.insert(
            0, Advice(ONE_THREAD, brief="Let each worker compute with one thread", why=why)
        )
    how = "not read: judged by how often they are preempted"
    how = how if missing else "runnable, but waiting for a core"
    pushed = workers.involuntary_switches_per_second
    evidence = [
        found.evidence,
        Evidence("processes per core", crowding, None, CROWDING,
                 f"{words.counted(workers.count, 'worker')} and "
                 f"{words.counted(ranks, 'main thread')} share {share}"),
        Evidence("workers' run-queue wait", queue, "% of the time",
                 loaders.QUEUED_PERCENT, how),
        Evidence("involuntary switches", pushed, "1/s", says="how often a worker was preempted"),
    ]  # fmt: skip
    who = words.counted(workers.count, "loader worker")
    who += " and the main thread" if round(workers.count) == 1 else ""
    return Firing(
        summary=f"{found.complaint}: {who} share {share}",
        short=found.briefly(f"{who} share {share}", "too few cores"),
        evidence=evidence,
        severity=found.severity,
        advice=advice,
        strength=words.strength(
            found.clearness,
            words.ramp(crowding, 1.0, 1.5),
            words.ramp(queue, loaders.QUEUED_PERCENT - 5, 30),
            missing=len(missing),
        ),
        gpus=found.keys,
        missing=missing,
        lost_share=found.lost_share,
        lost_while_busy=found.reported_only,
    )
