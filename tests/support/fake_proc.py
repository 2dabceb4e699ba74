"""A ``/proc`` of ordinary files with literal text, for what a real one cannot be made to say."""

import os
import shutil
from pathlib import Path

import pytest

from gpuwatch.sources.linux import procfs

BOOTED_AT = 1_600_000_000


class FakeProc:
    """Writes the files in place, so that descriptors kept open see what is new."""

    def __init__(self, root: Path) -> None:
        self.root = root
        self._last_pid = 100
        self.write("stat", f"cpu  0 0 0 0 0 0 0 0 0 0\nintr 0\nbtime {BOOTED_AT}\n")
        self.write("loadavg", "0.10 0.20 0.30 1/50 100\n")
        self.namespace("pid:[4026531836]")

    def write(self, name: str, text: str | bytes) -> None:
        path = self.root / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(text if isinstance(text, bytes) else text.encode())

    def namespace(self, name: str) -> None:
        link = self.root / "self" / "ns" / "pid"
        link.parent.mkdir(parents=True, exist_ok=True)
        link.unlink(missing_ok=True)
        link.symlink_to(name)

    def process(
        self,
        pid: int,
        *,
        name: str | bytes = "python",
        parent: int = 1,
        state: str = "S",
        ticks: int = 0,
        threads: int = 1,
        started_ticks: int = 12_345,
        resident_pages: int = 100,
        stack: int = 140_000,
        flags: int = 0,
        command: bytes = b"python\0train.py\0",
        uid: int = 0,
        cgroup: str = "0::/\n",
    ) -> None:
        """Write (or overwrite in place) a process; a new one moves the last PID on."""
        if not (self.root / str(pid)).exists():
            self._last_pid = max(self._last_pid + 1, pid)
            self.write("loadavg", f"0.10 0.20 0.30 1/50 {self._last_pid}\n")
        label = name if isinstance(name, bytes) else name.encode()
        fields = [0] * 49
        fields[0], fields[5] = parent, flags
        fields[10], fields[11] = ticks // 2, ticks - ticks // 2
        fields[16], fields[18], fields[20] = threads, started_ticks, resident_pages
        fields[24] = stack
        rest = " ".join(str(field) for field in fields).encode()
        self.write(f"{pid}/stat", b"%d (%s) %s %s\n" % (pid, label, state.encode(), rest))
        self.write(f"{pid}/status", f"Name:\tx\nUid:\t7\t{uid}\t7\t7\nGid:\t0\t0\t0\t0\n")
        self.write(f"{pid}/cmdline", command)
        self.write(f"{pid}/cgroup", cgroup)

    def clocks(self, patch: pytest.MonkeyPatch) -> dict[int, float]:
        """The CPU clocks of all processes by PID, in seconds: they stand still until one is set."""
        seconds: dict[int, float] = {}

        def read(pid: int) -> float | None:
            is_there = os.access(self.root / str(pid), os.F_OK)
            return seconds.get(pid, 1.0) if is_there else None

        patch.setattr(procfs, "has_clocks", lambda _: True)
        patch.setattr(procfs, "cpu_clock", read)
        return seconds

    def remove(self, pid: int) -> None:
        shutil.rmtree(self.root / str(pid))
