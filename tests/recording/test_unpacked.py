"""Packed and damaged files, and files that were put aside, read as one."""

import contextlib
import gzip
import io
import os
import random
from collections.abc import Callable
from pathlib import Path

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.sources.logs.text import DAMAGE, FileSet, Unpacked, rotated_files, zstd

HEAD = b'{"kind":"header"'
PACKERS = [gzip.compress, zstd.compress]


def made(folder: Path, parts: list[bytes], ending: str = ".jsonl") -> Path:
    """The last of ``parts`` is the file itself."""
    for number, part in enumerate(parts[:-1]):
        (folder / f"run.20260131T12{number:02}00Z{ending}").write_bytes(part)
    path = folder / f"run{ending}"
    path.write_bytes(parts[-1])
    return path


def read(path: Path | str, begin: tuple[Path, int] | None = None) -> bytes:
    return Unpacked(iter(FileSet(str(path), begin))).read() or b""


def unpacked(data: bytes) -> tuple[bytes, Unpacked]:
    """All that can be read of ``data``."""
    reader, parts = Unpacked(iter([io.BytesIO(data)])), []
    with contextlib.suppress(*DAMAGE):
        while part := reader.read(1 << 20):
            parts.append(part)
    return b"".join(parts), reader


def test_one_file_is_that_file(tmp_path: Path) -> None:
    """Also beside files with names that are much like those put aside."""
    path = made(tmp_path, [b"whole"])
    for name in ("run.20260131.jsonl", "run.20260131T120000Z.jsonl.gz", "other.jsonl"):
        (tmp_path / name).write_bytes(b"other")
    assert read(path) == b"whole"


def test_a_file_put_aside_can_be_read_alone(tmp_path: Path) -> None:
    """Its own name means it and no other."""
    made(tmp_path, [b"one", b"two", b"three"])
    assert read(rotated_files(tmp_path / "run.jsonl")[1]) == b"two"


@pytest.mark.parametrize("name", ["run", "run.jsonl.zst", "run.jsonl.gz"])
def test_any_ending_has_a_set(tmp_path: Path, name: str) -> None:
    """``--rotate`` puts ``run`` aside as well."""
    (tmp_path / name).write_bytes(b"x")
    aside = tmp_path / name.replace("run", "run.20260131T120000Z")
    aside.write_bytes(b"y")
    assert rotated_files(tmp_path / name) == [aside]


@example(parts=[b"*M\x18"], pack=False)
@given(parts=st.lists(st.binary(max_size=40), min_size=1, max_size=5), pack=st.booleans())
def test_a_set_reads_as_one_file(
    tmp_path_factory: pytest.TempPathFactory, parts: list[bytes], pack: bool
) -> None:
    """In order, a line end between two where there is none."""
    parts = [b"." + part for part in parts]
    packed = [zstd.compress(part) if pack else part for part in parts]
    path = made(tmp_path_factory.mktemp("set"), packed)
    found = b"".join(part if part.endswith(b"\n") else part + b"\n" for part in parts)
    assert read(path) + (b"" if parts[-1].endswith(b"\n") else b"\n") == found


def test_a_set_is_read_from_a_place_on(tmp_path: Path) -> None:
    """In any of its files."""
    path = made(tmp_path, [b"one\n", b"two\n", b"three\n"])
    aside = rotated_files(path)
    assert read(path, (aside[1], 1)) == b"wo\nthree\n"
    assert read(path, (aside[1], 0)) == b"two\nthree\n"
    assert read(path, (path, 2)) == b"ree\n"


def test_the_oldest_may_go_while_it_is_read(tmp_path: Path) -> None:
    """As ``--keep`` has it: what follows it is read all the same."""
    path = made(tmp_path, [b"one\n", b"two\n", b"three\n"])
    files = FileSet(str(path))
    rotated_files(path)[0].unlink()
    assert Unpacked(iter(files)).read() == b"two\nthree\n"


def test_the_newest_may_be_put_aside_while_it_is_read(tmp_path: Path) -> None:
    """It is held by what it is, not by its name."""
    path = made(tmp_path, [b"one\n", b"two\n"])
    files = FileSet(str(path))
    path.rename(tmp_path / "run.20260131T130000Z.jsonl")
    path.write_bytes(b"three\n")
    assert Unpacked(iter(files)).read() == b"one\ntwo\n"


def test_a_pipe_is_read() -> None:
    """What cannot be read here and there can be read once."""
    reading, writing = os.pipe()
    os.write(writing, b"piped")
    os.close(writing)
    assert read(f"/proc/self/fd/{reading}") == b"piped"
    os.close(reading)


@pytest.mark.parametrize("pack", PACKERS)
@pytest.mark.parametrize("lost", [1, 20, 4000])
def test_what_follows_a_torn_frame_is_read(pack: Callable[[bytes], bytes], lost: int) -> None:
    """It is as long as what was read of it, and counted."""
    one = HEAD + os.urandom(50_000).hex().encode() + b"\n"
    found, reader = unpacked(pack(one)[:-lost] + pack(HEAD + b"}\n") * 2)
    assert found.endswith(HEAD + b"}\n" + HEAD + b"}\n")
    assert one.startswith(found.partition(b"\n")[0])
    assert reader.stretches == 1


@pytest.mark.parametrize("pack", PACKERS)
def test_frames_around_rubbish_are_read(pack: Callable[[bytes], bytes]) -> None:
    """Beginnings of frames that are none are passed over, however many."""
    rubbish = pack(b"")[: 10 if pack is gzip.compress else 8] * 20_000
    found, reader = unpacked(pack(HEAD + b"1") + rubbish + pack(HEAD + b"2"))
    assert found == HEAD + b"1\n" + HEAD + b"2"
    assert reader.stretches == 1
    assert reader.skipped_bytes == len(rubbish)


def stored(magic: bytes) -> bytes:
    """A frame whose first block is 64 KiB of what follows it, as it is."""
    if magic == b"gzip":
        return b"\x1f\x8b\x08\0\0\0\0\0\0\x03\0\xf0\xff\x0f\x00" + HEAD
    return b"\x28\xb5\x2f\xfd\x00\x58" + (65536 << 3).to_bytes(3, "little") + HEAD


@pytest.mark.parametrize("magic", [b"gzip", b"zstd"])
def test_what_looks_like_frames_within_frames_is_not_unpacked_a_thousand_times(
    magic: bytes,
) -> None:
    """The work grows with the file, not with its square."""
    data = zstd.compress(HEAD + b"}\n") + stored(magic) * 10_000
    found, _ = unpacked(data)
    assert len(found) < 20 * len(data)


@pytest.mark.parametrize("packer", PACKERS)
def test_long_frames_are_whole(packer: Callable[[bytes], bytes]) -> None:
    """A minute of a large machine is unpacked to megabytes: in parts, some of which end where the
    unpacking has taken all it was given."""
    flushed_bytes = 16 * 1024
    text = HEAD + b"".join(b'{"n":%d,"text":"%s"}\n' % (n, b"." * (n % 90)) for n in range(40_000))
    text += random.Random(7).randbytes(48 * 1024).hex().encode() + b"\n"
    if packer is zstd.compress:
        frame = zstd.ZstdCompressor()
        data = b"".join(
            frame.compress(text[at : at + flushed_bytes]) + frame.flush(frame.FLUSH_BLOCK)
            for at in range(0, len(text), flushed_bytes)
        )
        data += frame.flush()
    else:
        data = packer(text)
    found, reader = unpacked(data * 2)
    assert found == text * 2
    assert reader.stretches == 0
