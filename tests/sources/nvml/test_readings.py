"""What is read of a healthy GPU, through the real pynvml."""

from pathlib import Path

import pynvml
import pytest

from gpuwatch.core.model import GpuIdentity, XidError
from gpuwatch.sources.nvml.readings import numa_node
from tests.sources.nvml.watch import START_UNIX_SECONDS, Watch, watching
from tests.support.fake_nvml import OLD_DRIVER, MigInstance

GIB = 1 << 30


def test_identity_holds_every_fact_of_the_card(watch: Watch) -> None:
    """The identity names the card, its driver, its limits, its link and its capability."""
    watch.fake.set(driver_version="580.95.05", cuda_version=13000)
    watch.tick()
    assert watch.gpu().identity == GpuIdentity(
        index=0, uuid="GPU-00000000-1111-2222-3333-abcdef000000", name="NVIDIA H200",
        pci_bus_id="00000000:10:00.0", driver_version="580.95.05", cuda_version="13.0",
        memory_total_bytes=143771 << 20, power_limit_default_watts=700.0,
        power_limit_max_watts=700.0, temperature_slowdown_celsius=89.0,
        temperature_shutdown_celsius=92.0, sm_clock_max_mhz=1980, memory_clock_max_mhz=3201,
        pcie_generation_max=5, pcie_width_max=16, compute_capability="9.0", mig_mode=False,
        numa_node=watch.gpu().identity.numa_node,
    )  # fmt: skip


def test_moving_readings_are_in_the_units_of_the_model(tmp_path: Path) -> None:
    """Milliwatts become watts, millijoules joules, and every value lands in its field."""
    with watching(tmp_path, gpus=1, preset="h200") as watch:
        watch.fake.gpu[0].set(
            utilization=47, memory_utilization=12, encoder_utilization=3, decoder_utilization=4,
            memory_used_bytes=31 * GIB, power_mw=312_500, power_limit_enforced_mw=650_000,
            temperature_c=61, clock_sm_mhz=1755, clock_memory_mhz=2619, performance_state=2,
            energy_mj=5_000_500, pcie_generation=4, pcie_width=8,
        )  # fmt: skip
        reading = watch.tick().gpus[0].reading
        assert reading.busy_percent == 47
        assert reading.memory_controller_percent == 12
        assert reading.encoder_percent == 3
        assert reading.decoder_percent == 4
        assert reading.memory_used_bytes == 31 * GIB
        assert reading.power_watts == 312.5
        assert reading.power_is_average is False
        assert reading.power_limit_watts == 650
        assert reading.temperature_celsius == 61
        assert reading.memory_temperature_celsius == 45
        assert reading.sm_clock_mhz == 1755
        assert reading.memory_clock_mhz == 2619
        assert reading.performance_state == 2
        assert reading.energy_joules == 5000.5
        assert (reading.pcie_generation, reading.pcie_width) == (4, 8)
        assert watch.last.problems == ()


@pytest.mark.parametrize(("preset", "average"), [("h200", True), ("a100", False), ("t4", False)])
def test_power_usage_is_an_average_from_ampere_on_except_ga100(
    tmp_path: Path, preset: str, average: bool
) -> None:
    """The oldest power call is labelled as nvml.h describes it for the card's generation."""
    with watching(tmp_path, gpus=1, preset=preset) as watch:
        for field in (185, 186):
            watch.fake.gpu[0].field_error(field)
        assert watch.tick().gpus[0].reading.power_watts is not None
        assert watch.reading().power_is_average is average


def test_throttle_reasons_are_named(watch: Watch) -> None:
    """Each set bit becomes its name; a bit that nobody knows is left out."""
    watch.fake.gpu[0].set(event_reasons=0x4 | 0x40 | 0x8000_0000)
    assert watch.tick().gpus[0].reading.throttle_reasons == (
        "sw_power_cap",
        "hw_thermal_slowdown",
    )


def test_throttle_durations_are_seconds_since_the_last_snapshot(watch: Watch) -> None:
    """Nanosecond accumulators become the seconds each reason held between two snapshots."""
    watch.fake.set(driver_version="580.95.05")
    watch.fake.gpu[0].set(reason_sw_power_cap_ns=7 * 10**12)
    assert watch.tick().gpus[0].reading.throttle_durations is None
    watch.fake.gpu[0].set(
        reason_sw_power_cap_ns=7 * 10**12 + 400_000_000, reason_hw_thermal_ns=250_000_000
    )
    watch.tick()
    held = {entry.reason: entry.seconds for entry in watch.reading().throttle_durations or ()}
    assert held == {
        "sw_power_cap": pytest.approx(0.4),
        "sync_boost": 0,
        "sw_thermal_slowdown": 0,
        "hw_thermal_slowdown": pytest.approx(0.25),
        "hw_power_brake_slowdown": 0,
    }


def test_drivers_before_575_are_asked_for_policy_counters_only(watch: Watch) -> None:
    """The ids of the newer accumulators meant something else in older drivers."""
    watch.tick()
    watch.fake.gpu[0].set(reason_hw_thermal_ns=500_000_000, reason_hw_power_brake_ns=500_000)
    watch.tick()
    held = {entry.reason: entry.seconds for entry in watch.reading().throttle_durations or ()}
    assert held == {
        "sw_power_cap": 0,
        "sync_boost": 0,
        "sw_thermal_slowdown": pytest.approx(0.5),
    }


def test_an_accumulator_that_outruns_the_clock_is_not_believed(watch: Watch) -> None:
    """Ten seconds of throttling in one second are dropped."""
    watch.tick()
    watch.fake.gpu[0].set(reason_sw_power_cap_ns=10**10)
    watch.tick()
    reasons = [entry.reason for entry in watch.reading().throttle_durations or ()]
    assert "sw_power_cap" not in reasons


def test_memory_falls_back_to_v1(watch: Watch) -> None:
    """A driver without v2 is asked v1, for the total and for what is used."""
    watch.fake.fault("nvmlDeviceGetMemoryInfo_v2", "FUNCTION_NOT_FOUND")
    watch.ticks(3)
    assert watch.gpu().identity.memory_total_bytes == 143771 << 20
    assert watch.gpu().identity.memory_unified is False
    assert watch.reading().memory_used_bytes is not None
    # Once for the identity, once for the reading, and then never again.
    assert watch.fake.calls("nvmlDeviceGetMemoryInfo_v2") == 2


def test_ecc_and_remapped_rows(tmp_path: Path) -> None:
    """Volatile ECC counts and the four facts about remapped rows are read."""
    with watching(tmp_path, gpus=2, preset=["h200", "rtx4090"]) as watch:
        watch.fake.gpu[0].set(
            ecc_volatile_corrected=7, ecc_volatile_uncorrected=1, remapped_correctable=2,
            remapped_uncorrectable=3, remapped_pending=1, remapped_failed=0,
        )  # fmt: skip
        watch.tick()
        reading = watch.reading(0)
        assert (reading.ecc_corrected_count, reading.ecc_uncorrected_count) == (7, 1)
        assert (reading.remapped_rows_correctable, reading.remapped_rows_uncorrectable) == (2, 3)
        assert (reading.remapped_rows_pending, reading.remapped_rows_failed) == (True, False)
        assert watch.reading(1).ecc_corrected_count is None
        assert watch.reading(1).remapped_rows_pending is None


@pytest.mark.parametrize(
    ("preset", "card"),
    [("h200", {}), ("a100", {}), ("h200", {"architecture": 10})],
)
def test_errors_of_links_are_counted(tmp_path: Path, preset: str, card: dict[str, int]) -> None:
    """PCIe replays, and the errors of all NVLinks together, however the driver counts them: for
    each link up to Hopper, for all at once from Blackwell on. A card without NVLinks has none."""
    with watching(tmp_path, gpus=2, preset=[preset, "rtx4090"]) as watch:
        errors = {"nvlink_crc_errors": 9, "nvlink_replays": 3, "nvlink_recoveries": 2}
        watch.fake.gpu[0].set(pcie_replays=5, **errors, **card)
        watch.ticks(2)
        reading = watch.reading(0)
        assert reading.pcie_replay_count == 5
        assert reading.nvlink_crc_count == 9
        assert reading.nvlink_replay_count == 3
        assert reading.nvlink_recovery_count == 2
        assert watch.reading(1).pcie_replay_count == 0
        assert watch.reading(1).nvlink_recovery_count is None
        assert watch.last.problems == ()


def test_errors_of_links_are_those_of_an_old_driver(watch: Watch) -> None:
    """It has the totals alone."""
    watch.fake.gpu[0].set(nvlink_recoveries=4)
    for field in (161, 162, 163, 215):
        watch.fake.gpu[0].field_error(field)
    watch.tick()
    assert watch.reading().nvlink_recovery_count == 4
    assert watch.reading().nvlink_crc_count == 0


def test_nvlink_throughput_is_growth_over_real_time(tmp_path: Path) -> None:
    """Counter growth is divided by the time that really passed; the first look has none."""
    with watching(tmp_path, gpus=1, preset="a100") as watch:
        watch.fake.gpu[0].set(nvlink_rx_kib=1000, nvlink_tx_kib=500)
        assert watch.tick().gpus[0].reading.nvlink_rx_bytes_per_second is None
        watch.fake.gpu[0].set(nvlink_rx_kib=1000 + 4096, nvlink_tx_kib=500 + 2048)
        watch.tick(2.0)
        assert watch.reading().nvlink_rx_bytes_per_second == 2 << 20
        assert watch.reading().nvlink_tx_bytes_per_second == 1 << 20


def test_a_counter_that_went_back_is_a_gap(tmp_path: Path) -> None:
    """After a counter was reset the rate is unknown once, never negative."""
    with watching(tmp_path, gpus=1, preset="a100") as watch:
        watch.fake.gpu[0].set(nvlink_rx_kib=10_000)
        watch.tick()
        watch.fake.gpu[0].set(nvlink_rx_kib=50)
        assert watch.tick().gpus[0].reading.nvlink_rx_bytes_per_second is None
        watch.fake.gpu[0].set(nvlink_rx_kib=150)
        assert watch.tick().gpus[0].reading.nvlink_rx_bytes_per_second == 100 * 1024


def test_gpm_gives_activities_on_hopper_and_none_before(tmp_path: Path) -> None:
    """The second look has SM, occupancy, tensor and DRAM activity; an A100 has none of them."""
    with watching(tmp_path, gpus=2, preset=["h200", "a100"]) as watch:
        watch.tick()
        assert watch.reading(0).sm_active_percent is None
        watch.tick()
        reading = watch.reading(0)
        assert reading.sm_active_percent == pytest.approx(82.0)
        assert reading.sm_occupancy_percent == pytest.approx(41.5)
        assert reading.tensor_active_percent == pytest.approx(37.25)
        assert reading.dram_active_percent == pytest.approx(55.0)
        assert watch.reading(1).sm_active_percent is None
        assert watch.last.problems == ()


def test_gpm_samples_of_a_gpu_that_was_lost_are_given_back(watch: Watch) -> None:
    """A GPU that comes and goes for days does not eat the driver's memory."""
    for _ in range(3):
        watch.ticks(3)
        watch.fake.gpu[0].set(lost=1)
        watch.tick()
        watch.fake.gpu[0].set(lost=0)
        watch.ticks(6)
    held = watch.fake.calls("nvmlGpmSampleAlloc") - watch.fake.calls("nvmlGpmSampleFree")
    assert held == 2


def test_pcie_throughput_comes_from_the_slow_call_where_nothing_else_tells(tmp_path: Path) -> None:
    """The 20 ms call is not made for the first picture, and then gives both directions."""
    with watching(tmp_path, gpus=1, preset="t4") as watch:
        watch.fake.gpu[0].set(pcie_rx_kib_per_second=1000, pcie_tx_kib_per_second=250)
        watch.source.read()
        assert watch.fake.calls("nvmlDeviceGetPcieThroughput") == 0
        watch.ticks(3)
        assert watch.reading().pcie_rx_bytes_per_second == 1_000_000
        assert watch.reading().pcie_tx_bytes_per_second == 250_000


def test_pcie_byte_counters_spare_the_slow_call(tmp_path: Path) -> None:
    """Once the driver's byte counters are seen to move, they replace the 20 ms call."""
    with watching(tmp_path, gpus=1, preset="t4") as watch:
        watch.fake.gpu[0].waveform("steady", level_percent=100)
        watch.fake.gpu[0].set(nvlink_since_us=round((START_UNIX_SECONDS - 10) * 1e6))
        watch.fake.gpu[0].set(pcie_rx_kib_per_second=1000, pcie_tx_kib_per_second=250)
        watch.ticks(3)
        before = watch.fake.calls("nvmlDeviceGetPcieThroughput")
        watch.ticks(20)
        assert watch.fake.calls("nvmlDeviceGetPcieThroughput") == before
        assert watch.reading().pcie_rx_bytes_per_second == pytest.approx(1000 * 1024, rel=0.01)


def test_an_old_driver_still_gives_what_it_can(tmp_path: Path) -> None:
    """A driver of the 440 series lacks half the calls; the other half is read, silently."""
    with watching(tmp_path, gpus=1, preset="t4", missing=OLD_DRIVER) as watch:
        watch.fake.gpu[0].set(utilization=33, event_reasons=0x4)
        watch.ticks(2)
        reading = watch.reading()
        assert reading.busy_percent == 33
        assert reading.memory_used_bytes is not None
        assert reading.power_watts == pytest.approx(9.0)
        assert reading.throttle_reasons == ("sw_power_cap",)
        assert reading.energy_joules is None
        assert reading.sm_active_percent is None
        assert watch.last.problems == ()


def test_numa_node_comes_from_the_kernel(tmp_path: Path) -> None:
    """The kernel's number is taken; its -1 and a missing file mean that none is known."""
    for address, node in (("0000:10:00.0", "1\n"), ("0000:20:00.0", "-1\n")):
        (tmp_path / address).mkdir()
        (tmp_path / address / "numa_node").write_text(node)
    assert numa_node("00000000:10:00.0", tmp_path) == 1
    assert numa_node("00000000:20:00.0", tmp_path) is None
    assert numa_node("00000000:30:00.0", tmp_path) is None


def test_own_cost_is_what_the_driver_was_really_called(pair: Watch) -> None:
    """The calls reported for a look are those the driver counted."""
    pair.ticks(3)
    for _ in range(10):
        pair.fake.reset_counters()
        pair.tick()
        assert abs(pair.last.call_count - pair.fake.calls()) <= 2


def test_a_refused_extra_field_leaves_the_others(watch: Watch) -> None:
    """One field value that this card does not have costs only itself, and is not asked again."""
    watch.fake.gpu[0].field_error(82)
    watch.fake.gpu[0].set(energy_mj=1000)
    watch.tick()
    assert watch.reading().memory_temperature_celsius is None
    assert watch.reading().energy_joules == 1
    watch.fake.gpu[0].field_error(82, "SUCCESS")
    watch.tick()
    assert watch.reading().memory_temperature_celsius is None


def test_thermal_limits_given_as_margins_become_degrees(tmp_path: Path) -> None:
    """Where the driver tells how far the limits are instead of where, degrees are worked out."""
    if not hasattr(pytest.importorskip("pynvml"), "nvmlDeviceGetMarginTemperature"):
        pytest.skip("this nvidia-ml-py does not have the margin call yet")
    with watching(tmp_path, gpus=1, opened=False) as watch:
        watch.fake.gpu[0].set(
            temperature_threshold_c=[0] * 8, temperature_c=40, margins_supported=1,
            temperature_margin_c=47, temperature_margin_slowdown_c=-2,
            temperature_margin_shutdown_c=-5,
        )  # fmt: skip
        watch.source.open()
        identity = watch.tick().gpus[0].identity
        assert identity.temperature_slowdown_celsius == 89
        assert identity.temperature_shutdown_celsius == 92


# --- what the driver reports by itself --------------------------------------------------------


def test_xid_errors_are_counted_by_code_with_the_time_of_the_last(watch: Watch) -> None:
    """Each code has its number of errors since watching began, and when the last was reported."""
    watch.fake.gpu[0].report(13)
    watch.tick()
    assert watch.gpu().xid_errors == ()
    watch.fake.gpu[0].report(31)
    watch.fake.gpu[0].report(43)
    watch.tick()
    watch.fake.gpu[0].report(31)
    watch.ticks(2)
    assert watch.gpu().xid_errors == (
        XidError(31, 2, START_UNIX_SECONDS + 3.0),
        XidError(43, 1, START_UNIX_SECONDS + 2.0),
    )


def test_a_lost_gpu_keeps_the_error_that_says_why(tmp_path: Path) -> None:
    """The event that came with the loss is read, though the card answers nothing any more."""
    with watching(tmp_path, gpus=2, preset="h200") as watch:
        watch.tick()
        watch.fake.gpu[0].report(79)
        watch.fake.gpu[0].set(lost=1)
        watch.fake.gpu[1].report(31)
        watch.ticks(2)
        first, second = watch.last.gpus
        assert first.lost
        assert first.xid_errors is not None
        assert [error.code for error in first.xid_errors] == [79]
        assert second.xid_errors is not None
        assert second.xid_errors[0].code == 31


def test_xid_errors_are_unknown_where_the_driver_reports_none(tmp_path: Path) -> None:
    """A card without such events has no empty list of errors, and nothing is complained about."""
    with watching(tmp_path, gpus=1, preset="wsl") as watch:
        watch.ticks(3)
        assert watch.gpu().xid_errors is None
        assert not any("Xid" in text for text in watch.sentences())
    with watching(tmp_path, gpus=1, missing=["nvmlEventSetWait_v2"]) as watch:
        watch.ticks(3)
        assert watch.gpu().xid_errors is None


def test_the_errors_of_a_card_are_those_of_its_mig_instances(watch: Watch) -> None:
    """A job on a MIG instance hears of the card's errors."""
    watch.fake.gpu[0].set_mig([MigInstance(uuid="MIG-1")])
    watch.ticks(12)
    watch.fake.gpu[0].report(95)
    watch.ticks(2)
    assert [one.xid_errors and one.xid_errors[0].code for one in watch.last.gpus] == [95, 95]


def test_an_ecc_event_hurries_the_counters(watch: Watch) -> None:
    """Counters of memory errors are read as soon as the driver reports one, not seconds later."""
    watch.ticks(7)
    watch.fake.gpu[0].set(ecc_volatile_uncorrected=1)
    watch.fake.gpu[0].report(0, kind=pynvml.nvmlEventTypeDoubleBitEccError)
    watch.ticks(2)
    assert watch.reading().ecc_uncorrected_count == 1


def test_the_event_sets_are_given_back(tmp_path: Path) -> None:
    """Whoever stops watching leaves no event set in the driver."""
    with watching(tmp_path, gpus=2, preset="a100") as watch:
        watch.ticks(2)
        watch.source.close()
        made, freed = watch.fake.calls("nvmlEventSetCreate"), watch.fake.calls("nvmlEventSetFree")
        assert made == freed == 2
