"""A job marks when it uses the GPU; NVML, read by another process, shows it."""

import os
import signal
import subprocess
import sys
import time
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pynvml as nv
import pytest

from gpuwatch.core.source import ManualClock
from tests.support import virtual_gpu
from tests.support.fake_nvml import FakeNvml
from tests.support.virtual_gpu import VirtualGpu

ROOT = Path(__file__).parents[2]
SAMPLE_US = 30_000

HOLDING = """
import sys
from tests.support.virtual_gpu import VirtualGpu
gpu = VirtualGpu.open(0, memory_bytes=2 << 30)
with gpu.kernel():
    print("busy", flush=True)
    sys.stdin.readline()
"""


def start_job(fake: FakeNvml, code: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-c", code],
        env=fake.env(),
        cwd=ROOT,
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        text=True,
    )


@pytest.fixture
def card(fake: FakeNvml) -> FakeNvml:
    fake.gpu[0].set(sample_period_us=SAMPLE_US)
    fake.gpu[1].set(sample_period_us=SAMPLE_US)
    return fake


def line(job: subprocess.Popen[str]) -> str:
    assert job.stdout is not None
    return job.stdout.readline().strip()


def finish(job: subprocess.Popen[str]) -> None:
    job.communicate("\n", timeout=60)


def levels(handle: Any, begin: float, end: float) -> list[int]:
    """Sample values whose whole period lies between two moments."""
    samples = nv.nvmlDeviceGetSamples(handle, nv.NVML_GPU_UTILIZATION_SAMPLES, 0)[1]
    return [
        sample.sampleValue.uiVal
        for sample in samples
        if begin * 1e6 + SAMPLE_US <= sample.timeStamp <= end * 1e6
    ]


def test_a_killed_job_is_let_go(card: FakeNvml, handle: Any) -> None:
    """A job killed in the middle of a kernel does not keep the GPU busy, even unreaped."""
    job = start_job(card, HOLDING)
    assert line(job) == "busy"
    assert [p.pid for p in nv.nvmlDeviceGetComputeRunningProcesses(handle)] == [job.pid]
    os.kill(job.pid, signal.SIGKILL)
    os.waitid(os.P_PID, job.pid, os.WEXITED | os.WNOWAIT)
    assert nv.nvmlDeviceGetComputeRunningProcesses(handle) == []
    killed = time.time()
    time.sleep(3 * SAMPLE_US / 1e6)
    finish(job)
    assert set(levels(handle, killed, time.time())) == {0}


def test_a_kernel_that_only_waits_fills_few_sms(card: FakeNvml, handle: Any) -> None:
    """It is resident all the time, as a collective that waits, and SM activity tells it apart."""
    gpu = VirtualGpu.open(0, sm_percent=95)
    try:
        with gpu.kernel():
            worked = _sm_activity(handle)
        with gpu.kernel(sm_percent=12):
            waited = _sm_activity(handle)
    finally:
        gpu.close()
    assert (worked, waited) == (95.0, 12.0)


def _sm_activity(handle: Any) -> float:
    """Over a moment from now on."""
    asked = nv.c_nvmlGpmMetricsGet_t()
    asked.version, asked.numMetrics = nv.NVML_GPM_METRICS_GET_VERSION, 1
    asked.metrics[0].metricId = nv.NVML_GPM_METRIC_SM_UTIL
    for name in ("sample1", "sample2"):
        sample = nv.nvmlGpmSampleAlloc()
        nv.nvmlGpmSampleGet(handle, sample)
        setattr(asked, name, sample)
        time.sleep(0.002)
    nv.nvmlGpmMetricsGet(asked)
    for sample in (asked.sample1, asked.sample2):
        nv.nvmlGpmSampleFree(sample)
    return float(asked.metrics[0].value)


def test_jobs_that_share_a_gpu_overlap(card: FakeNvml, handle: Any) -> None:
    """Two jobs busy at the same time are 100%, not 200%; each has its own share."""
    first, second = VirtualGpu.open(0), VirtualGpu.open(0)
    try:
        with first.kernel(), second.kernel():
            time.sleep(3 * SAMPLE_US / 1e6)
            assert nv.nvmlDeviceGetUtilizationRates(handle).gpu == 100
            assert len(nv.nvmlDeviceGetComputeRunningProcesses(handle)) == 2
    finally:
        first.close()
        second.close()


def test_launched_work_goes_on_without_the_job(
    card: FakeNvml, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A launch returns at once and the GPU is busy until it is done; launches queue up."""
    clock = ManualClock()
    times = SimpleNamespace(
        time_ns=lambda: round(clock.unix() * 1e6) * 1000,
        sleep=clock.advance,
    )
    monkeypatch.setattr(virtual_gpu, "time", times)
    gpu, begin = VirtualGpu.open(0), clock.seconds
    try:
        gpu.launch(0.06)
        gpu.launch(0.06)
        assert clock.seconds == begin
        gpu.synchronize()
        assert clock.seconds - begin == pytest.approx(0.12, abs=1e-5)
        assert gpu._slot.total_busy_us == 120_000
        assert gpu._slot.head == 1
    finally:
        gpu.close()
