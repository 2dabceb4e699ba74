"""The knobs of practice jobs and the causes they make; nothing is started here."""

import os
from collections.abc import Callable
from dataclasses import fields, replace
from pathlib import Path

import pytest

from gpuwatch.diagnosis.catalogue import RULES
from gpuwatch.practice import control, train
from gpuwatch.practice.causes import CAUSES, UNPRACTISED, Cause, find
from gpuwatch.practice.knobs import Knobs, changed, given, in_words
from gpuwatch.sources.simulated.source import SCENARIOS


def test_every_rule_has_a_job_or_a_reason() -> None:
    """Each cause that the diagnosis knows can be practised, or it is said why not; the scenario
    that stands in for such a cause is there, or it is said how to see it."""
    practised = set(CAUSES) - {"healthy"} | UNPRACTISED.keys()
    assert practised == {rule.name for rule in RULES}
    words = ("send SIGSTOP", "a practice job", "--device cpu", "taskset")
    for why, demo in UNPRACTISED.values():
        assert demo in SCENARIOS or any(word in why for word in words)


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda one: one.name)
def test_a_cure_turns_something(cause: Cause) -> None:
    """Every cause but health has knobs that make it, and a cure that changes them."""
    if cause.name == "healthy":
        assert cause.knobs == Knobs()
        assert not cause.cure
    else:
        assert cause.knobs != Knobs()
        for cores in (2, 64):
            assert in_words(cause.knobs, replace(cause.knobs, **cause.cure_on(cores)))
    turned = {*cause.cure, *cause.cure_on(64)}
    assert turned <= {knob.name for knob in fields(Knobs) if not knob.metadata["fixed"]}
    # Of a cause that needs GPUs, why nothing names it on a CPU; of others, what is not seen.
    if cause.gpus:
        assert (cause.cpu_note or "").startswith("On the CPU nothing names it: ")
    elif cause.on_cpu is not None:
        assert (cause.cpu_note or "").startswith("Not visible on the CPU: ")


def test_the_cure_fits_the_machine() -> None:
    """Where cores are free it is more workers, as the advice has it; elsewhere cheaper work."""
    cause = CAUSES["loader_cpu_bound"]
    assert dict(cause.cure_on(2)) == {"transform_ms": 6.0}
    assert dict(cause.cure_on(16)) == {"workers": 4}
    assert CAUSES["late_batches"].cure_on(16) == CAUSES["late_batches"].cure_on(2)


def test_what_a_key_turns_is_in_words() -> None:
    """Those of a person who has never seen the knobs, with a unit only once."""
    ill = Knobs(workers=1, transform_ms=30, sync=True, slow_rank=1, slow_every=400)
    assert in_words(ill, Knobs(workers=4, transform_ms=6)) == (
        "num_workers 1 -> 4, transforms 30 -> 6 ms per sample, slow samples 400 -> none, "
        ".item() in each step on -> off, slow rank 1 -> none"
    )


def test_found_with_dashes(monkeypatch: pytest.MonkeyPatch) -> None:
    """A cause is found as it is written by hand, where PyTorch is there."""
    monkeypatch.setattr("importlib.util.find_spec", lambda _name: object())
    assert find(" Loader-CPU-bound ") is CAUSES["loader_cpu_bound"]


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
        "read=warm", "ranks=4", "transform_ms=nan", "\x1b[2Jworkers=1", "\0" * 100,
    ],
)  # fmt: skip
def test_nonsense_changes_nothing(tmp_path: Path, text: str) -> None:
    """A line that makes no sense is complained of in a clean sentence, and no knob is turned."""
    followed = control.Control(tmp_path / control.FILE_NAME, Knobs())
    (tmp_path / control.FILE_NAME).write_text(f"batch=4\n{text}\n")
    assert not followed.turned()
    assert followed.knobs == Knobs()
    assert followed.trouble.isprintable()


NO_FILES: dict[str, Callable[[Path], object]] = {
    "pipe": os.mkfifo,
    "folder": os.mkdir,
    "endless": lambda path: path.symlink_to("/dev/zero"),
    "huge": lambda path: path.write_text("# nothing\n" * 10_000),
    "link to itself": lambda path: path.symlink_to(path.name),
}


@pytest.mark.parametrize("kind", NO_FILES)
def test_what_is_no_file_of_knobs_is_not_read(tmp_path: Path, kind: str) -> None:
    """Nothing is waited for, and a sentence says why no knob is turned, unless it is as if there
    were no file; a file in its place is followed again."""
    path = tmp_path / control.FILE_NAME
    followed = control.Control(path, Knobs())
    NO_FILES[kind](path)
    assert not followed.turned()
    assert followed.knobs == Knobs()
    said = followed.trouble or "knobs was not applied: it is "
    assert said.startswith("knobs was not applied: it is ")
    assert (followed.trouble is None) == (kind == "link to itself")
    path.rmdir() if path.is_dir() else path.unlink()
    control.turn(tmp_path, {"workers": 5})
    assert followed.turned()
    assert followed.knobs.workers == 5


def test_lines_may_have_comments() -> None:
    """The file can be written by hand: spaces, dashes, comments, words for on and off."""
    knobs = changed(Knobs(), "# slower\n transform-ms = 5.5  # ms\n\npin_memory=off\n")
    assert knobs == Knobs(transform_ms=5.5, pin_memory=False)


def test_every_knob_is_an_option(capsys: pytest.CaptureFixture[str]) -> None:
    """The help has each knob and each cause, and an option that is given counts."""
    parser = train.make_parser()
    shown = parser.format_help()
    for knob in fields(Knobs):
        assert f"--{knob.name.replace('_', '-')}" in shown
    for name in (*CAUSES, *UNPRACTISED):
        assert name in shown
    options = parser.parse_args(["python_bound", "--workers", "7", "--no-pin-memory"])
    assert given(options) == {"workers": 7, "pin_memory": False}
    with pytest.raises(SystemExit):
        parser.parse_args(["--workers", "-3"])
    assert "between 0 and 256" in capsys.readouterr().err
