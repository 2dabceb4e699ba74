"""loader_cpu_bound: firing, quiet, unknown."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import LoopFacts, Window
from tests.diagnosis import windows as w

check = w.check_of("loader_cpu_bound")

GPUS = (w.gpu(busy=w.swinging(0.4)),)


def starved(count: int = 2, cores: int = 16, **facts: Any) -> Window:
    """Two workers at their limit, the GPU busy at 40%."""
    busy = w.workers(count, cpu_percent=98.0, run_queue_wait_percent=0.5)
    job_facts: dict[str, Any] = {
        "model": {"usable_cores": float(cores), "affinity_cores": cores},
        "cpu_cores": count + 0.4,
        "main_thread_percent": 30.0,
        "main_thread_when_idle_percent": 5.0,
        "workers": busy,
        "workers_when_idle_percent": 99.0,
        "workers_when_busy_percent": 96.0,
        "ranks": (w.rank(loader_workers=count, workers=busy),),
    }
    cpu = 100.0 * (count + 0.5) / cores
    return w.window(
        gpus=GPUS,
        job=w.job(**(job_facts | facts)),
        host=w.host(core_count=cores, cpu_percent=min(100.0, cpu)),
    )


def test_too_few_workers_with_free_cores() -> None:
    """The number of workers is named: demand over the busy share, within the cores."""
    firing = w.fires(check(starved()))
    assert firing.advice[0].setting == "num_workers"
    # 2 workers x 0.985 / 0.39 busy x 1.25
    assert (firing.advice[0].present, firing.advice[0].wanted) == ("2", "7")
    assert firing.lost_share == pytest.approx(0.608)
    assert "oscillation" in firing.explains
    assert firing.strength > 0.9


def test_number_stays_within_the_cores_of_a_rank() -> None:
    """A rank keeps a core for its main thread."""
    firing = w.fires(check(starved(cores=6)))
    assert firing.advice[0].wanted == "5"


def test_no_more_workers_where_the_cores_are_taken() -> None:
    """With all cores at work the advice is cheaper transforms, not more workers."""
    firing = w.fires(check(starved(count=4, cores=4)))
    assert all("Raise num_workers" not in advice.action for advice in firing.advice)
    assert "cheaper" in firing.advice[0].action
    assert "no cores are free" in firing.summary


def test_no_more_workers_where_another_job_has_the_cores() -> None:
    """Free cores are those that others leave, not only those the job may use."""
    crowded = starved()
    firing = w.fires(check(w.window(gpus=GPUS, job=crowded.job, host=w.host(cpu_percent=99.0))))
    assert all("Raise num_workers" not in advice.action for advice in firing.advice)


def test_ranks_share_the_cores() -> None:
    """Two ranks on 16 cores get at most 7 workers each."""
    one = starved()
    assert one.job is not None
    two = tuple(
        w.rank(n, loader_workers=2, workers=w.workers(2, cpu_percent=98.0)) for n in range(2)
    )
    busy = w.workers(4, cpu_percent=98.0)
    model = {"ranks": w.model_job().ranks * 2}
    both = w.job(
        model=model, workers=busy, ranks=two, cpu_cores=5.0, main_thread_when_idle_percent=5.0
    )
    gpus = tuple(w.gpu(n, busy=w.swinging(0.2)) for n in range(2))
    firing = w.fires(check(w.window(gpus=gpus, job=both, host=w.host(cpu_percent=32.0))))
    assert firing.advice[0].wanted == "7"
    assert firing.gpus == ("GPU-0", "GPU-1")


def test_only_the_starved_rank_is_named() -> None:
    """The siblings, busy in their collective, are not blamed."""
    ranks = (
        w.rank(0),
        w.rank(1, loader_workers=2, workers=w.workers(2, cpu_percent=97.0)),
    )
    gpus = (w.gpu(0), w.gpu(1, busy=w.swinging(0.4)))
    facts = w.job(ranks=ranks, main_thread_when_idle_percent=10.0)
    firing = w.fires(check(w.window(gpus=gpus, job=facts)))
    assert firing.gpus == ("GPU-1",)


def test_workers_that_wait_for_cores_count_as_wanting_them() -> None:
    """60% of a core and 38% in the run queue is a worker at its limit."""
    waiting = w.workers(4, cpu_percent=60.0, run_queue_wait_percent=38.0)
    w.fires(
        check(starved(count=4, workers=waiting, ranks=(w.rank(loader_workers=4, workers=waiting),)))
    )


def test_unpinned_memory_is_named_beside_it() -> None:
    """Pinning is a second advice, not the cause."""
    facts = w.workers(2, cpu_percent=98.0)
    ranks = (w.rank(loader_workers=2, pinned_memory=False, workers=facts),)
    firing = w.fires(check(starved(ranks=ranks, workers=facts)))
    assert [advice.setting for advice in firing.advice] == ["num_workers", "pin_memory"]


def test_quiet_for_a_checkpoint() -> None:
    """A pause of 12 s in a minute is not idling for data, however busy the workers are."""
    busy = starved()
    paused = w.window(
        gpus=(w.gpu(busy=w.steady(80.0)),),
        job=busy.job,
        pauses=(w.pause(30.0, 12.0, wrote_bytes=9e9),),
    )
    w.is_clear(check(paused))


def test_quiet_for_a_slow_disk() -> None:
    """Workers that wait for the disk more than they compute are another rule's."""
    slow = w.workers(4, cpu_percent=30.0, disk_wait_percent=65.0)
    w.is_clear(
        check(starved(count=4, workers=slow, ranks=(w.rank(loader_workers=4, workers=slow),)))
    )


@pytest.mark.parametrize(("other_cpu", "shared"), [(98.0, True), (30.0, False)])
def test_waits_in_collectives_are_explained_if_all_ranks_starve(
    other_cpu: float, shared: bool
) -> None:
    """If one rank alone starves, that it is late is the finding."""
    ranks = tuple(
        w.rank(n, loader_workers=2, workers=w.workers(2, cpu_percent=cpu))
        for n, cpu in enumerate((98.0, other_cpu))
    )
    gpus = (w.gpu(0, busy=w.swinging(0.4)), w.gpu(1))
    facts = w.job(ranks=ranks, main_thread_when_idle_percent=10.0)
    firing = w.fires(check(w.window(gpus=gpus, job=facts)))
    assert ("collective_wait" in firing.explains) is shared


def test_a_job_without_a_gpu_is_not_told_to_pin() -> None:
    """There is no copy that it would speed up; a job on a GPU is told to."""
    own = LoopFacts(data_wait_share=0.5)
    busy = w.workers(count=2.0, cpu_percent=99.0)
    ranks = (w.rank(loader_workers=2, pinned_memory=False, gpu_uuids=(), loop=own, workers=busy),)
    found = w.window(gpus=(), job=w.job(ranks=ranks, workers=busy))
    settings = [one.setting for one in w.fires(check(found)).advice]
    assert "num_workers" in settings
    assert "pin_memory" not in settings


QUIET = {
    "healthy": w.window(),
    "workers rest": w.window(gpus=GPUS),
    "main thread computes": starved(main_thread_when_idle_percent=97.0),
    "no workers": starved(count=0, ranks=(w.rank(loader_workers=0),)),
    "the job has ended": starved(model={"ended_at_unix_seconds": 1_700_000_000.0}),
}


UNKNOWN = {
    "no job": (w.gpu_only(*GPUS), "job's processes"),
    "no samples": (w.window(gpus=(w.gpu(busy=None),)), "utilisation"),
    "no workers read": (
        starved(workers=None, ranks=(w.rank(loader_workers=None, workers=None),)),
        "loader workers",
    ),
    "no CPU read": (
        starved(
            workers=w.workers(2, cpu_percent=None),
            ranks=(w.rank(loader_workers=2, workers=w.workers(2, cpu_percent=None)),),
        ),
        "CPU",
    ),
    "starting": (w.window(gpus=GPUS, starting=True), "starting"),
}
