"""How the rows of a screen are shared out, and that what a GPU does is seen at every size."""

import re
from dataclasses import replace
from functools import cache
from types import ModuleType

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.core.model import Host, Problem, Process, Snapshot
from gpuwatch.tui.charts.strips import FULL, SHADES, UNICODE, Glyphs
from gpuwatch.tui.charts.timeline import Timeline
from gpuwatch.tui.pages import job, overview
from gpuwatch.tui.pages.layout import MOST_ROWS_A_GPU, abreast
from gpuwatch.tui.panels.gpus import STATES
from gpuwatch.tui.runs import Runs, mark_now
from gpuwatch.tui.terminal.frame import plain
from gpuwatch.tui.view import View
from tests.support.snapshots import gpu, snapshot
from tests.tui.diagnoses import diagnosis, nothing, several, starved
from tests.tui.scenes import GLYPHS, job_view_of, machine, member, one_job, scene, view_of


@cache
def with_gpus(gpus: int, processes: int, problems: int, cores: int) -> Snapshot:
    return snapshot(
        gpus=tuple([gpu(f"GPU-{index}", index) for index in range(gpus)]),
        processes=tuple([Process(pid=pid) for pid in range(1, processes + 1)]),
        problems=(Problem(source="x", message="Something cannot be read."),) * problems,
        host=Host(name="x", core_percents=(1.0,) * cores),
    )


@given(
    width=st.integers(20, 250),
    height=st.integers(4, 80),
    gpus=st.integers(0, 32),
    cores=st.sampled_from([0, 4, 64, 256]),
)
def test_the_rows_fit_and_what_matters_has_some(
    width: int, height: int, gpus: int, cores: int
) -> None:
    """No panel has less than no rows, and together they are no more than the screen has. A row
    says something of the host, one of a GPU from 5 rows up, one of a process from 10 up, unless the
    GPUs of a low screen need them; a style gets the rows and the width that it needs, and no more
    rows than it can use."""
    page = overview.draw(view_of(with_gpus(gpus, 7, 1, cores)), width, height).plan
    assert min(page.rows.values()) >= 0
    if height >= 9:
        assert page.room >= 0
    all_low = 1 < gpus == page.overview.shown and height < 14
    assert page.rows["host"] >= 1 or all_low
    if height >= 10:
        assert page.room >= 2 or all_low
    if gpus:
        shares = page.overview
        assert 1 <= shares.shown <= gpus
        assert width >= shares.style.least_width
        assert shares.style.rows <= shares.each <= MOST_ROWS_A_GPU[shares.style]


SIZES = ((200, 50), (120, 40), (100, 30), (80, 24), (60, 20), (40, 12))
every_size = pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
every_count = pytest.mark.parametrize("gpus", [1, 2, 4, 8, 16])


def places(view: View, size: tuple[int, int], page: ModuleType) -> list[object]:
    """Which line each part of a page begins on, and where the keys and headings stand."""
    frame = page.draw(view, *size)
    marks = [plain(line).split()[:1] for line in frame.lines]
    kept = {"gpuwatch", "ROLE", "GPU▼", "PID", "q"}
    fixed = [n for n, one in enumerate(marks) if kept.intersection(one)]
    gpus = [(zone.y, zone.argument) for zone in frame.zones if zone.action == "gpu"]
    return [frame.plan.rows, fixed, gpus, frame.plan.spans]


@every_size
@every_count
def test_no_row_moves_when_anything_comes_or_goes(size: tuple[int, int], gpus: int) -> None:
    """Processes, findings, problems, a marked change, a GPU that is held back or lost: heights
    and places are those of the size and the number of GPUs."""
    calm, full = with_gpus(gpus, 0, 0, 8), with_gpus(gpus, 60, 4, 8)
    late = replace(full.gpus[0].reading, late_readings=(("busy_percent", 130.0),))
    cards = [replace(card, reading=late, lost=gpus > 1) for card in full.gpus[:1]]
    full = replace(full, gpus=(*cards, *full.gpus[1:]))
    views = [
        view_of(calm),
        view_of(calm, diagnosis=nothing(calm)),
        view_of(full),
        view_of(full, diagnosis=diagnosis(full, starved(full))),
        view_of(full, diagnosis=several(full)),
    ]
    views[-1].mark = mark_now(views[-1], full, views[-1].diagnosis, Runs())
    assert len({str(places(view, size, overview)) for view in views}) == 1


@every_size
def test_no_row_moves_of_a_job_or_without_a_gpu(size: tuple[int, int]) -> None:
    """The same of the job's screen, while its workers come and go, and of a bare machine."""
    bare, much = (view_of(with_gpus(0, *counts, 8)) for counts in ((0, 0), (60, 4)))
    assert str(places(bare, size, overview)) == str(places(much, size, overview))
    rank = member(role="rank")
    workers = tuple(member(5000 + n, role="loader_worker", parent_pid=4242) for n in range(40))
    problem = Problem(source="x", message="Something cannot be read.")
    calm = job_view_of(machine(one_job(members=(rank,))))
    later = machine(one_job(members=(rank, *workers)), problems=(problem,) * 3)
    full = job_view_of(later, diagnosis=diagnosis(later, starved(later)))
    assert str(places(calm, size, job)) == str(places(full, size, job))


@every_size
@pytest.mark.parametrize(
    ("glyphs", "gpus"),
    [*[(glyphs, 2) for glyphs in GLYPHS], *[(UNICODE, gpus) for gpus in (1, 8, 16)]],
)
def test_a_starved_gpu_never_looks_like_a_fed_one(
    size: tuple[int, int], gpus: int, glyphs: Glyphs
) -> None:
    """However few columns a chart has and however long the range is: what is drawn solid up to the
    top is far less of it."""
    hues = {state.hue for state in STATES}
    for seconds in (30.0, 300.0):
        shares = {}
        for scenario in ("starved", "healthy"):
            what = scene(scenario, gpus, seconds=60)
            view = view_of(what, timeline=Timeline(seconds), glyphs=glyphs)
            frame = overview.draw(view, *size)
            cells: dict[object, list[bool]] = {}
            for zone in frame.zones:
                for text, style in frame.lines[zone.y] if zone.action == "gpu" else ():
                    hue, *_ = re.split("[./]", style)
                    if hue in hues and not re.search("[a-z]", text):
                        tops = glyphs.solid[6:] + "⣿" * glyphs.tones
                        solid = style.partition(".")[2][:1] in {"", FULL, *SHADES[-2:]}
                        full = [one in tops and solid for one in text]
                        cells.setdefault(zone.argument, []).extend(full)
            shares[scenario] = [sum(drawn) / len(drawn) for drawn in cells.values()]
        assert max(shares["starved"]) < 0.6 * min(shares["healthy"])


def test_lines_of_columns_are_as_wide_as_all_of_them() -> None:
    """Also one that was drawn for a column that is a cell narrower."""
    left, right = [(("ab", "text"),)], [(("c", "text"),), (("cd", "text"),)]
    lines = abreast([left, right], [2, 2], 1)
    assert [plain(line) for line in lines] == ["ab c ", "   cd"]
