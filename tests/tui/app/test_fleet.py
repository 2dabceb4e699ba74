"""Many machines on one screen: what a row says, keys, jobs on several hosts, opening one."""

import re
import time
from collections.abc import AsyncIterator, Callable, Sequence
from contextlib import asynccontextmanager
from dataclasses import replace
from types import SimpleNamespace
from typing import Any, cast

import pytest

from gpuwatch import __version__
from gpuwatch.core.model import BusySample, Host, JobRank, Problem, Snapshot
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.recording.hosts.brief import brief_of
from gpuwatch.recording.hosts.remote import NEITHER, RemoteHost
from gpuwatch.recording.hosts.together import SharedJob, shared_jobs
from gpuwatch.tui.app import TapeSource
from gpuwatch.tui.pages.fleet import Fleet, FleetApp, FleetRow, draw
from gpuwatch.tui.view import View
from tests.support.snapshots import gpu, snapshot
from tests.tui.diagnoses import diagnosis, nothing, starved
from tests.tui.driving import TRUECOLOR, Driven, HandSampler, HandSource, surroundings
from tests.tui.scenes import GLYPHS, fresh, one_job, texts, widths


def machine(name: str, *busy: float | None, **fields: Any) -> Snapshot:
    gpus = [
        gpu(
            f"GPU-{name}-{n}",
            n,
            busy_percent=percent,
            memory_used_bytes=75_377_410_048,
            power_watts=350.0,
            temperature_celsius=60.0 + n,
        )
        for n, percent in enumerate(busy)
    ]
    return snapshot(host=Host(name="node"), gpus=tuple(gpus), **fields)


def host(name: str, what: Snapshot | None = None, found: Diagnosis | None = None) -> FleetRow:
    """As it is when ``what`` has just come in and was diagnosed."""
    one = RemoteHost(name, ("false",), 1.0)
    if what is not None:
        one.latest, one._arrived_at = what, time.monotonic()
        one.tape = cast("Any", SimpleNamespace(diagnosis=found, error=None))
    member = FleetRow(one)
    member.note_readings()
    return member


def lines(fleet: Fleet, width: int = 120, height: int = 20, **fields: Any) -> list[str]:
    frame = draw(fresh(View(), **fields) if fields else View(), fleet, width, height)
    assert len(frame.lines) == height
    assert widths(frame.lines) == {width}
    return texts(frame.lines)


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + 30.0
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def late(member: FleetRow, seconds: float) -> FleetRow:
    member.host._arrived_at = time.monotonic() - seconds
    return member


@pytest.fixture
def fleet() -> Fleet:
    fed, hungry = machine("a", 98.0, 96.0), machine("b", 30.0, 50.0)
    problem = Problem(source="nvml", message="The driver is not loaded.", severity="error")
    finding = replace(starved(hungry), cost_share=0.6, gpus=("GPU-b-0",))
    return Fleet(
        [
            host("alpha", fed, nothing(fed, "Both GPUs are kept busy: 97%.")),
            host("beta", hungry, replace(diagnosis(hungry, finding), watched_seconds=60.0)),
            host("gamma", machine("c", problems=(problem,))),
            late(host("delta", machine("d", None)), 75.0),
            host("epsilon"),
        ]
    )


def test_a_row_says_what_a_host_does_and_what_is_wrong(fleet: Fleet) -> None:
    """Busy, memory, power and heat of its GPUs, GPUs lost, and the worst finding; the first line
    adds them up."""
    fleet.members[3].host.trouble = "Connection refused"
    text = lines(fleet, 200)
    top = " ".join(text[0].split())
    assert top == "gpuwatch 5 hosts 2 not connected 4 GPUs 68% busy 0.6 of 4 GPUs' time lost"
    rows = {line[1:].split()[0]: " ".join(line.split()) for line in text[2:] if line[1:].strip()}
    assert "2 ▇ ▇ 97%" in rows["alpha"]
    assert "50% 700W 61C Both GPUs are kept busy: 97%." in rows["alpha"]
    assert "0.6 50% 700W" in rows["beta"]
    assert starved(machine("b", 30.0)).summary[:30] in rows["beta"]
    assert any("GPU 0 starved: workers maxed out" in line for line in lines(fleet, 80))
    assert "The driver is not loaded." in rows["gamma"]
    assert "nothing for 1m15: Connection refused" in rows["delta"]
    assert rows["epsilon"].endswith("connecting")


def test_the_selected_host_says_what_to_do_and_has_each_of_its_gpus(fleet: Fleet) -> None:
    """Below the list: every finding, its cure, what is lost, and the means of GPUs."""
    fleet.selected = "beta"
    text = lines(fleet, 120, 40)
    at = next(at for at, line in enumerate(text) if "─ beta ─ enter open ─" in line)
    below = [" ".join(line.strip("│").split()) for line in text[at + 1 :]]
    assert below[0] == f"▲ {starved(machine('b', 30.0)).summary}"
    assert below[1] == "num_workers 2 -> 8 60% lost"
    assert below[2] == ""
    busy = re.findall(r"(\d) (\d+)% ━", below[3])
    assert busy == [("0", "30"), ("1", "50")]


def test_gpus_that_came_since_the_last_interval_have_no_means_yet(fleet: Fleet) -> None:
    """A key may have the list drawn before: what they read is shown, and no busy share or gauge."""
    fleet.selected = "beta"
    fleet.members[1].host.latest = machine("b", 30.0, 50.0, 70.0)
    text = lines(fleet, 120, 40)
    (row,) = [line for line in text if re.search(r"\b2 +- +50% mem", line)]
    assert "╌" not in row.partition(" 2 ")[2].partition(" mem")[0]


def test_findings_without_room_are_counted() -> None:
    """With the GPUs that have none, either."""
    what = machine("a", 30.0, 40.0)
    rules = ("loader_cpu_bound", "thermal_throttle", "memory_not_pinned", "straggler", "gpu_lost")
    found = [starved(what, rule=rule, summary=f"Because of {rule}.", short=()) for rule in rules]
    rows = [host("alpha", what, diagnosis(what, *found)), *[host(f"node{n}") for n in range(20)]]
    text = lines(Fleet(rows), 120, 24)
    assert any(re.search(r"\d+ more lines, and 2 GPUs \(enter\)", line) for line in text), text


def test_hosts_have_two_lines_where_all_of_them_have_room(fleet: Fleet) -> None:
    """The second has what to do; as many while a filter leaves few of many."""
    text = lines(fleet, 120, 40)
    at = next(at for at, line in enumerate(text) if " beta " in line)
    assert " num_workers 2 -> 8" in text[at + 1]
    assert " gamma " in text[at + 2]
    many = Fleet([host(f"node{n}", machine("a", 50.0)) for n in range(30)])
    for filter_text, count in (("", 24), ("node1", 11)):
        text = lines(many, 120, 40, filter_text=filter_text)
        assert len([line for line in text if re.match("│.node", line)]) == count


@pytest.mark.parametrize("glyphs", GLYPHS, ids=lambda one: one.name)
@pytest.mark.parametrize("size", [(200, 50), (120, 30), (80, 24), (40, 12), (20, 5), (1, 1)])
def test_every_size_is_filled(fleet: Fleet, size: tuple[int, int], glyphs: Any) -> None:
    """As many lines as there are rows, each as wide as the screen."""
    frame = draw(View(glyphs=glyphs), fleet, *size)
    assert len(frame.lines) == size[1]
    assert widths(frame.lines) == {size[0]}


def test_what_is_lost_is_unknown_at_first() -> None:
    """Half a minute must have been watched; a host without GPUs wastes none."""
    what = machine("a", 10.0)
    young = host("a", what, replace(diagnosis(what, starved(what)), watched_seconds=20.0))
    assert young.lost is None
    assert host("b", machine("b"), nothing(what)).lost is None


def test_what_is_old_counts_no_longer() -> None:
    """A host that has not answered for a while has no busy share now: its chart has a gap."""
    member = host("a", machine("a", 50.0))
    late(member, 60.0).note_readings()
    assert [one is None for one in member.busy] == [False, True]
    assert member.says()[2] == "nothing for 1m00: it does not answer"


def test_busy_is_what_the_fine_samples_say_and_unknown_once_a_gpu_is_lost() -> None:
    """A poll that beats with the steps of a job would say anything; what was is not now."""
    what = machine("a", 90.0)
    fine = (BusySample(1.0, 10.0), BusySample(1.2, 30.0))
    sampled = replace(what.gpus[0], reading=replace(what.gpus[0].reading, busy_samples=fine))
    member = host("a", replace(what, gpus=(sampled,)))
    assert member.busy_percent == 20.0
    member.host.latest = machine("a", None)
    member.note_readings()
    assert member.busy_percent is None


def test_where_gpuwatch_is_missing_the_command_that_installs_it_is_offered() -> None:
    """Below the list, beside the whole sentence, for the host that is selected."""
    alone = host("box1")
    alone.host.trouble = NEITHER
    text = " ".join(" ".join(lines(Fleet([alone]), 80, 24)).split())
    assert f"box1: {NEITHER}. To install gpuwatch there (y copies the command): tar -C " in text
    assert alone.said()[1].endswith("&& ~/.gpuwatch/bin/pip install ~/.gpuwatch/source'")
    assert len(host("box1", machine("a", 50.0)).said()) == 1
    alone.host.trouble = "gpuwatch does not start there: No module named 'x'"
    assert len(alone.said()) == 2


def test_clocks_and_hosts_without_gpuwatch_are_told() -> None:
    """A clock that is ahead, or further behind than a slow link could make it look, and what cannot
    be known."""
    what = machine("a", 50.0)
    member = host("a", what, nothing(what))
    member.host.clock_ahead_seconds = -9.0
    assert member.says()[2] == "GPU 0 is kept busy: 97%."
    member.host.clock_ahead_seconds = 3.0
    assert member.says()[2].startswith("Its clock is 3s ahead. ")
    member.host.clock_ahead_seconds = -90.0
    assert member.says()[2].startswith("Its clock is 1m30 behind. ")
    member.host.gpu_only = True
    assert member.says()[2].startswith("GPU only (no gpuwatch there). ")
    member.host._said = b"gpuwatch-begins\nTraceback\nNo module named 'x'\ngpuwatch-broken\n"
    said = "GPU only (gpuwatch does not start there: No module named 'x'). "
    assert member.says()[2].startswith(said)


def test_text_of_a_host_is_shown_as_text() -> None:
    """Escape codes and markup of a machine that is not to be trusted are neither."""
    what = machine("a", 50.0)
    member = host("a", what, nothing(what, "\x1b[31m[bold]red[/]\x07"))
    line = lines(Fleet([member]))[2]
    assert "\x1b" not in line
    assert "[bold]red[/]" in line


@pytest.mark.parametrize(
    ("sort", "order"),
    [
        ("name", ["alpha", "beta", "gamma", "delta", "epsilon"]),
        ("busy", ["beta", "alpha", "gamma", "delta", "epsilon"]),
        ("lost", ["beta", "alpha", "gamma", "delta", "epsilon"]),
        ("finding", ["gamma", "delta", "beta", "alpha", "epsilon"]),
    ],
)
def test_the_worst_comes_first(fleet: Fleet, sort: str, order: list[str]) -> None:
    """Unknown last, all else as given; reversed the other way about."""
    fleet.sort = sort
    assert [one.host.name for one in fleet.rows("")] == order
    fleet.reverse = True
    assert [one.host.name for one in fleet.rows("")] == order[::-1]


def part(ranks: Sequence[int], **fields: Any) -> Any:
    given = [JobRank(pid=100 + rank, rank=rank, started_at_unix_seconds=1.0) for rank in ranks]
    behind = fields.pop("behind", None)
    if behind is not None:
        given[behind] = replace(given[behind], collectives_behind=3)
    return one_job(ranks=tuple(given), **({"world_size": 4} | fields))


def test_a_job_on_several_hosts_is_a_row_of_its_own() -> None:
    """Below the hosts, as soon as it is seen: by its Slurm job, else by its script. What it is now
    is put together from what comes in."""
    one = part([0, 1], slurm_job="4711", gpu_uuids=("GPU-a-0", "GPU-a-1"))
    other = part([2, 3], slurm_job="4711", gpu_uuids=("GPU-b-0",))
    named = [part([n], command=f"torchrun {n}/train.py", user="ada", world_size=2) for n in (0, 1)]
    named = [replace(job, command="torchrun a/train.py") for job in named]
    alone = part([0, 1], slurm_job="99", world_size=2)
    hosts = [
        host("alpha", machine("a", 98.0, 96.0, jobs=(one, alone, named[0]))),
        host("beta", machine("b", 30.0, jobs=(other, named[1]))),
    ]
    for member in hosts:
        member.host.interval_seconds = 0.05
    fleet = Fleet(hosts)
    try:
        fleet.note_readings()
        assert [each.host.name for each in fleet.jobs] == ["job 4711", "train.py"]
        whole = fleet.jobs[0].host
        until(lambda: whole.tape is not None)
        fleet.note_readings()
        text = lines(fleet)
        assert [line.split()[:2] for line in text[2:8]] == [
            *(["▌alpha", "2"], ["beta", "1"], [], ["JOBS", "ON"], ["job", "4711"]),
            ["train.py", "-"],
        ]
        assert " ".join(text[6].split()).startswith("job 4711 3 ▇ ▇ ▃ 75%")
        assert [gpu.identity.machine for gpu in whole.latest.gpus] == ["alpha", "alpha", "beta"]
        assert [gpu.reading.busy_percent for gpu in whole.latest.gpus] == [98.0, 96.0, 30.0]
        for place, busy in enumerate((10.0, 20.0)):
            hosts[place].host.latest = machine("ab"[place], busy)
        until(lambda: whole.ended_seconds is not None)
        assert "ended " in lines(fleet)[6]
    finally:
        for each in fleet.jobs:
            each.host.close()


def test_a_job_whose_host_is_silent_goes_on_without_its_readings() -> None:
    """The others are still shown; after two intervals nobody waits."""
    parts = [part([n], slurm_job="1", gpu_uuids=(f"GPU-{'ab'[n]}-0",)) for n in (0, 1)]
    hosts = [host("ab"[n], machine("ab"[n], 50.0, jobs=(parts[n],))).host for n in (0, 1)]
    (key,) = shared_jobs(hosts)
    hosts[0].interval_seconds = hosts[1].interval_seconds = 0.05
    job = SharedJob("job 1", key, hosts)
    job.start()
    try:
        until(lambda: job.latest is not None)
        hosts[0].latest = machine("a", 60.0, jobs=(parts[0],))
        until(lambda: job.latest.gpus[0].reading.busy_percent == 60.0)
        assert job.latest.gpus[1].reading.busy_percent is None
        hosts[0].clock_ahead_seconds, hosts[1].clock_ahead_seconds = -0.5, 1.0
        assert job.clocks_apart_seconds == 1.5
    finally:
        job.close()


@asynccontextmanager
async def driven(fleet: Fleet, opens: bool = False) -> AsyncIterator[Driven]:
    source = HandSource(False)
    with surroundings(TRUECOLOR):
        app = FleetApp(
            TapeSource(False),
            fleet,
            opens,
            environment=TRUECOLOR,
            ascii_mode=False,
            theme="dark",
            slow_link=False,
        )
    async with app.run_test(size=(120, 12)) as pilot:
        drive = Driven(app, pilot, source, HandSampler(source))
        await drive.settle()
        yield drive


async def test_keys_move_sort_filter_and_open(fleet: Fleet) -> None:
    """The selection stays in sight, keys of one machine do nothing, enter ends with the host."""
    async with driven(fleet) as drive:
        assert drive.lines[2].startswith("▌alpha")
        await drive.press("end", "up", "p", "W", "plus")
        assert fleet.selected == "delta"
        await drive.press("s", "s", "s")
        assert drive.lines[2].startswith(" gamma")
        await drive.press("slash", "b", "e", "t", "a", "enter")
        assert [line[1:5] for line in drive.lines[2:4]] == ["beta", "    "]
        await drive.press("escape", "question_mark")
        assert drive.dialog is not None
        await drive.press("escape", "home", "enter")
        assert drive.app.is_running is False
        assert drive.app.opened is fleet.members[2].host


async def test_a_host_of_which_nothing_has_come_is_not_opened(fleet: Fleet) -> None:
    """It says so, and the screen stays."""
    async with driven(fleet) as drive:
        await drive.press("end", "enter")
        assert drive.text.count("epsilon: connecting") == 1
        assert drive.app.is_running


async def test_a_host_that_sends_brief_lines_is_opened_once_its_snapshots_come(
    fleet: Fleet,
) -> None:
    """It is asked for them, the screen says so, and it opens with the first that is new enough."""
    what = machine("a", 98.0)
    one = fleet.members[0].host
    one.latest, one.tape, one._received = None, None, brief_of(what, nothing(what))
    async with driven(fleet) as drive:
        await drive.press("home", "enter")
        assert "alpha: reading its last ten minutes" in drive.text
        assert one._readers == {"opened": True}
        one.latest, one.tape = what, cast("Any", SimpleNamespace(diagnosis=None, error=None))
        await drive.settle()
        drive.app._open_what_has_come()
        assert drive.app.opened is one


def test_another_version_says_which_side_to_upgrade() -> None:
    """After what is found there, which is not pushed out of the row; where nothing is, before."""
    what = machine("a", 50.0)
    note = f"gpuwatch is 99.0 there and {__version__} here: upgrade it here."
    member = host("a", what, nothing(what))
    member.host.version = "99.0"
    assert member.says()[2] == f"{note} GPU 0 is kept busy: 97%."
    member = host("a", what, diagnosis(what, starved(what)))
    member.host.version = "99.0"
    assert member.says()[2].startswith(starved(what).summary.rstrip("."))
    assert member.says()[2].endswith(note)


async def test_the_only_host_opens_by_itself() -> None:
    """As soon as there is something to be shown of it."""
    fleet = Fleet([host("alpha", machine("a", 98.0))])
    async with driven(fleet, True) as drive:
        assert drive.app.opened is fleet.members[0].host


async def test_clicks_choose_and_open(fleet: Fleet) -> None:
    """One chooses, another on the same row opens."""
    async with driven(fleet) as drive:
        zone = drive.zones("host")[1]
        await drive.click(zone)
        assert fleet.selected == "beta"
        await drive.click(zone, times=2)
        assert drive.app.opened is fleet.members[1].host
