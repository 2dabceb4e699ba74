"""Files and folders that only their owner can read: what gpuwatch writes holds command lines."""

from __future__ import annotations

import contextlib
import errno
import os
import stat
from pathlib import Path

_OWN = "gpuwatch"


def state_folder(name: str = "") -> Path:
    """``name`` in gpuwatch's own folder under ``XDG_STATE_HOME`` (``~/.local/state``)."""
    from platformdirs import user_state_path  # noqa: PLC0415 - only who keeps files pays for it

    return user_state_path(_OWN, appauthor=False) / name


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
        raise NotADirectoryError(errno.ENOTDIR, os.strerror(errno.ENOTDIR))
    if status.st_uid != os.geteuid():
        raise PermissionError(errno.EPERM, "it belongs to another user")
    if status.st_mode & 0o077:
        folder.chmod(0o700)


def private(path: str, flags: int) -> int:
    """For ``open(..., opener=private)``: a new file is readable by its owner alone."""
    return os.open(path, flags, 0o600)
