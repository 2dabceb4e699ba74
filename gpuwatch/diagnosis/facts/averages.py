"""Tables of readings of which a type of facts declares the means."""

from collections.abc import Mapping, Sequence
from dataclasses import field, fields
from operator import attrgetter
from typing import Any

from gpuwatch.core.store import Table, Values

WINDOW_SECONDS = 60.0
"""Windows go back so far."""


def mean_of(reading: str = "") -> Any:
    """Declare a field of facts that is the mean of ``reading``, a field of what is observed;
    without a name, of what is worked out from several readings at each look."""
    return field(default=None, metadata={"mean": reading})


_NOTHING: Mapping[str, float | None] = {}


class FactTable(Table):
    """Readings, by the names of the facts that are their means: those that are read of what is
    observed, those worked out, and ``more`` that are no means of facts but worked out as well."""

    def __init__(
        self, facts: type, more: Sequence[str] = (), *, keep_seconds: float = WINDOW_SECONDS
    ) -> None:
        declared = [(one.name, one.metadata["mean"]) for one in fields(facts) if one.metadata]
        read = [(name, reading) for name, reading in declared if reading]
        if len(read) == 1:
            # Of a single field, ``attrgetter`` would give no tuple.
            raise ValueError("declare two readings or none")
        own = [name for name, reading in declared if not reading]
        self.means_declared = [*[name for name, _ in read], *own]
        self._worked_out = [*own, *more]
        self._values_of = attrgetter(*[reading for _, reading in read]) if read else None
        names = (*self.means_declared, *more)
        super().__init__(names, tiers=(), code="d", keep_seconds=keep_seconds)

    def observe(
        self,
        at: float,
        seconds: float,
        observed: object,
        worked_out: Mapping[str, float | None] = _NOTHING,
    ) -> None:
        """Take what is observed, as it was over the ``seconds`` up to ``at``, and by name what was
        worked out; times ascend."""
        read: Values = () if self._values_of is None else self._values_of(observed)
        self.add_row(at, seconds, [*read, *[worked_out[name] for name in self._worked_out]])

    def facts(self, since: float) -> dict[str, Any]:
        """Return the means over what was taken after ``since``, by the names of the facts."""
        names = self.means_declared
        return dict(zip(names, self.means(since)[: len(names)], strict=True))
