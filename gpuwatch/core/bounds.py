"""Types of values that come from outside, with the bounds that ``codec`` holds them to, and sums of
those that were read."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Annotated

from msgspec import Meta

Text = Annotated[str, Meta(max_length=4096)]
"""As long as ``text.clean`` leaves it."""
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
Number = Annotated[float, Meta(gt=-1e18, lt=1e18)]
Amount = Annotated[float, Meta(ge=0, lt=1e18)]
"""A measured value, temperatures apart: squares of more overflow in sums."""
_MOMENTS = (-6.2e10, 1e11)
UnixSeconds = Annotated[float, Meta(gt=_MOMENTS[0], lt=_MOMENTS[1])]
"""Between the years 5 and 5138: calendars end at 1 and 9999, local time up to a day off."""
MonotonicSeconds = Annotated[float, Meta(gt=-1e11, lt=1e11)]
"""Within three thousand years: sums of more overflow."""
Seconds = Annotated[float, Meta(ge=0, lt=1e11)]


def is_moment(unix_seconds: float) -> bool:
    """Whether a time is within the bounds of ``UnixSeconds``."""
    return _MOMENTS[0] < unix_seconds < _MOMENTS[1]


def total(values: Iterable[float | None]) -> float | None:
    """The sum of those that are known; ``None`` if none is."""
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def mean(values: Iterable[float | None]) -> float | None:
    """Return the mean of the values that are known; ``None`` if none is."""
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def highest(values: Iterable[float | None]) -> float | None:
    return max((value for value in values if value is not None), default=None)


def lowest(values: Iterable[float | None]) -> float | None:
    return min((value for value in values if value is not None), default=None)
