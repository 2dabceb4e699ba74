"""loader_io_bound: firing, quiet, unknown."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis.windows import (
    check_of,
    fires,
    gpu,
    gpu_only,
    host,
    is_clear,
    job,
    misses,
    rank,
    swinging,
    window,
    workers,
)

check = check_of("loader_io_bound")

GPUS = (gpu(busy=swinging(0.35)),)


def waiting(host_facts: dict[str, Any] | None = None, **facts: Any) -> Window:
    slow = workers(4, **({"cpu_percent": 12.0, "disk_wait_percent": 85.0} | facts))
    return window(
        gpus=GPUS,
        job=job(
            workers=slow,
            main_thread_when_idle_percent=3.0,
            read_bytes_per_second=150e6,
            ranks=(rank(loader_workers=4, workers=slow),),
        ),
        host=host(**({"pressure_io_percent": 70.0, "iowait_percent": 20.0} | (host_facts or {}))),
    )


def test_workers_in_disk_wait() -> None:
    """Storage is named, and nobody is told to add workers first."""
    firing = fires(check(waiting()))
    assert "storage" in firing.advice[0].action
    assert all(advice.setting != "num_workers" for advice in firing.advice)
    assert firing.strength > 0.9


def test_state_d_alone_suffices() -> None:
    """Where the kernel keeps no accounts of the wait (a zero), looks at the state count."""
    fires(check(waiting(disk_wait_percent=None, in_disk_wait_share=0.6)))
    fires(check(waiting(disk_wait_percent=0.0, in_disk_wait_share=0.6)))


def test_a_calm_machine_speaks_against_it() -> None:
    """Low I/O pressure is listed as evidence against, and lowers the strength."""
    calm = fires(check(waiting({"pressure_io_percent": 1.0})))
    assert calm.strength < fires(check(waiting())).strength
    assert any(not evidence.supports for evidence in calm.evidence)


def test_main_process_that_waits_for_the_disk() -> None:
    """Without workers the training process's own wait counts."""
    alone = job(
        workers=None,
        ranks=(rank(loader_workers=0, workers=None, disk_wait_percent=50.0),),
        read_bytes_per_second=90e6,
    )
    firing = fires(check(window(gpus=GPUS, job=alone, host=host(pressure_io_percent=60.0))))
    assert firing.advice[-1].setting == "num_workers"


@pytest.mark.parametrize(
    "quiet",
    [
        pytest.param(window(), id="healthy"),
        pytest.param(window(gpus=GPUS), id="no disk wait"),
        pytest.param(waiting(cpu_percent=60.0, disk_wait_percent=30.0), id="computes more"),
    ],
)
def test_quiet(quiet: Window) -> None:
    """Without wait for the disk it stays quiet, whatever the GPU does."""
    is_clear(check(quiet))


def test_quiet_while_a_checkpoint_is_written() -> None:
    """A process without workers that waits for writes is not loading."""
    saving = job(
        workers=None,
        ranks=(rank(loader_workers=0, workers=None, disk_wait_percent=50.0),),
        read_bytes_per_second=0.0,
        write_bytes_per_second=400e6,
    )
    is_clear(check(window(gpus=GPUS, job=saving)))


@pytest.mark.parametrize(
    ("unknown", "missing"),
    [
        pytest.param(gpu_only(*GPUS), "job's processes", id="no job"),
        pytest.param(
            waiting(disk_wait_percent=None, in_disk_wait_share=None), "disk wait", id="no wait read"
        ),
        pytest.param(
            window(
                gpus=GPUS, job=job(workers=None, ranks=(rank(loader_workers=None, workers=None),))
            ),
            "loader workers",
            id="no workers",
        ),
    ],
)
def test_unknown(unknown: Window, missing: str) -> None:
    """What was missing is named."""
    misses(check(unknown), missing)
