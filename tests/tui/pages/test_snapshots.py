"""What the screens look like, as text: a picture for each size and machine worth looking at.

``UPDATE_SNAPSHOTS=1 pytest tests/tui/pages/test_snapshots.py`` draws them anew; look at the
difference before committing it.
"""

import difflib
import os
from collections.abc import Callable
from itertools import groupby
from operator import itemgetter
from pathlib import Path

import pytest

from gpuwatch.diagnosis.engine import Engine
from gpuwatch.outputs.report.document import report_document
from gpuwatch.outputs.report.recorder import JobRecorder
from gpuwatch.tui.charts.timeline import FindingMark, Timeline
from gpuwatch.tui.pages import detail, findings, overview
from gpuwatch.tui.panels import report
from gpuwatch.tui.terminal.palette import Palette
from gpuwatch.tui.view import View
from tests.tui.diagnoses import diagnosis as diagnosis_of
from tests.tui.diagnoses import found_on_cpu, nothing, several, starved
from tests.tui.driving import driven
from tests.tui.replay.recordings import played, recorded, tape_of
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
from tests.tui.terminal.test_palette import themes

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
    if gpus > 1:
        job = next(one for one in now.jobs if len(one.gpu_uuids) > 1)
        summary = finding.summary.replace("GPU 0 waits", f"{len(job.gpu_uuids)} GPUs wait")
        finding = starved(now, gpus=job.gpu_uuids, job=job.key, summary=summary)
    view.diagnosis = diagnosis_of(now, finding)
    return texts(findings.draw_evidence(view, finding, *size, 0, documentation=ABOUT)[0].lines)


def a_report(size: Size) -> list[str]:
    """The report of the first job, as it begins."""
    what = scene("starved", 2, seconds=60, attached=True)
    engine, recorder = Engine(), JobRecorder(what.now.jobs[0].key)
    for one in what.past:
        engine.push(one)
        recorder.push(one, engine.diagnosis)
    made = report_document(recorder.report(), "text")
    return texts(report.draw(view_of(what), made, size[0]))[: size[1]]


def the_styles(size: Size) -> list[str]:
    """Names of the styles of an overview with a finding, a line for each of its lines, and below
    them which colours these have in each theme."""
    what = machine("starved", 2)
    lines = overview.draw(view_of(what, diagnosis=several(what.now)), *size).lines
    named = [
        [(name, sum(len(text) for text, _ in some)) for name, some in groupby(line, itemgetter(1))]
        for line in lines
    ]
    used = sorted({name for line in named for name, _ in line})
    palettes = [
        Palette(themes()[name]) for name in ("gpuwatch-dark", "gpuwatch-light", "ansi-dark")
    ]
    return [
        *[" ".join(f"{name}*{count}" for name, count in line) for line in named],
        *[f"{name}: {' | '.join(str(palette[name]) for palette in palettes)}" for name in used],
    ]


Wanted = tuple[Callable[[str, int, Size, str], list[str]], str, int, Size, str, str]
U = "unicode"
LARGE, MIDDLE, SMALL, TINY = SIZES
# Each size with few GPUs and with many; 16 where not all of them have a row of their own.
MACHINES = ((1, SMALL), *((gpus, size) for gpus in (2, 8) for size in SIZES), (16, MIDDLE))
WANTED: list[Wanted] = [
    *((an_overview, "overview", 16, size, "starved", U) for size in (SMALL, LARGE)),
    *((an_overview, "overview", 1, size, "starved", U) for size in (MIDDLE, LARGE)),
    *((an_overview, "overview", 0, size, "no_gpu", U) for size in (MIDDLE, SMALL, TINY)),
    *((an_overview, "overview", 2, SMALL, scenario, U) for scenario in ("lost", "throttled")),
    (an_overview, "overview", 8, TINY, "throttled", "dots"),
    (an_overview, "overview", 2, MIDDLE, "mig", U),
    (an_overview, "overview", 1, SMALL, "unified", U),
    (an_overview, "overview", 2, SMALL, "starved", "ascii"),
    (the_past, "past", 1, SMALL, "starved", U),
    (the_past, "past", 8, LARGE, "starved", U),
    (the_past, "past", 2, SMALL, "starved", "ascii"),
    *((a_detail, "detail", 2, size, "starved", U) for size in (LARGE, MIDDLE, SMALL)),
    (a_detail, "detail", 1, MIDDLE, "starved", U),
    (a_detail, "detail", 8, SMALL, "starved", U),
    (a_detail, "detail", 2, SMALL, "throttled", "ascii"),
    *((a_job, "job", 8, size, "imbalanced", U) for size in SIZES),
    *((a_job, "job", 16, size, "imbalanced", U) for size in (LARGE, MIDDLE, SMALL)),
    *((a_job, "job", 2, size, "starved", U) for size in (LARGE, MIDDLE)),
    *((a_job, "job", 1, SMALL, scenario, U) for scenario in ("main_process", "no_gpu")),
    (a_job, "job", 1, MIDDLE, "unpinned", U),
    (a_job, "job", 2, SMALL, "starved", "ascii"),
    (a_job, "job", 2, TINY, "starved", "dots"),
    *((with_findings, "findings", gpus, size, "overview", U) for gpus, size in MACHINES),
    *((with_findings, "findings", 2, size, "list", U) for size in SIZES),
    *((with_findings, "findings", gpus, SMALL, "list", U) for gpus in (1, 8)),
    (with_findings, "findings", 2, SMALL, "list", "ascii"),
    *((with_findings, "findings", 2, size, "evidence", U) for size in (MIDDLE, SMALL)),
    *((with_findings, "findings", 8, size, "evidence", U) for size in (LARGE, MIDDLE, SMALL)),
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
    "report-80x24": lambda: a_report(SMALL),
    "report-120x40": lambda: a_report(MIDDLE),
    "styles-80x24": lambda: the_styles(SMALL),
}
HELP = {"help-120x40": MIDDLE, "help-80x24": SMALL}
REPLAY = "replay-80x24"


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


async def test_the_bar_of_a_replay_looks_as_it_did(tmp_path: Path) -> None:
    """At its beginning, with all of the recording known."""
    path = recorded(tmp_path / "night.jsonl.zst")
    async with played(tape_of(path)) as drive:
        await drive.known()
        await drive.press("space")
        compare(REPLAY, drive.lines[-3:])


def test_every_picture_belongs_to_a_test() -> None:
    """No picture is left over from a test that is gone."""
    assert {path.stem for path in FOLDER.iterdir()} == {*PICTURES, *HELP, REPLAY}
