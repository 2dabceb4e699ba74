"""The text of a report: true numbers, exact widths, nothing that a terminal would obey."""

import re
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.core.model import Snapshot
from gpuwatch.outputs.report.comparison import compare
from gpuwatch.outputs.report.model import (
    GpuUsage,
    JobUsage,
    Loading,
    Report,
    Stretch,
    Throttling,
    Time,
    TimeProfile,
    replaced,
)
from gpuwatch.outputs.report.text import TimeAxis, chart, list_text, report_text
from gpuwatch.outputs.terminal import cell_width
from tests.outputs.report.stories import UNIX, of_job, recorded, training, watched_jobs
from tests.support.recordings import comparison_text

WIDTHS = (40, 60, 80, 120, 200)
SGR = re.compile(r"\x1b\[\d*m")


@pytest.fixture(scope="module")
def starved() -> Report:
    """Five minutes, no workers, busy for 40% of the time."""
    return recorded(training(workers=0))


@pytest.fixture(scope="module")
def fed() -> Report:
    """Its next run: two minutes, four workers, busy for 90% of the time."""
    report = recorded(training(seconds=120, workers=4, busy_share=0.9))
    begin = UNIX + 3600.0
    job = replaced(of_job(report), started_at_unix_seconds=begin, ended_at_unix_seconds=begin + 120)
    time_ = replaced(report.time, begin_unix_seconds=begin + 1, end_unix_seconds=begin + 120)
    return replaced(report, jobs=(job,), time=time_)


def bare(
    *,
    gpus: tuple[GpuUsage, ...] = (),
    watched_seconds: float = 100.0,
    first: float = UNIX,
    last: float = UNIX + 100,
    bucket_seconds: float = 1.0,
    machine: str | None = None,
    **fields: Any,
) -> Report:
    """The report of a job of 100 s."""
    job = {"pid": 7, "command": "python train.py", "started_at_unix_seconds": UNIX}
    job |= {"ended_at_unix_seconds": UNIX + 100}
    time_ = Time(
        begin_unix_seconds=first,
        end_unix_seconds=last,
        covered_seconds=watched_seconds,
        bucket_seconds=bucket_seconds,
    )
    jobs = (JobUsage(**(job | fields)),)
    return Report(pid=7, time=time_, gpus=gpus, jobs=jobs, machine=machine)


def of(report: Report, **fields: Any) -> Report:
    """``report`` with other facts of its job."""
    return replaced(report, jobs=(replaced(of_job(report), **fields),))


def compare_text(before: Report, after: Report, width: int = 80, *, unicode: bool = True) -> str:
    return comparison_text(compare(before, after), width=width, unicode=unicode)


def card(index: int = 0, **fields: Any) -> GpuUsage:
    known = {"index": index, "uuid": f"GPU-{index}", "name": "NVIDIA H200"}
    known |= {"seen_seconds": 100.0, "watched_seconds": 100.0, "busy_seconds": 40.0}
    return GpuUsage(**(known | fields))


def line_with(text: str, word: str) -> str:
    (line,) = [line for line in text.splitlines() if word in line]
    return line


HEAD = """\
13 GPU-seconds idle, 11% of the time watched.
Compared with the last run (2023-11-14 22:13) at the end.

GPU 0 busy (filled: mean, dots: highest)
"""
PAGE = """
python train.py --epochs 3
2023-11-14 23:13:20 to 23:15:20 · took 2m00 · exit code 0
PID 4242 · ada · on box3 · torch · venv ml

GPU  BUSY  IDLE  BURST EVERY  JOB-MEM     MEM-PEAK     POWER  ENERGY  THROTTLED
  0   89%   13s         2.0s    31.0G  33.0/140.4G  362/700W  12.1Wh        21s
  GPU 0: slowed down by its power limit for 21s (18%)

Loading   4 loader workers, pinned memory on
  workers 98% of a core each, at the limit of a core 100% of the time, waiting
          for a core 4%
  main    30% of a core in the main thread, waiting for a core 1%
CPU       4.3 of 16 usable cores busy, 4.3 at most, 508 core-seconds
Memory    4.0G at most (PSS)
Storage   2.3G read, 119.0M written
"""


def test_a_page_of_eighty_columns(starved: Report, fed: Report) -> None:
    """The verdict, the charts, what it was, the tables: all but the charts and the comparison word
    for word. Of a run before that failed it is said, as its duration says little then."""
    text = report_text(fed, width=80, previous=starved)
    assert text.startswith(HEAD)
    assert PAGE in text
    killed = report_text(fed, previous=of(starved, exit_code=-9))
    assert "(2023-11-14 22:13, ended by SIGKILL) at the end." in " ".join(killed.split())


@pytest.mark.parametrize("width", WIDTHS)
@pytest.mark.parametrize("unicode", [True, False])
def test_no_line_is_wider_than_asked(
    starved: Report, fed: Report, width: int, unicode: bool
) -> None:
    """With and without a comparison, for one GPU and for eight; also of characters two cells
    wide."""
    command = "torchrun " + "--option value " * 20 + "訓練" * 200
    eight = recorded(training(seconds=20, gpus=8, command=command))
    for text in (
        report_text(fed, width=width, unicode=unicode, previous=starved),
        report_text(eight, width=width, unicode=unicode),
        compare_text(starved, fed, width, unicode=unicode),
        compare_text(fed, eight, width, unicode=unicode),
        list_text([(1, fed), (22, eight)], width, unicode=unicode),
    ):
        widths = [cell_width(line) for line in text.splitlines()]
        assert max(widths) <= width
        assert not any(line.endswith(" ") for line in text.splitlines())
        assert text.isascii() or unicode


def test_ascii_has_no_other_character(fed: Report) -> None:
    """Also where the command has some; what cannot be shown is a question mark."""
    odd = of(fed, command="python 訓練.py …")
    text = report_text(odd, unicode=False)
    assert text.isascii()
    assert "\npython ??.py ~\n" in text


def test_a_long_command_takes_three_lines_at_most() -> None:
    """And shows that it goes on."""
    text = report_text(bare(command="python train.py " + "--flag value " * 60), width=60)
    head = text.split("2023")[0].split("\n\n")[-1].splitlines()
    assert len(head) == 3
    assert head[-1].endswith("…")


def test_a_simulated_report_says_so_first() -> None:
    """Nobody may take it for a job that ran."""
    text = report_text(recorded(training(seconds=5, simulated=True)))
    assert text.startswith("SIMULATED")


EVERY_EPOCH = Loading(
    sentence="4 loader workers",
    loader_workers=4,
    loader_workers_peak=4,
    loader_workers_started=40,
    loader_worker_cpu_percent=50.0,
)
SOMEWHERE = {
    **{"machine": "box3", "ranks": 8, "world_size": 16, "launcher": "torchrun"},
    **{"slurm_job": "77", "pod": "train-0", "container": "3f2a"},
}
PLACE = "on box3 · 8 of 16 ranks · torchrun · Slurm job 77 · pod train-0 · container 3f2a"


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        # How it ended, and how much of it was seen.
        ({"exit_code": 0}, "exit code 0"),
        ({"exit_code": 3}, "watched. exit code 3"),
        ({"exit_code": -9}, "watched. ended by SIGKILL"),
        ({"exit_code": -250}, "watched. ended by signal 250"),
        ({"end_is_last_seen": True}, "ended unobserved"),
        ({"ended_at_unix_seconds": None, "last": UNIX + 65}, "after 1m05"),
        ({"started_at_unix_seconds": None}, "took 1m40"),
        ({"ended_at_unix_seconds": UNIX + 90_000}, "22:13:20 to 2023-11-15 23:13:20"),
        ({"watched_seconds": 25.0}, "Only 25% of its run was watched."),
        # Where it ran.
        (SOMEWHERE, f"PID 7 · {PLACE}"),
        ({}, "The job used no GPU while it was watched."),
        # Workers that come with every epoch cost time; the heading says what an unknown is of.
        ({"loading": EVERY_EPOCH}, "40 started, 4 at once"),
        ({"loading": Loading(sentence="loading unknown: it started only 7s ago")},
         "Loading unknown: it started only 7s ago"),
        ({"cpu_mean_cores": 1.5, "usable_cores": 4.0}, "1.5 of 4 usable cores busy"),
        ({"cpu_mean_cores": 3.9, "quota_cores": 4.0, "cpu_throttled_percent": 31.0},
         "quota of 4 cores throttled it 31% of the time"),
        ({"memory_proportional_peak_bytes": 2**30, "memory_resident_peak_bytes": 2**33},
         "Memory 1.0G at most (PSS)"),
        # Where only RSS is known it says what is wrong with it.
        ({"memory_resident_peak_bytes": 2**33}, "8.0G at most (sum of RSS"),
        ({"read_bytes": 0.0}, "Storage 0B read"),
        ({"gpus": (card(mig_instance=3),)}, " 0.3 H200 "),
    ],
)  # fmt: skip
def test_what_is_known_of_a_job_is_said(fields: dict[str, Any], says: str) -> None:
    """Each in words; what is not known has no line, and a measured zero has."""
    assert says in " ".join(report_text(bare(**fields), width=120).split())
    assert not {"Memory", "Storage"} & set(report_text(bare()).split())


def test_what_is_unknown_is_a_dash_with_its_reason() -> None:
    """Never a zero."""
    lost = card(busy_seconds=None, watched_seconds=None, busy_missing="the GPU was lost")
    text = report_text(bare(gpus=(lost,)))
    assert line_with(text, "H200").split() == ["0", "H200", "-"]
    assert "GPU 0: busy unknown: the GPU was lost" in text
    assert "GPU-seconds" not in text


@pytest.mark.parametrize(
    ("fields", "says"),
    [
        (
            {"throttled": (Throttling(reason="hw_thermal_slowdown", seconds=20.0),)},
            "slowed down by its temperature (hardware) for 20s (20%)",
        ),
        (
            {"throttled": (Throttling(reason="new_reason", seconds=5.0),)},
            "slowed down by new reason for 5s",
        ),
        (
            {"other_tenants_peak": 1, "other_tenant_seconds": 50.0, "other_users": ("bob",)},
            "shared with another process (bob) for 50s (50%)",
        ),
        (
            {"lost": (Stretch(begin_unix_seconds=UNIX + 60, end_unix_seconds=UNIX + 100),)},
            "lost, 22:14:20 to 22:15:00 (40s)",
        ),
        ({"energy_from": "power", "energy_joules": 5.0}, "energy from power readings"),
        ({"watched_seconds": 60.0}, "busy unknown for 40s (40%)"),
        ({"seen_seconds": 50.0, "watched_seconds": 50.0}, "the job used it for 50s of 1m40"),
    ],
)
def test_what_a_number_needs_beside_it_is_noted(fields: dict[str, Any], says: str) -> None:
    """Under the table, with the GPU's number."""
    text = report_text(bare(gpus=(card(**fields),)), width=120)
    assert f"GPU 0: {says}" in text


def test_notes_alike_for_several_gpus_are_one_line() -> None:
    """Which GPUs, and from how long to how long."""
    gpus = tuple(
        card(n, throttled=(Throttling(reason="sw_power_cap", seconds=10.0 + n),) if n != 3 else ())
        for n in range(6)
    )
    text = report_text(bare(gpus=gpus))
    assert "GPUs 0-2, 4, 5: slowed down by its power limit for 10s to 15s" in text


def test_several_gpus_have_a_row_for_all() -> None:
    """Weighted by the time each was watched."""
    gpus = (card(0), card(1, busy_seconds=100.0), card(2, watched_seconds=None, busy_seconds=None))
    text = report_text(bare(gpus=gpus))
    assert line_with(text, "all").split() == ["all", "3", "GPUs", "70%", "1m00"]
    assert "60 GPU-seconds idle, 30% of the time watched." in text


def test_memory_is_compared_by_what_both_runs_have() -> None:
    """Proportional memory of one beside resident memory of the other would say nothing."""
    rough = bare(memory_resident_peak_bytes=2**33)
    both = bare(memory_proportional_peak_bytes=2**30, memory_resident_peak_bytes=2**32)
    text = compare_text(rough, both)
    assert re.search(r"memory \(RSS\) +8.0G +4.0G +-50%", text)
    assert re.search(r"memory \(PSS\) +1.0G +1.0G", compare_text(both, both))


def flat(*means: float | None) -> TimeProfile:
    return TimeProfile(minimum=means, mean=means, maximum=means)


def drawn(
    course: TimeProfile,
    seconds: float,
    width: int,
    rows: int,
    labels: bool = False,
    start: float = 0.0,
) -> list[str]:
    axis = TimeAxis(start, seconds)
    return chart(course, axis, width=width, rows=rows, time_labels=labels)


@pytest.mark.parametrize("width", [40, 61, 120])
@pytest.mark.parametrize(("percent", "labels"), [(0.0, True), (50.0, False), (100.0, True)])
def test_a_chart_fills_just_what_was_measured(width: int, percent: float, labels: bool) -> None:
    """Every column to its height, to the eighth of a row."""
    lines = drawn(flat(*[percent] * 90), 100.0, width, 6, labels)
    assert len(lines) == 7 + labels
    drawn_in = "".join(line[6:] for line in lines[:6]).replace(" ", "")
    full = {0.0: "▁", 50.0: "███", 100.0: "██████"}[percent]
    assert sorted(drawn_in) == sorted(full * (width - 6))


def test_a_gap_is_blank_and_a_zero_is_not() -> None:
    """What was not measured must not look like idle."""
    course = flat(*[0.0] * 30, *[None] * 30, *[80.0] * 30)
    *above, ground = [line[6:].ljust(60) for line in drawn(course, 90, 66, 4)[:4]]
    assert ground == "▁" * 20 + " " * 20 + "█" * 20
    assert all(line[:40].strip() == "" for line in above)
    assert above[1][40:] == "█" * 20


def test_peaks_stand_above_the_mean() -> None:
    """A GPU that flips between 0 and 99% does not look like a steady 40%."""
    course = TimeProfile(minimum=(0.0,) * 60, mean=(40.0,) * 60, maximum=(99.0,) * 60)
    lines = drawn(course, 60, 66, 6)
    assert lines[0] == " 100%┤" + "·" * 60
    assert lines[1][6:].strip() == ""
    assert lines[3:5] == ["     │" + "▃" * 60, "     │" + "█" * 60]


def test_all_charts_share_one_time_axis() -> None:
    """What happens at one moment stands in one column."""
    half = flat(*[100.0] * 50, *[0.0] * 50)
    report = bare(
        first=UNIX,
        bucket_seconds=1.0,
        gpus=(card(0, profiles={"busy_percent": half}), card(1, profiles={"busy_percent": half})),
        profiles={
            "loader_worker_cpu_percent": half,
            "main_thread_cpu_percent": half,
        },
    )
    text = report_text(report, unicode=False)
    tops = [line for line in text.splitlines() if line.startswith(" 100%|")]
    assert [line.count("#") for line in tops] == [37, 37, 37]
    strips = [line for line in text.splitlines() if line.startswith("GPU ") and "#" in line]
    assert [line[6:] for line in strips] == ["#" * 37 + "_" * 37] * 2


def test_charts_begin_at_the_job_s_start_or_when_it_was_first_seen() -> None:
    """Attached late, the axis says so."""

    def axis(offset: float) -> str:
        report = bare(
            first=UNIX + offset,
            bucket_seconds=10.0,
            gpus=(card(profiles={"busy_percent": flat(*[50.0] * 100)}),),
        )
        lines = report_text(report).splitlines()
        return lines[next(at for at, line in enumerate(lines) if "┬" in line) + 1]

    assert axis(0.0).split()[:2] == ["0s", "5m"]
    assert axis(3600.0).split()[:2] == ["1h00"[:2], "1h05"]


@pytest.mark.parametrize("seconds", [0.5, 3.0, 59.0, 600.0, 86_000.0, 1e7])
def test_time_labels_fit_any_duration(seconds: float) -> None:
    """At least two, none cut off, none over another."""
    line = drawn(flat(*[50.0] * 100), seconds, 80, 3, labels=True)[-1]
    labels = line.split()
    assert all(re.fullmatch(r"(\d+[smhd]\d*h?)+", label) for label in labels)
    assert len(labels) >= (2 if seconds > 1 else 1)
    assert len(line) <= 80
    # Where no round moment lies in it, there is none.
    assert len(drawn(flat(50.0), seconds, 80, 3, labels=True, start=1e6 + 0.25)[-1]) <= 80


def test_a_comparison_has_both_values_and_the_change(starved: Report, fed: Report) -> None:
    """In the words of the report."""
    text = compare_text(starved, fed, 80)
    assert line_with(text, "duration").split() == ["duration", "5m00", "2m00", "-60%"]
    assert line_with(text, "GPU busy ").split()[2:] == ["39%", "89%", "+50", "points", "better"]
    assert line_with(text, "loader workers").split()[2:] == ["0", "4"]
    assert line_with(text, "pinned memory").split()[2:] == ["off", "on"]
    assert line_with(text, "job GPU memory").split()[-1] == "same"


def test_a_comparison_of_other_commands_names_both(starved: Report) -> None:
    """Else nobody knows what was compared."""
    other = of(starved, command="python other.py", run_digest="f" * 16)
    text = compare_text(starved, other, 80)
    assert "before    python train.py --epochs 3" in text
    assert "after     python other.py" in text


def test_a_list_has_a_line_a_report(starved: Report, fed: Report) -> None:
    """Number, when, how long, how it ended, busy, idle, command without the program's path."""
    killed = of(
        starved, exit_code=-9, command="/opt/env/bin/python train.py", started_at_unix_seconds=0.0
    )
    titles, first, second = list_text([(1, fed), (2, killed)], 100).splitlines()
    assert titles.split()[:4] == ["NO", "STARTED", "TOOK", "EXIT"]
    assert (
        " ".join(first.split()) == "1 2023-11-14 23:13 2m00 0 1 89% 13 python train.py --epochs 3"
    )
    assert second.split()[:2] == ["2", "1970-01-01"]
    assert "SIGKILL" in second
    assert second.endswith("python train.py")


@settings(max_examples=25)
@given(watched_jobs(), st.integers(40, 160))
def test_any_report_fits(snapshots: list[Snapshot], width: int) -> None:
    """Whatever was or was not read."""
    report = recorded(snapshots)
    for line in report_text(report, width=width, previous=report).splitlines():
        assert cell_width(line) <= width
        assert line.isprintable()


HUGE = st.sampled_from([0.0, 1e-9, 1.0, 1e9, 1e18])


@settings(max_examples=25)
@given(HUGE, HUGE, HUGE, st.integers(0, 10**18))
def test_absurd_numbers_of_a_file_are_shown_all_the_same(
    seconds: float, step: float, other: float, count: int
) -> None:
    """A file that was tampered with may be wrong, but breaks nothing."""
    gpu = card(
        count,
        watched_seconds=seconds,
        busy_seconds=0.0,
        seen_seconds=other,
        energy_joules=other,
        power_mean_watts=other,
        memory_peak_bytes=count,
        throttled=(Throttling(reason="x", seconds=seconds),),
        profiles={"busy_percent": flat(seconds, None, other)},
    )
    report = bare(
        gpus=(gpu, gpu),
        bucket_seconds=step,
        watched_seconds=seconds,
        ranks=count,
        exit_code=-count,
        cpu_mean_cores=other,
        read_bytes=other,
        usable_cores=step,
    )
    for width in (40, 80):
        for line in report_text(report, width=width, previous=report).splitlines():
            assert cell_width(line) <= width
