"""A simulated machine for these tests, loaded by pynvml in this process."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.support.fake_nvml import FakeNvml, create_or_skip


@pytest.fixture
def fake(tmp_path: Path) -> Iterator[FakeNvml]:
    """Two H200 cards that pynvml in this process sees, initialised."""
    import pynvml

    machine = create_or_skip(tmp_path, gpus=2)
    with machine.in_this_process():
        pynvml.nvmlInit()
        yield machine


@pytest.fixture
def handle(fake: FakeNvml) -> Any:
    """The handle of GPU 0."""
    import pynvml

    return pynvml.nvmlDeviceGetHandleByIndex(0)
