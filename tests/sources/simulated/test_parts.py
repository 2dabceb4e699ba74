"""The parts of the simulation do what their names say: meters, loader queues, card physics."""

from __future__ import annotations

import itertools
import random

import pytest

from gpuwatch.sources.simulated.cards import H200
from gpuwatch.sources.simulated.device import (
    TICKS_PER_SECOND,
    Activity,
    Cooling,
    Device,
)
from gpuwatch.sources.simulated.processes import Meter
from gpuwatch.sources.simulated.training import Job, Loader, Training

FULL = Activity(busy=1.0, power=0.9, sm=0.9, tensor=0.5, dram=0.5)


def device(**more: object) -> Device:
    return Device(H200, random.Random(0), **more)  # type: ignore[arg-type]


def move(card: Device, seconds: float, start: int = 0) -> int:
    """Tick through ``seconds``; returns the next tick."""
    stop = start + round(seconds * TICKS_PER_SECOND)
    for index in range(start, stop):
        card.tick(index)
    return stop


def test_meter_adds_rate_times_time_up_to_now() -> None:
    """An interval counts by the part of it that has passed, and once only."""
    meter = Meter()
    meter.add(1.0, 3.0, 10.0)
    meter.add(4.0, 5.0, 2.0)
    assert [meter.total(t) for t in (0.5, 2.0, 3.5, 4.5, 9.0, 9.0)] == [0, 10, 20, 21, 22, 22]


def exact(**more: object) -> Training:
    return Training(batch_jitter=0.0, step_jitter=0.0, **more)  # type: ignore[arg-type]


def loader(plan: Training) -> Loader:
    return Loader(plan, random.Random(0), 0.0, Meter())


def test_a_loader_delivers_at_the_rate_of_its_workers() -> None:
    """Two workers of 3 s a batch give a batch every 1.5 s to somebody who always waits."""
    queue = loader(exact(workers=2, batch_cpu_seconds=3.0))
    times = []
    now = 0.0
    for _ in range(40):
        now = queue.take(now)
        times.append(now)
    assert (times[-1] - times[9]) / 30 == pytest.approx(1.5)


def test_a_loader_never_runs_further_ahead_than_its_prefetch() -> None:
    """With nobody taking batches, workers stop after ``prefetch`` batches each and idle."""
    queue = loader(exact(workers=3, prefetch=2, batch_cpu_seconds=1.0))
    assert queue.queued(1000.0) == 6
    assert sum(worker.cpu.total(1000.0) for worker in queue.workers) == pytest.approx(6 * 0.99)


def job(plan: Training, cards: list[Device]) -> Job:
    return Job(plan, cards, random.Random(0), begin=0.0, reads=Meter(), writes=Meter())


def test_ranks_of_a_job_end_their_steps_together() -> None:
    """The fast rank's card spins in the collective until the slow rank is done."""
    cards = [device(), device()]
    plan = exact(workers=8, batch_cpu_seconds=0.1, step_seconds=1.0, slow_ranks=((1, 2.0),))
    work = job(plan, cards)
    work.advance(20.0)
    ends = [[stop for _, stop, activity in card.phases if activity.nvlink] for card in cards]
    assert len(ends[0]) > 5
    assert ends[0] == ends[1]
    spinning = sum(
        stop - start
        for start, stop, activity in cards[0].phases
        if activity.busy == 1.0 and activity.tensor == 0.0 and not activity.nvlink
    )
    assert spinning == pytest.approx(work.steps * 1.0, rel=0.01)


def test_phases_of_a_card_are_in_order_and_apart() -> None:
    """No two phases of a card overlap, whatever the job does."""
    cards = [device(), device()]
    work = job(Training(workers=2, batch_cpu_seconds=1.1, pinned=False), cards)
    work.advance(60.0)
    for card in cards:
        phases = list(card.phases)
        assert len(phases) > 50
        for (_, stop, _), (start, _, _) in itertools.pairwise(phases):
            assert start >= stop - 1e-9


def test_a_card_that_rests_lowers_its_clocks_and_says_idle() -> None:
    """At once the reason is ``gpu_idle``; after some seconds the clocks are down."""
    card = device()
    card.phases.append((0.0, 2.0, FULL))
    tick = move(card, 2.0)
    assert card.reasons() == ()
    tick = move(card, 1.0, tick)
    assert card.reasons() == ("gpu_idle",)
    assert card.sm_clock_mhz == H200.sm_clock_mhz
    move(card, 5.0, tick)
    assert card.sm_clock_mhz == H200.sm_clock_idle_mhz
    assert card.power_watts < 90


def test_worse_cooling_raises_the_temperature_until_clocks_give_way() -> None:
    """The card settles at its slowdown with clocks that keep it there."""
    card = device(cooling=Cooling(air_celsius=42.0, celsius_per_watt=0.105, from_second=30.0))
    card.phases.append((0.0, 1000.0, FULL))
    tick = move(card, 30.0)
    cool = card.temperature_celsius
    assert card.clock_ratio == 1.0
    move(card, 200.0, tick)
    assert card.temperature_celsius > cool + 20
    assert 86 < card.temperature_celsius < 91
    assert card.clock_ratio < 0.9
    assert card.reasons() == ("sw_thermal_slowdown",)


def test_a_power_limit_is_kept_by_lower_clocks() -> None:
    """Power settles just below the limit, and the time it took is accumulated."""
    card = device(power_limit_watts=300.0)
    card.phases.append((0.0, 100.0, FULL))
    move(card, 10.0)
    assert 270 < card.power_watts <= 303
    assert card.clock_ratio < 0.8
    assert card.reason_seconds["sw_power_cap"] == pytest.approx(10.0)
