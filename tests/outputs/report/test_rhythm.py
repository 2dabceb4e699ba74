"""Windows of a GPU's samples."""

from gpuwatch.outputs.report.accumulators.rhythm import Rhythm


def samples(begin: float, seconds: float, busy: int) -> list[tuple[float, float]]:
    """``busy`` tenths of each second busy, from ``begin`` on."""
    return [(begin + n / 10, 100.0 * (n % 10 < busy)) for n in range(round(seconds * 10))]


def one_by_one(added: list[tuple[float, float]]) -> Rhythm:
    rhythm = Rhythm()
    for at, percent in added:
        rhythm.add(at, percent, 0.5)
    return rhythm


def test_many_at_once_are_the_same_as_one_by_one() -> None:
    """Also where a gap lies before them: a GPU that was lost for a while has a window before and
    one after, and the gap is in none."""
    before, after = samples(0.0, 15.0, 10), samples(35.0, 15.0, 5)
    rhythm = one_by_one(before)
    for begin in range(0, len(after), 10):
        rhythm.add_unbroken(after[begin : begin + 10], 0.5)
    single = one_by_one(before + after)
    rhythm, single = rhythm.closed(), single.closed()
    assert 14.0 < single.oscillating_seconds < 16.0
    assert rhythm.oscillating_seconds == single.oscillating_seconds
