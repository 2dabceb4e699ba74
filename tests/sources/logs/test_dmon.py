"""``nvidia-smi dmon`` and ``pmon`` logs, as the tool prints them."""

import pytest

from gpuwatch.sources.logs.text import LogStats
from tests.sources.smi_writing import read

MIB = 1024 * 1024

DMON = """\
# gpu    pwr  gtemp  mtemp     sm    mem    enc    dec    jpg    ofa   mclk   pclk
# Idx      W      C      C      %      %      %      %      %      %    MHz    MHz
    0    250     45      -     92     31      0      0      0      0   2619   1980
    1     71     30     38      0      0      0      0      0      0   2619    345
    0    251     46      -      3      1      0      0      0      0   2619   1980
    1     71     30     38      0      0      0      0      0      0   2619    345
"""
DMON_ALL = """\
#Date       Time        gpu   pwr gtemp mtemp    sm   mem   enc   dec  mclk  pclk pviol tviol    fb\
  bar1 sbecc dbecc   pci rxpci txpci
#YYYYMMDD   HH:MM:SS    Idx     W     C     C     %     %     %     %   MHz   MHz     %  bool    MB\
    MB  errs  errs  errs  MB/s  MB/s
 20210102   19:12:31      0    37    19     -     0     0     0     0  4006   582     0     0   100\
     2     1     0     0     0     1
 20210102   19:12:33      0    39    19     -    98     7     0     0  4006  1582    25     1   100\
     2     1     0     0     5     0
 20210102   19:12:35      0    39    19     -    98     7     0     0  4006  1582    25     0   100\
     2     2     1     0     5     0
"""
PMON = """\
# gpu         pid   type     sm    mem    enc    dec    jpg    ofa     fb   ccpm    command
# Idx           #    C/G      %      %      %      %      %      %     MB     MB    name
    0       1750     C     60     20      -      -      -      -    386      0    python
    0       2390   C+G     30      1      -      -      -      -    137      0    kwin wayland
    1          -     -      -      -      -      -      -      -      -      -    -
    0       1750     C      -      -      -      -      -      -    386      0    python
    0       2390   C+G      5      1      -      -      -      -    137      0    kwin wayland
    1       3000     G      0      0      -      -      -      -     16      0    Xorg
"""


def test_dmon_gives_a_moment_for_each_round_of_gpus() -> None:
    """Its columns go to the readings they are, and a dash is none."""
    stats = LogStats()
    first, second = read(DMON, stats)
    assert stats.kind == "dmon"
    assert [gpu.identity.index for gpu in first.gpus] == [0, 1]
    one, two = (gpu.reading for gpu in first.gpus)
    assert (one.busy_percent, one.memory_controller_percent) == (92.0, 31.0)
    assert (one.power_watts, one.temperature_celsius) == (250.0, 45.0)
    assert (one.sm_clock_mhz, one.memory_clock_mhz) == (1980, 2619)
    assert (one.memory_temperature_celsius, two.memory_temperature_celsius) == (None, 38.0)
    assert second.gpus[0].reading.busy_percent == 3.0
    assert second.monotonic_seconds - first.monotonic_seconds == pytest.approx(1.0)


def test_dmon_with_date_time_and_everything() -> None:
    """-o DT gives the time; violations, memory, ECC and PCIe are read."""
    first, second, third = read(DMON_ALL)
    assert second.taken_at_unix_seconds - first.taken_at_unix_seconds == pytest.approx(2.0)
    reading = second.gpus[0].reading
    assert reading.memory_used_bytes == 100 * MIB
    assert reading.pcie_rx_bytes_per_second == 5 * MIB
    assert reading.throttle_durations == (
        ("sw_power_cap", pytest.approx(0.5)),
        ("sw_thermal_slowdown", pytest.approx(2.0)),
    )
    assert third.gpus[0].reading.ecc_uncorrected_count == 1


def test_dmon_with_the_time_alone_passes_midnight() -> None:
    """-o T: seconds of the day go on into the next."""
    text = "#Time        gpu    sm\n#HH:MM:SS    Idx     %\n" + "".join(
        f" {clock}      0    50\n" for clock in ("23:59:58", "23:59:59", "00:00:00", "00:00:01")
    )
    axis = [snapshot.monotonic_seconds for snapshot in read(text)]
    assert [at - axis[0] for at in axis] == pytest.approx([0.0, 1.0, 2.0, 3.0])


def test_dmon_repeats_its_header() -> None:
    """Every few rows; it is no reading."""
    head, rows = DMON.splitlines()[:2], DMON.splitlines()[2:]
    stats = LogStats()
    found = read("\n".join([*head, *rows, *head, *rows, *head]), stats)
    assert len(found) == 4
    assert stats.other_lines == 0


def test_dmon_as_csv_is_read() -> None:
    """--format csv parts the columns by commas."""
    lines = [", ".join(line.lstrip("# ").split()) for line in DMON.splitlines()]
    text = "\n".join(["# " + lines[0], "# " + lines[1], *lines[2:]])
    assert [gpu.reading.busy_percent for gpu in read(text)[0].gpus] == [92.0, 0.0]


def test_dmon_of_older_drivers_has_one_temperature() -> None:
    """``temp`` is the GPU's."""
    text = "# gpu   pwr  temp    sm\n# Idx     W     C     %\n    0     -    50    91\n"
    reading = read(text)[0].gpus[0].reading
    assert (reading.power_watts, reading.temperature_celsius) == (None, 50.0)


def test_pmon_gives_the_processes_of_each_gpu() -> None:
    """With their memory, kind and name; a GPU without a process is there too."""
    stats = LogStats()
    first, second = read(PMON, stats)
    assert stats.kind == "pmon"
    python, kwin = first.processes
    assert (python.pid, python.gpu_busy_percent, python.gpu_kind) == (1750, 60.0, "compute")
    assert python.gpu_memory_bytes == 386 * MIB
    assert (kwin.name, kwin.gpu_kind) == ("kwin wayland", "compute+graphics")
    assert python.gpu_uuid == first.gpus[0].uuid
    assert [gpu.identity.index for gpu in first.gpus] == [0, 1]
    assert [process.gpu_busy_percent for process in second.processes] == [None, 5.0, 0.0]


def test_pmon_s_gpus_are_as_busy_as_their_processes() -> None:
    """The sum is at most all; NVML lists processes that did something, so a dash is a zero."""
    first, second = read(PMON)
    assert [gpu.reading.busy_percent for gpu in first.gpus] == [90.0, 0.0]
    assert [gpu.reading.busy_percent for gpu in second.gpus] == [5.0, 0.0]


def test_a_process_that_comes_does_not_split_a_moment_of_pmon() -> None:
    """With times, a new process is of the moment it is written in."""
    text = "#Date Time gpu pid type sm mem enc dec command\n" + "".join(
        f" 20250131 12:00:0{second} 0 {pid} C 10 1 - - python\n"
        for second, pid in ((0, 10), (0, 11), (1, 10), (1, 12), (1, 11), (2, 12))
    )
    assert [len(snapshot.processes) for snapshot in read(text)] == [2, 3, 1]


def test_hostile_process_names_are_made_harmless() -> None:
    """pmon prints what a process calls itself."""
    text = PMON.replace("python", "\x1b[2Jevil")
    for snapshot in read(text):
        assert all((process.name or "").isprintable() for process in snapshot.processes)


def test_dashes_of_pmon_before_any_number_are_not_read() -> None:
    """A driver that never says (MIG) writes the same as one whose processes rest."""
    head = "# gpu pid type sm mem enc dec command\n"
    lines = ["0 10 C - - - - python", "0 10 C 98 5 - - python", "0 10 C - - - - python"]
    found = read(head + "\n".join(lines))
    assert [snapshot.gpus[0].reading.busy_percent for snapshot in found] == [None, 98.0, 0.0]
