"""Samples of one reading, as the functions that look at a signal take them."""

from __future__ import annotations

from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any


class Samples(Sequence[tuple[float, float]]):
    """(time, value) pairs, oldest first, kept as two lists."""

    __slots__ = ("_times", "_values")

    def __init__(self, times: list[float], values: list[float]) -> None:
        self._times = times
        self._values = values

    def __len__(self) -> int:
        return len(self._times)

    def __iter__(self) -> Iterator[tuple[float, float]]:
        return zip(self._times, self._values, strict=True)

    def __getitem__(self, place: Any) -> Any:
        if isinstance(place, slice):
            return list(zip(self._times[place], self._values[place], strict=True))
        return self._times[place], self._values[place]

    def after(self, since: float) -> Samples:
        """Return the samples later than ``since``."""
        begin = bisect_right(self._times, since)
        return Samples(self._times[begin:], self._values[begin:])


def columns(samples: Sequence[tuple[float, float]]) -> tuple[list[float], list[float]]:
    """Return the times and the values of (time, value) samples."""
    if isinstance(samples, Samples):
        return samples._times, samples._values
    times, values = [list(column) for column in zip(*samples, strict=True)] or ([], [])
    return times, values
