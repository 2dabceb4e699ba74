"""A job's training loop, data loading, CPU, memory and storage: a line of facts each."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from gpuwatch.core import units
from gpuwatch.core.text import clean
from gpuwatch.jobs.report.report import JobReport
from gpuwatch.outputs.job_report.lines import LABEL, labelled
from gpuwatch.outputs.job_report.words import APART_POINTS, clock, grouped
from gpuwatch.outputs.terminal.painting import BOLD, Painter


def facts_block(
    report: JobReport, width: int, paint: Painter, tuning: Mapping[str, Any] | None
) -> list[str]:
    lines = []
    for label, text in (
        ("Training", ", ".join(_loop_facts(report))),
        ("Loading", _loading(report)),
        ("  workers", ", ".join(_worker_facts(report))),
        ("  main", ", ".join(_main_facts(report))),
        ("CPU", ", ".join(_cpu_facts(report))),
        ("Memory", ", ".join(_memory_facts(report))),
        ("Storage", ", ".join(_storage_facts(report))),
        ("Tuned", _tuned(tuning)),
    ):
        if text:
            first, *rest = labelled(label, text, width)
            lines += [paint(first[:LABEL], BOLD) + first[LABEL:], *rest]
    return lines


def _tuned(tuning: Mapping[str, Any] | None) -> str:
    """What ``gpuwatch tune`` measured in the job's folder."""
    if tuning is None:
        return ""
    step = "" if tuning["step"] is None else f" with {clean(tuning['step'], 80)}"
    when = clock(tuning["taken_at_unix_seconds"], "%Y-%m-%d %H:%M")
    target = clean(tuning["target"], 80)
    return f"{target}{step}, measured {when}: {clean(tuning['says'], 200)}"


def _loading(report: JobReport) -> str:
    sentence = report.loading.sentence or "no training process was seen"
    return sentence.removeprefix("loading ")


def _loop_facts(report: JobReport) -> list[str]:
    """What the job told of its own loop; nothing where it told nothing."""
    loop = report.loop
    if loop.told_seconds <= 0:
        return []
    facts = []
    if loop.samples_per_second is not None:
        facts.append(f"{units.samples(loop.samples_per_second)} samples/s")
    if loop.data_wait_percent is not None:
        facts.append(f"waited for data {units.percent(loop.data_wait_percent)} of the time")
    most, mean = loop.data_wait_most_percent, loop.data_wait_percent
    if most is not None and mean is not None and most - mean >= APART_POINTS:
        which = (
            "one rank" if loop.data_wait_most_rank is None else f"rank {loop.data_wait_most_rank}"
        )
        facts.append(f"{which} {units.percent(most)}")
    word = "in steps" if loop.compute_on_device is False else "computing"
    for name, value in (
        (word, loop.compute_percent),
        ("copying to the GPU", loop.copy_percent),
        ("validating", loop.validation_percent),
        ("saving checkpoints", loop.checkpoint_percent),
    ):
        if value is not None and value >= 0.5:
            facts.append(f"{name} {units.percent(value)}")
    if loop.steps is not None:
        facts.append(f"{loop.steps:,} step{'s'[loop.steps == 1 :]}")
    if loop.memory_reserved_peak_bytes is not None:
        both = units.size_of(loop.memory_allocated_peak_bytes, loop.memory_reserved_peak_bytes)
        facts.append(f"{both} allocated/reserved at most")
    return facts


def _worker_facts(report: JobReport) -> list[str]:
    loading = report.loading
    if not loading.loader_workers_peak:
        return []
    facts = [f"{units.percent(loading.loader_worker_cpu_percent)} of a core each"]
    limit = loading.loader_worker_at_limit_percent
    if limit is not None and limit >= 0.5:
        facts.append(f"at the limit of a core {units.percent(limit)} of the time")
    facts += _waits(loading.loader_worker_queue_wait_percent, "a core")
    facts += _waits(loading.loader_worker_disk_wait_percent, "storage")
    started, peak = loading.loader_workers_started, loading.loader_workers_peak
    if started is not None and started > peak:
        facts.append(f"{started} started, {peak} at once")
    return facts


def _main_facts(report: JobReport) -> list[str]:
    loading = report.loading
    if loading.main_thread_cpu_percent is None:
        return []
    several = report.ranks is not None and report.ranks > 1
    which = "each main thread" if several else "the main thread"
    facts = [f"{units.percent(loading.main_thread_cpu_percent)} of a core in {which}"]
    limit = loading.main_thread_at_limit_percent
    if limit is not None and limit >= 0.5:
        facts.append(f"at its limit {units.percent(limit)} of the time")
    return facts + _waits(loading.main_thread_queue_wait_percent, "a core")


def _waits(percent: float | None, what: str) -> list[str]:
    if percent is None or percent < 0.5:
        return []
    return [f"waiting for {what} {units.percent(percent)}"]


def _cpu_facts(report: JobReport) -> list[str]:
    host = report.host
    if host.cpu_mean_cores is None:
        return [f"{host.usable_cores:g} usable cores"] if host.usable_cores is not None else []
    of = "" if host.usable_cores is None else f" of {host.usable_cores:g} usable"
    facts = [f"{host.cpu_mean_cores:.1f}{of} cores busy"]
    if host.cpu_peak_cores is not None:
        facts.append(f"{host.cpu_peak_cores:.1f} at most")
    if host.cpu_core_seconds is not None:
        facts.append(f"{grouped(host.cpu_core_seconds)} core-seconds")
    if host.quota_cores is not None:
        held_back = host.cpu_throttled_percent
        facts.append(
            f"quota of {host.quota_cores:g} cores"
            + ("" if held_back is None else f" throttled it {units.percent(held_back)} of the time")
        )
    return facts


def _memory_facts(report: JobReport) -> list[str]:
    shared = report.host.memory_proportional_peak_bytes
    resident = report.host.memory_resident_peak_bytes
    if shared is not None:
        return [f"{units.size(shared)} at most (PSS)"]
    if resident is not None:
        return [f"{units.size(resident)} at most (sum of RSS: shared pages count several times)"]
    return []


def _storage_facts(report: JobReport) -> list[str]:
    host = report.host
    known = ((host.read_bytes, "read"), (host.write_bytes, "written"))
    return [f"{units.size(value)} {word}" for value, word in known if value is not None]
