"""A driver that answers nonsense: nothing escapes, nothing grows, the rest is read."""

import subprocess
import sys
import tracemalloc
from collections.abc import Iterator
from dataclasses import fields, replace
from pathlib import Path

import pynvml
import pytest
from hypothesis import settings

from gpuwatch.core.model import GpuIdentity, GpuReading
from gpuwatch.sources.nvml import parse
from gpuwatch.sources.nvml.schedule import RARELY_SECONDS
from gpuwatch.sources.nvml.source import NvmlSource
from tests.sources.nvml.test_processes import mig_machine
from tests.sources.nvml.watch import Watch, present, watching
from tests.support.fake_nvml import ERRORS, Answer, GpuProcess

COMPUTE = "nvmlDeviceGetComputeRunningProcesses_v3"
LISTS = (COMPUTE, "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetProcessUtilization")

# Lists and counts.


def peak_bytes(watch: Watch, ticks: int) -> int:
    tracemalloc.start()
    try:
        watch.ticks(ticks)
        return tracemalloc.get_traced_memory()[1]
    finally:
        tracemalloc.stop()


@pytest.mark.parametrize("function", LISTS)
def test_a_list_that_is_never_large_enough_takes_bounded_memory(pair: Watch, function: str) -> None:
    """INSUFFICIENT_SIZE for ever: asked ever more rarely, said, and read again afterwards."""
    pair.fake.gpu[0].processes = [GpuProcess(pid=7, sm_percent=30)]
    pair.ticks(2)
    pair.fake.fault(function, "INSUFFICIENT_SIZE", gpu=0)
    pair.fake.reset_counters()
    assert peak_bytes(pair, 70) < 4 << 20
    assert pair.fake.gpu[0].calls(function) <= 30
    assert len([text for text in pair.sentences() if "of GPU 0 cannot be read" in text]) == 1
    pair.fake.fault(function, "SUCCESS", gpu=0)
    pair.ticks(int(RARELY_SECONDS))
    assert [row.busy_percent for row in pair.last.processes] == [30]
    assert pair.last.problems == ()


@pytest.mark.parametrize("function", [*LISTS, "nvmlDeviceGetSamples"])
def test_an_absurd_count_is_a_failed_reading(pair: Watch, function: str) -> None:
    """Four billion records are neither made room for nor read, whether asked for or returned."""
    pair.fake.answer(function, "garbage count", gpu=0)
    for gpu in pair.fake.gpu[:2]:
        gpu.processes = [GpuProcess(pid=pid, sm_percent=1) for pid in range(1, 100)]
    assert peak_bytes(pair, 4) < 4 << 20
    assert "of GPU 0 cannot be read" in pair.problem("no usable answer").message
    assert len(pair.last.gpus) == 2
    pair.fake.answer(function, "truth", gpu=0)
    pair.ticks(int(RARELY_SECONDS))
    assert pair.last.problems == ()
    assert pair.reading().busy_samples is not None
    assert len(pair.last.processes) == 198


@pytest.mark.parametrize("opened", [True, False])
def test_an_absurd_number_of_gpus_is_said_and_not_counted_to(tmp_path: Path, opened: bool) -> None:
    """A count of four billion is no count: the GPUs known stay, and it is asked for again."""
    with watching(tmp_path, gpus=2, opened=opened) as watch:
        watch.fake.answer("nvmlDeviceGetCount_v2", "garbage")
        watch.source.open()
        watch.ticks(20)
        assert [gpu.lost for gpu in watch.last.gpus] == [False] * (2 if opened else 0)
        assert (
            "(it says there are 4,108,056,002)" in watch.problem("does not list its GPUs").message
        )
        watch.fake.answer("nvmlDeviceGetCount_v2", "truth")
        watch.ticks(11)
        assert [gpu.lost for gpu in watch.last.gpus] == [False, False]
        assert watch.last.problems == ()


# Values.


def test_every_number_has_a_range() -> None:
    """A field of a reading or an identity that is a number has a range, and only those have."""
    numbers = {
        field.name
        for kind in (GpuReading, GpuIdentity)
        for field in fields(kind)
        if field.type in ("float | None", "Amount | None", "Whole | None")
    }
    # The kernel's, and ours.
    assert parse.RANGES.keys() == numbers - {"numa_node"}


@pytest.mark.parametrize("name", sorted(parse.RANGES))
def test_a_number_out_of_its_range_is_not_reported(name: str) -> None:
    """The ends are believed, what lies beyond is unknown and never moved to the nearest end."""
    low, high = parse.RANGES[name]
    assert parse.plausible(name, low) == low
    assert parse.plausible(name, high) == high
    assert type(parse.plausible(name, low)) is type(low)
    for wrong in (low - 1, high + 1, 2**64 - 1, float("nan"), float("inf")):
        assert parse.plausible(name, wrong) is None
    assert parse.plausible(name, None) is None


def test_rubbish_for_every_value_is_shown_nowhere(pair: Watch) -> None:
    """With success and rubbish from every call about a GPU, no number of it is shown."""
    pair.fake.gpu[0].processes = [GpuProcess(pid=7)]
    pair.ticks(4)
    healthy = present(pair.reading(1))
    for function in pair.fake.call_counts():
        if function.startswith(("nvmlDeviceGet", "nvmlGpmMetrics")):
            pair.fake.answer(function, "garbage", gpu=0)
    pair.ticks(12)
    numbers = {name for name in parse.RANGES if hasattr(pair.reading(0), name)}
    assert present(pair.reading(0)) & numbers == set()
    assert pair.last.processes == ()
    assert present(pair.reading(1)) == healthy


def test_more_memory_in_use_than_there_is_is_not_reported(watch: Watch) -> None:
    """Neither a card nor a process holds more than the card has; of the card it is said."""
    total = watch.fake.gpu[0].get("memory_total_bytes")
    watch.fake.gpu[0].set(memory_used_bytes=total + 1)
    watch.fake.gpu[0].processes = [
        GpuProcess(pid=1, used_bytes=total),
        GpuProcess(pid=2, used_bytes=total + 1),
    ]
    watch.tick()
    assert watch.reading().memory_used_bytes is None
    assert {row.pid: row.memory_bytes for row in watch.last.processes} == {1: total, 2: None}
    (sentence,) = watch.sentences()
    assert "the memory in use of GPU 0 that cannot be true (" in sentence


def test_rubbish_at_the_start_is_asked_again(tmp_path: Path) -> None:
    """Facts of a GPU that made no sense are unknown, and right at the next look at the list."""
    with watching(tmp_path, gpus=2) as watch:
        healthy = watch.tick().gpus[0].identity
        asked = [name for name in watch.fake.call_counts() if name.startswith("nvmlDeviceGet")]
    with watching(tmp_path, gpus=2, opened=False) as watch:
        for function in asked:
            if "Handle" not in function and "Count" not in function:
                watch.fake.answer(function, "garbage", gpu=0)
        watch.source.open()
        watch.tick()
        shown = watch.gpu(0).identity
        assert present_facts(shown) <= {"index", "uuid", "name", "driver_version", "cuda_version"}
        for function in asked:
            watch.fake.answer(function, "truth", gpu=0)
        watch.ticks(12)
        assert [gpu.identity.index for gpu in watch.last.gpus] == [0, 1]
        assert watch.gpu(0) == replace(watch.gpu(0), identity=healthy, lost=False)


def present_facts(identity: GpuIdentity) -> set[str]:
    return {
        field.name
        for field in fields(identity)
        if getattr(identity, field.name) not in (None, False)
    }


def test_an_unforeseen_exception_costs_one_reading(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Whatever a reading raises, it alone has failed, and a sentence names it."""
    import pynvml

    with watching(tmp_path, gpus=2) as watch:
        watch.tick()
        monkeypatch.setattr(pynvml, "nvmlDeviceGetTemperature", lambda *_: 1 / 0)
        watch.ticks(4)
        assert watch.reading().temperature_celsius is None
        assert watch.reading().busy_percent is not None
        assert "The temperature of GPUs 0 and 1" in watch.problem("no usable answer").message


# Refused in mid-run.


def test_one_value_that_keeps_failing_is_said_and_the_others_stay(watch: Watch) -> None:
    """A field of a batch that worked and is left out for good has a sentence until it is back."""
    watch.ticks(5)
    watch.fake.gpu[0].field_error(83, "UNKNOWN")
    watch.tick()
    assert watch.sentences() == []
    watch.ticks(5)
    (sentence,) = watch.sentences()
    assert sentence == (
        "Energy, link and throttle counters of GPU 0 cannot be read in full (the driver "
        "leaves some out); gpuwatch keeps trying."
    )
    assert watch.reading().energy_joules is None
    assert watch.reading().memory_temperature_celsius is not None
    watch.fake.gpu[0].field_error(83, "SUCCESS")
    watch.ticks(2)
    assert watch.sentences() == []


@pytest.mark.parametrize("what", ["empty", "NOT_SUPPORTED"])
def test_memory_is_not_unified_for_good(watch: Watch, what: str) -> None:
    """A card that states no memory of its own at the start is asked again."""
    for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"):
        if what == "empty":
            watch.fake.answer(function, "empty", times=1)
        else:
            watch.fake.fault(function, what, times=1)
    watch.tick()
    assert watch.gpu().identity.memory_unified
    watch.ticks(12)
    assert not watch.gpu().identity.memory_unified
    assert watch.gpu().identity.memory_total_bytes is not None
    assert not watch.reading().memory_used_is_process_sum


def test_readings_are_those_of_the_driver_s_version_once_that_is_known(pair: Watch) -> None:
    """A version that could not be had at the start is asked again, and what it brings is read."""
    pair.fake.set(driver_version="580.95.05")
    pair.fake.fault("nvmlSystemGetDriverVersion", "TIMEOUT")
    pair.ticks(3)
    pair.fake.fault("nvmlSystemGetDriverVersion", "SUCCESS")
    pair.ticks(12)
    identities = [gpu.identity for gpu in pair.last.gpus]
    assert [identity.index for identity in identities] == [0, 1]
    assert {identity.driver_version for identity in identities} == {"580.95.05"}
    assert {identity.cuda_version for identity in identities} == {"12.8"}
    pair.ticks(2)
    reasons = {entry.reason for entry in pair.reading().throttle_durations or ()}
    assert "hw_power_brake_slowdown" in reasons
    assert pair.last.problems == ()


# A library that cannot be loaded.

OPEN_SOURCE = """
from gpuwatch.core.source import ReadOptions, SystemClock
from gpuwatch.sources.nvml.source import NvmlSource
source = NvmlSource(SystemClock(), ReadOptions())
source.open()
print(*(problem.message for problem in source.read().problems))
"""


@pytest.mark.parametrize("content", [b"", b"\x7fELF", b"version https://git-lfs.github.com/spec"])
def test_a_library_that_cannot_be_loaded_is_no_driver(tmp_path: Path, content: bytes) -> None:
    """An empty, cut or false file: the sentence names the library."""
    (tmp_path / "libnvidia-ml.so.1").write_bytes(content)
    done = subprocess.run(
        [sys.executable, "-c", OPEN_SOURCE],
        env={"LD_LIBRARY_PATH": str(tmp_path), "PATH": "/usr/bin"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert "libnvidia-ml.so.1 is not there or cannot be loaded" in done.stdout


# Every function, every fault.

ANSWERS: tuple[Answer, ...] = ("empty", "garbage", "garbage count")
DRIVER_GONE = ("UNINITIALIZED", "DRIVER_NOT_LOADED", "LIB_RM_VERSION_MISMATCH")
"""Whichever GPU says it, none can be read."""
PERMANENT_CODES = (
    "NOT_SUPPORTED", "FUNCTION_NOT_FOUND", "ARGUMENT_VERSION_MISMATCH", "DEPRECATED",
    "INVALID_ARGUMENT", "NO_PERMISSION",
)  # fmt: skip
"""At the start these say that a card lacks a fact, and nothing tells it from a fault."""
OF_LISTS = ("INSUFFICIENT_SIZE", "NOT_FOUND", "NO_DATA")
LOST = ("GPU_IS_LOST", "RESET_REQUIRED", "GPU_NOT_FOUND")
NO_ERRORS = ("SUCCESS", "ALREADY_INITIALIZED")
OTHERS = [
    code
    for code in ERRORS
    if code not in {*NO_ERRORS, *DRIVER_GONE, *PERMANENT_CODES, *OF_LISTS, *LOST}
]
EVERY_CODE = not settings().derandomize
"""Every function meets every code where new examples are searched for. Else it meets one or two
of those that mean the same, the next function the next ones: each code is met by many functions."""
OF_THE_SYSTEM = {
    "nvmlInitWithFlags", "nvmlSystemGetDriverVersion", "nvmlSystemGetCudaDriverVersion_v2",
    "nvmlDeviceGetCount_v2", "nvmlShutdown", "nvmlGpmSampleAlloc", "nvmlGpmSampleFree",
    "nvmlEventSetCreate", "nvmlEventSetFree",
}  # fmt: skip


def _calls(names: str) -> list[str]:
    return [f"nvml{name}" for name in names.split()]


AT_THE_START = _calls("""
    InitWithFlags SystemGetDriverVersion SystemGetCudaDriverVersion_v2 DeviceGetCount_v2
    DeviceGetHandleByIndex_v2 DeviceGetUUID DeviceGetName DeviceGetPciInfo_v3
    DeviceGetMemoryInfo_v2 DeviceGetMemoryInfo DeviceGetPowerManagementDefaultLimit
    DeviceGetPowerManagementLimitConstraints DeviceGetTemperatureThreshold
    DeviceGetMarginTemperature DeviceGetMaxClockInfo DeviceGetMaxPcieLinkGeneration
    DeviceGetMaxPcieLinkWidth DeviceGetCudaComputeCapability DeviceGetMigMode
    DeviceGetMaxMigDeviceCount DeviceGetMigDeviceHandleByIndex DeviceGetGpuInstanceId
    DeviceGetSupportedEventTypes EventSetCreate DeviceRegisterEvents
""")
ALL_ALONG = _calls("""
    DeviceGetCount_v2 DeviceGetHandleByUUID DeviceGetUtilizationRates DeviceGetSamples
    DeviceGetMemoryInfo_v2 DeviceGetFieldValues DeviceGetPowerUsage
    DeviceGetEnforcedPowerLimit DeviceGetPowerManagementLimit DeviceGetTemperature
    DeviceGetClockInfo DeviceGetPerformanceState DeviceGetCurrentClocksEventReasons
    DeviceGetCurrentClocksThrottleReasons DeviceGetCurrPcieLinkGeneration
    DeviceGetCurrPcieLinkWidth DeviceGetPcieThroughput DeviceGetEncoderUtilization
    DeviceGetDecoderUtilization DeviceGetFanSpeed DeviceGetComputeRunningProcesses_v3
    DeviceGetGraphicsRunningProcesses_v3 DeviceGetMPSComputeRunningProcesses_v3
    DeviceGetProcessUtilization GpmQueryDeviceSupport GpmSampleAlloc GpmSampleGet
    GpmMigSampleGet GpmMetricsGet DeviceGetMigMode EventSetWait_v2
""")


class Sweep:
    """A machine with two equal GPUs, the first of which suffers one fault after another."""

    def __init__(self, watch: Watch, function: str) -> None:
        self.watch = watch
        self.function = function
        self.gpu = None if function in OF_THE_SYSTEM else 0
        self.standing: list[str] = []
        """What is said of the machine while nothing is wrong with it."""
        for gpu in watch.fake.gpu[:2]:
            gpu.set(fan_count=1)
            gpu.waveform("steady", level_percent=40)
            gpu.processes = [GpuProcess(pid=7, sm_percent=5)]

    def fault(self, kind: str, times: int | None) -> None:
        if self.function == "nvmlDeviceGetHandleByUUID":
            self.watch.fake.gpu[0].set(lost=1)
        if kind in ERRORS:
            self.watch.fake.fault(self.function, kind, gpu=self.gpu, times=times)
        else:
            answer: Answer = kind  # type: ignore[assignment]
            self.watch.fake.answer(self.function, answer, gpu=self.gpu, times=times)

    def end(self) -> None:
        self.watch.fake.gpu[0].set(lost=0)
        self.watch.fake.fault(self.function, "SUCCESS", gpu=self.gpu)
        self.watch.fake.answer(self.function, "truth", gpu=self.gpu)

    def shown(self, *indexes: int) -> tuple[object, ...]:
        gpus = [gpu for gpu in self.watch.last.gpus if gpu.identity.index in indexes]
        uuids = {gpu.uuid for gpu in gpus}
        return (
            [(gpu.identity, gpu.lost, present(gpu.reading)) for gpu in gpus],
            [row for row in self.watch.last.processes if row.gpu_uuid in uuids],
        )

    def returns_to(self, healthy: tuple[object, ...]) -> bool:
        """Everything is there again, without a word more, a retry's time after the fault ended."""
        for seconds in (1.0, 1.0, 1.0, *[2.0] * 35):
            self.watch.tick(seconds)
            if self.shown(0, 1) == healthy and self.watch.sentences() == self.standing:
                return True
        return False


def cases(function: str) -> list[tuple[str, int | None]]:
    """What the function answers, and how often."""
    place = [*AT_THE_START, *ALL_ALONG].index(function)
    kinds: list[str] = [*OF_LISTS]
    for codes, met in ((DRIVER_GONE, 1), (LOST, 1), (PERMANENT_CODES, 2), (OTHERS, 2)):
        # Old bindings have fewer.
        alike = [code for code in codes if code in ERRORS]
        first = 0 if EVERY_CODE else met * place
        count = len(alike) if EVERY_CODE else met
        kinds += [alike[one % len(alike)] for one in range(first, first + count)]
    return [(kind, times) for kind in (*kinds, *ANSWERS) for times in (1, None)]


def arrange(watch: Watch, function: str) -> None:
    """Let the machine be one on which the function is called."""
    if "Mig" in function or "GpuInstance" in function:
        mig_machine(watch)
    if function == "nvmlDeviceGetPowerUsage":
        for gpu in watch.fake.gpu[:2]:
            gpu.field_error(185)
            gpu.field_error(186)
    for newer, older in (
        ("nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetCurrentClocksThrottleReasons"),
        ("nvmlDeviceGetEnforcedPowerLimit", "nvmlDeviceGetPowerManagementLimit"),
        ("nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMemoryInfo"),
        ("nvmlDeviceGetTemperatureThreshold", "nvmlDeviceGetMarginTemperature"),
    ):
        if function == older:
            watch.fake.fault(newer, "NOT_SUPPORTED")
    if function == "nvmlDeviceGetMarginTemperature":
        for gpu in watch.fake.gpu[:2]:
            gpu.set(margins_supported=1, temperature_margin_c=47)


@pytest.fixture
def sweep(tmp_path: Path, function: str) -> Iterator[Sweep]:
    """On cards that call it."""
    card = "t4" if function == "nvmlDeviceGetPcieThroughput" else "h200"
    with watching(tmp_path, gpus=2, preset=[card, card], opened=False) as watch:
        made = Sweep(watch, function)
        arrange(watch, function)
        watch.ticks(12)
        made.standing = watch.sentences()
        yield made


@pytest.mark.parametrize("function", ALL_ALONG)
def test_no_fault_in_mid_run_does_more_than_it_must(sweep: Sweep) -> None:
    """Each fault of each call, once and for a while: nothing escapes, the other GPU is read as
    before, and what failed is back a retry's time after the fault has ended."""
    watch, healthy, other = sweep.watch, sweep.shown(0, 1), sweep.shown(1)
    for kind, times in cases(sweep.function):
        sweep.fault(kind, times)
        for _ in range(5):
            watch.tick(2.0)
            if sweep.gpu is not None and kind not in DRIVER_GONE:
                assert sweep.shown(1) == other, (kind, times)
        # Not found, no data: nothing new to report, which is no failure.
        failed = times is None and kind in ERRORS and kind not in ("NOT_FOUND", "NO_DATA")
        if failed and sweep.shown(0, 1) != healthy:
            assert watch.sentences() != sweep.standing, kind
        sweep.end()
        assert sweep.returns_to(healthy), (kind, times, watch.sentences())
    assert watch.fake.calls(sweep.function)


@pytest.mark.parametrize("function", AT_THE_START)
def test_no_fault_at_the_start_does_more_than_it_must(sweep: Sweep) -> None:
    """The same for the calls that are made when the GPUs are found."""
    watch, healthy, other = sweep.watch, sweep.shown(0, 1), sweep.shown(1)
    for kind, times in cases(sweep.function):
        watch.source.close()
        watch.source = NvmlSource(watch.clock, watch.options, watch.timer)
        sweep.fault(kind, times)
        watch.source.open()
        watch.ticks(4)
        if sweep.gpu is not None and kind not in DRIVER_GONE:
            assert sweep.shown(1) == other, (kind, times)
        sweep.end()
        answered = kind in ("empty", *PERMANENT_CODES)
        assert sweep.returns_to(healthy) or answered, (kind, times, watch.sentences())
    # Old bindings have no such call.
    name = sweep.function
    unknown = name == "nvmlDeviceGetMarginTemperature" and not hasattr(pynvml, name)
    assert watch.fake.calls(name) or unknown


def test_the_sweep_knows_every_call(tmp_path: Path) -> None:
    """Each function that the source calls on some card is swept."""
    called: set[str] = set()
    for preset in ("h200", "t4", "rtx4090", "gb10"):
        with watching(tmp_path, gpus=1, preset=preset, opened=False) as watch:
            if preset == "h200":
                mig_machine(watch)
            watch.source.open()
            watch.ticks(12)
            watch.fake.gpu[0].set(lost=1)
            watch.ticks(8)
            called |= watch.fake.call_counts().keys()
    assert called - {"nvmlShutdown", "nvmlGpmSampleFree", "nvmlEventSetFree"} <= {
        *AT_THE_START,
        *ALL_ALONG,
    }
