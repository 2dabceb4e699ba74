"""A practice job's ranks: one, those that torchrun started, or those it starts itself."""

from __future__ import annotations

import contextlib
import os
import signal
import socket
import sys
import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import distributed

from gpuwatch.text import clean
from gpuwatch.workloads.control import FILE_NAME, Control, note_device
from gpuwatch.workloads.device import DeviceError, choose
from gpuwatch.workloads.knobs import Knobs
from gpuwatch.workloads.loop import Place, Training, join_ranks
from gpuwatch.workloads.machine import Quota
from gpuwatch.workloads.telling import Telling


@dataclass(frozen=True, slots=True, kw_only=True)
class JobOptions:
    """All that a rank must know; can be pickled."""

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


def spawn(job: JobOptions) -> int:
    """Start the ranks on this machine and wait for them; the exit code."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    os.environ.setdefault("GLOO_SOCKET_IFNAME", "lo")
    os.environ.update(
        MASTER_ADDR="127.0.0.1",
        MASTER_PORT=str(port),
        WORLD_SIZE=str(job.knobs.ranks),
        LOCAL_WORLD_SIZE=str(job.knobs.ranks),
    )
    multiprocessing: Any = torch.multiprocessing
    context = multiprocessing.spawn(_spawned, args=(job,), nprocs=job.knobs.ranks, join=False)
    until = None if job.most_seconds is None else time.monotonic() + job.most_seconds
    try:
        while not context.join(timeout=0.5):
            if until is not None and time.monotonic() >= until:
                return 0
    except (
        multiprocessing.ProcessExitedException,
        multiprocessing.ProcessRaisedException,
    ) as error:
        print(f"A rank ended: {clean(str(error).strip(), 600)}", file=sys.stderr)
        return 1
    finally:
        for process in context.processes:
            process.terminate()
        for process in context.processes:
            process.join(5.0)
            if process.is_alive():
                process.kill()
                process.join()
    return 0


def _spawned(rank: int, job: JobOptions) -> None:
    os.environ.update(RANK=str(rank), LOCAL_RANK=str(rank))
    signal.signal(signal.SIGTERM, _leave)
    code = run_rank(job, rank, job.knobs.ranks)
    if code:
        sys.exit(code)


def _leave(number: int, _frame: Any) -> None:
    raise SystemExit(128 + number)
