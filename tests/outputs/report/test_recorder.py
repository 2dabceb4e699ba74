"""What a report says of a job, against waveforms worked out by hand."""

import dataclasses
import re
from typing import Any

import pytest
from hypothesis import given, settings

from gpuwatch.core.model import (
    BusySample,
    Job,
    JobMember,
    Problem,
    Process,
    ReasonSeconds,
    Snapshot,
)
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.outputs.report.accumulator import EVALUATE_SECONDS
from gpuwatch.outputs.report.document import verdict
from gpuwatch.outputs.report.model import FindingUse, GpuUsage, decode, encode
from gpuwatch.outputs.report.recorder import JOBS_RECORDED, JobRecorder, JobRecorders
from gpuwatch.outputs.report.text import report_text
from tests.diagnosis.engines import machine
from tests.outputs.report.stories import (
    COMMAND,
    KEY,
    PID,
    STARTED,
    UNIX,
    job,
    look,
    of_job,
    on_gpu,
    rank,
    rank_member,
    recorded,
    recorded_job,
    samples,
    watched_jobs,
    worker_member,
)
from tests.support.snapshots import gpu, snapshot


def of_gpu(*looks: tuple[float, dict[str, Any]], **fields: Any) -> GpuUsage:
    """The report of a job's only GPU, seen with these readings at these seconds."""
    snapshots = [look(at, job(), [gpu(**reading)], **fields) for at, reading in looks]
    [report] = recorded(snapshots).gpus
    return report


def short_bursts(at: float) -> float:
    return 100.0 if at % 1 > 0.71 else 0.0


FIRST = samples(0, 1, 100.0)


@pytest.mark.parametrize(
    ("looks", "watched", "busy", "interval"),
    [
        # 100% for 1 s, 50% for 2 s and 0% for 1 s are 2 busy seconds of 4.
        ([(0, 7.0, None), (1, 100.0, None), (3, 50.0, None), (4, 0.0, None)], 4, 2, 1),
        # The driver's samples say 20%, though each look happened on 99%.
        ([(at, 99.0, samples(at - 1, at, short_bursts)) for at in range(11)], 10, 2, 1),
        # With a look every 10 s the driver's buffer may hold the last 2 s only.
        ([(at, None, samples(at - 2, at, 25.0)) for at in (0, 10, 20)], 20, 5, 10),
        # Of 60 s without a look it remembers the last 2; the first sample reaches back to nothing.
        ([(0, None, ()), (60, None, samples(58, 60, 50.0))], 1.8, 0.9, 1),
        # The same stamps again, and stamps of the time before the last look.
        ([(0, None, ()), (1, None, FIRST[:3]), (2, None, FIRST + samples(1, 2, 0.0))], 2, 1, 1),
        # A buffer that fails is followed by single values: no time is counted twice.
        (
            [
                (0, None, ()),
                (1, None, FIRST),
                (1.5, None, (BusySample(UNIX + 1.5, 100.0),)),
                (2, 0.0, None),
                (2.5, None, (BusySample(UNIX + 2.4, 100.0),)),
                (3, 0.0, None),
            ],
            2.9,
            1.9,
            1,
        ),
    ],
)
def test_busy_time_is_each_value_for_the_time_since_the_one_before(
    looks: list[tuple[float, float | None, tuple[BusySample, ...] | None]],
    watched: float,
    busy: float,
    interval: float,
) -> None:
    """Fine samples count before the value of the moment, and no time counts twice."""
    readings = [(at, {"busy_percent": now, "busy_samples": fine}) for at, now, fine in looks]
    report = of_gpu(*readings, interval_seconds=float(interval))
    assert report.watched_seconds == pytest.approx(watched)
    assert report.busy_seconds == pytest.approx(busy)
    assert report.idle_seconds == pytest.approx(watched - busy)
    assert report.busy_from_samples == any(fine for _, _, fine in looks)


def test_samples_that_come_after_the_end_count_up_to_it() -> None:
    """The driver hands samples over late; the job's end cuts them."""
    running = job()
    ended = dataclasses.replace(running, ended_at_unix_seconds=UNIX + 2.5, gpu_uuids=())
    snapshots = [
        look(0.0, running, [gpu(busy_samples=())]),
        look(1.0, running, [gpu(busy_samples=samples(0, 1, 100.0))]),
        look(2.0, running, [gpu(busy_samples=())]),
        look(3.0, ended, [gpu(busy_samples=samples(1, 2, 100.0))]),
        look(4.0, ended, [gpu(busy_samples=samples(2, 4, 0.0))]),
        look(9.0, ended, [gpu(busy_samples=samples(4, 9, 100.0))]),
    ]
    report = recorded(snapshots)
    assert of_job(report).ended_at_unix_seconds == UNIX + 2.5
    assert report.duration_seconds == pytest.approx(2.5)
    assert report.gpus[0].busy_seconds == pytest.approx(2)
    assert report.gpus[0].watched_seconds == pytest.approx(2.5)


def test_a_gpu_is_the_jobs_only_while_the_job_is_on_it() -> None:
    """Not before its first process is there, nor after the last has left, though its counter of
    energy goes on counting for others."""
    elsewhere, busy = job(gpu_uuids=()), {3: 0.0, 7: 50.0}
    snapshots = [
        look(
            float(at),
            job() if at in (2, 3, 6, 7) else elsewhere,
            [gpu(busy_percent=busy.get(at, 100.0), energy_joules=100.0 * at)],
        )
        for at in range(8)
    ]
    [report] = recorded(snapshots).gpus
    assert report.seen_seconds == pytest.approx(2)
    assert report.busy_percent == pytest.approx(25)
    assert report.energy_joules == pytest.approx(200)


def test_a_gpu_lost_halfway_is_held_but_not_watched() -> None:
    """What it did until then stays; what it did after is not known."""
    unlisted = job(gpu_uuids=())
    snapshots = [
        look(0.0, job(), [gpu(busy_percent=0.0)]),
        look(1.0, job(), [gpu(busy_percent=100.0)]),
        look(2.0, job(), [gpu(busy_percent=50.0)]),
        look(3.0, unlisted, [gpu(lost=True)]),
        look(4.0, unlisted, [gpu(lost=True)]),
    ]
    [report] = recorded(snapshots).gpus
    assert report.seen_seconds == pytest.approx(4)
    assert report.watched_seconds == pytest.approx(2)
    assert report.busy_percent == pytest.approx(75)
    assert [one.begin_unix_seconds for one in report.lost] == [UNIX + 2]


def test_what_is_never_read_is_none() -> None:
    """No reading at all: no zero anywhere, and the reason where a problem gave one."""
    problem = Problem(source="nvml", message="not supported", target="GPU-a", reading=None)
    snapshots = [look(float(at), job(), [gpu()], problems=(problem,)) for at in range(4)]
    report = recorded(snapshots)
    [card] = report.gpus
    measured = {"busy_readings", "busy_from_samples", "received_seconds", "other_tenants_peak"}
    measured |= {"uuid", "index", "name", "memory_total_bytes", "seen_seconds", "busy_missing"}
    measured |= {"other_tenant_seconds", "other_users", "lost", "profiles"}
    for name in set(card.__struct_fields__) - measured:
        assert getattr(card, name) is None, name
    assert card.busy_missing == "not supported"
    assert card.profiles == {}
    assert report.total.idle_gpu_seconds is None
    assert report.total.energy_joules is None
    job_ = of_job(report)
    for name in ("cpu_core_seconds", "cpu_mean_cores", "memory_peak_bytes", "read_bytes"):
        assert getattr(job_, name) is None, name
    assert of_job(report).loading.main_thread_cpu_percent is None
    assert report.time.covered_seconds == pytest.approx(3)


def test_a_mig_instance_says_why_it_has_no_busy_share() -> None:
    """NVML has no utilisation of an instance."""
    card = gpu()
    part = dataclasses.replace(
        card, identity=dataclasses.replace(card.identity, mig_instance=3, mig_parent_uuid="x")
    )
    [report] = recorded([look(float(at), job(), [part]) for at in range(3)]).gpus
    assert report.label == "0.3"
    assert report.busy_missing == "the driver reports none for a MIG instance"


def test_peaks_are_of_the_jobs_processes_and_of_the_gpu() -> None:
    """Two processes of the job together, and the GPU with everybody on it."""
    second = worker_member(0, role="other")
    both = job(members=(rank_member(), second))
    gib = 2**30
    snapshots = [
        look(
            at,
            both,
            [gpu(memory_used_bytes=used * gib, temperature_celsius=heat, power_watts=watts)],
            processes=(
                on_gpu(gpu_memory_bytes=mine * gib),
                on_gpu(second.pid, gpu_memory_bytes=2 * gib),
                on_gpu(99, gpu_memory_bytes=50 * gib),
            ),
        )
        for at, used, mine, heat, watts in (
            (0.0, 60, 1, 40.0, 100.0),
            (1.0, 70, 9, 71.0, 300.0),
            (3.0, 65, 5, 60.0, 150.0),
        )
    ]
    [report] = recorded(snapshots).gpus
    assert report.job_memory_peak_bytes == 11 * gib
    assert report.memory_peak_bytes == 70 * gib
    assert report.temperature_peak_celsius == 71
    assert report.power_peak_watts == 300
    assert report.power_mean_watts == pytest.approx((300 * 1 + 150 * 2) / 3)


@pytest.mark.parametrize(
    ("looks", "joules", "source"),
    [
        # Not the power times the time, and also while nobody watched.
        ([(0, 5000, 100), (1, 5150, 100), (20, 8000, 100), (21, 8100, 100)], 3100, "counter"),
        # The step in which it went back is left out.
        ([(0, 5000, 100), (1, 5150, 100), (2, 40, 120), (3, 140, 100)], 250, "counter"),
        ([(0, None, 200), (1, None, 200), (3, None, 200)], 600, "power"),
        # A counter that comes back counts for the time it was not read.
        ([(0, 1000, 200), (1, None, 200), (2, 1500, 200)], 500, "counter"),
    ],
)
def test_energy_is_what_the_counter_grew_by_or_power_times_time(
    looks: list[tuple[int, float | None, float]], joules: float, source: str
) -> None:
    """And it is said which."""
    readings = [(at, {"energy_joules": count, "power_watts": power}) for at, count, power in looks]
    report = of_gpu(*readings)
    assert (report.energy_joules, report.energy_from) == (pytest.approx(joules), source)


@pytest.mark.parametrize(
    ("looks", "watts"),
    [
        # Polls that miss the peaks of a power that swings.
        ([(at, 1000.0 + 280.0 * at, 300.0) for at in range(5)], 280.0),
        # A counter that was read for half of the time says nothing of the other half.
        ([(0, None, 300), (1, None, 300), (2, 1000, 300), (3, 1280, 300), (4, 1560, 300)], 300.0),
        ([(0, None, 300), (1, None, 300), (2, None, 200)], 250.0),
    ],
)
def test_mean_power_and_energy_are_from_one_source(
    looks: list[tuple[int, float | None, float]], watts: float
) -> None:
    """The mean power times the time is the energy, where the counter was read all the time."""
    readings = [(at, {"energy_joules": count, "power_watts": power}) for at, count, power in looks]
    assert of_gpu(*readings).power_mean_watts == pytest.approx(watts)


COUNTED = (ReasonSeconds("sw_power_cap", 0.4), ReasonSeconds("gpu_idle", 0.6))


@pytest.mark.parametrize(
    ("looks", "held"),
    [
        # The driver's counters; the reasons in force at the looks would say 3 s.
        (
            [(at, ("sw_power_cap", "gpu_idle"), None if at == 2 else COUNTED) for at in range(4)],
            [("sw_power_cap", 0.8)],
        ),
        # Without counters the time of each reason: idle and chosen clocks are no throttling.
        (
            [
                (0, ("sw_power_cap",), None),
                (1, ("sw_power_cap", "hw_thermal_slowdown"), None),
                (3, ("hw_thermal_slowdown", "applications_clocks_setting"), None),
                (4, ("gpu_idle",), None),
            ],
            [("hw_thermal_slowdown", 3.0), ("sw_power_cap", 1.0)],
        ),
        ([(0, (), None), (1, (), None)], []),
    ],
)
def test_throttled_time_is_by_reason_the_longest_first(
    looks: list[tuple[int, tuple[str, ...], tuple[ReasonSeconds, ...] | None]],
    held: list[tuple[str, float]],
) -> None:
    """Empty where it was never throttled."""
    report = of_gpu(*[(at, {"throttle_reasons": r, "throttle_durations": d}) for at, r, d in looks])
    found = [(one.reason, pytest.approx(one.seconds)) for one in report.throttled or ()]
    assert found == held
    assert report.throttled is not None


def test_others_on_the_same_gpu_are_noted() -> None:
    """How many, for how long, whose; a desktop's drawing is no tenant."""
    crowd = (
        on_gpu(user="ada"),
        on_gpu(7, user="bob"),
        on_gpu(8, user="eve"),
        on_gpu(9, user="gdm", gpu_kind="graphics"),
        on_gpu(10, uuid="GPU-b", user="mallory"),
    )
    looks: list[tuple[float, tuple[Process, ...]]] = [
        (0.0, crowd[:1]),
        (1.0, crowd),
        (2.0, crowd[:2]),
        (3.0, crowd[:1]),
    ]
    snapshots = [look(at, job(), [gpu(), gpu("GPU-b", 1)], processes=there) for at, there in looks]
    [report] = recorded(snapshots).gpus
    assert report.other_tenant_seconds == pytest.approx(2)
    assert report.other_tenants_peak == 2
    assert report.other_users == ("bob", "eve")


def test_each_gpu_of_a_job_has_a_report_in_the_order_of_the_machine() -> None:
    """And the job's sums are over all of them."""
    watched = job(gpu_uuids=("GPU-b", "GPU-a"))
    snapshots = [
        look(
            float(at),
            watched,
            [
                gpu("GPU-a", 0, busy_percent=100.0, energy_joules=100.0 * at),
                gpu("GPU-b", 1, busy_percent=50.0, energy_joules=50.0 * at),
                gpu("GPU-c", 2, busy_percent=1.0, energy_joules=7.0 * at),
            ],
        )
        for at in range(5)
    ]
    report = recorded(snapshots)
    assert [card.index for card in report.gpus] == [0, 1]
    assert report.total.busy_percent == pytest.approx(75)
    assert report.total.idle_gpu_seconds == pytest.approx(2)
    assert report.total.energy_joules == pytest.approx(600)


def test_processes_are_summed_and_averaged_over_real_time() -> None:
    """Core-seconds, shares, waits, memory and bytes of a rank with two workers."""
    busy = job(
        members=(
            rank_member(
                cpu_percent=50.0,
                main_thread_cpu_percent=40.0,
                run_queue_wait_percent=2.0,
                memory_resident_bytes=300,
                memory_proportional_bytes=200,
                write_bytes_per_second=10.0,
            ),
            worker_member(
                0,
                cpu_percent=100.0,
                disk_wait_percent=8.0,
                run_queue_wait_percent=6.0,
                memory_resident_bytes=200,
                memory_proportional_bytes=50,
                read_bytes_per_second=1000.0,
            ),
            worker_member(
                1,
                cpu_percent=60.0,
                disk_wait_percent=0.0,
                run_queue_wait_percent=2.0,
                memory_resident_bytes=200,
                memory_proportional_bytes=50,
                read_bytes_per_second=500.0,
            ),
        ),
        usable_cores=8.0,
        quota_cores=8.0,
        cpu_throttled_percent=12.0,
    )
    calm = dataclasses.replace(
        busy,
        members=(rank_member(cpu_percent=10.0, main_thread_cpu_percent=10.0),),
        cpu_throttled_percent=0.0,
    )
    report = recorded([look(0.0, busy), look(1.0, busy), look(3.0, busy), look(4.0, calm)])
    expected = {
        "cpu_core_seconds": 2.1 * 3 + 0.1,
        "cpu_mean_cores": 6.4 / 4,
        "cpu_peak_cores": 2.1,
        "usable_cores": 8,
        "cpu_throttled_percent": 9,
        "memory_resident_peak_bytes": 700,
        "memory_proportional_peak_bytes": 300,
        "read_bytes": 4500,
        "written_bytes": 30,
    }
    of_loading = {
        "loader_worker_cpu_percent": 80,
        "loader_worker_at_limit_percent": 50,
        "loader_worker_queue_wait_percent": 4,
        "loader_worker_disk_wait_percent": 4,
        "main_thread_cpu_percent": (40 * 3 + 10) / 4,
        "main_thread_at_limit_percent": 0,
    }
    for part, wanted in ((of_job(report), expected), (of_job(report).loading, of_loading)):
        assert {name: getattr(part, name) for name in wanted} == pytest.approx(wanted)


MEMORY = "memory_proportional_bytes", "memory_resident_bytes"


@pytest.mark.parametrize(
    ("looks", "proportional", "resident"),
    [
        ([[(100, 200)]] * 3, 100, 200),
        # It was read before the workers came, and theirs never was.
        ([[(100, 200)]] * 3 + [[(100, 200), (None, 5000)]] * 6, None, 5200),
        # In a short job it is read only once, while the process was still importing.
        ([[(33, 35)], [(33, 35)], [(33, 230)]], None, 230),
        ([[(33, 35)], [(33, 35)], [(33, 230)], [(210, 231)]], 210, 231),
    ],
)
def test_shared_memory_that_was_read_too_seldom_is_no_peak(
    looks: list[list[tuple[int | None, int]]], proportional: int | None, resident: int
) -> None:
    """Looks are the (proportional, resident) memory of the rank and its workers."""
    taken = []
    for at, ((shared, held), *workers) in enumerate(looks):
        main = rank_member(memory_proportional_bytes=shared, memory_resident_bytes=held)
        others = [
            worker_member(n, **dict(zip(MEMORY, both, strict=True)))
            for n, both in enumerate(workers)
        ]
        taken.append(look(float(at), job(members=(main, *others))))
    report = recorded_job(taken)
    assert report.memory_proportional_peak_bytes == proportional
    assert report.memory_resident_peak_bytes == resident


def young(seconds: int) -> dict[str, Any]:
    return {"loader_workers": 2, "pinned_memory_sign": f"its workers began {seconds}s ago"}


UNPINNED = {"loader_workers": 2, "pinned_memory": False}


@pytest.mark.parametrize(
    ("ranks", "sentence"),
    [
        # The last reason of what is not known counts; what is known says more.
        ([young(n) for n in range(5)],
         "2 loader workers, pinned memory unknown: its workers began 4s ago"),
        ([*[young(n) for n in range(5)], UNPINNED, UNPINNED],
         "2 loader workers, pinned memory off"),
        # What was probable and then certain is certain, however short the rest of the time.
        ([{"loader_workers_guessed": True}] * 8,
         "probably no workers: any loading runs in the training process"),
        ([*[{"loader_workers_guessed": True}] * 8, {}],
         "no workers: any loading runs in the training process"),
        ([*[{"loader_workers_guessed": True} | UNPINNED] * 8, {}],
         "probably 2 loader workers, pinned memory off"),
        ([{"loader_workers": None, "loader_workers_sign": "another user's process"}] * 3,
         "loading unknown: another user's process"),
    ],
)  # fmt: skip
def test_how_data_was_loaded_is_said_for_all_of_the_time(
    ranks: list[dict[str, Any]], sentence: str
) -> None:
    """Ranks are as each look saw them; no number is made up."""
    looks = [look(float(at), job(ranks=(rank(**fields),))) for at, fields in enumerate(ranks)]
    loading = recorded_job(looks).loading
    assert loading.sentence == sentence
    assert (loading.loader_workers is None) == sentence.startswith("loading unknown")


def test_workers_of_each_epoch_are_counted_as_they_come() -> None:
    """Two epochs of three workers, with a while without any: three at once, six started."""

    def with_workers(first: int, count: int) -> Any:
        members = [worker_member(first + n) for n in range(count)]
        return job(
            members=(rank_member(), *members),
            ranks=(rank(loader_workers=count, pinned_memory=True if count else None),),
        )

    steps = [(0, 0), (0, 3), (0, 3), (0, 0), (0, 0), (0, 0), (3, 3), (3, 3), (0, 0)]
    loading = recorded_job(
        [look(float(at), with_workers(*step)) for at, step in enumerate(steps)]
    ).loading
    assert loading.loader_workers == 3
    assert loading.loader_workers_peak == 3
    assert loading.loader_workers_started == 6
    assert loading.pinned_memory is True
    assert loading.sentence == "3 loader workers, pinned memory on"


def test_profiles_of_workers_and_main_thread_come_from_fine_samples() -> None:
    """They show what happens between two looks."""
    snapshots = [
        look(
            float(at),
            job(
                main_thread_samples=samples(at - 1, at, lambda t: 100.0 if t % 1 > 0.5 else 0.0),
                loader_worker_samples=samples(at - 1, at, 30.0),
            ),
        )
        for at in range(5)
    ]
    profiles = recorded_job(snapshots).profiles
    main = profiles["main_thread_cpu_percent"]
    assert min(v for v in main.minimum if v is not None) == 0
    assert max(v for v in main.maximum if v is not None) == 100
    assert set(profiles["loader_worker_cpu_percent"].mean) == {30.0}


def test_what_is_no_measurement_is_left_out() -> None:
    """NaN, infinity and negative values of a broken recording change no sum."""
    nan, inf = float("nan"), float("inf")
    odd = job(members=(rank_member(cpu_percent=nan, main_thread_cpu_percent=-5.0),))
    fine = job(members=(rank_member(cpu_percent=50.0, main_thread_cpu_percent=20.0),))
    bad = gpu(
        busy_percent=nan,
        power_watts=inf,
        energy_joules=nan,
        busy_samples=(BusySample(UNIX + 1.0, 900.0), BusySample(nan, 50.0)),
    )
    good = gpu(busy_percent=50.0, power_watts=100.0)
    report = recorded([look(0.0, fine, [good]), look(1.0, odd, [bad]), look(2.0, fine, [good])])
    assert report.gpus[0].busy_percent == pytest.approx(50)
    assert report.gpus[0].power_peak_watts == 100
    assert report.gpus[0].energy_joules == pytest.approx(100)
    assert of_job(report).cpu_core_seconds == pytest.approx(0.5)
    assert of_job(report).loading.main_thread_cpu_percent == pytest.approx(20)


def test_a_job_that_runs_has_no_end() -> None:
    """A report may be asked for at any time; asking changes nothing, nor does a snapshot that is
    not newer, which the screen may hand over twice."""
    recorder = JobRecorder(KEY)
    looks = [look(float(at), job(), [gpu(busy_percent=50.0)]) for at in range(4)]
    for each in (*looks, *looks):
        recorder.push(each)
    first = recorder.report()
    assert not first.has_ended
    assert first.duration_seconds == 3
    assert not recorder.ended
    assert recorder.report() == first


def test_a_job_never_seen_has_no_report() -> None:
    """Also if other jobs were, one of the same PID among them: the start time tells them apart."""
    later = {"started_at_unix_seconds": STARTED + 60}
    again = job(**later, members=(rank_member(**later),))
    for key, other in (((77, 1.0), job()), (KEY, again)):
        recorder = JobRecorder(key)
        recorder.push(look(0.0, other))
        assert not recorder.seen
        with pytest.raises(ValueError, match="no snapshot"):
            recorder.report()


def test_a_job_that_is_gone_ended_when_it_was_last_seen() -> None:
    """Nobody saw the end, so the report says that it is not exact."""
    looks = [look(0.0, job()), look(1.0, job())]
    ended = recorded_job([*looks, look(2.0, None), look(3.0, None)])
    assert ended.ended_at_unix_seconds == UNIX + 1
    assert ended.end_is_last_seen
    # The reader of jobs failed: it may well be running.
    failed = Problem(source="jobs", message="/proc cannot be read", severity="error")
    unread = recorded_job([*looks, look(2.0, None, problems=(failed,))])
    assert unread.ended_at_unix_seconds is None


def test_a_job_is_found_by_any_of_its_processes() -> None:
    """A person may have attached to a worker."""
    member = worker_member(0)
    watched = job(members=(rank_member(), member))
    report = recorded([look(0.0, watched), look(1.0, watched)], key=member.key)
    assert report.pid == PID


def test_ranks_that_outlive_their_launcher_are_still_the_job() -> None:
    """The topmost process changes; the report keeps the first, and goes on."""
    launcher = rank_member(pid=10, started_at_unix_seconds=STARTED, role="launcher")
    ranked = job(
        pid=10, command="torchrun train.py", members=(launcher, rank_member(parent_pid=10))
    )
    left = job(command="python train.py")
    report = recorded(
        [look(0.0, ranked), look(1.0, ranked), look(2.0, left), look(3.0, left)], key=launcher.key
    )
    assert report.pid == 10
    assert report.time.covered_seconds == pytest.approx(3)
    assert of_job(report).ended_at_unix_seconds is None


def test_what_a_look_says_of_a_job_just_started_is_of_the_time_since_its_start() -> None:
    """The look before came too early to see it."""
    late = job(
        started_at_unix_seconds=UNIX + 1.25,
        members=(rank_member(started_at_unix_seconds=UNIX + 1.25, cpu_percent=100.0),),
    )
    report = recorded(
        [look(0.0, None), look(1.0, None), look(2.0, late), look(3.0, late)], key=late.key
    )
    assert report.time.begin_unix_seconds == UNIX + 1.25
    assert report.time.covered_seconds == pytest.approx(1.75)
    assert of_job(report).cpu_core_seconds == pytest.approx(1.75)


def test_runs_of_the_same_command_folder_and_user_have_the_same_digest() -> None:
    """Whatever their PID and the number of workers; and others have another."""

    def digest(**fields: Any) -> str | None:
        watched = job(**fields)
        return recorded([look(0.0, watched)], key=watched.key).run_digest

    same = digest()
    assert same is not None
    assert digest(pid=99) == same
    assert digest(command=f"{COMMAND} --num-workers 8") == same
    assert digest(command=f"{COMMAND} --lr 1") != same
    assert digest(user="bob") != same
    assert digest(working_directory="/tmp") != same
    assert digest(working_directory=None) is None


def test_facts_of_a_process_that_ended_are_kept() -> None:
    """Little can be read of a process that is gone: one that ended at once is named by how it was
    started, and what was read before is better."""
    ended = job(user=None, command=None, working_directory=None, ended_at_unix_seconds=UNIX + 1.5)
    report = recorded([look(0.0, job()), look(1.0, job()), look(2.0, ended)])
    assert (of_job(report).command, of_job(report).user) == (COMMAND, "ada")
    assert report.run_digest is not None
    gone = look(1.0, job(command="[python]", ended_at_unix_seconds=UNIX + 0.5))
    for before, command in (((), "python train.py"), ((look(0.0, job()),), COMMAND)):
        recorder = JobRecorder(KEY, command="python train.py")
        for each in (*before, gone):
            recorder.push(each)
        assert of_job(recorder.report()).command == command


def test_a_long_job_keeps_its_extremes_and_gaps_in_bounded_profiles() -> None:
    """Two hours become a few hundred buckets; one spike and one gap are still there."""
    recorder = JobRecorder(KEY)
    for at in range(0, 7200, 2):
        percent = 100.0 if at == 3000 else 40.0
        reading = {} if 5000 <= at < 5200 else {"busy_percent": percent}
        recorder.push(look(float(at), job(), [gpu(**reading)]))
    report = recorder.report()
    course = report.gpus[0].profiles["busy_percent"]
    assert 120 <= len(course.mean) <= 240
    assert len(course.mean) * report.time.bucket_seconds >= 7198
    assert max(v for v in course.maximum if v is not None) == 100
    missing = [place for place, value in enumerate(course.mean) if value is None]
    assert missing
    assert all(5000 <= place * report.time.bucket_seconds < 5200 for place in missing)
    [spike] = [place for place, value in enumerate(course.maximum) if value == 100]
    assert abs(spike * report.time.bucket_seconds - 3000) <= report.time.bucket_seconds


@settings(max_examples=30)
@given(watched_jobs())
def test_busy_and_idle_add_up_to_the_time_watched(snapshots: list[Snapshot]) -> None:
    """Shares stay within 0 to 100%, no more is watched than time passed, and nothing is lost when
    it is written and read."""
    report = recorded(snapshots)
    assert decode(encode(report)) == report
    elapsed = snapshots[-1].monotonic_seconds - snapshots[0].monotonic_seconds
    slack = 1e-6
    assert 0 <= report.time.covered_seconds <= elapsed + slack
    for card in report.gpus:
        assert 0 <= card.seen_seconds <= elapsed + slack
        assert card.energy_joules is None or card.energy_joules >= 0
        if card.busy_seconds is None or card.watched_seconds is None:
            continue
        assert card.watched_seconds <= elapsed + slack
        assert card.busy_seconds + card.idle_seconds == pytest.approx(card.watched_seconds)
        assert card.busy_percent is None or 0 <= card.busy_percent <= 100
        for profile in card.profiles.values():
            for value in (*profile.minimum, *profile.maximum):
                assert value is None or 0 <= value <= 100


def said_of(found: FindingUse) -> tuple[str, str, list[str]]:
    return found.rule, found.summary, [one.action for one in found.advice]


@pytest.mark.parametrize(("scenario", "gpus"), [("starved", 1), ("mixed", 8)])
def test_a_job_watched_live_is_said_to_have_what_its_recording_has(
    scenario: str, gpus: int
) -> None:
    """The same findings, with their times, costs and cures, by who diagnoses it meanwhile."""
    looks = list(machine(scenario, 90, gpus))
    key = looks[0].jobs[0].key
    live, read = JobRecorder(key), JobRecorder(key, live=False)
    engine = Engine(evaluate_seconds=EVALUATE_SECONDS)
    for each in looks:
        engine.push(each)
        live.push(each, engine.diagnosis)
        read.push(each)
    engine.finish()
    live.note_diagnosis(engine.diagnosis)
    ours, theirs = live.report(), read.report()
    assert theirs.findings
    assert [said_of(one) for one in ours.findings] == [said_of(one) for one in theirs.findings]
    # The number said first stays while it hardly moves, and their first looks differ.
    gains = [one.gain.factor for found in theirs.findings for one in found.advice if one.gain]
    ours_gain = [one.gain.factor for found in ours.findings for one in found.advice if one.gain]
    assert ours_gain == pytest.approx(gains, rel=0.05)
    costs = [one.cost_gpu_seconds for one in theirs.findings]
    assert [one.cost_gpu_seconds for one in ours.findings] == pytest.approx(costs, rel=0.02)
    gain = re.compile(r"about [\d.]+ times")
    assert gain.sub("", verdict(ours)) == gain.sub("", verdict(theirs))
    assert verdict(ours) in " ".join(report_text(ours, width=80).split())


def test_nothing_is_said_of_other_jobs() -> None:
    """Of a machine of several, the report of one has its own findings only."""
    looks = list(machine("mixed", 60, 8))
    engine = Engine()
    recorders = {job.key: JobRecorder(job.key) for job in looks[-1].jobs}
    for each in looks:
        engine.push(each)
        for recorder in recorders.values():
            recorder.push(each, engine.diagnosis)
    found = {key: recorder.report().findings for key, recorder in recorders.items()}
    assert len({one.rule for those in found.values() for one in those}) > 2
    for key, findings in found.items():
        assert {one.job for one in findings} <= {key, None}


def many(count: int, at: float, **fields: Any) -> Snapshot:
    """``count`` jobs on a GPU each; the later ones hold more of its memory."""
    keys = [(100 + number, 50.0) for number in range(count)]
    held = [
        Process(
            pid=pid, started_at_unix_seconds=start, gpu_uuid="GPU-a", gpu_memory_bytes=pid << 20
        )
        for pid, start in keys
    ]
    members = [JobMember(pid=pid, started_at_unix_seconds=start) for pid, start in keys]
    jobs = [
        Job(pid=one.pid, started_at_unix_seconds=50.0, members=(one,), **fields) for one in members
    ]
    return snapshot(at=at, gpus=(gpu(),), processes=tuple(held), jobs=tuple(jobs))


def test_the_jobs_with_the_most_gpu_memory_are_recorded() -> None:
    """As many as the bound says, before anybody asks; any other from when it is asked for. Those
    that have ended make room."""
    recorders = JobRecorders()
    now = many(JOBS_RECORDED + 2, 100.0)

    def push(one: Snapshot) -> None:
        recorders.push(one, one.jobs)

    push(now)
    push(many(JOBS_RECORDED + 2, 101.0))
    fewest, least, *most = [recorders.recorder(job.key) for job in now.jobs]
    assert not fewest.seen
    assert not least.seen
    assert [one.report().time.covered_seconds for one in most] == [1.0] * JOBS_RECORDED
    push(many(JOBS_RECORDED + 2, 102.0))
    assert fewest.seen
    assert fewest is recorders.recorder(now.jobs[0].key)
    over = many(JOBS_RECORDED + 2, 103.0, ended_at_unix_seconds=102.5)
    push(over)
    alone = dataclasses.replace(many(0, 104.0), jobs=(job(),))
    push(alone)
    assert recorders.recorder(KEY).seen
    assert not recorders.recorder(now.jobs[-1].key).seen
