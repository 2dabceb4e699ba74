"""Programs that start jobs and are none (shells, multiplexers, logins, services), as a person
calls them, and what runs below one of them."""

import os
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.text import clean
from gpuwatch.jobs.identity.evidence import Look, children_of, read_all, read_look
from gpuwatch.jobs.identity.programs import boundary_phrase
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.processes import read_command

LABEL_LENGTH = 60
"""Of a command line within a sentence."""


class Candidate(NamedTuple):
    """A process that may be the job somebody means."""

    pid: int
    label: str
    """Its command line, shortened and made safe."""


def what_instead(look: Look) -> str | None:
    """The kind of a process that is no job, as the rest of "it is ..."; ``None`` for a job.
    Wrappers are not distinguished from jobs here: see ``is_wrapper``."""
    program = look.program
    if program.kind == "boundary":
        # Titles such as "tmux: server", "sshd: ada@pts/3".
        return boundary_phrase(program.name, look.name.partition(":")[0])
    return {"shell": "a shell", "gpuwatch": "gpuwatch itself"}.get(program.kind)


def runs_script(look: Look) -> bool:
    """True if a shell was started for a script or a command line, and not for a person."""
    return (
        look.program.kind == "shell"
        and len(look.arguments) > 1
        and not all(argument.startswith("-") for argument in look.arguments[1:])
    )


def is_wrapper(look: Look) -> bool:
    """True if it starts one program and waits for it (``sudo``, ``timeout``, ``nsys``)."""
    return look.program.kind == "wrapper"


def label(look: Look, proc: Path = procfs.PROC) -> str:
    """The command line for a sentence, or the name where there is none."""
    command = read_command(look.pid, look.name.encode(), proc)
    return clean(command, LABEL_LENGTH) if command else look.name


def jobs_below(pid: int, proc: Path = procfs.PROC) -> list[Candidate]:
    """The topmost processes below ``pid`` that are no starters themselves.

    Python programs and launchers if there are any, else all, by CPU time used. This
    gpuwatch is never among them.
    """
    seen = read_all(proc)
    children = children_of(seen)
    found: list[tuple[bool, Candidate]] = []
    waiting = list(children.get(pid, ()))
    while waiting:
        at = waiting.pop()
        look = None if at == os.getpid() else read_look(at, proc)
        if look is None or seen[at].state in "ZX":
            continue
        if what_instead(look) is not None or is_wrapper(look):
            waiting += children.get(at, ())
            continue
        likely = look.program.kind in ("python", "launcher")
        found.append((likely, Candidate(at, label(look, proc))))
    best = any(likely for likely, _ in found)
    return sorted(
        [candidate for likely, candidate in found if likely == best],
        key=lambda one: (-seen[one.pid].cpu_ticks, one.pid),
    )
