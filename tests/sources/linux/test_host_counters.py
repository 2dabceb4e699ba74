"""Parsing of the kernel's machine-wide counters, on literal texts."""

import mmap
from pathlib import Path

import pytest

from gpuwatch.sources.linux import host as counters
from gpuwatch.sources.linux.host import CpuTimes

STAT = b"""cpu  100 20 30 800 50 6 4 10 99 9
cpu0 60 10 20 400 40 3 2 5 50 5
cpu2 40 10 10 400 10 3 2 5 49 4
intr 12345 0 0
ctxt 99
btime 1700000000
"""


def test_cpu_lines_give_busy_idle_and_iowait_in_their_order() -> None:
    """Guest time is not counted twice, stolen time is busy, and an offline core has no line."""
    times = counters.parse_cpu_times(STAT)
    assert list(times) == [b"cpu", b"cpu0", b"cpu2"]
    assert times[b"cpu"] == CpuTimes(busy=170, idle=800, iowait=50)


@pytest.mark.parametrize(
    ("before", "percents"),
    [
        (CpuTimes(100, 100, 100), (50.0, 0.0)),
        # A core that came online, or had no tick.
        (None, (None, None)),
        (CpuTimes(150, 150, 90), (None, None)),
    ],
)
def test_a_core_s_percents(
    before: CpuTimes | None, percents: tuple[float | None, float | None]
) -> None:
    """A counter that steps back, as iowait can, counts as nothing; without two samples and time
    between them a core is unknown, not idle."""
    assert counters.cpu_percents(before, CpuTimes(150, 150, 90)) == percents


def test_what_comes_back_to_the_page_cache_is_counted_by_its_old_name_too() -> None:
    """In bytes; pages of programs' own memory are not among it."""
    old = counters.parse_refaults(b"workingset_nodes 3\nworkingset_refault 2\n")
    new = b"workingset_refault_anon 9\nworkingset_refault_file 2\n"
    assert counters.parse_refaults(new) == old == {b"file": (2 * mmap.PAGESIZE,)}
    assert counters.parse_refaults(b"nr_free_pages 1\n") == {}


def test_memory_without_memavailable_counts_buffers_and_cache_as_available() -> None:
    """Kernels before 3.14."""
    text = b"MemTotal: 1000 kB\nMemFree: 100 kB\nBuffers: 50 kB\nCached: 300 kB\n"
    assert tuple(counters.parse_memory(text).values()) == (1000 * 1024, 550 * 1024, None, None)


def test_pressure_totals_are_read_from_both_lines() -> None:
    """The cpu file of kernels before 5.13 has no ``full`` line."""
    both = (
        b"some avg10=1.00 avg60=0.58 avg300=0.22 total=5377580\n"
        b"full avg10=0.00 avg60=0.00 avg300=0.00 total=42\n"
    )
    assert counters.parse_pressure(both) == {"some": 5377580, "full": 42}
    assert counters.parse_pressure(both.splitlines()[0]) == {"some": 5377580}


def test_pressure_is_the_share_of_the_interval() -> None:
    """Microseconds waited over seconds passed; never above 100; unknown without two samples."""
    assert counters.pressure_percent(1_000_000, 1_500_000, 2.0) == 25.0
    assert counters.pressure_percent(0, 1_010_000, 1.0) == 100.0
    assert counters.pressure_percent(7, 7, 1.0) == 0.0
    assert counters.pressure_percent(None, 7, 1.0) is None
    assert counters.pressure_percent(7, 8, 0.0) is None


DISKSTATS = b"""   7       0 loop0 1 0 8 0 0 0 0 0 0 0 0
 259       0 nvme0n1 10 0 2000 5 20 0 4000 6 0 7 8 9 0 0 0 1 2
 259       1 nvme0n1p1 10 0 2000 5 20 0 4000 6 0 7 8 9 0 0 0 1 2
 253       0 dm-0 10 0 2000 0 20 0 4000 0 0 0 0
"""


def test_only_whole_disks_are_counted_in_sectors_of_512_bytes() -> None:
    """Partitions and stacked devices would count the same bytes again; reads have their time."""
    found = counters.parse_disks(DISKSTATS, {b"nvme0n1"})
    assert found == {b"nvme0n1": (1024000, 2048000, 10, 5)}


def test_interfaces_are_read_even_where_name_and_number_touch() -> None:
    """Old kernels print ``eth0:123``; an alias holds a colon itself."""
    text = (
        b"Inter-|   Receive  |  Transmit\n face |bytes ... |bytes ...\n"
        b"    lo:    10 1 0 0 0 0 0 0       10 1 0 0 0 0 0 0\n"
        b"  eth0:123456 1 0 0 0 0 0 0      789 1 0 0 0 0 0 0\n"
        b"eth0:1: 5 1 0 0 0 0 0 0 6 1 0 0 0 0 0 0\n"
    )
    assert counters.parse_network(text, None) == {b"eth0": (123456, 789), b"eth0:1": (5, 6)}
    assert counters.parse_network(text, {b"lo"}) == {b"lo": (10, 10)}


MOUNTSTATS = """device /dev/sda1 mounted on / with fstype ext4
device 10.0.0.7:/export/imagenet mounted on /data/image\\040net with fstype nfs4 statvers=1.1
\topts:\trw,vers=4.2,rsize=1048576,wsize=1048576,namlen=255,hard,proto=tcp,timeo=600,retrans=2
\tage:\t86400
\tcaps:\tcaps=0x3fffbf,wtmult=512,dtsize=1048576,bsize=0,namlen=255
\tnfsv4:\tbm0=0xfdffbfff,bm1=0xf9be3e,bm2=0x68800,acl=0x3,sessions,pnfs=not configured
\tsec:\tflavor=1,pseudoflavor=1
\tevents:\t12 0 0 0 7 9 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0 0
\tbytes:\t1000 0 0 0 1000 0 1 0
\tRPC iostats version: 1.1  p/v: 100003/4 (nfs)
\txprt:\ttcp 898 0 2 0 12 5000 5000 0 5000 0 2 0 0
\tper-op statistics
\t        NULL: 1 1 0 44 24 0 0 0 0
\t        READ: {reads} {reads} 0 200 {bytes} {queue} {trip} {execute} 0
\t       WRITE: 500 500 0 90000000 80000 900 900 90000 0
\t      LOOKUP: {lookups} {lookups} 0 200 300 0 10 10
device 10.0.0.7:/old mounted on /old with fstype nfs statvers=1.0

device proc mounted on /proc with fstype proc
"""


def requests(**counts: int) -> dict[str, counters.Requests]:
    return counters.parse_mount_requests(MOUNTSTATS.format(**counts).encode())


def test_an_nfs_mount_has_the_times_of_its_requests() -> None:
    """Reads and look-ups count, writes and local file systems do not; in milliseconds a request."""
    before = requests(reads=100, bytes=5000, queue=10, trip=500, execute=600, lookups=1)
    now = requests(reads=1000, bytes=5_005_000, queue=910, trip=10_490, execute=11_600, lookups=101)
    (mount,) = counters.network_mounts(before, now, 10.0)
    assert (mount.mount_point, mount.kind) == ("/data/image net", "nfs4")
    assert mount.requests_per_second == 100.0
    assert mount.read_bytes_per_second == 500_000.0
    assert (mount.queue_milliseconds, mount.round_trip_milliseconds) == (0.9, 9.99)
    assert mount.waiting_requests == 1.1
    # Nothing was asked for; it was mounted anew.
    assert counters.network_mounts(now, now, 10.0) == ()
    assert counters.network_mounts(now, before, 10.0) == ()


def test_the_clock_of_busy_cores_is_read_with_what_holds_it_down(tmp_path: Path) -> None:
    """In MHz, whichever file says what the cores are made for; counts of heat by core; nothing on
    a machine without cpufreq (most virtual ones)."""
    assert counters.read_clocks(tmp_path, ["cpu0"]) == ({}, {})
    for core, khz in (("cpu0", 1_200_000), ("cpu3", 1_400_000)):
        for name, text in (
            ("cpufreq/scaling_cur_freq", khz), ("cpufreq/cpuinfo_max_freq", 3_900_000),
            ("cpufreq/scaling_governor", "powersave"), ("acpi_cppc/nominal_freq", 2400),
            ("thermal_throttle/package_throttle_count", 7),
        ):  # fmt: skip
            path = tmp_path / core / name
            path.parent.mkdir(parents=True, exist_ok=True)
            path.write_text(f"{text}\n")
    found, counts = counters.read_clocks(tmp_path, ["cpu0", "cpu3"])
    assert found == {
        "cpu_clock_mhz": 1300.0, "cpu_clock_base_mhz": 2400.0, "cpu_clock_max_mhz": 3900.0,
        "cpu_governor": "powersave",
    }  # fmt: skip
    assert counts == {"cpu0 package_throttle_count": 7, "cpu3 package_throttle_count": 7}
    (tmp_path / "cpu0/cpufreq/base_frequency").write_text("2100000\n")
    assert counters.read_clocks(tmp_path, ["cpu0"])[0]["cpu_clock_base_mhz"] == 2100.0
