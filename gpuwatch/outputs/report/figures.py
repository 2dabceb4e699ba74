"""Figures of a report, made from the statistics and the ledger of a time."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

from msgspec.structs import asdict

from gpuwatch.core.registry import MAIN
from gpuwatch.core.store import Stat
from gpuwatch.diagnosis.finding import Unchecked
from gpuwatch.diagnosis.ledger import Ledger
from gpuwatch.diagnosis.verdict import UNUSED_BYTES, of_the_past
from gpuwatch.jobs.identity.runs import essence
from gpuwatch.outputs.report.model import (
    GpuUsage,
    HostUsage,
    JobUsage,
    Loading,
    Loop,
    OpenQuestion,
    Phase,
    ProcessUsage,
    Profiles,
    Report,
    Source,
    Stretch,
    Throttling,
    Time,
    TimeProfile,
    replaced,
)
from gpuwatch.outputs.report.phases import Cell, JudgedPhases, Span, finding_uses, spans
from gpuwatch.recording import statistics
from gpuwatch.recording.statistics import (
    GpuStatistics,
    HostStatistics,
    JobStatistics,
    LoadingSums,
    LoopSums,
    Profile,
    Statistics,
    TimeSums,
    by_weight,
    spent_percent,
)

LOSSES_SHOWN = 4
"""Most times for which a GPU was lost that are phases of their own."""


def report_of(
    counted: Statistics,
    ledger: Ledger,
    unknown: tuple[Unchecked, ...] | None,
    *,
    about_job: bool,
    newest: bool,
    source: Source | None,
) -> Report:
    """Return the report of what was counted and found. ``unknown``: rules that could not be checked
    last, ``None`` where nothing was diagnosed; ``about_job``: it is about one job alone."""
    assert counted.grid is not None
    end, seconds = counted.time.end, counted.grid.seconds
    gpus = [gpu_usage(gpu, end) for gpu in counted.gpus.values()]
    gpus.sort(key=lambda gpu: (gpu.index, -1 if gpu.mig_instance is None else gpu.mig_instance))
    by_key = {one.sums.key: one for one in counted.jobs.values()}
    ranked = by_weight([one.sums for one in counted.jobs.values()])
    jobs = tuple([job_usage(by_key[sums.key], end) for sums in ranked])
    begin = counted.time.begin or 0.0
    findings = finding_uses(ledger.episodes(), begin, end, newest=newest)
    phases: tuple[Phase, ...] = ()
    questions: tuple[OpenQuestion, ...] = ()
    if unknown is not None:
        ledger.finish_questions(end)
        own = {uuid: _spans(gpu, end) for uuid, gpu in counted.gpus.items()}
        known = bool(jobs or counted.processes.used)
        judged = JudgedPhases(gpus, own, findings, ledger, processes=known)
        findings, phases = judged.findings, judged.phases(2.0 * seconds)
        questions = judged.questions()
        if source is not None:
            # Nothing more will come.
            questions = tuple([replaced(one, says=of_the_past(one.says)) for one in questions])
    return Report(
        decided=unknown is not None and not questions,
        simulated=counted.noted.simulated,
        machine=counted.noted.machine,
        pid=jobs[0].pid if about_job and jobs else None,
        source=source,
        time=_time(counted.time, seconds),
        gpus=tuple(gpus),
        findings=findings,
        phases=phases,
        questions=questions,
        jobs=jobs,
        processes=tuple(
            [
                ProcessUsage(name=one.name, role=one.role, **_usage(one))
                for one in by_weight(counted.processes.used.values())
            ]
        ),
        left_out_processes=counted.processes.left_out,
        loop_seconds=counted.noted.loop_seconds,
        host=HostUsage() if counted.host is None else host_usage(counted.host, end),
        problems=tuple(counted.noted.problems),
        unknown=unknown or (),
    )


_GPU_IDENTITY = (
    *("uuid", "index", "name", "machine", "mig_instance", "mig_parent_uuid", "memory_total_bytes"),
    "temperature_slowdown_celsius",
)
_GPU_FIGURES = (
    ("memory_mean_bytes", "memory_used_bytes", "mean"),
    ("memory_peak_bytes", "memory_used_bytes", "whole_high"),
    ("power_peak_watts", "power_watts", "high"),
    ("temperature_peak_celsius", "temperature_celsius", "high"),
    ("sm_active_percent", "sm_active_percent", "mean"),
    ("tensor_active_percent", "tensor_active_percent", "mean"),
    ("sm_clock_mean_mhz", "sm_clock_mhz", "mean"),
    ("sm_clock_peak_mhz", "sm_clock_mhz", "high"),
    ("memory_clock_mean_mhz", "memory_clock_mhz", "mean"),
    ("received_bytes", "pcie_rx_bytes_per_second", "integral"),
    ("received_seconds", "pcie_rx_bytes_per_second", "seconds"),
    ("sent_bytes", "pcie_tx_bytes_per_second", "integral"),
)
"""(field of the report, reading, statistic of it)."""
_HOST_FIGURES = (
    ("cpu_mean_percent", "cpu_percent", "mean"),
    ("cpu_peak_percent", "cpu_percent", "high"),
    ("cpu_iowait_mean_percent", "cpu_iowait_percent", "mean"),
    ("memory_mean_bytes", "memory_used_bytes", "mean"),
    ("memory_peak_bytes", "memory_used_bytes", "whole_high"),
    ("swap_peak_bytes", "swap_used_bytes", "whole_high"),
    ("shm_peak_bytes", "shm_used_bytes", "whole_high"),
    ("disk_read_bytes", "disk_read_bytes_per_second", "integral"),
    ("disk_written_bytes", "disk_write_bytes_per_second", "integral"),
    ("disk_read_peak_bytes_per_second", "disk_read_bytes_per_second", "high"),
    ("disk_write_peak_bytes_per_second", "disk_write_bytes_per_second", "high"),
    ("network_received_bytes", "network_receive_bytes_per_second", "integral"),
    ("network_sent_bytes", "network_transmit_bytes_per_second", "integral"),
)
_HOST_PROFILES = (
    *("cpu_percent", "memory_used_bytes"),
    *("disk_read_bytes_per_second", "disk_write_bytes_per_second"),
)


def _figures(figures: Sequence[tuple[str, str, str]], sums: Mapping[str, Stat]) -> dict[str, Any]:
    return {name: getattr(sums[of], what) for name, of, what in figures}


def _profiles(
    profiles: Mapping[str, Profile], until: float, names: Iterable[str] | None = None
) -> Profiles:
    """Return the profiles in which something was measured, by their names."""
    made = {}
    for name in profiles if names is None else names:
        if name in profiles:
            low, mean, high = profiles[name].columns(until)
            made[name] = TimeProfile(minimum=tuple(low), mean=tuple(mean), maximum=tuple(high))
    return {name: profile for name, profile in made.items() if profile}


def _stretches(found: Iterable[statistics.Span]) -> tuple[Stretch, ...]:
    return tuple([Stretch(begin_unix_seconds=one.begin, end_unix_seconds=one.end) for one in found])


def _time(time: TimeSums, bucket_seconds: float) -> Time:
    return Time(
        begin_unix_seconds=time.begin or 0.0,
        end_unix_seconds=time.end,
        snapshots=time.snapshots,
        interval_seconds=time.interval_seconds or None,
        covered_seconds=time.covered_seconds,
        gap_count=time.gap_count,
        gap_seconds=time.gap_seconds,
        gaps=_stretches(time.gaps),
        clock_set_back=time.set_back,
        bucket_seconds=bucket_seconds,
    )


def gpu_usage(gpu: GpuStatistics, until: float) -> GpuUsage:
    """Return the use of a GPU; its time profiles end at ``until``."""
    sums, rhythm, identity = gpu.sums, gpu.rhythm, gpu.identity
    energy, energy_from = gpu.energy
    known, shaped = sums.watched_seconds > 0, rhythm.seconds > 0
    profiles = _profiles(gpu.readings.profiles, until, MAIN)
    drawn = profiles.get("busy_percent", TimeProfile())
    throttled = sums.throttled()
    why_unknown = sums.missing
    if sums.lost:
        why_unknown = "the GPU was lost"
    elif identity.mig_instance is not None:
        why_unknown = "the driver reports none for a MIG instance"
    return GpuUsage(
        **{name: getattr(identity, name) for name in _GPU_IDENTITY},
        **_figures(_GPU_FIGURES, gpu.readings.sums),
        seen_seconds=sums.seen_seconds,
        watched_seconds=sums.watched_seconds if known else None,
        busy_readings=sums.busy_readings,
        busy_low_percent=min([x for x in drawn.minimum if x is not None], default=None),
        busy_high_percent=max([x for x in drawn.maximum if x is not None], default=None),
        busy_last_percent=sums.busy_last_percent,
        busy_seconds=min(sums.busy_seconds, sums.watched_seconds) if known else None,
        busy_from_samples=sums.sampled,
        busy_missing=None if known else why_unknown,
        job_memory_peak_bytes=sums.job_bytes.whole_high,
        power_mean_watts=gpu.power_mean_watts,
        power_limit_watts=sums.power_limit_watts,
        energy_joules=energy,
        energy_from=energy_from,
        throttled=None
        if throttled is None
        else tuple([Throttling(reason=reason, seconds=held) for reason, held in throttled]),
        duty=rhythm.duty,
        rhythm_seconds=rhythm.seconds if shaped else None,
        oscillating_seconds=rhythm.oscillating_seconds if shaped else None,
        period_seconds=rhythm.period_seconds,
        swing_seconds=rhythm.swings.mean,
        other_tenant_seconds=sums.tenant_seconds,
        other_tenants_peak=sums.tenants_peak,
        other_users=tuple(sums.users[: statistics.USERS_KEPT]),
        lost=_stretches(sums.lost),
        profiles=profiles,
    )


def _spans(gpu: GpuStatistics, until: float) -> list[Span]:
    """Return the spans of its work and rest, and those in which it was lost, one after another, up
    to ``until``."""
    memory = gpu.readings.profiles.get("memory_used_bytes")
    buckets = () if memory is None else memory.cells()
    held = {begin: _share_above(stat, UNUSED_BYTES) for begin, _, stat in buckets}
    cells = [
        Cell(begin, min(end, until), stat.seconds, stat.total / 100.0, held.get(begin, 0.0))
        for begin, end, stat in gpu.busy_profile.cells()
    ]
    found: list[Span] = []
    # One that comes and goes has no phases.
    lost = gpu.sums.lost if len(gpu.sums.lost) <= LOSSES_SHOWN else []
    for begin, end in [(one.begin, one.end) for one in lost]:
        before = [cell for cell in cells if cell.begin < begin]
        found += spans([cell._replace(end=min(cell.end, begin)) for cell in before])
        found.append(Span("lost", begin, end, end - begin))
        cells = [cell._replace(begin=max(cell.begin, end)) for cell in cells[len(before) :]]
    return [*found, *spans(cells)]


def _share_above(stat: Stat, least: float) -> float:
    """Return the share of the time (0 to 1) in which a reading was at least so high, where it had
    one of two values: its lowest, or its highest."""
    low, mean, high = stat.low or 0.0, stat.mean or 0.0, stat.high or 0.0
    if low >= least or high < least:
        return float(low >= least)
    return (mean - low) / (high - low)


def _usage(sums: statistics.UsageSums) -> dict[str, Any]:
    """Return the fields that a process's and a job's usage share."""
    names = statistics.UsageSums.__struct_fields__
    return {name: getattr(sums, name) for name in names} | {"gpus": tuple(sums.gpus)}


def host_usage(host: HostStatistics, until: float) -> HostUsage:
    """Return the use of the machine around the GPUs."""
    figures = _figures(_HOST_FIGURES, host.readings.sums)
    profiles = _profiles(host.readings.profiles, until, _HOST_PROFILES)
    return HostUsage(**figures, **asdict(host.facts), profiles=profiles)


def job_usage(job: JobStatistics, until: float) -> JobUsage:
    """Return the use of a job, all its processes together."""
    sums, facts = job.sums, asdict(job.sums.facts)
    return JobUsage(
        **_usage(sums) | facts,
        ended_at_unix_seconds=sums.ended_at_unix_seconds,
        run_digest=run_digest(facts),
        ranks=sums.ranks or None,
        cpu_mean_cores=_cores(sums.cpu.mean),
        cpu_peak_cores=_cores(sums.cpu.high),
        cpu_throttled_percent=sums.throttled.mean,
        memory_proportional_peak_bytes=sums.proportional_peak(),
        memory_resident_peak_bytes=sums.resident.whole_high,
        loading=_loading(sums.loading),
        loop=Loop() if sums.loop is None else _loop(sums.loop),
        profiles=_profiles(job.profiles, until),
    )


def _loading(sums: LoadingSums) -> Loading:
    state = sums.main_state
    workers = None if state is None else state.workers
    return Loading(
        sentence=None if state is None else state.sentence,
        loader_workers=workers,
        loader_workers_peak=workers if sums.workers_peak is None else sums.workers_peak,
        loader_workers_started=None if workers is None else sums.workers_started,
        pinned_memory=None if state is None else state.pinned,
        **{name: stat.mean for name, stat in sums.readings.items()},
    )


def _loop(sums: LoopSums) -> Loop:
    ranks = sums.ranks
    waits = [(spent_percent(rank.waits), rank.number) for rank in ranks]
    known = [(percent, number) for percent, number in waits if percent is not None]
    # Of one rank it says nothing more.
    most = max(known, key=lambda one: one[0]) if len(known) > 1 else (None, None)
    shares = {
        f"{name.removesuffix('share')}percent": spent_percent(sums.spent.get(name, Stat()))
        for name in statistics.SHARES
    }
    return Loop(
        reported_seconds=sums.seconds,
        ranks=len(ranks) or None,
        samples_per_second=sums.samples.mean,
        steps=min([rank.steps for rank in ranks if rank.steps is not None], default=None),
        last_epoch=sums.epoch,
        data_wait_most_percent=most[0],
        data_wait_most_rank=most[1],
        compute_on_device=sums.on_device,
        **shares,
        memory_allocated_peak_bytes=sums.allocated.whole_high,
        memory_reserved_peak_bytes=sums.reserved.whole_high,
    )


def run_digest(facts: Mapping[str, Any]) -> str | None:
    """Return a digest that is equal for every run of the same command by the same user in the same
    folder.

    Made from what a ``Job`` says, so that it holds for ended, simulated and replayed jobs too;
    ``None`` where one of the three is not known.
    """
    user, folder, command = (facts.get(n) for n in ("user", "working_directory", "command"))
    words = tuple(command.split()) if command else ()
    if user is None or folder is None or not words:
        return None
    import hashlib  # noqa: PLC0415 - it brings OpenSSL, 3 MiB, which only a report needs

    text = "\0".join((user, folder, *essence(words, folder)))
    return hashlib.sha256(text.encode("utf-8", "surrogatepass")).hexdigest()[:16]


def _cores(percent: float | None) -> float | None:
    return None if percent is None else percent / 100.0
