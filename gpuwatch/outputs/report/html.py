"""A report as one HTML file that needs nothing else: no script, no font, no network. Everything
that is not written here is escaped.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape
from itertools import groupby
from typing import NamedTuple

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.outputs.report import document, words
from gpuwatch.outputs.report.document import Document, Found, Row, Step, Timeline
from gpuwatch.outputs.report.model import Report, Stretch, TimeProfile
from gpuwatch.outputs.report.words import Times
from gpuwatch.outputs.terminal import STATE_HUES, Column

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Policy by which a browser loads and runs nothing for this page, whatever a process is called."""
SEVERITY_MARKS = {"error": "\u25a0 error", "warning": "\u25b2 warning", "info": "\u25cb info"}
"""Severity as the shape that it has on the screen, beside the colour."""
JUDGED = {"better": ("up", "\u25b2 better"), "worse": ("down", "\u25bc worse")}
_STYLES = {"bad": "bad", "warn": "alert", "": "note"}
TICKS = 13
MAIN_CHARTS = 2
"""Up to so many GPUs have a chart of a height that one can read; more are compared."""


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
    said = ""
    for section in made.sections:
        if section.title:
            yield _element("h2", section.title)
        for block in section.blocks:
            if isinstance(block, document.Paragraph):
                said += block.text
            elif isinstance(block, Found):
                # The finding that leads is told at the top of the page.
                new = [text for text in block.what if text.rstrip(".") not in said]
                block = block._replace(what=new)  # noqa: PLW2901
            yield from _block(block)
    yield _element("footer", f"Made by gpuwatch {__version__}.", "note")


def _element(name: str, text: str, kind: str = "") -> str:
    return f"<{name}{_kind(kind)}>{escape(text)}</{name}>"


def _kind(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def _block(block: document.Block) -> Iterable[str]:
    match block:
        case document.Paragraph(text, style):
            yield _element("p", text, _STYLES.get(style, style))
        case document.FactLine(facts):
            yield f'<p class="meta">{"".join(_element("span", fact) for fact in facts)}</p>'
        case document.Labelled(title, facts):
            columns: list[Column[str]] = [Column(name, kind="text") for name in ("Part", "Use")]
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
        case document.ToDo():
            yield from _to_do(block)
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
    """Return a table that scrolls by itself; the first cell of a row names it."""
    kinds = [{"number": "", "text": "t", "long": "c"}[one.kind] for one in made.columns]
    titles = "".join(
        f'<th scope="col"{_kind("t" if kind else "")}>{escape(one.page_heading)}</th>'
        for one, kind in zip(made.columns, kinds, strict=True)
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


def _to_do(block: document.ToDo) -> Iterable[str]:
    yield f'<section class="finding {block.severity}"><header>'
    yield _element("h3", f"{block.name} {block.cause}")
    yield _element("span", SEVERITY_MARKS[block.severity], "sev")
    if block.cost:
        yield _element("span", f"lost {block.cost}", "cost")
    yield "</header>" + _element("p", block.when, "when") + "<dl>"
    yield from _steps(block.advice)
    if block.gain:
        yield f"<dt>Gain</dt>{_element('dd', block.gain)}"
    yield "</dl></section>"


def _steps(steps: Sequence[Step]) -> Iterable[str]:
    for number, step in enumerate(steps):
        action, why = f"{step.action}{':' if step.why else '.'}", f" {step.why}" if step.why else ""
        said = _element("b", action) + escape(why)
        yield f"{_element('dt', '' if number else 'Do')}<dd>{said}</dd>"


def _finding(found: Found) -> Iterable[str]:
    gone = found.name == "Gone:"
    yield f'<section class="finding {"info" if gone else found.severity}"><header>'
    yield _element("h3", f"{found.name} {found.cause}")
    yield _element("span", SEVERITY_MARKS[found.severity], "sev")
    if found.cost:
        yield _element("span", f"lost {found.cost}", "cost")
    yield "</header>"
    yield _element("p", " \u00b7 ".join(part for part in (found.when, found.where) if part), "when")
    yield from (_element("p", text, "what") for text in found.what)
    if found.advice or found.evidence or found.ruled_out:
        yield "<dl>"
        yield from _steps(found.advice)
        if found.gain:
            yield f"<dt>Gain</dt>{_element('dd', found.gain)}"
        if found.evidence:
            kinds = (("Reading", "text"), ("Value", "number"), ("Limit", "number"))
            columns: list[Column[str]] = [
                Column(one, kind=kind) for one, kind in (*kinds, ("Meaning", "text"))
            ]
            label = f"Evidence for finding {found.name.removeprefix('#')}"
            rows = _table(document.Table(label, columns, found.evidence))
            yield f"<dt>Because</dt><dd>{rows}</dd>"
        if found.also_seen:
            yield f"<dt>Also seen</dt>{_element('dd', '; '.join(found.also_seen))}"
        if found.ruled_out:
            yield f"<dt>Not</dt>{_element('dd', '; '.join(found.ruled_out), 'note')}"
        yield "</dl>"
    yield "</section>"


def _timeline(made: Timeline) -> Iterable[str]:
    report, name = made.report, made.name
    yield '<div class="plot">'
    if made.lanes:
        yield _framed("heads", "findings", "", "held")
    for lane in made.lanes:
        picture = lane_svg(
            f"{name}f{lane.number}",
            f"Finding {lane.number}: {lane.cause}",
            lane.described,
            [_area(report, stretch, f"span {lane.severity}") for stretch in lane.stretches],
        )
        label = f"<b>#{lane.number}</b> {escape(lane.cause)}"
        yield _framed("lane", label, picture, units.age(lane.seconds))
    hours = _axis(report)
    if made.lanes:
        # The charts below are high: from their hours to the findings is a long way.
        yield hours
    cpu = [] if made.cpu is None else [made.cpu]
    # Before what it explains: the charts are high.
    yield _legend(made)
    if made.gpus or cpu:
        yield _framed("heads", "busy", "", "mean")
    for place, row in enumerate([*made.gpus, *made.others, *cpu]):
        what = row.label if row in made.others else f"{row.label} busy"
        kind = "main" if row in made.gpus and len(made.gpus) <= MAIN_CHARTS else ""
        kind += " fed" if row in made.gpus else ""
        yield _row(report, row, f"{name}b{place}", f"{what} over time, 0 to 100%", kind.strip())
    yield hours
    yield "</div>"


def _axis(report: Report) -> str:
    spans = []
    for number, (where, text) in enumerate(ticks(report)):
        odd = _kind("odd" if number % 2 else "")
        spans.append(f'<span{odd} style="left:{100 * where:.2f}%">{escape(text)}</span>')
    axis = f'<div class="ticks" aria-hidden="true">{"".join(spans)}</div>'
    return _framed("axis", "", axis, "")


def _row(report: Report, row: Row, name: str, title: str, kind: str = "") -> str:
    of = f"<small>{escape(row.of)}</small>" if row.of else ""
    label = f"<b>{escape(row.label)}</b>{of}"
    if "main" in kind:
        label += '<div class="scale" aria-hidden="true"><i>100</i><i>50</i><i>0</i></div>'
    if row.profile is None:
        return _framed(kind, label, _element("span", row.missing, "note"), row.end)
    # The last bucket reaches beyond the end.
    filled = report.time.bucket_seconds * len(row.profile.mean) / (report.time.seconds or 1.0)
    picture = chart_svg(
        name,
        title,
        row.described,
        row.profile,
        top=row.top,
        filled=filled,
        marks=[
            _area(report, one.stretch, f"held {one.hue}") for one in row.marks if not one.of_busy
        ],
        slowed=[
            _area(report, one.stretch, f"held slow {one.hue}") for one in row.marks if one.of_busy
        ],
        gaps=[_area(report, gap, "gapfill") for gap in (*report.time.gaps, *row.lost)],
    )
    return _framed(kind, label, picture, row.end)


def _framed(kind: str, label: str, picture: str, end: str) -> str:
    """Return a row of a plot; ``label`` and ``picture`` are HTML."""
    return (
        f'<div class="row {kind}"><div class="name">{label}</div><div class="draw">{picture}</div>'
        f"{_element('div', end, 'end')}</div>"
    )


def _area(report: Report, stretch: Stretch, kind: str) -> Area:
    begin, seconds = report.time.begin_unix_seconds, report.time.seconds or 1.0
    first = (stretch.begin_unix_seconds - begin) / seconds
    return Area(first, (stretch.end_unix_seconds - begin) / seconds, kind)


def ticks(report: Report) -> list[tuple[float, str]]:
    """Return round local times (round times since the start for a log without dates) and where they
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


def _legend(made: Timeline) -> str:
    parts = [("f", "mean"), ("b", "highest")]
    words: dict[str, list[str]] = {}
    for one in [one for row in made.gpus for one in row.marks]:
        words.setdefault(f"h{' slow' if one.of_busy else ''} {one.hue}", []).append(one.word)
    parts += [(kind, ", ".join(dict.fromkeys(every))) for kind, every in words.items()]
    if made.report.time.gaps or any(row.lost for row in made.gpus):
        parts.append(("g", "no data"))
    keys = "".join(f'<span><i class="{kind}"></i>{text}</span>' for kind, text in parts)
    scale = f"all scales 0 to 100%; {Times(made.report).zone()}"
    return f'<div class="key">{keys}{_element("span", scale)}</div>'


# --- charts as inline SVG ---------------------------------------------------------------------
#
# Shapes stretch with the page (``preserveAspectRatio="none"``, lines keep their width); text is
# never inside, since it would be stretched too.

WIDTH = 1000
HEIGHT = 100
_STRIP = 4
"""Height of the strip that says what held a GPU up."""
THINNEST = 3.0
"""Least width of an area, so that a moment is seen at all."""


class Area(NamedTuple):
    """A part of the time that is marked: 0 to 1 of the width, and the class it is drawn in."""

    begin: float
    end: float
    kind: str

    @property
    def x(self) -> float:
        return min(WIDTH - THINNEST, max(0.0, self.begin * WIDTH))

    @property
    def width(self) -> float:
        return max(THINNEST, min(1.0, self.end) * WIDTH - self.x)


def chart_svg(
    name: str,
    title: str,
    description: str,
    profile: TimeProfile,
    *,
    top: float,
    filled: float = 1.0,
    marks: Sequence[Area] = (),
    slowed: Iterable[Area] = (),
    gaps: Iterable[Area] = (),
) -> str:
    """Return a chart on a fixed scale: filled up to the mean, a lighter band from there to the
    maximum. What is filled was used, what is empty was not. ``top`` is the value at the upper edge;
    the profile's buckets fill 0 to ``filled`` of the width. ``name`` makes the ids of the page
    unique."""
    parts = [_opening(name, title, description)]
    parts += [_gap(area) for area in gaps]
    # Behind what is filled: what was held up is the part that stays empty.
    parts += [_rectangle(area, 0, HEIGHT) for area in marks]
    if top > 0 and profile.mean:
        step = WIDTH * filled / len(profile.mean)
        highest, mean = _heights(profile.maximum, top), _heights(profile.mean, top)
        parts += [
            _path("band", highest, step, filled=True),
            _path("fill", mean, step, filled=True),
            _path("mean", mean, step),
        ]
    # Also where it never was empty for long: there what is filled hides what is behind it.
    parts += [_rectangle(area._replace(kind=f"{area.kind} strip"), 0, _STRIP) for area in marks]
    # Over it: there the work itself was slow.
    parts += [_rectangle(area, 0, HEIGHT) for area in slowed]
    parts.append(f'<line class="grid" x1="0" x2="{WIDTH}" y1="50" y2="50"/></svg>')
    return "".join(parts)


def lane_svg(name: str, title: str, description: str, areas: Iterable[Area]) -> str:
    parts = [_opening(name, title, description)]
    parts.append(f'<line class="rail" x1="0" x2="{WIDTH}" y1="50" y2="50"/>')
    parts += [_rectangle(area, 12, 76) for area in areas]
    parts.append("</svg>")
    return "".join(parts)


def _opening(name: str, title: str, description: str) -> str:
    return (
        f'<svg viewBox="0 0 {WIDTH} {HEIGHT}" preserveAspectRatio="none" role="img" '
        f'aria-labelledby="{name}-t {name}-d"><title id="{name}-t">{escape(title)}</title>'
        f'<desc id="{name}-d">{escape(description)}</desc>'
    )


def _rectangle(area: Area, top: int, height: int) -> str:
    x, width = _short(area.x), _short(area.width)
    return f'<rect class="{area.kind}" x="{x}" y="{top}" width="{width}" height="{height}"/>'


def _gap(area: Area) -> str:
    x = _short(area.x)
    line = f'<line class="gapline" x1="{x}" x2="{x}" y1="0" y2="{HEIGHT}"/>'
    return _rectangle(area, 0, HEIGHT) + line


def _path(kind: str, levels: Sequence[int | None], step: float, *, filled: bool = False) -> str:
    """Return a path along the heights (``filled``: from the ground up to them), equal ones as one
    line, and nothing where there is a gap."""
    path, place, before = "", 0, None
    for level, alike in groupby([*levels, None]):
        if level is not None:
            start = f"M{_short(place * step)} {f'{HEIGHT}V' if filled else ''}"
            path += f"{start if before is None else 'V'}{level}"
        elif filled and before is not None:
            path += f"V{HEIGHT}Z"
        place += len(list(alike))
        path += "" if level is None else f"H{_short(place * step)}"
        before = level
    return f'<path class="{kind}" d="{path}"/>' if path else ""


def _heights(values: Sequence[float | None], top: float) -> list[int | None]:
    return [None if value is None else _y(value, top) for value in values]


def _y(value: float, top: float) -> int:
    """Return the height of a value, a pixel off the edges, where half a line would be cut off."""
    part = min(1.0, max(0.0, value / top))
    return round(HEIGHT - 2 - part * (HEIGHT - 4))


def _short(value: float) -> str:
    """Return a number in as few characters as say it."""
    return f"{value:.1f}".removesuffix(".0")


# --- the looks: one style sheet, light and dark, screen, phone and paper ----------------------

_DARK, _LIGHT = (
    ";".join(f"--{state}:{hues[ground]}" for state, hues in STATE_HUES.items())
    for ground in range(2)
)
STYLE = """
:root{color-scheme:light dark;
--page:#fbfbfa;--card:#fff;--line:#e3e3df;--faint:#f1f1ee;--ink:#1b1d1f;--soft:#5a6066;
--accent:#1668a8;--fill:#7db2dc;--band:#d3e5f4;--warn:#8a5300;--warnfill:#e09a2b;--bad:#a8201a;--badfill:#d64540;
--good:#1d6b3c;--gap:#e9e9e5;
--fedfill:#4fbf95;--fedband:#c9e9dc;LIGHT_STATES}
@media screen and (prefers-color-scheme:dark){:root{
--page:#121416;--card:#191c1f;--line:#2d3236;--faint:#22262a;--ink:#e8eaec;--soft:#a2aab1;
--accent:#6cb6f0;--fill:#33709f;--band:#223b50;--warn:#f0b357;--warnfill:#c98a26;--bad:#ff8d85;--badfill:#d9534c;
--good:#7fd3a0;--gap:#24282b;
--fedfill:#2f8f6d;--fedband:#1f4638;DARK_STATES}}
*{box-sizing:border-box}
html{-webkit-text-size-adjust:100%}
body{margin:0;background:var(--page);color:var(--ink);
font:15px/1.5 system-ui,-apple-system,"Segoe UI",Roboto,"Helvetica Neue",Arial,sans-serif}
main{max-width:1120px;margin:0 auto;padding:28px 24px 56px}
h1{font-size:13px;font-weight:600;letter-spacing:.02em;color:var(--soft);margin:0;overflow-wrap:anywhere}
h2{font-size:17px;font-weight:650;margin:40px 0 12px}
h3{font-size:15px;font-weight:650;margin:0}
p{margin:0 0 8px}
.verdict{font-size:28px;line-height:1.25;font-weight:650;letter-spacing:-.015em;margin:10px 0 6px;
text-wrap:pretty}
.command{font-size:17px;font-weight:600;overflow-wrap:anywhere;margin:10px 0 4px}
.bad{color:var(--bad)}
.why{font-size:17px;line-height:1.45;margin:0 0 12px;max-width:60em;text-wrap:pretty}
.meta,.note{color:var(--soft);font-size:13.5px;overflow-wrap:anywhere}
.meta span:not(:last-child)::after{content:" \\b7\\20"}
.badge{display:inline-block;border:1px solid currentColor;border-radius:4px;padding:1px 8px;
font-size:12px;font-weight:700;letter-spacing:.06em;color:var(--warn);margin:10px 0 0}
.plot{background:var(--card);border:1px solid var(--line);border-radius:8px;padding:14px 16px 10px}
.row{display:grid;grid-template-columns:168px minmax(0,1fr) 52px;column-gap:12px;
align-items:center;padding:3px 0}
.row>.name{font-size:13px;line-height:1.25;min-width:0}
.row>.name b{font-weight:600}
.row>.name small{display:block;color:var(--soft);font-size:11.5px;white-space:nowrap;
overflow:hidden;text-overflow:ellipsis}
.row>.end{font-size:14px;font-weight:600;text-align:right;font-variant-numeric:tabular-nums}
.row svg{display:block;width:100%;height:46px;background:var(--faint);border-radius:3px}
.row.main svg{height:150px}
.row.main{position:relative}
.scale{position:absolute;left:134px;top:1px;bottom:1px;width:38px;display:flex;flex-direction:column;
justify-content:space-between;text-align:right}
.scale i{font-style:normal;font-size:11.5px;line-height:1;color:var(--soft)}
.row.lane{padding:1px 0}
.row.lane>.name{white-space:nowrap;overflow:hidden;text-overflow:ellipsis}
.row.lane svg{height:16px;background:none}
.row.axis{padding:0}
.row.heads>.name,.row.heads>.end{font-size:11.5px;font-weight:400;color:var(--soft)}
.ticks{position:relative;height:20px;font-size:11.5px;color:var(--soft);
font-variant-numeric:tabular-nums}
.ticks span{position:absolute;transform:translateX(-50%);white-space:nowrap;top:2px}
.ticks span::before{content:"";position:absolute;left:50%;top:-4px;height:4px;
border-left:1px solid var(--soft)}
.band{fill:var(--band)}.fill{fill:var(--fill)}
.mean{fill:none;stroke:var(--accent);stroke-width:1.5;vector-effect:non-scaling-stroke;
stroke-linejoin:round}
.grid{stroke:var(--line);stroke-width:1;vector-effect:non-scaling-stroke}
.fed .band{fill:var(--fedband)}.fed .fill{fill:var(--fedfill)}.fed .mean{stroke:var(--fed)}
.held{opacity:.3}.held.slow{opacity:.8}.held.strip{opacity:.65}
.held.starved,.h.starved{fill:var(--starved);background:var(--starved)}
.held.throttled,.h.throttled{fill:var(--throttled);background:var(--throttled)}
.held.waiting,.h.waiting{fill:var(--waiting);background:var(--waiting)}
.held.late,.h.late{fill:var(--late);background:var(--late)}
.held.idle,.h.idle{fill:var(--idle);background:var(--idle)}
.held.error,.h.error{fill:var(--badfill);background:var(--badfill)}
.gapfill{fill:var(--gap)}
.gapline{stroke:var(--soft);stroke-width:1;stroke-dasharray:2 3;vector-effect:non-scaling-stroke}
.span{fill:var(--warnfill)}.span.error{fill:var(--badfill)}.span.info{fill:var(--soft)}
.rail{stroke:var(--line);stroke-width:1;vector-effect:non-scaling-stroke}
.key{display:flex;flex-wrap:wrap;gap:4px 18px;color:var(--soft);font-size:12.5px;margin:10px 0 0}
.key i{display:inline-block;width:18px;height:10px;margin-right:6px;border-radius:2px}
.key .f{background:var(--fedfill);border-top:2px solid var(--fed)}
.key .b{background:var(--fedband);border:1px solid var(--line)}
.key .h{height:5px;vertical-align:2px;opacity:.65}
.key .h.slow{height:10px;vertical-align:0;opacity:.8}
.key .g{background:var(--gap);border:1px dashed var(--soft)}
.small{display:grid;grid-template-columns:repeat(auto-fill,minmax(300px,1fr));gap:12px}
.small .plot{padding:12px 14px}
.small .row{grid-template-columns:78px minmax(0,1fr) 82px;column-gap:10px}
.small .row svg{height:28px}
.small .row>.name{font-size:12.5px;color:var(--soft)}
.small .row>.end{font-size:12.5px;font-weight:500;white-space:nowrap}
.small h3{margin:0 0 6px}
.finding{background:var(--card);border:1px solid var(--line);border-left:4px solid var(--warnfill);
border-radius:8px;padding:14px 18px;margin:0 0 12px;break-inside:avoid}
.finding.error{border-left-color:var(--badfill)}.finding.info{border-left-color:var(--soft)}
.finding header{display:flex;flex-wrap:wrap;gap:2px 12px;align-items:baseline}
.sev{font-size:12.5px;font-weight:650;color:var(--warn)}
.error .sev{color:var(--bad)}.info .sev{color:var(--soft)}
.finding .cost{margin-left:auto;font-weight:600;font-variant-numeric:tabular-nums}
.finding .when{color:var(--soft);font-size:13.5px;margin:2px 0 8px}
.finding .what{margin:0 0 8px;overflow-wrap:anywhere}
.finding dl{display:grid;grid-template-columns:68px minmax(0,1fr);gap:4px 12px;margin:0}
.finding dt{color:var(--soft);font-size:13.5px}
.finding dd{margin:0;overflow-wrap:anywhere}
.finding dd b{font-weight:600}
.finding table{margin-top:2px}
.finding .scroll{border:0;background:none}
.finding td,.finding th{padding:3px 12px 3px 0;border:0;white-space:normal}
.finding td.t{min-width:14em}.finding thead th,.finding td:not(.t){white-space:nowrap}
.finding tbody th{min-width:9em;font-weight:500}
.scroll{overflow-x:auto;border:1px solid var(--line);border-radius:8px;background:var(--card)}
.scroll:focus-visible{outline:2px solid var(--accent);outline-offset:2px}
table{border-collapse:collapse;width:100%;font-size:13.5px;font-variant-numeric:tabular-nums}
th,td{text-align:right;padding:6px 9px;white-space:nowrap;border-top:1px solid var(--line);
vertical-align:top}
thead th{border-top:0;color:var(--soft);font-weight:600;font-size:12.5px;vertical-align:bottom}
tbody th{font-weight:600}
.t{text-align:left}
td.c{text-align:left;max-width:34em;min-width:22em;white-space:normal;overflow-wrap:anywhere;
font:12.5px/1.45 ui-monospace,SFMono-Regular,Menlo,Consolas,"DejaVu Sans Mono",monospace}
tfoot td,tfoot th{font-weight:650;border-top:1px solid var(--soft)}
.up{color:var(--good)}.down{color:var(--bad)}
.alert{border:1px solid var(--warnfill);border-radius:8px;background:var(--card);
padding:10px 16px;margin:16px 0}
footer{margin-top:40px;border-top:1px solid var(--line);padding-top:12px}
ul.plain{margin:10px 0 0;padding-left:18px;color:var(--soft);font-size:13.5px}
ul.plain li{overflow-wrap:anywhere}
@media(max-width:640px){
main{padding:18px 14px 40px}.verdict{font-size:22px}.why{font-size:15.5px}
.plot{padding:10px 12px 8px}
.row{grid-template-columns:minmax(0,1fr) auto;row-gap:1px;padding:4px 0}
.row>.name small{display:inline;margin-left:6px}
.row>.name{grid-column:1;grid-row:1}
.row>.end{grid-column:2;grid-row:1}
.row>.draw{grid-column:1/-1;grid-row:2}
.row svg{height:38px}
.row.axis>.draw{grid-row:1}
.row.axis>.name,.row.axis>.end,.scale{display:none}
.ticks span.odd{display:none}
.small{grid-template-columns:minmax(0,1fr)}
.small .row{grid-template-columns:70px minmax(0,1fr) 82px}
.small .row>.name,.small .row>.draw,.small .row>.end{grid-column:auto;grid-row:1}
.finding .cost{margin-left:0;width:100%}
.finding dl{grid-template-columns:minmax(0,1fr)}
.finding dd{margin-bottom:4px}
}
@media print{
:root{color-scheme:light;--page:#fff;--line:#ccc;--faint:#f4f4f2;--ink:#000;--soft:#444}
*{-webkit-print-color-adjust:exact;print-color-adjust:exact}
main{max-width:none;padding:0}.row,.finding,.small .plot,tr{break-inside:avoid}
h2{break-after:avoid;margin-top:24px}.scroll{overflow:visible}.row:not(.lane) svg{height:32px}
body{font-size:11pt}.verdict{font-size:20pt}.why{font-size:12pt}
table{font-size:8pt}thead th{font-size:7.5pt}td,th{padding:3px 5px}
td.c{min-width:16em;font-size:7pt}
tfoot{display:table-row-group}}
@page{margin:14mm}
""".replace("DARK_STATES", _DARK).replace("LIGHT_STATES", _LIGHT)
