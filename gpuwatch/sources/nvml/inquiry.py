"""Facts that do not change while a GPU is there, asked once for each."""

from __future__ import annotations

import re
from collections.abc import Iterator
from pathlib import Path
from types import TracebackType
from typing import Any

from gpuwatch.core.model import GpuIdentity
from gpuwatch.sources.linux.procfs import read_if_possible
from gpuwatch.sources.nvml import parse, tables
from gpuwatch.sources.nvml.buffers import FieldBatch
from gpuwatch.sources.nvml.schedule import DriverGoneError, Tally

PCI_DEVICES = Path("/sys/bus/pci/devices")


class Inquirer:
    """Asks for single facts: one that cannot be had, or cannot be true, is ``None``.

    A lost GPU and a driver that went away are not about one fact, so those errors are raised. As a
    context manager it counts and times the calls within, and raises ``DriverGoneError`` when the
    driver turns out to be gone and ``NVMLError`` for anything else (``quiet``: nothing).
    """

    def __init__(self, nvml: Any, tally: Tally | None = None, *, quiet: bool = False) -> None:
        self.nvml = nvml
        self.calls = 0
        self.complete = True
        """No fact was missed for a reason that may pass."""
        self._tally = tally or Tally()
        self.quiet = quiet
        self._began = (0.0, 0)

    def __enter__(self) -> Inquirer:
        self._began = (self._tally.timer(), self.calls)
        return self

    def __exit__(
        self,
        _kind: type[BaseException] | None,
        error: BaseException | None,
        _traceback: TracebackType | None,
    ) -> bool:
        started, before = self._began
        self._tally.doing = None
        self._tally.count(started, self.calls - before)
        if not isinstance(error, Exception):
            return False
        code = getattr(error, "value", tables.SENSELESS)
        if not isinstance(error, self.nvml.NVMLError):
            # An answer nobody foresaw is about this GPU, or this question, alone.
            code = tables.SENSELESS
        if code in tables.DRIVER_GONE:
            raise DriverGoneError(code) from None
        if self.quiet:
            self.complete = False
            return True
        raise self.nvml.NVMLError(code) from None

    def must(self, name: str, *arguments: Any) -> Any:
        """The same for what nothing goes without. Raises ``NVMLError``."""
        self.calls += 1
        self._tally.doing = name, None
        function = getattr(self.nvml, name)
        # The decorated functions decode strictly and raise on bytes that are not UTF-8.
        return getattr(function, "__wrapped__", function)(*arguments)

    def ask(self, name: str, *arguments: Any) -> Any:
        """The result of the pynvml function ``name``, bytes left as they are."""
        if not hasattr(self.nvml, name):
            return None
        try:
            return self.must(name, *arguments)
        except self.nvml.NVMLError as error:
            if error.value in tables.FATAL:
                raise
            if error.value not in tables.REFUSED:
                self.complete = False
        # An answer nobody foresaw costs this fact, and nothing else.
        except Exception:
            self.complete = False
        return None

    def number(self, name: str, *arguments: Any) -> int | None:
        return parse.available(self.ask(name, *arguments))

    def text(self, name: str, *arguments: Any, like: re.Pattern[str] | None = None) -> str | None:
        """``like``: what the whole text must match to be believed."""
        raw = self.ask(name, *arguments)
        return None if raw is None else self.matching(parse.text(raw), like)

    def matching(self, text: str, like: re.Pattern[str] | None) -> str | None:
        if not text or (like is None and "\N{REPLACEMENT CHARACTER}" not in text):
            return text or None
        if like is not None and like.fullmatch(text):
            return text
        self.complete = False
        return text if like is None else None

    def fact(self, field: str, value: Any) -> Any:
        """``value`` if the identity's ``field`` can be that."""
        known = parse.plausible(field, value)
        if known is None and value is not None:
            self.complete = False
        return known


def driver_versions(ask: Inquirer) -> dict[str, str | None]:
    """The fields of ``GpuIdentity`` that are the driver's."""
    version = ask.text("nvmlSystemGetDriverVersion", like=parse.VERSION)
    cuda = ask.number("nvmlSystemGetCudaDriverVersion_v2")
    text = None if cuda is None else parse.cuda_version(cuda) or str(cuda)
    return {
        "driver_version": version,
        "cuda_version": None if text is None else ask.matching(text, parse.CUDA_VERSION),
    }


def essential_facts(ask: Inquirer, handle: Any) -> dict[str, Any]:
    """The fields of ``GpuIdentity`` that a row and its first readings need. Raises ``NVMLError``
    when the GPU is lost or the driver is gone."""
    memory_total, unified = memory_total_bytes(ask, handle)
    bus_id = pci_bus_id(ask, handle)
    return {
        "name": ask.text("nvmlDeviceGetName", handle) or "NVIDIA GPU",
        "memory_total_bytes": memory_total,
        "memory_unified": unified,
        "compute_capability": compute_capability(ask, handle),
        "mig_mode": mig_mode(ask, handle),
        # Its MIG instances have these from the card.
        "pci_bus_id": bus_id,
        "numa_node": None if bus_id is None else numa_node(bus_id),
    }


def further_facts(ask: Inquirer, handle: Any) -> Iterator[dict[str, Any]]:
    """The other fields of a card's identity, a few calls at each step, since a slow driver takes
    seconds for all of them. Raises as ``essential_facts``."""
    default = ask.number("nvmlDeviceGetPowerManagementDefaultLimit", handle)
    yield _watts(ask, "power_limit_default_watts", default)
    limits = ask.ask("nvmlDeviceGetPowerManagementLimitConstraints", handle)
    most = None if limits is None else parse.available(limits[1])
    yield _watts(ask, "power_limit_max_watts", most)
    yield thermal_limits(ask, handle)
    for name, function, arguments in (
        ("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", (tables.CLOCK_SM,)),
        ("memory_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", (tables.CLOCK_MEMORY,)),
        ("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", ()),
        ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", ()),
    ):
        # 0 is said where there is no such clock or link.
        yield {name: ask.fact(name, ask.number(function, handle, *arguments) or None)}


def _watts(ask: Inquirer, field: str, milliwatts: int | None) -> dict[str, Any]:
    return {field: ask.fact(field, parse.in_thousands(milliwatts))}


def read_mig_identity(ask: Inquirer, handle: Any, parent: GpuIdentity) -> GpuIdentity:
    """A MIG instance: its own uuid, name and memory; what it shares it has from the card."""
    instance = ask.fact("mig_instance", ask.number("nvmlDeviceGetGpuInstanceId", handle))
    memory_total, _ = memory_total_bytes(ask, handle)
    number = "?" if instance is None else str(instance)
    return parent.divided(
        uuid=ask.text("nvmlDeviceGetUUID", handle, like=parse.UUID) or f"{parent.uuid}/{number}",
        name=ask.text("nvmlDeviceGetName", handle) or f"{parent.name} MIG",
        memory_total_bytes=memory_total,
        mig_instance=instance,
    )


def mig_mode(ask: Inquirer, handle: Any) -> bool | None:
    """True when the card is divided; ``None`` where it cannot be, or does not say."""
    mode = ask.ask("nvmlDeviceGetMigMode", handle)
    if mode is None or mode[0] in (0, 1):
        return None if mode is None else mode[0] == 1
    ask.complete = False
    return None


def compute_capability(ask: Inquirer, handle: Any) -> str | None:
    capability = ask.ask("nvmlDeviceGetCudaComputeCapability", handle)
    if capability is None or not 0 < capability[0] < 100 or not 0 <= capability[1] < 100:
        ask.complete = ask.complete and capability is None
        return None
    return f"{capability[0]}.{capability[1]}"


def memory_total_bytes(ask: Inquirer, handle: Any) -> tuple[int | None, bool]:
    """(total, unified): parts that share the host's memory report no total of their own. GB10
    answers "not supported" to both versions of the call; a total of 0 says the same."""
    nvml = ask.nvml
    refused = False
    for version in (getattr(nvml, "nvmlMemory_v2", None), None):
        try:
            ask.calls += 1
            total = nvml.nvmlDeviceGetMemoryInfo(handle, version).total
        except nvml.NVMLError as error:
            if error.value in tables.FATAL:
                raise
            refused = error.value == tables.NOT_SUPPORTED
            if error.value not in tables.REFUSED:
                ask.complete = False
            continue
        if total == 0:
            return None, True
        return ask.fact("memory_total_bytes", parse.available(total)), False
    return None, refused


def pci_bus_id(ask: Inquirer, handle: Any) -> str | None:
    info = ask.ask("nvmlDeviceGetPciInfo", handle)
    if info is None:
        return None
    # As bytes: pynvml's structures decode strictly.
    raw = object.__getattribute__(info, "busId")
    return ask.matching(parse.text(raw).lower(), parse.BUS_ID)


def numa_node(bus_id: str, devices: Path = PCI_DEVICES) -> int | None:
    """The NUMA node the card is attached to, from the kernel; -1 there means none is known."""
    domain, _, rest = bus_id.partition(":")
    node = read_if_possible(devices / f"{domain[-4:]}:{rest}" / "numa_node").strip()
    return int(node) if node.isdigit() else None


def thermal_limits(ask: Inquirer, handle: Any) -> dict[str, float | None]:
    """Limits in degrees, which drivers from Ada on may give as margins instead."""
    limits: dict[str, float | None] = {}
    for field, which in tables.THRESHOLDS.items():
        degrees = ask.number("nvmlDeviceGetTemperatureThreshold", handle, which)
        limits[field] = ask.fact(field, degrees) or None
    if None not in limits.values():
        return limits
    degrees = ask.number("nvmlDeviceGetTemperature", handle, tables.TEMPERATURE_GPU)
    now = ask.fact("temperature_celsius", degrees)
    margin = ask.ask("nvmlDeviceGetMarginTemperature", handle)
    if now is None or margin is None:
        return limits
    margins: parse.FieldValues = {}
    ask.calls += 1
    try:
        fields = tuple((number, 0) for number in tables.MARGINS.values())
        margins = FieldBatch(ask.nvml, handle, fields).read()
    except ask.nvml.NVMLError as error:
        if error.value not in tables.REFUSED:
            ask.complete = False
    for field, number in tables.MARGINS.items():
        if limits[field] is None and number in margins:
            limits[field] = ask.fact(field, now + margin - parse.signed(margins[number]))
    return limits
