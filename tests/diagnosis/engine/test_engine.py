"""The engine: several subjects, its sentence, what it does not know."""

import json
from dataclasses import asdict, replace
from typing import Any

import pytest

from gpuwatch.core.model import JobMember, JobRank, Process
from gpuwatch.diagnosis.catalogue import find
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from tests.diagnosis import engines as e
from tests.diagnosis import windows as w


def _job_on(index: int, pid: int, **facts: Any) -> Window:
    owner = replace(w.job(), job=w.model_job(pid=pid, gpu_uuids=(f"GPU-{index}",)))
    return w.window(gpus=(w.gpu(index, **facts),), job=owner)


def test_jobs_are_diagnosed_apart() -> None:
    """The starved one is named with its GPU and its job; the fed one is not."""

    def starved(one: Window) -> Verdict:
        busy = one.gpus[0].busy
        return e.firing(lost_share=0.6) if busy and busy.mean_percent < 50.0 else Clear("fed")

    engine = Engine(
        [e.rule_of("starved", starved)],
        observer=e.Script(_job_on(0, 100), _job_on(1, 200, busy=w.swinging(0.4))),
    )
    said = e.play(engine, range(30))[-1]
    assert [(one.gpus, one.job and one.job[0]) for one in said.findings] == [(("GPU-1",), 200)]


@pytest.mark.parametrize(
    ("rule", "workers", "guessed", "less_sure"),
    [
        ("loader_cpu_bound", 2, True, True),
        ("loader_cpu_bound", 2, False, False),
        ("thermal_throttle", 2, True, False),
    ],
)
def test_guessed_workers_make_what_rests_on_them_less_sure(
    rule: str, workers: int, guessed: bool, less_sure: bool
) -> None:
    """What is missing says why, and the confidence drops well below that of named ones."""
    made = JobRank(pid=1, loader_workers=workers, loader_workers_guessed=guessed)
    one = w.window(job=w.job(model={"ranks": (made,)}))
    (found,) = e.after(20, {rule: e.firing()}, one).findings
    assert (found.confidence < 0.9 * find(rule).trust) is less_sure
    assert any("guessed" in evidence.name for evidence in found.evidence) is less_sure


def test_a_fault_of_a_card_that_two_jobs_share_is_shown_once() -> None:
    """Heat is no matter of the job."""
    hot = {"thermal_throttle": e.firing(gpus=("GPU-0",))}
    said = e.after(20, hot, _job_on(0, 100), _job_on(0, 200))
    assert [one.rule for one in said.causes] == ["thermal_throttle"]


def test_a_job_that_is_gone_takes_its_findings_along() -> None:
    """What it suffered from is over."""
    script = e.Script(_job_on(0, 100))
    engine = Engine([e.rule_of("fault", lambda _: e.firing())], observer=script)
    assert e.play(engine, range(20))[-1].findings
    script._windows = ()
    assert e.play(engine, range(20, 32))[-1].findings == ()


def test_an_ended_job_is_not_judged() -> None:
    """It stays in the list while somebody is attached, and idles by right."""
    ended = replace(w.job(), job=w.model_job(ended_at_unix_seconds=1.0))
    said = e.after(20, {"fault": e.firing()}, w.window(job=ended))
    assert said.findings == ()


def test_of_an_ended_job_its_orphans_are_shown() -> None:
    """And nothing else; that its GPU holds memory is shown with them."""
    left = JobMember(pid=7, role="loader_worker", orphaned=True)
    ended = replace(w.job(), job=w.model_job(ended_at_unix_seconds=1.0, members=(left,)))
    says = {
        "orphaned_workers": lambda _: e.firing(gpus=("GPU-0",)),
        "idle_holding_memory": lambda _: e.firing(severity="info", gpus=("GPU-0",)),
    }
    said = e.after(20, says, w.window(job=ended), w.window(job=None))
    assert e.rules_of(said).count("idle_holding_memory") == 0
    assert "orphaned_workers" in e.rules_of(said)


FINE = {"quiet": Clear("fine")}
HALF = w.gpu(busy=w.swinging(0.45))
UNREAD = Unknown(("a reading",))
SENTENCES: dict[str, tuple[tuple[Window, ...], dict[str, e.Say], str, bool]] = {
    "the leading finding": (
        (w.window(),), {"fault": e.firing("GPU 0 is slow")}, "GPU 0 is slow", True,
    ),
    "all fed GPUs of all jobs in one": (
        (_job_on(0, 100), _job_on(1, 200)), FINE,
        "GPUs 0 and 1 are kept busy: 97% (last minute).", True,
    ),
    "an unused GPU is not under-used": (
        (_job_on(0, 100), w.gpu_only(w.gpu(1, busy=w.steady(0.0), memory_used_bytes=0.5 * w.GIB))),
        FINE,
        "GPU 0 is kept busy: 97% (last minute); GPU 1 is idle, and nothing waits for it.",
        True,
    ),
    "an idle GPU that a young job may be about to use": (
        (w.window(gpus=(), starting=True),
         w.gpu_only(w.gpu(busy=w.steady(0.0), memory_used_bytes=0.0))),
        FINE, "GPU 0 is idle, and a job that is starting may yet use it.", True,
    ),
    "too young to be called sampled too rarely": (
        (w.window(gpus=(w.gpu(busy=None, busy_read=True),), watched_seconds=4.0),), FINE,
        "Not enough data yet to diagnose GPU 0.", False,
    ),
    "a start is waited out": (
        (w.window(starting=True),), FINE, "The job on GPU 0 has been starting up for", False,
    ),
    "the first seconds decide nothing": (
        (w.window(watched_seconds=3.0),), FINE, "not enough data yet", False,
    ),
    "the causes that are left, and what would decide": (
        (w.window(gpus=(HALF,)),),
        {
            "python_bound": UNREAD,
            "loader_cpu_bound": UNREAD,
            "thermal_throttle": Clear("cool"),
        },
        "for the data loader or a synchronisation in each step; telling them apart needs stacks",
        False,
    ),
    "a crowded machine is among them": (
        (w.window(gpus=(HALF,), job=w.job(ranks=(w.rank(run_queue_wait_percent=40.0),))),),
        {"python_bound": UNREAD}, "the data loader, a free core (the machine is crowded) or", False,
    ),
    "a desktop has no loader": (
        (w.window(gpus=(HALF,), job=w.job(
            model={"command": "/usr/lib/xorg/Xorg :0", "framework": None, "ranks": ()},
            workers=None, ranks=(), cpu_cores=0.1)),),
        {"loader_cpu_bound": UNREAD}, "waiting for something outside (a network, a person);", False,
    ),
    "a GPU that only draws is not under-used": (
        (w.gpu_only(w.gpu(busy=w.steady(6.0), others=(
            Process(pid=5, name="Xorg", gpu_kind="graphics"),
            Process(pid=6, name="firefox", gpu_kind="graphics")))),), FINE,
        "GPU 0 is idle, and nothing waits for it.", True,
    ),
    "no data is said to be missing where only a simulation runs": (
        (w.gpu_only(w.gpu(busy=w.steady(45.0), others=(
            Process(pid=5, command="gmx mdrun", gpu_kind="compute"),))),),
        {"oscillation": UNREAD},
        "its own work on the CPU or something outside (a network, a person); telling them apart",
        False,
    ),
    "an optimizer on the host is named": (
        (w.window(gpus=(HALF,), job=w.job(cpu_cores=33.0)),), {"python_bound": UNREAD},
        "waiting for work on the CPU or copies to host memory (offload), the data loader", False,
    ),
    "a log of GPUs alone would need the processes": (
        (w.gpu_only(HALF),), {"loader_cpu_bound": UNREAD},
        "the job's processes (run gpuwatch where the job runs)", False,
    ),
    "processes of another user need the permission": (
        (w.window(gpus=(HALF,), job=w.job(main_thread_percent=None)),), {"python_bound": UNREAD},
        "permission", False,
    ),
    "no reading is no good news": ((w.gpu_only(w.gpu(busy=None)),), FINE, "cannot be read", False),
    "of a job, the GPU that cannot be read any more": (
        (w.window(gpus=(w.gpu(0), w.gpu(1, unread_seconds=4.0)), job=w.job()),), FINE,
        "GPU 1 cannot be read now: no diagnosis possible.", True,
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", SENTENCES)
def test_the_sentence(case: str) -> None:
    """What is found, that all is well, or what would decide."""
    windows, says, words, decided = SENTENCES[case]
    said = e.after(30, says, *windows)
    assert words in said.verdict
    assert said.decided is decided


def test_a_fault_about_to_be_raised_leaves_it_undecided() -> None:
    """All is not said to be well two seconds before a finding."""
    said = e.after(6, {"fault": e.firing(strength=0.4)})
    assert said.findings == ()
    assert not said.decided
    assert said.undecided_gpus


def test_rules_that_lack_readings_are_listed() -> None:
    """With what is missing, for that job."""
    said = e.after(4, {"fault": Unknown(("power",))})
    assert [(one.rule, one.missing) for one in said.unknown] == [("fault", ("power",))]


def test_readings_that_would_make_a_finding_surer_are_in_its_evidence() -> None:
    """As not read."""
    said = e.after(20, {"fault": e.firing(missing=("stacks",))})
    last = said.findings[0].evidence[-1]
    assert (last.name, last.value, last.supports) == ("stacks", None, False)


def test_a_rule_that_fails_leaves_the_others_standing() -> None:
    """A defect in one costs its own answer."""

    def broken(_: Window) -> Verdict:
        raise ZeroDivisionError

    rules = [e.rule_of("broken", broken), e.rule_of("fault", lambda _: e.firing())]
    said = e.play(Engine(rules, observer=e.Script()), range(20))[-1]
    assert e.rules_of(said) == ["fault"]
    assert [one.rule for one in said.unknown] == ["broken"]


def test_before_the_first_snapshot_nothing_is_said() -> None:
    """An engine can be asked at once."""
    said = Engine([]).diagnosis
    assert said.findings == ()
    assert not said.decided


def test_another_recording_begins_anew() -> None:
    """Snapshots whose time goes back are another machine's."""
    engine = e.scripted({"fault": e.firing()})
    e.play(engine, range(100, 120))
    assert engine.diagnosis.findings
    engine.push(e.snapshot(5.0))
    assert engine.diagnosis.findings == ()
    assert engine.diagnosis.watched_seconds == 0.0


def test_the_rules_look_every_two_seconds_however_often_it_is_pushed() -> None:
    """Ten snapshots a second cost one evaluation in two seconds while something begins to fire."""
    looks: list[float] = []

    def look(one: Window) -> Firing:
        looks.append(one.taken_at_unix_seconds)
        return e.firing(strength=0.4)

    engine = Engine([e.rule_of("fault", look)], observer=e.Script())
    e.play(engine, [number / 10 for number in range(100)], interval=0.1)
    assert 5 <= len(looks) <= 6


@pytest.mark.parametrize(("machine", "every"), [("healthy", 20.0), ("leaking", 10.0)])
def test_what_stays_the_same_is_looked_at_more_rarely(machine: str, every: float) -> None:
    """Past its first minutes; not where memory grows."""
    looks: list[float] = []

    def look(one: Window) -> Verdict:
        looks.append(one.taken_at_unix_seconds)
        return e.CLEAR

    engine = Engine([e.rule_of("a", look)])
    healthy = e.machine("healthy", 220)
    for made in healthy if machine == "healthy" else e.leaking(healthy):
        engine.push(made)
    assert looks[-1] - looks[-4] == pytest.approx(3 * every, abs=6.0)


def test_the_same_snapshots_give_the_same_diagnosis() -> None:
    """There is no clock but theirs."""
    first, second = (e.simulate("starved", 40)[-1] for _ in range(2))
    assert json.dumps(asdict(first)) == json.dumps(asdict(second))


def test_a_job_in_its_first_minute_costs_the_calm_ones_nothing() -> None:
    """Calm jobs are looked at every ten seconds, one that has just begun every two."""
    looks = {1: 0, 2: 0}

    def check(one: Window) -> Verdict:
        assert one.job is not None
        looks[one.job.job.pid] += 1
        return e.CLEAR

    new = replace(_job_on(1, 2), steady_seconds=10.0)
    engine = Engine([e.rule_of("a", check)], observer=e.Script(_job_on(0, 1), new))
    e.play(engine, range(101))
    assert looks == {1: 11, 2: 51}


def test_many_restless_jobs_are_looked_at_in_turn() -> None:
    """Each of sixteen is looked at every eight seconds, new or not, and what is wrong with it is
    found in time."""
    looks = dict.fromkeys(range(16), 0)

    def check(one: Window) -> Verdict:
        assert one.job is not None
        looks[one.job.job.pid] += 1
        return e.firing(hold_seconds=1e6)

    windows = [_job_on(pid % 8, pid) for pid in range(8)]
    windows += [replace(_job_on(pid - 8, pid), steady_seconds=10.0) for pid in range(8, 16)]
    engine = Engine(
        [e.rule_of("never sure", check), e.rule_of("fault", lambda _: e.firing())],
        observer=e.Script(*windows),
    )
    said = e.play(engine, range(121))
    assert {looks[pid] for pid in range(16)} == {16}
    found = [{one.job[0] for one in each.findings if one.job} for each in said]
    assert set(range(16)) in found[:24]


def test_what_a_fault_costs_is_right_where_many_take_turns_and_snapshots_come_slowly() -> None:
    """Each is looked at every half minute, which is watched all the same."""
    engine = e.Scripted(
        [e.rule_of("fault", lambda _: e.firing(lost_share=0.5))],
        *[_job_on(pid, pid, busy=w.swinging(0.4)) for pid in range(24)],
    )
    said = e.play(engine, range(0, 1800, 10), interval=10.0)[-1]
    shares = [one.cost_share for one in said.findings]
    assert len(shares) == 24
    assert shares == pytest.approx([0.5] * 24, abs=0.05)


@pytest.mark.parametrize("then", ["another of its number", "on a GPU more"])
def test_calm_does_not_outlast_what_was_calm(then: str) -> None:
    """A job whose number another has now is gone; a GPU that a job takes is nobody's no more."""
    one = _job_on(0, 100)
    assert one.job is not None
    alone = w.gpu_only(w.gpu(1))
    if then == "on a GPU more":
        new = replace(one.job.job, gpu_uuids=("GPU-0", "GPU-1"))
    else:
        new = replace(one.job.job, started_at_unix_seconds=5.0)
    after = replace(one, job=replace(one.job, job=new))
    script = e.Script(one, alone)
    engine = Engine([e.rule_of("fault", lambda _: e.firing())], observer=script)
    shown = [replace(e.snapshot(second), jobs=(one.job.job,)) for second in range(62)]
    shown += [replace(e.snapshot(second), jobs=(new,)) for second in range(62, 66)]
    for each in shown:
        if each.jobs == (new,):
            script._windows = (after,)
        engine.push(each)
    assert {(found.job, found.gpus) for found in engine.diagnosis.findings} <= {
        (new.key, ("GPU-0",))
    }


def test_a_finding_of_a_job_on_no_gpu_names_its_pid() -> None:
    """Nothing else says which of several jobs it is about."""
    fault = e.firing("The training loop waits")
    on_none = w.window(gpus=(), job=w.job(model={"pid": 77, "gpu_uuids": ()}))
    said = e.after(20, {"fault": lambda _: fault}, on_none)
    assert said.findings[0].summary == "PID 77: the training loop waits"
