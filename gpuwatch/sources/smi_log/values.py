"""Cells of logs to values: what is measured in which unit, and within which bounds it can be."""

import re
from collections.abc import Callable, Mapping
from typing import NamedTuple

from gpuwatch.core.text import clean
from gpuwatch.sources.nvml.tables import EVENT_REASONS, PSTATE_MAX

TEXT_LENGTH = 200
CARD_WATTS_MOST = 3000.0
"""No card draws as much: the largest announced are below 2,500 W. ``draw`` has no such bound: a
column without a unit, or with a wrong one, can be in milliwatts, as its first rows tell."""
MIB, GIB = 1024.0**2, 1024.0**3

Value = float | int | str | bool | tuple[str, ...] | None
Parse = Callable[[str], Value]

_UNREAD = {"", "-", "n/a", "not supported", "not available", "unknown error", "gpu is lost"}
_UNREAD |= {"err!", "nan", "none", "null", "unknown", "not found"}
"""Texts, beside those in brackets, by which a log says that it has no value."""
_AMOUNT = re.compile(r"P?([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\d\s,.].*)?", re.ASCII)
_DEGREES = " °º\N{REPLACEMENT CHARACTER}"
_OF_TOTAL = re.compile(r"([\d.]+)\s*/\s*[\d.]+\s*([A-Za-z%]*)(?:\s*\(.*\))?", re.ASCII)
"""``7554 / 32768 MiB (23%)``: the first is meant."""
_NOT_KNOWN = float("nan")
"""What one of an unknown unit is: a value in it is none."""


class Quantity(NamedTuple):
    """Bounds in the model's unit, and what one of each unit of the log is in it; the first unit is
    that of a number without one. DCGM's blanks (2**31 - 16, 2**47, 2**63 - 16 and the next) are
    out of bounds in all of them."""

    low: float
    high: float
    units: Mapping[str, float]
    whole: bool = False


# What NVML counts in MiB is written as MB by dmon and by most programs.
_BYTES = {"mib": MIB, "mb": MIB, "kib": 1024.0, "kb": 1024.0, "gib": GIB, "gb": GIB, "b": 1.0}
_RATES = {f"{unit}/s": factor for unit, factor in _BYTES.items()}
_WATTS = {"w": 1.0, "mw": 0.001}
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
QUANTITIES = {
    "percent": Quantity(0.0, 100.0, {"%": 1.0, "ratio": 100.0}),
    "fan": Quantity(0.0, 200.0, {"%": 1.0, "ratio": 100.0}),
    "bytes": Quantity(0, 2.0**46, _BYTES, True),
    "bytes_per_second": Quantity(0.0, 1e13, _RATES),
    "watts": Quantity(0.0, CARD_WATTS_MOST, _WATTS),
    "draw": Quantity(0.0, 1e3 * CARD_WATTS_MOST, _WATTS),
    "joules": Quantity(0.0, 1e12, {"j": 1.0, "mj": 0.001}),
    "celsius": Quantity(-50.0, 200.0, {"c": 1.0}),
    "mhz": Quantity(0, 100_000, {"mhz": 1.0, "ghz": 1000.0, "hz": 1e-6}, True),
    "seconds": Quantity(0.0, 1e9, _TIMES),
    "elapsed": Quantity(0.0, 1e9, {"s": 1.0, **_TIMES}),
    "count": Quantity(0, 2.0**31 - 17, {"": 1.0}, True),
    "index": Quantity(0, 4095, {"": 1.0}, True),
    "link": Quantity(1, 64, {"": 1.0, "x": 1.0}, True),
    "pid": Quantity(1, 1 << 32, {"#": 1.0}, True),
    "state": Quantity(0, PSTATE_MAX, {"": 1.0}, True),
}
_FLAGS = {
    **dict.fromkeys(("yes", "enabled", "active", "1", "true"), True),
    **dict.fromkeys(("no", "disabled", "not active", "0", "false"), False),
}


def number(text: str) -> float | None:
    """A finite number, with or without a unit after it."""
    return _amount(text)[0]


def _amount(text: str) -> tuple[float | None, str]:
    """``212.34 W``, ``212.34W``, or ``212,34 W`` of a country that writes so, by its two parts."""
    found = (_OF_TOTAL.fullmatch(text) if "/" in text else None) or _AMOUNT.fullmatch(text)
    if found is None and text.count(",") == 1 and text[:1].isdecimal():
        found = _AMOUNT.fullmatch(text.replace(",", "."))
    value = _NOT_KNOWN if found is None else float(found[1])
    # Neither NaN nor infinity is a measurement.
    return (value if value - value == 0.0 else None), (found and found[2]) or ""


def parser(kind: str, unit: str = "") -> Parse:
    """A reader of cells of this kind: ``None`` for what has no value or one out of range. ``unit``
    is the heading's; a cell's own goes before it."""
    quantity = QUANTITIES.get(kind)
    if quantity is None:
        return _TEXTS[kind]
    low, high, units, whole = quantity
    usual = units.get(bare_unit(unit), _NOT_KNOWN) if unit else next(iter(units.values()))

    def parse(text: str) -> float | int | None:
        amount, _, own = text.partition(" ")
        value: float | None
        try:
            value = float(amount)
        except ValueError:
            value, own = _amount(text)
            if value is None:
                return None
        value *= units.get(bare_unit(own), _NOT_KNOWN) if own else usual
        # Neither NaN nor infinity is within bounds.
        if low <= value <= high:
            return round(value) if whole else value
        return None

    return parse


def bare_unit(unit: str) -> str:
    """``c`` for ``°C``, however its sign is encoded: a byte that is not UTF-8 has become U+FFFD."""
    return unit.replace("\N{DEGREE CELSIUS}", "c").strip(_DEGREES).lower()


def _text(text: str) -> str | None:
    unread = text[:1] in {"[", "<"} or text.lower() in _UNREAD
    return None if unread else clean(text, TEXT_LENGTH)


def _reasons(text: str) -> tuple[str, ...] | None:
    """``0x0000000000000004``, or the same in decimal."""
    try:
        bits = int(text, 16) if text[:2].lower() == "0x" else int(float(text))
    except (ValueError, OverflowError):
        return None
    # All ones is the driver's "not available", and from here on DCGM's blanks.
    known = 0 <= bits < 2**31 - 16
    return tuple([name for bit, name in EVENT_REASONS if bits & bit]) if known else None


_TEXTS: Mapping[str, Parse] = {
    "text": _text,
    "flag": lambda text: _FLAGS.get(text.lower()),
    "reasons": _reasons,
}
