"""A report as Markdown: for an issue, a wiki, a message."""

import re
from collections.abc import Iterable, Sequence

from gpuwatch.outputs.report.content import document
from gpuwatch.outputs.report.content.document import Document, Found

_SPECIAL = re.compile(r"([\\`*_{}\[\]<>()#+!|~&@$^-])")


def escaped(text: str) -> str:
    """``text`` (made safe for a terminal before) as nothing but text: no link, no tag, no
    mention."""
    return _SPECIAL.sub(r"\\\1", text).replace("://", ":\N{ZERO WIDTH SPACE}//")


def document_markdown(made: Document) -> str:
    parts = [f"# {made.heading}{' (simulated)' if made.simulated else ''}"]
    for section in made.sections:
        written = ["\n".join(_block(block)) for block in section.blocks]
        written = [text for text in written if text]
        if written:
            parts += [f"## {section.title}"] if section.title else []
            parts += written
    return "\n\n".join(parts)


def _block(block: document.Block) -> Iterable[str]:
    match block:
        case document.Said(text, style):
            mark = "**" if style in {"verdict", "bad", "command"} else ""
            yield f"{mark}{escaped(text)}{mark}"
        case document.Listed(facts):
            yield from (f"- {escaped(fact)}" for fact in facts)
        case document.Labelled(_, facts):
            yield from (f"- {label.strip()}: {escaped(text)}" for label, text in facts)
        case document.Bullets(_, sentences):
            yield from (f"- {escaped(sentence)}" for sentence in sentences)
        case document.Table():
            rules = ["--:" if one.kind == "number" else ":--" for one in block.columns]
            yield _row([one.title for one in block.columns])
            yield _row(rules, as_is=True)
            yield from map(_row, [*block.rows, *([] if block.total is None else [block.total])])
            yield from ["", f"And {block.left:,} more."] if block.left > 0 else []
        case Found():
            yield from _finding(block)


def _row(cells: Sequence[str], *, as_is: bool = False) -> str:
    return f"| {' | '.join(cell if as_is else escaped(cell) for cell in cells)} |"


def _finding(found: Found) -> Iterable[str]:
    yield f"### {escaped(found.name.removeprefix('#'))} {escaped(found.rule)} ({found.severity})"
    yield ""
    yield f"- When: {escaped(found.when)}"
    if found.cost:
        yield f"- Cost: {escaped(found.cost)}"
    for label, texts in (
        ("", found.what),
        ("**Do:** ", found.advice),
        ("Because: ", found.because),
    ):
        yield from (f"- {label}{escaped(text)}" for text in texts)
