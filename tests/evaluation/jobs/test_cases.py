"""The labelled cases: the same each time, apart where they must be, and true."""

import random
from dataclasses import replace

import pytest

from gpuwatch.sources.simulated.processes import Meter
from tests.evaluation import cases
from tests.evaluation.case import HEALTHY, judge
from tests.evaluation.jobs import cards
from tests.evaluation.jobs.draw import Draw
from tests.evaluation.jobs.physics import Checkpoint, Course, Still, Work, steps_per_second

FED = Work(workers=4, batch_cpu=0.2, gpu=0.2, python=0.05, batch_bytes=1e6)


@pytest.mark.parametrize("knob", sorted(cases.KNOBS))
def test_every_knob_makes_a_case_that_can_be_watched(knob: str) -> None:
    """Its label is among its right answers, and its GPUs are in its snapshots."""
    case = cases.one(knob, "smoke", held_out=False)
    short = replace(case, rig=replace(case.rig, seconds=8.0))
    snapshots = list(short.watch())
    for subject in case.subjects:
        assert subject.label in subject.accepted
        assert max(subject.gpus) < len(snapshots[-1].gpus)
    assert bool(snapshots[-1].jobs) != case.log


def test_a_case_is_the_same_each_time() -> None:
    """Everything follows from its name."""
    one, other = (cases.one("straggler", "7/3", held_out=True) for _ in range(2))
    assert one == other
    short = replace(one, rig=replace(one.rig, seconds=5.0))
    assert list(short.watch()) == list(short.watch())


def test_held_out_parameters_are_apart_from_those_for_tuning() -> None:
    """No range's part is drawn from in both, and no model of GPU is."""
    tuning, held_out = (Draw("x", held_out=which) for which in (False, True))
    drawn = [[int(draw.line(0.0, 12.0)) for _ in range(300)] for draw in (tuning, held_out)]
    assert set(drawn[0]) == {0, 2, 4, 6, 8, 10}
    assert set(drawn[1]) == {1, 3, 5, 7, 9, 11}
    options = (1, 2, 3, 4, 5)
    assert {tuning.one(options) for _ in range(50)} == {1, 3, 5}
    assert {held_out.one(options) for _ in range(50)} == {2, 4}
    names = [{card.name for card in some} for some in (cards.TUNING, cards.HELD_OUT)]
    assert not names[0] & names[1]


def test_a_job_is_as_fast_as_its_slowest_part() -> None:
    """The GPU's time where it is fed; the loader's rate, or Python's, where that is less."""
    assert steps_per_second(FED, 1) == pytest.approx(1 / 0.2, rel=0.05)
    starved = replace(FED, workers=2, batch_cpu=1.0)
    assert steps_per_second(starved, 1) == pytest.approx(2.0, rel=0.1)
    slow_python = replace(FED, python=0.4)
    assert steps_per_second(slow_python, 1) == pytest.approx(1 / 0.4, rel=0.05)


def test_the_costlier_of_two_causes_is_the_label() -> None:
    """What a cure gains decides, not which knob was turned first."""
    both = replace(FED, workers=1, batch_cpu=0.8, python=0.25)
    cures = {
        "python_bound": replace(both, python=0.05),
        "loader_cpu_bound": replace(both, workers=8),
    }
    label, right, lost = judge(both, 1, cures)
    assert (label, right) == ("loader_cpu_bound", frozenset({"loader_cpu_bound"}))
    assert lost > 0.5


def test_a_knob_that_costs_nothing_is_no_fault() -> None:
    """A job that loads in its own process, next to no time, is healthy."""
    inside = replace(FED, workers=0, batch_cpu=0.001)
    label, right, _ = judge(inside, 1, {"loader_in_main_process": FED})
    assert (label, right) == (HEALTHY, frozenset({HEALTHY}))


def test_while_one_rank_saves_the_others_spin() -> None:
    """Their kernels stay resident, inside the collective, at little power."""
    saved = Checkpoint(every=100.0, bytes=5e9, rate=1e9, first=2.0)
    devices = [Still(), Still()]
    for device in devices:
        device.phases = type(device.phases)()
    course = Course(
        replace(FED, checkpoint=saved), devices, random.Random(1), begin=0.0, reads=Meter(),
        writes=Meter()
    )  # fmt: skip
    course.advance(9.0)
    idle, spinning = (
        max(stop - start for start, stop, activity in device.phases if activity.power < 0.4)
        for device in devices
    )
    assert spinning > 4.0 > idle
