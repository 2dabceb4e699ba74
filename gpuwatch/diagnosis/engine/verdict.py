"""The one sentence: the leading finding, that all is well, or what cannot be determined yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuwatch.diagnosis.engine.subject import Subject
from gpuwatch.diagnosis.facts.window import GpuFacts, Pause, Window
from gpuwatch.diagnosis.finding import Finding
from gpuwatch.diagnosis.rule import Unknown
from gpuwatch.diagnosis.rules.shared.gpus import POWER_CAP, reason_share
from gpuwatch.diagnosis.rules.shared.pauses import lost_share, pause_share, rhythm
from gpuwatch.diagnosis.rules.shared.words import lasting, listed, named

FED_PERCENT = 88.0
"""Busy share outside pauses from which nothing is missing: rules of idle time begin at 10-15% idle,
and a logging, evaluating, saving job loses some percent by right."""
UNUSED_PERCENT = 1.0
LEFT_PERCENT = 50.0
"""Of a GPU whose memory is empty by now."""
UNUSED_BYTES = 2 * 1024**3
"""Of the card's memory: the driver itself and a desktop hold as much."""
PAUSES_COST = 0.03
"""Of the time: pauses without a known reason that cost less are nothing to ask about."""
EARLY_SECONDS = 12.0
"""A rule needs its evidence, and its finding some time to be raised."""
EARLY_LOOKS = 3
"""Where snapshots come slowly, that time is one or two of them."""
UNREAD_SECONDS = 5.0
"""One look that the driver answers late does not undo what a minute has shown."""
NAMES, ARE, SHARE = "\0names", "\0are", "\0share"
"""What of a sentence is filled in when all its GPUs are known."""
CAPPED_SHARE = 0.5
MOST_CAUSES = 3
MOST_SENTENCES = 2

_BESIDE = "the job's processes (gpuwatch beside the job)"


class Seen:
    """One subject's newest window, as far as a verdict can be given on it."""

    def __init__(self, subject: Subject, window: Window) -> None:
        self.subject = subject
        self.window = window
        known = [gpu.busy_percent for gpu in window.gpus if gpu.busy is not None]
        there = [gpu.busy_percent or 0.0 for gpu in window.gpus if gpu.busy and not gpu.lost]
        paused = 100.0 * pause_share(window) if there else 0.0
        self.is_fed = bool(there) and all(busy + paused >= FED_PERCENT for busy in there)
        """All GPUs are busy, pauses that other rules judge left out."""
        self.rests = bool(known) and all((busy or 0.0) < UNUSED_PERCENT for busy in known)
        """A GPU that runs nothing at all waits for nothing that can be seen."""
        self.unread_seconds = max(
            [gpu.unread_seconds for gpu in window.gpus if not gpu.lost], default=0.0
        )
        """For how long GPUs that had been read have not been any more; 0: all there are are."""
        watched, looks = window.watched_seconds, subject.looks
        self.is_early = window.starting or watched < EARLY_SECONDS or looks < EARLY_LOOKS
        self.pauses_lost = self._unexplained()
        """0 to 1: what pauses cost that nobody can say the reason of; ``None``: nothing much."""

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
        rules = [rule.name for rule in self.subject.rules if rule.of_pauses]
        if len(self.window.pauses) < 2 or not rules or not all(map(self.unknown, rules)):
            return None
        lost = lost_share(self.window, self.window.pauses)
        return lost if lost >= PAUSES_COST else None


def _is_empty(gpu: GpuFacts) -> bool:
    """Nobody runs anything there, nor holds memory: such a GPU is not under-used."""
    if gpu.lost or gpu.busy is None:
        return False
    if gpu.memory_used_bytes is None:
        return gpu.busy.mean_percent < UNUSED_PERCENT
    # What ran there may have ended within the window; training holds more than this.
    return gpu.memory_used_bytes < UNUSED_BYTES and gpu.busy.mean_percent < LEFT_PERCENT


def sentence(findings: Sequence[Finding], seen: Sequence[Seen]) -> str:
    """For a person."""
    if any(one.severity != "info" for one in findings):
        return findings[0].summary
    undecided = [
        one for one in seen if one.window.gpus and (one.unread_seconds > 0.0 or not one.is_decided)
    ]
    if undecided:
        return ". ".join(_undecided(undecided)[:MOST_SENTENCES]) + "."
    return findings[0].summary if findings else _all_well(seen)


def _undecided(seen: Sequence[Seen]) -> list[str]:
    """A sentence for each thing that is undecided, with all the GPUs of which it is."""
    groups: dict[str, list[GpuFacts]] = {}
    for one in seen:
        gpus = one.window.gpus
        unread = [gpu for gpu in gpus if gpu.unread_seconds > 0.0 and not gpu.lost]
        groups.setdefault(_question(one), []).extend(unread or gpus)
    return [_filled(text, _distinct(found)) for text, found in groups.items()]


def _filled(text: str, gpus: Sequence[GpuFacts]) -> str:
    busy = [gpu.busy.mean_percent for gpu in gpus if gpu.busy is not None]
    share = f"{sum(busy) / len(busy):.0f}%" if busy else ""
    return text.replace(NAMES, _named(gpus)).replace(ARE, _are(gpus)).replace(SHARE, share)


def _question(seen: Seen) -> str:
    """Sentence on what is undecided of this window, without its GPUs and their numbers."""
    window, subject = seen.window, seen.subject
    if seen.unread_seconds > 0.0:
        return f"{NAMES} cannot be read now: no diagnosis possible"
    if all(gpu.busy is None for gpu in window.gpus):
        return _blind(window, subject.looks)
    if window.starting:
        return f"The job on {NAMES} is still starting up: no diagnosis yet"
    if seen.pauses_lost is not None:
        return _pauses(window, seen.pauses_lost)
    if seen.is_early or subject.is_pending:
        return f"{NAMES} {ARE} {SHARE} busy; not enough data yet for a diagnosis"
    return (
        f"{NAMES} {ARE} {SHARE} busy; the cause cannot be determined: {_suspects(seen)}; "
        f"this needs {_what_decides(window)}"
    )


def _blind(window: Window, looks: int) -> str:
    if any(gpu.busy_read for gpu in window.gpus):
        if window.watched_seconds < EARLY_SECONDS and looks < EARLY_LOOKS:
            return f"Not enough data yet to diagnose {NAMES}"
        return f"{NAMES} {ARE} sampled too rarely, or for too short a time, for a diagnosis"
    mig = any(gpu.identity.mig_mode or gpu.identity.mig_parent_uuid for gpu in window.gpus)
    why = " (the driver does not report it with MIG)" if mig else ""
    return f"The utilisation of {NAMES} cannot be read{why}: no diagnosis possible"


def _pauses(window: Window, lost: float) -> str:
    every = rhythm(window.pauses)
    times = f"{len(window.pauses)} times" if every is None else f"every {lasting(every)}"
    longest = max(pause.seconds for pause in window.pauses)
    decides = _BESIDE if window.job is None else "the job's disk writes"
    return (
        f"{NAMES} paused {times}, up to {lasting(longest)} ({lost:.0%} of the time): "
        f"checkpoints or validation; telling them apart needs {decides}"
    )


def _suspects(seen: Seen) -> str:
    """Causes left to think of, in the order of how often each is one."""
    rules = sorted(seen.subject.rules, key=lambda rule: rule.suspected)
    left = [rule.suspect for rule in rules if rule.suspect and seen.unknown(rule.name)]
    if not left:
        return "no known cause fits"
    if len(left) > MOST_CAUSES:
        return f"{', '.join(left[:MOST_CAUSES])} and others are possible"
    return f"{listed(left)} {'is' if len(left) == 1 else 'are'} possible"


def _what_decides(window: Window) -> str:
    if window.job is None:
        return _BESIDE
    if window.job.main_thread_percent is None:
        return "permission to read its processes"
    if not window.job.stacks:
        return "stacks of its main thread (gpuwatch diagnose --stacks)"
    return "a longer observation"


def _all_well(seen: Sequence[Seen]) -> str:
    fed = [one.window for one in seen if one.is_fed]
    idle = [one.window for one in seen if one.window.gpus and not one.is_fed]
    parts = []
    if fed:
        gpus = _distinct(gpu for window in fed for gpu in window.gpus)
        busy = [gpu.busy.mean_percent for gpu in gpus if gpu.busy is not None]
        parts.append(f"{_named(gpus)} {_are(gpus)} kept busy: {sum(busy) / max(1, len(busy)):.0f}%")
        parts += _capped(fed)
    if idle:
        gpus = _distinct(gpu for window in idle for gpu in window.gpus)
        them = "it" if len(gpus) == 1 else "them"
        parts.append(f"{_named(gpus)} {_are(gpus)} idle, and nothing waits for {them}")
    parts += [part for window in fed for part in _falls(window)]
    return "; ".join(parts) + "." if parts else "No GPU is in use."


def _capped(windows: Sequence[Window]) -> list[str]:
    """GPUs at a power limit of which it is not known whether it is the card's own."""
    held = _distinct(
        gpu
        for window in windows
        for gpu in window.gpus
        if gpu.identity.power_limit_default_watts is None
        and (reason_share(window, gpu, POWER_CAP) or 0.0) >= CAPPED_SHARE
    )
    if not held:
        return []
    return [f"{_named(held)} {_are(held)} held at the power limit, which may have been lowered"]


def _falls(window: Window) -> list[str]:
    """GPUs that left their usual work, with since when; the first two of them."""
    by_uuid = {gpu.uuid: gpu for gpu in window.gpus}
    found = [(by_uuid.get(one.gpus[0]), one) for one in window.ongoing if one.gpus]
    return [_fell(gpu, pause) for gpu, pause in found if gpu is not None][:MOST_SENTENCES]


def _fell(gpu: GpuFacts, pause: Pause) -> str:
    level = "idle" if pause.busy_percent is None else f"{pause.busy_percent:.0f}% busy"
    return (
        f"GPU {gpu.identity.index} has been {level} for {lasting(pause.seconds)}: "
        "a pause, or the start of a problem"
    )


def _distinct(gpus: Iterable[GpuFacts]) -> list[GpuFacts]:
    return sorted({gpu.uuid: gpu for gpu in gpus}.values(), key=lambda gpu: gpu.identity.index)


def _named(gpus: Sequence[GpuFacts]) -> str:
    cards = list({gpu.identity.index: gpu for gpu in gpus}.values())
    return f"GPU {cards[0].identity.index}" if len(cards) == 1 else named(cards)


def _are(gpus: Sequence[GpuFacts]) -> str:
    return "is" if len({gpu.identity.index for gpu in gpus}) == 1 else "are"
