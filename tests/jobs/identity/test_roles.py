"""The role that each process of a job gets, and from what."""

import shlex
from typing import Any

import pytest

from gpuwatch.jobs.identity.process_facts import Libraries, ProcessFacts, RankNumbers
from gpuwatch.jobs.identity.roles import Evidence, Role, assign, names_are_used

COMMANDS = {
    "TRAIN": "python train.py",
    "SPAWN": "python -c 'from multiprocessing.spawn import spawn_main; spawn_main()'",
    "FORKSERVER": "python -c 'from multiprocessing.forkserver import main; main(3)'",
    "TRACKER": "python -c 'from multiprocessing.resource_tracker import main;main(5)'",
}


def process(line: str) -> Evidence:
    """``PID PARENT COMMAND | what else is known``: a framework, ``gpu``, ``young``, ``orphan``,
    ``name=``, ``thread=``, ``reports=RANK``, and variables of its environment."""
    start, _, known = line.partition(" | ")
    pid, parent, command = start.split(None, 2)
    command = command.strip()
    facts: dict[str, Any] = {"settled": "young" not in known, "uses_gpu": "gpu" in known}
    name, environment, threads = "python", {}, []
    for word in known.split():
        key, _, value = word.partition("=")
        if key == "name":
            name = value
        elif key == "thread":
            threads.append(value)
        elif key == "reports":
            facts |= {"reports": True, "reported_numbers": RankNumbers(int(value), 0, 8, "said")}
        elif key.isupper():
            environment[key] = value
    arguments = tuple(shlex.split(COMMANDS.get(command, command)))
    return Evidence(
        facts=ProcessFacts(
            pid=int(pid),
            parent=1 if parent == "-" else int(parent),
            name=name if command in COMMANDS or "name=" in known else arguments[0],
            arguments=arguments,
        ),
        parent=None if parent == "-" else int(parent),
        environment=environment or None,
        threads=frozenset(threads),
        libraries=Libraries(next((one for one in ("torch", "jax") if one in known.split()), None)),
        orphaned="orphan" in known,
        **facts,
    )


def shown(role: Role) -> str:
    """``loader_worker? of 1``, ``rank 9``: a guess has a question mark."""
    number = None if role.numbers is None else role.numbers.rank
    text = role.name + "?" * role.guessed
    if role.name == "rank" and number is not None:
        text += f" {number}"
    return text + (f" of {role.rank_pid}" if role.name == "loader_worker" else "")


ONE = "RANK=9 LOCAL_RANK=1 WORLD_SIZE=16"
ZERO = "RANK=8 LOCAL_RANK=0 WORLD_SIZE=16"
MPI = "OMPI_COMM_WORLD_RANK=1 OMPI_COMM_WORLD_SIZE=2"
CASES = {
    "one process alone is the rank, by a guess": "1 - TRAIN -> rank?",
    "a library makes it sure": "1 - TRAIN | torch -> rank",
    "a GPU makes it sure": "1 - ./train | gpu -> rank",
    "recent PyTorch names its workers, so a child without the name is none": """
        1 - TRAIN | torch -> rank
        2 1 TRAIN | name=pt_data_worker -> loader_worker of 1
        3 1 TRAIN -> helper?""",
    "forks and spawned children of older PyTorch are guessed to be workers": """
        1 - TRAIN | torch -> rank
        2 1 TRAIN -> loader_worker? of 1
        3 1 SPAWN -> loader_worker? of 1
        4 1 TRACKER -> helper
        5 1 FORKSERVER -> helper
        6 5 FORKSERVER -> loader_worker? of 1
        7 1 ffmpeg -i x -> other
        8 1 python other.py -> other""",
    "before its exec, or before it names itself, a child looks like its parent": """
        1 - TRAIN | torch -> rank
        2 1 TRAIN | young -> other""",
    "only PyTorch's DataLoader forks workers": """
        1 - TRAIN | jax -> rank
        2 1 TRAIN -> helper?""",
    "a child of a worker inherits its name": """
        1 - TRAIN | torch -> rank
        2 1 TRAIN | name=pt_data_worker -> loader_worker of 1
        3 2 TRAIN | name=pt_data_worker -> other""",
    "ranks of torchrun come from their environment, which workers inherit": f"""
        1 - python /bin/torchrun train.py | name=pt_elastic -> launcher
        2 1 TRAIN | {ZERO} -> rank 8
        3 2 TRAIN | {ZERO} name=pt_data_worker -> loader_worker of 2
        4 1 TRAIN | {ONE} -> rank 9
        5 4 SPAWN | {ONE} -> helper?""",
    "without a readable environment the launcher's children are the ranks": """
        1 - torchrun train.py -> launcher
        2 1 TRAIN -> rank?
        3 1 TRAIN -> rank
        4 3 TRAIN | name=pt_data_worker -> loader_worker of 3""",
    "a script between mpirun and its rank is neither": f"""
        1 - mpirun x -> launcher
        2 1 bash run.sh | {MPI} -> other
        3 2 TRAIN | {MPI} -> rank 1
        4 2 tee log | {MPI} -> other""",
    "torchrun --no-python starts anything": """
        1 - torchrun --no-python ./train -> launcher
        2 1 ./train | RANK=3 WORLD_SIZE=4 -> rank? 3""",
    "ranks that a script spawned show by threads of their collectives": """
        1 - TRAIN | torch -> launcher?
        2 1 SPAWN | thread=pt_nccl_watchdg -> rank 0
        3 1 SPAWN | thread=pt_nccl_watchdg -> rank 1""",
    "or by their GPUs": """
        1 - TRAIN | torch -> launcher?
        2 1 SPAWN | gpu -> rank? 0
        3 1 SPAWN | gpu -> rank? 1""",
    "what a training process starts is no rank, with the same libraries": """
        1 - TRAIN | torch -> rank
        2 1 TRAIN | name=pt_data_worker -> loader_worker of 1
        3 1 python evaluate.py | torch -> other""",
    "Lightning's first rank has no number, the others only their local one": """
        1 - TRAIN | gpu thread=pt_autograd_0 -> rank 0
        2 1 TRAIN | LOCAL_RANK=1 NODE_RANK=0 WORLD_SIZE=2 -> rank 1""",
    "an orphan is no rank": "2 - TRAIN | orphan name=pt_data_worker -> loader_worker of None",
    "nor one that was spawned": "2 - SPAWN | orphan -> loader_worker? of None",
    "a shell alone is what the job is": "1 - bash x -> other",
    "and what it runs has a main process": """
        1 - bash x -> other
        2 1 sleep 9 -> rank?""",
    "a rank is believed which it is where its environment names none": """
        1 - TRAIN | reports=5 -> rank 5
        2 1 TRAIN | name=pt_data_worker -> loader_worker of 1
        3 - TRAIN | reports=6 PATH=/bin -> rank 6
        4 - TRAIN | reports=7 LOCAL_RANK=1 -> rank 7
        5 - TRAIN | reports=0 RANK=3 WORLD_SIZE=8 -> rank 3""",
    **{
        f"a training below make is the rank, by {sign or 'its workers'}": f"""
            1 - make train -> launcher?
            2 1 sh -c x -> other
            3 2 TRAIN | {sign} -> rank
            4 3 TRAIN | name=pt_data_worker -> loader_worker of 3"""
        for sign in ("gpu", "torch", "")
    },
}


@pytest.mark.parametrize("case", CASES)
def test_each_process_has_its_role(case: str) -> None:
    """A process a line, with its role behind the arrow."""
    lines = [line.strip().split(" -> ") for line in CASES[case].strip().splitlines()]
    members = [process(line) for line, _ in lines]
    found = assign(members, names_used=names_are_used(members))
    assert [shown(found[member.pid]) for member in members] == [role for _, role in lines]


def test_a_role_says_what_shows_it() -> None:
    """A sign for a person, and the numbers that belong to the rank are its workers' too."""
    members = [
        process("1 - torchrun train.py"),
        process(f"2 1 TRAIN | {ONE}"),
        process("3 2 TRAIN | name=pt_data_worker"),
        process(f"4 1 TRAIN | {MPI}"),
    ]
    found = assign(members, names_used=True)
    assert [found[pid].sign for pid in (1, 2, 3, 4)] == [
        "it is torchrun",
        "RANK=9 in its environment",
        "named pt_data_worker",
        "OMPI_COMM_WORLD_RANK=1 in its environment",
    ]
    assert found[2].numbers == RankNumbers(9, 1, 16, "RANK=9 in its environment")
    assert found[3].numbers == found[2].numbers


def test_a_worker_keeps_its_role_when_its_rank_has_ended() -> None:
    """Known by what it was, even if it has no name of its own."""
    was = Role("loader_worker", "forked by the training process", True, 1)
    found = assign([process("2 - TRAIN | orphan")], names_used=False, before={2: was})
    assert shown(found[2]) == "loader_worker? of 1"


def test_older_threads_do_not_prove_that_workers_are_named() -> None:
    """PyTorch 2.4 named its main and autograd threads, and not yet its workers."""
    old = process("1 - TRAIN | name=pt_main_thread thread=pt_autograd_0")
    assert not names_are_used([old])
    assert names_are_used([process("1 - TRAIN | thread=pt_nccl_watchdg")])
