"""A diagnosis as text and as JSON."""

from __future__ import annotations

import json
from dataclasses import replace

import pytest

from gpuwatch.diagnosis.finding import Advice, Diagnosis, Evidence, Finding, RuledOut, Unchecked
from gpuwatch.jobs.stacks.summary import StackReport
from gpuwatch.outputs.diagnosis.json import diagnosis_json
from gpuwatch.outputs.diagnosis.report import DiagnosisReport, Ended, GpuSeen, SourceSeen
from gpuwatch.outputs.diagnosis.text import diagnosis_page, evidence_line, quantity
from gpuwatch.outputs.terminal.table import cell_width

START = 1_700_000_000.0
FINDING = Finding(
    rule="loader_cpu_bound",
    severity="warning",
    confidence=0.93,
    summary="GPU 0 waits for data 62% of the time: 2 loader workers are at their limit",
    gpus=("GPU-0",),
    job=(4242, START - 60),
    since_unix_seconds=START + 6,
    evidence=(
        Evidence("busy", 38.0, "%", 90.0, "it idles most of it"),
        Evidence("PCIe", 5.0e6, "bytes/s", says="little", supports=False),
        Evidence("disk wait", None, says="not read"),
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
    cost_share=0.62,
    cost_gpu_seconds=18.6,
)
GPU = GpuSeen(
    uuid="GPU-0",
    index=0,
    name="NVIDIA H200",
    readings=30,
    busy_percent=38.0,
    busy_low_percent=0.0,
    busy_high_percent=99.0,
    power_watts=312.0,
)
LIVE = SourceSeen(kind="live", snapshots=30, seconds=30.0, started_at_unix_seconds=START)
LOG = replace(LIVE, kind="query", name="gpus.csv", interval_seconds=1.0, lines=31)


def diagnosis(*findings: Finding, decided: bool = True, verdict: str | None = None) -> Diagnosis:
    words = verdict or (findings[0].summary if findings else "GPU 0 is kept busy: 97%.")
    return Diagnosis(
        taken_at_unix_seconds=START + 30,
        watched_seconds=30.0,
        verdict=words,
        findings=findings,
        unknown=(Unchecked(rule="sync_every_step", missing=("stacks",)),),
        decided=decided,
    )


def report(*findings: Finding, source: SourceSeen = LIVE, **other: object) -> DiagnosisReport:
    given = {"diagnosis": diagnosis(*findings), "gpus": (GPU,), **other}
    return DiagnosisReport(source=source, **given)  # type: ignore[arg-type]


def test_the_verdict_comes_first_and_is_not_said_twice() -> None:
    """The eye meets the sentence, then its evidence."""
    page = diagnosis_page(report(FINDING), width=100)
    assert page.startswith(FINDING.summary)
    assert page.count("waits for data") == 1


def test_a_finding_has_its_cost_advice_evidence_and_what_it_is_not() -> None:
    """Each under its word, with numbers and thresholds."""
    lines = diagnosis_page(report(FINDING), width=100).splitlines()
    page = "\n".join(lines)
    assert "warning: loader_cpu_bound (93% sure, for 24s)" in lines
    assert "  Cost      62% of the time, 19 GPU-seconds" in lines
    assert "  Do        - Raise num_workers from 2 to 8: 6 cores are free" in lines
    assert "  Because   - busy 38% (threshold 90%): it idles most of it" in lines
    assert "  Against   - PCIe 4.8M/s: little" in lines
    assert "  Unread    - disk wait: not read" in lines
    assert "  Not       - checkpoint_pauses: nothing was written" in lines
    assert "stacks (sync_every_step)" in page


@pytest.mark.parametrize("width", [20, 28, 36, 40, 60, 80, 100, 300])
def test_no_line_is_wider_than_the_terminal(width: int) -> None:
    """Down to 28 cells; wider than 100 is not used."""
    other = replace(FINDING, rule="x" * 30, summary="数据" * 60, evidence=FINDING.evidence * 3)
    full = report(FINDING, other, ended=(Ended(finding=other, until_unix_seconds=START + 9),))
    for page in (diagnosis_page(full, width=width), diagnosis_page(report(), width=width)):
        assert max(map(cell_width, page.splitlines())) <= min(max(width, 28), 100)


def test_findings_that_say_to_do_the_same_are_told_together() -> None:
    """Eight GPUs with one fault are one piece of advice."""
    several = [
        replace(FINDING, gpus=(f"GPU-{number}",), summary=f"GPU {number} waits for data")
        for number in range(8)
    ]
    page = diagnosis_page(report(*several), width=100)
    assert page.count("num_workers") == 1
    assert all(f"GPU {number} waits" in page for number in range(8))


def test_a_finding_of_a_file_says_from_when_to_when() -> None:
    """From its beginning on, as a person would look it up."""
    ended = Ended(finding=replace(FINDING, rule="tenant"), until_unix_seconds=START + 20)
    page = diagnosis_page(report(FINDING, source=LOG, ended=(ended,)), width=100)
    assert "loader_cpu_bound (93% sure, from 6s on to the end)" in page
    assert "tenant (93% sure, from 6s to 20s)" in page
    assert "gpus.csv: an nvidia-smi query log of 1 GPU over 30s, 30 readings, one every 1s." in page


def test_what_only_was_is_the_verdict_of_a_calm_end() -> None:
    """Nothing at the end is not nothing."""
    only_ended = report(source=LOG, ended=(Ended(finding=FINDING, until_unix_seconds=START + 9),))
    assert only_ended.found
    assert "earlier: GPU 0 waits" in only_ended.verdict


def test_nothing_found_says_what_was_seen() -> None:
    """Each GPU with its utilisation and power."""
    page = diagnosis_page(report())
    assert "GPU 0 (NVIDIA H200): busy 38% (0 to 99%), 312 W" in page
    assert "Needed for a diagnosis" not in page


@pytest.mark.parametrize(
    ("source", "words"),
    [(LIVE, "--for 2m"), (LOG, "-lms 200"), (replace(LOG, kind="recording"), "longer recording")],
)
def test_what_could_not_be_told_says_what_would_decide(source: SourceSeen, words: str) -> None:
    """Something a person can do, for each kind of source."""
    page = diagnosis_page(report(source=source, diagnosis=diagnosis(decided=False)))
    assert words in page


def test_without_utilisation_nothing_is_decided() -> None:
    """An engine that had nothing to look at does not acquit."""
    blind = report(gpus=(replace(GPU, readings=0, busy_percent=None),))
    assert not blind.decided
    assert "cannot be diagnosed" in blind.verdict
    assert "its utilisation was not read" in diagnosis_page(blind)


def test_without_a_gpu_the_trouble_is_the_verdict() -> None:
    """And there is no empty list under it."""
    none = report(gpus=(), problem="No driver was found.", diagnosis=diagnosis(decided=False))
    assert diagnosis_page(none).splitlines()[0] == "No driver was found."
    assert len(diagnosis_page(none).splitlines()) == 2


def test_colour_is_only_on_a_terminal_and_never_alone() -> None:
    """The severity is a word too."""
    assert "\x1b" not in diagnosis_page(report(FINDING))
    coloured = diagnosis_page(report(FINDING), colour=True)
    assert "\x1b[33mwarning:\x1b[0m" in coloured


def test_stacks_are_told_after_the_findings() -> None:
    """One line a process, also where it could not be sampled."""
    stacks = (StackReport(pid=4242, rank=0, problem="It may not be sampled.", refused=True),)
    page = diagnosis_page(report(FINDING, stacks=stacks))
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
        (47.256, "%", "47.3%"),
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
    assert evidence_line(evidence) == "workers 99% of a core each (threshold 75%)"


def test_the_json_names_advice_from_and_to() -> None:
    """The words of the design, not of Python."""
    (advice,) = json.loads(diagnosis_json(report(FINDING)))["findings"][0]["advice"]
    assert (advice["setting"], advice["from"], advice["to"]) == ("num_workers", "2", "8")
