"""Dataclasses of which hundreds are made every second, and the rows of the registry of fields."""

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["OF_ONE_CORE", "Row", "dataclass", "reading"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool = False, **options: Any) -> Any:
        """Make a dataclass like the standard library's. What is frozen is held to that by the type
        checker alone: at run time it would make an object four times as dear to make."""
        return dataclasses.dataclass(unsafe_hash=frozen, **options)


OF_ONE_CORE = (0.0, float("inf"))
"""Range of CPU use in percent of one core: several are used at once."""


@dataclasses.dataclass(frozen=True, slots=True)
class Row:
    """Row of the registry, written with its field; ``core.registry`` makes a ``Field`` of it."""

    label: str = ""
    """Name on a page with room for it; empty: it is only shown together with another field."""
    short: str = ""
    """Name in narrow columns and beside charts."""
    limit: str = ""
    """Field with the value at which a gauge or a chart of it ends; empty: the unit says it."""
    between: tuple[float, float] | None = None
    """Lowest and highest value that can be, where they are not those of its unit."""
    form: str = ""
    """Format, where it is not that of its unit: ``P{}``."""
    charted: bool | None = None
    """Whether it is kept for charts, where its unit does not say so."""
    help: str = ""
    """Help text in Prometheus; empty: the field is not served there."""
    metric: str = ""
    """Name in Prometheus, where it does not follow from that of the field."""
    kind: str = ""
    """Label ``kind`` in Prometheus, where several fields are one metric."""


def reading(label: str = "", short: str = "", **more: Any) -> Any:
    """Declare a field that is ``None`` where it was not read, with its ``Row``."""
    row = Row(label, short or label, **more)
    return dataclasses.field(default=None, metadata={"row": row})
