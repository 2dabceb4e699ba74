"""Jobs that pause, and what is said of their pauses: saves, metrics, recompiles, kernels that are
tuned before the first step."""

from collections.abc import Iterator

import pytest

from gpuwatch.core.model import Snapshot
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.outputs.report.accumulator import Accumulator
from gpuwatch.outputs.report.document import outcome, verdict
from gpuwatch.outputs.report.model import Report, Source
from tests.diagnosis.engines import rules_of, told
from tests.evaluation.simulator.gauges import View
from tests.evaluation.simulator.observe import Observer
from tests.evaluation.simulator.setting import (
    Pause,
    Setting,
    late_save,
    metrics,
    new_epoch,
    recompile,
)

ATTACHED = pytest.mark.parametrize("attached", [True, False])


def watched(
    *pauses: tuple[float, Pause],
    attached: bool = True,
    age: float | None = None,
    seconds: float = 100.0,
    tune_seconds: float = 0.0,
) -> Iterator[Snapshot]:
    """A job with such pauses, each every so many seconds; ``age``: that of a young one."""
    setting = Setting("pauses")
    setting.young = age is not None
    machine = setting.computer(cores=16)
    setting.train(gpu=0.15, workers=4, loads=0.2, pauses=pauses, tune_seconds=tune_seconds)
    start = 25.0 if age is None else age
    return Observer(machine, View(attached=attached), start).watch(seconds)


def whole(made: Iterator[Snapshot]) -> Report:
    report = Accumulator()
    for one in made:
        report.push(one)
    return report.report(Source(kind="recording", name="a", interval_seconds=1.0))


@ATTACHED
@pytest.mark.parametrize("seconds", [2.0, 3.0])
def test_a_save_every_ten_seconds_is_counted_each_time(seconds: float, attached: bool) -> None:
    """Its pages are written back when the GPU works again; pauses are short, and close together."""
    said = told(watched((10.0, late_save(1.2e9, seconds)), attached=attached))
    (saves,) = [one for one in said[-1].findings if one.rule == "checkpoint_pauses"]
    assert said[-1].findings[0] == saves
    counted = [one.value for one in saves.evidence if one.name == "pauses with writes"]
    assert isinstance(counted[0], float)
    assert counted[0] >= 7.0
    assert (saves.cost_share or 0.0) >= 0.6 * seconds / 10.0
    assert not any(map(contradicts_itself, said))


def contradicts_itself(said: Diagnosis) -> bool:
    sure = any(one.confidence >= 0.9 for one in said.findings)
    return sure and "not enough data" in said.verdict


@ATTACHED
def test_a_young_job_that_loses_a_quarter_is_not_called_busy(attached: bool) -> None:
    """Four seconds of metrics every sixteen, of which one or two are seen in forty seconds."""
    job = (16.0, metrics(4.0))
    last = told(watched(job, attached=attached, age=14.0, seconds=40.0))[-1]
    assert not last.decided
    assert "paused" in last.verdict
    assert "kept busy" not in last.verdict
    report = whole(watched(job, attached=attached, age=14.0, seconds=40.0))
    assert outcome(report) == "undecided"
    assert "paused" in verdict(report)


@ATTACHED
def test_recompiles_are_named(attached: bool) -> None:
    """Compilers run in the pauses; Python is not to blame, nor a validation."""
    said = told(watched((25.0, recompile(7.0)), attached=attached, seconds=150.0))
    assert {rule for one in said for rule in rules_of(one)} == {"recompiles"}
    assert rules_of(said[-1]) == ["recompiles"]


@ATTACHED
@pytest.mark.parametrize("age", [14.0, None])
def test_workers_that_restart_are_named_in_the_second_epoch(
    age: float | None, attached: bool
) -> None:
    """Epochs of 20 s and 7 s to start workers; watched from the start on or late, and the imports
    of the new workers are no loading."""
    job = (27.0, new_epoch(7.0))
    said = told(watched(job, attached=attached, age=age, seconds=110.0))
    assert {rule for one in said for rule in rules_of(one)} == {"workers_restart"}
    first = next(at for at, one in enumerate(said) if one.findings)
    assert first < 2 * 27.0 + 14.0
    (found,) = said[-1].findings
    assert [one.setting for one in found.advice] == ["persistent_workers"]
    assert found.gain is not None
    assert found.gain.factor == pytest.approx(27.0 / 20.0, rel=0.1)


@ATTACHED
def test_tuning_kernels_before_the_first_step_is_start_up(attached: bool) -> None:
    """Minutes of bursts on the GPU between compilers that live for a moment, with a full core."""
    made = list(watched(attached=attached, age=8.0, seconds=240.0, tune_seconds=150.0))
    said = told(iter(made))
    assert {rule for one in said for rule in rules_of(one)} == set()
    assert "kept busy" in said[-1].verdict
    report = whole(iter(made))
    assert report.findings == ()
    assert "starting" not in verdict(report)
    assert sum(loss.gpu_seconds for one in report.phases for loss in one.lost) == pytest.approx(
        sum(loss.gpu_seconds for one in report.phases for loss in one.lost if loss.to == "start")
    )
