"""The detail of one GPU as a drawing."""

import re
from dataclasses import replace
from itertools import pairwise
from typing import Any

import pytest

from gpuwatch.core.model import Process, XidError
from gpuwatch.tui.charts.timeline import Timeline
from gpuwatch.tui.pages import detail, overview
from gpuwatch.tui.pages.detail import grouped_readings, readings
from gpuwatch.tui.panels.gpus import LEAD
from gpuwatch.tui.panels.time_axis import shown_gpu
from gpuwatch.tui.view import View
from tests.support.snapshots import gpu, snapshot
from tests.tui.diagnoses import diagnosis, starved
from tests.tui.scenes import drawn, history_of, scene, texts, view_of

SCENARIOS = ("starved", "throttled", "lost", "unified", "mig")


def lines_of(view: View, width: int, height: int, offset: int = 0) -> list[str]:
    return texts(detail.draw(view, width, height, offset)[0].lines)


def whole(view: View, width: int) -> str:
    """Everything a screen of this width shows when it is scrolled from end to end."""
    out: list[str] = []
    offset = 0
    while True:
        frame, reached = detail.draw(view, width, 40, offset)
        if reached < offset:
            return "\n".join(out + texts(frame.lines))
        out += texts(frame.lines)
        offset = reached + 30


def test_a_reading_that_is_late_says_its_age() -> None:
    """In the list of readings, beside its number; the others say none."""
    late = gpu(
        busy_percent=47.0,
        temperature_celsius=41.0,
        fan_percent=30.0,
        late_readings=(("temperature_celsius", 12.0), ("fan_percent", 95.0)),
    )
    known = {label: text for label, text, _ in readings(late)[0]}
    assert known["temperature"] == "41C (12s old)"
    assert known["fan"] == "30% (1m35 old)"
    assert known["busy"] == "47%"


def test_errors_of_the_driver_are_named_with_their_times() -> None:
    """The newest first, in the colour of an error; a GPU without any has no such line."""
    told = replace(gpu(), xid_errors=(XidError(43, 1, 5.0), XidError(31, 2, 65.0)))
    rows = {label: (text, style) for label, text, style in readings(told)[0]}
    text, style = rows["Xid errors"]
    assert re.fullmatch(r"31 x2 \(\d\d:\d\d:\d\d\), 43 \(\d\d:\d\d:\d\d\)", text)
    assert style == "error"
    assert "Xid errors" not in [row[0] for row in readings(replace(told, xid_errors=()))[0]]


def test_errors_of_links_are_shown_where_there_are_any() -> None:
    """Each kind with its number; a card whose links are sound has no such line."""
    told = gpu(pcie_replay_count=1, nvlink_recovery_count=2, nvlink_crc_count=0)
    rows = {label: (text, style) for label, text, style in readings(told)[0]}
    assert rows["link errors"] == ("2 NVLink restarts, 1 PCIe replay", "warn")
    sound = readings(gpu(pcie_replay_count=0, nvlink_recovery_count=None))[0]
    assert "link errors" not in [row[0] for row in sound]


def test_memory_without_errors_is_one_line() -> None:
    """One that had some, or of which a counter was not read, has a line for each that was."""
    counts: dict[str, Any] = {
        "ecc_corrected_count": 0, "ecc_uncorrected_count": 0, "remapped_rows_correctable": 0,
        "remapped_rows_uncorrectable": 0, "remapped_rows_failed": False,
        "remapped_rows_pending": False,
    }  # fmt: skip

    def health(**fields: Any) -> list[tuple[str, str]]:
        groups, _ = grouped_readings(gpu(**(counts | fields)))
        return [(label, text) for label, text, _ in groups["links, health"]]

    assert health()[-1] == ("ECC", "no errors, no remaps")
    assert not [label for label, _ in health() if label.startswith(("ECC ", "remap"))]
    assert ("ECC corrected", "2") in health(ecc_corrected_count=2)
    assert ("remap pending", "yes") in health(remapped_rows_pending=True)
    unread = health(remapped_rows_failed=None)
    assert ("ECC uncorrected", "0") in unread
    assert "remap failed" not in dict(unread)


def test_readings_stand_in_groups_with_a_heading_each() -> None:
    """A group of which nothing was read has none."""
    text = whole(view_of(scene("healthy", 1)), 80)
    for heading in ("activity", "memory", "power, clocks", "links, health", "identity"):
        assert re.search(rf" {heading}( |$)", text, re.MULTILINE), heading
    bare = snapshot(gpus=(gpu(busy_percent=0.0),))
    assert " links" not in whole(view_of(bare), 80)


@pytest.mark.parametrize("width", [40, 200])
@pytest.mark.parametrize("scenario", SCENARIOS)
def test_every_reading_the_gpu_reports_is_there(width: int, scenario: str) -> None:
    """By scrolling, every reading can be reached, with its label and its numbers uncut."""
    what = scene(scenario, 2)
    for one in what.now.gpus:
        view = view_of(what, selected_gpu=one.uuid)
        text = whole(view, width)
        for label, value, _ in readings(shown_gpu(view, one, facts=True))[0]:
            if value in {"0%", "0B/s"} and re.match("encoder|decoder|NVLink", label):
                # Zeros that say nothing.
                assert re.search(rf" {label.split()[0]}[ ,]", text)
                continue
            # A limit may stand behind what it limits, beside a chart, and labels there are short.
            beside = label in {"power limit", "slowdown at"} or width < 60
            assert f" {label} " in text or beside or label.startswith("PCIe rx")
            numbers = re.sub(r"(/[0-9.]+)?[^0-9]+$", "", value)
            if label not in {"UUID", "throttled"} and len(numbers) <= width - 21:
                assert numbers in text, label


@pytest.mark.parametrize("width", [80, 200])
def test_what_is_not_reported_is_listed_and_not_zero(width: int) -> None:
    """Readings this GPU does not have are named once, without a number."""
    bare = snapshot(gpus=(gpu(busy_percent=0.0),), processes=(Process(pid=7, gpu_uuid="GPU-a"),))
    text = whole(view_of(bare), width)
    assert " not reported " in text
    missing = readings(bare.gpus[0])[1]
    assert "power limit" in missing
    for label in missing:
        assert re.search(rf" {re.escape(label)}(,|\s)", text), label
        assert not re.search(rf" {re.escape(label)} +[0-9]", text), label


def test_a_gap_is_blank() -> None:
    """Time in which nothing was read has nothing drawn."""
    past = [
        snapshot(at=float(second), gpus=(gpu(busy_percent=None if 60 <= second <= 80 else 50.0),))
        for second in range(41, 101)
    ]
    view = view_of(past[-1], history=history_of(past), timeline=Timeline(60.0))
    lines = lines_of(view, 80, 24)
    row = next(line for line in lines if " 0│" in line)
    stretches = re.findall("█+", row)
    assert len(stretches) == 2, row


def test_its_processes_and_no_others_are_listed() -> None:
    """The table below has the processes on this GPU and their children."""
    what = scene("healthy", 2)
    one, other = what.now.gpus
    here = {p.pid for p in what.now.processes if p.gpu_uuid == one.uuid}
    there = {p.pid for p in what.now.processes if p.gpu_uuid == other.uuid}
    text = whole(view_of(what, selected_gpu=one.uuid), 200)
    assert all(re.search(rf"\b{pid}\b", text) for pid in here)
    assert not any(re.search(rf"\b{pid}\b", text) for pid in there - here)


def test_the_detail_leaves_the_view_of_the_overview_alone() -> None:
    """Drawing it changes neither filter nor selection nor sort of the table behind it."""
    what = scene("healthy", 2)
    view = view_of(what, filter_text="python", sort="cpu", process_offset=3)
    process = what.now.processes[2]
    view.selected_row = (process.pid, process.started_at_unix_seconds, process.gpu_uuid)
    before = (view.filter_text, view.sort, view.process_offset, view.selected_row, view.tree)
    detail.draw(view, 120, 40, 0)
    assert before == (
        *(view.filter_text, view.sort, view.process_offset, view.selected_row, view.tree),
    )


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)], ids=str)
def test_charts_stand_below_the_verdict_on_one_time_axis(size: tuple[int, int]) -> None:
    """They begin where those of a job do, and what was found is said as on other pages; the UUID
    stands on the page, whole."""
    what = scene("starved", 2)
    now = what.now
    view = view_of(what, diagnosis=diagnosis(now, starved(now)))
    lines = lines_of(view, *size)
    said = next(line for line in drawn(view, *size) if "\u25b2" in line)
    at = next(place for place, line in enumerate(lines) if "\u25b2" in line)
    assert lines[at].split("\u25b2")[1].split()[:3] == said.split("\u25b2")[1].split()[:3]
    busy = next(line for line in lines if re.search(r"^\W*busy ", line))
    boxed = size[1] >= 30
    assert busy.rindex("100\u2502") + 3 == LEAD - 1 + boxed
    assert lines.index(busy) > at
    assert len([line for line in lines if "\u2575" in line]) == 1
    assert now.gpus[0].uuid in whole(view, size[0])


def test_a_gpu_of_which_nothing_was_found_says_so() -> None:
    """What was found elsewhere is no finding about it, and is counted."""
    what = scene("healthy", 2)
    found = starved(what.now)
    view = view_of(what, diagnosis=diagnosis(what.now, replace(found, gpus=found.gpus[:1])))
    view.selected_gpu = what.now.gpus[1].uuid
    assert "nothing found on this GPU (1 elsewhere: d)" in "\n".join(lines_of(view, 120, 40))


def test_readings_of_now_stand_below_the_means() -> None:
    """Charts with room for them have them, but not of a moment of the past."""
    view = view_of(scene("starved", 1))
    lines = lines_of(view, 120, 40)
    for label, unit in (("busy", "%"), ("power", "W")):
        at = next(place for place, line in enumerate(lines) if re.search(rf"^\W*{label} ", line))
        assert re.search(rf"^\W*now +\d+{unit} ", lines[at + 1])
    view = view_of(scene("starved", 1), timeline=Timeline(cursor_seconds=990.0))
    assert not any(re.search(r"^\W*now ", line) for line in lines_of(view, 120, 40))


def test_charts_go_to_the_edge() -> None:
    """Readings of now stand before them, and nothing behind."""
    lines = lines_of(view_of(scene("healthy", 1)), 80, 24)
    row = next(line for line in lines if re.search(r"^ *busy ", line))
    assert len(row.rstrip()) == 79


@pytest.mark.parametrize("width", [40, 80, 200])
def test_levels_stand_above_the_charts_with_their_limits(width: int) -> None:
    """Gauges are in one line where it has room for them; they have no place on the time axis."""
    lines = lines_of(view_of(scene("healthy", 1)), width, 24)
    busy = next(place for place, line in enumerate(lines) if re.search(r"^\W*busy ", line))
    above = "\n".join(lines[:busy])
    for text in ("31.6/140.4G", "/87C", "/1980MHz"):
        assert text in above
    assert len([line for line in lines[:busy] if "\u2501" in line]) == (3 if width < 60 else 1)


def test_a_level_that_was_found_to_be_the_fault_has_a_chart() -> None:
    """A GPU that is too hot has those of its clock and its temperature below how busy it is."""
    what = scene("throttled", 1)
    found = starved(what.now, rule="thermal_throttle", short=())
    lines = lines_of(view_of(what, diagnosis=diagnosis(what.now, found)), 120, 40)
    rows = [line for line in lines if re.search(r" (100|1980|87C)\u2502", line)]
    assert [line[1:14].strip() for line in rows][:3] == ["busy", "SM clock", "temperature"]


def test_who_uses_a_gpu_is_seen_at_once() -> None:
    """A page that is too low for all its readings has the processes above them."""
    what = scene("starved", 1)
    pid = next(one.pid for one in what.now.processes if one.gpu_uuid)
    assert any(f" {pid} " in line for line in lines_of(view_of(what), 80, 24))


def test_what_a_gpu_does_stands_beside_its_name() -> None:
    """With the reason why it is throttled in place of the word; one that is gone has
    the same word as elsewhere."""
    for scenario, said in (
        ("throttled", "throttled: thermal"),
        ("healthy", "fed"),
        ("lost", "no answer"),
    ):
        what = scene(scenario, 2)
        gone = next((gpu for gpu in what.now.gpus if gpu.lost), what.now.gpus[0])
        for size in ((80, 24), (120, 40)):
            lines = lines_of(view_of(what, selected_gpu=gone.uuid), *size)
            assert re.search(rf"NVIDIA H200 +{said}", lines[1]), lines[1]


def test_a_label_stands_together_with_its_number_on_wide_screens() -> None:
    """More columns of readings instead, and a blank line between two groups in one."""
    lines = lines_of(view_of(scene("healthy", 1)), 200, 50)
    heads = next(line for line in lines if " activity " in line)
    names = ("activity", "memory", "power, clocks", "links, health", "identity")
    starts = [heads.index(f"{name} ") for name in names]
    assert all(0 < later - one <= 44 for one, later in pairwise(starts))
    narrow = lines_of(view_of(scene("healthy", 1)), 120, 40)
    at = next(place for place, line in enumerate(narrow) if re.search(r" links, health  ", line))
    assert not narrow[at - 1][41:80].strip()


def test_zeros_that_say_nothing_are_in_one_line() -> None:
    """An encoder that works has a line of its own."""
    what = scene("healthy", 1)
    assert re.search(r" zero +encoder, decoder", whole(view_of(what), 120))
    busy = replace(what.now.gpus[0].reading, encoder_percent=30.0)
    now = replace(what.now, gpus=(replace(what.now.gpus[0], reading=busy),))
    text = whole(view_of(now), 120)
    assert re.search(r" zero +decoder", text)
    assert re.search(r" encoder +\d+%", text)


def test_numbers_of_readings_end_in_one_column() -> None:
    """Of each column of readings, a blank or more before the frame."""
    lines = lines_of(view_of(scene("healthy", 1)), 120, 40)
    rows = [line for line in lines if re.search(r"SM occupancy|tensor active|DRAM active", line)]
    assert len({line.index("%") for line in rows}) == 1
    assert all(line.rstrip("\u2502").endswith(" ") for line in lines if "driver" in line[2:])


def test_an_instance_without_utilisation_shows_how_active_its_sms_are() -> None:
    """MIG: the first chart is that of its SMs, on its page and on the overview."""
    what = scene("mig", 2)
    one = next(gpu for gpu in what.now.gpus if gpu.identity.mig_instance is not None)
    view = view_of(what, selected_gpu=one.uuid)
    lines = texts(detail.draw(view, 120, 40, 0)[0].lines)
    at = next(place for place, line in enumerate(lines) if re.search(r"^\W*SM active ", line))
    assert "\u2588" * 20 in lines[at + 2]
    shown = texts(overview.draw(view, 120, 40).lines)
    at = next(place for place, line in enumerate(shown) if "H200 MIG" in line)
    assert re.search(r"\d+%", shown[at - 1])
    assert "\u2588" * 20 in shown[at]
