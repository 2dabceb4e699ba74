"""The process source on a /proc of literal text: exact values and what rarely happens."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.core.model import Problem, Process
from gpuwatch.core.source import ManualClock, ReadOptions
from gpuwatch.sources.gpu_source import GpuProcess
from gpuwatch.sources.linux import procfs
from gpuwatch.sources.linux.processes import ProcessSource
from tests.support.children import open_files
from tests.support.fake_proc import BOOTED_AT, FakeProc

# Above every real PID, so that asking the kernel whether one exists is always answered "no".
FIRST = 5_000_000


class Fake:
    """A source over a made-up /proc, and a clock to turn."""

    def __init__(self, root: Path) -> None:
        self.proc = FakeProc(root)
        self.clock = ManualClock(1000.0)
        self.options = ReadOptions()
        self.source = ProcessSource(self.clock, self.options, root)

    def read(self, *gpus: GpuProcess, after: float = 0.0) -> tuple[Process, ...]:
        self.clock.advance(after)
        rows, self.problems = self.source.read(gpus)
        return rows

    problems: tuple[Problem, ...] = ()


def gpu(pid: int, uuid: str = "GPU-0", **more: object) -> GpuProcess:
    return GpuProcess(pid, uuid, **more)  # type: ignore[arg-type]


def pids(rows: tuple[Process, ...]) -> list[int]:
    return [row.pid for row in rows]


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[Fake]:
    made = Fake(tmp_path)
    yield made
    made.source.close()


def test_every_field_comes_from_the_kernels_files(fake: Fake) -> None:
    """One process on one GPU, both halves joined."""
    fake.proc.process(
        FIRST,
        name="pt_main_thread",
        parent=77,
        state="R",
        threads=33,
        resident_pages=1000,
        started_ticks=250,
        uid=3_999_999_999,
        command=b"python\0train.py\0",
        cgroup=f"0::/system.slice/slurmstepd.scope/job_9/docker/{'ab' * 32}\n",
    )
    on_gpu = gpu(FIRST, memory_bytes=5, busy_percent=0.0, kind="compute+graphics", mig_instance=3)
    assert fake.read(on_gpu) == (
        Process(
            pid=FIRST,
            started_at_unix_seconds=BOOTED_AT + 250 / procfs.TICKS_PER_SECOND,
            parent_pid=77,
            user="3999999999",
            name="pt_main_thread",
            command="python train.py",
            state="R",
            cpu_percent=None,
            memory_resident_bytes=1000 * procfs.PAGE_BYTES,
            threads=33,
            container="abababababab",
            slurm_job="9",
            gpu_uuid="GPU-0",
            gpu_memory_bytes=5,
            gpu_busy_percent=0.0,
            gpu_kind="compute+graphics",
            mig_instance=3,
        ),
    )
    assert fake.problems == ()


def test_cpu_use_is_of_one_core_since_the_reading_before(fake: Fake) -> None:
    """Unknown at first, then ticks over time; a measured zero is zero."""
    fake.proc.process(FIRST, ticks=1000)
    assert fake.read(gpu(FIRST))[0].cpu_percent is None
    fake.proc.process(FIRST, ticks=1000 + 5 * procfs.TICKS_PER_SECOND)
    assert fake.read(gpu(FIRST), after=2.0)[0].cpu_percent == 250.0
    assert fake.read(gpu(FIRST), after=2.0)[0].cpu_percent == 0.0
    assert fake.read(gpu(FIRST), after=2.0)[0].cpu_percent == 0.0
    fake.proc.process(FIRST, ticks=1000 + 6 * procfs.TICKS_PER_SECOND)
    assert fake.read(gpu(FIRST), after=2.0)[0].cpu_percent == 50.0


def test_an_unchanged_row_is_the_same_object(fake: Fake) -> None:
    """Nothing is built for a process that sleeps; a new GPU reading is shown all the same. One on
    two GPUs has a row for each."""
    fake.proc.process(FIRST)
    rows = fake.read(gpu(FIRST, "GPU-0", memory_bytes=1), gpu(FIRST, "GPU-1", memory_bytes=2))
    assert [(row.gpu_uuid, row.gpu_memory_bytes) for row in rows] == [("GPU-0", 1), ("GPU-1", 2)]
    assert rows[0].key == rows[1].key
    fake.read(gpu(FIRST))
    first = fake.read(gpu(FIRST), after=1.0)[0]
    assert fake.read(gpu(FIRST), after=1.0)[0] is first
    assert fake.read(gpu(FIRST, busy_percent=7.0), after=1.0)[0].gpu_busy_percent == 7.0


def test_one_that_has_not_run_is_read_seldom(fake: Fake, monkeypatch: pytest.MonkeyPatch) -> None:
    """By the kernel's clock of it; and at once when it has run."""
    clocks = fake.proc.clocks(monkeypatch)
    fake.proc.process(FIRST)
    fake.read(gpu(FIRST))
    before = fake.read(gpu(FIRST), after=1.0)
    fake.proc.process(FIRST, state="R", resident_pages=200)
    assert fake.read(gpu(FIRST), after=1.0) == before
    clocks[FIRST] = 1.5
    (row,) = fake.read(gpu(FIRST), after=1.0)
    assert (row.state, row.cpu_percent) == ("R", 50.0)
    fake.proc.process(FIRST, state="R", resident_pages=300)
    for _ in range(8):
        (row,) = fake.read(gpu(FIRST), after=1.0)
    assert row.memory_resident_bytes == 300 * procfs.PAGE_BYTES


@pytest.mark.parametrize("is_reaped", [False, True])
def test_who_slept_while_its_parent_ended_has_another_parent_at_once(
    fake: Fake, monkeypatch: pytest.MonkeyPatch, is_reaped: bool
) -> None:
    """Also when the clock of the child, which is read before, has stood still."""
    clocks = fake.proc.clocks(monkeypatch)
    for pid, parent in ((FIRST, 1), (FIRST + 2, FIRST), (FIRST + 1, FIRST + 2)):
        fake.proc.process(pid, parent=parent)
    for _ in range(3):
        rows = fake.read(gpu(FIRST), after=1.0)
    assert [row.parent_pid for row in rows] == [1, FIRST + 2, FIRST]
    fake.proc.process(FIRST + 1, parent=1)
    if is_reaped:
        fake.proc.write(f"{FIRST + 2}/stat", "")
        fake.proc.remove(FIRST + 2)
    else:
        fake.proc.process(FIRST + 2, parent=FIRST, state="Z")
        clocks[FIRST + 2] = 2.0
    rows = fake.read(gpu(FIRST), after=1.0)
    assert {row.pid: row.parent_pid for row in rows}[FIRST + 1] == 1


def test_without_gpu_processes_nothing_is_listed(fake: Fake) -> None:
    """Unless all are asked for; kernel threads are none."""
    fake.proc.process(FIRST)
    fake.proc.process(FIRST + 1, flags=procfs.KERNEL_THREAD_FLAG, parent=2)
    assert fake.read() == ()
    fake.options.all_processes = True
    assert pids(fake.read()) == [FIRST]
    fake.options.all_processes = False
    assert fake.read() == ()


def test_a_reused_pid_is_another_process(fake: Fake) -> None:
    """A new start time is a new key, and its CPU use is unknown at first."""
    fake.proc.process(FIRST, started_ticks=100, ticks=10, command=b"old\0")
    fake.read(gpu(FIRST))
    old = fake.read(gpu(FIRST), after=1.0)[0]
    fake.proc.process(FIRST, started_ticks=9000, ticks=10_000, command=b"new\0")
    new = fake.read(gpu(FIRST), after=1.0)[0]
    assert new.key != old.key
    assert (new.cpu_percent, new.command) == (None, "new")


def test_a_reused_pid_is_no_descendant_for_having_been_one(fake: Fake) -> None:
    """The child's PID goes to an unrelated process between two lists: it leaves at once."""
    fake.proc.process(FIRST)
    fake.proc.process(FIRST + 1, parent=FIRST, started_ticks=100)
    assert pids(fake.read(gpu(FIRST))) == [FIRST, FIRST + 1]
    fake.proc.process(FIRST + 1, parent=1, started_ticks=9000)
    fake.read(gpu(FIRST), after=0.1)
    assert pids(fake.read(gpu(FIRST), after=0.1)) == [FIRST]
    assert pids(fake.read(gpu(FIRST), after=5.0)) == [FIRST]


def test_descendants_are_shown_without_a_gpu(fake: Fake) -> None:
    """Children and grandchildren of a GPU process, not its parent, siblings, or strangers."""
    fake.proc.process(FIRST + 9, parent=1)
    fake.proc.process(FIRST, parent=FIRST + 9)
    fake.proc.process(FIRST + 1, parent=FIRST)
    fake.proc.process(FIRST + 2, parent=FIRST + 1)
    fake.proc.process(FIRST + 3, parent=FIRST + 9)
    rows = fake.read(gpu(FIRST))
    assert [(row.pid, row.gpu_uuid) for row in rows] == [
        (FIRST, "GPU-0"),
        (FIRST + 1, None),
        (FIRST + 2, None),
    ]
    # One below another is not listed a second time, nor are its children.
    rows = fake.read(gpu(FIRST), gpu(FIRST + 1, "GPU-1"))
    assert pids(rows) == [FIRST, FIRST + 1, FIRST + 2]


@pytest.mark.parametrize("says_last_pid", [True, False])
def test_a_new_child_is_seen_within_two_seconds(fake: Fake, says_last_pid: bool) -> None:
    """At one reading a second, the second reading after its start has it at the latest; also where
    the kernel does not say the last PID: some sandboxes write 0 there for ever."""
    for pid, parent in ((FIRST, 1), (FIRST + 1, FIRST)):
        fake.proc.process(pid, parent=parent)
        if not says_last_pid:
            fake.proc.write("loadavg", "0.00 0.00 0.00 0/0 0\n")
        fake.read(gpu(FIRST), after=1.0)
    assert pids(fake.read(gpu(FIRST), after=1.0)) == [FIRST, FIRST + 1]


def test_a_few_new_processes_are_found_without_a_list(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where the kernel has clocks of processes, at the next reading; all are listed again when one
    of many may have been missed."""
    proc = FakeProc(tmp_path)
    proc.clocks(monkeypatch)
    fake = Fake(tmp_path)
    lists: list[Path] = []
    real = os.listdir
    monkeypatch.setattr(os, "listdir", lambda path: (lists.append(path), real(path))[1])
    proc.process(FIRST)
    fake.read(gpu(FIRST), after=1.0)
    lists.clear()
    proc.process(FIRST + 3, parent=FIRST)
    assert pids(fake.read(gpu(FIRST), after=1.0)) == [FIRST, FIRST + 3]
    assert lists == []
    proc.process(FIRST + 1000, parent=FIRST)
    fake.read(gpu(FIRST), after=1.0)
    assert pids(fake.read(gpu(FIRST), after=1.0)) == [FIRST, FIRST + 3, FIRST + 1000]
    fake.source.close()


def test_the_others_are_read_on_a_slower_timer(fake: Fake) -> None:
    """About every 2.5 intervals, so their CPU use is over that time; the GPU's every time."""
    fake.options.all_processes = True
    fake.proc.process(FIRST)
    fake.proc.process(FIRST + 1)
    fake.read(gpu(FIRST))
    fake.read(gpu(FIRST), after=1.0)
    for second in range(1, 4):
        ticks = second * procfs.TICKS_PER_SECOND
        fake.proc.process(FIRST, ticks=ticks)
        fake.proc.process(FIRST + 1, ticks=ticks)
        rows = fake.read(gpu(FIRST), after=1.0)
        assert rows[0].cpu_percent == 100.0
        assert rows[1].cpu_percent == (100.0 if second == 3 else 0.0)


def test_the_command_is_read_again_after_an_exec(fake: Fake) -> None:
    """A changed name, or a changed stack where the name is the same."""
    fake.proc.process(FIRST, command=b"torchrun\0")
    fake.read(gpu(FIRST))
    fake.proc.process(FIRST, name="other", command=b"one\0")
    assert fake.read(gpu(FIRST), after=0.1)[0].command == "one"
    fake.proc.process(FIRST, name="other", stack=999, command=b"two\0", uid=3_999_999_998)
    row = fake.read(gpu(FIRST), after=0.1)[0]
    assert (row.command, row.user) == ("two", "3999999998")


def test_a_title_rewritten_in_place_is_seen_after_a_while(fake: Fake) -> None:
    """Nothing tells of it, so the command line is read again now and then."""
    fake.proc.process(FIRST, command=b"ray::IDLE\0")
    fake.read(gpu(FIRST))
    fake.read(gpu(FIRST), after=3.0)
    fake.proc.write(f"{FIRST}/cmdline", b"ray::Train.step\0")
    assert fake.read(gpu(FIRST), after=1.0)[0].command == "ray::IDLE"
    assert fake.read(gpu(FIRST), after=60.0)[0].command == "ray::Train.step"


def test_a_zombie_keeps_its_row_and_what_it_was(fake: Fake) -> None:
    """Its memory and with it the command line are gone; the row still says what it ran."""
    fake.proc.process(FIRST)
    fake.read(gpu(FIRST))
    fake.proc.process(FIRST, state="Z", resident_pages=0, stack=0, command=b"")
    row = fake.read(gpu(FIRST), after=60.0)[0]
    assert (row.state, row.command, row.memory_resident_bytes) == ("Z", "python train.py", 0)


@pytest.mark.parametrize(("threads", "uuid"), [(1, None), (3, "GPU-0")])
def test_a_zombie_is_on_no_gpu(fake: Fake, threads: int, uuid: str | None) -> None:
    """The driver names it on, and it would count as somebody else's; one whose main thread alone
    has ended still works there."""
    fake.proc.process(FIRST)
    fake.read(gpu(FIRST))
    fake.proc.process(FIRST, state="Z", threads=threads, resident_pages=0, command=b"")
    rows = fake.read(gpu(FIRST), gpu(FIRST, "GPU-1"), after=1.0)
    assert {row.gpu_uuid for row in rows} == ({None} if uuid is None else {"GPU-0", "GPU-1"})
    assert fake.problems == ()


@pytest.mark.parametrize("namespace", ["pid:[4026531836]", "pid:[4026532999]"])
def test_a_process_that_ends_is_dropped_though_the_driver_still_names_it(
    fake: Fake, namespace: str
) -> None:
    """The driver's list can be some seconds old: no ghost row, and no sentence about one."""
    fake.proc.namespace(namespace)
    fake.proc.process(FIRST)
    assert pids(fake.read(gpu(FIRST))) == [FIRST]
    fake.proc.remove(FIRST)
    for _ in range(3):
        assert fake.read(gpu(FIRST), after=1.0) == ()
        assert fake.problems == ()


def test_a_pid_that_never_existed_is_shown_from_its_second_reading(fake: Fake) -> None:
    """Memory a dead process never gave back, or a virtual machine's; a sentence says so."""
    assert fake.read(gpu(FIRST, memory_bytes=1)) == ()
    assert fake.read(gpu(FIRST, memory_bytes=1), after=1.0) == (
        Process(pid=FIRST, unseen="gone", gpu_uuid="GPU-0", gpu_memory_bytes=1, gpu_kind="compute"),
    )
    assert [problem.severity for problem in fake.problems] == ["info"]
    assert "cannot be found" in fake.problems[0].message
    fake.read(gpu(FIRST), gpu(FIRST + 1), after=1.0)
    fake.read(gpu(FIRST), gpu(FIRST + 1), after=1.0)
    assert "2 processes that the driver names cannot be found" in fake.problems[0].message


@pytest.mark.parametrize("nested", [False, True])
def test_memory_of_a_process_that_ended_is_shown_once_the_driver_keeps_it(
    fake: Fake, nested: bool
) -> None:
    """For some seconds the driver names whoever has ended; what stays longer is left behind. Seen
    from a container as well, since it was seen there before."""
    if nested:
        fake.proc.namespace("pid:[4026532999]")
    fake.proc.process(FIRST)
    fake.read(gpu(FIRST, memory_bytes=8))
    fake.proc.remove(FIRST)
    assert fake.read(gpu(FIRST, memory_bytes=8), after=1.0) == ()
    (row,) = fake.read(gpu(FIRST, memory_bytes=8), after=10.0)
    assert (row.unseen, row.gpu_memory_bytes) == ("gone", 8)
    assert "died without giving GPU memory back" in fake.problems[0].message


def test_host_pids_seen_from_a_container_are_shown_with_one_sentence(fake: Fake) -> None:
    """In a PID namespace of its own, the driver's PIDs can be the host's."""
    fake.proc.namespace("pid:[4026532999]")
    rows = fake.read(
        gpu(FIRST, memory_bytes=1), gpu(FIRST, "GPU-1"), gpu(FIRST + 1, busy_percent=3.0)
    )
    assert pids(rows) == [FIRST, FIRST, FIRST + 1]
    assert {row.command for row in rows} == {None}
    assert {row.unseen for row in rows} == {"elsewhere"}
    assert rows[0].started_at_unix_seconds is None
    assert len(fake.problems) == 1
    assert "2 processes" in fake.problems[0].message
    assert "container" in fake.problems[0].message
    since = fake.problems[0].since_unix_seconds
    fake.read(gpu(FIRST), after=5.0)
    assert fake.problems[0].since_unix_seconds == since


def test_processes_that_proc_hides_are_shown_with_one_sentence(fake: Fake) -> None:
    """hidepid: the process is there (the kernel knows its PID), its folder is not."""
    rows = fake.read(gpu(os.getpid(), memory_bytes=1))
    assert [(row.pid, row.gpu_memory_bytes, row.user) for row in rows] == [(os.getpid(), 1, None)]
    assert len(fake.problems) == 1
    assert "hidepid" in fake.problems[0].message
    assert rows[0].unseen == "hidden"
    assert fake.problems[0].severity == "info"


@pytest.mark.parametrize("pid", [0, -1, 2**32 - 1, 2**70])
def test_an_impossible_pid_from_the_driver_does_no_harm(fake: Fake, pid: int) -> None:
    """Sentinel values are not signalled, asked about, or fatal."""
    fake.read(gpu(pid))
    assert pids(fake.read(gpu(pid), after=1.0)) == [pid]


def test_a_process_that_cannot_be_parsed_shows_the_drivers_side(fake: Fake) -> None:
    """One broken file is one sentence, and the other processes are there: with hostile names made
    harmless, of which the kernel holds up to 15 arbitrary bytes."""
    fake.proc.process(FIRST, name=b"a) R \x1b[2J\n\xff")
    fake.proc.write(f"{FIRST + 1}/stat", "nonsense")
    fake.read(gpu(FIRST), gpu(FIRST + 1))
    rows = fake.read(gpu(FIRST), gpu(FIRST + 1, memory_bytes=8), after=1.0)
    expected = [(FIRST, "a) R \ufffd[2J \ufffd", "S"), (FIRST + 1, None, None)]
    assert [(row.pid, row.name, row.state) for row in rows] == expected
    assert any("cannot be read" in problem.message for problem in fake.problems)


def test_descriptors_are_given_back(fake: Fake) -> None:
    """Kept open while a process is watched, closed when it leaves and at the end."""
    many = [FIRST + number for number in range(40)]
    for pid in many:
        fake.proc.process(pid)
    before = open_files()
    for _ in range(3):
        fake.read(*(gpu(pid) for pid in many), after=1.0)
    held = open_files() - before
    assert len(held) >= 40
    fake.read(gpu(many[0]), after=1.0)
    assert len(open_files() - before) <= len(held) - 39
    fake.source.close()
    assert open_files() <= before


def test_further_roots_are_read_each_time_with_all_below_them(fake: Fake) -> None:
    """The launcher above a process on a GPU, and a job that is on none."""
    fake.proc.process(FIRST, name="torchrun")
    fake.proc.process(FIRST + 1, parent=FIRST)
    fake.proc.process(FIRST + 2, parent=FIRST)
    fake.proc.process(FIRST + 3)
    rows, _ = fake.source.read([gpu(FIRST + 2)], {FIRST})
    assert pids(rows) == [FIRST + 2, FIRST, FIRST + 1]
    assert [row.gpu_uuid for row in rows] == ["GPU-0", None, None]
    rows, _ = fake.source.read([], {FIRST + 3})
    assert pids(rows) == [FIRST + 3]


def test_a_root_that_has_ended_is_left_out(fake: Fake) -> None:
    """Nobody is told of it: who asked for it sees that it is not there."""
    rows, problems = fake.source.read([], {FIRST})
    assert rows == ()
    assert problems == ()
