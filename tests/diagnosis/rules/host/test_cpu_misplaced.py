"""cpu_misplaced: firing, quiet, unknown."""

from __future__ import annotations

from gpuwatch.core.model import JobRank
from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.signals.waveform import Waveform
from tests.diagnosis.windows import check_of, fires, gpu, gpu_only, identity, job, swinging, window

check = check_of("cpu_misplaced")


def placed(
    nodes: tuple[int, ...] | None, gpu_node: int | None = 1, wave: Waveform | None = None
) -> Window:
    """One rank on the cores of ``nodes``, its GPU on ``gpu_node``."""
    ranks = (JobRank(pid=4242, gpu_uuids=("GPU-0",), numa_nodes=nodes),)
    card = gpu(identity=identity(0, numa_node=gpu_node))
    if wave is not None:
        card = gpu(identity=card.identity, busy=wave)
    return window(gpus=(card,), job=job(model={"ranks": ranks}))


def test_cores_of_the_other_node() -> None:
    """The node to bind to is named; while the GPU is fed it is information."""
    firing = fires(check(placed((0,))))
    assert "--cpunodebind=1" in firing.advice[0].action
    assert (firing.advice[0].present, firing.advice[0].wanted) == ("0", "1")
    assert firing.severity == "info"


def test_an_idle_gpu_makes_it_a_warning() -> None:
    """Where the GPU waits, the long way may be part of why."""
    assert fires(check(placed((0,), wave=swinging(0.5)))).severity == "warning"


QUIET = {"same node": placed((1,)), "all nodes": placed((0, 1)), "one node": placed((0,), 0)}


UNKNOWN = {
    "no job": (gpu_only(), "job's processes"),
    "no affinity": (window(), "cores"),
    "no node of the GPU": (placed((0,), None), "GPUs' NUMA"),
}
