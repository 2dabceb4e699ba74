"""Helpers that ``tune`` and ``tune memory`` share while a bench measures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, Any

import click

from gpuwatch.commands import common

if TYPE_CHECKING:
    from gpuwatch.tuning.bench import Bench, BenchError


def duration(least: float, most: float) -> Any:
    """A callback for a time in seconds."""

    def parse(
        _context: click.Context, _parameter: click.Parameter, value: str | None
    ) -> float | None:
        return None if value is None else common.parse_duration(value, least, most)

    return parse


def importing(line: common.StatusLine, target: str) -> Callable[[], None]:
    """Shown until the first measurement."""
    from gpuwatch.core.text import clean

    shown = f"gpuwatch: {clean(target, 60)} is being imported ... (Ctrl-C ends it)"
    return lambda: line.show(shown)


def close(bench: Bench) -> None:
    """Nothing is left behind, however often Ctrl-C is pressed."""
    while True:
        try:
            return bench.close()
        except KeyboardInterrupt:
            continue


def unusable(error: BenchError) -> int:
    code = common.complain(str(error), common.EXIT_USAGE)
    if error.output:
        common.complain("its last output:", code)
        for printed in error.output:
            common.complain(f"| {printed}", code)
    return code
