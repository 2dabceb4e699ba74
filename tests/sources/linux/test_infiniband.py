"""InfiniBand and RoCE ports, from a folder like the kernel's."""

from pathlib import Path

from gpuwatch.core.model import RdmaPort
from gpuwatch.sources.linux.infiniband import PORTS_MOST, read_ports


def port(root: Path, device: str = "mlx5_0", number: int = 1, **files: str) -> None:
    """Files as the kernel writes them; in counters those that are not of the port itself."""
    folder = root / "class" / "infiniband" / device / "ports" / str(number)
    (folder / "counters").mkdir(parents=True)
    for name, text in files.items():
        own = name in ("state", "rate", "link_layer")
        (folder / name if own else folder / "counters" / name).write_text(f"{text}\n")


def test_a_port_has_its_state_speed_and_errors(tmp_path: Path) -> None:
    """A counter that the port does not have is unknown, not zero."""
    port(
        tmp_path,
        state="4: ACTIVE",
        rate="400 Gb/sec (4X NDR)",
        link_layer="InfiniBand",
        link_downed="1",
        symbol_error="0",
        port_rcv_errors="12",
        link_error_recovery="N/A (no PMA)",
    )
    assert read_ports(tmp_path) == (
        RdmaPort(
            device="mlx5_0",
            port=1,
            link_layer="InfiniBand",
            state="active",
            speed_gigabits_per_second=400.0,
            link_downed_count=1,
            link_recovery_count=None,
            receive_error_count=12,
            symbol_error_count=0,
        ),
    )


def test_ports_are_in_order_and_not_too_many(tmp_path: Path) -> None:
    """As people count them; what cannot be read is unknown, what is no text is made safe."""
    for number in range(PORTS_MOST + 5):
        port(tmp_path, f"mlx5_{number}", state="1: DOWN", rate="2.5 Gb/sec (1X SDR)")
    port(tmp_path, "a\x1b[31m")
    ports = read_ports(tmp_path) or ()
    assert len(ports) == PORTS_MOST
    assert ports[0].state is None
    assert "\x1b" not in ports[0].device
    named = [one.device for one in ports if one.device.startswith("mlx5")]
    assert named == [f"mlx5_{number}" for number in range(len(named))]
    assert ports[-1].speed_gigabits_per_second == 2.5


def test_a_machine_without_adapters_has_none(tmp_path: Path) -> None:
    """Which is not the same as ports without errors."""
    assert read_ports(tmp_path) is None
    (tmp_path / "class" / "infiniband").mkdir(parents=True)
    assert read_ports(tmp_path) is None
