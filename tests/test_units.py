"""Numbers to text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core import units

GIB = 2**30


@pytest.mark.parametrize(
    "function",
    [
        units.percent,
        units.size,
        units.rate,
        units.watts,
        units.celsius,
        units.megahertz,
        units.age,
        lambda value: units.size_of(value, None),
        lambda value: units.watts_of(value, None),
        lambda value: units.celsius_of(value, None),
    ],
)
def test_unknown_is_a_dash_and_zero_is_not(function: object) -> None:
    """``None`` shows as unknown; a measured zero shows as a number."""
    assert callable(function)
    assert function(None) == "-"
    assert function(0).startswith("0")


@pytest.mark.parametrize(
    ("value", "text"),
    [
        (0, "0B"),
        (512, "512B"),
        (999, "999B"),
        (1000, "1.0K"),
        (10_066_330, "9.6M"),
        (1023 * 2**20, "1.0G"),
        (139.8 * GIB, "139.8G"),
        (1.5 * 2**40, "1.5T"),
        (2000 * 2**50, "2000P"),
    ],
)
def test_size(value: float, text: str) -> None:
    """Bytes are shown with a binary prefix and one decimal."""
    assert units.size(value) == text


@given(st.floats(0, 999 * 2**50))
def test_size_is_at_most_six_characters(value: float) -> None:
    """No size is so long that a column would move."""
    assert len(units.size(value)) <= 6


@pytest.mark.parametrize(
    ("used", "total", "text"),
    [
        (31.2 * GIB, 139.8 * GIB, "31.2/139.8G"),
        (100 * 2**20, 139.8 * GIB, "0.1/139.8G"),
        (None, 139.8 * GIB, "-/139.8G"),
        (31.2 * GIB, None, "31.2G"),
        (5, 100, "5/100B"),
        (100 * GIB, 2048 * GIB, "0.10/2.0T"),
    ],
)
def test_size_of(used: float | None, total: float | None, text: str) -> None:
    """Used and total share the unit of the total."""
    assert units.size_of(used, total) == text


def test_parts_of_a_limit() -> None:
    """A limit stands behind the value, and an unknown value is a dash before it."""
    assert units.watts_of(211.6, 700) == "212/700W"
    assert units.watts_of(None, 700) == "-/700W"
    assert units.celsius_of(41, 87) == "41/87C"
    assert units.celsius_of(None, 87) == "-/87C"


@pytest.mark.parametrize(
    ("seconds", "text"),
    [
        (0.9, "0s"),
        (59, "59s"),
        (187, "3m07"),
        (5 * 3600 + 12 * 60, "5h12"),
        (3 * 86400 + 4 * 3600, "3d04h"),
        (120 * 86400, "120d"),
        (-5, "0s"),
    ],
)
def test_age(seconds: float, text: str) -> None:
    """An age is at most six characters; a start in the future is no negative age."""
    assert units.age(seconds) == text


@given(st.floats(0, 9999 * 86400))
def test_age_is_at_most_six_characters(seconds: float) -> None:
    """No age up to decades is longer than its column."""
    assert len(units.age(seconds)) <= 6


def test_rate_percent_megahertz_interval() -> None:
    """The remaining units."""
    assert units.rate(1.2 * GIB) == "1.2G/s"
    assert units.percent(250.4) == "250%"
    assert units.megahertz(1980) == "1980MHz"
    assert [units.interval(value) for value in (0.5, 1.0, 10.0)] == ["0.5s", "1s", "10s"]


@pytest.mark.parametrize(
    ("joules", "text"),
    [
        (None, "-"),
        (0.0, "0J"),
        (3500.0, "3500J"),
        (3600.0, "1.0Wh"),
        (137_520.0, "38.2Wh"),
        (359_900.0, "100Wh"),
        (3_599_000.0, "1.00kWh"),
        (36e6, "10.00kWh"),
    ],
)
def test_energy_is_in_watt_hours(joules: float | None, text: str) -> None:
    """Joules for what is too little for a watt-hour."""
    assert units.energy(joules) == text
