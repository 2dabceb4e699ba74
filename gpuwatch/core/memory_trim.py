"""Return unused memory to the system: gpuwatch runs all day beside a job."""

import gc
import sys
from functools import cache

YOUNG_OBJECTS = 10_000
"""A snapshot is some hundred objects, which go by themselves when the next comes: looking through
each for cycles would be work for nothing."""

_ARENA_MAX = -8
"""``M_ARENA_MAX`` of ``malloc.h``."""


@cache
def settle() -> None:
    """Give back what the start needed, once all is loaded, and never look for garbage among what
    stays. Later calls do nothing: what is there by then need not stay."""
    gc.collect()
    gc.freeze()
    gc.set_threshold(YOUNG_OBJECTS)
    _trim()


def tidy() -> None:
    """Free what only a collection finds, such as the widgets of a closed dialog, and give free
    memory back. To be called now and then: with so high a threshold what has become old is never
    looked at. 10 ms."""
    gc.collect()
    _trim()


def share_one_heap() -> None:
    """Have all threads allocate from one heap; to be called before the first of them starts. glibc
    gives each its own, in which what it once needed stays: after hours some 10 MiB."""
    _glibc("mallopt", _ARENA_MAX, 1)


def load_encryption() -> None:
    """Have ``ssl`` imported by what asks for it from here on: the other commands do without."""
    if sys.modules.get("ssl", sys) is None:
        del sys.modules["ssl"]


def _trim() -> None:
    _glibc("malloc_trim", 0)


def _glibc(name: str, *arguments: int) -> None:
    import ctypes  # noqa: PLC0415

    # Others have none.
    function = getattr(ctypes.CDLL(None), name, None)
    if function is not None:
        function(*arguments)
