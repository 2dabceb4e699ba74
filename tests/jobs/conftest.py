"""What tests of jobs need: a ``/proc`` of ordinary files."""

import sys
from pathlib import Path

import pytest

from tests.support.fake_proc import FakeProc

if not sys.platform.startswith("linux"):
    pytest.skip("reads Linux's /proc", allow_module_level=True)


@pytest.fixture
def fake(tmp_path: Path) -> FakeProc:
    return FakeProc(tmp_path / "proc")
