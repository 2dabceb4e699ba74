"""Starting a program as if the shell had started it: nothing of this process shows in it.

What a child inherits and an interpreter changes on its way up: the environment (PEP 538 puts
``LC_CTYPE`` into it where the locale is C) and the signals that are ignored (SIGPIPE and SIGXFSZ).
``subprocess`` also closes the descriptors that the shell opened for the command (``3> log``), and
hands on the signal mask; hence posix_spawn(3), which does neither and runs nothing of this
program in the child.
"""

import contextlib
import errno
import os
import signal
import stat
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuwatch.core.text import SentenceError, clean

EXIT_NOT_EXECUTABLE = 126
EXIT_NOT_FOUND = 127

SHELL = b"/bin/sh"
_DEFAULT_PATH = b"/bin:/usr/bin"

# Ignored by CPython itself (Py_InitializeEx), so what they were before is not known.
_IGNORED_BY_PYTHON = frozenset({signal.SIGPIPE, signal.SIGXFSZ})


class CannotStartError(SentenceError):
    """The command was not started; the exit code is what a shell gives for it: 127 where there is
    no such command, 126 where it cannot be executed."""


def initial_environment(path: Path = Path("/proc/self/environ")) -> dict[bytes, bytes]:
    """The environment this process was started with, in its order. The kernel's copy:
    ``os.environ`` has what the interpreter and libraries did to it since."""
    try:
        data = path.read_bytes()
    except OSError:
        return dict(os.environb)
    found: dict[bytes, bytes] = {}
    for entry in data.split(b"\0"):
        name, equals, value = entry.partition(b"=")
        # The first of two with one name is the one that getenv(3) gives.
        if name and equals:
            found.setdefault(name, value)
    return found


def spawn(
    command: Sequence[str],
    environment: Mapping[bytes, bytes],
    *,
    group: str = "shared",
    descriptors: Mapping[int, int] | None = None,
    mask: frozenset[int] = frozenset(),
) -> int:
    """Start ``command``, found on the environment's ``PATH``; its PID once it is executed.

    ``group`` is ``shared`` (this process group), ``own``, or ``session`` (a session of its own,
    without a controlling terminal). ``descriptors`` says which of ours become which there,
    ``mask`` is its signal mask. Raises ``CannotStartError``.
    """
    words = [os.fsencode(word) for word in command]
    path = _found(words[0], environment)
    if path is None:
        raise _cannot_start(command[0], errno.ENOENT, environment)
    given: dict[str, Any] = {"setsigmask": mask, "setsigdef": _IGNORED_BY_PYTHON}
    if group == "own":
        given["setpgroup"] = 0
    elif group == "session":
        given["setsid"] = True
    given["file_actions"] = [
        (os.POSIX_SPAWN_DUP2, here, there) for there, here in (descriptors or {}).items()
    ]
    try:
        try:
            return os.posix_spawn(path, words, environment, **given)
        except OSError as error:
            if error.errno != errno.ENOEXEC:
                raise
            # A script without a first line that says what runs it: the shell does.
            return os.posix_spawn(SHELL, [SHELL, path, *words[1:]], environment, **given)
    except OSError as error:
        number = error.errno or errno.EINVAL
        raise _cannot_start(command[0], number, environment) from None


def _found(name: bytes, environment: Mapping[bytes, bytes]) -> bytes | None:
    """The program that execvp(3) would run; where none can be run, one to be refused."""
    places = _candidates(name, environment)
    can_run = [path for path in places if os.path.isfile(path) and os.access(path, os.X_OK)]  # noqa: PTH113
    there = [path for path in places if os.path.lexists(path)]
    return next(iter([*can_run, *there]), None) if name else None


def _candidates(name: bytes, environment: Mapping[bytes, bytes]) -> list[bytes]:
    if b"/" in name:
        return [name]
    places = environment.get(b"PATH", _DEFAULT_PATH).split(b":")
    return [os.path.join(place or b".", name) for place in places]  # noqa: PTH118 - bytes


def _cannot_start(name: str, number: int, environment: Mapping[bytes, bytes]) -> CannotStartError:
    shown = clean(name, 200)
    there = any(map(os.path.isfile, _candidates(os.fsencode(name), environment)))
    if number == errno.ENOENT and there:
        missing = "what its first line (#!) asks for, or the loader it was built for, is not there"
        return CannotStartError(f"{shown} cannot be run: {missing}.", EXIT_NOT_EXECUTABLE)
    if number in (errno.ENOENT, errno.ENOTDIR):
        near = " (it is here: put ./ before it)" if Path(name).is_file() else ""
        said = f"The command {shown!r} was not found on PATH{near}."
        return CannotStartError(
            f"There is no file {shown}." if "/" in name else said, EXIT_NOT_FOUND
        )
    said = f"{shown} cannot be run: {os.strerror(number).lower()}."
    with contextlib.suppress(OSError):
        mode = Path(name).stat().st_mode
        if number == errno.EACCES and stat.S_ISDIR(mode):
            said = f"{shown} is a folder, not a command."
        elif number == errno.EACCES and not mode & 0o111:
            hint = f": python {shown}, say," if name.endswith(".py") else ""
            said = (
                f"{shown} is not executable: name the program that runs it{hint} or make it "
                "executable (chmod +x)."
            )
    return CannotStartError(said, EXIT_NOT_EXECUTABLE)
