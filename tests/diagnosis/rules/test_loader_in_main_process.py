"""loader_in_main_process: firing, quiet, unknown."""

from __future__ import annotations

from typing import Any

import pytest

from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.signals.waveform import Waveform
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
    steady,
    swinging,
    window,
)

check = check_of("loader_in_main_process")


def alone(wave: Waveform | None = None, shm: int = 64 * 1024**3, **facts: Any) -> Window:
    """One process that loads for 60% of the time and trains for 40%."""
    known: dict[str, Any] = {
        "workers": None,
        "workers_when_idle_percent": None,
        "workers_when_busy_percent": None,
        "cpu_cores": 1.0,
        "main_thread_percent": 80.0,
        "main_thread_when_idle_percent": 99.0,
        "main_thread_when_busy_percent": 45.0,
        "main_thread_phase": -0.8,
        "ranks": (rank(loader_workers=0, pinned_memory=None, workers=None),),
    }
    return window(
        gpus=(gpu(busy=wave or swinging(0.4)),),
        job=job(**(known | facts)),
        host=host(shm_total_bytes=shm),
    )


def test_anti_phase_without_workers() -> None:
    """A number of workers is named that keeps up, with persistent workers."""
    firing = fires(check(alone()))
    settings = [advice.setting for advice in firing.advice]
    assert settings == ["num_workers", "persistent_workers"]
    # 0.61 of the time loading over 0.39 of the time training, with headroom.
    assert firing.advice[0].wanted == "2"
    assert {"oscillation", "python_bound"} <= firing.explains
    assert firing.strength > 0.9


def test_number_stays_within_the_cores() -> None:
    """On two cores there is no room for more than two workers, on six for one less than six."""
    for cores, wanted in ((2.0, "2"), (6.0, "5")):
        few = alone(swinging(0.1), model={"usable_cores": cores})
        assert fires(check(few)).advice[0].wanted == wanted


def test_a_flat_waveform_is_less_sure() -> None:
    """Where the alternation is too fast to be seen, stacks would have made it surer."""
    flat = fires(check(alone(steady(45.0), main_thread_phase=None)))
    assert flat.missing == ("stacks of the main thread",)
    assert flat.strength < fires(check(alone())).strength - 0.1


def test_stacks_name_the_line() -> None:
    """The user's line in the loader is part of the evidence."""
    stacks = (("loading_data", 55.0, "train.py:12 in __getitem__"), ("computing", 45.0, None))
    firing = fires(check(alone(stacks=stacks)))
    assert any("train.py:12" in evidence.says for evidence in firing.evidence)


def test_a_small_shm_comes_first() -> None:
    """Workers in a container with 64 MB of /dev/shm would crash."""
    firing = fires(check(alone(shm=64 * 1024**2)))
    assert firing.advice[-1].setting == "shm-size"


@pytest.mark.parametrize(
    "quiet",
    [
        pytest.param(window(), id="healthy"),
        pytest.param(alone(steady(97.0)), id="no workers, fed all the same"),
        pytest.param(window(gpus=(gpu(busy=swinging()),)), id="has workers"),
        pytest.param(alone(main_thread_when_idle_percent=10.0), id="main thread rests"),
        pytest.param(alone(write_when_idle_bytes_per_second=8e8), id="writes a checkpoint"),
        pytest.param(alone(stacks=(("synchronising", 90.0, None),)), id="stacks say otherwise"),
    ],
)
def test_quiet(quiet: Window) -> None:
    """num_workers=0 alone is no fault."""
    is_clear(check(quiet))


@pytest.mark.parametrize(
    ("unknown", "missing"),
    [
        pytest.param(gpu_only(gpu(busy=swinging())), "job's processes", id="no job"),
        pytest.param(
            alone(ranks=(rank(loader_workers=None, workers=None),)),
            "loader workers",
            id="number of workers unknown",
        ),
        pytest.param(
            alone(
                main_thread_percent=None,
                main_thread_when_idle_percent=None,
                ranks=(rank(loader_workers=0, main_thread_percent=None, workers=None),),
            ),
            "main thread",
            id="no CPU",
        ),
    ],
)
def test_unknown(unknown: Window, missing: str) -> None:
    """What was missing is named."""
    misses(check(unknown), missing)


def test_a_main_thread_in_phase_needs_stacks() -> None:
    """Loading goes against the GPU; what goes with it can be anything."""
    misses(check(alone(steady(60.0), main_thread_phase=0.6)), "stacks")


def test_a_main_thread_that_waits_for_a_core_would_load() -> None:
    """On a crowded machine a thread that never rests shows half a core."""
    slow = alone(
        main_thread_when_idle_percent=40.0,
        ranks=(rank(loader_workers=0, workers=None, run_queue_wait_percent=45.0),),
    )
    fires(check(slow))
