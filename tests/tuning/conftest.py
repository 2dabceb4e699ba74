"""PyTorch is imported once for all measuring processes that tests start from here. When these are
through that process is gone, which other tests would find among their own."""

from collections.abc import Iterator

import pytest

from tests.support.warm_torch import WarmTorch


@pytest.fixture(scope="package")
def warm_torch() -> Iterator[WarmTorch]:
    warm = WarmTorch("torch._dynamo")
    yield warm
    warm.close()
