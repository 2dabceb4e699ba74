"""Scenarios in the readings a person has; their faults are found in tests/diagnosis."""

from collections.abc import Sequence
from statistics import mean

from gpuwatch.core.model import GpuReading, Snapshot
from tests.sources.simulated.test_jobs import run


def samples(found: Sequence[Snapshot], gpu: int = 0) -> list[float]:
    return [
        sample.percent for item in found for sample in item.gpus[gpu].reading.busy_samples or ()
    ]


def readings(found: Sequence[Snapshot], gpu: int = 0) -> list[GpuReading]:
    return [item.gpus[gpu].reading for item in found]


def test_starved_swings_from_nothing_to_full_and_back() -> None:
    """Fine samples hold both ends and the steps between them, while the mean hides it all."""
    values = samples(run("starved"))
    assert sum(v <= 5 for v in values) > len(values) * 0.3
    assert sum(v >= 95 for v in values) > len(values) * 0.15
    assert any(40 <= v <= 60 for v in values)
    assert any(75 <= v <= 90 for v in values)
    assert 30 < mean(values) < 65


def test_lost_gpu_keeps_its_row_says_so_and_comes_back() -> None:
    """From second 20 to 80 the GPU has no readings and an error; then it has, and a new job."""
    found = run("lost", gpus=3, seconds=140)
    victim = [item.gpus[1] for item in found]
    assert [gpu.lost for gpu in victim] == [20 <= n < 80 for n in range(len(found))]
    assert all(gpu.reading == GpuReading() for gpu in victim if gpu.lost)
    for n, item in enumerate(found):
        errors = [problem for problem in item.problems if problem.severity == "error"]
        assert [problem.target for problem in errors] == (
            [victim[n].uuid] if victim[n].lost else []
        )
    before, after = found[10], found[130]
    old = {p.key for p in before.processes if p.gpu_uuid == victim[0].uuid}
    new = {p.key for p in after.processes if p.gpu_uuid == victim[0].uuid}
    assert old
    assert new
    assert not old & new
    assert not any(p.gpu_uuid == victim[0].uuid for p in found[50].processes)
    assert all((reading.busy_percent or 0) > 90 for reading in readings(found, 0))


def test_mixed_cards_differ_in_what_they_report() -> None:
    """Other models lack what they lack, a mute card says which readings it refuses."""
    item = run("mixed", gpus=8)[10]
    names = {gpu.identity.name for gpu in item.gpus}
    assert len(names) == 3
    geforce = next(gpu.reading for gpu in item.gpus if "4090" in gpu.identity.name)
    assert geforce.fan_percent is not None
    assert geforce.sm_active_percent is None
    assert geforce.nvlink_rx_bytes_per_second is None
    assert geforce.ecc_corrected_count is None
    assert geforce.throttle_durations is None
    mute = item.gpus[6]
    assert mute.reading.busy_samples is None
    assert mute.reading.power_watts is None
    assert mute.reading.busy_percent is not None
    said = " ".join(p.message for p in item.problems if p.target == mute.uuid)
    assert "fine utilisation samples" in said
    assert "Power of GPU 6" in said


def test_mig_instances_are_rows_of_their_own() -> None:
    """A split card gives three instances with memory and processes, but no utilisation."""
    item = run("mig", gpus=2)[-1]
    parent = item.gpus[0]
    instances = [gpu for gpu in item.gpus if gpu.identity.mig_parent_uuid == parent.uuid]
    assert parent.identity.mig_mode is True
    assert parent.reading.busy_percent is None
    (said,) = [problem.message for problem in item.problems]
    assert said.startswith("The driver does not report the utilisation of GPU 0 while")
    assert [gpu.identity.mig_instance for gpu in instances] == [1, 2, 3]
    for gpu in instances:
        held = [process for process in item.processes if process.gpu_uuid == gpu.uuid]
        assert [process.mig_instance for process in held] == [gpu.identity.mig_instance]
        assert gpu.reading.busy_percent is None
        assert (gpu.reading.sm_active_percent or 0) > 80 or gpu is not instances[0]
        assert gpu.reading.sm_active_percent == 0.0 or gpu is instances[0]
        assert 0 < (gpu.reading.memory_used_bytes or 0) < (gpu.identity.memory_total_bytes or 0)
    assert item.gpus[-1].reading.busy_percent is not None
