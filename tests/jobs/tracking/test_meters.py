"""Rates of one process, on literal kernel files."""

from dataclasses import replace

import pytest

from gpuwatch.core.model import Process
from gpuwatch.jobs.tracking import member as meters
from gpuwatch.jobs.tracking.member import ChildrenMeter, Member, MemberMeter, MemoryShare
from tests.support.children import Children
from tests.support.fake_proc import FakeProc

PID = 42


@pytest.fixture
def proc(fake: FakeProc) -> FakeProc:
    fake.process(PID)
    return fake


@pytest.fixture
def meter(proc: FakeProc) -> MemberMeter:
    return MemberMeter(PID, proc.root)


def usage(proc: FakeProc, *, ran: float, waited: float, read: int, written: int) -> None:
    """Seconds on a core and waiting for one; bytes."""
    proc.write(f"{PID}/schedstat", f"{ran * 1e9:.0f} {waited * 1e9:.0f} 12\n")
    proc.write(
        f"{PID}/io",
        f"rchar: 9\nwchar: 9\nsyscr: 9\nsyscw: 9\nread_bytes: {read}\nwrite_bytes: {written}\n"
        "cancelled_write_bytes: 777\n",
    )


def test_rates_are_over_the_time_between_two_readings(proc: FakeProc, meter: MemberMeter) -> None:
    """Main thread, run queue and storage; the first reading gives none. Nothing used is a measured
    zero, and what cannot be read (a kernel without it, a process that has ended) is none."""
    usage(proc, ran=1.0, waited=0.5, read=1000, written=0)
    assert meter.update(10.0, switches=False, disk_wait=False) == meters.NO_RATES
    usage(proc, ran=2.8, waited=0.7, read=5000, written=2048)
    rates = meter.update(12.0, switches=False, disk_wait=False)
    assert rates[:5] == (pytest.approx(90.0), pytest.approx(10.0), None, 2000.0, 1024.0)
    assert rates.voluntary_switches_per_second is None
    rates = meter.update(14.0, switches=False, disk_wait=False)
    assert rates[:5] == (0.0, 0.0, None, 0.0, 0.0)
    proc.write(f"{PID}/schedstat", "garbage")
    rates = meter.update(16.0, switches=True, disk_wait=True)
    assert rates[:5] == (None, None, None, 0.0, 0.0)
    assert not meter.refused


def test_what_is_dearer_is_read_when_asked(proc: FakeProc, meter: MemberMeter) -> None:
    """Switches, and the main thread's share of waiting for disks: from the block delay in clock
    ticks, the 42nd field of the stat line. The rates stay until they are asked for again."""
    usage(proc, ran=1.0, waited=0.5, read=1000, written=0)

    def count(voluntary: int, involuntary: int, delay_ticks: int) -> None:
        before = " ".join(["0"] * 38)
        proc.write(f"{PID}/stat", f"{PID} (a) b) S {before} {delay_ticks} 0 0\n")
        proc.write(
            f"{PID}/status",
            f"Name:\tx\nvoluntary_ctxt_switches:\t{voluntary}\n"
            f"nonvoluntary_ctxt_switches:\t{involuntary}\n",
        )

    count(100, 10, 100)
    meter.update(10.0, switches=True, disk_wait=True)
    count(500, 14, 200)
    for now, asked in ((14.0, True), (15.0, False)):
        rates = meter.update(now, switches=asked, disk_wait=asked)
        assert rates.voluntary_switches_per_second == 100
        assert rates.involuntary_switches_per_second == 1
        assert rates.disk_wait_percent == 25.0


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


def member_of(proc: FakeProc, pid: int, kilobytes: int, resident: int = 4096) -> Member:
    """A process that shares memory, as the kernel adds it up."""
    row = Process(pid=pid, started_at_unix_seconds=1.0, memory_resident_bytes=resident)
    proc.process(pid)
    share(proc, pid, kilobytes)
    return Member(row, 0.0, proc.root)


def share(proc: FakeProc, pid: int, kilobytes: int) -> None:
    proc.write(
        f"{pid}/smaps_rollup", f"0-1 ---p 0 0:0 0 [rollup]\nRss: 9 kB\nPss: {kilobytes} kB\n"
    )


def ran(member: Member, now: float) -> Member:
    member.follow_row(replace(member.row, cpu_percent=now), now, now, 1.0)
    return member


def test_proportional_memory_is_read_in_turn_and_not_too_often(proc: FakeProc) -> None:
    """Each process once, then again after its time, if it has run."""
    memory, members = MemoryShare(), [member_of(proc, pid, pid) for pid in (50, 51)]
    now = 0.0
    while any(one.proportional_bytes is None for one in members):
        memory.read(now, members)
        now += 1.0
    assert [one.proportional_bytes for one in members] == [50 * 1024, 51 * 1024]
    share(proc, 50, 99)
    memory.read(now, [ran(one, now) for one in members])
    assert members[0].proportional_bytes == 50 * 1024
    now += meters.PSS_SECONDS
    memory.read(now, [ran(one, now) for one in members])
    assert members[0].proportional_bytes == 99 * 1024


def test_the_time_for_proportional_memory_is_limited(proc: FakeProc) -> None:
    """Many processes at once wait for their turn; a huge one is left out."""
    memory = MemoryShare(at_once_seconds=0.0)
    huge, *others = members = [
        member_of(proc, 99, 1, resident=1 << 42),
        *[member_of(proc, pid, 1) for pid in range(100, 120)],
    ]
    for now in (0.0, 0.0, 1.0, 1.0):
        memory.read(now, members)
    # No time has passed in which a second one could have been earned.
    assert [one.proportional_bytes is not None for one in others].count(True) == 1
    assert huge.proportional_bytes is None


WORKER = """
import subprocess
burn = '''import sys, time
while time.process_time() < 0.3: pass
print(flush=True)
sys.stdin.read()'''
ready()
for line in sys.stdin:
    child = subprocess.Popen(
        [sys.executable, "-S", "-c", burn], stdin=subprocess.PIPE, stdout=subprocess.PIPE
    )
    child.stdout.readline()
    if line == "stay\\n":
        ready(child.pid)
        sys.stdin.readline()
    child.communicate()
    ready(0)
"""
"""Has a child use 0.3 s of a core and waits for its end, or first for the next line."""


def test_what_child_processes_use_is_counted_once(started: Children) -> None:
    """Whether they have ended between two looks (a decoder for each sample), are there, or are
    there at one look and gone at the next."""
    worker = started.python(WORKER)
    started.ready(worker)

    def tell(what: bytes) -> str:
        assert worker.stdin is not None
        worker.stdin.write(what + b"\n")
        worker.stdin.flush()
        return started.ready(worker)

    meter = ChildrenMeter(worker.pid)
    assert meter.update(0.0, (), ran=True) is None
    tell(b"run")
    short = meter.update(1.0, (), ran=True)
    assert short is not None
    assert 25.0 <= short < 60.0
    child = int(tell(b"stay"))
    there = meter.update(2.0, (child,), ran=True)
    assert there is not None
    assert 25.0 <= there < 60.0
    tell(b"end")
    gone = meter.update(3.0, (), ran=True)
    assert gone is not None
    assert gone < 10.0
    assert meter.update(4.0, (), ran=False) == 0.0
