"""Runs of jobs: which follows which, what is compared, and what stays of one that has ended."""

import dataclasses
import re
from itertools import pairwise

import pytest

from gpuwatch.core.model import Job, Snapshot, TrainingLoop
from gpuwatch.tui.charts.strips import UNICODE
from gpuwatch.tui.pages.findings import EvidenceScreen
from gpuwatch.tui.runs import Runs, next_run
from tests.support.simulated import looks
from tests.tui.controllers.test_diagnosis import busy_at
from tests.tui.diagnoses import HandEngine, diagnosis, nothing, starved
from tests.tui.driving import driven
from tests.tui.scenes import scene

FIRST, SECOND = (10, 1_700_000_000.0), (20, 1_700_000_065.0)


def job_of(what: Snapshot, key: tuple[int, float], command: str, **fields: object) -> Job:
    settings: dict[str, object] = {
        "pid": key[0],
        "started_at_unix_seconds": key[1],
        "command": command,
        "members": (),
        "attached": False,
        "gpu_uuids": (what.gpus[0].uuid,),
    }
    return dataclasses.replace(what.jobs[0], **(settings | fields))


def at(what: Snapshot, second: int, percent: float, *jobs: Job) -> Snapshot:
    return dataclasses.replace(busy_at(what, second, percent), jobs=jobs)


@pytest.fixture
def what() -> Snapshot:
    """Two GPUs, of which the first is used; the clock begins with the first job."""
    now = scene("starved", 2).now
    return dataclasses.replace(now, taken_at_unix_seconds=FIRST[1])


@pytest.mark.parametrize(
    ("command", "other", "follows"),
    [
        ("python train.py --workers 0", "python train.py --workers 0", True),
        ("python train.py --workers 0", "python train.py --workers 8", True),
        ("python train.py --workers 0", "torchrun --nproc-per-node 2 train.py", True),
        ("python train.py --workers 0", "python -m pkg.train", False),
        ("python train.py --workers 0", "python evaluate.py --workers 0", False),
        # A module is a program too; commands without either are the same word for word.
        ("python -m pkg.train -x 1", "python -m pkg.train -x 2", True),
        ("python -m pkg.train", "python -m pkg.other", False),
        ("./train -x 1", "./train -x 2", False),
        ("./train -x 1", "./train -x 1", True),
    ],
)
def test_a_change_may_be_one_of_the_arguments(
    what: Snapshot, command: str, other: str, follows: bool
) -> None:
    """The same script in the same folder, begun after the end, is the next run."""
    ended = job_of(what, FIRST, command, ended_at_unix_seconds=FIRST[1] + 60)
    after = job_of(what, SECOND, other)
    assert (next_run((after,), ended) is after) is follows
    # Somebody else's, or in another folder, is another job.
    for fields in ({"user": "eve"}, {"working_directory": "/elsewhere"}):
        assert next_run((dataclasses.replace(after, **fields),), ended) is None


def test_however_many_jobs_run_each_is_known_from_its_first_moment(what: Snapshot) -> None:
    """Only runs that are over are forgotten, the oldest first."""
    runs = Runs()
    count = 100
    jobs = tuple(
        job_of(what, (pid, FIRST[1]), f"python sweep_{pid}.py") for pid in range(1, 1 + count)
    )
    for second in range(5):
        at = what.monotonic_seconds + second
        runs.take_snapshot(dataclasses.replace(what, jobs=jobs, monotonic_seconds=at))
    assert {runs.seen_seconds(job.key) for job in jobs} == {4.0}
    for gone in range(1, count):
        at = what.monotonic_seconds + 5 + gone
        runs.take_snapshot(dataclasses.replace(what, jobs=jobs[gone:], monotonic_seconds=at))
    kept = [job.pid for job in jobs if runs.seen_seconds(job.key) > 0.0]
    assert kept == [*range(36, 1 + count)]


def test_a_sweep_that_runs_side_by_side_has_no_next_runs(what: Snapshot) -> None:
    """Another job of the same script that had begun before this one ended is not its next run."""
    runs = Runs()
    first = job_of(what, FIRST, "python train.py --seed 0")
    beside = job_of(what, (11, FIRST[1] + 5), "python train.py --seed 1")
    for second in range(20):
        assert runs.take_snapshot(at(what, second, 41.0, first)) is None
    assert runs.take_snapshot(at(what, 20, 41.0, beside)) is None


async def test_the_overview_compares_runs_that_nobody_looks_at(what: Snapshot) -> None:
    """Started again with other arguments while no job is open: before and after, the GPU named,
    measured over the runs and neither the time between them nor the start of the new one."""
    first = job_of(what, FIRST, "python train.py --workers 0")
    second = job_of(what, SECOND, "python train.py --workers 8")
    found = diagnosis(what, starved(what, job=first.key))
    engine = HandEngine(found)
    async with driven(at(what, 0, 24.0, first), (120, 40), engine=engine) as drive:
        for now in range(1, 40):
            await drive.sampler.feed(at(what, now, 24.0, first))
        engine.diagnosis = nothing(what)
        for now in range(40, 66):
            await drive.sampler.feed(at(what, now, 0.0))
        for now in range(66, 70):
            await drive.sampler.feed(at(what, now, 0.0, second))
        await drive.settle()
        assert "GPU not in use yet" in drive.text
        for now in range(70, 110):
            await drive.sampler.feed(at(what, now, 60.0, second))
        await drive.settle()
        (line,) = [text for text in drive.lines if "next run" in text]
        assert "next run GPU 0 " in line
        assert "busy 24% -> 60%" in line
        assert "gone: loader is CPU-bound" in line


async def test_the_time_between_two_runs_says_that_there_was_no_job() -> None:
    """In the chart of the only GPU, where what was measured leaves room for it."""
    what = dataclasses.replace(scene("starved", 1).now, taken_at_unix_seconds=FIRST[1])
    first, second = [job_of(what, key, "python train.py") for key in (FIRST, SECOND)]
    async with driven(at(what, 0, 24.0, first), (120, 40), engine=HandEngine()) as drive:
        await drive.feed(*[at(what, now, 24.0, first) for now in range(1, 40)])
        await drive.feed(*[at(what, now, 0.0) for now in range(40, 66)])
        assert "no job" not in drive.text
        await drive.feed(*[at(what, now, 60.0, second) for now in range(66, 90)])
        (line,) = [text for text in drive.lines if "no job" in text]
        sign = next(text for text in drive.lines[4:] if UNICODE.mark in text).index(UNICODE.mark)
        assert line.index("no job") < sign


@pytest.mark.parametrize("size", [(120, 40), (80, 24)], ids=str)
async def test_what_is_not_kept_of_the_run_before_is_said(size: tuple[int, int]) -> None:
    """Once in each chart of the new run; where there is no room for words in a line of the GPU's
    chart, they stand one below the other."""
    first, *rest = looks("rerun", 136)
    async with driven(first, size, engine=HandEngine()) as drive:
        await drive.feed(*rest)
        charts = re.findall(r"(?:main thread|6 workers) +\d+% +100", drive.text)
        assert drive.text.count("not kept") == len(charts) == (2 if size == (120, 40) else 1)
        places = [(one.find(" no "), two.find(" job ")) for one, two in pairwise(drive.lines)]
        is_stacked = any(one > 0 and two > 0 and abs(one - two) <= 1 for one, two in places)
        assert is_stacked is (size == (80, 24))
        assert ("no job" in drive.text) is not is_stacked


@pytest.mark.parametrize(("seconds", "is_ended_by_it"), [(30, True), (90, False)])
async def test_a_finding_ends_with_the_change_that_it_is_gone_after(
    what: Snapshot, seconds: int, is_ended_by_it: bool
) -> None:
    """It was about the last minute, and is withdrawn late; one that held on was not ended by it."""
    job = job_of(what, FIRST, "python train.py")
    engine = HandEngine(diagnosis(what, starved(what, job=job.key)))
    async with driven(at(what, 0, 24.0, job), engine=engine) as drive:
        await drive.feed(*[at(what, now, 24.0, job) for now in range(1, 20)])
        await drive.press("m")
        await drive.feed(*[at(what, now, 60.0, job) for now in range(20, 20 + seconds)])
        engine.diagnosis = nothing(what)
        await drive.feed(at(what, 20 + seconds, 60.0, job))
        (mark,) = drive.view.spans
        assert (mark.end_seconds == drive.view.mark.at) is is_ended_by_it


async def test_what_the_person_marked_stays_while_other_jobs_come_and_go(what: Snapshot) -> None:
    """The next run of a job on another GPU is not told in its place."""
    mine = job_of(what, FIRST, "python train.py")
    others = [
        job_of(what, key, "python other.py", gpu_uuids=(what.gpus[1].uuid,))
        for key in ((30, FIRST[1]), (31, FIRST[1] + 20))
    ]
    begin = at(what, 0, 41.0, mine, others[0])
    async with driven(begin, attached=mine.key, engine=HandEngine(nothing(what))) as drive:
        for now in range(1, 10):
            await drive.sampler.feed(at(what, now, 41.0, mine, others[0]))
        await drive.press("m")
        for now in range(10, 30):
            there = (mine,) if now < 21 else (mine, others[1])
            await drive.sampler.feed(at(what, now, 41.0, *there))
        await drive.settle()
        assert not drive.view.mark.next_run
        assert "changed GPU 0" in drive.text


async def test_a_change_of_a_job_on_the_cpu_is_about_that_job(what: Snapshot) -> None:
    """Neither what GPUs do beside it nor the runs of other such jobs are told in its place, and
    what is found in those is not new in this one."""
    loops = tuple(
        [TrainingLoop(pid=pid, samples_per_second=pace) for pid, pace in ((1, 10.0), (2, 99.0))]
    )
    mine = job_of(what, FIRST, "python train.py", gpu_uuids=(), loops=loops[:1])
    others = [
        job_of(what, (pid, FIRST[1] + pid), "python other.py", gpu_uuids=(), loops=loops[1:])
        for pid in (30, 40)
    ]
    (found,) = diagnosis(what, starved(what)).findings
    engine = HandEngine(nothing(what))
    begin = at(what, 0, 41.0, mine, others[0])
    async with driven(begin, (160, 40), attached=mine.key, engine=engine) as drive:
        for now in range(1, 30):
            there = (mine, *others[:1]) if now < 10 else (mine, *others[1:])[: 1 + (now > 20)]
            await drive.sampler.feed(at(what, now, 41.0, *there))
            if now == 8:
                await drive.press("m")
                theirs = dataclasses.replace(found, gpus=(), job=others[0].key)
                engine.diagnosis = diagnosis(what, theirs)
        await drive.settle()
        (line,) = [text for text in drive.lines if "changed" in text]
        assert "busy" not in line
        assert "10 -> 10 samples/s" in line
        assert "new" not in line


async def test_before_a_mark_is_the_run_that_was_changed(what: Snapshot) -> None:
    """Not the run before it on the same GPU."""
    first = job_of(what, FIRST, "python a.py")
    second = job_of(what, (20, FIRST[1] + 30), "python b.py")
    begin = at(what, 0, 90.0, first)
    async with driven(begin, engine=HandEngine(nothing(what))) as drive:
        for now in range(1, 30):
            await drive.sampler.feed(at(what, now, 90.0, first))
        for now in range(30, 50):
            await drive.sampler.feed(at(what, now, 24.0, second))
        await drive.press("m")
        assert drive.view.mark is not None
        assert drive.view.mark.before.busy_percent == pytest.approx(24.0, abs=2.0)


# -- one that has ended -----------------------------------------------------------------------


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
async def test_charts_show_before_and_after_a_change(what: Snapshot, size: tuple[int, int]) -> None:
    """For some minutes the shortest range in which both are seen, with a line where the change was;
    numbers beside the charts are of the time since. Then the person's range again."""
    async with driven(at(what, 0, 30.0), size, engine=HandEngine()) as drive:
        view, sign = drive.view, UNICODE.mark
        await drive.feed(*[at(what, second, 30.0) for second in range(1, 60)])
        await drive.press("m")
        await drive.feed(*[at(what, second, 90.0) for second in range(60, 80)])
        assert view.timeline.span_seconds == 30.0
        await drive.feed(*[at(what, second, 90.0) for second in range(80, 130)])
        assert view.timeline.span_seconds == 120.0
        axis = next(line for line in drive.lines[3:] if sign in line)
        line = axis.index(sign)
        chart = [text[line] for text in drive.lines if "│" in text[line : line + 1]]
        assert len(chart) >= 3
        assert any(re.search(r"busy +90%|0 H200 +90%", text) for text in drive.lines)
        await drive.feed(*[at(what, second, 90.0) for second in range(130, 310, 20)])
        assert view.timeline.span_seconds == 30.0


async def test_a_range_chosen_after_a_change_stays(what: Snapshot) -> None:
    """Also the person's own is back when the comparison ends."""
    async with driven(at(what, 0, 30.0), (80, 24), engine=HandEngine()) as drive:
        await drive.feed(*[at(what, second, 30.0) for second in range(1, 60)])
        await drive.press("m")
        await drive.feed(*[at(what, second, 90.0) for second in range(60, 130)])
        assert drive.view.timeline.span_seconds == 120.0
        await drive.press("M")
        assert drive.view.timeline.span_seconds == 30.0
        await drive.press("m", "left_square_bracket")
        await drive.feed(*[at(what, second, 90.0) for second in range(130, 200)])
        assert drive.view.timeline.span_seconds == 15.0


async def test_charts_show_several_of_the_pauses_that_a_verdict_is_about(what: Snapshot) -> None:
    """While the finding holds that leads, charts have a range in which its pauses recur, unless the
    person chose another since; then the person's own again."""
    engine = HandEngine(diagnosis(what, starved(what, lost_of_seconds=150.0)))
    async with driven(at(what, 0, 30.0), (80, 24), engine=engine) as drive:
        view = drive.view
        await drive.feed(*[at(what, second, 30.0) for second in range(1, 5)])
        assert (view.timeline.span_seconds, view.chosen_span_seconds) == (120.0, 30.0)
        engine.diagnosis = diagnosis(what)
        await drive.feed(at(what, 5, 30.0))
        assert view.timeline.span_seconds == 30.0
        engine.diagnosis = diagnosis(what, starved(what, lost_of_seconds=150.0))
        await drive.feed(at(what, 6, 30.0))
        await drive.press("left_square_bracket")
        await drive.feed(at(what, 7, 30.0))
        assert (view.timeline.span_seconds, view.chosen_span_seconds) == (60.0, 60.0)


@pytest.mark.parametrize(("width", "seconds"), [(159, 30.0), (160, 60.0)])
async def test_wide_terminals_show_the_minute_that_the_verdict_is_about(
    what: Snapshot, width: int, seconds: float
) -> None:
    """Until the person chooses another range."""
    async with driven(at(what, 0, 30.0), (width, 50), engine=HandEngine()) as drive:
        await drive.feed(at(what, 1, 30.0))
        assert drive.view.timeline.span_seconds == seconds
        await drive.press("left_square_bracket")
        await drive.feed(at(what, 2, 30.0))
        assert drive.view.timeline.span_seconds == seconds / 2


async def test_a_job_that_ended_keeps_what_was_found(what: Snapshot) -> None:
    """Its own line, not the machine's; in the list and in full, with how it was at its end."""
    job = job_of(what, FIRST, "python train.py", attached=True)
    found = starved(what, job=job.key, since_unix_seconds=FIRST[1] + 2)
    engine = HandEngine(diagnosis(what, found))
    begin = at(what, 0, 41.0, job)
    async with driven(begin, (120, 40), attached=job.key, engine=engine) as drive:
        for now in range(1, 30):
            await drive.sampler.feed(at(what, now, 41.0, job))
        engine.diagnosis = nothing(what, "GPU 1 is 93% busy: nothing holds it up.")
        ended = dataclasses.replace(job, ended_at_unix_seconds=FIRST[1] + 30, members=())
        for now in range(31, 60):
            await drive.sampler.feed(at(what, now, 0.0, ended))
        await drive.settle()
        assert "waits for data 38%" in drive.text
        await drive.press("d")
        assert isinstance(drive.app.screen, EvidenceScreen)
        assert "The job has ended" in drive.text
        (busy,) = [place for place, line in enumerate(drive.lines) if "GPU 0 busy" in line]
        assert "(27s)" in drive.text
        # The chart, of three rows, ends when the job did, and says nothing of now.
        assert drive.lines[busy + 2].rstrip("\u2502 ")[-1] == "\u2588"
        assert "%" not in drive.lines[busy]


async def test_a_job_that_ends_as_it_is_opened_keeps_what_was_found(what: Snapshot) -> None:
    """Also where no look lies between."""
    job = job_of(what, FIRST, "python train.py")
    engine = HandEngine(diagnosis(what, starved(what, job=job.key)))
    async with driven(at(what, 0, 41.0, job), (120, 40), engine=engine) as drive:
        await drive.feed(at(what, 1, 41.0, job))
        await drive.press("j")
        engine.diagnosis = nothing(what, "GPU 1 is 93% busy: nothing holds it up.")
        ended = dataclasses.replace(job, ended_at_unix_seconds=FIRST[1] + 2, members=())
        await drive.feed(at(what, 2, 0.0, ended))
        assert " ended " in drive.lines[1]
        await drive.press("d")
        assert isinstance(drive.app.screen, EvidenceScreen)
        assert "The job has ended" in drive.text


async def test_a_job_that_ended_without_findings_says_so(what: Snapshot) -> None:
    """And not what the machine does now."""
    job = job_of(what, FIRST, "python train.py", attached=True)
    told = nothing(what, "GPU 0 is 12% busy.")
    begin = at(what, 0, 41.0, job)
    async with driven(begin, attached=job.key, engine=HandEngine(told)) as drive:
        await drive.feed(at(what, 1, 41.0, job))
        ended = dataclasses.replace(job, ended_at_unix_seconds=FIRST[1] + 1, members=())
        await drive.feed(at(what, 2, 0.0, ended))
        assert "Nothing wrong was found." in drive.text
        assert "12% busy" not in drive.text
