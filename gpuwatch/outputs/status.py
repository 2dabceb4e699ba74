"""``gpuwatch status``: one snapshot as a page of plain text, or the attached job in it."""

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime
from operator import attrgetter
from typing import Any

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.core.bounds import mean, total
from gpuwatch.core.model import (
    Gpu,
    GpuKey,
    Host,
    Job,
    JobMember,
    JobRank,
    Process,
    Snapshot,
    TrainingLoop,
)
from gpuwatch.core.registry import GPU, HOST, LOOP, MAIN, MEMBER, PROCESS, Field
from gpuwatch.jobs.words import cores_sentence, job_loading_sentence, loop_facts, role_name
from gpuwatch.outputs.terminal import BOLD, RED, YELLOW, Column, Page, cut, wrap

WIDTH_WITHOUT_TERMINAL = 120
WIDTH_MIN = 40

PROCESSES_SHOWN = 20
_SEVERITIES = {"error": ("error", RED), "info": ("note", ""), "warning": ("warning", YELLOW)}

_BUSY = GPU["busy_percent"]


def status_page(
    snapshot: Snapshot,
    *,
    width: int = WIDTH_WITHOUT_TERMINAL,
    colour: bool = False,
    processes_shown: int | None = PROCESSES_SHOWN,
) -> str:
    """Return the page, without a line end; with an attached job in the snapshot it is about that
    job.

    ``processes_shown`` is how long a list of processes may be; ``None``: no list is shortened.
    """
    page = Page(max(width, WIDTH_MIN), colour)
    attached = next((job for job in snapshot.jobs if job.attached), None)
    labels = {gpu.uuid: units.gpu_label(gpu) for gpu in snapshot.gpus}
    shown = processes_shown
    absent = _why_no_gpu(snapshot)
    _title(page, snapshot)
    if attached is None:
        _gpu_table(page, snapshot.gpus, absent or "No GPU to show.")
        _host_facts(page, snapshot.host)
        _job_table(page, snapshot, labels, None if shown is None else JOBS_SHOWN)
        _process_table(page, snapshot, labels, shown)
    else:
        _job_header(page, attached, snapshot)
        _gpu_table(page, snapshot.gpus, "It uses no GPU.")
        _rank_table(page, attached, labels)
        most = None if shown is None else MEMBERS_SHOWN
        _member_table(page, attached, snapshot.processes, most)
        _host_facts(page, snapshot.host)
    page.gap()
    for problem in snapshot.problems:
        if problem.message == absent:
            continue
        word, style = _SEVERITIES.get(problem.severity, _SEVERITIES["warning"])
        page.say(f"{word}: {problem.message}", style=style, later="  ")
    return "\n".join(page.lines).rstrip("\n")


def _why_no_gpu(snapshot: Snapshot) -> str | None:
    """Return why there is no GPU to list: to somebody who asks what there is that is the answer,
    and no error."""
    said = [one.message for one in snapshot.problems if one.source == "nvml" and not one.target]
    return said[0] if said and not snapshot.gpus else None


def _title(page: Page, snapshot: Snapshot) -> None:
    taken = datetime.fromtimestamp(snapshot.taken_at_unix_seconds, tz=UTC).astimezone()
    # Second, so that no narrow width can cut it off.
    parts = [f"gpuwatch {__version__}", "SIMULATED" if snapshot.simulated else ""]
    parts += [snapshot.host.name, taken.strftime("%Y-%m-%d %H:%M:%S")]
    if snapshot.gpus:
        identity = snapshot.gpus[0].identity
        parts += [f"driver {identity.driver_version}"] if identity.driver_version else []
        parts += [f"CUDA {identity.cuda_version}"] if identity.cuda_version else []
    page.lines.append(page.paint(cut("  ".join(filter(None, parts)), page.width), BOLD))


def _age(gpu: Gpu) -> str:
    """Return how old the oldest of its main numbers is, where one is late."""
    ages = [age for name, age in gpu.reading.late_readings if name in MAIN]
    return f"{units.age(max(ages))} ago" if ages else units.UNKNOWN


def _pcie_link(gpu: Gpu) -> str:
    generation, lanes = gpu.reading.pcie_generation, gpu.reading.pcie_width
    if generation is None or lanes is None:
        return units.UNKNOWN
    return f"gen{generation} x{lanes}"


def _throttled(gpu: Gpu) -> str:
    reasons = gpu.reading.throttle_reasons
    if reasons is None:
        return units.UNKNOWN
    # An idle GPU lowers its clocks: true, but nothing holds it back.
    return ", ".join(reason for reason in reasons if reason != "gpu_idle")


def _column(field: Field, rank: int = 0, of: str = "", *, long: bool = False) -> Column[Any]:
    """Return the column of a reading; ``of``: where an item has it, ``reading.``."""
    read = attrgetter(f"{of}{field.name}")
    heading = field.heading if long else field.short_heading
    return Column(heading, lambda item: field.text(read(item)), rank=rank)


def _limited(field: Field, rank: int) -> Column[Gpu]:
    """Return the column of a reading of a GPU with its limit."""
    limit = attrgetter(f"{'reading' if field.limit in GPU else 'identity'}.{field.limit}")
    read = attrgetter(f"reading.{field.name}")
    return Column(field.short_heading, lambda gpu: field.text(read(gpu), limit(gpu)), rank=rank)


_GPU_COLUMNS: tuple[Column[Gpu], ...] = (
    Column("GPU", units.gpu_label),
    Column("NAME", lambda gpu: gpu.identity.name, "text", 3),
    Column(_BUSY.heading, lambda gpu: "lost" if gpu.lost else _BUSY.text(gpu.reading.busy_percent)),
    Column("READ", _age, rank=1),
    Column(GPU["memory_used_bytes"].heading, units.gpu_memory),
    _limited(GPU["power_watts"], 1),
    _limited(GPU["temperature_celsius"], 2),
    _column(GPU["sm_clock_mhz"], 5, "reading.", long=True),
    _column(GPU["performance_state"], 9, "reading."),
    _column(GPU["pcie_rx_bytes_per_second"], 6, "reading."),
    _column(GPU["pcie_tx_bytes_per_second"], 6, "reading."),
    Column(GPU["pcie_generation"].short_heading, _pcie_link, rank=7),
    _column(GPU["sm_active_percent"], 8, "reading."),
    _column(GPU["tensor_active_percent"], 8, "reading."),
    _column(GPU["fan_percent"], 9, "reading."),
    Column("THROTTLED BY", _throttled, "text", 4),
)


def _gpu_table(page: Page, gpus: Sequence[Gpu], without: str) -> None:
    page.gap()
    if gpus:
        page.items(_GPU_COLUMNS, gpus, style=lambda gpu: RED if gpu.lost else "")
    else:
        page.say(without)


def _host_facts(page: Page, host: Host) -> None:
    page.gap()
    cores = "" if host.core_count is None else f" of {host.core_count} cores"
    fewer = host.usable_cores is not None and host.usable_cores != host.core_count
    loads = (host.load_average_1_minute, host.load_average_5_minutes, host.load_average_15_minutes)
    load_text = " ".join(f"{one:.1f}" for one in loads if one is not None)
    waits = _readings(host, [f"pressure_{what}_some_percent" for what in _WAITED_FOR])
    sizes = [f"{what}_used_bytes" for what in ("memory", "swap", "shm")]
    if host.swap_total_bytes == 0:
        sizes.remove("swap_used_bytes")
    groups = [
        [
            *[f"{one}{cores}" for one in _readings(host, ["cpu_percent"])],
            *([f"{host.usable_cores:g} usable from here"] if fewer else []),
            *_readings(host, ["cpu_iowait_percent"]),
            *_read_facts(("load", loads[0], lambda _: load_text)),
        ],
        _readings(host, sizes),
        _readings(host, [f"{what}_bytes_per_second" for what in _HOST_RATES]),
        [f"tasks waiting: for {waits[0]}", *[f"for {one}" for one in waits[1:]]] if waits else [],
    ]
    for facts in groups:
        page.facts(facts, later="  ")


_WAITED_FOR = ("cpu", "io", "memory")
_HOST_RATES = ("disk_read", "disk_write", "network_receive", "network_transmit")


def _readings(host: Host, names: Iterable[str]) -> list[str]:
    """Return label and value of each reading that is known, with its limit where it has one."""
    found = [(HOST[name], getattr(host, name)) for name in names]
    return [
        f"{one.label} {one.text(value, getattr(host, one.limit) if one.limit else None)}"
        for one, value in found
        if value is not None
    ]


def _process_table(
    page: Page, snapshot: Snapshot, labels: Mapping[GpuKey, str], shown: int | None
) -> None:
    """Print processes by GPU, the largest first; loader workers, which are alike, are rows only of
    ``--all``."""
    if not snapshot.processes:
        return
    places = {gpu.uuid: place for place, gpu in enumerate(snapshot.gpus)}

    def order(process: Process) -> tuple[float, ...]:
        place = places.get(process.gpu_uuid or "", len(places))
        return (place, -(process.gpu_memory_bytes or 0), -(process.cpu_percent or 0), process.pid)

    folded = {
        member.key
        for job in snapshot.jobs
        if shown is not None
        for member in job.having("loader_worker")
        if not member.orphaned
    }
    in_order = sorted(snapshot.processes, key=order)
    rows = [one for one in in_order if one.gpu_uuid or one.key not in folded][:shown]

    def time(process: Process) -> str:
        started = process.started_at_unix_seconds
        return units.age(None if started is None else snapshot.taken_at_unix_seconds - started)

    columns: tuple[Column[Process], ...] = (
        Column("GPU", lambda one: labels.get(one.gpu_uuid, "?") if one.gpu_uuid else units.UNKNOWN),
        Column("PID", lambda one: str(one.pid)),
        Column("USER", lambda one: one.user or units.UNKNOWN, "text", 3),
        _column(PROCESS["gpu_memory_bytes"]),
        _column(PROCESS["gpu_busy_percent"], 1),
        _column(PROCESS["cpu_percent"], 1),
        _column(PROCESS["memory_resident_bytes"], 2),
        Column("TIME", time, rank=4),
        Column("COMMAND", lambda one: one.command or one.name or units.UNKNOWN, "text"),
    )
    page.gap()
    page.items(columns, rows)
    _say_left_out(page, len(snapshot.processes) - len(rows))


# --- jobs: a few lines for each, or one in full -----------------------------------------------

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


def _read_facts(*readings: tuple[str, float | None, Callable[[float], str]]) -> list[str]:
    """Return label and value of each reading that is known."""
    return [f"{label} {write(value)}" for label, value, write in readings if value is not None]


def _say_left_out(page: Page, left_out: int) -> None:
    if left_out:
        page.say(f"and {left_out} more (--all shows them)")


def _job_table(
    page: Page, snapshot: Snapshot, labels: Mapping[GpuKey, str], shown: int | None
) -> None:
    """Print two lines a job: a row of numbers, and how it gets its data."""
    listed = snapshot.jobs[:shown]
    if not listed:
        return
    indent = " " * (max(len("JOB"), *(len(str(job.pid)) for job in listed)) + 2)

    def below(job: Job) -> Iterable[str]:
        reported = ", ".join(loop_facts(job, snapshot.taken_at_unix_seconds))
        for text in (job_loading_sentence(job), reported):
            yield from wrap(text, page.width, first=indent, later=indent, most=_LINES_MAX)

    columns: tuple[Column[Job], ...] = (
        Column("JOB", lambda job: str(job.pid)),
        Column("USER", lambda job: job.user or units.UNKNOWN, "text", 2),
        Column("GPU", lambda job: _gpus(job, labels)),
        Column("RANKS", lambda job: str(len(job.ranks))),
        Column("MAIN CPU", lambda job: units.percent(job.main_thread_cpu_percent), rank=1),
        Column("WORKER CPU", lambda job: units.percent(job.loader_worker_cpu_percent), rank=1),
        Column("CORES", _usable_cores, rank=3),
        Column("COMMAND", lambda job: job.command or units.UNKNOWN, "text"),
    )
    page.gap()
    page.items(columns, listed, below=below)
    _say_left_out(page, len(snapshot.jobs) - len(listed))


_QUEUE = MEMBER["run_queue_wait_percent"]


def _usable_cores(job: Job) -> str:
    return units.UNKNOWN if job.usable_cores is None else f"{job.usable_cores:g}"


def _gpus(user: Job | JobRank, labels: Mapping[GpuKey, str]) -> str:
    return units.ranges(labels.get(uuid, "?") for uuid in user.gpu_uuids)


def _job_header(page: Page, job: Job, snapshot: Snapshot) -> None:
    command = wrap(job.command or f"PID {job.pid}", page.width, later="  ", most=_LINES_MAX)
    page.gap()
    page.lines += [page.paint(line, BOLD) for line in command]
    uses = _read_facts(
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
        facts.append(f"ended at {units.clock(ended)}{after}")
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


def _rank_table(page: Page, job: Job, labels: Mapping[GpuKey, str]) -> None:
    """Print a row for each rank; none for a job of one, whose header says it all."""
    if len(job.ranks) < 2:
        return
    columns: tuple[Column[_RankRow], ...] = (
        Column("RANK", lambda one: units.count(one.rank.rank)),
        Column("PID", lambda one: str(one.rank.pid)),
        Column("GPU", lambda one: _gpus(one.rank, labels)),
        Column("MAIN CPU", lambda one: units.percent(one.main_thread_percent), rank=1),
        Column("WORKERS", lambda one: one.workers_text),
        Column("WORKER CPU", lambda one: one.mean_of_workers("cpu_percent"), rank=1),
        Column(_QUEUE.heading, lambda one: one.mean_of_workers(_QUEUE.name), rank=2),
        Column("PINNED", lambda one: _PINNED[one.rank.pinned_memory], "text"),
    )
    if job.loops:
        columns += (
            _column(LOOP["data_wait_share"], 0, "loop.", long=True),
            _column(LOOP["compute_share"], 2, "loop."),
            _column(LOOP["samples_per_second"], 1, "loop.", long=True),
        )
    page.gap()
    page.items(columns, [_RankRow(job, rank) for rank in job.ranks])


_PINNED = {True: "on", False: "off", None: units.UNKNOWN}


@dataclass(frozen=True, slots=True)
class _RankRow:
    job: Job
    rank: JobRank

    @property
    def main_thread_percent(self) -> float | None:
        _member_table = (one for one in self.job.members if one.key == self.rank.key)
        return next((one.main_thread_cpu_percent for one in _member_table), None)

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

    @property
    def loop(self) -> TrainingLoop:
        """Report of the rank on its loop, without readings where it makes none."""
        return self.job.loop_of(self.rank) or TrainingLoop(pid=self.rank.pid)


@dataclass(frozen=True, slots=True)
class _MemberRow:
    member: JobMember
    depth: int
    on_gpus: Sequence[Process]

    @property
    def gpu_memory_bytes(self) -> float | None:
        return total(one.gpu_memory_bytes for one in self.on_gpus)

    @property
    def gpu_busy_percent(self) -> float | None:
        return mean(one.gpu_busy_percent for one in self.on_gpus)


def _member_name(row: _MemberRow) -> str:
    member = row.member
    name = role_name(member)
    if member.role in {"other", "helper"} and member.name:
        name = f"{member.name} ({name})"
    return "  " * row.depth + cut(name, _NAME_WIDTH)


def _member_state(row: _MemberRow) -> str:
    state = row.member.state or units.UNKNOWN
    return _STATES.get(state, state)


_MEMBER_COLUMNS: tuple[Column[_MemberRow], ...] = (
    Column("PROCESS", _member_name, "text"),
    Column("PID", lambda row: str(row.member.pid)),
    _column(MEMBER["cpu_percent"], 0, "member."),
    _column(MEMBER["main_thread_cpu_percent"], 2, "member."),
    Column("STATE", _member_state, "text", 1),
    _column(_QUEUE, 3, "member.", long=True),
    _column(MEMBER["disk_wait_percent"], 5, "member.", long=True),
    _column(MEMBER["read_bytes_per_second"], 4, "member."),
    _column(MEMBER["write_bytes_per_second"], 6, "member."),
    _column(MEMBER["memory_resident_bytes"], 7, "member."),
    _column(MEMBER["memory_proportional_bytes"], 2, "member."),
    _column(PROCESS["gpu_memory_bytes"], 3),
    _column(PROCESS["gpu_busy_percent"], 5),
)


def _member_table(page: Page, job: Job, processes: Sequence[Process], shown: int | None) -> None:
    listed = job.members[:shown]
    if not listed:
        return
    on_gpus: dict[object, list[Process]] = {}
    for process in processes:
        if process.gpu_uuid is not None:
            on_gpus.setdefault(process.key, []).append(process)
    depths: dict[int | None, int] = {}
    rows = []
    for member in listed:
        depth = min(_DEEPEST, depths.get(member.parent_pid, -1) + 1)
        depths[member.pid] = depth
        rows.append(_MemberRow(member, depth, on_gpus.get(member.key, [])))
    page.gap()
    page.items(_MEMBER_COLUMNS, rows)
    _say_left_out(page, len(job.members) - len(listed))
