"""A few steps of the user's train step at one batch size, and the memory they take.

Each measurement is a process of its own, so peaks count from its start: the model's building, the
first step (where cuDNN tries algorithms) and the optimizer's state are all in.
"""

from __future__ import annotations

import copy
import resource
from collections.abc import Callable, Sized
from contextlib import closing, nullcontext, suppress
from itertools import islice
from pathlib import Path
from time import perf_counter
from typing import Any

import psutil
import torch

from gpuwatch.core.text import clean
from gpuwatch.tuning import failures
from gpuwatch.tuning.child import usage
from gpuwatch.tuning.child.gpu import OwnGpu
from gpuwatch.tuning.child.loader_factory import LoaderFactory
from gpuwatch.tuning.child.target import make_step
from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.memory import AS_IS, Gpu, MemoryPoint
from gpuwatch.tuning.messages import Answer, Order

STEPS = 3
NO_MEMORY = ("out of memory", "ALLOC_FAILED", "allocate memory", "not enough memory", "bad_alloc")


def list_gpus() -> Answer:
    answer = Answer(kind="result", torch=clean(str(torch.__version__), 40))
    if not torch.cuda.is_available():
        try:
            torch.cuda.init()  # type: ignore[no-untyped-call]
            answer.no_cuda = "PyTorch sees no GPU"
        except Exception as error:
            answer.no_cuda = clean(" ".join(str(error).split()), 200).rstrip(".")
        return answer
    each = map(torch.cuda.get_device_properties, range(torch.cuda.device_count()))
    # Before compute capability 8.0 bfloat16 is emulated.
    answer.gpus = tuple(Gpu(name=clean(one.name, 120), bfloat16=one.major >= 8) for one in each)
    return answer


def measure_memory(
    order: Order, factory: LoaderFactory | None, step: tuple[Any, str], begins: Callable[[], object]
) -> MemoryPoint:
    """``step``: what the target names, and the target. ``begins`` is called when everything is
    made. Raises ``MeasureError``, with the code ``no_memory`` where memory ran out."""
    try:
        memory = _Host(order) if order.device is None else _Cuda(order)
    except Exception as error:
        raise MeasureError(f"The device cannot be used: {failures.named(error)}.") from None
    try:
        # The data first: what the model takes is the step's, and comes after.
        batch = None if factory is None else _batch(factory, order.batch_size)
        run = make_step(*step)
        begins()
        # A step that pops a key off its batch must find it again the next time.
        given = (lambda: order.batch_size) if factory is None else (lambda: copy.copy(batch))
        seconds = _timed(lambda: run(given()), memory, order)
    except BaseException as error:
        sentence = str(error)
        if not isinstance(error, MeasureError):
            sentence = f"The step at batch size {order.batch_size} failed: "
            sentence += f"{failures.described(error)}."
            if factory is None and isinstance(error, TypeError | AttributeError):
                # A step that wants a batch got a number.
                sentence += " (Without --loader the step is called with the batch size, a whole "
                sentence += "number, and makes its own data.)"
        code = "no_memory" if _ran_out(error) else "step"
        raise MeasureError(sentence, code) from None
    found = memory.read()
    if found.get("allocated_bytes") == 0:
        raise MeasureError(
            "The step put nothing on the GPU: it has to move its model and its batch there itself "
            "(.to('cuda')).",
            "step",
        )
    return MemoryPoint(batch_size=order.batch_size, seconds_per_step=seconds, **found)


def _timed(step: Callable[[], object], memory: _Host | _Cuda, order: Order) -> float:
    """The first step apart (it allocates, compiles and chooses); seconds of one of the others."""

    def once() -> None:
        around: Any = nullcontext()
        if order.precision != AS_IS:
            around = torch.autocast(memory.kind, dtype=getattr(torch, order.precision))
        with around:
            step()

    once()
    memory.synchronize()
    begin = perf_counter()
    for _ in range(STEPS - 1):
        once()
    memory.synchronize()
    return (perf_counter() - begin) / (STEPS - 1)


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
        again = [samples[place % len(samples)] for place in range(count)]
        return loader.collate_fn(again)
    except ZeroDivisionError:
        raise MeasureError("The dataset has no samples.", "step") from None
    except Exception as error:
        how = failures.described(error)
        raise MeasureError(f"A batch of {count} failed: {how}.", "step") from error


class _Cuda:
    """A CUDA device, the only one that this process sees.

    What torch's allocator holds (reserved) must fit into what was free once the context stood,
    less what libraries took past the allocator meanwhile (cuBLAS, cuDNN, kernels)
    (https://docs.pytorch.org/docs/stable/notes/cuda.html, "Memory management").
    """

    kind = "cuda"

    def __init__(self, order: Order) -> None:
        self._cuda: Any = torch.cuda
        self._cuda.init()
        self._first_free, self._total = self._cuda.mem_get_info()
        self._free = self._first_free
        if order.limit_bytes is not None and order.limit_bytes < self._total:
            self._cuda.set_per_process_memory_fraction(order.limit_bytes / self._total)
            self._free, self._total = min(self._free, order.limit_bytes), order.limit_bytes

    def synchronize(self) -> None:
        self._cuda.synchronize()

    def read(self) -> dict[str, Any]:
        """As in ``MemoryPoint``."""
        taken = self._first_free - self._cuda.mem_get_info()[0]
        beside = max(0, taken - self._cuda.memory_reserved())
        with closing(OwnGpu()) as gpu:
            gpu.note()
        return {
            "peak_bytes": self._cuda.max_memory_reserved(),
            "available_bytes": self._free - beside,
            "total_bytes": self._total,
            "allocated_bytes": self._cuda.max_memory_allocated(),
            "process_bytes": gpu.process_bytes,
            "device_used_bytes": gpu.used_bytes,
        }


class _Host:
    """The memory of this host (or of this container) for a step that runs on the CPU.

    The peak is the process's largest resident size (getrusage(2)): all of it, Python
    and torch included. So that a batch that is too large harms nobody, the process may take no
    more data than there is room for (RLIMIT_DATA; torch's allocator then raises), and should
    memory run out all the same the kernel ends this process first (oom_score_adj).
    """

    kind = "cpu"

    def __init__(self, order: Order) -> None:
        own = psutil.Process().memory_info()
        self._available, self._total = usage.available_memory() + own.rss, usage.total_memory()
        if order.limit_bytes is not None and order.limit_bytes < self._total:
            self._available = min(self._available, order.limit_bytes)
            self._total = order.limit_bytes
        with suppress(OSError):
            Path("/proc/self/oom_score_adj").write_text("1000")
        soft = own.data + max(self._available - own.rss, 1 << 20)
        _, hard = resource.getrlimit(resource.RLIMIT_DATA)
        if hard != resource.RLIM_INFINITY:
            soft = min(soft, hard)
        with suppress(OSError, ValueError):
            resource.setrlimit(resource.RLIMIT_DATA, (soft, hard))

    def synchronize(self) -> None:
        """Steps on the CPU are over when they return."""

    def read(self) -> dict[str, Any]:
        """As in ``MemoryPoint``."""
        return {
            "peak_bytes": resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * 1024,
            "available_bytes": self._available,
            "total_bytes": self._total,
            "process_bytes": psutil.Process().memory_info().rss,
        }


def _ran_out(error: BaseException) -> bool:
    """Also where a user's step, or a library, wraps the error in another."""
    one: BaseException | None = error
    while one is not None:
        if isinstance(one, MemoryError) or (
            isinstance(one, RuntimeError | OSError) and any(text in str(one) for text in NO_MEMORY)
        ):
            return True
        one = one.__cause__ or one.__context__
    return False
