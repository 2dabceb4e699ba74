"""Which processes make one job, on trees of literal command lines."""

import shlex

import pytest

from gpuwatch.jobs.identity.process_facts import ProcessFacts, climb, is_orphaned, world_of

SPAWN = "python -c 'from multiprocessing.spawn import spawn_main; spawn_main()'"
FORKSERVER = "python -c 'from multiprocessing.forkserver import main; main(3)'"


def look(
    pid: int, parent: int, line: str, name: str = "", executable: str | None = None
) -> ProcessFacts:
    arguments = tuple(shlex.split(line))
    label = name or arguments[0].rpartition("/")[2]
    return ProcessFacts(
        pid=pid, parent=parent, name=label, arguments=arguments, executable=executable
    )


def top_of(*lines: str) -> int:
    """The PID of the topmost process of the last one's job; each line is the parent of the next,
    numbered from 10."""
    tree = {10 + at: look(10 + at, 9 + at, line) for at, line in enumerate(lines)}
    return climb(9 + len(lines), tree.get)[-1].pid


@pytest.mark.parametrize(
    ("lines", "top"),
    [
        (["sshd", "-bash", "python train.py"], "python train.py"),
        (["-bash", "torchrun train.py", "python train.py"], "torchrun train.py"),
        (["-bash", "timeout 9 torchrun train.py", "torchrun train.py", "python train.py"], 12),
        (["-bash", "mpirun -n 2 x", "timeout 9 x", "bash x", "python train.py"], "mpirun -n 2 x"),
        (["-bash", "horovodrun x", "mpirun x", "python train.py"], "horovodrun x"),
        (["-bash", "timeout 9 python train.py", "python train.py"], "python train.py"),
        (["-bash", "bash train.sh", "python train.py"], "python train.py"),
        (["-bash", "python train.py", "python train.py"], 11),
        (["-bash", "python train.py", SPAWN], "python train.py"),
        (["-bash", "python train.py", FORKSERVER, FORKSERVER], "python train.py"),
        (["-bash", "python sweep.py", "python train.py"], "python train.py"),
        (["-bash", "python sweep.py", "torchrun train.py", "python train.py"], 12),
        (["python /bin/gpuwatch run -- x", "python train.py"], "python train.py"),
        (["python /bin/celery worker", "python /bin/celery worker"], 11),
        (["slurmstepd", "python train.py"], "python train.py"),
        (["python /bin/jupyter-lab", "python -m ipykernel_launcher"], 11),
        (["tmux", "-bash", "srun x", "srun x"], "srun x"),
    ],
)
def test_a_climb_ends_at_the_top_of_the_job(lines: list[str], top: str | int) -> None:
    """Launchers, forks and spawned children belong together; shells and daemons end it."""
    expected = top if isinstance(top, int) else 10 + lines.index(top)
    assert top_of(*lines) == expected


def test_a_title_belongs_to_the_program_that_forked_it() -> None:
    """A child that rewrote its arguments is known by the executable it shares."""
    tree = {
        10: look(10, 9, "python serve.py", executable="/usr/bin/python3"),
        11: look(11, 10, "VLLM::EngineCore", executable="/usr/bin/python3"),
    }
    assert [found.pid for found in climb(11, tree.get)] == [11, 10]


def test_a_circle_of_parents_does_not_go_on_for_ever() -> None:
    """Two looks at a changing machine can contradict each other. A parent that cannot be seen
    (hidden, or of another PID namespace) ends the climb."""
    alone = {11: look(11, 10, "python train.py")}
    assert [found.pid for found in climb(11, alone.get)] == [11]
    assert climb(99, alone.get) == ()
    tree = {10: look(10, 11, "python x"), 11: look(11, 10, "python x")}
    assert len(climb(10, tree.get)) <= 64


def test_a_worker_is_orphaned_when_another_took_it_in() -> None:
    """By init, by a subreaper, or by anything that does not run its program."""
    worker = look(11, 10, "python train.py", "pt_data_worker")
    assert not is_orphaned(worker, look(10, 1, "python train.py"))
    assert is_orphaned(worker, look(10, 1, "systemd --user"))
    assert is_orphaned(worker, look(10, 1, "python other.py"))
    assert is_orphaned(worker, None)
    assert is_orphaned(look(11, 1, "python train.py"), look(1, 0, "python train.py"))


def test_a_title_alone_does_not_make_a_worker_left_over() -> None:
    """Its parent changed its own since; whose executable it is shows only to its user."""
    worker = look(11, 10, "'train: step 1'", "pt_data_worker")
    assert not is_orphaned(worker, look(10, 9, "'train: step 900'", "python"))
    mine = look(11, 10, "'train: step 1'", "pt_data_worker", "/usr/bin/python3")
    assert not is_orphaned(mine, look(10, 9, "'train: step 9'", "python", "/usr/bin/python3"))
    assert is_orphaned(mine, look(10, 9, "'my init'", "myinit", "/sbin/myinit"))


def test_ranks_of_one_world_have_their_meeting_point_in_common() -> None:
    """By address and port, or below slurmstepd by job and step; one rank alone is no world."""
    torch = {"MASTER_ADDR": "a", "MASTER_PORT": "1", "WORLD_SIZE": "4", "RANK": "2"}
    assert world_of(torch, None) == world_of({**torch, "RANK": "3"}, None) is not None
    assert world_of({**torch, "WORLD_SIZE": "1"}, None) is None
    assert world_of({**torch, "MASTER_PORT": "2"}, None) != world_of(torch, None)
    slurm = {"SLURM_JOB_ID": "7", "SLURM_STEP_ID": "0"}
    assert world_of(slurm, look(10, 1, "slurmstepd")) == ("slurm", "7", "0")
    assert world_of(slurm, look(10, 1, "bash")) is None
    assert world_of(None, None) is None
    assert world_of(None, look(10, 1, "raylet")) == world_of({}, look(10, 1, "raylet")) is not None
    assert world_of(None, look(11, 1, "raylet")) != world_of(None, look(10, 1, "raylet"))
