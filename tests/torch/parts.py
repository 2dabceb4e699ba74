"""Datasets and a model: importing this imports PyTorch."""

import time
from collections.abc import Iterator
from typing import Any

import torch
from torch.utils import data

from gpuwatch.torch import describe, step


class Reporting(data.Dataset):  # type: ignore[misc, name-defined]
    """Uses gpuwatch.torch where it must not tell: in the workers."""

    def __len__(self) -> int:
        return 16

    def __getitem__(self, number: int) -> Any:
        with step():
            pass
        refused = "DataLoader worker" in describe()
        return torch.tensor([float(number), float(refused)])


class Stream(data.IterableDataset):  # type: ignore[misc, name-defined]
    def __len__(self) -> int:
        return 2

    def __iter__(self) -> Iterator[Any]:
        return iter(torch.arange(8.0))


class Slow(data.Dataset):  # type: ignore[misc, name-defined]
    """2 ms a sample."""

    def __init__(self, count: int) -> None:
        self.count = count

    def __len__(self) -> int:
        return self.count

    def __getitem__(self, number: int) -> dict[str, Any]:
        time.sleep(0.002)
        return {"x": torch.ones(4), "labels": torch.ones(1)}


class Line(torch.nn.Module):  # type: ignore[misc, name-defined]
    """What a trainer of Transformers takes for a model."""

    def __init__(self) -> None:
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
        found = self.layer(x)
        return {"loss": ((found - labels) ** 2).mean(), "logits": found}
