"""Which batch sizes are measured on an invented device, the line through them, and what is said."""

from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st

from gpuwatch.outputs.tuning import memory_text, outcome
from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.memory import STEPS_MOST, MemoryReport, run
from gpuwatch.tuning.records import MemoryPoint

GIB = 1 << 30
MIB = 1 << 20


class Device:
    """20G; a step takes what ``course`` says, and raises where it does not fit or where ``fails``
    says so."""

    def __init__(self, course: Callable[[int], float] | None = None) -> None:
        self.course = course or (lambda size: GIB + 100 * MIB * size)
        self.asked: list[int] = []
        self.fails: Callable[[int], BaseException | None] = lambda _size: None

    def measure(self, batch_size: int) -> MemoryPoint:
        self.asked.append(batch_size)
        error = self.fails(batch_size)
        if error is not None:
            raise error
        used = self.course(batch_size)
        if used > 20 * GIB:
            raise MeasureError("CUDA out of memory.", "no_memory")
        return MemoryPoint(
            batch_size=batch_size,
            peak_bytes=int(used),
            available_bytes=20 * GIB,
            total_bytes=20 * GIB,
            allocated_bytes=int(0.9 * used),
            seconds_per_step=0.001 * batch_size,
        )


def measured(device: Device) -> MemoryReport:
    report = MemoryReport(
        step="train.py:step",
        device="cuda:0",
        device_name="Test GPU",
        torch_version="2.9",
        limit_bytes=None,
    )
    run(report, device.measure, lambda _doing: None)
    return report


def test_three_sizes_make_a_line_and_one_guarded_step_confirms_it() -> None:
    """On a line of 100M a sample: the largest batch that leaves a tenth is predicted and tried."""
    device = Device()
    result = measured(device)
    assert device.asked == [8, 16, 32, 174]
    assert result.fit.per_sample_bytes == pytest.approx(100 * MIB)
    assert result.fit.fixed_bytes == pytest.approx(GIB)
    assert result.fits == 174


def test_small_sizes_that_share_a_floor_are_left_out_of_the_line() -> None:
    """Where the optimizer's step takes more than small batches do, the line is that of the rest."""
    result = measured(Device(lambda size: max(4 * GIB, 2 * GIB + 30 * MIB * size)))
    assert result.fit.per_sample_bytes == pytest.approx(30 * MIB, rel=0.02)
    assert result.fits == pytest.approx((18 - 2) * 1024 / 30, rel=0.02)


def test_a_predicted_size_that_runs_out_is_tried_once_smaller() -> None:
    """A wall above 100 samples, where the line says 174: it is caught, and a smaller one tried."""
    device = Device(lambda size: GIB + 100 * MIB * size + (40 * GIB if size > 160 else 0))
    result = measured(device)
    assert result.ran_out_at == 174
    assert result.fits == 156
    assert "174 ran out of memory" in outcome(result)


@given(
    fixed=st.integers(0, 10 * GIB),
    per_sample=st.integers(MIB // 100, 500 * MIB),
    square=st.integers(0, 4 * MIB),
    jump_at=st.integers(17, 4000),
    jump=st.integers(0, 5 * GIB),
)
def test_whatever_is_said_to_fit_did_fit(
    fixed: int, per_sample: int, square: int, jump_at: int, jump: int
) -> None:
    """Whatever memory does: the size given fits with its margin, nothing is measured twice, and
    the measurements are bounded."""

    def course(size: int) -> float:
        return fixed + per_sample * size + square * size * size + (jump if size > jump_at else 0)

    device = Device(course)
    assume(course(1) <= 15 * GIB)
    result = measured(device)
    asked = device.asked
    assert len(asked) == len(set(asked)) <= STEPS_MOST
    if result.fits:
        assert int(course(result.fits)) <= 20 * GIB * 0.95 + 1


@pytest.mark.parametrize("at", [1, 2, 4])
def test_interrupt_keeps_what_is_measured(at: int) -> None:
    """Ctrl-C ends it with the points before; there is no result without one."""
    device = Device()
    device.fails = lambda _size: KeyboardInterrupt() if len(device.asked) == at else None
    report = measured(device)
    assert report.interrupted
    assert [one.batch_size for one in report.points] == device.asked[:-1]
    assert at == 1 or "Interrupted" in memory_text(report, width=80, unicode=True)


@pytest.mark.parametrize(
    "error", [MeasureError("all gone", "no_memory"), MeasureError("it crashed")]
)
def test_a_failure_of_the_first_step_is_raised(error: Exception) -> None:
    """Without a single point there is nothing to report."""
    device = Device()
    device.fails = lambda _size: error
    with pytest.raises(type(error)):
        measured(device)


def test_a_step_that_ignores_its_batch_size_is_asked_about() -> None:
    """Memory that does not grow makes no prediction."""
    result = measured(Device(lambda _size: GIB))
    assert result.predicted is None
    assert "does the step use the batch size it is given?" in outcome(result)


@pytest.mark.parametrize(("width", "unicode"), [(40, True), (80, False), (120, True)])
def test_text_says_the_line_and_fits_its_width(width: int, unicode: bool) -> None:
    """Table, line and result; no line wider than the terminal, ASCII without Unicode, and
    nothing of a target's name reaches the terminal as a control sequence."""
    report = measured(Device())
    report.step = "\x1b]0;owned\x07.py:step"
    shown = memory_text(report, width=width, unicode=unicode)
    assert max(len(line) for line in shown.splitlines()) <= width
    assert unicode or shown.isascii()
    assert "\x1b" not in shown
    words = " ".join(shown.split())
    assert "memory = 1.00G + batch x 100.0M; it holds: at most" in words
    assert "the largest that a step has shown to fit is 174." in words
