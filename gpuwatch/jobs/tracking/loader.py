"""Judge how one rank gets its data, as far as it shows from outside: its workers, pinned memory.

Loader workers are not always there: without ``persistent_workers`` they end with every epoch and
begin again with the next, and before the first batch there are none. So none now is not none.
"""

from dataclasses import dataclass
from typing import NamedTuple

from gpuwatch.core.units import age, plural
from gpuwatch.jobs.identity.roles import PIN_NAME, WORKER_NAME, is_training

YOUNG_SECONDS = 30.0
"""Imports, the model and the dataset's index come before the first batch. Most training scripts
are past them by then; where threads of autograd show that training runs, it is not waited for."""
TRAINING_SECONDS = 2.0
"""Kernels over that long are training, not the model being set up; a DataLoader starts its workers
before its first batch, so they would be there."""
WATCHED_SECONDS = 30.0
"""From then on "none seen" is more than a guess: of a job that has workers, few moments are
between epochs, and few of those last that long."""
WITHOUT_SECONDS = 10.0
"""Kernels over that long, and no worker all the while: its batches come without any."""
GONE_SECONDS = 120.0
"""Validation and checkpoints between epochs can take a minute or two; workers away for longer
belonged to something else (a first phase, a test of speed)."""
PIN_SETTLE_SECONDS = 6.0
"""The pinning thread begins after the workers, and threads are listed every few seconds."""


@dataclass(frozen=True, slots=True, kw_only=True)
class LoaderSigns:
    """Signs of a rank's loader that are seen now: the rank itself and its children."""

    age_seconds: float | None
    named_workers: int
    """Children that are known to be loader workers by their name."""
    guessed_workers: int
    workers_age_seconds: float | None = None
    """Age of the oldest of them."""
    framework: str | None
    libraries_readable: bool
    """Its libraries may be read; ``framework`` is then what was found so far."""
    threads: frozenset[str] | None
    """Names of its threads; ``None``: they cannot be listed, or have not been yet."""
    kernel_seconds: float = 0.0
    """From the first kernels of it that were seen to the latest."""


class LoaderFacts(NamedTuple):
    """Facts about a rank's loader, as ``JobRank`` has them. A sign of something unknown reads well
    after "because"."""

    workers: int | None
    workers_sign: str
    workers_guessed: bool
    pinned: bool | None
    pinned_sign: str


def with_reported(facts: LoaderFacts, workers: int | None, pinned: bool | None) -> LoaderFacts:
    """Return facts with ``num_workers`` and ``pin_memory`` as the rank reports them of its loader
    (``gpuwatch.torch``), where they do not show from outside, or only as a guess."""
    if workers is not None and (facts.workers is None or facts.workers_guessed):
        sign = f"it reports that its loader has num_workers={workers}"
        facts = facts._replace(workers=workers, workers_sign=sign, workers_guessed=False)
    if pinned is not None and facts.pinned is None:
        sign = f"it reports that its loader has pin_memory={pinned}"
        facts = facts._replace(pinned=pinned, pinned_sign=sign)
    return facts


class LoaderWatch:
    """Memory of what was seen of one rank's loader."""

    __slots__ = ("_pin_at", "_since", "_workers", "_workers_at")

    def __init__(self, now: float) -> None:
        self._since = now
        self._workers = 0
        self._workers_at: float | None = None
        self._pin_at: float | None = None

    def update(self, now: float, signs: LoaderSigns) -> LoaderFacts:
        """Return what is known of it by now; ``now``: monotonic seconds."""
        count = signs.named_workers or signs.guessed_workers
        if count > 0:
            self._workers, self._workers_at = count, now
        if signs.threads is not None and PIN_NAME in signs.threads:
            self._pin_at = now
        workers, sign, guessed = self._count(now, signs, count)
        pinned, pinned_sign = self._pinned(now, signs, workers)
        return LoaderFacts(workers, sign, guessed, pinned, pinned_sign)

    def _count(self, now: float, signs: LoaderSigns, count: int) -> tuple[int | None, str, bool]:
        if signs.named_workers > 0:
            return count, f"{plural(count, 'process')} named {WORKER_NAME}", False
        if count > 0:
            return count, f"{plural(count, 'process')} that it forked or spawned", True
        if self._workers_at is not None:
            away = now - self._workers_at
            had = f"it had {self._workers} until {age(away)} ago"
            # 0 is then a guess: what came before says that it can have some again.
            return (None if away < GONE_SECONDS else 0), had, away >= GONE_SECONDS
        why = _cannot_say(signs)
        if why is not None:
            return None, why, False
        watched = now - self._since
        guessed = watched < WATCHED_SECONDS and signs.kernel_seconds < WITHOUT_SECONDS
        seen = "none there now" if guessed else f"none seen in {age(watched)}"
        return 0, seen, guessed

    def _pinned(
        self, now: float, signs: LoaderSigns, workers: int | None
    ) -> tuple[bool | None, str]:
        if self._pin_at is not None and now - self._pin_at < GONE_SECONDS:
            ago = now - self._pin_at
            if ago == 0.0 or ago < PIN_SETTLE_SECONDS or not _is_settled(signs):
                when = "" if ago == 0.0 else f", until {age(ago)} ago"
                return True, f"a thread named {PIN_NAME}{when}"
        if workers is None:
            return None, "it shows only beside loader workers"
        if workers == 0:
            return None, (
                "with no workers the training process pins memory itself, which cannot be seen "
                "from outside"
            )
        return _pinned_beside_workers(signs)


def _pinned_beside_workers(signs: LoaderSigns) -> tuple[bool | None, str]:
    """Judge workers beside which no thread that pins has been seen."""
    if signs.named_workers == 0:
        return None, "this PyTorch does not name its pinning thread"
    if signs.threads is None:
        return None, "the names of its threads cannot be read"
    if not _is_settled(signs):
        return None, "its workers have just started"
    return False, f"no thread named {PIN_NAME} beside workers named {WORKER_NAME}"


def _is_settled(signs: LoaderSigns) -> bool:
    """True if a thread that pins would have been seen by now."""
    age_seconds = signs.workers_age_seconds
    return age_seconds is not None and age_seconds >= PIN_SETTLE_SECONDS


def _cannot_say(signs: LoaderSigns) -> str | None:
    """Say why no worker seen says nothing about this rank; ``None`` if it says something."""
    if signs.threads is not None and is_training(signs.threads):
        return None
    if not signs.libraries_readable:
        return "which libraries it has loaded cannot be read"
    if signs.framework not in (None, "torch"):
        return f"only the workers of PyTorch are known, and it runs {signs.framework}"
    trains = signs.kernel_seconds >= TRAINING_SECONDS
    if signs.age_seconds is not None and signs.age_seconds < YOUNG_SECONDS and not trains:
        return f"it started only {age(signs.age_seconds)} ago"
    if signs.framework is None:
        return "PyTorch is not loaded in it"
    return None
