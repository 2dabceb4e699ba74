"""What tests of recordings share."""

from pathlib import Path

import pytest

from tests.recording.machine import Machine


@pytest.fixture
def machine() -> Machine:
    return Machine()


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Where nothing is recorded yet."""
    return tmp_path / "run.jsonl.zst"
