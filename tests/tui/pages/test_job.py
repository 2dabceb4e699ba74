"""The screen of one job as a drawing: sizes, machines, what it says."""

import dataclasses
import re
from itertools import product
from typing import Any

import pytest

from gpuwatch.core.model import BusySample, Job, JobRank, Problem, Process
from gpuwatch.core.store import Store
from gpuwatch.diagnosis.finding import Evidence
from gpuwatch.diagnosis.rules.shared.ranks import CHARTS
from gpuwatch.recording.hosts.together import Machine, together
from gpuwatch.tui.charts.strips import UNICODE, mean_shown
from gpuwatch.tui.charts.timeline import FindingMark, Timeline
from gpuwatch.tui.pages import job
from gpuwatch.tui.panels import job_charts, processes
from gpuwatch.tui.panels.job_charts import Together
from gpuwatch.tui.runs import follow_job
from gpuwatch.tui.terminal.frame import plain
from gpuwatch.tui.view import View, row_key
from tests.support.snapshots import gpu, snapshot
from tests.tui.diagnoses import diagnosis, nothing, starved
from tests.tui.scenes import (
    Printed,
    drawn,
    fresh,
    job_drawn,
    job_view_of,
    machine,
    member,
    one_job,
    scene,
    view_of,
)


def lines_of(one: Job, size: tuple[int, int] = (120, 40), **fields: Any) -> list[str]:
    return job_drawn(job_view_of(machine(one, **fields)), *size)


def text_of(one: Job, size: tuple[int, int] = (120, 40), **fields: Any) -> str:
    return "\n".join(lines_of(one, size, **fields))


# -- sizes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("pane", ["hidden", "small", "large"])
@pytest.mark.parametrize("report", [False, True])
def test_the_rows_are_shared_out_exactly(pane: str, report: bool) -> None:
    """The panels never take more rows than there are, and the charts that show who waits for whom
    are there as soon as there is room for them."""
    for height, gpus in product(range(6, 70, 9), (0, 1, 2, 8)):
        view = job_view_of(scene("starved", gpus, seconds=3) if gpus else machine(one_job()))
        view.job.output, view.job.pane = Printed([]), pane
        view.job.write_report = (lambda _: []) if report else None
        page = job.draw(view, 100, height).plan
        assert sum(page.rows.values()) + page.room == height
        assert page.room >= 0
        if height >= 12 and pane == "hidden" and not report:
            kinds = {trace.kind for trace, _ in job_charts.shown(page)}
            assert kinds >= {"gpu", "main"} | ({"worker"} if gpus else set())
            assert page.room >= 3


# -- what it says ---------------------------------------------------------------------------


RANKS = tuple(JobRank(pid=pid, rank=pid, loader_workers=0) for pid in range(4))
ALONE = (member(role="rank"),)
WORKER = member(4250, role="loader_worker", parent_pid=4242, role_guessed=True)


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        # A person in the container knows the process by another number.
        ({"inner_pid": 17}, "PID 4242 (17 inside)"),
        ({"usable_cores": 16.0}, "all 16 cores usable"),
        ({"usable_cores": 8.0, "quota_cores": 8.0}, "8 of 16 cores usable (quota 8.0)"),
        ({"usable_cores": 4.0, "affinity_cores": 4}, "4 of 16 cores usable (affinity)"),
        ({"usable_cores": 6.0, "slurm_cores": 6}, "6 of 16 cores usable (Slurm)"),
        ({"usable_cores": 8.0, "ranks": RANKS}, "8 of 16 cores usable, 2 per rank"),
        ({"ranks": RANKS, "world_size": 16}, "4 of 16 ranks here"),
        ({"cpu_throttled_percent": 34.0}, "CPU throttled 34%"),
        # What cannot be drawn is said in its place.
        ({"gpu_uuids": ()}, "no process of this job uses a GPU"),
        ({"members": (*ALONE, WORKER)}, "loader worker?"),
        ({}, "python train.py"),
        ({}, "ada  for 1h02"),
        ({"launcher": "torchrun", "environment": "conda ml"}, "conda ml"),
        ({"container": "3f2a", "slurm_job": "77"}, "slurm 77  container 3f2a"),
        ({"working_directory": "/home/ada/resnet"}, "in /home/ada/resnet"),
        ({}, "1 loader worker, pinned memory on"),
    ],
)
def test_what_is_known_of_a_job_is_said(fields: dict[str, Any], said: str) -> None:
    """Whose it is and how it loads its data, what limits its cores and how many each rank has, what
    holds it back, what is guessed; what does not hold it back is not mentioned."""
    host = dataclasses.replace(snapshot().host, core_count=16)
    text = text_of(one_job(**fields), host=host, taken_at_unix_seconds=4700.0)
    assert said in text
    assert ("throttled" in text) == ("throttled" in said)
    assert ("GPU-MEM" in text) == ("gpu_uuids" not in fields)


def test_a_job_that_is_not_there_says_why() -> None:
    """While the job asked for is unknown the screen has what the reader of jobs says of it."""
    problem = Problem(source="jobs", message="Process 77 is a kernel thread.")
    view = view_of(machine(problems=(problem,)))
    view.job.look_at((77, None))
    assert "Process 77 is a kernel thread." in "\n".join(job_drawn(view, 80, 24))


# -- the lines ------------------------------------------------------------------------------


def history_of(*columns: tuple[float, float]) -> View:
    """A job whose main thread and GPU were at (main, gpu) percent, second by second."""
    history = Store()
    last = None
    for number, (main, busy) in enumerate(columns):
        at = 100.0 + number
        fine = (BusySample(1_000_000.0 + at, main),)
        taken = machine(one_job(main_thread_samples=fine), at=at)
        one = dataclasses.replace(
            taken.gpus[0], reading=dataclasses.replace(taken.gpus[0].reading, busy_percent=busy)
        )
        last = dataclasses.replace(taken, gpus=(one,), taken_at_unix_seconds=1_000_000.0 + at)
        history.push(last)
    view = job_view_of(last, history=history, timeline=Timeline(51.0))
    view.history = history
    return view


def chart(lines: list[str], label: str) -> str:
    """The lowest row of a chart, whose label stands beside the highest."""
    at = next(n for n, line in enumerate(lines) if line.strip("\u2502 ").startswith(label))
    while re.match(r"[ \d]*│", lines[at + 1]):
        at += 1
    return lines[at].partition("│")[2]


def test_the_charts_are_on_one_time_axis() -> None:
    """A GPU that is busy exactly when the main thread is not: column for column."""
    view = history_of(*[(100.0, 0.0), (0.0, 100.0)] * 12)
    lines = job_drawn(view, 80, 22)
    main, busy = chart(lines, "main thread"), chart(lines, "GPU 0 busy")
    pairs = {(one, other) for one, other in zip(main, busy, strict=True) if one != " "}
    high, low = "█", "▁"
    assert pairs == {(high, low), (low, high)}
    assert len([one for one in main if one == high]) == 12


def test_several_gpus_are_drawn_as_their_mean() -> None:
    """The minima, means and maxima of several series are averaged; a gap in one is left out."""

    class Given:
        def __init__(self, *columns: tuple[float, float, float] | None) -> None:
            self._columns = columns

        def columns(self, *_: object) -> tuple[tuple[float, float, float] | None, ...]:
            return self._columns

    one = Given((0.0, 50.0, 100.0), None, None)
    other = Given((100.0, 100.0, 100.0), (10.0, 10.0, 10.0), None)
    together = Together((), lambda: [one, None, other])  # type: ignore[list-item]
    assert together.columns(3.0, 1.0, 3) == [(50.0, 75.0, 100.0), (10.0, 10.0, 10.0), None]
    assert Together((), lambda: [None]).columns(3.0, 1.0, 2) == [None, None]


# -- the tree -------------------------------------------------------------------------------


def rows_of(lines: list[str]) -> list[str]:
    start = next(n for n, line in enumerate(lines) if line.strip("\u2502 ").startswith("ROLE"))
    return [line for line in lines[start + 1 : -1] if line.strip("\u2502\u2500\u2570\u256f ")]


def test_a_command_like_the_parents_is_left_out() -> None:
    """A worker has its parent's command line, which says nothing; another is shown."""
    members = (
        member(role="rank", command="python train.py"),
        member(4250, role="loader_worker", command="python train.py", parent_pid=4242),
        member(4251, role="helper", command="python -c tracker", parent_pid=4242),
    )
    rows = rows_of(lines_of(one_job(members=members), (200, 50)))
    assert [row.count("python") for row in rows] == [1, 0, 1]
    assert "python -c tracker" in rows[2]


def test_an_orphan_and_what_waits_stand_out() -> None:
    """A worker whose training process is gone, and a tenth of the time in the run queue or waiting
    for the disk, are drawn as warnings."""
    orphan = member(4250, role="loader_worker", orphaned=True)
    waits = member(role="rank", run_queue_wait_percent=31.0, disk_wait_percent=42.0, state="D")
    view = job_view_of(machine(one_job(members=(orphan, waits), ranks=())))
    lines = job.draw(view, 200, 50).lines
    said = [text for line in lines for text, style in line if style == "warn"]
    warned = {part.strip() for text in said for part in text.split("  ")}
    assert {"orphaned loader worker", "31%", "42%", "D"} <= warned
    assert "orphan worker" in "\n".join(job_drawn(fresh(view), 60, 20))


def test_readings_on_gpus_come_from_the_process_table() -> None:
    """A rank on two GPUs has its memory summed and its SM share averaged; a worker has none."""
    on_gpus = tuple(
        Process(
            pid=4242,
            started_at_unix_seconds=1000.0,
            gpu_uuid=uuid,
            gpu_memory_bytes=2 * 1024**3,
            gpu_busy_percent=busy,
        )
        for uuid, busy in (("GPU-a", 20.0), ("GPU-b", 60.0))
    )
    rows = rows_of(lines_of(one_job(), processes=on_gpus))
    assert "40%" in rows[0]
    assert "4.0G" in rows[0]
    assert "G" not in rows[1]


def test_a_job_on_several_machines_says_what_runs_where() -> None:
    """The topmost process of each machine and its GPUs have its name, and PIDs are those that it
    knows itself: the same one on two machines is two processes."""
    nodes = []
    for number in (0, 1):
        rank = JobRank(pid=4242, rank=number, gpu_uuids=(f"GPU-{number}",))
        runs = Process(pid=4242, started_at_unix_seconds=1000.0, gpu_uuid=f"GPU-{number}")
        here = one_job(world_size=2, ranks=(rank,), gpu_uuids=(f"GPU-{number}",))
        there = snapshot(gpus=(gpu(f"GPU-{number}"),), processes=(runs,), jobs=(here,))
        nodes.append(Machine(number, f"node{number}", there))
    whole = together(
        nodes, sequence=1, taken_at_unix_seconds=9.0, monotonic_seconds=9.0, interval_seconds=1.0
    )
    text = job_drawn(job_view_of(whole), 120, 40)
    rows = [" ".join(row.split()) for row in rows_of(text)]
    assert [row.split()[1:5] for row in rows if "node" in row] == [
        ["node0:", "training", "process", "4242"],
        ["node1:", "training", "process", "4242"],
    ]
    assert len(rows) == 4
    assert [line.split()[1] for line in text if "H200" in line] == ["0", "1"]
    assert [line.split()[2] for line in text if "H200" in line] == ["node0", "node1"]


def test_torn_parent_links_hide_nobody() -> None:
    """Two processes that are each other's parent are both listed."""
    members = (
        member(10, parent_pid=11, role="other"),
        member(11, parent_pid=10, role="other"),
        member(12, parent_pid=12, role="other"),
    )
    assert len(rows_of(lines_of(one_job(members=members)))) == 3


def test_the_selection_stays_in_sight() -> None:
    """With more processes than rows the list scrolls to the selected one."""
    many = tuple(member(5000 + n, role="other", parent_pid=4242) for n in range(200))
    view = job_view_of(machine(one_job(members=(member(role="rank"), *many))))
    view.job.selected = many[150].key
    frame = job.draw(view, 80, 24)
    assert many[150].key in [zone.argument for zone in frame.zones if zone.action == "member"]
    view.job.selected = many[0].key
    frame = job.draw(view, 80, 24)
    assert many[0].key in [zone.argument for zone in frame.zones if zone.action == "member"]


# -- one voice ------------------------------------------------------------------------------


def with_finding(scenario: str, gpus: int, **fields: Any) -> View:
    """The page of a job, with a finding made by hand."""
    view = job_view_of(scene(scenario, gpus, seconds=40, attached=True))
    view.diagnosis = diagnosis(view.snapshot, starved(view.snapshot, **fields))
    return view


def shown(view: View, size: tuple[int, int] = (120, 40)) -> list[job_charts.Trace]:
    page = job.draw(view, *size).plan
    return [trace for trace, _ in job_charts.shown(page)]


def test_only_the_charts_of_the_leading_finding_keep_their_colour() -> None:
    """They stand below the GPU, and the rest is grey, without the disk, which the table has;
    without a finding all but the GPU is. The rows of the charts are the same."""
    view = with_finding("starved", 1)
    traces = shown(view)
    assert [one.kind for one in traces] == ["gpu", "worker", "main"]
    assert [one.kind for one in traces if not one.is_quiet] == ["gpu", "worker"]
    rows = job.draw(view, 120, 40).plan.rows
    view.diagnosis = nothing(view.snapshot)
    calm = shown(fresh(view))
    assert [one.kind for one in calm if not one.is_quiet] == ["gpu"]
    assert job.draw(fresh(view), 120, 40).plan.rows == rows


def test_a_chart_that_shows_the_finding_has_a_place_on_small_screens() -> None:
    """What is written is drawn where a finding is about that, in place of something else."""
    view = with_finding("checkpoint", 1, rule="checkpoint_pauses")
    assert [one.kind for one in shown(view, (80, 24))][:2] == ["gpu", "write"]
    view.diagnosis = nothing(view.snapshot)
    assert "write" not in [one.kind for one in shown(fresh(view), (80, 24))]


def test_a_chart_of_which_nothing_was_ever_read_takes_no_rows() -> None:
    """A job without loader workers has no chart of them."""
    view = with_finding("main_process", 1, rule="loader_in_main_process")
    assert [one.kind for one in shown(view)] == ["gpu", "main"]
    assert not any("workers  " in line for line in job_drawn(fresh(view), 120, 40))


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50), (40, 12)], ids=str)
def test_the_rank_that_the_others_wait_for_comes_first(size: tuple[int, int]) -> None:
    """Its workers stand below it, and its state beside it; it is drawn against the others. Where
    not all rows fit, the launcher has the last."""
    view = with_finding("imbalanced", 8)
    every = view.gpus
    late = (every[6].uuid,)
    found = starved(
        view.snapshot, rule="straggler", gpus=tuple(one.uuid for one in every), late=late
    )
    view.diagnosis = diagnosis(view.snapshot, found)
    rows = rows_of(job_drawn(view, *size))
    assert any("launcher" in row for row in rows) == (size[0] >= 120)
    first, *others = [row for row in rows if "launcher" not in row]
    assert re.search("rank 6" if size[0] < 60 else "rank 6  straggler", first)
    assert all("8 " in row for row in others[:1])
    assert not any("rank 6" in row for row in others)
    frame = job.draw(fresh(view), *size)
    hues = [style for line in frame.lines for text, style in line if "straggler" in text]
    assert set(hues) <= {"late"}
    culprit, rest, *_ = shown(fresh(view), size)
    assert (culprit.label, culprit.style) == ("GPU 6 SM active", "fed")
    assert (rest.label, rest.style) == ("GPUs 0-5,7 SM", "fed")


def test_without_activities_gpus_are_told_apart_by_their_power() -> None:
    """Cards and recordings without activities of SMs have no other reading of work."""
    view = with_finding("imbalanced", 8)
    every = tuple(one.uuid for one in view.gpus)
    found = starved(view.snapshot, rule="straggler", gpus=every, late=every[6:7])
    silent = [
        dataclasses.replace(gpu, reading=dataclasses.replace(gpu.reading, sm_active_percent=None))
        for gpu in view.gpus
    ]
    view.snapshot = dataclasses.replace(view.snapshot, gpus=tuple(silent))
    view.diagnosis = diagnosis(view.snapshot, found)
    assert [one.label for one in shown(view)][:2] == [
        "GPU 6 power",
        "GPUs 0-5,7 power",
    ]


@pytest.mark.parametrize(
    ("kind", "label"), [("worker", "rank 1 workers"), ("main", "rank 1 main thread")]
)
def test_what_keeps_a_late_rank_is_drawn_against_the_others(kind: str, label: str) -> None:
    """In its hue, with the mean of that rank; below that stands the number of the others, and the
    power of GPUs has no chart. Its row in the table has the hue, those of the others have none."""
    sign = next(name for name, chart in CHARTS.items() if chart == kind)
    view = with_finding("reported", 2)
    uuids = tuple(one.uuid for one in view.gpus)
    found = starved(
        view.snapshot,
        rule="collective_wait",
        gpus=uuids,
        late=uuids[1:],
        evidence=(Evidence(sign, 99.0, "%", 90.0),),
    )
    view.diagnosis = diagnosis(view.snapshot, found)
    (own,) = [one for one in shown(fresh(view), (120, 40)) if one.kind == kind]
    assert (own.label, own.style) == (label, kind)
    assert [one.label for one in shown(fresh(view)) if one.kind == "gpu"] == [
        "GPU 1 busy",
        "GPU 0 busy",
    ]
    ((of_whom, number, _),) = own.words
    assert of_whom.startswith("other ")
    assert own.text != number
    assert [one.kind for one in shown(fresh(view), (120, 40))] == ["gpu", "wait", kind, "gpu"]
    rows = job.tree_rows(view, view.snapshot.jobs[0], 9)
    hued = [row.member.rank for row in rows if row.hue == kind]
    assert hued == ([1] if kind == "worker" else [])


def test_charts_of_a_job_end_where_those_of_its_gpus_do() -> None:
    """Of many that show the same each has a strip, beside it how much of the busy time was work,
    and what the numbers behind it are stands in the title."""
    view = with_finding("imbalanced", 8)
    every = tuple(one.uuid for one in view.gpus)
    found = starved(view.snapshot, rule="collective_wait", gpus=every)
    view.diagnosis = diagnosis(view.snapshot, found)
    now = view.window.now
    mark = FindingMark(
        rule="collective_wait",
        severity="warning",
        summary="",
        gpus=every,
        begin_seconds=now - 60.0,
    )
    view.spans = [mark]
    lines = job_drawn(fresh(view), 200, 50)
    assert "mem/140.4G  power/700W  temp/87C" in lines[1]
    (gpu_line,) = [line for line in lines if re.match("│ [▲ ]0 waiting   SM ", line)]
    (chart,) = [line for line in lines if "  waits in collectives  " in line]
    bars = max(place for place, one in enumerate(gpu_line) if one in UNICODE.solid[1:])
    assert len(chart.rstrip(" │")) == bars + 1
    # Behind them stands from where to where each goes.
    assert sum(re.search(r" range \d+(-\d+)?%", line) is not None for line in lines) >= 3


def test_strips_of_gpus_that_wait_are_of_their_work() -> None:
    """A column of the list is one reading, and their charts are the work alone, on the ground of
    what is lost: rows of two tones would be one slab."""
    view = with_finding("imbalanced", 8)
    every = tuple(one.uuid for one in view.gpus)
    view.spans = [
        FindingMark(
            rule="collective_wait",
            severity="warning",
            summary="",
            gpus=every,
            begin_seconds=view.window.now - 60.0,
        )
    ]
    found = starved(view.snapshot, rule="collective_wait", gpus=every)
    view.diagnosis = diagnosis(view.snapshot, found)
    lines = job_drawn(view, 200, 50)
    said = [line for line in lines if re.search(r"waiting +SM +\d+%", line)]
    assert len(said) == len(every)
    drawn_rows = [line for line in job.draw(fresh(view), 200, 50).lines if "SM" in plain(line)]
    styles = {style for line in drawn_rows[:8] for _, style in line}
    assert any(one.startswith("fed/waiting") for one in styles)
    assert not any("+" in one for one in styles)
    # Of the past it is that of the moment.
    moment = view.window.now - 9.0
    view.timeline = Timeline(30.0).with_cursor(moment, view.window.now)
    active = view.history.gpu(every[6], "sm_active_percent")
    then = active.columns(moment, view.column_seconds, 1)[0]
    (line,) = [one for one in job_drawn(fresh(view), 200, 50) if "6 waiting" in one]
    assert f"{then[1]:.0f}%" in line
    view.timeline = Timeline(30.0)
    # So has the line of all of them, where there is no room for a list.
    small = job_drawn(fresh(view), 80, 24)
    assert any(re.match(r"8 GPUs  SM active +\d+-\d+%", line.strip()) for line in small)


def test_facts_have_two_lines_where_they_fit() -> None:
    """How the job gets its data and its cores stand in one."""
    lines = job_drawn(job_view_of(scene("starved", 1, seconds=3, attached=True)), 80, 24)
    assert any(re.search(r"data +2 loader .* CPU +all 32 cores", line) for line in lines)
    lines = job_drawn(job_view_of(scene("imbalanced", 8, seconds=3, attached=True)), 80, 24)
    assert any(re.match(r"  CPU +\d+ of", line) for line in lines)


def test_the_axis_of_a_job_has_what_was_found_of_it_alone() -> None:
    """A finding about a GPU of another job is not named, nor counted."""
    view = with_finding("starved", 1)
    begin = view.window.now - 9.0
    view.spans = [
        FindingMark(rule=rule, severity="warning", summary="", gpus=(uuid,), begin_seconds=begin)
        for rule, uuid in (("loader_cpu_bound", view.gpus[0].uuid), ("gpu_lost", "GPU-other"))
    ]
    text = "\n".join(job_drawn(view, 120, 40))
    assert "  loader is CPU-bound  " in text
    assert "2 findings" not in text


def test_what_is_known_stands_in_columns() -> None:
    """Labels begin in one column, and what they say in another; on wide screens twice."""
    lines = job_drawn(with_finding("starved", 1), 120, 40)
    job_, data = [next(one for one in lines if f"  {label} " in one) for label in ("job", "data")]
    assert job_.index("job") == data.index("data")
    assert job_.index("PID 4242") == data.index("2 loader workers")
    assert job_.index("env") == data.index("CPU")


# -- the end --------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "said"),
    [(None, "after 1m40"), (0, "exit code 0"), (3, "exit code 3"), (-9, "signal 9")],
)
def test_a_job_that_has_ended_says_when_and_how(code: int | None, said: str) -> None:
    """The time, how long it ran, the exit code or the signal where it is known."""
    one = one_job(ended_at_unix_seconds=1100.0, exit_code=code, members=())
    title = lines_of(one, taken_at_unix_seconds=1160.0)[1]
    assert "ended 00:18:20 after 1m40" in title
    assert said in title


def test_a_long_command_leaves_room_for_how_it_ended() -> None:
    """On a screen with boxes, whose edge has both."""
    long = "python train.py " + 20 * "--option value "
    one = one_job(command=long, ended_at_unix_seconds=1100.0, exit_code=3, members=())
    view = job_view_of(dataclasses.replace(machine(one), taken_at_unix_seconds=1160.0))
    title = job_drawn(view, 80, 30)[1]
    assert title.startswith("\u256d\u2500 train.py")
    assert "after 1m40, exit code 3" in title


def test_a_job_that_left_the_list_is_shown_as_it_was() -> None:
    """One that nobody is attached to just disappears: what was seen last stays, marked as ended."""
    view = job_view_of(machine(one_job()))
    gone = machine(at=110.0)
    view.snapshot = dataclasses.replace(gone, taken_at_unix_seconds=1160.0)
    view.job.gone_at_unix_seconds = 1160.0
    text = "\n".join(job_drawn(view, 120, 40))
    assert "python train.py" in text
    assert "ended 00:19:20" in text


def test_the_charts_of_a_job_that_has_ended_stay_at_its_end() -> None:
    """A minute later they show the same: they do not scroll away."""
    view = history_of(*[(100.0, 0.0), (0.0, 100.0)] * 12)
    at = view.snapshot.taken_at_unix_seconds
    pictures = []
    for later in (1.0, 61.0):
        ended = one_job(ended_at_unix_seconds=at, members=())
        view.snapshot = machine(ended, at=123.0 + later, taken_at_unix_seconds=at + later)
        pictures.append(chart(job_drawn(fresh(view), 80, 22), "main thread"))
    assert pictures[0] == pictures[1]
    assert pictures[0].count("█") == 12


def test_a_report_that_was_scrolled_to_its_end_has_nothing_below() -> None:
    """The last line is the last of the report, and no more lines are counted."""
    view = job_view_of(machine(one_job(ended_at_unix_seconds=1100.0, members=())))
    view.job.write_report = lambda width: [
        ((f" line {n} of {width}".ljust(width), "text"),) for n in range(80)
    ]
    view.job.report_offset = 10_000
    lines = job_drawn(view, 100, 30)
    assert "line 79 of 98" in lines[-3]
    assert not any("more lines" in line for line in lines)


# -- the output -----------------------------------------------------------------------------


def with_output(output: Printed, **fields: Any) -> View:
    view = job_view_of(machine(one_job()))
    view.job.output, view.job.output_name = output, "/home/ada/run.log"
    for name, value in fields.items():
        setattr(view.job, name, value)
    return view


def test_output_that_was_scrolled_stays() -> None:
    """New lines do not move it, the title says how many are below; lines that are no longer kept
    are not asked for."""
    output = Printed([f"step {n}" for n in range(500)])
    view = with_output(output, pane_first=100)
    rows = job.draw(view, 80, 24).plan.rows["output"]
    before = job_drawn(view, 80, 24)[-rows:-1]
    assert before[0].strip() == "step 100"
    output.texts += ["more"] * 10
    after = job_drawn(view, 80, 24)
    assert after[-rows:-1] == before
    assert any("more, end follows" in line for line in after)
    output.first = 300
    assert job_drawn(view, 80, 24)[-rows].strip() == "step 300"


def test_output_takes_the_rows_that_processes_leave() -> None:
    """There is no blank row between the last process and the output, and as much of the processes
    is seen as before."""
    view = with_output(Printed([f"step {n}" for n in range(500)]))
    lines = job_drawn(view, 120, 40)
    (title,) = [place for place, line in enumerate(lines) if "/home/ada/run.log" in line]
    assert "train" in lines[title - 1] or "worker" in lines[title - 1]
    assert lines[-3].strip("│ ") == "step 499"
    # Workers that are gone between two epochs leave it where it is.
    rows = job.draw(view, 120, 40).plan.rows["output"]
    view.snapshot = machine(one_job(members=(member(role="rank"),)))
    assert job.draw(view, 120, 40).plan.rows["output"] == rows


def test_the_newest_line_of_the_output_is_the_brightest() -> None:
    """While the end is followed; one who has scrolled reads all of them."""
    view = with_output(Printed([f"step {n}" for n in range(500)]))

    def looks(frame: Any) -> list[str]:
        lines = [line for line in frame.lines if "  step " in plain(line)]
        return [next(style for text, style in line if "step" in text) for line in lines]

    *old, newest = looks(job.draw(view, 80, 24))
    assert (set(old), newest) == ({"label"}, "text")
    view.job.pane_first = 100
    assert set(looks(job.draw(fresh(view), 80, 24))) == {"text"}


def test_few_processes_leave_their_rows_to_the_charts() -> None:
    """Those of processes that are gone stay theirs: charts do not jump between two epochs."""
    others = [member(5000 + number, role="helper", parent_pid=4242) for number in range(9)]
    alone = job_view_of(machine(one_job(members=ALONE)))
    many = job_view_of(machine(one_job(members=(*ALONE, *others))))
    rows = [job.draw(view, 80, 17).plan.rows["charts"] for view in (alone, many)]
    assert rows[0] > rows[1]
    many.snapshot = machine(one_job(members=ALONE))
    assert job.draw(many, 80, 17).plan.rows["charts"] == rows[1]


def test_what_a_job_was_stays_when_it_has_ended() -> None:
    """Its ranks are gone then: how it loaded its data, and on which GPUs, is not forgotten."""
    view = job_view_of(machine(one_job()))
    follow_job(view, view.snapshot)
    ended = one_job(ended_at_unix_seconds=1100.0, ranks=(), members=(), gpu_uuids=())
    later = machine(ended, at=110.0, taken_at_unix_seconds=1160.0)
    view.snapshot = later
    follow_job(view, later)
    lines = job_drawn(view, 120, 40)
    assert "1 loader worker, pinned memory on" in "\n".join(lines[:8])
    assert any("  1 worker" in line for line in lines)
    assert any("  GPU 0 busy" in line for line in lines)


def test_numbers_that_flicker_are_means_over_a_minute() -> None:
    """Of the main thread, of the workers, and of the rows of processes; a table that is sorted by
    one stands in the order of what it shows."""
    what = scene("starved", 1, seconds=90, attached=True)
    view = job_view_of(what)
    one = what.now.jobs[0]
    series = view.history.job(one.key, "main_thread_cpu_percent")
    lines = job_drawn(view, 120, 40)
    (row,) = [line for line in lines if " main thread " in line]
    assert f"{mean_shown(series, view.window_of_means(view.job.key)):.0f}%" in row
    process = next(each for each in what.now.processes if each.gpu_uuid is not None)
    series = view.history.process(process.key, process.gpu_uuid, "cpu_percent")
    cpu = mean_shown(series, view.window_of_means(view.job.key))
    (row,) = [line for line in lines if "training process" in line]
    assert f"{cpu:.0f}%" in row
    # As the instant it would be another number.
    assert abs(cpu - process.cpu_percent) >= 1.0
    view = view_of(what, sort="cpu", tree=False)
    rows = processes.table_rows(view, 99)
    shown = [each.process.cpu_percent for each in rows]
    assert shown == sorted(shown, reverse=True)
    assert next(each for each in rows if each.key == row_key(process)).process.cpu_percent == cpu


@pytest.mark.parametrize("gpus", [1, 2])
def test_the_main_thread_of_a_rank_has_the_number_of_the_chart(gpus: int) -> None:
    """Of several ranks the mean is that of the chart; loader workers have no such number."""
    lines = job_drawn(job_view_of(scene("starved", gpus, seconds=90, attached=True)), 120, 40)
    (chart,) = [line for line in lines if re.search(r" main threads? ", line)]
    (heading,) = [line for line in lines if " ROLE " in line]
    end = heading.index("MAIN") + 4
    cells = [line[end - 5 : end].strip() for line in lines if re.search("rank |training p", line)]
    mains = [int(cell.removesuffix("%")) for cell in cells if cell.endswith("%")]
    assert len(mains) == gpus
    said = re.search(r"(\d+)%", chart)
    assert said is not None
    assert sum(mains) / gpus == pytest.approx(int(said[1]), abs=0.5 if gpus == 1 else 3.0)
    workers = [line[end - 5 : end].strip() for line in lines if "loader worker " in line]
    assert set(workers) == {""}


def test_what_a_job_reports_is_said_once() -> None:
    """What has a chart stands beside it, of the rank that waits most, and not among the facts. A
    step has the waits in its collectives in it."""
    what = scene("reported", 2, seconds=60, attached=True)
    text = "\n".join(job_drawn(job_view_of(what), 120, 40))
    assert len(re.findall(r"rank 1 data-wait \d+%", text)) == 1
    assert "waits" not in text
    assert re.search(r"\d+ samples/s  in steps, with collectives, \d+-\d+%", text)
    assert re.search(r"DATA +STEP +BUSY", text)
    small = "\n".join(job_drawn(job_view_of(what), 80, 17))
    assert "samples/s" in small


def test_of_the_past_the_most_that_a_rank_waited_is_said() -> None:
    """Which one that was is not kept."""
    view = job_view_of(scene("reported", 2, seconds=60, attached=True))
    view.timeline = Timeline(30.0).with_cursor(view.window.now - 9.0, view.window.now)
    text = "\n".join(job_drawn(view, 120, 40))
    assert re.search(r"most data-wait +\d+%", text)
    assert "rank 1 data-wait" not in text


def test_two_ranks_in_step_are_compared_by_what_of_their_time_was_work() -> None:
    """Both are busy all the time: the straggler stands first, and below the other one how much of
    the time it waits, as the headline has it."""
    view = with_finding("imbalanced", 2)
    every = tuple(one.uuid for one in view.gpus)
    found = starved(view.snapshot, rule="straggler", gpus=every, late=every[1:], wait_share=0.42)
    view.diagnosis = diagnosis(view.snapshot, found)
    traces = shown(view)
    assert [one.label for one in traces[:2]] == ["GPU 1 SM active", "GPU 0 SM active"]
    assert [one.words for one in traces[:2]] == [
        [("straggler", "", "late")],
        [("waiting", "42%", "waiting")],
    ]


def test_gpus_that_show_the_same_have_one_chart_and_one_line() -> None:
    """By the finding, which comes and goes seldom: those that the others wait for first. While
    nothing is found each of a few has its own."""
    view = with_finding("reported", 8)
    mine = view.snapshot.jobs[0].gpu_uuids
    found = starved(view.snapshot, rule="collective_wait", gpus=mine, late=mine[3:])
    view.diagnosis = diagnosis(view.snapshot, found)
    text = job_drawn(fresh(view), 200, 50)
    busy = [line.split()[1:4] for line in text if re.search(r"GPUs? [\d-]+ busy ", line)]
    assert busy == [["GPU", "3", "busy"], ["GPUs", "0-2", "busy"]]
    lines = [re.split(" {2,}", line.strip("│ "))[:2] for line in text if " power " in line]
    assert [line[0] for line in lines[-2:]] == ["▲3", "•0-2 waiting"]
    view.diagnosis = diagnosis(view.snapshot, starved(view.snapshot, gpus=mine))
    assert [one.label for one in shown(fresh(view)) if one.kind == "gpu"] == ["GPUs 0-3 busy"]
    view.diagnosis = nothing(view.snapshot)
    labels = [one.label for one in shown(fresh(view), (200, 50)) if one.kind == "gpu"]
    assert labels == [f"GPU {number} busy" for number in range(4)]


def test_workers_of_ranks_are_a_number_where_not_all_rows_fit() -> None:
    """So that all ranks are in sight; those of the rank that the others wait for keep their row."""
    view = with_finding("imbalanced", 8)
    every = tuple(one.uuid for one in view.gpus)
    found = starved(view.snapshot, rule="straggler", gpus=every, late=every[6:7])
    view.diagnosis = diagnosis(view.snapshot, found)
    rows = rows_of(job_drawn(view, 120, 40))
    assert re.findall(r"rank (\d)", "\n".join(rows)) == list("60123457")
    assert sum("8 loader workers" in row for row in rows) == 1
    assert sum(re.search(r"8x\d+%", row) is not None for row in rows) == 8
    # Where they fit they have rows, and where a person wants each, too.
    tall = rows_of(job_drawn(fresh(view), 200, 50))
    assert sum("8 loader workers" in row for row in tall) == 8
    view.folded = False
    assert not any("WORKERS" in line for line in job_drawn(fresh(view), 120, 40))


def test_gpus_that_left_the_list_leave_the_page_of_their_job() -> None:
    """Also while a finding about them is still said: instances are made anew, a driver unloaded."""
    view = with_finding("throttled", 2)
    found = starved(view.snapshot, rule="thermal_throttle", gpus=(view.gpus[0].uuid,))
    view.diagnosis = diagnosis(view.snapshot, found)
    view.snapshot = dataclasses.replace(view.snapshot, gpus=())
    assert any("GPU busy" in line for line in job_drawn(fresh(view), 120, 40))


def test_a_chart_says_how_much_of_the_time_was_idle() -> None:
    """Where that is what was lost: the rest of what stands above it."""
    view = with_finding("starved", 1)
    mark = FindingMark(
        rule="loader_cpu_bound", severity="warning", summary="", begin_seconds=0.0,
        gpus=(view.gpus[0].uuid,),
    )  # fmt: skip
    for spans, said in (([mark], True), ([], False)):
        view.spans = spans
        lines = job_drawn(fresh(view), 120, 40)
        at = next(at for at, line in enumerate(lines) if "GPU 0 busy" in line)
        busy = int(re.search(r"(\d+)%", lines[at])[1])
        assert (f" {100 - busy}% " in lines[at + 1]) is said


def test_the_table_of_ranks_has_how_active_their_sms_are() -> None:
    """Busy is 99% for one that waits, too. A GPU that others use as well says it of none."""
    what = scene("imbalanced", 2, seconds=20, attached=True)
    view = job_view_of(what)
    view.diagnosis = nothing(view.snapshot)
    (heading,) = [line for line in job_drawn(view, 120, 40) if " ROLE " in line]
    end = heading.index(" SM ") + 3
    cells = [line[end - 4 : end].strip() for line in job_drawn(fresh(view), 120, 40)]
    assert [one for one in cells if re.fullmatch(r"\d+%", one)]
    rows = job.tree_rows(view, view.snapshot.jobs[0], 99)
    assert sum(row.sm_active_percent is not None for row in rows) == 2
    other = dataclasses.replace(
        next(one for one in view.snapshot.processes if one.gpu_uuid == view.gpus[0].uuid), pid=9
    )
    processes_ = (*view.snapshot.processes, other)
    view.snapshot = dataclasses.replace(view.snapshot, processes=processes_)
    rows = job.tree_rows(view, view.snapshot.jobs[0], 99)
    assert sum(row.sm_active_percent is not None for row in rows) == 1


def test_a_loop_that_waits_is_drawn_as_what_its_time_goes_to() -> None:
    """Steps are at the bottom and waits for data above them, with the number of each beside it, not
    among the facts. In one row there are the waits alone."""
    view = job_view_of(scene("reported", 1, seconds=60, attached=True))
    view.diagnosis = diagnosis(view.snapshot, starved(view.snapshot))
    text = "\n".join(job_drawn(view, 120, 40))
    assert re.search(r"waits for data +\d+%", text)
    assert re.search(r"│  in steps +\d+%", text)
    assert text.count("in steps") == text.count("copies") == 1
    (wait,) = [one for one in shown(fresh(view)) if one.kind == "wait"]
    assert wait.drawn(1) is wait
    shares = [wait.text, *[number for _, number, _ in wait.drawn(3).words]]
    assert sum(int(one.removesuffix("%")) for one in shares) == 100
    styles = {style for line in job.draw(fresh(view), 120, 40).lines for _, style in line}
    assert any(one.startswith("fed+starved") for one in styles)


@pytest.mark.parametrize("page", ["overview", "job"])
def test_beside_charts_of_the_past_processes_have_what_is_known_of_then(page: str) -> None:
    """Shares are those of the moment; of what is not kept nothing is said, and the heading says of
    when the list is."""
    what = scene("rerun", 1, seconds=90)
    draw, view = (drawn, view_of(what)) if page == "overview" else (job_drawn, job_view_of(what))
    process = next(each for each in what.now.processes if each.gpu_uuid is not None)
    row = str(process.pid)

    def line() -> str:
        return [each for each in draw(view, 120, 40) if f" {row} " in each][-1]

    series = view.history.process(process.key, process.gpu_uuid, "cpu_percent")
    assert "31.2G" in line()
    view.timeline = Timeline(30.0, view.window.now - 4.0)
    then = series.columns(view.window.end, view.column_seconds, 1)[0]
    assert f"{then[1]:.0f}%" in line()
    assert "31.2G" not in line()
    assert re.search(r"process(es)?, as read then", "\n".join(draw(view, 120, 40)))
    # It had not begun.
    view.timeline = Timeline(30.0, view.window.now - 40.0)
    assert not re.search(r"[0-9](%|m|s) ", line().partition(row)[2])


@pytest.mark.parametrize("width", [80, 120, 200])
def test_the_tree_says_how_many_rows_are_out_of_sight(width: int) -> None:
    """Also where its chart and its columns leave the heading little room."""
    workers = [
        member(4250 + n, role="loader_worker", parent_pid=4242, cpu_percent=20.0) for n in range(30)
    ]
    one = one_job(members=(member(role="rank", command="python train.py"), *workers))
    view = job_view_of(machine(one))
    view.folded = False
    frame_lines = job_drawn(view, width, 40)
    seen = sum("worker " in line and " 42" in line for line in frame_lines)
    heading = next(line for line in frame_lines if "ROLE" in line)
    assert f"▼{30 - seen}" in heading


def test_numbers_of_gpus_have_their_labels_and_stand_in_columns() -> None:
    """Those of one GPU end where those of the others do."""
    view = job_view_of(scene("reported", 8, attached=True))
    lines = [line for line in job_drawn(view, 200, 50) if re.match(r"│ +\d +\w+ ", line)]
    assert len(lines) >= 4
    for label in ("mem", "power", "temp", "SM", "tensor"):
        assert len({line.index(f" {label} ") for line in lines}) == 1
    for unit in (r"G\b", r"W\b", r"C\b", "MHz"):
        assert len({re.search(rf"\d{unit}", line).end() for line in lines}) == 1
