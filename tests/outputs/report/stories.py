"""Jobs made up of snapshots, for tests of what is said about a job after it was watched."""

import dataclasses
from collections.abc import Callable, Iterable
from typing import Any

from hypothesis import strategies as st

from gpuwatch.core.model import BusySample, Gpu, Job, JobMember, JobRank, Process, Snapshot
from gpuwatch.outputs.report.model import JobUsage, Report
from gpuwatch.outputs.report.recorder import JobRecorder
from tests.support.snapshots import gpu, snapshot

UNIX = 1_700_000_000.0
STARTED = UNIX
PID = 4242
KEY = (PID, STARTED)
COMMAND = "python train.py --epochs 3"


_PROCESS: dict[str, Any] = {"pid": PID, "started_at_unix_seconds": STARTED}
_WORKER = {"started_at_unix_seconds": STARTED + 5, "parent_pid": PID, "name": "pt_data_worker"}


def rank_member(**fields: Any) -> JobMember:
    return JobMember(**(_PROCESS | {"role": "rank", "name": "python"} | fields))


def worker_member(number: int, **fields: Any) -> JobMember:
    known = {"pid": PID + 1 + number, "role": "loader_worker"}
    return JobMember(**(_WORKER | known | fields))


def job(**fields: Any) -> Job:
    """A job of one rank without workers, on GPU ``GPU-a``."""
    known = {
        "attached": True,
        "command": COMMAND,
        "user": "ada",
        "working_directory": "/home/ada/project",
        "framework": "torch",
        "ranks": (rank(),),
        "members": (rank_member(),),
        "gpu_uuids": ("GPU-a",),
    }
    return Job(**(_PROCESS | known | fields))


def rank(**fields: Any) -> JobRank:
    return JobRank(**(_PROCESS | {"gpu_uuids": ("GPU-a",), "loader_workers": 0} | fields))


def look(at: float, watched: Job | None, gpus: Iterable[Gpu] = (), **fields: Any) -> Snapshot:
    """A snapshot ``at`` seconds after the job's start."""
    jobs = () if watched is None else (watched,)
    return snapshot(at, sequence=int(at * 10), jobs=jobs, gpus=tuple(gpus), **fields)


def on_gpu(pid: int = PID, uuid: str = "GPU-a", **fields: Any) -> Process:
    return Process(pid=pid, gpu_uuid=uuid, **fields)


def recorded(snapshots: Iterable[Snapshot], key: tuple[int, float | None] = KEY) -> Report:
    recorder = JobRecorder(key)
    for each in snapshots:
        recorder.push(each)
    return recorder.report()


def of_job(report: Report) -> JobUsage:
    """The job that the report is about."""
    return report.job


def recorded_job(snapshots: Iterable[Snapshot]) -> JobUsage:
    return of_job(recorded(snapshots))


def samples(
    since: float, until: float, busy: float | Callable[[float], float], step: float = 0.2
) -> tuple[BusySample, ...]:
    """Driver samples after ``since`` up to ``until``: the percent is ``busy``, or ``busy(at)`` in
    the step up to ``at``."""
    count = round((until - since) / step)
    times = [since + (number + 1) * step for number in range(count)]
    return tuple([BusySample(UNIX + at, busy(at) if callable(busy) else busy) for at in times])


def training(
    *,
    seconds: int = 300,
    workers: int = 4,
    gpus: int = 1,
    busy_share: float = 0.4,
    exit_code: int | None = 0,
    simulated: bool = False,
    **fields: Any,
) -> list[Snapshot]:
    """A training that is busy for ``busy_share`` of each 2 s, watched once a second to its end."""
    uuids = tuple(f"GPU-{chr(97 + n)}" for n in range(gpus))
    members = (
        rank_member(
            cpu_percent=35.0,
            main_thread_cpu_percent=30.0,
            memory_resident_bytes=3 * 2**30,
            memory_proportional_bytes=2 * 2**30,
            read_bytes_per_second=0.0,
            write_bytes_per_second=2.0**20,
            run_queue_wait_percent=1.0,
        ),
        *[
            worker_member(
                n,
                cpu_percent=98.0,
                memory_resident_bytes=2**30,
                memory_proportional_bytes=2**29,
                read_bytes_per_second=5.0 * 2**20,
                write_bytes_per_second=0.0,
                run_queue_wait_percent=4.0,
            )
            for n in range(workers)
        ],
    )
    running = job(
        ranks=(
            rank(
                loader_workers=workers,
                loader_workers_sign="named pt_data_worker",
                pinned_memory=workers > 0,
                gpu_uuids=uuids,
            ),
        ),
        members=members,
        gpu_uuids=uuids,
        usable_cores=16.0,
        environment="venv ml",
        **fields,
    )
    ended = dataclasses.replace(
        running, members=(), gpu_uuids=(), ended_at_unix_seconds=UNIX + seconds, exit_code=exit_code
    )

    def busy(at: float) -> float:
        return 99.0 if (at - 0.1) % 2.0 < 2.0 * busy_share else 0.0

    out = []
    for at in range(1, seconds + 2):
        cards = [
            gpu(
                uuid,
                place,
                busy_percent=99.0 if at % 2 else 0.0,
                busy_samples=samples(at - 1, at, busy),
                memory_used_bytes=33 * 2**30,
                power_watts=212.0 + 300.0 * (at % 2),
                power_limit_watts=700.0,
                temperature_celsius=41.0 + min(at, 30),
                energy_joules=1e6 + 362.0 * at,
                throttle_reasons=("sw_power_cap",) if 100 <= at < 140 else ("gpu_idle",),
                sm_active_percent=21.0,
                tensor_active_percent=12.0,
            )
            for place, uuid in enumerate(uuids)
        ]
        processes = [on_gpu(uuid=uuid, user="ada", gpu_memory_bytes=31 * 2**30) for uuid in uuids]
        over = at > seconds
        out.append(
            look(
                float(at),
                ended if over else running,
                cards,
                processes=() if over else tuple(processes),
                simulated=simulated,
            )
        )
    return out


PERCENTS = st.none() | st.floats(-10, 200) | st.sampled_from([0.0, 100.0, float("nan")])


@st.composite
def watched_jobs(draw: st.DrawFn) -> list[Snapshot]:
    """A job watched at odd intervals, with readings missing, GPUs lost and samples anywhere."""
    at, out = 0.0, []
    ends = draw(st.booleans())
    for number in range(draw(st.integers(1, 12))):
        at += draw(st.sampled_from([0.1, 0.9, 1.0, 1.1, 2.4, 2.6, 30.0]))
        cards: list[Gpu] = []
        for index in range(2):
            fine = draw(
                st.none()
                | st.lists(st.tuples(st.floats(at - 5, at + 2), st.floats(-5, 120)), max_size=6)
            )
            cards.append(
                gpu(
                    f"GPU-{'ab'[index]}",
                    index,
                    lost=draw(st.integers(0, 9)) == 0,
                    busy_percent=draw(PERCENTS),
                    busy_samples=None
                    if fine is None
                    else tuple(BusySample(UNIX + when, value) for when, value in fine),
                    power_watts=draw(PERCENTS),
                    energy_joules=draw(PERCENTS),
                )
            )
        here = draw(st.sampled_from([("GPU-a",), ("GPU-a", "GPU-b"), ()]))
        ended = UNIX + at - draw(st.floats(0, 3)) if ends and number > 8 else None
        watched = job(
            gpu_uuids=here,
            members=(rank_member(cpu_percent=draw(PERCENTS)),),
            ended_at_unix_seconds=ended,
        )
        out.append(look(at, watched if draw(st.integers(0, 9)) else None, cards))
    return [*out, look(at + 0.5, job())]
