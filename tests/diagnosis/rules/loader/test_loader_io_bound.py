"""loader_io_bound: firing, quiet, unknown."""

from __future__ import annotations

from typing import Any

from gpuwatch.diagnosis.facts.window import Window
from tests.diagnosis import windows as w

check = w.check_of("loader_io_bound")

GPUS = (w.gpu(busy=w.swinging(0.35)),)


def waiting(host_facts: dict[str, Any] | None = None, **facts: Any) -> Window:
    slow = w.workers(4, **({"cpu_percent": 12.0, "disk_wait_percent": 85.0} | facts))
    return w.window(
        gpus=GPUS,
        job=w.job(
            workers=slow,
            main_thread_when_idle_percent=3.0,
            read_bytes_per_second=150e6,
            ranks=(w.rank(loader_workers=4, workers=slow),),
        ),
        host=w.host(**({"pressure_io_percent": 70.0} | (host_facts or {}))),
    )


def test_workers_in_disk_wait() -> None:
    """Storage is named, and nobody is told to add workers first."""
    firing = w.fires(check(waiting()))
    assert "storage" in firing.advice[0].action
    assert all(advice.setting != "num_workers" for advice in firing.advice)
    assert firing.strength > 0.9


def test_state_d_alone_suffices() -> None:
    """Where the kernel keeps no accounts of the wait (a zero), looks at the state count."""
    w.fires(check(waiting(disk_wait_percent=None, in_disk_wait_share=0.6)))
    w.fires(check(waiting(disk_wait_percent=0.0, in_disk_wait_share=0.6)))


def test_a_calm_machine_speaks_against_it() -> None:
    """Low I/O pressure is listed as evidence against, and lowers the strength."""
    calm = w.fires(check(waiting({"pressure_io_percent": 1.0})))
    assert calm.strength < w.fires(check(waiting())).strength
    assert any(not evidence.supports for evidence in calm.evidence)


def test_main_process_that_waits_for_the_disk() -> None:
    """Without workers the training process's own wait counts."""
    alone = w.job(
        workers=None,
        ranks=(w.rank(loader_workers=0, workers=None, disk_wait_percent=50.0),),
        read_bytes_per_second=90e6,
    )
    firing = w.fires(check(w.window(gpus=GPUS, job=alone, host=w.host(pressure_io_percent=60.0))))
    assert firing.advice[-1].setting == "num_workers"


QUIET = {
    "healthy": w.window(),
    "no disk wait": w.window(gpus=GPUS),
    "computes more": waiting(cpu_percent=60.0, disk_wait_percent=30.0),
    "while a checkpoint is written": w.window(
        gpus=GPUS,
        job=w.job(
            workers=None,
            ranks=(w.rank(loader_workers=0, workers=None, disk_wait_percent=50.0),),
            read_bytes_per_second=0.0,
            write_bytes_per_second=400e6,
        ),
    ),
}


UNKNOWN = {
    "no job": (w.gpu_only(*GPUS), "job's processes"),
    "no wait read": (waiting(disk_wait_percent=None, in_disk_wait_share=None), "disk wait"),
    "no workers": (
        w.window(
            gpus=GPUS, job=w.job(workers=None, ranks=(w.rank(loader_workers=None, workers=None),))
        ),
        "loader workers",
    ),
}
