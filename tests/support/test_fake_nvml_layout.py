"""The control file's layout is read from the C header as C lays it out."""

import shutil
import subprocess
from pathlib import Path

import pytest

from tests.support.fake_nvml_build import compiler
from tests.support.fake_nvml_layout import CONSTANTS, FUNCTIONS, LIBRARY_SOURCE, STRUCTURES


def test_every_offset_is_the_compilers(tmp_path: Path) -> None:
    """Each member of each structure lies where the C compiler puts it."""
    cc = compiler()
    if cc is None:
        pytest.skip("no C compiler")
    members = [
        (structure, field[0]) for structure, kind in STRUCTURES.items() for field in kind._fields_
    ]
    lines = "".join(
        f'printf("%zu\\n", offsetof({structure}, {member}));' for structure, member in members
    )
    source = tmp_path / "offsets.c"
    source.write_text(
        f'#include <stddef.h>\n#include <stdio.h>\n#include "state.h"\nint main(void) {{{lines}}}'
    )
    program = tmp_path / "offsets"
    subprocess.run([cc, "-I", LIBRARY_SOURCE, "-o", program, source], check=True)
    printed = subprocess.run([program], capture_output=True, text=True, check=True).stdout
    offsets = [getattr(STRUCTURES[structure], member).offset for structure, member in members]
    assert offsets == [int(number) for number in printed.split()]


def test_every_listed_function_is_exported(tmp_path: Path) -> None:
    """A function with a counter exists in the library, and fits the tables."""
    if compiler() is None or shutil.which("nm") is None:
        pytest.skip("no C compiler or nm")
    from tests.support.fake_nvml_build import build

    symbols = subprocess.run(["nm", "-D", build()], capture_output=True, text=True, check=True)
    exported = {line.split()[-1] for line in symbols.stdout.splitlines() if " T " in line}
    assert set(FUNCTIONS) == exported
    assert len(FUNCTIONS) <= CONSTANTS["FAKE_MAX_FUNCTIONS"]
