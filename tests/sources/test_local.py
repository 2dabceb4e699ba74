"""This machine's source: each part on its own, and a driver that waits, hangs or fails."""

import asyncio
import os
import threading
import time
from collections.abc import Callable, Iterator, Sequence

import pytest

from gpuwatch.core.model import Gpu, GpuIdentity, GpuReading, Host, Job, Problem, Process, Snapshot
from gpuwatch.core.sampler import Sampler
from gpuwatch.core.source import ManualClock, ReadOptions, Source, SystemClock
from gpuwatch.sources.gpu_source import DriverReading, GpuProcess
from gpuwatch.sources.linux.host import HostReader
from gpuwatch.sources.linux.processes import ProcessSource
from gpuwatch.sources.local import DriverLink, LocalSource
from tests.support.children import wait_until

GPU = Gpu(
    identity=GpuIdentity(index=0, uuid="GPU-0", name="H200"), reading=GpuReading(busy_percent=50.0)
)


class StandInGpus:
    """The GPU half as a test wants it: each call can be held up, or fail."""

    def __init__(self) -> None:
        self.open_gate = opened()
        self.read_gate = opened()
        self.error: Exception | None = None
        self.open_error: Exception | None = None
        self.begun = 0
        self.reads = 0
        self.closed = False
        self.processes: tuple[GpuProcess, ...] = ()
        self.problems: tuple[Problem, ...] = ()

    def open(self) -> None:
        self.open_gate.wait(60)
        if self.open_error is not None:
            raise self.open_error

    def read(self) -> DriverReading:
        gate = self.read_gate
        self.begun += 1
        gate.wait(60)
        if self.error is not None:
            raise self.error
        self.reads += 1
        gpu = Gpu(identity=GPU.identity, reading=GpuReading(busy_percent=float(self.reads)))
        return DriverReading((gpu,), self.processes, self.problems, 0.002, 10)

    def close(self) -> None:
        self.closed = True


def opened() -> threading.Event:
    gate = threading.Event()
    gate.set()
    return gate


def patient() -> ReadOptions:
    """Half an interval is waited for a driver: enough for any machine."""
    return ReadOptions(interval_seconds=60.0)


class Made:
    """A source over the stand-in, with the real host and process halves."""

    def __init__(self) -> None:
        self.gpus = StandInGpus()
        self.clock = ManualClock()
        self.options = patient()
        self.source = LocalSource(self.clock, self.options, gpus=lambda: self.gpus)

    def read(self, after: float = 0.0) -> Snapshot:
        self.clock.advance(after)
        return self.source.read()

    def read_in_vain(self, after: float = 0.0) -> Snapshot:
        """With the shortest patience there is (0.4 s), for a driver that does not answer."""
        self.options.interval_seconds, before = 0.5, self.options.interval_seconds
        snapshot = self.read(after)
        self.options.interval_seconds = before
        return snapshot


@pytest.fixture
def made() -> Iterator[Made]:
    it = Made()
    yield it
    it.gpus.open_gate.set()
    it.gpus.read_gate.set()
    it.source.close()


def messages(snapshot: Snapshot) -> list[str]:
    return [problem.message for problem in snapshot.problems]


def busy(snapshot: Snapshot) -> list[float | None]:
    return [gpu.reading.busy_percent for gpu in snapshot.gpus]


def test_a_snapshot_joins_all_halves(made: Made) -> None:
    """GPUs, their processes with their host half, the host, problems, times and numbering."""
    source: Source = made.source
    made.gpus.processes = (GpuProcess(os.getpid(), "GPU-0", 7),)
    made.gpus.problems = (Problem(source="nvml", message="a sentence"),)
    source.open()
    first = made.read(after=5.0)
    second = made.read(after=1.0)
    assert (first.sequence, second.sequence) == (0, 1)
    assert first.simulated is source.simulated is False
    assert second.monotonic_seconds == 6.0
    assert second.taken_at_unix_seconds == made.clock.unix()
    assert second.interval_seconds == 60.0
    assert busy(second) == [2.0]
    assert second.host.memory_total_bytes
    row = next(row for row in second.processes if row.pid == os.getpid())
    assert (row.gpu_uuid, row.gpu_memory_bytes) == ("GPU-0", 7)
    assert row.command
    assert "a sentence" in messages(second)


def test_its_own_cost_is_measured(made: Made) -> None:
    """Driver time needs two snapshots, CPU a third, for the start does not count; memory and the
    time to read need only one."""
    made.source.open()
    first = made.read().own_cost
    second = made.read(after=2.0).own_cost
    third = made.read(after=2.0).own_cost
    assert first.cpu_percent is None
    assert first.nvml_milliseconds_per_second is None
    assert (first.memory_resident_bytes or 0) > 1 << 20
    assert (first.read_milliseconds or 0) > 0
    assert second.cpu_percent is None
    assert third.cpu_percent is not None
    assert third.cpu_percent >= 0
    assert second.nvml_milliseconds_per_second == pytest.approx(1.0)
    assert second.nvml_calls_per_second == pytest.approx(5.0)


def test_the_host_shows_while_the_driver_wakes(made: Made) -> None:
    """Without persistence mode the driver takes seconds: a sentence counts them."""
    made.gpus.open_gate.clear()
    made.source.open()
    first = made.read_in_vain()
    assert first.host.memory_total_bytes
    assert first.gpus == ()
    waiting = made.read_in_vain(after=3.0)
    assert any("Waiting for the NVIDIA driver (3 s)" in text for text in messages(waiting))
    assert [taken.problems[0].severity for taken in (first, waiting)] == ["info", "warning"]
    assert waiting.own_cost.nvml_calls_per_second is None
    made.gpus.open_gate.set()
    made.options.driver_wait_seconds = 60.0
    awake = made.read(after=1.0)
    assert busy(awake) == [1.0]
    assert messages(awake) == []


def test_a_hung_read_leaves_the_host_and_is_picked_up_when_it_comes_back(made: Made) -> None:
    """GPUs keep their identity without readings; a sentence says how long it has been."""
    made.gpus.processes = (GpuProcess(os.getpid(), "GPU-0", 7, 5.0),)
    made.source.open()
    assert busy(made.read()) == [1.0]
    hung = made.gpus.read_gate = threading.Event()
    for _ in range(3):
        snapshot = made.read_in_vain(after=2.0)
    assert busy(snapshot) == [None]
    assert snapshot.gpus[0].identity == GPU.identity
    assert snapshot.host.memory_total_bytes
    row = next(row for row in snapshot.processes if row.pid == os.getpid())
    assert (row.gpu_memory_bytes, row.gpu_busy_percent, row.gpu_uuid) == (None, None, "GPU-0")
    assert row.command
    assert any("has not answered for 4 s" in text for text in messages(snapshot))
    assert snapshot.own_cost.nvml_calls_per_second is None
    made.gpus.read_gate = opened()
    hung.set()
    late = made.source._driver._task
    assert late is not None
    assert late.wait(60)
    back = made.read(after=2.0)
    assert busy(back) == [2.0]
    assert messages(back) == []
    after = made.source._driver._task
    assert after is None or after.wait(60)
    assert busy(made.read(after=2.0)) == [3.0]


@pytest.mark.parametrize("waking", [True, False])
def test_a_driver_silent_for_long_is_an_error_with_advice(made: Made, waking: bool) -> None:
    """Whether it never woke or stopped answering: what to look at; and it counts as silent."""
    if waking:
        made.gpus.open_gate.clear()
    made.source.open()
    made.read_in_vain() if waking else made.read()
    made.gpus.read_gate = hung = threading.Event()
    snapshot = made.read_in_vain(after=1.0)
    assert made.source.driver_silent
    assert "dmesg" not in messages(snapshot)[0]
    snapshot = made.read_in_vain(after=60.0)
    assert "`dmesg`" in messages(snapshot)[0]
    assert snapshot.problems[0].severity == "error"
    hung.set()
    made.gpus.open_gate.set()


def test_a_driver_that_is_always_slow_is_shown_one_snapshot_late() -> None:
    """Slower than there is time for: every look after the first has readings all the same, and
    once the driver is fast again they are today's."""
    gpus, clock, options = StandInGpus(), ManualClock(), ReadOptions(driver_wait_seconds=0.02)
    link = DriverLink(clock, options, lambda: gpus)
    link.open()
    assert link._opening is not None
    assert link._opening.wait(20)
    seen = []
    for number in range(1, 5):
        gpus.read_gate = slow = threading.Event()
        link.ask()
        seen.append([gpu.reading.busy_percent for gpu in link.collect().gpus])
        clock.advance(1.0)
        wait_until(lambda number=number: gpus.begun == number)
        # Longer than it is waited for.
        time.sleep(0.03)
        slow.set()
        task = link._task
        assert task is not None
        assert task.wait(60)
    assert seen == [[], [1.0], [2.0], [3.0]]
    options.driver_wait_seconds = 60.0
    for expected in (4.0, 5.0, 6.0):
        link.ask()
        assert [gpu.reading.busy_percent for gpu in link.collect().gpus] == [expected]
        assert link._task is None
        clock.advance(1.0)
    link.close()


def test_closing_does_not_wait_for_a_hung_driver(made: Made) -> None:
    """The hung call is left behind, and so is everything that would queue behind it."""
    made.source.open()
    made.gpus.read_gate = threading.Event()
    made.read_in_vain()
    closer = threading.Thread(target=made.source.close)
    closer.start()
    closer.join(60)
    assert not closer.is_alive()
    assert not made.gpus.closed


def test_closing_closes_the_driver(made: Made) -> None:
    """When it answers, it is let go in order; closing twice or before opening is fine too."""
    made.source.open()
    made.read()
    made.source.close()
    assert made.gpus.closed
    assert made.source.read().gpus == ()
    LocalSource(gpus=StandInGpus).close()


def test_a_bug_in_the_gpu_half_leaves_the_others(made: Made) -> None:
    """An exception is one sentence with its type; the next reading can succeed again."""
    made.source.open()
    made.read()
    made.gpus.error = KeyError("x\x1b[2J")
    broken = made.read(after=1.0)
    assert busy(broken) == [None]
    assert [text for text in messages(broken) if "this is a bug in gpuwatch" in text]
    assert "KeyError" in messages(broken)[0]
    assert messages(broken)[0].isprintable()
    assert broken.host.memory_total_bytes
    made.gpus.error = None
    assert busy(made.read(after=1.0)) == [2.0]


@pytest.mark.parametrize("where", ["making", "opening"])
def test_a_bug_in_opening_the_gpu_half_is_said_every_time(made: Made, where: str) -> None:
    """The host half works, and the sentence stays."""
    made.gpus.open_error = OSError("no")
    if where == "making":
        made.source = LocalSource(made.clock, made.options, gpus=_broken)
    made.source.open()
    for _ in range(2):
        snapshot = made.read(after=1.0)
        assert snapshot.host.memory_total_bytes
        assert "bug in gpuwatch" in messages(snapshot)[0]


def _broken() -> StandInGpus:
    raise ImportError("broken")


class BrokenHost(HostReader):
    def open(self) -> None:
        raise ZeroDivisionError

    def read(self) -> tuple[Host, tuple[Problem, ...]]:
        raise ZeroDivisionError("host")


class BrokenProcesses(ProcessSource):
    def read(
        self, gpu_processes: object, roots: object = ()
    ) -> tuple[tuple[Process, ...], tuple[Problem, ...]]:
        raise RuntimeError("processes")


@pytest.mark.parametrize("part", ["host", "processes"])
def test_a_bug_in_another_half_leaves_the_rest(part: str) -> None:
    """The GPUs and the other half are there, and a sentence with the exception's type."""
    clock, options = ManualClock(), patient()
    parts: dict[str, Callable[[], object]] = {
        "host": lambda: BrokenHost(clock),
        "processes": lambda: BrokenProcesses(clock, options),
    }
    gpus = StandInGpus()
    gpus.processes = (GpuProcess(os.getpid(), "GPU-0"),)
    source = LocalSource(clock, options, gpus=lambda: gpus, **{part: parts[part]()})  # type: ignore[arg-type]
    source.open()
    snapshot = source.read()
    source.close()
    assert busy(snapshot) == [1.0]
    assert (snapshot.host.memory_total_bytes is None) == (part == "host")
    assert snapshot.host.name
    assert (snapshot.processes == ()) == (part == "processes")
    assert [(problem.source, problem.severity) for problem in snapshot.problems] == [
        (part, "error")
    ]
    assert "this is a bug in gpuwatch" in messages(snapshot)[0]


def test_without_a_driver_the_host_half_is_whole() -> None:
    """The real GPU half on a machine without a driver: a sentence, and no exception."""
    source = LocalSource(ManualClock(), ReadOptions(driver_wait_seconds=60.0))
    source.open()
    snapshot = source.read()
    source.close()
    assert snapshot.host.memory_total_bytes
    assert snapshot.gpus or snapshot.problems
    assert not any("bug" in text for text in messages(snapshot))


class StandInJobs:
    """Makes one job of the first root; either step can fail."""

    def __init__(self, fails: str = "") -> None:
        self.fails = fails
        self.closed = False
        self.asked: list[tuple[int, ...]] = []

    def roots(self, gpu_pids: Sequence[int]) -> frozenset[int]:
        self.asked.append(tuple(gpu_pids))
        if self.fails == "roots":
            raise RuntimeError("roots")
        return frozenset({os.getppid()})

    def read(self, processes: tuple[Process, ...]) -> tuple[tuple[Job, ...], tuple[Problem, ...]]:
        if self.fails == "read":
            raise RuntimeError("read")
        assert {os.getpid(), os.getppid()} <= {row.pid for row in processes}
        return (Job(pid=os.getppid()),), (Problem(source="jobs", message="a sentence"),)

    def close(self) -> None:
        self.closed = True


def test_jobs_are_read_with_the_processes_they_ask_for() -> None:
    """What is above a process on a GPU is read too, and the jobs are in the snapshot."""
    gpus, jobs = StandInGpus(), StandInJobs()
    gpus.processes = (GpuProcess(os.getpid(), "GPU-0"),)
    source = LocalSource(ManualClock(), patient(), gpus=lambda: gpus, jobs=lambda: jobs)
    source.open()
    snapshot = source.read()
    source.close()
    assert jobs.asked == [(os.getpid(),)]
    assert [job.pid for job in snapshot.jobs] == [os.getppid()]
    assert "a sentence" in messages(snapshot)
    assert jobs.closed


@pytest.mark.parametrize("step", ["roots", "read"])
def test_a_bug_in_jobs_leaves_the_processes(step: str) -> None:
    """They are shown as before, with a sentence."""
    gpus = StandInGpus()
    gpus.processes = (GpuProcess(os.getpid(), "GPU-0"),)
    reader = StandInJobs(step)
    source = LocalSource(ManualClock(), patient(), gpus=lambda: gpus, jobs=lambda: reader)
    source.open()
    snapshot = source.read()
    source.close()
    assert os.getpid() in {row.pid for row in snapshot.processes}
    assert snapshot.jobs == ()
    assert [(problem.source, problem.severity) for problem in snapshot.problems] == [
        ("jobs", "error")
    ]


class WatchedHost(HostReader):
    """Knows the threads that read it."""

    def __init__(self) -> None:
        super().__init__(SystemClock())
        self.threads: list[str] = []

    def read(self) -> tuple[Host, tuple[Problem, ...]]:
        self.threads.append(threading.current_thread().name)
        return super().read()


async def test_one_thread_reads_all_unless_the_driver_hangs() -> None:
    """A hand-over between threads wakes one of them up, every second: so the driver's thread reads
    the rest as well, and another does while it hangs."""
    gpus, host, options = StandInGpus(), WatchedHost(), ReadOptions(driver_wait_seconds=60.0)
    sampler = Sampler(LocalSource(options=options, gpus=lambda: gpus, host=host), 0.1)
    taken: list[Snapshot] = []
    enough = asyncio.Event()
    hung = threading.Event()

    def take(snapshot: Snapshot) -> None:
        taken.append(snapshot)
        if len(taken) == 3:
            gpus.read_gate, options.driver_wait_seconds = hung, 0.01
        elif len(taken) == 6:
            gpus.read_gate, options.driver_wait_seconds = opened(), 60.0
            hung.set()
        elif len(taken) == 9:
            enough.set()

    run = asyncio.create_task(sampler.run(take))
    await enough.wait()
    run.cancel()
    await asyncio.to_thread(sampler.close, 60.0)
    late, own = ["gpuwatch-sampler"], ["gpuwatch-driver"] * 2
    assert host.threads[:9] == [*late, *own, *late * 4, *own]
    seen = [busy(snapshot)[0] for snapshot in taken[:9]]
    assert seen == [1.0, 2.0, 3.0, None, None, None, 4.0, 5.0, 6.0]
    assert gpus.closed
