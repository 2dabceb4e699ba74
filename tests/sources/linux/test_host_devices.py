"""Which disks and interfaces count, on a made-up /sys."""

from pathlib import Path

from gpuwatch.sources.linux import host_devices


def add_disk(sys_root: Path, name: str, where: str, *, hidden: bool | None = None) -> None:
    target = sys_root / "devices" / where / name
    target.mkdir(parents=True)
    if hidden is not None:
        (target / "hidden").write_text(f"{int(hidden)}\n")
    (sys_root / "block").mkdir(exist_ok=True)
    (sys_root / "block" / name).symlink_to(target)


def add_interface(sys_root: Path, name: str, *parts: str) -> None:
    folder = sys_root / "class" / "net" / name
    folder.mkdir(parents=True)
    for part in parts:
        (folder / part).mkdir()


def test_disks_with_hardware_count_and_what_is_stacked_on_them_does_not(tmp_path: Path) -> None:
    """loop, ram, zram, device-mapper, md, and zvols are somebody else's bytes."""
    add_disk(tmp_path, "sda", "pci0000:00/ata1/block")
    add_disk(tmp_path, "vda", "pci0000:00/virtio2/block")
    add_disk(tmp_path, "nvme0n1", "pci0000:00/nvme/nvme0", hidden=False)
    add_disk(tmp_path, "mmcblk0", "platform/mmc/block")
    for name in ("loop0", "ram0", "zram0", "dm-0", "md127", "zd0", "bcache0", "drbd0"):
        add_disk(tmp_path, name, "virtual/block")
    assert host_devices.whole_disks(tmp_path) == {b"sda", b"vda", b"nvme0n1", b"mmcblk0"}


def test_a_multipath_nvme_disk_counts_once(tmp_path: Path) -> None:
    """The head counts, its hidden paths do not."""
    add_disk(tmp_path, "nvme0n1", "virtual/nvme-subsystem/nvme-subsys0")
    add_disk(tmp_path, "nvme0c0n1", "pci0000:00/nvme/nvme0", hidden=True)
    add_disk(tmp_path, "nvme0c1n1", "pci0000:01/nvme/nvme1", hidden=True)
    assert host_devices.whole_disks(tmp_path) == {b"nvme0n1"}


def test_a_network_block_device_counts(tmp_path: Path) -> None:
    """Nothing beneath it would be counted instead."""
    add_disk(tmp_path, "nbd0", "virtual/block")
    assert host_devices.whole_disks(tmp_path) == {b"nbd0"}


def test_without_sysfs_no_disk_is_known(tmp_path: Path) -> None:
    """A sandbox without /sys/block gives none, without an error."""
    assert host_devices.whole_disks(tmp_path) == frozenset()


def test_interfaces_with_hardware_count_and_what_is_built_on_them_does_not(tmp_path: Path) -> None:
    """Both slaves of a bond count, the bond, bridges, VLANs and containers' ends do not."""
    add_interface(tmp_path, "lo")
    add_interface(tmp_path, "eno1", "device", "master")
    add_interface(tmp_path, "eno2", "device", "master")
    for name in ("bond0", "docker0", "veth12ab", "bond0.100", "wg0", "ifb0"):
        add_interface(tmp_path, name)
    assert host_devices.counted_interfaces(tmp_path) == {b"eno1", b"eno2"}


def test_in_a_container_its_own_virtual_interface_counts(tmp_path: Path) -> None:
    """Without any hardware: all but the loopback, bridges, what hangs on one, and dummies."""
    add_interface(tmp_path, "lo")
    add_interface(tmp_path, "eth0")
    add_interface(tmp_path, "br-12ab", "bridge")
    add_interface(tmp_path, "veth99", "master")
    add_interface(tmp_path, "dummy0")
    assert host_devices.counted_interfaces(tmp_path) == {b"eth0"}


def test_without_sysfs_the_interfaces_are_unknown(tmp_path: Path) -> None:
    """None rather than no interface."""
    assert host_devices.counted_interfaces(tmp_path) is None
