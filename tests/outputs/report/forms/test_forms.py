"""The report of a recording as text and JSON, and two of them compared."""

import json
import re
from dataclasses import replace

import msgspec
import pytest

from gpuwatch.diagnosis.finding import Advice
from gpuwatch.outputs.report.comparison import Comparison, compare, comparison_verdict
from gpuwatch.outputs.report.document import comparison_json, phase_columns
from gpuwatch.outputs.report.model import Report, replaced
from gpuwatch.outputs.report.text import report_text
from gpuwatch.outputs.terminal import cell_width
from tests.support.recordings import comparison_text, simulated, summed

SGR = re.compile(r"\x1b\[\d*m")


def test_colours_change_no_letter(summaries: dict[str, Report]) -> None:
    """Of a report with findings, phases, charts and tables."""
    plain = report_text(summaries["mixed"], width=80)
    assert max(map(cell_width, plain.split("\n"))) <= 80
    assert SGR.sub("", report_text(summaries["mixed"], width=80, colour=True)) == plain


def test_the_text_tells_the_cause_when_and_what_to_do(summaries: dict[str, Report]) -> None:
    """The verdict first, the chart with a lane for the finding, then the advice."""
    text = report_text(summaries["starved"])
    lines = text.split("\n")
    assert lines[0] == "SIMULATED: none of this ran."
    assert lines[1].startswith("The GPUs were busy")
    assert "waited for data" in " ".join(lines[:5])
    assert any(line.startswith("   #1 ━━━") for line in lines)
    assert "num_workers" in text
    assert "2026-03-01 20:00:00 to 20:01:38 (1m38) · local time, UTC" in text


def test_healthy_is_said_to_be_healthy(summaries: dict[str, Report]) -> None:
    """In the first lines; a GPU that was lost with its time, and the rest is there."""
    assert "Nothing wrong was found." in report_text(summaries["healthy"])[:120]
    assert "GPU 1: lost, 20:00:18 to 20:01:18 (1m00)" in report_text(summaries["lost"])


def test_the_phases_lose_what_the_verdict_says(summaries: dict[str, Report]) -> None:
    """Also the time in which a GPU did not answer: it is a phase of its own."""
    report = summaries["lost"]
    (use,) = [one for one in report.findings if one.rule == "gpu_lost"]
    lost = [one for phase in report.phases for one in phase.lost if one.to == "gpu_lost"]
    # The moment before it was noticed is a part of the work.
    assert sum([one.gpu_seconds for one in lost]) == pytest.approx(use.cost_gpu_seconds, abs=1.0)
    (gone,) = [phase for phase in report.phases if phase.kind == "lost"]
    assert (gone.seconds, gone.busy_percent) == (pytest.approx(60.0), None)
    assert "20:00:18  20:01:18  1m00     -  1m00 GPU does not answer" in report_text(report)


def test_the_verdict_on_several_findings_has_what_was_lost_in_all(
    summaries: dict[str, Report],
) -> None:
    """Each says what it cost with what to do; one alone is not added up."""
    text = " ".join(report_text(summaries["mixed"], width=140).split())
    assert re.search(r"\d other findings? below; lost in all: .* of all GPU time", text)
    assert "lost in all" not in report_text(summaries["starved"])


def test_a_cause_in_doubt_is_named_as_one(summaries: dict[str, Report]) -> None:
    """In the heading of the finding, and in the phase that lost time to it."""
    report = summaries["main_process"]
    check = Advice("Check whether it loads.", check_first=True)
    uses = [
        replaced(one, advice=(check, *[replace(x, check_first=False) for x in one.advice]))
        for one in report.findings
        if one.rule == "loader_in_main_process"
    ]
    sure = [replaced(one, advice=one.advice[1:]) for one in uses]
    for findings, named in ((uses, "may load in main process"), (sure, "loads in main proc")):
        said = replaced(report, findings=tuple(findings))
        text = report_text(said)
        assert f"warning: {named}" in text
        assert named in phase_columns(said)[-1].cell(said.phases[0])


def test_a_log_without_dates_has_times_from_its_start(summaries: dict[str, Report]) -> None:
    """1970 is not when it was."""
    taken = [
        replace(s, taken_at_unix_seconds=s.monotonic_seconds)
        for s in simulated("healthy", 60, gpus=1)
    ]
    text = report_text(summed(taken))
    assert "1970" not in text
    assert "from the start: the log has no dates" in text


@pytest.mark.parametrize(
    ("before", "after", "state", "judged"),
    [("starved", "healthy", "gone", "better"), ("healthy", "starved", "new", "worse"),
     ("starved", "starved", "still", "same")],
)  # fmt: skip
def test_two_are_compared(
    summaries: dict[str, Report], before: str, after: str, state: str, judged: str
) -> None:
    """What was repaired is gone, and the other way round it is new, with what to do about it."""
    comparison = compare(summaries[before], summaries[after])
    found = {name: comparison.rules_in(name) for name in ("gone", "new", "still")}
    assert found == {"gone": [], "new": [], "still": []} | {state: ["loader_cpu_bound"]}
    assert comparison.doubts == ()
    assert comparison.figure("busy_percent").judged == judged
    assert comparison.figure("oscillating_percent").judged == judged
    if state == "still":
        assert {row.judged for row in comparison.figures} <= {"same", None}
    first, second = (summaries[name].total.busy_percent or 0.0 for name in (before, after))
    assert comparison.figure("busy_percent").difference == pytest.approx(second - first)
    assert (f"{second - first:.0f} points more" in comparison_verdict(comparison)) == (
        state == "gone"
    )
    assert ("num_workers" in comparison_text(comparison)) == (state != "gone")


def test_what_cannot_be_compared_is_said(summaries: dict[str, Report]) -> None:
    """Other GPUs, and a length that is much another."""
    mixed = summaries["mixed"]
    end = mixed.time.begin_unix_seconds + 3600
    longer = replaced(mixed, time=replaced(mixed.time, end_unix_seconds=end))
    text = comparison_text(compare(summaries["starved"], longer))
    assert "Hard to compare: The GPUs differ" in text
    assert "much longer" in text


@pytest.mark.parametrize("scenario", ["mixed", "no_gpu"])
def test_comparisons_fit_and_are_as_their_schema_says(
    summaries: dict[str, Report], scenario: str
) -> None:
    """As text at 80 columns, as JSON."""
    comparison = compare(summaries["starved"], summaries[scenario])
    assert max(cell_width(line) for line in comparison_text(comparison).split("\n")) <= 80
    value = json.loads(comparison_json(comparison))
    assert msgspec.convert(value, Comparison).verdict
