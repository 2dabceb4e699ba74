"""A practice job's ranks: one, those that torchrun started, or those of ``train``."""

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
from torch import distributed

from gpuwatch.core.text import clean
from gpuwatch.practice.control import FILE_NAME, Control, note_device
from gpuwatch.practice.job.device import Device, DeviceError, choose
from gpuwatch.practice.job.loop import Place, Training
from gpuwatch.practice.job.machine import Quota
from gpuwatch.practice.knobs import Knobs


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """A rank's options."""

    knobs: Knobs
    folder: Path
    device: str
    reports: bool = True
    hangs: bool = False
    ends_with: int | None = None
    most_steps: int | None = None
    most_seconds: float | None = None


def run_rank(job: JobOptions, rank: int, ranks: int, quota: Quota | None = None) -> int:
    """Be one of them; the exit code."""
    torch.set_num_threads(job.knobs.threads)
    try:
        device = choose(job.device, int(os.environ.get("LOCAL_RANK", rank)), job.knobs)
    except DeviceError as error:
        print(clean(str(error), 400), file=sys.stderr)
        return 2
    if rank == 0:
        _say(f"device: {device.name}")
        note_device(job.folder, device.kind)
    if ranks > 1:
        backend = join_ranks(rank, ranks, job.knobs.backend, device)
        if rank == 0:
            _say(f"{ranks} ranks by {backend}")
    place = Place(
        folder=job.folder,
        device_name=job.device,
        rank=rank,
        ranks=ranks,
        hangs=job.hangs,
        ends_with=job.ends_with,
        most_steps=job.most_steps,
        # Ranks that stop at different steps would wait for each other for ever.
        most_seconds=job.most_seconds if ranks == 1 else None,
    )
    control = Control(job.folder / FILE_NAME, job.knobs)
    training = Training(control, device, place, reporter(job.reports), _say, quota)
    try:
        training.run()
        _say_end(training, rank)
    finally:
        training.close()
        if distributed.is_initialized():
            with contextlib.suppress(RuntimeError):
                distributed.destroy_process_group()
    return 0


def _say(line: str) -> None:
    print(line, flush=True)


def _say_end(training: Training, rank: int) -> None:
    training.device.synchronize()
    if rank == 0:
        _say(f"done: {training.steps} steps, loss {training.device.loss():.4f}")


def reporter(on: bool) -> Any:
    """``gpuwatch.torch``, to which the loop is reported; else what does nothing in its place."""
    if on:
        import gpuwatch.torch as reported  # noqa: PLC0415 - only a job that reports has it

        return reported
    nothing = dict.fromkeys(("step", "validation", "checkpoint"), contextlib.nullcontext)
    return SimpleNamespace(watch=lambda loader: loader, **nothing)


def join_ranks(rank: int, ranks: int, backend: str, device: Device) -> str:
    """Meet the others (by the environment that torchrun gives); the backend."""
    if backend == "auto":
        enough = device.kind == "cuda" and torch.cuda.device_count() >= ranks
        backend = "nccl" if enough else "gloo"
    distributed.init_process_group(backend, rank=rank, world_size=ranks)
    return backend
