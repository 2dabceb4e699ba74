"""The overview of a recording: lowest, mean and highest readings of half a minute each."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass

from gpuwatch.core.bounds import Seconds, UnixSeconds
from gpuwatch.core.model import GpuKey
from gpuwatch.core.store import Column, Stat
from gpuwatch.recording.statistics import Course, Part

BUCKET_SECONDS = 30.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Bucket:
    """Half a minute (by the wall clock) of a machine. What was never read in it has no column; the
    busy share is that of the fine samples, where the driver has them."""

    begin_unix_seconds: UnixSeconds
    seconds: Seconds
    gpus: Mapping[GpuKey, Mapping[str, Column]]
    """Columns of each GPU by the names of its readings."""
    host: Mapping[str, Column]

    @property
    def end_unix_seconds(self) -> float:
        return self.begin_unix_seconds + self.seconds


_OPEN_MOST = 3
"""Half minutes to which the next part may still add: its cells begin a few seconds before it."""


class Overview:
    """Half minutes of a recording, from its parts."""

    def __init__(self) -> None:
        self._closed: list[Bucket] = []
        self._open: dict[float, dict[tuple[GpuKey | None, str], Stat]] = {}
        """By the time at which they begin: readings of each GPU, and (``None``) of the host."""

    def add_part(self, part: Part) -> None:
        for gpu in part.gpus:
            self._add_courses(gpu.identity.uuid, gpu.profiles)
        if part.host is not None:
            self._add_courses(None, part.host.profiles)
        while len(self._open) > _OPEN_MOST:
            begin = min(self._open)
            self._closed.append(_bucket(begin, self._open.pop(begin)))

    def forget_oldest(self, most: float) -> None:
        """Keep the newest ``most``, by their number: a clock can be set back and forth."""
        if len(self._closed) > most:
            del self._closed[: len(self._closed) - int(most)]

    def buckets(self) -> tuple[Bucket, ...]:
        """Return the half minutes in the order of their time."""
        found = [*self._closed, *[_bucket(begin, rows) for begin, rows in self._open.items()]]
        return tuple(sorted(found, key=lambda bucket: bucket.begin_unix_seconds))

    def _add_courses(self, uuid: GpuKey | None, courses: Mapping[str, Course]) -> None:
        halves = self._open
        for name, course in courses.items():
            key = (uuid, name)
            # Hours of many GPUs have hundred thousands of cells.
            for middle, seconds, mean, low, high in course.middles():
                begin = middle // BUCKET_SECONDS * BUCKET_SECONDS
                rows = halves.get(begin)
                if rows is None:
                    rows = halves[begin] = {}
                stat = Stat(low, high, seconds * mean, seconds)
                held = rows.setdefault(key, stat)
                if held is not stat:
                    held.merge(stat)


def _bucket(begin: float, rows: Mapping[tuple[GpuKey | None, str], Stat]) -> Bucket:
    gpus: dict[GpuKey, dict[str, Column]] = {}
    host: dict[str, Column] = {}
    for (uuid, name), stat in rows.items():
        columns = host if uuid is None else gpus.setdefault(uuid, {})
        column = stat.column
        assert column is not None
        columns[name] = column
    return Bucket(begin_unix_seconds=begin, seconds=BUCKET_SECONDS, gpus=gpus, host=host)
