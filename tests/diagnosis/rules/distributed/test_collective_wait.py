"""Ranks that wait for one of them."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import GpuFacts, Window
from gpuwatch.diagnosis.rule import Firing
from tests.diagnosis import windows as w

check = w.check_of("collective_wait")

WAITS = {"power_mean_watts": 430.0, "power_busy_watts": 430.0, "sm_active_percent": 56.0}


def _waiting(index: int, **facts: Any) -> GpuFacts:
    return w.gpu(index, **(WAITS | {"busy": w.steady(99.0)} | facts))


def _late(index: int, **facts: Any) -> GpuFacts:
    working: dict[str, Any] = {
        "busy": w.swinging(0.6),
        "power_mean_watts": 400.0,
        "sm_active_percent": 55.0,
    }
    return w.gpu(index, **(working | facts))


def _window(late: int, **rank_facts: Any) -> Window:
    """Four ranks, of which one is late."""
    gpus = tuple([_late(n) if n == late else _waiting(n) for n in range(4)])
    ranks = tuple([w.rank(n, **(rank_facts if n == late else {})) for n in range(4)])
    return w.window(gpus=gpus, job=w.job(ranks=ranks))


def test_the_late_rank_is_named_and_not_those_that_wait() -> None:
    """Rank 3 leads the GPUs named; its advice is about what cannot be seen."""
    said = w.fires(check(_window(late=3)))
    assert "wait for rank 3 on GPU 3" in said.summary
    assert said.gpus[0] == "GPU-3"
    assert said.lost_share == pytest.approx(0.4, abs=0.02)
    assert "stacks" in said.missing


@pytest.mark.parametrize(
    ("facts", "says"),
    [
        ({"write_bytes_per_second": 120e6}, "writes 114.4M/s, a checkpoint"),
        ({"workers": w.workers(2.0, cpu_percent=98.0)}, "2 loader workers are at the limit"),
        ({"workers": w.workers(8.0, disk_wait_percent=70.0)}, "waits for the disk 70%"),
        ({"loader_workers": 0, "main_thread_percent": 99.0}, "batches in the main process"),
        ({"main_thread_percent": 99.0}, "Python thread is at work"),
        ({"run_queue_wait_percent": 40.0}, "waits for a CPU core 40%"),
    ],
    ids=["checkpoint", "loader", "disk", "no workers", "python", "no core"],
)
def test_what_the_late_rank_does_is_said(facts: dict[str, Any], says: str) -> None:
    """Each of its doings that the other ranks do not share is a diagnosis of its own."""
    said = w.fires(check(_window(late=0, **facts)))
    assert says in said.summary
    assert said.strength > w.fires(check(_window(late=0))).strength


@pytest.mark.parametrize(("others_percent", "waits"), [(28.0, True), (85.0, False)])
def test_of_a_very_late_rank_the_others_are_not_said_to_work(
    others_percent: float, waits: bool
) -> None:
    """It works a seventh of the time at 87% of its SMs: a collective that spins on 18% of them all
    the rest of the time adds up to more than that, and is no work. At 85% it would be."""
    late = _late(0, busy=w.swinging(0.15), sm_active_percent=12.8, power_mean_watts=155.0)
    others = [_waiting(n, sm_active_percent=others_percent) for n in range(1, 4)]
    said = check(w.window(gpus=(late, *others), job=w.job(ranks=tuple(map(w.rank, range(4))))))
    assert isinstance(said, Firing) == waits
    if isinstance(said, Firing):
        assert any("while GPU 0 idles, 2" in one.says for one in said.evidence)


def test_what_all_ranks_do_is_no_reason() -> None:
    """A busy main thread on every rank does not tell them apart."""
    ranks = tuple([w.rank(n, main_thread_percent=99.0) for n in range(4)])
    gpus = (_late(0), *[_waiting(n) for n in range(1, 4)])
    assert "does not show" in w.fires(check(w.window(gpus=gpus, job=w.job(ranks=ranks)))).summary


def test_the_loader_is_a_symptom_of_it() -> None:
    """So is everything that the waiting GPUs look like."""
    said = w.fires(check(_window(late=3)))
    assert {"oscillation", "loader_cpu_bound", "busy_without_work"} <= said.explains


def test_less_sure_without_power_and_sm_activity() -> None:
    """The busy shares alone are a weaker case."""
    blind = {"power_mean_watts": None, "power_busy_watts": None, "sm_active_percent": None}
    gpus = (_late(0, **blind), *[_waiting(n, **blind) for n in range(1, 4)])
    said = check(w.window(gpus=gpus, job=w.job(ranks=tuple([w.rank(n) for n in range(4)]))))
    assert isinstance(said, Firing)
    assert said.strength < w.fires(check(_window(late=0))).strength
    assert "power or SM activity" in said.missing


def test_quiet_when_the_busy_gpus_really_work() -> None:
    """Pipeline stages and replicas are unequal by design."""
    gpus = (
        _late(0, power_mean_watts=300.0, sm_active_percent=30.0),
        *[w.gpu(n) for n in range(1, 4)],
    )
    assert "more work" in w.is_clear(check(w.window(gpus=gpus))).why


@pytest.mark.parametrize(
    "trouble",
    [
        {"workers": w.workers(3.0, cpu_percent=98.0)},
        {"workers": w.workers(8.0, cpu_percent=10.0, disk_wait_percent=70.0)},
        {"run_queue_wait_percent": 60.0},
        {"loader_workers": 0, "main_thread_percent": 80.0},
    ],
    ids=["loaders", "disk", "cores", "no workers"],
)
def test_quiet_when_all_ranks_are_in_the_trouble_of_the_late_one(trouble: dict[str, Any]) -> None:
    """Which of them is last is chance; the job's loading is to blame."""
    gpus = (_late(0), *[_waiting(n) for n in range(1, 4)])
    alike = w.job(ranks=tuple([w.rank(n, **trouble) for n in range(4)]))
    assert "same problem" in w.is_clear(check(w.window(gpus=gpus, job=alike))).why


QUIET = {
    "for a small gap that nothing explains": w.window(
        gpus=(_late(0, busy=w.steady(88.0)), *[_waiting(n) for n in range(1, 4)]),
        job=w.job(ranks=tuple([w.rank(n) for n in range(4)])),
    ),
    "when all ranks starve alike": w.window(gpus=tuple([_late(n) for n in range(4)])),
    "for one gpu": w.window(),
}


UNKNOWN = {
    "where the other ranks are on other machines": (
        w.window(job=w.job(model={"world_size": 16})),
        "other machines",
    ),
    "without a job": (w.gpu_only(_late(0), _waiting(1)), "processes"),
}
