"""Reports in files: what is kept, for whom, for how long, and what is refused."""

import contextlib
import json
import os
import stat
import subprocess
import sys
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import gpuwatch
from gpuwatch.outputs.report.model import (
    GpuUsage,
    JobUsage,
    Report,
    ReportError,
    Time,
    decode,
    encode,
    replaced,
)
from gpuwatch.outputs.report.store import REPORTS_KEPT, ReportStore, StoreError, read_file
from tests.outputs.report.stories import UNIX, of_job, recorded, training

DIGEST = "0123456789abcdef"


class Ticking:
    """Wall time that moves on a second with each look."""

    def __init__(self) -> None:
        self.now = UNIX

    def __call__(self) -> float:
        self.now += 1
        return self.now


@pytest.fixture
def store(tmp_path: Path) -> ReportStore:
    return ReportStore(tmp_path / "state" / "gpuwatch" / "reports", unix_time=Ticking())


def report(number: int = 0, *, watched_seconds: float = 49.0, **fields: Any) -> Report:
    """The report of a run that began ``number`` hundred seconds after the first."""
    begin = UNIX + 100 * number
    end, known = begin + 50, {"pid": 5000 + number, "command": f"python train.py {number}"}
    known |= {"started_at_unix_seconds": begin, "ended_at_unix_seconds": end, "run_digest": DIGEST}
    job = JobUsage(**(known | fields))
    time = Time(begin_unix_seconds=begin, end_unix_seconds=end, covered_seconds=watched_seconds)
    return Report(pid=job.pid, time=time, jobs=(job,))


def mode(path: Path) -> int:
    return stat.S_IMODE(path.lstat().st_mode)


def test_a_report_is_read_as_it_was_saved(store: ReportStore) -> None:
    """With all it measured, and under the path that ``save`` gives."""
    saved = recorded(training(seconds=8, gpus=2))
    path = store.save(saved)
    [kept] = store.last()
    assert (kept.number, kept.path, kept.report) == (1, path, saved)
    assert read_file(path) == saved


def test_reports_lie_in_the_user_s_state_folder_closed_to_others(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """``XDG_STATE_HOME``, and ``~/.local/state`` without it; command lines may hold secrets, so
    what an earlier version had left open is closed."""
    monkeypatch.setenv("XDG_STATE_HOME", str(tmp_path / "made" / "state"))
    path = ReportStore().save(report())
    assert path.parent == tmp_path / "made" / "state" / "gpuwatch" / "reports"
    assert mode(path) == 0o600
    assert {mode(folder) for folder in path.parents[:4]} == {0o700}
    for folder in path.parents[:2]:
        folder.chmod(0o755)
    ReportStore().save(report(1))
    assert {mode(folder) for folder in path.parents[:2]} == {0o700}
    monkeypatch.delenv("XDG_STATE_HOME")
    monkeypatch.setenv("HOME", str(tmp_path))
    assert ReportStore().folder == tmp_path / ".local" / "state" / "gpuwatch" / "reports"
    assert not (tmp_path / ".local").exists()


def test_the_newest_comes_first(store: ReportStore) -> None:
    """In the order in which they were saved, whenever the jobs had started."""
    for number in (2, 0, 1):
        store.save(report(number))
    assert [kept.report.pid for kept in store.last()] == [5001, 5000, 5002]
    assert [kept.number for kept in store.last()] == [1, 2, 3]
    assert [kept.report.pid for kept in store.last(1)] == [5001]


def test_two_reports_of_one_run_replace_each_other(store: ReportStore) -> None:
    """A person may ask for one halfway; the one at the end is the better."""
    store.save(report(1, ended_at_unix_seconds=None))
    store.save(report(2))
    store.save(report(1, exit_code=0))
    assert [(kept.report.pid, kept.report.exit_code) for kept in store.last()] == [
        (5001, 0),
        (5002, None),
    ]


def test_of_two_that_watched_one_run_the_fuller_report_is_kept(store: ReportStore) -> None:
    """One gpuwatch ran the job and knows its exit code, another was attached for a while; in
    whichever order they save."""
    started = report(watched_seconds=49.0, exit_code=3)
    attached = report(watched_seconds=20.0)
    for first, second in ((started, attached), (attached, started)):
        store.save(first)
        path = store.save(second)
        assert [(kept.path, kept.report) for kept in store.last()] == [(path, started)]
        path.unlink()
    store.save(report(watched_seconds=10.0, exit_code=3))
    store.save(attached)
    assert [kept.report for kept in store.last()] == [attached.with_end(exit_code=3)]


def test_the_oldest_are_forgotten(store: ReportStore) -> None:
    """The folder is bounded, and what is not ours in it is left alone."""
    first = store.save(report(0))
    note = store.folder / "notes.json"
    note.write_text("mine")
    names = [f"2022{n:04d}T000000.000-{n}-{n}-none.json" for n in range(1, REPORTS_KEPT + 5)]
    for name in names:
        (store.folder / name).write_text(first.read_text())
    last = store.save(report(7))
    left = {path.name for path in store.folder.glob("*T*.json")}
    assert left == {first.name, last.name, *names[-(REPORTS_KEPT - 2) :]}
    assert note.read_text() == "mine"


def test_the_report_just_saved_is_never_the_one_forgotten(tmp_path: Path) -> None:
    """Also when the clock was ahead when the others were saved."""
    ahead, now = (ReportStore(tmp_path, unix_time=lambda t=t: t) for t in (UNIX + 9e6, UNIX))
    text = encode(report()).decode()
    ahead.save(report())
    for number in range(REPORTS_KEPT + 3):
        (tmp_path / f"20990101T{number:06d}.000-{number}-{number}-none.json").write_text(text)
    assert now.save(report(3)).exists()


def test_a_simulated_report_is_never_kept(store: ReportStore) -> None:
    """It would be taken for a run that was."""
    with pytest.raises(StoreError, match="that ran"):
        store.save(replaced(report(), simulated=True))
    assert not store.folder.exists()


def test_a_report_is_found_by_number_or_pid(store: ReportStore) -> None:
    """A number that no report has is a PID, of which the newest is meant; an empty store says how
    reports come about, whether or not the folder is there."""
    for _ in range(2):
        with pytest.raises(StoreError, match="gpuwatch run"):
            store.find("1")
        store.folder.mkdir(parents=True, exist_ok=True)
    for number in range(3):
        store.save(report(number))
    store.save(report(9, pid=5000))
    assert store.find("1").report.pid == 5000
    assert store.find("3").report.pid == 5001
    assert of_job(store.find("5000").report).command == "python train.py 9"
    for reference in ("0", "77", "-1", "abc", "9" * 5000, "²"):
        with pytest.raises(StoreError):
            store.find(reference)


def test_the_run_before_is_the_last_one_started_earlier(store: ReportStore) -> None:
    """Of the same command, folder and user; neither itself nor a later one."""
    for number in (0, 2, 1, 4):
        store.save(report(number))
    store.save(report(3, run_digest="f" * 16))
    before = store.previous_run(report(3))
    assert before.pid == 5002
    assert store.previous_run(report(0)) is None
    assert store.previous_run(report(2)) == report(1)
    assert store.previous_run(report(3, run_digest=None)) is None
    assert store.previous_run(report(3, run_digest="../../*")) is None


def test_a_link_in_place_of_the_folder_is_not_followed(tmp_path: Path) -> None:
    """Nothing is written where it points to."""
    elsewhere = tmp_path / "elsewhere"
    elsewhere.mkdir()
    (tmp_path / "reports").symlink_to(elsewhere)
    store = ReportStore(tmp_path / "reports")
    with pytest.raises(StoreError, match="symbolic link"):
        store.save(report())
    with pytest.raises(StoreError):
        store.last()
    assert list(elsewhere.iterdir()) == []


def test_a_link_in_place_of_a_report_is_neither_read_nor_written_through(tmp_path: Path) -> None:
    """Not even when its name is the very one that is about to be written."""
    store = ReportStore(tmp_path / "reports", unix_time=lambda: UNIX)
    path = store.save(report())
    secret = tmp_path / "secret.json"
    secret.write_text(path.read_text())
    path.unlink()
    path.symlink_to(secret)
    assert store.last() == []
    written = secret.read_text()
    assert store.save(report(command="other")) == path
    assert not path.is_symlink()
    assert secret.read_text() == written


@pytest.mark.skipif(os.geteuid() != 0, reason="only root can give a file away")
def test_what_is_another_users_is_neither_read_nor_written(store: ReportStore) -> None:
    """A report, by which they would tell a person what their job did, and a folder."""
    path = store.save(report())
    os.chown(path, 12345, -1)
    assert store.last() == []
    os.chown(store.folder, 12345, -1)
    with pytest.raises(StoreError, match="belongs to another user"):
        store.last()
    with pytest.raises(StoreError, match="belongs to another user"):
        store.save(report(1))
    assert list(store.folder.iterdir()) == [path]


def test_what_is_no_file_is_passed_over_without_waiting(store: ReportStore) -> None:
    """A pipe that nobody writes to, and a folder."""
    path = store.save(report())
    os.mkfifo(store.folder / path.name.replace("-5000-", "-5001-"))
    (store.folder / path.name.replace("-5000-", "-5002-")).mkdir()
    assert [kept.report.pid for kept in store.last()] == [5000]


def test_a_damaged_report_is_passed_over_and_named_when_asked_for(store: ReportStore) -> None:
    """The others keep their numbers."""
    store.save(report(0))
    broken = store.save(report(1))
    broken.write_text(broken.read_text()[:100])
    assert [(kept.number, kept.report.pid) for kept in store.last()] == [(2, 5000)]
    with pytest.raises(StoreError, match="damaged"):
        store.find("1")


SAVE = """
import os, resource, sys
from pathlib import Path
from gpuwatch.outputs.report.model import Report, Time
from gpuwatch.outputs.report.store import ReportStore, StoreError
from gpuwatch.outputs.report.model import JobUsage
resource.setrlimit(resource.RLIMIT_FSIZE, (100, 100))
try:
    ReportStore(Path(sys.argv[1])).save(Report(
        pid=1,
        time=Time(begin_unix_seconds=0.0, end_unix_seconds=0.0),
        jobs=(JobUsage(pid=1, command="x" * 100_000),),
    ))
except StoreError as error:
    print(error)
print("left:", *(name for _, _, names in os.walk(sys.argv[1]) for name in names))
"""


def test_a_file_too_large_is_one_sentence_and_leaves_nothing(store: ReportStore) -> None:
    """The report before is still there, and no half of the new one."""
    first = store.save(report(0))
    said = subprocess.check_output(
        [sys.executable, "-c", SAVE, str(store.folder)],
        text=True,
        cwd=Path(gpuwatch.__file__).parent.parent,
    )
    assert said.startswith("The report cannot be saved in")
    assert "ulimit -f" in said
    assert said.endswith(f"left: {first.name}\n")


def written(kept: Report) -> Any:
    """As it would be read by any other program."""
    return json.loads(encode(kept))


def damaged(within: str = "", **fields: Any) -> str:
    """With these fields, or with them in the only ``jobs`` or ``gpus``."""
    value = written(replaced(report(), gpus=(GpuUsage(index=0, uuid="u", name="n"),)))
    place = value[within][0] if within else value
    place |= fields
    return json.dumps(value)


damaged_job, damaged_gpu = partial(damaged, "jobs"), partial(damaged, "gpus")


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("", "not JSON"),
        ("{", "not JSON"),
        ("[" * 100_000, "not JSON"),
        ("[]", "kind"),
        ('{"kind": "snapshot"}', "kind"),
        ('{"kind": "report"}', "schema"),
        ('{"kind": "report", "schema": true}', "schema"),
        ('{"kind": "report", "schema": 99}', "of schema 99"),
        ('{"kind": "report", "schema": ' + "9" * 4000 + "}", "of schema 999"),
        ('{"kind": "report", "schema": 1}', "reads schema 2 only"),
        ('{"kind": "report", "schema": 2}', "missing required field"),
        (damaged(pid="1"), r"pid"),
        (damaged_job(command=7), r"jobs\[0\].command"),
        (damaged_job(gpu_held_seconds=-1.0), r"gpu_held_seconds"),
        (damaged_job(started_at_unix_seconds=1e300), r"started_at_unix_seconds"),
        (damaged_job(loading=[]), r"jobs\[0\].loading"),
        (damaged(gpus={}), r"gpus"),
        (damaged(gpus=[{}] * 1000), r"gpus"),
        (damaged_gpu(busy_seconds=9.0, watched_seconds=5.0), "busy while unwatched"),
        (damaged_gpu(throttled=[{"reason": "x", "seconds": -1}]), "throttled"),
        (damaged_gpu(profiles={"x": {"minimum": [1], "mean": [1, 2]}}), "differ in length"),
        (damaged_gpu(profiles={"x": {"minimum": [0] * 9999}}), "profiles"),
        ('{"kind": "report", "schema": 2, "pid": NaN}', "not JSON"),
        ('{"kind": "report", "schema": 2, "time": 1e999}', "not JSON|damaged"),
    ],
)
def test_what_is_no_report_is_refused_with_a_sentence(text: str, says: str) -> None:
    """Whatever is wrong with it, it is short enough to read."""
    with pytest.raises(ReportError, match=says) as caught:
        decode(text.encode())
    assert str(caught.value).endswith(".")
    assert len(str(caught.value)) < 250


def test_text_in_a_report_is_harmless() -> None:
    """Escapes, line ends and bidirectional overrides of a planted file reach no terminal."""
    nasty = "\x1b]0;owned\x07\n\u202emoc"
    value = written(replaced(report(), gpus=(GpuUsage(index=0, uuid="u", name=nasty),)))
    value["jobs"][0] |= {"command": nasty, "user": nasty}
    value["gpus"][0]["other_users"] = [nasty]
    value["gpus"][0]["throttled"] = [{"reason": nasty, "seconds": 3.0}]
    read = decode(json.dumps(value).encode())
    [card] = read.gpus
    said = (of_job(read).command, of_job(read).user, card.name, *card.other_users)
    for text in (*said, *[one.reason for one in card.throttled or ()]):
        assert text.isprintable()


def test_fields_of_a_newer_version_are_ignored() -> None:
    """At every depth."""
    value = written(recorded(training(seconds=5)))
    value["new"] = {"deep": [1]}
    value["gpus"][0]["new"] = 1
    value["host"]["new"] = 1
    assert decode(json.dumps(value).encode()) == recorded(training(seconds=5))


@settings(max_examples=30)
@given(st.binary(max_size=300) | st.text(max_size=300).map(str.encode))
def test_no_bytes_break_the_reader(tmp_path_factory: pytest.TempPathFactory, data: bytes) -> None:
    """A file is a report or a sentence."""
    path = tmp_path_factory.getbasetemp() / "any.json"
    path.write_bytes(data)
    with pytest.raises(ReportError):
        read_file(path)


_JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner),
    max_leaves=6,
)


@settings(max_examples=40)
@given(st.data())
def test_any_value_in_any_place_is_read_or_refused(data: st.DataObject) -> None:
    """Nothing but ``ReportError`` comes out of a file that was tampered with."""
    value = written(recorded(training(seconds=3)))
    place: Any = value
    while True:
        key = data.draw(st.sampled_from(sorted(place) if isinstance(place, dict) else [0]))
        inner = place[key]
        if not (isinstance(inner, dict | list) and inner):
            break
        if data.draw(st.booleans()):
            break
        place = inner
    place[key] = data.draw(_JSON)
    with contextlib.suppress(ReportError):
        assert isinstance(decode(json.dumps(value).encode()), Report)


def test_files_that_cannot_be_read_are_a_sentence(tmp_path: Path) -> None:
    """Missing, a folder, a name no file system takes, a recording, a huge one."""
    recording = tmp_path / "r.jsonl"
    recording.write_text('{"kind":"header","schema":1}\n{"kind":"snapshot"}\n')
    huge = tmp_path / "huge"
    with huge.open("wb") as file:
        file.truncate(2**30)
    for path, says in (
        (tmp_path / "missing", "is not a file"),
        (tmp_path, "cannot be read"),
        (Path("a\0b"), "cannot be read"),
        (Path("x" * 5000), "cannot be read"),
        (recording, "is a recording"),
        (huge, "too large"),
    ):
        with pytest.raises(ReportError, match=says):
            read_file(path)
