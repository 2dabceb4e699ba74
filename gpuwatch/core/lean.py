"""What a program that runs all day beside a job can do without."""

from __future__ import annotations

import gc
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from functools import cache
from importlib.util import find_spec

_OPENSSL = ("ssl", "_hashlib")
_SHA2 = ("_sha2",) if sys.version_info >= (3, 12) else ("_sha256", "_sha512")
HASHES = ("_md5", "_sha1", *_SHA2, "_sha3", "_blake2")
"""Python's own, which some distributions leave out."""
YOUNG_OBJECTS = 10_000
"""A snapshot is some hundred objects, which go by themselves when the next comes: looking through
each for cycles would be work for nothing."""


@contextmanager
def without_openssl() -> Iterator[None]:
    """What is imported inside does without OpenSSL, as in a Python that was built without it:
    ``asyncio`` opens no encrypted connection, ``hashlib`` uses Python's own functions. That saves
    4 MiB and a tenth of a second."""
    left_out = [name for name in _OPENSSL if name not in sys.modules]
    if not all(find_spec(name) for name in HASHES):
        left_out = [name for name in left_out if name != "_hashlib"]
    for name in left_out:
        sys.modules[name] = None  # type: ignore[assignment]  # "not there", for import
    try:
        yield
    finally:
        for name in left_out:
            if sys.modules.get(name) is None:
                sys.modules.pop(name, None)


@cache
def settle() -> None:
    """Once all is loaded: give back what the start needed, and never look for garbage among what
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


def _trim() -> None:
    import ctypes  # noqa: PLC0415

    # glibc's; others have none.
    trim = getattr(ctypes.CDLL(None), "malloc_trim", None)
    if trim is not None:
        trim(0)
