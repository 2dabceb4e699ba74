"""What does not change while a GPU is there, asked once for each."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, TypeVar

from gpuwatch.model import GpuIdentity
from gpuwatch.sources import nvml_parse as parse
from gpuwatch.sources import nvml_tables as tables
from gpuwatch.sources.nvml_buffers import FieldBatch

T = TypeVar("T")

PCI_DEVICES = Path("/sys/bus/pci/devices")


class Inquirer:
    """Asks for single facts: one that cannot be had is ``None``.

    A lost GPU and a driver that went away are not about one fact, so those errors are raised.
    """

    def __init__(self, nvml: Any) -> None:
        self.nvml = nvml
        self.calls = 0
        self.complete = True
        """No fact was missed for a reason that may pass."""

    def must(self, name: str, *arguments: Any) -> Any:
        """The same for what nothing goes without. Raises ``NVMLError``."""
        self.calls += 1
        function = getattr(self.nvml, name)
        return getattr(function, "__wrapped__", function)(*arguments)

    def ask(self, name: str, *arguments: Any) -> Any:
        """The result of the pynvml function ``name``, bytes left as they are."""
        function = getattr(self.nvml, name, None)
        if function is None:
            return None
        self.calls += 1
        try:
            # The decorated functions decode strictly and raise on bytes that are not UTF-8.
            return getattr(function, "__wrapped__", function)(*arguments)
        except self.nvml.NVMLError as error:
            if error.value in tables.FATAL:
                raise
            if error.value not in tables.PERMANENT | tables.RARELY_RETRIED:
                self.complete = False
            return None

    def number(self, name: str, *arguments: Any) -> int | None:
        value = self.ask(name, *arguments)
        return None if value is None else parse.unsigned(value)

    def text(self, name: str, *arguments: Any) -> str | None:
        raw = self.ask(name, *arguments)
        return None if raw is None else parse.text(raw) or None


def mapped(value: int | None, convert: Callable[[float], T | None]) -> T | None:
    return None if value is None else convert(value)


def read_uuid(ask: Inquirer, handle: Any, index: int) -> str:
    """Without a uuid (never seen on a real card) the bus id is as unique."""
    uuid = ask.text("nvmlDeviceGetUUID", handle)
    return uuid or pci_bus_id(ask, handle) or f"index-{index}"


def essential_facts(ask: Inquirer, handle: Any) -> dict[str, Any]:
    """The fields of ``GpuIdentity`` that a row and its first readings need.

    Raises ``NVMLError`` when the GPU is lost or the driver is gone.
    """
    memory_total, unified = memory_total_bytes(ask, handle)
    capability = ask.ask("nvmlDeviceGetCudaComputeCapability", handle)
    mig = ask.ask("nvmlDeviceGetMigMode", handle)
    return {
        "name": ask.text("nvmlDeviceGetName", handle) or "NVIDIA GPU",
        "memory_total_bytes": memory_total,
        "memory_unified": unified,
        "compute_capability": None if capability is None else f"{capability[0]}.{capability[1]}",
        "mig_mode": None if mig is None else mig[0] == 1,
    }


def further_facts(ask: Inquirer, handle: Any) -> Iterator[dict[str, Any]]:
    """The other fields of a card's identity, a few calls at each step, since a slow driver takes
    seconds for all of them. Raises as ``essential_facts``."""
    default = ask.number("nvmlDeviceGetPowerManagementDefaultLimit", handle)
    yield {"power_limit_default_watts": mapped(default, parse.watts)}
    limits = ask.ask("nvmlDeviceGetPowerManagementLimitConstraints", handle)
    yield {"power_limit_max_watts": None if limits is None else parse.watts(limits[1])}
    slowdown, shutdown = thermal_limits(ask, handle)
    yield {"temperature_slowdown_celsius": slowdown, "temperature_shutdown_celsius": shutdown}
    bus_id = pci_bus_id(ask, handle)
    yield {"pci_bus_id": bus_id, "numa_node": None if bus_id is None else numa_node(bus_id)}
    for name, function, arguments in (
        ("sm_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", (tables.CLOCK_SM,)),
        ("memory_clock_max_mhz", "nvmlDeviceGetMaxClockInfo", (tables.CLOCK_MEMORY,)),
        ("pcie_generation_max", "nvmlDeviceGetMaxPcieLinkGeneration", ()),
        ("pcie_width_max", "nvmlDeviceGetMaxPcieLinkWidth", ()),
    ):
        yield {name: ask.number(function, handle, *arguments)}


def read_mig_identity(
    ask: Inquirer, handle: Any, parent: GpuIdentity, instance: int | None
) -> GpuIdentity:
    """A MIG instance: its own uuid, name and memory; what it shares it has from the card."""
    memory_total, _ = memory_total_bytes(ask, handle)
    number = "?" if instance is None else str(instance)
    return GpuIdentity(
        index=parent.index,
        uuid=ask.text("nvmlDeviceGetUUID", handle) or f"{parent.uuid}/{number}",
        name=ask.text("nvmlDeviceGetName", handle) or f"{parent.name} MIG",
        pci_bus_id=parent.pci_bus_id,
        driver_version=parent.driver_version,
        cuda_version=parent.cuda_version,
        memory_total_bytes=memory_total,
        compute_capability=parent.compute_capability,
        mig_parent_uuid=parent.uuid,
        mig_instance=instance,
        numa_node=parent.numa_node,
    )


def memory_total_bytes(ask: Inquirer, handle: Any) -> tuple[int | None, bool]:
    """(total, unified): parts that share the host's memory report no total of their own.

    GB10 answers "not supported" to both versions of the call; a total of 0 says the same.
    """
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
            if error.value not in tables.PERMANENT | tables.RARELY_RETRIED:
                ask.complete = False
            continue
        if total == 0:
            return None, True
        return parse.memory_bytes(total), False
    return None, refused


def pci_bus_id(ask: Inquirer, handle: Any) -> str | None:
    info = ask.ask("nvmlDeviceGetPciInfo", handle)
    return None if info is None else parse.text(info.busId).lower() or None


def numa_node(bus_id: str, devices: Path = PCI_DEVICES) -> int | None:
    """The NUMA node the card is attached to, from the kernel; -1 there means none is known."""
    domain, _, rest = bus_id.partition(":")
    try:
        node = int((devices / f"{domain[-4:]}:{rest}" / "numa_node").read_text("ascii"))
    except (OSError, ValueError):
        return None
    return node if node >= 0 else None


def thermal_limits(ask: Inquirer, handle: Any) -> tuple[float | None, float | None]:
    """(slowdown, shutdown) in degrees.

    From Ada on drivers may answer in margins instead (``NVML_FI_DEV_TEMPERATURE_*_TLIMIT``):
    how far the limit is from the point where the margin temperature is 0.
    """
    slowdown = _threshold(ask, handle, tables.THRESHOLD_SLOWDOWN)
    shutdown = _threshold(ask, handle, tables.THRESHOLD_SHUTDOWN)
    if slowdown is not None and shutdown is not None:
        return slowdown, shutdown
    now = ask.number("nvmlDeviceGetTemperature", handle, tables.TEMPERATURE_GPU)
    margin = ask.ask("nvmlDeviceGetMarginTemperature", handle)
    if now is None or margin is None:
        return slowdown, shutdown
    limits = _margins(ask, handle)
    zero = now + margin
    if slowdown is None and tables.FIELD_SLOWDOWN_MARGIN in limits:
        slowdown = parse.celsius(zero - parse.signed(limits[tables.FIELD_SLOWDOWN_MARGIN]))
    if shutdown is None and tables.FIELD_SHUTDOWN_MARGIN in limits:
        shutdown = parse.celsius(zero - parse.signed(limits[tables.FIELD_SHUTDOWN_MARGIN]))
    return slowdown, shutdown


def _threshold(ask: Inquirer, handle: Any, which: int) -> float | None:
    degrees = mapped(ask.number("nvmlDeviceGetTemperatureThreshold", handle, which), parse.celsius)
    return degrees if degrees != 0 else None


def _margins(ask: Inquirer, handle: Any) -> dict[int, float | int]:
    fields = ((tables.FIELD_SLOWDOWN_MARGIN, 0), (tables.FIELD_SHUTDOWN_MARGIN, 0))
    ask.calls += 1
    try:
        return FieldBatch(ask.nvml, handle, fields).read()
    except ask.nvml.NVMLError:
        return {}
