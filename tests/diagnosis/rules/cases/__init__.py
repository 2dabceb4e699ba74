"""Cases of the rules: windows, and what is said of each."""

from collections.abc import Callable, Mapping
from dataclasses import dataclass
from typing import Any

from gpuwatch.diagnosis.facts.window import Window


@dataclass(frozen=True, slots=True)
class Cases:
    """Those of one rule, each by its name: what the window shows."""

    rule: str
    fires: Mapping[str, Window | tuple[Window, Mapping[str, Any]]]
    """Windows, with parts of the firing: ``advice.0.wanted`` by the names of fields and numbers of
    items, ``settings`` of all advice, ``says`` of any evidence, ``against``: any evidence speaks
    against it, ``weaker``: than that of another case. Of sentences (``summary``, ``action``,
    ``says``) a part is given, of sets a subset; a function is asked."""
    quiet: Mapping[str, Window | tuple[Window, str]]
    """Windows, with a part of the reason; beside a healthy job, which no rule minds."""
    unknown: Mapping[str, tuple[Any, ...]]
    """Windows, with a part of each reading that is named as missing; beside a GPU alone, of which
    rules about jobs miss the job."""


def above(limit: float) -> Callable[[Any], bool]:
    return lambda value: value is not None and value > limit
