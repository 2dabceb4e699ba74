"""Jobs of several machines that exchange their gradients over a network: those that wait for it,
and those that do not."""

import random
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any

import pytest

from gpuwatch.core.model import (
    Gpu,
    GpuIdentity,
    GpuReading,
    Host,
    Job,
    JobMember,
    JobRank,
    Snapshot,
)
from gpuwatch.diagnosis.finding import Finding
from tests.diagnosis.engines import told
from tests.support.snapshots import snapshot

LINE = 1.15e9
"""Bytes a second of 10 Gbit/s, less what is around them."""
GPUS = 4


@dataclass(frozen=True)
class Steps:
    """Each computes for some seconds, and then exchanges; ``spin`` and ``work`` are what the GPUs
    draw in both, of their limit."""

    compute: float
    exchange: float
    spin: float = 0.2
    work: float = 0.7
    controller: float = 40.0
    controller_waits: float = 1.0
    hidden: bool = False
    """It is sent while they compute."""
    counts: bool = False
    """The driver reports activities (GPM)."""
    world_size: int | None = 8
    reads_traffic: bool = True
    idles: bool = False
    """No kernel is resident in the second half: that is a save, or whatever else is sent."""

    def waits(self, begin: float, end: float) -> float:
        """Seconds of the exchange in that time; no two steps are quite alike."""
        whole, waited, at = self.compute + self.exchange, 0.0, 0.0
        rng = random.Random(1)
        while at < end:
            length = whole * rng.uniform(0.9, 1.1)
            since, until = at + length * self.compute / whole, at + length
            waited += max(0.0, min(end, until) - max(begin, since))
            at += length
        return waited


def watched(steps: Steps, seconds: int = 150) -> Iterator[Snapshot]:
    rng = random.Random(2)
    began = snapshot(at=-4000.0).taken_at_unix_seconds
    limit, name = (700.0, "NVIDIA H200") if steps.counts else (400.0, "NVIDIA A100-SXM4-40GB")
    for second in range(1, seconds + 1):
        waits, short = steps.waits(second - 1.0, second), 6.0 * steps.waits(second - 1 / 6, second)
        sends = steps.waits(second - 1.0, second) if not steps.hidden else 1.0 - waits
        controller = steps.controller + short * (steps.controller_waits - steps.controller)
        watts = limit * (steps.work + waits * (steps.spin - steps.work))
        gpus = [
            Gpu(
                identity=GpuIdentity(
                    index=index, uuid=f"GPU-{index}", name=name, memory_total_bytes=40 * 2**30,
                    power_limit_default_watts=limit,
                ),
                reading=GpuReading(
                    busy_percent=99.0 * (1.0 - waits * steps.idles),
                    power_watts=watts + rng.gauss(0.0, 3.0),
                    power_limit_watts=limit, memory_used_bytes=25 * 2**30,
                    memory_controller_percent=round(controller + rng.gauss(0.0, 0.5)),
                    tensor_active_percent=45.0 * (1.0 - waits) if steps.counts else None,
                    sm_active_percent=85.0 - 80.0 * waits if steps.counts else None,
                ),
            )
            for index in range(GPUS)
        ]  # fmt: skip
        host = Host(
            name="node0", core_count=64, usable_cores=64.0, cpu_percent=10.0,
            network_transmit_bytes_per_second=sends * LINE + rng.gauss(2e4, 1e3)
            if steps.reads_traffic else None,
        )  # fmt: skip
        yield snapshot(
            at=float(second),
            sequence=second,
            host=host,
            gpus=tuple(gpus),
            jobs=(_job(steps, began),),
        )


def _job(steps: Steps, began: float) -> Job:
    pids: dict[int, dict[str, Any]] = {
        n: {"pid": 100 + n, "started_at_unix_seconds": began} for n in range(GPUS)
    }
    return Job(
        **pids[0], command="torchrun train.py", framework="torch", collectives="nccl",
        world_size=steps.world_size, gpu_uuids=tuple([f"GPU-{n}" for n in range(GPUS)]),
        ranks=tuple([JobRank(**pids[n], rank=n, gpu_uuids=(f"GPU-{n}",)) for n in range(GPUS)]),
        members=tuple([
            JobMember(**pids[n], role="rank", rank=n, state="R", cpu_percent=100.0,
                      main_thread_cpu_percent=97.0)
            for n in range(GPUS)
        ]),
    )  # fmt: skip


def network_waits(steps: Steps) -> list[Finding]:
    found = [one for said in told(watched(steps)) for one in said.findings]
    return [one for one in found if "wait for the network" in one.summary]


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize(
    ("compute", "exchange", "spin"),
    [(1.0, 1.0, 0.2), (0.6, 1.9, 0.05), (0.6, 1.9, 0.12), (0.6, 1.9, 0.28), (2.0, 1.0, 0.3)],
)
def test_a_wait_for_the_network_is_named_with_its_share(
    compute: float, exchange: float, spin: float, counts: bool
) -> None:
    """However much the kernels that wait draw, with activities and without."""
    found = network_waits(Steps(compute, exchange, spin, counts=counts))
    assert found
    share = exchange / (compute + exchange)
    (waits,) = [one for one in found[-1].evidence if one.name == "waits"]
    assert waits.value == pytest.approx(100.0 * share, abs=8.0)
    assert found[-1].severity == "warning"
    assert found[-1].advice[0].setting == "NCCL_SOCKET_IFNAME"


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize(
    "steps",
    [
        # The work hides it.
        {"compute": 1.9, "exchange": 0.1, "hidden": True},
        {"compute": 1.0, "exchange": 0.0, "hidden": True},
        # A little shows.
        {"compute": 1.9, "exchange": 0.1},
        # The second half of each step keeps the memory busy and not the multiprocessors.
        {"compute": 1.0, "exchange": 1.0, "spin": 0.7, "controller": 6.0,
         "controller_waits": 80.0, "hidden": True},
        # The gradients stay on the machine: what is sent is something else.
        {"compute": 1.0, "exchange": 1.0, "world_size": GPUS},
        # Saves to another machine: nothing runs meanwhile.
        {"compute": 26.0, "exchange": 4.0, "idles": True},
        # Nobody knows what is sent.
        {"compute": 1.0, "exchange": 1.0, "reads_traffic": False},
    ],
)  # fmt: skip
def test_no_wait_for_the_network_is_made_up(steps: dict[str, Any], counts: bool) -> None:
    """Of a job that has none, or of which it cannot be told."""
    assert network_waits(Steps(**steps, counts=counts)) == []


@pytest.mark.parametrize("counts", [False, True])
@pytest.mark.parametrize(
    ("compute", "exchange", "hidden"), [(1.9, 0.1, True), (1.0, 0.0, True), (2.9, 0.1, False)]
)
def test_a_healthy_job_of_several_machines_is_left_alone(
    compute: float, exchange: float, hidden: bool, counts: bool
) -> None:
    """Nothing is said of it at all."""
    steps = Steps(compute, exchange, hidden=hidden, counts=counts)
    assert [one.rule for said in told(watched(steps)) for one in said.findings] == []
