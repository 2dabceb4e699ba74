"""``gpuwatch compare``: two recordings side by side."""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, TextIO

import click

from gpuwatch.commands import common
from gpuwatch.commands.recordings.reading import (
    STANDARD_STREAM,
    refuse_overwriting,
    summarise,
    write_file,
)
from gpuwatch.commands.recordings.report import drawing

if TYPE_CHECKING:
    from gpuwatch.outputs.summary.comparison import Comparison


@click.command("compare")
@click.argument("before", required=False, metavar="BEFORE")
@click.argument("after", required=False, metavar="AFTER")
@click.option("--html", metavar="OUT", help="Write one HTML file (- prints it).")
@click.option("--md", "as_markdown", is_flag=True, help="Print Markdown.")
@click.option("--json", "as_json", is_flag=True, help="Print JSON (see --schema).")
@click.option(
    "--schema", is_flag=True, help="Print the JSON Schema of what --json prints, and exit."
)
@click.option("--ascii/--no-ascii", "ascii_mode", default=None, help="Draw with ASCII only.")
def compare_command(
    before: str | None,
    after: str | None,
    html: str | None,
    as_markdown: bool,
    as_json: bool,
    schema: bool,
    ascii_mode: bool | None,
) -> int:
    """Compare two recordings: how busy the GPUs were, what was found, what is gone and new.

    BEFORE and AFTER are recordings (also gzip) or logs that nvidia-smi wrote; one of them may be
    - for standard input. A warning is given where the two can hardly be compared: other GPUs, or
    one much longer than the other.
    """
    if schema:
        return _print_schema()
    if before is None or after is None:
        raise click.UsageError("Name two recordings: gpuwatch compare BEFORE AFTER")
    if (html is not None) + as_markdown + as_json > 1:
        raise click.UsageError("Choose one of --html, --json and --md.")
    if before == after == STANDARD_STREAM:
        raise click.UsageError("Only one of the two can come from standard input.")
    refuse_overwriting(html, before, after)
    out = None if html is not None else common.open_output()

    from gpuwatch.outputs.summary.comparison import compare

    comparison = compare(summarise(before), summarise(after))
    if html is not None:
        from gpuwatch.outputs.html.compare import comparison_html

        write_file(html, comparison_html(comparison))
        return 0
    assert out is not None
    text = _text(comparison, out, as_markdown, as_json, ascii_mode)
    common.write_to(out, lambda: out.write(text + "\n"))
    return 0


def _text(
    comparison: Comparison,
    out: TextIO,
    as_markdown: bool,
    as_json: bool,
    ascii_mode: bool | None,
) -> str:
    from gpuwatch.outputs.recording_report import compare as outputs

    if as_json:
        return outputs.comparison_json(comparison)
    if as_markdown:
        return outputs.comparison_markdown(comparison)
    return outputs.comparison_text(comparison, **drawing(out, ascii_mode))


def _print_schema() -> int:
    from gpuwatch.outputs.recording_report.compare import COMPARISON_SCHEMA

    out = common.open_output()
    common.write_to(out, lambda: out.write(json.dumps(COMPARISON_SCHEMA, indent=2) + "\n"))
    return 0
