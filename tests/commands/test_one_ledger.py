"""One stream of snapshots through every output: all say the same cause, share and seconds."""

import json
import re
from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from pathlib import Path

import pytest

pytest.importorskip("prometheus_client")

from gpuwatch.core.model import Snapshot
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.diagnosis.finding import Finding, lost_gpus
from gpuwatch.diagnosis.ledger import Episode, Ledger
from gpuwatch.outputs.alerts import Alerts
from gpuwatch.outputs.diagnosis import diagnosis_json, of_file
from gpuwatch.outputs.exporter.metrics import Metrics
from gpuwatch.outputs.report.accumulator import Accumulator
from gpuwatch.outputs.report.model import FindingUse, Report
from gpuwatch.outputs.report.recorder import JobRecorder
from gpuwatch.outputs.report.text import report_text
from gpuwatch.recording.file import RecordingIndex
from gpuwatch.recording.recorder import Recorder
from gpuwatch.tui.panels import findings as finding_words
from gpuwatch.tui.panels.gpus import state_of
from tests.support.long_recording import Piece, snapshots
from tests.tui.scenes import history_of, view_of

pytest.importorskip("prometheus_client")

STORIES = {
    "starved, then well for two minutes, then starved": [
        Piece("starved", 120),
        Piece("healthy", 130),
        Piece("starved", 120),
    ],
    "saves": [Piece("checkpoint", 300)],
}


@dataclass
class Told:
    """What each output says at the end of a stream."""

    engine: Engine
    report: Report
    job: Report
    recorded: Ledger
    index: Sequence[Episode]
    metrics: dict[str, float]
    idle: dict[str, dict[str, float]]
    """Idle seconds by the exporter: GPU, cause."""
    fell: list[str]
    """Counters of the exporter that were less at a later look."""
    raised: list[Finding]
    snapshots: list[Snapshot]


@pytest.fixture(scope="module", params=STORIES.values(), ids=STORIES)
def told(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> Told:
    path = tmp_path_factory.mktemp("one") / "run.jsonl.zst"
    taken = list(snapshots(request.param, gpus=2, interval=1.0))
    engine, metrics = Engine(), Metrics(lambda: (0.5, False))
    whole = Accumulator(evaluate_seconds=2.0)
    job = JobRecorder(taken[0].jobs[0].key)
    recorder, alerts, raised = Recorder(path), Alerts(lambda _: True, 10.0), []
    fell, counted = [], dict[str, float]()
    for place, one in enumerate(taken):
        engine.push(one)
        metrics.push(one, engine.diagnosis, engine.ledger)
        if place % 10 == 0:
            now = counters(metrics)
            fell += [name for name, value in counted.items() if now[name] < value]
            counted = now
        whole.push(one)
        job.push(one, engine.diagnosis)
        recorder.push(one)
        raised += [event.finding for event in alerts.push(one, engine.ledger)]
    # What goes on for long is looked at every some seconds only.
    engine.finish()
    metrics.push(taken[-1], engine.diagnosis, engine.ledger)
    job.note_diagnosis(engine.diagnosis)
    recorder.close()
    lost = {name: value for name, value in counters(metrics).items() if "_cost_" in name and value}
    idle = {
        gpu: {cause: value for cause, value in metrics._totals.idle_seconds(gpu).items() if value}
        for gpu in [gpu.uuid for gpu in taken[-1].gpus]
    }
    index = RecordingIndex(str(path))
    return Told(
        engine=engine,
        report=whole.report(),
        job=job.report(),
        recorded=index._ledger,
        index=index.findings,
        metrics={name.split('"')[1]: seconds for name, seconds in lost.items()},
        idle=idle,
        fell=fell,
        raised=raised,
        snapshots=taken,
    )


def counters(metrics: Metrics) -> dict[str, float]:
    page, _ = metrics.page("a")
    found = re.findall(r"^(gpuwatch_\w+_total\{.*\}) (\S+)$", page.decode(), re.MULTILINE)
    return {name: float(value) for name, value in found}


def by_rule(findings: Iterable[Episode | FindingUse | Finding]) -> dict[str, float]:
    lost: dict[str, float] = {}
    for one in findings:
        if one.cost_gpu_seconds:
            lost[one.rule] = lost.get(one.rule, 0.0) + one.cost_gpu_seconds
    return lost


def test_every_output_says_the_same_causes_and_seconds(told: Told) -> None:
    """Of the whole time: the dashboard's ledger, the report of the machine and of its job (``R``
    and ``run``), the recording, and the exporter; alerts name the same rules."""
    ledger = by_rule(told.engine.ledger.episodes())
    assert ledger
    assert told.metrics == pytest.approx(ledger)
    # A recorder looks once more at the end of each minute.
    assert by_rule(told.recorded.episodes()) == pytest.approx(ledger, rel=1e-3)
    assert by_rule(told.index) == pytest.approx(ledger, rel=1e-3)
    assert by_rule(told.report.findings) == pytest.approx(ledger, rel=1e-3)
    of_job = [one for one in told.engine.ledger.episodes() if one.job == told.job.key]
    assert by_rule(told.job.findings) == pytest.approx(by_rule(of_job))
    assert {one.rule for one in told.raised} == {one.rule for one in told.engine.ledger.episodes()}


def test_the_exporter_has_the_idle_time_of_the_report_by_the_causes_of_the_ledger(
    told: Told,
) -> None:
    """Of each GPU, what idled is as much as in the report, but for the last minute of what no
    finding explains; and what idled because of a finding is what was lost to it."""
    for gpu in told.report.gpus:
        idle, explained = told.idle[gpu.uuid], told.engine.ledger.idle_seconds_lost(gpu.uuid)
        assert gpu.idle_seconds is not None
        assert sum(idle.values()) <= gpu.idle_seconds + 1e-6
        unexplained = gpu.idle_seconds - sum(explained.values())
        assert gpu.idle_seconds - sum(idle.values()) <= min(60.0, unexplained) + 1e-6
        assert explained
        assert {rule: idle[rule] for rule in explained} == pytest.approx(dict(explained))
    lost = by_rule(told.report.findings)
    for rule in lost:
        assert sum([idle.get(rule, 0.0) for idle in told.idle.values()]) == pytest.approx(
            lost[rule]
        )


def test_no_counter_of_the_exporter_ever_falls(told: Told) -> None:
    """Also where time is found to have been lost afterwards. What the driver counts is the
    driver's."""
    assert [name for name in told.fell if "energy" not in name] == []


def spans(episodes: Iterable[Episode]) -> set[tuple[str, int, bool]]:
    return {(one.rule, round(one.begin_unix_seconds), one.holds) for one in episodes}


def test_every_output_says_the_same_stretches(told: Told) -> None:
    """From when to when each finding held."""
    uses = {
        (use.rule, round(one.begin_unix_seconds), use.holds_at_end and one is use.stretches[-1])
        for use in told.report.findings
        for one in use.stretches
    }
    assert uses == spans(told.engine.ledger.episodes()) == spans(told.recorded.episodes())


def test_text_and_json_say_what_the_ledger_says(told: Told) -> None:
    """``report`` as text and ``diagnose --json`` have the seconds of the report, which are those
    of the ledger."""
    lost = sum(told.engine.ledger.lost_by_rule().values())
    printed = json.loads(diagnosis_json(of_file(told.report)))
    assert sum([one["cost_gpu_seconds"] or 0.0 for one in printed["findings"]]) == pytest.approx(
        lost, abs=0.01
    )
    assert printed["total"]["finding_gpu_seconds"] == pytest.approx(lost, abs=0.01)
    text = report_text(told.report)
    assert "cost" not in re.sub(r"own cost", "", text).lower()
    assert re.search(r"\bLost(:| )", text)


def test_the_header_adds_up_what_is_shown(told: Told) -> None:
    """How many GPUs' time is lost is the sum of the shares beside the findings, each of the GPUs of
    its job."""
    diagnosis, last = told.engine.diagnosis, told.snapshots[-1]
    gpus = {job.key: len(job.gpu_uuids) for job in last.jobs}
    view = view_of(last)
    shown = [(finding_words.lost(one, view), one) for one in diagnosis.findings]
    parts = [
        float(text.split("%")[0]) / 100.0 * gpus.get(one.job, len(one.gpus))
        for text, one in shown
        if text and not text.startswith("<")
    ]
    assert lost_gpus(diagnosis.findings, last) == pytest.approx(sum(parts), abs=0.02)


def test_the_word_beside_a_gpu_is_that_of_its_leading_finding(told: Told) -> None:
    """Whatever its readings of the last half minute are."""
    last = told.snapshots[-1]
    view = view_of(last, history=history_of(told.snapshots[-60:]))
    view.diagnosis = told.engine.diagnosis
    words = {"loader_cpu_bound": "starved", "checkpoint_pauses": "pauses"}
    for gpu in last.gpus:
        leading = next(one for one in told.engine.diagnosis.findings if gpu.uuid in one.gpus)
        assert state_of(view, gpu).word == words[leading.rule]


def test_what_was_lost_before_is_in_no_report_or_recording(tmp_path: Path) -> None:
    """Of a job that has starved for two minutes, when its page or a recording is opened then."""
    taken = list(snapshots((Piece("starved", 150),), gpus=2, interval=1.0))
    engine = Engine()
    for one in taken[:120]:
        engine.push(one)
    path = tmp_path / "late.jsonl.zst"
    job, recorder = JobRecorder(taken[0].jobs[0].key), Recorder(path)
    before = by_rule(engine.ledger.episodes())["loader_cpu_bound"]
    for one in taken[120:]:
        engine.push(one)
        job.push(one, engine.diagnosis)
        recorder.push(one, engine.diagnosis)
    engine.finish()
    job.note_diagnosis(engine.diagnosis)
    recorder.close()
    lost = by_rule(engine.ledger.episodes())["loader_cpu_bound"] - before
    report = job.report()
    (use,) = report.findings
    # The newest seconds before it may be counted only now.
    assert use.cost_gpu_seconds == pytest.approx(lost, abs=8.0)
    assert use.cost_gpu_seconds <= report.gpu_seconds
    (episode,) = RecordingIndex(str(path)).findings
    # It was told nothing after the engine's last look.
    assert episode.cost_gpu_seconds is not None
    assert 0.3 * lost < episode.cost_gpu_seconds < lost + 8.0
