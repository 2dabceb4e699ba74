"""How rows are shared out."""

from __future__ import annotations

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from gpuwatch.tui.pages.layout import MOST_ROWS_A_GPU, GpuStyle, Plan, plan, stacked_chart_rows
from gpuwatch.tui.panels.findings import most_rows

COUNTS = {
    "width": st.integers(20, 250),
    "height": st.integers(4, 80),
    "gpus": st.integers(0, 32),
    "processes": st.integers(0, 300),
    "problems": st.integers(0, 5),
    "cores": st.integers(0, 256),
    "found": st.booleans(),
}


def rows_of(shape: Plan, gpus: int) -> int:
    """All rows a plan asks for, header and footer included."""
    rules = 0
    if shape.rules:
        rules = 2 if gpus else 1
    parts = shape.problem_rows + shape.gpu_rows + shape.axis + shape.host_rows + shape.table_rows
    return 2 + shape.finding_rows + parts + rules


def rows_for_findings(height: int) -> int:
    """The most they take, with the line about a change."""
    return most_rows(height) + (height >= 16)


@settings(max_examples=400)
@given(**COUNTS)
def test_the_rows_fit(
    width: int, height: int, gpus: int, processes: int, problems: int, cores: int, found: bool
) -> None:
    """No part has less than no rows, and together they are no more than the screen has."""
    shape = plan(
        width,
        height,
        gpus=gpus,
        processes=processes,
        problems=problems,
        cores=cores,
        findings=rows_for_findings(height) if found else 0,
    )
    parts = (shape.problem_rows, shape.gpus_shown, shape.gpu_rows_each, shape.host_rows)
    assert min(*parts, shape.table_rows) >= 0
    assert rows_of(shape, gpus) <= height


@settings(max_examples=400)
@given(**COUNTS)
def test_the_host_is_always_there(
    width: int, height: int, gpus: int, processes: int, problems: int, cores: int, found: bool
) -> None:
    """At least one row says something of the host; with a GPU, one of it too from 5 rows up."""
    shape = plan(
        width,
        height,
        gpus=gpus,
        processes=processes,
        problems=problems,
        cores=cores,
        findings=rows_for_findings(height) if found else 0,
    )
    assert shape.host_rows >= 1
    assert shape.gpus_shown <= gpus
    if gpus and height >= 5:
        assert shape.gpus_shown >= 1


@given(**(COUNTS | {"height": st.integers(10, 80)}))
def test_processes_are_seen_from_ten_rows_up(
    width: int, height: int, gpus: int, processes: int, problems: int, cores: int, found: bool
) -> None:
    """The table has its heading and at least one process."""
    shape = plan(
        width,
        height,
        gpus=gpus,
        processes=processes,
        problems=problems,
        cores=cores,
        findings=rows_for_findings(height) if found else 0,
    )
    assert shape.table_rows >= 2


@given(**(COUNTS | {"gpus": st.integers(1, 32)}))
def test_a_style_is_chosen_only_where_it_fits(
    width: int, height: int, gpus: int, processes: int, problems: int, cores: int, found: bool
) -> None:
    """Each style gets the rows and the width it needs, and no more rows than it can use."""
    shape = plan(
        width,
        height,
        gpus=gpus,
        processes=processes,
        problems=problems,
        cores=cores,
        findings=rows_for_findings(height) if found else 0,
    )
    assert width >= shape.gpu_style.least_width
    assert shape.gpu_style.rows <= shape.gpu_rows_each <= MOST_ROWS_A_GPU


@given(st.integers(5, MOST_ROWS_A_GPU))
def test_a_stacked_gpu_uses_all_its_rows(rows: int) -> None:
    """The heading and the four charts fill the rows; each chart has at least one."""
    heights = stacked_chart_rows(rows)
    assert sum(heights) + 1 == rows
    assert min(heights) >= 1
    assert heights[0] == max(heights)


@pytest.mark.parametrize(
    ("width", "height", "gpus", "style"),
    [
        (200, 50, 1, GpuStyle.STACKED),
        (120, 40, 1, GpuStyle.STACKED),
        (80, 24, 1, GpuStyle.STACKED),
        (80, 24, 4, GpuStyle.PAIRED),
        (200, 50, 8, GpuStyle.PAIRED),
        (80, 24, 16, GpuStyle.SINGLE),
        (40, 12, 8, GpuStyle.SINGLE),
    ],
)
def test_the_more_room_a_gpu_has_the_more_is_drawn(
    width: int, height: int, gpus: int, style: GpuStyle
) -> None:
    """A few GPUs on a large screen get full charts, many on a small one a line each."""
    assert plan(width, height, gpus=gpus, processes=9, problems=0, cores=16).gpu_style is style


@pytest.mark.parametrize(("width", "height"), [(200, 50), (120, 40), (80, 24)])
@pytest.mark.parametrize("gpus", [1, 2, 8])
def test_up_to_eight_gpus_are_all_in_sight(width: int, height: int, gpus: int) -> None:
    """At the usual sizes nothing has to be scrolled to see eight GPUs."""
    shape = plan(width, height, gpus=gpus, processes=50, problems=0, cores=64)
    assert shape.gpus_shown == gpus
