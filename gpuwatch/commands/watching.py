"""Open the source of snapshots, attach it to one job, and watch it for a time or look once."""

from __future__ import annotations

import signal
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING, NoReturn

import click

from gpuwatch.core.background import DaemonWorker
from gpuwatch.core.text import SentenceError, clean

if TYPE_CHECKING:
    from gpuwatch.core.model import Snapshot
    from gpuwatch.core.sampler import Sampler
    from gpuwatch.core.source import Clock, JobReader, Source
GPUS_MAX = 64
"""GPUs of a simulated machine, or that a log is said to have."""
OPEN_FILES_LEAST = 64
"""The dashboard has 18 open without a GPU; a driver opens some for each."""
DRIVER_SECONDS = 5.0
"""A driver without a persistence daemon takes seconds to wake."""
EARLY_BY_SECONDS = 0.05
"""A look that comes a little early is the last one all the same."""


def make_source(
    demo: str | None,
    all_processes: bool,
    interval_seconds: float = 1.0,
    clock: Clock | None = None,
) -> Source:
    """Make the source: this machine, or a simulated one. Raises ``click.UsageError``."""
    from gpuwatch.core.source import ReadOptions

    options = ReadOptions(interval_seconds=interval_seconds, all_processes=all_processes)
    if demo is None:
        from gpuwatch.sources.local import LocalSource

        def jobs() -> JobReader:
            from gpuwatch.core.source import SystemClock
            from gpuwatch.jobs.tracking.tracker import JobTracker

            return JobTracker(SystemClock(), options)

        return LocalSource(options=options, jobs=jobs)
    from gpuwatch.sources.simulated.scenarios import GPUS
    from gpuwatch.sources.simulated.source import SCENARIOS, SimulatedSource

    if demo == "list":
        width = max(map(len, SCENARIOS))
        click.echo("\n".join([f"{name:{width}}  {text}" for name, text in SCENARIOS.items()]))
        click.get_current_context().exit()
    demo, separator, size = demo.partition(":")
    # Python makes no number of thousands of digits.
    is_number = size.isascii() and size.isdigit() and len(size) <= len(str(GPUS_MAX))
    if separator and not (is_number and 1 <= int(size) <= GPUS_MAX):
        raise click.UsageError(
            f"{clean(size, 20)!r} is no number of GPUs: write --demo starved:8 (1 to {GPUS_MAX})."
        )
    if demo not in SCENARIOS:
        from difflib import get_close_matches

        root = click.get_current_context().find_root()
        known = isinstance(root.command, click.Group) and root.command.get_command(root, demo)
        near = get_close_matches(demo, SCENARIOS, 1, 0.7)
        hint = "--demo list names them all"
        hint = f"did you mean {near[0]}? {hint}" if near else hint
        if known:
            hint = f"the command goes first: gpuwatch {demo} --demo"
        raise click.UsageError(f"There is no scenario {clean(demo, 60)!r}: {hint}.")
    gpus = int(size) if size else GPUS.get(demo, 1)
    return SimulatedSource(demo, gpus, clock=clock, options=options)


def attach_to(source: Source, pid: int) -> tuple[str, ...]:
    """Have ``source`` read the job of ``pid`` closely; notes about it for a person. Raises
    ``AttachError`` or ``click.UsageError`` where there is nothing to attach to."""
    if not source.simulated:
        from gpuwatch.jobs.identity.attach import resolve

        found = resolve(pid, uses_gpu=uses_gpu)
        source.options.attached = (found.pid, found.started_at_unix_seconds)
        return found.notes
    from gpuwatch.sources.simulated.source import SimulatedSource

    assert isinstance(source, SimulatedSource)
    source.options.attached = source.find(pid)
    if source.options.attached is None:
        raise click.UsageError(
            f"The simulated machine has no process {pid}: gpuwatch status --demo lists them."
        )
    return ()


def uses_gpu(pid: int) -> bool:
    """Check whether the driver lists a process on a GPU now; waits for the driver for a while."""
    source = make_source(None, all_processes=False)
    source.options.driver_wait_seconds = DRIVER_SECONDS
    source.open()
    try:
        return any(one.pid == pid and one.gpu_uuid for one in source.read().processes)
    finally:
        source.close()


def attached_only(snapshot: Snapshot, pid: int) -> Snapshot:
    """Cut the snapshot down to the attached job. Raises ``click.UsageError`` when it is not
    there."""
    from gpuwatch.jobs.identity.job_filter import only_job

    for job in snapshot.jobs:
        if job.attached:
            return only_job(snapshot, job.key)
    raise click.UsageError(f"The job of process {pid} ended before it could be read.")


class _OverError(Exception):
    """Ends a watch that has what it was asked for."""


async def watch(
    pid: int | None,
    sampler: Sampler,
    take: Callable[[Snapshot, float], object],
    seconds: float | None = None,
    *,
    users: tuple[str, ...] = (),
) -> None:
    """Hand each snapshot (of the job of ``pid`` alone, and of ``users``, where they are given) and
    the seconds since the first to ``take``: for so many ``seconds``, until the job has ended, or
    until ``take`` says that it is enough. Closes ``sampler``."""
    from gpuwatch.sources.gpu_filter import only_users

    began: float | None = None

    def deliver(snapshot: Snapshot) -> None:
        nonlocal began
        now = sampler.clock.monotonic()
        # The first reading can wait long for a driver that wakes up.
        began = now if began is None else began
        kept = only_users(snapshot, users)
        kept = kept if pid is None else attached_only(kept, pid)
        enough = take(kept, now - began)
        ended = pid is not None and kept.jobs[0].ended_at_unix_seconds is not None
        over = seconds is not None and now - began >= seconds - EARLY_BY_SECONDS
        if enough or ended or over:
            raise _OverError

    try:
        with suppress(_OverError):
            await sampler.run(deliver)
    finally:
        sampler.close()


def check_open_files() -> None:
    """Check that enough files may be open at once: with too few most of this does not work, and
    what fails first would be anything. Raises ``click.UsageError``."""
    try:
        import resource
    except ImportError:
        return
    soft, _ = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft != resource.RLIM_INFINITY and soft < OPEN_FILES_LEAST:
        raise click.UsageError(
            f"Only {soft} files may be open at once here, and gpuwatch needs {OPEN_FILES_LEAST}: "
            "run 'ulimit -n 1024' first."
        )


@contextmanager
def terminated_as_interrupted() -> Iterator[None]:
    """Have SIGTERM (``timeout``, a batch system) end what is inside as Ctrl-C does."""

    def interrupt(_number: int, _frame: object) -> NoReturn:
        raise KeyboardInterrupt

    try:
        before = signal.signal(signal.SIGTERM, interrupt)
    except ValueError:
        # Not in the main thread, so no signal comes here.
        yield
        return
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


SETTLE_SECONDS = 0.12
"""Between the two reads that rates need: the least that the driver wants between two samples of
what its units did (``schedule.PAIR_SECONDS``). Clocks of processes count nanoseconds."""
HOST_SECONDS = 0.21
"""From opening to the second read: the kernel counts the CPU time of cores in ticks of 10 ms, and
the host's rates are over this time (``host.MINIMUM_SECONDS``)."""

PATIENCE_SECONDS = 30.0
"""A first driver call can take several seconds (without the persistence daemon, say)."""
LAST_WAIT_SECONDS = 0.5
HOST_PATIENCE_SECONDS = 5.0
"""How much longer than the driver the rest of a read may take."""
_NOTICED_SECONDS = 1.5


class NoAnswerError(SentenceError):
    """A read did not end in time."""


def look_once(
    source: Source,
    *,
    settle_seconds: float = SETTLE_SECONDS,
    patience_seconds: float = PATIENCE_SECONDS,
    host_patience_seconds: float = HOST_PATIENCE_SECONDS,
    pause: Callable[[float], None] = time.sleep,
    on_wait: Callable[[], None] | None = None,
) -> Snapshot:
    """Open ``source``, read it twice with a pause between, and give the second snapshot.

    With ``settle_seconds`` 0 it is read once, and readings that are rates are ``None``. A
    simulated machine has a past and is read once. The driver is waited for, all in all,
    ``patience_seconds``; what it has not said by then is missing from the snapshot. Raises
    ``NoAnswerError`` if a read takes ``host_patience_seconds`` more than that, and whatever
    escapes from the source. ``on_wait`` is called once if there is a wait worth explaining.
    """
    worker = DaemonWorker("gpuwatch-look")
    give_up_at = time.monotonic() + patience_seconds
    explain = on_wait

    def call(function: Callable[[], Snapshot | None]) -> Snapshot | None:
        nonlocal explain
        # A driver that used it all up is not waited for a second time, but for one that answers
        # slowly there is time enough to give what it has said.
        left = max(LAST_WAIT_SECONDS, give_up_at - time.monotonic())
        source.options.driver_wait_seconds = left
        task = worker.submit(function)
        if explain is not None and not task.wait(min(left, _NOTICED_SECONDS)):
            explain()
            explain = None
        if not task.wait(left + host_patience_seconds):
            raise NoAnswerError(
                f"The machine has not answered for {left + host_patience_seconds:.0f} s: a disk "
                "or a network file system may hang. The kernel log (dmesg) may say why.",
                69,
            )
        return task.result()

    try:
        source.options.interval_seconds = settle_seconds or source.options.interval_seconds
        call(source.open)
        opened_at = time.monotonic()
        snapshot = call(source.read)
        if settle_seconds > 0 and not source.simulated:
            pause(max(settle_seconds, HOST_SECONDS - (time.monotonic() - opened_at)))
            snapshot = call(source.read)
        assert snapshot is not None
        return snapshot
    finally:
        worker.submit(source.close)
        worker.stop()
