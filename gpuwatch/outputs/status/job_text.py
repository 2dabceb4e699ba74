"""The jobs on the page of ``gpuwatch status``: a few lines for each, or one in full."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass

from gpuwatch.core import units
from gpuwatch.core.bounds import mean, total
from gpuwatch.core.model import GpuKey, Host, Job, JobMember, JobRank, Process, Snapshot
from gpuwatch.jobs.words import cores_sentence, job_loading_sentence, loop_facts, role_name
from gpuwatch.outputs.terminal import BOLD, Column, Page, cut, wrap

JOBS_SHOWN = 8
MEMBERS_SHOWN = 40

_STATES = {
    **{"R": "running", "S": "sleeping", "D": "disk wait", "T": "stopped", "t": "traced"},
    **{"Z": "ended", "I": "sleeping"},
}
_DEEPEST = 4
_LABEL_WIDTH = 9
_LINES_MAX = 3
_NAME_WIDTH = 30


def said(*readings: tuple[str, float | None, Callable[[float], str]]) -> list[str]:
    """Label and value of what was read."""
    return [f"{label} {write(value)}" for label, value, write in readings if value is not None]


def more(page: Page, left_out: int) -> None:
    if left_out:
        page.say(f"and {left_out} more (--all shows them)")


def jobs(page: Page, snapshot: Snapshot, labels: Mapping[GpuKey, str], shown: int | None) -> None:
    """Two lines a job: a row of numbers, and how it gets its data."""
    jobs = snapshot.jobs[:shown]
    if not jobs:
        return
    indent = " " * (max(len("JOB"), *(len(str(job.pid)) for job in jobs)) + 2)

    def below(job: Job) -> Iterable[str]:
        reported = ", ".join(loop_facts(job, snapshot.taken_at_unix_seconds))
        for text in (job_loading_sentence(job), reported):
            yield from wrap(text, page.width, first=indent, later=indent, most=_LINES_MAX)

    columns: tuple[Column[Job], ...] = (
        Column("JOB", lambda job: str(job.pid)),
        Column("USER", lambda job: job.user or units.UNKNOWN, True, 2),
        Column("GPU", lambda job: _gpus(job, labels)),
        Column("RANKS", lambda job: str(len(job.ranks))),
        Column("MAIN CPU", lambda job: units.percent(job.main_thread_cpu_percent), rank=1),
        Column("WORKER CPU", lambda job: units.percent(job.loader_worker_cpu_percent), rank=1),
        Column("CORES", _usable_cores, rank=3),
        Column("COMMAND", lambda job: job.command or units.UNKNOWN, True),
    )
    page.gap()
    page.items(columns, jobs, below=below)
    more(page, len(snapshot.jobs) - len(jobs))


def _usable_cores(job: Job) -> str:
    return units.UNKNOWN if job.usable_cores is None else f"{job.usable_cores:g}"


def _gpus(user: Job | JobRank, labels: Mapping[GpuKey, str]) -> str:
    return units.ranges(labels.get(uuid, "?") for uuid in user.gpu_uuids)


def header(page: Page, job: Job, snapshot: Snapshot) -> None:
    command = wrap(job.command or f"PID {job.pid}", page.width, later="  ", most=_LINES_MAX)
    page.gap()
    page.lines += [page.paint(line, BOLD) for line in command]
    uses = said(
        ("CPU", job.cpu_percent, units.percent),
        ("reads", job.read_bytes_per_second, units.rate),
        ("writes", job.write_bytes_per_second, units.rate),
        ("memory (PSS)", job.memory_proportional_bytes, units.size),
    )
    facts = (
        ("job", _identity(job, snapshot.taken_at_unix_seconds)),
        ("reports", loop_facts(job, snapshot.taken_at_unix_seconds)),
        ("runs", _place(job)),
        ("loading", [job_loading_sentence(job).removeprefix("loading ")]),
        ("cores", _cores(job, snapshot.host)),
        ("uses", uses),
    )
    for label, parts in facts:
        first, later = label.ljust(_LABEL_WIDTH), " " * _LABEL_WIDTH
        page.lines += wrap(", ".join(parts), page.width, first=first, later=later, most=_LINES_MAX)


def _identity(job: Job, now: float) -> list[str]:
    facts = [f"PID {job.pid}"]
    if job.inner_pid is not None and job.inner_pid != job.pid:
        facts[0] += f" ({job.inner_pid} inside its container)"
    if job.user is not None:
        facts[0] += f" of {job.user}"
    started, ended = job.started_at_unix_seconds, job.ended_at_unix_seconds
    if ended is not None:
        after = "" if started is None else f" after {units.age(ended - started)}"
        facts.append(f"ended at {time.strftime('%H:%M:%S', time.localtime(ended))}{after}")
        facts += [] if job.exit_code is None else [units.exit_words(job.exit_code)]
    elif started is not None:
        facts.append(f"for {units.age(now - started)}")
    if job.ranks and job.world_size is not None and job.world_size != len(job.ranks):
        facts.append(f"{len(job.ranks)} of {job.world_size} ranks here")
    elif len(job.ranks) > 1:
        facts.append(f"{len(job.ranks)} ranks")
    if job.launcher is not None:
        facts.append(f"started by {job.launcher}")
    return facts


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


def _cores(job: Job, host: Host) -> list[str]:
    sentence = cores_sentence(job, host)
    facts = [] if sentence is None else [sentence]
    if job.cpu_throttled_percent is not None:
        facts.append(f"CPU throttled {job.cpu_throttled_percent:.0f}% of the time")
    return facts


def ranks(page: Page, job: Job, labels: Mapping[GpuKey, str]) -> None:
    """A row per rank; none for a job of one, whose header says it all."""
    if len(job.ranks) < 2:
        return
    columns: tuple[Column[_Rank], ...] = (
        Column("RANK", lambda one: units.count(one.rank.rank)),
        Column("PID", lambda one: str(one.rank.pid)),
        Column("GPU", lambda one: _gpus(one.rank, labels)),
        Column("MAIN CPU", lambda one: units.percent(one.main_thread_percent), rank=1),
        Column("WORKERS", lambda one: one.workers_text),
        Column("WORKER CPU", lambda one: one.mean_of_workers("cpu_percent"), rank=1),
        Column("CPU-WAIT", lambda one: one.mean_of_workers("run_queue_wait_percent"), rank=2),
        Column("PINNED", lambda one: _PINNED[one.rank.pinned_memory], True),
    )
    if job.loops:
        columns += (
            Column("DATA-WAIT", lambda one: units.share(one.reported("data_wait_share"))),
            Column("COMPUTE", lambda one: units.share(one.reported("compute_share")), rank=2),
            Column("SAMPLES/S", lambda one: units.samples(one.reported("samples_per_second")),
                   rank=1),
        )  # fmt: skip
    page.gap()
    page.items(columns, [_Rank(job, rank) for rank in job.ranks])


_PINNED = {True: "on", False: "off", None: units.UNKNOWN}


@dataclass(frozen=True, slots=True)
class _Rank:
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
        loop = self.job.loop_of(self.rank)
        return None if loop is None else getattr(loop, name)


@dataclass(frozen=True, slots=True)
class _Member:
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


_MEMBER_COLUMNS: tuple[Column[_Member], ...] = (
    Column("PROCESS", _member_name, True),
    Column("PID", lambda row: str(row.member.pid)),
    Column("CPU", lambda row: units.percent(row.member.cpu_percent)),
    Column("MAIN", lambda row: units.percent(row.member.main_thread_cpu_percent), rank=2),
    Column("STATE", _state, True, 1),
    Column("CPU-WAIT", lambda row: units.percent(row.member.run_queue_wait_percent), rank=3),
    Column("DISK-WAIT", lambda row: units.percent(row.member.disk_wait_percent), rank=5),
    Column("READ", lambda row: units.rate(row.member.read_bytes_per_second), rank=4),
    Column("WRITE", lambda row: units.rate(row.member.write_bytes_per_second), rank=6),
    Column("RSS", lambda row: units.size(row.member.memory_resident_bytes), rank=7),
    Column("PSS", lambda row: units.size(row.member.memory_proportional_bytes), rank=2),
    Column("GPU-MEM", lambda row: units.size(total(x.gpu_memory_bytes for x in row.on_gpus)),
           rank=3),
    Column("SM", lambda row: units.percent(mean(x.gpu_busy_percent for x in row.on_gpus)), rank=5),
)  # fmt: skip


def members(page: Page, job: Job, processes: Sequence[Process], shown: int | None) -> None:
    members = job.members[:shown]
    if not members:
        return
    on_gpus: dict[object, list[Process]] = {}
    for process in processes:
        if process.gpu_uuid is not None:
            on_gpus.setdefault(process.key, []).append(process)
    depths: dict[int | None, int] = {}
    rows = []
    for member in members:
        depth = min(_DEEPEST, depths.get(member.parent_pid, -1) + 1)
        depths[member.pid] = depth
        rows.append(_Member(member, depth, on_gpus.get(member.key, [])))
    page.gap()
    page.items(_MEMBER_COLUMNS, rows)
    more(page, len(job.members) - len(members))
