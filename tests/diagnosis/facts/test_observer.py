"""What is known of a machine after a while of watching it."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

import pytest
from hypothesis import Phase, given, settings
from hypothesis import strategies as st

from gpuwatch.core.model import (
    BusySample,
    Host,
    Job,
    JobMember,
    JobRank,
    Process,
    RdmaPort,
    ReasonSeconds,
    Snapshot,
    TrainingLoop,
)
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.diagnosis.facts.observer import FOLLOWED_JOBS_MAX, Observer
from gpuwatch.diagnosis.facts.window import GpuFacts, JobFacts, Window
from gpuwatch.diagnosis.signals.waveform import Waveform
from gpuwatch.sources.simulated.source import SimulatedSource
from tests.diagnosis.engines import leaking, machine
from tests.support.snapshots import gpu, snapshot, snapshots

GIB = 2**30


@cache
def watched(scenario: str, gpus: int = 1, seconds: int = 90) -> tuple[Window, ...]:
    """The windows after watching once a second, looking at them every five."""
    observer = Observer()
    for second, made in enumerate(machine(scenario, seconds, gpus)):
        observer.push(made)
        if second % 5 == 0:
            observer.windows()
    return observer.windows()


def only(windows: tuple[Window, ...]) -> tuple[Window, JobFacts, GpuFacts]:
    (window,) = windows
    assert window.job is not None
    return window, window.job, window.gpus[0]


def fact(window: Window, path: str) -> Any:
    """``gpus.0.busy.duty``: by the names of fields and the numbers of items."""
    found: Any = window
    for part in path.split("."):
        assert found is not None, path
        found = found[int(part)] if part.isdigit() else getattr(found, part)
    return found


def above(limit: float) -> Callable[[Any], bool]:
    return lambda value: value is not None and value > limit


def below(limit: float) -> Callable[[Any], bool]:
    return lambda value: value is not None and value < limit


SHOWN: dict[str, tuple[int, int, dict[str, Any]]] = {
    # Two workers of 3.9 s a batch: a batch every 1.95 s; they are at their limit meanwhile.
    "starved": (1, 90, {
        "gpus.0.busy.period_seconds": pytest.approx(1.95, rel=0.05),
        "job.workers.count": 2.0,
        "job.workers_when_idle_percent": pytest.approx(99.0, abs=3.0),
        "gpus.0.pcie_rx_idle_bytes_per_second": above(0.0),
        "gpus.0.pcie_generation_busy": 5,
        "gpus.0.pcie_width_busy": 16,
        "starting": False,
        "pauses": (),
        "watched_seconds": pytest.approx(60.0),
        "steady_seconds": pytest.approx(90.0),
    }),
    # num_workers=0: its CPU is in anti-phase, and there are no workers.
    "main_process": (1, 90, {
        "job.main_thread_phase": below(-0.8),
        "job.main_thread_when_idle_percent": above(90.0),
        "job.workers": None,
        "job.ranks.0.loader_workers": 0,
    }),
    # Its GPU is never idle for long enough to ask who works then.
    "healthy": (1, 150, {
        "gpus.0.busy.duty": above(0.95),
        "gpus.0.memory_slope_bytes_per_second": 0.0,
        "pauses": (),
        "job.main_thread_phase": None,
        "job.main_thread_when_idle_percent": None,
    }),
    # Every 45 s, for 8 s, 2 GB/s; all GPUs stop together.
    "checkpoint": (2, 200, {
        "pauses": lambda pauses: len(pauses) == 4,
        "pauses.1.seconds": pytest.approx(8.0, abs=0.5),
        "pauses.1.wrote_bytes": pytest.approx(16e9, rel=0.1),
        "pauses.1.busy_percent": pytest.approx(0.0, abs=2.0),
        "pauses.1.gpus": lambda gpus: len(gpus) == 2,
        "job.write_when_idle_bytes_per_second": above(1e9),
    }),
    # One card of two is hot, all of the window; the other not at all.
    "throttled": (2, 120, {
        "gpus.0.throttle_shares": lambda shares: dict(shares)["sw_thermal_slowdown"] > 55.0,
        "gpus.1.throttle_shares": (),
        "gpus.0.sm_clock_busy_mhz": below(1782.0),
        "gpus.1.sm_clock_busy_mhz": above(1900.0),
    }),
    # Each rank has its GPU and its own workers.
    "imbalanced": (4, 90, {
        "job.ranks": lambda ranks: [rank.rank for rank in ranks] == [0, 1, 2, 3],
        "job.ranks.3.gpu_uuids": lambda gpus: len(gpus) == 1,
        "job.ranks.3.workers.count": 8.0,
        "job.workers.count": 32.0,
    }),
    # The traffic while no kernel is resident is more than the mean.
    "unpinned": (1, 90, {
        "job.ranks.0.pinned_memory": False,
        "gpus.0.pcie_rx_idle_bytes_per_second": above(2e9),
        "gpus.0.pcie_rx_bytes_per_second": below(2e9),
    }),
}  # fmt: skip


@pytest.mark.parametrize(
    ("scenario", "path"), [(name, path) for name, shown in SHOWN.items() for path in shown[2]]
)
def test_a_scenario_of_the_simulator_shows(scenario: str, path: str) -> None:
    """Facts of its one window."""
    gpus, seconds, shown = SHOWN[scenario]
    (window,) = watched(scenario, gpus, seconds)
    value, expected = fact(window, path), shown[path]
    assert expected(value) if callable(expected) else value == expected, value


def test_the_others_jobs_phase_is_seen_in_their_polls() -> None:
    """Nobody is attached to them, so that their samples come once a second."""
    windows = watched("main_process", gpus=8)
    phases = [window.job.main_thread_phase or 0.0 for window in windows if window.job is not None]
    assert len(phases) > 1
    assert max(phases) < -0.5


def test_a_leak_has_the_slope_it_has() -> None:
    """2.4 GiB every 6 s, within three standard errors."""
    observer = Observer()
    for made in leaking(machine("healthy", 120)):
        observer.push(made)
    _, _, facts = only(observer.windows())
    slope, error = (facts.memory_slope_bytes_per_second, facts.memory_slope_error_bytes_per_second)
    assert slope is not None
    assert error is not None
    assert slope == pytest.approx(0.4 * GIB, abs=3 * error)
    assert error < 0.1 * slope


def with_tenant(made: Snapshot) -> Snapshot:
    """A second job on the GPU of the first one."""
    (job,), (rank,) = made.jobs, [one for one in made.processes if one.gpu_uuid is not None]
    others = {"pid": 99, "user": "margaret"}
    theirs = replace(rank, **others, gpu_busy_percent=40.0, gpu_memory_bytes=22 * GIB)
    member, jobs_rank = replace(job.members[0], pid=99), replace(job.ranks[0], pid=99)
    tenant = replace(job, **others, members=(member,), ranks=(jobs_rank,))
    mine = [
        one if one is not rank else replace(one, gpu_busy_percent=56.0) for one in made.processes
    ]
    return replace(made, jobs=(job, tenant), processes=(*mine, theirs))


def test_each_job_sees_the_other_on_its_gpu() -> None:
    """Its own share and memory, and those of the others."""
    observer = Observer()
    for made in machine("healthy", 90):
        observer.push(with_tenant(made))
    mine, theirs = observer.windows()
    assert mine.gpus[0].own_busy_percent == pytest.approx(56.0)
    assert mine.gpus[0].foreign_busy_percent == pytest.approx(40.0)
    assert mine.gpus[0].foreign_memory_bytes == theirs.gpus[0].own_memory_bytes == 22 * GIB
    assert mine.gpus[0].own_memory_bytes == theirs.gpus[0].foreign_memory_bytes


def test_the_host_without_gpus_is_watched_too() -> None:
    """A job on the CPU has a window without GPUs."""
    clock = ManualClock()
    options = ReadOptions()
    source = SimulatedSource("no_gpu", gpus=0, clock=clock, options=options)
    options.attached = source.find(4242)
    observer = Observer()
    for _ in range(90):
        observer.push(source.read())
        clock.advance(1.0)
    (window,) = observer.windows()
    assert window.gpus == ()
    assert window.job is not None
    assert (window.job.cpu_cores or 0.0) > 1.0
    assert (window.host.cpu_percent or 0.0) > 0.0
    assert not window.starting


def test_an_old_job_that_is_attached_to_does_not_start() -> None:
    """From the first look on."""
    window, _, _ = only(watched("starved", seconds=1))
    assert not window.starting


def test_what_is_seen_of_an_old_job_grows_from_the_first_look_on() -> None:
    """What is remembered for some seconds is of a whole minute."""
    clock, observer, seen = ManualClock(), Observer(), list[float]()
    source = SimulatedSource("starved", clock=clock)
    for _ in range(5):
        observer.push(source.read())
        seen.append(fact(observer.windows()[0], "gpus.0.busy.seconds"))
        clock.advance(2.0)
    assert seen == sorted(set(seen))


def test_a_gpu_that_is_lost_says_so_and_a_new_run_is_another_job() -> None:
    """What it read before stays known while it is in the window."""
    observer, lost = Observer(), list[list[bool]]()
    for made in machine("lost", 200):
        observer.push(made)
        lost.append([facts.lost for window in observer.windows() for facts in window.gpus])
    assert [True] in lost
    assert lost[-1] == [False]
    window, job, _ = only(observer.windows())
    assert job.watched_seconds < 115.0
    assert not window.starting


# By hand


def looks(
    count: int, *, busy: Any = 50.0, interval: float = 1.0, start: float = 100.0, **fields: Any
) -> list[Snapshot]:
    """One GPU, polled; ``busy`` and ``fields`` are values or functions of the number."""
    made = []
    for number in range(count):
        given = {
            name: value(number) if callable(value) else value
            for name, value in {"busy_percent": busy, **fields}.items()
        }
        at = start + number * interval
        made.append(
            snapshot(at=at, sequence=number, interval_seconds=interval, gpus=(gpu(**given),))
        )
    return made


def of_a_job(count: int, *jobs: Job, **fields: Any) -> list[Snapshot]:
    """The same with these jobs on it, ``fields`` are those of the snapshots."""
    return [replace(one, jobs=jobs, **fields) for one in looks(count, busy=99.0)]


def watching(made: list[Snapshot]) -> Observer:
    observer = Observer()
    for one in made:
        observer.push(one)
    return observer


def after(made: list[Snapshot]) -> Window:
    (window,) = watching(made).windows()
    return window


def wave(window: Window) -> Waveform:
    busy = window.gpus[0].busy
    assert busy is not None
    return busy


def test_nothing_seen_gives_no_window() -> None:
    """And one look gives one without a waveform."""
    assert Observer().windows() == ()
    window = after(looks(1))
    assert window.job is None
    assert window.gpus[0].busy is None
    assert window.watched_seconds == 1.0


def test_what_is_not_read_stays_unknown() -> None:
    """Not one zero is made up."""
    window = after(looks(80, busy=None))
    facts = window.gpus[0]
    unread = [
        name
        for name in GpuFacts.__dataclass_fields__
        if name not in ("identity", "lost", "busy_read", "unread_seconds")
        and getattr(facts, name) is not None
    ]
    assert unread == []
    assert window.host.cpu_percent is None
    assert window.host.memory_slope_bytes_per_second is None


def test_polls_are_the_waveform_where_the_driver_keeps_no_samples() -> None:
    """Twelve seconds of each kind."""
    window = after(looks(120, busy=lambda number: 99.0 if number // 6 % 2 else 0.0))
    assert wave(window).sample_seconds == pytest.approx(1.0)
    assert wave(window).period_seconds == pytest.approx(12.0, rel=0.1)
    assert wave(window).seconds == pytest.approx(60.0, abs=1.5)


def test_missing_snapshots_are_a_gap() -> None:
    """Not idle time, not watched time, and in no run."""
    made = looks(60, busy=99.0)
    window = after(made[:20] + made[50:])
    assert window.watched_seconds == pytest.approx(30.0)
    assert wave(window).duty == 1.0
    assert wave(window).seconds == pytest.approx(30.0)


def test_a_pause_does_not_grow_while_the_driver_is_silent() -> None:
    """It is known to have lasted until the last reading; whether it goes on, nobody knows."""
    made = looks(160, busy=lambda number: 97.0 if number < 120 else 0.0 if number < 127 else None)
    (paused,) = after(made).ongoing
    assert paused.seconds == pytest.approx(7.0, abs=1.0)
    assert after(made).gpus[0].unread_seconds == pytest.approx(33.0)
    assert after(made[:127]).gpus[0].unread_seconds == 0.0


def test_a_wall_clock_that_jumps_leaves_the_runs_whole() -> None:
    """Time is the source's monotonic clock."""
    made = looks(60, busy=lambda number: 99.0 if number // 5 % 2 else 0.0)
    jumped = [
        one if at < 30 else replace(one, taken_at_unix_seconds=one.taken_at_unix_seconds - 3600.0)
        for at, one in enumerate(made)
    ]
    straight, bent = after(made), after(jumped)
    assert bent.gpus[0].busy == straight.gpus[0].busy
    assert bent.watched_seconds == straight.watched_seconds


def test_a_recording_that_starts_again_is_watched_anew() -> None:
    """Time that goes back is another beginning."""
    window = after(looks(50, busy=0.0, start=500.0) + looks(20, busy=99.0, start=10.0))
    assert window.watched_seconds == pytest.approx(20.0)
    assert wave(window).duty == 1.0


def test_power_under_load_is_that_of_busy_polls() -> None:
    """And the plateau is the top of all that was seen."""

    def swings(high: float, low: float) -> Callable[[int], float]:
        return lambda number: high if number % 10 < 3 else low

    made = looks(
        200, busy=swings(99.0, 0.0), power_watts=swings(600.0, 90.0),
        sm_clock_mhz=swings(1980, 345), pcie_generation=swings(5, 1), pcie_width=16,
    )  # fmt: skip
    facts = after(made).gpus[0]
    assert facts.power_busy_watts == pytest.approx(600.0)
    assert facts.power_plateau_watts == pytest.approx(600.0, abs=5.0)
    assert facts.sm_clock_busy_mhz == pytest.approx(1980.0)
    assert (facts.pcie_generation_busy, facts.pcie_width_busy) == (5, 16)


def test_the_link_of_a_gpu_at_rest_is_not_one_under_load() -> None:
    """A display keeps it some percent busy in P8; its link then runs at generation 1."""
    idle: dict[str, Any] = {"busy": 30.0, "pcie_generation": 1, "pcie_width": 16}
    assert after(looks(60, performance_state=8, **idle)).gpus[0].pcie_generation_busy is None
    assert after(looks(60, performance_state=2, **idle)).gpus[0].pcie_generation_busy == 1


def test_throttling_comes_from_counters_before_polls() -> None:
    """A counter knows what happened between the polls; a reason without one is polled."""
    polled, counted = ("sw_power_cap", "hw_slowdown"), (ReasonSeconds("sw_power_cap", 0.25),)
    window = after(looks(60, throttle_reasons=polled, throttle_durations=counted))
    held = dict(window.gpus[0].throttle_shares or ())
    assert held["sw_power_cap"] == pytest.approx(15.0, rel=0.1)
    assert held["hw_slowdown"] == pytest.approx(60.0, rel=0.1)


def job_at(pid: int, started: float, uuid: str = "GPU-a", **fields: Any) -> Job:
    member = JobMember(
        pid=pid, started_at_unix_seconds=started, role="rank", main_thread_cpu_percent=50.0
    )
    rank = JobRank(pid=pid, started_at_unix_seconds=started, gpu_uuids=(uuid,))
    settings_: dict[str, Any] = {"ranks": (rank,), "members": (member,), "gpu_uuids": (uuid,)}
    return Job(pid=pid, started_at_unix_seconds=started, **(settings_ | fields))


def reported(count: int, phase: Any = "train") -> list[Snapshot]:
    """A job without a GPU that reports, from its fifth second on, a step a second; ``phase`` is a
    function of the second, or a value."""
    began = snapshot(at=100.0).taken_at_unix_seconds
    rank = JobRank(pid=1, started_at_unix_seconds=began)
    made = []
    for second in range(count):
        loop = TrainingLoop(
            pid=1,
            started_at_unix_seconds=began,
            steps=max(0, second - 4),
            phase=phase(second) if callable(phase) else phase,
            reported_at_unix_seconds=began + second,
        )
        job = job_at(1, began, ranks=(rank,), gpu_uuids=(), loops=(loop,))
        made.append(snapshot(at=100.0 + second, sequence=second, gpus=(), jobs=(job,)))
    return made


def test_without_a_gpu_the_steps_that_are_reported_end_the_start_up() -> None:
    """Eight seconds after the first step; a job that reports none is waited for."""
    made = reported(30)
    assert after(made[:13]).starting
    window = after(made[:14])
    assert not window.starting
    assert window.steady_seconds == pytest.approx(8.0)
    silent = [replace(one, jobs=(replace(one.jobs[0], loops=()),)) for one in made]
    assert after(silent).starting


@pytest.mark.parametrize("reports", [True, False])
def test_many_steps_that_are_reported_are_steady_work(reports: bool) -> None:
    """Also where the GPU flickers without a rhythm; without them it looks like tuning."""
    busy = [0, 0, 60, 0, 0, 0, 0, 60, 60, 0, 60, 0, 0, 0, 60, 0, 60, 60, 60, 60, 0, 0, 0, 0, 0, 60]
    made = [
        replace(
            one,
            gpus=(gpu(busy_percent=float(busy[second])),),
            jobs=(
                replace(
                    one.jobs[0],
                    gpu_uuids=("GPU-a",),
                    loops=(replace(one.jobs[0].loops[0], steps=3 * second),) if reports else (),
                ),
            ),
        )
        for second, one in enumerate(reported(len(busy)))
    ]
    assert after(made[:7]).starting
    window = after(made)
    assert window.starting is not reports
    if reports:
        assert window.steady_seconds == pytest.approx(8.0)


def test_without_a_gpu_pauses_are_those_that_are_reported() -> None:
    """With what they were; one that goes on is none yet, nor is one of the start-up."""

    def phase(second: int) -> str:
        if second < 5 or 20 <= second < 24:
            return "checkpoint"
        return "validation" if second == 30 or second >= 38 else "train"

    pauses = after(reported(40, phase)).pauses
    assert [(pause.phase, pause.seconds) for pause in pauses] == [
        ("checkpoint", pytest.approx(4.0)),
        ("validation", pytest.approx(1.0)),
    ]
    assert [pause.gpus for pause in pauses] == [(), ()]


def test_a_gpu_that_changes_hands_is_watched_anew() -> None:
    """The new job's power, memory and waveform are its own; then the GPU is nobody's."""
    first, second = job_at(1, 1.0), job_at(2, 2.0)
    made = looks(300, busy=99.0, power_watts=lambda number: 600.0 if number < 100 else 200.0)
    observer = Observer()
    for number, one in enumerate(made):
        owner = (first,) if number < 100 else (second,) if number < 200 else ()
        observer.push(replace(one, jobs=owner))
        if number == 150:
            (window,) = observer.windows()
            assert window.job is not None
            assert window.job.key == second.key
            assert window.gpus[0].power_plateau_watts == pytest.approx(200.0, abs=5.0)
            assert window.watched_seconds == pytest.approx(51.0)
    (window,) = observer.windows()
    assert window.job is None
    assert window.gpus[0].uuid == "GPU-a"


def test_a_job_is_forgotten_a_minute_after_it_was_there() -> None:
    """Until then it goes on where it was; after that, it begins anew."""
    for away, expected in ((20, 80.0), (200, 40.0)):
        made = of_a_job(80 + away, job_at(1, 1.0))
        made[40 : 40 + away] = [replace(one, jobs=()) for one in made[40 : 40 + away]]
        _, job, _ = only(watching(made).windows())
        assert job.watched_seconds == pytest.approx(expected)


def test_an_ended_job_keeps_its_last_window_and_its_gpu_is_free() -> None:
    """What the GPU does afterwards is not the job's idling."""
    running = job_at(1, 1.0)
    ended = replace(running, ranks=(), ended_at_unix_seconds=1_700_000_180.0)
    made = looks(140, busy=lambda number: 99.0 if number < 80 else 0.0)
    made = [replace(one, jobs=(running if at < 80 else ended,)) for at, one in enumerate(made)]
    window, free = watching(made).windows()
    assert fact(window, "job.job.ended_at_unix_seconds") is not None
    assert fact(window, "job.watched_seconds") == 80.0
    assert wave(window).duty == 1.0
    assert free.job is None
    assert wave(free).duty == 0.0


def test_what_its_gpu_does_while_a_job_is_stopped_is_left_out() -> None:
    """From the second look at that, also where the job is read only every few seconds."""
    running = job_at(1, 1.0)
    stopped = replace(running, members=(replace(running.members[0], state="T"),))
    made = looks(24, busy=lambda number: 99.0 if number < 21 else 0.0)
    made = [replace(one, jobs=(running if at < 20 else stopped,)) for at, one in enumerate(made)]
    window = after(made)
    assert fact(window, "job.watched_seconds") == 21.0
    assert wave(window).duty == 1.0


def test_foreign_processes_are_those_of_no_member() -> None:
    """Of nobody it is zero; where the driver cannot say whose share it is, unknown."""
    the_job = job_at(1, 1.0)
    rows = (
        Process(pid=1, gpu_uuid="GPU-a", gpu_busy_percent=40.0, gpu_memory_bytes=GIB),
        Process(pid=9, gpu_uuid="GPU-a", gpu_busy_percent=None, gpu_memory_bytes=2 * GIB),
        Process(pid=8, gpu_uuid="GPU-b", gpu_busy_percent=70.0, gpu_memory_bytes=4 * GIB),
    )
    facts = after(of_a_job(20, the_job, processes=rows)).gpus[0]
    assert (facts.own_busy_percent, facts.own_memory_bytes) == (40.0, GIB)
    assert (facts.foreign_busy_percent, facts.foreign_memory_bytes) == (None, 2 * GIB)
    alone = after(of_a_job(20, the_job, processes=rows[:1]))
    assert alone.gpus[0].foreign_busy_percent == 0.0
    unread = after(of_a_job(20, the_job))
    assert unread.gpus[0].foreign_memory_bytes is None


def test_stacks_are_shown_with_their_job() -> None:
    """As they were noted last."""
    observer = watching(of_a_job(5, job_at(1, 1.0)))
    stacks = (("waits for data", 62.0, "train.py:41"),)
    observer.note_stacks((1, 1.0), stacks)
    assert only(observer.windows())[1].stacks == stacks


def test_dense_driver_samples_are_thinned() -> None:
    """Fifty a second show no more than ten for what is asked here, and cost five times as much."""
    made = []
    for one in looks(70, busy=50.0):
        begin = one.taken_at_unix_seconds - 0.98
        fresh = [BusySample(begin + 0.02 * at, 100.0 if at < 25 else 0.0) for at in range(50)]
        made.append(replace(one, gpus=(gpu(busy_percent=50.0, busy_samples=tuple(fresh)),)))
    busy = wave(after(made))
    assert busy.sample_seconds == pytest.approx(0.1, rel=0.05)
    assert busy.period_seconds == pytest.approx(1.0, rel=0.05)


def test_hours_of_watching_keep_no_more_than_minutes() -> None:
    """Everything it holds is as large after four hours as after one."""
    the_job = job_at(1, 1.0)
    observer = Observer()
    sizes = []
    for number, one in enumerate(looks(4 * 360, interval=10.0, memory_used_bytes=GIB)):
        observer.push(replace(one, jobs=(the_job,), host=Host(name="a", memory_used_bytes=GIB)))
        if number in (360, 4 * 360 - 1):
            observer.windows()
            sizes.append(held(observer))
    assert sizes[1] <= 1.05 * sizes[0]


def held(thing: Any, seen: set[int] | None = None) -> int:
    """How many objects hang on it."""
    seen = set() if seen is None else seen
    if id(thing) in seen or isinstance(thing, str | int | float | bool | type(None) | Snapshot):
        return 0
    seen.add(id(thing))
    parts: list[Any] = []
    if isinstance(thing, dict):
        parts = list(thing.values())
    elif isinstance(thing, list | tuple | set | frozenset) or hasattr(thing, "popleft"):
        parts = list(thing)
    elif hasattr(thing, "typecode"):
        return len(thing)
    for kind in type(thing).__mro__:
        parts += [getattr(thing, name, None) for name in getattr(kind, "__slots__", ())]
    parts += list(getattr(thing, "__dict__", {}).values())
    return 1 + sum(held(part, seen) for part in parts)


# Such large examples take minutes to shrink, longer than a test may take: what fails would be told
# as a test that hangs.
@settings(phases=[phase for phase in Phase if phase is not Phase.shrink])
@given(st.lists(snapshots(), min_size=1, max_size=4))
def test_no_snapshot_breaks_it(made: list[Snapshot]) -> None:
    """Whatever the model allows, in whatever order."""
    observer = Observer()
    for one in made:
        observer.push(one)
        for window in observer.windows():
            assert len({facts.uuid for facts in window.gpus}) == len(window.gpus)


def test_a_gpu_that_a_job_names_twice_counts_once() -> None:
    """A recording may say so; the same GPU is in a window once, and its readings count once."""
    once = Job(pid=7, members=(JobMember(pid=7, role="rank"),), gpu_uuids=("GPU-a",))
    window = after(of_a_job(20, replace(once, gpu_uuids=("GPU-a", "GPU-a"))))
    assert [facts.uuid for facts in window.gpus] == ["GPU-a"]
    assert window.gpus == after(of_a_job(20, once)).gpus


def test_samples_of_one_moment_are_one_sample() -> None:
    """Stamps that do not move on (a recording may hold them) break nothing."""
    samples = [BusySample(1_700_000_010.5, percent) for percent in (0.0, 20.0, 40.0, 60.0)]
    made = gpu(busy_percent=30.0, busy_samples=(*samples, samples[1]))
    window = after([snapshot(at, gpus=(made,)) for at in (10.0, 11.0)])
    assert window.gpus[0].uuid == "GPU-a"


MANY = tuple(Job(pid=pid, members=(JobMember(pid=pid, role="rank"),)) for pid in range(1, 41))


def used_by(busy: Callable[[int], float]) -> tuple[Process, ...]:
    """Their shares of the GPU, by PID."""
    return tuple(
        Process(pid=one.pid, gpu_uuid="GPU-a", gpu_busy_percent=busy(one.pid)) for one in MANY
    )


def followed(observer: Observer) -> list[int]:
    return [one.job.job.pid for one in observer.windows() if one.job is not None]


def test_of_many_jobs_the_busiest_are_followed() -> None:
    """A machine of notebooks costs no more than one of sixteen jobs; the attached one is there."""
    jobs = (replace(MANY[0], attached=True), *MANY[1:])
    seen = followed(watching(of_a_job(20, *jobs, processes=used_by(float))))
    assert len(seen) == FOLLOWED_JOBS_MAX
    assert seen[0] == 1
    assert set(seen[1:]) == set(range(26, 41))


def test_of_many_jobs_one_that_is_attached_to_is_followed_at_once() -> None:
    """Somebody looks at it."""
    observer = Observer()
    for second, one in enumerate(looks(8, busy=99.0)):
        attached = replace(MANY[-1], attached=second >= 4)
        observer.push(replace(one, jobs=(*MANY[:-1], attached)))
        seen = followed(observer)
        assert (40 in seen) == (second >= 4)
        assert len(seen) == FOLLOWED_JOBS_MAX


def test_jobs_that_swing_out_of_step_stay_followed() -> None:
    """Each of them is the busiest for a moment: taken at its word then, none would be watched for
    long enough to say anything of it."""
    observer, seen = Observer(), dict[int, set[int]]()
    for second, one in enumerate(looks(120, busy=99.0)):
        turn = second % 4
        busy = used_by(lambda pid, turn=turn: 95.0 * ((turn + pid) % 4 == 0) + (pid > 24))
        observer.push(replace(one, jobs=MANY, processes=busy))
        if second in (70, 119):
            seen[second] = set(followed(observer))
    assert len(seen[119]) == FOLLOWED_JOBS_MAX
    assert seen[119] == seen[70]


def test_errors_of_links_count_from_the_first_look_on() -> None:
    """An old count says nothing, whatever it is; one that falls counts anew."""
    observer = Observer()
    counts = [7000] * 20 + [7003] * 20 + [2] * 20
    for count, made in zip(counts, machine("healthy", 60), strict=False):
        (one,) = made.gpus
        reading = replace(one.reading, pcie_replay_count=count, nvlink_replay_count=None)
        port = RdmaPort(device="mlx5_0", port=1, state="active", symbol_error_count=count)
        host = replace(made.host, rdma_ports=(port,))
        observer.push(replace(made, gpus=(replace(one, reading=reading),), host=host))
    (window,) = observer.windows()
    (facts,), (port_facts,) = window.gpus, window.host.ports or ()
    assert (facts.pcie_replays_new, facts.nvlink_replays_new) == (3, None)
    assert facts.link_errors_seconds == pytest.approx(59.0, abs=1.0)
    assert (port_facts.name, port_facts.errors_new) == ("InfiniBand port mlx5_0/1", 3)
    assert not port_facts.went_down
