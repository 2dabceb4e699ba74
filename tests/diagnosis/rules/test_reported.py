"""Reports of a job on its own loop, against what its GPUs show."""

from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.diagnosis.catalogue import RULES
from gpuwatch.diagnosis.facts.window import LoopFacts, RankFacts, Window
from gpuwatch.diagnosis.rule import Firing
from tests.diagnosis.windows import gpu, job, rank, swinging, window, workers

RULE = {rule.name: rule for rule in RULES}


def reporting(number: int | None, wait: float, **facts: Any) -> RankFacts:
    own = LoopFacts(data_wait_share=wait)
    return replace(rank(number), loop=own, **facts)


def fired(seen: Window) -> set[str]:
    return {name for name, rule in RULE.items() if isinstance(rule.check(seen), Firing)}


@pytest.mark.parametrize("wait", [0.0, 0.3, 0.6, 0.95])
def test_a_wait_beside_a_fed_gpu_is_no_fault(wait: float) -> None:
    """The CPU runs ahead of the GPU and waits for data while kernels are queued: nothing is
    lost, however much it waits."""
    assert fired(window(job=job(ranks=(reporting(None, wait),)))) == set()


def test_a_job_that_has_its_data_in_time_does_not_wait_for_it() -> None:
    """Busy workers and an idling GPU look like a starved loader, and the job says otherwise."""
    busy = workers(2, cpu_percent=99.0)

    def seen(wait: float) -> Window:
        return window(
            gpus=(gpu(busy=swinging(0.4)),),
            job=job(
                workers=busy,
                workers_when_idle_percent=99.0,
                main_thread_percent=10.0,
                main_thread_when_idle_percent=5.0,
                ranks=(reporting(None, wait, loader_workers=2, workers=busy),),
            ),
        )

    assert "loader_cpu_bound" in fired(seen(0.55))
    assert "loader_cpu_bound" not in fired(seen(0.01))
    verdict = RULE["loader_cpu_bound"].check(seen(0.55))
    assert isinstance(verdict, Firing)
    assert any(one and "reported by the job" in one.says for one in verdict.evidence)


AT_LIMIT = workers(8, cpu_percent=98.0)


def two(wait: float, **readings: Any) -> Window:
    """Two ranks that report that they wait, with workers at their limit and GPUs that look busy."""
    ranks = tuple([reporting(number, wait, workers=AT_LIMIT) for number in (0, 1)])
    return window(
        gpus=(gpu(0, **readings), gpu(1, **readings)),
        job=job(workers=AT_LIMIT, workers_when_busy_percent=98.0, ranks=ranks),
    )


@pytest.mark.parametrize(
    "readings", [{"sm_active_percent": 88.0}, {"sm_active_percent": None}], ids=str
)
def test_two_ranks_at_work_are_fed_whatever_they_wait(readings: dict[str, Any]) -> None:
    """Their SMs, or without those their power, show that nobody waits in a collective."""
    assert fired(two(0.4, **readings)) == set()


@pytest.mark.parametrize("active", [30.0, None])
def test_ranks_that_wait_by_turns_are_told_by_themselves(active: float | None) -> None:
    """Each is late in another step, and the others spin in the collective meanwhile."""
    spinning = two(0.4, sm_active_percent=active, power_mean_watts=330.0, power_busy_watts=340.0)
    verdict = RULE["loader_cpu_bound"].check(spinning)
    assert isinstance(verdict, Firing)
    assert verdict.lost_share == pytest.approx(0.4)
