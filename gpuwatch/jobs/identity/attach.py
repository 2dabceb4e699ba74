"""From the PID a person gives to the process to watch, or one sentence that says why not."""

import os
import re
import sys
from collections.abc import Callable
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.text import SentenceError, clean
from gpuwatch.jobs.identity import starters
from gpuwatch.jobs.identity.evidence import all_pids, read_look
from gpuwatch.jobs.identity.surroundings import read_link
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.cgroup import parse_membership
from gpuwatch.sources.linux.processes import (
    INITIAL_PID_NAMESPACE,
    clean_name,
    parse_effective_uid,
    process_exists,
    user_name,
)

NAMED_AT_MOST = 3
"""Processes that one sentence names."""


class AttachError(SentenceError):
    """There is nothing to watch at this PID."""


class Attachment(NamedTuple):
    """The process to watch. With its start time it is known from a later one of the same PID."""

    pid: int
    started_at_unix_seconds: float
    notes: tuple[str, ...] = ()
    """Sentences: what is different from what was asked, and what will be missing."""


def parse_pid(text: str) -> int:
    """A PID as a person types it. Raises ``AttachError``."""
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
    """The process to watch for ``pid``. Raises ``AttachError`` where there is nothing to watch. Any
    process of a job will do: finding the rest of it is the tracker's part. ``uses_gpu`` is asked of
    a process that its program speaks against: one on a GPU is watched whatever it is."""
    _check_number(pid)
    if not sys.platform.startswith("linux"):
        raise AttachError("A single job can be watched on Linux only.")
    return _resolve(pid, (), proc, uses_gpu)


def slurm_process(job: str, proc: Path = procfs.PROC) -> int | None:
    """The process to watch for a Slurm job, by its cgroup; ``None``: it has none here."""
    for pid in sorted(all_pids(proc)) if sys.platform.startswith("linux") else ():
        groups = os.fsdecode(procfs.read_if_possible(f"{proc}/{pid}/cgroup"))
        # Slurm keeps a process of its own in a step that nobody asked for.
        if parse_membership(groups).slurm_job == job and "step_extern" not in groups:
            with suppress(AttachError):
                return resolve(pid, proc).pid
    return None


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
    if not _is_readable(pid, proc):
        notes = (*notes, _missing_rights(pid, parse_effective_uid(status)))
    return Attachment(pid, procfs.start_unix_seconds(stat, proc), notes)


def _program_instead(
    pid: int, notes: tuple[str, ...], proc: Path, uses_gpu: UsesGpu
) -> Attachment | None:
    """The process to watch instead of a program that only started the job; ``None``: itself. Raises
    ``AttachError`` where that is not clear, and names what runs below it."""
    look = read_look(pid, proc)
    if look is None:
        raise AttachError(f"PID {pid} has just ended.")
    ours = pid == os.getpid() and procfs.is_our_view(proc)
    # In a container the first process can be the training itself.
    first = pid == 1 and not _is_nested(proc)
    what = "gpuwatch itself" if ours else starters.what_instead(look)
    label = starters.label(look, proc)
    if what is None and not first and not starters.is_wrapper(look):
        return None
    if not ours and uses_gpu(pid):
        return None
    below, waits = starters.jobs_below(pid, proc), starters.is_wrapper(look)
    if (waits or starters.runs_script(look)) and len(below) == 1 and not first:
        note = (
            f"PID {pid} is {look.program.name}, which only waits for what it started: PID "
            f"{below[0].pid} ({below[0].label}) is watched instead."
        )
        return _resolve(below[0].pid, (*notes, note), proc, uses_gpu)
    said = "only waits for what it started" if waits else f"is {what}, not a job"
    if pid == 1:
        said = "starts everything else here and is not a job"
    raise AttachError(f"PID {pid} ({label}) {said}{_jobs_named(below)}")


def _jobs_named(below: list[starters.Candidate]) -> str:
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


def _is_readable(pid: int, proc: Path) -> bool:
    try:
        os.close(os.open(f"{proc}/{pid}/environ", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return not isinstance(error, PermissionError)
    return True


def _missing_rights(pid: int, uid: int | None) -> str:
    """What cannot be read, and how to see it."""
    missing = "its environment (ranks), folder, disk use and shared memory cannot be read"
    if os.geteuid() == 0:
        return (
            f"Even root may not look into PID {pid} from here, so {missing}: run gpuwatch on the "
            "host, or give its container the capability SYS_PTRACE."
        )
    if uid is None or uid == os.geteuid():
        return (
            f"PID {pid} is protected (it changed its user or forbids inspection), so "
            f"{missing}: run gpuwatch with sudo to see them."
        )
    user = user_name(uid)
    who = "" if user == "root" else f"as {user} or "
    return f"PID {pid} belongs to {user}, so {missing}: run gpuwatch {who}with sudo to see them."
