"""The GPU models of the cases. Sizes, clocks and limits are those of the makers' data sheets."""

from dataclasses import replace

from gpuwatch.sources.simulated.cards import A100, GB10, GIB, H200, RTX_4090, Card

H100_PCIE = replace(
    H200, name="NVIDIA H100 PCIe", memory_bytes=80 * GIB, limit_watts=350.0, idle_watts=48.0,
    ready_watts=30.0, sm_clock_mhz=1755, memory_clock_mhz=1593, memory_clock_idle_mhz=1593,
    celsius_per_watt=0.11, nvlink=False
)  # fmt: skip
B200 = replace(
    H200, name="NVIDIA B200", memory_bytes=180 * GIB, limit_watts=1000.0, idle_watts=140.0,
    ready_watts=60.0, sm_clock_mhz=1965, memory_clock_mhz=3996, memory_clock_idle_mhz=3996,
    celsius_per_watt=0.038, compute_capability="10.0"
)  # fmt: skip
V100 = replace(
    A100, name="Tesla V100-SXM2-32GB", memory_bytes=32 * GIB, limit_watts=300.0, idle_watts=42.0,
    ready_watts=16.0, sm_clock_mhz=1530, sm_clock_idle_mhz=135, memory_clock_mhz=877,
    memory_clock_idle_mhz=877, celsius_per_watt=0.11, pcie_generation=3, compute_capability="7.0",
    accumulators=False
)  # fmt: skip
L4 = replace(
    A100, name="NVIDIA L4", memory_bytes=23_034 * 1024**2, limit_watts=72.0, idle_watts=16.0,
    ready_watts=10.0, sm_clock_mhz=2040, sm_clock_idle_mhz=210, memory_clock_mhz=6251,
    memory_clock_idle_mhz=405, celsius_per_watt=0.55, compute_capability="8.9", idle_state=8,
    nvlink=False, accumulators=False
)  # fmt: skip
RTX_3090 = replace(
    RTX_4090, name="NVIDIA GeForce RTX 3090", memory_bytes=24 * GIB, limit_watts=350.0,
    idle_watts=25.0, ready_watts=70.0, sm_clock_mhz=2100, memory_clock_mhz=9751,
    celsius_per_watt=0.13, compute_capability="8.6"
)  # fmt: skip
T4 = replace(
    L4, name="Tesla T4", memory_bytes=15_360 * 1024**2, limit_watts=70.0, idle_watts=9.0,
    ready_watts=18.0, sm_clock_mhz=1590, sm_clock_idle_mhz=300, memory_clock_mhz=5001,
    pcie_generation=3, compute_capability="7.5"
)  # fmt: skip

TUNING: tuple[Card, ...] = (H200, A100, RTX_4090, L4)
HELD_OUT: tuple[Card, ...] = (H100_PCIE, B200, V100, RTX_3090, T4, GB10)
"""Other generations, sizes and power limits than those for choosing thresholds."""
