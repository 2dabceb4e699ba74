"""Recognise runs of the same job.

"The same command, in the same folder, by the same user" as a person means it: the interpreter's
path, ports and ids that a launcher draws at random, and the settings of data loading that
gpuwatch itself advises to change, make no other run of it. What GPUs it was given is not part
of a command at all.
"""

import os
import re
from collections.abc import Callable
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.text import clean
from gpuwatch.jobs.identity.process_facts import ProcessFacts, parse_arguments, read_link
from gpuwatch.jobs.identity.programs import PYTHON, parse_python
from gpuwatch.sources.linux import procfs

COMMAND_BYTES = 65_536
ARGUMENT_LENGTH = 4096

_DRAWN = re.compile(
    r"--?(?:rdzv[-_](?:id|endpoint)|master[-_]port|main[-_]process[-_]port|run[-_]id)"
)
_LOADING = re.compile(
    r"(?:--?(?:no[-_])?|\+{0,2})(?:[\w-]+\.)*"
    r"(?:(?:\w+[-_])?(?:num[-_]workers|pin[-_]mem(?:ory)?|prefetch[-_]factor|persistent[-_]workers)"
    r"|workers)"
)
"""``--num-workers``, ``--no_pin_memory``, ``data.num_workers`` (Hydra)."""
_SHORT_WORKERS = re.compile(r"-j\d*")
"""As in PyTorch's own example of ImageNet."""
_NO_OPTION = re.compile(r"[^-].*", re.DOTALL)
_SETTING = re.compile(r"\d+|true|false|yes|no|on|off|none", re.IGNORECASE)
# A date with a time of day: what scripts put into the names of folders, new at each run.
_MOMENT = re.compile(
    r"(?:19|20)\d\d[-_.]?[01]\d[-_.]?[0-3]\d[-_.T/]?[0-2]\d[-_.:h]?[0-5]\d(?:[-_.:m]?[0-5]\d)?(?!\d)"
)


class RunIdentity(NamedTuple):
    """User, folder and command (the arguments, each ``text.clean``) of a run."""

    uid: int
    working_directory: str
    command: tuple[str, ...]

    def of_job(self) -> tuple[str | int, ...]:
        """Return what every run of the same job shares."""
        folder = self.working_directory
        # Hydra can make a folder for each run and work there.
        return (self.uid, _MOMENT.sub("*", folder), *essence(self.command, folder))


def run_identity(pid: int, proc: Path = procfs.PROC) -> RunIdentity | None:
    """Read user, folder and command of a process; ``None`` where one of the three cannot be read.

    That is so for other users' processes (their folder is theirs), for what has ended, and for
    what erased its command line.
    """
    try:
        # The first number: who started it, also where it then acts as another.
        uid = re.search(rb"\nUid:\s*(\d+)", procfs.read_once(f"{proc}/{pid}/status"))
        line = procfs.read_whole(f"{proc}/{pid}/cmdline", COMMAND_BYTES)
    except OSError:
        return None
    folder = read_link(pid, "cwd", proc)
    command = parse_arguments(line, ARGUMENT_LENGTH)
    if uid is None or folder is None or not command:
        return None
    return RunIdentity(int(uid[1]), clean(folder.removesuffix(" (deleted)")), command)


def essence(command: tuple[str, ...], folder: str) -> tuple[str, ...]:
    """Return the part of a command that two runs of it share."""
    kept: list[str] = []
    value_of: re.Pattern[str] | None = None
    for argument in _without_interpreter(command):
        if value_of is not None and value_of.fullmatch(argument):
            value_of = None
            continue
        name, equals, _ = argument.partition("=")
        value_of = None if equals else _values_of(name)
        if value_of is None and not (equals and _values_of(name, settable=True)):
            kept.append(_MOMENT.sub("*", _relative(argument, folder)))
    return tuple(kept)


def _values_of(name: str, *, settable: bool = False) -> re.Pattern[str] | None:
    """Return the values that may follow an option that makes no other run; ``None`` for all other
    arguments. Without a dash (Hydra's ``data.num_workers=4``) it must be ``settable``, else it is a
    word."""
    if not settable and not name.startswith("-"):
        return None
    if _DRAWN.fullmatch(name):
        return _NO_OPTION
    return _SETTING if _LOADING.fullmatch(name) or _SHORT_WORKERS.fullmatch(name) else None


def _without_interpreter(command: tuple[str, ...]) -> list[str]:
    """``/venv/bin/python3.11 -u /venv/bin/torchrun x`` is ``torchrun x``; plain ``python x`` is
    ``python x``, whichever Python it is."""
    first = os.path.basename(command[0])  # noqa: PTH119
    if not PYTHON.fullmatch(first):
        return [first, *command[1:]]
    what, value, rest = parse_python(command)
    if (what, value) == ("module", "torch.distributed.run"):
        return ["torchrun", *rest]
    if what == "script" and "/bin/" in value and not value.endswith(".py"):
        # An installed command: its file begins with the interpreter it was installed for.
        return [os.path.basename(value), *rest]  # noqa: PTH119
    how = {"module": ["-m"], "code": ["-c"]}.get(what, [])
    return ["python", *how, *([value] if value else []), *rest]


def _relative(argument: str, folder: str) -> str:
    """Return paths in the job's folder without that folder: ``./train.py`` is ``train.py``."""
    name, equals, value = argument.partition("=")
    if not equals or "/" in name:
        name, equals, value = "", "", argument
    if value.startswith("./") or (value + "/").startswith(folder.rstrip("/") + "/"):
        value = os.path.relpath(os.path.join(folder, value), folder)  # noqa: PTH118
    return f"{name}{equals}{value}"


LOOK_SECONDS = 1.5
"""How often new processes are looked for while nothing else is to be watched."""
LEARN_SECONDS = 10.0
"""A process that was just started can still show its parent's command."""
SETTLE_SECONDS = 5.0
"""For how long a new process is looked at: it becomes what it is with its exec."""
EARLIEST_SECONDS = 2.0
"""The end is seen late, and the kernel gives start times to the second of its boot."""


class NextRun:
    """A job's identity, learned while it runs, and which of the new processes is its next run."""

    def __init__(self, proc: Path = procfs.PROC) -> None:
        self._proc = proc
        self._job: tuple[str | int, ...] | None = None
        self._learn_at = float("-inf")
        self._waiting: dict[int, float] = {}

    def learn(self, now: float, pid: int) -> None:
        """Look at the job's topmost process, if it is time."""
        if now < self._learn_at:
            return
        self._learn_at = now + LEARN_SECONDS
        identity = run_identity(pid, self._proc)
        if identity is not None:
            self._job = identity.of_job()

    def find(
        self,
        now: float,
        began: frozenset[int],
        ended_at_unix: float,
        climb: Callable[[int], tuple[ProcessFacts, ...]],
    ) -> ProcessFacts | None:
        """Find the topmost process of the next run; ``began`` are the PIDs that are new."""
        if self._job is None:
            return None
        self._waiting.update(dict.fromkeys(began, now + SETTLE_SECONDS))
        for pid, until in list(self._waiting.items()):
            if now > until:
                del self._waiting[pid]
                continue
            identity = run_identity(pid, self._proc)
            if identity is None or identity.of_job() != self._job:
                continue
            chain = climb(pid)
            started = chain[-1].started_at if chain else None
            if started is not None and started >= ended_at_unix - EARLIEST_SECONDS:
                return chain[-1]
            del self._waiting[pid]
        return None
