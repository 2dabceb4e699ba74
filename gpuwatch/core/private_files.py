"""Files and folders that only their owner can read: what gpuwatch writes holds command lines."""

import contextlib
import errno
import os
import stat
from collections.abc import Mapping
from pathlib import Path

from gpuwatch.core.text import clean

_OWN = "gpuwatch"
BESIDE = ".writing-"
"""The name of a file that is being written begins so: a crash may leave it behind."""
# Without a number: what they say is better than what the number stands for.
NO_FOLDER = (0, "it is not a folder (a symbolic link is not followed)")
NOT_OURS = (0, "it belongs to another user")
_SENTENCES = {
    errno.ENOSPC: "the disk is full",
    errno.EDQUOT: "your disk quota is used up",
    errno.EFBIG: "the largest file size allowed (ulimit -f) is reached",
    errno.EACCES: "you may not write there",
    errno.EPERM: "you may not write there",
    errno.ENOENT: "there is no such folder",
    errno.EISDIR: "it is a folder",
    errno.ELOOP: "it is a symbolic link, which is not followed",
}


def why(error: OSError, sentences: Mapping[int, str] = _SENTENCES) -> str:
    """The reason why a file cannot be written (with other ``sentences``: read), as a clause."""
    return sentences.get(error.errno or 0) or clean(str(error.strerror or error), 100)


def state_folder(name: str = "") -> Path:
    """Return ``name`` in gpuwatch's own folder under ``XDG_STATE_HOME`` (``~/.local/state``)."""
    from platformdirs import user_state_path  # noqa: PLC0415 - only who keeps files pays for it

    return user_state_path(_OWN, appauthor=False) / name


def config_file() -> Path:
    """Return the folder of a user's preferences: in ``XDG_CONFIG_HOME`` (``~/.config``)."""
    from platformdirs import user_config_path  # noqa: PLC0415 - only who keeps files pays for it

    return user_config_path(_OWN, appauthor=False) / "config.toml"


def make_folder(folder: Path) -> None:
    """Make ``folder`` and what is missing above it. It, and gpuwatch's own folder above it, are
    closed to others, also where they were open. Raises ``OSError``, also where one is another
    user's."""
    own = folder.parent if folder.parent.name == _OWN else folder
    for place in reversed((folder, *folder.parents)):
        if not place.exists():
            with contextlib.suppress(FileExistsError):
                place.mkdir(mode=0o700)
        if place in (own, folder):
            # Our own may be a link to a larger disk.
            _make_private(place, follow=place != folder)


def _make_private(folder: Path, *, follow: bool) -> None:
    status = folder.stat(follow_symlinks=follow)
    if not stat.S_ISDIR(status.st_mode):
        raise NotADirectoryError(*NO_FOLDER)
    if status.st_uid != os.geteuid():
        raise PermissionError(*NOT_OURS)
    if status.st_mode & 0o077:
        folder.chmod(0o700)


def private(path: str, flags: int) -> int:
    """Open a file, as ``opener`` of ``open``: a new file is readable by its owner alone."""
    return os.open(path, flags, 0o600)


def read_own(path: Path, most: int) -> bytes:
    """The first ``most`` bytes of a file of this user. Nothing planted (a link, a pipe, a file of
    another user) is followed, waited for or read: raises ``OSError``."""
    descriptor = os.open(path, os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC)
    with os.fdopen(descriptor, "rb") as file:
        found = os.fstat(descriptor)
        if not stat.S_ISREG(found.st_mode):
            raise PermissionError(0, "it is not a file")
        if found.st_uid != os.geteuid():
            raise PermissionError(*NOT_OURS)
        return file.read(most)


def write_whole(path: Path, data: bytes) -> None:
    """Write all of ``data`` or nothing, readable by its owner alone; replace a link, not follow it.
    Raises ``OSError``."""
    beside = path.with_name(f"{BESIDE}{os.getpid()}-{path.name}")
    try:
        with open(beside, "xb", opener=private) as file:
            file.write(data)
            file.flush()
            os.fsync(file.fileno())
        beside.replace(path)
    except BaseException:
        beside.unlink(missing_ok=True)
        raise
