"""The pure half: what the driver wrote into a buffer becomes values."""

import struct

import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from gpuwatch.core.model import BusySample
from gpuwatch.sources.nvml import parse

NOW = 1_800_000_000.0
NOW_US = round(NOW * 1e6)


def samples(*records: tuple[int, int]) -> memoryview:
    return memoryview(b"".join(struct.pack("@QQ", *record) for record in records))


def test_the_upper_half_of_a_32_bit_value_is_ignored() -> None:
    """Drivers leave rubbish in the bytes of the union that the value does not use."""
    raw = samples((NOW_US, 0xDEADBEEF_00000032))
    assert parse.busy_samples(raw, 1, 0, NOW) == (BusySample(NOW, 50.0),)


@given(st.binary(max_size=400), st.integers(0, 20), st.floats(0, 4e9))
def test_no_bytes_can_break_the_samples(raw: bytes, value_type: int, now: float) -> None:
    """Whatever a driver leaves in the buffer, samples are 0-100, in order, never in the future."""
    whole = memoryview(raw[: len(raw) // 16 * 16])
    found = parse.busy_samples(whole, value_type, 0, now)
    assert list(found) == sorted(found)
    assert all(0 <= sample.percent <= 100 for sample in found)
    assert all(0 < sample.at_unix_seconds <= now + 61 for sample in found)


@example(written=bytes(8), count=1)
@given(written=st.binary(max_size=600), count=st.integers(1, 40))
def test_no_bytes_can_break_process_lists(written: bytes, count: int) -> None:
    """At most as many processes come out as the driver counted, each with a PID there can be, and
    none from behind what it wrote."""
    found, size = parse.processes(written, count)
    assert len(found) <= count
    assert bool(found) == bool(size)
    assert size * count <= len(written) + 8
    assert all(0 < pid <= parse.PID_MAX for (pid, _), _ in found)


@given(st.lists(st.integers(0, 1 << 64), max_size=8), st.floats(0, 4e9), st.floats(-1e9, 4e9))
def test_the_shift_of_a_clock_never_puts_a_sample_in_the_future(
    stamps: list[int], now: float, known: float
) -> None:
    """Whatever is in the buffer, what is moved by the shift and kept lies before now, or is wall
    time that is at most a minute ahead."""
    stamps = [stamp % (1 << 64) for stamp in stamps]
    shift = parse.clock_shift(stamps, now, known)
    raw = samples(*[(stamp, 7) for stamp in stamps])
    found = parse.busy_samples(raw, 2, 0, now, shift)
    assert all(sample.at_unix_seconds <= now + 61 for sample in found)


@given(st.binary(max_size=480))
def test_no_bytes_can_break_field_values(raw: bytes) -> None:
    """Each field id comes out as a value or as an error."""
    whole = memoryview(raw[: len(raw) // 40 * 40])
    values, failures = parse.field_values(whole)
    ids = {struct.unpack_from("@I", whole, at)[0] for at in range(0, len(whole), 40)}
    assert values.keys() | failures.keys() == ids


@pytest.mark.parametrize(
    ("kind", "packed", "value"),
    [
        (0, struct.pack("@d", 2.5), 2.5),
        (1, struct.pack("@II", 7, 0xFFFF), 7),
        (3, struct.pack("@Q", 1 << 40), 1 << 40),
        (4, struct.pack("@q", -5), -5),
        (5, struct.pack("@ii", -3, 99), -3),
        (6, struct.pack("@H6x", 12), 12),
    ],
)
def test_field_values_of_every_type(kind: int, packed: bytes, value: float) -> None:
    """The member of the union that the type names is taken."""
    raw = memoryview(struct.pack("@IIqqII", 82, 0, 0, 0, kind, 0) + packed)
    assert parse.field_values(raw) == ({82: value}, {})
