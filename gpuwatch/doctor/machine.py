"""Checks of what may be read of processes, of the machine, the terminal and gpuwatch itself."""

import os
import platform
import re
import shutil
from collections.abc import Iterator
from dataclasses import replace
from importlib import metadata

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.core.private_files import make_folder, state_folder, why
from gpuwatch.core.registry import RDMA_PORT
from gpuwatch.core.xids import xid_of
from gpuwatch.doctor.check import (
    FAIL,
    PASS,
    SKIP,
    WARN,
    Check,
    Facts,
    Measured,
    of_problem,
)
from gpuwatch.jobs.stacks.sampler import INSTALL, find_py_spy, why_not
from gpuwatch.sources.kernel_log import KernelLog, same_bus
from gpuwatch.sources.linux import cgroup, procfs
from gpuwatch.sources.linux.infiniband import read_ports
from gpuwatch.sources.linux.processes import INITIAL_PID_NAMESPACE

GPUWATCH, PROCESSES, MACHINE, TERMINAL = "gpuwatch", "Processes", "Machine", "Terminal"
CLOCK_STEP_SECONDS = 0.05
"""Between the two clocks, while all this is checked; NTP turns a clock far more slowly."""
COLUMNS, ROWS = 80, 24
COLUMNS_LEAST, ROWS_LEAST = 40, 12
_HIDEPID = re.compile(r"\bhidepid=(\w+)")
_HIDES_NOTHING = ("0", "off")


def itself(_facts: Facts) -> Iterator[Check]:
    libraries = [f"{name} {_version(name)}" for name in ("nvidia-ml-py", "psutil", "textual")]
    python = f"Python {platform.python_version()}"
    reason = ", ".join([f"gpuwatch {__version__}", python, *libraries])
    yield Check(group=GPUWATCH, name="versions", status=PASS, reason=reason)
    name = "state folder"
    try:
        make_folder(state_folder())
    except OSError as error:
        reason = f"it cannot be written: {why(error)}"
        cure = "Reports and preferences are kept there: set XDG_STATE_HOME to a folder of yours."
        yield Check(group=GPUWATCH, name=name, status=WARN, reason=reason, cure=cure)
    else:
        yield Check(group=GPUWATCH, name=name, status=PASS, reason="reports can be kept")


def proc(facts: Facts) -> Iterator[Check]:
    """Check how much ``/proc`` shows of others."""
    name = "/proc"
    if not (facts.root / "proc/self/stat").exists():
        cure = "Mount it (mount -t proc proc /proc): without it there are no processes and no host."
        yield Check(group=PROCESSES, name=name, status=FAIL, reason="it is not there", cure=cure)
        return
    text = procfs.read_if_possible(facts.root / "proc/self/mountinfo", procfs.LARGEST_BUFFER)
    lines = [line.split() for line in os.fsdecode(text).splitlines()]
    options = [" ".join(line[5:]) for line in lines if len(line) > 5 and line[4] == "/proc"]
    found = _HIDEPID.search(options[-1]) if options else None
    hides = found is not None and found[1] not in _HIDES_NOTHING
    subset = bool(options) and "subset=pid" in options[-1]
    if subset:
        reason = "it shows processes alone (subset=pid), so there are no readings of the host"
        yield Check(group=PROCESSES, name=name, status=WARN, reason=reason)
    if hides and os.geteuid() != 0 and not _seen(facts, 1):
        reason = f"it hides the processes of other users (hidepid={found[1] if found else ''})"
        cure = "To see them, run gpuwatch as root, or in the group of the mount's gid option."
        yield Check(group=PROCESSES, name=name, status=WARN, reason=reason, cure=cure)
    elif not subset:
        reason = "shows the processes of other users"
        if os.geteuid() == 0:
            reason += ", and you are root"
        yield Check(group=PROCESSES, name=name, status=PASS, reason=reason)


def namespace(facts: Facts) -> Iterator[Check]:
    try:
        own = os.readlink(facts.root / "proc/self/ns/pid")  # noqa: PTH115
    except OSError:
        return
    contained = cgroup.in_container(facts.root)
    reason = "this is a container" if contained else "no container"
    if own != INITIAL_PID_NAMESPACE:
        reason += ", with PIDs of its own: processes outside of it cannot be seen"
    yield Check(group=PROCESSES, name="container", status=PASS, reason=reason)


def on_gpus(facts: Facts) -> Iterator[Check]:
    """Whether the PIDs that the driver gives are PIDs here."""
    name = "processes on GPUs"
    problems = facts.problems("processes")
    for problem in problems:
        yield of_problem(problem, PROCESSES, name)
    if not facts.snapshot.gpus:
        yield Check(group=PROCESSES, name=name, status=SKIP, reason="no GPU to ask")
    elif not problems:
        pids = {process.pid for process in facts.snapshot.processes if process.gpu_uuid is not None}
        listed = f"{units.plural(len(pids), 'process')}, all seen here" if pids else "none now"
        yield Check(group=PROCESSES, name=name, status=PASS, reason=listed)


def stacks(facts: Facts) -> Iterator[Check]:
    name, path = "stacks (py-spy)", find_py_spy()
    if path is None:
        yield Check(group=PROCESSES, name=name, status=SKIP, reason=INSTALL)
        return
    pids = [
        process.pid
        for process in facts.snapshot.processes
        if process.gpu_uuid is not None and procfs.read_stat(process.pid) is not None
    ]
    refused = why_not(pids[0], path) if pids else None
    check = Check(group=PROCESSES, name=name, status=PASS, reason="py-spy is there")
    if refused is not None:
        reason, _, cure = refused.partition(": ")
        cure = f"{cure[:1].upper()}{cure[1:]}"
        yield replace(check, status=WARN, reason=f"{reason}.", cure=cure, private=True)
    elif pids:
        yield replace(check, reason=f"py-spy may look into process {pids[0]}")
    else:
        scope = procfs.read_if_possible(facts.root / "proc/sys/kernel/yama/ptrace_scope").strip()
        measured = Measured("ptrace_scope", scope.decode() or None, None, "ptrace_scope")
        yield replace(check, measured=(measured,) if scope else ())


def xids(facts: Facts) -> Iterator[Check]:
    """Xid errors since the machine started, by the kernel's log."""
    log, name = KernelLog(), "Xid errors"
    log.read()
    if not log.is_readable:
        reason = "the kernel's log may not be read by this user (as root: dmesg | grep Xid)"
        yield Check(group=MACHINE, name=name, status=SKIP, reason=reason)
        return
    buses = {
        same_bus(gpu.identity.pci_bus_id): gpu.identity
        for gpu in facts.snapshot.gpus
        if gpu.identity.pci_bus_id is not None and gpu.identity.mig_parent_uuid is None
    }
    for (bus, code), (times, at_unix) in log.xids.items():
        ago = units.age(facts.clocks[1].unix - at_unix)
        xid = xid_of(code)
        reason = f"Xid {code} ({xid.meaning}), {units.plural(times, 'time')}, the last {ago} ago"
        gpu = buses.get(bus)
        reason = reason if gpu is not None else f"{reason}, of the card at {bus}"
        yield Check(group=MACHINE, name=name, status=WARN, reason=reason, cure=xid.cure, gpu=gpu)
    if not log.xids:
        reason = "the kernel's log has none"
        yield Check(group=MACHINE, name=name, status=PASS, reason=reason)


def system(facts: Facts) -> Iterator[Check]:
    wsl = ", WSL" if facts.wsl else ""
    reason = f"{platform.system()} {facts.kernel}, {platform.machine()}{wsl}"
    yield Check(group=MACHINE, name="kernel", status=PASS, reason=reason)
    for problem in facts.problems("host"):
        yield of_problem(problem, MACHINE, "host")


def pressure(facts: Facts) -> Iterator[Check]:
    host, name = facts.snapshot.host, "pressure (PSI)"
    if host.pressure_cpu_some_percent is not None:
        measured = (
            Measured("cpu_some_percent", host.pressure_cpu_some_percent, "%", "CPU"),
            Measured("io_some_percent", host.pressure_io_some_percent, "%", "disks"),
            Measured("memory_some_percent", host.pressure_memory_some_percent, "%", "memory"),
        )
        yield Check(group=MACHINE, name=name, status=PASS, measured=measured)
        return
    there = (facts.root / "proc/pressure/cpu").exists()
    reason = "the kernel was started without it" if there else "the kernel has none"
    reason += ", so waits for CPU, disks and memory are unknown (the parameter psi=1 enables it)"
    yield Check(group=MACHINE, name=name, status=SKIP, reason=reason)


def cores(facts: Facts) -> Iterator[Check]:
    """The cgroup's version, and what it and the affinity leave of the machine's cores."""
    host, name = facts.snapshot.host, "cgroup and cores"
    kinds = {mount.version for mount in cgroup.mounts_of(facts.root / "proc/self")}
    version = "v1 and v2" if len(kinds) > 1 else f"v{min(kinds)}" if kinds else "no"
    quota = "no quota" if host.quota_cores is None else f"a quota of {host.quota_cores:g} cores"
    reason = f"cgroup {version}, {quota}"
    if host.core_count is not None:
        usable = host.core_count if host.usable_cores is None else host.usable_cores
        reason += f"; a job may use {usable:g} of {units.plural(host.core_count, 'core')}"
    if not kinds:
        reason = "no cgroup is mounted here, so a quota would not be seen"
    yield Check(group=MACHINE, name=name, status=PASS if kinds else SKIP, reason=reason)


def clock(facts: Facts) -> Iterator[Check]:
    (unix, monotonic), (later_unix, later) = facts.clocks
    step = (later_unix - unix) - (later - monotonic)
    measured = (
        Measured("step_seconds", step, "s", said=False),
        Measured("watched_seconds", later - monotonic, "s", said=False),
    )
    check = Check(group=MACHINE, name="clock", status=PASS, measured=measured)
    if abs(step) > CLOCK_STEP_SECONDS:
        reason = f"it was set by {units.duration(abs(step))} {'forwards' if step > 0 else 'back'}"
        cure = "Times in charts and recordings jump with it: let chrony or NTP turn it slowly."
        yield replace(check, status=WARN, reason=f"{reason} meanwhile", cure=cure)
    else:
        yield replace(check, reason=f"no step in {units.duration(later - monotonic)}")


def rdma_ports(facts: Facts) -> Iterator[Check]:
    """Yield a check of each InfiniBand or RoCE port that is down or has counted errors, and one of
    the others."""
    ports, name = read_ports(facts.root / "sys"), "InfiniBand and RoCE"
    if ports is None:
        reason = "none in /sys/class/infiniband"
        yield Check(group=MACHINE, name=name, status=SKIP, reason=reason)
        return
    sound = 0
    for port in ports:
        counts = [
            f"{one.label} {units.count(getattr(port, field))}"
            for field, one in RDMA_PORT.items()
            if one.kind and getattr(port, field)
        ]
        called = f"{port.device} port {port.port}"
        if counts:
            reason = f"{called} has counted errors: {', '.join(counts)}"
            cure = (
                "Run this again after a job: counters that grow mean a bad cable, transceiver or "
                "switch port. NCCL jobs over it stall or end."
            )
            yield Check(group=MACHINE, name=name, status=WARN, reason=reason, cure=cure)
        elif port.state == "active":
            sound += 1
        else:
            reason = f"{called} is {port.state or 'in an unknown state'}"
            yield Check(group=MACHINE, name=name, status=PASS, reason=reason)
    if sound:
        reason = f"{units.plural(sound, 'port')} active, without errors"
        yield Check(group=MACHINE, name=name, status=PASS, reason=reason)


def terminal(facts: Facts) -> Iterator[Check]:
    """Yield what the terminal is in one line, and what of it is too little in one each."""
    at, environment = facts.terminal, facts.environment
    check = Check(group=TERMINAL, name="screen", status=PASS)
    name = clean_word(environment.get("TERM", ""))
    size, colours = f"{at.width}x{at.height}", f"{_colours(facts, name)} colours (TERM={name})"
    if not at.is_terminal:
        reason = "the output is no terminal, so it was not looked at"
        yield replace(check, status=SKIP, reason=reason)
    else:
        inside = [
            word for word, sign in (("tmux", "TMUX"), ("screen", "STY")) if environment.get(sign)
        ]
        over = "over ssh (--slow-link sends less over a slow line)"
        is_over = environment.get("SSH_CONNECTION") or environment.get("SSH_TTY")
        seen = (
            size,
            colours,
            at.encoding,
            *[f"inside {word}" for word in inside[:1]],
            *[over] * bool(is_over),
        )
        yield replace(check, reason=", ".join(seen))
        if at.width < COLUMNS_LEAST or at.height < ROWS_LEAST:
            least = f"{COLUMNS_LEAST}x{ROWS_LEAST}"
            cure = f"Enlarge it: the dashboard is made for {COLUMNS}x{ROWS} and needs {least}."
            yield replace(check, name="size", status=WARN, reason=size, cure=cure)
        if name in ("", "dumb"):
            reason = f"this terminal (TERM={name}) cannot place text"
            cure = "Use `gpuwatch status` and `stream` here, or set TERM to what the terminal is."
            yield replace(check, name="TERM", status=WARN, reason=reason, cure=cure)
        if not at.unicode:
            reason = f"{at.encoding} has no block characters: charts are drawn in ASCII"
            cure = "Set a UTF-8 locale: export LANG=C.UTF-8"
            yield replace(check, name="characters", status=WARN, reason=reason, cure=cure)
    ssh = shutil.which("ssh") is not None
    reason = "ssh is there" if ssh else "no ssh program, so other machines cannot be watched"
    yield Check(group=TERMINAL, name="--host", status=PASS if ssh else SKIP, reason=reason)


CHECKS = (
    on_gpus, proc, namespace, stacks, system, cores, pressure, clock, xids, rdma_ports, terminal,
)  # fmt: skip


def clean_word(text: str) -> str:
    """A word of the environment that is safe to show and names nobody."""
    return text if re.fullmatch(r"[\w.+-]{1,40}", text, re.ASCII) else ""


def _colours(facts: Facts, name: str) -> str:
    if facts.environment.get("NO_COLOR"):
        return "no"
    if facts.environment.get("COLORTERM") in ("truecolor", "24bit"):
        return "16 million"
    return "256" if "256" in name else "16"


def _seen(facts: Facts, pid: int) -> bool:
    return bool(procfs.read_if_possible(facts.root / f"proc/{pid}/stat"))


def _version(package: str) -> str:
    try:
        return metadata.version(package)
    except metadata.PackageNotFoundError:
        return "missing"
