"""A measuring process: a few steps of the user's train step at one batch size.

Started by ``memory_process`` with a file descriptor and a request (JSON) as its first arguments;
the answer is one line of JSON into the descriptor, so that what the user's code prints is nobody's
answer.
"""

from __future__ import annotations

import faulthandler
import json
import os
import signal
import sys
from collections.abc import Callable
from contextlib import nullcontext
from time import perf_counter
from typing import Any

from gpuwatch.core.text import clean
from gpuwatch.tuning.child import blame
from gpuwatch.tuning.child.step import StepError
from gpuwatch.tuning.child.target import NO_TORCH, TargetError
from gpuwatch.tuning.memory.device import Device, make_device
from gpuwatch.tuning.memory.point import AS_IS, BEGINS
from gpuwatch.tuning.memory.step import hint, sized_step

Answer = dict[str, Any]


def main() -> None:
    descriptor = int(sys.argv[1])
    os.set_inheritable(descriptor, False)
    request: Answer = json.loads(sys.argv[2])
    die_with_parent()
    # Where a crash was, and where it is when it takes too long: into the output.
    faulthandler.enable(all_threads=False)
    faulthandler.register(signal.SIGUSR1, all_threads=False)

    def say(what: object) -> None:
        os.write(descriptor, (json.dumps(what) + "\n").encode())

    say(probe() if request["action"] == "probe" else answer_of(request, lambda: say(BEGINS)))
    sys.stdout.flush()
    # The user's threads, pools and exit handlers are nobody's concern, and may hang.
    os._exit(0)


def die_with_parent() -> None:
    """A measuring process that nobody waits for must not go on filling memory."""
    import ctypes  # noqa: PLC0415 - only here

    death_signal, kill = 1, 9
    ctypes.CDLL(None, use_errno=True).prctl(death_signal, kill, 0, 0, 0)


def probe() -> Answer:
    """Which devices torch sees, and why no GPU where it sees none."""
    try:
        import torch  # noqa: PLC0415 - may be missing
    except ImportError:
        return {"error": NO_TORCH}
    found: Answer = {"torch": torch.__version__, "cuda": torch.cuda.is_available(), "gpus": []}
    if not found["cuda"]:
        return {**found, "why": why_no_cuda(torch)}
    for index in range(torch.cuda.device_count()):
        properties = torch.cuda.get_device_properties(index)
        free, total = torch.cuda.mem_get_info(index)
        found["gpus"].append(
            {
                "name": clean(properties.name, 120),
                "total_bytes": total,
                "free_bytes": free,
                # Before compute capability 8.0 bfloat16 is emulated.
                "bfloat16": properties.major >= 8,
            }
        )
    return found


def why_no_cuda(torch: Any) -> str:
    if torch.version.cuda is None:
        return f"this PyTorch ({clean(torch.__version__, 40)}) is built without CUDA"
    try:
        torch.cuda.init()
    except Exception as error:
        return clean(" ".join(str(error).split()), 200).rstrip(".")
    return "PyTorch sees no GPU"


def answer_of(request: Answer, begins: Callable[[], object] = lambda: None) -> Answer:
    """The point, or what happened instead: ``error`` or, where memory ran out, ``no_memory``."""
    try:
        device = make_device(request["device"], request["limit_bytes"])
    except ImportError:
        return {"error": NO_TORCH}
    except Exception as error:
        return {"error": f"The device cannot be used: {blame.named(error)}."}
    try:
        return measure(device, request, begins)
    except BaseException as error:
        return {"no_memory" if device.ran_out(error) else "error": sentence(error, request)}


def sentence(error: BaseException, request: Answer) -> str:
    if isinstance(error, TargetError | StepError):
        return str(error)
    says = hint(request["loader"], error)
    return f"The step at batch size {request['batch_size']} failed: {blame.told(error)}.{says}"


def measure(device: Device, request: Answer, begins: Callable[[], object]) -> Answer:
    step, batch_bytes = sized_step(request["step"], request["loader"], request["batch_size"])
    begins()
    seconds = run(device, step, request["steps"], request["precision"])
    found = device.read()
    if found.allocated == 0:
        return {
            "error": "The step put nothing on the GPU: it has to move its model and its batch "
            "there itself (.to('cuda'))."
        }
    return {
        "point": {
            "batch_size": request["batch_size"],
            "precision": request["precision"],
            "peak_bytes": found.peak,
            "available_bytes": found.available,
            "total_bytes": found.total,
            "allocated_bytes": found.allocated,
            "process_bytes": found.process,
            "device_used_bytes": found.device_used,
            "seconds_per_step": seconds,
            "batch_bytes": batch_bytes,
        }
    }


def run(device: Device, step: Callable[[], object], steps: int, precision: str) -> float | None:
    """The first step apart (it allocates, compiles and chooses); seconds of one of the others."""
    _one(device, step, precision)
    device.synchronize()
    begin = perf_counter()
    for _ in range(steps - 1):
        _one(device, step, precision)
    device.synchronize()
    return (perf_counter() - begin) / (steps - 1) if steps > 1 else None


def _one(device: Device, step: Callable[[], object], precision: str) -> None:
    import torch  # noqa: PLC0415 - the device has imported it

    around: Any = nullcontext()
    if precision != AS_IS:
        around = torch.autocast(device.kind, dtype=getattr(torch, precision))
    with around:
        step()
