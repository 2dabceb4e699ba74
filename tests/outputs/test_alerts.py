"""Findings as events: raised when they have held, cleared when they have been gone, never twice."""

import json
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple

from gpuwatch.core.model import Job
from gpuwatch.diagnosis.finding import Advice, Diagnosis, Finding, Gain
from gpuwatch.diagnosis.ledger import Episode, Ledger
from gpuwatch.diagnosis.sentence import number
from gpuwatch.outputs.alerts import Alerts, Event
from gpuwatch.outputs.report.model import dumps
from tests.support.snapshots import gpu, snapshot

GPUS = tuple(gpu(f"GPU-{index}", index) for index in range(3))


def finding(index: int = 0, **fields: Any) -> Finding:
    settings: dict[str, Any] = {
        "rule": "loader_cpu_bound",
        "severity": "warning",
        "confidence": 0.9,
        "summary": f"GPU {index} waits for data",
        "says": "{gpus} {gpus|waits|wait} for data",
        "gpus": (f"GPU-{index}",),
        "job": (100 + index, 1.0),
        "advice": (Advice("Raise num_workers."),),
    }
    return Finding(**(settings | fields))


class Watched(NamedTuple):
    alerts: Alerts
    ledger: Ledger


def events(
    watched: Watched, seconds: Iterable[float], *found: Finding, **fields: Any
) -> list[tuple[float, Event]]:
    """What is said at which of these seconds, in all of which ``found`` is in the diagnosis."""
    said = []
    for at in seconds:
        taken = snapshot(at, **({"gpus": GPUS} | fields))
        ledger = watched.ledger
        ledger.advance(1.0)
        ledger.add_diagnosis(
            Diagnosis(taken_at_unix_seconds=at, watched_seconds=at, verdict="", findings=found)
        )
        said += [(at, one) for one in watched.alerts.push(taken, ledger)]
    return said


def named(said: Sequence[tuple[float, Event]]) -> list[tuple[float, str]]:
    return [(at, one.event) for at, one in said]


def alerts(
    seconds: float = 60.0, wanted: Callable[[Episode], bool] = lambda one: one.severity != "info"
) -> Watched:
    return Watched(Alerts(wanted, seconds), Ledger(newest=True))


def test_what_holds_is_raised_once_and_cleared_once() -> None:
    """After the time it must hold; and after a minute in which it was gone."""
    watched = alerts()
    assert named(events(watched, range(300), finding())) == [(60, "raised")]
    assert named(events(watched, range(300, 500))) == [(360, "cleared")]
    assert named(events(watched, range(500, 700), finding())) == [(560, "raised")]


def test_an_event_says_what_is_to_be_gained() -> None:
    """As long as it holds."""
    gain = Gain(factor=1.3, low=1.1, high=1.3, limited_by="the GPU")
    found = finding(gain=gain)
    watched = alerts()
    (raised,) = [one for _, one in events(watched, range(100), found)]
    assert raised.text.endswith(
        "Gain: a fix would make the job about 1.3x as fast, limited by the GPU."
    )
    assert raised.finding.gain == gain
    (cleared,) = [one for _, one in events(watched, range(100, 300))]
    assert "Gain" not in cleared.text


def test_an_event_names_gpus_and_jobs_as_people_do() -> None:
    """By the number of the GPU, the PID, the user and Slurm's number; no sentence has places that
    are not filled."""
    job = Job(pid=100, started_at_unix_seconds=1.0, user="ada", slurm_job="17")
    advice = Advice(f"Raise num_workers to {number(8)}.", setting="num_workers", wanted="8")
    says = "GPUs 0 and 2 wait for data"
    found = finding(summary=says, gpus=("GPU-0", "GPU-2"), late=("GPU-2",), advice=(advice,))
    ((_, raised),) = events(alerts(0.0), [0], found, jobs=(job,))
    assert "{" not in json.dumps(json.loads(dumps(raised))).replace('{"', "")
    said = json.loads(dumps(raised))["finding"]
    assert said["summary"] == says
    assert said["gpus"] == ["0", "2"]
    assert said["late"] == ["2"]
    assert said["jobs"] == [
        {"pid": 100, "started_at_unix_seconds": 1.0, "user": "ada", "slurm_job": "17"}
    ]
    assert said["advice"][0]["action"] == "Raise num_workers to 8."


def test_what_comes_back_within_a_minute_was_never_gone() -> None:
    """Nothing is said of it, however often."""
    watched = alerts(5.0)
    assert named(events(watched, range(10), finding())) == [(5, "raised")]
    for begin in range(10, 500, 60):
        assert events(watched, range(begin, begin + 58)) == []
        assert events(watched, (begin + 58, begin + 59), finding()) == []


def test_what_holds_with_breaks_is_never_raised() -> None:
    """A break begins the wait anew."""
    watched = alerts()
    for begin in range(0, 600, 60):
        assert events(watched, range(begin, begin + 59), finding()) == []
        assert events(watched, [begin + 59]) == []


def test_an_error_is_raised_at_once_and_information_only_where_it_is_wanted() -> None:
    """A GPU may be lost and back within the minute."""
    assert named(events(alerts(), [0], finding(severity="error"))) == [(0, "raised")]
    assert events(alerts(0.0), range(9), finding(severity="info")) == []
    assert named(events(alerts(2.0, bool), range(9), finding(severity="info"))) == [(2, "raised")]


def test_one_cause_of_several_jobs_is_one_event() -> None:
    """Of those that are due at the same moment; one that comes later is another event."""
    watched = alerts(5.0)
    ((_, first),) = events(watched, range(8), finding(0), finding(1))
    assert first.finding.summary == "GPUs 0 and 1 wait for data"
    assert [one.pid for one in first.finding.jobs] == [100, 101]
    ((_, second),) = events(watched, range(8, 20), finding(0), finding(1), finding(2))
    assert second.finding.summary == "GPU 2 waits for data"
    assert [one.pid for one in second.finding.jobs] == [102]
    # Another of a job's GPUs is no other finding.
    assert events(watched, range(20, 40), finding(0, gpus=("GPU-2",)), finding(1), finding(2)) == []


def test_a_gpu_that_is_gone_keeps_its_name() -> None:
    """When what was found of it is cleared."""
    watched = alerts(0.0)
    events(watched, [0], finding(2))
    ((_, cleared),) = events(watched, range(1, 70), gpus=GPUS[:1])
    assert cleared.finding.summary == "GPU 2 waits for data"


def test_the_text_is_for_chats_and_says_what_is_simulated() -> None:
    """Machine, event, severity, rule, sentence, advice; nothing in it makes a mention."""
    says = finding(summary="PID 7 (<!channel> @everyone) waits: n 2 -> 8", says="")
    ((_, one),) = events(alerts(0.0), [0], says, simulated=True)
    assert one.text == (
        f"{one.machine} (simulated): raised warning loader_cpu_bound: "
        "PID 7 (‹!channel› ＠everyone) waits: n 2 → 8. Raise num_workers."
    )
    assert one.finding.summary == "PID 7 (<!channel> @everyone) waits: n 2 -> 8"
