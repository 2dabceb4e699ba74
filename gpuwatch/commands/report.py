"""``gpuwatch report``: what jobs did that were watched before, and what a recording says; and
``gpuwatch compare``."""

from __future__ import annotations

import re
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import click

from gpuwatch.commands.export import CsvFiles, csv_options, write_csv
from gpuwatch.commands.options import (
    Decorator,
    grouped,
    option_ascii,
    option_gpu,
    option_json,
    option_price,
    option_refused,
    option_user,
)
from gpuwatch.commands.printing import (
    STANDARD_STREAM,
    complain,
    drawing,
    open_output,
    print_text,
    refuse_overwriting,
    shown,
    write_file,
)
from gpuwatch.commands.ranking import Ranks, rank_options, read_ranking
from gpuwatch.commands.reading import (
    Cut,
    LogFacts,
    cut_options,
    log_options,
    option_rediagnose,
    read_report,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from gpuwatch.outputs.report.document import Document
    from gpuwatch.outputs.report.model import Report
    from gpuwatch.outputs.report.ranking import Ranking
    from gpuwatch.outputs.report.store import Kept, ReportStore
    from gpuwatch.sources.logs.source import LogOptions

EXIT_HOLDS, EXIT_UNKNOWN = 1, 3
"""Exit codes of ``compare --fail-if``: a condition holds; none does, and of one that is unknown."""


class Form(NamedTuple):
    html: str | None
    as_json: bool
    ascii_mode: bool | None

    def check(self, *inputs: str) -> None:
        """Refuse what does not go together; ``inputs`` are files that are read. Raises
        ``click.UsageError``."""
        if self.html is not None and self.as_json:
            raise click.UsageError("Choose one of --html and --json.")
        refuse_overwriting(self.html, *inputs)

    def write(self, made: Callable[[str], Document], as_json: Callable[[], str]) -> None:
        """``made``: the document in the order of that form (``text`` or ``page``)."""
        if self.html is not None:
            from gpuwatch.outputs.report.html import document_html

            write_file(self.html, document_html(made("page")))
        elif self.as_json:
            print_text(as_json())
        else:
            from gpuwatch.outputs.report.text import document_text

            out = open_output()
            print_text(document_text(made("text"), **drawing(out, self.ascii_mode)._asdict()), out)


def _form_options(what: str) -> Decorator:
    """The options that say how to write ``what``, as the argument ``form``."""
    return grouped(
        "form",
        Form,
        click.option("--html", metavar="OUT", help=f"Write {what} as one HTML file (- prints it)."),
        option_json("Print JSON."),
        option_ascii(),
    )


@click.command("report")
@click.argument("references", nargs=-1, metavar="[NUMBER|PID|FILE...]")
@click.option("--list", "as_list", is_flag=True, help="List the saved reports.")
@cut_options("Of a recording:")
@log_options()
@option_rediagnose()
@rank_options()
@option_price()
@csv_options()
@_form_options("the report")
def report_command(
    references: tuple[str, ...],
    as_list: bool,
    cut: Cut,
    facts: LogFacts,
    rediagnose: bool,
    ranks: Ranks,
    price: float | None,
    csv: CsvFiles,
    form: Form,
) -> int:
    """Print the report of a job that was watched, or of a recording; or write its readings as CSV.

    Without an argument, it is the last job's. Reports are numbered from 1, the newest; a larger
    number is a PID. A job is compared with its previous run: the same command of the same user in
    the same folder (gpuwatch compare 3 1 compares any two). The last 200 reports are kept.

    FILE can also be a recording (of gpuwatch record or stream), with the files that --rotate put
    aside, or a log as diagnose takes it; - is standard input. Its report covers the whole machine,
    or part of it (--pid, --gpu, --user, --from, --to). Times are local; a time of day is the first
    one after the start of the recording. Recordings of several hosts, made at the same time, are
    one report: a job that ran on several of them is one job, diagnosed as a whole.

    With --by it is a ranking by the GPU time that was lost, of all recordings that are named and
    those in folders that are named: gpuwatch report /shared/gpuwatch --since 7d --by user. It names
    no command lines; what two recordings say of the same GPU and time counts once.

    With --csv, --csv-processes or --csv-host the readings of FILE are written for pandas and
    spreadsheets instead. OUT may be - for standard output, and is gzip if it ends in .gz. Times are
    in UTC; units are in the column names; missing readings are empty. Text that a spreadsheet would
    take for a formula starts with an apostrophe.
    """
    form.check(*references)
    if ranks.check_asked(references):
        if csv != CsvFiles(None, None, None) or cut != Cut() or rediagnose or as_list:
            raise click.UsageError(
                "--by goes with --since, --price, --html and --json, and with no other option."
            )
        _write_ranking(read_ranking(references, ranks, price), form)
        return 0
    if csv != CsvFiles(None, None, None):
        return _write_tables(references, csv, cut, facts, form)
    _refuse(references, cut, rediagnose=rediagnose)
    if as_list:
        return _list(references, form)
    from gpuwatch.outputs.report.model import priced

    report = _load(references, cut, facts.options(), rediagnose=rediagnose)
    _write(report if price is None else priced(report, price), form)
    return 0


def _write_tables(
    references: Sequence[str], csv: CsvFiles, cut: Cut, facts: LogFacts, form: Form
) -> int:
    if len(references) != 1 or not is_recording(references[0]):
        raise click.UsageError("Name one recording or log to write as CSV.")
    if form.html is not None or form.as_json:
        raise click.UsageError("Choose one of CSV, --html and --json.")
    return write_csv(references[0], csv, cut, facts)


def _refuse(references: Sequence[str], cut: Cut, *, rediagnose: bool) -> None:
    """Refuse several reports that were kept, and of one what only recordings have. Raises
    ``click.UsageError``."""
    other = next((one for one in references if not is_recording(one)), None)
    if len(references) > 1 and other is not None:
        raise click.UsageError(
            f"{shown(other)} is no recording: name one report, or the recordings of several "
            f"hosts. gpuwatch compare {' '.join(map(shown, references[:2]))} compares two reports."
        )
    if references and other is None:
        return
    for option, given in (
        *(("--pid", cut.pid is not None), ("--gpu", cut.only), ("--user", cut.users)),
        *(("--from", cut.begin), ("--to", cut.end), ("--rediagnose", rediagnose)),
    ):
        if given:
            raise click.UsageError(
                f"{option} is for the report of a recording: name its file, as in: gpuwatch "
                f"report FILE {option}"
            )


@click.command("compare")
@click.argument("before", required=False, metavar="BEFORE")
@click.argument("after", required=False, metavar="AFTER")
@click.option(
    "--fail-if",
    multiple=True,
    metavar="CONDITION",
    help="Exit with 1 if CONDITION holds for AFTER minus BEFORE: 'busy<-5%' (repeatable).",
)
@log_options()
@option_rediagnose()
@option_gpu()
@option_user()
@option_refused(
    "--pid",
    why="Two runs have processes of their own: compare what gpuwatch report BEFORE --pid PID "
    "--json and gpuwatch report AFTER --pid PID --json print.",
)
@_form_options("the comparison")
def compare_command(
    before: str | None,
    after: str | None,
    fail_if: tuple[str, ...],
    facts: LogFacts,
    rediagnose: bool,
    only: tuple[str, ...],
    users: tuple[str, ...],
    form: Form,
) -> int:
    """Compare two recordings: how busy the GPUs were, what was found, what is gone and new.

    BEFORE and AFTER are recordings or logs of GPUs, or reports as gpuwatch report takes them; one
    can be - for standard input. It warns if they are hard to compare: different GPUs or lengths.

    With --fail-if it is a gate for CI: exit code 1 if a CONDITION holds, 3 if none holds and one
    is unknown. A CONDITION is METRIC<VALUE%, or with <=, > or >=. Of busy, duty, lost, throttled
    and waits (percent of the time) VALUE is in points; of samples/s, duration, power, energy and
    memory it is in percent of BEFORE. new is any finding that BEFORE did not have, new:RULE that.
    """
    if before is None or after is None:
        raise click.UsageError("Name two recordings: gpuwatch compare BEFORE AFTER")
    if before == after == STANDARD_STREAM:
        raise click.UsageError("Only one of the two can come from standard input.")
    form.check(before, after)
    from gpuwatch.outputs.report.comparison import Condition

    conditions = [Condition.parse(text) for text in fail_if]
    options, cut = facts.options(), Cut(only=only, users=users)
    if not cut.is_whole and not (is_recording(before) and is_recording(after)):
        raise click.UsageError("--gpu and --user are for recordings: a report is of what it is of.")
    one, other = (_load([name], cut, options, rediagnose=rediagnose) for name in (before, after))

    from gpuwatch.outputs.report.comparison import compare
    from gpuwatch.outputs.report.document import comparison_document, comparison_json
    from gpuwatch.outputs.report.model import replaced

    comparison = compare(one, other)
    outcomes = [one for one in (each.judge(comparison) for each in conditions) if one]
    undecided = tuple([one for one in outcomes if one.change is None])
    failed = tuple([one for one in outcomes if one.change is not None])
    made = replaced(comparison, failed=failed, undecided=undecided)
    form.write(lambda name: comparison_document(made, name), lambda: comparison_json(made))
    for outcome in outcomes:
        complain(f"{outcome.condition}: {outcome.says}")
    return EXIT_HOLDS if failed else EXIT_UNKNOWN if undecided else 0


def _write_ranking(made: Ranking, form: Form) -> None:
    from gpuwatch.outputs.report.ranking import ranking_document, ranking_json

    form.write(lambda name: ranking_document(made, name), lambda: ranking_json(made))


def _write(report: Report, form: Form) -> None:
    from gpuwatch.outputs.report.document import report_document, report_json
    from gpuwatch.outputs.report.store import ReportStore, StoreError

    previous = None
    if report.source is None:
        # For a report in a file there need be no others.
        with suppress(StoreError):
            previous = ReportStore().previous_run(report)
    form.write(
        lambda name: report_document(report, name, previous=previous),
        lambda: report_json(report),
    )


_REPORT = re.compile(rb'"kind"\s*:\s*"(?:report|reports|comparison|diagnosis)"')


def is_recording(reference: str) -> bool:
    """True for a recording, rather than the kept report of a job (which a number or a PID is,
    too)."""
    if reference == STANDARD_STREAM:
        return True
    if reference.isascii() and reference.isdigit():
        return False
    try:
        with Path(reference).open("rb") as file:
            return _REPORT.search(file.read(200)) is None
    except (OSError, ValueError):
        # Whoever reads it says what is wrong with it.
        return False


def _load(
    references: Sequence[str],
    cut: Cut | None = None,
    options: LogOptions | None = None,
    *,
    rediagnose: bool = False,
) -> Report:
    """Load the report that is meant, the last without ``references``. Raises ``SentenceError`` for
    what is none."""
    from gpuwatch.outputs.report.store import ReportStore, read_file

    if not references:
        return _kept(ReportStore(), 1)[0].report
    reference = references[0]
    if is_recording(reference):
        return read_report(references, cut, options, rediagnose=rediagnose)
    if reference.isascii() and reference.isdigit():
        return ReportStore().find(reference).report
    return read_file(Path(reference))


def _kept(store: ReportStore, count: int) -> list[Kept]:
    """Return the newest that are kept. Raises ``StoreError`` where none is."""
    from gpuwatch.outputs.report.store import NONE_KEPT

    kept = store.last(count)
    if not kept:
        raise click.UsageError(_unreadable(store) or NONE_KEPT)
    return kept


def _unreadable(store: ReportStore) -> str:
    if not store.unreadable:
        return ""
    return (
        f"{store.unreadable} of the saved reports cannot be read: damaged, or of an older gpuwatch."
    )


def _list(references: Sequence[str], form: Form) -> int:
    if references:
        raise click.UsageError("--list shows all reports: it takes no number.")
    if form.html is not None:
        raise click.UsageError("--list prints text or JSON: it takes no --html.")
    from gpuwatch.outputs.report.store import REPORTS_KEPT, ReportStore, list_json
    from gpuwatch.outputs.report.text import list_text

    store = ReportStore()
    kept = _kept(store, REPORTS_KEPT)
    out = open_output()
    look = drawing(out, form.ascii_mode)
    numbered = [(each.number, each.report) for each in kept]
    print_text(list_json(kept) if form.as_json else list_text(numbered, **look._asdict()), out)
    if store.unreadable:
        complain(_unreadable(store))
    return 0
