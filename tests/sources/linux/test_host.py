"""The host source, on a /proc of literal text and on the machine the test runs on."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.core.model import Host, Problem
from gpuwatch.core.source import ManualClock, SystemClock
from gpuwatch.sources.linux.host import HostReader
from tests.support.children import wait_until


class FakeHost:
    """Kernel files a test rewrites in place, and a reader of them."""

    def __init__(self, root: Path) -> None:
        self.proc = root / "proc"
        self.sys = root / "sys"
        disk = self.sys / "devices" / "pci0" / "sda"
        disk.mkdir(parents=True)
        (self.sys / "block").mkdir()
        (self.sys / "block" / "sda").symlink_to(disk)
        (self.sys / "class" / "net" / "eth0" / "device").mkdir(parents=True)
        self.cpu()
        self.write(
            "meminfo", "MemTotal: 1000 kB\nMemAvailable: 750 kB\nSwapTotal: 0 kB\nSwapFree: 0 kB\n"
        )
        self.write("loadavg", "0.50 1.00 2.00 1/100 4242\n")
        self.traffic(0, 0)
        for name in ("cpu", "io", "memory"):
            self.pressure(name, 0, 0)
        self.clock = ManualClock(100.0)
        self.reader = HostReader(self.clock, self.proc, self.sys, root)

    def write(self, name: str, text: str) -> None:
        path = self.proc / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text(text)

    def cpu(self, *cores: tuple[int, int, int]) -> None:
        """(busy, idle, iowait) of each core; the first line is their sum."""
        cores = cores or ((0, 0, 0), (0, 0, 0))
        total = tuple(sum(core[place] for core in cores) for place in range(3))
        lines = [f"cpu  {total[0]} 0 0 {total[1]} {total[2]} 0 0 0 0 0"]
        lines += [f"cpu{n} {b} 0 0 {i} {w} 0 0 0 0 0" for n, (b, i, w) in enumerate(cores)]
        self.write("stat", "\n".join([*lines, "intr 1", "btime 1600000000", ""]))

    def pressure(self, name: str, some: int, full: int) -> None:
        averages = "avg10=0.00 avg60=0.00 avg300=0.00"
        self.write(
            f"pressure/{name}", f"some {averages} total={some}\nfull {averages} total={full}\n"
        )

    def traffic(self, sectors: int, network_bytes: int) -> None:
        self.write(
            "diskstats",
            f"8 0 sda 1 0 {sectors} 1 1 0 {2 * sectors} 1 0 1 1\n"
            f"8 1 sda1 1 0 {sectors} 1 1 0 {2 * sectors} 1 0 1 1\n",
        )
        self.write(
            "net/dev",
            "Inter-| Receive | Transmit\n face |bytes | bytes\n"
            "lo: 999999 0 0 0 0 0 0 0 999999 0 0 0 0 0 0 0\n"
            f"eth0: {network_bytes} 0 0 0 0 0 0 0 {3 * network_bytes} 0 0 0 0 0 0 0\n"
            f"docker0: {network_bytes} 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0\n",
        )

    def read(self) -> tuple[Host, tuple[Problem, ...]]:
        return self.reader.read()


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeHost]:
    host = FakeHost(tmp_path)
    yield host
    host.reader.close()


def test_the_first_reading_right_after_opening_has_no_rates(fake: FakeHost) -> None:
    """Rates need two samples: unknown, not zero; what needs only one is there."""
    fake.reader.open()
    host, problems = fake.read()
    rates = (host.cpu_percent, host.core_percents, host.disk_read_bytes_per_second)
    assert (*rates, host.pressure_cpu_some_percent) == (None,) * 4
    assert (host.memory_total_bytes, host.memory_used_bytes) == (1024000, 256000)
    assert (host.swap_total_bytes, host.swap_used_bytes) == (0, 0)
    assert host.core_count == 2
    assert problems == ()


def test_rates_are_over_the_time_since_the_reading_before(fake: FakeHost) -> None:
    """CPU, pressure, disk and network over two seconds of the injected clock."""
    fake.reader.open()
    fake.clock.advance(2.0)
    fake.cpu((150, 30, 20), (0, 200, 0))
    fake.pressure("cpu", 500_000, 0)
    fake.pressure("io", 200_000, 100_000)
    fake.pressure("memory", 20_000, 0)
    fake.traffic(1000, 4000)
    host, _ = fake.read()
    assert host.cpu_percent == 37.5
    assert host.cpu_iowait_percent == 5.0
    assert host.core_percents == (75.0, 0.0)
    assert host.pressure_cpu_some_percent == 25.0
    assert (host.pressure_io_some_percent, host.pressure_io_full_percent) == (10.0, 5.0)
    assert (host.pressure_memory_some_percent, host.pressure_memory_full_percent) == (1.0, 0.0)
    assert host.disk_read_bytes_per_second == 256_000
    assert host.disk_write_bytes_per_second == 512_000
    assert host.network_receive_bytes_per_second == 2000
    assert host.network_transmit_bytes_per_second == 6000


def test_a_second_reading_at_once_repeats_the_rates_instead_of_losing_them(fake: FakeHost) -> None:
    """Too little time for a new share: the last one stands, and its ticks are not lost."""
    fake.reader.open()
    for seconds, busy, percent in ((1.0, 50, 50.0), (0.01, 60, 50.0), (0.99, 150, 100.0)):
        fake.clock.advance(seconds)
        fake.cpu((busy, 50, 0), (busy, 50, 0))
        assert fake.read()[0].cpu_percent == percent


def test_a_core_that_comes_online_is_unknown_at_first(fake: FakeHost) -> None:
    """Its share needs a second sample; the others' do not suffer."""
    fake.reader.open()
    fake.clock.advance(1.0)
    fake.cpu((50, 50, 0), (100, 0, 0), (5, 5, 0))
    host, _ = fake.read()
    assert host.core_percents == (50.0, 100.0, None)
    assert host.core_count == 3


def test_a_kernel_without_pressure_is_no_problem(fake: FakeHost) -> None:
    """PSI can be left out of a kernel: None, and nothing a person needs to know."""
    for name in ("cpu", "io", "memory"):
        (fake.proc / "pressure" / name).unlink()
    fake.reader.open()
    fake.clock.advance(1.0)
    host, problems = fake.read()
    assert host.pressure_io_some_percent is None
    assert problems == ()


@pytest.mark.parametrize("name", ["stat", "meminfo", "loadavg", "diskstats", "net/dev"])
def test_a_missing_file_loses_its_own_readings_only(fake: FakeHost, name: str) -> None:
    """A sentence names the file at every reading, and the other readings are still there."""
    (fake.proc / name).unlink()
    fake.reader.open()
    for _ in range(2):
        fake.clock.advance(1.0)
        host, problems = fake.read()
        assert [name in problem.message for problem in problems] == [True]
        assert getattr(host, problems[0].reading or "") is None
        assert (host.memory_used_bytes is None) == (name == "meminfo")
        assert (host.load_average_1_minute is None) == (name == "loadavg")


def test_text_that_is_not_understood_becomes_a_sentence(fake: FakeHost) -> None:
    """And is asked for again: it is back when the text is."""
    fake.reader.open()
    fake.clock.advance(1.0)
    fake.write("loadavg", "nonsense\n")
    host, problems = fake.read()
    assert host.load_average_1_minute is None
    assert "not understood" in problems[0].message
    fake.write("loadavg", "1.00 1.00 1.00 1/1 1\n")
    fake.clock.advance(1.0)
    host, problems = fake.read()
    assert (host.load_average_1_minute, problems) == (1.0, ())


def test_a_disk_plugged_in_later_is_counted_without_a_jump(fake: FakeHost, tmp_path: Path) -> None:
    """The list of disks is read again after a while; the new disk's past is not traffic."""
    fake.reader.open()
    disk = tmp_path / "sys" / "devices" / "pci0" / "sdb"
    disk.mkdir()
    (tmp_path / "sys" / "block" / "sdb").symlink_to(disk)
    sda = "8 0 sda 1 0 0 1 1 0 0 1 0 1 1\n"
    for second, sectors in ((20.0, 10**9), (1.0, 10**9 + 2)):
        fake.clock.advance(second)
        fake.write("diskstats", f"{sda}8 16 sdb 1 0 {sectors} 1 1 0 0 1 0 1 1\n")
        host, _ = fake.read()
        expected = 0.0 if sectors == 10**9 else 1024.0
        assert host.disk_read_bytes_per_second == expected


def test_the_quota_limits_the_usable_cores(fake: FakeHost, tmp_path: Path) -> None:
    """Usable is the smaller of affinity and quota."""
    group = tmp_path / "cgroup"
    group.mkdir()
    (group / "cpu.max").write_text("50000 100000\n")
    fake.write("self/cgroup", "0::/\n")
    fake.write("self/mountinfo", f"30 22 0:26 / {group} rw - cgroup2 cgroup2 rw\n")
    host, _ = fake.read()
    assert host.quota_cores == 0.5
    assert host.affinity_cores == len(os.sched_getaffinity(0))
    assert host.usable_cores == 0.5


def test_this_machine_gives_plausible_readings() -> None:
    """Through the public source, on the real /proc, with the real clock."""
    source = HostReader(SystemClock())
    source.open()
    try:
        wait_until(lambda: source.read()[0].cpu_percent is not None)
        host, problems = source.read()
    finally:
        source.close()
    assert problems == ()
    assert host.name
    assert 0 <= (host.cpu_percent or 0.0) <= 100
    assert len(host.core_percents or ()) == host.core_count
    assert 0 < (host.memory_used_bytes or 0) < (host.memory_total_bytes or 0)
    assert 0 < (host.usable_cores or 0.0) <= len(os.sched_getaffinity(0))
    assert (host.uptime_seconds or 0.0) > 0


def test_the_shared_memory_in_use_is_that_of_the_file_system() -> None:
    """On the real /dev/shm: what statvfs says before and after, in a moment in which nobody else on
    this machine uses more or less of it."""
    if not Path("/dev/shm").is_mount():
        pytest.skip("no /dev/shm here")
    clock = ManualClock()
    source = HostReader(clock)

    def used() -> int:
        found = os.statvfs("/dev/shm")
        return (found.f_blocks - found.f_bfree) * found.f_frsize

    def agrees() -> bool:
        clock.advance(10.0)
        return used() == source.read()[0].shm_used_bytes == used()

    try:
        wait_until(agrees)
    finally:
        source.close()
