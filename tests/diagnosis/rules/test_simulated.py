"""The rules on whole jobs: simulated machines, seen through the observer."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace

import pytest

from gpuwatch.core.model import Host, Snapshot
from gpuwatch.core.source import ManualClock
from gpuwatch.diagnosis.engine.catalogue import RULES
from gpuwatch.diagnosis.facts.observer import Observer
from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.rule import Firing
from gpuwatch.sources.simulated.source import SimulatedSource
from tests.diagnosis.windows import check_of

Found = dict[str, Firing]


def watch(
    scenario: str,
    seconds: int,
    *,
    gpus: int = 1,
    seed: int = 0,
    seen: Callable[[Snapshot], Snapshot] = lambda snapshot: snapshot,
) -> tuple[Window, ...]:
    """The windows of a simulated machine after this many seconds at one snapshot a second."""
    clock = ManualClock()
    source = SimulatedSource(scenario, gpus, seed=seed, clock=clock)
    source.open()
    observer = Observer()
    for _ in range(seconds):
        observer.push(seen(source.read()))
        clock.advance(1.0)
    return observer.windows()


def causes(window: Window) -> Found:
    """What fires and is not explained by something else that does."""
    verdicts = {rule.name: check_of(rule.name)(window) for rule in RULES}
    fired = {name: one for name, one in verdicts.items() if isinstance(one, Firing)}
    explained = {name for one in fired.values() for name in one.explains or ()}
    return {name: one for name, one in fired.items() if name not in explained}


def gpus_only(snapshot: Snapshot) -> Snapshot:
    """What a log of nvidia-smi has."""
    return replace(snapshot, jobs=(), processes=(), host=Host(name="box"))


@pytest.mark.parametrize(
    ("scenario", "seconds", "cause"),
    [
        ("starved", 15, "loader_cpu_bound"),
        ("main_process", 15, "loader_in_main_process"),
        ("io_bound", 15, "loader_io_bound"),
        ("cpu_quota", 15, "cpu_quota"),
        ("too_many_workers", 15, "too_many_workers"),
        ("unpinned", 15, "memory_not_pinned"),
        ("python_bound", 15, "python_bound"),
        ("shm_full", 15, "shm_full"),
        ("orphans", 10, "orphaned_workers"),
        ("host_leak", 80, "host_memory_growing"),
        ("checkpoint", 110, "checkpoint_pauses"),
        ("validation", 110, "validation_pauses"),
    ],
)
def test_the_one_cause_is_found(scenario: str, seconds: int, cause: str) -> None:
    """Each scenario has one fault; it is named, and nothing else is."""
    (window,) = watch(scenario, seconds)
    assert set(causes(window)) == {cause}


@pytest.mark.parametrize("seed", [1, 2])
def test_of_two_gpus_each_job_is_told(seed: int) -> None:
    """Jobs on one machine are diagnosed apart."""
    for window in watch("starved", 15, gpus=2, seed=seed):
        assert set(causes(window)) == {"loader_cpu_bound"}


def test_starved_job_gets_a_number_that_feeds_it() -> None:
    """A batch takes a worker 3.9 s and the GPU 0.62 s to eat: seven or eight workers."""
    (window,) = watch("starved", 30)
    advice = (causes(window)["loader_cpu_bound"].advice or ())[0]
    assert advice.setting == "num_workers"
    assert advice.present == "2"
    assert 7 <= int(advice.wanted or 0) <= 9


def test_gpu_readings_alone_show_the_oscillation() -> None:
    """Without processes the pattern is named, with num_workers first."""
    (window,) = watch("starved", 30, seen=gpus_only)
    found = causes(window)
    assert set(found) == {"oscillation"}
    assert (found["oscillation"].advice or ())[0].setting == "num_workers"


@pytest.mark.parametrize("seconds", [15, 45, 90])
def test_a_healthy_job_is_left_alone(seconds: int) -> None:
    """At any age of the window."""
    for window in watch("healthy", seconds, gpus=2):
        assert causes(window) == {}


def test_start_up_is_waited_out() -> None:
    """Imports, loading and first batches idle the GPU and are no finding."""
    clock = ManualClock()
    source = SimulatedSource("startup", 1, clock=clock)
    source.open()
    observer = Observer()
    for second in range(75):
        observer.push(source.read())
        clock.advance(1.0)
        if second % 5 == 4:
            for window in observer.windows():
                assert causes(window) == {}, second


@pytest.mark.parametrize("seconds", range(14, 125, 5))
def test_a_checkpoint_is_never_the_loader(seconds: int) -> None:
    """Not before, in, or after a pause."""
    for window in watch("checkpoint", seconds):
        assert set(causes(window)) <= {"checkpoint_pauses"}
