"""Brief lines: what a machine says of itself, and the whole snapshots that are asked for."""

import io
from dataclasses import replace
from itertools import pairwise

import pytest

from gpuwatch import __version__
from gpuwatch.core.codec import CodecError, Decoder
from gpuwatch.core.model import BusySample, JobRank, Problem, Snapshot
from gpuwatch.outputs.brief import BriefWriter
from gpuwatch.recording.hosts.brief import Found, brief_of, decode, encode, upgrade_note
from tests.support.simulated import looks
from tests.support.snapshots import gpu, snapshot
from tests.tui.diagnoses import diagnosis, starved
from tests.tui.scenes import one_job


def snapshots_in(text: str) -> list[Snapshot]:
    decoder = Decoder()
    lines = [line for line in text.splitlines() if not line.startswith('{"kind":"brief"')]
    return [one for one in map(decoder.decode, lines) if isinstance(one, Snapshot)]


def test_a_line_says_what_a_list_shows() -> None:
    """How busy each GPU was since the line before, what is found with its cost, the first grave
    problem, and jobs that have ranks elsewhere; it is read as it was written."""
    fine = (BusySample(1.0, 10.0), BusySample(1.2, 30.0))
    cards = (gpu("GPU-a", 0, busy_percent=99.0, busy_samples=fine), gpu("GPU-b", 1))
    ranks = tuple([JobRank(pid=n, rank=n) for n in (0, 1)])
    what = snapshot(
        gpus=cards,
        jobs=(one_job(ranks=ranks, world_size=4, slurm_job="4711"), one_job(ranks=ranks)),
        problems=(
            Problem(source="host", message="odd", severity="info"),
            Problem(source="nvml", message="The driver hangs.", severity="error"),
        ),
    )
    finding = replace(starved(what), cost_gpu_seconds=12.34, cost_share=0.5, gpus=("GPU-a",))
    found = replace(diagnosis(what, finding), watched_seconds=60.0)
    brief = decode(encode(brief_of(what, found)))
    assert brief == brief_of(what, found)
    assert brief.gpuwatch == __version__
    assert brief.gpus[0].busy_percent == (10.0, 20.0, 30.0)
    assert brief.gpus[1].busy_percent is None
    assert brief.findings[0].summary == finding.summary
    assert brief.findings[0].short[-1] == "GPU 0 starved: workers maxed out"
    assert brief.findings[0].cost_gpu_seconds == 12.3
    assert brief.lost_gpus == 0.5
    assert brief.problem.message == "The driver hangs."
    assert [(job.called, job.key, job.ranks) for job in brief.jobs] == [
        ("job 4711", ("4711", 4), (0, 1))
    ]
    assert brief_of(what, replace(found, watched_seconds=20.0)).lost_gpus is None


def test_all_that_is_found_is_said_when_it_changes_and_now_and_then() -> None:
    """Where it was asked for: as the machine's own ledger has it, with its GPUs and jobs."""
    out = io.StringIO()
    writer = BriefWriter(out, findings=True)
    for one in looks("starved", 60):
        writer.write(one)
    lines = [decode(line) for line in out.getvalue().splitlines()]
    found = [one for one in lines if isinstance(one, Found)]
    assert len(lines) - len(found) == 60
    assert 6 <= len(found) <= 20
    (last,) = [one for one in found[-1].findings if one.rule == "loader_cpu_bound"]
    assert last.advice[0].setting == "num_workers"
    assert last.evidence
    assert [gpu.index for gpu in found[-1].gpus] == [0]
    assert [(job.pid, job.user) for job in found[-1].jobs] == [(last.job[0], "ada")]
    assert found[0].findings == ()


@pytest.mark.parametrize(
    "line",
    ["{", '{"kind":"brief"}', '{"kind":"brief","gpuwatch":"1","taken_at_unix_seconds":1e99}'],
)
def test_a_line_that_cannot_be_is_refused(line: str) -> None:
    """Also one whose numbers would overflow sums."""
    with pytest.raises(CodecError):
        decode(line)


def test_text_of_a_line_is_made_safe() -> None:
    """An escape code in it reaches no terminal."""
    brief = replace_verdict('"verdict":"\\u001b[31mred"')
    assert "\x1b" not in brief.verdict


def replace_verdict(text: str) -> object:
    line = encode(brief_of(snapshot(), None))
    return decode(line.replace('"interval_seconds"', f'{text},"interval_seconds"'))


@pytest.mark.parametrize(
    ("there", "says"),
    [
        (__version__, None),
        (None, None),
        ("99.0", f"gpuwatch is 99.0 there and {__version__} here: upgrade it here."),
        ("0.0.9", f"gpuwatch is 0.0.9 there and {__version__} here: upgrade it there."),
        ("older", f"gpuwatch is older there and {__version__} here: upgrade it there."),
    ],
)
def test_the_side_to_upgrade_is_named(there: str | None, says: str | None) -> None:
    """The older one."""
    assert upgrade_note(there) == says


def test_whole_snapshots_come_when_they_are_asked_for() -> None:
    """Those of the last ten minutes first (every one of the last minute, and one each 15 s before
    that), then each new one, until that is ended."""
    out = io.StringIO()
    writer, taken = BriefWriter(out), list(looks("starved", 642))
    for one in taken[:640]:
        writer.write(one)
    assert not snapshots_in(out.getvalue())
    assert decode(out.getvalue().splitlines()[-1]).findings[0].rule == "loader_cpu_bound"
    out.truncate(out.seek(0))
    writer.answer("full 0\n")
    history = snapshots_in(out.getvalue())
    whole = [one.sequence for one in taken[:640][-71:]]
    assert [one.sequence for one in history][-71:] == whole
    apart = [b.monotonic_seconds - a.monotonic_seconds for a, b in pairwise(history[:-71])]
    assert apart == [15.0] * 34
    assert {one.interval_seconds for one in history[:-71]} == {15.0}
    writer.write(taken[640])
    writer.answer("brief\n")
    writer.write(taken[641])
    assert [one.sequence for one in snapshots_in(out.getvalue())][-1] == taken[640].sequence
    assert out.getvalue().count('"kind":"brief"') == 2


def test_a_line_of_eight_gpus_is_short() -> None:
    """It is below 2 kB, with a finding."""
    out = io.StringIO()
    writer = BriefWriter(out)
    for one in looks("starved", 60, gpus=8):
        writer.write(one)
    assert decode(out.getvalue().splitlines()[-1]).findings
    assert max(map(len, out.getvalue().splitlines())) < 2000


def test_what_came_before_is_left_out_where_it_is_known() -> None:
    """Only what was read since a moment is sent; a question that is none is passed over."""
    out = io.StringIO()
    writer, taken = BriefWriter(out), list(looks("starved", 40))
    for one in taken:
        writer.write(one)
    for asked in ("full x", "", "rm -rf /", "full\x00"):
        writer.answer(asked)
    assert not snapshots_in(out.getvalue())
    writer.answer(f"full {taken[29].taken_at_unix_seconds}")
    found = [one.sequence for one in snapshots_in(out.getvalue())]
    assert found == [one.sequence for one in taken[30:]]
