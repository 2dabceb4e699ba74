"""What a job prints is kept by a process of its own."""

import os
import subprocess
import sys
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
    def start(self, path: Path) -> tuple[subprocess.Popen[bytes], int]:
        near, far = os.openpty()
        descriptor = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_APPEND, 0o600)
        process = subprocess.Popen(
            [sys.executable, "-I", "-S", "-B", keeper.__file__, str(near), str(descriptor)],
            pass_fds=(near, descriptor),
        )
        os.close(near)
        os.close(descriptor)
        return process, far

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
