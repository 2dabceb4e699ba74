"""The registry of fields: what each reading of the model is called, its unit, how it is written,
which values can be, where its chart ends, and its name in Prometheus.

A reading is one field of a class of ``model``, whose row (``model.records.Row``) says what does not
follow from the unit in its name. Ranges, series, tables, charts, the page of a GPU and metrics are
made from it; lists elsewhere only choose fields, by name.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import asdict, dataclass, fields
from types import MappingProxyType
from typing import Any, NamedTuple

from gpuwatch.core import units
from gpuwatch.core.model import (
    GpuIdentity,
    GpuReading,
    Host,
    JobMember,
    Process,
    RdmaPort,
    TrainingLoop,
)
from gpuwatch.core.model.records import Row

_ENDLESS = float("inf")


class Unit(NamedTuple):
    """Unit of a number, by the end of a field's name."""

    symbol: str = ""
    low: float = 0.0
    high: float = _ENDLESS
    """Range of what can be, wide enough for cards to come. NVML's "not available" (all ones, in 32
    or 64 bits, before or after the unit is changed) and DCGM's blanks (2**31 - 16, 2**47, 2**63 -
    16 and the next) lie outside each."""
    write: Callable[[Any], str] = units.count
    write_of: Callable[[Any, Any], str] | None = None
    """Writes a value and its limit, where that is more than both with the symbol behind them."""
    top: float | None = None
    """Where a chart ends whose field has no limit; ``None``: it follows what is shown."""
    charted: bool = True
    metric: str = ""
    """End of a metric's name, in Prometheus' base unit, which is ``factor`` of this one."""
    factor: float = 1.0

    def text(self, value: float | None, limit: float | None = None) -> str:
        """Return ``212W``; with a limit ``212/700W``."""
        if limit is None:
            return self.write(value)
        if self.write_of is not None:
            return self.write_of(value, limit)
        return f"{self.write(value).removesuffix(self.symbol)}/{self.write(limit)}"


_NUMBER = Unit(charted=False)
UNITS: Mapping[str, Unit] = {
    "gigabits_per_second": Unit("Gb/s", high=1e6, metric="bits_per_second", factor=1e9),
    "bytes_per_second": Unit("bytes/s", high=1e12, write=units.rate),
    "per_second": Unit("/s", write=units.samples),
    "percent": Unit("%", high=100.0, write=units.percent, top=100.0, metric="ratio", factor=0.01),
    "share": Unit(high=1.0, write=units.share, top=1.0, metric="ratio"),
    "bytes": Unit("bytes", high=1 << 46, write=units.size, write_of=units.size_of),
    "watts": Unit("W", high=10_000.0, write=units.watts),
    "celsius": Unit("C", low=-60.0, high=250.0, write=units.celsius, top=100.0),
    "mhz": Unit("MHz", high=50_000, write=units.megahertz, metric="hertz", factor=1e6),
    "joules": Unit("J", high=1e13, write=units.energy, charted=False),
    "count": Unit(high=2**31 - 17, charted=False),
}
"""Units by the end of a field's name; the first that fits."""


def unit_of(name: str) -> tuple[str, Unit]:
    """Return the name of a field without its unit, and the unit."""
    bare = name.removesuffix("_max")
    for ending, unit in UNITS.items():
        if bare.endswith(f"_{ending}"):
            return bare.removesuffix(f"_{ending}"), unit
    return name, _NUMBER


@dataclass(frozen=True, slots=True, kw_only=True)
class Field(Row):
    """One field of the model, with all that is the same wherever it is shown or served."""

    name: str
    unit: Unit
    range: tuple[float, float] | None
    """Lowest and highest value that can be, in the type of the field; ``None``: no bounds."""
    whole: bool

    def text(self, value: float | None, limit: float | None = None) -> str:
        """Return ``47%``; with a limit ``212/700W``; ``-`` for ``None``."""
        if self.form:
            return units.UNKNOWN if value is None else self.form.format(value)
        return self.unit.text(value, limit)

    @property
    def heading(self) -> str:
        """Heading of a column."""
        return self.label.upper()

    @property
    def short_heading(self) -> str:
        """Heading of a narrow column."""
        return self.short.upper()


def fields_of(model: type[Any]) -> Mapping[str, Field]:
    """Return the fields of a class of the model by their names, in its order."""
    return MappingProxyType(
        {one.name: _field(one.name, one.type, one.metadata) for one in fields(model)}
    )


def _field(name: str, written_type: Any, metadata: Mapping[str, Row]) -> Field:
    row = metadata.get("row", _NO_ROW)
    bare, unit = unit_of(name)
    type_ = written_type.removesuffix(" | None")
    is_number, whole = type_ in {"Amount", "Whole", "float"}, type_ == "Whole"
    low, high = row.between or (unit.low, unit.high)
    number: Any = int if whole and high < _ENDLESS else float
    charted = unit.charted if row.charted is None else row.charted
    served_as = row.metric or (f"{bare}_{unit.metric}" if unit.metric else name)
    made = {
        "charted": is_number and charted and row is not _NO_ROW,
        "metric": served_as if row.help else "",
        "range": (number(low), number(high)) if is_number and high < _ENDLESS else None,
    }
    return Field(name=name, unit=unit, whole=whole, **(asdict(row) | made))


_NO_ROW = Row()
GPU_FACTS = fields_of(GpuIdentity)
GPU = fields_of(GpuReading)
OF_GPU = {**GPU_FACTS, **GPU}
"""Fields of a GPU, of what lasts and of what moves."""
HOST = fields_of(Host)
RDMA_PORT = fields_of(RdmaPort)
PROCESS = fields_of(Process)
MEMBER = fields_of(JobMember)
LOOP = fields_of(TrainingLoop)

MAIN = ("busy_percent", "memory_used_bytes", "power_watts", "temperature_celsius")
"""Readings of a GPU that are shown wherever there is room for numbers at all."""


def charted(model: Mapping[str, Field]) -> tuple[str, ...]:
    """Return the names of the fields that are kept for charts."""
    return tuple([name for name, one in model.items() if one.charted])
