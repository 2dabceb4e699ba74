"""Times as they are typed to go to one."""

import pytest

from gpuwatch.tui.replay.time import TimeError, parse_time
from tests.support.long_recording import BEGIN_UNIX_SECONDS as BEGIN

HOUR = 3600.0


def seconds(text: str, now: float = HOUR, length: float = 12 * HOUR) -> float:
    """Into a recording from 20:00 on, of which ``now`` is shown."""
    return parse_time(text, BEGIN, BEGIN + now, BEGIN + length) - BEGIN


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("20:00", 0.0),
        ("23:30", 3.5 * HOUR),
        ("03:04:10", 7 * HOUR + 250.0),
        ("3:04", 7 * HOUR + 240.0),
        ("2026-03-02 01:00", 5 * HOUR),
        ("2026-03-02T01:00:30", 5 * HOUR + 30),
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
def test_time_is_read(text: str, expected: float) -> None:
    """A time of day, a day, a span from here, a share of the whole."""
    assert seconds(text) == pytest.approx(expected)


def test_time_of_day_of_a_long_recording_is_the_nearest() -> None:
    """Three nights have three 23:00."""
    for night in range(3):
        now = night * 24 * HOUR + 2 * HOUR
        assert seconds("23:00", now, 70 * HOUR) == night * 24 * HOUR + 3 * HOUR


def test_minute_in_which_it_begins_is_its_beginning() -> None:
    """A recording that began at 20:00:30 has 20:00, which is before its first snapshot."""
    at = parse_time("20:00", BEGIN + 30.0, BEGIN + 30.0, BEGIN + HOUR)
    assert at == BEGIN


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("soon", "write 14:30"),
        ("", "write 14:30"),
        ("25:00", "no such time of day"),
        ("10:61", "no such time of day"),
        ("2026-02-30 10:00", "no such day"),
        ("120%", "ends at 100%"),
        ("12:00", "from 20:00:00 to 08:00:00"),
        ("+9999999999d", "write 14:30"),
    ],
)
def test_what_is_no_time_is_said(text: str, says: str) -> None:
    """In a sentence that names what could be written, or what there is."""
    with pytest.raises(TimeError, match=says):
        seconds(text)
