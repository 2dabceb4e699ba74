"""Every page at every size: whole lines, whole numbers, nothing that a terminal could obey."""

import re
from collections.abc import Callable, Iterable

import pytest

from gpuwatch.core import units
from gpuwatch.core.model import Gpu, GpuReading
from gpuwatch.core.registry import GPU
from gpuwatch.tui.charts.strips import ASCII
from gpuwatch.tui.pages import detail, findings, job, overview
from gpuwatch.tui.panels.gpus import QUIET, brief_name, facts, metrics, notes
from gpuwatch.tui.panels.time_axis import shown_gpu
from gpuwatch.tui.runs import Runs, mark_now
from gpuwatch.tui.terminal.frame import Line, plain
from gpuwatch.tui.view import View
from tests.support.snapshots import gpu, snapshot
from tests.tui.diagnoses import several
from tests.tui.scenes import (
    GLYPHS,
    Printed,
    Scene,
    controls,
    fresh,
    job_view_of,
    scene,
    texts,
    view_of,
    widths,
)

SIZES = ((200, 50), (120, 40), (80, 24), (40, 12), (33, 7), (20, 6), (20, 4), (13, 3), (1, 1))
ODD_SIZES = [(width, height) for width in range(1, 60, 4) for height in (1, 3, 5, 6, 8, 11, 13)]

Draw = Callable[[View, int, int], list[Line]]


def job_with_output(view: View, width: int, height: int) -> list[Line]:
    view.job.output, view.job.pane = Printed(["step 1", "step 2"]), "large"
    return job.draw(view, width, height).lines


def evidence_of(view: View, width: int, height: int) -> list[Line]:
    """Of the finding with the most of it."""
    found = () if view.diagnosis is None else view.diagnosis.findings
    one = max(found, key=lambda one: len(one.evidence), default=None)
    if one is None:
        return findings.draw_findings(view, width, height).lines
    about = "x " * 90
    size = (width, height)
    frame, _ = findings.draw_evidence(view, one, *size, 3, gone_at=0.0, documentation=about)
    return frame.lines


PAGES: dict[str, Draw] = {
    "overview": lambda view, *size: overview.draw(view, *size).lines,
    "detail": lambda view, *size: detail.draw(view, *size, 0)[0].lines,
    "detail, scrolled": lambda view, *size: detail.draw(view, *size, 10_000)[0].lines,
    "job": lambda view, *size: job.draw(view, *size).lines,
    "job with output": job_with_output,
    "findings": lambda view, *size: findings.draw_findings(view, *size).lines,
    "evidence": evidence_of,
}


def seen(what: Scene, **fields: object) -> View:
    """With findings, and looking at a job, where there are any."""
    if what.now.gpus:
        fields = {"diagnosis": several(what.now)} | fields
    view = job_view_of(what, **fields) if what.now.jobs else view_of(what, **fields)
    view.mark = mark_now(view, what.now, view.diagnosis, Runs())
    return view


MACHINES = (
    *(("starved", gpus) for gpus in (0, 1, 8, 16)),
    *((scenario, 1) for scenario in ("main_process", "rerun", "unified")),
    *((scenario, 2) for scenario in ("lost", "throttled", "mig", "no_gpu")),
    *(("mixed", 8), ("imbalanced", 8), ("reported", 1)),
)


@pytest.mark.parametrize("page", PAGES)
@pytest.mark.parametrize("place", range(len(MACHINES)), ids=lambda place: MACHINES[place][0])
def test_a_frame_is_exactly_as_large_as_the_screen(page: str, place: int) -> None:
    """With findings and a change: all lines, each exactly as wide, no control character; ASCII mode
    draws nothing else; from 40 columns up a simulated machine is said to be one. Each size has one
    set of glyphs, and another on the next machine."""
    scenario, gpus = MACHINES[place]
    what = scene(scenario, gpus, seconds=20)
    for number, (width, height) in enumerate(SIZES):
        glyphs = GLYPHS[(place + number) % len(GLYPHS)]
        lines = PAGES[page](seen(what, glyphs=glyphs), width, height)
        where = f"{width}x{height} {glyphs.name}"
        assert len(lines) == height, where
        assert widths(lines) == {width}, where
        text = "".join(texts(lines))
        assert not controls(text), where
        assert glyphs is not ASCII or text.isascii(), where
        assert width < 40 or "SIMULATED" in text or not text.strip(), where


@pytest.mark.parametrize("page", PAGES)
def test_any_small_size_is_drawn(page: str) -> None:
    """A pane of any width and a few rows gives exact lines, down to one cell; also before anything
    was read, and of a machine that reports nothing."""
    nothing = snapshot(gpus=(Gpu(identity=gpu().identity, reading=GpuReading()),))
    for view in (seen(scene("mig", 2, seconds=20)), View(), view_of(nothing)):
        for width, height in ODD_SIZES:
            lines = PAGES[page](fresh(view), width, height)
            assert (len(lines), widths(lines)) == (height, {width})


@pytest.mark.parametrize(
    ("page", "size", "needed"), [("overview", (30, 3), "20x4"), ("job", (30, 5), "20x6")]
)
def test_a_screen_too_small_says_what_it_needs(
    page: str, size: tuple[int, int], needed: str
) -> None:
    """A sentence instead of a torn picture."""
    assert needed in plain(PAGES[page](seen(scene()), *size)[0])


_DRAWN = re.compile("[ ▁▂▃▄▅▆▇█\u2800-\u28ff│▌├└─╵]+")
# What the panel says of a chart as a whole, its ticks, and how many GPUs are out of sight.
_OF_THE_CHART = re.compile(r"100|50|0|\d{1,3}%|\d{1,3}-\d{1,3}%|[▲▼]([\d.]+[BKMGT](/s)?|\d+)")


# Signs before words and numbers, and what is written on a chart that has too few columns.
_ASIDE = r"▲(?=[a-z0-9])|(/|every )[\d.]+ ?s"


def numbers(lines: Iterable[str]) -> set[str]:
    """The words with a digit in them, charts and frames taken away."""
    words = {word for line in lines for word in _DRAWN.split(line)}
    return {word for word in words if re.search(r"\d", word) and not _OF_THE_CHART.fullmatch(word)}


def of_gpu(one: Gpu) -> set[str]:
    """Every number that may be said of it; of a long name parts may be left out."""
    said = [one.identity.name, *(text for text, _ in notes(one))]
    for metric in metrics(one):
        said += [metric.text, metric.brief, metric.limit_text]
    for fact in facts(one):
        said += [fact.in_line, *(text for _, text in fact.pairs)]
    said += [GPU[name].text(getattr(one.reading, name)) for name in QUIET]
    names = [brief_name(one.identity, width) for width in (9, 16)]
    return numbers([*said, *names, units.gpu_label(one)])


CARDS = ("starved", "throttled", "lost", "unified", "mig", "mixed")


@pytest.mark.parametrize("scenario", CARDS)
@pytest.mark.parametrize("gpus", [2, 8])
def test_no_number_of_a_gpu_is_cut(scenario: str, gpus: int) -> None:
    """At every width (each has one of the machines, of two GPUs and of eight) a number is whole or
    not there at all."""
    what = scene(scenario, gpus)
    view = view_of(what)
    said = [*what.now.gpus, *[shown_gpu(view, gpu, facts=True) for gpu in what.now.gpus]]
    whole = {number for one in said for number in of_gpu(one)}
    for width in range(20 + CARDS.index(scenario), 131, len(CARDS)):
        frame = overview.draw(view_of(what), width, (12, 24, 50)[width // len(CARDS) % 3])
        rows = {zone.y for zone in frame.zones if zone.action == "gpu"}
        shown = numbers(re.sub(_ASIDE, " ", plain(frame.lines[y])) for y in rows)
        assert not {one for one in shown - whole if "…" not in one}, width


@pytest.mark.parametrize("scenario", ["starved", "no_gpu", "unified"])
def test_no_number_of_the_host_is_cut(scenario: str) -> None:
    """The same of the host, at every number of rows."""
    view = view_of(scene(scenario, 2))
    heights = (1, 2, 3, 6, 8, 12)
    whole = numbers(one for n in heights for one in texts(overview.draw_host(fresh(view), 600, n)))
    for width in range(20, 210):
        # The layout gives a narrow screen one line.
        rows = heights[width % 6] if width >= 48 else 1
        lines = texts(overview.draw_host(fresh(view), width, rows))
        shown = numbers(re.sub(r" [\d-]+ cores a bar", "", line) for line in lines)
        assert shown <= whole, (width, rows)
