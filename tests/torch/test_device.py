"""How the device's clock is kept, with events that the test turns; nothing here is a GPU."""

from __future__ import annotations

import pytest

from gpuwatch.jobs.loop import step_file
from gpuwatch.torch import copying, reporter, step, validation, watch
from gpuwatch.torch.device import PAIRS, Device, find_device
from tests.torch.support import reported


class Cuda:
    """A stream whose work is done when the test says so; a step of it takes 3 ms."""

    def __init__(self) -> None:
        self.recorded = 0
        self.done = 0
        self.calls: list[str] = []
        self.capturing = False
        self.fails = False
        outer = self

        class Event:
            def __init__(self, *, enable_timing: bool) -> None:
                assert enable_timing
                self.number = 0

            def record(self, stream: str) -> None:
                if outer.fails:
                    raise RuntimeError("CUDA error: an illegal memory access was encountered")
                assert stream == "stream of 1"
                outer.recorded += 1
                self.number = outer.recorded

            def query(self) -> bool:
                return self.number <= outer.done

            def elapsed_time(self, end: Event) -> float:
                assert end.query()
                return 3.0 * (end.number - self.number)

            def synchronize(self) -> None:
                raise AssertionError("it must never wait")

        self.Event = Event

    def current_stream(self, device: int) -> str:
        return f"stream of {device}"

    def is_current_stream_capturing(self) -> bool:
        return self.capturing

    def memory_stats_as_nested_dict(self, device: int) -> dict[str, dict[str, dict[str, int]]]:
        return {
            "allocated_bytes": {"all": {"current": 100 * device, "peak": 300}},
            "reserved_bytes": {"all": {"current": 500}},
        }


@pytest.fixture
def cuda(monkeypatch: pytest.MonkeyPatch) -> Cuda:
    """It is found at the end of the first step."""
    made = Cuda()
    monkeypatch.setattr(reporter, "find_device", lambda: Device(made, 1))
    return made


def run_steps(cuda: Cuda, count: int, *, done: bool) -> step_file.Record:
    for _ in watch([[1]] * (count + 1)):
        if done:
            cuda.done = cuda.recorded
    if done:
        cuda.done = cuda.recorded
    reporter.REPORTER.mark(step_file.IDLE)
    return reported()


def test_steps_are_measured_once_the_device_has_done_them(cuda: Cuda) -> None:
    """And memory comes with them."""
    now, counters, _ = run_steps(cuda, 10, done=True)
    assert now.flags & step_file.DEVICE_TIMED
    assert counters.device_steps_measured == 10
    assert counters.device_step_ns == 30_000_000
    assert counters.device_steps_skipped == 0
    assert (now.memory_allocated_bytes, now.memory_reserved_bytes) == (100, 500)
    assert now.memory_peak_bytes == 300


def test_a_device_far_behind_is_not_waited_for(cuda: Cuda) -> None:
    """So many events are under way and no more; the steps without are counted."""
    _, counters, _ = run_steps(cuda, 100, done=False)
    assert counters.device_steps_measured == 0
    assert counters.device_steps_skipped == 100 - PAIRS
    assert cuda.recorded == 2 * PAIRS


def test_copies_are_measured_by_themselves(cuda: Cuda) -> None:
    """Each between two events of its own."""
    for _ in watch([[1]] * 5):
        with copying():
            pass
        cuda.done = cuda.recorded
    reporter.REPORTER.mark(step_file.IDLE)
    now, counters, _ = reported()
    assert now.flags & step_file.COPIES_TIMED
    assert (counters.device_copies_measured, counters.device_copy_ns) == (4, 12_000_000)


def test_validation_is_not_in_a_steps_time(cuda: Cuda) -> None:
    """The clock stops before and runs on after it."""
    with step():
        pass
    with step():
        with validation():
            cuda.recorded += 100
        assert cuda.recorded == 103
    cuda.done = cuda.recorded
    reporter.REPORTER.mark(step_file.IDLE)
    assert reported().counters.device_step_ns == 6_000_000


@pytest.mark.parametrize("trouble", ["capturing", "fails"])
def test_a_device_that_is_busy_otherwise_is_let_alone(cuda: Cuda, trouble: str) -> None:
    """Nothing is recorded while the job captures a graph; and the job meets a failure where it is
    its own: all else is reported on."""
    setattr(cuda, trouble, True)
    now, counters, _ = run_steps(cuda, 5, done=True)
    assert (counters.steps, counters.device_steps_measured, cuda.recorded) == (6, 0, 0)
    assert bool(now.flags & step_file.DEVICE_TIMED) == (trouble == "capturing")


def test_without_a_gpu_there_is_no_device() -> None:
    """Whether PyTorch is there or not."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.cuda.is_available():
        pytest.skip("there is a GPU")
    assert find_device() is None
