"""``--from`` and ``--to``: what a person writes, and the moment that is meant."""

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from gpuwatch.commands.recordings.reading import MomentError, parse_moment

START = 1_772_395_200.0
"""2026-03-01 20:00 UTC, 21:00 in Berlin."""


@pytest.fixture(autouse=True)
def berlin(monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    monkeypatch.setenv("TZ", "CET-1CEST,M3.5.0,M10.5.0/3")
    time.tzset()
    yield
    monkeypatch.undo()
    time.tzset()


@pytest.mark.parametrize(
    ("text", "after"),
    [
        ("21:00", 0.0),
        ("21:30", 1800.0),
        ("21:30:15", 1815.0),
        ("02:00", 5 * 3600.0),
        ("20:59", 24 * 3600.0 - 60.0),
        ("2026-03-01 22:00", 3600.0),
        ("2026-03-01T22:00:00", 3600.0),
        ("2026-03-01 21:00Z", 3600.0),
        ("2026-03-01 20:00:00 +00:00", 0.0),
        ("+15m", 900.0),
        ("+1h30m", 5400.0),
        ("+90s", 90.0),
        ("-2h", 10 * 3600.0),
        ("-1h 30min", 10.5 * 3600.0),
    ],
)
def test_a_moment_is_the_one_that_is_meant(text: str, after: float) -> None:
    """Local times; a time of day is its first from the start on; + from the start, - from the
    end."""
    assert parse_moment(text).unix(START, START + 12 * 3600) == pytest.approx(START + after)


@pytest.mark.parametrize(
    "text", ["", "soon", "25:00", "12:60", "12", "+", "-h", "+5x", "2026-13-01", "2026-02-30 10:00"]
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    """With a sentence that says how to write one."""
    with pytest.raises(MomentError, match="write it as 14:30"):
        parse_moment(text)


def test_the_end_must_be_known_to_count_from_it() -> None:
    """As it is not while standard input is read."""
    moment = parse_moment("-5m")
    assert moment.kind == "before end"
    with pytest.raises(MomentError, match="counts from the end"):
        moment.unix(START)


def test_a_time_of_day_knows_of_summer_time() -> None:
    """The day the clocks change has 23 hours."""
    start = datetime(2026, 3, 28, 22, 0).astimezone().timestamp()
    found = parse_moment("06:00").unix(start)
    assert found - start == 7 * 3600
