"""Loader workers outlived the process that started them.

What it checks
    Worker processes of the job whose training process has ended.

Why it matters
    They hold host memory, /dev/shm, and, where they were forked after CUDA was in use, the GPU
    memory of the dead job: the next run finds too little of it.

Evidence needed
    The processes of the job and their parents.

When it is wrong
    When a job ends, its workers take a moment to end, too: only those that are still there some
    seconds later count. Workers that are given another parent on purpose are rare.

What to do
    Check that they do nothing (a program can leave processes behind on purpose), then kill PID; if
    they stay, kill -9 PID. Start jobs so that the whole process group ends with them (exec in a
    container's entrypoint, torchrun, srun), and remove what is left in /dev/shm (torch_*).

Thresholds
    One such process.

Sources
    PyTorch, torch/utils/data/_utils/worker.py: a worker checks every 5 s (MP_STATUS_CHECK_INTERVAL)
    whether its parent is alive, and only while it waits for work.
"""

from gpuwatch.diagnosis.facts.window import JobFacts
from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared.loading import NO_JOB, job_of
from gpuwatch.diagnosis.rules.shared.words import amount, clear_if, counted, unknown_if

_GROUP = Advice(
    "Start jobs so that their whole process group ends with them.",
    brief="Start jobs so that their process group ends",
    why="otherwise it will happen again",
)
RULE = Rule(
    title="orphaned workers",
    uses_workers=True,
    cure=(_GROUP,),
    explains={"idle_holding_memory"},
    # Memory that a job's orphans hold is reported with them, not again of the GPU.
    covers={"idle_holding_memory"},
    after_end=True,
    has_look_alikes=False,
)
PIDS_NAMED = 12
"""As many fit on a line or two; the rest are counted."""


def check(window: Window) -> Verdict:
    job = job_of(window)
    left = [one for one in job.job.members if one.orphaned and one.role == "loader_worker"]
    count = len(left) or (0 if job.workers is None else job.workers.orphaned)
    unseen = not job.job.members and job.workers is None
    unknown_if(count == 0 and unseen, *NO_JOB)
    clear_if(count == 0, "every process of the job still has its parent")
    on_gpu, pids = _gpu_memory(window, job), " ".join([str(one.pid) for one in left[:PIDS_NAMED]])
    holding = f", holding {amount(on_gpu)} of GPU memory" if on_gpu else ""
    more = f" and {len(left) - PIDS_NAMED} more" if len(left) > PIDS_NAMED else ""
    outlived = f"{counted(count, 'loader worker')} {'has' if count == 1 else 'have'} outlived"
    end = "If they are doing nothing (py-spy dump --pid PID), end them with "
    end += f"kill {pids}{more}." if pids else "kill and their PIDs."
    resident = sum([one.memory_resident_bytes or 0 for one in left])
    return Firing(
        summary=f"{outlived} the training process{holding}",
        short=(
            f"{outlived} the training{holding}",
            f"{counted(count, 'worker')} outlived the training",
        ),
        evidence=[
            Evidence("workers without a parent", float(count), None, 1.0,
                     "the process that started them has ended"),
            Evidence("host memory they hold", resident or None, "bytes",
                     says="shared pages counted for each"),
            Evidence("GPU memory they hold", on_gpu, "bytes", says="the next run cannot have it"),
        ],
        advice=(
            Advice(end, brief="End them with kill if they are doing nothing",
                   why="a program may leave processes running on purpose"),
            *RULE.cure,
        ),
    )  # fmt: skip


def _gpu_memory(window: Window, job: JobFacts) -> float | None:
    """Return the GPU memory that they hold. With a rank alive it is that of the running job; of one
    that has ended nobody adds it up any more."""
    alone = not job.job.having("rank") and not job.has_ended
    held = sum([gpu.own_memory_bytes or 0.0 for gpu in window.gpus])
    return held if alone and held else None
