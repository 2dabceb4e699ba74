"""The knobs of practice jobs and the causes they make; nothing is started here."""

from __future__ import annotations

from dataclasses import fields
from pathlib import Path

import pytest

from gpuwatch.diagnosis.catalogue import RULES
from gpuwatch.sources.simulated import SCENARIOS
from gpuwatch.workloads import control, train
from gpuwatch.workloads.causes import CAUSES, UNPRACTISED, Cause, Unpractised, find
from gpuwatch.workloads.knobs import KnobError, Knobs, changed, differences, given, parse_cores


def test_every_rule_has_a_job_or_a_reason() -> None:
    """Each cause that the diagnosis knows can be practised, or it is said why not."""
    practised = set(CAUSES) - {"healthy"} | {one.name for one in UNPRACTISED}
    assert practised == {rule.name for rule in RULES}


@pytest.mark.parametrize("other", UNPRACTISED, ids=lambda one: one.name)
def test_what_cannot_be_practised_can_be_seen(other: Unpractised) -> None:
    """The scenario that stands in for such a cause is there."""
    assert other.demo in SCENARIOS


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda one: one.name)
def test_a_cure_turns_something(cause: Cause) -> None:
    """Every cause but health has knobs that make it, and a cure that changes them."""
    if cause.name == "healthy":
        assert cause.knobs == cause.cured == Knobs()
    elif cause.name != "cpu_misplaced":
        # Which cores are far away is known on the machine only.
        assert cause.knobs != Knobs()
        assert differences(cause.knobs, cause.cured)
    assert set(cause.cure) <= {knob.name for knob in fields(Knobs) if not knob.metadata["fixed"]}


def test_found_with_dashes() -> None:
    """A cause is found as it is written by hand."""
    assert find(" Loader-CPU-bound ") is CAUSES["loader_cpu_bound"]
    assert find("nothing") is None


def test_a_control_file_is_followed(tmp_path: Path) -> None:
    """What is written counts from the next look on, and what is taken out is back."""
    followed = control.Control(tmp_path / control.FILE_NAME, Knobs(workers=1))
    assert not followed.turned()
    control.turn(tmp_path, {"workers": 3, "sync": True})
    assert followed.turned()
    assert (followed.knobs.workers, followed.knobs.sync) == (3, True)
    assert not followed.turned()
    control.turn(tmp_path, {})
    assert followed.turned()
    assert followed.knobs == Knobs(workers=1)


@pytest.mark.parametrize(
    "text",
    [
        "nothing=1", "workers", "workers=many", "workers=-1", "workers=1e9", "sync=maybe",
        "read=warm", "cores=3-1", "ranks=4", "transform_ms=nan", "\x1b[2Jworkers=1", "\0" * 100,
    ],
)  # fmt: skip
def test_nonsense_changes_nothing(tmp_path: Path, text: str) -> None:
    """A line that makes no sense is complained of in a clean sentence, and no knob is turned."""
    followed = control.Control(tmp_path / control.FILE_NAME, Knobs())
    (tmp_path / control.FILE_NAME).write_text(f"batch=4\n{text}\n")
    assert not followed.turned()
    assert followed.knobs == Knobs()
    assert followed.trouble is not None
    assert followed.trouble.isprintable()


def test_lines_may_have_comments() -> None:
    """The file can be written by hand: spaces, dashes, comments, words for on and off."""
    knobs = changed(Knobs(), "# slower\n transform-ms = 5.5  # ms\n\npin_memory=off\n")
    assert knobs == Knobs(transform_ms=5.5, pin_memory=False)


def test_what_changed_is_told_with_units() -> None:
    """Only what differs is told, as a person says it."""
    told = differences(Knobs(), Knobs(workers=0, save_every=14.0, sync=True))
    assert told == ["workers: 2 -> 0", "sync: off -> on", "save_every: never -> 14 s"]


def test_cores() -> None:
    """Cores are written as lists of ranges."""
    assert parse_cores("0-2, 7") == {0, 1, 2, 7}
    with pytest.raises(KnobError):
        parse_cores("0,a")


def test_every_knob_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    """The help has each knob and each cause, and an option that is given counts."""
    parser = train.make_parser()
    told = parser.format_help()
    for knob in fields(Knobs):
        assert f"--{knob.name.replace('_', '-')}" in told
    for name in (*CAUSES, *(one.name for one in UNPRACTISED)):
        assert name in told
    options = parser.parse_args(["python_bound", "--workers", "7", "--no-pin-memory"])
    assert given(options) == {"workers": 7, "pin_memory": False}
    with pytest.raises(SystemExit):
        parser.parse_args(["--workers", "-3"])
    assert "between 0 and 256" in capsys.readouterr().err
