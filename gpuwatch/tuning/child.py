"""The measuring process: imports the user's code, times settings of its loader one after the other,
and measures the memory of its train step.

A visit to a setting takes the batches that were made ahead as a warm-up, so that what it then takes
is what the workers make, and ends after whole rounds: workers deliver in turn, so batches come in
bursts of as many as there are workers. Where an epoch is shorter than that, whole epochs are timed
with the start of their workers, since that is what a job on such a dataset pays.

Run as ``python -c`` with ``main``; it ends when gpuwatch does (its socket closes).
"""

from __future__ import annotations

import contextlib
import copy
import ctypes
import os
import random
import resource
import signal
import sys
import traceback
from collections.abc import Callable, Iterator, Mapping, Sized
from itertools import count as count_from
from itertools import islice
from multiprocessing.connection import Connection
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING, Any, NamedTuple

import psutil

from gpuwatch.core.text import clean
from gpuwatch.jobs.run.trees import tree_of
from gpuwatch.sources.linux import cgroup, procfs
from gpuwatch.tuning import failures
from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.records import (
    Answer,
    ClosedError,
    MemoryOrder,
    MemoryPoint,
    Order,
    Request,
    Start,
    Visit,
    receive,
    send,
)
from gpuwatch.tuning.target import NO_TORCH, load, make_step

if TYPE_CHECKING:
    from gpuwatch.tuning.loader_factory import LoaderFactory

STEPS_LEAST = 3
"""Before a window: the first step allocates, the second has the optimizer's state."""
MEMORY_STEPS = 3
NO_MEMORY = ("out of memory", "ALLOC_FAILED", "allocate memory", "not enough memory", "bad_alloc")
REPEATS = (
    "Every worker goes through the whole iterable dataset, so each sample comes once from each of "
    "them: share it out by torch.utils.data.get_worker_info() in its __iter__, then measure again."
)
_PR_SET_CHILD_SUBREAPER = 36
_ALIVE_EVERY_SECONDS = 0.25


def main(descriptor: int) -> None:
    connection = Connection(descriptor)
    failures.write_stacks()
    # Ctrl-C is for gpuwatch, which decides what ends.
    signal.signal(signal.SIGINT, signal.SIG_IGN)
    # The user's code may hang where nothing is heard of gpuwatch's end; and what it starts in
    # sessions of its own stays below this process, where gpuwatch finds and ends it (prctl(2)).
    failures.end_with_parent()
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_CHILD_SUBREAPER, 1, 0, 0, 0)
    try:
        _Measuring(connection, receive(connection, Start)).serve()
    except ClosedError:
        pass
    except BaseException:
        # One of gpuwatch's own: the user's have become answers.
        traceback.print_exc()
    finally:
        for stream in (sys.stdout, sys.stderr):
            with contextlib.suppress(Exception):
                stream.flush()
        os._exit(0)


class _Measuring:
    """State of a measuring process: the loader's factory, the train step, the way back."""

    def __init__(self, connection: Connection, start: Start) -> None:
        self._connection = connection
        self._start = start
        self._factory: LoaderFactory | None = None
        self._step: Any = None
        self._method = "fork"

    def serve(self) -> None:
        """Answer requests until gpuwatch has gone (``ClosedError``)."""
        work: Callable[[], Answer] = self._loaded
        while True:
            try:
                answer = work()
            except (KeyboardInterrupt, SystemExit, Exception) as error:
                failure = failures.from_exception(error, self._method)
                answer = Answer(kind="failed", failure=failure)
            send(self._connection, answer)
            request = receive(self._connection, Request)
            work = lambda request=request: self._done(request)  # type: ignore[misc]  # noqa: E731

    def _loaded(self) -> Answer:
        """Import PyTorch, then the user's code. Raises ``MeasureError``."""
        if self._start.device is not None:
            given = os.environ.get("CUDA_VISIBLE_DEVICES", "").replace(" ", "").split(",")
            os.environ["CUDA_VISIBLE_DEVICES"] = visible_device(given, self._start.device)
        try:
            import torch  # noqa: PLC0415 - the measuring process alone has it
        except ImportError as error:
            if isinstance(error, ModuleNotFoundError) and error.name == "torch":
                raise MeasureError(NO_TORCH) from None
            raise MeasureError(f"PyTorch cannot be imported: {error}.") from None
        from gpuwatch.tuning.loader_factory import LoaderFactory  # noqa: PLC0415 - brings torch

        with contextlib.suppress(ImportError, AttributeError):
            from torch.utils.data._utils import signal_handling  # noqa: PLC0415

            # DataLoader does so only once its workers run, and some crash at once.
            signal_handling._set_SIGCHLD_handler()
        # From now on it is the user's own code that takes its time.
        self._alive()
        answer = Answer(kind="loaded", torch=clean(str(torch.__version__), 40))
        target, step = self._start.target, self._start.step
        if target is not None:
            self._factory = LoaderFactory(target, load(target), self._start.batch_size)
            answer.description = self._factory.describe()
            self._method = answer.description.start_method
        if step is not None:
            self._step = load(step)
        if torch.cuda.is_available():
            count = torch.cuda.device_count()
            names = map(torch.cuda.get_device_name, range(count))
            answer.gpus = tuple(clean(name, 120) for name in names)
        else:
            answer.no_cuda = "PyTorch sees no GPU"
        return answer

    def _done(self, request: Request) -> Answer:
        name = self._start.step or ""
        if request.memory is not None:
            step = (self._step, name)
            point = measure_memory(request.memory, self._factory, step, self._alive)
            return Answer(kind="result", point=point)
        assert self._factory is not None
        assert request.visit is not None
        step_made = None if self._step is None else make_step(self._step, name)
        # Building a model takes its time, too.
        self._alive()
        run = _Run(self._factory, request.visit, self._alive, step_made)
        try:
            return Answer(kind="result", visit=run.measured())
        finally:
            run.end_workers()

    def _alive(self) -> None:
        send(self._connection, Answer(kind="alive"))


def visible_device(given: list[str], index: int) -> str:
    """Return ``CUDA_VISIBLE_DEVICES`` for a process that is to see only torch's device ``index``.

    >>> visible_device(["2", "GPU-5f"], 1)
    'GPU-5f'
    """
    return given[index] if index < len(given) and given[index] else str(index)


# --- a visit to a setting --------------------------------------------------------------------


class Usage(NamedTuple):
    """Counters of the measuring process and its workers."""

    cpu_seconds: float = 0.0
    disk_bytes: float = 0.0
    read_bytes: float = 0.0

    @property
    def from_disk(self) -> bool:
        """True if a good part of what was read came from the disk and not from memory."""
        disk = self.disk_bytes
        return disk >= 2**20 and disk >= 0.05 * max(self.read_bytes, disk)


class _Window:
    """Stretches of a measurement, added up: batches, seconds, and what they took."""

    def __init__(self) -> None:
        self.samples = self.batches = 0
        self.seconds = self.waited_seconds = self.watched_seconds = 0.0
        self.used = Usage()

    def add(
        self, samples: int, batches: int, seconds: float, waited: float, begun: float, before: Usage
    ) -> None:
        self.samples += samples
        self.batches += batches
        self.seconds += seconds
        self.waited_seconds += waited
        self.watched_seconds += perf_counter() - begun
        grown = zip(self.used, read_usage(), before, strict=True)
        self.used = Usage(*(sofar + max(0.0, now - then) for sofar, now, then in grown))


class _Run:
    """A loader of one setting that is gone through, and what that takes."""

    def __init__(
        self,
        factory: LoaderFactory,
        order: Order,
        alive: Callable[[], None],
        step: Callable[[Any], object] | None,
    ) -> None:
        import torch  # noqa: PLC0415 - the measuring process alone has it

        torch.manual_seed(order.seed)
        random.seed(order.seed)
        if "numpy" in sys.modules:
            sys.modules["numpy"].random.seed(order.seed)
        self._loader = factory.make(order.setting)
        self._order = order
        self._workers = order.setting.num_workers
        self._alive = alive
        self._step = step
        self._cuda: Any = torch.cuda if torch.cuda.is_available() else None
        self._iterator: Any = None
        self._begun = perf_counter()
        self._alive_due = 0.0
        self._waited = self._first_batch = 0.0
        self._window = _Window()
        self._first_seen: list[int] = []

    def measured(self) -> Visit:
        """Raises what the user's code raises, and ``MeasureError``."""
        from gpuwatch.tuning.loader_factory import lengths  # noqa: PLC0415 - brings torch

        ahead = self._workers * (self._order.setting.prefetch_factor or 0)
        warm_up = ahead + max(2 if self._step is None else STEPS_LEAST, self._workers)
        _, batches = lengths(self._loader)
        long_enough = batches is None or batches >= 2 * warm_up
        whole_epochs = not (long_enough and self._steady(warm_up))
        if whole_epochs:
            self._epochs()
        window = self._window
        workers = [_memory_of(pid) for pid in tree_of(os.getpid()) if pid != os.getpid()]
        known = [one for one in workers if one is not None]
        # Those of whole epochs have ended with the last.
        ended = self._workers and not workers
        waited = min(1.0, window.waited_seconds / window.seconds)
        return Visit(
            samples=window.samples,
            batches=window.batches,
            seconds=window.seconds,
            first_batch_seconds=self._first_batch,
            cores_used=window.used.cpu_seconds / window.watched_seconds,
            workers_memory_bytes=None if ended or len(known) < len(workers) else sum(known),
            from_disk=window.used.from_disk,
            whole_epochs=whole_epochs,
            data_wait_share=None if self._step is None else waited,
        )

    def end_workers(self) -> None:
        """End the workers in their own way (they may be writing a cache), if they are not stuck."""
        self._iterator = None
        with contextlib.suppress(AttributeError):
            vars(self._loader)["_iterator"] = None

    def _steady(self, warm_up: int) -> bool:
        """Time a window in the middle of epochs; ``False``: an epoch is too short for one."""
        rounds = max(1, self._workers) if self._step is None else 1
        window = self._window
        while window.seconds < self._order.seconds and not self._late:
            self._start()
            for _ in range(1, warm_up):
                if self._next() is None:
                    return window.batches > 0
                if self._late:
                    break
            before, begun = read_usage(), self._now()
            self._waited = 0.0
            taken, count, kept, end = 0, 0, (0, 0), begun
            while (got := self._next()) is not None:
                taken, count = taken + got, count + 1
                if count % rounds == 0 or (self._late and not kept[1]):
                    kept, end = (taken, count), perf_counter()
                    if self._late or (count > 1 and window.seconds + end - begun
                                      >= self._order.seconds):  # fmt: skip
                        break
            if kept[1]:
                # The GPU has done all steps only now.
                end = self._now() if self._step is not None else end
                window.add(*kept, end - begun, self._waited, begun, before)
            elif not window.batches and not self._late:
                return False
        if not window.batches:
            raise MeasureError(
                f"Too slow to measure in time: no round of batches within "
                f"{perf_counter() - self._begun:.0f} s, the first batch after "
                f"{self._first_batch:.1f} s; a longer --budget measures it.",
                "too_slow",
            )
        return True

    def _epochs(self) -> None:
        """Time whole epochs, each from asking for it to its last batch; the first is the warm-up
        unless the time ends with it."""
        for number in count_from(0):
            before, begun = read_usage(), perf_counter()
            self._waited = 0.0
            taken, count = self._start(), 1
            while (got := self._next()) is not None and not self._late:
                taken, count = taken + got, count + 1
            seconds = self._now() - begun
            if number or self._late or seconds >= self._order.seconds:
                self._window.add(taken, count, seconds, self._waited, begun, before)
            if self._window.seconds >= self._order.seconds or self._late:
                break

    # --- the loader --------------------------------------------------------------------------

    def _start(self) -> int:
        """Begin an epoch and take its first batch; return the samples in it."""
        from gpuwatch.tuning.loader_factory import why_empty  # noqa: PLC0415 - brings torch

        if not getattr(self._loader, "persistent_workers", False):
            # Ends the workers of the epoch before.
            self._iterator = None
        self._iterator = iter(self._loader)
        got = self._next()
        if got is None:
            raise MeasureError(why_empty(self._loader), "empty")
        return got

    def _next(self) -> int | None:
        """Take the next batch of this epoch and use it; return its samples, ``None`` at the end."""
        asked = perf_counter()
        try:
            batch = next(self._iterator)
        except StopIteration:
            return None
        now = perf_counter()
        self._waited += now - asked
        if not self._first_batch:
            self._first_batch = now - self._begun
        if self._workers > 1 and len(self._first_seen) <= self._workers:
            self._check_repeats(batch)
        if self._step is not None:
            try:
                self._step(batch)
            except Exception as error:
                how = failures.described(error)
                raise MeasureError(f"The train step failed: {how}.", "step") from error
        elif self._cuda is not None:
            # As a step would: only in a copy pinned memory makes a difference.
            for tensor in tensors_in(batch):
                tensor.to("cuda", non_blocking=True)
        if now >= self._alive_due:
            self._alive_due = now + _ALIVE_EVERY_SECONDS
            self._alive()
        return _count(self._loader, batch)

    def _check_repeats(self, batch: Any) -> None:
        """Refuse an iterable dataset of which every worker gives all: more workers would only seem
        faster. Workers deliver in turn, so the first two batches come from two of them
        (https://docs.pytorch.org/docs/stable/data.html, "Iterable-style datasets")."""
        from gpuwatch.tuning.loader_factory import is_iterable  # noqa: PLC0415 - brings torch

        if not is_iterable(self._loader):
            return
        self._first_seen.append(fingerprint(batch))
        first, *others = self._first_seen
        if len(others) == self._workers and first and first == others[0] != others[-1]:
            raise MeasureError(REPEATS, "repeats")

    @property
    def _late(self) -> bool:
        return perf_counter() - self._begun >= self._order.limit_seconds

    def _now(self) -> float:
        if self._cuda is not None:
            self._cuda.synchronize()
        return perf_counter()


def read_usage() -> Usage:
    """Read the counters of this process and all below it; those of ended ones are in their
    parent's (proc(5): cutime, cstime)."""
    cpu = disk = read = 0.0
    for pid in tree_of(os.getpid()):
        with contextlib.suppress(psutil.NoSuchProcess, psutil.AccessDenied):
            process = psutil.Process(pid)
            cpu += sum(process.cpu_times()[:4])
            counters = process.io_counters()
            disk, read = disk + counters.read_bytes, read + counters.read_chars
    return Usage(cpu, disk, read)


def _memory_of(pid: int) -> int | None:
    """Memory of a process (PSS: what it shares with others in parts)."""
    with contextlib.suppress(psutil.Error):
        return int(psutil.Process(pid).memory_full_info().pss)
    return None


def _count(loader: Any, batch: Any) -> int:
    from gpuwatch.torch.batches import size_of  # noqa: PLC0415 - brings torch

    size = loader.batch_size
    if size is None:
        return 1 if loader.batch_sampler is None else size_of(batch) or 1
    return min(size_of(batch) or size, int(size))


def tensors_in(batch: object) -> Iterator[Any]:
    """Yield the tensors of a batch, however it is nested."""
    if hasattr(batch, "numel") and hasattr(batch, "flatten"):
        yield batch
    elif isinstance(batch, Mapping | list | tuple):
        for value in batch.values() if isinstance(batch, Mapping) else batch:
            yield from tensors_in(value)


def fingerprint(batch: object) -> int:
    """A number for the values of a batch; 0: they say too little, being few or all alike."""
    values: list[Any] = []
    for tensor in tensors_in(batch):
        values += tensor.detach().flatten()[:4096].tolist()
    if not values:
        values = repr(batch).split(",")
    return hash(tuple(values)) if len(values) >= 8 and len(set(values)) > 1 else 0


# --- the memory of a train step --------------------------------------------------------------


def measure_memory(
    order: MemoryOrder,
    factory: LoaderFactory | None,
    step: tuple[Any, str],
    alive: Callable[[], object],
) -> MemoryPoint:
    """Run a few steps at one batch size. ``step``: what the target names, and the target.

    Peaks count from the start of the process: building the model, the first step (where cuDNN tries
    algorithms) and the optimizer's state are all in. Raises ``MeasureError``, with the code
    ``no_memory`` where memory ran out.
    """
    import torch  # noqa: PLC0415 - the measuring process alone has it

    kind = "cpu" if order.on_cpu else "cuda"
    try:
        room = _host_room(order) if order.on_cpu else _cuda_room(order)
    except Exception as error:
        raise MeasureError(f"The device cannot be used: {failures.named(error)}.") from None
    try:
        # The data first: what the model takes is the step's, and comes after.
        batch = None if factory is None else _batch(factory, order.batch_size)
        run = make_step(*step)
        alive()
        around: Any = contextlib.nullcontext()
        if order.precision is not None:
            around = torch.autocast(kind, dtype=getattr(torch, order.precision))
        times = [perf_counter()]
        for _ in range(MEMORY_STEPS):
            with around:
                # A step that pops a key off its batch must find it again the next time.
                run(order.batch_size if factory is None else copy.copy(batch))
            if not order.on_cpu:
                torch.cuda.synchronize()
            times.append(perf_counter())
    except BaseException as error:
        sentence = str(error)
        if not isinstance(error, MeasureError):
            sentence = f"The step at batch size {order.batch_size} failed: "
            sentence += f"{failures.described(error)}."
            if factory is None and isinstance(error, TypeError | AttributeError):
                # A step that wants a batch got a number.
                sentence += " (Without --loader the step is called with the batch size, a whole "
                sentence += "number, and makes its own data.)"
        raise MeasureError(sentence, "no_memory" if _ran_out(error) else "step") from None
    found = room()
    if found.get("allocated_bytes") == 0:
        raise MeasureError(
            "The step put nothing on the GPU: it has to move its model and its batch there itself "
            "(.to('cuda')).",
            "step",
        )
    # The first step is apart: it allocates, compiles and chooses.
    seconds = (times[-1] - times[1]) / (MEMORY_STEPS - 1)
    return MemoryPoint(batch_size=order.batch_size, seconds_per_step=seconds, **found)


def _batch(factory: LoaderFactory, count: int) -> Any:
    """``count`` samples from the start of a dataset, again from its start where it has fewer (the
    same objects, so that a small dataset is read once), collated as its loader does."""
    loader, dataset = factory.loader, factory.loader.dataset
    if loader.batch_size is None and loader.batch_sampler is None:
        raise MeasureError("The loader has no batch size: name its dataset.", "step")
    try:
        if isinstance(dataset, Sized) and hasattr(dataset, "__getitem__"):
            samples = [dataset[place] for place in range(min(count, len(dataset)))]
        else:
            samples = list(islice(iter(dataset), count))
        return loader.collate_fn([samples[place % len(samples)] for place in range(count)])
    except ZeroDivisionError:
        raise MeasureError("The dataset has no samples.", "step") from None
    except Exception as error:
        how = failures.described(error)
        raise MeasureError(f"A batch of {count} failed: {how}.", "step") from error


def _cuda_room(order: MemoryOrder) -> Callable[[], dict[str, int]]:
    """Limit this process to the order's memory; return the reading after the steps.

    What torch's allocator reserves must fit into what was free once the context stood, less what
    libraries took past the allocator meanwhile (cuBLAS, cuDNN, kernels)
    (https://docs.pytorch.org/docs/stable/notes/cuda.html, "Memory management").
    """
    import torch  # noqa: PLC0415 - the measuring process alone has it

    cuda: Any = torch.cuda
    cuda.init()
    first_free, total = cuda.mem_get_info()
    free = first_free
    if order.limit_bytes is not None and order.limit_bytes < total:
        cuda.set_per_process_memory_fraction(order.limit_bytes / total)
        free, total = min(free, order.limit_bytes), order.limit_bytes

    def read() -> dict[str, int]:
        taken = first_free - cuda.mem_get_info()[0]
        return {
            "peak_bytes": cuda.max_memory_reserved(),
            "available_bytes": free - max(0, taken - cuda.memory_reserved()),
            "total_bytes": total,
            "allocated_bytes": cuda.max_memory_allocated(),
        }

    return read


def _host_room(order: MemoryOrder) -> Callable[[], dict[str, int]]:
    """Limit this process to the host's or its container's free memory, and to the order's; return
    the reading after the steps: the largest resident size (getrusage(2)), Python and torch in it.

    So that a batch that is too large harms nobody, the process may take no more data than there is
    room for (RLIMIT_DATA; torch's allocator then raises), and should memory run out all the same
    the kernel ends this process first (oom_score_adj).
    """
    own = psutil.Process().memory_info()
    available, total = host_memory()
    available += own.rss
    if order.limit_bytes is not None and order.limit_bytes < total:
        available, total = min(available, order.limit_bytes), order.limit_bytes
    with contextlib.suppress(OSError):
        Path("/proc/self/oom_score_adj").write_text("1000")
    soft = own.data + max(available - own.rss, 1 << 20)
    _, hard = resource.getrlimit(resource.RLIMIT_DATA)
    with contextlib.suppress(OSError, ValueError):
        resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))
    return lambda: {
        "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
        "available_bytes": available,
        "total_bytes": total,
    }


def host_memory() -> tuple[int, int]:
    """Bytes that a new process could take and bytes in all, of this host or of the tightest memory
    cgroup (v2) around this process."""
    machine = psutil.virtual_memory()
    free, total = int(machine.available), int(machine.total)
    groups = os.fsdecode(procfs.read_if_possible("/proc/self/cgroup"))
    mounts = tuple(one for one in cgroup.mounts_of(Path("/proc/self")) if one.version == 2)
    for folder in cgroup.quota_folders(groups, mounts):
        # A limit of "max" is no number.
        with contextlib.suppress(OSError, ValueError):
            limit = int((folder / "memory.max").read_text())
            used = int((folder / "memory.current").read_text())
            stat = dict(line.split() for line in (folder / "memory.stat").read_text().splitlines())
            used = max(0, used - int(stat.get("inactive_file", 0)))
            free, total = min(free, limit - used), min(total, limit)
    return free, total


def _ran_out(error: BaseException) -> bool:
    """Return whether memory ran out, also where a step or a library wraps that error."""
    one: BaseException | None = error
    while one is not None:
        if isinstance(one, MemoryError) or (
            isinstance(one, RuntimeError | OSError) and any(text in str(one) for text in NO_MEMORY)
        ):
            return True
        one = one.__cause__ or one.__context__
    return False
