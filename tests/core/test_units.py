"""Numbers to text."""

from collections.abc import Callable

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core import units
from gpuwatch.core.registry import UNITS

GIB = 2**30


UNKNOWN_OR_ZERO = (
    *(units.percent, units.size, units.rate, units.share, units.samples, units.watts),
    *(units.celsius, units.megahertz, units.age, units.energy, units.count, units.duration),
    *(lambda value: units.size_of(value, None), *[unit.text for unit in UNITS.values()]),
)


@pytest.mark.parametrize("function", UNKNOWN_OR_ZERO)
def test_unknown_is_a_dash_and_zero_is_not(function: Callable[[float | None], str]) -> None:
    """``None`` shows as unknown; a measured zero shows as a number."""
    assert function(None) == "-"
    assert function(0).startswith("0")


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        # Bytes have a binary prefix and one decimal, and never more than six characters.
        *((units.size(value), text) for value, text in ((0, "0B"), (999, "999B"), (1000, "1.0K"))),
        (units.size(10_066_330), "9.6M"),
        (units.size(1023 * 2**20), "1.0G"),
        (units.size(139.8 * GIB), "139.8G"),
        (units.size(1.5 * 2**40), "1.5T"),
        (units.size(2000 * 2**50), "2000P"),
        # Used and total share the unit of the total.
        (units.size_of(31.2 * GIB, 139.8 * GIB), "31.2/139.8G"),
        (units.size_of(100 * 2**20, 139.8 * GIB), "0.1/139.8G"),
        (units.size_of(None, 139.8 * GIB), "-/139.8G"),
        (units.size_of(5, 100), "5/100B"),
        # Where the unit of the total would be too large for it, in its own.
        (units.size_of(100 * GIB, 2048 * GIB), "100G/2.0T"),
        (units.size_of(41.3 * GIB, 2048 * GIB), "41G/2.0T"),
        (units.size_of(4.26 * GIB, 2048 * GIB), "4.3G/2.0T"),
        (units.size_of(300 * 2**20, 2048 * GIB), "300M/2.0T"),
        (units.size_of(1536 * GIB, 2048 * GIB), "1.5/2.0T"),
        (units.size_of(0, 2048 * GIB), "0.0/2.0T"),
        # A value and its limit.
        (UNITS["watts"].text(211.6, 700), "212/700W"),
        (UNITS["watts"].text(None, 700), "-/700W"),
        (UNITS["celsius"].text(41, 87), "41/87C"),
        (UNITS["mhz"].text(1410, 1980), "1410/1980MHz"),
        (UNITS["bytes"].text(31.2 * GIB, 139.8 * GIB), "31.2/139.8G"),
        (units.rate(1.2 * GIB), "1.2G/s"),
        (units.percent(250.4), "250%"),
        (units.megahertz(1980), "1980MHz"),
        (units.interval(0.5), "0.5s"),
        *((units.duration(one), text) for one, text in ((0.0123, "12.3 ms"), (0.9996, "1 s"))),
        (units.duration(120.0), "2m00"),
        (units.interval(10.0), "10s"),
        # An age is at most six characters; a start in the future is no negative age.
        (units.age(0.9), "0s"),
        (units.age(39.978), "40s"),
        (units.age(59), "59s"),
        (units.age(187), "3m07"),
        (units.age(5 * 3600 + 12 * 60), "5h12"),
        # Nearest to an hour is an hour.
        (units.age(3569), "59m29"),
        (units.age(3599), "1h00"),
        (units.age(3 * 86400 + 4 * 3600), "3d04h"),
        (units.age(120 * 86400), "120d"),
        (units.age(-5), "0s"),
        # Joules for what is too little for a watt-hour.
        (units.energy(3500.0), "0.97Wh"),
        (units.energy(137_520.0), "38.2Wh"),
        (units.energy(359_900.0), "100Wh"),
        (units.energy(3_599_000.0), "1.00kWh"),
        # Three and more in a row are one range.
        (units.ranges(["0", "1", "2", "5"]), "0-2,5"),
        (units.ranges(["0", "1"]), "0,1"),
        (units.ranges(["0.1", "0.2", "0.3"]), "0.1,0.2,0.3"),
        (units.ranges([]), "-"),
    ],
)
def test_numbers_to_text(text: str, expected: str) -> None:
    """Each with its unit, as short as a column needs it."""
    assert text == expected


@given(st.floats(0, 999 * 2**50), st.floats(0, 9999 * 86400))
def test_no_number_is_so_long_that_a_column_would_move(size: float, age: float) -> None:
    """Six characters at the most, whatever the size and the age."""
    assert len(units.size(size)) <= 6
    assert len(units.age(age)) <= 6
