"""Jobs of real PyTorch on the CPU: what is said of their workers and of pinned memory is true."""

import contextlib
import os
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.core.model import JobRank
from gpuwatch.jobs.identity import process_facts
from gpuwatch.jobs.tracking.loader import PIN_SETTLE_SECONDS, WATCHED_SECONDS, YOUNG_SECONDS
from gpuwatch.jobs.words import job_loading_sentence
from gpuwatch.sources.linux import procfs
from tests.jobs.tracking.watching import Watch, key_of, members, watching
from tests.support.children import wait_until
from tests.support.installed import needs
from tests.support.torch_job import SCRIPT, TrainingJob

pytestmark = needs("torch")


@pytest.fixture(scope="module")
def job(tmp_path_factory: pytest.TempPathFactory) -> Iterator[TrainingJob]:
    with TrainingJob(tmp_path_factory.mktemp("job")) as made:
        yield made


@pytest.fixture
def watch(job: TrainingJob) -> Iterator[Watch]:
    """Attached to the job, and past its youth."""
    with watching(job.pid) as made:
        made.clock.unix_epoch_seconds += YOUNG_SECONDS
        yield made
    job.pin(False)


def rank_of(watch: Watch, after: float = 0.0) -> JobRank:
    (rank,) = watch.job(after=after).ranks
    return rank


@pytest.mark.parametrize("workers", [1, 4])
def test_forked_workers_are_counted(job: TrainingJob, watch: Watch, workers: int) -> None:
    """Named by PyTorch, so it is no guess; without a thread that pins, that is off."""
    pids = job.load(workers)
    found = watch.job()
    assert found.framework == "torch"
    assert {member.pid for member in found.having("loader_worker")} == set(pids)
    assert not any(member.role_guessed for member in found.members)
    (rank,) = found.ranks
    assert (rank.loader_workers, rank.loader_workers_guessed) == (workers, False)
    assert rank_of(watch, after=PIN_SETTLE_SECONDS + 1).pinned_memory is False
    plural = "" if workers == 1 else "s"
    assert (
        job_loading_sentence(watch.job()) == f"{workers} loader worker{plural}, pinned memory off"
    )


def test_no_workers_means_that_the_training_process_loads(job: TrainingJob, watch: Watch) -> None:
    """Unknown while it is young, a guess at first sight, sure after a while; pinning cannot be
    seen then."""
    job.load(0)
    with watching(job.pid) as young:
        started = key_of(job.pid)[1]
        young.clock.unix_epoch_seconds = started + 5 - young.clock.seconds
        rank = rank_of(young)
        assert (rank.loader_workers, rank.loader_workers_sign) == (None, "it started only 5s ago")
    rank = rank_of(watch)
    assert (rank.loader_workers, rank.loader_workers_guessed) == (0, True)
    rank = rank_of(watch, after=WATCHED_SECONDS)
    assert (rank.loader_workers, rank.loader_workers_guessed) == (0, False)
    assert rank.pinned_memory is None
    assert (
        job_loading_sentence(watch.job()) == "no workers: any loading runs in the training process"
    )


def test_the_thread_that_pins_shows_pinned_memory(job: TrainingJob, watch: Watch) -> None:
    """While it is there, and for a while after the epoch's end."""
    job.load(2)
    job.pin(True)
    assert rank_of(watch).pinned_memory is True
    assert job_loading_sentence(watch.job()) == "2 loader workers, pinned memory on"
    job.end_epoch()
    job.pin(False)
    rank = rank_of(watch, after=3.0)
    assert (rank.loader_workers, rank.pinned_memory) == (None, True)
    assert rank.loader_workers_sign == "it had 2 until 3s ago"


def test_workers_of_another_start_method(job: TrainingJob, watch: Watch) -> None:
    """The worker is named; the processes that multiprocessing needs are helpers."""
    (worker,) = job.load(1, context="forkserver")
    found = watch.job()
    by_pid = members(found)
    assert by_pid[worker].role == "loader_worker"
    assert not by_pid[worker].role_guessed
    assert found.ranks[0].loader_workers == 1
    rest = [m for m in found.members if m.pid not in (worker, job.pid)]
    assert rest
    assert {member.role for member in rest} == {"helper"}
    assert any("multiprocessing" in (member.role_sign or "") for member in rest)


@pytest.mark.parametrize("names_workers", [True, False])
def test_children_without_a_name(
    job: TrainingJob, monkeypatch: pytest.MonkeyPatch, names_workers: bool
) -> None:
    """From PyTorch 2.5 on they are a pool, or environments: it would have named its loader workers.
    Before, they are shown as workers by a guess, and pinned memory is unknown."""
    monkeypatch.setattr(process_facts, "_names_workers", lambda *_: names_workers)
    job.end_epoch()
    pids = job.load(2, unnamed=True)
    wait_until(lambda: all(_name(pid) == "python" for pid in pids))
    with watching(job.pid) as watch:
        watch.clock.unix_epoch_seconds += YOUNG_SECONDS
        found = watch.job()
    (rank,) = found.ranks
    guessed = found.having("helper" if names_workers else "loader_worker")
    assert set(pids) <= {one.pid for one in guessed if one.role_guessed}
    assert rank.loader_workers == (0 if names_workers else 2)
    if not names_workers:
        assert (rank.loader_workers_guessed, rank.pinned_memory) == (True, None)
        assert job_loading_sentence(found).startswith("probably 2 loader workers")


def test_who_is_busy_and_who_waits(job: TrainingJob, watch: Watch) -> None:
    """With a busy transform the workers use the cores while the main thread waits for them."""
    job.load(2, transform="busy")
    watch.look()
    began = _cpu_seconds(job.pid)
    job.work(1.5)
    found = watch.job(after=1.5)
    main = members(found)[job.pid].main_thread_cpu_percent
    work = found.loader_worker_cpu_percent
    assert main < work
    # The kernel's own count of the main thread agrees.
    assert main == pytest.approx(100 * (_cpu_seconds(job.pid) - began) / 1.5, abs=10)


@pytest.mark.skipif(
    procfs.read_if_possible("/proc/self/wchan") == b"", reason="the kernel does not say"
)
def test_a_worker_asleep_within_a_batch_does_not_wait_to_be_asked(
    job: TrainingJob, watch: Watch
) -> None:
    """It reads from a pipe that another process fills slowly; one whose batches are all made waits
    for the training process. Both sleep and use no CPU."""

    def seen(pids: list[int], at_work: bool) -> bool:
        by_pid = members(watch.job(after=3.0))
        states = [by_pid[pid].awaits_work for pid in pids]
        assert all(by_pid[pid].children_cpu_percent in (0.0, None) for pid in pids)
        return states == [not at_work] * len(pids)

    held = job.load(2, transform="pipe")
    wait_until(lambda: seen(held, at_work=True))
    idle = job.load(2)
    wait_until(lambda: seen(idle, at_work=False))


def test_a_disk_bound_job_shows_what_it_writes(job: TrainingJob, watch: Watch) -> None:
    """Bytes a second of the worker, as the kernel counts them for storage."""
    (worker,) = job.load(1, transform="disk")
    # The worker goes on while it is looked at.
    around, within = [_written(worker)], []
    watch.look()
    within.append(_written(worker))
    job.work(0.5)
    within.append(_written(worker))
    rate = members(watch.job(after=1.0))[worker].write_bytes_per_second
    around.append(_written(worker))
    if None in (*around, *within):
        assert rate is None
    else:
        # A folder in memory counts for nothing.
        assert within[1] - within[0] <= rate + 1
        assert rate - 1 <= around[1] - around[0]


@pytest.fixture(scope="module")
def torchrun(tmp_path_factory: pytest.TempPathFactory) -> Iterator[tuple[int, list[int]]]:
    """A torchrun job of two ranks with two workers each: its PID and those of its ranks."""
    folder = tmp_path_factory.mktemp("torchrun")
    process = subprocess.Popen(
        [
            *(sys.executable, "-m", "torch.distributed.run", "--standalone"),
            *("--nproc-per-node", "2", str(SCRIPT), str(folder)),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        env={**os.environ, "GLOO": "1", "OMP_NUM_THREADS": "1"},
        cwd=folder,
        start_new_session=True,
        text=True,
    )
    ranks = [int(process.stdout.readline()) for _ in range(2)]
    groups = {os.getpgid(pid) for pid in [process.pid, *ranks]}
    yield process.pid, ranks
    for group in groups:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(group, signal.SIGKILL)
    process.wait()
    process.stdout.close()


@pytest.mark.parametrize("asked", ["launcher", "second rank"])
def test_torchrun_and_its_ranks_are_one_job(torchrun: tuple[int, list[int]], asked: str) -> None:
    """Whichever of them is attached to: ranks by number, each with its own workers."""
    launcher, pids = torchrun
    with watching(launcher if asked == "launcher" else pids[1]) as watch:
        found = watch.job()
        assert (found.pid, found.launcher, found.framework) == (launcher, "torchrun", "torch")
        assert found.world_size == 2
        assert [rank.rank for rank in found.ranks] == [0, 1]
        assert {rank.pid for rank in found.ranks} == set(pids)
        assert [rank.loader_workers for rank in found.ranks] == [2, 2]
        assert [m.rank for m in found.having("loader_worker")] == [0, 0, 1, 1]
        assert not any(member.role_guessed for member in found.members)
        assert job_loading_sentence(found).startswith("2 loader workers each")


def test_a_killed_rank_leaves_the_job_with_the_others(torchrun: tuple[int, list[int]]) -> None:
    """Last in this module: it ends the job, which goes on until its launcher has ended too."""
    launcher, pids = torchrun
    with watching(launcher) as watch:
        watch.look()
        os.kill(launcher, signal.SIGSTOP)
        os.kill(pids[0], signal.SIGKILL)
        wait_until(lambda: _state(pids[0]) in ("Z", None))
        watch.look(after=1.0)
        found = watch.job(after=1.0)
        assert [rank.pid for rank in found.ranks] == [pids[1]]
        assert found.ended_at_unix_seconds is None
        os.kill(launcher, signal.SIGCONT)


def _name(pid: int) -> str:
    return Path(f"/proc/{pid}/comm").read_text().strip()


def _state(pid: int) -> str | None:
    with contextlib.suppress(OSError):
        return Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()[0]
    return None


def _cpu_seconds(pid: int) -> float:
    return int(Path(f"/proc/{pid}/schedstat").read_text().split()[0]) / 1e9


def _written(pid: int) -> int | None:
    with contextlib.suppress(OSError):
        lines = Path(f"/proc/{pid}/io").read_text().splitlines()
        return next(int(line.split()[1]) for line in lines if line.startswith("write_bytes"))
    return None
