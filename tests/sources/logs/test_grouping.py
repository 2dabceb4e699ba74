"""Logs whose rows do not say which GPU they are about: how many there are is known, or asked."""

import json
import random
from collections.abc import Sequence
from pathlib import Path

import pytest

from gpuwatch.commands.cli import run
from gpuwatch.sources.logs.text import LogError, LogStats
from tests.sources.smi_writing import read, stamp

HEADER = "timestamp, utilization.gpu [%], memory.used [MiB], temperature.gpu, power.draw [W]"
START = 1_738_228_500.0


def rows(times: Sequence[float], gpus: int, *, alike: bool = False, seed: int = 1) -> list[str]:
    """Row ``i`` is of GPU ``i % gpus``; their memory and temperature differ, unless ``alike``."""
    chance = random.Random(seed)
    drift = [0.0] * gpus
    found = []
    for number, at in enumerate(times):
        gpu = number % gpus
        drift[gpu] += chance.uniform(-1, 1)
        memory = 20_000 + (0 if alike else 1000 * gpu) + round(drift[gpu])
        celsius = 50 + (0 if alike else 5 * gpu)
        found.append(f"{stamp(START + at)}, 50 %, {memory} MiB, {celsius}, {100 + 10 * gpu} W")
    return found


def moments(
    count: int, gpus: int, every: float, apart: float, hiccups: float = 0.0, seed: int = 1
) -> list[float]:
    """Times of the rows; ``hiccups`` is the share of rows that come a third of ``every`` late."""
    chance = random.Random(seed)
    found = []
    for moment in range(count):
        at = moment * every
        for _ in range(gpus):
            at += chance.uniform(0.5, 1.5) * apart + (
                every / 3 if chance.random() < hiccups else 0.0
            )
            found.append(at)
    return found


def gpus_in(lines: Sequence[str]) -> list[int]:
    return [len(snapshot.gpus) for snapshot in read("\n".join([HEADER, *lines]))]


@pytest.mark.parametrize("gpus", [2, 8])
@pytest.mark.parametrize(
    ("every", "apart", "hiccups"),
    [(1.0, 0.002, 0.0), (1.0, 0.04, 0.0), (5.0, 0.15, 0.0), (0.1, 0.003, 0.0), (1.0, 0.01, 0.01)],
)
@pytest.mark.parametrize("alike", [False, True])
def test_rows_of_a_moment_come_together(
    gpus: int, every: float, apart: float, hiccups: float, alike: bool
) -> None:
    """Milliseconds or tens of them apart, with hiccups, also of GPUs that do the same."""
    found = gpus_in(rows(moments(100, gpus, every, apart, hiccups), gpus, alike=alike))
    assert set(found) == {gpus}
    assert len(found) >= 95


def starting(
    gpus: int, apart_ms: Sequence[int], first: int | None, ramp: int = 1, noise: int = 0
) -> list[str]:
    """A log of GPUs that do the same: their job starts in moment ``first`` and fills the memory in
    ``ramp`` moments; rows of a moment come one of ``apart_ms`` after the other."""
    chance = random.Random(7)
    found = []
    for moment in range(640 // gpus):
        at = START + moment
        done = 0.0 if first is None else min(1.0, max(0.0, (moment - first + 1) / ramp))
        for _ in range(gpus):
            mib = 4 + round(30_506 * done) + (chance.randint(-noise, noise) if done else 0)
            found.append(f"{stamp(at)}, {95 if done else 0} %, {mib} MiB, 40, {60 + 240 * done} W")
            at += chance.choice(apart_ms) / 1000
    return found


@pytest.mark.parametrize("gpus", [2, 8])
@pytest.mark.parametrize("apart_ms", [[3], [0], [0, 1, 2, 3], [0, 3, 10, 30]], ids=str)
@pytest.mark.parametrize(
    ("first", "ramp", "noise"),
    [(None, 1, 0), (1, 1, 0), (30, 1, 0), (30, 1, 5), (30, 25, 2), (70, 1, 0)],
)
def test_a_job_that_starts_on_all_gpus_does_not_make_them_one(
    gpus: int, apart_ms: list[int], first: int | None, ramp: int, noise: int
) -> None:
    """Whenever it starts and however it fills the memory; also with stamps that repeat."""
    assert set(gpus_in(starting(gpus, apart_ms, first, ramp, noise))) == {gpus}


@pytest.mark.parametrize("every", [0.01, 0.05, 0.1, 0.2])
@pytest.mark.parametrize("first", [None, 30, 500])
def test_fast_looks_at_one_gpu_do_not_make_it_many(every: float, first: int | None) -> None:
    """With a loop that takes its own time for each look, before and while a job runs."""
    chance = random.Random(11)
    at, found = START, []
    for number in range(1200):
        at += every + abs(chance.gauss(0.004, 0.003))
        mib = 4 if first is None or number < first else 30_510
        found.append(f"{stamp(at)}, 50 %, {mib} MiB, 40, 100 W")
    assert set(gpus_in(found)) == {1}


@pytest.mark.parametrize("pauses", [[1.0], [0.0]], ids=["groups of any size", "no pauses"])
def test_looks_every_3_ms_are_not_believed(pauses: list[float]) -> None:
    """Readings that hold still and come faster than nvidia-smi can look are asked about."""
    chance = random.Random(5)
    times = [0.0]
    while len(times) < 600:
        pause = chance.choice(pauses) if chance.random() < 0.3 else 0.0
        times.append(times[-1] + 0.003 + pause)
    with pytest.raises(LogError, match="--gpus"):
        gpus_in([f"{stamp(START + at)}, 50 %, 20000 MiB, 50, 100 W" for at in times])


def test_several_rows_a_second_without_more_of_a_stamp_are_asked_about() -> None:
    """Five GPUs each second, or one five times a second: nothing tells."""
    lines = [
        f"{stamp(START + number // 5)[:-4]}, 50 %, 20000 MiB, 50, 100 W" for number in range(100)
    ]
    with pytest.raises(LogError, match="--gpus 5"):
        gpus_in(lines)


@pytest.mark.parametrize(
    "times",
    [
        moments(600, 1, 1.0, 0.002),
        moments(600, 1, 0.02, 0.001),
        moments(600, 1, 0.1, 0.001, hiccups=0.05),
        [number * 0.1 + 0.4 * (number // 10) for number in range(600)],
        [number // 5 for number in range(600)],
        # A buffer of 4 KiB that a script stamps when it comes.
        [
            number // chunk * 7.0 + number % chunk * 0.0005
            for chunk in (61,)
            for number in range(600)
        ],
    ],
    ids=["1 s", "20 ms", "hiccups", "late every tenth", "whole seconds", "a buffer"],
)
def test_rows_of_one_gpu_stay_one_gpu_s(times: list[float]) -> None:
    """At any rhythm, late now and then, in bursts of any size."""
    assert set(gpus_in(rows(times, 1))) == {1}


def test_names_of_several_cards_in_doubtful_rhythm_are_asked_about() -> None:
    """Bursts without a usual size, of GPUs that differ: --gpus says what nobody can see."""
    chance = random.Random(3)
    times = [0.0]
    while len(times) < 300:
        times.append(times[-1] + chance.choice([0.001, 0.3, 1.0]))
    lines = rows(times, 3)
    with pytest.raises(LogError, match="--gpus 3"):
        gpus_in(lines)
    assert {len(one.gpus) for one in read("\n".join([HEADER, *lines]), gpus=3)} == {3}


def test_repeated_headings_say_how_many_rows_are_a_moment() -> None:
    """A loop of single queries, without times; or cards in the same order again and again."""
    stats = LogStats()
    found = read("memory.used [MiB]\n5 MiB\n6 MiB\n7 MiB\n" * 6, stats)
    assert {len(snapshot.gpus) for snapshot in found} == {3}
    assert any("--gpus" in note for note in stats.notes)
    cards = "name, utilization.gpu [%]\n" + "A, 5 %\nA, 6 %\nB, 7 %\n" * 10
    assert {len(snapshot.gpus) for snapshot in read(cards)} == {3}


@pytest.mark.parametrize("order", [range(8), (3, 1, 0, 2, 7, 6, 4, 5)])
def test_rows_that_say_their_gpu_may_come_slowly_and_in_any_order(order: Sequence[int]) -> None:
    """Ten looks a second at eight GPUs, each 8 ms after the one before."""
    lines = ["timestamp, index, utilization.gpu [%]"]
    for moment in range(50):
        lines += [
            f"{stamp(START + 0.1 * moment + 0.008 * n)}, {gpu}, 5 %" for n, gpu in enumerate(order)
        ]
    found = read("\n".join(lines))
    assert [len(snapshot.gpus) for snapshot in found] == [8] * 50


def test_energy_is_that_of_the_rows_added_up(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Eight GPUs of 100 to 170 W for a minute: power times time, by hand."""
    log = tmp_path / "smi.csv"
    log.write_text("\n".join([HEADER, *rows(moments(61, 8, 1.0, 0.008), 8)]), encoding="utf-8")
    assert run(["report", str(log), "--json"]) == 0
    report = json.loads(capsys.readouterr().out)
    watts = sum(100 + 10 * gpu for gpu in range(8))
    joules = sum(gpu["energy_joules"] for gpu in report["gpus"])
    assert joules == pytest.approx(watts * 60, rel=0.02)
    assert run(["report", str(log), "--json", "--gpus", "1"]) == 0
    assert len(json.loads(capsys.readouterr().out)["gpus"]) == 1


@pytest.mark.parametrize("command", ["diagnose", "report", "replay", "compare"])
def test_every_reader_of_files_takes_what_a_person_knows_of_a_log(
    command: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """How many GPUs, which columns, which interval."""
    assert run([command, "--help"]) == 0
    said = capsys.readouterr().out
    assert all(option in said for option in ("--gpus", "--columns", "--interval"))
