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

from __future__ import annotations

import math

from gpuwatch.diagnosis.facts.window import JobFacts, Window
from gpuwatch.diagnosis.facts.workers import demand, recommended_workers
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.common import (
    Underfed,
    counted,
    held_up,
    on_the_cpu,
    strength,
    underfed,
)
from gpuwatch.diagnosis.rules.shared.gpus import ramp
from gpuwatch.diagnosis.rules.shared.reported import STARVED_SHARE

THROTTLED_PERCENT = 10.0
"""Of the quota's periods."""

STEPS_THROTTLED_PERCENT = 25.0
"""The same for a job that trains on the CPU."""

QUOTA_SHARE = 0.9
"""Of the cores the job could use without it."""


def check(window: Window) -> Verdict:
    found = underfed(window, by_telling=True)
    if isinstance(found, Clear):
        found = held_up(window) or _slow_steps(window) or found
    if not isinstance(found, Underfed):
        return found
    quota, cores = found.job.job.quota_cores, _cores_without(window, found.job)
    if quota is None:
        if found.job.job.usable_cores is None:
            return Unknown(missing=("the job's CPU quota",))
        return Clear(why="the job has no CPU quota")
    if cores is not None and quota > QUOTA_SHARE * cores:
        return Clear(why="the CPU quota is as large as the cores the job may use")
    return _by_throttling(window, found, quota, cores)


def _by_throttling(window: Window, found: Underfed, quota: float, cores: int | None) -> Verdict:
    throttled = found.job.cpu_throttled_percent
    if throttled is None:
        return Unknown(missing=("how often the quota throttled the job",))
    if throttled < THROTTLED_PERCENT:
        return Clear(why=f"the quota throttled the job in only {throttled:.0f}% of its periods")
    return _firing(window, found, quota, cores, throttled)


def _slow_steps(window: Window) -> Underfed | None:
    """A loop on the CPU that has its data in time and is stopped in its steps."""
    found = on_the_cpu(window)
    throttled = None if found is None else found.job.cpu_throttled_percent
    return found if throttled is not None and throttled >= STEPS_THROTTLED_PERCENT else None


def is_held_back(job: JobFacts) -> bool:
    """Whether a quota, rather than the number of cores, is what the job runs into."""
    throttled = job.cpu_throttled_percent
    return (
        job.job.quota_cores is not None and throttled is not None and throttled >= THROTTLED_PERCENT
    )


def _cores_without(window: Window, job: JobFacts) -> int | None:
    known = [
        cores
        for cores in (job.job.affinity_cores, job.job.slurm_cores, window.host.core_count)
        if cores is not None
    ]
    return min(known) if known else None


def _firing(
    window: Window, found: Underfed, quota: float, cores: int | None, throttled: float
) -> Firing:
    visible = "" if cores is None else f" of {counted(cores, 'visible core')}"
    evidence = _evidence(found, quota, cores, throttled)
    clearness = [ramp(throttled, THROTTLED_PERCENT / 2, 40.0), 0.5 + 0.5 * _near(found)]
    complaint, lost = found.complaint, found.lost_share
    if _is_fed(found):
        # What is lost is in the steps: how much, throttled periods do not tell.
        who = found.who if found.gpus else "the training loop"
        complaint, lost = f"The steps of {who} are slow", None
        evidence = evidence[1:]
    else:
        clearness.append(found.clearness)
    return Firing(
        summary=f"{complaint}: a CPU quota of "
        f"{_number(quota)} cores{visible} held the job back in {throttled:.0f}% of its periods",
        evidence=tuple(evidence),
        severity=found.severity,
        advice=_advice(window, found, quota, cores),
        strength=strength(*clearness),
        gpus=found.keys,
        lost_share=lost,
        lost_while_busy=found.told_only and lost is not None,
        explains=frozenset(
            {
                "oscillation",
                "loader_cpu_bound",
                "too_many_workers",
                "loader_in_main_process",
                "python_bound",
                "batch_too_small",
                "straggler",
                "collective_wait",
            }
        ),
    )


def _is_fed(found: Underfed) -> bool:
    """Whether it is a loop on the CPU that has its data in time."""
    return not found.gpus and found.idle_share < STARVED_SHARE


def _near(found: Underfed) -> float:
    """0 to 1: how much of its quota the job uses."""
    quota, used = found.job.job.quota_cores, found.job.cpu_cores
    return 0.0 if quota is None or used is None else ramp(used / max(0.1, quota), 0.5, 0.9)


def _evidence(found: Underfed, quota: float, cores: int | None, throttled: float) -> list[Evidence]:
    evidence = [
        found.evidence,
        Evidence(
            name="CPU quota",
            value=round(quota, 2),
            unit="cores",
            threshold=None if cores is None else float(cores),
            says="the limit of the job's cgroup"
            + ("" if cores is None else f" of the {cores} cores it sees"),
        ),
        Evidence(
            name="throttled periods",
            value=round(throttled, 1),
            unit="%",
            threshold=THROTTLED_PERCENT,
            says="the kernel stopped the job for the rest of the period",
        ),
    ]
    used = found.job.cpu_cores
    if used is not None:
        near = used >= 0.7 * quota
        says = "it uses its whole quota" if near else "on average it stays well below its quota"
        evidence.append(
            Evidence(
                name="CPU used",
                value=round(used, 2),
                unit="cores",
                threshold=round(quota, 2),
                says=says,
                supports=near,
            )
        )
    return evidence


def _advice(window: Window, found: Underfed, quota: float, cores: int | None) -> tuple[Advice, ...]:
    ranks = max(1, len(found.job.job.ranks))
    needed = demand(window, found.worker_count, found.busy_share)
    wanted = None if needed is None else ranks * (needed + 1)
    if cores is not None:
        wanted = cores if wanted is None else min(cores, wanted)
    # What it does with the quota says little of its need where nearly all was refused.
    if wanted is not None:
        wanted = max(wanted, math.ceil(1.5 * quota))
    raise_it = Advice(
        action="Raise the CPU quota (docker --cpus, Kubernetes limits.cpu)"
        + ("." if wanted is None else f" from {_number(quota)} to {wanted} cores."),
        setting="cpu quota",
        present=_number(quota),
        wanted=None if wanted is None else str(wanted),
        why="the job is throttled though the machine has free cores",
    )
    count = found.worker_count
    better = recommended_workers(window, count, found.busy_share)
    if count is None or better is None or better >= count:
        return (raise_it,)
    fewer = Advice(
        action=f"Until then lower num_workers from {count} to {better}.",
        setting="num_workers",
        present=str(count),
        wanted=str(better),
        why=f"a quota of {_number(quota)} cores serves no more, and all are throttled together",
    )
    return (raise_it, fewer)


def _number(cores: float) -> str:
    return f"{cores:g}" if cores < 10 else f"{cores:.0f}"
