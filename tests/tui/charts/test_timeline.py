"""Which stretch of time is shown, what is written below it, and what was found when."""

import re
from itertools import pairwise

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnosis.ledger import Episode
from gpuwatch.tui.charts.strips import HIGHEST, UNICODE, TimeWindow
from gpuwatch.tui.charts.timeline import SPANS, FindingMark, Timeline, mark_at, mark_beside, mark_of
from gpuwatch.tui.panels import time_axis
from gpuwatch.tui.panels.gpus import held_up, state_of
from gpuwatch.tui.terminal.frame import plain
from gpuwatch.tui.view import BeforeOrAfter, MarkedChange
from tests.support.snapshots import gpu, snapshot
from tests.tui.scenes import GLYPHS, history_of, scene, view_of

NOW, EARLIEST = 50_000.0, 10_000.0
STEPS = st.lists(
    st.one_of(
        st.tuples(st.just("zoom"), st.sampled_from([-1, 1])),
        st.tuples(st.just("scroll"), st.sampled_from([-1, 1])),
        st.tuples(st.just("cursor"), st.floats(EARLIEST, NOW)),
        st.tuples(st.just("none"), st.none()),
    ),
    max_size=20,
)


@given(STEPS)
def test_whatever_is_pressed_something_is_shown(steps: list[tuple[str, float]]) -> None:
    """The range is one of those there are, its end is not ahead of now nor before everything, and
    a cursor is in sight."""
    timeline = Timeline()
    for what, value in steps:
        if what == "zoom":
            timeline = timeline.zoomed(int(value), NOW)
        elif what == "scroll":
            timeline = timeline.scrolled(value / 2, NOW, EARLIEST)
        elif what == "cursor":
            timeline = timeline.with_cursor(value, NOW)
        else:
            timeline = timeline.without_cursor()
        assert timeline.span_seconds in SPANS
        end = NOW if timeline.end_seconds is None else timeline.end_seconds
        assert EARLIEST < end <= NOW
        if timeline.cursor_seconds is not None:
            slack = 1e-6 * NOW
            assert end - timeline.span_seconds - slack <= timeline.cursor_seconds <= end + slack


def test_back_and_forth_is_where_it_was() -> None:
    """Scrolling back and forth again shows the same; at now the newest is followed."""
    back = Timeline(60.0).scrolled(-0.5, NOW, EARLIEST)
    assert back.end_seconds == NOW - 30.0
    further = back.scrolled(-0.5, NOW, EARLIEST)
    assert further.scrolled(0.5, NOW, EARLIEST) == back
    assert back.scrolled(0.5, NOW, EARLIEST) == Timeline(60.0)


def test_a_cursor_that_held_the_charts_lets_them_go() -> None:
    """Set on live charts, it stops them; taken away, they follow the newest again. Charts that
    were scrolled back stay where they are."""
    assert Timeline(60.0).with_cursor(NOW - 5.0, NOW).without_cursor() == Timeline(60.0)
    back = Timeline(60.0).scrolled(-0.5, NOW, EARLIEST)
    assert back.with_cursor(NOW - 40.0, NOW).without_cursor() == back


# -- the axis -------------------------------------------------------------------------------

MIDNIGHT = 1_774_051_200.0
"""21 March 2026, 00:00 UTC."""


def tick_texts(begin: float, end: float, now: float, cells: int = 96) -> list[str]:
    every, before, texts = time_axis.ticks(begin, end, cells, now), None, []
    for moment in every.moments:
        texts.append(every.text(moment, before))
        before = moment
    return texts


def test_ticks_are_round_clock_times() -> None:
    """Seconds only where they say something; hours on the hour."""
    noon = MIDNIGHT + 12 * 3600
    assert tick_texts(noon, noon + 30, noon + 30)[:3] == ["12:00:00", "12:00:05", "12:00:10"]
    assert tick_texts(noon + 1, noon + 3601, noon + 3601)[:2] == ["12:10", "12:20"]
    assert tick_texts(noon + 60, noon + 6 * 3600, noon + 6 * 3600)[:2] == ["13:00", "14:00"]
    # Closer together where there would be one or two.
    few = tick_texts(noon + 1, noon + 131, noon + 131, cells=51)
    assert few == ["12:00:30", "12:01:00", "12:01:30", "12:02:00"]


def test_a_window_over_midnight_says_the_days() -> None:
    """The first mark of each day has its date, the others none; so has one of another day."""
    end = MIDNIGHT + 4 * 3600
    texts = tick_texts(end - 12 * 3600, end, end)
    assert texts[0] == "20 Mar 16:00"
    assert "21 Mar 00:00" in texts
    assert sum("Mar" in text for text in texts) == 2
    noon = MIDNIGHT + 12 * 3600
    assert tick_texts(noon, noon + 3600, noon + 86400)[0] == "21 Mar 12:00"


@pytest.mark.parametrize("span", SPANS)
@pytest.mark.parametrize(("cells", "least"), [(51, 2), (88, 3)])
def test_charts_of_every_range_have_times_below_them(span: float, cells: int, least: int) -> None:
    """Two on a screen of 80 columns, three on wider ones, whenever that is."""
    for now in (MIDNIGHT + 11.0, MIDNIGHT + 43_217.0):
        runs = time_axis.axis([], TimeWindow(now, span), cells, 0.0, UNICODE)
        assert "".join([text for text, _ in runs]).count(UNICODE.tick) >= least


def test_a_tick_is_never_without_its_time() -> None:
    """Where a sign would stand in the time there is none or, if there would be few, one close
    by."""
    now = MIDNIGHT + 60.0
    for begun, cells, said in (
        (8.0, 60, r"╵00:00:40 +■─+$"),
        (20.4, 60, r" +■─+╵00:00:42─+╵00:00:50─*$"),
        (9.9, 120, r"╵00:00:35 +╵00:00:40 +╵00:00:45 +■─+╵00:00:55─*$"),
    ):
        mark = FindingMark(rule="gpu_lost", severity="error", summary="", begin_seconds=now - begun)
        runs = time_axis.axis([mark], TimeWindow(now, 30.0), cells, 0.0, UNICODE)
        line = "".join([text for text, _ in runs])
        assert re.search(said, line), line
        assert len(re.findall(r"╵\d\d:\d\d:\d\d", line)) == line.count("╵")


def test_the_axis_has_both_sides_of_a_change() -> None:
    """Beside its sign, with a word for each but on narrow charts."""
    view = view_of(scene("starved", 1))
    before, after = [
        BeforeOrAfter(busy_percent=busy, samples_per_second=None, data_wait_share=None, rules=())
        for busy in (31.0, 94.0)
    ]
    at = view.window.now - 14.0
    view.mark = MarkedChange(at, 0.0, (), False, at, before, after_from=at, after=after)
    for width, said in ((120, " before 31% ◆ after 94% "), (80, " before 31% ◆ after 94% ")):
        line, _ = time_axis.draw(view, view.window, [(28, width - 29)], width)
        assert said in plain(line)
    view.mark.after = None
    line, _ = time_axis.draw(view, view.window, [(28, 51)], 80)
    assert "◆" in plain(line)
    assert "31%" not in plain(line)


@given(
    st.floats(0, 1e8),
    st.sampled_from(SPANS),
    st.integers(1, 180),
    st.lists(st.tuples(st.floats(0, 1), st.floats(0, 1)), max_size=4),
    st.sampled_from(GLYPHS),
)
def test_the_axis_is_as_wide_as_its_chart(
    now: float, span: float, cells: int, found: list[tuple[float, float]], glyphs: object
) -> None:
    """Whatever the range, the width and the findings; no sign touches a time."""
    marks = [
        FindingMark(
            rule="oscillation",
            severity="warning",
            summary="",
            begin_seconds=now - one * span * 2,
            end_seconds=now - one * span * 2 * other,
        )
        for one, other in found
    ]
    window = TimeWindow(now, span, min(span / 10, 6.0), cursor=now - span / 3)
    runs = time_axis.axis(marks, window, cells, 1e9, glyphs)  # type: ignore[arg-type]
    line = "".join([text for text, _ in runs])
    assert len(line) == cells
    assert not re.search(rf"[▲^!][{UNICODE.tick}']|\d[▲^!]", line)


def test_times_are_as_far_apart_while_the_chart_has_room() -> None:
    """A chart that is filled from step to step does not change its labels at each."""
    apart = set()
    for now in (97.0, 105.0, 115.0):
        runs = time_axis.axis([], TimeWindow(now, 30.0, 24.0), 90, 0.0, UNICODE)
        text = "".join([text for text, _ in runs])
        places = [at for at, one in enumerate(text) if one == UNICODE.tick]
        apart |= {after - before for before, after in pairwise(places)}
    assert apart == {15}


def test_marks_lie_where_the_finding_was() -> None:
    """The sign stands at the column in which it began, the line ends with it; a graver one lies on
    top."""
    found = [("error", 10, 19), ("info", 5, 12), ("warning", 60, 70)]
    cells = time_axis.mark_cells(found, 50, UNICODE)
    assert [place for place, cell in enumerate(cells) if cell is not None] == list(range(5, 20))
    assert cells[5] == (UNICODE.note, "key")
    assert cells[10] == (UNICODE.grave, "error")
    assert cells[11] == cells[19] == (UNICODE.rule, f"error.{HIGHEST}")


@pytest.mark.parametrize(
    ("rule", "ago", "state"),
    [
        (None, None, "idle"),
        ("power_throttle", None, "idle"),
        (None, 50.0, "fed"),
        ("power_throttle", 50.0, "throttled"),
        ("power_throttle", 10.0, "idle"),
        ("straggler", 50.0, "straggler"),
        ("gpu_lost", 50.0, "no answer"),
        ("loader_cpu_bound", 25.0, "starved"),
        ("oscillation", 25.0, "starved"),
        ("checkpoint_pauses", 25.0, "pauses"),
        ("busy_without_work", 25.0, "underused"),
        (None, 25.0, "in use"),
        (None, 300.0, "unknown"),
    ],
)
def test_the_state_is_that_of_the_moment_looked_at(
    rule: str | None, ago: float | None, state: str
) -> None:
    """By what was read and found then: here a GPU that was busy until 40 seconds ago, with
    a finding that held until 19 seconds ago."""
    busy = [98.0] * 70 + [0.0] * 40
    past = [
        snapshot(at=float(at), gpus=(gpu(busy_percent=percent),)) for at, percent in enumerate(busy)
    ]
    view = view_of(past[-1], history=history_of(past))
    severity, gpus = "warning", ("GPU-a",)
    if rule is not None:
        found = FindingMark(
            rule=rule, severity=severity, summary="", gpus=gpus,
            begin_seconds=0.0, end_seconds=90.0, late=gpus if rule == "straggler" else (),
        )  # fmt: skip
        view.spans = (found,)
    if ago is not None:
        view.timeline = view.timeline.with_cursor(109.0 - ago, 109.0)
    assert state_of(view, past[-1].gpus[0]).word == state


# -- marks ----------------------------------------------------------------------------------


def test_a_finding_is_a_mark_from_when_to_when_it_held() -> None:
    """It begins where the engine says it did, on the charts' clock, and ends where it was seen
    last."""
    held = Episode(rule="r", severity="info", summary="", begin_unix_seconds=1000.0)
    over = msgspec.structs.replace(held, end_unix_seconds=1020.0)
    found = [mark_of(one, 990.0) for one in (held, over)]
    assert [(one.begin_seconds, one.end_seconds) for one in found] == [(10.0, None), (10.0, 30.0)]


@pytest.mark.parametrize(("cost", "hues"), [(None, []), (0.0, []), (12.0, ["starved"])])
def test_only_what_costs_time_has_a_hue_on_the_charts(cost: float | None, hues: list[str]) -> None:
    """Errors of a link or of memory are marks, but held no GPU up."""
    view = view_of(snapshot(at=100.0, gpus=(gpu(),)))
    episode = Episode(
        rule="link_errors" if cost is None else "loader_cpu_bound",
        severity="error",
        summary="",
        gpus=("GPU-a",),
        begin_unix_seconds=1000.0,
        cost_gpu_seconds=cost,
    )
    view.spans = (mark_of(episode, 990.0),)
    assert [one.style for one in held_up(view, "GPU-a")] == hues


def test_from_mark_to_mark() -> None:
    """The one after, the one before, and none where there is none."""
    marks = [
        FindingMark(rule="r", severity="info", summary="", begin_seconds=at, end_seconds=at + 5)
        for at in (10.0, 20.0, 30.0)
    ]
    assert mark_beside(marks, 20.0, 1) is marks[2]
    assert mark_beside(marks, 20.0, -1) is marks[0]
    assert mark_beside(marks, 30.0, 1) is None
    assert mark_beside(marks, 10.0, -1) is None
    assert mark_at(marks, 21.0, 22.0) is marks[1]
    assert mark_at(marks, 26.0, 27.0) is None


def test_the_axis_says_which_findings_it_shows() -> None:
    """By its name, or how many there were, within what is shown."""
    view = view_of(scene("starved", 1))
    now = view.window.now
    for rules, said in (
        (("loader_cpu_bound",), "  loader is CPU-bound  "),
        (("gpu_lost", "loader_cpu_bound", "loader_cpu_bound"), "  GPU does not answer +1  "),
        ((), "   "),
    ):
        view.spans = [
            FindingMark(rule=rule, severity="warning", summary="", begin_seconds=now - 9.0)
            for rule in rules
        ]
        line, _ = time_axis.draw(view, view.window, [(28, 60)], 100)
        assert plain(line).startswith(said)
    view.spans = [
        FindingMark(
            rule="gpu_lost", severity="error", summary="", begin_seconds=0.0, end_seconds=1.0
        )
    ]
    line, _ = time_axis.draw(view, view.window, [(28, 60)], 100)
    assert plain(line).startswith(" " * 27)


def test_the_axis_says_that_a_finding_is_over() -> None:
    """Seen from now; at a moment in the past it is just what was found."""
    view = view_of(scene("starved", 1))
    now = view.window.now
    view.spans = [
        FindingMark(
            rule="loader_cpu_bound",
            severity="warning",
            summary="",
            begin_seconds=now - 9.0,
            end_seconds=now - 5.0,
        )
    ]
    for timeline, said in (
        (Timeline(), "  was: loader is CPU-bound "),
        (Timeline(30.0, now, now - 7.0), "  loader is CPU-bound  "),
    ):
        view.timeline = timeline
        line, _ = time_axis.draw(view, view.window, [(28, 60)], 100)
        assert plain(line).startswith(said)


def test_the_axis_says_how_much_time_it_shows() -> None:
    """Where no title says it, and the name of a finding leaves room for it."""
    view = view_of(scene("starved", 1))
    line, _ = time_axis.draw(view, view.window, [(28, 60)], 100, has_range=True)
    assert plain(line)[:28].endswith(" 30s ")
