"""A diagnosis as text and as JSON."""

import dataclasses
import json
import math
from html import escape
from typing import Any

import msgspec
import pytest

from gpuwatch.core.units import quantity
from gpuwatch.diagnosis.finding import Advice, Diagnosis, Evidence, Gain, RuledOut, Unchecked
from gpuwatch.jobs.stacks.report import Share, StackReport
from gpuwatch.outputs.diagnosis import (
    DiagnosisReport,
    DiagnosisSeen,
    at_price,
    diagnosis_json,
    diagnosis_page,
    of_file,
    of_watch,
)
from gpuwatch.outputs.report.document import evidence_line, report_document
from gpuwatch.outputs.report.html import document_html
from gpuwatch.outputs.report.model import (
    FindingUse,
    GpuUsage,
    Loss,
    OpenQuestion,
    Phase,
    Report,
    Source,
    Stretch,
    Time,
    TimeProfile,
    replaced,
)
from gpuwatch.outputs.report.text import report_text
from gpuwatch.outputs.terminal import cell_width

START = 1_700_000_000.0
FINDING = FindingUse(
    rule="loader_cpu_bound",
    severity="warning",
    confidence=0.93,
    summary="GPU 0 waits for data 62% of the time: 2 loader workers are at their limit",
    gpus=("GPU-0",),
    job=(4242, START - 60),
    evidence=(
        Evidence("busy", 38.0, "%", 90.0, "it idles most of it"),
        Evidence("PCIe", 5.0e6, "bytes/s", says="little", supports=False),
    ),
    advice=(
        Advice(
            "Raise num_workers from 2 to 8.",
            setting="num_workers",
            present="2",
            wanted="8",
            why="6 cores are free",
        ),
    ),
    ruled_out=(RuledOut("checkpoint_pauses", "nothing was written"),),
    holds_at_end=True,
    seconds=24.0,
    cost_gpu_seconds=18.6,
    stretches=(Stretch(begin_unix_seconds=START + 6, end_unix_seconds=START + 30),),
)
GPU = GpuUsage(
    uuid="GPU-0",
    index=0,
    name="NVIDIA H200",
    seen_seconds=30.0,
    watched_seconds=30.0,
    busy_seconds=11.4,
    busy_readings=30,
    power_mean_watts=312.0,
    profiles={"busy_percent": TimeProfile(minimum=(0.0,), mean=(38.0,), maximum=(99.0,))},
)
LOG = Source(kind="query", name="gpus.csv", interval_seconds=1.0, lines=31)
RECORDING = replaced(LOG, kind="recording")
ENDED = replaced(FINDING, rule="tenant", holds_at_end=False)
PHASE = Phase(
    kind="steady",
    gpus=("GPU-0",),
    begin_unix_seconds=START,
    end_unix_seconds=START + 30,
    seconds=30.0,
    busy_percent=38.0,
    idle_gpu_seconds=18.6,
    lost=(Loss(to="loader_cpu_bound", gpu_seconds=18.6),),
)


def whole(*findings: FindingUse, source: Source | None = None, **other: object) -> Report:
    given = {
        "gpus": (GPU,),
        "unknown": (Unchecked(rule="sync_every_step", missing=("stacks",)),),
        "decided": True,
        **other,
    }
    time = Time(begin_unix_seconds=START, end_unix_seconds=START + 30, snapshots=30)
    return Report(time=time, source=source, findings=findings, **given)  # type: ignore[arg-type]


def watched(
    *findings: FindingUse, decided: bool = True, problem: str | None = None, **other: object
) -> DiagnosisReport:
    """A machine, as it is now."""
    held = [one for one in findings if one.holds_at_end]
    diagnosis = Diagnosis(
        taken_at_unix_seconds=START + 30,
        watched_seconds=30.0,
        verdict=held[0].summary if held else "GPU 0 is kept busy: 97%.",
        findings=tuple(held),  # type: ignore[arg-type]
        decided=decided,
    )
    return of_watch(whole(*findings, **other), diagnosis, problem=problem)  # type: ignore[arg-type]


def test_a_finding_has_its_cost_advice_evidence_and_what_it_is_not() -> None:
    """Each under its word, with numbers and thresholds; the verdict comes first, on a terminal
    last, and is not said twice. Colour is only on a terminal, and the severity is a word too."""
    mailed = diagnosis_page(watched(FINDING), width=100)
    page = diagnosis_page(watched(FINDING), width=100, verbose=True, on_terminal=True)
    assert mailed.startswith(FINDING.summary)
    assert page.endswith(FINDING.summary)
    assert page.count("waits for data") == 1
    lines = page.splitlines()
    assert lines[2].startswith("warning: loader is CPU-bound (93% sure), ")
    assert "  Lost      19 GPU-seconds, 62% of all GPU time" in lines
    assert "  Do        - Raise num_workers from 2 to 8: 6 cores are free" in lines
    assert "  Because   - busy 38% (limit 90%): it idles most of it" in lines
    assert "  Against   - PCIe 4.8M/s: little" in lines
    assert "  Not       - checkpoint pauses: nothing was written" in lines
    assert "1 check lacked data at the end: stacks." in lines
    short = diagnosis_page(watched(FINDING), width=100)
    assert "  Not " not in short
    assert "lacked data at the end" not in short
    assert "--verbose also says what was ruled out" in short
    assert "\x1b" not in page
    assert "\x1b[33mwarning:\x1b[0m" in diagnosis_page(watched(FINDING), colour=True)


GAIN = Gain(factor=1.78, low=1.5, high=1.96, limited_by="8 cores")
GAINING = replaced(
    FINDING,
    gain=GAIN,
    advice=(dataclasses.replace(FINDING.advice[0], gain=GAIN),),
    lost_watts=120.0,
)


def all_the_time(finding: FindingUse) -> FindingUse:
    stretch = replaced(finding.stretches[0], begin_unix_seconds=START, end_unix_seconds=START + 30)
    return replaced(finding, stretches=(stretch,))


def test_what_held_for_a_part_of_the_time_says_what_its_cure_gains_of_all_of_it() -> None:
    """In the same words in a diagnosis, in text and in HTML: 24 of 30 seconds at 1.78 times the
    speed."""
    gain = (
        "num_workers 2 -> 8: about 1.8x as fast, limited by 8 cores, while it held (24s); "
        "about 1.5x as fast over all 30s"
    )
    report = whole(GAINING, source=LOG)
    assert gain in " ".join(diagnosis_page(of_file(report), width=300).split())
    assert gain in " ".join(report_text(report, width=300).split())
    assert escape(gain) in document_html(report_document(report, "page"))


def test_what_held_all_the_time_has_one_share() -> None:
    """That of its sentence, as long as that is of all GPUs."""
    of_all = replaced(all_the_time(FINDING), summary="GPU 0 waits for data 63% of the time")
    assert "  Lost      19 GPU-seconds\n" in diagnosis_page(watched(of_all), width=100)
    assert "62% of all GPU time" in diagnosis_page(watched(FINDING), width=100)


def test_how_often_a_gpu_is_slowed_is_not_the_share_that_is_lost() -> None:
    """Throttled all of the time, a GPU loses what its clock is lower."""
    slowed = replaced(
        all_the_time(FINDING),
        rule="thermal_throttle",
        summary="GPU 0 is thermally throttled 100% of the time: its clock is 19% lower",
    )
    assert "62% of all GPU time" in diagnosis_page(watched(slowed), width=100)


def test_a_finding_says_what_its_cure_gains() -> None:
    """In the text, once, with the limit, and not in the verdict; in JSON in numbers, beside the
    advice and alone."""
    promise = "num_workers 2 -> 8: about 1.8x as fast, limited by 8 cores"
    page = diagnosis_page(watched(all_the_time(GAINING)), width=100)
    assert f"  Gain      {promise}" in page.splitlines()
    file = of_file(whole(all_the_time(GAINING), source=LOG))
    assert diagnosis_page(file, width=100).count(promise) == 1
    assert promise not in file.verdict
    (found,) = json.loads(diagnosis_json(watched(GAINING)))["findings"]
    expected = {"factor": 1.78, "low": 1.5, "high": 1.96, "limited_by": "8 cores", "of_jobs": None}
    assert found["gain"] == found["advice"][0]["gain"] == expected
    (found,) = json.loads(diagnosis_json(watched(FINDING)))["findings"]
    assert found["gain"] is None


def test_what_is_lost_is_said_in_energy_or_in_money() -> None:
    """With the price that was given; without one, in watt-hours from one on."""
    hours = replaced(GAINING, cost_gpu_seconds=7200.0)
    long = watched(hours, gpus=(replaced(GPU, watched_seconds=14400.0, seen_seconds=14400.0),))
    assert "2.0 GPU-hours, 50% of all GPU time, 240Wh" in diagnosis_page(long, width=100)
    page = diagnosis_page(at_price(long, 2.5), width=100)
    assert "2.0 GPU-hours, 50% of all GPU time, 5.00 at 2.5 a GPU-hour" in page
    assert json.loads(diagnosis_json(at_price(long, 2.5)))["price_per_gpu_hour"] == 2.5
    file = at_price(of_file(whole(hours, source=LOG)), 2.5)
    assert "5.00 at 2.5 a GPU-hour" in diagnosis_page(file, width=100)


@pytest.mark.parametrize("width", [20, 28, 36, 40, 60, 80, 100, 300])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Down to 28 cells; wider than 100 is not used."""
    other = replaced(FINDING, rule="x" * 30, summary="数据" * 60, evidence=FINDING.evidence * 3)
    full = whole(FINDING, other, ENDED, source=LOG, phases=(PHASE, PHASE))
    for made in (watched(FINDING, other, ENDED), watched(), of_file(full)):
        lines = diagnosis_page(made, width=width).splitlines()
        assert max(map(cell_width, lines)) <= min(max(width, 28), 100)


def test_a_file_says_what_each_phase_lost_and_to_what() -> None:
    """With the numbers of its report, from when to when."""
    page = diagnosis_page(of_file(whole(FINDING, source=LOG, phases=(PHASE,))), width=100)
    assert page.startswith("The GPU was busy 38% of 30s.")
    assert "gpus.csv: an nvidia-smi query log of 1 GPU over 30s, 30 readings, one every 1s." in page
    (row,) = [line for line in page.splitlines() if line.startswith("0 ")]
    assert row.split()[1] == "steady"
    assert row.endswith("38%  19s loader is CPU-bound")


def test_what_cost_most_is_the_verdict_of_a_file() -> None:
    """An open question that cost more than any finding comes before it, and a finding that cost
    much is found all the same."""
    question = OpenQuestion(about="unknown", says="GPU 0 was 38% busy", gpus=("GPU-0",))
    for lost, small, found, first in (
        (18.0, 1.0, False, "GPU 0 was 38% busy."),
        (16.0, 2.0, True, "GPU 0 was 38% busy."),
        (2.0, 16.0, True, "GPU 0 waits"),
    ):
        asked = replaced(question, lost_gpu_seconds=lost)
        use = replaced(FINDING, cost_gpu_seconds=small)
        made = of_file(whole(use, source=LOG, questions=(asked,), decided=False))
        assert (made.found, made.decided) == (found, False)
        assert first in made.verdict


def test_nothing_found_says_what_was_seen() -> None:
    """Each GPU with its utilisation and power; what was found before is not nothing."""
    page = diagnosis_page(watched())
    (row,) = [line.split() for line in page.splitlines() if "H200" in line]
    assert {"38%", "312W"} <= {*row}
    assert "Needed for a diagnosis" not in page
    only_ended = watched(ENDED)
    assert only_ended.found
    assert "earlier: GPU 0 waits" in only_ended.verdict


@pytest.mark.parametrize(
    ("source", "words"), [(None, "--for 2m"), (LOG, "-lms 200"), (RECORDING, "longer recording")]
)
def test_what_could_not_be_told_says_what_would_decide(source: Source | None, words: str) -> None:
    """Something a person can do, for each kind of source."""
    made = of_file(whole(source=source, decided=False)) if source else watched(decided=False)
    assert words in diagnosis_page(made)


def test_without_utilisation_nothing_is_decided() -> None:
    """An engine that had nothing to look at does not acquit."""
    blind = watched(gpus=(GpuUsage(uuid="GPU-0", index=0, name="GPU"),))
    assert not blind.decided
    assert "cannot be diagnosed" in blind.verdict
    assert "busy unknown: not reported" in diagnosis_page(blind)


def test_without_a_gpu_the_trouble_is_the_verdict() -> None:
    """And there is no empty list under it."""
    none = watched(gpus=(), problem="No driver was found.", decided=False)
    assert diagnosis_page(none).splitlines()[0] == "No driver was found."
    assert len(diagnosis_page(none).splitlines()) == 3


def test_a_watch_without_a_gpu_counts_none() -> None:
    """It says for how long it was watched, and that there was none."""
    made = dataclasses.replace(watched(), report=replaced(watched().report, gpus=()))
    assert "Watched for 30s, without a GPU, " in diagnosis_page(made)


def test_stacks_come_after_the_findings() -> None:
    """One line a process, also where it could not be sampled."""
    stacks = (StackReport(pid=4242, rank=0, problem="It may not be sampled."),)
    page = diagnosis_page(
        DiagnosisReport(report=whole(FINDING), verdict="-", found=True, decided=True, stacks=stacks)
    )
    assert "rank 0: It may not be sampled." in page


@pytest.mark.parametrize(
    ("value", "unit", "text"),
    [
        (None, "%", "-"),
        (True, None, "yes"),
        (False, "s", "no"),
        ("Gen 3", None, "Gen 3"),
        (0, "%", "0%"),
        (0.0, "W", "0 W"),
        (47.256, "%", "47%"),
        (4.56, "%", "4.6%"),
        (2.0, "cores", "2 cores"),
        (1234.5, "MHz", "1234 MHz"),
        (99.0, "% of a core", "99% of a core"),
        (2.5 * 1024**3, "bytes", "2.5G"),
        (1024.0**2, "bytes/s", "1.0M/s"),
    ],
)
def test_quantities_are_written_as_a_person_writes_them(
    value: float | str | bool | None, unit: str | None, text: str
) -> None:
    """Zero is a number, nothing is a dash."""
    assert quantity(value, unit) == text


def test_a_threshold_does_not_repeat_what_it_is_a_share_of() -> None:
    """``75%`` after ``of a core each`` has been said."""
    evidence = Evidence("workers", 99.0, "% of a core each", 75.0)
    assert evidence_line(evidence) == "workers 99% of a core each (limit 75%)"


def checked(text: str) -> Any:
    """It is read by the class that the schema is made of, and nothing is over or lacking."""
    value = json.loads(text, parse_constant=pytest.fail)
    assert value.keys() == msgspec.to_builtins(msgspec.convert(value, DiagnosisSeen)).keys()
    return value


def test_the_json_has_findings_that_ended_and_stacks() -> None:
    """And each cause in a sentence, beside what the report says."""
    share = Share(category="loading_data", samples=80, percent=80.0)
    stacks = StackReport(pid=4242, rank=0, shares=(share,))
    report = whole(FINDING, ENDED, source=LOG, phases=(PHASE,))
    full = DiagnosisReport(report=report, verdict="-", found=True, decided=True, stacks=(stacks,))
    value = checked(diagnosis_json(full))
    assert [one["holds_at_end"] for one in value["findings"]] == [True, False]
    assert value["causes"] == [FINDING.summary, ENDED.summary]
    assert value["stacks"][0]["shares"][0]["percent"] == 80.0


@pytest.mark.parametrize("odd", [math.nan, math.inf, -math.inf])
def test_what_is_no_number_is_null(odd: float) -> None:
    """Whatever a rule came to; JSON has no NaN."""
    evidence = dataclasses.replace(FINDING.evidence[0], value=odd, threshold=odd)
    finding = replaced(FINDING, evidence=(evidence,), job=None, cost_gpu_seconds=odd)
    (found,) = checked(diagnosis_json(watched(finding)))["findings"]
    assert (found["evidence"][0]["value"], found["cost_gpu_seconds"]) == (None, None)
