"""A practice job's ranks: one, those that torchrun started, or those of ``launcher``."""

from __future__ import annotations

import contextlib
import os
import sys
from dataclasses import dataclass
from pathlib import Path

import torch
from torch import distributed

from gpuwatch.core.text import clean
from gpuwatch.practice.control import FILE_NAME, Control, note_device
from gpuwatch.practice.job.device import DeviceError, choose
from gpuwatch.practice.job.loop import Place, Training, join_ranks
from gpuwatch.practice.job.loop_telemetry import Telling
from gpuwatch.practice.job.machine import Quota
from gpuwatch.practice.knobs import Knobs


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """All that a rank must know."""

    knobs: Knobs
    folder: Path
    device: str
    tells: bool = True
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
    training = Training(control, device, place, Telling(job.tells), _say, quota)
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
