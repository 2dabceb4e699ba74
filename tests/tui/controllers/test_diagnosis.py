"""The findings: under the header, as a list, in full, and before and after a change."""

import base64
import dataclasses
import re
from itertools import product
from typing import Any

import pytest

from gpuwatch.core.model import Job, Snapshot
from gpuwatch.diagnosis.catalogue import RULES, find
from gpuwatch.diagnosis.finding import (
    Advice,
    Diagnosis,
    Evidence,
    Finding,
    Gain,
    RuledOut,
    Unchecked,
)
from gpuwatch.tui.app import new_engine
from gpuwatch.tui.charts.strips import ASCII, UNICODE
from gpuwatch.tui.charts.timeline import FindingMark, Timeline
from gpuwatch.tui.pages import findings, overview
from gpuwatch.tui.pages.dialogs import unknown_dialog
from gpuwatch.tui.pages.findings import (
    EvidenceScreen,
    FindingsScreen,
    draw_evidence,
    evidence_body,
    plain_text,
)
from gpuwatch.tui.panels.findings import cause, change_in, place, present_findings
from gpuwatch.tui.runs import Runs, mark_now, measure_after
from gpuwatch.tui.terminal.frame import width_of
from gpuwatch.tui.view import View
from tests.diagnosis.rules.test_cases import firing_of, table
from tests.tui.app.test_hostile import HOSTILE
from tests.tui.controllers.test_stack_sampling import report
from tests.tui.diagnoses import HandEngine, degraded, diagnosis, nothing, several, starved
from tests.tui.driving import driven
from tests.tui.scenes import (
    controls,
    drawn,
    fresh,
    history_of,
    job_drawn,
    job_view_of,
    scene,
    texts,
    view_of,
    widths,
)
from tests.tui.terminal.emulator import AppOnTerminal

BRIEF = 46
"""Cells of the short form of advice."""
SIZES = ((120, 40), (80, 24), (40, 12), (20, 6))


def found(gpus: int = 2, **fields: Any) -> View:
    """A view of a starved machine with what is wrong with it."""
    what = scene("starved", gpus)
    return view_of(what, **({"diagnosis": several(what.now)} | fields))


def _index(now: Snapshot, of: Job) -> int:
    return next(n for n, one in enumerate(now.gpus) if one.uuid in of.gpu_uuids)


# -- under the header -------------------------------------------------------------------------


def test_the_job_screen_is_about_its_job() -> None:
    """Findings of other jobs are only counted there."""
    what = scene("starved", 8, attached=True)
    elsewhere = starved(what.now, 5)
    assert elsewhere.job != next(one.key for one in what.now.jobs if one.attached)
    view = job_view_of(what, diagnosis=diagnosis(what.now, elsewhere))
    assert "not enough data on this job yet (1 elsewhere" in job_drawn(view, 80, 24)[2]
    view.job.seen_seconds = 40.0
    assert "nothing found in this job (1 elsewhere" in job_drawn(view, 80, 24)[2]


def test_a_job_is_named_beside_its_finding_but_not_on_its_own_page() -> None:
    """There the first line says whose the page is."""
    what = scene("starved", 1, attached=True)
    found = diagnosis(what.now, starved(what.now))
    change, known = job_drawn(job_view_of(what, diagnosis=found), 200, 50)[3:5]
    assert "num_workers 2 -> 8" in change
    assert "sure, since" in known
    assert "PID" not in change + known
    on_overview = drawn(view_of(what, diagnosis=found), 200, 50)
    assert any("sure, since" in line and "PID 4242" in line for line in on_overview)


async def test_the_list_begins_with_the_findings_of_the_job_asked_for() -> None:
    """Those of other GPUs come after them, whatever they cost."""
    what = scene("starved", 8, attached=True)
    attached = next(one for one in what.now.jobs if one.attached)
    own = starved(what.now, _index(what.now, attached), cost_gpu_seconds=1.0)
    elsewhere = starved(what.now, 5, cost_gpu_seconds=900.0)
    assert elsewhere.job != attached.key
    engine = HandEngine(diagnosis(what.now, elsewhere, own))
    async with driven(what, engine=engine, attached=attached.key) as drive:
        await drive.press("d")
        places = [place(one, what.now.gpus) for one in (own, elsewhere)]
        assert drive.text.index(f"{places[0]} waits") < drive.text.index(f"{places[1]} waits")
        assert "2 findings, this job's first, watched" in drive.text


def test_places_are_told_as_people_count() -> None:
    """One GPU, several in a row, all of them, a process, the host."""
    what = scene("starved", 8).now
    uuids = [gpu.uuid for gpu in what.gpus]

    def of(*gpus: int, **fields: Any) -> str:
        one = starved(what, gpus=tuple([uuids[n] for n in gpus]), **fields)
        return place(one, what.gpus)

    assert of(3) == "GPU 3"
    assert of(0, 1) == "GPU 0,1"
    assert of(0, 1, 2, 5) == "GPU 0-2,5"
    assert of(*range(8)) == "8 GPUs"
    assert of(job=(4242, 1.0)) == "PID 4242"
    assert of(job=None) == "host"


def test_the_gpu_that_others_wait_for_has_a_word_of_its_own() -> None:
    """In a list of GPUs beside those that wait, and where a finding has a few words; the evidence
    draws it."""
    now = scene("starved", 8).now
    uuids = tuple([gpu.uuid for gpu in now.gpus])
    late = starved(now, rule="collective_wait", gpus=uuids, late=uuids[3:4])
    view = view_of(now, diagnosis=diagnosis(now, late))
    rows = [one.split() for one in drawn(view, 80, 24)[3:11]]
    said = [next(word for word in row if word.isalpha()) for row in rows]
    assert said == [*["waiting"] * 3, "straggler", *["waiting"] * 4]
    assert place(late, now.gpus) == "7 GPUs wait for GPU 3"
    assert place(dataclasses.replace(late, gpus=uuids[2:4]), now.gpus) == "GPU 2 waits for GPU 3"
    page = "\n".join(texts(findings.evidence_body(view, late, 120, tall=40)[0]))
    assert "GPU 0 busy" in page
    assert "GPU 3 busy" in page


def test_every_rule_has_a_cause_that_fits() -> None:
    """In words, at most 22 cells, no two alike."""
    causes = [cause(rule.name) for rule in RULES]
    assert max(map(width_of, causes)) <= 22
    assert len(set(causes)) == len(causes)
    assert not any("_" in one for one in causes)


# -- what others wrote ------------------------------------------------------------------------


@pytest.mark.parametrize("name", HOSTILE)
def test_nothing_in_a_finding_is_obeyed(name: str) -> None:
    """Names of processes and lines of code can be in it: panel, list, evidence, text."""
    text = HOSTILE[name]
    what = scene("starved", 2)
    one = starved(
        what.now,
        summary=text,
        evidence=(Evidence(name=text, value=text, says=text, unit=text),) * 2,
        advice=(Advice(action=text, setting=text, present=text, wanted=text, why=text),) * 2,
        ruled_out=(RuledOut(rule=text, why=text),),
    )
    told = Diagnosis(
        taken_at_unix_seconds=0.0,
        watched_seconds=1.0,
        verdict=text,
        findings=(one, degraded(what.now)),
        unknown=(Unchecked(rule=text, missing=(text,), gpus=one.gpus),),
    )
    for size, glyphs in product(SIZES, (UNICODE, ASCII)):
        view = view_of(what, diagnosis=told, glyphs=glyphs)
        pages = [overview.draw(view, *size).lines, findings.draw_findings(view, *size).lines]
        pages.append(findings.draw_evidence(view, one, *size, 0, documentation=None)[0].lines)
        calm = fresh(view, diagnosis=dataclasses.replace(told, findings=()))
        pages.append(overview.draw(calm, *size).lines)
        for lines in pages:
            assert widths(lines) == {size[0]}
            assert len(lines) == size[1]
            assert not controls("".join(texts(lines)))
        assert not controls(plain_text(view, one).replace("\n", ""))
        dialog = unknown_dialog(view, told.unknown)
        assert not controls(dialog.text.replace("\n", ""))


# -- the list and the evidence ----------------------------------------------------------------


async def test_a_finding_that_is_gone_stays_to_be_read() -> None:
    """Its evidence is kept as it was, and a line says so."""
    what = scene("starved", 1)
    engine = HandEngine(several(what.now))
    async with driven(what, engine=engine) as drive:
        await drive.press("d")
        assert "no longer holds" not in drive.text
        engine.diagnosis = nothing(what.now)
        await drive.next()
        assert "no longer holds" in drive.text
        assert "Raise num_workers" in drive.text
        await drive.press("escape", "d")
        assert isinstance(drive.app.screen, FindingsScreen)
        await drive.press("enter")
        assert "no finding to open" in drive.lines[-2]


async def test_a_finding_is_copied_by_the_terminal() -> None:
    """OSC 52 with the text of the finding: plain lines, no chart."""
    written: list[str] = []
    what = scene("starved", 1)
    engine = HandEngine(several(what.now))
    async with driven(what, app_type=AppOnTerminal, engine=engine) as drive:
        app = drive.app
        feed = app.terminal.feed
        app.terminal.feed = lambda data: (written.append(data), feed(data))[1]  # type: ignore[method-assign]
        await drive.press("d")
        await drive.press("y")
    (sent,) = re.findall(r"\x1b\]52;c;([A-Za-z0-9+/=]+)\x07", "".join(written))
    text = base64.b64decode(sent).decode()
    assert text.startswith("gpuwatch: sim-box, GPU 0: loader is CPU-bound\n")
    assert "Raise num_workers from 2 to 8." in text
    assert not set(text) & set(UNICODE.solid[1:])


# -- the engine -------------------------------------------------------------------------------


async def test_the_engine_sees_every_snapshot() -> None:
    """Also while the picture is paused: then what it says is shown when the picture goes on."""
    what = scene("starved", 1)
    engine = HandEngine(nothing(what.now))
    async with driven(what, engine=engine) as drive:
        await drive.press("p")
        engine.diagnosis = several(what.now)
        await drive.next()
        await drive.next()
        assert len(engine.pushed) == 3
        assert "waits for data" not in drive.text
        await drive.press("p")
        assert "GPU 0 waits for data 38%: 2 workers maxed out, 12 cores idle" in drive.lines[1]
        assert "num_workers 2 -> 8" in drive.lines[2]


async def test_a_starved_machine_is_diagnosed_on_the_screen() -> None:
    """With the real engine: within 15 seconds the line names the loader; its evidence has the
    documentation of the rule and the chart."""
    what = scene("starved", 1, seconds=20)
    async with driven(what.past[0], (120, 40), make_engine=new_engine) as drive:
        assert "Collecting data for a diagnosis" in drive.lines[2]
        for snapshot in what.past[1:16]:
            await drive.sampler.feed(snapshot)
        await drive.settle()
        assert "waited for data" in drive.lines[2]
        assert "num_workers 2 ->" in drive.lines[3]
        await drive.press("d")
        assert "loader is CPU-bound" in drive.text
        await drive.press("end")
        wrong = find("loader_cpu_bound").documentation.partition("When it is wrong")[2]
        assert wrong.split()[0] in drive.text
        assert "What to do\n" not in drive.text


async def test_stacks_are_told_to_the_engine() -> None:
    """What the main threads were seen doing decides between causes that look alike."""
    what = scene("starved", 1, attached=True)
    engine = HandEngine(nothing(what.now))
    job = what.now.jobs[0]
    async with driven(what, engine=engine, attached=job.key) as drive:
        drive.app.jobs.show_stacks([report(pid=job.pid)])
        await drive.settle()
        assert drive.dialog is not None
    ((key, noted),) = engine.stacks
    assert key == job.key
    assert noted[:2] == (
        ("waiting_for_data", 60.0, "train.py:41 (train_one_epoch)"),
        ("computing", 39.5, None),
    )


# -- before and after -------------------------------------------------------------------------


def busy_at(what: Snapshot, seconds: float, percent: float) -> Snapshot:
    """``what`` so many seconds later, its GPUs this busy all the time."""
    gpus = tuple(
        dataclasses.replace(
            gpu, reading=dataclasses.replace(gpu.reading, busy_percent=percent, busy_samples=None)
        )
        for gpu in what.gpus
    )
    return dataclasses.replace(
        what,
        gpus=gpus,
        sequence=what.sequence + int(seconds),
        taken_at_unix_seconds=what.taken_at_unix_seconds + seconds,
        monotonic_seconds=what.monotonic_seconds + seconds,
    )


def test_a_mark_shows_before_and_after() -> None:
    """Busy before and after, how much faster it is beside what was predicted, what is gone and what
    is new; nothing is said at once."""
    what = scene("starved", 1).now
    past = [busy_at(what, second, 41.0) for second in range(60)]
    view = view_of(past[-1])
    view.history = history_of(past)
    gain = Gain(factor=2.4, low=2.1, high=2.4, limited_by="the GPU")
    found = diagnosis(what, starved(what, gain=gain))
    view.mark = mark_now(view, past[-1], found, Runs())
    assert "busy 41% -> measuring" in drawn(view, 80, 24)[1]
    for second in range(60, 140):
        view.snapshot = busy_at(what, second, 93.0)
        view.history.push(view.snapshot)
        measure_after(view.mark, view, view.snapshot, diagnosis(what, degraded(what)))
    view.strips = type(view.strips)()
    (line,) = [text for text in drawn(view, 160, 40) if "changed" in text]
    assert "busy 41% -> 93%" in line
    assert "(1m20 ago)" in line
    assert "2.3x as fast (2.4x predicted)" in line
    assert "gone: loader is CPU-bound" in line
    assert "new: PCIe link degraded" in line


@pytest.mark.parametrize(
    ("width", "says"),
    [
        (40, "GPU 0 starved: workers maxed out"),
        (80, "GPU 0 waits for data 38%: 2 workers maxed out, 12 cores idle"),
        (
            120,
            "GPU 0 waits for data 38% of the time: 2 loader workers are at their limit, 12 cores",
        ),
    ],
)
def test_the_verdict_is_the_longest_sentence_that_fits(width: int, says: str) -> None:
    """It is never cut, and the change to make is there in full."""
    what = scene("starved", 1).now
    lines = drawn(view_of(what, diagnosis=diagnosis(what, starved(what))), width, 24)
    assert f" {UNICODE.warning} {says}" in "\n".join(lines)
    assert "num_workers 2 -> 8" in "\n".join(lines)


def test_a_quiet_verdict_leaves_out_what_stands_in_brackets() -> None:
    """Of what time it is, where there is no room for it."""
    what = scene("healthy", 8).now
    says = "GPUs 0 to 7 are kept busy: 98%"
    view = view_of(what, diagnosis=nothing(what, f"{says} (last minute)."))
    assert f"{says} (last minute)." in "\n".join(drawn(view, 80, 24))
    assert f"{says}." in "\n".join(drawn(view, 40, 12))


def test_a_finding_in_doubt_is_as_much_in_doubt_where_it_is_short() -> None:
    """Where its sentence has no room and no short form (one of an older gpuwatch), and in what to
    change; one that is sure is plain."""
    what = scene("starved", 1).now
    raised = Advice(
        "Raise num_workers.", setting="num_workers", present="0", wanted="3", check_first=True
    )
    one = starved(
        what,
        rule="loader_in_main_process",
        summary="GPU 0 " + 20 * "waits ",
        short=(),
        advice=(raised,),
    )
    text = "\n".join(drawn(view_of(what, diagnosis=diagnosis(what, one)), 80, 24))
    assert "GPU 0: may load in main process" in text
    assert "if so, num_workers 0 -> 3" in text
    sure = dataclasses.replace(one, advice=(dataclasses.replace(raised, check_first=False),))
    text = "\n".join(drawn(view_of(what, diagnosis=diagnosis(what, sure)), 80, 24))
    assert "GPU 0: loads in main process" in text
    assert "if so" not in text


# -- the cursor in the panel ------------------------------------------------------------------


async def test_enter_on_a_line_of_the_overview_opens_its_evidence() -> None:
    """Up from the first GPU; down goes back to the GPUs; the cursor is to be seen."""
    what = scene("starved", 2)
    async with driven(what, engine=HandEngine(several(what.now))) as drive:
        marker = UNICODE.marker
        await drive.press("up")
        shown = [zone.y for zone in drive.zones("finding")]
        last = shown[-1]
        assert drive.lines[last].startswith(marker)
        await drive.press("enter")
        assert isinstance(drive.app.screen, EvidenceScreen)
        await drive.press("escape")
        assert not isinstance(drive.app.screen, FindingsScreen)
        await drive.press("up", "up", "up")
        assert drive.lines[shown[0]].startswith(marker)
        await drive.press(*["down"] * len(shown))
        assert not drive.view.in_findings
        assert not any(drive.lines[y].startswith(marker) for y in shown)
        await drive.press("down")
        assert drive.view.selected_gpu == what.now.gpus[1].uuid


async def test_enter_on_a_line_of_the_job_opens_its_evidence() -> None:
    """Up from its first process."""
    what = scene("starved", 1, attached=True)
    engine = HandEngine(several(what.now))
    async with driven(what, engine=engine, attached=what.now.jobs[0].key) as drive:
        await drive.press("up", "up")
        assert drive.view.in_findings
        await drive.press("enter")
        assert isinstance(drive.app.screen, EvidenceScreen)
        assert "what to do" in drive.text
        await drive.press("escape", "down")
        assert not drive.view.in_findings
        assert drive.view.job.selected == drive.job_screen.shown.table[0].member.key


async def test_the_cursor_leaves_the_panel_with_the_last_finding() -> None:
    """What clears while the cursor is on it gives it back to the GPUs."""
    what = scene("starved", 2)
    engine = HandEngine(several(what.now))
    async with driven(what, (120, 40), engine=engine) as drive:
        await drive.press("up")
        engine.diagnosis = diagnosis(what.now, degraded(what.now, 1))
        await drive.next()
        assert drive.view.in_findings
        assert drive.lines[2].startswith("\u2502" + UNICODE.marker)
        engine.diagnosis = nothing(what.now)
        await drive.next()
        assert not drive.view.in_findings
        await drive.press("enter")
        assert not isinstance(drive.app.screen, EvidenceScreen)


# -- what shows it ----------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("rule", "label"),
    [
        ("checkpoint_pauses", "disk write"),
        ("loader_io_bound", "disk read"),
        ("memory_growing", "GPU 0 memory"),
        ("thermal_throttle", "GPU 0 temp"),
        ("power_throttle", "GPU 0 power"),
    ],
)
def test_the_waveform_has_the_reading_that_shows_it(rule: str, label: str) -> None:
    """Writes for checkpoints, reads for storage, memory where it grows: with a number of now."""
    what = scene("checkpoint", 1)
    one = starved(what.now, rule=rule)
    view = view_of(what, diagnosis=diagnosis(what.now, one))
    frame, _ = findings.draw_evidence(view, one, 80, 90, 0, documentation=None)
    (line,) = [text for text in texts(frame.lines) if text.startswith(f"\u2502  {label}")]
    assert re.search(r" [0-9.]+(%|[KMG]?B?(/s)?|W|C) +[0-9KMGWC]* *\u2502", line), line
    other = starved(what.now, rule="loader_cpu_bound")
    frame, _ = findings.draw_evidence(view, other, 80, 90, 0, documentation=None)
    assert not any(text.startswith(f"\u2502  {label}") for text in texts(frame.lines))


@pytest.mark.parametrize(
    ("rule", "there", "not_there"),
    [
        ("thermal_throttle", ("GPU 0 clock", "GPU 0 temp"), ("main thread", "8 workers")),
        ("checkpoint_pauses", ("disk write", "main thread", "8 workers"), ("GPU 0 clock",)),
    ],
)
def test_charts_of_those_who_feed_gpus_are_there_where_gpus_idle(
    rule: str, there: tuple[str, ...], not_there: tuple[str, ...]
) -> None:
    """A throttled GPU is fed: what got lower is drawn instead."""
    what = scene("checkpoint", 1)
    one = starved(what.now, rule=rule)
    view = view_of(what, diagnosis=diagnosis(what.now, one))
    lines = texts(findings.draw_evidence(view, one, 80, 90, 0, documentation=None)[0].lines)
    charts = [text for text in lines if re.search(r"\d[MGWC]?\u2502", text)]
    for label in there:
        assert any(label in text for text in charts), label
    for label in not_there:
        assert not any(label in text for text in charts), label


def test_the_cursor_is_seen_where_the_gpu_idles() -> None:
    """Idle spans have a ground of their own, and the cursor within one has its own."""
    what = scene("starved", 1)
    one = starved(what.now, evidence=(Evidence("idle GPU", 62.0, "%"),))
    mark = FindingMark(
        rule=one.rule, severity="warning", summary="", gpus=one.gpus, begin_seconds=0.0
    )
    view = view_of(what, diagnosis=diagnosis(what.now, one), spans=(mark,))
    now = what.now.monotonic_seconds
    shown = set()
    for back in range(1, 13):
        view.timeline = Timeline(30.0).with_cursor(now - back, now)
        frame, _ = findings.draw_evidence(view, one, 120, 60, 0, documentation=None)
        runs = [run for line in frame.lines for run in line]
        assert any("/starved" in style for _, style in runs)
        shown |= {style.count(":") for _, style in runs}
        assert any(style.startswith("c:") for _, style in runs), back
    assert shown == {0, 1}


@pytest.mark.parametrize(
    ("fields", "second"),
    [
        ({}, "38% lost; 46 GPU-seconds so far   PID 4242 train"),
        ({"lost_watts": 87.0}, "38% lost; 46 GPU-seconds, 1.1Wh so far   PID 4242 train"),
        (
            {"lost_watts": 300.0, "lost_of_seconds": 60.0, "cost_gpu_seconds": 46e7},
            "38% lost over 1 min; 127777.8 GPU-hours   PID 4242",
        ),
    ],
)
def test_where_a_finding_stands_is_said_in_two_lines(fields: dict[str, float], second: str) -> None:
    """At 80 columns: how sure it is, what a cure gains, what is lost, whose it is; a gain without
    its limit and a loss without its energy where there is no room for all."""
    what = scene("starved", 1)
    gain = Gain(1.8, 1.5, 2.0, "8 cores of this machine")
    one = starved(what.now, gain=gain, **fields)
    view = view_of(what, diagnosis=diagnosis(what.now, one))
    shown = texts(draw_evidence(view, one, 80, 24, 0, documentation=None)[0].lines)
    below = next(n for n, line in enumerate(shown) if "92% sure" in line)
    assert "92% sure, since 22:27:53 (2m07)   about 1.8x as fast (1.5 to 2.0)" in shown[below]
    assert second in shown[below + 1]
    assert "what to do" in shown[below + 2]


def test_why_other_causes_were_ruled_out_comes_before_what_the_rule_is() -> None:
    """It stands below the evidence, and on wide pages beside it."""
    what = scene("starved", 1)
    one = starved(what.now)
    view = view_of(what, diagnosis=diagnosis(what.now, one))
    text = "\n".join(texts(draw_evidence(view, one, 80, 90, 0, documentation="About.")[0].lines))
    places = [text.index(words) for words in ("evidence,", "no worker waits for a disk", "about: ")]
    assert sorted(places) == places
    assert "ruled out\n   loader waits for I/O" in findings.plain_text(view, one)
    wide = texts(draw_evidence(view, one, 200, 50, 0, documentation="About.")[0].lines)
    assert any("reading" in line and "no worker waits for a disk" in line for line in wide)


def test_the_list_shows_what_speaks_for_the_chosen_finding() -> None:
    """What speaks against other causes is on its page, and its name is the title of the rest."""
    what = scene("starved", 1)
    view = view_of(what, diagnosis=diagnosis(what.now, starved(what.now)))
    text = "\n".join(texts(findings.draw_findings(view, 120, 40).lines))
    assert "GPU 0: loader is CPU-bound" in text
    assert "the workers are at the limit" in text
    assert "ruled out" not in text
    assert "what to do" not in text


def test_what_each_finding_lost_ends_its_first_line() -> None:
    """A note says why it comes last all the same: it slows no job."""
    what = scene("starved", 2)
    note = dataclasses.replace(
        starved(what.now, 1), rule="idle_holding_memory", severity="info", lost_share=1.0
    )
    found = (starved(what.now, lost_share=0.38), note)
    view = view_of(what, diagnosis=diagnosis(what.now, *found))
    lines = texts(findings.draw_findings(view, 120, 40).lines)
    ends = [line.rstrip("\u2502 ") for line in lines if line.rstrip("\u2502 ").endswith(" lost")]
    assert [end.split("   ")[-1].strip() for end in ends] == ["38% lost", "100% lost"]
    assert ends[1].endswith("slows no job   100% lost")


def test_numbers_beside_charts_are_of_the_time_of_the_sentence() -> None:
    """Charts of more time show what was before it, which would water them down."""
    what = scene("throttled", 1, seconds=90)
    engine = new_engine()
    for snapshot in what.past:
        engine.push(snapshot)
    engine.finish()
    (found,) = engine.diagnosis.causes[:1]
    assert found.rule == "thermal_throttle"
    assert found.since_unix_seconds is not None
    ago = what.now.taken_at_unix_seconds - found.since_unix_seconds
    mark = FindingMark(
        rule=found.rule,
        severity=found.severity,
        summary="",
        gpus=found.gpus,
        begin_seconds=what.now.monotonic_seconds - ago,
    )
    view = view_of(what, diagnosis=engine.diagnosis, spans=(mark,))
    lines = texts(draw_evidence(view, found, 80, 24, 0, documentation=None)[0].lines)
    assert any(", numbers: 1 min " in line for line in lines), lines
    numbers = "\n".join(lines)
    busy, effective, clock = [
        float(re.search(pattern, numbers)[1])  # type: ignore[index]
        for pattern in (r"busy +(\d+)%", r"effective +(\d+)%", r"clock +(\d+)MHz")
    ]
    assert effective == pytest.approx(busy * clock / 1980.0, abs=2.0)


def test_a_long_name_of_a_reading_is_broken_for_what_it_means() -> None:
    """The meaning keeps its column at 80 cells."""
    what = scene("starved", 1)
    long = Evidence("main thread's CPU while the GPU idles", 4.0, "%", 60.0, "it waits")
    one = starved(what.now, evidence=(long,))
    view = view_of(what, diagnosis=diagnosis(what.now, one))
    lines = texts(draw_evidence(view, one, 80, 90, 0, documentation=None)[0].lines)
    at = next(place for place, line in enumerate(lines) if "main thread's CPU" in line)
    assert re.search(r"\+ main thread's CPU while the +4%  .* it waits", lines[at])
    assert lines[at + 1].strip("\u2502 ") == "GPU idles"


def test_readings_of_one_gpu_are_not_named_by_it() -> None:
    """The sentence has its number; where it has another, or two, each reading has its own."""
    what = scene("starved", 2)
    readings = [Evidence(f"GPU {number} busy", 47.0, "%", 80.0, "low") for number in (0, 1)]
    for about, evidence, named in ((0, readings[:1], False), (1, readings[:1], True),
                                   (0, readings, True)):  # fmt: skip
        one = starved(what.now, about, evidence=tuple(evidence))
        view = view_of(what, diagnosis=diagnosis(what.now, one))
        lines = texts(draw_evidence(view, one, 80, 90, 0, documentation=None)[0].lines)
        assert any("+ GPU 0 busy" in line for line in lines) == named


def test_charts_of_a_finding_have_the_rows_that_nothing_else_has() -> None:
    """Up to twice as many as on a page that is full, and the same while a sentence gets longer by a
    line."""
    what = scene("starved", 1)
    view = view_of(what, diagnosis=diagnosis(what.now, starved(what.now)))

    def rows(summary: str, height: int) -> int:
        one = starved(what.now, summary=summary, short=())
        shown = texts(draw_evidence(view, one, 120, height, 0, documentation=None)[0].lines)
        first = next(n for n, line in enumerate(shown) if "GPU 0 busy" in line)
        return next(n for n, line in enumerate(shown) if "2 workers" in line) - first

    assert [rows("It waits.", height) for height in (32, 44, 90)] == [3, 6, 12]
    assert rows("It waits. " * 14, 44) == rows("It waits.", 44)


async def test_the_waveform_of_a_finding_that_cleared_stays() -> None:
    """Its chart ends where it was last found, while time goes on."""
    what = scene("starved", 1)
    engine = HandEngine(several(what.now))

    def chart(lines: list[str]) -> list[str]:
        top = next(n for n, line in enumerate(lines) if "its last" in line)
        return [line.partition("\u2502")[2] for line in lines[top + 1 : top + 4]]

    async with driven(what, (120, 40), engine=engine) as drive:
        await drive.press("d")
        engine.diagnosis = nothing(what.now)
        await drive.feed(busy_at(what.now, 1, 3.0))
        at = drive.app.screen
        assert isinstance(at, EvidenceScreen)
        before = chart(drive.lines)
        for second in range(2, 30):
            await drive.sampler.feed(busy_at(what.now, second, 3.0))
        await drive.settle()
        assert chart(drive.lines) == before


def test_a_lost_gpu_is_said_once() -> None:
    """By the finding, which says what to do; until there is one by the line of problems."""
    what = scene("lost", 2, seconds=45)
    (lost,) = [gpu for gpu in what.now.gpus if gpu.lost]
    view = view_of(what)
    before = "\n".join(drawn(view, 120, 40))
    assert "no answer" in before
    one = Finding(
        rule="gpu_lost",
        severity="error",
        confidence=1.0,
        summary="GPU 1 fell off the bus.",
        gpus=(lost.uuid,),
        since_unix_seconds=what.now.taken_at_unix_seconds - 25.0,
    )
    view = view_of(what, diagnosis=diagnosis(what.now, one))
    after = "\n".join(drawn(view, 120, 40))
    assert "fell off the bus, and the jobs" in before
    assert "fell off the bus, and the jobs" not in after
    assert "GPU 1 fell off the bus." in after
    # Its chart ends soon after the loss, however long ago that is.
    for each in (view, view_of(busy_at(what.now, 1200, 0.0), history=what.history)):
        shown = texts(evidence_body(each, one, 120, tall=40)[0])
        top = next(n for n, line in enumerate(shown) if "its last 30 seconds" in line)
        assert shown[top + 1].split()[:4] == ["GPU", "1", "busy", "-"]
        assert "█" * 20 in shown[top + 3]


def test_what_holds_no_longer_is_listed_where_nothing_does() -> None:
    """The last one first, each from when to when."""
    what = scene("healthy", 1)
    view = view_of(what, diagnosis=nothing(what.now))
    view.spans = [
        FindingMark(
            rule="gpu_lost", severity="error", summary=text, begin_seconds=at, end_seconds=end
        )
        for text, at, end in (("first", 990.0, 995.0), ("then", 996.0, 999.0), ("now", 998.0, None))
    ]
    shown = texts(findings.draw_findings(view, 80, 24).lines)
    top = next(n for n, line in enumerate(shown) if " earlier " in line)
    assert [line.split()[1:] for line in shown[top + 1 : top + 4]] == [
        ["■", "then"],
        ["■", "first"],
        [],
    ]


@pytest.mark.parametrize("size", [(80, 24), (120, 40), (200, 50)], ids=str)
def test_the_evidence_for_many_gpus_shows_one_of_them_all_of_them_and_who_feeds_them(
    size: tuple[int, int],
) -> None:
    """Also where the finding is one of several jobs; the table begins on the first page."""
    what = scene("starved", 8, seconds=60)
    engine = new_engine()
    for snapshot in (*what.past, what.now):
        engine.push(snapshot)
    engine.finish()
    found = engine.diagnosis
    view = view_of(what, diagnosis=found)
    one = found.causes[0]
    assert len(one.members) > 1
    shown = texts(draw_evidence(view, one, *size, 0, documentation=None)[0].lines)
    text = "\n".join(shown)
    for label in ("GPU 0 busy", "all 8 GPUs", "main threads", "8 workers"):
        assert sum(label in line[:28] for line in shown) == 1, label
    assert "GPU 1 busy" not in text
    assert "reading" in text


@pytest.mark.parametrize("size", [(80, 24), (120, 40)], ids=str)
async def test_without_a_driver_the_findings_say_so(size: tuple[int, int]) -> None:
    """No GPU can be read: whether one is in use is not known."""
    what = scene("no_gpu", 0, seconds=20)
    async with driven(what.past[0], size, make_engine=new_engine) as drive:
        for snapshot in what.past[1:]:
            await drive.sampler.feed(snapshot)
        await drive.settle()
        assert drive.view.diagnosis.verdict == "No GPU can be read."
        await drive.press("d")
        text = " ".join(" ".join(drive.lines).replace("│", " ").split())
        assert what.now.problems[0].message in text
        assert "No GPU is in use" not in text


def all_advice() -> list[Any]:
    """What each rule advises in each of its cases."""
    advised = {}
    for case in table("fires"):
        rule, window, *_ = case.values
        firing = firing_of(rule, window)
        for one in firing.advice if firing.advice is not None else find(rule).cure:
            advised.setdefault((one.change, one.brief), pytest.param(one, id=f"{rule}-{one.brief}"))
    return list(advised.values())


@pytest.mark.parametrize("advice", all_advice())
def test_advice_is_never_cut(advice: Advice) -> None:
    """At 80 columns there is all of it, or its short form, beside ``38% of 4 GPUs lost``; where
    there is room for all of it, it is said in full."""
    shown = change_in(advice.change, advice.brief, BRIEF)
    assert width_of(shown) <= BRIEF
    assert not shown.endswith((".", "…"))
    assert change_in(advice.change, advice.brief, 400) == advice.change


def test_a_share_of_all_gpus_is_told_from_that_of_those_that_wait() -> None:
    """Three GPUs wait half of the time for the fourth: of all four that is less, and says so; the
    sum of the header is of as many."""
    what = scene("imbalanced", 4, seconds=60)
    engine = new_engine()
    for snapshot in (*what.past, what.now):
        engine.push(snapshot)
    view = view_of(what, diagnosis=engine.diagnosis)
    text = " ".join(drawn(view, 120, 40))
    assert "spend 51% of the time waiting" in text
    assert "38% of 4 GPUs lost" in text
    assert "1.5 of 4 GPUs' time lost" in text
    (one,) = engine.diagnosis.causes
    assert "38% of 4 GPUs lost over" in "\n".join(
        texts(draw_evidence(view, one, 80, 24, 0, documentation=None)[0].lines)
    )


def test_orphans_of_several_jobs_are_one_finding_with_a_list() -> None:
    """They are said once, and the evidence has a row for each job."""
    what = scene("starved", 8, seconds=30)
    now = what.now
    each = [
        Finding(
            rule="orphaned_workers",
            severity="warning",
            confidence=0.9,
            summary=f"{count} loader workers have outlived the training process",
            job=job.key,
        )
        for count, job in zip((2, 3), now.jobs, strict=False)
    ]
    one = dataclasses.replace(each[0], job=None, members=tuple(each))
    found = dataclasses.replace(diagnosis(now, *each), causes=(one,))
    view = view_of(now, diagnosis=found)
    after = "\n".join(drawn(view, 120, 40))
    assert after.count("outlived") == 1
    rows = [line for line in texts(evidence_body(view, one, 120)[0]) if "outlived" in line]
    assert [row.split()[2] for row in rows] == ["2", "3"]


def test_the_evidence_of_several_jobs_says_which_it_is_of() -> None:
    """That of the job that loses most, as the charts are."""
    now = scene("starved", 8, seconds=30).now
    each = [
        starved(
            now,
            job=job.key,
            gpus=job.gpu_uuids,
            cost_gpu_seconds=cost,
            evidence=(Evidence("idle GPUs", cost, "%", 10.0),),
        )
        for cost, job in zip((58.0, 69.0), now.jobs, strict=False)
    ]
    merged = dataclasses.replace(each[0], job=None, members=tuple(each))
    view = view_of(now, diagnosis=dataclasses.replace(diagnosis(now, *each), causes=(merged,)))
    text = "\n".join(texts(evidence_body(view, merged, 80)[0]))
    name = place(each[1], view.gpus)
    assert f"evidence, the last minute: {name} " in text
    assert "69%" in text
    assert "58%" not in text
    alone = "\n".join(texts(evidence_body(view, each[0], 80)[0]))
    assert "evidence, the last minute \u2500" in alone


def test_information_never_stands_above_a_warning() -> None:
    """Not even where it is about the job that is looked at."""
    what = scene("starved", 8)
    first, second = what.now.jobs[:2]
    good = dataclasses.replace(starved(what.now, job=first.key), severity="info")
    bad = starved(what.now, 4, job=second.key, rule="loader_io_bound")
    view = view_of(what, diagnosis=diagnosis(what.now, bad, good))
    view.job.last = first
    assert [one.severity for one in present_findings(view)] == ["warning", "info"]
