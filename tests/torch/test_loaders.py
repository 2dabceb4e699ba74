"""Watched DataLoaders of PyTorch."""

import warnings
from pathlib import Path

import pytest

from gpuwatch.torch import watch
from tests.support.installed import needs
from tests.torch.support import files_below, reported

pytestmark = needs("torch")


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_workers_do_not_report(tmp_path: Path, method: str) -> None:
    """Only the training process does, whatever its dataset calls."""
    import torch
    from torch.utils import data

    from tests.torch.parts import Reporting

    loader = data.DataLoader(
        Reporting(),
        batch_size=4,
        num_workers=1,
        multiprocessing_context=method,
        persistent_workers=True,
    )
    for _ in range(2):
        refused = torch.cat(list(watch(loader)))[:, 1]
        assert refused.tolist() == [1.0] * 16
    now, counters, _ = reported()
    assert (counters.steps, counters.samples, now.epoch) == (8, 32, 1)
    assert (now.loader_workers, now.steps_in_epoch, now.pinned_memory) == (1, 4, 0)
    assert len(files_below(tmp_path)) == 1


def test_without_gradients_it_is_validation() -> None:
    """A loop over a watched loader under ``no_grad``, unless it is said to be no such thing."""
    import torch
    from torch.utils import data

    loader = data.DataLoader(data.TensorDataset(torch.arange(16.0)), batch_size=4)
    with torch.no_grad():
        list(watch(loader))
        assert reported().counters.steps == 0
        assert reported().counters.validation_ns > 0
        list(watch(loader, validation=False))
    assert reported().counters.steps == 4


def test_a_stream_is_not_asked_for_its_length() -> None:
    """PyTorch would remember the question and warn about the answer."""
    from torch.utils import data

    from tests.torch.parts import Stream

    with warnings.catch_warnings():
        warnings.simplefilter("error")
        loader = data.DataLoader(Stream(), batch_size=2)
        assert len(list(watch(loader))) == 4
    assert reported().now.steps_in_epoch == -1


def test_batches_are_moved() -> None:
    """Every tensor of them, whatever holds them; the rest is as it was."""
    import torch

    batch = {"x": torch.ones(3, 2), "more": (torch.ones(3), ["name", torch.ones(1)]), "y": 4}
    (moved,) = watch([batch], device="meta")
    assert moved["x"].device.type == moved["more"][0].device.type == "meta"
    assert moved["more"][1][0] == "name"
    assert moved["more"][1][1].device.type == "meta"
    assert moved["y"] == 4
    assert reported().counters.copy_ns > 0


def test_the_rank_of_a_process_group_is_reported() -> None:
    """Of one that was made by its arguments, with nothing in the environment."""
    from torch import distributed as group

    if not group.is_available():
        pytest.skip("this PyTorch has no distributed package")
    list(watch([[0]]))
    assert (reported().now.rank, reported().now.world_size) == (-1, -1)
    group.init_process_group("gloo", store=group.HashStore(), rank=0, world_size=1)
    try:
        list(watch([[0]]))
    finally:
        group.destroy_process_group()
    now = reported().now
    assert (now.rank, now.local_rank, now.world_size) == (0, -1, 1)
