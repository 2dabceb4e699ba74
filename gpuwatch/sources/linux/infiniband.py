"""InfiniBand and RoCE ports of the machine, from ``/sys/class/infiniband``.

The kernel's Documentation/ABI/stable/sysfs-class-infiniband describes the files. Most counters are
narrow and stop at their end (``link_downed`` at 255): ``perfquery -R`` sets them to 0.
"""

import os
import re
from pathlib import Path

from gpuwatch.core.model import RdmaPort
from gpuwatch.core.text import clean
from gpuwatch.sources.linux import procfs

PORTS_MOST = 64
_COUNTERS = {
    "link_downed_count": "link_downed",
    "link_recovery_count": "link_error_recovery",
    "receive_error_count": "port_rcv_errors",
    "symbol_error_count": "symbol_error",
}
_SPEED = re.compile(r"(\d{1,6}(?:\.\d{1,3})?) Gb/sec")


def read_ports(sys_root: Path) -> tuple[RdmaPort, ...] | None:
    """Return the ports by device and number; ``None`` where the kernel has no such devices."""
    folder = sys_root / "class" / "infiniband"
    try:
        paths = sorted(folder.glob("*/ports/*"), key=_place)[:PORTS_MOST]
    except OSError:
        return None
    return tuple([_port(path) for path in paths if path.name.isdecimal()]) or None


def _place(path: Path) -> tuple[int, str, int, str]:
    """Return what sorts mlx5_2 before mlx5_10."""
    device = path.parts[-3]
    return len(device), device, len(path.name), path.name


def _port(path: Path) -> RdmaPort:
    counts = {name: _count(path / "counters" / file) for name, file in _COUNTERS.items()}
    speed = _SPEED.match(_text(path / "rate"))
    # "4: ACTIVE"
    state = _text(path / "state").rpartition(": ")[2]
    return RdmaPort(
        device=clean(path.parts[-3], 60),
        port=int(path.name[:6]),
        link_layer=_text(path / "link_layer") or None,
        state=state.lower() or None,
        speed_gigabits_per_second=None if speed is None else float(speed[1]),
        **counts,
    )


def _text(path: Path) -> str:
    return clean(os.fsdecode(procfs.read_if_possible(path)).strip(), 60)


def _count(path: Path) -> int | None:
    # "N/A (no PMA)", where the port does not count it.
    text = procfs.read_if_possible(path).strip()
    return int(text) if text.isdigit() and len(text) < 19 else None
