"""The job, or one of its ranks, is stopped: nothing runs until somebody continues it.

What it checks
    Whether the training process of a rank is in the state "stopped" (T: by a signal) or "traced"
    (t: held by a debugger), and stays so. While all ranks are stopped, no other rule is applied to
    the job, and its own reports count again only fifteen seconds after it continues.

Why it matters
    Its GPU idles and its memory stays taken, which looks like a job that waits for data (and so
    does its own report, if it was stopped while fetching a batch). One stopped rank holds up all.

Evidence needed
    The state of the job's processes.

When it is wrong
    Where a batch system suspended it, or a debugger is at a breakpoint, this is no fault.

What to do
    Continue it: fg where Ctrl-Z was pressed, kill -CONT with the PIDs, or scontrol resume. If it
    stops again, find out why (a batch system, or reading from the terminal: SIGTTIN).

Thresholds
    None, except that every sample must show it for six seconds, as with every rule: a debugger or a
    stack sampler that attaches stops a process for moments.

Sources
    proc_pid_stat(5), field state. signal(7): SIGSTOP, SIGTSTP, SIGTTIN, SIGTTOU.
"""

from gpuwatch.core import units
from gpuwatch.diagnosis.facts.window import STOPPED_STATES, RankFacts
from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared.cards import WAITING
from gpuwatch.diagnosis.rules.shared.loading import job_of
from gpuwatch.diagnosis.rules.shared.words import clear_if, unknown_if
from gpuwatch.diagnosis.sentence import number

RULE = Rule(
    title="job is stopped",
    # All that a GPU which waits can look like, and what was found before it was stopped.
    explains=WAITING
    | {"collective_wait", "cpu_quota", "memory_not_pinned", "sync_every_step", "too_many_workers"},
    has_look_alikes=False,
)
TRACED = "t"
NAMED_MOST = 8
"""As many fit on a line; the rest are counted."""


def check(window: Window) -> Verdict:
    job = job_of(window)
    known = [rank for rank in job.ranks if rank.state is not None]
    unknown_if(not known, "the state of the job's processes")
    stopped = [rank for rank in known if rank.state in STOPPED_STATES]
    clear_if(not stopped, "its processes run", at_once=True)
    traced = all(rank.state == TRACED for rank in stopped)
    how = "held by a debugger" if traced else "stopped"
    states = " ".join(sorted({rank.state for rank in stopped if rank.state is not None}))
    seconds = min([rank.stopped_seconds or 0.0 for rank in stopped])
    gpus = dict.fromkeys([uuid for rank in stopped for uuid in rank.gpu_uuids])
    return Firing(
        summary=_summary(stopped, len(job.ranks), how),
        short=(_short(stopped, len(job.ranks), how),),
        evidence=(
            Evidence("state of the training process", states,
                     says="t: held by a debugger" if traced else "T: stopped by a signal"),
            Evidence("stopped for", seconds, "s", says="it does not run at all"),
        ),
        advice=(
            Advice(_action(stopped, traced),
                   why="until then it computes nothing and keeps its GPU memory"),
        ),
        gpus=tuple(gpus) if len(stopped) < len(job.ranks) else (),
    )  # fmt: skip


def _short(stopped: list[RankFacts], count: int, how: str) -> str:
    """Return the short form of the summary."""
    if count == 1:
        return f"PID {stopped[0].pid} is {how}"
    verb = "is" if len(stopped) == 1 else "are"
    return f"{number(len(stopped))} of {number(count)} ranks {verb} {how}"


def _action(stopped: list[RankFacts], traced: bool) -> str:
    if traced:
        return "Let the debugger that holds it go on."
    pids = " ".join([str(rank.pid) for rank in stopped[:NAMED_MOST]])
    more = len(stopped) - NAMED_MOST
    rest = f" and {more} more." if more > 0 else " (or fg in the shell that started it)."
    return f"Continue it: kill -CONT {pids}{rest}"


def _summary(stopped: list[RankFacts], count: int, how: str) -> str:
    if len(stopped) == count == 1:
        return f"The job (PID {stopped[0].pid}) is {how}"
    if len(stopped) == count:
        return f"All {number(count)} ranks of the job are {how}"
    names = [f"rank {rank.rank}" for rank in stopped if rank.rank is not None]
    if len(names) != len(stopped) or len(names) > NAMED_MOST:
        names = [f"{number(len(stopped))} of the job's {number(count)} ranks"]
    verb, waits = ("is", "it") if len(stopped) == 1 else ("are", "them")
    who = units.listed(names)
    return f"{who[:1].upper()}{who[1:]} {verb} {how}, and the others wait for {waits}"
