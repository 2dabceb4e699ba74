"""Helpers that ``tune`` and ``tune memory`` share while a bench measures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

import click

from gpuwatch.commands.printing import EXIT_USAGE, StatusLine, complain

if TYPE_CHECKING:
    from gpuwatch.tuning.bench import Bench, BenchError


def check_targets(*targets: str | None) -> None:
    """Refuse what is no target, before torch is imported. Raises ``click.UsageError``."""
    from gpuwatch.tuning.child.target import parse
    from gpuwatch.tuning.failures import MeasureError

    for one in filter(None, targets):
        try:
            parse(one)
        except MeasureError as error:
            raise click.UsageError(str(error)) from None


def importing(line: StatusLine, target: str) -> Callable[[], None]:
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
    code = complain(str(error), EXIT_USAGE)
    if error.output:
        complain("its last output:", code)
        for printed in error.output:
            complain(f"| {printed}", code)
    return code
