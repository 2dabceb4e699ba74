"""A report as Slurm's accounting keeps it for ``jobstats``: the text of a job's ``AdminComment``.

``JS1:`` and, packed by gzip and base64, JSON: the seconds that the job took, how many GPUs it had,
and by node its cores, seconds of CPU time, most memory in use (bytes), and by GPU its memory, the
most in use, and how busy it was (jobstats, docs/setup/summaries.md). What was not measured is left
out. ``total_memory`` is the machine's: what Slurm gave the job is not known here.
"""

import base64
import gzip
import json
from typing import Any

from gpuwatch.core.bounds import total
from gpuwatch.core.text import SentenceError
from gpuwatch.outputs.report.model import Report


def jobstats_text(report: Report) -> str:
    """Raises ``SentenceError`` for a report of several machines: what each used is not apart."""
    if any(gpu.machine is not None for gpu in report.gpus):
        raise SentenceError("--jobstats takes the recording of one host, not of several together.")
    if not report.machine:
        raise SentenceError(
            "--jobstats needs a recording of gpuwatch: a log does not name its host."
        )
    jobs = report.jobs if report.pid is None else report.jobs[:1]
    cores = total([job.usable_cores for job in jobs[:1]])
    known = [
        gpu for gpu in report.cards if None not in (gpu.memory_total_bytes, gpu.memory_peak_bytes)
    ]
    node: dict[str, Any] = {
        "cpus": None if cores is None else round(cores),
        "total_time": total([job.cpu_core_seconds for job in jobs]),
        "used_memory": total([job.memory_peak_bytes for job in jobs]),
        "total_memory": report.host.memory_total_bytes,
        "gpu_total_memory": {gpu.label: gpu.memory_total_bytes for gpu in known},
        "gpu_used_memory": {gpu.label: gpu.memory_peak_bytes for gpu in known},
        "gpu_utilization": {gpu.label: gpu.busy_percent for gpu in report.cards},
    }
    stats = {
        "nodes": {report.machine: _known(node)},
        "total_time": round(report.duration_seconds),
        "gpus": len(report.cards),
    }
    data = json.dumps(stats, separators=(",", ":")).encode()
    # Without the time of packing: the same report is the same text.
    return "JS1:" + base64.b64encode(gzip.compress(data, mtime=0)).decode()


def _known(values: dict[str, Any]) -> dict[str, Any]:
    inner = {key: _known(one) if isinstance(one, dict) else one for key, one in values.items()}
    inner = {key: round(one, 1) if isinstance(one, float) else one for key, one in inner.items()}
    return {key: one for key, one in inner.items() if one is not None and one != {}}
