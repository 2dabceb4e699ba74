"""Lines of a job's source files, named by a process that can name anything."""

import os
from pathlib import Path

import pytest

from gpuwatch.jobs.stacks.report import FILE_BYTES, JobSource

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
    """A path inside a container is no path of ours; older Pythons name the script as typed."""
    write(proc, "project/train.py", "import torch\nloss.item()\n")
    assert line(proc, "/project/train.py", 2) == "loss.item()"
    assert line(proc, "train.py", 1) == "import torch"


def test_links_stay_inside_the_root(proc: Path, tmp_path: Path) -> None:
    """``/data -> /mnt/disk``, a release that is a link, ``..`` in a target are followed there; the
    kernel would follow an absolute one on our side, out of the container."""
    root = proc.parent / "root"
    write(proc, "mnt/disk/pkg/model.py", "x = 1\n")
    (root / "project" / "data").symlink_to("/mnt/disk")
    (root / "project" / "current").symlink_to("../project/data/pkg")
    assert line(proc, "/project/current/model.py", 1) == "x = 1"
    (tmp_path / "secret").write_text("secret\n")
    (root / "project" / "train.py").symlink_to(tmp_path / "secret")
    (root / "a").symlink_to("/b")
    (root / "b").symlink_to("/a")
    for file in ("/project/train.py", "/../secret", "/a/x.py"):
        assert line(proc, file, 1) is None


@pytest.mark.parametrize(
    "file",
    ["/project/none.py", "/project", "<string>", "", "/a\0b", "x" * 5000, "/pipe", "/huge.py"],
)
def test_what_is_no_source_gives_no_line(proc: Path, file: str) -> None:
    """Nothing that a process calls its file raises; a pipe, which would wait for ever, is not
    opened."""
    os.mkfifo(proc.parent / "root" / "pipe")
    os.truncate(write(proc, "huge.py", ""), FILE_BYTES + 1)
    assert line(proc, file, 1) is None


def test_a_file_edited_since_is_not_shown(proc: Path) -> None:
    """Its lines are not those that run. Start times are only known to about a second."""
    write(proc, "project/train.py", "new")
    assert line(proc, "/project/train.py", 1, LONG_AGO - 10) is None
    assert line(proc, "/project/train.py", 1, LONG_AGO - 1) == "new"
    # A file put back with its old time has other lines all the same.
    assert line(proc, "/project/train.py", 2) is None


def test_lines_and_letters_are_those_of_python(proc: Path) -> None:
    """A form feed ends no line, a carriage return does; what is no UTF-8 becomes a mark."""
    write(proc, "project/train.py", b"a\x0cb\r\nc\rd\n")
    write(proc, "project/wrong.py", b"n\xe9\n")
    assert line(proc, "/project/train.py", 3) == "d"
    assert line(proc, "/project/wrong.py", 1) == "n\ufffd"


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can show a file as another user")
def test_root_does_not_show_what_the_job_s_user_may_not_read(proc: Path) -> None:
    """A file name in a process's memory must not be a way to read with root's rights."""
    path = write(proc, "etc/shadow", "secret\n")
    path.chmod(0o600)
    os.chown(proc / "7", 65534, 65534)
    assert line(proc, "/etc/shadow", 1) is None
    path.chmod(0o644)
    assert line(proc, "/etc/shadow", 1) == "secret"
