"""Rates of one process, on literal kernel files."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.jobs.tracking import meters
from gpuwatch.jobs.tracking.meters import MemberMeter, MemoryShare
from tests.support.fake_proc import FakeProc

PID = 42


@pytest.fixture
def proc(tmp_path: Path) -> FakeProc:
    made = FakeProc(tmp_path)
    made.process(PID)
    return made


@pytest.fixture
def meter(proc: FakeProc) -> Iterator[MemberMeter]:
    made = MemberMeter(PID, proc.root, keep_open=True)
    yield made
    made.close()


def usage(proc: FakeProc, *, ran: float, waited: float, read: int, written: int) -> None:
    """Seconds on a core and waiting for one; bytes."""
    proc.write(f"{PID}/schedstat", f"{ran * 1e9:.0f} {waited * 1e9:.0f} 12\n")
    proc.write(
        f"{PID}/io",
        f"rchar: 9\nwchar: 9\nsyscr: 9\nsyscw: 9\nread_bytes: {read}\nwrite_bytes: {written}\n"
        "cancelled_write_bytes: 777\n",
    )


def test_rates_are_over_the_time_between_two_readings(proc: FakeProc, meter: MemberMeter) -> None:
    """Main thread, run queue and storage; the first reading gives none."""
    usage(proc, ran=1.0, waited=0.5, read=1000, written=0)
    first = meter.update(10.0, switches=False, disk_wait=False)
    assert first == meters.NO_RATES
    usage(proc, ran=2.8, waited=0.7, read=5000, written=2048)
    rates = meter.update(12.0, switches=False, disk_wait=False)
    assert rates.main_thread_cpu_percent == pytest.approx(90.0)
    assert rates.run_queue_wait_percent == pytest.approx(10.0)
    assert rates.read_bytes_per_second == 2000.0
    assert rates.write_bytes_per_second == 1024.0
    assert rates.voluntary_switches_per_second is None


def test_nothing_used_is_a_measured_zero(proc: FakeProc, meter: MemberMeter) -> None:
    """Zero is not the same as not read."""
    usage(proc, ran=1.0, waited=0.5, read=1000, written=0)
    meter.update(10.0, switches=False, disk_wait=False)
    rates = meter.update(12.0, switches=False, disk_wait=False)
    assert rates.main_thread_cpu_percent == 0.0
    assert rates.read_bytes_per_second == 0.0


def test_switches_come_from_the_status_when_asked(proc: FakeProc, meter: MemberMeter) -> None:
    """The dearer file is read less often; its rates stay until then."""
    usage(proc, ran=1.0, waited=0.5, read=1000, written=0)

    def switches(voluntary: int, involuntary: int) -> None:
        proc.write(
            f"{PID}/status",
            f"Name:\tx\nvoluntary_ctxt_switches:\t{voluntary}\n"
            f"nonvoluntary_ctxt_switches:\t{involuntary}\n",
        )

    switches(100, 10)
    meter.update(10.0, switches=True, disk_wait=False)
    switches(500, 14)
    rates = meter.update(14.0, switches=True, disk_wait=False)
    assert (rates.voluntary_switches_per_second, rates.involuntary_switches_per_second) == (100, 1)
    later = meter.update(15.0, switches=False, disk_wait=False)
    assert later.voluntary_switches_per_second == 100


def test_disk_wait_is_the_main_threads_share_of_the_time(
    proc: FakeProc, meter: MemberMeter
) -> None:
    """From the block delay in clock ticks, the 42nd field of the stat line."""
    usage(proc, ran=1.0, waited=0.5, read=1000, written=0)

    def delay(ticks: int) -> None:
        before = " ".join(["0"] * 38)
        proc.write(f"{PID}/stat", f"{PID} (a) b) S {before} {ticks} 0 0\n")

    delay(100)
    meter.update(10.0, switches=False, disk_wait=True)
    delay(150)
    assert meter.update(12.0, switches=False, disk_wait=True).disk_wait_percent == 25.0


def test_an_unreadable_file_leaves_the_others(proc: FakeProc, meter: MemberMeter) -> None:
    """A kernel without it, or a process that has just ended."""
    proc.write(f"{PID}/schedstat", "garbage")
    assert meter.update(10.0, switches=True, disk_wait=True) == meters.NO_RATES
    assert not meter.refused


def test_a_process_that_may_not_be_looked_into_has_no_rates(
    proc: FakeProc, meter: MemberMeter, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Another user's, or hidden by ``hidepid``: refused once, it is not asked for its I/O again."""
    asked = []

    def refuse(path: str, *_: object) -> int:
        asked.append(path.rpartition("/")[2])
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr("os.open", refuse)
    for now in (10.0, 12.0):
        assert meter.update(now, switches=True, disk_wait=True) == meters.NO_RATES
    assert meter.refused
    assert asked.count("io") == 1


def test_whether_the_kernel_accounts_for_disk_wait(proc: FakeProc) -> None:
    """Off by default since Linux 5.14; without the switch nobody knows."""
    assert not meters.accounts_for_disk_wait(proc.root)
    proc.write("sys/kernel/task_delayacct", "1\n")
    assert meters.accounts_for_disk_wait(proc.root)


def rollup(proc: FakeProc, pid: int, kilobytes: int) -> None:
    proc.process(pid)
    proc.write(
        f"{pid}/smaps_rollup", f"0-1 ---p 0 0:0 0 [rollup]\nRss: 9 kB\nPss: {kilobytes} kB\n"
    )


def test_proportional_memory_is_read_in_turn_and_not_too_often(proc: FakeProc) -> None:
    """Each process once, then again after its time."""
    share = MemoryShare(proc.root)
    entries = [(pid, 4096, MemberMeter(pid, proc.root)) for pid in (50, 51)]
    for pid, _, _ in entries:
        rollup(proc, pid, pid)
    now = 0.0
    while any(meter.proportional_bytes is None for _, _, meter in entries):
        share.spend(now, lambda: entries)
        now += 1.0
    assert [meter.proportional_bytes for _, _, meter in entries] == [50 * 1024, 51 * 1024]
    rollup(proc, 50, 99)
    share.spend(now, lambda: entries)
    assert entries[0][2].proportional_bytes == 50 * 1024
    share.spend(now + meters.PSS_SECONDS, lambda: entries)
    assert entries[0][2].proportional_bytes == 99 * 1024


def test_the_time_for_proportional_memory_is_limited(proc: FakeProc) -> None:
    """Many processes at once wait for their turn; a huge one is left out."""
    share = MemoryShare(proc.root, first_seconds=0.0)
    many = [(pid, 4096, MemberMeter(pid, proc.root)) for pid in range(100, 150)]
    for pid, _, _ in many:
        rollup(proc, pid, 1)
    huge = (99, 1 << 42, MemberMeter(99, proc.root))
    rollup(proc, 99, 1)
    share.spend(0.0, lambda: [huge, *many])
    read = [meter.proportional_bytes is not None for _, _, meter in many]
    assert read.count(True) == 1
    # No time has passed in which more could have been earned.
    share.spend(0.0, lambda: [huge, *many])
    assert [meter.proportional_bytes is not None for _, _, meter in many] == read
    assert huge[2].proportional_bytes is None
