"""Where the output of jobs is kept: a folder of files in the user's state folder.

Only its owner can read it. It is bounded: the oldest are forgotten, but never one that a job
still writes to. Whoever writes holds a shared lock (flock(2)) on its file, the keeper included, so
that this is known for jobs whose gpuwatch has long ended.
"""

import contextlib
import fcntl
import os
import re
import stat
import time
from collections.abc import Sequence
from pathlib import Path, PurePath

from gpuwatch.core.private_files import make_folder, state_folder
from gpuwatch.core.text import SentenceError, clean

RUNS_KEPT = 50
KEPT_BYTES = 64 << 20
"""Of what one job prints: more than a day of progress bars."""

_NAME = re.compile(r"\d{8}-\d{6}-[A-Za-z0-9._-]{1,60}\.log")
_INTERPRETERS = re.compile(r"(?:python|pypy)[\d.]*|uv|poetry|run|bash|sh|zsh|env|nice|torchrun")


def open_kept(command: Sequence[str], folder: Path | None = None) -> tuple[int, Path]:
    """A new file of its own for what ``command`` prints, open for appending; the oldest files
    make room for it. Raises ``SentenceError``."""
    folder = state_folder("runs") if folder is None else folder
    when = time.strftime("%Y%m%d-%H%M%S")
    path = folder / f"{when}-{short_name(command)}-{os.getpid()}.log"
    try:
        make_folder(folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_APPEND | os.O_NOFOLLOW | os.O_CLOEXEC
        descriptor = os.open(path, flags, 0o600)
    except OSError as error:
        raise SentenceError(
            f"The job's output cannot be kept in {clean(str(folder), 300)}: {error.strerror}. "
            "Choose a file with --output FILE, or see it as it comes with --plain.",
            74,
        ) from None
    _hold(descriptor)
    # It is there: what cannot be tidied up now is tidied up next time.
    with contextlib.suppress(OSError):
        forget_oldest(folder)
    return descriptor, path


def open_chosen(path: Path) -> int:
    """The file a person chose, emptied, open for appending. Raises ``SentenceError``."""
    flags = os.O_WRONLY | os.O_CREAT | os.O_APPEND | os.O_CLOEXEC | os.O_NOCTTY
    try:
        descriptor = os.open(path, flags, 0o666)
        # A pipe or a device has nothing to empty.
        if stat.S_ISREG(os.fstat(descriptor).st_mode):
            os.ftruncate(descriptor, 0)
    except OSError as error:
        shown = clean(str(path), 300)
        raise SentenceError(f"{shown} cannot be written: {error.strerror}.") from None
    _hold(descriptor)
    return descriptor


def forget_oldest(folder: Path, kept: int = RUNS_KEPT) -> None:
    """Delete all but the newest ``kept`` files of ended jobs. Raises ``OSError``."""
    names = sorted(entry.name for entry in folder.iterdir() if _NAME.fullmatch(entry.name))
    for name in names[: max(0, len(names) - kept)]:
        with contextlib.suppress(OSError):
            _forget(folder / name)


def short_name(command: Sequence[str]) -> str:
    """A name for this command, fit for a file name: ``train.py``."""
    words = [word for word in command if not word.startswith("-") and "=" not in word]
    names = [PurePath(word).name for word in words]
    scripts = [name for name in names if name.endswith((".py", ".sh"))]
    others = [name for name in names if not _INTERPRETERS.fullmatch(name)]
    name = (scripts or others or names or [PurePath(command[0]).name])[0]
    return re.sub(r"[^A-Za-z0-9._-]+", "_", name)[:40].lstrip(".") or "job"


def _hold(descriptor: int) -> None:
    # Some network file systems have no locks: their files are not forgotten, then.
    with contextlib.suppress(OSError):
        fcntl.flock(descriptor, fcntl.LOCK_SH | fcntl.LOCK_NB)


def _forget(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    try:
        fcntl.flock(descriptor, fcntl.LOCK_EX | fcntl.LOCK_NB)
        path.unlink()
    finally:
        os.close(descriptor)
