"""Folders of tests of what jobs report."""

from pathlib import Path

import pytest


@pytest.fixture
def place(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path
