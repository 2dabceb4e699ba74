"""PyTorch is imported once for all measuring processes that tests start from here."""

from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.support.warm_torch import WarmTorch


@pytest.fixture(scope="session")
def warm_torch() -> Iterator[WarmTorch]:
    warm = WarmTorch()
    yield warm
    warm.close()
