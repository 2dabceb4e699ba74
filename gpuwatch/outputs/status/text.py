"""``gpuwatch status``: one snapshot as a page of plain text."""

from collections.abc import Callable, Mapping, Sequence
from datetime import UTC, datetime

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.core.model import Gpu, GpuKey, Host, Process, Snapshot
from gpuwatch.outputs.status import job_text
from gpuwatch.outputs.status.job_text import said
from gpuwatch.outputs.terminal import BOLD, RED, YELLOW, Column, Page, cut

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
    """The page, without a line end; with an attached job in the snapshot it is about that job.

    ``processes_shown`` is how long a list of processes may be; ``None``: no list is shortened.
    """
    page = Page(max(width, WIDTH_MIN), colour)
    attached = next((job for job in snapshot.jobs if job.attached), None)
    labels = {gpu.uuid: units.gpu_label(gpu) for gpu in snapshot.gpus}
    shown = processes_shown
    _title(page, snapshot)
    if attached is None:
        _gpus(page, snapshot.gpus, "No GPU to show.")
        _host(page, snapshot.host)
        job_text.jobs(page, snapshot, labels, None if shown is None else job_text.JOBS_SHOWN)
        _processes(page, snapshot, labels, shown)
    else:
        job_text.header(page, attached, snapshot)
        _gpus(page, snapshot.gpus, "It uses no GPU.")
        job_text.ranks(page, attached, labels)
        most = None if shown is None else job_text.MEMBERS_SHOWN
        job_text.members(page, attached, snapshot.processes, most)
        _host(page, snapshot.host)
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
    """How old the oldest of its main numbers is, where one is late."""
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


def _state(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"P{value}"


_GPU_COLUMNS: tuple[Column[Gpu], ...] = (
    Column("GPU", units.gpu_label),
    Column("NAME", lambda gpu: gpu.identity.name, True, 3),
    Column("BUSY", lambda gpu: "lost" if gpu.lost else units.percent(gpu.reading.busy_percent)),
    Column("READ", _age, rank=1),
    Column("MEMORY", units.gpu_memory),
    Column("POWER", _power, rank=1),
    Column("TEMP", _heat, rank=2),
    Column("SM CLOCK", _reading("sm_clock_mhz", units.megahertz), rank=5),
    Column("PSTATE", _reading("performance_state", _state), rank=9),
    Column("RX", _reading("pcie_rx_bytes_per_second", units.rate), rank=6),
    Column("TX", _reading("pcie_tx_bytes_per_second", units.rate), rank=6),
    Column("PCIE", _pcie_link, rank=7),
    Column("SM", _reading("sm_active_percent", units.percent), rank=8),
    Column("TENSOR", _reading("tensor_active_percent", units.percent), rank=8),
    Column("FAN", _reading("fan_percent", units.percent), rank=9),
    Column("THROTTLED BY", _throttled, True, 4),
)


def _gpus(page: Page, gpus: Sequence[Gpu], without: str) -> None:
    page.gap()
    if gpus:
        page.items(_GPU_COLUMNS, gpus, style=lambda gpu: RED if gpu.lost else "")
    else:
        page.say(without)


def _host(page: Page, host: Host) -> None:
    page.gap()
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
    for facts in groups:
        page.facts(facts, later="  ")


def _processes(
    page: Page, snapshot: Snapshot, labels: Mapping[GpuKey, str], shown: int | None
) -> None:
    """By GPU, the largest first; loader workers, which are alike, are rows only of ``--all``."""
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
        Column("USER", lambda one: one.user or units.UNKNOWN, True, 3),
        Column("GPU-MEM", lambda one: units.size(one.gpu_memory_bytes)),
        Column("SM", lambda one: units.percent(one.gpu_busy_percent), rank=1),
        Column("CPU", lambda one: units.percent(one.cpu_percent), rank=1),
        Column("MEM", lambda one: units.size(one.memory_resident_bytes), rank=2),
        Column("TIME", time, rank=4),
        Column("COMMAND", lambda one: one.command or one.name or units.UNKNOWN, True),
    )
    page.gap()
    page.items(columns, rows)
    job_text.more(page, len(snapshot.processes) - len(rows))
