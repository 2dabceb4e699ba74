"""How the rows of the overview are shared out."""

from functools import cache

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.core.model import Host, Problem, Process, Snapshot
from gpuwatch.tui.pages import overview
from gpuwatch.tui.pages.layout import Page
from gpuwatch.tui.panels.gpus.painter import stacked_chart_rows
from gpuwatch.tui.panels.gpus.panel import MOST_ROWS_A_GPU
from tests.support.snapshots import gpu, snapshot
from tests.tui.diagnoses import diagnosis, starved
from tests.tui.scenes import view_of


@cache
def machine(gpus: int, processes: int, problems: int, cores: int) -> Snapshot:
    return snapshot(
        gpus=tuple([gpu(f"GPU-{index}", index) for index in range(gpus)]),
        processes=tuple([Process(pid=pid) for pid in range(1, processes + 1)]),
        problems=(Problem(source="x", message="Something cannot be read."),) * problems,
        host=Host(name="x", core_percents=(1.0,) * cores),
    )


def planned(
    width: int, height: int, gpus: int, processes: int, problems: int, cores: int, found: bool
) -> Page:
    what = machine(gpus, processes, problems, cores)
    finding = diagnosis(what, starved(what)) if found and gpus else None
    page = overview.draw(view_of(what, diagnosis=finding), width, height).plan
    assert page is not None
    return page


@settings(max_examples=150, deadline=None)
@given(
    width=st.integers(20, 250),
    height=st.integers(4, 80),
    gpus=st.integers(0, 32),
    processes=st.sampled_from([0, 1, 7, 60]),
    problems=st.integers(0, 4),
    cores=st.sampled_from([0, 4, 64, 256]),
    found=st.booleans(),
)
def test_the_rows_fit_and_what_matters_has_some(
    width: int, height: int, gpus: int, processes: int, problems: int, cores: int, found: bool
) -> None:
    """No panel has less than no rows, and together they are no more than the screen has. A row
    says something of the host, one of a GPU from 5 rows up, one of a process from 10 up; a style
    gets the rows and the width that it needs, and no more rows than it can use."""
    page = planned(width, height, gpus, processes, problems, cores, found)
    assert min(page.rows.values()) >= 0
    if height >= 9:
        assert page.room >= 0
    assert page.rows["host"] >= 1
    if height >= 10:
        assert page.room >= 2
    if gpus:
        shares = page.decided["gpus"]
        assert 1 <= shares.shown <= gpus
        assert width >= shares.style.least_width
        assert shares.style.rows <= shares.each <= MOST_ROWS_A_GPU


@pytest.mark.parametrize("rows", range(5, MOST_ROWS_A_GPU + 1))
def test_a_stacked_gpu_uses_all_its_rows(rows: int) -> None:
    """The heading and the four charts fill the rows; the waveform is never the smallest."""
    heights = stacked_chart_rows(rows)
    assert sum(heights) + 1 == rows
    assert heights[0] == max(heights)
    assert min(heights) >= 1
