"""A train step is measured on a loader's batches."""

from __future__ import annotations

import time
from collections.abc import Iterator
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.tuning.child.step import StepError, is_factory, make_step, measure_step, samples_in
from gpuwatch.tuning.child.step_cuda import idle_share


class Naps:
    """Sleeps, and knows how long each sleep really took."""

    def __init__(self, seconds: float) -> None:
        self.seconds = seconds
        self.took = 0.0

    def __call__(self) -> None:
        begin = time.perf_counter()
        time.sleep(self.seconds)
        self.took += time.perf_counter() - begin


def batches(naps: Naps, count: int = 10_000) -> Iterator[list[int]]:
    for _ in range(count):
        naps()
        yield [0] * 4


@pytest.mark.parametrize(("load", "work"), [(0.010, 0.030), (0.030, 0.010), (0.002, 0.040)])
def test_wait_share_of_a_known_loader(load: float, work: float) -> None:
    """The sleeps of the loader are time waited for data, those of the step are the step's."""
    loading, working = Naps(load), Naps(work)

    def step(_batch: object) -> None:
        working()

    begin = time.perf_counter()
    found = measure_step(batches(loading), step, seconds=0.6, device="cpu", warm_up=0)
    elapsed = time.perf_counter() - begin
    waited = found.data_wait_share * found.seconds
    worked = found.step_seconds_mean * found.batches
    # Whatever a busy machine adds to them: each has its own sleeps, and both no more than all.
    assert loading.took <= waited + 1e-6
    assert working.took <= worked + 1e-6
    assert waited + worked == pytest.approx(found.seconds)
    assert found.seconds <= elapsed
    assert found.samples == found.batches * 4
    assert found.samples_per_second == pytest.approx(found.samples / found.seconds)
    assert found.device_idle_share is None


class TurnedClock:
    """A clock that the loader and the step move themselves: exact on any machine."""

    def __init__(self) -> None:
        self.now = 0.0

    def __call__(self) -> float:
        return self.now


@given(
    load=st.floats(0.001, 1.0),
    work=st.floats(0.001, 1.0),
    size=st.integers(1, 64),
    warm_up=st.integers(0, 4),
)
def test_shares_are_exact_on_an_exact_clock(
    load: float, work: float, size: int, warm_up: int
) -> None:
    """The wait share is load / (load + work), whatever the warm-up and the blocks."""
    clock = TurnedClock()

    def loader() -> Iterator[list[int]]:
        while True:
            clock.now += load
            yield [0] * size

    def step(_batch: object) -> None:
        clock.now += work

    found = measure_step(loader(), step, seconds=10.0, device="cpu", warm_up=warm_up, clock=clock)
    assert found.data_wait_share == pytest.approx(load / (load + work))
    assert found.samples_per_second == pytest.approx(size / (load + work))
    assert found.step_seconds_mean == pytest.approx(work)
    assert 10.0 <= found.seconds + 1e-6 <= 10.1 + 16 * (load + work)
    assert not found.ended_early
    assert all(rate == pytest.approx(size / (load + work)) for rate in found.block_rates)


def test_warm_up_is_not_counted() -> None:
    """A first step that takes long says nothing about the others."""
    clock = TurnedClock()
    costs = iter([50.0, 3.0, 1.0])

    def step(_batch: object) -> None:
        clock.now += next(costs, 0.5)

    def loader() -> Iterator[list[int]]:
        while True:
            clock.now += 0.5
            yield [1]

    found = measure_step(loader(), step, seconds=5.0, device="cpu", warm_up=3, clock=clock)
    assert found.data_wait_share == pytest.approx(0.5)


def test_batches_that_run_out_give_what_there_was() -> None:
    """A loader that ends before the time does is measured as far as it goes."""
    found = measure_step(iter([[1, 2]] * 12), lambda _: None, seconds=60.0, device="cpu")
    assert found.batches == 12 - 3
    assert found.samples == 18
    assert found.ended_early


@pytest.mark.parametrize("count", [0, 1, 3])
def test_too_few_batches(count: int) -> None:
    """A loader that ends within the warm-up is a sentence, not a division by zero."""
    with pytest.raises(StepError, match="nothing to measure"):
        measure_step(iter([[1]] * count), lambda _: None, seconds=1.0, device="cpu")


def test_step_that_fails_names_the_line() -> None:
    """An exception in the step names its type, its text and the user's own line."""

    def step(_batch: object) -> None:
        raise ValueError("bad \x1b[31mlabel")

    with pytest.raises(StepError) as caught:
        measure_step(iter([[1]] * 9), step, seconds=1.0, device="cpu")
    assert "ValueError: bad" in str(caught.value)
    assert "test_step.py:" in str(caught.value)
    assert "\x1b" not in str(caught.value)


def test_loader_that_fails_passes() -> None:
    """What the loader raises is not blamed on the step."""

    def loader() -> Iterator[int]:
        yield 1
        raise KeyError("image 7")

    with pytest.raises(KeyError, match="image 7"):
        measure_step(loader(), lambda _: None, seconds=1.0, device="cpu")


def test_interrupt_in_a_step_passes() -> None:
    """Ctrl-C is not an error of the step."""

    def step(_batch: object) -> None:
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        measure_step(iter([[1]] * 9), step, seconds=1.0, device="cpu")


class Stateful:
    def __init__(self) -> None:
        self.seen = 0

    def __call__(self, batch: Any) -> None:
        self.seen += 1


def test_factories_are_called() -> None:
    """What takes no argument is called for the step; what takes a batch is the step."""

    def takes(batch: object) -> None: ...
    def takes_any(*args: object) -> None: ...
    def optional(batch: object = None) -> None: ...
    def makes() -> Any:
        return takes

    def makes_configured(*, lr: float = 0.1) -> Any:
        return takes

    assert make_step(takes, "train.py:takes") is takes
    assert make_step(makes, "train.py:makes") is takes
    assert make_step(makes_configured, "train.py:makes_configured") is takes
    assert not is_factory(takes_any)
    assert not is_factory(optional)
    assert isinstance(make_step(Stateful, "train.py:Stateful"), Stateful)


def test_what_is_no_step() -> None:
    """A number, a factory that returns nothing and one that raises are one sentence each."""
    with pytest.raises(StepError, match="is an int, not a train step"):
        make_step(3, "train.py:three")
    with pytest.raises(StepError, match="returned None"):
        make_step(lambda: None, "train.py:nothing")

    def broken() -> None:
        raise RuntimeError("no weights")

    with pytest.raises(StepError, match=r"failed: RuntimeError: no weights at .*test_step\.py:"):
        make_step(broken, "train.py:broken")


def test_samples_in_a_batch() -> None:
    """Samples are counted in tensors, columns, dicts, lists and plain things."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    images = torch.zeros(8, 3, 4, 4)
    assert samples_in(images) == 8
    assert samples_in([images, torch.zeros(8)]) == 8
    assert samples_in((["a.png"] * 8, images)) == 8
    assert samples_in({"image": images}) == 8
    assert samples_in({"nested": [{"text": ["a"] * 5}]}) == 5
    assert samples_in([1, 2, 3]) == 3
    assert samples_in(torch.tensor(1.0)) == 1
    assert samples_in({}) == 0
    assert samples_in([]) == 0
    assert samples_in("text") == 1
    assert samples_in(object()) == 1


def test_real_loader_and_model() -> None:
    """A real DataLoader and a real optimizer step: shares and rates hang together."""
    torch = pytest.importorskip("torch", reason="torch is not installed")
    data = torch.utils.data.TensorDataset(torch.randn(4096, 32), torch.randn(4096, 1))
    loader = torch.utils.data.DataLoader(data, batch_size=64)
    model = torch.nn.Linear(32, 1)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)

    def step(batch: Any) -> None:
        x, y = batch
        optimizer.zero_grad()
        torch.nn.functional.mse_loss(model(x), y).backward()
        optimizer.step()

    found = measure_step(loader, step, seconds=60.0)
    assert found.batches == 61
    assert found.samples == 61 * 64
    assert 0.0 < found.data_wait_share < 1.0
    if found.device == "cpu":
        assert found.device_idle_share is None


@given(st.lists(st.tuples(st.floats(0, 5), st.floats(0, 5)), min_size=2, max_size=20))
def test_idle_share_of_known_gaps(steps: list[tuple[float, float]]) -> None:
    """The GPU's idle share is that of the gaps between steps, of the time they span."""
    now, begins, ends, gaps = 0.0, [], [], 0.0
    for number, (gap, work) in enumerate(steps):
        if number:
            now += gap
            gaps += gap
        begins.append(now)
        now += work
        ends.append(now)
    found = idle_share(begins, ends)
    whole = ends[-1] - begins[0]
    if whole <= 0:
        assert found is None
    else:
        assert found == pytest.approx(gaps / whole, abs=1e-9)
