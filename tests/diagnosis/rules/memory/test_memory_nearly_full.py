"""A GPU's memory that is nearly used up."""

from __future__ import annotations

from tests.diagnosis.windows import GIB, check_of, fires, gpu, gpu_only, identity, job, window

check = check_of("memory_nearly_full")

FULL = {"memory_used_bytes": 136.0 * GIB, "memory_highest_bytes": 138.0 * GIB}


def test_the_highest_use_of_the_window_counts() -> None:
    """A peak that nearly filled it is named, with what was left."""
    said = fires(check(window(gpus=(gpu(0), gpu(1, **FULL)))))
    assert said.gpus == ("GPU-1",)
    assert "99% used: 2.0 GiB" in said.summary


def test_a_level_use_is_information() -> None:
    """A tuned job may run like that for weeks."""
    assert fires(check(window(gpus=(gpu(**FULL),)))).severity == "info"


def test_memory_of_others_is_said() -> None:
    """Part of it is not the job's to give back."""
    said = fires(check(window(gpus=(gpu(foreign_memory_bytes=60.0 * GIB, **FULL),))))
    assert "other processes" in said.summary


QUIET = {
    "at ninety percent": gpu_only(gpu(memory_used_bytes=126 * GIB, memory_highest_bytes=127 * GIB)),
    "for a framework that reserves by design": window(
        gpus=(gpu(**FULL),), job=job(model={"framework": "jax"})
    ),
}


UNKNOWN = {
    "without the size of the memory": (
        gpu_only(gpu(identity=identity(memory_total_bytes=None))),
        "memory size",
    )
}
