"""Which part of a loader cannot be sent to workers that are spawned."""

from __future__ import annotations

import io
import pickle
import re
from multiprocessing.reduction import ForkingPickler
from typing import Any

from gpuwatch.core.text import clean
from gpuwatch.tuning.failures import is_own, named, shown_path

DEPTH = 5
"""Of attributes and items that are looked at."""
_PICKLE = re.compile(r"pickle|Can't get (local object|attribute)", re.IGNORECASE)


def unpicklable_part(loader: Any, method: str, error: BaseException) -> str | None:
    """A sentence on which part of a loader workers cannot be sent; ``None``: all can be, or the
    error is not about that."""
    if not isinstance(error, pickle.PicklingError) and not _PICKLE.search(str(error)):
        return None
    for name in ("dataset", "collate_fn", "worker_init_fn"):
        part = getattr(loader, name)
        why = _pickle_error(part)
        if why is None:
            continue
        path, culprit, why = _narrowed(name, part, why, DEPTH)
        code = getattr(culprit, "__code__", None)
        made = ""
        if code is not None and is_own(code.co_filename):
            made = f" ({shown_path(code.co_filename)}:{code.co_firstlineno})"
        return (
            f"Workers that start by {method} are sent the dataset pickled, and {path} cannot be: "
            f"{named(why)}{made}."
        )
    return None


def _pickle_error(part: object) -> Exception | None:
    try:
        ForkingPickler(io.BytesIO()).dump(part)
    except Exception as error:
        return error
    return None


def _narrowed(
    path: str, part: object, error: Exception, depth: int
) -> tuple[str, object, Exception]:
    """The innermost attribute or item that cannot be pickled by itself."""
    inside: list[tuple[str, object]] = []
    if isinstance(part, dict):
        inside = [(f"[{clean(repr(key), 40)}]", one) for key, one in list(part.items())[:200]]
    elif isinstance(part, list | tuple):
        inside = [(f"[{number}]", one) for number, one in enumerate(part[:200])]
    elif hasattr(part, "__dict__") and not isinstance(part, type):
        inside = [(f".{clean(name, 60)}", one) for name, one in vars(part).items()]
    for name, one in inside if depth else []:
        its = _pickle_error(one)
        if its is not None:
            return _narrowed(f"{path}{name}", one, its, depth - 1)
    return path, part, error
