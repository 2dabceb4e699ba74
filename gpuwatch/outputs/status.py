"""``gpuwatch status``: one snapshot as a page of plain text, or the attached job in it."""

import time
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from datetime import UTC, datetime

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.core.bounds import mean, total
from gpuwatch.core.model import Gpu, GpuKey, Host, Job, JobMember, JobRank, Process, Snapshot
from gpuwatch.jobs.words import cores_sentence, job_loading_sentence, loop_facts, role_name
from gpuwatch.outputs.terminal import BOLD, RED, YELLOW, Column, Page, cut, wrap

WIDTH_WITHOUT_TERMINAL = 120
WIDTH_MIN = 40

PROCESSES_SHOWN = 20
_SEVERITIES = {"error": ("error", RED), "info": ("note", ""), "warning": ("warning", YELLOW)}

_MAIN = ("busy_percent", "memory_used_bytes", "power_watts", "temperature_celsius")


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
    _title(page, snapshot)
    if attached is None:
        _gpu_table(page, snapshot.gpus, "No GPU to show.")
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
        word, style = _SEVERITIES.get(problem.severity, _SEVERITIES["warning"])
        page.say(f"{word}: {problem.message}", style=style, later="  ")
    return "\n".join(page.lines).rstrip("\n")


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
    ages = [age for name, age in gpu.reading.late_readings if name in _MAIN]
    return f"{units.age(max(ages))} ago" if ages else units.UNKNOWN


def _power(gpu: Gpu) -> str:
    return units.watts_of(gpu.reading.power_watts, gpu.reading.power_limit_watts)


def _heat(gpu: Gpu) -> str:
    hot = gpu.identity.temperature_slowdown_celsius
    return units.celsius_of(gpu.reading.temperature_celsius, hot)


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


def _reading(name: str, write: Callable[[float | None], str]) -> Callable[[Gpu], str]:
    return lambda gpu: write(getattr(gpu.reading, name))


def _performance_state(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"P{value}"


_GPU_COLUMNS: tuple[Column[Gpu], ...] = (
    Column("GPU", units.gpu_label),
    Column("NAME", lambda gpu: gpu.identity.name, "text", 3),
    Column("BUSY", lambda gpu: "lost" if gpu.lost else units.percent(gpu.reading.busy_percent)),
    Column("READ", _age, rank=1),
    Column("MEMORY", units.gpu_memory),
    Column("POWER", _power, rank=1),
    Column("TEMP", _heat, rank=2),
    Column("SM CLOCK", _reading("sm_clock_mhz", units.megahertz), rank=5),
    Column("PSTATE", _reading("performance_state", _performance_state), rank=9),
    Column("RX", _reading("pcie_rx_bytes_per_second", units.rate), rank=6),
    Column("TX", _reading("pcie_tx_bytes_per_second", units.rate), rank=6),
    Column("PCIE", _pcie_link, rank=7),
    Column("SM", _reading("sm_active_percent", units.percent), rank=8),
    Column("TENSOR", _reading("tensor_active_percent", units.percent), rank=8),
    Column("FAN", _reading("fan_percent", units.percent), rank=9),
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
    memory, shm = host.memory_total_bytes, host.shm_total_bytes
    swap = None if host.swap_total_bytes == 0 else host.swap_used_bytes
    waits = _read_facts(
        ("for CPU", host.pressure_cpu_some_percent, units.percent),
        ("for I/O", host.pressure_io_some_percent, units.percent),
        ("for memory", host.pressure_memory_some_percent, units.percent),
    )
    groups = [
        [
            *_read_facts(("CPU", host.cpu_percent, lambda value: units.percent(value) + cores)),
            *([f"{host.usable_cores:g} usable from here"] if fewer else []),
            *_read_facts(("I/O wait", host.cpu_iowait_percent, units.percent)),
            *_read_facts(("load", loads[0], lambda _: load_text)),
        ],
        _read_facts(
            ("memory", host.memory_used_bytes, lambda used: units.size_of(used, memory)),
            ("swap", swap, lambda used: units.size_of(used, host.swap_total_bytes)),
            ("/dev/shm", host.shm_used_bytes, lambda used: units.size_of(used, shm)),
        ),
        _read_facts(
            ("disk read", host.disk_read_bytes_per_second, units.rate),
            ("disk write", host.disk_write_bytes_per_second, units.rate),
            ("network in", host.network_receive_bytes_per_second, units.rate),
            ("network out", host.network_transmit_bytes_per_second, units.rate),
        ),
        [f"tasks waiting: {waits[0]}", *waits[1:]] if waits else [],
    ]
    for facts in groups:
        page.facts(facts, later="  ")


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
        Column("GPU-MEM", lambda one: units.size(one.gpu_memory_bytes)),
        Column("SM", lambda one: units.percent(one.gpu_busy_percent), rank=1),
        Column("CPU", lambda one: units.percent(one.cpu_percent), rank=1),
        Column("MEM", lambda one: units.size(one.memory_resident_bytes), rank=2),
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
        Column("CPU-WAIT", lambda one: one.mean_of_workers("run_queue_wait_percent"), rank=2),
        Column("PINNED", lambda one: _PINNED[one.rank.pinned_memory], "text"),
    )
    if job.loops:
        columns += (
            Column("DATA-WAIT", lambda one: units.share(one.reported("data_wait_share"))),
            Column("COMPUTE", lambda one: units.share(one.reported("compute_share")), rank=2),
            Column("SAMPLES/S", lambda one: units.samples(one.reported("samples_per_second")),
                   rank=1),
        )  # fmt: skip
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

    def reported(self, name: str) -> float | None:
        loop = self.job.loop_of(self.rank)
        return None if loop is None else getattr(loop, name)


@dataclass(frozen=True, slots=True)
class _MemberRow:
    member: JobMember
    depth: int
    on_gpus: Sequence[Process]


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
    Column("CPU", lambda row: units.percent(row.member.cpu_percent)),
    Column("MAIN", lambda row: units.percent(row.member.main_thread_cpu_percent), rank=2),
    Column("STATE", _member_state, "text", 1),
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
