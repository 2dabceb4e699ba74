"""GPU time charged to users and batch jobs, as counters."""

import re
from collections.abc import Sequence
from dataclasses import replace

import pytest

pytest.importorskip("prometheus_client")

from gpuwatch.core.model import Gpu, Job, Process
from gpuwatch.diagnosis.finding import Diagnosis, Finding
from gpuwatch.diagnosis.ledger import Ledger
from gpuwatch.outputs.exporter.charges import OWNERS_MOST
from gpuwatch.outputs.exporter.metrics import Metrics
from tests.support.snapshots import gpu, snapshot

SERIES = re.compile(r"^gpuwatch_job_(lost_)?gpu_seconds_total\{(.*)\} (\S+)$", re.MULTILINE)


class Served:
    """An exporter that takes snapshots with findings of a job."""

    def __init__(self) -> None:
        self.metrics, self.ledger = Metrics(lambda: (0.5, False)), Ledger()
        self.lost: dict[int, float] = {}

    def look(self, at: float, *jobs: Job, gpus: Sequence[Gpu] = (), lost: float = 0.0) -> None:
        """Take a look at ``at``; all jobs have lost so many ``lost`` GPU seconds more."""
        for job in jobs:
            self.lost[job.pid] = self.lost.get(job.pid, 0.0) + lost
        findings = [
            Finding(
                rule="oscillation", severity="warning", confidence=1.0, summary="", job=job.key,
                cost_gpu_seconds=self.lost[job.pid], watched_gpu_seconds=at,
            )
            for job in jobs
        ]  # fmt: skip
        found = Diagnosis(
            taken_at_unix_seconds=1.7e9 + at, watched_seconds=at, verdict="",
            findings=tuple(findings),
        )  # fmt: skip
        self.ledger.add_diagnosis(found)
        there = tuple(gpus) or (gpu(busy_percent=50.0), gpu("GPU-b", 1, busy_percent=50.0))
        self.metrics.push(snapshot(at=at, gpus=there, jobs=jobs), found, self.ledger)

    def page(self, scraper: str = "a") -> dict[str, float]:
        return charged(self.metrics.page(scraper)[0].decode())


def charged(page: str) -> dict[str, float]:
    """Seconds by user, Slurm job and cause, in a word each; without a cause what was given."""
    found = {}
    for _, labels, value in SERIES.findall(page):
        named = dict(re.findall(r'(\w+)="([^"]*)"', labels))
        names = [named[name] for name in ("user", "slurm_job_id", "cause") if name in named]
        found[" ".join(names)] = float(value)
    return found


def job(pid: int = 7, user: str = "ada", slurm: str | None = "17", *gpus: str) -> Job:
    return Job(
        pid=pid, started_at_unix_seconds=5.0, user=user, slurm_job=slurm,
        gpu_uuids=gpus or ("GPU-a",),
    )  # fmt: skip


def test_a_series_begins_at_zero_for_everybody_who_scrapes() -> None:
    """So that ``increase`` counts what a job lost before its first scrape; it never falls."""
    served = Served()
    served.look(0.0, job(8, "grace"))
    assert served.page("a").keys() == served.page("b").keys()
    for at in range(1, 11):
        served.look(at, job(), lost=2.0)
    first = {"ada 17": 0.0, "ada 17 oscillation": 0.0}
    assert first.items() <= served.page("a").items()
    assert first.items() <= served.page("b").items()
    for scraper in "ab":
        assert {"ada 17": 10.0, "ada 17 oscillation": 20.0}.items() <= served.page(scraper).items()


def test_the_end_of_a_job_is_served_until_it_is_scraped() -> None:
    """Twice to each scraper, and then no more; also where the job ended before its first scrape."""
    served = Served()
    served.page("a")
    for at in range(10):
        served.look(at, job(), lost=2.0)
    for at in range(10, 20):
        served.look(at, job(8, "grace", None, "GPU-b"))
    pages = [served.page("a") for _ in range(4)]
    assert [page.get("ada 17 oscillation") for page in pages] == [0.0, 20.0, 20.0, None]
    assert "grace " in pages[-1]


def test_a_gpu_that_several_have_is_divided_among_them() -> None:
    """So that all that was given is the GPUs' time; a job that is allocated a GPU has it, used or
    not, and jobs of one user outside of Slurm are charged together."""
    served = Served()
    unused = replace(gpu("GPU-b", 1, busy_percent=0.0), allocated_to=("17",))
    both = [gpu(busy_percent=50.0), unused]
    for at in range(11):
        others = (job(8, "grace", None), job(9, "grace", None))
        served.look(at, job(), *others, gpus=both)
    served.page()
    assert {key: seconds for key, seconds in served.page().items() if seconds} == {
        "ada 17": 15.0,
        "grace ": 5.0,
    }


def test_time_of_gpus_without_a_known_job_is_that_of_their_processes_users() -> None:
    """And of what is allocated to a job of which no process was ever seen, nobody's."""
    taken = Metrics(lambda: (0.5, False))
    there = (gpu(busy_percent=1.0), replace(gpu("GPU-b", 1), allocated_to=("9",)))
    for at in range(6):
        process = Process(pid=3, gpu_uuid="GPU-a", user="linus")
        one = snapshot(at=float(at), gpus=there, processes=(process,))
        taken.push(
            one, Diagnosis(taken_at_unix_seconds=at, watched_seconds=at, verdict=""), Ledger()
        )
    taken.page("a")
    assert charged(taken.page("a")[0].decode()) == {"linus ": 5.0, " 9": 5.0}


def test_owners_are_bounded_and_those_that_are_over_go_first() -> None:
    """How many have no series is counted."""
    served = Served()
    for number in range(OWNERS_MOST + 20):
        served.look(float(number), job(number, "ada", str(number)), lost=1.0)
    assert len({key.split()[1] for key in served.page()}) == OWNERS_MOST
    there = [job(number, "ada", f"more{number}") for number in range(OWNERS_MOST + 3)]
    served.look(1000.0, *there)
    assert len({key.split()[1] for key in served.page()}) == OWNERS_MOST
    (left_out,) = re.findall('what="accounts"} (.*)', served.metrics.page("a")[0].decode())
    assert float(left_out) == 3.0
