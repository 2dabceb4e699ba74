"""Signals as a driver would sample them: means over the time between two samples."""

import random

Samples = list[tuple[float, float]]


def square(
    period: float,
    *,
    duty: float = 0.5,
    hertz: float = 6.0,
    seconds: float | None = None,
    jitter: float = 0.0,
    noise: float = 0.0,
    seed: int = 0,
    low: float = 0.0,
    high: float = 100.0,
) -> tuple[Samples, float]:
    """(samples, the mean period) of a wave that is high for ``duty`` of each period; ``jitter``
    and ``noise`` are standard deviations, as shares of the period and in percent."""
    rng = random.Random(seed)
    seconds = max(60.0, 4.2 * period) if seconds is None else seconds
    bursts: list[tuple[float, float]] = []
    begins: list[float] = []
    at = -0.3 * period
    while at < seconds:
        length = max(0.1 * period, rng.gauss(period, jitter * period))
        begins.append(at)
        bursts.append((at, at + duty * length))
        at += length
    step = 1.0 / hertz
    samples = []
    first = 0
    for number in range(int(seconds * hertz)):
        begin, end = number * step, (number + 1) * step
        while first < len(bursts) and bursts[first][1] <= begin:
            first += 1
        share, burst = 0.0, first
        while burst < len(bursts) and bursts[burst][0] < end:
            share += min(end, bursts[burst][1]) - max(begin, bursts[burst][0])
            burst += 1
        value = low + (high - low) * share / step + rng.gauss(0.0, noise)
        samples.append((end, min(100.0, max(0.0, value))))
    inside = [begin for begin in begins if begin >= 0.0]
    return samples, (inside[-1] - inside[0]) / max(1, len(inside) - 1)


def flat(percent: float, *, hertz: float = 6.0, seconds: float = 60.0) -> Samples:
    return [((number + 1) / hertz, percent) for number in range(int(seconds * hertz))]
