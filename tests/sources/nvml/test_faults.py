"""One reading, or one GPU, in trouble: the rest goes on, and a sentence says what is wrong."""

from pathlib import Path

import pytest

from gpuwatch.core.model import GpuReading
from tests.sources.nvml.watch import Watch, present, watching
from tests.support.fake_nvml import GpuProcess

SETS: dict[str, tuple[str, ...]] = {
    "nvmlDeviceGetUtilizationRates": ("busy_percent", "memory_controller_percent"),
    "nvmlDeviceGetTemperature": ("temperature_celsius",),
    "nvmlDeviceGetClockInfo": ("sm_clock_mhz", "memory_clock_mhz"),
    "nvmlDeviceGetPerformanceState": ("performance_state",),
    "nvmlDeviceGetFanSpeed": ("fan_percent",),
    "nvmlDeviceGetEncoderUtilization": ("encoder_percent",),
    "nvmlDeviceGetDecoderUtilization": ("decoder_percent",),
    "nvmlDeviceGetCurrPcieLinkGeneration": ("pcie_generation", "pcie_width"),
    "nvmlDeviceGetPcieThroughput": ("pcie_rx_bytes_per_second", "pcie_tx_bytes_per_second"),
    "nvmlDeviceGetSamples": ("busy_samples",),
    "nvmlGpmSampleGet": ("sm_active_percent", "tensor_active_percent", "dram_active_percent"),
}
"""What is lost when one driver function does not answer."""

PAIRS: dict[tuple[str, ...], tuple[str, ...]] = {
    ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"): ("memory_used_bytes",),
    ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"): (
        "power_limit_watts",
    ),
    ("nvmlDeviceGetFieldValues", "nvmlDeviceGetPowerUsage"): (
        "power_watts",
        "energy_joules",
        "ecc_corrected_count",
    ),
    ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"): (
        "throttle_reasons",
    ),
}
"""The same where a reading has a fallback."""

CASES = [((function,), lost) for function, lost in SETS.items()] + list(PAIRS.items())


def steady_pair(watch: Watch) -> None:
    """Everything a card can give, over enough looks to have rates and GPM activities."""
    for gpu in watch.fake.gpu[:2]:
        gpu.set(fan_count=1)
    watch.ticks(4)


@pytest.mark.parametrize(("functions", "lost"), CASES, ids=[case[0][0][4:] for case in CASES])
def test_a_function_that_fails_costs_only_its_own_reading(
    tmp_path: Path, functions: tuple[str, ...], lost: tuple[str, ...]
) -> None:
    """Its fields are None, every other field of the GPU and the other GPU are as before."""
    kinds = ["t4", "h200"] if "Pcie" in functions[0] else ["h200", "h200"]
    with watching(tmp_path, gpus=2, preset=kinds) as watch:
        steady_pair(watch)
        healthy = present(watch.reading(0)), present(watch.reading(1))
        assert set(lost) <= healthy[0]
        for function in functions:
            watch.fake.fault(function, "UNKNOWN", gpu=0)
        steady_pair(watch)
        watch.ticks(4)
        missing = healthy[0] - present(watch.reading(0))
        assert set(lost) <= missing
        if functions[0] != "nvmlDeviceGetFieldValues" and functions[0] != "nvmlGpmSampleGet":
            assert missing == set(lost)
        assert present(watch.reading(1)) == healthy[1]
        assert not watch.gpu(0).lost


def test_a_passing_failure_is_a_gap_and_no_problem(watch: Watch) -> None:
    """A reading that fails once is None once; nobody is bothered."""
    watch.fake.gpu[0].set(utilization=40)
    watch.tick()
    watch.fake.fault("nvmlDeviceGetUtilizationRates", "UNKNOWN", times=1)
    watch.tick()
    assert watch.reading().busy_percent is None
    assert watch.last.problems == ()
    watch.tick()
    assert watch.reading().busy_percent == 40


def test_a_slow_reading_that_failed_is_tried_again_soon(tmp_path: Path) -> None:
    """A fan that could not be read once is not unknown until its slow timer comes round."""
    with watching(tmp_path, gpus=1, preset="rtx4090", opened=False) as watch:
        watch.fake.fault("nvmlDeviceGetFanSpeed", "TIMEOUT", times=1)
        watch.source.open()
        assert watch.tick().gpus[0].reading.fan_percent is None
        watch.ticks(2)
        assert watch.reading().fan_percent == 38


def test_failures_of_different_kinds_count_together(watch: Watch) -> None:
    """A reading that fails each time in another way is in lasting trouble too."""
    for error in ("UNKNOWN", "TIMEOUT", "UNKNOWN"):
        watch.fake.fault("nvmlDeviceGetUtilizationRates", error)
        watch.tick()
    assert len(watch.last.problems) == 1


def test_a_lasting_failure_becomes_one_sentence_with_its_start(pair: Watch) -> None:
    """After three tries the reading is named, with since when; the sentence goes when it works."""
    pair.tick()
    pair.fake.fault("nvmlDeviceGetUtilizationRates", "UNKNOWN", gpu=1)
    pair.tick()
    began = pair.clock.unix()
    pair.tick()
    assert pair.last.problems == ()
    pair.tick()
    problem = pair.problem("utilisation of GPU 1")
    assert problem.severity == "warning"
    assert problem.target == pair.gpu(1).uuid
    assert problem.reading == "busy_percent"
    assert problem.since_unix_seconds == began
    pair.fake.fault("nvmlDeviceGetUtilizationRates", "SUCCESS", gpu=1)
    pair.tick()
    assert pair.last.problems == ()
    assert pair.reading(1).busy_percent is not None


def test_what_never_worked_is_said_at_once(watch: Watch) -> None:
    """A single look has no three tries: a reading that fails from the start is explained."""
    watch.fake.fault("nvmlDeviceGetTemperature", "UNKNOWN")
    watch.tick()
    assert watch.problem("temperature of GPU 0").reading == "temperature_celsius"


def test_many_readings_that_fail_alike_are_one_sentence(pair: Watch) -> None:
    """The first three are named and the others counted; another GPU's trouble is its own."""
    for function in (
        "Temperature",
        "UtilizationRates",
        "PerformanceState",
        "DecoderUtilization",
    ):
        pair.fake.fault(f"nvmlDeviceGet{function}", "NO_PERMISSION", gpu=0)
    pair.fake.fault("nvmlDeviceGetEncoderUtilization", "NO_PERMISSION", gpu=0)
    pair.fake.fault("nvmlDeviceGetEncoderUtilization", "NO_PERMISSION", gpu=1)
    pair.ticks(4)
    problem = pair.problem("of GPU 0 cannot be read")
    assert problem.message.startswith("The utilisation, the temperature, the performance state")
    assert "and decoder use of GPU 0" in problem.message
    assert problem.reading is None
    assert pair.problem("GPUs 0 and 1").reading == "encoder_percent"
    pair.fake.fault("nvmlDeviceGetClockInfo", "NO_PERMISSION", gpu=0)
    pair.ticks(4)
    assert "and 3 more readings of GPU 0" in pair.problem("of GPU 0 cannot be read").message


def test_no_permission_is_said_at_once_and_tried_rarely(watch: Watch) -> None:
    """A refused reading is an info sentence; the driver is not pestered, and rights may come."""
    watch.fake.fault("nvmlDeviceGetTemperature", "NO_PERMISSION", gpu=0)
    watch.ticks(30)
    assert watch.problem("more rights").severity == "info"
    assert watch.fake.calls("nvmlDeviceGetTemperature") == 1
    watch.fake.fault("nvmlDeviceGetTemperature", "SUCCESS", gpu=0)
    watch.ticks(40)
    assert watch.last.problems == ()
    assert watch.reading().temperature_celsius is not None


def test_bad_text_from_the_driver_is_made_harmless(watch: Watch) -> None:
    """A name with bytes that are not UTF-8 and with an escape sequence shows neither."""
    watch.fake.gpu[0].set(name=b"H\xff200 \x1b[31mred")
    watch.tick()
    name = watch.gpu().identity.name
    assert name == "H\N{REPLACEMENT CHARACTER}200 \N{REPLACEMENT CHARACTER}[31mred"


def test_a_lost_gpu_keeps_its_row_and_the_others_go_on(tmp_path: Path) -> None:
    """The lost GPU is marked, empty and explained; the GPU beside it is read as before."""
    with watching(tmp_path, gpus=3) as watch:
        watch.fake.gpu[1].processes = [GpuProcess(pid=7)]
        watch.fake.gpu[2].set(utilization=66)
        watch.tick()
        identity = watch.gpu(1).identity
        watch.fake.gpu[1].set(lost=1)
        watch.tick()
        assert [gpu.lost for gpu in watch.last.gpus] == [False, True, False]
        assert watch.gpu(1).identity == identity
        assert watch.reading(1) == GpuReading()
        assert watch.reading(2).busy_percent == 66
        assert watch.last.processes == ()
        problem = watch.problem("GPU 1 (NVIDIA H200) is lost")
        assert problem.severity == "error"
        assert problem.target == identity.uuid
        assert problem.since_unix_seconds == watch.clock.unix()
        assert "dmesg" in problem.message


def test_a_lost_gpu_comes_back(pair: Watch) -> None:
    """When it answers again its readings and processes return and the sentence goes."""
    pair.fake.gpu[1].set(utilization=12)
    pair.fake.gpu[1].processes = [GpuProcess(pid=7)]
    pair.tick()
    pair.fake.gpu[1].set(lost=1)
    pair.ticks(3)
    assert pair.gpu(1).lost
    pair.fake.gpu[1].set(lost=0)
    pair.ticks(6)
    assert not pair.gpu(1).lost
    assert pair.reading(1).busy_percent == 12
    assert [process.pid for process in pair.last.processes] == [7]
    assert pair.last.problems == ()


def test_a_gpu_that_needs_a_reset_says_how(watch: Watch) -> None:
    """RESET_REQUIRED names the command that resets this very GPU."""
    watch.tick()
    watch.fake.fault("nvmlDeviceGetUtilizationRates", "RESET_REQUIRED")
    watch.tick()
    assert watch.gpu().lost
    assert "--gpu-reset -i 0" in watch.problem("reset").message


def test_gpus_lost_from_the_start_have_rows(tmp_path: Path) -> None:
    """Cards that never answered are shown as lost, in one sentence, until they recover."""
    with watching(tmp_path, gpus=4, opened=False) as watch:
        for index in (0, 2):
            watch.fake.gpu[index].set(lost=1)
        watch.source.open()
        began = watch.clock.unix()
        watch.ticks(25)
        shown = [(gpu.identity.index, gpu.lost) for gpu in watch.last.gpus]
        assert shown == [(0, True), (1, False), (2, True), (3, False)]
        assert len({gpu.uuid for gpu in watch.last.gpus}) == 4
        (problem,) = watch.last.problems
        assert problem.message.startswith("GPUs 0 and 2 are lost: they fell off the bus")
        assert (problem.severity, problem.since_unix_seconds) == ("error", began)
        watch.fake.gpu[0].set(lost=0)
        watch.ticks(12)
        assert [gpu.lost for gpu in watch.last.gpus] == [False, False, True, False]
        assert watch.gpu(0).identity.name == "NVIDIA H200"
        assert watch.reading(0).busy_percent is not None
        assert "GPU 2 (NVIDIA GPU) is lost" in watch.problem("lost").message


def test_a_gpu_lost_while_it_is_opened_keeps_its_bus_id(pair: Watch) -> None:
    """A card whose handle could be had and nothing else is shown with what it did say."""
    for function in ("nvmlDeviceGetUUID", "nvmlDeviceGetName"):
        pair.fake.fault(function, "GPU_IS_LOST", gpu=1)
    pair.tick()
    assert [gpu.lost for gpu in pair.last.gpus] == [False, True]
    bus_id = pair.gpu(1).identity.pci_bus_id
    assert bus_id is not None
    for function in ("nvmlDeviceGetUUID", "nvmlDeviceGetName"):
        pair.fake.fault(function, "SUCCESS", gpu=1)
    pair.ticks(12)
    assert [gpu.lost for gpu in pair.last.gpus] == [False, False]
    assert pair.gpu(1).identity.pci_bus_id == bus_id


def test_gpus_that_cannot_be_opened_are_one_sentence(tmp_path: Path) -> None:
    """Cards refused for the same reason are named together; they are tried again."""
    with watching(tmp_path, gpus=4, opened=False) as watch:
        for index in (0, 1, 3):
            watch.fake.fault("nvmlDeviceGetHandleByIndex_v2", "NO_PERMISSION", gpu=index)
        watch.source.open()
        watch.tick()
        assert [gpu.identity.index for gpu in watch.last.gpus] == [2]
        assert watch.problem("GPUs 0, 1 and 3 cannot be opened (no permission)")
        for index in (0, 1, 3):
            watch.fake.fault("nvmlDeviceGetHandleByIndex_v2", "SUCCESS", gpu=index)
        watch.ticks(12)
        assert [gpu.identity.index for gpu in watch.last.gpus] == [0, 1, 2, 3]
        assert watch.last.problems == ()


def test_another_card_in_the_place_of_a_lost_one_is_not_taken_for_it(pair: Watch) -> None:
    """A handle had by the lost card's uuid that says it is another card brings nothing back."""
    pair.tick()
    pair.fake.gpu[1].set(lost=1)
    pair.tick()
    pair.fake.answer("nvmlDeviceGetUUID", "garbage", gpu=1)
    pair.fake.gpu[1].set(lost=0)
    pair.ticks(8)
    assert [gpu.lost for gpu in pair.last.gpus] == [False, True]


def test_the_list_of_gpus_is_followed(pair: Watch) -> None:
    """A card added while gpuwatch runs gets a row; one the driver no longer counts is lost."""
    pair.fake.set(gpu_count=1)
    assert len(pair.tick().gpus) == 1
    pair.fake.set(gpu_count=2)
    pair.ticks(12)
    assert [gpu.lost for gpu in pair.last.gpus] == [False, False]
    pair.fake.set(gpu_count=1)
    pair.ticks(12)
    assert [gpu.lost for gpu in pair.last.gpus] == [False, True]


def test_process_lists_that_fail_are_a_problem_of_their_own(watch: Watch) -> None:
    """With other readings that fail alike they are not one sentence: whoever counts processes
    must see that an empty list is none."""
    watch.tick()
    for function in ("Temperature", "PerformanceState"):
        watch.fake.fault(f"nvmlDeviceGet{function}", "UNKNOWN")
    for kind in ("Compute", "Graphics", "MPSCompute"):
        watch.fake.fault(f"nvmlDeviceGet{kind}RunningProcesses_v3", "UNKNOWN")
    watch.ticks(20)
    assert watch.problem("list of processes, the list of graphics").reading == "processes"
    assert watch.problem("temperature and the performance state").reading is None
