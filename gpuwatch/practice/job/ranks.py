"""A practice job's ranks: one, those that torchrun started, or those of ``train``."""

import contextlib
import os
from types import SimpleNamespace
from typing import Any

import torch
from torch import distributed

from gpuwatch.practice.control import FILE_NAME, Control, note_device
from gpuwatch.practice.job.device import TorchDevice, choose
from gpuwatch.practice.job.loop import Place, Training
from gpuwatch.practice.knobs import Knobs


def run_rank(knobs: Knobs, place: Place) -> None:
    """Be one of them, until it is ended. Raises ``SentenceError``."""
    torch.set_num_threads(1)
    device = choose(place.device_name, int(os.environ.get("LOCAL_RANK", place.rank)), knobs)
    place.say(f"device: {device.name}")
    if place.rank == 0:
        note_device(place.folder, device.kind)
    if place.ranks > 1:
        place.say(f"{place.ranks} ranks by {join_ranks(place, device)}")
    control = Control(place.folder / FILE_NAME, knobs)
    training = Training(control, device, place, reporter(place.reports))
    try:
        training.run()
    finally:
        training.close()
        if distributed.is_initialized():
            with contextlib.suppress(RuntimeError):
                distributed.destroy_process_group()


def reporter(on: bool) -> Any:
    """``gpuwatch.torch``, to which the loop is reported; else what does nothing in its place."""
    if on:
        import gpuwatch.torch as reported  # noqa: PLC0415 - only a job that reports has it

        return reported
    nothing = dict.fromkeys(("step", "validation", "checkpoint"), contextlib.nullcontext)
    return SimpleNamespace(watch=lambda loader: loader, **nothing)


def join_ranks(place: Place, device: TorchDevice) -> str:
    """Meet the others (by the environment that torchrun gives); the backend."""
    enough = device.kind == "cuda" and torch.cuda.device_count() >= place.ranks
    backend = "nccl" if enough else "gloo"
    distributed.init_process_group(backend, rank=place.rank, world_size=place.ranks)
    return backend
