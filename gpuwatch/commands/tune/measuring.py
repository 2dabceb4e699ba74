"""Helpers that ``tune`` and ``tune memory`` share while a bench measures."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING

from gpuwatch.commands.printing import StatusLine, complain
from gpuwatch.core.text import clean

if TYPE_CHECKING:
    from gpuwatch.tuning.bench import Bench, BenchError


def check_targets(*targets: str | None) -> None:
    """Refuse what is no target, before torch is imported. Raises ``MeasureError``."""
    from gpuwatch.tuning.child.target import parse

    for one in filter(None, targets):
        parse(one)


def importing(line: StatusLine, target: str) -> Callable[[], None]:
    """Shown until the first measurement."""
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
    complain(str(error))
    if error.output:
        complain("its last output:")
    for printed in error.output:
        complain(f"| {printed}")
    return error.exit_code
