"""The forms in which ``report`` and ``compare`` write: text, JSON, Markdown, HTML."""

from __future__ import annotations

import functools
import os
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, TextIO

import click

from gpuwatch.commands import common
from gpuwatch.commands.recordings.reading import refuse_overwriting, write_file

if TYPE_CHECKING:
    from gpuwatch.outputs.report.content.document import Document

WIDTH_WITHOUT_TERMINAL = 80


class Form(NamedTuple):
    """The options that say how to write, as given."""

    html: str | None
    as_markdown: bool
    as_json: bool
    ascii_mode: bool | None

    def check(self, *inputs: str) -> None:
        """Raises ``click.UsageError`` for what does not go together; ``inputs`` are files that are
        read."""
        if (self.html is not None) + self.as_markdown + self.as_json > 1:
            raise click.UsageError("Choose one of --html, --json and --md.")
        refuse_overwriting(self.html, *inputs)

    def write(self, made: Callable[[str], Document], as_json: Callable[[], str]) -> None:
        """``made``: the document in the order of that form (``text`` or ``page``)."""
        if self.html is not None:
            from gpuwatch.outputs.report.forms.html import document_html

            write_file(self.html, document_html(made("page")))
        elif self.as_json:
            write_text(as_json())
        elif self.as_markdown:
            from gpuwatch.outputs.report.forms.markdown import document_markdown

            write_text(document_markdown(made("page")))
        else:
            from gpuwatch.outputs.report.forms.text import document_text

            out = common.open_output()
            write_text(document_text(made("text"), **drawing(out, self.ascii_mode)))


def form_options(
    what: str,
) -> Callable[[Callable[..., int]], Callable[..., int]]:
    """Options that become the argument ``form``."""
    options: Sequence[Any] = (
        click.option("--html", metavar="OUT", help=f"Write {what} as one HTML file (- prints it)."),
        click.option("--md", "as_markdown", is_flag=True, help="Print Markdown."),
        click.option("--json", "as_json", is_flag=True, help="Print JSON (see --schema)."),
        click.option(
            "--schema", is_flag=True, help="Print the JSON Schema of what --json prints, and exit."
        ),
        click.option(
            "--ascii/--no-ascii", "ascii_mode", default=None, help="Draw with ASCII only."
        ),
    )

    def add(command: Callable[..., int]) -> Callable[..., int]:
        @functools.wraps(command)
        def called(*arguments: Any, **given: Any) -> int:
            form = Form(*[given.pop(name) for name in Form._fields])
            return command(*arguments, form=form, **given)

        for option in reversed(options):
            called = option(called)
        return called

    return add


def write_text(text: str) -> None:
    out = common.open_output()
    common.write_to(out, lambda: out.write(text + "\n"))


def drawing(out: TextIO, ascii_mode: bool | None) -> dict[str, Any]:
    """``width``, ``colour`` and ``unicode`` for what is printed to ``out``."""
    if ascii_mode is None:
        ascii_mode = not (out.encoding or "").lower().replace("-", "").startswith("utf")
    terminal = out.isatty()
    return {
        "width": common.terminal_width(out) if terminal else WIDTH_WITHOUT_TERMINAL,
        "colour": terminal and not os.environ.get("NO_COLOR") and not common.is_dumb(),
        "unicode": not ascii_mode,
    }
