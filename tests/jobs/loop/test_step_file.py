"""The layout of the file, where it lies, and who may remove it."""

import os
from collections.abc import Iterator
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.jobs.loop import step_file, writer
from gpuwatch.jobs.loop.step_file import Counters, Now, Record
from gpuwatch.jobs.loop.writer import StepFile
from tests.support.children import children
from tests.torch.support import PATH, files_below, packed

NOW_VALUES = Now(
    sequence=1,
    began_ns=1,
    state=step_file.STEP,
    flags=0,
    epoch=3,
    step_in_epoch=step_file.NONE,
    steps_in_epoch=step_file.NONE,
    batch_size=8,
    loader_workers=2,
    pinned_memory=1,
    rank=0,
    local_rank=0,
    world_size=1,
    memory_allocated_bytes=step_file.NONE,
    memory_reserved_bytes=step_file.NONE,
    memory_peak_bytes=step_file.NONE,
)
BASE = Counters(*[5] * len(Counters._fields))
COUNTED = Counters(*[9] * len(Counters._fields))


def body(now: Now = NOW_VALUES, counters: Counters = COUNTED, base: Counters = BASE) -> bytes:
    return packed(Record(now, counters, base))


def create(place: Path) -> StepFile:
    return StepFile.create({"XDG_RUNTIME_DIR": str(place)})


@pytest.fixture
def file(place: Path) -> Iterator[StepFile]:
    made = create(place)
    yield made
    made.close()


def test_a_reader_gets_what_was_written_last(file: StepFile, place: Path) -> None:
    """Of two records the newer one, whichever slot it is in; while one slot is being written,
    readers get the one before. PID, start time and PID namespace are those of the writer."""
    for sequence in (1, 2, 3, 4):
        file.write(body(NOW_VALUES._replace(sequence=sequence)))
        data = bytearray(Path(file.path).read_bytes())
        record = step_file.parse_record(bytes(data))
        assert record == (NOW_VALUES._replace(sequence=sequence), COUNTED, BASE)
    data[576 + 100] ^= 1
    torn = step_file.parse_record(bytes(data))
    assert torn == (NOW_VALUES._replace(sequence=3), COUNTED, BASE)
    namespace = Path("/proc/self/ns/pid").stat().st_ino
    whose = (os.getpid(), writer.start_ticks_of(os.getpid()), namespace)
    assert step_file.parse_header(bytes(data)) == whose
    file.close()
    assert files_below(place) == []


@given(st.binary(min_size=step_file.FILE_BYTES, max_size=step_file.FILE_BYTES))
def test_garbage_is_no_record(data: bytes) -> None:
    """Any bytes at all."""
    assert step_file.parse_header(data) is None
    assert step_file.parse_record(data) is None


@pytest.mark.parametrize(
    "impossible",
    [
        {"now": NOW_VALUES._replace(state=7)},
        {"now": NOW_VALUES._replace(state=-1)},
        {"now": NOW_VALUES._replace(batch_size=-2)},
        {"now": NOW_VALUES._replace(memory_peak_bytes=2**62)},
        {"now": NOW_VALUES._replace(began_ns=6)},
        {"counters": COUNTED._replace(steps=4)},
        {"counters": COUNTED._replace(wait_ns=2**62)},
        {"base": BASE._replace(at_ns=-1)},
    ],
    ids=str,
)
def test_numbers_that_cannot_be_are_no_record(
    file: StepFile, impossible: dict[str, Now | Counters]
) -> None:
    """Counters that fall, negative or huge numbers, states nobody knows."""
    file.write(body(**impossible))  # type: ignore[arg-type]
    assert step_file.parse_record(Path(file.path).read_bytes()) is None


def test_a_folder_that_others_can_change_is_not_used(place: Path) -> None:
    """A link planted where the folder would be, one open to others, or another user's: they could
    put a file there, or take what is written."""
    own = ("gpuwatch", "steps")
    create(place).close()
    for folder in (place / "gpuwatch", place / "gpuwatch" / "steps"):
        assert folder.stat().st_mode & 0o777 == 0o700
    with pytest.raises(PermissionError):
        writer.open_folder(str(place), own, os.geteuid() + 1)
    (place / "gpuwatch").chmod(0o777)
    with pytest.raises(PermissionError):
        writer.open_folder(str(place), own, os.geteuid(), make=True)
    (place / "gpuwatch").rename(place / "before")
    (place / "elsewhere").mkdir(mode=0o700)
    (place / "gpuwatch").symlink_to(place / "elsewhere")
    with pytest.raises(NotADirectoryError):
        writer.open_folder(str(place), own, os.geteuid(), make=True)
    assert list((place / "elsewhere").iterdir()) == []


def test_the_next_place_is_taken(place: Path) -> None:
    """A runtime folder that is not there (``sudo``, ``ssh``) is no obstacle."""
    elsewhere = create(place / "nothing")
    try:
        assert str(place) not in elsewhere.path
        assert Path(elsewhere.path).stat().st_uid == os.geteuid()
    finally:
        elsewhere.close()


def test_a_dead_writers_file_is_removed_by_the_next(place: Path) -> None:
    """Killed, it could not do so itself."""
    report = PATH + "from gpuwatch.jobs.loop.writer import StepFile\nfile = StepFile.create()\n"
    where = f"import os; os.environ['XDG_RUNTIME_DIR'] = {str(place)!r}\n"
    with children() as started:
        child = started.python(where + report + "ready(); wait()")
        started.ready(child)
        (before,) = files_below(place)
        second = create(place)
        assert before.exists()
        second.close()
        child.kill()
        child.wait()
        third = create(place)
        try:
            assert files_below(place) == [Path(third.path)]
        finally:
            third.close()


def test_a_writer_that_cannot_be_seen_keeps_its_file(
    file: StepFile, place: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """In another PID namespace it looks dead; its lock says that it is not."""
    folder = os.open(Path(file.path).parent, os.O_RDONLY)
    try:
        monkeypatch.setattr(writer, "start_ticks_of", lambda _: None)
        writer.remove_dead(folder)
        assert Path(file.path).exists()
        file.close(remove=False)
        writer.remove_dead(folder)
    finally:
        os.close(folder)
    assert files_below(place) == []


def test_what_is_not_ours_is_left_alone(file: StepFile, place: Path) -> None:
    """Links, pipes, other names and another user's file in the folder, though its name is that of
    a process that has ended."""
    steps = Path(file.path).parent
    file.close()
    outside = place / "outside"
    outside.write_text("kept")
    (steps / "1-1.steps").symlink_to(outside)
    os.mkfifo(steps / "2-2.steps")
    (steps / "notes.txt").write_text("kept")
    kept = {"1-1.steps", "2-2.steps", "notes.txt"}
    if os.geteuid() == 0:
        (steps / "3-3.steps").touch()
        os.chown(steps / "3-3.steps", 65534, 65534)
        kept.add("3-3.steps")
    create(place).close()
    assert {path.name for path in steps.iterdir()} == kept
    assert outside.read_text() == "kept"
