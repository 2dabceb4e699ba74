"""What a cause cost."""

from dataclasses import replace
from itertools import pairwise

import pytest

from gpuwatch.core.model import Gpu, GpuIdentity, GpuReading
from gpuwatch.diagnosis.accounting import GpuTime
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.finding import Finding
from gpuwatch.diagnosis.rule import Verdict
from tests.diagnosis import engines as e
from tests.diagnosis.windows import gpu, job, pause, swinging, window

TWO = window(gpus=(gpu(0, busy=swinging(0.4)), gpu(1, busy=swinging(0.4))))


def _cost(finding: Finding) -> tuple[float, float]:
    assert finding.cost_share is not None
    assert finding.cost_gpu_seconds is not None
    return finding.cost_share, finding.cost_gpu_seconds


@pytest.mark.parametrize(("gpus", "count"), [((), 2), (("GPU-1",), 1)])
def test_a_steady_loss_is_that_share_of_the_time_watched(gpus: tuple[str, ...], count: int) -> None:
    """Half of the time of two GPUs, or of the one that is named, over a minute of window and five
    of watching."""
    fault = e.firing(lost_share=0.5, gpus=gpus)
    assert _cost(e.after(301, {"fault": fault}, TWO).findings[0]) == (
        pytest.approx(0.5 * count / 2, rel=0.04),
        pytest.approx(0.5 * count * 360, rel=0.04),
    )


def test_windows_that_overlap_count_once() -> None:
    """A fault of the last minute of five costs what the GPU idled in that minute."""

    def check(one: Window) -> Verdict:
        lost = one.gpus[0].idle_share
        return e.firing(lost_share=lost) if lost > 0.1 else e.CLEAR

    engine = Engine([e.rule_of("fault", check)])
    identity = GpuIdentity(index=0, uuid="GPU-0", name="card")
    for second in range(301):
        reading = GpuReading(busy_percent=99.0 if second < 240 else 40.0)
        seen = Gpu(identity=identity, reading=reading)
        engine.push(replace(e.snapshot(second), gpus=(seen,)))
    # A few seconds before it were not worth a look of their own.
    assert _cost(engine.diagnosis.findings[0])[1] == pytest.approx(0.6 * 60, rel=0.12)


def test_a_loss_that_begins_or_ends_within_a_window_is_counted_for_as_long_as_it_lasts() -> None:
    """A clock that is a fifth lower for two minutes costs 24 s, though each window says what it
    cost on average."""

    def check(one: Window) -> Verdict:
        lost = 1.0 - (one.gpus[0].sm_clock_busy_mhz or 2000.0) / 2000.0
        return e.firing(lost_share=lost) if lost > 0.01 else e.CLEAR

    engine = Engine([replace(e.rule_of("fault", check), lost_while_busy=True)])
    identity = GpuIdentity(index=0, uuid="GPU-0", name="card")
    costs = dict[int, float]()
    for second in range(280):
        clock = 1600 if 100 <= second < 220 else 2000
        reading = GpuReading(busy_percent=99.0, sm_clock_mhz=clock)
        engine.push(replace(e.snapshot(second), gpus=(Gpu(identity=identity, reading=reading),)))
        for finding in engine.diagnosis.findings:
            costs[second] = _cost(finding)[1]
    assert costs[160] == pytest.approx(0.2 * 60, rel=0.12)
    assert costs[219] == pytest.approx(0.2 * 120, rel=0.12)
    # That it is over shows at the next look, up to twenty seconds later.
    assert costs[max(costs)] == pytest.approx(0.2 * (120 + 20), rel=0.12)


def test_two_causes_do_not_count_the_same_time() -> None:
    """Together they lost no more than the GPU idled."""
    says = {
        "a": e.firing(strength=0.9, lost_share=0.4),
        "b": e.firing(strength=0.8, lost_share=0.4),
    }
    said = e.play(e.scripted(says, window(gpus=(gpu(busy=swinging(0.4)),))), range(200))
    idle = 1.0 - 0.4 * 0.98
    assert [one.rule for one in said[-1].findings] == ["a", "b"]
    assert sum(_cost(one)[0] for one in said[-1].findings) == pytest.approx(idle, rel=0.06)
    now = [one.lost_share or 0.0 for one in said[-1].findings]
    assert now == [0.4, pytest.approx(idle - 0.4)]


@pytest.mark.parametrize(("gpus", "share"), [((), 0.5), (("GPU-1",), 0.25)])
def test_the_share_that_is_lost_now_is_that_of_the_sentence(
    gpus: tuple[str, ...], share: float
) -> None:
    """Of the time of all GPUs of the job, however long it was watched before the fault began."""
    fault = e.between(200, 300, e.firing(lost_share=0.5, gpus=gpus))
    finding = e.play(e.scripted({"fault": fault}, TWO), range(260))[-1].findings[0]
    assert finding.lost_share == share
    assert _cost(finding)[0] < 0.8 * share


def test_what_loses_no_time_has_no_cost() -> None:
    """A full memory is no lost second."""
    (full,) = e.after(20, {"memory_nearly_full": e.firing(lost_share=None)}).findings
    assert (full.cost_share, full.cost_gpu_seconds) == (None, None)


def test_the_cost_stays_while_a_fault_is_being_taken_back() -> None:
    """What was lost is lost, and does not grow any more, once a look has found that it is over."""
    said = e.play(e.scripted({"fault": e.between(0, 30, e.firing(lost_share=0.5))}, TWO), range(46))
    assert _cost(said[-1].findings[0])[1] == pytest.approx(_cost(said[41].findings[0])[1])
    assert _cost(said[41].findings[0])[1] <= 0.5 * 2 * (60 + 40)


def test_what_is_lost_grows_with_every_snapshot() -> None:
    """Also between two looks, which are ten seconds apart: by half of two GPUs each second, and
    with it the time that was watched."""
    said = e.play(e.scripted({"fault": e.firing(lost_share=0.5)}, TWO), range(60, 91))
    costs = [_cost(one.findings[0])[1] for one in said[-16:]]
    watched = [one.findings[0].watched_gpu_seconds or 0.0 for one in said[-16:]]
    assert [later - one for one, later in pairwise(costs)] == pytest.approx([1.0] * 15, abs=0.1)
    assert [later - one for one, later in pairwise(watched)] == pytest.approx([2.0] * 15)


def test_shares_of_one_job_add_up_to_at_most_all_of_its_time() -> None:
    """Also where causes claim idle time, busy time and some of its GPUs only."""
    says = {
        "starved": e.firing(strength=0.9, lost_share=0.6),
        "batch_too_small": e.firing(strength=0.8, lost_share=0.8),
        "other": e.firing(strength=0.7, lost_share=0.6, gpus=("GPU-1",)),
    }
    said = e.after(200, says, TWO)
    assert len(said.findings) > 1
    assert sum(_cost(one)[0] for one in said.findings) <= 1.0 + 1e-9


def test_jobs_on_one_gpu_share_its_idle_time() -> None:
    """Two starved jobs together lose no more than their GPU idles."""
    jobs = [window(gpus=TWO.gpus[:1], job=job(model={"pid": pid})) for pid in (1, 2)]
    said = e.after(301, {"fault": e.firing(lost_share=0.6)}, *jobs)
    one, other = [_cost(finding)[1] for finding in said.findings]
    assert one + other <= 0.61 * 361
    assert other >= 0.6 * one


def test_a_job_has_the_gpu_to_itself_once_the_one_before_it_has_ended() -> None:
    """Two starved jobs one after the other, as in a sweep: the second loses all that its GPU
    idles, from its beginning."""
    first, second = [window(gpus=TWO.gpus[:1], job=job(model={"pid": pid})) for pid in (1, 2)]
    engine = e.scripted({"fault": e.firing(lost_share=0.6)}, first)
    e.play(engine, range(30))
    engine.windows_are(second)
    said = e.play(engine, range(30, 91))
    grown = _cost(said[-1].findings[0])[1] - _cost(said[20].findings[0])[1]
    assert grown == pytest.approx(0.6 * 40, rel=0.02)


def test_pauses_cost_what_the_gpu_idled_in_them() -> None:
    """Ten seconds in two pauses, whatever the windows in between show; nothing outside them."""
    paused = (pause(-60.0, 10.0, gpus=("GPU-0",)), pause(-200.0, 10.0, gpus=("GPU-0",)))
    fault = e.firing(lost_share=0.49, pauses=paused)
    only = window(gpus=TWO.gpus[:1])
    said = e.after(301, {"fault": e.between(250, 301, fault)}, only)
    assert _cost(said.findings[0])[1] == pytest.approx(0.608 * 20, rel=0.05)


def test_the_time_of_what_is_gone_is_forgotten() -> None:
    """Jobs come and go for months."""
    time = GpuTime()
    for number in range(1000):
        time.add(number, 60.0 * number, 60.0, 60.0)
        time.sharers(number, time, 60.0 * number)
    assert len(time._cells) <= 20
    assert len(time._claims) <= 20


def test_work_ends_at_a_pause_that_is_longer_than_a_swing() -> None:
    """Whose cause a later look says; what is idle between steps counts with the work behind it, and
    idle time that still goes on does not."""
    time = GpuTime()
    for second, idle in enumerate((0.2, 1.0, 0.3, 1.0, 1.0, 1.0, 0.0), start=1):
        time.add("gpu", float(second), 1.0, idle)
    assert time.worked_until("gpu", 0.0) == pytest.approx(3.0)
    assert time.worked_until("gpu", 1.0) == pytest.approx(3.0)
    assert time.worked_until("gpu", 4.0) == pytest.approx(7.0)
    assert time.worked_until("gpu", 7.0) == pytest.approx(7.0)
    assert time.worked_until("another", 5.0) == pytest.approx(5.0)
