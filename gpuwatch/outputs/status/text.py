"""``gpuwatch status``: one snapshot as a page of plain text."""

import textwrap
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.core.model import Gpu, Host, Job, JobMember, Problem, Process, ProcessKey, Snapshot
from gpuwatch.jobs.words import role_name
from gpuwatch.outputs.status import job_text
from gpuwatch.outputs.status.columns import (
    Columns,
    labels_of,
    more_text,
    rows_of,
    said,
    titled,
    total,
)
from gpuwatch.outputs.terminal.painting import BOLD, RED, YELLOW, Painter, painter
from gpuwatch.outputs.terminal.table import Heading, cut, wrap

WIDTH_WITHOUT_TERMINAL = 120
WIDTH_MIN = 40

PROCESSES_SHOWN = 20

_KEEP = "\N{NO-BREAK SPACE}"
_MAIN = ("busy_percent", "memory_used_bytes", "power_watts", "temperature_celsius")


def status_page(
    snapshot: Snapshot,
    *,
    width: int = WIDTH_WITHOUT_TERMINAL,
    colour: bool = False,
    processes_shown: int | None = PROCESSES_SHOWN,
) -> str:
    """The page, without a line end; with an attached job in the snapshot it is about that job.

    ``processes_shown`` is how long a list of processes may be; ``None``: no list is shortened.
    """
    width = max(width, WIDTH_MIN)
    paint = painter(colour)
    attached = next((job for job in snapshot.jobs if job.attached), None)
    labels = labels_of(snapshot)
    shown = processes_shown

    def bold(text: str) -> str:
        return paint(text, BOLD)

    if attached is None:
        jobs_shown = None if shown is None else job_text.JOBS_SHOWN
        middle = [
            _gpus(snapshot.gpus, width, paint),
            _host(snapshot.host, width),
            job_text.jobs_block(snapshot, labels, width, jobs_shown, bold),
            _processes(snapshot, width, shown, bold),
        ]
    else:
        members_shown = None if shown is None else job_text.MEMBERS_SHOWN
        middle = [
            job_text.job_header(attached, snapshot, width, bold),
            _gpus(snapshot.gpus, width, paint) if snapshot.gpus else ["It uses no GPU."],
            job_text.ranks_block(attached, labels, width, bold),
            job_text.members_block(attached, snapshot.processes, width, members_shown, bold),
            _host(snapshot.host, width),
        ]
    blocks = [_title(snapshot, width, paint), *middle, _problems(snapshot.problems, width, paint)]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _title(snapshot: Snapshot, width: int, paint: Painter) -> list[str]:
    taken = datetime.fromtimestamp(snapshot.taken_at_unix_seconds, tz=UTC).astimezone()
    parts = [f"gpuwatch {__version__}"]
    # Second, so that no narrow width can cut it off.
    if snapshot.simulated:
        parts.append("SIMULATED")
    parts += [snapshot.host.name, taken.strftime("%Y-%m-%d %H:%M:%S")]
    if snapshot.gpus:
        identity = snapshot.gpus[0].identity
        parts += [f"driver {identity.driver_version}"] if identity.driver_version else []
        parts += [f"CUDA {identity.cuda_version}"] if identity.cuda_version else []
    return [paint(cut("  ".join(part for part in parts if part), width), BOLD)]


# -- GPUs -----------------------------------------------------------------------------------


def _age(gpu: Gpu) -> str:
    """How old the oldest of its main numbers is, where one is late."""
    ages = [age for name, age in gpu.reading.late_readings if name in _MAIN]
    return f"{units.age(max(ages))} ago" if ages else units.UNKNOWN


def _memory(gpu: Gpu) -> str:
    used = gpu.reading.memory_used_bytes
    if gpu.reading.memory_used_is_process_sum:
        return f"{units.size(used)} by processes"
    return units.size_of(used, gpu.identity.memory_total_bytes)


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


def _state(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"P{value}"


_GPU_COLUMNS: Columns[Gpu] = (
    (Heading("GPU"), units.gpu_label),
    (Heading("NAME", text=True, rank=3), lambda gpu: gpu.identity.name),
    (Heading("BUSY"), lambda gpu: "lost" if gpu.lost else units.percent(gpu.reading.busy_percent)),
    (Heading("READ", rank=1), _age),
    (Heading("MEMORY"), _memory),
    (Heading("POWER", rank=1), _power),
    (Heading("TEMP", rank=2), _heat),
    (Heading("SM CLOCK", rank=5), _reading("sm_clock_mhz", units.megahertz)),
    (Heading("PSTATE", rank=9), _reading("performance_state", _state)),
    (Heading("RX", rank=6), _reading("pcie_rx_bytes_per_second", units.rate)),
    (Heading("TX", rank=6), _reading("pcie_tx_bytes_per_second", units.rate)),
    (Heading("PCIE", rank=7), _pcie_link),
    (Heading("SM", rank=8), _reading("sm_active_percent", units.percent)),
    (Heading("TENSOR", rank=8), _reading("tensor_active_percent", units.percent)),
    (Heading("FAN", rank=9), _reading("fan_percent", units.percent)),
    (Heading("THROTTLED BY", text=True, rank=4), _throttled),
)


def _gpus(gpus: Sequence[Gpu], width: int, paint: Painter) -> list[str]:
    if not gpus:
        return ["No GPU to show."]
    rows = rows_of(_GPU_COLUMNS, gpus)
    titles, *lines = titled(_GPU_COLUMNS, rows, width, lambda text: paint(text, BOLD))
    rows_and_gpus = zip(lines, gpus, strict=True)
    return [titles, *[paint(row, RED) if gpu.lost else row for row, gpu in rows_and_gpus]]


# -- host -----------------------------------------------------------------------------------


def _host(host: Host, width: int) -> list[str]:
    cores = "" if host.core_count is None else f" of {host.core_count} cores"
    fewer = host.usable_cores is not None and host.usable_cores != host.core_count
    loads = (host.load_average_1_minute, host.load_average_5_minutes, host.load_average_15_minutes)
    load_text = " ".join(f"{one:.1f}" for one in loads if one is not None)
    memory, shm = host.memory_total_bytes, host.shm_total_bytes
    swap = None if host.swap_total_bytes == 0 else host.swap_used_bytes
    waits = said(
        ("for CPU", host.pressure_cpu_some_percent, units.percent),
        ("for I/O", host.pressure_io_some_percent, units.percent),
        ("for memory", host.pressure_memory_some_percent, units.percent),
    )
    groups = [
        [
            *said(("CPU", host.cpu_percent, lambda value: units.percent(value) + cores)),
            *([f"{host.usable_cores:g} usable from here"] if fewer else []),
            *said(("I/O wait", host.cpu_iowait_percent, units.percent)),
            *said(("load", loads[0], lambda _: load_text)),
        ],
        said(
            ("memory", host.memory_used_bytes, lambda used: units.size_of(used, memory)),
            ("swap", swap, lambda used: units.size_of(used, host.swap_total_bytes)),
            ("/dev/shm", host.shm_used_bytes, lambda used: units.size_of(used, shm)),
        ),
        said(
            ("disk read", host.disk_read_bytes_per_second, units.rate),
            ("disk write", host.disk_write_bytes_per_second, units.rate),
            ("network in", host.network_receive_bytes_per_second, units.rate),
            ("network out", host.network_transmit_bytes_per_second, units.rate),
        ),
        [f"tasks waiting: {waits[0]}", *waits[1:]] if waits else [],
    ]
    # No line ends between a label and its number.
    lines = [", ".join(fact.replace(" ", _KEEP) for fact in facts) for facts in groups if facts]
    return [
        part.replace(_KEEP, " ")
        for line in lines
        for part in textwrap.wrap(line, width, subsequent_indent="  ")
    ]


# -- processes ------------------------------------------------------------------------------

_PROCESS_HEADINGS = (
    Heading("GPU"),
    Heading("PID"),
    Heading("USER", text=True, rank=3),
    Heading("GPU-MEM"),
    Heading("SM", rank=1),
    Heading("CPU", rank=1),
    Heading("MEM", rank=2),
    Heading("TIME", rank=4),
    Heading("COMMAND", text=True),
)


def _processes(
    snapshot: Snapshot, width: int, shown: int | None, bold: Callable[[str], str]
) -> list[str]:
    """By GPU, the largest first; the loader workers of a rank below it, as one row."""
    if not snapshot.processes:
        return []
    labels = labels_of(snapshot)
    places = {gpu.uuid: place for place, gpu in enumerate(snapshot.gpus)}

    def order(process: Process) -> tuple[float, ...]:
        place = places.get(process.gpu_uuid or "", len(places))
        return (place, -(process.gpu_memory_bytes or 0), -(process.cpu_percent or 0), process.pid)

    folded = {} if shown is None else _workers_by_rank(snapshot.jobs)
    within = {member.key for workers in folded.values() for member in workers}
    rows: list[list[str]] = []
    sizes: list[int] = []
    for process in sorted(snapshot.processes, key=order):
        if process.key in within and process.gpu_uuid is None:
            continue
        rows.append(_process_row(process, labels, snapshot.taken_at_unix_seconds))
        sizes.append(1)
        workers = folded.pop(process.key, None)
        if workers is not None:
            rows.append(_workers_row(process, workers))
            sizes.append(len(workers))
    columns = [(heading, str) for heading in _PROCESS_HEADINGS]
    lines = titled(columns, rows[:shown], width, bold)
    return lines + more_text(0 if shown is None else sum(sizes[shown:]))


def _workers_by_rank(jobs: Sequence[Job]) -> dict[ProcessKey, list[JobMember]]:
    """The loader workers of each rank that has several: they are alike, and one row tells it."""
    found: dict[ProcessKey, list[JobMember]] = {}
    for job in jobs:
        ranks = {rank.pid: rank.key for rank in job.ranks}
        for member in job.having("loader_worker"):
            if member.parent_pid in ranks and not member.orphaned:
                found.setdefault(ranks[member.parent_pid], []).append(member)
    return {key: workers for key, workers in found.items() if len(workers) > 1}


def _workers_row(rank: Process, workers: Sequence[JobMember]) -> list[str]:
    # RSS would count the pages they share once for each.
    memory = [member.memory_proportional_bytes for member in workers]
    name = role_name(workers[0]).replace("worker", "workers")
    return [
        *(units.UNKNOWN, units.UNKNOWN, rank.user or units.UNKNOWN, units.UNKNOWN, units.UNKNOWN),
        units.percent(total(member.cpu_percent for member in workers)),
        units.size(None if None in memory else total(memory)),
        units.UNKNOWN,
        f"{len(workers)} {name} of {rank.pid}",
    ]


def _process_row(process: Process, labels: dict[str, str], now: float) -> list[str]:
    started = process.started_at_unix_seconds
    return [
        units.UNKNOWN if process.gpu_uuid is None else labels.get(process.gpu_uuid, "?"),
        str(process.pid),
        process.user or units.UNKNOWN,
        units.size(process.gpu_memory_bytes),
        units.percent(process.gpu_busy_percent),
        units.percent(process.cpu_percent),
        units.size(process.memory_resident_bytes),
        units.age(None if started is None else now - started),
        process.command or process.name or units.UNKNOWN,
    ]


_SEVERITIES = {"error": ("error", RED), "info": ("note", ""), "warning": ("warning", YELLOW)}


def _problems(problems: Sequence[Problem], width: int, paint: Painter) -> list[str]:
    lines = []
    for problem in problems:
        word, code = _SEVERITIES.get(problem.severity, _SEVERITIES["warning"])
        lines += [
            paint(line, code) for line in wrap(f"{word}: {problem.message}", width, later="  ")
        ]
    return lines
