"""The jobs of a simulated machine follow from the same queue as its charts."""

from functools import cache
from statistics import mean

import pytest

from gpuwatch.core.model import JOB_ROLES, BusySample, Job, JobMember, Snapshot
from gpuwatch.core.source import ManualClock
from gpuwatch.sources.simulated.source import SCENARIOS, SimulatedSource
from tests.support.simulated import looks


@cache
def run(scenario: str, gpus: int = 1, seconds: int = 60) -> tuple[Snapshot, ...]:
    return tuple(looks(scenario, seconds + 1, gpus=gpus))


def jobs(scenario: str, gpus: int = 1) -> list[Job]:
    """The first job of each snapshot."""
    return [item.jobs[0] for item in run(scenario, gpus) if item.jobs]


def average(found: list[Job], role: str, name: str) -> float:
    values = [getattr(member, name) for job in found for member in job.having(role)]
    return mean(value for value in values if value is not None)


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_members_are_the_processes_of_the_table(scenario: str) -> None:
    """A process says the same of itself in its row and in its job, and each has one job."""
    for item in run(scenario, 5, 24)[::8]:
        rows = {process.key: process for process in item.processes}
        seen: set[object] = set()
        for job in item.jobs:
            assert job.key == job.members[0].key
            for member in job.members:
                check_member(member, job)
                row = rows[member.key]
                assert (member.cpu_percent, member.state) == (row.cpu_percent, row.state)
                assert member.memory_resident_bytes == row.memory_resident_bytes
                assert (member.parent_pid, member.name) == (row.parent_pid, row.name)
                assert member.key not in seen
                seen.add(member.key)
        on_gpus = {process.key for process in item.processes if process.gpu_uuid is not None}
        assert on_gpus <= seen


def check_member(member: JobMember, job: Job) -> None:
    assert member.role in JOB_ROLES
    assert member.role_sign
    pids = [one.pid for one in job.members]
    if member.parent_pid in pids:
        assert pids.index(member.parent_pid) < pids.index(member.pid)
    main, queue = member.main_thread_cpu_percent, member.run_queue_wait_percent
    disk = member.disk_wait_percent
    assert main is not None
    assert queue is not None
    assert disk is not None
    assert min(main, queue, disk) >= 0.0
    # A thread does one thing at a time.
    assert main + queue + disk <= 101.0
    assert (member.cpu_percent or 0.0) + 0.11 >= main
    assert 0 < (member.memory_proportional_bytes or 0) <= (member.memory_resident_bytes or 0)
    for rate in (
        member.read_bytes_per_second,
        member.write_bytes_per_second,
        member.voluntary_switches_per_second,
        member.involuntary_switches_per_second,
    ):
        assert rate is not None
        assert rate >= 0.0


def test_launched_job_has_a_launcher_ranks_and_their_workers() -> None:
    """torchrun on top, the ranks by number on their GPUs, each with its own workers."""
    item = run("healthy", 4)[-1]
    job = item.jobs[0]
    assert [member.role for member in job.members] == [
        "launcher", "rank", *["loader_worker"] * 8, "rank", *["loader_worker"] * 8,
    ]  # fmt: skip
    assert job.launcher == "torchrun"
    assert job.world_size == 2
    assert [rank.rank for rank in job.ranks] == [0, 1]
    assert [rank.gpu_uuids for rank in job.ranks] == [(item.gpus[n].uuid,) for n in range(2)]
    assert [rank.loader_workers for rank in job.ranks] == [8, 8]
    assert job.pinned_memory is True
    assert {member.rank for member in job.members[2:10]} == {0}
    assert "RANK=1" in (job.members[10].role_sign or "")


def test_loading_in_the_training_process_is_no_worker() -> None:
    """Zero workers is a known number; pinning cannot be seen then and is unknown."""
    (rank,) = jobs("main_process")[-1].ranks
    assert rank.loader_workers == 0
    assert rank.pinned_memory is None
    assert rank.pinned_memory_sign
    assert average(jobs("main_process"), "rank", "read_bytes_per_second") > 1e6


def samples_of(found: list[Job], name: str) -> dict[float, float]:
    pairs: list[BusySample] = [sample for job in found for sample in getattr(job, name) or ()]
    assert len(pairs) == len({sample.at_unix_seconds for sample in pairs})
    return {sample.at_unix_seconds: sample.percent for sample in pairs}


def test_fine_samples_agree_with_the_readings() -> None:
    """The mean of the fine samples of half a minute is that of the polled values."""
    found = jobs("starved")[1:]
    for name, polled in (
        ("main_thread_samples", "main_thread_cpu_percent"),
        ("loader_worker_samples", "loader_worker_cpu_percent"),
    ):
        fine = mean(samples_of(found, name).values())
        assert fine == pytest.approx(mean(getattr(job, polled) for job in found), abs=1.0)


# --- attaching --------------------------------------------------------------------------------


def test_attached_job_comes_first_with_fine_samples() -> None:
    """From the next snapshot on; any process of a job leads to it, and the one before is let go."""
    clock = ManualClock()
    source = SimulatedSource("starved", gpus=4, clock=clock)
    before = source.read().jobs
    assert len(before[0].main_thread_samples or ()) > 100
    clock.advance(1.0)
    source.options.attached = source.find(before[1].members[-1].pid)
    first, second = source.read().jobs
    assert (first.key, second.key) == (before[1].key, before[0].key)
    assert (first.attached, second.attached) == (True, False)
    assert 4 <= len(first.main_thread_samples or ()) <= 6
    assert second.main_thread_samples is None
    clock.advance(1.0)
    source.options.attached = None
    assert [job.key for job in source.read().jobs] == [job.key for job in before]


def test_pid_nobody_has_is_not_found() -> None:
    """An unknown PID gives no key; so does one whose process has ended."""
    clock = ManualClock()
    source = SimulatedSource("rerun", clock=clock)
    pid = source.read().jobs[0].pid
    assert source.find(999_999) is None
    assert source.find(pid) == source.read().jobs[0].key
    clock.advance(70.0)
    source.read()
    assert source.find(pid) is None


def test_process_of_no_job_can_be_attached_to() -> None:
    """A shell has neither GPU nor workers: it is a job of one process, and its row is shown."""
    source = SimulatedSource("starved", clock=ManualClock())
    key = source.find(1)
    source.options.attached = key
    item = source.read()
    assert item.jobs[0].attached
    assert [member.key for member in item.jobs[0].members] == [key]
    assert item.jobs[0].members[0].role_guessed
    assert item.jobs[0].loader_workers is None
    assert key in {process.key for process in item.processes}
    assert len(item.jobs) == 2


def test_cpu_job_is_shown_when_asked_for() -> None:
    """A job without a GPU is in the list only while somebody is attached to it."""
    source = SimulatedSource("no_gpu", clock=ManualClock())
    item = source.read()
    assert item.jobs == ()
    source.options.attached = next(p.key for p in item.processes if p.name == "python")
    (job,) = source.read().jobs
    assert job.loader_workers == 4
    assert job.gpu_uuids == ()


@pytest.mark.parametrize("attached", [True, False])
def test_job_that_ends_stays_only_for_who_is_attached(attached: bool) -> None:
    """Its last state and the time of its end are kept for the one who watched it."""
    clock = ManualClock()
    source = SimulatedSource("rerun", clock=clock)
    begun = source.read()
    if attached:
        source.options.attached = begun.jobs[0].key
    clock.advance(59.0)
    assert source.read().jobs[0].ended_at_unix_seconds is None
    clock.advance(11.0)
    item = source.read()
    assert not item.processes
    if not attached:
        assert item.jobs == ()
        return
    (job,) = item.jobs
    assert job.ended_at_unix_seconds == pytest.approx(begun.taken_at_unix_seconds + 60.0)
    assert job.members == ()
    assert job.loader_workers == 2
    assert job.main_thread_cpu_percent is None


def test_rerun_is_the_same_command_with_more_workers_and_a_busier_gpu() -> None:
    """The second run differs from the first in its loader, and in what the GPU makes of it."""
    found = run("rerun", seconds=150)
    first, second = found[30].jobs[0], found[150].jobs[0]
    assert first.key != second.key
    assert (first.command, first.user, first.working_directory) == (
        second.command,
        second.user,
        second.working_directory,
    )
    assert (first.loader_workers, second.loader_workers) == (2, 6)
    assert found[68].jobs == ()
    # Until its loader starts, how a job will load is unknown and not zero.
    early = next(item.jobs[0] for item in found[70:] if item.jobs)
    assert early.ranks[0].loader_workers is None
    assert early.ranks[0].loader_workers_sign
    # Imports and loading are on one core, and the GPU waits for them.
    assert found[78].processes[0].cpu_percent == 97.0
    assert found[78].gpus[0].reading.busy_percent == 0.0

    def busy(part: tuple[Snapshot, ...]) -> float:
        return mean(item.gpus[0].reading.busy_percent or 0.0 for item in part)

    assert busy(found[20:58]) < 60
    assert busy(found[110:]) > 85
