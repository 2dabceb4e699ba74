"""Facts of a job and its machine, a line for each part."""

from collections.abc import Iterable, Sequence

from gpuwatch.core import units
from gpuwatch.outputs.report.content import words
from gpuwatch.outputs.report.model import Report
from gpuwatch.outputs.report.usage import JobUsage, Loading


def when(report: Report, job: JobUsage) -> list[str]:
    start, end = job.started_at_unix_seconds, job.ended_at_unix_seconds
    facts = []
    if start is not None:
        since = f"since {words.clock(start, '%F %T')}"
        facts.append(since if end is None else words.span(start, end))
    duration = units.age(report.duration_seconds)
    facts.append(f"still running after {duration}" if end is None else f"took {duration}")
    if job.end_is_last_seen:
        facts.append("ended unobserved")
    if job.exit_code == 0:
        facts.append("exit code 0")
    return facts


def where(report: Report, job: JobUsage) -> list[str]:
    several = job.ranks is not None and job.ranks > 1
    more = several and job.world_size is not None and job.world_size > (job.ranks or 0)
    known = (
        (job.pid, "PID {}"),
        (job.user, "{}"),
        (report.machine, "on {}"),
        (job.ranks if several else None, f"{{}} of {job.world_size} ranks" if more else "{} ranks"),
        (job.launcher, "{}"),
        (job.framework, "{}"),
        (job.environment, "{}"),
        (job.slurm_job, "Slurm job {}"),
        (job.pod, "pod {}"),
        (job.container, "container {}"),
    )
    return [form.format(value) for value, form in known if value is not None and value != ""]


def watched(report: Report) -> str:
    """The part of a job that was watched; empty where it was nearly all."""
    duration, covered = report.duration_seconds, report.time.covered_seconds
    if duration - covered <= max(2.0, 0.02 * duration):
        return ""
    return (
        f"Watched for {units.age(covered)} of it ({units.percent(100.0 * covered / duration)}); "
        "this report covers only that time."
    )


def job_facts(job: JobUsage) -> list[tuple[str, str]]:
    sentence = job.loading.sentence or "no training process was seen"
    lines = (
        ("Training", ", ".join(_loop(job))),
        ("Loading", sentence.removeprefix("loading ")),
        ("  workers", ", ".join(_workers(job.loading))),
        ("  main", ", ".join(_main_thread(job))),
        ("CPU", ", ".join(_cpu(job))),
        ("Memory", _memory(job)),
        ("Storage", ", ".join(_storage(job))),
    )
    return [(label, text) for label, text in lines if text]


def _loop(job: JobUsage) -> Iterable[str]:
    loop = job.loop
    if loop.reported_seconds <= 0:
        return
    if loop.samples_per_second is not None:
        yield f"{units.samples(loop.samples_per_second)} samples/s"
    if loop.data_wait_percent is not None:
        yield f"waited for data {units.percent(loop.data_wait_percent)} of the time"
    if most := words.waited_most(job):
        yield most
    for name, value in (
        ("in steps" if loop.compute_on_device is False else "computing", loop.compute_percent),
        ("copying to the GPU", loop.copy_percent),
        ("validating", loop.validation_percent),
        ("saving checkpoints", loop.checkpoint_percent),
    ):
        yield from _if_any(f"{name} ", value)
    if loop.steps is not None:
        yield units.plural(loop.steps, "step")
    if loop.memory_reserved_peak_bytes is not None:
        both = units.size_of(loop.memory_allocated_peak_bytes, loop.memory_reserved_peak_bytes)
        yield f"{both} allocated/reserved at most"


def _if_any(before: str, percent: float | None, after: str = "") -> Iterable[str]:
    if percent is not None and percent >= 0.5:
        yield f"{before}{units.percent(percent)}{after}"


def _workers(loading: Loading) -> Iterable[str]:
    peak, started = loading.loader_workers_peak, loading.loader_workers_started
    if not peak:
        return
    yield f"{units.percent(loading.loader_worker_cpu_percent)} of a core each"
    limit = loading.loader_worker_at_limit_percent
    yield from _if_any("at the limit of a core ", limit, " of the time")
    yield from _if_any("waiting for a core ", loading.loader_worker_queue_wait_percent)
    yield from _if_any("waiting for storage ", loading.loader_worker_disk_wait_percent)
    if started is not None and started > peak:
        yield f"{started} started, {peak} at once"


def _main_thread(job: JobUsage) -> Iterable[str]:
    loading = job.loading
    if loading.main_thread_cpu_percent is None:
        return
    which = "each" if job.ranks is not None and job.ranks > 1 else "the"
    yield f"{units.percent(loading.main_thread_cpu_percent)} of a core in {which} main thread"
    yield from _if_any("at its limit ", loading.main_thread_at_limit_percent, " of the time")
    yield from _if_any("waiting for a core ", loading.main_thread_queue_wait_percent)


def _cpu(job: JobUsage) -> Iterable[str]:
    usable = None if job.usable_cores is None else f"{job.usable_cores:g} usable"
    if job.cpu_mean_cores is None:
        yield from () if usable is None else [f"{usable} cores"]
        return
    yield f"{job.cpu_mean_cores:.1f}{'' if usable is None else f' of {usable}'} cores busy"
    if job.cpu_peak_cores is not None:
        yield f"{job.cpu_peak_cores:.1f} at most"
    if job.cpu_core_seconds is not None:
        yield f"{words.grouped(job.cpu_core_seconds)} core-seconds"
    if job.quota_cores is not None:
        held = job.cpu_throttled_percent
        back = "" if held is None else f" throttled it {units.percent(held)} of the time"
        yield f"quota of {job.quota_cores:g} cores{back}"


def _memory(job: JobUsage) -> str:
    if job.memory_proportional_peak_bytes is not None:
        return f"{units.size(job.memory_proportional_peak_bytes)} at most (PSS)"
    if job.memory_resident_peak_bytes is None:
        return ""
    resident = units.size(job.memory_resident_peak_bytes)
    return f"{resident} at most (sum of RSS: shared pages count several times)"


def _storage(job: JobUsage) -> Sequence[str]:
    known = ((job.read_bytes, "read"), (job.written_bytes, "written"))
    return [f"{units.size(value)} {word}" for value, word in known if value is not None]


def host_facts(report: Report) -> Iterable[tuple[str, str]]:
    host = report.host
    if host.cpu_mean_percent is not None:
        of = "" if host.core_count is None else f" of {units.plural(host.core_count, 'core')}"
        text = f"{units.percent(host.cpu_mean_percent)} busy{of}"
        text += f", at most {units.percent(host.cpu_peak_percent)}"
        if host.cpu_iowait_mean_percent is not None:
            text += f"; waiting for disks {host.cpu_iowait_mean_percent:.1f}%"
        if host.usable_cores is not None and host.usable_cores < (host.core_count or 0):
            text += f"; {host.usable_cores:g} cores usable"
        yield "CPU", text
    if host.memory_peak_bytes is not None:
        text = f"at most {units.size_of(host.memory_peak_bytes, host.memory_total_bytes)}"
        if host.swap_peak_bytes:
            text += f", swap {units.size(host.swap_peak_bytes)}"
        if host.shm_peak_bytes is not None and host.shm_total_bytes:
            text += f", /dev/shm {units.size_of(host.shm_peak_bytes, host.shm_total_bytes)}"
        yield "Memory", text
    if host.disk_read_bytes is not None or host.disk_written_bytes is not None:
        read, written = units.size(host.disk_read_bytes), units.size(host.disk_written_bytes)
        fastest = units.rate(host.disk_read_peak_bytes_per_second)
        fastest_out = units.rate(host.disk_write_peak_bytes_per_second)
        yield "Disk", f"read {read} (at most {fastest}), written {written} (at most {fastest_out})"
