"""The job, or one of its ranks, is stopped: it runs nothing until somebody continues it.

What it checks
    Whether the training process of a rank is in the state "stopped" (T: by a signal) or "traced"
    (t: held by a debugger), and stays so. While all ranks are stopped, no other rule is applied to
    the job, and its own reports count again only fifteen seconds after it continues.

Why it matters
    Its GPU idles and its memory stays taken, which looks like a job that waits for data: so does
    its own report, if it was stopped while it took a batch. One stopped rank holds up all the
    others.

Evidence needed
    The state of the job's processes.

When it is wrong
    Where it was stopped on purpose, this is no fault: a batch system that suspends jobs, or a
    debugger at a breakpoint.

What to do
    Continue it: fg in the shell in which Ctrl-Z was pressed, kill -CONT with the PIDs, or scontrol
    resume. If it keeps being stopped: find out by what (a batch system, or a background job
    that reads from the terminal: SIGTTIN).

Thresholds
    None, except that it must be so in every sample for six seconds, as with every rule: a debugger
    or a stack sampler that attaches stops a process for moments.

Sources
    proc_pid_stat(5), field state. signal(7): SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU.
"""

from __future__ import annotations

from gpuwatch.core.model import GpuKey
from gpuwatch.diagnosis.facts.window import STOPPED_STATES, RankFacts, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.common import NO_JOB

TRACED = "t"
NAMED_MOST = 8
"""As many fit on a line; the rest are counted."""

SYMPTOMS = frozenset(
    {
        "batch_too_small",
        "busy_without_work",
        "checkpoint_pauses",
        "collective_wait",
        "cpu_quota",
        "idle_holding_memory",
        "loader_cpu_bound",
        "loader_in_main_process",
        "loader_io_bound",
        "memory_not_pinned",
        "oscillation",
        "python_bound",
        "straggler",
        "sync_every_step",
        "too_many_workers",
        "validation_pauses",
    }
)
"""All that a GPU which waits can look like, and what was found before it was stopped."""


def check(window: Window) -> Verdict:
    job = window.job
    if job is None:
        return Unknown(missing=NO_JOB)
    known = [rank for rank in job.ranks if rank.state is not None]
    if not known:
        return Unknown(missing=("the state of the job's processes",))
    stopped = [rank for rank in known if rank.state in STOPPED_STATES]
    if not stopped:
        return Clear("its processes run", at_once=True)
    return _firing(stopped, len(job.ranks))


def _firing(stopped: list[RankFacts], count: int) -> Firing:
    traced = all(rank.state == TRACED for rank in stopped)
    pids = " ".join([str(rank.pid) for rank in stopped[:NAMED_MOST]])
    more = len(stopped) - NAMED_MOST
    action = (
        "Let the debugger that holds it go on." if traced else f"Continue it: kill -CONT {pids}"
    )
    if not traced:
        action += f" and {more} more." if more > 0 else " (or fg in the shell that started it)."
    gpus: dict[GpuKey, None] = {uuid: None for rank in stopped for uuid in rank.gpu_uuids}
    return Firing(
        summary=_summary(stopped, count, "held by a debugger" if traced else "stopped"),
        evidence=tuple(_evidence(stopped)),
        advice=(
            Advice(
                action=action,
                why="until then it computes nothing and keeps its GPU memory",
            ),
        ),
        strength=1.0,
        gpus=tuple(gpus) if len(stopped) < count else (),
        explains=SYMPTOMS,
    )


def _summary(stopped: list[RankFacts], count: int, how: str) -> str:
    if len(stopped) == count:
        who = f" (PID {stopped[0].pid})" if count == 1 else f": all its {count} ranks are"
        return f"The job{who} is {how}" if count == 1 else f"The job is {how}{who}"
    names = [f"rank {rank.rank}" for rank in stopped if rank.rank is not None]
    if len(names) != len(stopped) or len(names) > NAMED_MOST:
        names = [f"{len(stopped)} of the job's {count} ranks"]
    listed = " and ".join([", ".join(names[:-1]), names[-1]] if len(names) > 1 else names)
    verb = "is" if len(stopped) == 1 else "are"
    waits = "wait for it" if len(stopped) == 1 else "wait for them"
    return f"{listed[:1].upper()}{listed[1:]} {verb} {how}, and the others {waits}"


def _evidence(stopped: list[RankFacts]) -> list[Evidence]:
    states = sorted({rank.state for rank in stopped if rank.state is not None})
    return [
        Evidence(
            name="state of the training process",
            value=" ".join(states) or None,
            says="t: held by a debugger" if states == [TRACED] else "T: stopped by a signal",
        ),
        Evidence(
            name="stopped for",
            value=round(min(rank.stopped_seconds or 0.0 for rank in stopped), 1),
            unit="s",
            says="it does not run at all",
        ),
    ]
