"""Whole machines: the right finding first, and nothing wrong beside it."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.core.model import GpuReading, Host, Problem, Process, ReadingAge, Snapshot
from gpuwatch.diagnosis.engine import Engine
from tests.diagnosis.engines import machine, rules_of, simulate, told
from tests.support.snapshots import gpu, snapshot

Values = dict[str, Any]


@pytest.mark.parametrize(
    ("scenario", "gpus", "seconds", "rule"),
    [
        ("starved", 1, 40, "loader_cpu_bound"),
        ("starved", 2, 40, "loader_cpu_bound"),
        ("main_process", 1, 40, "loader_in_main_process"),
        ("unpinned", 1, 40, "memory_not_pinned"),
        ("imbalanced", 2, 40, "straggler"),
        ("imbalanced", 8, 40, "straggler"),
        ("throttled", 1, 70, "thermal_throttle"),
        ("throttled", 4, 70, "thermal_throttle"),
        ("lost", 2, 40, "gpu_lost"),
        ("checkpoint", 1, 80, "checkpoint_pauses"),
    ],
)
def test_the_fault_of_the_machine_is_the_only_one_named(
    scenario: str, gpus: int, seconds: int, rule: str
) -> None:
    """One rule, on whatever GPUs show it."""
    said = simulate(scenario, seconds, gpus)[-1]
    assert set(rules_of(said)) == {rule}
    assert said.verdict == said.findings[0].headline


@pytest.mark.parametrize(("scenario", "gpus"), [("healthy", 1), ("healthy", 8)])
def test_nothing_is_ever_said_of_a_healthy_machine(scenario: str, gpus: int) -> None:
    """Three minutes without a finding, and a sentence that says so."""
    said = simulate(scenario, 180, gpus)
    assert not any(one.findings for one in said)
    assert "kept busy: 9" in said[-1].verdict
    assert said[-1].decided


def test_a_starved_loader_is_named_within_fifteen_seconds() -> None:
    """From steady work on, with a number of workers that feeds the GPU: a batch takes a worker
    3.9 s, and the GPU 0.62 s to eat."""
    (finding,) = simulate("starved", 15)[-1].findings
    assert finding.rule == "loader_cpu_bound"
    advice = finding.advice[0]
    assert (advice.setting, advice.present) == ("num_workers", "2")
    assert 7 <= int(advice.wanted or 0) <= 9


def test_a_diagnosis_says_what_time_it_looked_at() -> None:
    """Of each job the last minute, or since it works steadily; while it starts, since it began."""
    said = simulate("rerun", 132)
    old, starts, works = said[59], said[85], said[131]
    assert [round(one.looks[0].seconds) for one in (old, starts)] == [60, 10]
    assert 40.0 < works.looks[0].seconds < 50.0
    (look,) = old.looks
    assert (look.gpus, look.job) == (old.findings[0].gpus, old.findings[0].job)


def test_dev_shm_is_judged_as_it_is_now() -> None:
    """Full, it is named within ten seconds, however empty it was before; emptied, soon gone."""

    def filled(made: Snapshot, share: float) -> Snapshot:
        used = round(share * (made.host.shm_total_bytes or 0))
        return replace(made, host=replace(made.host, shm_used_bytes=used))

    made = enumerate(machine("healthy", 180))
    said = told(filled(one, 0.85 if 90 <= at < 130 else 0.1) for at, one in made)
    full = ["shm_full" in rules_of(one) for one in said]
    assert full.index(True) in range(90, 101)
    assert not any(full[155:])


@pytest.mark.parametrize("scenario", ["checkpoint", "throttled", "imbalanced"])
def test_the_loader_is_never_blamed_for_something_else(scenario: str) -> None:
    """Not even for a moment on the way."""
    blamed = {rule for one in simulate(scenario, 100, 2) for rule in rules_of(one)}
    assert not {rule for rule in blamed if rule.startswith("loader") or rule == "oscillation"}


def test_several_jobs_and_cards_are_kept_apart() -> None:
    """Eight cards, eight stories: each finding is on its own GPU."""
    said = simulate("mixed", 70, 8)[-1]
    rules = rules_of(said)
    assert {"loader_cpu_bound", "thermal_throttle", "gpu_lost", "idle_holding_memory"} <= set(rules)
    assert all(len(finding.gpus) == 1 for finding in said.findings)
    assert rules[0] == "gpu_lost"


def _changed(
    made: Snapshot, reading: Values, member: Values | None = None, loop: Values | None = None
) -> Snapshot:
    """With other values in all readings of GPUs, members of jobs and loops."""
    gpus = [replace(one, reading=replace(one.reading, **reading)) for one in made.gpus]
    jobs = [
        replace(
            job,
            members=tuple(replace(one, **(member or {})) for one in job.members),
            loops=tuple(replace(one, **(loop or {})) for one in job.loops),
        )
        for job in made.jobs
    ]
    return replace(made, gpus=tuple(gpus), jobs=tuple(jobs))


def _unanswered(made: Snapshot) -> Snapshot:
    """As a driver that has not answered leaves it."""
    gpus = tuple(replace(one, reading=GpuReading()) for one in made.gpus)
    unread: Values = {"gpu_busy_percent": None, "gpu_memory_bytes": None}
    return replace(
        made, gpus=gpus, processes=tuple(replace(one, **unread) for one in made.processes)
    )


def _of_a_healthy_job(count: int) -> list[Snapshot]:
    return list(machine("healthy", count, 2))


def _of_nobody(count: int) -> list[Snapshot]:
    idle = tuple(gpu(f"GPU-{n}", n, busy_percent=0.0, memory_used_bytes=0) for n in range(2))
    return [snapshot(100.0 + number, number, gpus=idle) for number in range(count)]


@pytest.mark.parametrize(
    ("of", "well"),
    [(_of_a_healthy_job, "are kept busy"), (_of_nobody, "are idle, and nothing waits for them")],
)
def test_while_the_driver_is_silent_nothing_is_said_to_be_well(
    of: Callable[[int], list[Snapshot]], well: str
) -> None:
    """From the first look without readings on, for as long as it lasts, and no longer."""
    made = enumerate(of(175))
    said = told(_unanswered(one) if 70 <= second < 170 else one for second, one in made)
    assert well in said[69].verdict
    assert {one.verdict for one in said[70:170]} == {
        "GPUs 0 and 1 cannot be read now: no diagnosis possible."
    }
    assert not said[90].decided
    assert "cannot be read" not in said[170].verdict


def _of_a_small_batch(count: int) -> Iterator[Snapshot]:
    """One card of several and its job, which leaves most of the memory free."""
    free: Values = {"memory_used_bytes": 16 << 30}
    for made in machine("mixed", count, 3):
        card = replace(made.gpus[2], reading=replace(made.gpus[2].reading, **free))
        jobs = [one for one in made.jobs if card.uuid in one.gpu_uuids]
        processes = [one for one in made.processes if one.gpu_uuid == card.uuid]
        yield replace(made, gpus=(card,), jobs=tuple(jobs), processes=tuple(processes), problems=())


@pytest.mark.parametrize("age", [None, 20.0])
def test_readings_of_different_moments_make_no_fault(age: float | None) -> None:
    """A GPU that is busy with a small batch is found so, and not by an old reading of its power."""
    late = () if age is None else (ReadingAge("power_watts", age), ReadingAge("strange", age))
    old: Values = {"sm_active_percent": None, "tensor_active_percent": None, "late_readings": late}
    said = told(_changed(one, old) for one in _of_a_small_batch(60))
    assert rules_of(said[-1]) == ([] if age else ["batch_too_small"])


def test_two_seconds_of_samples_are_no_minute() -> None:
    """What one look brought is not taken for what the GPU did all the time."""
    silent: Values = {"busy_percent": None, "busy_samples": ()}
    made = enumerate(_of_a_small_batch(60))
    said = told(one if at in (20, 21, 22) else _changed(one, silent) for at, one in made)
    assert said[-1].findings == ()


def test_one_look_that_the_driver_answers_late_undoes_no_minute() -> None:
    """What a minute has shown is still decided, though it is not said to be so now."""
    *before, last = _of_a_healthy_job(60)
    said = told([*before, _unanswered(last)])[-1]
    assert "cannot be read now" in said.verdict
    assert said.decided


def _stopped(made: Snapshot) -> Snapshot:
    """As if all processes of its jobs had got SIGSTOP in the middle of a wait for data."""
    idle = {"state": "T", "cpu_percent": 0.0, "main_thread_cpu_percent": 0.0}
    return _changed(made, {"busy_percent": 0.0, "busy_samples": ()}, idle, {"data_wait_share": 1.0})


def _reported_of(made: Snapshot, seconds: float) -> Snapshot:
    """What a job reports is of the last ten seconds: so many of them it was stopped."""
    share = seconds / 10.0
    if not 0.0 < share <= 1.0:
        return made
    loops = [
        tuple(
            replace(one, data_wait_share=share + (1.0 - share) * (one.data_wait_share or 0.0))
            for one in job.loops
        )
        for job in made.jobs
    ]
    jobs = [replace(job, loops=own) for job, own in zip(made.jobs, loops, strict=True)]
    return replace(made, jobs=tuple(jobs))


@pytest.mark.parametrize("scenario", ["healthy", "reported"])
def test_a_stopped_job_is_shown_as_stopped_and_as_nothing_else(scenario: str) -> None:
    """However long it is; and when it goes on, no more is said than before."""
    made = enumerate(machine(scenario, 250))
    said = told(
        _stopped(one) if 60 <= second < 180 else _reported_of(one, 190.0 - second)
        for second, one in made
    )
    before = rules_of(said[59])
    assert {tuple(rules_of(one)) for one in said[70:180]} == {("job_stopped",)}
    assert "is stopped" in said[120].verdict
    assert {tuple(rules_of(one)) for one in said[182:]} <= {(), tuple(before)}
    assert rules_of(said[-1]) == before


def test_a_process_that_is_stopped_for_a_moment_is_not_shown_as_stopped() -> None:
    """As by a stack sampler that attaches, every few seconds."""
    made = enumerate(machine("healthy", 60))
    said = told(_stopped(one) if second % 5 == 4 else one for second, one in made)
    assert not any("job_stopped" in rules_of(one) for one in said)


@pytest.mark.parametrize(
    ("category", "cause"),
    [("loading_data", "loader_in_main_process"), ("computing", "python_bound")],
)
def test_stacks_decide_whether_the_main_process_loads(category: str, cause: str) -> None:
    """Its CPU is as busy between the GPU's bursts, whatever it does then."""
    engine = Engine()
    for one in machine("main_process", 40):
        engine.push(one)
        engine.note_stacks(one.jobs[0].key, ((category, 90.0, "data.py:16"),))
    assert rules_of(engine.diagnosis) == [cause]


@pytest.mark.parametrize(
    ("begun_again_at", "unlisted", "raised_from"),
    [(None, False, 300), (200, False, 500), (0, True, None)],
)
def test_a_gpu_is_unused_for_the_time_of_its_own_job(
    begun_again_at: int | None, unlisted: bool, raised_from: int | None
) -> None:
    """Five minutes of the job that has it now; and never while its processes cannot be listed."""
    engine, raised = Engine(), list[int]()
    unread = Problem(source="nvml", message="", target="GPU-b", reading="processes")
    for second in range(600):
        job = "1" if begun_again_at is None or second < begun_again_at else "2"
        idle = {"busy_percent": 0.0, "memory_used_bytes": 1 << 29}
        used = gpu(busy_percent=90.0, memory_used_bytes=1 << 35)
        one = snapshot(
            at=float(second),
            gpus=(used, replace(gpu("GPU-b", 1, **idle), allocated_to=(job,))),
            processes=(Process(pid=7, gpu_uuid="GPU-a"),),
            host=Host(name="box3", core_count=8),
            problems=(unread,) * unlisted,
        )
        engine.push(one)
        found = {finding.rule: finding for finding in engine.diagnosis.findings}
        if "allocated_unused" in found:
            assert f"job {job}," in found["allocated_unused"].summary
            raised.append(second)
    assert raised[:1] == [] if raised_from is None else raised_from <= raised[0] < raised_from + 40
