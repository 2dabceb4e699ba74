"""Which disks and network interfaces to count, so that no byte is counted twice.

Disks: those of ``/sys/block`` that are no kernel construct on top of others. The kernel puts
loop, ram, zram, device-mapper, md, bcache and zvol devices under ``devices/virtual/block``;
what they do is counted at the disks beneath. NVMe multipath heads live under
``devices/virtual/nvme-subsystem`` and count, the hidden paths beneath them do not; network block
devices (``nbd``) are virtual but have no disk beneath, so they count.

Interfaces: those with hardware behind them (``/sys/class/net/NAME/device``). Bonds, bridges,
VLANs, tunnels and the host ends of containers carry the same bytes again. Where none has
hardware (inside a container, ``eth0`` is one end of a pair) all count except the loopback,
bridges, what is enslaved to one, and dummies.
"""

import contextlib
import os
from pathlib import Path

_NO_LINK = ("lo", "ifb", "dummy", "docker", "virbr", "cni", "flannel", "cali", "tunl", "sit")
_CONSTRUCTS = ("loop", "ram", "zram", "dm-", "md", "sr", "fd", "zd", "bcache", "drbd")


def whole_disks(sys_root: Path) -> frozenset[bytes]:
    """Kernel names of the disks to count; empty when ``/sys/block`` cannot be read."""
    try:
        names = os.listdir(sys_root / "block")  # noqa: PTH208 - names only, no Path each
    except OSError:
        return frozenset()
    return frozenset(name.encode() for name in names if _is_whole_disk(sys_root / "block" / name))


def _is_whole_disk(entry: Path) -> bool:
    if entry.name.startswith(("nbd", *_CONSTRUCTS)):
        return entry.name.startswith("nbd")
    with contextlib.suppress(OSError):
        if (entry / "hidden").read_bytes().strip() == b"1":
            return False
    return "/virtual/block/" not in os.path.realpath(entry)


def counted_interfaces(sys_root: Path) -> frozenset[bytes] | None:
    """Names of the interfaces to count; ``None`` when sysfs does not list them."""
    folder = sys_root / "class" / "net"
    try:
        names = os.listdir(folder)  # noqa: PTH208 - names only, no Path each
    except OSError:
        return None
    hardware = [name for name in names if (folder / name / "device").exists()]
    chosen = hardware or [name for name in names if _is_link(folder / name)]
    return frozenset(os.fsencode(name) for name in chosen)


def _is_link(entry: Path) -> bool:
    is_part = (entry / "bridge").exists() or (entry / "master").exists()
    return not (is_part or entry.name.startswith(_NO_LINK))
