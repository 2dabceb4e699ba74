"""The page of ``gpuwatch status``."""

from typing import Any

import pytest
from hypothesis import given, settings

from gpuwatch.core.model import Host, Problem, Process, Snapshot
from gpuwatch.outputs.status import status_page
from gpuwatch.outputs.terminal import cell_width
from tests.support.snapshots import gpu, snapshot, snapshots

GIB = 2**30


POWER = {"power_watts": 212.0, "power_limit_watts": 700.0, "temperature_celsius": 41.0}
CARD = gpu(busy_percent=47.0, memory_used_bytes=31 * GIB, **POWER)
UNIFIED = gpu(memory_used_bytes=3 * GIB, memory_used_is_process_sum=True)
NO_DRIVER = Problem(source="nvml", message="No driver is loaded.", severity="error")
LONG_NAME = Host(name="a-host-with-a-very-long-name.example.org")


@pytest.mark.parametrize(
    ("what", "said", "not_said"),
    [
        ({"gpus": (CARD,)}, "0  NVIDIA H200   47%  31.0/140.4G  212/700W   41C", "lost"),
        ({"gpus": (gpu(busy_percent=0.0),)}, "  0%", "lost"),
        ({"gpus": (gpu(),)}, " -  -/140.4G", "0%"),
        ({"gpus": (gpu(lost=True),)}, "lost", "%"),
        # An idle GPU lowers its clocks: nothing holds it back.
        ({"gpus": (gpu(throttle_reasons=("gpu_idle", "hw_slowdown")),)}, "hw_slowdown", "idle"),
        ({"gpus": (UNIFIED,)}, "3.0G by processes", "140.4G "),
        ({"problems": (NO_DRIVER,)}, "\nNo driver is loaded.", "error"),
        ({}, "No GPU to show.", "GPU-MEM"),
        # Of the host only what was read.
        ({"host": Host(name="x", cpu_percent=27.0, core_count=16)}, "CPU 27% of 16 cores", "disk"),
        ({"host": Host(name="x", memory_used_bytes=GIB)}, "memory 1.0G", "CPU"),
        ({"host": Host(name="x", core_count=16, usable_cores=2.5)}, "2.5 usable from here", "load"),
        ({"host": LONG_NAME, "simulated": True}, "SIMULATED", "CPU"),
        ({"host": LONG_NAME}, "2023-11-14", "SIMULATED"),
        # A command of ten thousand characters takes one line.
        ({"gpus": (gpu(),), "processes": (Process(pid=1, command="x" * 9999),)}, "xxx…", "xxx\n"),
    ],
)
def test_what_is_known_is_said_and_nothing_else(
    what: dict[str, Any], said: str, not_said: str
) -> None:
    """Values with their limits; zero is not unknown; a sum is not passed off as a reading."""
    for width in (40, 120) if what.get("simulated") else (120,):
        page = status_page(snapshot(**what), width=width)
        assert said in page
        assert not_said not in page


def test_a_row_says_how_old_its_numbers_are() -> None:
    """By the oldest of its main numbers; where all are new there is no such column."""
    late = (("power_watts", 34.0), ("busy_percent", 9.0), ("fan_percent", 99.0))
    page = status_page(snapshot(gpus=(gpu("a", 0, late_readings=late), gpu("b", 1))))
    first, second = [line.split() for line in page.splitlines() if "H200" in line]
    assert first[4:6] == ["34s", "ago"]
    assert second[4] == "-"
    assert "READ" not in status_page(snapshot(gpus=(gpu("b", 1),)))


def test_no_line_ends_between_a_label_and_its_number() -> None:
    """The narrowest page breaks between facts only."""
    host = Host(
        name="x",
        cpu_percent=35.0,
        core_count=32,
        cpu_iowait_percent=0.0,
        load_average_1_minute=12.8,
        load_average_5_minutes=14.2,
        load_average_15_minutes=13.5,
        disk_read_bytes_per_second=1e8,
        disk_write_bytes_per_second=1e8,
        network_receive_bytes_per_second=1e8,
    )
    lines = status_page(snapshot(host=host), width=40).splitlines()
    assert "  load 12.8 14.2 13.5" in lines
    assert "\N{NO-BREAK SPACE}" not in "".join(lines)


def processes(count: int) -> tuple[Process, ...]:
    return tuple(
        Process(
            pid=100 + number, command=f"job-{number}", gpu_uuid="GPU-a", gpu_memory_bytes=number
        )
        for number in range(count)
    )


def test_processes_come_by_gpu_and_memory() -> None:
    """The largest on a GPU comes first, those without a GPU last."""
    taken = snapshot(gpus=(gpu(),), processes=(Process(pid=7, command="alone"), *processes(2)))
    lines = [line.split()[-1] for line in status_page(taken).splitlines()[-3:]]
    assert lines == ["job-1", "job-0", "alone"]


def test_process_list_is_cut_with_a_count() -> None:
    """More processes than a page holds are counted, and shown when all are asked for."""
    taken = snapshot(gpus=(gpu(),), processes=processes(25))
    assert "and 5 more (--all shows them)" in status_page(taken)
    everything = status_page(taken, processes_shown=None)
    assert "more" not in everything
    assert everything.count("job-") == 25


def test_colour_only_when_asked() -> None:
    """Escape codes are there with colour and nowhere without, and change no letter."""
    problem = Problem(source="nvml", message="Broken.", severity="error")
    taken = snapshot(gpus=(gpu(lost=True),), problems=(problem,))
    plain, painted = status_page(taken), status_page(taken, colour=True)
    assert "\x1b" not in plain
    for code in ("\x1b[1m", "\x1b[31m", "\x1b[0m"):
        assert code in painted
        painted = painted.replace(code, "")
    assert painted == plain


@given(snapshots().filter(lambda taken: 0 <= taken.taken_at_unix_seconds < 1e11))
@settings(max_examples=15)
def test_no_line_is_wider_than_the_page(taken: Snapshot) -> None:
    """Any snapshot, with any text in it, keeps to the width."""
    for width in (40, 60, 80, 200):
        page = status_page(taken, width=width)
        assert max(cell_width(line) for line in page.splitlines()) <= width
