"""PyTorch is imported once for all measuring processes that tests start from here. When these are
through that process is gone, which other tests would find among their own."""

from collections.abc import Callable, Iterator

import pytest

from gpuwatch.tuning import bench
from gpuwatch.tuning.bench import Bench
from tests.support.warm_torch import WarmTorch


@pytest.fixture(scope="package")
def warm_torch() -> Iterator[WarmTorch]:
    warm = WarmTorch()
    yield warm
    warm.close()


@pytest.fixture
def warm(warm_torch: WarmTorch) -> Iterator[None]:
    with warm_torch.instead_of(bench):
        yield


Silence = Callable[..., None]


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Silence:
    """Whoever waits for the measuring process for ``least`` seconds or longer finds that this time
    has passed once a condition holds, and not before, however slow the machine is."""
    plain = Bench._hear

    def once(condition: Callable[[], bool], least: float = 0.0) -> None:
        def hear(its: Bench, patience: float) -> tuple[object] | None:
            if patience < least:
                return plain(its, patience)
            while True:
                # What was said before it came to hold is heard.
                passed = condition()
                heard = plain(its, 0.01)
                if heard is not None or passed:
                    return heard

        monkeypatch.setattr(Bench, "_hear", hear)

    return once
