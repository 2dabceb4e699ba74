"""``gpuwatch report --by``: users, batch jobs or causes by the GPU time that was lost."""

from __future__ import annotations

import math
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import click

from gpuwatch.commands.options import Decorator, grouped
from gpuwatch.commands.printing import EXIT_INTERRUPTED, STANDARD_STREAM, StatusLine, shown
from gpuwatch.commands.watching import terminated_as_interrupted
from gpuwatch.core.text import SentenceError
from gpuwatch.core.units import seconds_in

if TYPE_CHECKING:
    from collections.abc import Sequence

    from gpuwatch.outputs.report.ranking import Ranking

RECORDING_ENDINGS = (".jsonl", ".jsonl.zst", ".jsonl.gz", ".zst")


class _Since(click.ParamType):  # type: ignore[type-arg]
    """Unix seconds: so long before now, or a date."""

    name = "time"

    def convert(
        self, value: Any, param: click.Parameter | None, ctx: click.Context | None
    ) -> float:
        from gpuwatch.recording.moments import MomentError, parse_moment

        seconds = seconds_in(str(value).removeprefix("-"))
        if seconds is not None:
            return time.time() - seconds
        try:
            moment = parse_moment(value)
        except MomentError:
            moment = None
        if moment is None or moment.kind != "unix":
            says = f"{shown(value)} is not a time: write it as 7d, 12h or 2026-03-01."
            self.fail(says, param, ctx)
        return moment.value


class Ranks(NamedTuple):
    """Options of a ranking: what its rows are, and since which Unix time losses count."""

    by: str | None = None
    since: float | None = None

    def check_asked(self, folders: Sequence[str]) -> bool:
        """Check whether a ranking is asked for. Raises ``click.UsageError`` where it is half
        asked for."""
        if self.by is None and self.since is not None:
            raise click.UsageError("--since is for a ranking: add --by user, job or cause.")
        folder = next((one for one in folders if Path(one).is_dir()), None)
        if self.by is None and folder is not None:
            from gpuwatch.sources.logs.text import is_folder

            raise click.UsageError(is_folder(shown(folder)))
        return self.by is not None


def rank_options() -> Decorator:
    """Add ``--by`` and ``--since``, as the argument ``ranks``."""
    return grouped(
        "ranks",
        Ranks,
        click.option(
            "--by",
            type=click.Choice(["user", "job", "cause"]),
            help="Rank users, Slurm jobs or causes by the GPU time lost, in recordings or folders.",
        ),
        click.option(
            "--since",
            type=_Since(),
            metavar="TIME",
            help="With --by: the last 7d, or since 2026-03-01.  [default: all of it]",
        ),
    )


def read_ranking(references: Sequence[str], ranks: Ranks, price: float | None) -> Ranking:
    """Read the recordings that are named, and those in folders. Raises ``SentenceError`` and
    ``click.UsageError``."""
    from gpuwatch.outputs.report.ranking import Ranker

    assert ranks.by is not None
    if not references:
        raise click.UsageError(
            "Name recordings, or folders of them, as in: gpuwatch report /shared/gpuwatch --by "
            f"{ranks.by}"
        )
    since = -math.inf if ranks.since is None else ranks.since
    paths = _recordings_in(references, since)
    ranker = Ranker(since)
    line = StatusLine(0.5, first_after_seconds=0.5)
    with terminated_as_interrupted():
        try:
            for number, path in enumerate(paths):
                line.show(f"gpuwatch: reading recording {number + 1:,} of {len(paths):,}")
                ranker.add_file(path)
        except KeyboardInterrupt:
            raise SentenceError("Interrupted: nothing is reported.", EXIT_INTERRUPTED) from None
        finally:
            line.end()
    made = ranker.ranking(ranks.by, price)
    if not made.recordings:
        says = "There is no recording of that time to rank."
        raise click.UsageError(" ".join([says, *made.notes[:3]]))
    return made


def _recordings_in(references: Sequence[str], since: float) -> list[Path]:
    """Return the recordings that are named, with the files that ``--rotate`` put aside, and those
    in folders, in the order of their names. Raises ``click.UsageError``."""
    from gpuwatch.sources.logs.text import rotated_files

    found: dict[Path, None] = {}
    for reference in references:
        path = Path(reference)
        if reference == STANDARD_STREAM or not path.exists():
            raise click.UsageError(f"{shown(reference)} is no recording, and no folder of them.")
        every = [*rotated_files(path), path]
        if path.is_dir():
            every = [one for one in path.rglob("*") if one.name.endswith(RECORDING_ENDINGS)]
        found |= dict.fromkeys(sorted(every))
    # What was not written to since then has nothing of that time.
    return [one for one in found if one.is_file() and one.stat().st_mtime >= since]
