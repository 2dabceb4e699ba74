"""The report of a recording as JSON: one object, ``schema`` 1.

``recording_report_schema`` says what is in it, for people and programs. Names are those of
``summing.summary``, findings as ``gpuwatch diagnose --json`` writes them with the stretches of
time in which they held; what was not read is ``null``.
"""

from __future__ import annotations

import json
from typing import Any

from gpuwatch import __version__
from gpuwatch.core.model import GpuIdentity, ProcessKey
from gpuwatch.diagnosis.finding_json import finding_object
from gpuwatch.jobs.report.report import Course
from gpuwatch.outputs.recording_report import words
from gpuwatch.outputs.summary.model import (
    FindingUse,
    GpuSummary,
    HostSummary,
    JobUse,
    ProcessUse,
    Stretch,
    Summary,
)

SCHEMA = 1

_GPU_CORE = (
    "watched_seconds",
    "busy_percent",
    "busy_seconds",
    "idle_seconds",
    "busy_from_samples",
    "busy_missing",
    "sm_active_percent",
    "tensor_active_percent",
    "memory_peak_bytes",
    "power_mean_watts",
    "power_peak_watts",
    "power_limit_watts",
    "energy_joules",
    "energy_from",
    "temperature_peak_celsius",
)
_GPU_OWN = (
    "duty",
    "rhythm_seconds",
    "oscillating_seconds",
    "period_seconds",
    "cycles",
    "memory_mean_bytes",
    "sm_clock_mean_mhz",
    "sm_clock_peak_mhz",
    "memory_clock_mean_mhz",
    "received_bytes",
    "sent_bytes",
)
HOST = tuple(name for name in HostSummary.__dataclass_fields__ if name != "courses")
_USED = (
    "gpu_held_seconds",
    "gpu_busy_seconds",
    "gpu_memory_peak_bytes",
    "cpu_core_seconds",
    "memory_peak_bytes",
    "read_bytes",
    "written_bytes",
    "first_unix_seconds",
    "last_unix_seconds",
)
_JOB = (
    "pid",
    "started_at_unix_seconds",
    "user",
    "command",
    "slurm_job",
    "ranks",
    "loader_workers",
    "pinned_memory",
    "samples_per_second",
    "data_wait_percent",
    "data_wait_most_percent",
    "data_wait_most_rank",
    "told_seconds",
    "exit_code",
)
_PROCESS = ("pid", "started_at_unix_seconds", "user", "name", "command", "role")


def recording_json(summary: Summary) -> str:
    """One JSON object, without a line end."""
    return dumps(recording_object(summary))


def dumps(value: dict[str, Any]) -> str:
    return json.dumps(value, ensure_ascii=False, allow_nan=False, indent=2)


def recording_object(summary: Summary, *, courses: bool = True) -> dict[str, Any]:
    """What ``recording_json`` writes; without ``courses`` the time lines are left out."""
    file = summary.file
    value: dict[str, Any] = {
        "kind": "recording_report",
        "schema": SCHEMA,
        "gpuwatch": __version__,
        "verdict": words.verdict(summary),
        "decided": summary.decided,
        "simulated": summary.simulated,
        "machine": summary.machine,
        "pid": summary.pid,
        "source": {
            "name": file.name,
            "kind": file.kind,
            "lines": file.lines,
            "left_out_lines": file.left_out_lines,
            "notes": list(file.notes),
        },
        "time": {
            "begin_unix_seconds": number(summary.begin_unix_seconds),
            "end_unix_seconds": number(summary.end_unix_seconds),
            "seconds": number(summary.seconds),
            "has_dates": summary.has_dates,
            "zone": words.Times(summary).zone(),
            "snapshots": summary.snapshots,
            "interval_seconds": number(summary.interval_seconds),
            "covered_seconds": number(summary.covered_seconds),
            "gap_count": summary.gap_count,
            "gap_seconds": number(summary.gap_seconds),
            "gaps": [stretch_object(gap) for gap in summary.gaps],
            "clock_set_back": summary.clock_set_back,
        },
        "total": {
            "busy_percent": number(summary.busy_percent),
            "watched_gpu_seconds": number(summary.watched_gpu_seconds),
            "busy_gpu_seconds": number(summary.busy_gpu_seconds),
            "idle_gpu_seconds": number(summary.idle_gpu_seconds),
            "duty": number(summary.duty),
            "oscillating_share": number(summary.oscillating_share),
            "period_seconds": number(summary.period_seconds),
            "cycles_per_minute": number(summary.cycles_per_minute),
            "energy_joules": number(summary.energy_joules),
            "power_mean_watts": number(summary.power_mean_watts),
            "received_bytes_per_second": number(summary.received_bytes_per_second),
            "finding_gpu_seconds": number(summary.lost_gpu_seconds),
        },
        "gpus": [_gpu_object(gpu) for gpu in summary.gpus],
        "findings": [use_object(use) for use in summary.findings],
        "jobs": [_job_object(job) for job in summary.jobs],
        "processes": [_process_object(process) for process in summary.processes],
        "left_out_processes": summary.left_out_processes,
        "host": {name: number(getattr(summary.host, name)) for name in HOST},
        "problems": list(summary.problems),
        "unknown": [
            {
                "rule": unknown.rule,
                "missing": list(unknown.missing),
                "gpus": list(unknown.gpus),
                "job": _key_object(unknown.job),
            }
            for unknown in summary.not_told
        ],
    }
    if courses:
        value["courses"] = _courses_object(summary)
    return value


def _identity(identity: GpuIdentity) -> dict[str, Any]:
    return {
        "uuid": identity.uuid,
        "index": identity.index,
        "mig_instance": identity.mig_instance,
        "mig_parent_uuid": identity.mig_parent_uuid,
        "name": identity.name,
        "memory_total_bytes": identity.memory_total_bytes,
    }


def _gpu_object(gpu: GpuSummary) -> dict[str, Any]:
    throttled = gpu.core.throttled
    return {
        **_identity(gpu.identity),
        "seen_seconds": number(gpu.core.held_seconds),
        **{name: number(getattr(gpu.core, name)) for name in _GPU_CORE},
        **{name: number(getattr(gpu, name)) for name in _GPU_OWN},
        "throttled": None
        if throttled is None
        else [{"reason": reason, "seconds": number(held)} for reason, held in throttled],
        "lost": [stretch_object(stretch) for stretch in gpu.lost],
    }


def use_object(use: FindingUse) -> dict[str, Any]:
    """A finding with when it held."""
    made = finding_object(use.finding)
    del made["since_unix_seconds"], made["until_unix_seconds"], made["cost"]
    return {
        **made,
        "gpus": list(use.gpus),
        "holds_at_end": use.holds,
        "seconds": number(use.seconds),
        "cost_gpu_seconds": number(use.cost_gpu_seconds),
        "stretches": [stretch_object(stretch) for stretch in use.stretches],
    }


def stretch_object(stretch: Stretch) -> dict[str, Any]:
    return {
        "begin_unix_seconds": number(stretch.begin_unix_seconds),
        "end_unix_seconds": number(stretch.end_unix_seconds),
        "cost_gpu_seconds": number(stretch.cost_gpu_seconds),
    }


def _job_object(job: JobUse) -> dict[str, Any]:
    return {
        **{name: number(getattr(job, name)) for name in _JOB},
        "gpus": list(job.gpus),
        **{name: number(getattr(job, name)) for name in _USED},
    }


def _process_object(process: ProcessUse) -> dict[str, Any]:
    return {
        **{name: number(getattr(process, name)) for name in _PROCESS},
        "gpus": list(process.gpus),
        **{name: number(getattr(process, name)) for name in _USED},
    }


def _courses_object(summary: Summary) -> dict[str, Any]:
    return {
        "begin_unix_seconds": number(summary.begin_unix_seconds),
        "bucket_seconds": number(summary.course_seconds),
        "gpus": [
            {
                "uuid": gpu.uuid,
                "busy_percent": _course_object(gpu.courses.get("busy_percent")),
            }
            for gpu in summary.gpus
        ],
        "cpu_percent": _course_object(summary.host.courses.get("cpu_percent")),
    }


def _course_object(course: Course | None) -> dict[str, Any] | None:
    if course is None:
        return None
    return {
        "minimum": list(course.minimum),
        "mean": list(course.mean),
        "maximum": list(course.maximum),
    }


def _key_object(key: ProcessKey | None) -> dict[str, Any] | None:
    return None if key is None else {"pid": key[0], "started_at_unix_seconds": number(key[1])}


def number(value: Any) -> Any:
    """Rounded to what means something; NaN and infinity are no measurement."""
    if isinstance(value, float):
        return round(value, 4) if value - value == 0.0 else None
    return value
