"""What a person writes after ``--from`` and ``--to``, or types to go to a time of a replay, and the
moment that is meant."""

import time
from collections.abc import Iterator
from datetime import datetime

import pytest

from gpuwatch.recording.moments import MomentError, parse_moment

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
        ("25%", 3 * 3600.0),
    ],
)
def test_a_moment_is_the_one_that_is_meant(text: str, after: float) -> None:
    """Local times; a time of day is its first from the start on; + from the start, - from the end,
    a share of the whole."""
    assert parse_moment(text).unix(START, START + 12 * 3600) == pytest.approx(START + after)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "soon",
        "25:00",
        "12:60",
        "12",
        "+",
        "-h",
        "+5x",
        "2026-13-01",
        "2026-02-30 10:00",
        "+9999999999d",
    ],
)
def test_what_is_no_moment_is_refused(text: str) -> None:
    """With a sentence that says how to write one."""
    with pytest.raises(MomentError, match="write it as 14:30"):
        parse_moment(text)


def test_the_end_must_be_known_to_count_from_it() -> None:
    """As it is not while standard input is read."""
    moment = parse_moment("-5m")
    assert moment.needs_end
    with pytest.raises(MomentError, match="needs the end"):
        moment.unix(START)


def test_a_time_of_day_knows_of_summer_time() -> None:
    """The day the clocks change has 23 hours."""
    start = datetime(2026, 3, 28, 22, 0).astimezone().timestamp()
    found = parse_moment("06:00").unix(start)
    assert found - start == 7 * 3600


HOUR = 3600.0


def seconds(text: str, now: float = HOUR, length: float = 12 * HOUR) -> float:
    """Into a recording from 21:00 on, of which ``now`` is shown."""
    return parse_moment(text).near(START + now, START, START + length) - START


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("21:00", 0.0),
        ("00:30", 3.5 * HOUR),
        ("04:04:10", 7 * HOUR + 250.0),
        ("4:04", 7 * HOUR + 240.0),
        ("2026-03-02 02:00", 5 * HOUR),
        ("2026-03-02T02:00:30", 5 * HOUR + 30),
        ("+5m", HOUR + 300),
        ("-30s", HOUR - 30),
        ("+90", HOUR + 90),
        ("+1h30m", 2.5 * HOUR),
        ("- 2 min", HOUR - 120),
        ("50%", 6 * HOUR),
        (" 0 % ", 0.0),
        ("12.5%", 1.5 * HOUR),
    ],
)
def test_a_replay_goes_to_it(text: str, expected: float) -> None:
    """A time of day, a day, a span from what is shown, a share of the whole."""
    assert seconds(text) == pytest.approx(expected)


def test_time_of_day_of_a_long_recording_is_the_nearest() -> None:
    """Three nights have three 23:00."""
    for night in range(3):
        now = night * 24 * HOUR + HOUR
        assert seconds("23:00", now, 70 * HOUR) == night * 24 * HOUR + 2 * HOUR


def test_minute_in_which_it_begins_is_its_beginning() -> None:
    """A recording that began at 21:00:30 has 21:00, which is before its first snapshot."""
    begin = START + 30.0
    moment = parse_moment("21:00")
    assert moment.near(begin, begin, begin + HOUR) == moment.unix(begin) == START


@pytest.mark.parametrize(
    ("text", "says"), [("120%", "ends at 100%"), ("12:00", "from 21:00:00 to 09:00:00")]
)
def test_what_the_recording_does_not_have_is_said(text: str, says: str) -> None:
    """In a sentence that names what there is."""
    with pytest.raises(MomentError, match=says):
        seconds(text)
