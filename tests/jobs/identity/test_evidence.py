"""What is read of one process: only what is known to be harmless is kept."""

import shutil

import pytest

from gpuwatch.jobs.identity.process_facts import (
    ThreadNames,
    rank_numbers,
    read_environment,
    read_facts,
    read_libraries,
)
from tests.support.fake_proc import BOOTED_AT, FakeProc


def test_only_known_variables_are_kept_and_made_safe(fake: FakeProc) -> None:
    """Environments hold keys and passwords; a value can hold anything but NUL."""
    raw = b"AWS_SECRET_ACCESS_KEY=x\0RANK=3\0WANDB_API_KEY=y\0WORLD_SIZE=8\0RANKLE=1\0broken\0"
    (fake.root / "42").mkdir(parents=True)
    (fake.root / "42" / "environ").write_bytes(raw)
    assert read_environment(42, fake.root) == {"RANK": "3", "WORLD_SIZE": "8"}
    hostile = b"CONDA_PREFIX=\x1b[31mml\xff\0RANK=\xd9\xa3\0"
    (fake.root / "42" / "environ").write_bytes(hostile)
    found = read_environment(42, fake.root)
    assert found["CONDA_PREFIX"] == "\N{REPLACEMENT CHARACTER}[31mml\N{REPLACEMENT CHARACTER}"
    assert rank_numbers(found) is None
    assert read_environment(43, fake.root) is None


@pytest.mark.parametrize(
    ("environment", "expected"),
    [
        ({"RANK": "3", "LOCAL_RANK": "1", "WORLD_SIZE": "8"}, (3, 1, 8)),
        ({"RANK": "0"}, (0, None, None)),
        ({"PMI_RANK": "2", "PMI_SIZE": "4"}, (2, None, 4)),
        ({"SLURM_PROCID": "1", "SLURM_LOCALID": "1", "SLURM_STEP_NUM_TASKS": "2"}, (1, 1, 2)),
        ({"LOCAL_RANK": "1"}, (None, 1, None)),
        ({"LOCAL_RANK": "1", "NODE_RANK": "0"}, (1, 1, None)),
        ({"RANK": "0", "OMPI_COMM_WORLD_RANK": "5"}, (0, None, None)),
    ],
)
def test_ranks_as_their_launchers_tell_them(
    environment: dict[str, str], expected: tuple[int | None, int | None, int | None]
) -> None:
    """torchrun, MPI, srun and Lightning each have variables of their own."""
    numbers = rank_numbers(environment)
    assert numbers[:3] == expected


@pytest.mark.parametrize(
    "environment",
    [None, {}, {"SLURM_PROCID": "0"}, {"RANK": "-1"}, {"RANK": ""}, {"WORLD_SIZE": "4"}],
)
def test_no_rank_is_made_up(environment: dict[str, str] | None) -> None:
    """A batch script has SLURM_PROCID=0 and is no rank."""
    assert rank_numbers(environment) is None


TORCH, JAX = "/site-packages/torch/lib/libtorch_cpu.so", "/site-packages/jaxlib/xla_extension.so"


@pytest.mark.parametrize(
    ("libraries", "expected"),
    [
        ([JAX, TORCH], ("torch", True)),
        ([TORCH, "/lib/libtorch_cuda.so"], ("torch", False)),
        ([JAX], ("jax", None)),
        (["/usr/lib/libc.so.6"], (None, None)),
    ],
)
def test_the_library_that_trains_is_recognised_by_its_files(
    fake: FakeProc, libraries: list[str], expected: tuple[str | None, bool | None]
) -> None:
    """Where several are loaded it is PyTorch that loads data. PyTorch's library for CUDA is there
    from the import on; of other libraries nothing is known."""
    fake.write("42/maps", "".join(f"7f00-7f01 r-xp 0 0:0 1 {path}\n" for path in libraries))
    assert read_libraries(42, fake.root)[:2] == expected


def test_a_look_at_a_process(fake: FakeProc) -> None:
    """Name, parent, start and arguments; what cannot be read is absent, and kernel threads belong
    to no job."""
    fake.process(42, name="a) b", parent=7, started_ticks=500, command=b"python\0tr\x1bain.py\0")
    facts = read_facts(42, fake.root)
    assert (facts.pid, facts.parent, facts.name) == (42, 7, "a) b")
    assert facts.started_at == BOOTED_AT + 5.0
    assert facts.arguments == ("python", "tr\N{REPLACEMENT CHARACTER}ain.py")
    assert facts.executable is None
    assert read_facts(43, fake.root) is None
    fake.process(42, flags=0x00200000)
    assert read_facts(42, fake.root) is None


def thread(proc: FakeProc, number: int, name: str) -> None:
    proc.write(f"42/task/{number}/comm", f"{name}\n")


def test_a_thread_that_names_itself_later_is_read_again(fake: FakeProc) -> None:
    """Once more at the next look; when it has ended it is forgotten, as the pinning thread does
    with each epoch."""
    thread(fake, 42, "python")
    thread(fake, 50, "python")
    names = ThreadNames(42, fake.root)
    assert names.refresh() == {"python"}
    thread(fake, 50, "pt_data_pin")
    assert names.refresh() == {"python", "pt_data_pin"}
    shutil.rmtree(fake.root / "42/task/50")
    assert names.refresh() == {"python"}


def test_hundreds_of_threads_are_read_over_several_looks(fake: FakeProc) -> None:
    """And the list says whether it is complete."""
    for number in range(300):
        thread(fake, 1000 + number, f"t{number}")
    names = ThreadNames(42, fake.root)
    looks = 0
    while not names.complete:
        found = names.refresh()
        looks += 1
    assert looks > 2
    assert len(found) == 300
