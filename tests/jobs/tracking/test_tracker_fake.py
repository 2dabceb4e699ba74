"""Jobs on a /proc of literal text: what a real machine cannot be made to show."""

from __future__ import annotations

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.jobs.tracking.loader import PIN_SETTLE_SECONDS
from gpuwatch.jobs.tracking.machine import LOOK_SECONDS
from tests.jobs.tracking.watching import Watch, members, roles
from tests.support.fake_proc import BOOTED_AT, FakeProc

# Above every real PID.
FIRST = 5_000_000
TRAIN = b"python\0train.py\0"
TORCH = b"7f00-7f01 r-xp 0 0:0 1 /site-packages/torch/lib/libtorch_cpu.so\n"


class Machine:
    """Processes with all the files that jobs are read from."""

    def __init__(self, root: Path) -> None:
        self.proc = FakeProc(root)
        self.watch = Watch(root)
        self.watch.clock.unix_epoch_seconds = BOOTED_AT + 100_000.0

    def add(
        self,
        pid: int,
        parent: int = 1,
        *,
        name: str = "python",
        command: bytes = TRAIN,
        environment: str = "",
        threads: tuple[str, ...] = (),
        started_ticks: int = 12_345,
        torch: bool = False,
        state: str = "S",
    ) -> int:
        self.proc.process(
            pid,
            name=name,
            parent=parent,
            command=command,
            started_ticks=started_ticks,
            state=state,
        )
        self.proc.write(f"{pid}/environ", environment)
        self.proc.write(f"{pid}/maps", TORCH if torch else b"")
        self.proc.write(f"{pid}/schedstat", "0 0 0\n")
        for at, thread in enumerate((name, *threads)):
            self.proc.write(f"{pid}/task/{pid + at}/comm", f"{thread}\n")
        return pid


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.watch.close()


def attach(machine: Machine, pid: int, started_ticks: int = 12_345) -> None:
    machine.watch.options.attached = (pid, BOOTED_AT + started_ticks / 100)


def limited(machine: Machine, pid: int, group: str, cores: int) -> Callable[[int, int], None]:
    """Put a process into a cgroup with a quota; gives what sets its periods, all and throttled."""
    top = machine.proc.root.parent / "cgroups"
    folder = top / group
    folder.mkdir(parents=True)
    (folder / "cpu.max").write_text(f"{cores * 100_000} 100000\n")
    machine.proc.write("self/mountinfo", f"30 22 0:26 / {top} rw - cgroup2 cgroup2 rw\n")
    machine.proc.write(f"{pid}/cgroup", f"0::/{group}\n")

    def count(periods: int, throttled: int) -> None:
        (folder / "cpu.stat").write_text(f"nr_periods {periods}\nnr_throttled {throttled}\n")

    count(0, 0)
    return count


def test_limits_are_those_of_the_ranks_there_are_now(tmp_path: Path) -> None:
    """Not of the launcher, which was there before them, nor of a rank that was started again
    elsewhere; at once, though limits are looked at only now and then."""
    (tmp_path / "proc").mkdir()
    machine = Machine(tmp_path / "proc")
    launcher = machine.add(FIRST, name="torchrun", command=b"python\0-m\0torch.distributed.run\0")
    limited(machine, launcher, "outside", 9)
    attach(machine, launcher)
    assert machine.watch.job().quota_cores == 9.0
    for at, group in ((1, "first"), (2, "second")):
        rank = machine.add(FIRST + at, launcher, torch=True, started_ticks=12_345 + at)
        count = limited(machine, rank, group, at)
        job = machine.watch.job(rank, after=2.0)
        assert (job.quota_cores, job.cpu_throttled_percent) == (float(at), None)
        count(10, at)
        assert machine.watch.job(rank, after=1.0).cpu_throttled_percent == 10.0 * at
        machine.proc.remove(rank)
    machine.watch.close()


def test_what_a_sleeper_does_when_it_wakes_is_counted_once_and_whole(machine: Machine) -> None:
    """It is read seldom while it sleeps; what it then writes is told as bytes a second that,
    over the seconds for which they are told, add up to what it wrote."""
    rank = machine.add(FIRST, torch=True)
    told = "rchar: 0\nread_bytes: 0\nwrite_bytes: {}\ncancelled_write_bytes: 0\n"
    machine.proc.write(f"{rank}/io", told.format(0))
    for _ in range(30):
        machine.watch.look(rank, after=1.0)
    written = 0.0
    for second in range(30):
        if second % 10 == 9:
            machine.proc.write(f"{rank}/io", told.format((second // 10 + 1) * 3_000_000))
            machine.proc.process(rank, ticks=second)
        written += machine.watch.job(rank, after=1.0).write_bytes_per_second or 0.0
    for _ in range(10):
        written += machine.watch.job(rank, after=1.0).write_bytes_per_second or 0.0
    assert written == pytest.approx(9_000_000)


def test_ranks_that_are_started_again_and_again_leave_nothing_behind(machine: Machine) -> None:
    """A launcher that restarts what fails may do so for weeks."""
    launcher = machine.add(FIRST, name="torchrun", command=b"python\0-m\0torch.distributed.run\0")
    attach(machine, launcher)
    for at in range(1, 11):
        rank = machine.add(FIRST + at, launcher, torch=True, started_ticks=12_345 + at)
        assert [one.pid for one in machine.watch.job(rank, after=2.0).ranks] == [rank]
        machine.proc.remove(rank)
    assert len(machine.watch.tracker._jobs[0]._watches) <= 2


def test_a_recycled_number_is_another_process(machine: Machine) -> None:
    """A worker's PID that goes to a child of somebody else leaves the job."""
    rank = machine.add(FIRST, torch=True)
    worker = machine.add(FIRST + 1, rank, name="pt_data_worker")
    attach(machine, rank)
    assert roles(machine.watch.job()) == {rank: "rank", worker: "loader_worker"}
    machine.proc.remove(worker)
    machine.watch.look(after=2.0)
    machine.add(worker, 77, name="vim", command=b"vim\0", started_ticks=99_999)
    assert roles(machine.watch.job(after=2.0)) == {rank: "rank"}


def test_a_recycled_number_within_the_job_is_a_new_member(machine: Machine) -> None:
    """Another start time: nothing of the first one's readings is kept."""
    rank = machine.add(FIRST, torch=True)
    worker = machine.add(FIRST + 1, rank, name="pt_data_worker")
    attach(machine, rank)
    before = members(machine.watch.job())[worker].key
    machine.proc.remove(worker)
    machine.add(worker, rank, name="ffmpeg", command=b"ffmpeg\0", started_ticks=99_999)
    machine.watch.look(after=2.0)
    after = members(machine.watch.job(after=2.0))[worker]
    assert after.key != before
    assert after.role == "other"


def test_the_rank_itself_recycled_ends_the_job(machine: Machine) -> None:
    """Somebody else's process of that PID is not the attached job."""
    rank = machine.add(FIRST, torch=True)
    attach(machine, rank)
    machine.watch.look()
    machine.proc.remove(rank)
    machine.add(rank, 77, name="vim", command=b"vim\0", started_ticks=99_999)
    job = machine.watch.job(after=2.0)
    assert job.ended_at_unix_seconds is not None
    assert [(m.name, m.state) for m in job.members] == [("python", None)]


def test_ranks_below_slurmstepd_are_one_job(machine: Machine) -> None:
    """Nothing here started them all; the job and step of Slurm say that they belong together."""
    daemon = machine.add(FIRST, name="slurmstepd", command=b"slurmstepd: [7.0]\0")
    for at in (1, 2):
        machine.add(
            FIRST + at,
            daemon,
            torch=True,
            environment=f"SLURM_JOB_ID=7\0SLURM_STEP_ID=0\0SLURM_PROCID={at - 1}\0"
            "SLURM_STEP_NUM_TASKS=2\0",
        )
    other = machine.add(
        FIRST + 3, daemon, torch=True, environment="SLURM_JOB_ID=8\0SLURM_STEP_ID=0\0"
    )
    job, alone = machine.watch.look(FIRST + 1, FIRST + 2, other)
    assert [(rank.pid, rank.rank) for rank in job.ranks] == [(FIRST + 1, 0), (FIRST + 2, 1)]
    assert job.world_size == 2
    assert alone.pid == other


def test_attaching_to_one_rank_below_slurmstepd_finds_those_beside_it(machine: Machine) -> None:
    """On no GPU, so that only the look around the machine shows the others."""
    daemon = machine.add(FIRST, name="slurmstepd", command=b"slurmstepd: [7.0]\0")
    for at in (1, 2):
        machine.add(FIRST + at, daemon, environment="SLURM_JOB_ID=7\0SLURM_STEP_ID=0\0", torch=True)
    attach(machine, FIRST + 2)
    machine.watch.look()
    assert set(roles(machine.watch.job(after=1.0))) == {FIRST + 1, FIRST + 2}


def test_what_gpuwatch_started_below_another_job_is_its_own(machine: Machine) -> None:
    """A notebook on a GPU starts gpuwatch, that a training: neither takes in the other."""
    notebook = machine.add(FIRST, command=b"python\0notebook.py\0", torch=True)
    gpuwatch = machine.add(os.getpid(), notebook, name="gpuwatch", command=b"gpuwatch\0run\0")
    training = machine.add(FIRST + 2, gpuwatch, torch=True)
    attach(machine, training)
    machine.watch.look_at_all(notebook)
    jobs = machine.watch.look_at_all(notebook, after=1.0)
    assert [set(roles(job)) for job in jobs] == [{training}, {notebook}]
    assert machine.watch.problems == ()


def test_two_commands_that_share_a_rank_launcher_stay_two_jobs(machine: Machine) -> None:
    """Two trainings of one person in one terminal have nothing to do with each other."""
    shell = machine.add(FIRST, name="bash", command=b"-bash\0")
    one = machine.add(FIRST + 1, shell, torch=True)
    two = machine.add(FIRST + 2, shell, torch=True)
    assert [job.pid for job in machine.watch.look(one, two)] == [one, two]


def test_a_launcher_that_dies_leaves_one_job(machine: Machine) -> None:
    """The ranks go on with init above them: the same job as before."""
    launcher = machine.add(FIRST, name="torchrun", command=b"torchrun\0train.py\0")
    for at in (1, 2):
        machine.add(FIRST + at, launcher, environment=f"RANK={at - 1}\0WORLD_SIZE=2\0")
    gpus = (FIRST + 1, FIRST + 2)
    key = machine.watch.job(*gpus).key
    machine.proc.remove(launcher)
    for at in (1, 2):
        machine.add(FIRST + at, 1, environment=f"RANK={at - 1}\0WORLD_SIZE=2\0")
    machine.watch.look(*gpus, after=2.0)
    job = machine.watch.job(*gpus, after=2.0)
    assert job.key == key
    assert [rank.rank for rank in job.ranks] == [0, 1]
    assert job.ended_at_unix_seconds is None
    assert job.command == "torchrun train.py"


def test_an_unnamed_orphan_in_the_ranks_group_belongs_to_its_job(machine: Machine) -> None:
    """Its parent, another rank, ended before anybody watched: same command, same process group."""
    rank = machine.add(FIRST, 1, torch=True)
    orphan = machine.add(FIRST + 1, 1)
    stranger = machine.add(FIRST + 2, 1, command=b"python\0other.py\0")
    attach(machine, rank)
    machine.watch.look()
    machine.watch.look(after=LOOK_SECONDS)
    job = machine.watch.job(after=1.0)
    assert stranger not in roles(job)
    assert members(job)[orphan].orphaned


def test_a_rank_of_hundreds_of_threads_shows_its_pinning_thread(machine: Machine) -> None:
    """The list is read over several looks; until it is whole nothing is denied."""
    threads = (*[f"pool-{at}" for at in range(400)], "pt_data_pin")
    rank = machine.add(FIRST, torch=True, threads=threads)
    machine.add(FIRST + 500, rank, name="pt_data_worker")
    attach(machine, rank)
    answers = [machine.watch.job().ranks[0].pinned_memory]
    for _ in range(6):
        answers.append(machine.watch.job(after=PIN_SETTLE_SECONDS).ranks[0].pinned_memory)
    assert answers[-1] is True
    assert False not in answers


def test_hostile_names_are_made_safe(machine: Machine) -> None:
    """Nothing a process can put in its name or environment reaches the terminal."""
    rank = machine.add(
        FIRST,
        name="\x1b[2J",
        command=b"python\0\x1b]0;owned\x07\0",
        environment="CONDA_DEFAULT_ENV=\x1b[31m\0",
        torch=True,
    )
    machine.add(FIRST + 1, rank, name="\x9b31m", command=b"\xff\xfe\0")
    attach(machine, rank)
    job = machine.watch.job()
    texts = [job.command, job.environment, *[m.name for m in job.members]]
    texts += [member.command for member in job.members]
    assert len(job.members) == 2
    assert all(text is None or text.isprintable() for text in texts)


def test_processes_only_the_driver_knows_make_no_job(machine: Machine) -> None:
    """Inside a container: their PIDs mean nothing here."""
    assert machine.watch.look(FIRST + 7) == ()
    assert machine.watch.problems == ()
