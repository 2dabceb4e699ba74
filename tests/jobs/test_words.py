"""The words for jobs say what is known, and no more."""

import re

import pytest

from gpuwatch.core.model import Host, Job, JobMember, JobRank
from gpuwatch.jobs.words import cores_sentence, job_loading_sentence, role_name


def ranks(text: str) -> tuple[JobRank, ...]:
    """``4+ ~2- 0?``: loader workers of each rank (``~``: guessed, ``?``: not known), and whether
    its memory is pinned."""
    found = []
    for at, (guess, workers, pinned) in enumerate(re.findall(r"(~?)(\d|\?)([-+?])", text)):
        found.append(
            JobRank(
                pid=100 + at,
                rank=at,
                loader_workers=None if workers == "?" else int(workers),
                loader_workers_guessed=bool(guess),
                loader_workers_sign="its children cannot be read" if workers == "?" else "by name",
                pinned_memory={"+": True, "-": False}.get(pinned),
                pinned_memory_sign="its threads cannot be read" if pinned == "?" else "by name",
            )
        )
    return tuple(found)


LOADING = {
    "4+": "4 loader workers, pinned memory on",
    "1-": "1 loader worker, pinned memory off",
    "4?": "4 loader workers, pinned memory unknown: its threads cannot be read",
    "0?": "no workers: any loading runs in the training process",
    "?+": "loading unknown: its children cannot be read",
    "~2+": "probably 2 loader workers, pinned memory on",
    "": "no training process seen",
    "4+ 4+": "4 loader workers each, pinned memory on",
    "0? 0?": "no workers: any loading runs in the training processes",
    "4+ 4+ 4+ 0+": "0 to 4 loader workers, differing by rank, pinned memory on",
    "4+ ?+": "4 loader workers, differing by rank, unknown in some, pinned memory on",
    "4+ 4- 4+": "4 loader workers each, pinned memory on in 2 of 3 ranks",
    "4+ 4?": "4 loader workers each, pinned memory on in 1 of 2 ranks, unknown in some",
    "0+ 1+ 2+ 3+ 4+": "0 to 4 loader workers, differing by rank, pinned memory on",
}


@pytest.mark.parametrize(("given", "said"), LOADING.items())
def test_loading(given: str, said: str) -> None:
    """A clause that tells 0 from unknown and a guess from a fact. Ranks that are alike share it; of
    others the range is said."""
    assert job_loading_sentence(Job(pid=1, ranks=ranks(given))) == said


def test_loading_of_what_says_little() -> None:
    """Without a sign there is no reason."""
    assert job_loading_sentence(Job(pid=1, ranks=(JobRank(pid=1),))) == "loading unknown"


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (JobMember(pid=1, role="rank", rank=3), "rank 3"),
        (JobMember(pid=1, role="rank"), "training process"),
        (JobMember(pid=1, role="loader_worker", rank=0), "loader worker"),
        (JobMember(pid=1, role="loader_worker", orphaned=True), "orphaned loader worker"),
        (JobMember(pid=1, role="loader_worker", role_guessed=True), "loader worker?"),
        (JobMember(pid=1, role="launcher"), "launcher"),
        (JobMember(pid=1), "other"),
    ],
)
def test_role_names(given: JobMember, said: str) -> None:
    """A role is named for a person, a guess with a question mark."""
    assert role_name(given) == said


@pytest.mark.parametrize(
    ("given", "cores", "said"),
    [
        (Job(pid=1), 16, None),
        (Job(pid=1, usable_cores=16.0), 16, "all 16 cores usable"),
        (Job(pid=1, usable_cores=1.0), 1, "the only core usable"),
        (Job(pid=1, usable_cores=8.0), None, "8 cores usable"),
        (
            Job(pid=1, usable_cores=2.5, quota_cores=2.5, affinity_cores=16),
            16,
            "2.5 of 16 cores usable (quota 2.5)",
        ),
        (
            Job(pid=1, usable_cores=6.0, slurm_cores=6, ranks=ranks("4+ 4+")),
            16,
            "6 of 16 cores usable (Slurm), 3 per rank",
        ),
        (Job(pid=1, usable_cores=4.0, affinity_cores=4), 16, "4 of 16 cores usable (affinity)"),
    ],
)
def test_usable_cores(given: Job, cores: int | None, said: str | None) -> None:
    """How many cores, of how many, what makes them fewer, and how many each rank has."""
    assert cores_sentence(given, Host(name="x", core_count=cores)) == said
