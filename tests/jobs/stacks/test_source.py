"""Lines of a job's source files, named by a process that can name anything."""

from __future__ import annotations

import os
from pathlib import Path

import pytest

from gpuwatch.jobs.stacks.source import EDITED, FILE_BYTES, JobSource

LONG_AGO = 1_000_000_000.0


@pytest.fixture
def proc(tmp_path: Path) -> Path:
    """A ``/proc`` with process 7, whose root is a folder of its own."""
    (tmp_path / "root" / "project").mkdir(parents=True)
    folder = tmp_path / "proc" / "7"
    folder.mkdir(parents=True)
    (folder / "root").symlink_to(tmp_path / "root")
    (folder / "cwd").symlink_to("/project")
    return tmp_path / "proc"


def write(proc: Path, name: str, text: str | bytes) -> Path:
    path = proc.parent / "root" / name
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(text if isinstance(text, bytes) else text.encode())
    os.utime(path, (LONG_AGO, LONG_AGO))
    return path


def line(proc: Path, file: str, number: int, started_at: float | None = None) -> object:
    return JobSource(7, started_at, proc).line(file, number)


def test_a_line_is_read_below_the_job_s_own_root(proc: Path) -> None:
    """A path inside a container is no path of ours."""
    write(proc, "project/train.py", "import torch\nloss.item()\n")
    assert line(proc, "/project/train.py", 2) == ("loss.item()", None)


def test_a_relative_name_is_below_the_job_s_folder(proc: Path) -> None:
    """Older Pythons name the script as it was typed."""
    write(proc, "project/train.py", "first\n")
    assert line(proc, "train.py", 1) == ("first", None)


def test_an_absolute_link_stays_below_the_job_s_root(proc: Path, tmp_path: Path) -> None:
    """The kernel would follow it on our side, out of the container."""
    outside = tmp_path / "secret"
    outside.write_text("secret\n")
    (proc.parent / "root" / "project" / "train.py").symlink_to(outside)
    assert line(proc, "/project/train.py", 1) == (None, None)


def test_links_inside_the_root_are_followed(proc: Path) -> None:
    """``/data -> /mnt/disk``, a release that is a link, ``..`` in a target."""
    write(proc, "mnt/disk/pkg/model.py", "x = 1\n")
    (proc.parent / "root" / "project" / "data").symlink_to("/mnt/disk")
    (proc.parent / "root" / "project" / "current").symlink_to("../project/data/pkg")
    assert line(proc, "/project/current/model.py", 1) == ("x = 1", None)


def test_dots_do_not_lead_out_of_the_root(proc: Path, tmp_path: Path) -> None:
    """As in a real root folder, ``..`` at the top stays there."""
    (tmp_path / "secret").write_text("secret\n")
    assert line(proc, "/../secret", 1) == (None, None)


def test_links_in_a_circle_end(proc: Path) -> None:
    """As the kernel gives up after forty."""
    (proc.parent / "root" / "a").symlink_to("/b")
    (proc.parent / "root" / "b").symlink_to("/a")
    assert line(proc, "/a/x.py", 1) == (None, None)


def test_a_pipe_is_not_opened(proc: Path) -> None:
    """Reading it would wait for ever."""
    os.mkfifo(proc.parent / "root" / "project" / "train.py")
    assert line(proc, "/project/train.py", 1) == (None, None)


@pytest.mark.parametrize(
    "file", ["/project/none.py", "/project", "<string>", "", "/a\0b", "x" * 5000]
)
def test_what_is_no_file_gives_no_line(proc: Path, file: str) -> None:
    """Nothing that a process calls its file raises."""
    assert line(proc, file, 1) == (None, None)


def test_a_huge_file_is_left_alone(proc: Path) -> None:
    """Sources are small."""
    path = write(proc, "project/train.py", "")
    os.truncate(path, FILE_BYTES + 1)
    os.utime(path, (LONG_AGO, LONG_AGO))
    assert line(proc, "/project/train.py", 1) == (None, None)


def test_a_file_edited_since_is_not_shown(proc: Path) -> None:
    """Its lines are not those that run."""
    write(proc, "project/train.py", "new\n")
    assert line(proc, "/project/train.py", 1, LONG_AGO - 10) == (None, EDITED)


def test_a_file_edited_just_before_the_start_is_the_one_that_runs(proc: Path) -> None:
    """Start times are only known to about a second."""
    write(proc, "project/train.py", "new\n")
    assert line(proc, "/project/train.py", 1, LONG_AGO - 1) == ("new", None)


def test_a_line_beyond_the_end_says_that_the_file_changed(proc: Path) -> None:
    """A file put back with its old time has other lines all the same."""
    write(proc, "project/train.py", "one")
    assert line(proc, "/project/train.py", 2) == (None, EDITED)


def test_lines_are_counted_as_python_counts_them(proc: Path) -> None:
    """A form feed ends no line, a carriage return does."""
    write(proc, "project/train.py", b"a\x0cb\r\nc\rd\n")
    assert line(proc, "/project/train.py", 3) == ("d", None)


def test_the_encoding_is_the_one_the_file_declares(proc: Path) -> None:
    """And what is not in it becomes a mark, not an error."""
    write(proc, "project/latin.py", "# -*- coding: latin-1 -*-\nné\n".encode("latin-1"))
    write(proc, "project/wrong.py", b"n\xe9\n")
    assert line(proc, "/project/latin.py", 2) == ("né", None)
    assert line(proc, "/project/wrong.py", 1) == ("n\ufffd", None)


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can show a file as another user")
def test_root_does_not_show_what_the_job_s_user_may_not_read(proc: Path) -> None:
    """A file name in a process's memory must not be a way to read with root's rights."""
    path = write(proc, "etc/shadow", "secret\n")
    path.chmod(0o600)
    os.chown(proc / "7", 65534, 65534)
    assert line(proc, "/etc/shadow", 1) == (None, None)
    path.chmod(0o644)
    assert line(proc, "/etc/shadow", 1) == ("secret", None)
