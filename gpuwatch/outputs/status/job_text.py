"""The jobs on the page of ``gpuwatch status``: a few lines for each, or one in full."""

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gpuwatch.core import units
from gpuwatch.core.model import GpuKey, Host, Job, JobMember, JobRank, Process, Snapshot
from gpuwatch.jobs.words import cores_sentence, job_loading_sentence, loop_facts, role_name
from gpuwatch.outputs.status.columns import (
    Columns,
    Paint,
    mean,
    more_text,
    rows_of,
    said,
    titled,
    total,
)
from gpuwatch.outputs.terminal.table import Heading, cut, wrap

JOBS_SHOWN = 8
MEMBERS_SHOWN = 40

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


def jobs_block(
    snapshot: Snapshot, labels: Mapping[GpuKey, str], width: int, shown: int | None, bold: Paint
) -> list[str]:
    """Two lines a job: a row of numbers, and how it gets its data."""
    jobs = snapshot.jobs[:shown]
    if not jobs:
        return []
    columns: Columns[Job] = (
        (Heading("JOB"), lambda job: str(job.pid)),
        (Heading("USER", text=True, rank=2), lambda job: job.user or units.UNKNOWN),
        (Heading("GPU"), lambda job: _gpus(job, labels)),
        (Heading("RANKS"), lambda job: str(len(job.ranks))),
        (Heading("MAIN CPU", rank=1), lambda job: units.percent(job.main_thread_cpu_percent)),
        (Heading("WORKER CPU", rank=1), lambda job: units.percent(job.loader_worker_cpu_percent)),
        (Heading("CORES", rank=3), _usable_cores),
        (Heading("COMMAND", text=True), lambda job: job.command or units.UNKNOWN),
    )
    titles, *rows = titled(columns, rows_of(columns, jobs), width, bold)
    indent = " " * (max(len("JOB"), *(len(str(job.pid)) for job in jobs)) + 2)
    lines = [titles]
    for job, row in zip(jobs, rows, strict=True):
        reported = loop_facts(job, snapshot.taken_at_unix_seconds)
        lines += [row, *_sentence(job_loading_sentence(job), width, indent)]
        lines += _sentence(", ".join(reported), width, indent)
    return lines + more_text(len(snapshot.jobs) - len(jobs))


def _sentence(text: str, width: int, indent: str) -> list[str]:
    return wrap(text, width, first=indent, later=indent, most=_LINES_MAX) if text else []


def _usable_cores(job: Job) -> str:
    return units.UNKNOWN if job.usable_cores is None else f"{job.usable_cores:g}"


def _gpus(user: Job | JobRank, labels: Mapping[GpuKey, str]) -> str:
    return units.ranges(labels.get(uuid, "?") for uuid in user.gpu_uuids)


# --- one job in full --------------------------------------------------------------------------


def job_header(job: Job, snapshot: Snapshot, width: int, bold: Paint) -> list[str]:
    """What the job is, where it runs and how it gets its data."""
    command = job.command or f"PID {job.pid}"
    uses = said(
        ("CPU", job.cpu_percent, units.percent),
        ("reads", job.read_bytes_per_second, units.rate),
        ("writes", job.write_bytes_per_second, units.rate),
        ("memory (PSS)", job.memory_proportional_bytes, units.size),
    )
    lines = [bold(line) for line in wrap(command, width, later="  ", most=_LINES_MAX)]
    facts = (
        ("job", _identity(job, snapshot.taken_at_unix_seconds)),
        ("reports", loop_facts(job, snapshot.taken_at_unix_seconds)),
        ("runs", _place(job)),
        ("loading", [job_loading_sentence(job).removeprefix("loading ")]),
        ("because", _loading_signs(job)),
        ("cores", _cores(job, snapshot.host)),
        ("uses", uses),
    )
    later = " " * _LABEL_WIDTH
    for label, parts in facts:
        first = f"{label:<{_LABEL_WIDTH}}"
        text = ", ".join(parts)
        lines += wrap(text, width, first=first, later=later, most=_LINES_MAX) if text else []
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


def ranks_block(job: Job, labels: Mapping[GpuKey, str], width: int, bold: Paint) -> list[str]:
    """A row per rank; none for a job of one, whose header says it all."""
    if len(job.ranks) < 2:
        return []
    columns: Columns[_Rank] = (
        (Heading("RANK"), lambda one: units.count(one.rank.rank)),
        (Heading("PID"), lambda one: str(one.rank.pid)),
        (Heading("GPU"), lambda one: _gpus(one.rank, labels)),
        (Heading("MAIN CPU", rank=1), lambda one: units.percent(one.main_thread_percent)),
        (Heading("WORKERS"), lambda one: one.workers_text),
        (Heading("WORKER CPU", rank=1), lambda one: one.mean_of_workers("cpu_percent")),
        (Heading("CPU-WAIT", rank=2), lambda one: one.mean_of_workers("run_queue_wait_percent")),
        (Heading("PINNED", text=True), lambda one: _PINNED[one.rank.pinned_memory]),
    )
    if job.loops:
        columns = (
            *columns,
            (Heading("DATA-WAIT"), lambda one: units.share(one.reported("data_wait_share"))),
            (Heading("COMPUTE", rank=2), lambda one: units.share(one.reported("compute_share"))),
            (
                Heading("SAMPLES/S", rank=1),
                lambda one: units.samples(one.reported("samples_per_second")),
            ),
        )
    return titled(columns, rows_of(columns, [_Rank(job, rank) for rank in job.ranks]), width, bold)


_PINNED = {True: "on", False: "off", None: units.UNKNOWN}


@dataclass(frozen=True, slots=True)
class _Rank:
    """A row of the table of ranks."""

    job: Job
    rank: JobRank

    @property
    def main_thread_percent(self) -> float | None:
        members = (one for one in self.job.members if one.key == self.rank.key)
        return next((one.main_thread_cpu_percent for one in members), None)

    @property
    def workers_text(self) -> str:
        count = units.count(self.rank.loader_workers)
        return f"{count}?" if self.rank.loader_workers_guessed else count

    def mean_of_workers(self, name: str) -> str:
        rank = self.rank
        workers = [
            one
            for one in self.job.having("loader_worker")
            if one.parent_pid == rank.pid or (one.rank is not None and one.rank == rank.rank)
        ]
        return units.percent(mean(getattr(one, name) for one in workers))

    def reported(self, name: str) -> float | None:
        """Of its own loop."""
        loop = self.job.loop_of(self.rank)
        return None if loop is None else getattr(loop, name)


@dataclass(frozen=True, slots=True)
class _Member:
    """A row of the table of processes."""

    member: JobMember
    depth: int
    on_gpus: Sequence[Process]


def _member_name(row: _Member) -> str:
    member = row.member
    name = role_name(member)
    if member.role in {"other", "helper"} and member.name:
        name = f"{member.name} ({name})"
    return "  " * row.depth + cut(name, _NAME_WIDTH)


def _state(row: _Member) -> str:
    state = row.member.state or units.UNKNOWN
    return _STATES.get(state, state)


_MEMBER_COLUMNS: Columns[_Member] = (
    (Heading("PROCESS", text=True), _member_name),
    (Heading("PID"), lambda row: str(row.member.pid)),
    (Heading("CPU"), lambda row: units.percent(row.member.cpu_percent)),
    (Heading("MAIN", rank=2), lambda row: units.percent(row.member.main_thread_cpu_percent)),
    (Heading("STATE", text=True, rank=1), _state),
    (Heading("CPU-WAIT", rank=3), lambda row: units.percent(row.member.run_queue_wait_percent)),
    (Heading("DISK-WAIT", rank=5), lambda row: units.percent(row.member.disk_wait_percent)),
    (Heading("READ", rank=4), lambda row: units.rate(row.member.read_bytes_per_second)),
    (Heading("WRITE", rank=6), lambda row: units.rate(row.member.write_bytes_per_second)),
    (Heading("RSS", rank=7), lambda row: units.size(row.member.memory_resident_bytes)),
    (Heading("PSS", rank=2), lambda row: units.size(row.member.memory_proportional_bytes)),
    (
        Heading("GPU-MEM", rank=3),
        lambda row: units.size(total(one.gpu_memory_bytes for one in row.on_gpus)),
    ),
    (
        Heading("SM", rank=5),
        lambda row: units.percent(mean(one.gpu_busy_percent for one in row.on_gpus)),
    ),
)


def members_block(
    job: Job, processes: Sequence[Process], width: int, shown: int | None, bold: Paint
) -> list[str]:
    """The tree of the job's processes and what each does."""
    members = job.members[:shown]
    if not members:
        return []
    on_gpus: dict[object, list[Process]] = {}
    for process in processes:
        if process.gpu_uuid is not None:
            on_gpus.setdefault(process.key, []).append(process)
    depths: dict[int | None, int] = {}
    table = []
    for member in members:
        depth = min(_DEEPEST, depths.get(member.parent_pid, -1) + 1)
        depths[member.pid] = depth
        table.append(_Member(member, depth, on_gpus.get(member.key, [])))
    lines = titled(_MEMBER_COLUMNS, rows_of(_MEMBER_COLUMNS, table), width, bold)
    return [*lines, *more_text(len(job.members) - len(members)), *_guesses(members, width)]


def _guesses(members: Sequence[JobMember], width: int) -> list[str]:
    """What the question marks rest on."""
    signs = dict.fromkeys(
        f"{role_name(member)}: {member.role_sign}"
        for member in members
        if member.role_guessed and member.role_sign
    )
    return [line for sign in list(signs)[:3] for line in wrap(sign, width, later="  ", most=2)]
