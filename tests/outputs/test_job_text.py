"""Jobs on the page of ``gpuwatch status``: in brief for the machine, in full for one."""

from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.core.model import Host, Job, JobMember, JobRank, Process, Snapshot
from gpuwatch.core.source import ManualClock
from gpuwatch.jobs.identity.job_filter import only_job
from gpuwatch.outputs.status import JOBS_SHOWN, status_page
from gpuwatch.sources.simulated.source import SCENARIOS, SimulatedSource
from tests.support.snapshots import gpu, snapshot

GIB = 2**30


def worker(pid: int, parent: int, cpu: float = 99.0, **fields: Any) -> JobMember:
    known = {"role": "loader_worker", "role_sign": "named pt_data_worker", "state": "R"}
    known |= {"memory_proportional_bytes": GIB}
    return JobMember(pid=pid, parent_pid=parent, cpu_percent=cpu, **(known | fields))


SIGNS = {
    **{"loader_workers": 2, "loader_workers_sign": "2 processes named pt_data_worker"},
    **{"pinned_memory": False, "pinned_memory_sign": "no thread named pt_data_pin"},
}


def job(pid: int = 10, **fields: Any) -> Job:
    cpu = {"cpu_percent": 20.0, "main_thread_cpu_percent": 12.0}
    rank = JobMember(pid=pid, parent_pid=1, role="rank", **cpu)
    known = {
        **{"command": "python train.py", "user": "ada", "gpu_uuids": ("GPU-a",)},
        "usable_cores": 4.0,
        "ranks": (JobRank(pid=pid, gpu_uuids=("GPU-a",), **SIGNS),),
        "members": (rank, worker(pid + 1, pid), worker(pid + 2, pid, 97.0)),
    }
    return Job(pid=pid, **(known | fields))


def rows_of(*jobs: Job) -> tuple[Process, ...]:
    return tuple(
        Process(
            pid=member.pid,
            command="python train.py",
            cpu_percent=member.cpu_percent,
            gpu_uuid="GPU-a" if member.role == "rank" else None,
            gpu_memory_bytes=3 * GIB if member.role == "rank" else None,
        )
        for one in jobs
        for member in one.members
    )


def machine(*jobs: Job) -> Snapshot:
    return snapshot(gpus=(gpu(),), jobs=jobs, processes=rows_of(*jobs))


def block(page: str, title: str) -> list[str]:
    """The lines of the block whose first line begins with this word."""
    found = [part for part in page.split("\n\n") if part.split()[0] == title]
    return found[0].splitlines() if found else []


def test_each_job_is_a_row_and_a_sentence() -> None:
    """Who, where, how busy, and below it how it gets its data."""
    titles, row, sentence = block(status_page(machine(job())), "JOB")
    assert "MAIN CPU  WORKER CPU  CORES" in titles
    assert row.split() == ["10", "ada", "0", "1", "12%", "98%", "4", "python", "train.py"]
    assert sentence.strip() == "2 loader workers, pinned memory off"


def test_machine_without_jobs_has_no_block_of_them() -> None:
    """No heading stands over nothing."""
    assert "JOB" not in status_page(snapshot(gpus=(gpu(),), processes=(Process(pid=1),)))


def test_many_jobs_are_counted_and_all_shown_when_asked_for() -> None:
    """A page holds so many jobs, and says how many more there are."""
    taken = machine(*(job(10 * number) for number in range(1, JOBS_SHOWN + 4)))
    assert "and 3 more (--all shows them)" in block(status_page(taken), "JOB")
    everything = block(status_page(taken, processes_shown=None), "JOB")
    assert len(everything) == 1 + 2 * (JOBS_SHOWN + 3)


def test_loader_workers_are_counted_and_no_rows() -> None:
    """Workers are alike, and their job says how many there are; an orphan has no rank and a row."""
    listed = status_page(machine(job())).split("\n\n")[-1].splitlines()
    assert [line.split()[:2] for line in listed[1:]] == [["0", "10"], ["and", "2"]]
    members = (JobMember(pid=10, role="rank"), worker(11, 1, orphaned=True), worker(12, 1))
    page = status_page(machine(job(members=members)))
    assert " 11 " in page
    assert " 12 " not in page


def test_all_processes_are_listed_when_asked_for() -> None:
    """With --all every worker has its own row."""
    page = status_page(machine(job()), processes_shown=None)
    assert " 11 " in page
    assert " 12 " in page


def test_attached_job_has_a_page_of_its_own() -> None:
    """Header, GPUs, processes as a tree, host; and no list of the machine's jobs."""
    one = job(
        attached=True,
        started_at_unix_seconds=1_700_000_040.0,
        working_directory="/data/run",
        environment="conda ml",
        container="abc",
        slurm_job="77",
        inner_pid=1,
        cpu_throttled_percent=12.0,
        quota_cores=4.0,
    )
    taken = replace(machine(one), host=Host(name="box3", cpu_percent=1.0, core_count=16))
    page = status_page(taken)
    for said in (
        "python train.py\n",
        "PID 10 (1 inside its container) of ada, for 1m00",
        "in /data/run, conda ml, container abc, Slurm job 77",
        "2 loader workers, pinned memory off",
        "4 of 16 cores usable (quota 4.0), CPU throttled 12% of the time",
        "CPU 216%",
    ):
        assert said in page
    # One process's PSS is not known, so there is no sum.
    assert "memory (PSS)" not in page
    _, rank, first, _ = block(page, "PROCESS")
    assert rank.split()[:4] == ["training", "process", "10", "20%"]
    assert "3.0G" in rank
    assert first.startswith("  loader worker")
    assert "running" in first
    assert "RANK" not in page
    assert not block(page, "JOB")
    assert "CPU 1% of 16 cores" in page


def test_ranks_are_a_table() -> None:
    """Each rank's main thread, workers, their CPU, and pinned memory; unknown is a dash."""
    ranks = (
        JobRank(pid=10, rank=0, gpu_uuids=("GPU-a",), loader_workers=2, pinned_memory=True),
        JobRank(pid=20, rank=1, loader_workers=0),
        JobRank(pid=30, rank=2, loader_workers=1, loader_workers_guessed=True),
    )
    members = (
        JobMember(pid=10, role="rank", rank=0, main_thread_cpu_percent=12.0),
        worker(11, 10, 98.0, rank=0, run_queue_wait_percent=3.0),
        worker(12, 10, 96.0, rank=0, run_queue_wait_percent=5.0),
        JobMember(pid=20, role="rank", rank=1),
    )
    page = status_page(machine(job(attached=True, ranks=ranks, members=members)))
    assert [line.split() for line in block(page, "RANK")[1:]] == [
        ["0", "10", "0", "12%", "2", "97%", "4%", "on"],
        ["1", "20", "-", "-", "0", "-", "-", "-"],
        ["2", "30", "-", "-", "1?", "-", "-", "-"],
    ]


def test_a_guessed_role_has_a_question_mark() -> None:
    """What it rests on is for --json."""
    guessed = {"role_guessed": True, "role_sign": "forked by the training process"}
    members = (JobMember(pid=10, role="rank"), worker(11, 10, **guessed), worker(12, 10, **guessed))
    page = status_page(machine(job(attached=True, members=members)))
    assert page.count("loader worker? ") == 2


@pytest.mark.parametrize(
    ("code", "said"),
    [(None, "ended at"), (3, "exit code 3"), (0, "exit code 0"), (-9, "ended by SIGKILL")],
)
def test_job_that_ended_says_when_and_how(code: int | None, said: str) -> None:
    """The end, the life time and, where it is known, the exit code."""
    one = job(
        attached=True,
        members=(),
        started_at_unix_seconds=1_700_000_000.0,
        ended_at_unix_seconds=1_700_000_060.0,
        exit_code=code,
    )
    page = status_page(snapshot(gpus=(gpu(),), jobs=(one,)))
    assert "after 1m00" in page
    assert said in page
    assert ("exit code" in page or "ended by" in page) == (code is not None)
    assert "PROCESS" not in page


def test_unknown_loading_says_why() -> None:
    """What is not known is said with its reason, without repeating itself."""
    rank = JobRank(pid=10, loader_workers_sign="PyTorch is not loaded in it")
    page = status_page(machine(job(attached=True, ranks=(rank,))))
    assert "loading  unknown: PyTorch is not loaded in it" in page
    brief = status_page(machine(job(ranks=(rank,))))
    assert "loading unknown: PyTorch is not loaded in it" in brief


def test_job_without_a_gpu_says_so() -> None:
    """The page of a job on the CPU has no GPU table and no reproach."""
    one = job(attached=True, gpu_uuids=(), ranks=(JobRank(pid=10),))
    taken = only_job(snapshot(gpus=(gpu(),), jobs=(one,)), one.key)
    page = status_page(taken)
    assert "It uses no GPU." in page
    assert "H200" not in page


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_page_of_any_simulated_job_keeps_to_its_width(scenario: str) -> None:
    """No line of the page of a job is cut in its numbers or wider than the page."""
    source = SimulatedSource(scenario, gpus=3, clock=ManualClock())
    taken = source.read()
    source.options.attached = taken.processes[0].key if taken.processes else source.find(1)
    taken = source.read()
    page = status_page(only_job(taken, taken.jobs[0].key), width=80)
    assert max(map(len, page.splitlines())) <= 80
    table = block(page, "PROCESS")
    assert len(table) > 1
    assert not any(line.endswith("…") for line in table)
