"""The batch jobs that a scheduler has given each GPU to, as prologs write it down for exporters.

A folder holds a file per GPU, named by its index (``0``), its MIG instance (``0.1``) or its UUID,
with a job in each line, whose first word is its number. dcgm-exporter reads such a folder
(``DCGM_HPC_JOB_MAPPING_DIR``: https://github.com/NVIDIA/dcgm-exporter), and so does the exporter of
jobstats (``/run/gpustat``, with the user's number behind the job's:
https://princetonuniversity.github.io/jobstats/).
"""

from __future__ import annotations

import math
import os
import re
from collections.abc import Sequence
from dataclasses import replace

from gpuwatch.core.model import Gpu, GpuKey
from gpuwatch.core.source import Clock
from gpuwatch.core.units import gpu_label
from gpuwatch.sources.linux.procfs import read_once

FOLDER_VARIABLE = "DCGM_HPC_JOB_MAPPING_DIR"
FOLDERS = ("/run/gpustat", "/run/dcgm_job_maps")
READ_SECONDS = 10.0
JOBS_MOST = 16
CARDS = "/proc/driver/nvidia/gpus"
"""A folder of each card of the machine, whatever a job may see."""
_JOB = re.compile(r"[\w.+\[\]-]{1,64}", re.ASCII)


class Allocations:
    """Reads the first folder that is there, now and then."""

    def __init__(self, clock: Clock, folders: Sequence[str] = FOLDERS) -> None:
        self._clock = clock
        self._folders = [*filter(None, [os.environ.get(FOLDER_VARIABLE)]), *folders]
        self._read_at = -math.inf
        self._jobs: dict[GpuKey, tuple[str, ...] | None] = {}

    def with_jobs(self, gpus: tuple[Gpu, ...]) -> tuple[Gpu, ...]:
        """Return the GPUs with their jobs, where there is such a folder. Never raises."""
        now = self._clock.monotonic()
        if gpus and now >= self._read_at + READ_SECONDS:
            self._read_at, self._jobs = now, {}
            folder = next(filter(_names_in, self._folders), None)
            if folder is not None:
                # In a job that sees a part of the cards, the driver numbers them anew.
                cards = len(_names_in(CARDS))
                as_numbered = cards <= len({gpu.identity.index for gpu in gpus})
                self._jobs = {gpu.uuid: _jobs(folder, gpu, as_numbered) for gpu in gpus}
        if not self._jobs:
            return gpus
        return tuple([replace(gpu, allocated_to=self._jobs.get(gpu.uuid)) for gpu in gpus])


def _names_in(folder: str) -> list[str]:
    try:
        return os.listdir(folder)  # noqa: PTH208 - names, no paths
    except OSError:
        return []


def _jobs(folder: str, gpu: Gpu, as_numbered: bool) -> tuple[str, ...] | None:
    """Return the jobs of a GPU; ``None`` where its file may not be read, or cannot be known for
    lack of its number."""
    text, known = b"", as_numbered
    for name in (gpu.uuid, *[gpu_label(gpu)] * as_numbered):
        try:
            text, known = text + b"\n" + read_once(f"{folder}/{name}"), True
        except FileNotFoundError:
            continue
        except OSError:
            return None
    words = [line.split()[0] for line in os.fsdecode(text).splitlines() if line.strip()]
    # jobstats has a 0 for no job.
    found = dict.fromkeys([word for word in words if _JOB.fullmatch(word) and word != "0"])
    return tuple([*found][:JOBS_MOST]) if known else None
