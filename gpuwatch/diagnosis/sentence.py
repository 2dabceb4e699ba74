"""Sentences with places, for the names of GPUs and for words that depend on how many there are.

A rule says what holds of one job and its GPUs. Where the same holds of others, one sentence is said
of them all: its places are filled anew, and numbers that differ become ranges.
"""

import re
from collections.abc import Sequence
from functools import lru_cache

GPUS, ARE, SHARE, PAUSED = "{gpus}", "{are}", "{share}", "{paused}"
"""The names of the GPUs; are or were; how busy they are; how often they paused."""
ALIKE = 1.05
"""Times the lowest: numbers no further apart than this are one number."""

_PLACE = re.compile(r"\{(gpus|are|share|paused)\}|\{(gpus|several)\|([^{}|]*)\|([^{}|]*)\}")
_CARD = r"\d+\b(?!%|\.\d)(?: \(MIG \d+\))?"
# Not those that are part of a name: PID 4242, job 17, rank 3, H200, x16, train.py:41; those of GPUs
# and of commands, which can be several, are found and left as they are.
_NUMBER = re.compile(
    rf"GPUs? {_CARD}(?:(?:, | and | to ){_CARD})*|"
    r"\b(?:kill|nvidia-smi|gpuwatch diagnose) [^:;,()]*|"
    r"(?<![\w.:/=#-])(?<!\bPID )(?<!\bjob )(?<!\brank )(?<!\bnode )(?<!\bgeneration )"
    r"(\d+(?:\.\d+)?)([KMGT]\b| (?:s|min|h)\b)?"
)
_NO_TEXT = "\0"
"""Stands for a number: no name of a process or file has it."""
_TIMES = {" s": 1.0, " min": 60.0, " h": 3600.0}
_SIZES = {letter: 1024.0**power for power, letter in enumerate("KMGT", start=1)}


def either(one: str, several: str) -> str:
    """A word that depends on how many GPUs there are."""
    return f"{{gpus|{one}|{several}}}"


def of_several(one: str, several: str) -> str:
    """A word that depends on whether it is said of several jobs at once."""
    return f"{{several|{one}|{several}}}"


IS = either("is", "are")


def filled(says: str, names: str, gpus: int, *, of: int = 1, **places: str) -> str:
    """Return the sentence for a person with the ``names`` of the GPUs and how many there are; it is
    said ``of`` so many jobs, or sets of GPUs of no known job."""
    places["gpus"] = names
    several = {"gpus": gpus > 1, "several": of > 1}

    def word(found: re.Match[str]) -> str:
        if found[1] is not None:
            return places.get(found[1], found[0])
        return found[4] if several[found[2]] else found[3]

    text = _PLACE.sub(word, says)
    return text[:1].upper() + text[1:] if says.startswith(GPUS) else text


# Most of what is said is said again at the next look.
@lru_cache(maxsize=512)
def shape(says: str) -> str:
    """Return a sentence without its numbers: sentences of one shape can be one."""

    def word(found: re.Match[str]) -> str:
        return found[0] if found[1] is None else _NO_TEXT + "s" * (found[2] in _TIMES)

    return _NUMBER.sub(word, says)


def united(says: Sequence[str]) -> str:
    """Return one sentence for several of one shape: ``58-70% of the time``."""
    if says.count(says[0]) == len(says):
        return says[0]
    found = iter(zip(*[_numbers(one) for one in says], strict=True))
    return _NUMBER.sub(lambda _: _range(next(found)), says[0])


@lru_cache(maxsize=512)
def _numbers(says: str) -> tuple[re.Match[str], ...]:
    return tuple(_NUMBER.finditer(says))


def _range(found: Sequence[re.Match[str]]) -> str:
    if found[0][1] is None:
        return found[0][0]
    by_value = sorted(found, key=_value)
    low, high = by_value[0], by_value[-1]
    if _value(high) <= ALIKE * _value(low):
        return by_value[len(found) // 2][0]
    return f"{low[1]}-{high[0]}" if low[2] == high[2] else f"{low[0]} to {high[0]}"


def _value(found: re.Match[str]) -> float:
    return float(found[1]) * (_TIMES | _SIZES).get(found[2], 1.0)
