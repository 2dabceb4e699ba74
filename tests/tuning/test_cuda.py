"""Copies to the GPU: what can be known without one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.tuning.child.cuda import hidden_share, measure_copies, rate, tensors_in


def test_none_without_cuda() -> None:
    """Without CUDA there is no copy to measure, and that is said by None."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    assert measure_copies([torch.zeros(4, 4)]) is None


def test_copies_on_a_gpu() -> None:
    """With CUDA: pinned copies are not slower, and rates are those of a bus."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    if not torch.cuda.is_available():
        pytest.skip("there is no CUDA device")
    batch = {"image": torch.zeros(64, 3, 224, 224), "label": torch.zeros(64)}
    found = measure_copies(batch)
    assert found is not None
    assert found.batch_bytes == 64 * 4 * (3 * 224 * 224 + 1)
    assert found.pinned_bytes_per_second > 0.8 * found.pageable_bytes_per_second
    assert 1e8 < found.pinned_bytes_per_second < 1e12
    assert found.pinned_hidden_share > 0.5


def test_tensors_of_a_nested_batch() -> None:
    """All tensors of a batch are found, however it is nested; other things are passed over."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    one, two, three = torch.zeros(1), torch.zeros(2), torch.zeros(3)
    batch = {"a": [one, "text", {"b": (two, None)}], "c": three}
    assert [t.numel() for t in tensors_in(batch)] == [1, 2, 3]
    assert list(tensors_in("text")) == []


def test_rate_is_that_of_the_median() -> None:
    """One slow repeat does not change the rate."""
    assert rate(1_000_000, [0.001, 0.001, 5.0]) == pytest.approx(1e9)
    assert rate(8, [0.0]) > 0


@given(copy=st.floats(1e-6, 1), kernels=st.floats(0, 1), hidden=st.floats(0, 1))
def test_hidden_share_of_known_times(copy: float, kernels: float, hidden: float) -> None:
    """If a share of the copy ran beside the kernels, that share comes back."""
    both = copy + kernels - hidden * copy
    assert hidden_share(copy, kernels, both) == pytest.approx(hidden, abs=1e-6)


def test_hidden_share_stays_a_share() -> None:
    """Times that do not add up (noise) give 0 or 1, never more."""
    assert hidden_share(1.0, 2.0, 4.0) == 0.0
    assert hidden_share(1.0, 2.0, 1.5) == 1.0
    assert hidden_share(0.0, 1.0, 1.0) == 0.0
