"""Attaching to a PID: finds the process to watch, or one sentence that says why there is none."""

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.text import SentenceError, clean
from gpuwatch.jobs.identity.process_facts import (
    ProcessFacts,
    all_pids,
    children_of,
    read_all,
    read_environment,
    read_facts,
    read_link,
)
from gpuwatch.jobs.identity.programs import boundary_phrase
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.cgroup import parse_membership
from gpuwatch.sources.linux.processes import (
    INITIAL_PID_NAMESPACE,
    clean_name,
    process_exists,
    read_command,
)

NAMED_AT_MOST = 3
"""Processes that one sentence names."""
LABEL_LENGTH = 60
"""Length of a command line within a sentence."""


class AttachError(SentenceError):
    """Raised where there is nothing to watch at a PID."""


class Attachment(NamedTuple):
    """The process to watch. With its start time it is known from a later one of the same PID."""

    pid: int
    started_at_unix_seconds: float
    notes: tuple[str, ...] = ()
    """Sentences: what is different from what was asked. (What cannot be read the tracker says.)"""


class Candidate(NamedTuple):
    """A process that may be the job somebody means."""

    pid: int
    label: str
    """Its command line, shortened and made safe."""


def parse_pid(text: str) -> int:
    """Parse a PID as a person types it. Raises ``AttachError``."""
    digits = text.strip()
    if not (digits.isascii() and digits.removeprefix("-").isdigit()):
        shown = clean(digits, 40)
        raise AttachError(f'"{shown}" is not a PID: give the number of a process, as ps shows it.')
    pid = int(digits[:20])
    _check_number(pid)
    return pid


UsesGpu = Callable[[int], bool]


def resolve(
    pid: int, proc: Path = procfs.PROC, *, uses_gpu: UsesGpu = lambda _: False
) -> Attachment:
    """Find the process to watch for ``pid``. Raises ``AttachError`` where there is none. Any
    process of a job will do: finding the rest of it is the tracker's part. ``uses_gpu`` is asked of
    a process that its program speaks against: one on a GPU is watched whatever it is."""
    _check_number(pid)
    if not sys.platform.startswith("linux"):
        raise AttachError("A single job can be watched on Linux only.")
    return _resolve(pid, (), proc, uses_gpu)


def slurm_process(job: str, proc: Path = procfs.PROC) -> int | None:
    """Find the process to watch for a Slurm job, by its cgroup, or by its environment where no
    cgroup says it; ``None``: it has none here."""
    for pid in sorted(all_pids(proc)) if sys.platform.startswith("linux") else ():
        groups = os.fsdecode(procfs.read_if_possible(f"{proc}/{pid}/cgroup"))
        found = parse_membership(groups).slurm_job
        # Slurm keeps a process of its own in a step that nobody asked for.
        if (found or _slurm_job_started_here(pid, proc)) == job and "step_extern" not in groups:
            with suppress(AttachError):
                return resolve(pid, proc).pid
    return None


def _slurm_job_started_here(pid: int, proc: Path) -> str | None:
    """Return the Slurm job that the environment of a process names, if it is one of its tasks: the
    shell of ``salloc`` on a login node, prolog and epilog name it as well."""
    environment = read_environment(pid, proc) or {}
    return environment.get("SLURM_JOB_ID") if "SLURM_PROCID" in environment else None


def _check_number(pid: int) -> None:
    if pid <= 0:
        raise AttachError(
            f"{pid} is not the PID of a process: give a number above zero, as ps shows it."
        )


def _resolve(pid: int, notes: tuple[str, ...], proc: Path, uses_gpu: UsesGpu) -> Attachment:
    try:
        stat = procfs.parse_process_stat(procfs.read_once(f"{proc}/{pid}/stat", 1024))
        status = procfs.read_once(f"{proc}/{pid}/status")
    except (OSError, ValueError) as error:
        raise AttachError(_why_unreadable(pid, error, proc)) from None
    if stat.is_kernel_thread:
        raise AttachError(
            f"PID {pid} ({clean_name(stat.name)}) is a kernel thread and runs no program: give "
            "the PID of the training process."
        )
    process = int(found[1]) if (found := re.search(rb"^Tgid:\s*(\d+)", status, re.M)) else pid
    if process != pid:
        note = (
            f"{pid} is a thread ({clean_name(stat.name)}) of the process with PID {process}, which "
            "is watched as a whole."
        )
        return _resolve(process, (*notes, note), proc, uses_gpu)
    if stat.state in "ZX" and stat.threads <= 1:
        raise AttachError(
            f"PID {pid} ({clean_name(stat.name)}) has ended: it is a zombie, of which only the "
            "exit code is left. There is nothing left to watch."
        )
    if (instead := _program_instead(pid, notes, proc, uses_gpu)) is not None:
        return instead
    if stat.state in "Tt":
        stopped = "is stopped: it runs nothing until it is continued (fg, kill -CONT)."
        notes = (*notes, f"PID {pid} {stopped}")
    elif stat.state in "ZX":
        still = "has ended; its other threads still run."
        notes = (*notes, f"The main thread of PID {pid} {still}")
    return Attachment(pid, procfs.start_unix_seconds(stat, proc), notes)


def _program_instead(
    pid: int, notes: tuple[str, ...], proc: Path, uses_gpu: UsesGpu
) -> Attachment | None:
    """Find the process to watch instead of a program that only started the job; ``None``: itself.
    Raises ``AttachError`` where that is not clear, and names what runs below it."""
    process = read_facts(pid, proc)
    if process is None:
        raise AttachError(f"PID {pid} has just ended.")
    ours = pid == os.getpid() and procfs.is_our_view(proc)
    # In a container the first process can be the training itself.
    first = pid == 1 and not _is_nested(proc)
    what = "gpuwatch itself" if ours else what_instead(process)
    waits = process.program.kind == "wrapper"
    if what is None and not first and not waits:
        return None
    if not ours and uses_gpu(pid):
        return None
    below = jobs_below(pid, proc)
    if (waits or _runs_script(process)) and len(below) == 1 and not first:
        note = (
            f"PID {pid} is {process.program.name}, which only waits for what it started: PID "
            f"{below[0].pid} ({below[0].label}) is watched instead."
        )
        return _resolve(below[0].pid, (*notes, note), proc, uses_gpu)
    said = "only waits for what it started" if waits else f"is {what}, not a job"
    if pid == 1:
        said = "starts everything else here and is not a job"
    raise AttachError(f"PID {pid} ({_label(process, proc)}) {said}{_jobs_named(below)}")


def what_instead(process: ProcessFacts) -> str | None:
    """Return the kind of a process that is no job (a shell, a terminal, a service), as the rest of
    "it is ..."; ``None`` for a job, and for a wrapper."""
    program = process.program
    if program.kind == "boundary":
        # Titles such as "tmux: server", "sshd: ada@pts/3".
        return boundary_phrase(program.name, process.name.partition(":")[0])
    return {"shell": "a shell", "gpuwatch": "gpuwatch itself"}.get(program.kind)


def _runs_script(process: ProcessFacts) -> bool:
    """True if a shell was started for a script or a command line, and not for a person."""
    return (
        process.program.kind == "shell"
        and len(process.arguments) > 1
        and not all(argument.startswith("-") for argument in process.arguments[1:])
    )


def _label(process: ProcessFacts, proc: Path) -> str:
    """Return the command line for a sentence, or the name where there is none."""
    command = read_command(process.pid, process.name.encode(), proc)
    return clean(command, LABEL_LENGTH) if command else process.name


def jobs_below(pid: int, proc: Path = procfs.PROC) -> list[Candidate]:
    """Find the topmost processes below ``pid`` that start no jobs themselves.

    Python programs and launchers if there are any, else all, by CPU time used. This
    gpuwatch is never among them.
    """
    seen = read_all(proc)
    children = children_of(seen)
    found: list[tuple[bool, Candidate]] = []
    waiting = list(children.get(pid, ()))
    while waiting:
        at = waiting.pop()
        process = None if at == os.getpid() else read_facts(at, proc)
        if process is None or seen[at].state in "ZX":
            continue
        if what_instead(process) is not None or process.program.kind == "wrapper":
            waiting += children.get(at, ())
            continue
        likely = process.program.kind in ("python", "launcher")
        found.append((likely, Candidate(at, _label(process, proc))))
    best = any(likely for likely, _ in found)
    return sorted(
        [candidate for likely, candidate in found if likely == best],
        key=lambda one: (-seen[one.pid].cpu_ticks, one.pid),
    )


def _jobs_named(below: list[Candidate]) -> str:
    if not below:
        return (
            ", and no job runs below it now: give the PID of the training process (gpuwatch "
            "without a PID shows what uses the GPUs)."
        )
    first = below[0]
    if len(below) == 1:
        return f". The job below it is PID {first.pid} ({first.label}): use --pid {first.pid}."
    named = [f"PID {job.pid} ({job.label})" for job in below[:NAMED_AT_MOST]]
    more = f" and {len(below) - NAMED_AT_MOST} more" if len(below) > NAMED_AT_MOST else ""
    return f". Give the PID of one of those below it: {', '.join(named)}{more}."


def _why_unreadable(pid: int, error: Exception, proc: Path) -> str:
    hidden = isinstance(error, PermissionError) or (
        procfs.is_our_view(proc) and process_exists(pid)
    )
    if hidden:
        return (
            f"PID {pid} exists, but /proc hides it from you (hidepid): run gpuwatch as the user it "
            "belongs to, or as root."
        )
    if not (isinstance(error, OSError) and procfs.is_gone(error)):
        return f"PID {pid} cannot be read ({clean(str(error), 200)})."
    if not (proc / "self").exists():
        return f"{proc} is not mounted here, so no process can be read."
    return (
        f"No process has PID {pid}: it has ended, or the number is from another machine or "
        "container: give the one that ps shows here. gpuwatch without a PID shows what uses the "
        "GPUs."
    )


def _is_nested(proc: Path) -> bool:
    return read_link("self", "ns/pid", proc) not in (None, INITIAL_PID_NAMESPACE)
