"""The measured points, the line through them and what is available, drawn by plotext."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from gpuwatch.core.units import size
from gpuwatch.outputs.terminal.painting import ASCII_FRAME
from gpuwatch.tuning.memory.point import MemoryPoint
from gpuwatch.tuning.memory.report import PrecisionResult

LABEL = 7
_STEPS = (1.0, 2.0, 2.5, 5.0, 10.0)
MARKS = {"braille": "●", "ascii": "o"}


def chart(result: PrecisionResult, *, width: int, height: int, unicode: bool) -> list[str]:
    """Lines no wider than ``width``; none where there is no line to draw.

    Points are ``●``, the line dotted; the rule across is what could be had. The axes begin at 0.
    """
    import plotext  # noqa: PLC0415 - only a chart pays for it

    fit = result.fit
    if fit is None:
        return []
    points = [*result.points, *_tried(result)]
    available = result.points[-1].available_bytes
    right = max(point.batch_size for point in points)
    highest = max(*(point.peak_bytes for point in points), fit.at(right))
    # A limit far above would press everything else onto the axis.
    shows_limit = available < 4 * highest
    top = max(highest, available) if shows_limit else highest
    scale = _unit(top)
    plotext.terminal.limit(False, False)
    figure = plotext.figure
    figure.clear()
    figure.plot_size(width, height)
    marker = "braille" if unicode else "."
    _line(figure, [(0, fit.at(0)), *_bend(fit), (right, fit.at(right))], scale, marker)
    if shows_limit:
        _line(figure, [(0, available), (right, available)], scale, "─" if unicode else "-")
    dots = figure.signal(
        [float(point.batch_size) for point in points],
        [point.peak_bytes / scale for point in points],
        marker=MARKS["braille" if unicode else "ascii"],
    )
    figure.draw(dots)
    y_ruler = figure.ruler("y", "left")
    y_ruler.lim(0, top / scale * 1.02)
    marks = _ticks(top / scale, 4)
    y_ruler.ticks(marks, [size(mark * scale).rjust(LABEL) for mark in marks])
    x_ruler = figure.ruler("x")
    x_ruler.lim(0, right)
    across = _ticks(right, max(2, width // 16))
    x_ruler.ticks(across, [f"{mark:.0f}" for mark in across])
    lines = [line.rstrip() for line in figure.build().string(True).split("\n")]
    while lines and not lines[-1].strip():
        lines.pop()
    return lines if unicode else [line.translate(ASCII_FRAME) for line in lines]


def _line(figure: Any, course: Sequence[tuple[float, float]], scale: float, marker: str) -> None:
    signal = figure.signal(
        [float(x) for x, _ in course], [y / scale for _, y in course], marker=marker
    )
    signal.lines()
    figure.draw(signal)


def _tried(result: PrecisionResult) -> list[MemoryPoint]:
    return [point for point in result.all_points if point not in result.points]


def _bend(fit: Any) -> list[tuple[float, float]]:
    """Where the floor ends."""
    if fit.floor_bytes is None or fit.per_sample_bytes <= 0:
        return []
    at = (fit.floor_bytes - fit.fixed_bytes) / fit.per_sample_bytes
    return [(at, fit.floor_bytes)] if at > 0 else []


def _unit(top: float) -> float:
    scale = 1.0
    while top / scale >= 1024:
        scale *= 1024
    return scale


def _ticks(top: float, count: int) -> list[float]:
    """About ``count`` round numbers from 0 to ``top``."""
    least = top / max(count, 1)
    power = 1.0
    while power * 10 <= least:
        power *= 10
    while power > least:
        power /= 10
    step = next(power * one for one in _STEPS if power * one >= least)
    return [number * step for number in range(int(top / step + 1e-9) + 1)]
