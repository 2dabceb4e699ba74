"""What a job is said to be, in words: one place for the page, the screen and the report."""

from __future__ import annotations

from collections.abc import Iterable, Sequence

from gpuwatch.model import Host, Job, JobMember, JobRank

_GROUPS_TOLD = 3


def role_name(member: JobMember) -> str:
    """``rank 3``, ``loader worker``, ``orphaned loader worker``; ``loader worker?`` is a guess."""
    if member.role == "rank":
        name = "training process" if member.rank is None else f"rank {member.rank}"
    else:
        name = "other" if member.role == "other" else member.role.replace("_", " ")
    name = f"orphaned {name}" if member.orphaned else name
    return f"{name}?" if member.role_guessed else name


def rank_name(rank: JobRank) -> str:
    """``rank 3``; by its PID where the rank's number is not known."""
    return f"PID {rank.pid}" if rank.rank is None else f"rank {rank.rank}"


def loading_sentence(rank: JobRank) -> str:
    """How one training process gets its data, as a clause: ``4 loader workers, pinned memory on``,
    ``no workers: loading runs in the training process``, ``loading unknown: <why>``."""
    return _same_everywhere(rank, each="", process="process")


def job_loading_sentence(job: Job) -> str:
    """The same for all ranks; where they differ it says which ranks have what."""
    ranks = job.ranks
    if not ranks:
        return "no training process to be seen"
    if len(ranks) == 1:
        return loading_sentence(ranks[0])
    first = ranks[0]
    workers_alike = all(
        (rank.loader_workers, rank.loader_workers_guessed)
        == (first.loader_workers, first.loader_workers_guessed)
        for rank in ranks
    )
    pinned_alike = all(rank.pinned_memory is first.pinned_memory for rank in ranks)
    if workers_alike and pinned_alike:
        return _same_everywhere(first, each=" each", process="processes")
    if workers_alike:
        return f"{_workers(first, ' each', 'processes')}, {_pinned_apart(ranks)}"
    pinned = _pinned(first) if pinned_alike else _pinned_apart(ranks)
    return ", ".join(part for part in (_workers_apart(ranks), pinned) if part)


def cores_sentence(job: Job, host: Host) -> str | None:
    """``4 of 16 cores usable (quota 4.0), 2 a rank``; ``None`` where it is not known."""
    usable, total = job.usable_cores, host.core_count
    if usable is None:
        return None
    if usable == total:
        text = f"all {total} cores usable"
    else:
        text = f"{usable:g}{'' if total is None else f' of {total}'} cores usable"
    limit = _limit(job, host)
    if limit is not None:
        text += f" ({limit})"
    if len(job.ranks) > 1:
        text += f", {usable / len(job.ranks):.3g} a rank"
    return text


def _limit(job: Job, host: Host) -> str | None:
    """What makes them fewer than the machine has."""
    usable = job.usable_cores
    if usable == host.core_count:
        return None
    if job.quota_cores is not None and job.quota_cores == usable:
        return f"quota {job.quota_cores:.1f}"
    if job.slurm_cores is not None and job.slurm_cores == usable:
        return "Slurm"
    return "affinity" if job.affinity_cores == usable else None


def _same_everywhere(rank: JobRank, *, each: str, process: str) -> str:
    workers = _workers(rank, each, process)
    if rank.loader_workers is None:
        return workers
    if rank.pinned_memory is None and rank.loader_workers == 0:
        # Without workers there is no thread that would show it, and nobody to blame for that.
        return workers
    return f"{workers}, {_pinned(rank)}"


def _workers(rank: JobRank, each: str, process: str) -> str:
    count = rank.loader_workers
    if count is None:
        why = rank.loader_workers_sign
        return f"loading unknown: {why}" if why else "loading unknown"
    perhaps = "probably " if rank.loader_workers_guessed else ""
    if count == 0:
        return f"{perhaps}no workers: loading runs in the training {process}"
    return f"{perhaps}{count} loader worker{'' if count == 1 else 's'}{each}"


def _pinned(rank: JobRank) -> str:
    if rank.pinned_memory is None:
        why = rank.pinned_memory_sign
        return f"pinned memory unknown: {why}" if why else "pinned memory unknown"
    return f"pinned memory {'on' if rank.pinned_memory else 'off'}"


def _workers_apart(ranks: Sequence[JobRank]) -> str:
    groups: dict[int | None, list[JobRank]] = {}
    for rank in ranks:
        groups.setdefault(rank.loader_workers, []).append(rank)
    if len(groups) > _GROUPS_TOLD:
        known = [count for count in groups if count is not None]
        rest = ", unknown in some" if None in groups else ""
        return f"{min(known)} to {max(known)} loader workers, differing by rank{rest}"
    names = {None: "unknown", 0: "none"}
    parts = [f"{names.get(count, count)} in {_these(some)}" for count, some in groups.items()]
    return f"loader workers differ: {', '.join(parts)}"


def _pinned_apart(ranks: Sequence[JobRank]) -> str:
    off = [rank for rank in ranks if rank.pinned_memory is False]
    on = [rank for rank in ranks if rank.pinned_memory]
    parts = [f"{word} in {_these(some)}" for word, some in (("on", on), ("off", off)) if some]
    unknown = len(ranks) - len(off) - len(on)
    if unknown:
        parts.append("unknown in the others" if parts else "unknown")
    return f"pinned memory {', '.join(parts)}"


def _these(ranks: Iterable[JobRank]) -> str:
    """``rank 3``, ``ranks 0-2, 5``, or PIDs."""
    ranks = list(ranks)
    if any(rank.rank is None for rank in ranks):
        pids = [str(rank.pid) for rank in ranks]
        return f"PID{'' if len(pids) == 1 else 's'} {' and '.join(_shortened(pids))}"
    numbers = sorted({rank.rank for rank in ranks if rank.rank is not None})
    spans: list[list[int]] = []
    for number in numbers:
        if spans and number == spans[-1][1] + 1:
            spans[-1][1] = number
        else:
            spans.append([number, number])
    texts = [str(a) if a == b else f"{a}-{b}" for a, b in spans]
    return f"rank{'' if len(numbers) == 1 else 's'} {' and '.join(_shortened(texts))}"


def _shortened(texts: list[str]) -> list[str]:
    return texts if len(texts) <= 4 else [*texts[:3], f"{len(texts) - 3} more"]
