"""What the screens look like, as text: a picture for each size and machine worth looking at.

``UPDATE_SNAPSHOTS=1 pytest tests/tui/test_snapshots.py`` draws them anew; look at the difference
before committing it.
"""

from __future__ import annotations

import difflib
import os
from pathlib import Path

import pytest

from gpuwatch.tui.charts.glyphs import ASCII, DOTS, UNICODE
from gpuwatch.tui.charts.timeline import FindingMark, Timeline
from gpuwatch.tui.pages import detail, findings, overview
from tests.tui.diagnoses import diagnosis as diagnosis_of
from tests.tui.diagnoses import nothing, several, starved
from tests.tui.driving import driven
from tests.tui.scenes import Printed, Scene, job_drawn, job_view_of, scene, texts, view_of

FOLDER = Path(__file__).parent / "snapshots"
UPDATE = os.environ.get("UPDATE_SNAPSHOTS") == "1"

SIZES = ((200, 50), (120, 40), (80, 24), (40, 12))
GLYPHS = {glyphs.name: glyphs for glyphs in (UNICODE, DOTS, ASCII)}

OVERVIEWS = [
    *((gpus, size, "starved", "unicode") for gpus in (1, 2, 8, 16) for size in SIZES),
    (2, (80, 24), "lost", "unicode"),
    (2, (80, 24), "throttled", "unicode"),
    (8, (40, 12), "throttled", "dots"),
    (2, (120, 40), "mig", "unicode"),
    (1, (80, 24), "unified", "unicode"),
    (2, (80, 24), "starved", "ascii"),
    (0, (120, 40), "no_gpu", "unicode"),
    (0, (80, 24), "no_gpu", "unicode"),
    (0, (40, 12), "no_gpu", "unicode"),
]

PAST = [
    *((gpus, size, "unicode") for gpus in (1, 8) for size in SIZES),
    (2, (80, 24), "ascii"),
]

DETAILS = [
    ((200, 50), "starved", "unicode"),
    ((80, 24), "starved", "unicode"),
    ((80, 24), "throttled", "ascii"),
]

JOBS = [
    *((1, size, "starved", "unicode") for size in SIZES),
    (1, (80, 24), "main_process", "unicode"),
    (1, (120, 40), "unpinned", "unicode"),
    *((8, size, "imbalanced", "unicode") for size in SIZES),
    (2, (80, 24), "orphans", "unicode"),
    (2, (80, 24), "starved", "ascii"),
    (2, (40, 12), "starved", "dots"),
    (1, (80, 24), "no_gpu", "unicode"),
]


def compare(name: str, lines: list[str]) -> None:
    """Hold ``lines`` against the picture ``name``; a mismatch shows which lines differ."""
    path = FOLDER / f"{name}.txt"
    text = "".join(line.rstrip() + "\n" for line in lines)
    if UPDATE:
        FOLDER.mkdir(exist_ok=True)
        path.write_text(text, encoding="utf-8")
        return
    assert path.exists(), f"there is no picture {name} yet: run with UPDATE_SNAPSHOTS=1"
    expected = path.read_text(encoding="utf-8")
    if text != expected:
        difference = difflib.unified_diff(
            expected.splitlines(), text.splitlines(), "the picture", "drawn now", lineterm="", n=0
        )
        pytest.fail(f"{name} looks different:\n" + "\n".join(difference), pytrace=False)


def name_of(kind: str, gpus: int, size: tuple[int, int], scenario: str, glyphs: str) -> str:
    parts = [kind, f"{gpus}gpu", f"{size[0]}x{size[1]}", scenario]
    return "-".join(parts + ([] if glyphs == "unicode" else [glyphs]))


def machine(scenario: str, gpus: int) -> Scene:
    return scene(scenario, gpus, seconds=60, all_processes=scenario == "no_gpu")


@pytest.mark.parametrize(
    ("gpus", "size", "scenario", "glyphs"), OVERVIEWS, ids=[name_of("", *one) for one in OVERVIEWS]
)
def test_overview(gpus: int, size: tuple[int, int], scenario: str, glyphs: str) -> None:
    """The main screen looks as it did."""
    view = view_of(machine(scenario, gpus), glyphs=GLYPHS[glyphs])
    if scenario == "no_gpu":
        # As the application begins there.
        view.sort, view.tree = "cpu", False
    lines = texts(overview.draw(view, *size).lines)
    compare(name_of("overview", gpus, size, scenario, glyphs), lines)


@pytest.mark.parametrize(("gpus", "size", "glyphs"), PAST, ids=str)
def test_the_past(gpus: int, size: tuple[int, int], glyphs: str) -> None:
    """The main screen, scrolled back with a cursor, looks as it did."""
    view = view_of(machine("starved", gpus), glyphs=GLYPHS[glyphs])
    now = view.window.now
    view.timeline = Timeline(30.0, now - 8.0, now - 20.0)
    view.spans = (
        FindingMark(
            rule="loader_cpu_bound",
            severity="warning",
            summary="GPU 0 waits for data",
            begin_seconds=now - 22.0,
            end_seconds=now - 11.0,
        ),
    )
    lines = texts(overview.draw(view, *size).lines)
    compare(name_of("past", gpus, size, "starved", glyphs), lines)


@pytest.mark.parametrize(
    ("size", "scenario", "glyphs"), DETAILS, ids=[name_of("", 2, *one) for one in DETAILS]
)
def test_detail(size: tuple[int, int], scenario: str, glyphs: str) -> None:
    """The screen of one GPU looks as it did."""
    view = view_of(machine(scenario, 2), glyphs=GLYPHS[glyphs])
    lines = texts(detail.draw(view, *size, 0)[0].lines)
    compare(name_of("detail", 2, size, scenario, glyphs), lines)


@pytest.mark.parametrize(
    ("gpus", "size", "scenario", "glyphs"), JOBS, ids=[name_of("", *one) for one in JOBS]
)
def test_job(gpus: int, size: tuple[int, int], scenario: str, glyphs: str) -> None:
    """The screen of one job looks as it did."""
    what = scene(scenario, gpus, seconds=60, attached=True, all_processes=scenario == "no_gpu")
    if what.now.jobs:
        view = job_view_of(what, glyphs=GLYPHS[glyphs])
    else:
        view = view_of(what, glyphs=GLYPHS[glyphs])
        view.job.look_at((4242, None))
    compare(name_of("job", gpus, size, scenario, glyphs), job_drawn(view, *size))


@pytest.mark.parametrize("pane", ["small", "large"])
def test_job_with_output(pane: str) -> None:
    """The screen of a job with what it prints below it looks as it did."""
    view = job_view_of(scene("starved", 1, seconds=60, attached=True))
    view.job.output = Printed(
        [f"epoch 1 step {number} loss 0.{900 - number}" for number in range(90)]
    )
    view.job.output_name = "/home/ada/resnet/gpuwatch-run.log"
    view.job.pane = pane
    compare(f"job-output-{pane}-80x24", job_drawn(view, 80, 24))


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_job_that_has_ended(size: tuple[int, int]) -> None:
    """The screen of a job that has ended, with a report, looks as it did."""
    view = job_view_of(scene("finished", 1, seconds=70, attached=True))
    view.job.write_report = lambda width: [f"line {n} of {width} cells" for n in range(60)]
    compare(f"job-ended-{size[0]}x{size[1]}", job_drawn(view, *size))


@pytest.mark.parametrize("size", [(120, 60), (80, 24)], ids=lambda size: f"{size[0]}x{size[1]}")
async def test_help(size: tuple[int, int]) -> None:
    """The help over the dashboard looks as it did."""
    async with driven(machine("starved", 2), size) as drive:
        await drive.press("question_mark")
        strips = drive.app.screen._compositor.render_strips()
        compare(f"help-{size[0]}x{size[1]}", [strip.text for strip in strips])


FOUND = [(gpus, size) for gpus in (1, 2, 8, 16) for size in SIZES]


@pytest.mark.parametrize(("gpus", "size"), FOUND, ids=[f"{g}-{w}x{h}" for g, (w, h) in FOUND])
def test_overview_with_findings(gpus: int, size: tuple[int, int]) -> None:
    """The main screen with one finding for one GPU, and several for several, looks as it did."""
    what = machine("starved", gpus)
    view = view_of(what, diagnosis=several(what.now))
    lines = texts(overview.draw(view, *size).lines)
    compare(name_of("findings", gpus, size, "overview", "unicode"), lines)


@pytest.mark.parametrize("size", [(120, 40), (80, 24)], ids=lambda size: f"{size[0]}x{size[1]}")
def test_overview_without_findings(size: tuple[int, int]) -> None:
    """The main screen of a machine on which all is well looks as it did."""
    what = machine("healthy", 1)
    lines = texts(overview.draw(view_of(what, diagnosis=nothing(what.now)), *size).lines)
    compare(name_of("findings", 1, size, "calm", "unicode"), lines)


@pytest.mark.parametrize("glyphs", ["unicode", "ascii"])
@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_list_of_findings(size: tuple[int, int], glyphs: str) -> None:
    """The list of findings looks as it did."""
    what = machine("starved", 2)
    view = view_of(what, diagnosis=several(what.now), glyphs=GLYPHS[glyphs])
    compare(name_of("findings", 2, size, "list", glyphs), texts(findings.draw(view, *size).lines))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_evidence(size: tuple[int, int]) -> None:
    """The evidence of a finding looks as it did."""
    what = machine("starved", 1)
    finding = starved(what.now)
    view = view_of(what, diagnosis=diagnosis_of(what.now, finding))
    about = (
        "What it is.\n\nWhat it checks\n    A paragraph\n    of two lines.\n\n"
        "Sources\n    - one\n    - two"
    )
    lines, _ = findings.draw_evidence(view, finding, *size, 0, documentation=about)
    compare(name_of("findings", 1, size, "evidence", "unicode"), texts(lines))


@pytest.mark.parametrize("size", SIZES, ids=lambda size: f"{size[0]}x{size[1]}")
def test_job_with_finding(size: tuple[int, int]) -> None:
    """The screen of a job with a finding looks as it did."""
    what = scene("starved", 1, seconds=60, attached=True)
    view = job_view_of(what, diagnosis=diagnosis_of(what.now, starved(what.now)))
    compare(name_of("findings", 1, size, "job", "unicode"), job_drawn(view, *size))


def test_every_picture_belongs_to_a_test() -> None:
    """No picture is left over from a test that is gone."""
    names = {name_of("overview", *one) for one in OVERVIEWS}
    names |= {name_of("past", gpus, size, "starved", glyphs) for gpus, size, glyphs in PAST}
    names |= {name_of("detail", 2, *one) for one in DETAILS}
    names |= {name_of("job", *one) for one in JOBS}
    names |= {"help-120x60", "help-80x24", "job-output-small-80x24", "job-output-large-80x24"}
    names |= {"job-ended-80x24", "job-ended-120x40"}
    names |= {name_of("findings", gpus, size, "overview", "unicode") for gpus, size in FOUND}
    names |= {
        name_of("findings", 1, size, what, "unicode")
        for size in SIZES
        for what in ("job", "evidence")
    }
    names |= {
        name_of("findings", 2, size, "list", glyphs)
        for size in SIZES
        for glyphs in ("unicode", "ascii")
    }
    names |= {name_of("findings", 1, size, "calm", "unicode") for size in ((120, 40), (80, 24))}
    assert {path.stem for path in FOLDER.iterdir()} == names
