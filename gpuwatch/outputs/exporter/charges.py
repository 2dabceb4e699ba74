"""GPU time that was given to users and batch jobs, and what they lost by cause, as counters.

``increase()`` counts from a series' first sample on, so a new series is 0 until whoever scrapes has
had it once. What a job had in the end is served until it has been scraped.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence

from gpuwatch.core.model import Snapshot
from gpuwatch.diagnosis.ledger import EpisodeKey, Ledger
from gpuwatch.recording.charges import NOBODY, Account, Charges, Given, Owner, owner_of

OWNERS_MOST = 256
"""Users' batch jobs that have series; of more, those that are over go first."""
SCRAPING_SECONDS = 300.0
"""Time after which an address that does not ask again is no scraper any more."""
LAST_SCRAPES = 2
"""Times that the end of a job is served to each scraper: an answer may be lost."""
Series = tuple[Owner, str | None]
"""An owner and a cause; ``None``: the time that was given."""


class JobCharges:
    """Counters by owner and cause since the exporter was started."""

    def __init__(self) -> None:
        self._charges = Charges()
        self._lost: dict[EpisodeKey, float] = {}
        """Seconds lost to each finding that are charged already."""
        self._now = 0.0
        self._asked: dict[str, float] = {}
        """Monotonic time at which each scraper asked last."""
        self._known: set[Series] = set()
        """Series that every scraper has had."""
        self._new: dict[Series, set[str]] = {}
        """Scrapers that have had each of the other series, as 0."""
        self._over: dict[Owner, Counter[str]] = {}
        """Times that each scraper has had the end of what is over."""
        self.left_out = 0
        """Owners that have no series, because there are too many."""

    def push(self, snapshot: Snapshot, given: Sequence[Given], ledger: Ledger | None) -> None:
        """Take a snapshot, the time that was given since the one before, and the ledger, if
        anything was found or lost since then."""
        self._now = snapshot.monotonic_seconds
        owners = {job.key: owner_of(job) for job in snapshot.jobs}
        self._charges.note_jobs(owners)
        self._charges.add_given(given)
        if ledger is not None:
            self._add_lost(ledger.lost_by_finding())
            jobs = [key.job for key in self._lost if key.job is not None]
            self._charges.forget_jobs([*owners, *jobs])
        there = {NOBODY, *owners.values(), *[one.owner for one in given]}
        for owner in self._charges.accounts:
            if owner in there:
                self._over.pop(owner, None)
            else:
                self._over.setdefault(owner, Counter())
        surplus = len(self._charges.accounts) - OWNERS_MOST
        for owner in list(self._over)[: max(0, surplus)]:
            self._forget(owner)

    def _add_lost(self, lost: Mapping[EpisodeKey, float]) -> None:
        for key, seconds in lost.items():
            more = seconds - self._lost.get(key, 0.0)
            if more > 0.0:
                self._charges.add_lost(key, more)
        self._lost = {**lost}

    def add_to(self, add: Callable[..., None], scraper: str, clean: Callable[[str], str]) -> None:
        """Add the samples that ``scraper`` (an address) is served."""
        self._asked[scraper] = self._now
        self._asked = {
            one: at for one, at in self._asked.items() if at >= self._now - SCRAPING_SECONDS
        }
        new = set[Owner]()
        for (owner, cause), seconds in self._series():
            who = {
                "user": clean(owner.user),
                "slurm_job_id": clean(owner.slurm_job),
            }
            if (owner, cause) not in self._known:
                new.add(owner)
            value = self._served((owner, cause), seconds, scraper)
            if cause is None:
                says = "GPU time that was given to a user's batch job, or other jobs."
                add("job_gpu_seconds_total", says, value, **who)
            else:
                says = "GPU time of it that was lost, by cause: gpuwatch explain CAUSE."
                add("job_lost_gpu_seconds_total", says, value, **who, cause=cause)
        for owner, times in list(self._over.items()):
            times[scraper] += owner not in new
            if all(times[one] >= LAST_SCRAPES for one in self._asked):
                self._forget(owner)

    def _series(self) -> Iterator[tuple[Series, float]]:
        accounts = list(self._charges.accounts.items())
        self.left_out = max(0, len(accounts) - OWNERS_MOST)
        for owner, account in accounts[:OWNERS_MOST]:
            yield (owner, None), account.given
            for cause, seconds in account.lost.items():
                yield (owner, cause), seconds

    def _served(self, series: Series, seconds: float, scraper: str) -> float:
        if series in self._known:
            return seconds
        had = self._new.setdefault(series, set())
        had.add(scraper)
        if had.issuperset(self._asked):
            # From the next page on.
            self._known.add(series)
            del self._new[series]
        return 0.0

    def _forget(self, owner: Owner) -> None:
        account: Account = self._charges.accounts.pop(owner)
        del self._over[owner]
        for cause in (None, *account.lost):
            self._known.discard((owner, cause))
            self._new.pop((owner, cause), None)
