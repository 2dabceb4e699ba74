"""What a job prints is kept by a process of its own."""

import fcntl
import os
import re
import resource
import subprocess
import sys
import termios
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from gpuwatch.jobs.run import keeper
from gpuwatch.jobs.run.keeper import Keeper
from tests.support.children import wait_until


@contextmanager
def small_disk(folder: Path, size_bytes: int) -> Iterator[Path]:
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", f"size={size_bytes}", "gpuwatch-test", str(folder)]
    if subprocess.run(mount, capture_output=True, check=False).returncode != 0:
        pytest.skip("a small file system cannot be mounted here (root in a container may not)")
    try:
        yield folder
    finally:
        subprocess.run(["umount", "-l", str(folder)], check=True)


def waiting_bytes(far: int) -> int:
    """What was written to a pipe and not yet read at its other end."""
    return int.from_bytes(fcntl.ioctl(far, termios.FIONREAD, bytes(4)), sys.byteorder)


def is_asleep(pid: int) -> bool:
    return Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0] == b"S"


def test_a_full_disk_is_survived(tmp_path: Path) -> None:
    """What does not fit on the disk is dropped and counted, and once there is room again the file
    says how much is missing, where it is missing."""
    with small_disk(tmp_path / "disk", 64 * 1024) as disk:
        ballast = disk / "ballast"
        ballast.write_bytes(bytes(32 * 1024))
        path = disk / "log"
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND)
        kept = Keeper(descriptor)
        kept.keep(b"before\n")
        for _ in range(20):
            kept.keep(b"x" * 4095 + b"\n")
        lost = kept.lost_bytes
        written = path.stat().st_size
        assert lost + written == 7 + 20 * 4096
        assert lost > 0
        ballast.unlink()
        kept.keep(b"after\n")
        os.close(descriptor)
        text = path.read_bytes()
        assert text.startswith(b"before\n")
        assert text.endswith(
            b"\n[gpuwatch: %d bytes of output are missing here: No space left on device]\nafter\n"
            % lost
        )
        assert kept.lost_bytes == 0


class TestProcess:
    def start(
        self, path: Path, ends: tuple[int, int] | None = None, most_bytes: int = -1
    ) -> tuple[subprocess.Popen[bytes], int]:
        """``most_bytes``: the file may not grow beyond (ulimit -f)."""
        near, far = ends or os.openpty()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        limit = (resource.RLIMIT_FSIZE, (most_bytes, most_bytes))
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", keeper.__file__, str(near), str(descriptor)],
            pass_fds=(near, descriptor),
            preexec_fn=lambda: resource.setrlimit(*limit),  # noqa: PLW1509
        )
        os.close(near)
        os.close(descriptor)
        return process, far

    def test_survives_a_file_that_may_not_grow(self, tmp_path: Path) -> None:
        """A limit on the size of files stops neither the keeper nor, behind it, the job."""
        process, far = self.start(tmp_path / "log", most_bytes=10_000)
        # Far more than the terminal holds by itself: it all goes, so somebody takes it.
        for _ in range(30):
            os.write(far, b"y" * 1000)
        os.close(far)
        assert process.wait(60) == 0
        assert (tmp_path / "log").stat().st_size == 10_000

    def test_ends_with_the_last_that_holds_the_terminal(self, tmp_path: Path) -> None:
        """It goes on while any process has the terminal open, and ends with the last."""
        path = tmp_path / "log"
        process, far = self.start(path)
        child = subprocess.Popen(
            ["sh", "-c", "read _; echo child"], stdin=subprocess.PIPE, stdout=far
        )
        os.write(far, b"parent!")
        os.close(far)
        wait_until(lambda: path.read_bytes().endswith(b"!"))
        assert process.poll() is None
        child.communicate(b"\n")
        assert process.wait(60) == 0
        assert path.read_bytes() == b"parent!child\r\n"

    def test_says_at_the_end_what_is_missing(self, tmp_path: Path) -> None:
        """Output lost just before the end is noted in the file, if there is room for that by
        then."""
        with small_disk(tmp_path / "disk", 64 * 1024) as disk:
            ballast, path = disk / "ballast", disk / "log"
            ballast.write_bytes(bytes(56 * 1024))
            # A pipe, unlike a terminal, says how much of it has not been taken yet.
            process, far = self.start(path, os.pipe())
            os.write(far, b"x" * 40_000)
            wait_until(lambda: waiting_bytes(far) == 0 and is_asleep(process.pid))
            assert path.stat().st_size < 40_000
            ballast.unlink()
            os.close(far)
            assert process.wait(60) == 0
            text = path.read_bytes()
            found = re.search(
                rb"\n\[gpuwatch: (\d+) bytes of output are missing here: No space", text
            )
            assert text[: found.start()].count(b"x") + int(found[1]) == 40_000

    def test_holds_nothing_else(self, tmp_path: Path) -> None:
        """It keeps no folder busy and no descriptor open but its own two and its streams, and
        ignores what would end it before the job."""
        path = tmp_path / "log"
        process, far = self.start(path)
        os.write(far, b"!")
        wait_until(lambda: path.read_bytes().endswith(b"!"))
        proc = Path("/proc") / str(process.pid)
        assert (proc / "cwd").readlink() == Path("/")
        assert len(list((proc / "fd").iterdir())) == 5
        for number in (1, 2, 3, 15):
            process.send_signal(number)
        os.write(far, b"?!")
        wait_until(lambda: path.read_bytes() == b"!?!")
        os.close(far)
        assert process.wait(60) == 0
