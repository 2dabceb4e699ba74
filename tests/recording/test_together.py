"""Several machines as one: GPUs side by side, one job of its parts, and which rank is late."""

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.core.model import (
    BusySample,
    Host,
    Job,
    JobMember,
    JobRank,
    Problem,
    Process,
    Snapshot,
)
from gpuwatch.core.source import ManualClock
from gpuwatch.core.text import SentenceError
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.recording.hosts.brief import are_one, key_of
from gpuwatch.recording.hosts.together import Machine, merged, together
from tests.support.simulated import looks
from tests.support.snapshots import gpu, snapshot

TIMES: dict[str, Any] = {
    "sequence": 1,
    "taken_at_unix_seconds": 500.0,
    "monotonic_seconds": 50.0,
    "interval_seconds": 1.0,
}


def job(*ranks: int, **fields: Any) -> Job:
    """A launcher (PID 7) with these ranks, of four in all."""
    given = tuple([JobRank(pid=10 + one, rank=one, gpu_uuids=(f"GPU-{one}",)) for one in ranks])
    members = [JobMember(pid=7, role="launcher", parent_pid=1, state="S", cpu_percent=1.0)]
    members += [
        JobMember(pid=10 + one, role="rank", rank=one, parent_pid=7, state="R", cpu_percent=90.0)
        for one in ranks
    ]
    settings: dict[str, Any] = {
        **{"pid": 7, "command": "torchrun train.py", "user": "ada", "world_size": 4},
        **{"ranks": given, "members": tuple(members), "usable_cores": 8.0},
        "gpu_uuids": tuple([f"GPU-{one}" for one in ranks]),
    }
    return Job(**(settings | fields))


def node(name: str, *ranks: int, at: float = 100.0, **fields: Any) -> Snapshot:
    """One that runs those ranks of the job."""
    cards = [
        gpu(f"GPU-{one}", place, busy_percent=50.0, busy_samples=(BusySample(at, 50.0),))
        for place, one in enumerate(ranks)
    ]
    runs = [
        Process(pid=10 + one, parent_pid=7, gpu_uuid=f"GPU-{one}", gpu_busy_percent=50.0)
        for one in ranks
    ]
    of_job = fields.pop("job", {})
    host = Host(name=name, core_count=8, cpu_percent=25.0, memory_used_bytes=100, shm_used_bytes=1)
    return snapshot(
        at, host=host, gpus=tuple(cards), processes=tuple(runs), jobs=(job(*ranks, **of_job),),
        taken_at_unix_seconds=at, **fields,
    )  # fmt: skip


def both(**second: Any) -> Snapshot:
    machines = [
        Machine(0, "node1", node("node1", 0, 1)),
        Machine(1, "node2", node("node2", 2, 3), **second),
    ]
    return together(machines, **TIMES)


def test_a_job_on_two_machines_is_one_job_of_all_ranks() -> None:
    """GPUs are numbered through and say where they are; cores and memory are added up; what has no
    sum is unknown; processes of different machines are never taken for one another."""
    found = both()
    assert [(one.identity.index, one.identity.machine) for one in found.gpus] == [
        *[(0, "node1"), (1, "node1"), (2, "node2"), (3, "node2")]
    ]
    (whole,) = found.jobs
    assert [one.rank for one in whole.ranks] == [0, 1, 2, 3]
    assert whole.gpu_uuids == ("GPU-0", "GPU-1", "GPU-2", "GPU-3")
    assert (whole.usable_cores, whole.world_size) == (16.0, 4)
    host = found.host
    assert (host.core_count, host.cpu_percent, host.memory_used_bytes) == (16, 25.0, 200)
    assert host.shm_used_bytes is None
    keys = [one.key for one in whole.members]
    assert len(set(keys)) == len(keys) == 6
    assert [one.own_pid for one in whole.members] == [7, 10, 11, 7, 12, 13]
    assert whole.members[4].parent_pid == whole.members[3].pid
    assert {one.key for one in found.processes} <= set(keys)


def test_a_sum_that_one_machine_does_not_report_is_unknown() -> None:
    """Half of the cores would be a wrong number."""
    second = node("node2", 2, 3, job={"usable_cores": None})
    second = replace(second, host=Host(name="node2"))
    first = Machine(0, "node1", node("node1", 0, 1))
    found = together([first, Machine(1, "node2", second)], **TIMES)
    assert found.jobs[0].usable_cores is None
    assert (found.host.core_count, found.host.cpu_percent) == (None, None)


def test_readings_of_a_machine_that_is_late_are_missing() -> None:
    """Its GPUs and ranks stay where they are, and nothing old is shown as new."""
    found = both(fresh=False)
    assert [one.reading.busy_percent for one in found.gpus] == [50.0, 50.0, None, None]
    (whole,) = found.jobs
    assert [one.rank for one in whole.ranks] == [0, 1, 2, 3]
    assert [one.cpu_percent for one in whole.members] == [1.0, 90.0, 90.0, None, None, None]
    assert {one.gpu_uuid for one in found.processes} == {"GPU-0", "GPU-1"}


def test_fine_samples_of_a_wrong_clock_are_put_right() -> None:
    """They are laid beside those of the other machines."""
    (sample,) = both(clock_error_seconds=30.0).gpus[2].reading.busy_samples or ()
    assert sample.at_unix_seconds == 70.0


def test_problems_say_where_they_are() -> None:
    """The sentence begins with the machine."""
    bad = node("node2", 2, 3, problems=(Problem(source="nvml", message="It hangs."),))
    machines = [Machine(0, "node1", node("node1", 0, 1)), Machine(1, "node2", bad)]
    assert [one.message for one in together(machines, **TIMES).problems] == ["node2: It hangs."]


@pytest.mark.parametrize(
    ("one", "other", "same"),
    [
        ({"rendezvous": "a:1", "slurm_job": "5"}, {"rendezvous": "a:1", "slurm_job": "6"}, True),
        ({"rendezvous": "a:1", "slurm_job": "5"}, {"rendezvous": "a:2", "slurm_job": "5"}, False),
        ({"slurm_job": "5"}, {"slurm_job": "5", "command": "python other.py"}, True),
        ({"slurm_job": "5"}, {"slurm_job": "6"}, False),
        ({}, {}, True),
        ({}, {"user": "bob"}, False),
        ({}, {"world_size": 8}, False),
        ({"world_size": 2}, {"world_size": 2}, False),
        ({"world_size": None}, {"world_size": None}, False),
    ],
)
def test_what_makes_two_jobs_one(one: dict[str, Any], other: dict[str, Any], same: bool) -> None:
    """Where their ranks met says it best, then the Slurm job, then command and user; a job that has
    all its ranks on one machine is that one's."""
    first, second = key_of(job(0, 1, **one)), key_of(job(2, 3, **other))
    assert (first is not None and first == second) == same


def test_two_runs_of_one_command_are_not_one_job() -> None:
    """Each has a rank 0."""
    assert are_one([(0, (0, 1)), (1, (2, 3))])
    assert not are_one([(0, (0, 1)), (1, (0, 1))])
    assert not are_one([(0, (0, 1)), (0, (2, 3))])
    found = together([Machine(0, "a", node("a", 0, 1)), Machine(1, "b", node("b", 0, 1))], **TIMES)
    assert len(found.jobs) == 2


def halves(seconds: int, apart: float = 0.0) -> tuple[list[Snapshot], list[Snapshot]]:
    """A simulated machine whose third rank of four is slow, as if it were two machines."""
    clock = ManualClock(unix_epoch_seconds=1000.0)
    found: tuple[list[Snapshot], list[Snapshot]] = ([], [])
    for whole in looks("imbalanced", seconds, gpus=4, clock=clock):
        for number in (0, 1):
            uuids = {one.uuid for one in whole.gpus[2 * number : 2 * number + 2]}
            (all_ranks,) = whole.jobs
            ranks = [one for one in all_ranks.ranks if uuids & {*one.gpu_uuids}]
            own = {one.pid for one in ranks}
            part = replace(
                all_ranks,
                world_size=4,
                ranks=tuple(ranks),
                members=tuple([m for m in all_ranks.members if {m.pid, m.parent_pid} & own]),
                gpu_uuids=tuple(sorted(uuids)),
            )
            cards = [
                replace(one, identity=replace(one.identity, index=place))
                for place, one in enumerate([g for g in whole.gpus if g.uuid in uuids])
            ]
            found[number].append(
                replace(
                    whole,
                    host=replace(whole.host, name=f"node{number + 1}"),
                    taken_at_unix_seconds=whole.taken_at_unix_seconds + apart * number,
                    gpus=tuple(cards),
                    jobs=(part,),
                    processes=tuple([p for p in whole.processes if p.gpu_uuid in uuids]),
                )
            )
    return found


def findings(snapshots: Iterator[Snapshot]) -> list[str]:
    engine = Engine()
    for one in snapshots:
        engine.push(one)
    return [found.summary for found in engine.diagnosis.findings]


def test_the_late_rank_is_named_across_machines() -> None:
    """On the machine with rank 2 and 3 one of two is slower; on the other nothing can be seen but
    waiting. Put together, three ranks wait for one, and where it runs is said."""
    first, second = halves(70)
    assert findings(iter(first)) == []
    assert [one.partition(",")[0] for one in findings(iter(second))] == [
        "GPU 1 spends 51% of the time waiting for rank 2 on GPU 0"
    ]
    assert [one.partition(", which")[0] for one in findings(merged([first, second]))] == [
        "GPUs 0, 1 and 3 spend 51% of the time waiting for rank 2 on node2"
    ]


def test_recordings_are_laid_side_by_side_by_their_times() -> None:
    """Where one machine has no snapshot for a while its readings are missing, and it comes back."""
    first, second = halves(10, apart=0.3)
    del second[4:7]
    found = list(merged([first, second]))
    assert len(found) == 10
    assert [one.gpus[3].reading.busy_percent is None for one in found[1:]] == [
        *[False] * 3, *[True] * 3, *[False] * 3
    ]  # fmt: skip
    # Half of a sum is no sum.
    assert found[5].host.core_count is None
    assert found[-1].host.core_count == 2 * (first[-1].host.core_count or 0)
    with pytest.raises(SentenceError, match="of the same host"):
        list(merged([first, first]))
    times = [one.taken_at_unix_seconds for one in found]
    assert times == sorted(set(times))
    assert [one.sequence for one in found] == list(range(1, 11))
