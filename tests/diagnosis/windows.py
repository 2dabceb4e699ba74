"""Windows made by hand: a healthy job on one GPU, and what differs from it.

Each builder takes the fields of the type it builds; what is not given is what a well-fed job on
a quiet machine of 16 cores shows. ``window()`` is such a job, ``window(gpus=(gpu(...),),
job=None)`` one GPU of which only the driver's readings are known.
"""

from dataclasses import replace
from typing import Any

from gpuwatch.core.model import GpuIdentity, Job, JobRank
from gpuwatch.diagnosis.catalogue import find
from gpuwatch.diagnosis.facts.window import (
    GpuFacts,
    HostFacts,
    JobFacts,
    RankFacts,
    Window,
    WorkerFacts,
)
from gpuwatch.diagnosis.finding import Pause
from gpuwatch.diagnosis.rule import Check, Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rule_state import RuleState
from gpuwatch.diagnosis.signals.waveform import Runs, Waveform

GIB = 1024**3
NOW = 1_700_000_000.0
PID = 4242
CORES = 16
LENGTH_SECONDS = 60.0


def steady(percent: float = 97.0, *, sample_seconds: float = 0.1) -> Waveform:
    """A GPU that stays near one level: fed at 97, middling at 45, idle at 0."""
    return Waveform(
        seconds=LENGTH_SECONDS, sample_seconds=sample_seconds, mean_percent=percent,
        low_percent=max(0.0, percent - 3.0), high_percent=min(100.0, percent + 2.0),
        duty=1.0 if percent >= 60 else 0.0, busy=Runs(count=0), idle=Runs(count=0),
        middling_share=1.0 if 20 < percent < 60 else 0.0
    )  # fmt: skip


def swinging(
    duty: float = 0.4, *, period_seconds: float = 2.0, sample_seconds: float = 0.1
) -> Waveform:
    """0 -> 99% and back in a rhythm, busy ``duty`` of the time."""
    count = int(LENGTH_SECONDS / period_seconds)
    return Waveform(
        seconds=LENGTH_SECONDS, sample_seconds=sample_seconds, mean_percent=100.0 * duty * 0.98,
        low_percent=0.0, high_percent=99.0, duty=duty, period_seconds=period_seconds,
        busy=Runs(count=count, mean_seconds=duty * period_seconds),
        idle=Runs(count=count - 1, mean_seconds=(1.0 - duty) * period_seconds), middling_share=0.05
    )  # fmt: skip


def identity(index: int = 0, **fields: Any) -> GpuIdentity:
    healthy = GpuIdentity(
        index=index, uuid=f"GPU-{index}", name="NVIDIA H200", memory_total_bytes=140 * GIB,
        power_limit_default_watts=700.0, temperature_slowdown_celsius=87.0, sm_clock_max_mhz=1980,
        pcie_generation_max=5, pcie_width_max=16, compute_capability="9.0", numa_node=0
    )  # fmt: skip
    return replace(healthy, **fields)


def gpu(index: int = 0, **facts: Any) -> GpuFacts:
    """A GPU that is fed and works; ``identity=`` replaces its identity."""
    healthy = GpuFacts(
        identity=identity(index), xid_errors=(), busy=steady(), power_mean_watts=610.0,
        power_busy_watts=620.0,
        power_plateau_watts=640.0, power_limit_watts=700.0, sm_active_percent=88.0,
        tensor_active_percent=42.0, dram_active_percent=46.0, memory_controller_percent=45.0,
        memory_used_bytes=90.0 * GIB, memory_highest_bytes=91.0 * GIB,
        memory_slope_bytes_per_second=0.0, memory_slope_error_bytes_per_second=1e4,
        temperature_highest_celsius=65.0, sm_clock_busy_mhz=1970.0, throttle_shares=(),
        pcie_generation_busy=5, pcie_width_busy=16, pcie_rx_bytes_per_second=1.2e9,
        pcie_rx_idle_bytes_per_second=2e6, ecc_uncorrected_new=0, ecc_corrected_new=0,
        remapped_rows_failed=False, remapped_rows_pending=False, foreign_busy_percent=0.0,
        foreign_memory_bytes=0.0, others=(), own_busy_percent=97.0, own_memory_bytes=89.0 * GIB,
        pcie_replays_new=0, nvlink_replays_new=0, nvlink_recoveries_new=0, link_errors_seconds=60.0
    )  # fmt: skip
    return replace(healthy, **facts)


def workers(count: float = 8.0, **facts: Any) -> WorkerFacts:
    """Loader workers that keep up with room to spare."""
    healthy = WorkerFacts(
        count=count, cpu_percent=45.0, run_queue_wait_percent=1.0, disk_wait_percent=0.5,
        in_disk_wait_share=0.01, involuntary_switches_per_second=5.0,
        memory_slope_bytes_per_second=0.0, memory_slope_error_bytes_per_second=1e4, orphaned=0
    )  # fmt: skip
    return replace(healthy, **facts)


def rank(number: int | None = None, **facts: Any) -> RankFacts:
    offset = 0 if number is None else number
    healthy = RankFacts(
        pid=PID + offset, rank=number, gpu_uuids=(f"GPU-{offset}",), loader_workers=8,
        pinned_memory=True, main_thread_percent=45.0, run_queue_wait_percent=1.0,
        disk_wait_percent=0.0, write_bytes_per_second=1e4, workers=workers(), state="S",
        stopped_seconds=0.0
    )  # fmt: skip
    return replace(healthy, **facts)


def model_job(**fields: Any) -> Job:
    healthy = Job(
        pid=PID, started_at_unix_seconds=NOW - 3600.0, command="python train.py", framework="torch",
        ranks=(JobRank(pid=PID, gpu_uuids=("GPU-0",), loader_workers=8, pinned_memory=True),),
        gpu_uuids=("GPU-0",), affinity_cores=CORES, usable_cores=float(CORES)
    )  # fmt: skip
    return replace(healthy, **fields)


def job(*, model: dict[str, Any] | None = None, **facts: Any) -> JobFacts:
    """A job of one rank with 8 workers; ``model=`` gives fields of its ``Job``."""
    healthy = JobFacts(
        job=model_job(**(model or {})), watched_seconds=600.0, cpu_cores=4.5,
        main_thread_percent=45.0, main_thread_when_idle_percent=40.0, workers=workers(),
        workers_when_idle_percent=45.0, workers_when_busy_percent=45.0, main_thread_phase=0.0,
        cpu_throttled_percent=0.0, read_bytes_per_second=60e6, write_bytes_per_second=1e4,
        write_when_idle_bytes_per_second=1e4, compile_share=0.0, ranks=(rank(),)
    )  # fmt: skip
    return replace(healthy, **facts)


def host(**facts: Any) -> HostFacts:
    healthy = HostFacts(
        cpu_percent=30.0, core_count=CORES, pressure_io_percent=0.3, memory_total_bytes=128 * GIB,
        memory_used_bytes=40.0 * GIB, memory_slope_bytes_per_second=0.0,
        memory_slope_error_bytes_per_second=1e4, swap_growth_bytes=0.0, shm_total_bytes=64 * GIB,
        shm_used_bytes=4.0 * GIB
    )  # fmt: skip
    return replace(healthy, **facts)


def pause(before_seconds: float, seconds: float = 8.0, **facts: Any) -> Pause:
    """One that began ``before_seconds`` before the window was taken."""
    return Pause(at_unix_seconds=NOW - before_seconds, seconds=seconds, **facts)


def window(**fields: Any) -> Window:
    """A healthy job on one GPU, watched for a minute at one snapshot a second."""
    healthy = Window(
        taken_at_unix_seconds=NOW, seconds=LENGTH_SECONDS, watched_seconds=LENGTH_SECONDS,
        interval_seconds=1.0, gpus=(gpu(),), job=job(), host=host(), steady_seconds=600.0
    )  # fmt: skip
    return replace(healthy, **fields)


def gpu_only(*gpus: GpuFacts) -> Window:
    """What an nvidia-smi log shows: GPUs, no job, no host."""
    return window(gpus=gpus or (gpu(),), job=None, host=HostFacts())


def check_of(name: str) -> Check:
    """The rule's check, with what ``RULE`` says of it in its firing."""
    rule = find(name)

    def check(window: Window) -> Verdict:
        verdict = rule.check(window)
        if not isinstance(verdict, Firing):
            return verdict
        held = RuleState(rule, firing=verdict)
        return replace(
            verdict,
            evidence=[one for one in verdict.evidence if one and one.value is not None],
            advice=rule.cure if verdict.advice is None else verdict.advice,
            severity=held.severity,
            explains=held.explains,
        )

    return check


def fires(verdict: Verdict) -> Firing:
    assert isinstance(verdict, Firing), verdict
    return verdict


def is_clear(verdict: Verdict) -> Clear:
    assert isinstance(verdict, Clear), verdict
    assert verdict.why
    return verdict


def misses(verdict: Verdict, *readings: str) -> Unknown:
    """It could not be told, and each of these readings is among those named as missing."""
    assert isinstance(verdict, Unknown), verdict
    assert verdict.missing
    for reading in readings:
        assert any(reading in text for text in verdict.missing), verdict.missing
    return verdict
