"""``/proc/PID/stat`` and the files beside it, on literal bytes."""

from pathlib import Path

import pytest

from gpuwatch.sources.linux import procfs
from tests.support.fake_proc import BOOTED_AT, FakeProc

REAL_LINE = (
    b"4242 (%b) R 17 4242 4242 34816 4242 4194304 100 0 0 0 1500 250 3 4 20 0 33 0 987654 "
    b"9999999 25000 18446744073709551615 94000 95000 140722000 0 0 0 0 16781312 134235650 0 0 0 "
    b"17 2 0 0 0 0 0 96000 97000 98000 140723 140724 140725 140726 0\n"
)


@pytest.mark.parametrize(
    "name", [b"python", b"a) R 1 2 (b", b"tmux: server", b"x\ny", b"((", b"", b"\xff\x1b[m"]
)
def test_the_fields_are_found_behind_any_name(name: bytes) -> None:
    """Parentheses, blanks and newlines in the name do not shift the fields."""
    stat = procfs.parse_process_stat(REAL_LINE % name)
    assert stat == (
        name, "R", 17, 4194304, 1750, 33, 987654, 25000, b"140722000", 4242, 4242
    )  # fmt: skip
    # PF_KTHREAD.
    thread = procfs.parse_process_stat((REAL_LINE % name).replace(b" 4194304 ", b" 69238880 "))
    assert (stat.is_kernel_thread, thread.is_kernel_thread) == (False, True)


@pytest.mark.parametrize("text", [b"", b"12 (x", b"12 (x) R 1 2\n", b"garbage"])
def test_anything_else_is_refused(text: bytes) -> None:
    """A cut or empty line is an error, not a process of zeros."""
    with pytest.raises(ValueError):  # noqa: PT011 - the kind is all there is to say
        procfs.parse_process_stat(text)


def test_the_start_time_does_not_move_when_the_clock_is_stepped(tmp_path: Path) -> None:
    """Stepping the wall clock changes the kernel's btime; keys must not change with it. A sandbox's
    /proc/stat can lack btime: the clocks give one."""
    proc = FakeProc(tmp_path)
    stat = procfs.parse_process_stat(REAL_LINE % b"x")
    first = procfs.start_unix_seconds(stat, tmp_path)
    proc.write("stat", "cpu  0 0 0 0\nbtime 1\n")
    assert procfs.start_unix_seconds(stat, tmp_path) == first
    assert first == pytest.approx(BOOTED_AT + 987654 / procfs.TICKS_PER_SECOND, abs=0.01)
    assert procfs.boot_unix_seconds(tmp_path / "nothing") > 0


def test_the_start_time_of_this_process_is_that_which_psutil_gives() -> None:
    """To the second: psutil derives it from the same two numbers."""
    import psutil

    stat = procfs.parse_process_stat(procfs.read_once("/proc/self/stat"))
    expected = psutil.Process().create_time()
    assert abs(procfs.start_unix_seconds(stat) - expected) <= 1.0


def test_a_kept_file_shows_what_is_in_it_now_however_long(tmp_path: Path) -> None:
    """Shorter, longer than the buffer, and listing files that come in pieces. Closing twice does
    no harm, and is not the end."""
    path = tmp_path / "file"
    for single in (True, False):
        file = procfs.KernelFile(path, single=single)
        for text in (b"short", b"x" * 100_000, b""):
            path.write_bytes(text)
            assert file.read() == text
        for _ in range(2):
            file.close()
        assert file.read() == b""
        file.close()
