"""Simulated machines that are watched."""

from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.sources.nvml.watch import Watch, watching


@pytest.fixture
def watch(tmp_path: Path) -> Iterator[Watch]:
    """One H200."""
    with watching(tmp_path, gpus=1, opened=False) as made:
        yield made


@pytest.fixture
def pair(tmp_path: Path) -> Iterator[Watch]:
    """Two."""
    with watching(tmp_path, gpus=2, opened=False) as made:
        yield made
