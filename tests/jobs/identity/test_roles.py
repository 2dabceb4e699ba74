"""Which role each process of a job gets, and from what."""

from __future__ import annotations

import shlex
from collections.abc import Mapping

from gpuwatch.jobs.identity.evidence import Look, RankNumbers
from gpuwatch.jobs.identity.roles import Evidence, Role, assign, names_are_used

TRAIN = "python train.py"
SPAWN = "python -c 'from multiprocessing.spawn import spawn_main; spawn_main()'"
FORKSERVER = "python -c 'from multiprocessing.forkserver import main; main(3)'"
TRACKER = "python -c 'from multiprocessing.resource_tracker import main;main(5)'"


def process(
    pid: int,
    parent: int | None,
    line: str = TRAIN,
    *,
    name: str = "python",
    environment: Mapping[str, str] | None = None,
    threads: tuple[str, ...] = (),
    framework: str | None = None,
    uses_gpu: bool = False,
    settled: bool = True,
    orphaned: bool = False,
    reports: int | None = None,
) -> Evidence:
    return Evidence(
        look=Look(pid=pid, parent=parent or 1, name=name, arguments=tuple(shlex.split(line))),
        parent=parent,
        environment=environment,
        threads=frozenset(threads),
        framework=framework,
        uses_gpu=uses_gpu,
        settled=settled,
        orphaned=orphaned,
        reports=reports is not None,
        reported_numbers=None if reports is None else RankNumbers(reports, 0, 8, "told"),
    )


def given(*processes: Evidence, before: Mapping[int, Role] | None = None) -> dict[int, Role]:
    return assign(processes, names_used=names_are_used(processes), before=before)


def roles(*processes: Evidence) -> dict[int, tuple[str, bool]]:
    """Role and whether it is a guess."""
    return {pid: (found.name, found.guessed) for pid, found in given(*processes).items()}


def test_one_process_alone_is_the_rank() -> None:
    """What makes it sure is a library or a GPU; without either it is a guess."""
    assert roles(process(1, None)) == {1: ("rank", True)}
    assert roles(process(1, None, framework="torch")) == {1: ("rank", False)}
    assert roles(process(1, None, "./train", name="train", uses_gpu=True)) == {1: ("rank", False)}


def test_recent_pytorch_names_its_workers() -> None:
    """Named children are workers, and those without the name are helpers."""
    found = given(
        process(1, None, framework="torch"),
        process(2, 1, name="pt_data_worker"),
        process(3, 1),
    )
    assert (found[2].name, found[2].guessed, found[2].rank_pid) == ("loader_worker", False, 1)
    assert found[2].sign == "named pt_data_worker"
    assert (found[3].name, found[3].guessed) == ("helper", True)


def test_unnamed_forks_of_older_pytorch_are_guessed_to_be_workers() -> None:
    """No name anywhere: forked and spawned children are likely workers, and shown as a guess."""
    assert roles(
        process(1, None, framework="torch"),
        process(2, 1),
        process(3, 1, SPAWN),
        process(4, 1, TRACKER),
        process(5, 1, FORKSERVER),
        process(6, 5, FORKSERVER),
        process(7, 1, "ffmpeg -i x", name="ffmpeg"),
        process(8, 1, "python other.py"),
    ) == {
        1: ("rank", False),
        2: ("loader_worker", True),
        3: ("loader_worker", True),
        4: ("helper", False),
        5: ("helper", False),
        6: ("loader_worker", True),
        7: ("other", False),
        8: ("other", False),
    }


def test_what_was_just_forked_is_not_judged() -> None:
    """Before its exec, or before it names itself, a child looks like its parent."""
    assert roles(process(1, None, framework="torch"), process(2, 1, settled=False))[2] == (
        "other",
        False,
    )


def test_children_of_other_frameworks_are_no_loader_workers() -> None:
    """Only PyTorch's DataLoader forks workers."""
    assert roles(process(1, None, framework="jax"), process(2, 1))[2] == ("helper", True)


def test_a_child_of_a_worker_inherits_its_name_and_is_none() -> None:
    """A transform that forks would count twice."""
    found = roles(
        process(1, None, framework="torch"),
        process(2, 1, name="pt_data_worker"),
        process(3, 2, name="pt_data_worker"),
    )
    assert found[3] == ("other", False)


def test_ranks_of_torchrun_come_from_their_environment() -> None:
    """The launcher, its ranks with their numbers, and workers that inherited the environment."""
    zero = {"RANK": "8", "LOCAL_RANK": "0", "WORLD_SIZE": "16"}
    one = {"RANK": "9", "LOCAL_RANK": "1", "WORLD_SIZE": "16"}
    found = given(
        process(1, None, "python /bin/torchrun train.py", name="pt_elastic"),
        process(2, 1, environment=zero),
        process(3, 2, environment=zero, name="pt_data_worker"),
        process(4, 1, environment=one),
        process(5, 4, SPAWN, environment=one),
    )
    assert [found[pid].name for pid in (1, 2, 3, 4, 5)] == [
        "launcher",
        "rank",
        "loader_worker",
        "rank",
        "helper",
    ]
    numbers = found[4].numbers
    assert numbers is not None
    assert (numbers.rank, numbers.local_rank, numbers.world_size) == (9, 1, 16)
    assert found[4].sign == "RANK=9 in its environment"
    assert found[3].rank_pid == 2
    assert found[3].numbers == found[2].numbers


def test_ranks_without_a_readable_environment_are_the_launchers_children() -> None:
    """Another user's job: who started them says what they are, not their number."""
    found = given(
        process(1, None, "torchrun train.py"),
        process(2, 1),
        process(3, 1),
        process(4, 3, name="pt_data_worker"),
    )
    assert [found[pid].name for pid in (1, 2, 3, 4)] == [
        "launcher",
        "rank",
        "rank",
        "loader_worker",
    ]
    assert found[2].numbers is None


def test_a_shell_between_launcher_and_rank_is_neither() -> None:
    """A script started by mpirun has the rank's environment, and the rank below it."""
    numbers = {"OMPI_COMM_WORLD_RANK": "1", "OMPI_COMM_WORLD_SIZE": "2"}
    found = given(
        process(1, None, "mpirun x", name="mpirun"),
        process(2, 1, "bash run.sh", name="bash", environment=numbers),
        process(3, 2, environment=numbers),
        process(4, 2, "tee log", name="tee", environment=numbers),
    )
    assert [found[pid].name for pid in (1, 2, 3, 4)] == ["launcher", "other", "rank", "other"]
    assert found[3].sign == "OMPI_COMM_WORLD_RANK=1 in its environment"


def test_a_program_that_is_no_python_gets_its_number_too() -> None:
    """torchrun --no-python starts anything."""
    found = given(
        process(1, None, "torchrun --no-python ./train"),
        process(2, 1, "./train", name="train", environment={"RANK": "3", "WORLD_SIZE": "4"}),
    )
    assert found[2].name == "rank"
    assert found[2].numbers is not None
    assert found[2].numbers.rank == 3


def test_ranks_that_a_script_spawned_itself() -> None:
    """Their environment says nothing; the threads of their collectives, or their GPUs, do."""
    by_threads = roles(
        process(1, None, framework="torch"),
        process(2, 1, SPAWN, threads=("python", "pt_nccl_watchdg")),
        process(3, 1, SPAWN, threads=("python", "pt_nccl_watchdg")),
    )
    assert by_threads == {1: ("launcher", True), 2: ("rank", False), 3: ("rank", False)}
    by_gpus = roles(
        process(1, None, framework="torch"),
        process(2, 1, SPAWN, uses_gpu=True),
        process(3, 1, SPAWN, uses_gpu=True),
    )
    assert by_gpus == {1: ("launcher", True), 2: ("rank", True), 3: ("rank", True)}


def test_a_training_that_another_program_started_is_the_rank() -> None:
    """With make, a sweep or a service above it, with a shell between; on a GPU, with a library or
    with workers. What is above only waits, and the workers are not its."""
    for evidence in ({"uses_gpu": True}, {"framework": "torch"}, {}):
        found = given(
            process(1, None, "make train", name="make"),
            process(2, 1, "sh -c 'echo; python train.py'", name="sh"),
            process(3, 2, **evidence),
            process(4, 3, name="pt_data_worker"),
        )
        assert [found[pid].name for pid in (1, 2, 3, 4)] == [
            "launcher",
            "other",
            "rank",
            "loader_worker",
        ]
        assert found[4].rank_pid == 3


def test_what_a_training_process_starts_is_no_rank() -> None:
    """An evaluation of its own, say, with the same libraries."""
    assert roles(
        process(1, None, framework="torch"),
        process(2, 1, name="pt_data_worker"),
        process(3, 1, "python evaluate.py", framework="torch"),
    ) == {1: ("rank", False), 2: ("loader_worker", False), 3: ("other", False)}


def test_lightning_starts_the_other_ranks_from_the_first() -> None:
    """The first rank has no number, the others only their local one."""
    found = given(
        process(1, None, uses_gpu=True, threads=("pt_autograd_0",)),
        process(2, 1, environment={"LOCAL_RANK": "1", "NODE_RANK": "0", "WORLD_SIZE": "2"}),
    )
    assert [found[pid].name for pid in (1, 2)] == ["rank", "rank"]
    assert found[2].numbers is not None
    assert (found[2].numbers.rank, found[2].numbers.local_rank) == (1, 1)


def test_a_worker_keeps_its_role_when_its_rank_has_ended() -> None:
    """Known by what it was, even if it has no name of its own."""
    was = Role("loader_worker", "forked by the training process", True, 1)
    found = given(process(2, None, orphaned=True), before={2: was})
    assert (found[2].name, found[2].guessed, found[2].rank_pid) == ("loader_worker", True, 1)


def test_a_orphaned_worker_alone_is_no_rank() -> None:
    """Named, or spawned by something that is gone."""
    assert roles(process(2, None, name="pt_data_worker", orphaned=True)) == {
        2: ("loader_worker", False)
    }
    assert roles(process(2, None, SPAWN, orphaned=True)) == {2: ("loader_worker", True)}


def test_a_shell_alone_is_what_the_job_is() -> None:
    """Whatever somebody attaches to has a main process or says what it is."""
    assert roles(process(1, None, "bash x", name="bash")) == {1: ("other", False)}
    assert roles(process(1, None, "bash x", name="bash"), process(2, 1, "sleep 9", name="sleep"))[
        2
    ] == ("rank", True)


def test_older_threads_do_not_prove_that_workers_are_named() -> None:
    """PyTorch 2.4 named its main and autograd threads, and not yet its workers."""
    old = process(1, None, name="pt_main_thread", threads=("pt_autograd_0",))
    assert not names_are_used([old])
    assert names_are_used([process(1, None, threads=("pt_nccl_watchdg",))])


def test_a_rank_that_tells_which_it_is_is_believed() -> None:
    """Where its environment may not be read, or names none; else that one says it."""
    found = given(
        process(1, None, reports=5),
        process(2, 1, name="pt_data_worker"),
        process(3, None, reports=6, environment={"PATH": "/bin"}),
        process(4, None, reports=7, environment={"LOCAL_RANK": "1"}),
        process(5, None, reports=0, environment={"RANK": "3", "WORLD_SIZE": "8"}),
    )
    numbers = {pid: one.numbers and one.numbers.rank for pid, one in found.items()}
    assert numbers == {1: 5, 2: 5, 3: 6, 4: 7, 5: 3}
    assert {one.name for pid, one in found.items() if pid != 2} == {"rank"}
