"""Jobs on a ``/proc`` of literal text: what belongs to one, over time."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.commands.watching import SETTLE_SECONDS
from gpuwatch.jobs.tracking.loader import PIN_SETTLE_SECONDS
from gpuwatch.jobs.tracking.tracker import LOOK_SECONDS
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
            pid, name=name, parent=parent, command=command, started_ticks=started_ticks, state=state
        )
        self.proc.write(f"{pid}/environ", environment)
        self.proc.write(f"{pid}/maps", TORCH if torch else b"")
        self.proc.write(f"{pid}/schedstat", "0 0 0\n")
        for at, thread in enumerate((name, *threads)):
            self.proc.write(f"{pid}/task/{pid + at}/comm", f"{thread}\n")
        return pid

    def end(self, pid: int) -> None:
        """Files that are kept open say nothing any more, either."""
        self.proc.write(f"{pid}/stat", "")
        self.proc.remove(pid)

    def attach(self, pid: int, started_ticks: int = 12_345) -> None:
        self.watch.options.attached = (pid, BOOTED_AT + started_ticks / 100)


@pytest.fixture
def machine(tmp_path: Path) -> Iterator[Machine]:
    made = Machine(tmp_path)
    yield made
    made.watch.close()


def test_any_process_of_a_job_leads_to_it(machine: Machine) -> None:
    """A worker leads to the training process above it; a shell above that is no part of it, but
    a job when it is asked for itself."""
    shell = machine.add(FIRST, name="bash", command=b"bash\0train.sh\0")
    rank = machine.add(FIRST + 1, shell)
    worker = machine.add(FIRST + 2, rank, name="pt_data_worker")
    whole = {rank: "rank", worker: "loader_worker"}
    for asked, expected in ((rank, whole), (worker, whole), (shell, whole | {shell: "other"})):
        machine.attach(asked)
        assert roles(machine.watch.job(after=1.0)) == expected


def test_a_script_between_two_commands_has_not_ended(machine: Machine) -> None:
    """Attached to a shell script: what it starts next belongs to the job too."""
    shell = machine.add(FIRST, name="sh", command=b"sh\0-c\0sleep 600; sleep 601\0")
    machine.attach(shell)
    for number in (1, 2):
        assert machine.watch.job(after=2.0).ended_at_unix_seconds is None
        child = machine.add(FIRST + number, shell, name="sleep", command=b"sleep\0600\0")
        machine.watch.look(after=2.0)
        job = machine.watch.job(after=2.0)
        assert set(roles(job)) == {shell, child}
        assert job.ended_at_unix_seconds is None
        machine.end(child)


def test_a_program_that_is_no_python_is_a_job_too(machine: Machine) -> None:
    """Its CPU side is still useful; how it loads data is not known."""
    machine.attach(machine.add(FIRST, name="sleep", command=b"sleep\0600\0"))
    job = machine.watch.job()
    assert (job.members[0].role, job.members[0].role_guessed) == ("rank", True)
    assert job.ranks[0].loader_workers is None
    assert job.ranks[0].loader_workers_sign


def test_a_launcher_and_its_ranks_are_one_job(machine: Machine) -> None:
    """With the numbers from their environment; each worker belongs to its rank."""
    launcher = machine.add(FIRST, name="torchrun", command=b"torchrun\0train.py\0")
    for number in (0, 1):
        numbers = f"RANK={number}\0LOCAL_RANK={number}\0WORLD_SIZE=2\0"
        rank = machine.add(FIRST + 10 + number, launcher, environment=numbers)
        machine.add(FIRST + 20 + number, rank, name="pt_data_worker")
    zero, one = FIRST + 10, FIRST + 11
    # Of the two ranks, both on GPUs, one job is made.
    job = machine.watch.job(zero, one)
    assert (job.pid, job.launcher, job.world_size) == (launcher, "torchrun", 2)
    ranks = [(rank.pid, rank.rank, rank.local_rank, rank.gpu_uuids) for rank in job.ranks]
    assert ranks == [(zero, 0, 0, ("GPU-0",)), (one, 1, 1, ("GPU-1",))]
    assert (job.gpu_uuids, job.loader_workers, job.attached) == (("GPU-0", "GPU-1"), 2, False)
    assert [(m.pid, m.role, m.rank) for m in job.members] == [
        (launcher, "launcher", None),
        (zero, "rank", 0),
        (FIRST + 20, "loader_worker", 0),
        (one, "rank", 1),
        (FIRST + 21, "loader_worker", 1),
    ]


def test_workers_that_come_and_go(machine: Machine) -> None:
    """Each look counts those that are there; in between it is unknown, not none."""
    rank = machine.add(FIRST, torch=True)
    machine.attach(rank)
    next_pid = FIRST
    for count in (3, 1, 4):
        pids = range(next_pid + 1, next_pid + 1 + count)
        next_pid += count
        for pid in pids:
            machine.add(pid, rank, name="pt_data_worker")
        machine.watch.look(after=2.0)
        job = machine.watch.job(after=0.1)
        assert {m.pid for m in job.having("loader_worker")} == set(pids)
        assert job.ranks[0].loader_workers == count
        for pid in pids:
            machine.end(pid)
        job = machine.watch.job(after=2.0)
        assert job.having("loader_worker") == ()
        assert job.ranks[0].loader_workers is None
        assert job.ranks[0].loader_workers_sign == f"it had {count} until 2s ago"
        assert job.ended_at_unix_seconds is None


def orphaned(machine: Machine, *pids: int) -> list[int]:
    """Loader workers that init took in."""
    return [machine.add(pid, 1, name="pt_data_worker") for pid in pids]


def test_workers_of_a_killed_process_stay_in_the_job_as_orphans(machine: Machine) -> None:
    """They are named as such, keep their role, and the job has ended."""
    rank = machine.add(FIRST)
    workers = [machine.add(FIRST + at, rank, name="pt_data_worker") for at in (1, 2)]
    machine.attach(rank)
    machine.watch.look()
    machine.end(rank)
    orphaned(machine, *workers)
    machine.watch.look(after=1.0)
    job = machine.watch.job(after=1.0)
    assert (job.pid, job.ranks) == (rank, ())
    assert job.ended_at_unix_seconds is not None
    by_pid = members(job)
    assert (by_pid[rank].role, by_pid[rank].state) == ("rank", None)
    for pid in workers:
        assert (by_pid[pid].role, by_pid[pid].orphaned) == ("loader_worker", True)
        assert by_pid[pid].state is not None


def test_orphans_that_were_never_seen_with_their_parent_are_a_job(machine: Machine) -> None:
    """Found by their name and by the process that took them in, and called what they are; at once
    where the driver names one."""
    assert machine.watch.look() == ()
    first, second = orphaned(machine, FIRST, FIRST + 1)
    (job,) = machine.watch.look_at_all(first, after=0.1)
    assert (job.pid, job.gpu_uuids, set(roles(job))) == (first, ("GPU-0",), {first})
    (job,) = machine.watch.look_at_all(after=11.0)
    assert roles(job) == {first: "loader_worker", second: "loader_worker"}
    assert all(member.orphaned for member in job.members)
    assert job.ranks == ()
    assert job.ended_at_unix_seconds is not None


def gone(machine: Machine, rank: int) -> None:
    machine.end(rank)


def recycled(machine: Machine, rank: int) -> None:
    machine.end(rank)
    machine.add(rank, 77, name="vim", command=b"vim\0", started_ticks=99_999)


def zombie(machine: Machine, rank: int) -> None:
    machine.add(rank, state="Z")


@pytest.mark.parametrize("ends", [gone, recycled, zombie])
def test_an_ended_job_stays_while_somebody_is_attached(
    machine: Machine, ends: Callable[[Machine, int], None]
) -> None:
    """With when it ended, also where somebody else's process has its number, or nobody has waited
    for it yet; the next attachment takes its place."""
    rank = machine.add(FIRST, torch=True)
    other = machine.add(FIRST + 1, command=b"python\0other.py\0")
    machine.attach(rank)
    machine.watch.look()
    ends(machine, rank)
    job = machine.watch.job(after=1.0)
    ended = job.ended_at_unix_seconds
    assert ended == machine.watch.clock.unix()
    assert job.ranks == ()
    state = "Z" if ends is zombie else None
    assert [(m.pid, m.name, m.state) for m in job.members] == [(rank, "python", state)]
    assert machine.watch.job(after=60.0).ended_at_unix_seconds == ended
    machine.attach(other)
    assert machine.watch.job(after=1.0).pid == other
    machine.watch.options.attached = None
    assert machine.watch.look(after=1.0) == ()


def test_a_recycled_number_is_another_process(machine: Machine) -> None:
    """A worker's PID that goes to a child of somebody else leaves the job; within the job it is a
    new member."""
    rank = machine.add(FIRST, torch=True)
    worker = machine.add(FIRST + 1, rank, name="pt_data_worker")
    machine.attach(rank)
    before = members(machine.watch.job())[worker].key
    machine.end(worker)
    machine.add(worker, rank, name="ffmpeg", command=b"ffmpeg\0", started_ticks=99_999)
    machine.watch.look(after=2.0)
    after = members(machine.watch.job(after=2.0))[worker]
    assert after.role == "other"
    assert after.key != before
    machine.end(worker)
    machine.watch.look(after=2.0)
    machine.add(worker, 77, name="vim", command=b"vim\0", started_ticks=199_999)
    assert roles(machine.watch.job(after=2.0)) == {rank: "rank"}


def test_a_job_on_a_gpu_goes_when_it_ends_or_leaves_the_gpu(machine: Machine) -> None:
    """A driver that is silent for a moment loses no job. Two trainings in one terminal are two,
    and what only the driver knows (PIDs inside a container) is none."""
    shell = machine.add(FIRST, name="bash", command=b"-bash\0")
    one, two = (machine.add(FIRST + at, shell, torch=True) for at in (1, 2))
    assert [job.pid for job in machine.watch.look(one, two, FIRST + 7)] == [one, two]
    assert machine.watch.problems == ()
    machine.end(two)
    assert machine.watch.job(after=1.0).pid == one
    assert machine.watch.look(after=6.0) == ()
    assert machine.watch.job(one, after=1.0).pid == one
    machine.end(one)
    assert machine.watch.look(one, after=2.0) == ()


def test_what_was_asked_for_and_is_not_there_is_said(machine: Machine) -> None:
    """It has ended, or the kernel gave its number out again."""
    machine.attach(FIRST)
    assert machine.watch.look() == ()
    assert machine.watch.messages == [f"Process {FIRST} has ended: there is no job to show."]
    machine.add(FIRST, started_ticks=99_999)
    assert all(not job.attached for job in machine.watch.look(after=1.0))
    assert "has ended" in machine.watch.messages[0]


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
    machine.attach(launcher)
    assert machine.watch.job().quota_cores == 9.0
    for at, group in ((1, "first"), (2, "second")):
        rank = machine.add(FIRST + at, launcher, torch=True, started_ticks=12_345 + at)
        count = limited(machine, rank, group, at)
        job = machine.watch.job(rank, after=2.0)
        assert (job.quota_cores, job.cpu_throttled_percent) == (float(at), None)
        count(10, at)
        assert machine.watch.job(rank, after=1.0).cpu_throttled_percent == 10.0 * at
        machine.end(rank)
    machine.watch.close()


def test_two_looks_of_one_page_have_rates(machine: Machine) -> None:
    """Also of a job that nobody is attached to, which is read more seldom otherwise."""
    rank = machine.add(FIRST)
    assert machine.watch.job(rank).main_thread_cpu_percent is None
    machine.proc.write(f"{rank}/schedstat", f"{SETTLE_SECONDS / 2 * 1e9:.0f} 0 0\n")
    job = machine.watch.job(rank, after=SETTLE_SECONDS)
    assert job.main_thread_cpu_percent == pytest.approx(50.0)


def test_who_has_not_run_is_not_looked_into(
    machine: Machine, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nothing is loaded and nothing is used without running, of which the kernel has a clock."""
    clocks = machine.proc.clocks(monkeypatch)
    rank = machine.add(FIRST)
    for _ in range(3):
        machine.watch.look(rank, after=2.0)
    machine.proc.write(f"{rank}/maps", TORCH)
    machine.proc.write(f"{rank}/schedstat", f"{1e9:.0f} 0 0\n")
    for _ in range(60):
        job = machine.watch.job(rank, after=2.0)
    assert (job.framework, job.main_thread_cpu_percent) == (None, 0.0)
    clocks[rank] = 2.0
    job = machine.watch.job(rank, after=2.0)
    assert (job.framework, job.main_thread_cpu_percent) == ("torch", pytest.approx(25.0))


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
    machine.attach(launcher)
    for at in range(1, 11):
        rank = machine.add(FIRST + at, launcher, torch=True, started_ticks=12_345 + at)
        assert [one.pid for one in machine.watch.job(rank, after=2.0).ranks] == [rank]
        machine.end(rank)
    assert len(machine.watch.tracker._jobs[0]._watches) <= 2


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
    machine.attach(FIRST + 2)
    machine.watch.look()
    assert set(roles(machine.watch.job(after=1.0))) == {FIRST + 1, FIRST + 2}


def test_actors_of_ray_are_one_job(machine: Machine) -> None:
    """Those below one raylet, found from any of them; its agents and idle processes are no ranks,
    and an actor without a GPU is none either."""
    raylet = machine.add(FIRST, name="raylet", command=b"/v/ray/core/src/ray/raylet/raylet\0")
    actors = [
        machine.add(FIRST + at, raylet, name=f"ray::{title}"[:15], command=f"ray::{title}".encode())
        for at, title in enumerate(
            ("DashboardAgent", "Trainer.step", "Trainer.step", "IDLE", "Rollout.run"), 1
        )
    ]
    first, second = actors[1:3]
    machine.attach(second)
    machine.watch.look(first, second)
    job = machine.watch.job(first, second, after=11.0)
    assert {rank.pid for rank in job.ranks} == {first, second}
    roles = {member.pid: member.role for member in job.members}
    assert [roles.get(pid) for pid in actors] == ["helper", "rank", "rank", "helper", "other"]


def test_what_gpuwatch_started_below_another_job_is_its_own(machine: Machine) -> None:
    """A notebook on a GPU starts gpuwatch, that a training: neither takes in the other."""
    notebook = machine.add(FIRST, command=b"python\0notebook.py\0", torch=True)
    gpuwatch = machine.add(os.getpid(), notebook, name="gpuwatch", command=b"gpuwatch\0run\0")
    training = machine.add(FIRST + 2, gpuwatch, torch=True)
    machine.attach(training)
    machine.watch.look_at_all(notebook)
    jobs = machine.watch.look_at_all(notebook, after=1.0)
    assert [set(roles(job)) for job in jobs] == [{training}, {notebook}]
    assert machine.watch.problems == ()


def test_a_launcher_that_dies_leaves_one_job(machine: Machine) -> None:
    """The ranks go on with init above them: the same job as before."""
    launcher = machine.add(FIRST, name="torchrun", command=b"torchrun\0train.py\0")
    for at in (1, 2):
        machine.add(FIRST + at, launcher, environment=f"RANK={at - 1}\0WORLD_SIZE=2\0")
    gpus = (FIRST + 1, FIRST + 2)
    key = machine.watch.job(*gpus).key
    machine.end(launcher)
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
    machine.attach(rank)
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
    machine.attach(rank)
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
    machine.attach(rank)
    job = machine.watch.job()
    texts = [job.command, job.environment, *[m.name for m in job.members]]
    texts += [member.command for member in job.members]
    assert len(job.members) == 2
    assert all(text is None or text.isprintable() for text in texts)
