"""Which disks and interfaces count, on a made-up /sys."""

from pathlib import Path

from gpuwatch.sources.linux import host


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
    """loop, ram, zram, device-mapper, md, and zvols are somebody else's bytes. Of a multipath disk
    the head counts and its hidden paths do not; a network block device counts, since nothing
    beneath it would be counted instead. A sandbox without /sys/block gives none."""
    assert host.whole_disks(tmp_path) == frozenset()
    add_disk(tmp_path, "sda", "pci0000:00/ata1/block")
    add_disk(tmp_path, "vda", "pci0000:00/virtio2/block")
    add_disk(tmp_path, "nvme0n1", "pci0000:00/nvme/nvme0", hidden=False)
    add_disk(tmp_path, "nvme1n1", "virtual/nvme-subsystem/nvme-subsys0")
    add_disk(tmp_path, "nvme1c0n1", "pci0000:00/nvme/nvme1", hidden=True)
    add_disk(tmp_path, "nvme1c1n1", "pci0000:01/nvme/nvme2", hidden=True)
    add_disk(tmp_path, "mmcblk0", "platform/mmc/block")
    stacked = ("loop0", "ram0", "zram0", "dm-0", "md127", "zd0", "bcache0", "drbd0")
    for name in (*stacked, "nbd0"):
        add_disk(tmp_path, name, "virtual/block")
    counted = {b"sda", b"vda", b"nvme0n1", b"nvme1n1", b"mmcblk0", b"nbd0"}
    assert host.whole_disks(tmp_path) == counted


def test_interfaces_with_hardware_count_and_what_is_built_on_them_does_not(tmp_path: Path) -> None:
    """Both slaves of a bond count, the bond, bridges, VLANs and containers' ends do not. Without
    sysfs they are unknown, which is not none."""
    assert host.counted_interfaces(tmp_path) is None
    add_interface(tmp_path, "lo")
    add_interface(tmp_path, "eno1", "device", "master")
    add_interface(tmp_path, "eno2", "device", "master")
    for name in ("bond0", "docker0", "veth12ab", "bond0.100", "wg0", "ifb0"):
        add_interface(tmp_path, name)
    assert host.counted_interfaces(tmp_path) == {b"eno1", b"eno2"}


def test_in_a_container_its_own_virtual_interface_counts(tmp_path: Path) -> None:
    """Without any hardware: all but the loopback, bridges, what hangs on one, and dummies."""
    add_interface(tmp_path, "lo")
    add_interface(tmp_path, "eth0")
    add_interface(tmp_path, "br-12ab", "bridge")
    add_interface(tmp_path, "veth99", "master")
    add_interface(tmp_path, "dummy0")
    assert host.counted_interfaces(tmp_path) == {b"eth0"}
