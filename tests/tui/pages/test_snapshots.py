"""What the screens look like, as text: a picture for each size and machine worth looking at.

``UPDATE_SNAPSHOTS=1 pytest tests/tui/pages/test_snapshots.py`` draws them anew; look at the
difference before committing it.
"""

import difflib
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.tui.charts.timeline import FindingMark, Timeline
from gpuwatch.tui.pages import detail, findings
from gpuwatch.tui.view import View
from tests.tui.diagnoses import diagnosis as diagnosis_of
from tests.tui.diagnoses import found_on_cpu, nothing, several, starved
from tests.tui.driving import driven
from tests.tui.scenes import (
    GLYPHS,
    Printed,
    Scene,
    drawn,
    job_drawn,
    job_view_of,
    scene,
    texts,
    view_of,
    without_driver,
)

FOLDER = Path(__file__).parents[1] / "snapshots"
UPDATE = os.environ.get("UPDATE_SNAPSHOTS") == "1"

Size = tuple[int, int]
SIZES = ((200, 50), (120, 40), (80, 24), (40, 12))
SETS = {glyphs.name: glyphs for glyphs in GLYPHS}
ABOUT = (
    "What it is.\n\nWhat it checks\n    A paragraph\n    of two lines.\n\nSources\n    One. Two."
)


def machine(scenario: str, gpus: int) -> Scene:
    return scene(scenario, gpus, seconds=60, all_processes=scenario == "no_gpu")


def an_overview(scenario: str, gpus: int, size: Size, glyphs: str) -> list[str]:
    view = view_of(machine(scenario, gpus), glyphs=SETS[glyphs])
    if scenario == "no_gpu":
        # As the application begins there.
        view.sort, view.tree = "cpu", False
    return drawn(view, *size)


def the_past(scenario: str, gpus: int, size: Size, glyphs: str) -> list[str]:
    """Scrolled back, with a cursor."""
    view = view_of(machine(scenario, gpus), glyphs=SETS[glyphs])
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
    return drawn(view, *size)


def a_detail(scenario: str, gpus: int, size: Size, glyphs: str) -> list[str]:
    view = view_of(machine(scenario, gpus), glyphs=SETS[glyphs])
    return texts(detail.draw(view, *size, 0)[0].lines)


def job_view(scenario: str, gpus: int, seconds: int = 60) -> View:
    """With the job attached; where there is none, one that is not there."""
    no_gpu = scenario == "no_gpu"
    what = scene(scenario, gpus, seconds=seconds, attached=True, all_processes=no_gpu)
    if what.now.jobs:
        return job_view_of(what)
    view = view_of(what)
    view.job.look_at((4242, None))
    return view


def a_job(scenario: str, gpus: int, size: Size, glyphs: str) -> list[str]:
    view = job_view(scenario, gpus)
    view.glyphs = SETS[glyphs]
    return job_drawn(view, *size)


def with_output(pane: str) -> list[str]:
    view = job_view("starved", 1)
    view.job.output = Printed([f"epoch 1 step {n} loss 0.{900 - n}" for n in range(90)])
    view.job.output_name = "/home/ada/resnet/gpuwatch-run.log"
    view.job.pane = pane
    return job_drawn(view, 80, 24)


def that_has_ended(size: Size) -> list[str]:
    view = job_view("rerun", 1, seconds=70)
    view.job.write_report = lambda width: [
        ((f" line {n} of {width} cells".ljust(width), "text"),) for n in range(60)
    ]
    return job_drawn(view, *size)


def without_a_driver(size: Size) -> list[str]:
    """A job on the CPU of which something was found, beside the one problem that there is."""
    now = without_driver()
    view = job_view_of(now)
    view.diagnosis = diagnosis_of(now, found_on_cpu())
    return job_drawn(view, *size)


def with_findings(what: str, gpus: int, size: Size, glyphs: str) -> list[str]:
    now = machine("starved", gpus).now
    if what == "job":
        view = job_view("starved", gpus)
        view.diagnosis = diagnosis_of(view.snapshot, starved(view.snapshot))
        return job_drawn(view, *size)
    if what == "calm":
        calm = machine("healthy", 1)
        return drawn(view_of(calm, diagnosis=nothing(calm.now)), *size)
    view = view_of(machine("starved", gpus), diagnosis=several(now), glyphs=SETS[glyphs])
    if what == "overview":
        return drawn(view, *size)
    if what == "list":
        return texts(findings.draw_findings(view, *size).lines)
    finding = starved(now)
    view.diagnosis = diagnosis_of(now, finding)
    return texts(findings.draw_evidence(view, finding, *size, 0, documentation=ABOUT)[0].lines)


Wanted = tuple[Callable[[str, int, Size, str], list[str]], str, int, Size, str, str]
U = "unicode"
LARGE, MIDDLE, SMALL, TINY = SIZES
# Each size with few GPUs and with many; 16 where not all of them have a row of their own.
MACHINES = ((1, SMALL), *((gpus, size) for gpus in (2, 8) for size in SIZES), (16, MIDDLE))
WANTED: list[Wanted] = [
    (an_overview, "overview", 16, SMALL, "starved", U),
    *((an_overview, "overview", 0, size, "no_gpu", U) for size in (MIDDLE, SMALL, TINY)),
    *((an_overview, "overview", 2, SMALL, scenario, U) for scenario in ("lost", "throttled")),
    (an_overview, "overview", 8, TINY, "throttled", "dots"),
    (an_overview, "overview", 2, MIDDLE, "mig", U),
    (an_overview, "overview", 1, SMALL, "unified", U),
    (an_overview, "overview", 2, SMALL, "starved", "ascii"),
    (the_past, "past", 1, SMALL, "starved", U),
    (the_past, "past", 8, LARGE, "starved", U),
    (the_past, "past", 2, SMALL, "starved", "ascii"),
    *((a_detail, "detail", 2, size, "starved", U) for size in ((200, 50), SMALL)),
    (a_detail, "detail", 2, SMALL, "throttled", "ascii"),
    *((a_job, "job", 8, size, "imbalanced", U) for size in SIZES),
    *((a_job, "job", 1, SMALL, scenario, U) for scenario in ("main_process", "no_gpu")),
    (a_job, "job", 1, MIDDLE, "unpinned", U),
    (a_job, "job", 2, SMALL, "starved", "ascii"),
    (a_job, "job", 2, TINY, "starved", "dots"),
    *((with_findings, "findings", gpus, size, "overview", U) for gpus, size in MACHINES),
    *((with_findings, "findings", 2, size, "list", U) for size in SIZES),
    (with_findings, "findings", 2, SMALL, "list", "ascii"),
    *((with_findings, "findings", 1, s, what, U) for s in SIZES for what in ("evidence", "job")),
    *((with_findings, "findings", 1, size, "calm", U) for size in (MIDDLE, SMALL)),
]


def name_of(kind: str, gpus: int, size: Size, what: str, glyphs: str) -> str:
    parts = [kind, f"{gpus}gpu", f"{size[0]}x{size[1]}", what]
    return "-".join(parts + ([] if glyphs == U else [glyphs]))


PICTURES: dict[str, Callable[[], list[str]]] = {
    name_of(kind, gpus, size, what, glyphs): lambda draw=draw, of=(what, gpus, size, glyphs): draw(
        *of
    )
    for draw, kind, gpus, size, what, glyphs in WANTED
}
PICTURES |= {
    "job-output-small-80x24": lambda: with_output("small"),
    "job-output-large-80x24": lambda: with_output("large"),
    "job-ended-80x24": lambda: that_has_ended(SMALL),
    "job-ended-120x40": lambda: that_has_ended(MIDDLE),
    "findings-0gpu-80x24-job": lambda: without_a_driver(SMALL),
    "findings-0gpu-120x40-job": lambda: without_a_driver(MIDDLE),
}
HELP = {"help-120x40": MIDDLE, "help-80x24": SMALL}


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


@pytest.mark.parametrize("name", PICTURES)
def test_the_screen_looks_as_it_did(name: str) -> None:
    """Each machine at each size."""
    compare(name, PICTURES[name]())


@pytest.mark.parametrize("name", HELP)
async def test_the_help_looks_as_it_did(name: str) -> None:
    """Over the dashboard."""
    async with driven(machine("starved", 2), HELP[name]) as drive:
        await drive.press("question_mark")
        strips = drive.app.screen._compositor.render_strips()
        compare(name, [strip.text for strip in strips])


def test_every_picture_belongs_to_a_test() -> None:
    """No picture is left over from a test that is gone."""
    assert {path.stem for path in FOLDER.iterdir()} == {*PICTURES, *HELP}
