"""Processes on a GPU: lists, memory, their share of the SMs, MIG."""

from gpuwatch.sources.gpu_source import GpuProcess
from tests.sources.nvml.watch import START_UNIX_SECONDS, Watch
from tests.support.fake_nvml import GpuProcess as FakeProcess
from tests.support.fake_nvml import MigInstance

START_US = round(START_UNIX_SECONDS * 1e6)
GIB = 1 << 30


def by_pid(watch: Watch) -> dict[int, GpuProcess]:
    found = {process.pid: process for process in watch.last.processes}
    assert len(found) == len(watch.last.processes)
    return found


def test_compute_and_graphics_lists_become_one(watch: Watch) -> None:
    """A process in both lists is one row, and its memory is not counted twice."""
    watch.fake.gpu[0].processes = [
        FakeProcess(pid=1, used_bytes=2 * GIB),
        FakeProcess(pid=2, used_bytes=GIB, kinds=("graphics",)),
        FakeProcess(pid=3, used_bytes=3 * GIB, kinds=("compute", "graphics")),
        FakeProcess(pid=4, used_bytes=GIB, kinds=("mps",)),
    ]
    watch.ticks(2)
    rows = by_pid(watch)
    assert {pid: row.kind for pid, row in rows.items()} == {
        1: "compute",
        2: "graphics",
        3: "compute+graphics",
        4: "compute",
    }
    assert rows[3].memory_bytes == 3 * GIB
    assert {row.gpu_uuid for row in rows.values()} == {watch.gpu().uuid}


def test_a_process_on_two_gpus_is_two_rows(pair: Watch) -> None:
    """The same PID on two cards keeps each card's own memory."""
    pair.fake.gpu[0].processes = [FakeProcess(pid=9, used_bytes=GIB)]
    pair.fake.gpu[1].processes = [FakeProcess(pid=9, used_bytes=5 * GIB)]
    pair.tick()
    rows = {row.gpu_uuid: row.memory_bytes for row in pair.last.processes}
    assert rows == {pair.gpu(0).uuid: GIB, pair.gpu(1).uuid: 5 * GIB}


def test_sm_share_by_process(watch: Watch) -> None:
    """Sampled processes have their percentage; one without a sample was idle: a measured 0."""
    watch.fake.gpu[0].processes = [
        FakeProcess(pid=1, sm_percent=42),
        FakeProcess(pid=2, sm_percent=None),
    ]
    watch.tick()
    assert {pid: row.busy_percent for pid, row in by_pid(watch).items()} == {1: 42, 2: 0}


def test_not_found_means_idle(watch: Watch) -> None:
    """No utilisation sample at all is 0 for every process of the GPU."""
    watch.fake.gpu[0].processes = [FakeProcess(pid=1, sm_percent=42)]
    watch.fake.fault("nvmlDeviceGetProcessUtilization", "NOT_FOUND")
    watch.tick()
    assert by_pid(watch)[1].busy_percent == 0
    assert watch.last.problems == ()


def test_not_supported_means_unknown(watch: Watch) -> None:
    """A GPU that records no shares gives None and says so once."""
    watch.fake.gpu[0].processes = [FakeProcess(pid=1, sm_percent=42)]
    watch.fake.fault("nvmlDeviceGetProcessUtilization", "NOT_SUPPORTED")
    watch.ticks(3)
    assert by_pid(watch)[1].busy_percent is None
    assert watch.problem("share of the SMs").severity == "info"
    assert watch.fake.calls("nvmlDeviceGetProcessUtilization") == 1


def test_unbelievable_shares_are_dropped(watch: Watch) -> None:
    """Shares over 100 and stale or blank time stamps do not count."""
    watch.fake.gpu[0].set(process_blank_samples=2)
    watch.fake.gpu[0].processes = [
        FakeProcess(pid=1, sm_percent=4_000_000),
        FakeProcess(pid=2, sm_percent=80, sample_at_us=START_US - 600_000_000),
        FakeProcess(pid=3, sm_percent=30),
    ]
    watch.tick()
    assert {pid: row.busy_percent for pid, row in by_pid(watch).items()} == {1: 0, 2: 0, 3: 30}


def test_shares_come_again_after_the_clock_was_set_back(watch: Watch) -> None:
    """After the wall clock stepped back an hour, a busy process is idle for seconds only."""
    watch.fake.gpu[0].processes = [FakeProcess(pid=1, sm_percent=42)]
    watch.ticks(2)
    watch.clock.unix_epoch_seconds -= 3600
    assert by_pid(watch)[1].busy_percent == 42
    watch.ticks(15)
    assert by_pid(watch)[1].busy_percent == 42


def test_an_idle_process_does_not_look_busy_later(watch: Watch) -> None:
    """What a process did a minute ago never comes back as its share now."""
    entry = FakeProcess(pid=1, sm_percent=90, sample_at_us=START_US + 900_000)
    watch.fake.gpu[0].processes = [entry]
    assert watch.tick().processes[0].busy_percent == 90
    for _ in range(40):
        assert watch.tick().processes[0].busy_percent == 0


def test_a_list_that_grows_meanwhile_is_fetched_again(watch: Watch) -> None:
    """More processes than the buffer holds, and one that grows between two calls, are read."""
    watch.fake.gpu[0].set(process_growth=1)
    watch.fake.gpu[0].processes = [FakeProcess(pid=n, sm_percent=1) for n in range(1, 300)]
    watch.tick()
    assert sorted(by_pid(watch)) == list(range(1, 300))
    assert by_pid(watch)[299].busy_percent == 1


def mig_machine(watch: Watch) -> None:
    watch.fake.gpu[0].set_mig(
        [
            MigInstance(uuid="MIG-aaaa", gpu_instance=7, memory_used_bytes=2 * GIB),
            MigInstance(uuid="MIG-bbbb", gpu_instance=8),
        ]
    )
    watch.fake.gpu[0].processes = [
        FakeProcess(pid=1, used_bytes=GIB, gpu_instance=7, compute_instance=0),
        FakeProcess(pid=2, used_bytes=2 * GIB, gpu_instance=8, compute_instance=0),
    ]


def test_mig_instances_are_gpus_beside_their_card(pair: Watch) -> None:
    """Each instance is a row after its card, with its own memory and no utilisation of its own."""
    mig_machine(pair)
    pair.ticks(2)
    identities = [gpu.identity for gpu in pair.last.gpus]
    assert [(i.index, i.mig_parent_uuid, i.mig_instance) for i in identities] == [
        (0, None, None),
        (0, identities[0].uuid, 7),
        (0, identities[0].uuid, 8),
        (1, None, None),
    ]
    assert identities[0].mig_mode is True
    assert identities[1].memory_total_bytes == 18 << 30
    assert identities[1].pci_bus_id == identities[0].pci_bus_id is not None
    assert pair.reading(1).memory_used_bytes == 2 * GIB
    assert pair.reading(1).busy_percent is None
    assert pair.reading(1).power_watts is None


def test_processes_in_mig_name_their_instance(watch: Watch) -> None:
    """A process runs on its instance, is listed once, and its share is unknown there."""
    mig_machine(watch)
    watch.ticks(2)
    rows = by_pid(watch)
    assert (rows[1].gpu_uuid, rows[1].mig_instance) == ("MIG-aaaa", 7)
    assert (rows[2].gpu_uuid, rows[2].mig_instance) == ("MIG-bbbb", 8)
    assert rows[1].memory_bytes == GIB
    assert rows[1].busy_percent is None


def test_an_instance_added_while_watching_appears(watch: Watch) -> None:
    """A card already divided that gets one more instance shows it."""
    watch.fake.gpu[0].set_mig([MigInstance(uuid="MIG-aaaa", gpu_instance=7)])
    assert len(watch.tick().gpus) == 2
    mig_machine(watch)
    watch.ticks(12)
    assert [gpu.identity.mig_instance for gpu in watch.last.gpus] == [None, 7, 8]


def test_instances_of_a_lost_card_come_back_with_it(watch: Watch) -> None:
    """When a divided card recovers its instances do so in the same look."""
    mig_machine(watch)
    watch.tick()
    watch.fake.gpu[0].set(lost=1)
    watch.ticks(2)
    assert [gpu.lost for gpu in watch.last.gpus] == [True, True, True]
    watch.fake.gpu[0].set(lost=0)
    while watch.gpu(0).lost:
        watch.tick()
    assert [gpu.lost for gpu in watch.last.gpus] == [False, False, False]
    assert watch.reading(1).memory_used_bytes == 2 * GIB


def test_mig_switched_on_and_off_while_watching(watch: Watch) -> None:
    """Instances appear when a card is divided, and go, without being lost, when it is whole."""
    watch.tick()
    assert len(watch.last.gpus) == 1
    mig_machine(watch)
    watch.ticks(12)
    assert len(watch.last.gpus) == 3
    assert watch.gpu(0).identity.mig_mode is True
    watch.fake.gpu[0].set_mig([])
    watch.ticks(12)
    assert len(watch.last.gpus) == 1
    assert watch.gpu(0).identity.mig_mode is False
    assert watch.reading(0).busy_percent is not None
    assert not watch.gpu(0).lost
