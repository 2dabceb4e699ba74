"""What the HTML pages share: the frame, tables, everything escaped."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from html import escape

from gpuwatch import __version__
from gpuwatch.outputs.html.style import STYLE

POLICY = "default-src 'none'; style-src 'unsafe-inline'"
"""Whatever a process is called, a browser loads and runs nothing for this page."""


def page(title: str, body: Iterable[str]) -> str:
    """The whole file; ``body`` is HTML already."""
    head = (
        '<!doctype html>\n<html lang="en">\n<head>\n<meta charset="utf-8">\n'
        '<meta name="viewport" content="width=device-width, initial-scale=1">\n'
        f'<meta http-equiv="Content-Security-Policy" content="{POLICY}">\n'
        '<meta name="color-scheme" content="light dark">\n'
        f"<title>{escape(title)}</title>\n<style>{STYLE}</style>\n</head>\n<body>\n<main>\n"
    )
    made = f'<footer class="note">Made by gpuwatch {escape(__version__)}.</footer>'
    return head + "\n".join([*body, made]) + "\n</main>\n</body>\n</html>\n"


def element(name: str, text: str, kind: str = "") -> str:
    """``text`` is escaped."""
    attribute = f' class="{kind}"' if kind else ""
    return f"<{name}{attribute}>{escape(text)}</{name}>"


def table(
    label: str,
    headings: Sequence[str],
    rows: Sequence[Sequence[str]],
    total: Sequence[str] | None = None,
) -> str:
    """A table that scrolls by itself. A heading that ends with ``:`` is of a column of text, one
    with ``::`` of long text (command lines). The first cell of a row names it."""
    kinds = ["c" if h.endswith("::") else "t" if h.endswith(":") else "" for h in headings]
    titles = "".join(
        f'<th scope="col"{_kind("t" if kind else "")}>{escape(heading.rstrip(":"))}</th>'
        for heading, kind in zip(headings, kinds, strict=True)
    )
    body = "".join(f"<tr>{_cells(row, kinds)}</tr>\n" for row in rows)
    foot = "" if total is None else f"<tfoot><tr>{_cells(total, kinds)}</tr></tfoot>"
    return (
        f'<div class="scroll" tabindex="0" role="region" aria-label="{escape(label)}"><table>'
        f"<thead><tr>{titles}</tr></thead>\n<tbody>{body}</tbody>{foot}</table></div>"
    )


def _cells(row: Sequence[str], kinds: Sequence[str]) -> str:
    first, *rest = row
    cells = [f'<th scope="row"{_kind(kinds[0])}>{escape(first)}</th>']
    cells += [
        f"<td{_kind(kind)}>{escape(cell)}</td>" for cell, kind in zip(rest, kinds[1:], strict=True)
    ]
    return "".join(cells)


def _kind(kind: str) -> str:
    return f' class="{kind}"' if kind else ""


def bullets(sentences: Iterable[str]) -> str:
    items = "".join(f"<li>{escape(sentence)}</li>" for sentence in sentences)
    return f'<ul class="plain">{items}</ul>'
