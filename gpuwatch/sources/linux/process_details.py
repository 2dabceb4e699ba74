"""Facts of a process that rarely change: its user, command line, container and Slurm job."""

import functools
import pwd
import re
import shlex
import time
from contextlib import suppress
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.background import DaemonWorker
from gpuwatch.core.text import clean
from gpuwatch.sources.linux import cgroup, procfs

COMMAND_BYTES = 4096
"""A command line can be megabytes; no screen shows more than this of it."""

PATIENCE_SECONDS = 0.2
"""For users' names, in all: those in a local file are known in less, so that the first picture
has them."""

_NEEDS_QUOTES = re.compile(r"[\s'\"]")
_NOT_IN_DOUBLE_QUOTES = re.compile(r'["$`\\!]')


class ProcessDetails(NamedTuple):
    """All text has passed ``text.clean``; ``None`` where it could not be read."""

    uid: int | None = None
    command: str | None = None
    container: str | None = None
    slurm_job: str | None = None


def read_details(pid: int, name: bytes, proc: Path = procfs.PROC) -> ProcessDetails:
    """Everything that rarely changes. What cannot be read stays ``None``; never raises."""
    return ProcessDetails(
        read_uid(pid, proc), read_command(pid, name, proc), *cgroup.read_membership(pid, proc)
    )


def read_command(pid: int, name: bytes, proc: Path = procfs.PROC) -> str | None:
    """The command line, made safe; ``None`` where it may not be read."""
    try:
        # One byte more than is shown: if it comes, something was cut.
        text = procfs.read_once(f"{proc}/{pid}/cmdline", COMMAND_BYTES + 1)
    except OSError:
        return None
    return parse_command(text, name)


@functools.lru_cache(maxsize=256)
def parse_command(text: bytes, name: bytes) -> str:
    """``/proc/PID/cmdline`` as one line.

    Arguments are separated by NUL; those with white space or quotes in them are quoted, so that
    they stay distinct. A process that rewrote its title (setproctitle) has a single argument,
    shown as it is. An empty command line (a zombie, or a process that erased it) gives the name
    in brackets, as ps does.
    """
    cut = len(text) > COMMAND_BYTES
    if cut:
        text = text[: COMMAND_BYTES - 1]
    # Rewritten titles are padded with NULs or blanks up to the room the arguments had.
    arguments = text.rstrip(b"\0 \n").decode("utf-8", "replace").split("\0")
    if arguments == [""]:
        return f"[{clean_name(name)}]"
    if len(arguments) > 1:
        arguments = [
            _quoted(part) if not part or _NEEDS_QUOTES.search(part) else part for part in arguments
        ]
    line = clean(" ".join(arguments), COMMAND_BYTES)
    return f"{line[: COMMAND_BYTES - 1]}…" if cut and not line.endswith("…") else line


def _quoted(argument: str) -> str:
    """As a shell would take it back; with the quotes that the argument does not hold."""
    if "'" in argument and not _NOT_IN_DOUBLE_QUOTES.search(argument):
        return f'"{argument}"'
    return shlex.quote(argument)


def clean_name(name: bytes) -> str:
    """The kernel's name of a process (at most 15 bytes, any bytes), made safe."""
    return clean(name.decode("utf-8", "replace"), 64)


def read_uid(pid: int, proc: Path = procfs.PROC) -> int | None:
    """The user the process acts as; ``None`` where its status may not be read."""
    return parse_effective_uid(procfs.read_if_possible(f"{proc}/{pid}/status"))


def parse_effective_uid(text: bytes) -> int | None:
    """The second number of ``Uid:`` in ``/proc/PID/status``. Not the owner of ``/proc/PID``: that
    is root for every process that may not be dumped."""
    found = re.search(rb"\nUid:\s*\d+\s+(\d+)", text)
    return None if found is None else int(found[1])


class UserNames:
    """Names of users, looked up once each on a thread of its own: a directory server (LDAP) can
    take half a minute to answer, or never do."""

    def __init__(self, patience_seconds: float = PATIENCE_SECONDS) -> None:
        self._names: dict[int, str] = {}
        self._worker = DaemonWorker("gpuwatch-users")
        self._patience_seconds = patience_seconds

    def name(self, uid: int) -> str:
        """The user's name; the number where nobody knows it, and until it is known."""
        known = self._names.get(uid)
        if known is not None:
            return known
        self._names[uid] = str(uid)
        begun = time.monotonic()
        self._worker.submit(lambda: self._look_up(uid)).wait(self._patience_seconds)
        self._patience_seconds = max(0.0, self._patience_seconds - (time.monotonic() - begun))
        return self._names[uid]

    def _look_up(self, uid: int) -> None:
        with suppress(KeyError, OSError):
            self._names[uid] = clean(pwd.getpwuid(uid).pw_name, 64)


user_name = UserNames().name
