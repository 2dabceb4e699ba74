"""A job in words: one place for the page, the screen and the report."""

from collections.abc import Collection, Sequence

from gpuwatch.core import units
from gpuwatch.core.model import Host, Job, JobMember, JobRank, TrainingLoop


def role_name(member: JobMember) -> str:
    """Return ``rank 3``, ``loader worker``, ``orphaned loader worker``; ``loader worker?`` is a
    guess."""
    if member.role == "rank":
        name = "training process" if member.rank is None else f"rank {member.rank}"
    else:
        name = "other" if member.role == "other" else member.role.replace("_", " ")
    name = f"orphaned {name}" if member.orphaned else name
    return f"{name}?" if member.role_guessed else name


def rank_name(rank: JobRank) -> str:
    """Return ``rank 3``; by its PID where the rank's number is not known."""
    return f"PID {rank.pid}" if rank.rank is None else f"rank {rank.rank}"


def job_loading_sentence(job: Job) -> str:
    """Return a clause for how it gets its data: ``4 loader workers each, pinned memory on``, ``no
    workers: any loading runs in the training process``, ``loading unknown: <why>``. Where ranks
    differ it says which have what."""
    ranks = job.ranks
    if not ranks:
        return "no training process seen"
    first = ranks[0]
    workers_alike = len({(one.loader_workers, one.loader_workers_guessed) for one in ranks}) == 1
    pinned_alike = len({rank.pinned_memory for rank in ranks}) == 1
    workers = _workers(first, len(ranks)) if workers_alike else _workers_apart(ranks)
    if workers_alike and pinned_alike:
        # Without workers there is no thread that would show it, and nobody to blame for that.
        hidden = first.loader_workers == 0 and first.pinned_memory is None
        if first.loader_workers is None or hidden:
            return workers
    return f"{workers}, {_pinned(first) if pinned_alike else _pinned_apart(ranks)}"


STALE_SECONDS = 15.0
"""A loop that has reported nothing for longer may hang, or be in a step as long."""

_DOING = {"validation": "validating", "checkpoint": "saving a checkpoint", "idle": "idle"}


def loop_facts(job: Job, now: float | None = None, said: Collection[str] = ()) -> list[str]:
    """Return facts that the job reports of its own loop, the most important first: ``waits for data
    43%``, ``512 samples/s``, ``in steps 51%`` ...; empty where nobody reports. ``now`` is unix
    time; ``said``: readings whose numbers stand beside."""
    loops = job.loops
    if not loops:
        return []
    facts = _doing(loops) + ([] if "data_wait_share" in said else _waits(job)) + _speed(loops)
    # A rank that waits for others waits within its step.
    steps = "in steps" if len(loops) == 1 else "in steps, with collectives,"
    facts += [] if "compute_share" in said else _shares(steps, loops, "compute_share")
    facts += _progress(loops) + _memory(loops)
    facts += [] if "copy_share" in said else _shares("copying to the GPU", loops, "copy_share")
    if len(loops) < len(job.ranks):
        facts.append(f"{len(loops)} of {len(job.ranks)} ranks report")
    at = max([loop.reported_at_unix_seconds or 0.0 for loop in loops])
    if now is not None and at > 0.0 and now - at > STALE_SECONDS:
        facts.insert(0, f"reported {units.age(now - at)} ago")
    return facts


def waits_most(job: Job) -> JobRank | None:
    """Return the rank that waits for data clearly more than the one that waits least."""
    shares = [
        (loop.data_wait_share, rank)
        for rank in job.ranks
        if (loop := job.loop_of(rank)) is not None and loop.data_wait_share is not None
    ]
    if len(shares) < 2:
        return None
    most = max(shares, key=lambda one: one[0])
    return most[1] if most[0] - min(shares, key=lambda one: one[0])[0] >= APART_SHARE else None


APART_SHARE = 0.1
"""Ranks whose waits differ by less are alike."""


def _doing(loops: Sequence[TrainingLoop]) -> list[str]:
    phase, *others = {loop.phase or "" for loop in loops}
    return [_DOING[phase]] if phase in _DOING and not others else []


def _waits(job: Job) -> list[str]:
    slow = waits_most(job)
    who = "" if slow is None else f", {rank_name(slow)} most"
    return _shares("waits for data", job.loops, "data_wait_share", who)


def _shares(label: str, loops: Sequence[TrainingLoop], name: str, who: str = "") -> list[str]:
    known = [value for loop in loops if (value := getattr(loop, name)) is not None]
    if not known:
        return []
    low, high = units.share(min(known)), units.share(max(known))
    if low == high:
        return [f"{label} {high}"]
    mean = f" (mean {units.share(sum(known) / len(known))}{who})" if who else ""
    return [f"{label} {low[:-1]}-{high}{mean}"]


def _speed(loops: Sequence[TrainingLoop]) -> list[str]:
    rates = [loop.samples_per_second for loop in loops]
    known = [rate for rate in rates if rate is not None]
    if known and len(known) == len(rates):
        return [f"{units.samples(sum(known))} samples/s"]
    steps = [loop.steps_per_second for loop in loops if loop.steps_per_second is not None]
    return [f"{units.samples(min(steps))} steps/s"] if steps else []


def _progress(loops: Sequence[TrainingLoop]) -> list[str]:
    """Return the epoch and step of the rank that is furthest behind."""
    at = min(loops, key=lambda loop: (loop.epoch or 0, loop.step_in_epoch or 0))
    step = at.step_in_epoch
    texts = [] if at.epoch is None else [f"epoch {at.epoch}"]
    if step is not None:
        texts.append(f"step {step}" + (f"/{at.steps_in_epoch}" if at.steps_in_epoch else ""))
    elif at.steps is not None:
        texts.append(f"step {at.steps}")
    return [" ".join(texts)] if texts else []


def _memory(loops: Sequence[TrainingLoop]) -> list[str]:
    """Return the memory of the rank that has reserved most."""
    at = max(loops, key=lambda loop: loop.memory_reserved_bytes or 0)
    if at.memory_reserved_bytes is None:
        return []
    both = units.size_of(at.memory_allocated_bytes, at.memory_reserved_bytes)
    return [f"PyTorch memory {both} in use"]


def cores_sentence(job: Job, host: Host) -> str | None:
    """Return ``4 of 16 cores usable (quota 4.0), 2 per rank``; ``None`` where it is not known."""
    usable, total = job.usable_cores, host.core_count
    if usable is None:
        return None
    if usable == total:
        text = "the only core usable" if total == 1 else f"all {total} cores usable"
    else:
        text = f"{usable:g}{'' if total is None else f' of {total}'} cores usable"
    limits = {
        f"quota {job.quota_cores or 0:.1f}": job.quota_cores,
        "Slurm": job.slurm_cores,
        "affinity": job.affinity_cores,
    }
    limit = next((name for name, cores in limits.items() if cores == usable != total), None)
    if limit is not None:
        text += f" ({limit})"
    if len(job.ranks) > 1:
        text += f", {usable / len(job.ranks):.3g} per rank"
    return text


def _workers(rank: JobRank, ranks: int) -> str:
    count = rank.loader_workers
    if count is None:
        why = rank.loader_workers_sign
        return f"loading unknown: {why}" if why else "loading unknown"
    perhaps = "probably " if rank.loader_workers_guessed else ""
    if count == 0:
        process = "process" if ranks == 1 else "processes"
        return f"{perhaps}no workers: any loading runs in the training {process}"
    each = "" if ranks == 1 else " each"
    return f"{perhaps}{units.plural(count, 'loader worker')}{each}"


def _pinned(rank: JobRank) -> str:
    if rank.pinned_memory is None:
        why = rank.pinned_memory_sign
        return f"pinned memory unknown: {why}" if why else "pinned memory unknown"
    return f"pinned memory {'on' if rank.pinned_memory else 'off'}"


def _workers_apart(ranks: Sequence[JobRank]) -> str:
    known = [rank.loader_workers for rank in ranks if rank.loader_workers is not None]
    if not known:
        return "loading unknown"
    rest = ", unknown in some" if len(known) < len(ranks) else ""
    counts = " to ".join([str(count) for count in sorted({min(known), max(known)})])
    return f"{counts} loader workers, differing by rank{rest}"


def _pinned_apart(ranks: Sequence[JobRank]) -> str:
    pinned = [rank.pinned_memory for rank in ranks]
    rest = ", unknown in some" if None in pinned else ""
    return f"pinned memory on in {pinned.count(True)} of {len(ranks)} ranks{rest}"
