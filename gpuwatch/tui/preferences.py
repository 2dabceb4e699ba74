"""Preferences: choices kept for the next time, in a small file that is also written by hand."""

import re
from collections.abc import Collection, Mapping
from pathlib import Path
from typing import Any

from gpuwatch.core.private_files import config_file, make_folder, why, write_whole
from gpuwatch.core.text import clean
from gpuwatch.core.units import PRICE_MOST, is_price
from gpuwatch.tui.charts.timeline import SPANS
from gpuwatch.tui.terminal.palette import KNOWN_THEMES
from gpuwatch.tui.view import INTERVALS, SORT_KEYS, View

_MOST_BYTES = 65_536
_HEAD = "# What was chosen on gpuwatch's screens. Other comments and their lines stay.\n"


_ALLOWED: Mapping[str, Collection[object]] = {
    "theme": ("dark", "light", "ansi", *sorted(KNOWN_THEMES)),
    "sort": SORT_KEYS,
    "reverse": (True, False),
    "range_seconds": tuple(map(int, SPANS)),
    "interval_seconds": INTERVALS,
}
"""Values that each preference can have, by its name."""
_FORMER = {"hidden_columns"}
"""Preferences that are passed over: earlier versions wrote them."""
_PRICE = "price"
"""A price for each GPU-hour, in money of any kind: a number that only a person writes."""


class Preferences:
    """Preferences of a file, by default the user's own. ``problem``: why it is as if there were
    none; it is left as it is then."""

    def __init__(self, path: Path | None = None) -> None:
        self._path = config_file() if path is None else path
        self.problem: str | None = None
        self.values: dict[str, Any] = {}
        self._before: dict[str, Any] = {}
        try:
            self.values = self._read()[1]
        except OSError as error:
            self.problem = f"{self._name} cannot be read: {why(error)}"
        except ValueError as error:
            self.problem = f"{clean(self._path.name)} is not used: {clean(str(error), 200)}"

    @property
    def _name(self) -> str:
        return clean(str(self._path), 120)

    def _read(self) -> tuple[str, dict[str, Any]]:
        """Read the file: its text and what it says. Raises ``OSError`` and, with a sentence,
        ``ValueError``."""
        if not self._path.exists():
            return _HEAD, {}
        if not self._path.is_file() or self._path.stat().st_size > _MOST_BYTES:
            raise ValueError("it is not a small text file")
        import tomllib  # noqa: PLC0415 - most people have no such file

        text = self._path.read_bytes().decode()
        values = tomllib.loads(text)
        for name, value in values.items():
            if name in _FORMER or (name == _PRICE and is_price(value)):
                continue
            if name == _PRICE:
                raise ValueError(f"{name} must be a number from 0 to {PRICE_MOST:,}")
            if name not in _ALLOWED:
                raise ValueError(f"{name} is none of {', '.join(_ALLOWED)}, {_PRICE}")
            if isinstance(value, list) or value not in _ALLOWED[name]:
                allowed = ", ".join([str(one) for one in _ALLOWED[name]])
                raise ValueError(f"{name} must be one of {allowed}")
        return text, values

    def apply(self, view: View) -> None:
        """Apply the preferences to ``view``."""
        values = self.values
        view.sort, view.reverse = values.get("sort", view.sort), values.get("reverse", False)
        span = values.get("range_seconds", view.timeline.span_seconds)
        view.timeline = type(view.timeline)(span)
        view.price_per_gpu_hour = values.get(_PRICE)

    def begin(self, view: View, theme: str) -> None:
        """Note the values of now: from here on a change is the person's."""
        self._before = _chosen(view, theme)

    def save(self, view: View, theme: str) -> str | None:
        """Write what has changed to the file; else a sentence. What others have written there
        meanwhile stays."""
        now = _chosen(view, theme)
        changed = {name: now[name] for name, value in self._before.items() if now[name] != value}
        if not changed or self.problem is not None:
            return None
        try:
            data = _with(*self._read(), changed).encode()
            if not self._path.parent.exists():
                make_folder(self._path.parent)
            # A link to where somebody keeps all such files stays one.
            write_whole(self._path.resolve(), data)
        except OSError as error:
            return f"{self._name} cannot be written: {why(error)}."
        except ValueError as error:
            return f"{self._name} is left as it is: {clean(str(error), 200)}."
        return None


def _chosen(view: View, theme: str) -> dict[str, Any]:
    found = {
        "theme": theme,
        "sort": view.sort,
        "reverse": view.reverse,
        "range_seconds": int(view.chosen_span_seconds),
    }
    if view.replay is None:
        found["interval_seconds"] = view.interval_seconds
    return found


def _with(text: str, values: Mapping[str, Any], changed: Mapping[str, Any]) -> str:
    """Return ``text``, which holds ``values``, with those that have changed: each in its line,
    where it has one, before the comment there. Raises ``ValueError``."""
    import json  # noqa: PLC0415 - most people change nothing
    import tomllib  # noqa: PLC0415

    for name, value in changed.items():
        line = rf"^([ \t]*{name}[ \t]*=[ \t]*)[^#\n]*?([ \t]*(?:#.*)?)$"
        written = json.dumps(value)
        text, count = re.subn(line, lambda m: m[1] + written + m[2], text, flags=re.M)  # noqa: B023
        if not count:
            text = f"{text.rstrip()}\n{name} = {written}\n"
    if tomllib.loads(text) != {**values, **changed}:
        raise ValueError("it is written in a way that only you can change")
    return text
