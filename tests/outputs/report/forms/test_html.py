"""The HTML report: one file, well formed, nothing from elsewhere, nothing that a name can do."""

import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import pytest

from gpuwatch.outputs.report import html
from gpuwatch.outputs.report.comparison import Comparison, compare
from gpuwatch.outputs.report.document import comparison_document, report_document
from gpuwatch.outputs.report.html import STYLE, document_html, ticks
from gpuwatch.outputs.report.model import Report, Source, TimeProfile, replaced
from tests.support.pages import Page, measure
from tests.support.recordings import simulated, summed

HOSTILE = "</td><script>alert(1)</script><img src=x onerror=alert(2)>\"'&<!--"


def recording_html(report: Report) -> str:
    return document_html(report_document(report, "page"))


def comparison_html(comparison: Comparison) -> str:
    return document_html(comparison_document(comparison, "page"))


@pytest.fixture(scope="module")
def hostile() -> Report:
    """Everything that a person on the machine can name is hostile."""
    taken = []
    for snapshot in simulated("starved", 40):
        (job,) = snapshot.jobs
        taken.append(
            replace(
                snapshot,
                host=replace(snapshot.host, name=HOSTILE),
                processes=tuple(
                    replace(p, command=HOSTILE, user=HOSTILE, name=HOSTILE)
                    for p in snapshot.processes
                ),
                jobs=(replace(job, command=HOSTILE, user=HOSTILE),),
                gpus=tuple(
                    replace(gpu, identity=replace(gpu.identity, name=HOSTILE))
                    for gpu in snapshot.gpus
                ),
            )
        )
    return summed(taken, Source(name=HOSTILE, kind="recording", notes=(HOSTILE,)))


@pytest.mark.parametrize("scenario", ["mixed", "lost", "no_gpu", "two compared"])
def test_pages_are_well_formed_and_need_nothing_else(
    summaries: dict[str, Report], scenario: str
) -> None:
    """Tags match, the drawings are XML with a title and a description, ids are unique, and there
    is no reference to any file or host."""
    if scenario == "two compared":
        text = comparison_html(compare(summaries["starved"], summaries["healthy"]))
        assert "Gone: loader is CPU-bound" in Page(text).text
    else:
        text = recording_html(summaries[scenario])
    page = Page(text)
    assert page.faults == []
    assert not {"script", "link", "img", "iframe", "object"} & set(page.tags)
    assert not {name for _, name, _ in page.attributes} & {"src", "href", "xlink:href"}
    assert "url(" not in text
    assert "@import" not in text
    assert "://" not in text
    assert len(page.ids()) == len(set(page.ids()))
    for drawing in page.drawings:
        titles = [part.text for part in drawing if part.tag in ("title", "desc")]
        assert len(titles) == 2
        assert all(titles)
        assert set((drawing.get("aria-labelledby") or "").split()) <= set(page.ids())


def test_the_verdict_comes_first(summaries: dict[str, Report]) -> None:
    """How busy the GPUs were and why, before every figure; and that it is simulated. Of a machine
    without GPUs the CPU is shown."""
    text = Page(recording_html(summaries["starved"])).text
    assert text.index("SIMULATED") < text.index("The GPUs were busy") < text.index("Energy")
    assert "waited for data" in text[: text.index("Energy")]
    without = Page(recording_html(summaries["no_gpu"])).text
    assert "CPU" in without
    assert "None" not in without


def test_names_are_text_and_nothing_else(hostile: Report) -> None:
    """Process names, users, files and cards cannot open a tag or leave an attribute."""
    for text in (recording_html(hostile), comparison_html(compare(hostile, hostile))):
        page = Page(text)
        assert page.faults == []
        assert "script" not in page.tags
        assert "img" not in page.tags
        assert not [name for _, name, _ in page.attributes if name.startswith("on")]
        assert "<script" not in text
        assert HOSTILE.replace(" ", "") in page.text.replace(" ", "")


def test_text_has_contrast() -> None:
    """All inks on all grounds, light and dark, at least 4.5 to 1 (WCAG AA)."""
    light, dark = (dict(re.findall(r"--(\w+):(#[0-9a-f]{3,6})\b", part)) for part in _themes())
    for theme in (light, dark):
        for ink in ("ink", "soft", "accent", "warn", "bad", "good"):
            for ground in ("page", "card"):
                assert _contrast(theme[ink], theme[ground]) >= 4.5, (ink, ground)


def _themes() -> tuple[str, str]:
    light, _, rest = STYLE.partition("(prefers-color-scheme:dark)")
    return light, rest.partition("}}")[0]


def _contrast(one: str, other: str) -> float:
    low, high = sorted((_luminance(one), _luminance(other)))
    return (high + 0.05) / (low + 0.05)


def _luminance(colour: str) -> float:
    digits = colour[1:]
    if len(digits) == 3:
        digits = "".join(digit * 2 for digit in digits)
    parts = [int(digits[at : at + 2], 16) / 255 for at in (0, 2, 4)]
    linear = [p / 12.92 if p <= 0.04045 else ((p + 0.055) / 1.055) ** 2.4 for p in parts]
    return 0.2126 * linear[0] + 0.7152 * linear[1] + 0.0722 * linear[2]


def test_a_gap_in_a_course_is_no_line() -> None:
    """Each part with values is a path of its own, on the ground where nothing was used."""
    course = TimeProfile(
        minimum=(0.0, 0.0, None, 50.0),
        mean=(50.0, 50.0, None, 100.0),
        maximum=(100.0, 100.0, None, 100.0),
    )
    drawn = html.chart_svg("n", "t", "d", course, top=100.0)
    (mean,) = re.findall(r'class="mean" d="([^"]*)"', drawn)
    assert mean == "M0 50H500M750 2H1000"
    (filled,) = re.findall(r'class="fill" d="([^"]*)"', drawn)
    assert filled == "M0 100V50H500V100ZM750 100V2H1000V100Z"


def test_values_above_the_scale_stay_inside() -> None:
    """A limit that was read late is no reason to draw outside."""
    course = TimeProfile(minimum=(0.0,), mean=(500.0,), maximum=(900.0,))
    drawn = html.chart_svg("n", "t", "d", course, top=100.0)
    levels = [
        int(level)
        for level in re.findall(r"[V ](\d+)", " ".join(re.findall(r' d="([^"]*)"', drawn)))
    ]
    assert levels
    assert all(0 <= level <= html.HEIGHT for level in levels)


@pytest.mark.parametrize("seconds", [1, 7, 60, 100, 3599, 43_200, 90_000, 1_000_000])
def test_ticks_are_in_order_and_inside(summaries: dict[str, Report], seconds: float) -> None:
    """A few round moments, none at an edge where its text would be cut off."""
    summary = summaries["healthy"]
    end = summary.time.begin_unix_seconds + seconds
    summary = replaced(summary, time=replaced(summary.time, end_unix_seconds=end))
    places = [place for place, _ in ticks(summary)]
    assert len(places) <= 13
    assert all(0.0 < place < 1.0 for place in places)
    assert all(one < other for one, other in pairwise(places))
    if seconds >= 7:
        assert len(places) >= 3


@pytest.mark.parametrize("width", [390, 1200])
def test_a_browser_draws_it_without_sideways_scrolling(
    summaries: dict[str, Report], tmp_path: Path, width: int
) -> None:
    """On a phone and on a desk: every drawing is seen, none reaches out."""
    page = tmp_path / "report.html"
    text = recording_html(summaries["mixed"])
    page.write_text(text, encoding="utf-8")
    measured = measure(tmp_path, page, width)
    assert measured["width"] <= width
    assert measured["drawn"] == len(Page(text).drawings)
    assert measured["outside"] == 0


def test_figures_have_headings_and_the_sentence_that_leads_is_said_once() -> None:
    """What held a GPU up is a strip above its chart, however high the work below it reaches."""
    page = recording_html(summed(simulated("starved", 100, gpus=1, interval=2.0)))
    assert [f'<div class="end">{one}</div>' in page for one in ("held", "mean")] == [True, True]
    (sentence,) = re.findall(r"GPU 0 waited for data[^:<]*: [^.<]*", page)
    assert sentence.endswith("idle")
    assert page.index('class="mean"') < page.index('class="held starved strip"')


def test_each_thing_to_do_has_the_number_and_the_fields_of_the_others(
    summaries: dict[str, Report],
) -> None:
    """Its number in the charts, what was lost, what to do in bold with the reason after it, and
    what that gains; the hours stand below the findings as below the charts."""
    page = recording_html(summaries["mixed"])
    top, _, rest = page.partition("<h2>Over time</h2>")
    cards = re.findall(r"(?s)<section.*?</section>", top)
    assert len(cards) >= 2
    for number, card in enumerate(cards, start=1):
        assert f"<h3>#{number} " in card
        assert '<span class="cost">lost ' in card
        assert re.search(r"<dt>Do</dt><dd><b>[^<]+</b>", card)
    assert "<dd><b>Raise num_workers from 2 to 8:</b> each worker is at the limit" in cards[0]
    assert "<dt>Gain</dt><dd>num_workers 2 -&gt; 8" in cards[0]
    lead = re.sub("<[^>]*>", "", top.partition("<section")[0])
    assert "Lost" not in lead
    assert "Gain" not in lead
    plot = rest.partition("<h2>")[0]
    assert plot.count('class="ticks"') == 2
    assert plot.index('class="row lane"') < plot.index('class="ticks"') < plot.index('class="fill"')


def test_charts_have_the_names_and_colours_of_the_dashboard(summaries: dict[str, Report]) -> None:
    """Findings are called by their cause, a single GPU's chart is tall, and what held a GPU up has
    the colour of that cause: behind the work where there was none, over it where it was slow."""
    single = recording_html(summed(simulated("starved", 100, gpus=1, interval=2.0)))
    assert "<h3>#1 loader is CPU-bound</h3>" in single
    assert "loader_cpu_bound" not in single
    assert single.count('class="row main fed"') == 1
    assert single.index('class="held starved"') < single.index('class="fill"')
    mixed = recording_html(summaries["lost"])
    assert 'class="row main' not in mixed
    assert 'class="held error"' in mixed
    hot = recording_html(summed(simulated("throttled", 150, gpus=1, interval=2.0)))
    assert hot.index('class="fill"') < hot.index('class="held slow throttled"')
    # In the words and signs of the screens.
    assert '<i class="h starved"></i>starved<' in single
    assert '<i class="h slow throttled"></i>throttled<' in hot
    assert "\u25b2 warning" in single
    assert "\u25a0 error" in mixed
