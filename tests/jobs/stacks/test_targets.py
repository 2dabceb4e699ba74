"""Which processes of a job are sampled."""

from gpuwatch.core.model import Job, JobMember
from gpuwatch.jobs.stacks.sampler import job_targets


def member(pid: int, role: str, parent: int = 1, **changes: object) -> JobMember:
    return JobMember(pid=pid, role=role, parent_pid=parent, **changes)  # type: ignore[arg-type]


JOB = Job(
    pid=10,
    members=(
        member(10, "launcher"),
        member(11, "rank", 10, rank=0),
        member(13, "helper", 11),
        member(14, "loader_worker", 13),
        member(15, "loader_worker", 13),
        member(12, "rank", 10, rank=1),
        member(16, "loader_worker", 12),
        member(17, "loader_worker", 1, orphaned=True),
    ),
)


def test_the_ranks_of_a_job_in_their_order() -> None:
    """Not its launcher, helpers or workers, but one worker of each rank if asked for: also behind a
    fork server; one that was left over belongs to no rank."""
    targets = job_targets(JOB)
    assert [(target.pid, target.rank) for target in targets] == [(11, 0), (12, 1)]
    targets = job_targets(JOB, workers=True)
    assert [(target.pid, target.role) for target in targets] == [
        (11, "rank"), (14, "loader_worker"), (12, "rank"), (16, "loader_worker")
    ]  # fmt: skip


def test_without_a_known_rank_the_process_selected_or_the_topmost() -> None:
    """Something can always be looked at."""
    job = Job(pid=10, members=(member(10, "other"), member(99, "other", 10)))
    assert [target.pid for target in job_targets(job)] == [10]
    assert [target.pid for target in job_targets(job, job.members[1])] == [99]
