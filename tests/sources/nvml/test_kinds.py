"""Drivers and cards as they are: each kind with what its vendor or a peer's users say of it.

Numbers in brackets are issues or pull requests of the project named. ``fake_nvml_presets`` and
``fake_nvml_build`` say where the facts of a preset or a driver version are from.
"""

from pathlib import Path

import pytest

from gpuwatch.core.model import GpuReading
from tests.sources.nvml.watch import START_UNIX_SECONDS, Watch, present, watching
from tests.support.fake_nvml import ALL_ONES_32, DRIVERS, GpuProcess, MigInstance
from tests.support.fake_nvml_layout import FUNCTIONS

GIB = 1 << 30
START_US = round(START_UNIX_SECONDS * 1e6)


def alone(watch: Watch) -> str:
    """The only sentence there is."""
    (sentence,) = watch.sentences()
    return sentence


def sizes(watch: Watch) -> dict[int, int | None]:
    return {row.pid: row.memory_bytes for row in watch.last.processes}


# Versions of the driver.


@pytest.mark.parametrize("version", DRIVERS)
def test_every_driver_from_450_to_580_gives_what_it_has(tmp_path: Path, version: str) -> None:
    """Functions that a version lacks, has in an older form only, or answers with longer records
    cost nothing that it does have, and nobody is bothered."""
    with watching(tmp_path, gpus=1, preset="a100", missing=DRIVERS[version]) as watch:
        gpu = watch.fake.gpu[0]
        watch.fake.set(driver_version=version)
        if version.startswith("535.54"):
            # nvitop (79): 535.43 to 535.86.
            gpu.set(process_record_bytes=32)
        if version < "530":
            # A driver that does not know a field id calls it invalid.
            gpu.field_error(185, "INVALID_ARGUMENT")
            gpu.field_error(186, "INVALID_ARGUMENT")
        gpu.set(utilization=61, power_mw=250_000, event_reasons=0x4)
        gpu.processes = [
            GpuProcess(pid=pid, used_bytes=pid * GIB, kinds=kinds)
            for pid, kinds in ((1, ("compute",)), (2, ("graphics",)), (3, ("compute",)))
        ]
        watch.ticks(4)
        reading = watch.reading()
        assert (reading.busy_percent, reading.power_watts) == (61, 250)
        assert reading.throttle_reasons == ("sw_power_cap",)
        # Older ones count in what the driver keeps for itself.
        assert reading.memory_used_bytes == (0 if version > "510" else 600 << 20)
        assert sizes(watch) == {1: GIB, 2: 2 * GIB, 3: 3 * GIB}
        assert watch.last.problems == ()


@pytest.mark.parametrize("missing", ["nothing", "_v3", "_v3 and _v2"])
@pytest.mark.parametrize("size", [16, 24, 32, 40])
@pytest.mark.parametrize("count", [1, 300])
def test_the_record_size_of_a_process_list_is_the_driver_s(
    tmp_path: Path, missing: str, size: int, count: int
) -> None:
    """Whichever version answers, its list is read by the records it writes, however many:
    nvitop (79, 226) and pynvml (48) met 32 and 16 bytes where 24 were expected."""
    kinds = ("Compute", "Graphics", "MPSCompute")
    absent = {
        f"nvmlDeviceGet{kind}RunningProcesses{suffix}"
        for kind in kinds
        for suffix in ("_v3", "_v2")
        if suffix in missing
    }
    with watching(tmp_path, gpus=1, missing=absent) as watch:
        watch.fake.gpu[0].set(process_record_bytes=size)
        watch.fake.gpu[0].processes = [
            GpuProcess(pid=pid, used_bytes=None if pid % 7 == 0 else pid << 20)
            for pid in range(1, count + 1)
        ]
        watch.tick()
        expected = {pid: None if pid % 7 == 0 else pid << 20 for pid in range(1, count + 1)}
        assert sizes(watch) == expected
        assert {row.mig_instance for row in watch.last.processes} == {None}
        assert watch.last.problems == ()
        watch.fake.gpu[0].processes = []
        assert watch.tick().processes == ()
        assert watch.last.problems == ()


@pytest.mark.parametrize("size", [16, 24, 32])
def test_a_driver_that_clears_the_rest_of_the_room_is_read(watch: Watch, size: int) -> None:
    """Zeros behind the last record are no processes, and hide none."""
    watch.fake.gpu[0].set(process_record_bytes=size, process_clears=1)
    watch.fake.gpu[0].processes = [GpuProcess(pid=pid, used_bytes=GIB) for pid in (5, 6, 7)]
    watch.tick()
    assert sizes(watch) == {5: GIB, 6: GIB, 7: GIB}


def test_a_list_in_an_unknown_form_is_said(watch: Watch) -> None:
    """Records that nobody knows are not guessed at: no process is shown, and a sentence says so
    until the driver is one that can be read."""
    watch.fake.gpu[0].set(process_record_bytes=12)
    watch.fake.gpu[0].processes = [GpuProcess(pid=pid) for pid in (5, 6, 7)]
    watch.tick()
    assert watch.last.processes == ()
    problem = watch.problem("in a form that gpuwatch does not know")
    assert problem.message.startswith("The list of processes of GPU 0 cannot be read")
    assert (problem.severity, problem.reading) == ("warning", "processes")
    watch.fake.gpu[0].set(process_record_bytes=0)
    watch.ticks(3)
    assert sorted(sizes(watch)) == [5, 6, 7]
    assert watch.last.problems == ()


# Utilisation that is not there.


def test_a_divided_card_says_that_its_utilisation_is_not_reported(watch: Watch) -> None:
    """On MIG-enabled GPUs utilisation, its samples and the shares of processes cannot be had
    (nvml.h at each of the calls): that is one sentence, and it is not about samples."""
    watch.fake.gpu[0].set_mig([MigInstance(uuid="MIG-a", gpu_instance=7)])
    watch.ticks(4)
    assert watch.reading().busy_percent is None
    assert watch.reading().busy_samples is None
    assert alone(watch) == (
        "The driver does not report the utilisation of GPU 0 while it is divided into MIG "
        "instances; where an instance shows its SM activity (Hopper and later), that says how "
        "busy it is."
    )
    assert watch.reading(1).sm_active_percent is not None
    assert watch.last.problems[0].reading == "busy_percent"


def test_wsl_has_one_sentence_for_utilisation_and_one_for_processes(tmp_path: Path) -> None:
    """Under WSL neither can be had: what can be is shown, and no zero stands for the rest."""
    with watching(tmp_path, gpus=1, preset="wsl") as watch:
        watch.ticks(4)
        reading = watch.reading()
        assert reading.temperature_celsius == 48
        assert reading.memory_used_bytes == 161 << 20
        assert reading.power_watts == 3
        for name in ("busy_percent", "busy_samples", "fan_percent", "power_limit_watts"):
            assert getattr(reading, name) is None, name
        first, second = watch.sentences()
        assert first.startswith("The driver does not report the utilisation of GPU 0, so gpuwatch")
        assert second == "GPU 0 has no list of processes under this driver."


def test_memory_of_a_process_under_windows_is_unknown(tmp_path: Path) -> None:
    """Under WDDM it is always "not available" (nvml.h): the process is listed, without a size."""
    with watching(tmp_path, gpus=1, preset="rtx4090") as watch:
        watch.fake.gpu[0].processes = [GpuProcess(pid=23, used_bytes=None, kinds=("graphics",))]
        watch.tick()
        assert sizes(watch) == {23: None}


def test_a_guest_s_share_of_a_card_shows_what_is_its_own(tmp_path: Path) -> None:
    """A vGPU guest reads its memory and utilisation; power, heat and links are the host's."""
    with watching(tmp_path, gpus=1, preset="vgpu") as watch:
        watch.fake.gpu[0].set(utilization=70, memory_used_bytes=GIB)
        watch.ticks(4)
        reading = watch.reading()
        assert (reading.busy_percent, reading.memory_used_bytes) == (70, GIB)
        for name in ("power_watts", "temperature_celsius", "pcie_width", "throttle_reasons"):
            assert getattr(reading, name) is None, name
        assert watch.gpu().identity.sm_clock_max_mhz is None
        assert watch.last.problems == ()


def test_a_jetson_s_library_gives_little_and_that_is_shown(tmp_path: Path) -> None:
    """On Jetson the library has a name and a utilisation, and no list is taken for an empty one
    of a card with memory of its own."""
    with watching(tmp_path, gpus=1, preset="jetson") as watch:
        watch.fake.gpu[0].set(utilization=35)
        watch.fake.gpu[0].processes = [GpuProcess(pid=9, used_bytes=2 * GIB)]
        watch.ticks(4)
        reading = watch.reading()
        assert watch.gpu().identity.memory_unified
        assert watch.gpu().identity.memory_total_bytes is None
        assert reading.busy_percent == 35
        assert reading.memory_used_bytes == 2 * GIB
        assert present(reading) - {"power_is_average"} == {
            "busy_percent",
            "memory_controller_percent",
            "memory_used_bytes",
            "memory_used_is_process_sum",
            "late_readings",
        }
        assert "no fine utilisation samples" in watch.problem("fine").message


# Values that cannot be.


@pytest.mark.parametrize(("value", "said"), [(991, "991%"), (ALL_ONES_32, "4294967295%")])
def test_a_utilisation_that_cannot_be_is_said(watch: Watch, value: int, said: str) -> None:
    """DCGM (199), dcgm-exporter (418): values of thousands and 4294967295. The field is unknown
    and a sentence gives the driver's value, until it can be true."""
    watch.fake.gpu[0].set(utilization=value)
    watch.ticks(2)
    assert watch.reading().busy_percent is None
    assert alone(watch) == (
        f"The driver gives a value for the utilisation of GPU 0 that cannot be true ({said}), so "
        "it is not shown."
    )
    assert watch.last.problems[0].reading == "busy_percent"
    watch.fake.gpu[0].set(utilization=40)
    watch.tick()
    assert watch.reading().busy_percent == 40
    assert watch.last.problems == ()


def test_one_wrong_value_among_many_is_a_gap(watch: Watch) -> None:
    """DCGM (199) saw one in 176,000 samples: such a one is unknown, and nobody is bothered."""
    watch.fake.gpu[0].set(utilization=40)
    watch.ticks(2)
    watch.fake.gpu[0].set(utilization=627_618)
    watch.tick()
    assert watch.reading().busy_percent is None
    assert watch.last.problems == ()
    watch.ticks(2)
    assert "627618%" in alone(watch)


def test_values_of_several_gpus_that_cannot_be_are_one_sentence(pair: Watch) -> None:
    """Eight cards with the same fault are not eight sentences."""
    for gpu, percent in zip(pair.fake.gpu, (991, 1001), strict=False):
        gpu.set(utilization=percent, temperature_c=4000)
    pair.ticks(4)
    assert alone(pair) == (
        "The driver gives values for the utilisation and the temperature of GPUs 0 and 1 that "
        "cannot be true (991%, 1001% and 4000 C), so they are not shown."
    )


def test_what_a_card_does_not_have_is_not_called_wrong(watch: Watch) -> None:
    """A state that NVML calls unknown (32), links of generation 0 and minor values that are "not
    available" are unknown without a sentence."""
    watch.fake.gpu[0].set(
        performance_state=32, pcie_generation=0, pcie_width=0, clock_memory_mhz=ALL_ONES_32,
        fan_count=1, fan_percent=[ALL_ONES_32] * 4,
    )  # fmt: skip
    watch.ticks(4)
    reading = watch.reading()
    assert reading.performance_state is reading.pcie_generation is reading.pcie_width is None
    assert reading.memory_clock_mhz is reading.fan_percent is None
    assert watch.last.problems == ()


def test_a_fan_beyond_100_percent_is_shown(tmp_path: Path) -> None:
    """nvml.h: the speed "may exceed 100% in certain cases"."""
    with watching(tmp_path, gpus=1, preset="rtx4090") as watch:
        watch.fake.gpu[0].set(fan_percent=[127, 127, 0, 0])
        watch.tick()
        assert watch.reading().fan_percent == 127
        assert watch.last.problems == ()


# Power that contradicts itself.


def power_machine(watch: Watch, instant: int, average: int) -> None:
    watch.fake.gpu[0].set(utilization=99, power_mw=average, power_instant_mw=instant)


@pytest.mark.parametrize(("milliwatts", "said"), [(0, "0 W"), (7_000_000, "7000 W")])
def test_a_power_that_cannot_be_is_not_shown(watch: Watch, milliwatts: int, said: str) -> None:
    """A card at full load draws something, and one of 700 W no seven kilowatts: once it is a gap,
    then a sentence, until the call gives a power again."""
    power_machine(watch, 690_000, 210_000)
    watch.ticks(3)
    power_machine(watch, milliwatts, 210_000)
    assert watch.tick().gpus[0].reading.power_watts is None
    assert watch.last.problems == ()
    watch.ticks(3)
    assert alone(watch) == (
        f"The driver gives a value for power of GPU 0 that cannot be true ({said}), so it is not "
        "shown."
    )
    power_machine(watch, 680_000, 210_000)
    assert watch.tick().gpus[0].reading.power_watts == 680
    assert watch.last.problems == ()


def test_a_card_that_does_nothing_may_draw_nothing(watch: Watch) -> None:
    """0 W of an idle card, by every call, is a reading."""
    watch.fake.gpu[0].set(utilization=0, power_mw=0, power_instant_mw=0)
    watch.ticks(3)
    assert watch.reading().power_watts == 0
    assert watch.last.problems == ()


def test_instant_and_average_power_may_differ(watch: Watch) -> None:
    """A load that comes and goes has other instants than means: no call is called wrong."""
    power_machine(watch, 690_000, 210_000)
    watch.ticks(3)
    assert watch.reading().power_watts == 690
    assert watch.last.problems == ()


# Memory that is the host's.


@pytest.mark.parametrize("answer", ["NOT_SUPPORTED", "zero"])
def test_unified_memory_has_no_total_and_no_zero(tmp_path: Path, answer: str) -> None:
    """nvitop (208), nvtop (466): GB10 answers "not supported". What is held is the sum over the
    processes: nothing where none is listed; with a list that fails it is unknown."""
    with watching(tmp_path, gpus=1, preset="gb10", opened=False) as watch:
        if answer == "zero":
            for function in ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2"):
                watch.fake.fault(function, "SUCCESS", gpu=0)
        watch.source.open()
        watch.ticks(3)
        assert watch.gpu().identity.memory_unified
        assert watch.reading().memory_used_bytes == 0
        assert watch.reading().memory_used_is_process_sum
        assert watch.gpu().identity.memory_total_bytes is None
        assert watch.reading().memory_clock_mhz is None
        assert watch.gpu().identity.memory_clock_max_mhz is None
        assert watch.last.problems == ()
        watch.fake.gpu[0].processes = [GpuProcess(pid=n, used_bytes=n * GIB) for n in (1, 3)]
        watch.ticks(2)
        assert watch.reading().memory_used_bytes == 4 * GIB
        watch.fake.fault("nvmlDeviceGetComputeRunningProcesses_v3", "UNKNOWN", gpu=0)
        watch.ticks(4)
        assert watch.reading().memory_used_bytes is None


def test_a_superchip_keeps_its_own_memory(watch: Watch) -> None:
    """Grace Hopper and Grace Blackwell report the GPU's HBM (NVIDIA's profiles gb200 and gb300 of
    its mock library): they are not taken for unified."""
    watch.fake.gpu[0].set(name="NVIDIA GB200", memory_total_bytes=192 * GIB, numa_node=1)
    watch.tick()
    assert not watch.gpu().identity.memory_unified
    assert watch.gpu().identity.memory_total_bytes == 192 * GIB


# What is switched off.


@pytest.mark.parametrize("error", ["NOT_SUPPORTED", "NO_PERMISSION"])
def test_confidential_computing_costs_the_performance_counters_alone(
    tmp_path: Path, error: str
) -> None:
    """NVIDIA's gpu-admin-tools: with the mode on, "performance counters off". Activities are
    unknown, records of processes are the longer ones, and the rest is read."""
    with watching(tmp_path, gpus=1, opened=False) as watch:
        watch.fake.fault("nvmlGpmQueryDeviceSupport", error, gpu=0)
        watch.fake.gpu[0].set(utilization=88, process_record_bytes=32)
        watch.fake.gpu[0].processes = [GpuProcess(pid=pid, used_bytes=GIB) for pid in (4, 5)]
        watch.source.open()
        watch.ticks(4)
        assert watch.reading().sm_active_percent is None
        assert watch.reading().busy_percent == 88
        assert sizes(watch) == {4: GIB, 5: GIB}
        if error == "NOT_SUPPORTED":
            assert watch.last.problems == ()
        else:
            assert "more rights" in alone(watch)


# Time stamps of another clock.


@pytest.mark.parametrize(
    "off_seconds", [3 * 3600.0, 30 * 86_400.0, -START_UNIX_SECONDS + 5_000_000.0]
)
def test_samples_stamped_by_another_clock_are_placed_by_their_newest(
    watch: Watch, off_seconds: float
) -> None:
    """Stamps hours in the future, or counted from the start of the machine (gpu-metrics-agent, 36),
    are moved as one: the newest is now, each comes once, and the spacing stays."""
    gpu, off = watch.fake.gpu[0], round(off_seconds * 1e6)
    ring: list[tuple[int, float]] = []
    seen = []
    for second in range(6):
        now = START_US + (second + 1) * 1_000_000
        ring += [(now - 500_000 + off, 10.0 * second), (now - 50_000 + off, 99.0)]
        gpu.set_samples(ring)
        watch.tick()
        samples = watch.reading().busy_samples
        assert samples is not None
        seen += samples
    assert [sample.percent for sample in seen] == [percent for _, percent in ring]
    ends = [sample.at_unix_seconds for sample in seen]
    truth = [(at - off) / 1e6 for at, _ in ring]
    assert ends == pytest.approx(truth, abs=0.2)
    assert all(end <= watch.clock.unix() + 0.01 for end in ends)
    assert ends == sorted(ends)


def test_a_time_stamp_that_is_rubbish_moves_nothing(watch: Watch) -> None:
    """One in the far future among true ones is dropped, and so is one that stands alone."""
    gpu = watch.fake.gpu[0]
    gpu.set_samples([(START_US + 900_000, 50), (START_US + 7_200_000_000, 60)])
    watch.tick()
    assert watch.reading().busy_samples == ((START_UNIX_SECONDS + 0.9, 50.0),)
    gpu.set_samples([(START_US + 7_200_000_000, 60)])
    watch.tick()
    assert watch.reading().busy_samples == ()


def test_shares_of_processes_follow_the_clock_of_the_samples(watch: Watch) -> None:
    """Where the driver counts from the start of the machine a busy process is not shown as idle."""
    off = 5_000_000 * 1_000_000 - START_US
    now = START_US + 1_000_000
    watch.fake.gpu[0].set_samples([(now - 300_000 + off, 80), (now - 100_000 + off, 80)])
    watch.fake.gpu[0].processes = [
        GpuProcess(pid=1, sm_percent=42, sample_at_us=now - 100_000 + off)
    ]
    watch.tick()
    assert [row.busy_percent for row in watch.last.processes] == [42]


# Old cards.


def test_a_card_with_neither_utilisation_nor_samples_says_the_first(watch: Watch) -> None:
    """nvtop (86) and old cards: no utilisation at all is one sentence, not one of samples."""
    for function in ("UtilizationRates", "Samples", "ProcessUtilization"):
        watch.fake.fault(f"nvmlDeviceGet{function}", "NOT_SUPPORTED")
    watch.ticks(2)
    assert watch.reading().busy_percent is None
    assert alone(watch).startswith("The driver does not report the utilisation of GPU 0, so ")


def test_fine_samples_stand_in_for_a_utilisation_that_is_not_there(watch: Watch) -> None:
    """Where only the percentage is missing the samples still say how busy the GPU is."""
    watch.fake.fault("nvmlDeviceGetUtilizationRates", "NOT_SUPPORTED")
    watch.fake.gpu[0].waveform("steady", level_percent=70)
    watch.ticks(3)
    assert watch.reading().busy_percent is None
    assert watch.reading().busy_samples
    assert watch.last.problems == ()


def test_nothing_of_a_gpu_is_a_gpu_without_readings(tmp_path: Path) -> None:
    """A driver that supports no call about its card leaves a row without a single number."""
    identity = ("Handle", "Count", "UUID", "Name", "PciInfo", "MigMode")
    with watching(tmp_path, gpus=1, opened=False) as watch:
        for function in FUNCTIONS:
            about_a_gpu = function.startswith(("nvmlDeviceGet", "nvmlGpm"))
            if about_a_gpu and not any(word in function for word in identity):
                watch.fake.fault(function, "NOT_SUPPORTED")
        watch.source.open()
        watch.ticks(4)
        assert present(watch.reading()) <= present(GpuReading()) | {"memory_used_is_process_sum"}
        assert len(watch.sentences()) == 2
