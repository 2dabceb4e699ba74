"""``gpuwatch status``: one snapshot as a page of plain text."""

from __future__ import annotations

import textwrap
from collections.abc import Callable, Sequence
from datetime import UTC, datetime

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.core.model import Gpu, Host, Job, JobMember, Problem, Process, ProcessKey, Snapshot
from gpuwatch.jobs.words import role_name
from gpuwatch.outputs.status import job_text
from gpuwatch.outputs.terminal.painting import BOLD, RED, YELLOW, Painter, painter
from gpuwatch.outputs.terminal.table import Heading, cut, table, wrap

WIDTH_WITHOUT_TERMINAL = 120
WIDTH_MIN = 40

PROCESSES_SHOWN = 20

_KEEP = "\N{NO-BREAK SPACE}"

_GPU_HEADINGS = (
    Heading("GPU"),
    Heading("NAME", text=True, rank=3),
    Heading("BUSY"),
    Heading("READ", rank=1),
    Heading("MEMORY"),
    Heading("POWER", rank=1),
    Heading("TEMP", rank=2),
    Heading("SM CLOCK", rank=5),
    Heading("PSTATE", rank=9),
    Heading("RX", rank=6),
    Heading("TX", rank=6),
    Heading("PCIE", rank=7),
    Heading("SM", rank=8),
    Heading("TENSOR", rank=8),
    Heading("FAN", rank=9),
    Heading("THROTTLED BY", text=True, rank=4),
)

_MAIN = ("busy_percent", "memory_used_bytes", "power_watts", "temperature_celsius")

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
    if attached is not None:
        middle = _one_job(snapshot, attached, width, processes_shown, paint)
    else:
        middle = _machine(snapshot, width, processes_shown, paint)
    blocks = [_title(snapshot, width, paint), *middle, _problems(snapshot.problems, width, paint)]
    return "\n\n".join("\n".join(block) for block in blocks if block)


def _machine(snapshot: Snapshot, width: int, shown: int | None, paint: Painter) -> list[list[str]]:
    jobs_shown = None if shown is None else job_text.JOBS_SHOWN
    return [
        _gpus(snapshot.gpus, width, paint),
        _host(snapshot.host, width),
        job_text.jobs_block(snapshot, _labels(snapshot), width, jobs_shown, _bold(paint)),
        _processes(snapshot, width, shown, paint),
    ]


def _one_job(
    snapshot: Snapshot, job: Job, width: int, shown: int | None, paint: Painter
) -> list[list[str]]:
    members_shown = None if shown is None else job_text.MEMBERS_SHOWN
    labels, bold = _labels(snapshot), _bold(paint)
    return [
        job_text.job_header(job, snapshot, width, bold),
        _gpus(snapshot.gpus, width, paint) if snapshot.gpus else ["It uses no GPU."],
        job_text.ranks_block(job, labels, width, bold),
        job_text.members_block(job, snapshot.processes, width, members_shown, bold),
        _host(snapshot.host, width),
    ]


def _labels(snapshot: Snapshot) -> dict[str, str]:
    return {gpu.uuid: gpu_label(gpu) for gpu in snapshot.gpus}


def _bold(paint: Painter) -> Callable[[str], str]:
    return lambda text: paint(text, BOLD)


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


def _gpus(gpus: Sequence[Gpu], width: int, paint: Painter) -> list[str]:
    if not gpus:
        return ["No GPU to show."]
    titles, *rows = table(_GPU_HEADINGS, [_gpu_row(gpu) for gpu in gpus], width)
    painted = [paint(row, RED) if gpu.lost else row for row, gpu in zip(rows, gpus, strict=True)]
    return [paint(titles, BOLD), *painted]


def _gpu_row(gpu: Gpu) -> list[str]:
    identity, reading = gpu.identity, gpu.reading
    ages = [age for name, age in reading.late_readings if name in _MAIN]
    return [
        gpu_label(gpu),
        identity.name,
        "lost" if gpu.lost else units.percent(reading.busy_percent),
        f"{units.age(max(ages))} ago" if ages else units.UNKNOWN,
        _gpu_memory(gpu),
        units.watts_of(reading.power_watts, reading.power_limit_watts),
        units.celsius_of(reading.temperature_celsius, identity.temperature_slowdown_celsius),
        units.megahertz(reading.sm_clock_mhz),
        units.UNKNOWN if reading.performance_state is None else f"P{reading.performance_state}",
        units.rate(reading.pcie_rx_bytes_per_second),
        units.rate(reading.pcie_tx_bytes_per_second),
        _pcie_link(gpu),
        units.percent(reading.sm_active_percent),
        units.percent(reading.tensor_active_percent),
        units.percent(reading.fan_percent),
        _throttled(gpu),
    ]


def gpu_label(gpu: Gpu) -> str:
    """``0``; ``0.3`` for MIG instance 3 of GPU 0."""
    identity = gpu.identity
    instance = "" if identity.mig_instance is None else f".{identity.mig_instance}"
    return f"{identity.index}{instance}"


def _gpu_memory(gpu: Gpu) -> str:
    used = gpu.reading.memory_used_bytes
    if gpu.reading.memory_used_is_process_sum:
        return f"{units.size(used)} by processes"
    return units.size_of(used, gpu.identity.memory_total_bytes)


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


def _host(host: Host, width: int) -> list[str]:
    groups = [_cpu_facts(host), _memory_facts(host), _traffic_facts(host), _pressure_facts(host)]
    # No line ends between a label and its number.
    lines = [", ".join(fact.replace(" ", _KEEP) for fact in facts) for facts in groups if facts]
    return [
        part.replace(_KEEP, " ")
        for line in lines
        for part in textwrap.wrap(line, width, subsequent_indent="  ")
    ]


def _cpu_facts(host: Host) -> list[str]:
    facts = []
    if host.cpu_percent is not None:
        cores = "" if host.core_count is None else f" of {host.core_count} cores"
        facts.append(f"CPU {units.percent(host.cpu_percent)}{cores}")
    if host.usable_cores is not None and host.usable_cores != host.core_count:
        facts.append(f"{host.usable_cores:g} usable from here")
    if host.cpu_iowait_percent is not None:
        facts.append(f"I/O wait {units.percent(host.cpu_iowait_percent)}")
    if host.load_average_1_minute is not None:
        loads = (
            host.load_average_1_minute,
            host.load_average_5_minutes,
            host.load_average_15_minutes,
        )
        shown = " ".join(f"{load:.1f}" for load in loads if load is not None)
        facts.append(f"load {shown}")
    return facts


def _memory_facts(host: Host) -> list[str]:
    facts = []
    if host.memory_used_bytes is not None:
        facts.append(f"memory {units.size_of(host.memory_used_bytes, host.memory_total_bytes)}")
    if host.swap_used_bytes is not None and host.swap_total_bytes != 0:
        facts.append(f"swap {units.size_of(host.swap_used_bytes, host.swap_total_bytes)}")
    if host.shm_used_bytes is not None:
        facts.append(f"/dev/shm {units.size_of(host.shm_used_bytes, host.shm_total_bytes)}")
    return facts


def _traffic_facts(host: Host) -> list[str]:
    readings = (
        ("disk read", host.disk_read_bytes_per_second),
        ("disk write", host.disk_write_bytes_per_second),
        ("network in", host.network_receive_bytes_per_second),
        ("network out", host.network_transmit_bytes_per_second),
    )
    return [f"{label} {units.rate(value)}" for label, value in readings if value is not None]


def _pressure_facts(host: Host) -> list[str]:
    readings = (
        ("for CPU", host.pressure_cpu_some_percent),
        ("for I/O", host.pressure_io_some_percent),
        ("for memory", host.pressure_memory_some_percent),
    )
    known = [f"{label} {units.percent(value)}" for label, value in readings if value is not None]
    return [f"tasks waiting: {known[0]}", *known[1:]] if known else []


def _processes(snapshot: Snapshot, width: int, shown: int | None, paint: Painter) -> list[str]:
    if not snapshot.processes:
        return []
    labels = _labels(snapshot)
    places = {gpu.uuid: place for place, gpu in enumerate(snapshot.gpus)}

    def order(process: Process) -> tuple[int, float, float, int]:
        place = places.get(process.gpu_uuid or "", len(places))
        memory = process.gpu_memory_bytes
        cpu = process.cpu_percent
        return (
            place,
            0.0 if memory is None else -memory,
            0.0 if cpu is None else -cpu,
            process.pid,
        )

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
    left = 0 if shown is None else sum(sizes[shown:])
    titles, *lines = table(_PROCESS_HEADINGS, rows[:shown], width)
    more = [f"and {left} more (--all shows them)"] if left else []
    return [paint(titles, BOLD), *lines, *more]


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
    cpu = [member.cpu_percent for member in workers if member.cpu_percent is not None]
    memory = [member.memory_proportional_bytes for member in workers]
    known = [size for size in memory if size is not None]
    name = role_name(workers[0]).replace("worker", "workers")
    return [
        units.UNKNOWN,
        units.UNKNOWN,
        units.UNKNOWN if rank.user is None else rank.user,
        units.UNKNOWN,
        units.UNKNOWN,
        units.percent(sum(cpu) if cpu else None),
        # RSS would count the pages they share once for each.
        units.size(sum(known) if len(known) == len(memory) else None),
        units.UNKNOWN,
        f"{len(workers)} {name} of {rank.pid}",
    ]


def _process_row(process: Process, labels: dict[str, str], now: float) -> list[str]:
    started = process.started_at_unix_seconds
    return [
        units.UNKNOWN if process.gpu_uuid is None else labels.get(process.gpu_uuid, "?"),
        str(process.pid),
        units.UNKNOWN if process.user is None else process.user,
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
        text = wrap(f"{word}: {problem.message}", width, later="  ")
        lines += [paint(line, code) if code else line for line in text]
    return lines
