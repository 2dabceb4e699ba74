"""Keeps what was tuned in the user's state folder, for later sessions. Owner only, bounded."""

from __future__ import annotations

import contextlib
import json
import os
import re
import stat
import time
from pathlib import Path
from typing import Any

from gpuwatch.core.private_files import make_folder, state_folder
from gpuwatch.core.text import clean

KEPT = 100
BYTES_MAX = 4 * 2**20
_NAME = re.compile(r"\d{8}T\d{6}\.\d{3}-\d+\.json")


class KeepError(Exception):
    """A result cannot be kept or found; the message is a sentence for a person."""


def save(result: dict[str, Any], folder: Path | None = None) -> Path:
    """Write a result whole or not at all, and forget the oldest. Raises ``KeepError``."""
    folder = state_folder("tunings") if folder is None else folder
    moment = result["taken_at_unix_seconds"]
    seconds = time.strftime("%Y%m%dT%H%M%S", time.gmtime(int(moment)))
    path = folder / f"{seconds}.{int(moment * 1000) % 1000:03d}-{os.getpid()}.json"
    temporary = folder / f".writing-{os.getpid()}"
    try:
        make_folder(folder)
        flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_NOFOLLOW | os.O_CLOEXEC
        with os.fdopen(os.open(temporary, flags, 0o600), "w", encoding="utf-8") as file:
            json.dump(result, file)
            file.flush()
            os.fsync(file.fileno())
        temporary.rename(path)
    except OSError as error:
        with contextlib.suppress(OSError):
            temporary.unlink()
        raise KeepError(
            f"The result cannot be saved in {clean(str(folder), 200)}: {error.strerror}."
        ) from None
    for old in _names(folder)[KEPT:]:
        with contextlib.suppress(OSError):
            (folder / old).unlink()
    return path


def last(
    target: str | None = None, folder: Path | None = None, *, run_in: str | None = None
) -> dict[str, Any] | None:
    """The newest result (of this target, measured in the folder ``run_in``) that can be read;
    ``None``: there is none."""
    folder = state_folder("tunings") if folder is None else folder
    for name in _names(folder):
        found = _read(folder / name)
        if (
            found is not None
            and target in (None, found.get("target"))
            and run_in in (None, found.get("folder"))
        ):
            return found
    return None


def _names(folder: Path) -> list[str]:
    """The newest first."""
    try:
        return sorted(one.name for one in folder.iterdir() if _NAME.fullmatch(one.name))[::-1]
    except OSError:
        return []


def _read(path: Path) -> dict[str, Any] | None:
    try:
        flags = os.O_RDONLY | os.O_NOFOLLOW | os.O_NONBLOCK | os.O_CLOEXEC
        with os.fdopen(os.open(path, flags), "rb") as file:
            whose = os.fstat(file.fileno())
            if not stat.S_ISREG(whose.st_mode) or whose.st_uid != os.geteuid():
                return None
            found = json.loads(file.read(BYTES_MAX))
    except (OSError, ValueError):
        return None
    known = isinstance(found, dict) and found.get("kind") == "tune" and found.get("schema") == 1
    return found if known else None
