"""The jobs on the page of ``gpuwatch status``: a few lines for each, or one in full."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime

from gpuwatch.core import units
from gpuwatch.core.model import GpuKey, Host, Job, JobMember, JobRank, Process, Snapshot
from gpuwatch.jobs.words import (
    cores_sentence,
    job_loading_sentence,
    loop_facts,
    role_name,
)
from gpuwatch.outputs.terminal.table import Heading, cut, table, wrap

JOBS_SHOWN = 8
MEMBERS_SHOWN = 40

Bold = Callable[[str], str]

_STATES = {
    "R": "running",
    "S": "sleeping",
    "D": "disk wait",
    "T": "stopped",
    "t": "traced",
    "Z": "ended",
    "I": "sleeping",
}
_DEEPEST = 4
_LABEL_WIDTH = 9
_LINES_MAX = 3
_NAME_WIDTH = 30

_JOB_HEADINGS = (
    Heading("JOB"),
    Heading("USER", text=True, rank=2),
    Heading("GPU"),
    Heading("RANKS"),
    Heading("MAIN CPU", rank=1),
    Heading("WORKER CPU", rank=1),
    Heading("CORES", rank=3),
    Heading("COMMAND", text=True),
)

_RANK_HEADINGS = (
    Heading("RANK"),
    Heading("PID"),
    Heading("GPU"),
    Heading("MAIN CPU", rank=1),
    Heading("WORKERS"),
    Heading("WORKER CPU", rank=1),
    Heading("CPU-WAIT", rank=2),
    Heading("PINNED", text=True),
)
_TOLD_HEADINGS = (Heading("DATA-WAIT"), Heading("COMPUTE", rank=2), Heading("SAMPLES/S", rank=1))
"""Where ranks tell of their own loops."""

_MEMBER_HEADINGS = (
    Heading("PROCESS", text=True),
    Heading("PID"),
    Heading("CPU"),
    Heading("MAIN", rank=2),
    Heading("STATE", text=True, rank=1),
    Heading("CPU-WAIT", rank=3),
    Heading("DISK-WAIT", rank=5),
    Heading("READ", rank=4),
    Heading("WRITE", rank=6),
    Heading("RSS", rank=7),
    Heading("PSS", rank=2),
    Heading("GPU-MEM", rank=3),
    Heading("SM", rank=5),
)


def jobs_block(
    snapshot: Snapshot, labels: Mapping[GpuKey, str], width: int, shown: int | None, bold: Bold
) -> list[str]:
    """Two lines a job: a row of numbers, and how it gets its data."""
    jobs = snapshot.jobs[:shown]
    if not jobs:
        return []
    titles, *rows = table(_JOB_HEADINGS, [_job_row(job, labels) for job in jobs], width)
    indent = " " * (max(len("JOB"), *(len(str(job.pid)) for job in jobs)) + 2)
    lines = [bold(titles)]
    for job, row in zip(jobs, rows, strict=True):
        lines += [row, *_sentence(job_loading_sentence(job), width, indent)]
        told = loop_facts(job, snapshot.taken_at_unix_seconds)
        lines += _sentence(", ".join(told), width, indent) if told else []
    left = len(snapshot.jobs) - len(jobs)
    return [*lines, f"and {left} more (--all shows them)"] if left else lines


def _sentence(text: str, width: int, indent: str) -> list[str]:
    return wrap(text, width, first=indent, later=indent, most=_LINES_MAX)


def _job_row(job: Job, labels: Mapping[GpuKey, str]) -> list[str]:
    return [
        str(job.pid),
        job.user or units.UNKNOWN,
        _gpus(job.gpu_uuids, labels),
        str(len(job.ranks)),
        units.percent(job.main_thread_cpu_percent),
        units.percent(job.loader_worker_cpu_percent),
        units.UNKNOWN if job.usable_cores is None else f"{job.usable_cores:g}",
        job.command or units.UNKNOWN,
    ]


def _gpus(uuids: Iterable[GpuKey], labels: Mapping[GpuKey, str]) -> str:
    """``0-3,5``; ``-`` for none."""
    names = [labels.get(uuid, "?") for uuid in uuids]
    spans: list[list[str]] = []
    for name in names:
        last = spans[-1][-1] if spans else ""
        if last.isdigit() and name.isdigit() and int(name) == int(last) + 1:
            spans[-1].append(name)
        else:
            spans.append([name])
    parts = [",".join(span) if len(span) < 3 else f"{span[0]}-{span[-1]}" for span in spans]
    return ",".join(parts) or units.UNKNOWN


# --- one job in full --------------------------------------------------------------------------


def job_header(job: Job, snapshot: Snapshot, width: int, bold: Bold) -> list[str]:
    """What the job is, where it runs and how it gets its data."""
    command = job.command or f"PID {job.pid}"
    lines = [bold(line) for line in wrap(command, width, later="  ", most=_LINES_MAX)]
    facts = (
        ("job", _identity(job, snapshot.taken_at_unix_seconds)),
        ("reports", loop_facts(job, snapshot.taken_at_unix_seconds)),
        ("runs", _place(job)),
        ("loading", [job_loading_sentence(job).removeprefix("loading ")]),
        ("because", _loading_signs(job)),
        ("cores", _cores(job, snapshot.host)),
        ("uses", _use(job)),
    )
    for label, said in facts:
        if said:
            text = ", ".join(said)
            lines += wrap(
                text,
                width,
                first=f"{label:<{_LABEL_WIDTH}}",
                later=" " * _LABEL_WIDTH,
                most=_LINES_MAX,
            )
    return lines


def _identity(job: Job, now: float) -> list[str]:
    facts = [f"PID {job.pid}"]
    if job.inner_pid is not None and job.inner_pid != job.pid:
        facts[0] += f" ({job.inner_pid} inside its container)"
    if job.user is not None:
        facts[0] += f" of {job.user}"
    started, ended = job.started_at_unix_seconds, job.ended_at_unix_seconds
    if ended is not None:
        lived = math.inf if started is None else ended - started
        after = f" after {units.age(lived)}" if math.isfinite(lived) else ""
        facts.append(f"ended{_clock(ended)}{after}")
        facts += _exit(job.exit_code)
    elif started is not None:
        facts.append(f"for {units.age(now - started)}")
    if job.ranks and job.world_size is not None and job.world_size != len(job.ranks):
        facts.append(f"{len(job.ranks)} of {job.world_size} ranks here")
    elif len(job.ranks) > 1:
        facts.append(f"{len(job.ranks)} ranks")
    if job.launcher is not None:
        facts.append(f"started by {job.launcher}")
    return facts


def _clock(unix_seconds: float) -> str:
    """`` at 12:04:31``; nothing for a time of a recording that is no date."""
    try:
        moment = datetime.fromtimestamp(unix_seconds, tz=UTC).astimezone()
    except (OverflowError, OSError, ValueError):
        return ""
    return moment.strftime(" at %H:%M:%S")


def _exit(code: int | None) -> list[str]:
    if code is None:
        return []
    return [f"exit code {code}" if code >= 0 else f"ended by signal {-code}"]


def _place(job: Job) -> list[str]:
    named = (
        ("in", job.working_directory),
        ("", job.environment),
        ("framework", job.framework),
        ("container", job.container),
        ("pod", job.pod),
        ("Slurm job", job.slurm_job),
    )
    return [f"{what} {name}".strip() for what, name in named if name is not None]


def _loading_signs(job: Job) -> list[str]:
    """What the answers about loading rest on; the reason of an unknown stands in the sentence."""
    signs = []
    for rank in job.ranks:
        if rank.loader_workers is not None:
            signs.append(rank.loader_workers_sign)
        if rank.pinned_memory is not None:
            signs.append(rank.pinned_memory_sign)
    known = list(dict.fromkeys(sign for sign in signs if sign is not None))
    # What differs from rank to rank is in the table of ranks.
    return known if len(known) <= 2 else []


def _cores(job: Job, host: Host) -> list[str]:
    sentence = cores_sentence(job, host)
    facts = [] if sentence is None else [sentence]
    if job.cpu_throttled_percent is not None:
        facts.append(f"CPU throttled {job.cpu_throttled_percent:.0f}% of the time")
    return facts


def _use(job: Job) -> list[str]:
    readings = (
        ("CPU", job.cpu_percent, units.percent),
        ("reads", job.read_bytes_per_second, units.rate),
        ("writes", job.write_bytes_per_second, units.rate),
        ("memory (PSS)", job.memory_proportional_bytes, units.size),
    )
    return [f"{label} {text(value)}" for label, value, text in readings if value is not None]


def ranks_block(job: Job, labels: Mapping[GpuKey, str], width: int, bold: Bold) -> list[str]:
    """A row a rank; none for a job of one, whose header says it all."""
    if len(job.ranks) < 2:
        return []
    rows = [_rank_row(rank, job, labels) for rank in job.ranks]
    headings: tuple[Heading, ...] = _RANK_HEADINGS
    if job.loops:
        headings += _TOLD_HEADINGS
        rows = [row + _told_cells(rank, job) for row, rank in zip(rows, job.ranks, strict=True)]
    titles, *lines = table(headings, rows, width)
    return [bold(titles), *lines]


def _told_cells(rank: JobRank, job: Job) -> list[str]:
    loop = job.loop_of(rank)
    if loop is None:
        return [units.UNKNOWN] * len(_TOLD_HEADINGS)
    return [
        units.share(loop.data_wait_share),
        units.share(loop.compute_share),
        units.samples(loop.samples_per_second),
    ]


def _rank_row(rank: JobRank, job: Job, labels: Mapping[GpuKey, str]) -> list[str]:
    own = next((member for member in job.members if member.key == rank.key), None)
    workers = [
        member
        for member in job.having("loader_worker")
        if member.parent_pid == rank.pid or (member.rank is not None and member.rank == rank.rank)
    ]
    count = units.UNKNOWN if rank.loader_workers is None else str(rank.loader_workers)
    pinned = {True: "on", False: "off", None: units.UNKNOWN}[rank.pinned_memory]
    return [
        units.UNKNOWN if rank.rank is None else str(rank.rank),
        str(rank.pid),
        _gpus(rank.gpu_uuids, labels),
        units.percent(None if own is None else own.main_thread_cpu_percent),
        f"{count}?" if rank.loader_workers_guessed else count,
        units.percent(_mean(member.cpu_percent for member in workers)),
        units.percent(_mean(member.run_queue_wait_percent for member in workers)),
        pinned,
    ]


def _mean(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) / len(known) if known else None


def members_block(
    job: Job, processes: Sequence[Process], width: int, shown: int | None, bold: Bold
) -> list[str]:
    """The tree of the job's processes and what each does."""
    members = job.members[:shown]
    if not members:
        return []
    on_gpus: dict[object, list[Process]] = {}
    for process in processes:
        if process.gpu_uuid is not None:
            on_gpus.setdefault(process.key, []).append(process)
    depths = _depths(job.members)
    rows = [
        _member_row(member, depths[member.key], on_gpus.get(member.key, [])) for member in members
    ]
    titles, *lines = table(_MEMBER_HEADINGS, rows, width)
    left = len(job.members) - len(members)
    more = [f"and {left} more (--all shows them)"] if left else []
    return [bold(titles), *lines, *more, *_guesses(members, width)]


def _depths(members: Sequence[JobMember]) -> dict[object, int]:
    depths: dict[object, int] = {}
    by_pid: dict[int, int] = {}
    for member in members:
        above = by_pid.get(member.parent_pid) if member.parent_pid is not None else None
        depth = 0 if above is None else min(_DEEPEST, above + 1)
        depths[member.key] = by_pid[member.pid] = depth
    return depths


def _member_row(member: JobMember, depth: int, on_gpus: Sequence[Process]) -> list[str]:
    name = role_name(member)
    if member.role in {"other", "helper"} and member.name:
        name = f"{member.name} ({name})"
    return [
        "  " * depth + cut(name, _NAME_WIDTH),
        str(member.pid),
        units.percent(member.cpu_percent),
        units.percent(member.main_thread_cpu_percent),
        _STATES.get(member.state or "", member.state or units.UNKNOWN),
        units.percent(member.run_queue_wait_percent),
        units.percent(member.disk_wait_percent),
        units.rate(member.read_bytes_per_second),
        units.rate(member.write_bytes_per_second),
        units.size(member.memory_resident_bytes),
        units.size(member.memory_proportional_bytes),
        units.size(_sum(process.gpu_memory_bytes for process in on_gpus)),
        units.percent(_mean(process.gpu_busy_percent for process in on_gpus)),
    ]


def _sum(values: Iterable[float | None]) -> float | None:
    known = [value for value in values if value is not None]
    return sum(known) if known else None


def _guesses(members: Sequence[JobMember], width: int) -> list[str]:
    """What the question marks rest on."""
    signs = dict.fromkeys(
        f"{role_name(member)}: {member.role_sign}"
        for member in members
        if member.role_guessed and member.role_sign
    )
    return [line for sign in list(signs)[:3] for line in wrap(sign, width, later="  ", most=2)]
