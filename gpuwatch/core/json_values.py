"""Values out of JSON that anybody may have written: each checked, or refused with its place.

Every check takes a value and ``where`` it stands, gives the value in its type, and raises
``CodecError`` with a sentence for a person otherwise.
"""

from __future__ import annotations

import json
import math
from typing import Annotated, Any, NoReturn

from msgspec import Meta

from gpuwatch.core.text import clean

Json = dict[str, Any]
# Types of the model, to whose bounds ``codec`` holds.
Text = Annotated[str, Meta(max_length=4096)]
"""As long as ``text.clean`` leaves it."""
Whole = Annotated[int, Meta(ge=-(2**63), le=2**63 - 1)]
UnixSeconds = Annotated[float, Meta(gt=-6.2e10, lt=1e11)]
"""Between the years 5 and 5138: calendars end at 1 and 9999, local time up to a day off."""
MonotonicSeconds = Annotated[float, Meta(gt=-1e11, lt=1e11)]
"""Within three thousand years: sums of more overflow."""
Seconds = Annotated[float, Meta(ge=0, lt=1e11)]


class CodecError(ValueError):
    """The text is not what it should be; the message is a sentence for a person."""


def wrong(value: Any, where: str, wanted: str) -> NoReturn:
    shown = clean(json.dumps(value)[:200], 40)
    raise CodecError(f"{clean(where, 80)} is {shown} where {wanted} belongs.")


def text(value: Any, where: str) -> str:
    if not isinstance(value, str):
        wrong(value, where, "a text")
    # A recording may come from anyone, and what it says reaches a terminal.
    return clean(value)


def flag(value: Any, where: str) -> bool:
    if not isinstance(value, bool):
        wrong(value, where, "true or false")
    return value


def whole(value: Any, where: str) -> int:
    if isinstance(value, bool) or not isinstance(value, int) or abs(value) >= 2**64:
        wrong(value, where, "a whole number")
    return value


def number(value: Any, where: str) -> float:
    if type(value) is float and math.isfinite(value):
        return value
    if type(value) is int and abs(value) < 2**64:
        return float(value)
    wrong(value if isinstance(value, str | bool | list | dict) else "?", where, "a number")


def is_moment(unix_seconds: float) -> bool:
    """Between the years 5 and 5138: calendars end at 1 and 9999, local time up to a day off."""
    return -6.2e10 < unix_seconds < 1e11


def json_object(value: Any, where: str) -> Json:
    if not isinstance(value, dict):
        wrong(value, where, "an object")
    return value


def json_list(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list):
        wrong(value, where, "a list")
    return value


def pair(value: Any, where: str) -> list[Any]:
    if not isinstance(value, list) or len(value) != 2:
        wrong(value, where, "a pair")
    return value
