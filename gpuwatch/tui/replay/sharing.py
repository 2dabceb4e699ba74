"""Snapshots that follow each other, with one object for each part that stays as it was.

A recording is decoded line by line, every name and number anew; the hundreds of snapshots that are
kept at a time would hold each command line as often.
"""

from __future__ import annotations

from dataclasses import fields
from functools import cache
from operator import attrgetter
from typing import Any

from gpuwatch.core.model import Gpu, Host, Job, JobMember, JobRank, Process, Snapshot

_SHARING = (Snapshot, Gpu, Host, Process, Job, JobMember, JobRank)


def share(new: Any, old: Any) -> Any:
    """``old`` where ``new`` equals it, else ``new`` with the parts of ``old`` that are equal in the
    place of its own. ``new`` was just decoded."""
    kind: type[object] = type(new)
    if kind is tuple and new and old and type(new[0]) in _SHARING:
        return (*map(share, new, old), *new[len(old) :])
    if kind not in _SHARING:
        return new
    names, get = _parts(kind)
    parts, before = get(new), get(old)
    if parts == before:
        return old
    for name, part, same in zip(names, parts, before, strict=True):
        if part is not same and part is not None:
            shared = same if part == same else share(part, same)
            if shared is not part:
                object.__setattr__(new, name, shared)
    return new


@cache
def _parts(kind: Any) -> tuple[tuple[str, ...], attrgetter[tuple[object, ...]]]:
    names = tuple([field.name for field in fields(kind)])
    return names, attrgetter(*names)
