"""Quantiles of Student's t distribution, without scipy."""

from __future__ import annotations

import math
from functools import lru_cache


@lru_cache(maxsize=64)
def two_sided(freedom: int, confidence: float = 0.95) -> float:
    """The t within which ``confidence`` of the distribution lies, to both sides of 0.

    >>> round(two_sided(3), 3)
    3.182
    """
    if freedom < 1 or not 0 < confidence < 1:
        raise ValueError("freedom is at least 1 and confidence between 0 and 1")
    low, high = 0.0, 1.0
    while inside(high, freedom) < confidence:
        high *= 2
    for _ in range(200):
        middle = (low + high) / 2
        if inside(middle, freedom) < confidence:
            low = middle
        else:
            high = middle
    return (low + high) / 2


def inside(t: float, freedom: int) -> float:
    """The share of the distribution between -t and t: Abramowitz and Stegun 26.7.3 and 26.7.4,
    exact finite sums for whole degrees of freedom."""
    angle = math.atan2(t, math.sqrt(freedom))
    sine, cosine = math.sin(angle), math.cos(angle)
    if freedom % 2:
        total, term = 0.0, cosine
        for k in range(3, freedom + 1, 2):
            total += term
            term *= cosine * cosine * (k - 1) / k
        return 2 / math.pi * (angle + sine * total)
    total, term = 0.0, 1.0
    for k in range(2, freedom + 1, 2):
        total += term
        term *= cosine * cosine * (k - 1) / k
    return sine * total
