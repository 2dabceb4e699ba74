"""Logs of GPUs alone: the swing of one that works in bursts is said, and memory that is held while
nothing runs."""

import random
from collections.abc import Iterator

import pytest

from gpuwatch.core.model import Snapshot
from gpuwatch.outputs.report.accumulator import Accumulator
from gpuwatch.outputs.report.document import verdict
from gpuwatch.outputs.report.model import Report, Source
from tests.support.snapshots import gpu, snapshot

GIB = 1024**3


def waves(period: float, busy: float, spread: float, seconds: int = 600) -> Iterator[Snapshot]:
    """Polled each second, busy for this share of each swing; ``spread``: its standard deviation, as
    a share."""
    chance, edges, at = random.Random(1), list[tuple[float, float]](), 0.0
    while at < seconds:
        length = max(2.0, chance.gauss(period, spread * period))
        edges.append((at, at + busy * length))
        at += length
    for second in range(seconds):
        works = any(begin <= second < end for begin, end in edges)
        yield row(second, 99.0 if works else 0.0, 9 * GIB)


def row(second: float, busy: float, used: int) -> Snapshot:
    card = gpu(busy_percent=busy, memory_used_bytes=used, power_watts=200.0)
    return snapshot(at=100.0 + second, sequence=int(second), gpus=(card,))


def whole(made: Iterator[Snapshot]) -> Report:
    report = Accumulator()
    for one in made:
        report.push(one)
    return report.report(Source(kind="log", name="a", interval_seconds=1.0))


@pytest.mark.parametrize(
    ("period", "busy", "spread"),
    [
        (8, 0.5, 0.0),
        (11, 0.3, 0.25),
        (14, 0.7, 0.1),
        (16, 0.5, 0.25),
        (18, 0.3, 0.0),
        (25, 0.7, 0.1),
    ],
)
def test_the_swing_is_always_said(period: int, busy: float, spread: float) -> None:
    """Whether as bursts, as pauses or as what has no known cause."""
    said = verdict(whole(waves(float(period), busy, spread)))
    assert any(words in said for words in ("in bursts", "paused every", "times, for up to")), said
    assert "not enough data" not in said.lower()


def test_the_period_is_near_the_true_one() -> None:
    """Three swings a minute, of which some are longer and some shorter, have no rhythm."""
    (card,) = whole(waves(20.0, 0.3, 0.1)).gpus
    assert card.swing_seconds == pytest.approx(20.0, rel=0.1)
    (flat,) = whole(iter([row(second, 60.0, GIB) for second in range(300)])).gpus
    assert flat.swing_seconds is None


@pytest.mark.parametrize(
    ("rest", "share"),
    [
        ([(60, 9 * GIB), (180, 2 * 2**20), (30, 6 * GIB)], 1 / 3),
        # Loaded for a second now and then, which is less than a piece of a report's time.
        ([(1, 12 * GIB), (3, 2 * 2**20)] * 68, 1 / 4),
        ([(270, 2 * 2**20)], 0.0),
        ([(270, 9 * GIB)], 1.0),
    ],
)
def test_only_the_time_with_memory_held_counts(rest: list[tuple[int, int]], share: float) -> None:
    """Of a rest, what is lost is that part."""
    cycle = [(80.0, 9 * GIB)] * 120 + [
        (0.0, used) for seconds, used in rest for _ in range(seconds)
    ]
    report = whole(row(second, busy, used) for second, (busy, used) in enumerate(cycle * 4))
    idle = [phase for phase in report.phases if phase.kind in ("idle", "end")]
    assert idle
    lost = sum([one.gpu_seconds for phase in idle for one in phase.lost if one.to == "held"])
    assert lost / sum([phase.seconds for phase in idle]) == pytest.approx(share, abs=0.04)
