"""Which batch sizes are measured on an invented device, and what is said of the result."""

import json
from collections.abc import Callable

import pytest
from hypothesis import assume, given
from hypothesis import strategies as st
from msgspec.structs import replace

from gpuwatch.outputs.terminal import as_ascii
from gpuwatch.outputs.tuning import memory as words
from gpuwatch.outputs.tuning.chart import memory_chart
from gpuwatch.outputs.tuning.memory import page, report_json
from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.memory import AS_IS, STEPS_MOST, MemoryPoint, MemoryReport, fit_line, run

GIB = 1 << 30
MIB = 1 << 20


class Device:
    """20G; a step takes what ``course`` says, half of a sample's share under autocast, and raises
    where it does not fit or where ``fails`` says so."""

    def __init__(self, course: Callable[[int], float] | None = None, total: int = 20 * GIB) -> None:
        self.course = course or (lambda size: GIB + 100 * MIB * size)
        self.total = total
        self.asked: list[tuple[int, str]] = []
        self.fails: Callable[[int, str], BaseException | None] = lambda _size, _precision: None

    def measure(self, batch_size: int, precision: str) -> MemoryPoint:
        self.asked.append((batch_size, precision))
        error = self.fails(batch_size, precision)
        if error is not None:
            raise error
        used = self.course(batch_size)
        if precision != AS_IS:
            used = self.course(0) + (used - self.course(0)) / 2
        if used > self.total:
            raise MeasureError("CUDA out of memory.", "no_memory")
        return MemoryPoint(
            batch_size=batch_size,
            peak_bytes=int(used),
            available_bytes=self.total,
            total_bytes=self.total,
            allocated_bytes=int(0.9 * used),
            process_bytes=int(used) + 400 * MIB,
            seconds_per_step=0.001 * batch_size,
        )


def measured(
    device: Device, precisions: tuple[str, ...] = (AS_IS,), margin_share: float = 0.1
) -> MemoryReport:
    report = MemoryReport(
        step="train.py:step",
        loader=None,
        device="cuda:0",
        device_name="Test GPU",
        torch_version="2.9",
        limit_bytes=None,
        margin_share=margin_share,
    )
    run(report, device.measure, precisions, lambda _doing: None)
    return report


def test_a_line_is_measured_predicted_and_confirmed() -> None:
    """On a line: few sizes, the largest that leaves a tenth, one guarded step."""
    device = Device()
    (result,) = measured(device).results
    assert result.fits == 174
    assert len(result.points) <= 6
    assert [size for size, _ in device.asked].count(174) == 1
    # No guess from afar: half of what is predicted was measured.
    assert max(one.batch_size for one in result.points) >= 174 / 4


def test_running_out_while_growing_bounds_the_rest() -> None:
    """A wall at 30 samples: what is given fits, nothing beyond what ran out is tried again."""

    def course(size: int) -> float:
        return GIB + 100 * MIB * size + (40 * GIB if size >= 30 else 0)

    device = Device(course)
    (result,) = measured(device).results
    assert 16 <= result.fits < 30
    ran_out = [size for size, _ in device.asked if size >= 30]
    assert ran_out == sorted(set(ran_out), reverse=True)


@given(
    fixed=st.integers(0, 10 * GIB),
    per_sample=st.integers(5 * MIB, 500 * MIB),
    square=st.integers(0, 4 * MIB),
    jump_at=st.integers(17, 4000),
    jump=st.integers(0, 5 * GIB),
    margin=st.floats(0, 0.3),
)
def test_what_is_said_to_fit_did_fit(
    fixed: int, per_sample: int, square: int, jump_at: int, jump: int, margin: float
) -> None:
    """Whatever memory does: the size given fits with its margin, the one called too large does
    not, nothing is measured twice, and the measurements are bounded."""

    def course(size: int) -> float:
        return fixed + per_sample * size + square * size * size + (jump if size > jump_at else 0)

    device = Device(course)
    assume(course(2) <= 15 * GIB)
    (result,) = measured(device, margin_share=margin).results
    asked = [size for size, _ in device.asked]
    assert len(asked) == len(set(asked)) <= STEPS_MOST
    largest, too_large = result.fits, result.too_large
    room = 20 * GIB * (1 - margin / 2)
    if largest:
        assert int(course(largest)) <= room + 1
    if too_large is not None:
        assert course(too_large) > room - 1
        assert too_large > largest


def test_another_precision_is_measured_at_the_same_sizes() -> None:
    """Like is compared with like: half the memory a sample, nearly twice the batch."""
    report = measured(Device(), precisions=(AS_IS, "bfloat16"))
    plain, other = report.results
    again = {one.batch_size for one in other.points} & {one.batch_size for one in plain.points}
    assert len(again) == len(plain.points)
    assert other.fits == pytest.approx(2 * plain.fits, rel=0.02)
    (said,) = words.differences(report)
    assert said.startswith("bfloat16 autocast: fixed 1.00G -> 1.00G (the same)")
    assert "per sample 100.0M -> 50.0" in said
    assert f"largest batch 174 -> {other.fits}" in said


def test_a_precision_that_fails_leaves_the_first_as_it_is() -> None:
    """What cannot run under autocast is said; the step as it is keeps its result."""
    device = Device()
    device.fails = lambda _size, precision: (
        None if precision == AS_IS else MeasureError("no kernel for it")
    )
    report = measured(device, precisions=(AS_IS, "float16"))
    assert report.results[0].fits == 174
    assert list(words.differences(report)) == ["float16: no kernel for it"]


@pytest.mark.parametrize("at", [1, 2, 3, 4])
def test_interrupt_keeps_what_is_measured(at: int) -> None:
    """Ctrl-C ends it with the points before; there is no result without one."""
    device = Device()
    device.fails = lambda _size, _precision: (
        KeyboardInterrupt() if len(device.asked) == at else None
    )
    report = measured(device)
    assert report.interrupted
    before = [size for size, _ in device.asked[:-1]]
    assert [one.batch_size for each in report.results for one in each.points] == sorted(before)
    assert len(report.results) == (at > 1)
    assert at == 1 or "Interrupted" in page(report, width=80, unicode=True)


@pytest.mark.parametrize(
    "error", [MeasureError("all gone", "no_memory"), MeasureError("it crashed")]
)
def test_what_fails_at_once_is_raised(error: Exception) -> None:
    """Without a single point there is nothing to report."""
    device = Device()
    device.fails = lambda _size, _precision: error
    with pytest.raises(type(error)):
        measured(device)


@pytest.mark.parametrize("error", [MeasureError("too slow", "hang"), MeasureError("it crashed")])
def test_what_fails_later_ends_the_growing(error: Exception) -> None:
    """The sizes before it are kept, with the reason for there being no more."""
    device = Device()
    device.fails = lambda size, _precision: error if size > 8 else None
    (result,) = measured(device).results
    assert [one.batch_size for one in result.points] == [2, 4, 8]
    assert str(error) in result.stopped


# --- the words and the page ------------------------------------------------------------------


def test_page_has_table_chart_line_and_result() -> None:
    """A person reads what each size took, the line, how well it holds and what fits."""
    shown = page(measured(Device()), width=100, unicode=True)
    assert "GPU memory of train.py:step on cuda:0: Test GPU, 20.00G, 20.00G available" in shown
    assert "memory = 1.00G + batch x 100.0M, R² 1" in shown
    assert "The line fits" in shown
    assert "By the line batch 174 is the largest" in shown
    assert "The largest that a step has shown to fit is 174." in " ".join(shown.split())
    assert "●" in shown
    lines = shown.splitlines()
    assert "reserved" in lines[2]


@pytest.mark.parametrize("width", [60, 80, 120])
@pytest.mark.parametrize("unicode", [True, False])
def test_page_fits_its_width(width: int, unicode: bool) -> None:
    """No line is wider than the terminal; without Unicode there is only ASCII."""
    report = measured(Device(), precisions=(AS_IS, "bfloat16"))
    shown = page(report, width=width, unicode=unicode)
    assert max(len(line) for line in shown.splitlines()) <= width
    assert unicode or shown.isascii()


def test_hostile_names_are_made_harmless() -> None:
    """Nothing of a target's or a device's name reaches the terminal as a control sequence."""
    evil = "\x1b]0;owned\x07"
    hostile = replace(measured(Device()), step=f"{evil}.py:x", loader=evil, device_name=evil)
    shown = page(hostile, width=80, unicode=True)
    assert "\x1b" not in shown
    assert "\x07" not in shown


@pytest.mark.parametrize(
    ("course", "says"),
    [
        (lambda size: GIB + 100 * MIB * size, "The line fits"),
        (lambda size: max(3 * GIB, GIB + 100 * MIB * size), "the peak hardly moves"),
        (lambda size: GIB + 100 * MIB * size + (2 * GIB if size >= 32 else 0), "does not fit"),
    ],
)
def test_how_well_the_line_holds_is_said(course: Callable[[int], float], says: str) -> None:
    """A line, a floor and a jump have sentences of their own."""
    device = Device(course)
    fit = fit_line([device.measure(size, AS_IS) for size in (2, 4, 8, 16, 24, 32, 64)])
    assert says in words.quality(fit)


def test_memory_that_does_not_grow_predicts_nothing() -> None:
    """A step that ignores its batch size is asked about."""
    (result,) = measured(Device(lambda _size: GIB)).results
    assert "does the step use the batch size" in words.outcome(result)


@pytest.mark.parametrize("unicode", [True, False])
def test_chart_shows_points_and_what_can_be_had(unicode: bool) -> None:
    """Every measured size is a point, the axis begins at 0, and the limit is a rule across."""
    (result,) = measured(Device()).results
    lines = memory_chart(
        result.points, fit_line(result.points), width=80, height=14, unicode=unicode
    )
    drawn = "\n".join(lines) if unicode else as_ascii("\n".join(lines))
    assert max(len(line) for line in lines) <= 80
    assert drawn.count("●" if unicode else "o") >= 3
    assert ("─" * 20 if unicode else "-" * 20) in drawn
    assert lines[-1].split()[0] == "0"
    assert unicode or drawn.isascii()


def test_json_holds_everything() -> None:
    """Programs get points, line and prediction with units in their names."""
    report = measured(Device(), precisions=(AS_IS, "bfloat16"))
    found = json.loads(report_json(report))
    assert found["kind"] == "tune_memory"
    assert found["schema"] == 3
    first = found["results"][0]
    assert first["largest_batch_size"] == 174
    assert first["fit"]["per_sample_bytes"] == pytest.approx(100 * MIB, rel=1e-6)
    assert first["points"][0]["peak_bytes"] == GIB + 200 * MIB
    assert len(found["differences"]) == 1
