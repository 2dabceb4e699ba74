"""loader_in_main_process: firing, quiet, unknown."""

from __future__ import annotations

from typing import Any

from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.signals.waveform import Waveform
from tests.diagnosis import windows as w

check = w.check_of("loader_in_main_process")


def alone(wave: Waveform | None = None, shm: int = 64 * 1024**3, **facts: Any) -> Window:
    """One process that loads for 60% of the time and trains for 40%."""
    known: dict[str, Any] = {
        "workers": None,
        "workers_when_idle_percent": None,
        "workers_when_busy_percent": None,
        "cpu_cores": 1.0,
        "main_thread_percent": 80.0,
        "main_thread_when_idle_percent": 99.0,
        "main_thread_phase": -0.8,
        "ranks": (w.rank(loader_workers=0, pinned_memory=None, workers=None),),
    }
    return w.window(
        gpus=(w.gpu(busy=wave or w.swinging(0.4)),),
        job=w.job(**(known | facts)),
        host=w.host(shm_total_bytes=shm),
    )


def test_anti_phase_without_workers() -> None:
    """A number of workers is named that keeps up, with persistent workers."""
    firing = w.fires(check(alone()))
    settings = [advice.setting for advice in firing.advice]
    assert settings == ["num_workers", "persistent_workers"]
    # 0.61 of the time loading over 0.39 of the time training, with headroom.
    assert firing.advice[0].wanted == "2"
    assert {"oscillation", "python_bound"} <= firing.explains
    assert firing.strength > 0.9


def test_number_stays_within_the_cores() -> None:
    """On two cores there is no room for more than two workers, on six for one less than six."""
    for cores, wanted in ((2.0, "2"), (6.0, "5")):
        few = alone(w.swinging(0.1), model={"usable_cores": cores})
        assert w.fires(check(few)).advice[0].wanted == wanted


def test_a_flat_waveform_is_less_sure() -> None:
    """Where the alternation is too fast to be seen, stacks would have made it surer."""
    flat = w.fires(check(alone(w.steady(45.0), main_thread_phase=None)))
    assert flat.missing == ("stacks of the main thread",)
    assert flat.strength < w.fires(check(alone())).strength - 0.1


def test_stacks_name_the_line() -> None:
    """The user's line in the loader is part of the evidence."""
    stacks = (("loading_data", 55.0, "train.py:12 in __getitem__"), ("computing", 45.0, None))
    firing = w.fires(check(alone(stacks=stacks)))
    assert any("train.py:12" in evidence.says for evidence in firing.evidence)


def test_a_small_shm_comes_first() -> None:
    """Workers in a container with 64 MB of /dev/shm would crash."""
    firing = w.fires(check(alone(shm=64 * 1024**2)))
    assert firing.advice[-1].setting == "shm-size"


QUIET = {
    "healthy": w.window(),
    "no workers, fed all the same": alone(w.steady(97.0)),
    "has workers": w.window(gpus=(w.gpu(busy=w.swinging()),)),
    "main thread rests": alone(main_thread_when_idle_percent=10.0),
    "writes a checkpoint": alone(write_when_idle_bytes_per_second=8e8),
    "stacks say otherwise": alone(stacks=(("synchronising", 90.0, None),)),
}


UNKNOWN = {
    "no job": (w.gpu_only(w.gpu(busy=w.swinging())), "job's processes"),
    "number of workers unknown": (
        alone(ranks=(w.rank(loader_workers=None, workers=None),)),
        "loader workers",
    ),
    "no CPU": (
        alone(
            main_thread_percent=None,
            main_thread_when_idle_percent=None,
            ranks=(w.rank(loader_workers=0, main_thread_percent=None, workers=None),),
        ),
        "main thread",
    ),
    "a main thread in phase needs stacks": (alone(w.steady(60.0), main_thread_phase=0.6), "stacks"),
}


FIRING = {
    "a main thread that waits for a core would load": alone(
        main_thread_when_idle_percent=40.0,
        ranks=(w.rank(loader_workers=0, workers=None, run_queue_wait_percent=45.0),),
    )
}
