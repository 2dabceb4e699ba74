"""Machines that load a large model before they work: what is loaded is no leak, and what leaks
afterwards is one."""

from collections.abc import Callable, Iterator
from dataclasses import replace
from typing import Any

import pytest

from gpuwatch.core.model import Host, Job, JobMember, JobRank, Process, Snapshot
from gpuwatch.outputs.report.accumulator import Accumulator
from gpuwatch.outputs.report.document import outcome, verdict
from gpuwatch.outputs.report.model import Report, Source
from tests.diagnosis.engines import rules_of, told
from tests.support.snapshots import gpu, snapshot

GIB = 1024**3
SERVES = "it listens on TCP port 30000"
GRAVE = {"error", "warning"}


def loads(
    seconds: int,
    *,
    load_seconds: float = 100.0,
    size: float = 70.0,
    kind: str = "server",
    leak: float = 0.0,
    host_load: float = 0.0,
    host_leak: float = 0.0,
    flickers: float = 0.0,
    works: Callable[[int], float] = lambda _: 97.0,
) -> Iterator[Snapshot]:
    """``size`` GiB, after ten seconds of imports; ten seconds after it is done, it works. ``leak``
    is GiB in each second of work, ``host_load`` what the host gains meanwhile, ``host_leak`` what
    it gains a second afterwards; it flickers every seventh second while it loads."""
    began, leaked = snapshot(at=100.0).taken_at_unix_seconds, 0.0
    for second in range(seconds):
        loading, worked = second - 10.0, second - 20.0 - load_seconds
        done = min(1.0, max(0.0, loading / load_seconds))
        host = 40.0 + host_load * done + host_leak * max(0.0, worked)
        busy = works(second) if worked >= 0.0 else flickers * (second % 7 == 0)
        leaked += leak if worked >= 0.0 and busy else 0.0
        used = (1.0 + size * done + leaked) * GIB
        card = gpu(busy_percent=busy, memory_used_bytes=int(used), power_watts=300.0)
        job = _job(began, kind, main=90.0 if busy else 10.0)
        process = Process(
            pid=7, started_at_unix_seconds=began, gpu_uuid=card.uuid, gpu_memory_bytes=int(used),
            gpu_busy_percent=busy, gpu_kind="compute"
        )  # fmt: skip
        machine = Host(
            name="box", core_count=16, memory_total_bytes=256 * GIB,
            memory_used_bytes=int(host * GIB), swap_used_bytes=0
        )  # fmt: skip
        yield snapshot(
            at=100.0 + second,
            sequence=second,
            host=machine,
            gpus=(card,),
            jobs=() if kind == "log" else (job,),
            processes=() if kind == "log" else (process,),
        )


def _job(began: float, kind: str, main: float) -> Job:
    rank = JobRank(pid=7, started_at_unix_seconds=began, gpu_uuids=("GPU-a",))
    member = JobMember(
        pid=7, started_at_unix_seconds=began, role="rank", state="S", cpu_percent=main,
        main_thread_cpu_percent=main
    )  # fmt: skip
    return Job(
        pid=7, started_at_unix_seconds=began, command="python serve.py", framework="torch",
        serves=SERVES if kind == "server" else None, ranks=(rank,), members=(member,),
        gpu_uuids=("GPU-a",), usable_cores=16.0
    )  # fmt: skip


def grave(made: Iterator[Snapshot]) -> set[str]:
    """The rules of all errors and warnings that were ever said."""
    findings = [one for said in told(made) for one in said.findings]
    return {one.rule for one in findings if one.severity in GRAVE}


def whole(made: Iterator[Snapshot]) -> Report:
    report = Accumulator()
    for one in made:
        report.push(one)
    return report.report(Source(kind="recording", name="a", interval_seconds=1.0))


def requests(second: int) -> float:
    """A server that is asked for eight seconds and waits for seven."""
    return 95.0 if second % 15 < 8 else 0.0


@pytest.mark.parametrize("load_seconds", [30.0, 90.0, 140.0, 400.0])
@pytest.mark.parametrize("kind", ["server", "training", "log"])
def test_a_model_that_is_loaded_is_no_leak(kind: str, load_seconds: float) -> None:
    """Nothing is said of it while it is loaded, nor when the work goes on with flat memory; the
    host's memory may grow by as much meanwhile."""
    made = loads(int(load_seconds) + 160, load_seconds=load_seconds, kind=kind, host_load=100.0)
    assert grave(made) == set()


def test_a_server_that_is_asked_now_and_then_has_no_leak_of_its_model() -> None:
    """Its GPU rests between the requests."""
    assert grave(loads(260, works=requests)) == set()


def test_kernels_that_run_while_a_model_is_loaded_make_it_no_leak() -> None:
    """Weights are converted on the GPU, some percent of the time."""
    assert grave(loads(260, flickers=30.0)) == set()


def test_a_model_that_a_working_server_loads_later_is_no_leak() -> None:
    """It has worked before, with another model that it has given back."""
    first = list(loads(200, load_seconds=30.0, size=10.0))
    then = [
        replace(one, taken_at_unix_seconds=one.taken_at_unix_seconds + 200.0,
                monotonic_seconds=one.monotonic_seconds + 200.0, sequence=200 + number,
                jobs=first[-1].jobs)
        for number, one in enumerate(loads(460, load_seconds=300.0))
    ]  # fmt: skip
    assert grave(iter([*first, *then])) == set()


@pytest.mark.parametrize(
    ("kind", "works"), [("server", 97.0), ("server", requests), ("training", 97.0), ("log", 97.0)]
)
def test_a_leak_after_the_load_is_found(kind: str, works: Any) -> None:
    """50 MiB a second, over steps or requests; of a server a warning, since a cache may have a
    limit."""
    level = works if callable(works) else lambda _: works
    made = told(loads(260, load_seconds=60.0, kind=kind, leak=0.05, works=level))
    assert "memory_growing" in rules_of(made[-1])
    assert {one.severity for one in made[-1].findings if one.rule == "memory_growing"} == {
        "warning"
    }
    before = [rules_of(one) for one in made[: 60 + 20 + 40]]
    assert "memory_growing" not in {rule for rules in before for rule in rules}


def test_the_last_minutes_of_a_training_job_are_an_error_and_of_a_server_a_warning() -> None:
    """0.5 GiB a second fill what is left of the card."""
    for kind, severity in (("training", "error"), ("server", "warning")):
        (found,) = [
            one
            for one in told(loads(190, load_seconds=60.0, kind=kind, leak=0.5))[-1].findings
            if one.rule == "memory_growing"
        ]
        assert found.severity == severity


def test_a_leak_that_stops_is_withdrawn() -> None:
    """Within 45 s after the memory has become flat."""
    made = list(loads(200, load_seconds=60.0, kind="training", leak=0.1))
    last = made[-1]
    flat = [
        replace(last, taken_at_unix_seconds=last.taken_at_unix_seconds + second,
                monotonic_seconds=last.monotonic_seconds + second,
                sequence=last.sequence + second)
        for second in range(1, 91)
    ]  # fmt: skip
    said = told(iter([*made, *flat]))
    assert "memory_growing" in rules_of(said[len(made) - 1])
    assert "memory_growing" not in rules_of(said[len(made) + 45])


def test_a_leak_of_the_host_after_the_load_is_found() -> None:
    """100 MiB a second, from the first step on."""
    made = told(loads(240, load_seconds=60.0, kind="training", host_load=100.0, host_leak=0.1))
    assert "host_memory_growing" in rules_of(made[-1])


def test_work_that_follows_a_long_start_up_answers_what_was_asked_in_it() -> None:
    """The whole of a file is not called a start-up of which nothing is known."""
    made = whole(loads(230, load_seconds=100.0, kind="training"))
    assert outcome(made) == "nothing"
    assert "Nothing wrong was found." in verdict(made)
    assert "starting" not in verdict(made)


def test_the_idle_time_of_a_server_that_waits_is_explained() -> None:
    """By its requests, so that nothing is left to ask."""
    made = whole(loads(260, load_seconds=60.0, works=requests))
    (steady,) = [phase for phase in made.phases if phase.kind == "steady"]
    assert [loss.to for loss in steady.lost] == ["waiting_for_requests"]
    assert outcome(made) == "nothing"
    assert "PID 7 is a server" in verdict(made).partition("Nothing wrong was found.")[0]


@pytest.mark.parametrize("asked_from", [430, 10_000])
def test_a_server_that_is_not_asked_waits_for_requests_and_nothing_else(asked_from: int) -> None:
    """From half a minute after its model is loaded on; while it is, nothing is said of it."""
    made = told(loads(500, load_seconds=60.0, works=lambda second: requests(second)
                      if second >= asked_from else 0.0))  # fmt: skip
    assert {rule for one in made for rule in rules_of(one)} == {"waiting_for_requests"}
    assert all("for want of requests" in one.verdict for one in made[130:])
