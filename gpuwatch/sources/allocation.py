"""To which batch jobs a scheduler has given each GPU, as prologs write it down for exporters.

A folder holds a file per GPU, named by its index (``0``), its MIG instance (``0.1``) or its UUID,
with a job in each line, whose first word is its number. dcgm-exporter reads such a folder
(``DCGM_HPC_JOB_MAPPING_DIR``: https://github.com/NVIDIA/dcgm-exporter), and so does the exporter of
jobstats (``/run/gpustat``, with the user's number behind the job's:
https://princetonuniversity.github.io/jobstats/).
"""

from __future__ import annotations

import math
import os
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpuwatch.core.model import Gpu, GpuKey
from gpuwatch.core.source import Clock
from gpuwatch.core.text import clean
from gpuwatch.core.units import gpu_label
from gpuwatch.sources.linux.procfs import read_once

FOLDER_VARIABLE = "DCGM_HPC_JOB_MAPPING_DIR"
FOLDERS = ("/run/gpustat", "/run/dcgm_job_maps")
READ_SECONDS = 10.0
JOBS_MOST, NAME_LENGTH = 16, 64


class Allocations:
    """Reads the first folder that is there, now and then."""

    def __init__(self, clock: Clock, folders: Sequence[str] = FOLDERS) -> None:
        self._clock = clock
        self._folders = [*filter(None, [os.environ.get(FOLDER_VARIABLE)]), *folders]
        self._read_at = -math.inf
        self._jobs: dict[GpuKey, tuple[str, ...] | None] = {}

    def of(self, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
        """The same with their jobs, where there is such a folder. Never raises."""
        now = self._clock.monotonic()
        if now >= self._read_at + READ_SECONDS:
            self._read_at = now
            folder = next((one for one in self._folders if Path(one).is_dir()), None)
            self._jobs = {gpu.uuid: _jobs(folder, gpu) for gpu in gpus} if folder else {}
        if not self._jobs:
            return gpus
        return tuple([replace(gpu, allocated_to=self._jobs.get(gpu.uuid)) for gpu in gpus])


def _jobs(folder: str, gpu: Gpu) -> tuple[str, ...] | None:
    """``None`` where its file may not be read; none where it has no file."""
    lines = list[str]()
    for name in (gpu_label(gpu), gpu.uuid):
        try:
            lines += os.fsdecode(read_once(f"{folder}/{name}")).splitlines()
        except FileNotFoundError:
            continue
        except OSError:
            return None
    words = [line.split()[0] for line in lines if line.strip()]
    # jobstats has a 0 for no job.
    return tuple([clean(word, NAME_LENGTH) for word in words if word != "0"][:JOBS_MOST])
