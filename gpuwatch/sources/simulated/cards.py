"""The GPU models a simulated machine can hold.

Sizes, clocks and limits are those of the makers' data sheets and of what NVML reports for
these cards; thermal figures are chosen so that idle and full load settle where such cards do.
"""

from dataclasses import dataclass

GIB = 1024**3


@dataclass(frozen=True, slots=True, kw_only=True)
class Card:
    """One GPU model and which readings its driver gives; what is not said is the H200's."""

    name: str = "NVIDIA H200"
    memory_bytes: int = 150_754_820_096
    limit_watts: float = 700.0
    idle_watts: float = 75.0
    ready_watts: float = 42.0
    """Drawn on top of idle while the clocks are up but nothing runs."""
    sm_clock_mhz: int = 1980
    sm_clock_idle_mhz: int = 345
    memory_clock_mhz: int = 3201
    memory_clock_idle_mhz: int = 3201
    slowdown_celsius: float = 87.0
    shutdown_celsius: float = 92.0
    air_celsius: float = 25.0
    celsius_per_watt: float = 0.056
    pcie_generation: int = 5
    compute_capability: str = "9.0"
    idle_state: int = 0
    fan: bool = False
    ecc: bool = True
    gpm: bool = True
    nvlink: bool = True
    accumulators: bool = True
    memory_temperature: bool = True
    unified: bool = False
    power_limit_known: bool = True


H200 = Card()
A100 = Card(
    name="NVIDIA A100-SXM4-80GB", memory_bytes=80 * GIB, limit_watts=400.0, idle_watts=58.0,
    ready_watts=22.0, sm_clock_mhz=1410, sm_clock_idle_mhz=210, memory_clock_mhz=1593,
    memory_clock_idle_mhz=1593, celsius_per_watt=0.085, pcie_generation=4, compute_capability="8.0",
    gpm=False,
)  # fmt: skip
RTX_4090 = Card(
    name="NVIDIA GeForce RTX 4090", memory_bytes=25_757_220_864, limit_watts=450.0, idle_watts=21.0,
    ready_watts=34.0, sm_clock_mhz=3105, sm_clock_idle_mhz=210, memory_clock_mhz=10501,
    memory_clock_idle_mhz=405, slowdown_celsius=84.0, shutdown_celsius=90.0, celsius_per_watt=0.092,
    pcie_generation=4, compute_capability="8.9", idle_state=8, fan=True, ecc=False, gpm=False,
    nvlink=False, accumulators=False, memory_temperature=False,
)  # fmt: skip
GB10 = Card(
    name="NVIDIA GB10", memory_bytes=128 * GIB, limit_watts=100.0, idle_watts=5.0, ready_watts=6.0,
    sm_clock_mhz=2418, sm_clock_idle_mhz=208, memory_clock_mhz=8533, memory_clock_idle_mhz=8533,
    celsius_per_watt=0.48, compute_capability="12.1", idle_state=8, ecc=False, gpm=False,
    nvlink=False, accumulators=False, memory_temperature=False, unified=True,
    power_limit_known=False,
)  # fmt: skip
