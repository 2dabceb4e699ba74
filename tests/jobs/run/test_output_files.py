"""The folder in which the output of jobs is kept."""

import os
import subprocess
import sys
import time
from pathlib import Path

import pytest

from gpuwatch.core.text import SentenceError
from gpuwatch.jobs.run.output import forget_oldest, open_chosen, open_kept, short_name


def test_a_file_of_its_own_for_its_owner_alone(tmp_path: Path) -> None:
    """Each run gets a new file, named for the command, that only its owner can read."""
    folder = tmp_path / "state" / "runs"
    descriptor, path = open_kept(["python", "-u", "src/train.py", "--lr", "1"], folder)
    os.write(descriptor, b"x")
    os.close(descriptor)
    assert path.parent == folder
    assert path.name.endswith(f"-train.py-{os.getpid()}.log")
    assert path.read_bytes() == b"x"
    assert path.stat().st_mode & 0o777 == 0o600
    assert folder.stat().st_mode & 0o777 == 0o700


def test_never_an_existing_file_or_a_link(tmp_path: Path) -> None:
    """What somebody has put at the name of a new file is neither followed nor written to."""
    now = time.time()
    for seconds in range(60):
        when = time.strftime("%Y%m%d-%H%M%S", time.localtime(now + seconds))
        (tmp_path / f"{when}-job-{os.getpid()}.log").symlink_to(tmp_path / "target")
    with pytest.raises(SentenceError, match="File exists"):
        open_kept(["job"], tmp_path)
    assert not (tmp_path / "target").exists()


@pytest.mark.parametrize(
    ("command", "name"),
    [
        (["python", "train.py"], "train.py"),
        (["python3.11", "-u", "-m", "project.train", "x"], "project.train"),
        (["env", "A=1", "nice", "./run_all.sh"], "run_all.sh"),
        (["torchrun", "--nproc-per-node", "2", "train.py", "--lr", "1"], "train.py"),
        (["python"], "python"),
        (["/usr/bin/python3"], "python3"),
        (["./weird name\x1b[31m\n/../.hidden"], "hidden"),
        (["..."], "job"),
        (["a" * 300], "a" * 40),
    ],
)
def test_name(command: list[str], name: str) -> None:
    """A file's name says which job it is of, and holds nothing but letters, digits and dots."""
    assert short_name(command) == name


def make(folder: Path, count: int) -> list[Path]:
    paths = [folder / f"20260101-{number:06d}-train.py-1.log" for number in range(count)]
    for path in paths:
        path.touch()
    return paths


def test_a_running_jobs_file_is_kept(tmp_path: Path) -> None:
    """The oldest are forgotten, but the file of a job that still runs stays, also when its gpuwatch
    has ended; files of other names are not touched."""
    mine = tmp_path / "notes.txt"
    mine.touch()
    descriptor, path = open_kept(["old"], tmp_path)
    # What still holds it is another process, as the keeper does.
    holder = subprocess.Popen(
        [sys.executable, "-S", "-c", "input()"], stdin=subprocess.PIPE, pass_fds=(descriptor,)
    )
    os.close(descriptor)
    oldest = path.rename(tmp_path / "20200101-000000-old-1.log")
    paths = make(tmp_path, 4)
    forget_oldest(tmp_path, kept=2)
    assert sorted(tmp_path.iterdir()) == [oldest, *paths[2:], mine]
    holder.communicate(b"\n")
    forget_oldest(tmp_path, kept=2)
    assert sorted(tmp_path.iterdir()) == [*paths[2:], mine]


def test_a_folder_that_cannot_be_written(tmp_path: Path) -> None:
    """It is said where and why, and what to do instead."""
    (tmp_path / "file").touch()
    with pytest.raises(SentenceError, match=r"Not a directory.*--output FILE") as caught:
        open_kept(["job"], tmp_path / "file" / "runs")
    assert str(tmp_path) in str(caught.value)


def test_a_chosen_file_is_emptied(tmp_path: Path) -> None:
    """What was in it is gone, and a device can be chosen too."""
    path = tmp_path / "log"
    path.write_text("old")
    descriptor = open_chosen(path)
    os.write(descriptor, b"new")
    os.close(descriptor)
    assert path.read_text() == "new"
    os.close(open_chosen(Path(os.devnull)))
    with pytest.raises(SentenceError, match="Is a directory"):
        open_chosen(tmp_path)
