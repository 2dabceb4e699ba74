"""The one sentence: the leading finding, that all is well, or what cannot be determined yet."""

from collections.abc import Iterable, Iterator, Sequence

from gpuwatch.core import units
from gpuwatch.diagnosis.facts.window import GpuFacts, RankFacts, Window
from gpuwatch.diagnosis.finding import WINDOW_SECONDS, Finding, Pause, Question
from gpuwatch.diagnosis.rule import Firing, Unknown
from gpuwatch.diagnosis.rules.shared.open_causes import SAVES, causes, what_decides
from gpuwatch.diagnosis.rules.shared.pauses import (
    against_saving,
    is_at_work,
    lost_share,
    pause_share,
    real_pauses,
    rhythm,
)
from gpuwatch.diagnosis.rules.shared.words import lasting, named
from gpuwatch.diagnosis.sentence import (
    ARE,
    GPUS,
    PAUSED,
    SHARE,
    SWING,
    either,
    filled,
    plain,
    template,
)
from gpuwatch.diagnosis.signals.waveform import BUSY_PERCENT
from gpuwatch.diagnosis.subject import Subject

FED_PERCENT = 88.0
"""Busy share outside pauses from which nothing is missing: rules of idle time begin at 10-15% idle,
and a logging, evaluating, saving job loses some percent by right."""
UNUSED_PERCENT = 1.0
LEFT_PERCENT = 50.0
"""Busy share below which a GPU whose memory is empty by now has been left."""
UNUSED_BYTES = 2 * 1024**3
"""Memory in use that is nobody's: the driver itself and a desktop hold as much."""
PAUSES_COST, PAUSE_COSTS = 0.03, 0.10
"""Share of the time: pauses without a known reason that lose less are nothing to ask about; nor is
a single one of a job, or those of which something is known, that loses less than the second."""
EARLY_SECONDS = 12.0
"""A rule needs its evidence, and its finding some time to be raised."""
EARLY_LOOKS = 3
"""Where snapshots come slowly, that time is one or two of them."""
UNREAD_SECONDS = 5.0
"""Time for which a reading may be missing: a look that the driver answers late does not undo what
a minute has shown."""
LONG_START_SECONDS = 180.0
MOST_SENTENCES = 2
NO_GPU = "No GPU can be read."
_NOT_YET, _STARTS = "not enough data yet", "starting up"


class SubjectStatus:
    """Newest window of a subject, and what can be said of it."""

    def __init__(self, subject: Subject, window: Window) -> None:
        self.subject = subject
        self.window = window
        busy = [gpu.busy.mean_percent for gpu in window.gpus if gpu.busy is not None]
        self.rests = bool(busy) and max(busy) < UNUSED_PERCENT
        """A GPU that runs nothing at all waits for nothing that can be seen."""
        self.is_fed = _are_fed(window)
        unread = [gpu.unread_seconds for gpu in window.gpus if not gpu.lost]
        self.unread_seconds = max(unread, default=0.0)
        """Seconds for which GPUs that had been read have not been any more; 0: all are."""
        watched, looks = window.watched_seconds, subject.looks
        self.is_early = window.starting or watched < EARLY_SECONDS or looks < EARLY_LOOKS
        self.pauses = real_pauses(window)
        self.pauses_lost = self._unexplained()
        """Share of the time lost in pauses that nobody can say the reason of; ``None``: little."""

    @property
    def is_decided(self) -> bool:
        """Check whether "nothing else is wrong" can be said of this window."""
        if self.subject.has_found or not self.window.gpus:
            return True
        if self.unread_seconds >= UNREAD_SECONDS:
            return False
        if self.window.job is None and all(_is_empty(gpu) for gpu in self.window.gpus):
            return True
        if self.pauses_lost is not None or self.is_early or self.subject.is_pending:
            return False
        return self.is_fed or self.rests

    def unknown(self, rule: str) -> bool:
        return isinstance(self.subject.verdicts.get(rule), Unknown)

    def _unexplained(self) -> float | None:
        verdicts, pauses = self.subject.verdicts, self.window.pauses
        rules = [rule.name for rule in self.subject.rules if rule.of_pauses]
        if not rules or any(isinstance(verdicts.get(rule), Firing) for rule in rules):
            return None
        nothing_known = len(pauses) > 1 and all(map(self.unknown, rules))
        if self.window.job is None and not nothing_known:
            # Nobody knows whether what ran there before and after is the same job.
            return None
        lost = lost_share(self.window, pauses if nothing_known else self.pauses)
        return lost if lost >= (PAUSES_COST if nothing_known else PAUSE_COSTS) else None


def _are_fed(window: Window) -> bool:
    """Check whether all GPUs are busy, pauses that other rules judge left out."""
    busy = [gpu.busy.mean_percent for gpu in window.gpus if gpu.busy is not None and not gpu.lost]
    # Of those that only look like one job, one that runs nothing may be free.
    least = 0.0 if window.job is not None else UNUSED_PERCENT
    working = [percent for percent in busy if percent >= least]
    return bool(working) and min(working) + 100.0 * pause_share(window) >= FED_PERCENT


def _is_empty(gpu: GpuFacts) -> bool:
    """Check whether nobody runs anything there, nor holds memory, or it only draws a desktop: such
    a GPU is not under-used."""
    if gpu.lost or gpu.busy is None:
        return False
    if gpu.busy.mean_percent < UNUSED_PERCENT:
        return True
    if gpu.others and all(one.gpu_kind == "graphics" for one in gpu.others):
        return gpu.busy.mean_percent < LEFT_PERCENT
    # What ran there may have ended within the window; most training holds more than this. Without
    # a word of its processes only its rest shows that it has.
    of_nobody = gpu.foreign_memory_bytes is not None and not gpu.others
    ended = of_nobody or (gpu.busy_now_percent or 0.0) < UNUSED_PERCENT
    little = gpu.memory_used_bytes is not None and gpu.memory_used_bytes < UNUSED_BYTES
    return little and ended and gpu.busy.mean_percent < LEFT_PERCENT


def sentence(findings: Sequence[Finding], seen: Sequence[SubjectStatus]) -> str:
    if any(one.severity != "info" for one in findings):
        return findings[0].headline
    # What is found is worth more than that more may be found soon.
    asked = {says: of for says, of in _asked(seen).items() if not (findings and needs_time(says))}
    if asked:
        texts = [_filled(says, of) for says, of in list(asked.items())[:MOST_SENTENCES]]
        return ". ".join(texts) + "."
    return findings[0].headline if findings else _all_well(seen)


def questions(seen: Sequence[SubjectStatus]) -> Iterator[Question]:
    """Yield a question for each thing that is undecided, with all the GPUs of which it is."""
    for says, of in _asked(seen).items():
        yield Question(says, tuple(dict.fromkeys([gpu.uuid for gpu, _ in of])))


def _asked(seen: Sequence[SubjectStatus]) -> dict[str, list[tuple[GpuFacts, Window]]]:
    groups: dict[str, list[tuple[GpuFacts, Window]]] = {}
    for one in seen:
        gpus = one.window.gpus
        if gpus and (one.unread_seconds > 0.0 or not one.is_decided):
            unread = [gpu for gpu in gpus if gpu.unread_seconds > 0.0 and not gpu.lost]
            about = [(gpu, one.window) for gpu in unread or gpus]
            groups.setdefault(template(_question(one)), []).extend(about)
    return groups


def _filled(says: str, of: Sequence[tuple[GpuFacts, Window]]) -> str:
    gpus, window = _distinct(gpu for gpu, _ in of), of[0][1]
    busy = [gpu.busy.mean_percent for gpu in gpus if gpu.busy is not None]
    share = f"{sum(busy) / len(busy):.0f}%" if busy else ""
    paused = how_paused(window.pauses, lost_share(window, window.pauses))
    swing = how_it_swings([None if gpu.busy is None else gpu.busy.swing_seconds for gpu in gpus])
    return filled(
        says, _named(gpus), len(gpus), are=_are(gpus), share=share, paused=paused, swing=swing
    )


def how_it_swings(swings: Sequence[float | None]) -> str:
    """Return ``, in bursts about every 14 s``, for the seconds from one burst to the next of each
    GPU; empty where one of them does not swing."""
    known = [seconds for seconds in swings if seconds is not None]
    if not known or len(known) < len(swings):
        return ""
    return plain(f", in bursts about every {lasting(sum(known) / len(known))}")


def how_paused(pauses: Sequence[Pause], lost: float) -> str:
    """``every 2 min, for up to 6 s (5% of the time)``."""
    every = rhythm(pauses)
    often = {1: "once", 2: "twice"}.get(len(pauses), f"{len(pauses)} times")
    times = often if every is None else f"every {lasting(every)}"
    longest = lasting(max([pause.seconds for pause in pauses], default=0.0))
    up_to = "" if len(pauses) == 1 else "up to "
    return plain(f"{times}, for {up_to}{longest} ({lost:.0%} of the time)")


def needs_time(says: str) -> bool:
    """Check whether a question is open only because it is early."""
    return _NOT_YET in says.lower()


def of_the_past(says: str) -> str:
    """Return what an open question says once nothing more will be read."""
    return says.replace("enough data yet", "enough data")


def is_of_start(says: str) -> bool:
    """Check whether a question is open because the job starts."""
    return _STARTS in says


def _question(seen: SubjectStatus) -> str:
    """Sentence on what is undecided of this window, without its GPUs and their numbers."""
    window, subject = seen.window, seen.subject
    if seen.unread_seconds > 0.0:
        return f"{GPUS} cannot be read now: no diagnosis possible"
    if all(gpu.busy is None for gpu in window.gpus):
        return _blind(window, subject.looks)
    if window.starting:
        return f"The job on {GPUS} {_starting(window)}: no diagnosis yet"
    if seen.pauses_lost is not None:
        return f"{GPUS} paused {PAUSED}{_why_paused(window)}"
    compiles = window.job is not None and window.job.compiles
    if compiles or seen.is_early or subject.is_pending:
        why = "the job compiles" if compiles else f"{_NOT_YET} for a diagnosis"
        return f"{GPUS} {ARE} {SHARE} busy; {why}"
    ranks = () if window.job is None else window.job.ranks
    found = causes(window, ranks)
    sure = "being sure" if len(found) == 1 else "telling them apart"
    return (
        f"{GPUS} {ARE} {SHARE} busy{SWING}; the cause cannot be determined: "
        f"{either('it', 'they')} may be waiting for {units.listed(found, 'or') or 'anything'}; "
        f"{sure} needs {what_decides(window)}"
    )


def _why_paused(window: Window) -> str:
    """Return what the pauses may have been, and what would tell that."""
    against, job, decides = against_saving(window), window.job, what_decides(window)
    if against is not None:
        ranks = () if job is None else job.ranks
        left = units.listed(_waits(window, ranks), "or") or "anything"
        may_be = f"{against}; {either('it', 'they')} may have been waiting for {left}"
    elif job is None:
        may_be = "checkpoints, validation or a lack of requests"
    elif all(pause.compiled for pause in window.pauses):
        return ": compilers ran meanwhile; only time will show whether they run again"
    else:
        unread = any(pause.wrote_bytes is None for pause in window.pauses)
        # Who waits for something does not compute.
        computes = all(is_at_work(pause) for pause in window.pauses)
        waits = [] if computes else _waits(window, job.ranks)
        known = ["checkpoints"] * unread + ["validation", "metrics", "logging"]
        known += [f"a wait for {units.listed(waits, 'or')}"] if waits else []
        may_be, decides = units.listed(known, "or"), "the job's disk writes" if unread else decides
    return f": {may_be}; telling them apart needs {decides}"


def _waits(window: Window, ranks: Sequence[RankFacts]) -> list[str]:
    return [cause for cause in causes(window, ranks) if cause not in SAVES]


def _starting(window: Window) -> str:
    """``is still starting up``, with what it does where that shows."""
    job, says = window.job, f"is still {_STARTS}"
    started = None if job is None else job.job.started_at_unix_seconds
    if started is not None and window.taken_at_unix_seconds - started >= LONG_START_SECONDS:
        says = f"has been {_STARTS} for {lasting(window.taken_at_unix_seconds - started)}"
    if job is not None and job.compiles:
        return f"{says} (it compiles)"
    busy = job is not None and (job.main_thread_percent or 0.0) >= BUSY_PERCENT
    return f"{says} (its main thread is busy, no steps yet)" if busy else says


def _blind(window: Window, looks: int) -> str:
    if any(gpu.busy_read for gpu in window.gpus):
        if window.watched_seconds < EARLY_SECONDS or looks < EARLY_LOOKS:
            return f"{_NOT_YET.capitalize()} to diagnose {GPUS}"
        return f"{GPUS} {ARE} sampled too rarely, or for too short a time, for a diagnosis"
    mig = any(gpu.identity.mig_mode or gpu.identity.mig_parent_uuid for gpu in window.gpus)
    why = " (the driver does not report it with MIG)" if mig else ""
    return f"The utilisation of {GPUS} cannot be read{why}: no diagnosis possible"


def _all_well(seen: Sequence[SubjectStatus]) -> str:
    fed = [one.window for one in seen if one.is_fed]
    gpus = _distinct(gpu for window in fed for gpu in window.gpus if not _is_free(window, gpu))
    idle = _distinct(gpu for one in seen for gpu in one.window.gpus if gpu not in gpus)
    parts = [_kept_busy(gpus, fed)] if fed else []
    parts += [_idle(idle, seen)] if idle else []
    parts += [part for window in fed for part in _falls(window)]
    return "; ".join(parts) + "." if parts else "No GPU is in use."


def _idle(gpus: Sequence[GpuFacts], seen: Sequence[SubjectStatus]) -> str:
    begins = any(one.window.job and one.window.starting for one in seen)
    why = "a job that is starting may yet use" if begins else "nothing waits for"
    them = "it" if len(gpus) == 1 else "them"
    return f"{_named(gpus)} {_are(gpus)} idle, and {why} {them}"


def _kept_busy(gpus: Sequence[GpuFacts], fed: Sequence[Window]) -> str:
    busy = [gpu.busy.mean_percent for gpu in gpus if gpu.busy is not None]
    # Beside it stand means over the time that charts show, which is another.
    whole = min([one.watched_seconds for one in fed]) >= WINDOW_SECONDS - 2.0
    of = " (last minute)" if whole else ""
    return f"{_named(gpus)} {_are(gpus)} kept busy: {sum(busy) / max(1, len(busy)):.0f}%{of}"


def _is_free(window: Window, gpu: GpuFacts) -> bool:
    return window.job is None and (gpu.busy_percent or 0.0) < UNUSED_PERCENT


def _falls(window: Window) -> list[str]:
    """GPUs that left their usual work, with since when; the first two of them."""
    places, found = {gpu.uuid: gpu.identity.index for gpu in window.gpus}, []
    for one in window.ongoing:
        if one.gpus and one.gpus[0] in places:
            level = "idle" if one.busy_percent is None else f"{one.busy_percent:.0f}% busy"
            since = f"has been {level} for {plain(lasting(one.seconds))}"
            found.append(f"GPU {places[one.gpus[0]]} {since}: a pause, or the start of a problem")
    return found[:MOST_SENTENCES]


def _distinct(gpus: Iterable[GpuFacts]) -> list[GpuFacts]:
    return sorted({gpu.uuid: gpu for gpu in gpus}.values(), key=lambda gpu: gpu.identity.index)


def _named(gpus: Sequence[GpuFacts]) -> str:
    cards = list({gpu.identity.index: gpu for gpu in gpus}.values())
    return f"GPU {cards[0].identity.index}" if len(cards) == 1 else named(cards)


def _are(gpus: Sequence[GpuFacts]) -> str:
    return "is" if len({gpu.identity.index for gpu in gpus}) == 1 else "are"
