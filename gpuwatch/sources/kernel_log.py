"""Xid errors of NVIDIA GPUs, from the kernel's log.

The log keeps them with their times from before gpuwatch was started, of cards that no longer
answer, and while the driver hangs, where NVML's events are silent. Only root and who has
CAP_SYSLOG may read it (``kernel.dmesg_restrict``); a container needs the device.
"""

import os
import re
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpuwatch.core.model import Gpu, XidError

KMSG = Path("/dev/kmsg")
RECORD_BYTES, RECORDS_AT_ONCE, KINDS_KEPT = 8192, 20_000, 256
"""Bytes of the longest record of the kernel; more records than it keeps; codes of cards."""
_PCI = r"(?:PCI:)?([0-9a-fA-F]{4,8}):([0-9a-fA-F]{2}):([0-9a-fA-F]{2})"
_BUS_ID = re.compile(_PCI)
_MARK = b"NVRM: Xid"
# Level, sequence number, microseconds since the start; the message. Levels end at 7: a program that
# writes into the log has a higher number, by its facility.
_XID = re.compile(rf"[0-7],\d+,(\d+),[^;\n]*;NVRM: Xid \({_PCI}[^)\n]*\): (\d{{1,4}})\b", re.ASCII)


class KernelLog:
    """Xid errors so far; ``read`` adds the new ones, and never raises or waits. Belongs on one
    thread."""

    def __init__(self, path: Path = KMSG) -> None:
        self.xids: dict[tuple[str, int], tuple[int, float]] = {}
        """Number of times since the machine started (as far back as its log reaches), and the last
        time (Unix seconds), by the card, as ``same_bus`` names it, and the code."""
        self.is_readable, self._caught_up = True, False
        try:
            self._file = os.open(path, os.O_RDONLY | os.O_NONBLOCK | os.O_CLOEXEC)
        except OSError:
            self.is_readable = False

    def read(self) -> None:
        now_unix, since_start = time.time(), time.monotonic()
        for _ in range(RECORDS_AT_ONCE if self.is_readable else 0):
            try:
                record = os.read(self._file, RECORD_BYTES)
            except BrokenPipeError:
                # Some were overwritten before they were read; next is the oldest that is left.
                continue
            except OSError as error:
                self.is_readable = self._caught_up = isinstance(error, BlockingIOError)
                return
            if not record:
                return
            found = _XID.match(record.decode(errors="replace")) if _MARK in record else None
            if found is not None:
                # The log's clock goes wrong by minutes in months: a new record is of now.
                ago = 0.0 if self._caught_up else since_start - int(found[1]) / 1e6
                self._note((_bus(*found.group(2, 3, 4)), int(found[5])), now_unix - ago)

    def with_xids(self, gpus: Sequence[Gpu]) -> tuple[Gpu, ...]:
        """Return the GPUs with what the log has of them; where it and the driver's events have the
        same code, the log began earlier."""
        if not self.is_readable:
            return tuple(gpus)
        logged: dict[str, dict[int, XidError]] = {}
        for (bus, code), (count, at) in self.xids.items():
            logged.setdefault(bus, {})[code] = XidError(code, count, at)
        return tuple(
            [
                gpu
                if gpu.identity.pci_bus_id is None
                else replace(gpu, xid_errors=_merged(gpu, logged))
                for gpu in gpus
            ]
        )

    def close(self) -> None:
        if self.is_readable:
            self.is_readable = False
            os.close(self._file)

    def _note(self, kind: tuple[str, int], at_unix_seconds: float) -> None:
        times, _ = self.xids.pop(kind, (0, 0.0))
        # The newest last: the first goes when there are too many.
        self.xids[kind] = times + 1, at_unix_seconds
        if len(self.xids) > KINDS_KEPT:
            del self.xids[next(iter(self.xids))]


def _merged(gpu: Gpu, logged: dict[str, dict[int, XidError]]) -> tuple[XidError, ...]:
    reported = {one.code: one for one in gpu.xid_errors or ()}
    here = logged.get(same_bus(gpu.identity.pci_bus_id or ""), {})
    return tuple((reported | here).values())


def same_bus(pci_bus_id: str) -> str:
    """Return ``0000:65:00`` for ``00000000:65:00.0``: NVML and the kernel write one address
    differently."""
    return _bus(*found.groups()) if (found := _BUS_ID.match(pci_bus_id)) else pci_bus_id


def _bus(domain: str, bus: str, device: str) -> str:
    return f"{int(domain, 16):04x}:{bus}:{device}".lower()
