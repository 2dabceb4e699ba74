"""Means that facts declare: which field of what was read each one averages."""

from collections.abc import Mapping
from dataclasses import field, fields
from operator import attrgetter
from typing import Any

from gpuwatch.diagnosis.signals.running import RunningMeans

WINDOW_SECONDS = 60.0
"""Means go back so far."""

_NOTHING: Mapping[str, float | None] = {}


def mean_of(reading: str = "") -> Any:
    """A field of facts that is the mean of ``reading``, a field of what is observed; without a
    name, of what is worked out from several readings at each look."""
    return field(default=None, metadata={"mean": reading})


class Averages:
    """The means that a type of facts declares, over the last minute."""

    __slots__ = ("_means", "_names", "_read", "_worked_out")

    def __init__(self, facts: type) -> None:
        declared = [(one.name, one.metadata["mean"]) for one in fields(facts) if one.metadata]
        read = [(name, reading) for name, reading in declared if reading]
        self._worked_out = [name for name, reading in declared if not reading]
        self._names = [*[name for name, _ in read], *self._worked_out]
        # Of a single field, it would give no tuple.
        self._read = attrgetter(*[reading for _, reading in read]) if len(read) > 1 else None
        if len(read) == 1:
            raise ValueError("declare two readings or none")
        self._means = RunningMeans(len(self._names), WINDOW_SECONDS)

    def add(
        self,
        at: float,
        observed: object,
        seconds: float,
        worked_out: Mapping[str, float | None] = _NOTHING,
    ) -> None:
        """``observed`` as it was over the ``seconds`` up to ``at``; times ascend."""
        values = () if self._read is None else self._read(observed)
        self._means.add(at, (*values, *[worked_out[name] for name in self._worked_out]), seconds)

    def over(self, since: float) -> dict[str, Any]:
        """By name, of what was added later than ``since``."""
        return dict(zip(self._names, self._means.over(since), strict=True))

    def watched_seconds(self, since: float) -> float:
        return self._means.seconds(since)
