"""PyTorch is imported once for all measuring processes that tests start from here. When these are
through that process is gone, which other tests would find among their own."""

from collections.abc import Callable, Iterator

import pytest

from gpuwatch.tuning import host_process
from gpuwatch.tuning.host_process import HostProcess
from gpuwatch.tuning.messages import Answer
from tests.support.warm_torch import WarmTorch


@pytest.fixture(scope="package")
def warm_torch() -> Iterator[WarmTorch]:
    warm = WarmTorch("torch._dynamo")
    yield warm
    warm.close()


@pytest.fixture
def warm(warm_torch: WarmTorch) -> Iterator[None]:
    with warm_torch.instead_of(host_process):
        yield


Silence = Callable[..., None]


@pytest.fixture
def silence(monkeypatch: pytest.MonkeyPatch) -> Silence:
    """Who waits for measuring processes for ``least`` seconds or longer finds that this time has
    passed once a condition holds, and not before, however slow the machine is."""
    plain = HostProcess.hear

    def once(condition: Callable[[], bool], least: float = 0.0) -> None:
        def hear(its: HostProcess, patience: float) -> Answer | None:
            if patience < least:
                return plain(its, patience)
            while True:
                # What was said before it came to hold is heard.
                passed = condition()
                heard = plain(its, 0.01)
                if heard is not None or passed:
                    return heard

        monkeypatch.setattr(HostProcess, "hear", hear)

    return once
