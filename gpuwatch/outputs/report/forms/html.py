"""A report as one HTML file that needs nothing else: no script, no font, no network. Everything
that is not written here is escaped."""

from collections.abc import Iterable, Sequence
from html import escape

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.outputs.report.content import document, words
from gpuwatch.outputs.report.content.document import Column, Document, Found, Row, Timeline
from gpuwatch.outputs.report.content.words import Times
from gpuwatch.outputs.report.forms import svg
from gpuwatch.outputs.report.forms.style import STYLE
from gpuwatch.outputs.report.forms.svg import Area
from gpuwatch.outputs.report.model import Report
from gpuwatch.outputs.report.parts import Stretch

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Whatever a process is called, a browser loads and runs nothing for this page."""
SEVERITY_MARKS = {"error": "\u25b2 error", "warning": "\u25cf warning", "info": "\u25cb info"}
"""A shape beside the colour."""
JUDGED = {"better": ("up", "\u25b2 better"), "worse": ("down", "\u25bc worse")}
_STYLES = {"bad": "bad", "warn": "alert", "": "note"}
TICKS = 13


def document_html(made: Document) -> str:
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(made.title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
    )
    return head + "\n".join(_body(made)) + "\n</main>\n</body>\n</html>\n"


def _body(made: Document) -> Iterable[str]:
    yield _element("h1", made.heading)
    if made.simulated:
        yield _element("div", "SIMULATED \u2014 none of this ran", "badge")
    for section in made.sections:
        if section.title:
            yield _element("h2", section.title)
        for block in section.blocks:
            yield from _block(block)
    yield _element("footer", f"Made by gpuwatch {__version__}.", "note")


def _element(name: str, text: str, kind: str = "") -> str:
    return f"<{name}{_kind(kind)}>{escape(text)}</{name}>"


def _kind(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _block(block: document.Block) -> Iterable[str]:
    match block:
        case document.Said(text, style):
            yield _element("p", text, _STYLES.get(style, style))
        case document.Listed(facts):
            yield f'<p class="meta">{"".join(_element("span", fact) for fact in facts)}</p>'
        case document.Labelled(title, facts):
            columns = [Column(name, "", str, "text") for name in ("Part", "Use")]
            rows = [(label.strip(), text) for label, text in facts]
            yield _table(document.Table(title, columns, rows))
        case document.Bullets(_, sentences):
            items = "".join(_element("li", sentence) for sentence in sentences)
            yield f'<ul class="plain">{items}</ul>'
        case document.Table():
            yield _table(block)
            if block.left > 0:
                more = f"And {block.left:,} more: gpuwatch report --json has them."
                yield _element("p", more, "note")
        case Found():
            yield from _finding(block)
        case Timeline():
            yield from _timeline(block)
        case document.Cards(report, cards, left):
            yield from _cards(report, cards)
            if left > 0:
                yield _element("p", f"And {units.plural(left, 'more GPU')}.", "note")


def _cards(report: Report, cards: Sequence[tuple[str, Sequence[Row]]]) -> Iterable[str]:
    yield '<div class="small">'
    for place, (title, rows) in enumerate(cards):
        yield f'<div class="plot">{_element("h3", title)}'
        for row in rows:
            name = f"{row.label[0].lower()}{place}"
            yield _row(report, row, name, f"{title} {row.label.lower()} over time")
        yield "</div>"
    yield "</div>"


def _table(made: document.Table) -> str:
    """It scrolls by itself; the first cell of a row names it."""
    kinds = [{"number": "", "text": "t", "long": "c"}[one.kind] for one in made.columns]
    titles = "".join(
        f'<th scope="col"{_kind("t" if kind else "")}>{escape(heading.title)}</th>'
        for heading, kind in zip(made.columns, kinds, strict=True)
    )
    body = "".join(f"<tr>{_cells(row, kinds, made.judged)}</tr>\n" for row in made.rows)
    foot = ""
    if made.total is not None:
        foot = f"<tfoot><tr>{_cells(made.total, kinds)}</tr></tfoot>"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(made.title)}"><table>'
        f"<thead><tr>{titles}</tr></thead>\n<tbody>{body}</tbody>{foot}</table></div>"
    )


def _cells(row: Sequence[str], kinds: Sequence[str], judged: bool = False) -> str:
    cells = [f'<th scope="row"{_kind(kinds[0])}>{escape(row[0])}</th>']
    for text, kind in list(zip(row, kinds, strict=True))[1:]:
        colour, shown = JUDGED.get(text, ("", text)) if judged else ("", text)
        cells.append(_element("td", shown, f"{kind} {colour}".strip()))
    return "".join(cells)


def _finding(found: Found) -> Iterable[str]:
    gone = found.name == "Gone:"
    yield f'<section class="finding {"info" if gone else found.severity}"><header>'
    yield _element("h3", f"{found.name} {found.rule}")
    yield _element("span", SEVERITY_MARKS[found.severity], "sev")
    if found.cost:
        yield _element("span", found.cost, "cost")
    yield "</header>"
    yield _element("p", " \u00b7 ".join(part for part in (found.when, found.where) if part), "when")
    yield from (_element("p", text, "what") for text in found.what)
    if found.advice or found.evidence or found.ruled_out:
        yield "<dl>"
        for label, line in zip(("Do", *[""] * len(found.advice)), found.advice, strict=False):
            yield _element("dt", label) + _element("dd", line, label.lower())
        if found.evidence:
            kinds = (("Reading", "text"), ("Value", "number"), ("Threshold", "number"))
            columns = [Column(one, "", str, kind) for one, kind in (*kinds, ("Meaning", "text"))]
            label = f"Evidence for finding {found.name.removeprefix('#')}"
            rows = _table(document.Table(label, columns, found.evidence))
            yield f"<dt>Because</dt><dd>{rows}</dd>"
        if found.ruled_out:
            yield f"<dt>Not</dt>{_element('dd', '; '.join(found.ruled_out), 'note')}"
        yield "</dl>"
    yield "</section>"


def _timeline(made: Timeline) -> Iterable[str]:
    report, name = made.report, made.name
    yield '<div class="plot">'
    for lane in made.lanes:
        picture = svg.lane(
            f"{name}f{lane.number}",
            f"Finding {lane.number}: {lane.rule}",
            lane.described,
            [_area(report, stretch, f"span {lane.severity}") for stretch in lane.stretches],
        )
        label = f"<b>#{lane.number}</b> {escape(lane.rule)}"
        yield _framed("lane", label, picture, units.age(lane.seconds))
    cpu = [] if made.cpu is None else [made.cpu]
    for place, row in enumerate([*made.gpus, *made.others, *cpu]):
        what = row.label if row in made.others else f"{row.label} busy"
        yield _row(report, row, f"{name}b{place}", f"{what} over time, 0 to 100%")
    spans = []
    for number, (where, text) in enumerate(ticks(report)):
        odd = _kind("odd" if number % 2 else "")
        spans.append(f'<span{odd} style="left:{100 * where:.2f}%">{escape(text)}</span>')
    axis = f'<div class="ticks" aria-hidden="true">{"".join(spans)}</div>'
    yield _framed("axis", "", axis, "")
    yield _key(made)
    yield "</div>"


def _row(report: Report, row: Row, name: str, title: str) -> str:
    of = f"<small>{escape(row.of)}</small>" if row.of else ""
    label = f"<b>{escape(row.label)}</b>{of}"
    if row.profile is None:
        return _framed("", label, _element("span", row.missing, "note"), row.end)
    # The last bucket reaches beyond the end.
    filled = report.time.bucket_seconds * len(row.profile.mean) / (report.time.seconds or 1.0)
    picture = svg.chart(
        name,
        title,
        row.described,
        row.profile,
        top=row.top,
        filled=filled,
        marks=[_area(report, stretch, f"span {severity}") for severity, stretch in row.marks],
        gaps=[_area(report, gap, "gapfill") for gap in (*report.time.gaps, *row.lost)],
    )
    return _framed("", label, picture, row.end)


def _framed(kind: str, label: str, picture: str, end: str) -> str:
    """``label`` and ``picture`` are HTML."""
    return (
        f'<div class="row {kind}"><div class="name">{label}</div><div class="draw">{picture}</div>'
        f"{_element('div', end, 'end')}</div>"
    )


def _area(report: Report, stretch: Stretch, kind: str) -> Area:
    begin, seconds = report.time.begin_unix_seconds, report.time.seconds or 1.0
    first = (stretch.begin_unix_seconds - begin) / seconds
    return Area(first, (stretch.end_unix_seconds - begin) / seconds, kind)


def ticks(report: Report) -> list[tuple[float, str]]:
    """Round local times (round times since the start for a log without dates) and where they
    lie, 0 to 1; none so near an edge that its text would be cut off."""
    seconds, begin = report.time.seconds, report.time.begin_unix_seconds
    if seconds <= 0:
        return []
    offset = 0.0
    if report.time.has_dates:
        shift = words.local(begin).utcoffset()
        offset = begin + (0.0 if shift is None else shift.total_seconds())
    step, places = units.round_marks(offset, seconds, seconds / TICKS)
    return [
        (after / seconds, _tick(report, begin + after, step))
        for after in [place - offset for place in places]
        if 0.02 * seconds <= after <= 0.98 * seconds
    ]


def _tick(report: Report, unix_seconds: float, step: int) -> str:
    if not report.time.has_dates:
        return Times(report).moment(unix_seconds)
    if step >= 86400:
        return words.clock(unix_seconds, "%m-%d")
    return words.clock(unix_seconds, "%H:%M:%S" if step < 60 else "%H:%M")


def _key(made: Timeline) -> str:
    parts = [("f", "up to the mean"), ("b", "up to the highest")]
    if made.lanes:
        parts.append(("w", "a finding holds (# in the list below)"))
    if made.report.time.gaps or any(row.lost for row in made.gpus):
        parts.append(("g", "no data"))
    keys = "".join(f'<span><i class="{kind}"></i>{text}</span>' for kind, text in parts)
    scale = f"all scales 0 to 100%; {Times(made.report).zone()}"
    return f'<div class="key">{keys}{_element("span", scale)}</div>'
