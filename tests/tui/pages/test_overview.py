"""The overview as a drawing: sizes, machines, glyphs."""

import dataclasses
import itertools
import re
import time
from collections.abc import Callable
from typing import Any

import pytest

from gpuwatch.core.model import Gpu, Host, OwnCost, Problem, Process, Snapshot
from gpuwatch.core.store import SampledSeries, Store
from gpuwatch.diagnosis.finding import Advice, Finding, Gain, Look
from gpuwatch.tui.charts.strips import DOTS, UNICODE
from gpuwatch.tui.charts.timeline import FindingMark, Timeline
from gpuwatch.tui.pages import overview
from gpuwatch.tui.pages.dialogs import problems_dialog
from gpuwatch.tui.pages.findings import draw_findings
from gpuwatch.tui.pages.layout import EDGE, Frame
from gpuwatch.tui.panels import processes
from gpuwatch.tui.panels.gpus import gauge, metrics, scaled_metrics
from gpuwatch.tui.panels.table import fit_command
from gpuwatch.tui.panels.time_axis import shown_gpu, shown_process
from gpuwatch.tui.terminal.frame import plain
from gpuwatch.tui.view import Owner, View
from tests.support.snapshots import gpu, snapshot
from tests.tui.diagnoses import degraded, diagnosis, nothing, starved
from tests.tui.scenes import drawn, history_of, scene, texts, view_of

SIZES = ((200, 50), (120, 40), (80, 24), (40, 12), (20, 4), (33, 7))

every_size = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")


def gpu_lines(frame: Frame, uuid: str) -> list[str]:
    """The lines on which this GPU is drawn."""
    return [plain(frame.lines[y]) for y in rows_of(frame, uuid)]


def rows_of(frame: Frame, uuid: str) -> list[int]:
    return [zone.y for zone in frame.zones if zone.action == "gpu" and zone.argument == uuid]


@pytest.mark.parametrize("count", [1, 8])
@pytest.mark.parametrize("size", [(200, 50), (120, 40), (80, 24)], ids=str)
def test_numbers_that_are_late_say_how_old_they_may_be(count: int, size: tuple[int, int]) -> None:
    """At every density that has the room, each GPU by its own oldest; readings that are not
    drawn do not count."""
    ages = (("busy_percent", 6.0), ("temperature_celsius", 130.0), ("fan_percent", 95.0))
    gpus = [
        gpu(f"GPU-{index}", index, busy_percent=47.0, late_readings=ages[: 3 if index else 1])
        for index in range(count)
    ]
    view = view_of(snapshot(gpus=tuple(gpus)))
    frame = overview.draw(view, *size)
    for each in gpus:
        lines = " ".join(gpu_lines(frame, each.uuid))
        assert ("6s old" if each is gpus[0] else "2m10 old") in lines


# -- sizes ----------------------------------------------------------------------------------


@pytest.mark.parametrize("scenario", ["starved", "lost", "mig", "no_gpu"])
def test_no_number_of_a_process_is_cut(scenario: str) -> None:
    """In the table a column is shown whole or dropped; only names and commands are cut."""
    what = scene(scenario, 2)
    for width in range(20, 210, 11):
        frame = overview.draw(view_of(what, tree=False), width, 40)
        rows = {zone.y: zone.argument for zone in frame.zones if zone.action == "process"}
        shown = {row.key: row for row in frame.table}
        for y, key in rows.items():
            process, command = shown[key].process, shown[key].command
            says = (shown[key].rank, command[:5], fit_command(command, 12, "…")[:3])
            line = plain(frame.lines[y])
            assert str(process.pid) in line
            begin = next((line.find(one) for one in says if one and one in line), len(line))
            assert "…" not in line[:begin].replace((process.user or "-")[:7] + "…", ""), line


# -- what is said ---------------------------------------------------------------------------


def bare(**reading: Any) -> Snapshot:
    return snapshot(gpus=(gpu(**reading),), processes=(Process(pid=7, gpu_uuid="GPU-a"),))


@every_size
def test_what_was_not_read_is_a_dash_and_never_zero(size: tuple[int, int]) -> None:
    """A GPU, a host and a process that report nothing show dashes."""
    frame = overview.draw(view_of(bare()), *size)
    for line in gpu_lines(frame, "GPU-a"):
        assert not re.search(r"\b0(\.0)?(%|W|C|/|G|B)", line)
    assert "-" in "".join(gpu_lines(frame, "GPU-a"))
    assert "0%" not in "".join(texts(frame.lines))


def test_a_measured_zero_is_shown_as_zero() -> None:
    """Zero percent, zero bytes and zero watts are numbers, not dashes."""
    reading = {"busy_percent": 0.0, "memory_used_bytes": 0, "power_watts": 0.0}
    frame = overview.draw(view_of(bare(**reading)), 80, 24)
    text = " ".join(gpu_lines(frame, "GPU-a"))
    assert "0%" in text
    assert "0B 140G" in text
    assert "0W" in text


def test_a_note_about_gpuwatch_is_no_finding() -> None:
    """It has another sign than a warning, and where a finding takes the rows, the header counts
    it; a driver that is not there has the sign of what is grave."""
    what = scene("starved", 1).now
    note = Problem(source="nvml", message="Power of GPU 0 cannot be read.", severity="warning")
    noted = dataclasses.replace(what, problems=(note,))
    lines = drawn(view_of(noted), 80, 24)
    assert any(f" {UNICODE.unread} Power of GPU 0 cannot" in line for line in lines)
    lines = drawn(view_of(noted, diagnosis=diagnosis(noted, starved(noted))), 80, 24)
    assert not any("Power of GPU 0 cannot" in line for line in lines)
    assert "1 message" in lines[0]
    grave = dataclasses.replace(note, message="No driver.", severity="error")
    lines = drawn(view_of(dataclasses.replace(what, problems=(grave,))), 80, 24)
    assert any(f" {UNICODE.grave} No driver." in line for line in lines)


def test_what_is_lost_is_of_a_time_that_is_told() -> None:
    """Charts show another; where there is no room, the change comes first, then its gain, then
    what is lost."""
    what = scene("starved", 1).now
    gain = Gain(factor=1.6, low=1.4, high=1.7, limited_by="the GPU")
    one = starved(what, lost_share=0.38, lost_of_seconds=60.0, gain=gain)
    [line] = [text for text in drawn_with(what, one, 80) if "num_workers" in text]
    assert "num_workers 2 -> 8, pin_memory=True  about 1.6x as fast  38% lost over 1 min" in line
    [line] = [text for text in drawn_with(what, one, 46) if "num_workers" in text]
    assert "num_workers 2 -> 8  ~1.6x  38% lost" in line
    [line] = [text for text in drawn_with(what, one, 36) if "num_workers" in text]
    assert "num_workers 2 -> 8  ~1.6x" in line
    assert "lost" not in line


def test_the_smallest_terminal_says_what_to_do_of_the_first_finding() -> None:
    """At 40x12 the cure stands below the sentence, and the other findings are counted."""
    what = scene("starved", 8).now
    found = diagnosis(what, starved(what), degraded(what, 3))
    first, second = drawn(view_of(what, diagnosis=found), 40, 12)[1:3]
    assert "workers maxed out" in first
    assert "num_workers 2 -> 8" in second
    assert second.rstrip().endswith("+1")


def test_the_smallest_terminal_has_a_row_for_each_of_eight_gpus() -> None:
    """A table of one process gives way to the GPUs that would be out of sight."""
    lines = drawn(view_of(scene("starved", 8)), 40, 12)
    assert [line[2] for line in lines[3:11]] == list("01234567")
    assert not any("COMMAND" in line for line in lines)


def test_loader_workers_are_one_row_in_the_smallest_terminal() -> None:
    """How many there are and what each uses of a core fits 40 columns."""
    lines = drawn(view_of(scene("starved", 1)), 40, 12)
    assert any("2x99%" in line and "2 workers" in line for line in lines)


def drawn_with(what: Snapshot, one: Finding, width: int) -> list[str]:
    return drawn(view_of(what, diagnosis=diagnosis(what, one)), width, 24)


def test_the_gravest_problem_is_said_and_the_rest_are_counted() -> None:
    """Errors come before warnings; what has no line of its own is counted."""
    problems = (
        dataclasses.replace(
            scene("mixed", 8).now.problems[0], severity="warning", message="second"
        ),
        dataclasses.replace(scene("mixed", 8).now.problems[0], severity="error", message="first"),
        dataclasses.replace(scene("mixed", 8).now.problems[0], severity="info", message="aside"),
        dataclasses.replace(scene("mixed", 8).now.problems[0], severity="warning", message="third"),
    )
    one = dataclasses.replace(scene().now, problems=problems)
    lines = drawn(view_of(one), 80, 24)
    assert "first" in lines[1]
    assert "second" in lines[2]
    assert "+1 more" in lines[2]
    assert "aside" not in "\n".join(lines)
    assert "! 4 messages" in lines[0]


TWO_GPUS = (gpu("GPU-a", 0), gpu("GPU-b", 1))


def machine(*processes: Process, gpus: tuple[Gpu, ...] = TWO_GPUS) -> Snapshot:
    return snapshot(gpus=gpus, processes=processes, host=Host(name="box3"))


UNLISTED = dataclasses.replace(
    machine(),
    problems=(Problem(source="nvml", message="GPU 0 has no list.", reading="processes"),),
)


def with_cost() -> Snapshot:
    cost = OwnCost(
        cpu_percent=0.7, memory_resident_bytes=34 * 1024**2, nvml_milliseconds_per_second=1.2
    )
    return dataclasses.replace(scene().now, own_cost=cost)


@pytest.mark.parametrize(
    ("what", "fields", "widths", "said"),
    [
        ("starved", {"stale_seconds": 7.4}, (40, 80, 120, 200), "7s old"),
        ("starved", {"paused": True}, (40, 80, 120, 200), "PAUSED"),
        ("starved", {"paused": True}, (80, 120), "resume"),
        ("starved", {"filter_text": "py"}, (80, 120, 200), "filter: py"),
        ("starved", {"filter_text": "no such process"}, (80, 120), "No process matches"),
        (machine(gpus=()), {"all_processes": False}, (80,), "Press a to see all processes"),
        (machine(), {"this_gpu_only": True}, (80,), "No process uses this GPU."),
        (
            UNLISTED,
            {"all_processes": False},
            (80,),
            "Which processes use a GPU cannot be read",
        ),
        ("unified", {}, (80, 120), "procs"),
        ("mig", {}, (80, 120), "0.1"),
        (with_cost, {}, (80,), "own 0.7%"),
        (with_cost, {}, (120, 200), "own 0.7% 34.0M nvml 1.2ms/s"),
    ],
)
def test_what_must_be_known_is_said(
    what: Snapshot | str | Callable[[], Snapshot],
    fields: dict[str, Any],
    widths: tuple[int, ...],
    said: str,
) -> None:
    """Old data, a picture that stands still, a filter in force, memory that is a sum over
    processes, instances of one card, and what watching costs."""
    if isinstance(what, str):
        what = scene(what, 2 if what == "mig" else 1).now
    now = what if isinstance(what, Snapshot) else what()
    for width in widths:
        assert said in "\n".join(drawn(view_of(now, **fields), width, 24))


def test_the_header_counts_what_its_key_lists() -> None:
    """Notes, and what could not be read."""
    problems = tuple(
        [Problem(source="x", message="Told so.", severity=one) for one in ("info", "warning")]
    )
    view = view_of(snapshot(gpus=(gpu(),), problems=problems))
    assert "! 2 messages" in drawn(view, 120, 40)[0]
    assert problems_dialog(view).text.count("Told so.") == 2


def test_the_footer_shows_whole_keys_only() -> None:
    """As many keys as fit, the most needed first; none is cut."""
    for width in range(20, 200, 3):
        *_, foot = drawn(view_of(scene()), width, 24)
        said = foot.split()
        assert said[0] == "q"
        assert len(said) % 2 == 0, foot


# -- the waveform ---------------------------------------------------------------------------


def test_the_scale_of_a_chart_is_fixed() -> None:
    """A constant 20% stays low and a constant 90% high: charts do not stretch to their data."""
    tops = []
    for percent in (20.0, 90.0):
        past = [
            snapshot(at=float(second), gpus=(gpu(busy_percent=percent),))
            for second in range(90, 101)
        ]
        frame = overview.draw(view_of(past[-1], history=history_of(past)), 120, 12)
        tops.append(gpu_lines(frame, "GPU-a")[0].partition("│")[2][:40].strip())
    assert tops[0] == ""
    assert set(tops[1]) <= set("▄▅▆▇")


def test_means_change_every_two_seconds() -> None:
    """A number that changes with every look is not read; the first look has what it read."""
    said = []
    past: list[Snapshot] = []
    for second in range(101, 107):
        past.append(snapshot(at=float(second), gpus=(gpu(busy_percent=10.0 * (second - 100)),)))
        frame = overview.draw(view_of(past[-1], history=history_of(past)), 120, 12)
        said.append(re.search(r"(\d+)%", gpu_lines(frame, "GPU-a")[0])[1])
    assert said[0] == "10"
    assert said[1] == said[2] != said[3] == said[4] != said[5]


def test_numbers_are_of_the_time_that_the_verdict_looked_at() -> None:
    """What waited 70% of it was busy for 30%; what is not read does not count."""
    past = [
        snapshot(at=float(second), gpus=(gpu(busy_percent=30.0 if second < 50 else 90.0),))
        for second in range(60)
    ]
    found = starved(past[-1], 0)
    look = Look(gpus=("GPU-a",), job=None, until_seconds=49.0, seconds=20.0)
    said = dataclasses.replace(diagnosis(past[-1], found), looks=(look,))
    mark = FindingMark(
        rule=found.rule, severity="warning", summary="", gpus=("GPU-a",), begin_seconds=0.0
    )
    view = view_of(past[-1], history=history_of(past), diagnosis=said, spans=(mark,))
    lines = drawn(view, 120, 40)
    at = next(at for at, line in enumerate(lines) if re.search(r" busy +30% ", line))
    assert re.search(r" idle +70% ", lines[at + 1])
    assert re.search(r" now +90% ", lines[at + 2])


def test_charts_of_cores_leave_no_hole_and_have_their_means() -> None:
    """All columns are as long where a few less of them can be; the number is the mean of what is
    drawn."""
    store = Store()
    for second in range(60):
        cores = (100.0 if second % 2 else 0.0, *[50.0] * 31)
        now = snapshot(at=float(second), host=Host(name="box", core_percents=cores))
        store.push(now)
    lines = list(map(plain, overview.draw_host(View(snapshot=now, history=store), 118, 19)))
    assert any(" cores " in line for line in lines)
    rows = [re.findall(r" (\d+) +(\d+)% ", line) for line in lines if "▇" in line or "▄" in line]
    rows = [row for row in rows if len(row) > 1]
    assert [len(row) for row in rows] == [4] * 8
    assert {core: percent for row in rows for core, percent in row}["0"] in {"49", "50", "51"}


def test_cores_that_are_full_stand_out_and_idle_ones_step_back() -> None:
    """Numbers and charts do, each by its mean."""
    store = Store()
    for second in range(60):
        now = snapshot(
            at=float(second), host=Host(name="box", core_percents=(100.0, 50.0, 1.0, 50.0))
        )
        store.push(now)
    drawn_lines = overview.draw_host(View(snapshot=now, history=store), 118, 12)
    said = [(text.split()[-1], style) for text, style in drawn_lines[-1] if "%" in text]
    said = [one for one in said if one[1] in ("value", "text", "dim")]
    assert said == [("100%", "value"), ("50%", "text"), ("1%", "dim"), ("50%", "text")]
    hues = [style.partition(".")[0] for _, style in drawn_lines[-1]]
    assert [hue for hue in hues if hue in ("host", "area")] == ["host", "area", "area", "area"]


def test_of_a_driver_that_fails_only_the_cause_is_red_and_commands_are_bold() -> None:
    """What to do has its own line, without the marks that a command has in a text."""
    says = "The module is not loaded, so no GPU can be read: try `sudo modprobe nvidia`, then look."
    now = dataclasses.replace(
        snapshot(gpus=()), problems=(Problem(source="nvml", message=says, severity="error"),)
    )
    lines = overview.draw(view_of(now), 80, 24).lines[1:3]
    assert [plain(line).strip() for line in lines] == [
        "\u25a0 The module is not loaded, so no GPU can be read",
        "try sudo modprobe nvidia, then look.",
    ]
    runs = [(text.strip(), style) for line in lines for text, style in line]
    assert ("\u25a0 The module is not loaded", "error") in runs
    assert (", so no GPU can be read", "text") in runs
    assert ("sudo modprobe nvidia", "value") in runs


def test_bars_of_cores_are_drawn_anew_every_two_seconds() -> None:
    """As seldom as the numbers beside them."""
    said = []
    view = view_of(snapshot(at=100.0))
    for second in range(100, 104):
        percents = (25.0 * (second - 100), 100.0)
        view.snapshot = snapshot(at=float(second), host=Host(name="box", core_percents=percents))
        said.append(plain(overview.draw_host(view, 120, 3)[2]).partition("cores")[2])
    assert said[0] == said[1] != said[2] == said[3]


def test_a_value_over_its_limit_is_as_bold_as_others() -> None:
    """In the colour of the state that it explains."""
    what = scene("throttled", 8, seconds=120)
    runs = [run for line in overview.draw(view_of(what), 120, 40).lines for run in line]
    hot = [style for text, style in runs if text.strip() in {"88C", "89C", "90C"}]
    assert hot
    assert set(hot) == {"throttled value"}
    assert view_of(what).palette["throttled value"].bold


# -- the table ------------------------------------------------------------------------------


def order(view: View) -> list[int]:
    return [row.process.pid for row in overview.draw(view, 120, 40).table]


FAMILY = machine(
    Process(pid=1, name="launcher"),
    Process(pid=20, parent_pid=1, gpu_uuid="GPU-b", gpu_memory_bytes=5, cpu_percent=10.0, user="z"),
    Process(pid=30, parent_pid=1, gpu_uuid="GPU-a", gpu_memory_bytes=3, cpu_percent=20.0, user="B"),
    Process(pid=31, parent_pid=30, cpu_percent=99.0, user="b", command="python Train.py"),
    Process(pid=5, cpu_percent=0.0, user="a"),
)
TORN = machine(
    Process(pid=2, parent_pid=3), Process(pid=3, parent_pid=2), Process(pid=4, parent_pid=4)
)
"""Parent links that a PID which came round has torn."""
BOTH = machine(*[Process(pid=9, gpu_uuid=uuid) for uuid in ("GPU-a", "GPU-b")])


@pytest.mark.parametrize(
    ("what", "fields", "expected"),
    [
        # A family stands where its best member would; children below their parents.
        (FAMILY, {}, [1, 30, 31, 20, 5]),
        # Numbers largest first, names ascending, what is unknown last.
        (FAMILY, {"tree": False, "sort": "gpu"}, [30, 20, 1, 5, 31]),
        (FAMILY, {"tree": False, "sort": "gpu memory"}, [20, 30, 1, 5, 31]),
        (FAMILY, {"tree": False, "sort": "cpu"}, [31, 30, 20, 5, 1]),
        (FAMILY, {"tree": False, "sort": "cpu", "reverse": True}, [1, 5, 20, 30, 31]),
        (FAMILY, {"tree": False, "sort": "pid"}, [1, 5, 20, 30, 31]),
        (FAMILY, {"tree": False, "sort": "user"}, [30, 5, 31, 20, 1]),
        # A match keeps its ancestors in a tree, not in a flat list; all words must match.
        (FAMILY, {"filter_text": "31"}, [1, 30, 31]),
        (FAMILY, {"filter_text": "TRAIN b", "tree": False}, [31]),
        (FAMILY, {"filter_text": "train ada", "tree": False}, []),
        # A user by the whole name, or one of several.
        (FAMILY, {"filter_text": "user:a", "tree": False}, [5]),
        (FAMILY, {"filter_text": "user:b,z", "tree": False}, [30, 20, 31]),
        # Processes on another GPU are hidden, the helpers of those on this one are not.
        (FAMILY, {"this_gpu_only": True, "selected_gpu": "GPU-a", "tree": False}, [30, 31]),
        # Nobody is hidden for a loop, and a process on two GPUs has a row for each.
        (TORN, {}, [4, 2, 3]),
        (BOTH, {}, [9, 9]),
    ],
)
def test_which_processes_are_listed_in_which_order(
    what: Snapshot, fields: dict[str, Any], expected: list[int]
) -> None:
    """By the sort, the filter and the tree of the view."""
    assert order(view_of(what, **fields)) == expected


def test_processes_of_the_gpu_that_the_verdict_names_come_first() -> None:
    """Of the one that others wait for, of one of several; in the order by GPU alone, which says
    so. What is about most of them, or only good to know, changes nothing."""
    found = starved(FAMILY, 1)
    about = tuple([gpu.uuid for gpu in TWO_GPUS])

    def listed(**fields: Any) -> tuple[list[int], bool]:
        one = dataclasses.replace(found, **fields)
        frame = overview.draw(view_of(FAMILY, diagnosis=diagnosis(FAMILY, one)), 120, 40)
        text = "\n".join(texts(frame.lines))
        return [row.process.pid for row in frame.table], "sort: gpu, GPU 1 first" in text

    assert listed() == ([1, 20, 30, 31, 5], True)
    assert listed(gpus=about, late=(about[1],)) == ([1, 20, 30, 31, 5], True)
    assert listed(gpus=about) == ([1, 30, 31, 20, 5], False)
    assert listed(gpus=(about[0],)) == ([1, 30, 31, 20, 5], False)
    assert listed(severity="info") == ([1, 30, 31, 20, 5], False)
    by_cpu = view_of(FAMILY, sort="cpu", tree=False, diagnosis=diagnosis(FAMILY, found))
    assert order(by_cpu) == [31, 30, 20, 5, 1]


def test_a_chain_of_thousands_of_processes_is_a_tree_like_any_other() -> None:
    """However deep it is, every process has its row."""
    chain = tuple(Process(pid=pid, parent_pid=pid - 1) for pid in range(1, 3001))
    assert order(view_of(snapshot(processes=chain))) == list(range(1, 3001))


@pytest.mark.parametrize(
    ("command", "said"),
    [
        (None, "  (unseen)"),
        ("/opt/env/bin/python3.11 train.py", "  python3.11 train.py"),
        ("/usr/bin/htop -d 20", "  /usr/bin/htop -d 20"),
    ],
)
def test_what_a_process_runs(command: str | None, said: str) -> None:
    """Python without its folder, other programs with it; one that cannot be looked at keeps its
    row, which says that access is missing."""
    lines = drawn(view_of(machine(Process(pid=4242, gpu_uuid="GPU-a", command=command))), 120, 24)
    (row,) = [line for line in lines if "4242" in line]
    assert said in row


TRAIN = "/opt/env/bin/python3.11 -u -X dev /home/ada/resnet/train.py --config configs/resnet50.yaml"
TORCHRUN = "/usr/bin/python /usr/bin/torchrun --nproc_per_node 8 train.py --config resnet50.yaml"


@pytest.mark.parametrize(
    ("command", "room", "said"),
    [
        (
            TRAIN,
            90,
            "python3.11 -u -X dev /home/ada/resnet/train.py --config configs/resnet50.yaml",
        ),
        (TRAIN, 64, "/home/ada/resnet/train.py --config configs/resnet50.yaml"),
        (TRAIN, 48, "train.py --config configs/resnet50.yaml"),
        (TRAIN, 20, "train.py --config c…"),
        ("python -u -m pkg.train --lr 3e-4", 24, "-m pkg.train --lr 3e-4"),
        ("python -c 'import train; train.main(8)'", 24, "python -c 'im…n.main(8)'"),
        (TORCHRUN, 50, "torchrun train.py --config resnet50.yaml"),
        (TORCHRUN, 20, "train.py --config r…"),
        ("python -m torch.distributed.run --nproc 8 -m pkg.train a b", 20, "-m pkg.train a b"),
        ("mpirun -np 8 /opt/env/bin/python -u train.py --lr 3", 20, "train.py --lr 3"),
        ("/opt/env/bin/accelerate launch --mixed bf16 train.py", 14, "train.py"),
        ("srun hostname --with-many --options", 20, "srun hostname --wit…"),
        ("/usr/lib/firefox/firefox -contentproc", 24, "firefox -contentproc"),
    ],
)
def test_a_command_without_room_keeps_the_script(command: str, room: int, said: str) -> None:
    """The interpreter, its flags, the launcher and the script's folder go before its name does."""
    assert fit_command(command, room, "…") == said


def test_the_rank_stands_before_its_script() -> None:
    """At 80 columns the number of the rank and the name of the script are read in its row."""
    lines = drawn(view_of(scene("imbalanced", 2)), 80, 24)
    assert any("rank 0: train.py" in line for line in lines)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)], ids=str)
def test_commands_end_where_the_note_above_them_does(size: tuple[int, int]) -> None:
    """A cell before the frame, or before the end of the line where there is none."""
    long = Process(pid=4242, gpu_uuid="GPU-a", command="python train.py " + "x" * 300)
    lines = drawn(view_of(machine(long)), *size)
    row = next(line for line in lines if " 4242 " in line)
    assert row.removesuffix("│")[-2:] in ("x ", "… ")


# -- a GPU that shares the host's memory ------------------------------------------------------


def test_a_gpu_without_limits_of_its_own_has_charts() -> None:
    """On unified memory there is no total and no power limit: memory is drawn against the host's,
    power on a scale in steps, and neither is said to be a limit."""
    what = scene("unified", 1)
    one = what.now.gpus[0]
    host = what.now.host.memory_total_bytes
    assert one.identity.memory_total_bytes is None
    _, memory, power, _ = scaled_metrics(view_of(what), one, 60)
    assert memory.limit == host
    assert "procs" in memory.text
    assert power.limit >= max(s.gpus[0].reading.power_watts or 0.0 for s in what.past)
    assert "/" not in power.text
    lines = drawn(view_of(what), 100, 30)
    for label, drawn_as in (("memory", "━"), ("power", "▁▂▃▄▅▆▇█")):
        line = next(line for line in lines if line.lstrip("\u2502 ").startswith(label))
        assert set(line.partition("│")[2].strip()) & set(drawn_as)


def test_memory_without_a_total_has_no_gauge() -> None:
    """Of the host: any number of bytes would be all of it."""
    host = Host(name="box", memory_used_bytes=5)
    lines = texts(overview.draw_host(view_of(snapshot(host=host)), 120, 3))
    assert lines[1].split()[:3] == ["memory", "5B", "disk"]


def test_only_a_unified_gpu_is_measured_against_the_host() -> None:
    """A card whose total was not read keeps its chart blank rather than wrong."""
    bare = gpu(memory_used_bytes=5)
    identity = dataclasses.replace(bare.identity, memory_total_bytes=None)
    bare = dataclasses.replace(bare, identity=identity)
    assert metrics(bare, 100.0)[1].limit is None


def test_what_a_row_says_can_be_searched_for() -> None:
    """A role that the table writes in place of a command; the command itself as well."""
    view = view_of(scene("starved", 1), filter_text="loader", tree=False)
    rows = processes.table_rows(view, 99)
    assert rows
    assert {row.command for row in rows} == {"loader worker"}


def test_what_the_filter_matched_is_marked() -> None:
    """In the launcher's command, which keeps its name, and in the hue of keys, not of findings."""
    view = view_of(scene("starved", 2))
    overview.draw(view, 120, 40)
    view.filter_text = "TorchRun"
    lines = overview.draw(view, 120, 40).lines
    marked = {text for line in lines for text, style in line if style.endswith("key")}
    assert "torchrun" in marked
    assert any(text.startswith("filter: TorchRun") for text in marked)


def test_what_is_below_a_match_stays_and_steps_back() -> None:
    """A launcher that matches has its ranks and their workers below it, in grey; the heading says
    how many match, of how many."""
    view = view_of(scene("starved", 2), filter_text="torchrun")
    rows = processes.table_rows(view, 99)
    assert [row.matches for row in rows] == [1] + [0] * 6
    lines = overview.draw(view, 120, 40).lines
    assert any("filter: torchrun, 1 of 7" in plain(line) for line in lines)
    (rank,) = [line for line in lines if "rank 1:" in plain(line)]
    cells = {style for text, style in rank if not text.isspace() and "." not in style}
    assert cells <= {"dim", EDGE}
    assert processes.table_rows(view, 3)[0].matches
    view.filter_text = "rank"
    rows = processes.table_rows(view, 99)
    assert [row.matches for row in rows] == [0, 1, 0, 0, 1, 0, 0]


def test_a_process_alone_on_its_gpu_is_as_busy_as_that() -> None:
    """By finer samples than its own, where both say the same; not where they differ."""
    what = scene("starved", 2)
    gpu = what.now.gpus[0]
    for percent, is_same in ((None, True), (9.0, False)):
        past = [
            dataclasses.replace(
                one,
                processes=tuple(
                    dataclasses.replace(each, gpu_busy_percent=percent or each.gpu_busy_percent)
                    for each in one.processes
                ),
            )
            for one in what.past
        ]
        view = view_of(past[-1], history=history_of(past))
        process = next(one for one in view.snapshot.processes if one.gpu_uuid == gpu.uuid)
        shown = shown_process(view, process, gpu.uuid).gpu_busy_percent
        assert (shown == shown_gpu(view, gpu).reading.busy_percent) is is_same


# -- a sign for each finding ----------------------------------------------------------------------


@pytest.mark.parametrize(
    ("size", "worded"), [((120, 40), True), ((80, 24), True), ((40, 12), False)]
)
def test_every_gpu_with_a_finding_has_its_sign(size: tuple[int, int], worded: bool) -> None:
    """Also beside the word for its state, for which a narrow screen has no room; no other has."""
    what = scene("starved", 8)
    view = view_of(what, diagnosis=diagnosis(what.now, starved(what.now)))
    frame = overview.draw(view, *size)
    lines = gpu_lines(frame, what.now.gpus[0].uuid)
    assert "".join(lines).count("▲") == 1
    assert any("starved" in line for line in lines) == worded
    assert "▲" not in "".join(gpu_lines(frame, what.now.gpus[1].uuid))


def test_a_finding_that_is_no_state_has_a_sign() -> None:
    """Bad memory says nothing about how busy the GPU is, and has another shape."""
    what = scene("starved", 8)
    view = view_of(what, diagnosis=diagnosis(what.now, degraded(what.now)))
    assert gpu_lines(overview.draw(view, 120, 40), what.now.gpus[0].uuid)[0].startswith("│▌○0 ")


def title_of_gpus(frame: Frame) -> str:
    return next(
        line for line in texts(frame.lines) if re.search(r"─ (GPUs|\d+ [^─]*) ─ \[\] ", line)
    )


@pytest.mark.parametrize("count", [8, 16])
def test_limits_of_gpus_of_a_kind_are_said_once(count: int) -> None:
    """With the headings of their numbers, and their name in the title; where one differs each has
    its own."""
    what = scene("starved", count)
    alike = overview.draw(view_of(what), 200, 50)
    title = title_of_gpus(alike)
    assert f"─ {count} NVIDIA H200, all in use ─" in title
    assert "mem/140.4G  power/700W  temp/87C" in title
    rows = [line for one in what.now.gpus for line in gpu_lines(alike, one.uuid)]
    assert rows
    assert not any("700W" in row or "140.4G" in row or "H200" in row for row in rows)
    gpus = list(what.now.gpus)
    other = dataclasses.replace(gpus[0].identity, temperature_slowdown_celsius=80.0)
    gpus[0] = dataclasses.replace(gpus[0], identity=other)
    mixed = view_of(what, snapshot=dataclasses.replace(what.now, gpus=tuple(gpus)))
    assert "/700W" in " ".join(texts(overview.draw(mixed, 200, 50).lines))


@pytest.mark.parametrize("scenario", ["starved", "mixed", "lost"])
@pytest.mark.parametrize(("count", "size"), [(8, (200, 50)), (8, (120, 40)), (16, (120, 40))])
def test_numbers_stand_below_their_headings(
    scenario: str, count: int, size: tuple[int, int]
) -> None:
    """Each ends where its heading does, whatever is read, unusual or not known."""
    what = scene(scenario, count)
    frame = overview.draw(view_of(what), *size)
    title = title_of_gpus(frame)
    headings = re.search(r"mem.*[^ ─┤]", title)
    assert headings is not None
    ends = [one.end() + headings.start() for one in re.finditer(r"\S+", headings[0])]
    for one in what.now.gpus:
        row = gpu_lines(frame, one.uuid)[0]
        assert [end for end in ends if row[end - 1] == " " or row[end] != " "] == [], row


def test_what_is_unusual_stands_below_the_state() -> None:
    """With the name of a GPU whose kind is not said above, and who uses it."""
    what = scene("mixed", 8)
    frame = overview.draw(view_of(what), 120, 40)
    below = [gpu_lines(frame, one.uuid)[1].split("│")[1].strip() for one in what.now.gpus]
    users = ["ada train.py", "grace", "linus", "barbara", "ken", "thermal"]
    kinds = ["H200", "H200", "A100-SXM4", "RTX 4090", "H200", "H200"]
    assert below[:6] == [f"{kind}  {user}" for kind, user in zip(kinds, users, strict=True)]


@pytest.mark.parametrize(("width_now", "said"), [(16, False), (4, True)])
def test_a_pcie_link_is_said_where_it_is_slower_than_it_can_be(width_now: int, said: bool) -> None:
    """Of a GPU at work: an idle one lowers it."""
    gpus = []
    for index, busy in enumerate((90.0, 0.0, 90.0)):
        one = gpu(f"GPU-{index}", index, busy_percent=busy, pcie_generation=5, pcie_width=width_now)
        limits = {"pcie_generation_max": 5, "pcie_width_max": 16}
        gpus.append(dataclasses.replace(one, identity=dataclasses.replace(one.identity, **limits)))
    frame = overview.draw(view_of(snapshot(gpus=tuple(gpus))), 120, 40)
    shown = ["PCIe gen5 x4 of gen5 x16" in " ".join(gpu_lines(frame, one.uuid)) for one in gpus]
    assert shown == [said, False, said]


@pytest.mark.parametrize(
    ("share", "drawn_as"),
    [
        *((0.0, "╌╌╌╌╌╌"), (0.001, "╾╌╌╌╌╌"), (0.5, "━━━╌╌╌"), (0.58, "━━━╾╌╌")),
        *((0.93, "━━━━━╾"), (0.999, "━━━━━╾"), (1.0, "━━━━━━"), (1.2, "━━━━━━")),
    ],
)
def test_a_gauge_is_full_at_its_limit_alone(share: float, drawn_as: str) -> None:
    """And empty at nothing alone; half a cell is drawn."""
    assert "".join([text for text, _ in gauge(UNICODE, share, 6, "gauge")]) == drawn_as


@pytest.mark.parametrize(("second", "coloured"), [("warning", 1), ("error", 2)])
def test_the_finding_that_leads_and_errors_are_written_in_the_colour_of_their_severity(
    second: str, coloured: int
) -> None:
    """Of other findings only the sign is."""
    what = scene("starved", 2)
    one, other = starved(what.now), starved(what.now, 1, severity=second)
    view = view_of(what, diagnosis=diagnosis(what.now, one, other))
    runs = [run for line in overview.draw(view, 120, 40).lines for run in line]
    alarms = [text for text, style in runs if style in {"warn", "error"} and "waits" in text]
    assert len(alarms) == coloured
    signs = [text for text, style in runs if text.strip(" ▲■") == "" and style in {"warn", "error"}]
    assert len([text for text in signs if text.strip()]) + len(alarms) >= 2


def test_in_the_list_the_selected_finding_is_written_in_the_colour_of_its_severity() -> None:
    """Of the others the sign alone is."""
    what = scene("starved", 2)
    view = view_of(what, diagnosis=diagnosis(what.now, starved(what.now), starved(what.now, 1)))
    runs = [run for line in draw_findings(view, 120, 40).lines for run in line]
    alarms = [text.strip(" ▲") for text, style in runs if style in {"warn", "s:warn"}]
    assert len([text for text in alarms if text]) == 1
    assert len([text for text, style in runs if "▲" in text and style.endswith("warn")]) >= 2


# -- lists that are longer than the screen --------------------------------------------------------


@pytest.mark.parametrize("size", [(200, 50), (120, 40), (80, 24), (40, 12)], ids=str)
def test_a_table_says_how_many_rows_are_out_of_sight(size: tuple[int, int]) -> None:
    """Below, and above once it is scrolled; nothing where all are seen."""
    many = [Process(pid=5000 + n, gpu_uuid="GPU-a", command="x") for n in range(90)]
    view = view_of(machine(*many))
    frame = overview.draw(view, *size)
    seen = sum(zone.action == "process" for zone in frame.zones)
    heading = next(line for line in texts(frame.lines) if "COMMAND" in line)
    assert f"▼{90 - seen}" in heading
    view.selected_row = frame.table[-1].key
    heading = next(line for line in drawn(view, *size) if "COMMAND" in line)
    assert f"▲{90 - seen}" in heading
    assert not re.search(r"▼\d", heading)
    few = drawn(view_of(machine(many[0])), *size)
    assert not re.search(r"[▲▼]\d", next(line for line in few if "COMMAND" in line))


def test_a_filter_is_said_before_what_is_out_of_sight() -> None:
    """Rows that are left out must be said first, whatever room there is."""
    many = [Process(pid=5000 + n, gpu_uuid="GPU-a", command="x") for n in range(90)]
    view = view_of(machine(*many), filter_text="x")
    for width in (60, 80, 120, 200):
        assert "filter: x" in "".join(drawn(view, width, 24))


# -- looking at the past --------------------------------------------------------------------------

LOADER = FindingMark(
    rule="loader_cpu_bound",
    severity="warning",
    summary="GPU 0 sat idle 66% of the time while all 6 loader workers kept a core busy",
    short=("{gpus} {gpus|waits|wait} for data {66}%: 6 workers maxed out",),
    change="num_workers 6 -> 9",
    gpus=("GPU-a",),
    begin_seconds=20.0,
    end_seconds=60.0,
    lost_share=0.664,
)


def looking_back(at: float, *marks: FindingMark) -> View:
    """At a moment of a machine of which nothing is found now, at 1200 s on its clock."""
    now = snapshot(1200.0, gpus=TWO_GPUS, taken_at_unix_seconds=101_200.0)
    view = view_of(now, diagnosis=diagnosis(now))
    view.spans, view.timeline = marks, Timeline(1200.0, 1200.0, at)
    return view


@pytest.mark.parametrize("size", [(120, 40), (80, 24)], ids=str)
def test_the_past_is_said_before_what_holds_now(size: tuple[int, int]) -> None:
    """What was found at the moment that is looked at comes first, then quietly the verdict of now;
    how long ago that was is in the header, and when in the row of what else is known of it."""
    frame = overview.draw(looking_back(40.0, LOADER), *size)
    lines = texts(frame.lines)
    assert "19m20 AGO" in lines[0]
    first = next(y for y, line in enumerate(lines) if "then: " in line)
    assert "66%" in lines[first]
    assert ("num_workers 6 -> 9" in lines[first + 1]) is (size[1] == 40)
    later = next(y for y, line in enumerate(lines) if "now: " in line)
    assert later > first
    assert {style for text, style in frame.lines[later] if "now: " in text} == {"label"}
    clock = time.strftime("%H:%M:", time.localtime(100_040))
    (said,) = [y for y, line in enumerate(lines) if re.search(rf"{clock}\d\d.* GPU 0 ", line)]
    assert said == len(lines) - 2 - (size[1] == 40)
    assert not re.search(r"\d\d:\d\d", lines[0])
    assert sum("ago" in line.lower() for line in lines) == 1


def test_a_moment_at_which_nothing_was_found_says_so() -> None:
    """Findings before and after it are not about it; on a screen with one line it has that."""
    for size in ((120, 40), (80, 24), (40, 12)):
        assert "no finding held" in "\n".join(drawn(looking_back(200.0, LOADER), *size))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
def test_a_past_of_which_no_process_is_kept_is_blank(size: tuple[int, int]) -> None:
    """With one note on it, and without the columns of readings. Only charts on the page's time axis
    show the cursor, as that of the CPU does."""
    view = view_of(scene("starved", 1, seconds=60))
    now = view.window.now
    view.timeline = Timeline(300.0, now, now - 200.0)
    frame = overview.draw(view, *size)
    rows = [plain(frame.lines[zone.y]) for zone in frame.zones if zone.action == "process"]
    assert rows
    assert not any(re.search(r" - | -$", row) for row in rows)
    noted = [line for line in map(plain, frame.lines) if "3 processes now" in line]
    assert len(noted) == 1
    assert "not kept so far back" in noted[0]
    assert not re.search("GPU-MEM| CPU |THR", noted[0])
    under = [
        sum(len(text) for text, style in line if style.startswith("c:")) for line in frame.lines
    ]
    assert max(under) == 1
    host = next(y for y, line in enumerate(map(plain, frame.lines)) if "cores" in line)
    assert under[host - 2 : host + 1] == [1, 0, 0]
    view.timeline = Timeline()
    assert "not kept" not in "\n".join(map(plain, overview.draw(view, *size).lines))


def test_findings_of_the_past_are_counted_gravest_first() -> None:
    """Several that held at the moment: the gravest is said."""
    lost = dataclasses.replace(LOADER, severity="error", rule="gpu_lost", summary="GPU 0 is gone")
    text = "\n".join(drawn(looking_back(40.0, LOADER, lost), 120, 40))
    assert "then: GPU 0 is gone (+1 more)" in text


def test_the_sentence_of_a_past_finding_is_the_longest_that_fits() -> None:
    """Behind the word that says that it is about then, at every width."""
    long = dataclasses.replace(LOADER, summary=LOADER.summary + ", of 32 cores that it may use")
    for width, is_whole in ((160, True), (109, False)):
        text = "\n".join(drawn(looking_back(40.0, long), width, 40))
        assert (f"then: {long.summary}" in text) is is_whole
        assert "then: " in text


def test_processes_of_now_step_back_beside_charts_of_the_past() -> None:
    """The panel says that it is about now, and its rows are dim, as nothing of then is known."""
    view = view_of(scene("starved", 1, seconds=60))
    now = view.window.now
    view.timeline = Timeline(300.0, now, now - 200.0)
    frame = overview.draw(view, 120, 40)
    assert any("processes now" in line for line in texts(frame.lines))
    rows = [frame.lines[zone.y] for zone in frame.zones if zone.action == "process"]
    looks = {look for row in rows for text, look in row if not text.isspace()}
    assert {look for look in looks if not look.startswith("gauge")} <= {"dim", EDGE}


def test_what_was_not_watched_is_told_from_idle() -> None:
    """Charts say so in the part of them that has nothing, while the past is looked at."""
    view = view_of(scene("starved", 1, seconds=60))
    now = view.window.now
    view.timeline = Timeline(300.0, now, now - 200.0)
    lines = drawn(view, 80, 24)
    assert any(re.search(r"main thread +- +100", line) for line in lines)
    assert sum(re.search(r"│ +not watched +", line) is not None for line in lines) >= 2
    view.timeline = Timeline(300.0)
    assert "not watched" not in "\n".join(drawn(view, 80, 24))


def test_what_a_job_did_not_have_is_told_from_what_is_not_kept() -> None:
    """Of a chart of a job that which is blank since the job began, and before."""
    view = view_of(scene("starved", 1, seconds=60))
    now, series = view.window.now, SampledSeries()
    for ago in range(15, -1, -1):
        series.add_reading(now - ago, 50.0)
    view.timeline = Timeline(50.0, now)
    owner = Owner(now - 32.0, "no workers")
    (line,) = view.chart(("of the test",), series, 100, 100.0, "worker", owner=owner)
    assert re.fullmatch(r" +not kept +no workers +[▁-█ ]+", plain(tuple(line)))


# -- what charts mean -----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("gpus", "span", "said"), [(1, 30, False), (2, 120, True), (16, 120, False)]
)
def test_the_title_of_charts_says_what_their_lines_mean(gpus: int, span: int, said: bool) -> None:
    """Where there are some: not over short ranges, not in lists, whose charts are dots up to the
    mean, and not where the terminal has no tones."""
    what, legend = scene("starved", gpus), "bar: mean, line: highest"
    view = view_of(what)
    while view.timeline.span_seconds < span:
        view.timeline = view.timeline.zoomed(1, view.window.now)
    assert (legend in "\n".join(drawn(view, 120, 40))) is said
    view.glyphs = DOTS
    assert legend not in "\n".join(drawn(view, 120, 40))


# -- a GPU that is gone ---------------------------------------------------------------------------


def test_the_header_counts_gpus_that_are_gone_apart_from_time_that_is_lost() -> None:
    """Their word is that of their state; where all answer and no time is lost, neither is said."""
    gone, fed = scene("lost", 2), scene("healthy", 2)
    watched = diagnosis(gone.now, starved(gone.now))
    line = drawn(view_of(gone, diagnosis=watched), 140, 40)[0]
    assert re.search(r" GPU 1: no answer  the other +\d+% busy ", line)
    assert re.search(r" \d\.\d of 2 GPUs' time lost ", line)
    calm = drawn(view_of(fed, diagnosis=nothing(fed.now)), 120, 40)[0]
    assert "no answer" not in calm
    assert "lost" not in calm


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
def test_a_gpu_that_is_gone_says_since_when_and_nothing_stale(size: tuple[int, int]) -> None:
    """Its charts may reach back to when it was there; the loss is of the time since then."""
    what = scene("lost", 2)
    since = what.now.taken_at_unix_seconds - 25.0
    clock = time.strftime("%H:%M:%S", time.localtime(since))
    gone = next(place for place, gpu in enumerate(what.now.gpus) if gpu.lost)
    one = starved(
        what.now, gone, rule="gpu_lost", severity="error", since_unix_seconds=since,
        lost_share=1.0, lost_of_seconds=41.0,
    )  # fmt: skip
    view = view_of(what, diagnosis=diagnosis(what.now, one), timeline=Timeline(60.0))
    lines = drawn(view, *size)
    between = "  92% sure," if size == (120, 40) else ""
    assert any(f"100% lost{between} since {clock}" in line for line in lines)
    at = next(place for place, line in enumerate(lines) if "1 H200  no answer " in line)
    assert f" since {clock} " in lines[at]
    assert re.search(r" last read +busy \d+%  \d+W  \d+C  \d+\.\dG ", lines[at + 1])
    assert not any(" 140G" in line or " 700W" in line for line in lines[at : at + 5])
    assert " now " in "".join(lines[:at])
    assert " now " not in "".join(lines[at : at + 5])


def test_the_chart_of_a_gpu_that_is_gone_says_so_where_it_is_empty() -> None:
    """The words stand behind its last column, and move to the left with that."""
    what = scene("lost", 2)
    gone = next(gpu.uuid for gpu in what.now.gpus if gpu.lost)
    places = []
    for begin in (980.0, 990.0):
        mark = FindingMark(
            rule="gpu_lost", severity="error", summary="", gpus=(gone,), begin_seconds=begin
        )
        view = view_of(what, spans=(mark,), timeline=Timeline(60.0))
        said = [line for line in drawn(view, 120, 40) if re.search(r"   no answer *\u2502?$", line)]
        places += [line.index("no answer") for line in said]
    assert len(places) == 2
    assert places[0] < places[1]


def test_why_a_gpu_is_throttled_stands_below_how_busy_it_is() -> None:
    """The word stands beside its name."""
    lines = drawn(view_of(scene("throttled", 1)), 120, 40)
    at = next(at for at, line in enumerate(lines) if re.search(r"0 .*H200 +throttled", line))
    assert re.search(r" busy +\d+%", lines[at + 1])
    assert " thermal " in lines[at + 2]


def test_of_time_that_is_lost_while_busy_the_header_does_not_say_how_busy() -> None:
    """All GPUs of a job are 99% busy while most of them wait: that would contradict the loss."""
    what = scene("imbalanced", 2)
    every = tuple(one.uuid for one in what.now.gpus)
    for rule, said in (("straggler", False), ("loader_cpu_bound", True)):
        found = starved(what.now, rule=rule, gpus=every)
        line = drawn(view_of(what, diagnosis=diagnosis(what.now, found)), 120, 40)[0]
        assert "of 2 GPUs' time lost" in line
        assert ("% busy" in line) is said


def test_advice_comes_before_the_key_that_the_footer_has_too() -> None:
    """On a screen whose panel has two lines."""
    what = scene("starved", 2)
    advice = "Look for Xid in the kernel log, then reset the GPU or restart the machine."
    one = dataclasses.replace(starved(what.now), advice=(Advice(advice),))
    line = drawn(view_of(what, diagnosis=diagnosis(what.now, one)), 80, 24)[2]
    assert "reset the GPU or restart" in line
    assert "[d]" not in line


@pytest.mark.parametrize(("scenario", "gpus"), [("starved", 1), ("imbalanced", 4), ("mixed", 8)])
def test_a_process_alone_on_its_gpu_is_as_busy_as_the_gpu(scenario: str, gpus: int) -> None:
    """Both numbers are means over a minute, of the driver's fine samples."""
    what = scene(scenario, gpus, seconds=90)
    view, compared = view_of(what), 0
    for card in what.now.gpus:
        there = [one for one in what.now.processes if one.gpu_uuid == card.uuid]
        if len(there) == 1 and there[0].gpu_busy_percent is not None:
            compared += 1
            busy = shown_gpu(view, card).reading.busy_percent
            share = shown_process(view, there[0], card.uuid).gpu_busy_percent
            assert share == pytest.approx(busy, abs=0.1)
    assert compared


@pytest.mark.parametrize(
    ("scenario", "rule", "hue", "word"),
    [
        ("throttled", "thermal_throttle", "throttled", r"effective +(\d+)%"),
        ("imbalanced", "straggler", "waiting", r"SM active +(\d+)%"),
    ],
)
def test_what_was_busy_without_work_is_told_from_work(
    scenario: str, rule: str, hue: str, word: str
) -> None:
    """In the chart of a GPU that is held up while it is busy, work is green up to what its clock or
    its SMs say, and the rest has the hue of the cause; the number of the work stands beside it. A
    GPU of which neither is read has the hue alone."""
    what = scene(scenario, 2)
    (first, second) = what.now.gpus
    held = FindingMark(
        rule=rule,
        severity="warning",
        summary="It is held up.",
        gpus=(first.uuid, second.uuid) if hue == "waiting" else (first.uuid,),
        late=(second.uuid,) if hue == "waiting" else (),
        begin_seconds=0.0,
    )
    one = Finding(
        rule=rule, severity="warning", confidence=1.0, summary="It is held up.", cost_share=0.3,
        gpus=held.gpus, late=held.late,
    )  # fmt: skip
    view = view_of(what, diagnosis=diagnosis(what.now, one), spans=(held,))
    frame = overview.draw(view, 120, 40)
    rows = [zone.y for zone in frame.zones if zone.argument == first.uuid and zone.action == "gpu"]
    styles = {style for y in rows for _, style in frame.lines[y]}
    assert {style.partition(".")[0] for style in styles} >= {f"fed+{hue}"}
    said = re.search(word, "\n".join(plain(frame.lines[y]) for y in rows))
    assert said is not None
    assert 10 < int(said[1]) < first.reading.busy_percent
    unread = dataclasses.replace(
        view, history=history_of([without_clocks(past) for past in what.past])
    )
    frame = overview.draw(unread, 120, 40)
    styles = {style for y in rows for _, style in frame.lines[y]}
    assert not any("+" in style for style in styles)
    assert {style.partition(".")[0] for style in styles} >= {hue}


def without_clocks(one: Snapshot) -> Snapshot:
    gpus = tuple(
        dataclasses.replace(
            gpu,
            reading=dataclasses.replace(gpu.reading, sm_clock_mhz=None, sm_active_percent=None),
        )
        for gpu in one.gpus
    )
    return dataclasses.replace(one, gpus=gpus)


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)])
def test_one_gpu_has_a_chart_of_what_it_waits_for(size: tuple[int, int]) -> None:
    """Below how busy it is: that which shows the finding that leads, else its loader workers; of a
    GPU without a job its temperature. Its rows are the same whatever it is."""
    what = scene("starved", 1)
    no_job = dataclasses.replace(what.now, jobs=(), processes=())
    places = []
    for now, label in ((what.now, "workers  "), (no_job, "GPU 0 temp")):
        found = diagnosis(now, *([starved(now)] if now.jobs else []))
        lines = drawn(view_of(now, history=what.history, diagnosis=found), *size)
        places.append(
            next(y for y, line in enumerate(lines) if re.match(rf"\W*.*{label}.*│", line))
        )
    assert places[0] == places[1]


def test_a_word_that_all_gpus_have_gives_its_place_to_their_users() -> None:
    """The verdict has its colour; where one does something else each has its own."""
    what = scene("starved", 8)
    view = view_of(what)
    view.diagnosis = diagnosis(what.now, starved(what.now, gpus=tuple(g.uuid for g in view.gpus)))
    frame = overview.draw(view, 120, 40)
    rows = [gpu_lines(frame, one.uuid) for one in what.now.gpus]
    assert " starved" not in "".join(itertools.chain(*rows))
    assert [re.search(r"\d (\w+)", one[0])[1] for one in rows[::4]] == ["ada", "grace"]
    assert " train.py" in rows[0][1]
    # The first GPU of each job stands out.
    low = overview.draw(view, 80, 24)
    looks = {one.uuid: low.lines[y] for one in what.now.gpus for y in rows_of(low, one.uuid)}
    named = [style for line in looks.values() for text, style in line if text.strip() in USERS]
    assert named == ["text", "dim", "dim", "dim", "text", "dim", "text", "text"]

    some = tuple(one.uuid for one in view.gpus[:3])
    view.diagnosis = diagnosis(what.now, starved(what.now, gpus=some))
    styles = {
        style
        for line in overview.draw(view_of(what, diagnosis=view.diagnosis), 120, 40).lines
        for text, style in line
        if text.strip() == "starved"
    }
    assert styles == {"starved"}


USERS = {"ada", "grace", "linus", "barbara"}


def test_a_list_without_a_title_has_headings_beside_the_time_axis() -> None:
    """Each ends where its numbers do."""
    what = scene("mixed", 8)
    frame = overview.draw(view_of(what), 80, 24)
    axis = next(line for line in texts(frame.lines) if " mem power temp" in line)
    (numbers,) = gpu_lines(frame, what.now.gpus[0].uuid)
    assert len(axis.rstrip()) == len(numbers.rstrip())
