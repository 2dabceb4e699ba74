"""Loader workers outlived the process that started them.

What it checks
    Worker processes of the job whose training process has ended.

Why it matters
    They hold host memory, /dev/shm, and, where they were forked after CUDA was in use, the GPU
    memory of the dead job: the next run finds too little of it.

Evidence needed
    The processes of the job and their parents.

When it is wrong
    While a job ends, its workers take a moment to end, too: only those still there some seconds
    later are left over. Workers that a loader re-parents on purpose are rare.

What to do
    End the processes named (kill PID; if they stay, kill -9 PID). Start jobs so that the whole
    process group ends with them (exec in a container's entrypoint, torchrun, srun). Remove
    what they left in /dev/shm (torch_*).

Thresholds
    One such process.

Sources
    PyTorch, torch/utils/data/_utils/worker.py: a worker checks every 5 s (MP_STATUS_CHECK_INTERVAL)
    whether its parent is alive, and only while it waits for work.
"""

from __future__ import annotations

from gpuwatch.core.model import JobMember
from gpuwatch.diagnosis.facts.window import JobFacts, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.common import NO_JOB, amount, counted

PIDS_NAMED = 12
"""As many fit on a line or two; the rest are counted."""


def check(window: Window) -> Verdict:
    job = window.job
    if job is None:
        return Unknown(missing=NO_JOB)
    left = [
        member for member in job.job.members if member.orphaned and member.role == "loader_worker"
    ]
    count = len(left) or (0 if job.workers is None else job.workers.orphaned)
    if count == 0:
        if not job.job.members and job.workers is None:
            return Unknown(missing=NO_JOB)
        return Clear(why="every process of the job still has its parent")
    return _firing(window, job, left, count)


def _firing(window: Window, job: JobFacts, left: list[JobMember], count: int) -> Firing:
    held = [gpu.own_memory_bytes for gpu in window.gpus if gpu.own_memory_bytes is not None]
    # With a rank alive the GPU memory is that of the running job; of one that has ended nobody
    # adds it up any more.
    alone = not job.job.having("rank") and job.job.ended_at_unix_seconds is None
    gpu_memory = sum(held) if held and alone else None
    holding = f", holding {amount(gpu_memory)} of GPU memory" if gpu_memory else ""
    guessed = bool(left) and all(member.role_guessed for member in left)
    verb = "has" if count == 1 else "have"
    return Firing(
        summary=f"{counted(count, 'loader worker')} {verb} outlived the training process{holding}",
        evidence=tuple(_evidence(left, count, gpu_memory)),
        advice=_advice(left),
        strength=0.6 if guessed else 1.0,
        explains=frozenset({"idle_holding_memory"}),
    )


def _evidence(left: list[JobMember], count: int, gpu_memory: float | None) -> list[Evidence]:
    evidence = [
        Evidence(
            name="workers without a parent",
            value=float(count),
            threshold=1.0,
            says="the process that started them has ended" + _pids(left),
        )
    ]
    resident = [m.memory_resident_bytes for m in left if m.memory_resident_bytes is not None]
    if resident:
        evidence.append(
            Evidence(
                name="host memory they hold",
                value=float(sum(resident)),
                unit="bytes",
                says="shared pages counted for each",
            )
        )
    if gpu_memory:
        evidence.append(
            Evidence(
                name="GPU memory they hold",
                value=gpu_memory,
                unit="bytes",
                says="the next run cannot have it",
            )
        )
    return evidence


def _pids(left: list[JobMember]) -> str:
    numbers = _numbers(left)
    return f": PID {numbers}" if numbers else ""


def _numbers(left: list[JobMember]) -> str:
    return " ".join([str(member.pid) for member in left[:PIDS_NAMED]])


def _advice(left: list[JobMember]) -> tuple[Advice, ...]:
    numbers = _numbers(left)
    command = f" kill {numbers}" if numbers else " kill, with their PIDs"
    more = f" and {len(left) - PIDS_NAMED} more" if len(left) > PIDS_NAMED else ""
    return (
        Advice(
            action=f"End them:{command}{more}; those that stay with kill -9.",
            why="nothing uses their batches any more",
        ),
        Advice(
            action="Start jobs so that their whole process group ends with them.",
            why="otherwise it will happen again",
        ),
    )
