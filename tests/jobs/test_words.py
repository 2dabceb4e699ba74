"""The words for jobs say what is known, and no more."""

import pytest

from gpuwatch.core.model import Host, Job, JobMember, JobRank
from gpuwatch.jobs.words import cores_sentence, job_loading_sentence, loading_sentence, role_name


def rank(number: int | None = 0, workers: int | None = 4, pinned: bool | None = True) -> JobRank:
    return JobRank(
        pid=100 + (number or 0),
        rank=number,
        loader_workers=workers,
        loader_workers_sign="its children cannot be read" if workers is None else "by name",
        pinned_memory=pinned,
        pinned_memory_sign="its threads cannot be read" if pinned is None else "by name",
    )


def job(*ranks: JobRank) -> Job:
    return Job(pid=1, ranks=ranks)


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (rank(), "4 loader workers, pinned memory on"),
        (rank(workers=1, pinned=False), "1 loader worker, pinned memory off"),
        (rank(pinned=None), "4 loader workers, pinned memory unknown: its threads cannot be read"),
        (rank(workers=0, pinned=None), "no workers: loading runs in the training process"),
        (rank(workers=None), "loading unknown: its children cannot be read"),
        (JobRank(pid=1), "loading unknown"),
        (
            JobRank(pid=1, loader_workers=2, loader_workers_guessed=True, pinned_memory=True),
            "probably 2 loader workers, pinned memory on",
        ),
    ],
)
def test_one_rank(given: JobRank, said: str) -> None:
    """A rank's loading is a clause that tells 0 from unknown and a guess from a fact."""
    assert loading_sentence(given) == said
    assert job_loading_sentence(job(given)) == said


@pytest.mark.parametrize(
    ("given", "said"),
    [
        (job(), "no training process seen"),
        (job(rank(0), rank(1)), "4 loader workers each, pinned memory on"),
        (
            job(rank(0, 0, None), rank(1, 0, None)),
            "no workers: loading runs in the training processes",
        ),
        (
            job(rank(0), rank(1), rank(2), rank(3, 0)),
            "loader workers differ: 4 in ranks 0-2, none in rank 3, pinned memory on",
        ),
        (
            job(rank(0), rank(1, None)),
            "loader workers differ: 4 in rank 0, unknown in rank 1, pinned memory on",
        ),
        (
            job(rank(0), rank(1, pinned=False), rank(2)),
            "4 loader workers each, pinned memory on in ranks 0 and 2, off in rank 1",
        ),
        (
            job(*(rank(number, number, True) for number in range(5))),
            "0 to 4 loader workers, differing by rank, pinned memory on",
        ),
        (
            job(rank(None, 2), rank(None, 3)),
            "loader workers differ: 2 in PID 100, 3 in PID 100, pinned memory on",
        ),
    ],
)
def test_several_ranks(given: Job, said: str) -> None:
    """Ranks that are alike share one clause; others are told apart by their numbers."""
    assert job_loading_sentence(given) == said


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
            Job(pid=1, usable_cores=6.0, slurm_cores=6, ranks=(rank(0), rank(1))),
            16,
            "6 of 16 cores usable (Slurm), 3 per rank",
        ),
        (Job(pid=1, usable_cores=4.0, affinity_cores=4), 16, "4 of 16 cores usable (affinity)"),
    ],
)
def test_usable_cores(given: Job, cores: int | None, said: str | None) -> None:
    """How many cores, of how many, what makes them fewer, and how many each rank has."""
    assert cores_sentence(given, Host(name="x", core_count=cores)) == said
