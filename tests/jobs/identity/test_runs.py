"""Which runs are runs of the same job."""

import os
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.jobs.identity.process_facts import parse_arguments
from gpuwatch.jobs.identity.runs import RunIdentity, essence, run_identity
from tests.support.children import Children
from tests.support.fake_proc import FakeProc

FOLDER = "/home/ada/proj"


def identity(command: str, *, folder: str = FOLDER, uid: int = 1000) -> RunIdentity:
    return RunIdentity(uid, folder, tuple(command.split()))


SAME = {
    "another way to the interpreter": ("python train.py", "/venv/bin/python3.11 train.py"),
    "unbuffered": ("python train.py", "python -u -X faulthandler -W ignore train.py"),
    "a path from here": ("python train.py", "python ./train.py"),
    "the full path": ("python src/train.py", f"python {FOLDER}/src/train.py"),
    "a full path in an option": ("python t.py --data=d", f"python t.py --data={FOLDER}/d"),
    "torchrun by its file": ("torchrun train.py", "/venv/bin/python /venv/bin/torchrun train.py"),
    "torchrun as a module": ("torchrun train.py", "python -m torch.distributed.run train.py"),
    "another rendezvous": (
        "torchrun --rdzv-id 71 --rdzv-endpoint=box:2345 train.py",
        "torchrun --rdzv_id=ab --rdzv_endpoint box:99 train.py",
    ),
    "another port": ("torchrun --master_port 29500 t.py", "torchrun --master-port=29511 t.py"),
    "accelerate's port": (
        "accelerate launch --main_process_port 1 t.py",
        "accelerate launch --main_process_port 2 t.py",
    ),
    "more workers": ("python t.py --num-workers 2", "python t.py --num-workers=8"),
    "workers given at all": ("python t.py --lr 1", "python t.py -j 8 --lr 1"),
    "workers of a trainer": (
        "python t.py --dataloader_num_workers 0",
        "python t.py --dataloader_num_workers 4 --dataloader_pin_memory true",
    ),
    "workers in a configuration": ("python t.py model=b", "python t.py model=b data.num_workers=8"),
    "pinned memory": ("python t.py --no-pin-memory d", "python t.py --pin-memory d"),
    "a new folder for its output": (
        "python t.py --out runs/2024-05-01_12-30-11",
        "python t.py --out runs/2024-05-02_08-01-59",
    ),
    "a compact moment": ("python t.py out=r/20240501-123011", "python t.py out=r/20240502-080159"),
}
OTHER = {
    "another script": ("python train.py", "python eval.py"),
    "another value": ("python train.py --lr 1", "python train.py --lr 2"),
    "another seed": ("python train.py --seed 1", "python train.py --seed 2"),
    "more ranks": ("torchrun --nproc-per-node 1 t.py", "torchrun --nproc-per-node 2 t.py"),
    "data after a switch": ("python t.py --pin-memory a", "python t.py --pin-memory b"),
    "a word that is no option": ("python t.py workers", "python t.py"),
    "another way to start": ("python train.py", "torchrun train.py"),
    "a module": ("python -m train", "python train"),
    "a date alone": ("python t.py --day 2024-05-01", "python t.py --day 2024-05-02"),
    "a long number": ("python t.py --steps 20240501", "python t.py --steps 20240502"),
    "options of another order": ("python t.py --a 1 --b 2", "python t.py --a 2 --b 1"),
    "arguments joined": ("python t.py a b", "python t.py ab"),
    "no interpreter": ("train", "python train"),
}


@pytest.mark.parametrize("case", [*SAME, *OTHER])
def test_what_a_person_calls_the_same_command_is_the_same_run(case: str) -> None:
    """Paths, ports, ids, output folders and loader settings make no other job of it; whatever else
    differs in the command does."""
    first, second = map(identity, (SAME | OTHER)[case])
    assert (first.of_job() == second.of_job()) == (case in SAME)


def test_a_folder_made_for_each_run_is_the_same_folder() -> None:
    """Hydra's ``outputs/DATE/TIME``, into which it can change."""
    first = identity("python t.py", folder=f"{FOLDER}/outputs/2024-05-01/12-30-11")
    second = identity("python t.py", folder=f"{FOLDER}/outputs/2024-05-02/08-01-59")
    assert first.of_job() == second.of_job()
    assert first.of_job() != identity("python t.py", folder=f"{FOLDER}/outputs").of_job()


def test_a_folder_named_like_the_jobs_is_not_inside_it() -> None:
    """/home/ada/project is not in /home/ada/proj, and the root is no prefix to cut."""
    assert essence(("python", "/home/ada/project/t.py"), FOLDER)[1] == "/home/ada/project/t.py"
    assert essence(("x", FOLDER), FOLDER) == ("x", ".")
    mine = identity("python train.py")
    assert mine.of_job() != identity("python train.py", folder="/home/ada/other").of_job()
    assert mine.of_job() != identity("python train.py", uid=1001).of_job()
    # Options at the end, without the value they should have.
    for command, kept in (("python -u", "python"), ("torchrun --rdzv-id", "torchrun")):
        assert essence(tuple(command.split()), "/") == (kept,)


def test_the_next_run_of_a_real_command_is_recognised(tmp_path: Path) -> None:
    """Two runs, called differently, with other GPUs and other workers: one job."""
    (tmp_path / "train.py").write_text("import sys\nprint(flush=True)\nsys.stdin.read()\n")
    jobs = set[tuple[str | int, ...]]()
    link = tmp_path / "python3"
    link.symlink_to(sys.executable)
    for gpus, command in (
        ("0", [sys.executable, "-u", "train.py", "--lr", "0.1", "--num-workers", "2"]),
        ("1,2", [str(link), str(tmp_path / "train.py"), "--lr", "0.1", "--num-workers", "8"]),
    ):
        with subprocess.Popen(
            command,
            cwd=tmp_path,
            env=os.environ | {"CUDA_VISIBLE_DEVICES": gpus},
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
        ) as child:
            child.stdout.readline()
            found = run_identity(child.pid)
            child.kill()
        assert found.uid == os.getuid()
        assert found.working_directory == str(tmp_path)
        assert found.command == tuple(command)
        jobs.add(found.of_job())
    assert len(jobs) == 1


def test_what_cannot_be_read_has_no_identity(started: Children, tmp_path: Path) -> None:
    """Gone, ended but not collected, or without a readable folder: not recognised, no error."""
    assert run_identity(2**22 + 1) is None
    fake = FakeProc(tmp_path / "proc")
    fake.process(42)
    assert run_identity(42, fake.root) is None
    (fake.root / "42" / "cwd").symlink_to("/home/ada/proj")
    assert run_identity(42, fake.root) == RunIdentity(7, "/home/ada/proj", ("python", "train.py"))
    fake.write("42/cmdline", b"\0\0")
    assert run_identity(42, fake.root) is None


def test_arguments_are_made_safe_and_empty_ones_are_kept() -> None:
    """Escapes and bytes that are no text; padding of a rewritten title is no argument."""
    found = parse_arguments(b"python\0t.py\0\x1b[31m\xff\0\0--tag=\0a b\0", 99)
    assert found[:2] == ("python", "t.py")
    assert found[3:] == ("", "--tag=", "a b")
    assert all(part.isprintable() for part in found)
    assert parse_arguments(b"ray::train\0\0\0\0  ", 99) == ("ray::train",)
    assert parse_arguments(b"", 99) == ()
