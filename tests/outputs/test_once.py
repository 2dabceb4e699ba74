"""One look at a machine."""

import threading

import pytest

from gpuwatch.commands.watching import HOST_SECONDS, SETTLE_SECONDS, NoAnswerError, look_once
from gpuwatch.core.model import Snapshot
from gpuwatch.core.source import ReadOptions
from tests.support.snapshots import snapshot


class CountingSource:
    """Gives numbered snapshots."""

    def __init__(self, simulated: bool = False) -> None:
        self.simulated = simulated
        self.options = ReadOptions()
        self.calls: list[str] = []
        self.hang: threading.Event | None = None
        self.driver_waits: list[float] = []

    def open(self) -> None:
        self.calls.append("open")

    def read(self) -> Snapshot:
        self.calls.append("read")
        self.driver_waits.append(self.options.driver_wait_seconds or 0.0)
        if self.hang is not None:
            self.hang.wait(20)
        return snapshot(sequence=self.calls.count("read"))

    def close(self) -> None:
        self.calls.append("close")


def test_two_reads_with_a_pause_between() -> None:
    """Rates need two reads: the second is given, and the source knows the interval."""
    source = CountingSource()
    pauses: list[float] = []
    taken = look_once(source, settle_seconds=0.5, pause=pauses.append)
    assert taken.sequence == 2
    assert source.options.interval_seconds == 0.5
    look_once(source, pause=pauses.append)
    assert pauses[0] == 0.5
    assert SETTLE_SECONDS <= pauses[1] <= HOST_SECONDS


@pytest.mark.parametrize(("simulated", "settle"), [(False, 0.0), (True, 0.5)])
def test_one_read_when_quick_or_simulated(simulated: bool, settle: float) -> None:
    """Quick means one read; a simulated machine has a past already."""
    source = CountingSource(simulated)
    taken = look_once(source, settle_seconds=settle, pause=pytest.fail)
    assert taken.sequence == 1


def test_a_machine_that_hangs_is_a_sentence() -> None:
    """A read that does not come back in time is given up, after saying that it is waited for."""
    source = CountingSource()
    source.hang = threading.Event()
    said: list[str] = []
    with pytest.raises(NoAnswerError, match="has not answered for"):
        look_once(
            source,
            patience_seconds=0.03,
            host_patience_seconds=0.03,
            on_wait=lambda: said.append("waiting"),
        )
    source.hang.set()
    assert said == ["waiting"]


def test_the_driver_is_waited_for_once() -> None:
    """The source is told how long to wait for its driver; two reads share that time."""
    source = CountingSource()
    look_once(source, patience_seconds=7.0, pause=lambda _: None)
    first, second = source.driver_waits
    assert 0 <= second <= first <= 7.0
    assert first > 1.0
