"""The forms in which ``report`` and ``compare`` write: text, JSON, Markdown, HTML."""

from __future__ import annotations

from collections.abc import Callable
from typing import TYPE_CHECKING, NamedTuple

import click

from gpuwatch.commands.options import Decorator, grouped, option_ascii, option_json, option_schema
from gpuwatch.commands.printing import (
    drawing,
    open_output,
    print_text,
    refuse_overwriting,
    write_file,
)

if TYPE_CHECKING:
    from gpuwatch.outputs.report.content.document import Document


class Form(NamedTuple):
    """The options that say how to write, as given."""

    html: str | None
    as_markdown: bool
    as_json: bool
    schema: bool
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
            print_text(as_json())
        elif self.as_markdown:
            from gpuwatch.outputs.report.forms.markdown import document_markdown

            print_text(document_markdown(made("page")))
        else:
            from gpuwatch.outputs.report.forms.text import document_text

            out = open_output()
            print_text(document_text(made("text"), **drawing(out, self.ascii_mode)._asdict()), out)


def form_options(what: str) -> Decorator:
    """The options that say how to write ``what``, as the argument ``form``."""
    return grouped(
        "form",
        Form,
        click.option("--html", metavar="OUT", help=f"Write {what} as one HTML file (- prints it)."),
        click.option("--md", "as_markdown", is_flag=True, help="Print Markdown."),
        option_json("Print JSON (see --schema)."),
        option_schema(),
        option_ascii(),
    )
