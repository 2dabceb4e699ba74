"""Phases of a time: a GPU's busy share cut into start-up, steady work, idleness and the end; what
was lost in each by the diagnosis of the whole, and what stays undecided.

Idle runs are cut out first; what is left is cut where its level changes for good, each time at the
place that explains most of its variance. A signal that swings has no such place.
"""

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import accumulate
from typing import NamedTuple

from gpuwatch.core import units
from gpuwatch.core.bounds import total
from gpuwatch.core.model import GpuKey
from gpuwatch.diagnosis.finding import WINDOW_SECONDS, Pause, rank
from gpuwatch.diagnosis.ledger import OF_FINDING, Episode, EpisodeKey, Ledger
from gpuwatch.diagnosis.rule import NO_ANSWER, Rule
from gpuwatch.diagnosis.rules.shared.pauses import idle_part
from gpuwatch.diagnosis.sentence import GPUS_PLACE as GPUS
from gpuwatch.diagnosis.sentence import PAUSED_PLACE as PAUSED
from gpuwatch.diagnosis.sentence import filled
from gpuwatch.diagnosis.verdict import (
    EARLY_SECONDS,
    FED_PERCENT,
    PAUSE_COSTS,
    PAUSES_COST,
    how_it_swings,
    how_paused,
    is_of_start,
    needs_time,
)
from gpuwatch.outputs.report.model import (
    FindingUse,
    GpuUsage,
    Loss,
    OpenQuestion,
    Phase,
    Stretch,
    replaced,
)

# --- one GPU's busy share, cut into spans -----------------------------------------------------

IDLE_PERCENT = 5.0
"""Busy share below which a GPU rests: a desktop, or a query of the driver, keeps it busy for some
percent of a moment."""
IDLE_SECONDS = 60.0
"""Shortest idle span between work; shorter idling is a pause of the work."""
EDGE_SECONDS = 12.0
"""Shortest span at the beginning and the end, where nothing says how much longer it was."""
BLIP_SECONDS = 10.0
"""Shortest work between long rests that is a job."""
LEVELS_APART_PERCENT = 15.0
LEVELS_CLEAR = 30.0
"""Times the variance by chance that a cut must explain: more than five standard deviations."""
CELLS_LEAST = 3
SPANS_MOST = 12
"""Most spans: more is a rhythm, of which a person wants to know the whole."""
LOW_SHARE = 0.25
"""Work first seen at less than this share of the level, and for less, than what follows is its
start-up; last seen so, and for less than this share of it, it is the end, or a pause."""


class Cell(NamedTuple):
    """The shortest piece of time that is looked at."""

    begin: float
    end: float
    seconds: float
    """Seconds of it in which the GPU was read."""
    busy: float
    """Busy seconds of those."""
    held: float = 0.0
    """Share of it (0 to 1) in which memory was held; 0: not read."""

    @property
    def works(self) -> bool:
        return 100.0 * self.busy >= IDLE_PERCENT * self.seconds


@dataclass(slots=True)
class Span:
    kind: str
    """Kind of span: ``start``, ``steady``, ``idle``, ``end`` or ``lost``."""
    begin: float
    end: float
    seconds: float
    """Seconds in which the GPU was read; of ``lost``, all of it."""
    busy: float = 0.0
    held: float = 0.0
    """Seconds idled while memory was held."""
    pauses: list[Pause] = field(default_factory=list)
    lost: dict[str, float] = field(default_factory=dict)
    """Seconds lost, by cause."""
    idle_lost: float = 0.0
    """Idle seconds of those lost."""

    @property
    def rests(self) -> bool:
        return 100.0 * self.busy < IDLE_PERCENT * self.seconds

    @property
    def fed(self) -> bool:
        return 100.0 * self.busy >= FED_PERCENT * self.seconds

    @property
    def left(self) -> float:
        """Seconds idled that nothing has been found for."""
        return max(0.0, self.seconds - self.busy - self.idle_lost)

    @property
    def paused(self) -> float:
        """Seconds idled in its pauses."""
        return sum([pause.seconds * idle_part(pause) for pause in self.pauses])

    def lose(self, to: str, seconds: float, *, idle: bool = True) -> None:
        seconds = min(seconds, self.left) if idle else seconds
        if seconds > 0.0:
            self.lost[to] = self.lost.get(to, 0.0) + seconds
            self.idle_lost += seconds if idle else 0.0


class _Piece(NamedTuple):
    works: bool
    cells: Sequence[Cell]

    @property
    def seconds(self) -> float:
        return sum([cell.seconds for cell in self.cells])

    @property
    def level(self) -> float:
        return sum([cell.busy for cell in self.cells]) / self.seconds

    def span(self, kind: str) -> Span:
        seconds, first, last = self.seconds, self.cells[0], self.cells[-1]
        held = sum([max(0.0, cell.seconds - cell.busy) * cell.held for cell in self.cells])
        return Span(kind, first.begin, last.end, seconds, self.level * seconds, held)


def spans(cells: Sequence[Cell]) -> list[Span]:
    """Return at most ``SPANS_MOST`` spans in the order of time, of cells in which the GPU was
    read."""
    if not cells:
        return []
    scale = 1.0
    while len(found := _named(_pieces(cells, scale))) > SPANS_MOST:
        scale *= 2.0
    return found


def _pieces(cells: Sequence[Cell], scale: float) -> list[_Piece]:
    """Return work and rests, the work cut where its level changes."""
    seconds = sum([cell.seconds for cell in cells])
    worked = sum([cell.seconds for cell in cells if cell.works])
    # A try of some seconds in a long rest is no work.
    any_ = worked >= min(BLIP_SECONDS, 0.1 * seconds)
    runs = _joined([_Piece(any_ and cell.works, (cell,)) for cell in cells], scale)
    if seconds > BLIP_SECONDS:
        runs = _joined(_without_blips(runs), scale)
    runs = _joined(_without_short_rests(runs, scale), scale)
    return [piece for run in runs for piece in (_levels(run, scale) if run.works else [run])]


def _without_blips(runs: Sequence[_Piece]) -> list[_Piece]:
    """Take work of moments between long rests for rest."""
    rests = [IDLE_SECONDS, *[0.0 if run.works else run.seconds for run in runs], IDLE_SECONDS]
    return [
        run._replace(works=False)
        if run.seconds < BLIP_SECONDS and min(rests[at], rests[at + 2]) >= IDLE_SECONDS
        else run
        for at, run in enumerate(runs)
    ]


def _without_short_rests(runs: Sequence[_Piece], scale: float) -> list[_Piece]:
    """Take short rests for pauses of the work around them."""
    last = len(runs) - 1
    if last == 0:
        return [*runs]
    least = [IDLE_SECONDS if 0 < at < last else EDGE_SECONDS for at in range(len(runs))]
    return [
        run._replace(works=run.works or run.seconds < scale * seconds)
        for run, seconds in zip(runs, least, strict=True)
    ]


def _joined(pieces: Sequence[_Piece], scale: float) -> list[_Piece]:
    """Join neighbours of one kind, where nothing long lies unread between them."""
    found: list[_Piece] = []
    for piece in pieces:
        last = found[-1] if found else None
        near = last and piece.cells[0].begin - last.cells[-1].end < scale * IDLE_SECONDS
        if last and near and last.works == piece.works:
            found[-1] = _Piece(last.works, [*last.cells, *piece.cells])
        else:
            found.append(piece)
    return found


def _levels(run: _Piece, scale: float, *, first: bool = True, last: bool = True) -> list[_Piece]:
    """Cut where its level changes; ``first`` and ``last`` of the work between two idle runs."""
    before = scale * (EDGE_SECONDS if first else IDLE_SECONDS)
    place = _cut(run.cells, before, scale * (EDGE_SECONDS if last else IDLE_SECONDS))
    if place is None:
        return [run]
    one, two = _Piece(True, run.cells[:place]), _Piece(True, run.cells[place:])
    return [
        *_levels(one, scale, first=first, last=False),
        *_levels(two, scale, first=False, last=last),
    ]


def _cut(cells: Sequence[Cell], before: float, after: float) -> int | None:
    """Return the place of the best cut, if there is one; ``before`` and ``after``: seconds that
    must lie on either side."""
    seconds = list(accumulate([cell.seconds for cell in cells]))
    busy = list(accumulate([cell.busy for cell in cells]))
    whole, level = seconds[-1], busy[-1] / seconds[-1]
    scatter = sum([c.seconds * (c.busy / c.seconds - level) ** 2 for c in cells])
    best, place = 0.0, None
    for at in range(CELLS_LEAST, len(cells) - CELLS_LEAST + 1):
        left, right = seconds[at - 1], whole - seconds[at - 1]
        apart = abs(busy[at - 1] / left - (busy[-1] - busy[at - 1]) / right)
        explained = apart * apart * left * right / whole
        long = left >= before and right >= after
        if long and explained > best and 100.0 * apart >= LEVELS_APART_PERCENT:
            best, place = explained, at
    by_chance = (scatter - best) / max(1, len(cells) - 2)
    return place if best > LEVELS_CLEAR * by_chance else None


def _kinds(pieces: Sequence[_Piece]) -> list[str]:
    works = [at for at, piece in enumerate(pieces) if piece.works]
    kinds = ["steady" if piece.works else "idle" for piece in pieces]
    for at, piece in enumerate(pieces):
        if works and not works[0] <= at <= works[-1]:
            kinds[at] = "start" if at < works[0] else "end"
        elif piece.works and at + 1 < len(pieces) and kinds[at - 1 : at] != ["steady"]:
            kinds[at] = "start" if _is_low(piece, pieces[at + 1]) else "steady"
    if len(pieces) > 1 and _is_low(pieces[-1], pieces[-2], LOW_SHARE):
        kinds[-1] = "end"
    return kinds


def _named(pieces: Sequence[_Piece]) -> list[Span]:
    """Return the pieces as spans; those of one start-up are one."""
    found: list[tuple[str, _Piece]] = []
    for kind, piece in zip(_kinds(pieces), pieces, strict=True):
        if kind == "start" and found and found[-1][0] == "start":
            found[-1] = kind, _Piece(True, [*found[-1][1].cells, *piece.cells])
        else:
            found.append((kind, piece))
    return [piece.span(kind) for kind, piece in found]


def _is_low(piece: _Piece, beside: _Piece, most: float = 1.0) -> bool:
    shorter = piece.seconds < most * beside.seconds
    return piece.works and beside.works and shorter and piece.level < LOW_SHARE * beside.level


def are_alike(one: Sequence[Span], other: Sequence[Span], near_seconds: float) -> bool:
    return [span.kind for span in one] == [span.kind for span in other] and all(
        abs(a.begin - b.begin) <= near_seconds
        and abs(a.end - b.end) <= near_seconds
        and abs(a.busy - b.busy) < LEVELS_APART_PERCENT / 200.0 * a.seconds
        for a, b in zip(one, other, strict=True)
    )


# --- all GPUs, with what was said of them -----------------------------------------------------

MOSTLY = 0.5
"""Share of a GPU's time from which a question is open, where its work does not answer it."""
NOTABLE_SHARE = 0.05
"""Share of a GPU's work that a loss must reach to be worth a question."""
HELD_SHARE = 0.25
"""Share of a GPU's time at rest with memory held from which that is a question: less is a job
between two others."""
START, PAUSES, HELD, UNKNOWN = CAUSES = "start", "pauses", "held", "unknown"
"""Causes of lost time, beside the rules."""
_HELD = (
    f"{GPUS} held memory and ran nothing: a service that waits for requests, a person's session, "
    "or a job that hangs; its processes show which (gpuwatch beside the job)"
)
_Open = tuple[GpuUsage, Sequence[Span], float]
"""(GPU, spans that a question is about, seconds lost)."""


def _rule(name: str) -> Rule:
    # Slow to import, unless something is diagnosed.
    from gpuwatch.diagnosis.catalogue import known  # noqa: PLC0415

    return known(name)


def finding_uses(
    episodes: Iterable[Episode], begin: float, end: float, *, newest: bool = False
) -> tuple[FindingUse, ...]:
    """Return each finding over the time from ``begin`` to ``end``, those that endanger work first,
    then by what was lost. ``newest``: as it was last, not as it was when surest."""
    rows: dict[EpisodeKey, list[Episode]] = {}
    for one in episodes:
        rows.setdefault(one.key, []).append(one)
    uses = [(_use(row, begin, end, newest=newest), row[-1].cost_share) for row in rows.values()]
    uses.sort(
        key=lambda one: rank(one[0].severity, one[0].cost_gpu_seconds, one[1], one[0].seconds)
    )
    return tuple([use for use, _ in uses])


def _use(row: Sequence[Episode], begin: float, end: float, *, newest: bool) -> FindingUse:
    said = row[-1] if newest else max(reversed(row), key=lambda one: one.confidence)
    stretches = []
    for one in row:
        since = max(begin, one.begin_unix_seconds)
        until = end if one.end_unix_seconds is None else min(end, one.end_unix_seconds)
        stretches.append(
            Stretch(
                begin_unix_seconds=since,
                end_unix_seconds=max(since, until),
                cost_gpu_seconds=one.cost_gpu_seconds,
            )
        )
    return FindingUse(
        **{name: getattr(said, name) for name in OF_FINDING},
        gpus=tuple(dict.fromkeys([gpu for one in row for gpu in one.gpus])),
        holds_at_end=row[-1].holds,
        seconds=sum([one.seconds for one in stretches]),
        cost_gpu_seconds=total(one.cost_gpu_seconds for one in row),
        stretches=tuple(stretches),
    )


class JudgedPhases:
    """Phases and open questions of all GPUs, whose ``spans`` are given, and those ``findings`` that
    stand, by the ``ledger``. ``processes``: those on the GPUs are known, so rules say what they do
    there."""

    def __init__(
        self,
        gpus: Sequence[GpuUsage],
        spans: Mapping[GpuKey, Sequence[Span]],
        findings: Sequence[FindingUse],
        ledger: Ledger,
        *,
        processes: bool,
    ) -> None:
        self._gpus, self._spans, self._ledger = gpus, spans, ledger
        kept = [self._at_rest(use) for use in findings]
        self.findings = tuple([use for use in kept if use is not None])
        for uuid, own in spans.items():
            for span in own:
                span.pauses = _within(ledger.pauses(uuid), span)
        for use in self.findings:
            self._allot(use)
        for uuid, own in spans.items():
            self._start(uuid, own)
            _explain(own, processes=processes)

    def _start(self, gpu: GpuKey, spans: Sequence[Span]) -> None:
        """Name the time in which the job was seen to start, and did not work steadily yet, as
        start-up, where it came to work."""
        end = spans[-1].end if spans else 0.0
        for one in self._ledger.undecided(gpu):
            if not is_of_start(one.says) or one.end_unix_seconds > end - EARLY_SECONDS:
                continue
            for span in spans:
                # Pauses are those of steady work.
                left = max(0.0, span.left - span.paused)
                within = _share_within(span, one.begin_unix_seconds, one.end_unix_seconds)
                span.lose(START, left * within)

    def _at_rest(self, use: FindingUse) -> FindingUse | None:
        """Cut a finding about a rest to its last stretch, and drop it where a stretch that work
        ended was as long: such a GPU was waited for, and will be again."""
        if not _rule(use.rule).of_rest:
            return use
        *before, last = sorted(use.stretches, key=lambda one: one.end_unix_seconds)
        works = [x for uuid in use.gpus for x in self._spans.get(uuid, ()) if x.kind == "steady"]
        again = any(one.end > last.end_unix_seconds for one in works)
        if again or any(one.seconds >= last.seconds for one in before):
            return None
        cost, seconds = last.cost_gpu_seconds, last.seconds
        return replaced(use, stretches=(last,), cost_gpu_seconds=cost, seconds=seconds)

    def _allot(self, use: FindingUse) -> None:
        """Share the cost of its stretches among the spans in which its GPUs idled."""
        rule = _rule(use.rule)
        spans = [span for uuid in use.gpus for span in self._spans.get(uuid, ())]
        for stretch in use.stretches:
            parts = _weights(spans, stretch, rule)
            whole, cost = sum(parts.values()), stretch.cost_gpu_seconds
            if cost is None and rule.settles:
                # Nothing is lost to it, and it says why the GPU idled.
                cost = whole
            for at, weight in parts.items() if whole > 0.0 else ():
                lost = (cost or 0.0) * weight / whole
                spans[at].lose(use.rule, lost, idle=not rule.lost_while_busy)

    def phases(self, near_seconds: float) -> tuple[Phase, ...]:
        """Return the phases, with GPUs that did the same at the same time as one."""
        groups: list[list[tuple[GpuKey, Sequence[Span]]]] = []
        for uuid, own in self._spans.items():
            near = [x for x in groups if are_alike(own, x[0][1], near_seconds)]
            if near:
                near[0].append((uuid, own))
            else:
                groups.append([(uuid, own)])
        return tuple(
            _phase(tuple([uuid for uuid, _ in group]), row)
            for group in groups
            for row in zip(*[own for _, own in group], strict=True)
        )

    def questions(self) -> tuple[OpenQuestion, ...]:
        """Return the open questions, the most costly first."""
        groups: dict[tuple[str, str], list[_Open]] = {}
        for gpu in self._gpus:
            for about, says, spans, lost in self._open(gpu):
                groups.setdefault((about, says), []).append((gpu, spans, lost))
        made = [_question(about, says, of) for (about, says), of in groups.items()]
        return tuple(sorted(made, key=lambda one: -one.lost_gpu_seconds))

    def _open(self, gpu: GpuUsage) -> Iterable[tuple[str, str, Sequence[Span], float]]:
        asked, spans = self._ledger.undecided_seconds(gpu.uuid), self._spans[gpu.uuid]
        watched = gpu.watched_seconds or 0.0
        # What was open because it was early was asked again later.
        longest = sorted(asked, key=lambda says: (needs_time(says), -asked[says]))
        pauses = [says for says in longest if PAUSED in says][:1]
        cause = [says for says in longest if PAUSED not in says][:1]
        steady = [span for span in spans if span.kind == "steady"]
        seconds = sum([span.seconds for span in steady])
        many = sum([len(span.pauses) for span in steady]) > 1
        yield from _lost(PAUSES, pauses, steady, (PAUSES_COST if many else PAUSE_COSTS) * seconds)
        yield from _lost(HELD, [_HELD], spans, HELD_SHARE * watched)
        unknown = list(_lost(UNKNOWN, cause, steady, NOTABLE_SHARE * seconds))
        yield from unknown
        started = sum([span.seconds for span in spans if span.kind == "start"])
        # What was asked while it started is answered by a minute of work.
        little = max(
            EARLY_SECONDS,
            MOSTLY * (gpu.seen_seconds - started),
            min(WINDOW_SECONDS, MOSTLY * gpu.seen_seconds),
        )
        if not unknown and seconds < little and sum(asked.values()) > MOSTLY * gpu.seen_seconds:
            yield from [(UNKNOWN, says, spans, sum([x.left for x in spans])) for says in cause]


def _weights(spans: Sequence[Span], stretch: Stretch, rule: Rule) -> Mapping[int, float]:
    """Return the places of the spans that share what was lost in a stretch, with how much of it
    each could have lost."""
    if rule.means is NO_ANSWER and any(span.kind == "lost" for span in spans):
        begin, end = stretch.begin_unix_seconds, stretch.end_unix_seconds
        return {
            at: span.left * _share_within(span, begin, end)
            for at, span in enumerate(spans)
            if span.kind == "lost"
        }
    # What it cost began before it was found, up to a window earlier.
    begin, end = stretch.begin_unix_seconds - WINDOW_SECONDS, stretch.end_unix_seconds
    weights = {
        at: (span.busy if rule.lost_while_busy else span.left) * _share_within(span, begin, end)
        for at, span in enumerate(spans)
        if span.kind != "lost"
    }
    if rule.of_rest:
        return weights
    # A window that ends in idleness still shows the work before it.
    works = {at: one for at, one in weights.items() if one > 0.0 and spans[at].kind == "steady"}
    # Nor is it lost by work that was fed, where other work was not.
    unfed = {at: one for at, one in works.items() if rule.lost_while_busy or not spans[at].fed}
    return unfed or works or weights


def _share_within(span: Span, begin: float, end: float) -> float:
    """Return the share of a span (0 to 1) that lies between two moments."""
    inside = max(0.0, min(end, span.end) - max(begin, span.begin))
    return inside / max(1e-9, span.end - span.begin)


def _lost(
    about: str, sentences: Iterable[str], spans: Iterable[Span], least: float
) -> Iterable[tuple[str, str, Sequence[Span], float]]:
    """Return the sentence, if more than ``least`` was lost to it."""
    # Pauses are a share of all the work.
    found = [span for span in spans if about == PAUSES or span.lost.get(about)]
    lost = sum([span.lost.get(about, 0.0) for span in found])
    return [(about, says, found, lost) for says in sentences if found and lost > least]


def _explain(spans: Sequence[Span], *, processes: bool) -> None:
    """Name causes for the idle time that no finding explains."""
    least = 1.0 - FED_PERCENT / 100.0
    for span in spans:
        if span.kind == "start":
            span.lose(START, span.left)
        elif span.kind == "steady":
            of_pauses = [to for to in span.lost if to not in CAUSES and _rule(to).of_pauses]
            span.lose(PAUSES, span.paused - sum([span.lost[to] for to in of_pauses]))
        elif span.rests and not processes:
            span.lose(HELD, span.held)
        found = sum([seconds for to, seconds in span.lost.items() if to not in CAUSES])
        # What is found of the ranks that wait explains those that keep them waiting.
        if span.kind == "steady" and span.left > max(least * span.seconds, found / MOSTLY):
            span.lose(UNKNOWN, span.left)


def _within(pauses: Iterable[Pause], span: Span) -> list[Pause]:
    """Return the pauses that are mostly a part of its work: longer ones are spans of their own."""
    found = []
    for one in pauses if span.kind == "steady" else ():
        begin = one.at_unix_seconds
        inside = min(begin + one.seconds, span.end) - max(begin, span.begin)
        if inside > MOSTLY * one.seconds:
            found.append(replace(one, seconds=inside))
    return found


def _phase(gpus: tuple[GpuKey, ...], spans: Sequence[Span]) -> Phase:
    """Return the phase of ``spans`` that are alike."""
    watched = sum([span.seconds for span in spans])
    busy = sum([span.busy for span in spans])
    named = dict.fromkeys([to for span in spans for to in span.lost])
    lost = {to: sum([span.lost.get(to, 0.0) for span in spans]) for to in named}
    pauses = max([span.pauses for span in spans], key=len)
    return Phase(
        kind=spans[0].kind,
        gpus=gpus,
        begin_unix_seconds=min([span.begin for span in spans]),
        end_unix_seconds=max([span.end for span in spans]),
        seconds=watched / len(spans),
        busy_percent=None if spans[0].kind == "lost" else min(100.0, 100.0 * busy / watched),
        idle_gpu_seconds=max(0.0, watched - busy),
        pauses=len(pauses),
        paused_seconds=sum([one.seconds for one in pauses]),
        lost=tuple(
            [Loss(to=to, gpu_seconds=lost[to]) for to in sorted(lost, key=lambda to: -lost[to])]
        ),
    )


def _question(about: str, says: str, of: Sequence[_Open]) -> OpenQuestion:
    spans = [span for _, own, _ in of for span in own]
    seconds, lost = sum([span.seconds for span in spans]), sum([lost for _, _, lost in of])
    busy = 100.0 * sum([span.busy for span in spans]) / max(seconds, 1e-9)
    pauses = max([[one for span in own for one in span.pauses] for _, own, _ in of], key=len)
    names = list(dict.fromkeys([gpu.label for gpu, _, _ in of]))
    labels = units.ranges(names).replace(",", ", ")
    text = filled(
        says,
        f"GPU {labels}" if len(names) == 1 else f"GPUs {labels}",
        len(names),
        are="was" if len(names) == 1 else "were",
        share=f"{busy:.0f}%",
        paused=how_paused(pauses, lost / max(seconds, 1e-9)),
        swing=how_it_swings([gpu.swing_seconds for gpu, _, _ in of]),
    )
    gpus = tuple([gpu.uuid for gpu, _, _ in of])
    # A rest is not all spent with memory held.
    mean = (lost if about == HELD else seconds) / len(of)
    return OpenQuestion(about=about, says=text, gpus=gpus, seconds=mean, lost_gpu_seconds=lost)
