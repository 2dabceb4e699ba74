"""Folders and children of tests of what jobs report."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.support.children import Children, children


@pytest.fixture
def started() -> Iterator[Children]:
    with children() as made:
        yield made


@pytest.fixture
def place(tmp_path: Path) -> Path:
    tmp_path.chmod(0o700)
    return tmp_path
