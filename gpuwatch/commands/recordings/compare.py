"""``gpuwatch compare``: two recordings, or two reports, side by side."""

import click

from gpuwatch.commands.printing import STANDARD_STREAM
from gpuwatch.commands.recordings.forms import Form, form_options
from gpuwatch.commands.recordings.reading import LogFacts, log_options
from gpuwatch.commands.recordings.report import load, print_schema, write_comparison


@click.command("compare")
@click.argument("before", required=False, metavar="BEFORE")
@click.argument("after", required=False, metavar="AFTER")
@log_options()
@form_options("the comparison")
def compare_command(before: str | None, after: str | None, facts: LogFacts, form: Form) -> int:
    """Compare two recordings: how busy the GPUs were, what was found, what is gone and new.

    BEFORE and AFTER are recordings or logs of GPUs, or reports as gpuwatch report takes them; one
    can be - for standard input. It warns if they are hard to compare: different GPUs or lengths.
    """
    if form.schema:
        from gpuwatch.outputs.report.comparison import Comparison

        return print_schema(Comparison, "gpuwatch compare --json")
    if before is None or after is None:
        raise click.UsageError("Name two recordings: gpuwatch compare BEFORE AFTER")
    if before == after == STANDARD_STREAM:
        raise click.UsageError("Only one of the two can come from standard input.")
    form.check(before, after)
    options = facts.options()
    return write_comparison(load(before, options=options), load(after, options=options), form)
