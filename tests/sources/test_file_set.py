"""A recording and the files that were put aside for it are read as one."""

from __future__ import annotations

import os
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.sources.files.file_set import FileSet, open_set, read_at, rotated_files, size_of


def made(folder: Path, parts: list[bytes], ending: str = ".jsonl") -> Path:
    """The last of ``parts`` is the file itself."""
    for number, part in enumerate(parts[:-1]):
        (folder / f"run.20260131T12{number:02}00Z{ending}").write_bytes(part)
    path = folder / f"run{ending}"
    path.write_bytes(parts[-1])
    return path


def test_one_file_is_that_file(tmp_path: Path) -> None:
    """Also beside files with names that are much like those put aside."""
    path = made(tmp_path, [b"whole"])
    for name in ("run.20260131.jsonl", "run.20260131T120000Z.jsonl.gz", "other.jsonl"):
        (tmp_path / name).write_bytes(b"other")
    with open_set(str(path)) as file:
        assert not isinstance(file, FileSet)
        assert file.read() == b"whole"


def test_a_file_put_aside_can_be_read_alone(tmp_path: Path) -> None:
    """Its own name means it and no other."""
    made(tmp_path, [b"one", b"two", b"three"])
    with open_set(str(rotated_files(tmp_path / "run.jsonl")[1])) as file:
        assert file.read() == b"two"


def test_a_name_without_an_ending_has_a_set_too(tmp_path: Path) -> None:
    """``--rotate`` puts ``run`` aside as well."""
    (tmp_path / "run").write_bytes(b"x")
    (tmp_path / "run.20260131T120000Z").write_bytes(b"y")
    assert rotated_files(tmp_path / "run") == [tmp_path / "run.20260131T120000Z"]


@given(
    parts=st.lists(st.binary(max_size=40), min_size=1, max_size=5),
    places=st.lists(st.tuples(st.integers(0, 220), st.integers(0, 220)), max_size=8),
)
def test_any_part_of_it_reads_as_of_one_file(
    tmp_path_factory: pytest.TempPathFactory,
    parts: list[bytes],
    places: list[tuple[int, int]],
) -> None:
    """In order, from a place on, here and there, up to the end and behind it."""
    path = made(tmp_path_factory.mktemp("set"), parts)
    whole = b"".join(parts)
    with open_set(str(path)) as file:
        assert size_of(file) == len(whole)
        for offset, count in places:
            assert read_at(file, count, offset) == whole[offset : offset + count]
            file.seek(offset)
            assert file.tell() == offset
            assert file.read() == whole[offset:]
        file.seek(0)
        assert file.read() == whole


def test_the_oldest_may_go_while_it_is_read(tmp_path: Path) -> None:
    """As ``--keep`` has it: what follows it is read all the same."""
    path = made(tmp_path, [b"one\n", b"two\n", b"three\n"])
    with open_set(str(path)) as file:
        rotated_files(path)[0].unlink()
        assert file.read() == b"\n\n\n\ntwo\nthree\n"


def test_the_newest_may_be_put_aside_while_it_is_read(tmp_path: Path) -> None:
    """It is held by what it is, not by its name."""
    path = made(tmp_path, [b"one\n", b"two\n"])
    with open_set(str(path)) as file:
        path.rename(tmp_path / "run.20260131T130000Z.jsonl")
        path.write_bytes(b"three\n")
        assert file.read() == b"one\ntwo\n"


def test_a_pipe_is_read() -> None:
    """What cannot be read here and there can be read once."""
    reading, writing = os.pipe()
    os.write(writing, b"piped")
    os.close(writing)
    with open_set(f"/proc/self/fd/{reading}") as file:
        assert file.read() == b"piped"
    os.close(reading)
