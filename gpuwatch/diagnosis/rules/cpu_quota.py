"""A CPU quota (cgroup, container limit) throttles the job.

What it checks
    GPUs of the job idle for 10% of the time or more, the job has a quota below the cores it sees,
    and the kernel throttled it in many of the quota's periods. A job that trains on the CPU (and
    reports its loop) needs no idle GPU: there the quota delays the steps themselves.

Why it matters
    The program sees all cores of the machine (os.cpu_count, nproc in many images) and starts
    workers and threads for them, while the quota lets it run only a few at a time: all of them,
    the main thread included, are stopped for the rest of each 100 ms.

Evidence needed
    The quota and the share of throttled periods (cpu.max and cpu.stat of the job's cgroups).

When it is wrong
    Throttling counts the whole cgroup: another process in the same container can use up the
    quota. Short bursts are throttled even where the mean is far below the quota.

What to do
    Raise the quota (docker --cpus, Kubernetes limits.cpu) to the cores named, or remove it; until
    then size the workers to it with the number named, and set OMP_NUM_THREADS=1.

Thresholds
    10% of the periods throttled: Kubernetes' own alert (CPUThrottlingHigh) fires at 25%, but a
    main thread that is stopped in every tenth period already delays its GPU. The GPUs must
    idle as well; on the CPU, where nothing else shows a loss, it is 25%.
    quota at most 90% of the cores: otherwise it is hardly a limit.

Sources
    Linux, Documentation/admin-guide/cgroup-v2.rst (cpu.max; nr_periods, nr_throttled) and
    Documentation/scheduler/sched-bwc.rst.
    kubernetes-mixin, alert CPUThrottlingHigh (25%).
"""

import math

from gpuwatch.diagnosis.facts.window import JobFacts
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import loaders, loading, words
from gpuwatch.diagnosis.sentence import number, of_several

RULE = Rule(
    title="CPU quota too small",
    gives_back="some",
    explains={
        "oscillation", "loader_cpu_bound", "too_many_workers", "loader_in_main_process",
        "python_bound", "batch_too_small", "straggler", "collective_wait",
    },
    charts=("main", "worker"),
)  # fmt: skip
STEPS_THROTTLED_PERCENT = 25.0  # of its periods
QUOTA_SHARE = 0.9  # of the cores


def check(window: Window) -> Verdict:
    found = loading.underfed(window, loading.waits_for_cores, _slow_steps, by_report=True)
    job, cores, quota = found.job, _cores_without(window, found.job), found.job.job.quota_cores
    if quota is None:
        words.required(job.job.usable_cores, "the job's CPU quota")
        return Clear("the job has no CPU quota")
    large = cores is not None and quota > QUOTA_SHARE * cores
    words.clear_if(large, "the CPU quota is as large as the cores the job may use")
    throttled = words.required(job.cpu_throttled_percent, "how often the quota throttled the job")
    seldom = f"the quota throttled the job in {words.only(throttled)} of its periods"
    words.clear_if(throttled < loaders.THROTTLED_PERCENT, seldom)
    return _firing(window, found, quota, cores, throttled)


def _slow_steps(window: Window) -> loading.Underfed | None:
    """A loop on the CPU that has its data in time and is stopped in its steps."""
    found = loading.on_the_cpu(window)
    throttled = 0.0 if found is None else found.job.cpu_throttled_percent or 0.0
    return found if throttled >= STEPS_THROTTLED_PERCENT else None


def _cores_without(window: Window, job: JobFacts) -> int | None:
    cores = (job.job.affinity_cores, job.job.slurm_cores, window.host.core_count)
    return min([one for one in cores if one is not None], default=None)


def _firing(
    window: Window, found: loading.Underfed, quota: float, cores: int | None, throttled: float
) -> Firing:
    used, held_to = found.job.cpu_cores, words.cores_of(quota)
    visible = "" if cores is None else f" ({number(cores)} are visible)"
    near = 0.0 if used is None else words.ramp(used / max(0.1, quota), 0.5, 0.9)
    clearness = [words.ramp(throttled, loaders.THROTTLED_PERCENT / 2, 40.0), 0.5 + 0.5 * near]
    full = used is not None and used >= 0.7 * quota
    evidence: list[Evidence | None] = [
        Evidence("CPU quota", quota, "cores", None if cores is None else float(cores),
                 "the limit of the job's cgroup, of the cores that it sees"),
        Evidence("throttled periods", throttled, "%", loaders.THROTTLED_PERCENT,
                 "the kernel stopped the job for the rest of the period"),
        Evidence("CPU used", used, "cores", quota, "it uses its whole quota" if full else
                 "on average it stays well below its quota", supports=full),
    ]  # fmt: skip
    briefly = f"a CPU quota of {held_to}, hit in {number(throttled)}% of periods"
    if not found.gpus and found.idle_share < loading.STARVED_SHARE:
        # A loop on the CPU that has its data in time: what is lost is in the steps, and how much,
        # throttled periods do not say.
        complaint, lost = "The steps of the training loop are slow", None
        slow = f"PID {found.job.job.own_pid} steps slowly"
        short = (f"{slow}: {briefly}", f"{slow}: CPU quota")
    else:
        complaint, lost = found.complaint, found.lost_share
        short = found.briefly(briefly, "CPU quota")
        evidence.insert(0, found.evidence)
        clearness.append(found.clearness)
    return Firing(
        summary=f"{complaint}: a CPU quota of {held_to}{visible} throttled "
        f"{of_several('the job', 'the jobs')} in {number(throttled)}% of its periods",
        short=short,
        evidence=evidence,
        severity=found.severity,
        advice=_advice(window, found, quota, held_to, cores),
        strength=words.strength(*clearness),
        gpus=found.keys,
        lost_share=lost,
        lost_while_busy=found.reported_only and lost is not None,
    )


def _advice(
    window: Window, found: loading.Underfed, quota: float, present: str, cores: int | None
) -> list[Advice]:
    count, ranks = found.worker_count, max(1, len(found.job.job.ranks))
    needed = loaders.demand(found.job, count, found.busy_share)
    if needed is not None:
        # What it does with the quota says little of its need where nearly all was refused.
        needed = max(ranks * (needed + 1), math.ceil(1.5 * quota))
    wanted = words.lowest((needed, cores))
    to = "." if wanted is None else f" from {present} to {number(wanted)}."
    larger = Advice(
        f"Raise the CPU quota (docker --cpus, Kubernetes limits.cpu){to}",
        setting="cpu quota",
        present=present.partition(" ")[0],
        wanted=None if wanted is None else number(wanted),
        why="once the quota is used up, the job stands still for the rest of each period",
    )
    better = loaders.recommended_workers(window.host, found.job, count, found.busy_share)
    if count is None or better is None or better >= count:
        return [larger]
    why = f"a quota of {present} cannot serve more, and all are throttled together"
    return [larger, loaders.set_workers("Until then lower num_workers", count, better, why)]
