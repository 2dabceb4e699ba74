"""Sentences with places: for the names of GPUs, for words that depend on how many there are, and
for numbers.

A rule says what holds of one job and its GPUs. Where the same holds of others, one sentence is said
of them all: its places are filled anew, and numbers that differ become ranges.

A rule writes an f-string of ``GPUS``, ``either`` and ``number``: each of these sets marks around
its part, in characters of private use that ``text.clean`` lets into no outside text. ``template``
makes of it what findings carry and recordings keep, with braces for marks:
``{gpus} {gpus|is|are} starved {70}% of the time, up to {90| s}``. Other braces are doubled in it.
"""

import re
from collections.abc import Iterator, Sequence
from functools import lru_cache

ALIKE = 1.05
"""Times the lowest: numbers no further apart than this are one number."""

_START, _BAR, _END = "\ue000", "\ue001", "\ue002"
_PRINTABLE = str.maketrans({"{": "{{", "}": "}}", _START: "{", _BAR: "|", _END: "}"})
_PLACE = re.compile(r"\{\{|\}\}|\{([^{}]*)\}")
_NUMBER = re.compile(r"(-?[0-9]{1,30}(?:\.[0-9]{1,30})?)(?:\|([^|]*))?")
_MARKED = re.compile(f"{_START}([^{_START}{_END}]*){_END}")
_TIMES = {" s": 1.0, " min": 60.0, " h": 3600.0}
_SIZES = {letter: 1024.0**power for power, letter in enumerate("BKMGTP")}


def _marked(*parts: str) -> str:
    return f"{_START}{_BAR.join(parts)}{_END}"


def either(one: str, several: str) -> str:
    """Return a word that depends on how many GPUs there are."""
    return _marked("gpus", one, several)


def of_several(one: str, several: str) -> str:
    """Return a word that depends on whether it is said of several jobs at once."""
    return _marked("several", one, several)


def number(value: float, digits: int = 0, *, unit: str = "") -> str:
    """Return a number that becomes a range where it differs; with its ``unit`` (`` min``, ``G``)
    where that depends on its size."""
    return _marked(f"{value:.{digits}f}", *([unit] if unit else []))


GPUS, ARE, SHARE, SWING, PAUSED = [
    _marked(name) for name in ("gpus", "are", "share", "swing", "paused")
]
"""The names of the GPUs; are or were; how busy they are; how often they work in bursts, if they do;
how often they paused."""
IS = either("is", "are")


def template(says: str) -> str:
    """Return a sentence with marks as one with places in braces."""
    return says.translate(_PRINTABLE)


GPUS_PLACE, PAUSED_PLACE = template(GPUS), template(PAUSED)


def has_marks(says: str) -> bool:
    """Check whether a sentence has places."""
    return _START in says


def plain(says: str) -> str:
    """Return a clause with its numbers and without their marks."""
    return _MARKED.sub(lambda found: found[1].replace(_BAR, ""), says) if _START in says else says


def filled(says: str, names: str = "", gpus: int = 1, *, of: int = 1, **places: str) -> str:
    """Return the template ``says`` for a person with the ``names`` of the GPUs and how many there
    are; it is said ``of`` so many jobs, or sets of GPUs of no known job."""
    places["gpus"] = names
    several = {"gpus": gpus > 1, "several": of > 1}

    def word(found: re.Match[str]) -> str:
        if found[1] is None:
            return found[0][0]
        if _NUMBER.fullmatch(found[1]):
            return found[1].replace("|", "")
        name, *words = found[1].split("|")
        if name in several and len(words) == 2:
            return words[several[name]]
        return found[0] if words else places.get(name, found[0])

    text = _PLACE.sub(word, says)
    return text[:1].upper() + text[1:] if says.startswith(GPUS_PLACE) else text


# Most of what is said is said again at the next look.
@lru_cache(maxsize=512)
def shape(says: str) -> str:
    """Return a template without its numbers: sentences of one shape can be one."""

    def word(found: re.Match[str]) -> str:
        place = _NUMBER.fullmatch(found[1] or "")
        if place is None:
            return found[0]
        return "{s}" if place[2] in _TIMES else "{}"

    return _PLACE.sub(word, says)


def united(says: Sequence[str]) -> str:
    """Return one template for several of one shape: ``58-70% of the time``."""
    if says.count(says[0]) == len(says):
        return says[0]
    ranges = map(_range, zip(*map(_numbers, says), strict=True))

    def word(found: re.Match[str]) -> str:
        return next(ranges) if _NUMBER.fullmatch(found[1] or "") else found[0]

    return _PLACE.sub(word, says[0])


def _numbers(says: str) -> Iterator[tuple[str, str]]:
    """Yield the numbers of a template, each with its unit: ``70`` and none, ``90`` and `` s``."""
    for found in _PLACE.finditer(says):
        if place := _NUMBER.fullmatch(found[1] or ""):
            yield place[1], place[2] or ""


def _range(numbers: Sequence[tuple[str, str]]) -> str:
    by_value = sorted(numbers, key=_value)
    (low, unit), high = by_value[0], "".join(by_value[-1])
    if _value(by_value[-1]) <= ALIKE * _value(by_value[0]):
        return "".join(by_value[len(numbers) // 2])
    return f"{low}-{high}" if unit == by_value[-1][1] else f"{low}{unit} to {high}"


def _value(number_and_unit: tuple[str, str]) -> float:
    text, unit = number_and_unit
    return float(text) * (_TIMES | _SIZES).get(unit, 1.0)
