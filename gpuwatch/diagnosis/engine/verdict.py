"""The one sentence: the leading finding, that all is well, or what cannot be determined yet."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass

from gpuwatch.diagnosis.engine.accounting import WHILE_BUSY
from gpuwatch.diagnosis.facts.window import GpuFacts, Pause, Window
from gpuwatch.diagnosis.finding import Finding
from gpuwatch.diagnosis.rule import Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.common import pause_share
from gpuwatch.diagnosis.rules.shared.gpus import lasting, named, reason_share
from gpuwatch.diagnosis.rules.shared.pauses import lost_share, rhythm

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

CAUSES = {
    "loader_cpu_bound": "too few or too slow loader workers",
    "loader_io_bound": "slow storage",
    "loader_in_main_process": "loading in the main process",
    "too_many_workers": "more workers than cores",
    "cpu_quota": "a CPU quota",
    "memory_not_pinned": "copies from unpinned memory",
    "python_bound": "slow kernel launches from Python",
    "sync_every_step": "a synchronisation in every step",
    "checkpoint_pauses": "checkpoints",
    "validation_pauses": "validation",
    "collective_wait": "waiting for another rank",
    "pcie_degraded": "a degraded PCIe link",
    "other_tenant": "another tenant",
    "oscillation": "bursts faster than the sampling",
}
"""What is left to think of, in the order of how often it is the cause."""


@dataclass(frozen=True, slots=True)
class Seen:
    """One window, with what was said of it."""

    window: Window
    verdicts: dict[str, Verdict]
    looks: int
    """Evaluations so far."""
    found: bool
    """Something was found, mere information apart."""
    pending: bool
    """A fault fires and is not held long enough."""


def is_unused(window: Window) -> bool:
    """Nobody runs anything there, nor holds memory: such a GPU is not under-used."""
    return window.job is None and all(_is_empty(gpu) for gpu in window.gpus)


def _is_empty(gpu: GpuFacts) -> bool:
    if gpu.lost or gpu.busy is None:
        return False
    if gpu.memory_used_bytes is None:
        return gpu.busy.mean_percent < UNUSED_PERCENT
    # What ran there may have ended within the window; training holds more than this.
    held = gpu.memory_used_bytes >= UNUSED_BYTES
    return not held and gpu.busy.mean_percent < LEFT_PERCENT


def is_fed(window: Window) -> bool:
    """All GPUs are busy, pauses that other rules judge left out."""
    known = [gpu for gpu in window.gpus if gpu.busy is not None and not gpu.lost]
    if not known:
        return False
    paused = 100.0 * pause_share(window)
    return all(gpu.busy.mean_percent + paused >= FED_PERCENT for gpu in known if gpu.busy)


def unread_seconds(window: Window) -> float:
    """For how long GPUs that had been read have not been any more; 0: all that are there are."""
    return max([gpu.unread_seconds for gpu in window.gpus if not gpu.lost], default=0.0)


def is_early(seen: Seen) -> bool:
    window = seen.window
    return window.starting or window.watched_seconds < EARLY_SECONDS or seen.looks < EARLY_LOOKS


def is_decided(seen: Seen) -> bool:
    """Whether "nothing else is wrong" can be said of this window."""
    if seen.found or not seen.window.gpus:
        return True
    if unread_seconds(seen.window) >= UNREAD_SECONDS:
        return False
    if is_unused(seen.window):
        return True
    if _unexplained(seen) is not None:
        return False
    return not is_early(seen) and not seen.pending and (is_fed(seen.window) or _rests(seen))


def _unexplained(seen: Seen) -> float | None:
    """0 to 1: what pauses cost that nobody can say the reason of; ``None``: nothing much."""
    rules = (seen.verdicts.get("checkpoint_pauses"), seen.verdicts.get("validation_pauses"))
    if len(seen.window.pauses) < 2 or not all(isinstance(one, Unknown) for one in rules):
        return None
    lost = lost_share(seen.window, seen.window.pauses)
    return lost if lost >= PAUSES_COST else None


def _rests(seen: Seen) -> bool:
    """A GPU that runs nothing at all waits for nothing that can be seen."""
    known = [gpu.busy for gpu in seen.window.gpus if gpu.busy is not None]
    return bool(known) and all(busy.mean_percent < UNUSED_PERCENT for busy in known)


def sentence(findings: Sequence[Finding], seen: Sequence[Seen]) -> str:
    """For a person."""
    if any(one.severity != "info" for one in findings):
        return findings[0].summary
    open_ones = [
        one
        for one in seen
        if one.window.gpus and (unread_seconds(one.window) > 0.0 or not is_decided(one))
    ]
    if open_ones:
        return ". ".join(_told(open_ones)[:MOST_SENTENCES]) + "."
    if findings:
        return findings[0].summary
    return _all_well(seen)


def _told(open_ones: Sequence[Seen]) -> list[str]:
    """A sentence for each thing that is open, with all the GPUs of which it is."""
    groups: dict[str, list[GpuFacts]] = {}
    for one in open_ones:
        gpus = one.window.gpus
        unread = [gpu for gpu in gpus if gpu.unread_seconds > 0.0 and not gpu.lost]
        groups.setdefault(_open(one), []).extend(unread or gpus)
    return [_with_names(said, _distinct(gpus)) for said, gpus in groups.items()]


def _with_names(said: str, gpus: Sequence[GpuFacts]) -> str:
    busy = [gpu.busy.mean_percent for gpu in gpus if gpu.busy is not None]
    share = f"{sum(busy) / len(busy):.0f}%" if busy else ""
    return said.replace(NAMES, _named(gpus)).replace(ARE, _are(gpus)).replace(SHARE, share)


def _open(seen: Seen) -> str:
    """What is open of this window, without its GPUs and their numbers."""
    window = seen.window
    if unread_seconds(window) > 0.0:
        return f"{NAMES} cannot be read now: no diagnosis possible"
    if all(gpu.busy is None for gpu in window.gpus):
        return _blind(seen)
    if window.starting:
        return f"The job on {NAMES} is still starting up: no diagnosis yet"
    paused = _unexplained(seen)
    if paused is not None:
        return _pauses(window, paused)
    if is_early(seen) or seen.pending:
        return f"{NAMES} {ARE} {SHARE} busy; not enough data yet for a diagnosis"
    return (
        f"{NAMES} {ARE} {SHARE} busy; the cause cannot be determined: {_left(seen)}; "
        f"this needs {_decides(seen)}"
    )


def _blind(seen: Seen) -> str:
    gpus = seen.window.gpus
    if any(gpu.busy_read for gpu in gpus):
        if seen.window.watched_seconds < EARLY_SECONDS and seen.looks < EARLY_LOOKS:
            return f"Not enough data yet to diagnose {NAMES}"
        return f"{NAMES} {ARE} sampled too rarely, or for too short a time, for a diagnosis"
    mig = any(gpu.identity.mig_mode or gpu.identity.mig_parent_uuid for gpu in gpus)
    why = " (the driver does not report it with MIG)" if mig else ""
    return f"The utilisation of {NAMES} cannot be read{why}: no diagnosis possible"


def _pauses(window: Window, lost: float) -> str:
    every = rhythm(window.pauses)
    times = f"{len(window.pauses)} times" if every is None else f"every {lasting(every)}"
    longest = max(pause.seconds for pause in window.pauses)
    decides = "the job's processes (gpuwatch beside the job)"
    if window.job is not None:
        decides = "the job's disk writes"
    return (
        f"{NAMES} paused {times}, up to {lasting(longest)} ({lost:.0%} of the time): "
        f"checkpoints or validation; telling them apart needs {decides}"
    )


def _left(seen: Seen) -> str:
    unknown = [
        words
        for rule, words in CAUSES.items()
        if isinstance(seen.verdicts.get(rule), Unknown) and rule not in WHILE_BUSY
    ]
    if not unknown:
        return "no known cause fits"
    if len(unknown) > MOST_CAUSES:
        return f"{', '.join(unknown[:MOST_CAUSES])} and others are possible"
    return f"{_listed(unknown)} {'is' if len(unknown) == 1 else 'are'} possible"


def _decides(seen: Seen) -> str:
    job = seen.window.job
    if job is None:
        return "the job's processes (gpuwatch beside the job)"
    if job.main_thread_percent is None:
        return "permission to read its processes"
    if not job.stacks:
        return "stacks of its main thread (gpuwatch diagnose --stacks)"
    return "a longer observation"


def _all_well(seen: Sequence[Seen]) -> str:
    fed = [one.window for one in seen if is_fed(one.window)]
    idle = [one.window for one in seen if one.window.gpus and not is_fed(one.window)]
    parts = []
    if fed:
        gpus = _distinct(gpu for window in fed for gpu in window.gpus)
        busy = [gpu.busy.mean_percent for gpu in gpus if gpu.busy is not None]
        parts.append(f"{_named(gpus)} {_are(gpus)} kept busy: {sum(busy) / max(1, len(busy)):.0f}%")
        parts += _capped(fed)
    if idle:
        gpus = _distinct(gpu for window in idle for gpu in window.gpus)
        parts.append(f"{_named(gpus)} {_are(gpus)} idle, and nothing waits for {_them(gpus)}")
    parts += [_fell(gpu, pause) for window in fed for gpu, pause in _falls(window)]
    return "; ".join(parts) + "." if parts else "No GPU is in use."


def _capped(windows: Sequence[Window]) -> list[str]:
    """GPUs at a power limit of which it is not known whether it is the card's own."""
    held = _distinct(
        gpu
        for window in windows
        for gpu in window.gpus
        if gpu.identity.power_limit_default_watts is None
        and (reason_share(window, gpu, "sw_power_cap") or 0.0) >= CAPPED_SHARE
    )
    if not held:
        return []
    return [f"{_named(held)} {_are(held)} held at the power limit, which may have been lowered"]


def _falls(window: Window) -> list[tuple[GpuFacts, Pause]]:
    """GPUs that left their usual work, with since when; the first two of them."""
    by_uuid = {gpu.uuid: gpu for gpu in window.gpus}
    found = [(by_uuid.get(one.gpus[0]), one) for one in window.ongoing if one.gpus]
    return [(gpu, one) for gpu, one in found if gpu is not None][:MOST_SENTENCES]


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


def _listed(words: Sequence[str]) -> str:
    if len(words) < 2:
        return "".join(words)
    return f"{', '.join(words[:-1])} and {words[-1]}"


def _are(gpus: Sequence[GpuFacts]) -> str:
    return "is" if len({gpu.identity.index for gpu in gpus}) == 1 else "are"


def _them(gpus: Sequence[GpuFacts]) -> str:
    return "it" if len(gpus) == 1 else "them"
