"""Ranking of users, batch jobs or causes by the GPU time that was lost, from recordings.

Only what sums up each minute is read (``recording/file.py`` ``Entry``), so a week of a machine
takes seconds. What was found is what each recorder found then. Command lines are never read.
"""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Hashable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
from msgspec import Struct
from msgspec.json import Decoder

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.core.bounds import Seconds, Text, UnixSeconds
from gpuwatch.core.model import GpuKey, ProcessKey
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.catalogue import known
from gpuwatch.diagnosis.finding import Advice
from gpuwatch.diagnosis.ledger import CostsSoFar, Episode, Page
from gpuwatch.outputs.report import words
from gpuwatch.outputs.report.document import (
    Block,
    Bullets,
    Document,
    FactLine,
    Paragraph,
    Section,
    tabled,
)
from gpuwatch.outputs.report.model import Amount, Part, Unix, dumps, share_percent
from gpuwatch.outputs.terminal import Column
from gpuwatch.recording.charges import Account, Charges, Given, Owner
from gpuwatch.recording.file import Entry, entries_in, new_engine, open_any
from gpuwatch.recording.statistics import Statistics, TimeSums
from gpuwatch.sources.logs.text import LogError

BY = ("user", "job", "cause")
MINUTE_SECONDS = 60.0
NAMED_MOST = 4
"""Causes, and batch jobs, that a sentence names."""
ROWS_SHOWN = 50
PARAGRAPHS_SHOWN = 20
TEXT_MOST = 120
"""Characters of a name, or of a change."""

# --- the ranking ------------------------------------------------------------------------------


class LostTo(Part, frozen=True):
    """GPU time lost to one cause."""

    rule: str
    lost_gpu_seconds: Amount
    gives_back_gpu_seconds: Amount | None = None
    """Part of it that the cure would have given back, as an estimate; null: not known."""
    change: str | None = None
    """Cure, where it is a change of a setting, or the same for every job."""


class Ranked(Part, frozen=True):
    """A user, a batch job or a cause, with the GPU time that is charged to it."""

    user: str | None = None
    """User; null: not known, or several (by cause)."""
    slurm_job: str | None = None
    """Number of the batch job, in a ranking by job; null: jobs outside of one."""
    machine: str | None = None
    """Machine of jobs outside of a batch job, in a ranking by job."""
    rule: str | None = None
    """Cause, in a ranking by cause."""
    given_gpu_seconds: Amount = 0.0
    """GPU time that was given: of GPUs that several have at once, a part each."""
    busy_gpu_seconds: Amount | None = None
    """Part of it in which a kernel was resident; null: not known."""
    busy_percent: Amount | None = None
    """Share of ``busy_gpu_seconds`` in the time in which it is known how busy the GPUs were."""
    lost_gpu_seconds: Amount = 0.0
    gives_back_gpu_seconds: Amount | None = None
    """Part of what is lost that the cures would have given back, as an estimate, of the causes of
    which it is known."""
    lost: tuple[LostTo, ...] = ()
    """Causes, those that cost most first."""
    slurm_jobs: tuple[str, ...] = ()
    """Numbers of the batch jobs."""
    says: str | None = None
    """A paragraph for a mail or a ticket to the user, in a ranking by user."""


class Ranking(Part, frozen=True, kw_only=True):
    """Users, batch jobs or causes by the GPU time that was lost."""

    kind: str = "ranking"
    schema: int = 1
    gpuwatch: str = __version__
    by: str
    begin_unix_seconds: Unix
    end_unix_seconds: Unix
    price_per_gpu_hour: Amount | None = None
    simulated: bool = False
    recordings: int = 0
    machines: tuple[str, ...] = ()
    total: Ranked
    rows: tuple[Ranked, ...] = ()
    """Owners or causes, in order of the GPU time that was lost."""
    notes: tuple[str, ...] = ()


# --- minutes of recordings --------------------------------------------------------------------


class _Facts(Struct):
    user: Text | None = None
    slurm_job: Text | None = None


class _Job(Struct):
    pid: int
    started_at_unix_seconds: float | None = None
    facts: _Facts = msgspec.field(default_factory=_Facts)
    gpus: list[GpuKey] = []
    gpu_held_seconds: Seconds = 0.0
    gpu_busy_seconds: Seconds | None = None

    @property
    def key(self) -> ProcessKey:
        return (self.pid, self.started_at_unix_seconds)


class _Part(Struct, kw_only=True):
    time: TimeSums
    jobs: list[_Job] = []
    given: list[Given] | None = None
    machine: Text | None = None
    simulated: bool = False


class _Minute(Struct, kw_only=True):
    """Part of an ``Entry`` that a ranking reads."""

    run: Text
    begin_unix_seconds: UnixSeconds | None = None
    part: _Part | None = None
    ledger: Page = Page()


_DECODER = Decoder(_Minute)


def _minutes_of(path: Path) -> Iterator[_Minute | Entry]:
    """Yield the minutes of one file, without those that ``--rotate`` put aside; their texts are as
    they were written. Raises ``LogError`` for what is no recording."""
    is_summed = False
    with path.open("rb", buffering=0) as file:
        for _, minute in entries_in(file, _DECODER, as_written=True):
            time = None if minute.part is None else minute.part.time
            is_summed = is_summed or (time is not None and time.end > (time.begin or 0.0))
            yield minute
    if is_summed:
        return
    # A stream has no minutes, and a recording that is younger than one, or was cut off in its
    # first, has none that is summed up: they are made of the lines.
    engine, statistics = new_engine(), Statistics(in_parts=True)
    since, run = -math.inf, str(path)
    with open_any(str(path), begin=(path, 0)) as log:
        if log.kind != "recording":
            raise LogError(f"{log.shown} does not say whose the GPUs were.")
        yield Entry(run=run)
        for snapshot in log.snapshots:
            engine.push(snapshot)
            statistics.add_snapshot(snapshot)
            if statistics.is_due(MINUTE_SECONDS):
                yield Entry(run=run, part=statistics.take_part(), ledger=engine.ledger.page(since))
                since = snapshot.taken_at_unix_seconds
        if log.stats.snapshots == 0:
            raise LogError(
                f"{log.shown} has no whole reading: {log.stats.damage or 'it is empty'}."
            )
    engine.finish()
    if statistics.grid is not None:
        yield Entry(run=run, part=statistics.take_part(last=True), ledger=engine.ledger.page(since))


def _text(text: str | None) -> str:
    return clean(text, TEXT_MOST) if text else ""


def _owner(facts: Any) -> Owner:
    return Owner(_text(facts.user), _text(facts.slurm_job))


def _given(part: Any) -> Sequence[Given]:
    """Return who had the GPUs in a minute; that of an older gpuwatch says it by its jobs."""
    if part.given is not None:
        for one in part.given:
            one.user, one.slurm_job = _owner(one)
        return tuple(part.given)
    found = []
    for job in part.jobs:
        user, slurm_job = _owner(job.facts)
        count = max(1, len(job.gpus))
        held = job.gpu_held_seconds / count
        busy = None if job.gpu_busy_seconds is None else job.gpu_busy_seconds / count
        found += [
            Given(
                user=user,
                slurm_job=slurm_job,
                gpu=gpu,
                seconds=held,
                watched_seconds=0.0 if busy is None else held,
                busy_seconds=busy or 0.0,
            )
            for gpu in job.gpus
        ]
    return found


class _Times:
    """Times that earlier files were about, so that what two files say counts once."""

    def __init__(self) -> None:
        self._before: defaultdict[Hashable, list[list[float]]] = defaultdict(list)
        self._own: dict[Hashable, list[list[float]]] = {}

    def is_new(self, what: Hashable, begin: float, end: float) -> bool:
        """Note a time; return whether no earlier file was about its middle."""
        spans = self._own.setdefault(what, [])
        if spans and begin - spans[-1][1] <= 1.0:
            spans[-1][1] = end
        else:
            spans.append([begin, end])
        middle = 0.5 * (begin + end)
        return not any(since <= middle < until for since, until in self._before.get(what, ()))

    def end_file(self) -> None:
        for what, spans in self._own.items():
            self._before[what] += spans
        self._own = {}


@dataclass(slots=True)
class _Cure:
    """GPU time that the cures of one cause would have given back to one owner."""

    lost: float = 0.0
    """GPU seconds lost while the gain was known."""
    most: float = 0.0
    """GPU seconds that the gain is worth, of the time in which it was known."""
    cost: float = 0.0
    change: str | None = None
    """Change of the episode that cost most, which is ``cost``."""

    @property
    def gives_back(self) -> float | None:
        return min(self.lost, self.most) if self.lost > 0.0 else None


_Where = tuple[Owner, str]
"""An owner, and the machine."""
_Charged = tuple[_Where, Account, Mapping[str, _Cure]]
"""GPU time charged to an owner on one machine, and what cures would have given back, by rule."""


class Ranker:
    """Adds up recordings, of the time from ``begin`` to ``end``."""

    def __init__(self, begin: float = -math.inf, end: float = math.inf) -> None:
        self._begin, self._end = begin, end
        self._first, self._last = math.inf, -math.inf
        self._charges: defaultdict[str, Charges] = defaultdict(Charges)
        """Charges by machine."""
        self._cures: defaultdict[tuple[_Where, str], _Cure] = defaultdict(_Cure)
        self._costs: dict[str, CostsSoFar] = {}
        """Costs of the episodes of each run."""
        self._times = _Times()
        self._simulated = False
        self._recordings = 0
        self.notes: list[str] = []

    def add_file(self, path: Path) -> None:
        """Add a recording; one that cannot be read is a note."""
        before = self._recordings
        try:
            for minute in _minutes_of(path):
                self._add_minute(minute)
                self._recordings = before + 1
        except LogError as error:
            self.notes.append(str(error))
        except OSError as error:
            self.notes.append(f"{clean(str(path), 200)} cannot be read: {error.strerror}.")
        self._times.end_file()

    def _add_minute(self, minute: Any) -> None:
        is_first = minute.run not in self._costs
        costs = self._costs.setdefault(minute.run, CostsSoFar())
        part = minute.part
        begin, end = (None, 0.0) if part is None else (part.time.begin, part.time.end)
        lost = [(one, costs.added(one)) for one in minute.ledger.episodes]
        if is_first:
            # It was lost before the first file that is there, nobody knows when.
            lost = []
        if part is None or begin is None:
            return
        inside = min(end, self._end) - max(begin, self._begin)
        share = min(1.0, inside / (end - begin)) if end > begin else float(inside >= 0.0)
        if share <= 0.0:
            return
        machine = _text(part.machine)
        self._first, self._last = min(self._first, begin), max(self._last, end)
        self._simulated = self._simulated or part.simulated
        charges = self._charges[machine]
        charges.note_jobs({one.key: _owner(one.facts) for one in part.jobs})
        given = [
            one for one in _given(part) if self._times.is_new((one.gpu, one.owner), begin, end)
        ]
        charges.add_given(given, share)
        gpus = {one.key: len(one.gpus) for one in part.jobs}
        for episode, seconds in lost:
            key = episode.key._replace(rule=_text(episode.rule))
            if seconds > 0.0 and self._times.is_new((machine, key), begin, end):
                count = gpus.get(key.job, len(episode.gpus)) if key.job else len(episode.gpus)
                charges.add_lost(key, share * seconds)
                for owner, part_of in charges.shares(key).items():
                    cure = self._cures[(owner, machine), key.rule]
                    _note_cure(cure, episode, part_of * share, seconds, count * (end - begin))

    def ranking(self, by: str, price: float | None = None) -> Ranking:
        """Return the ranking of what was added."""
        every = list(self._accounts())
        grouped: defaultdict[Any, list[_Charged]] = defaultdict(list)
        for one in every:
            for key in _keys(one, by):
                grouped[key].append(one)
        rows = [_row(own, key, by) for key, own in grouped.items()]
        begin = self._begin if self._begin > -math.inf else self._first
        end = self._end if self._end < math.inf else self._last
        if self._first > self._last:
            begin = end = 0.0
        rows.sort(key=lambda row: (-row.lost_gpu_seconds, -row.given_gpu_seconds, row.user or ""))
        made = Ranking(
            by=by,
            begin_unix_seconds=max(0.0, begin),
            end_unix_seconds=max(0.0, end),
            price_per_gpu_hour=price,
            simulated=self._simulated,
            recordings=self._recordings,
            machines=tuple(sorted(self._charges)),
            total=_row(every, None, "all"),
            rows=tuple(rows),
            notes=tuple(self.notes),
        )
        if by != "user":
            return made
        told = [
            msgspec.structs.replace(row, says=paragraph(row, made)) if row.user else row
            for row in made.rows
        ]
        return msgspec.structs.replace(made, rows=tuple(told))

    def _accounts(self) -> Iterator[_Charged]:
        for machine, charges in self._charges.items():
            for owner, account in charges.accounts.items():
                where = (owner, machine)
                yield where, account, {rule: self._cures[where, rule] for rule in account.lost}


def _note_cure(
    cure: _Cure, episode: Episode, share: float, seconds: float, gpu_seconds: float
) -> None:
    """Note what the cure of an episode is worth: ``seconds`` were lost to it in a time of so many
    ``gpu_seconds`` of its job, a ``share`` of which is charged."""
    rule, gain = known(_text(episode.rule)), episode.gain
    if gain is not None and gain.factor is not None and gain.factor >= 1.0:
        cure.lost += share * seconds
        cure.most += share * gpu_seconds * (1.0 - 1.0 / gain.factor)
    elif rule.of_rest:
        # Nothing runs there: the cure gives the GPU to others.
        cure.lost += share * seconds
        cure.most += share * seconds
    if share * seconds >= cure.cost:
        cure.cost = share * seconds
        best = [one for one in episode.advice if one.setting and one.wanted]
        fixed: Sequence[Advice] = rule.cure
        cure.change = _text(best[0].change if best else fixed[0].change if fixed else None) or None


def _keys(row: _Charged, by: str) -> Iterable[Any]:
    """Return the rows of a ranking that an account belongs to."""
    (owner, machine), account, _ = row
    if by == "cause":
        return [rule for rule, seconds in account.lost.items() if seconds > 0.0]
    if by == "job":
        return [(owner, "" if owner.slurm_job else machine)]
    return [owner.user]


def _row(rows: Sequence[_Charged], key: Any, by: str) -> Ranked:
    """Return one row of a ranking, of the accounts that belong to it."""
    lost: defaultdict[str, float] = defaultdict(float)
    cures: defaultdict[str, list[_Cure]] = defaultdict(list)
    for _, account, own in rows:
        for rule, seconds in account.lost.items():
            if seconds > 0.0 and (by != "cause" or rule == key):
                lost[rule] += seconds
                cures[rule].append(own[rule])
    causes = []
    for rule, seconds in sorted(lost.items(), key=lambda item: (-item[1], item[0])):
        back = [one.gives_back for one in cures[rule] if one.gives_back is not None]
        causes.append(
            LostTo(
                rule=rule,
                lost_gpu_seconds=seconds,
                gives_back_gpu_seconds=min(sum(back), seconds) if back else None,
                change=max(cures[rule], key=lambda one: one.cost).change,
            )
        )
    back = [x for x in [one.gives_back_gpu_seconds for one in causes] if x is not None]
    watched = sum([account.watched for _, account, _ in rows])
    busy = sum([account.busy for _, account, _ in rows])
    names = [owner for (owner, _), _, _ in rows]
    slurm_jobs = sorted({one.slurm_job for one in names if one.slurm_job}, key=_by_number)
    named: dict[str, Any] = {}
    if by == "user":
        named = {"user": key or None, "slurm_jobs": tuple(slurm_jobs)}
    elif by == "job":
        owner, machine = key
        named = {
            "user": owner.user or None,
            "slurm_job": owner.slurm_job or None,
            "machine": machine or None,
        }
    elif by == "cause":
        named = {"rule": key}
    return Ranked(
        **named,
        given_gpu_seconds=sum([account.given for _, account, _ in rows]),
        busy_gpu_seconds=busy if watched > 0.0 else None,
        busy_percent=share_percent(busy, watched),
        lost_gpu_seconds=sum(lost.values()),
        gives_back_gpu_seconds=sum(back) if back else None,
        lost=tuple(causes),
    )


def _by_number(text: str) -> tuple[int, str]:
    return (len(text), text)


# --- what it says -----------------------------------------------------------------------------


def hours(seconds: float | None) -> str:
    """Return ``0.42``, ``4.2``, ``1,234``: hours for a table."""
    if seconds is None:
        return units.UNKNOWN
    value = seconds / 3600.0
    return f"{value:,.{2 if value < 1 else 1 if value < 1000 else 0}f}"


def who(row: Ranked) -> str:
    """Return the user; ``nobody`` for what was lost of GPUs that nobody is known to have."""
    if row.user:
        return clean(row.user, 60)
    return "user unknown" if row.given_gpu_seconds >= 1.0 else "nobody"


def period(ranking: Ranking) -> str:
    """Return ``2026-03-01 20:00 to 2026-03-08 20:00``."""
    ends = (ranking.begin_unix_seconds, ranking.end_unix_seconds)
    return " to ".join([words.clock(at, "%F %H:%M") for at in ends])


def paragraph(row: Ranked, ranking: Ranking) -> str:
    """Return what one user should know, for a mail or a ticket; nobody else is named in it."""
    price = ranking.price_per_gpu_hour
    jobs = ""
    if row.slurm_jobs:
        named = [clean(one, 40) for one in row.slurm_jobs[:NAMED_MOST]]
        left = len(row.slurm_jobs) - len(named)
        named += [f"{left} more"] if left > 0 else []
        jobs = f" (Slurm job{'' if len(row.slurm_jobs) == 1 else 's'} {units.listed(named)})"
    busy = "" if row.busy_percent is None else f", busy {row.busy_percent:.0f}% of the time"
    given = units.gpu_time(row.given_gpu_seconds)
    says = [
        f"GPU time, {period(ranking)}: {given} were given to the jobs of {who(row)}{jobs}{busy}."
    ]
    if row.lost_gpu_seconds < 1.0:
        return f"{says[0]} No time was lost to a cause that gpuwatch knows."
    share = share_percent(row.lost_gpu_seconds, row.given_gpu_seconds)
    of = "" if share is None else f" ({share:.0f}%)"
    cost = units.worth(row.lost_gpu_seconds, price, None)
    says.append(f"{units.gpu_time(row.lost_gpu_seconds)}{of} were lost{cost}:")
    shown = [_lost_words(one) for one in row.lost[:NAMED_MOST]]
    rest = sum([one.lost_gpu_seconds for one in row.lost[NAMED_MOST:]])
    shown += [f"{units.gpu_time(rest)} to other causes"] if rest >= 1.0 else []
    says.append(f"{'; '.join(shown)}.")
    says.append(f"More on the first: gpuwatch explain {row.lost[0].rule}.")
    return " ".join(says)


def _lost_words(one: LostTo) -> str:
    """Return ``3.9 GPU-hours to "loader is CPU-bound" (num_workers 2 -> 8 would have given back
    about 1.9 GPU-hours)``."""
    text = f'{units.gpu_time(one.lost_gpu_seconds)} to "{words.cause(one.rule)}"'
    cure = clean(one.change, 120) if one.change else ""
    back = one.gives_back_gpu_seconds
    if back is not None and back >= 1.0:
        text += f" ({cure or 'a fix'} would have given back about {units.gpu_time(back)})"
    elif cure:
        text += f" (try: {cure})"
    return text


def _mostly(row: Ranked) -> str:
    if not row.lost:
        return ""
    first = row.lost[0]
    share = share_percent(first.lost_gpu_seconds, row.lost_gpu_seconds)
    return f"{words.cause(first.rule)} {share or 0.0:.0f}%"


def _columns(ranking: Ranking) -> list[Column[Ranked]]:
    price, by = ranking.price_per_gpu_hour, ranking.by

    def _share(row: Ranked) -> float | None:
        """Return the share of what was given; of a cause, of all that was."""
        whole = ranking.total if by == "cause" else row
        return share_percent(row.lost_gpu_seconds, whole.given_gpu_seconds)

    cause = Column[Ranked]("CAUSE", lambda row: words.cause(row.rule or ""), "text")
    user = Column[Ranked]("USER", who, "text")
    job = Column[Ranked]("SLURM JOB", _job_name, "text")
    named = {"user": [user], "job": [job, user], "cause": [cause]}[by]
    figures: list[Column[Ranked]] = [
        Column("GIVEN H", lambda row: hours(row.given_gpu_seconds), page="Given, GPU-hours"),
        Column("BUSY", lambda row: units.percent(row.busy_percent), rank=3),
    ]
    lost: list[Column[Ranked]] = [
        Column("LOST H", lambda row: hours(row.lost_gpu_seconds), page="Lost, GPU-hours"),
        Column(
            "OF GIVEN",
            lambda row: units.percent(_share(row)),
            rank=2,
            page="Lost, share of the GPU time given",
        ),
        Column(
            "CURE H",
            lambda row: hours(row.gives_back_gpu_seconds),
            rank=1,
            page="A cure would have given back, GPU-hours",
        ),
    ]
    if price is not None:
        money = Column[Ranked](
            "MONEY",
            lambda row: f"{row.lost_gpu_seconds / 3600.0 * price:,.2f}",
            rank=4,
            page="Lost, money",
        )
        lost.append(money)
    mostly = [] if by == "cause" else [Column[Ranked]("MOSTLY", _mostly, "text", rank=5)]
    return [*named, *([] if by == "cause" else figures), *lost, *mostly]


def _job_name(row: Ranked) -> str:
    if row.slurm_job:
        return clean(row.slurm_job, 40)
    return f"none, on {clean(row.machine or 'a machine', 40)}"


def ranking_document(ranking: Ranking, form: str) -> Document:
    """Return the document of a ranking, for ``form`` (``text`` or ``page``)."""
    by, total = ranking.by, ranking.total
    title = f"GPU time lost, by {'Slurm job' if by == 'job' else by}"
    price = ranking.price_per_gpu_hour
    facts = [
        units.plural(ranking.recordings, "recording"),
        units.plural(len(ranking.machines), "machine"),
        *([] if price is None else [f"{price:g} a GPU-hour"]),
    ]
    share = share_percent(total.lost_gpu_seconds, total.given_gpu_seconds)
    cost = units.worth(total.lost_gpu_seconds, price, None)
    verdict = (
        f"{units.gpu_time(total.lost_gpu_seconds)} of {units.gpu_time(total.given_gpu_seconds)} "
        f"were lost{'' if share is None else f' ({share:.0f}%)'}{cost}."
    )
    table = tabled("Ranking", _columns(ranking), ranking.rows, form, most=ROWS_SHOWN)
    told = [row.says for row in ranking.rows if row.says and row.lost_gpu_seconds >= 1.0]
    paragraphs: list[Block] = [Paragraph(text) for text in told[:PARAGRAPHS_SHOWN]]
    if len(told) > PARAGRAPHS_SHOWN:
        left = units.plural(len(told) - PARAGRAPHS_SHOWN, "more user")
        paragraphs.append(Paragraph(f"and {left} (--json has them)", "note"))
    sections = [
        Section("", [Paragraph(verdict, "verdict"), FactLine([period(ranking), *facts])]),
        Section(f"By {'Slurm job' if by == 'job' else by}", [table] if ranking.rows else []),
        *[
            Section("For a mail or a ticket" if not at else "", [one])
            for at, one in enumerate(paragraphs)
        ],
        Section("Notes", [Bullets("Notes", ranking.notes)] if ranking.notes else []),
    ]
    return Document(
        f"{title}, {period(ranking)}",
        title,
        ranking.simulated,
        [one for one in sections if one.blocks],
    )


def ranking_json(ranking: Ranking) -> str:
    """Return the ranking as one JSON object, without a line end."""
    return dumps(ranking)
