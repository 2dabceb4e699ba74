"""Random parameters whose ranges are kept apart: those for choosing thresholds, and the others."""

import math
import random
from collections.abc import Sequence
from typing import TypeVar

T = TypeVar("T")

_BINS = 12


class Draw:
    """Draws for one case.

    A range is cut into twelve bins (of equal ratio): tuning draws from bins 0, 2, 4 ..., held-out
    from 1, 3, 5 ..., so that no held-out value was ever tried, and neither half has all extremes.
    Choices of four or more are dealt out in the same way.
    """

    def __init__(self, seed: str, *, held_out: bool) -> None:
        self.rng = random.Random(f"{seed}/{'held-out' if held_out else 'tuning'}")
        self.held_out = held_out

    def span(self, low: float, high: float) -> float:
        """Between two positive numbers, evenly in the logarithm."""
        return math.exp(self.line(math.log(low), math.log(high)))

    def line(self, low: float, high: float) -> float:
        """Between two numbers, evenly."""
        odd = 1 if self.held_out else 0
        chosen = 2 * self.rng.randrange(_BINS // 2) + odd
        return low + (high - low) * (chosen + self.rng.random()) / _BINS

    def one(self, options: Sequence[T]) -> T:
        if len(options) < 4:
            return self.rng.choice(options)
        return self.rng.choice(options[1::2] if self.held_out else options[0::2])

    def any(self, options: Sequence[T]) -> T:
        """One of these in either half."""
        return self.rng.choice(options)

    def chance(self, probability: float) -> bool:
        return self.rng.random() < probability
