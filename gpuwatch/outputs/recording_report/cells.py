"""What a recording's report says in any form: cells of its tables, and facts beside them."""

from __future__ import annotations

from collections.abc import Sequence

from gpuwatch.core import units
from gpuwatch.outputs.job_report.words import APART_POINTS
from gpuwatch.outputs.recording_report import words
from gpuwatch.outputs.recording_report.words import Times
from gpuwatch.outputs.summary.model import JobUse, ProcessUse, Summary


def gpu_notes(summary: Summary) -> list[str]:
    """What a number in the table needs beside it, alike for several GPUs in one line."""
    found: dict[str, list[str]] = {}
    times = Times(summary)
    for gpu in summary.gpus:
        for stretch in gpu.lost:
            found.setdefault(f"lost, {times.stretch(stretch)}", []).append(gpu.uuid)
        if gpu.core.busy_percent is None and not gpu.lost:
            why = gpu.core.busy_missing or "not reported by the driver"
            found.setdefault(f"busy unknown: {why}", []).append(gpu.uuid)
        for reason, seconds in words.throttling(gpu):
            text = f"slowed down by {reason} for {units.age(seconds)}"
            found.setdefault(text, []).append(gpu.uuid)
        if gpu.core.energy_from == "power":
            found.setdefault("energy from power readings, not from a counter", []).append(gpu.uuid)
    return [f"{words.labels(uuids, summary)}: {text}" for text, uuids in found.items()]


def gpu_labels(uuids: Sequence[str], summary: Summary) -> str:
    """``0-3``; ``-`` for none."""
    if not uuids:
        return units.UNKNOWN
    wanted = set(uuids)
    return words.ranges([gpu.label for gpu in summary.gpus if gpu.uuid in wanted]) or "?"


def busy_share(busy: float | None, held: float) -> str:
    return units.UNKNOWN if busy is None or held <= 0 else units.percent(100.0 * busy / held)


def tells(job: JobUse) -> bool:
    return job.samples_per_second is not None or job.data_wait_percent is not None


def told_any(summary: Summary) -> bool:
    """Whether a job told of its own loops."""
    return any(tells(job) for job in summary.jobs)


def told_cells(job: JobUse) -> list[str]:
    """Samples a second, and the share of the time that it waited for data."""
    return [units.samples(job.samples_per_second), units.percent(job.data_wait_percent)]


def most_told(job: JobUse) -> str:
    """``rank 3, 30%`` where it waited clearly more than the mean of the ranks."""
    most, mean = job.data_wait_most_percent, job.data_wait_percent
    if most is None or mean is None or most - mean < APART_POINTS:
        return ""
    rank = job.data_wait_most_rank
    return f"{'one rank' if rank is None else f'rank {rank}'}, {units.percent(most)}"


def process_name(process: ProcessUse) -> str:
    """A loader worker has the command line of its parent."""
    if process.role == "loader_worker":
        return f"loader worker ({process.name or 'process'})"
    return process.command or process.name or units.UNKNOWN


def host_facts(summary: Summary) -> list[tuple[str, str]]:
    """Label and what is said, for what was read."""
    host = summary.host
    out = []
    if host.cpu_mean_percent is not None:
        text = f"{units.percent(host.cpu_mean_percent)} busy"
        if host.core_count is not None:
            text += f" of {words.plural(host.core_count, 'core')}"
        text += f", at most {units.percent(host.cpu_peak_percent)}"
        if host.cpu_iowait_mean_percent is not None:
            text += f"; waiting for disks {host.cpu_iowait_mean_percent:.1f}%"
        if host.usable_cores is not None and host.usable_cores < (host.core_count or 0):
            text += f"; {host.usable_cores:g} cores usable"
        out.append(("CPU", text))
    if host.memory_peak_bytes is not None:
        of = units.size_of(host.memory_peak_bytes, host.memory_total_bytes)
        text = f"at most {of}"
        if host.swap_peak_bytes:
            text += f", swap {units.size(host.swap_peak_bytes)}"
        if host.shm_peak_bytes is not None and host.shm_total_bytes:
            text += f", /dev/shm {units.size_of(host.shm_peak_bytes, host.shm_total_bytes)}"
        out.append(("Memory", text))
    if host.disk_read_bytes is not None or host.disk_written_bytes is not None:
        read, written = units.size(host.disk_read_bytes), units.size(host.disk_written_bytes)
        fastest = units.rate(host.disk_read_peak_bytes_per_second)
        fastest_out = units.rate(host.disk_write_peak_bytes_per_second)
        text = f"read {read} (at most {fastest}), written {written} (at most {fastest_out})"
        out.append(("Disk", text))
    return out
