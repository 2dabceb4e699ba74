"""Datasets that tests measure: some work, each of the others fails in its own way.

It is imported by measuring processes as a user's file would be.
"""

import ctypes
import os
import signal
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, SequentialSampler

COST = 0.02
HELD_COST = 0.01
LIMIT = 3


class Naps(Dataset):
    """Sleeps for each sample; beyond ``limit`` workers they are in each other's way (as at a
    disk), so all together are half as fast as at the limit. Its true curve is known."""

    def __init__(self, cost: float = COST, limit: int = LIMIT, samples: int = 100_000) -> None:
        self.cost, self.limit, self.samples = cost, limit, samples

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> torch.Tensor:
        info = torch.utils.data.get_worker_info()
        workers = 1 if info is None else info.num_workers
        time.sleep(self.cost if workers <= self.limit else 2 * self.cost * workers / self.limit)
        return torch.full((4,), index)


def limited() -> DataLoader:
    return DataLoader(Naps(), batch_size=2)


def number_of(index: int) -> torch.Tensor:
    return torch.full((4,), index)


class Numbers(Dataset):
    def __init__(self, samples: int = 100_000, make: Callable[[int], object] = number_of) -> None:
        self.samples, self.make = samples, make

    def __len__(self) -> int:
        return self.samples

    def __getitem__(self, index: int) -> object:
        return self.make(index)


def loader(**options: Any) -> Callable[[Callable[[int], object]], DataLoader]:
    """Of what a function makes of an index."""
    return lambda make: DataLoader(Numbers(make=make), **{"batch_size": 4, **options})


class HeldUp:
    """A batch; the process that takes the fourth is held up, as by an import, by the GPU or by
    other processes, while the workers go on."""

    def __init__(self, samples: list[int]) -> None:
        self.samples = samples

    def __reduce__(self) -> tuple[object, ...]:
        return arrived, (self.samples,)


def arrived(samples: list[int]) -> list[int]:
    if samples[0] in (3, 12):
        time.sleep(0.5)
    return samples


@loader()
def raises(index: int) -> None:
    print("reading", index, flush=True)
    raise ValueError(f"bad label \x1b[31m in sample {index}")


@loader()
def hangs(index: int) -> torch.Tensor:
    """In workers only."""
    if torch.utils.data.get_worker_info() is not None:
        # Said by the line that hangs: who has read it finds the worker there.
        time.sleep(1000 + os.write(1, b"hangs\n"))
    return number_of(index)


@loader()
def killed(index: int) -> torch.Tensor:
    if torch.utils.data.get_worker_info() is not None:
        os.kill(os.getpid(), signal.SIGKILL)
    return number_of(index)


@loader()
def exits(_index: int) -> None:
    os._exit(3)


def crash(_index: int) -> None:
    ctypes.string_at(0)


class Stream(IterableDataset):
    """Does not share itself out among workers."""

    def __init__(self, samples: int) -> None:
        self.samples = samples

    def __iter__(self) -> Iterator[torch.Tensor]:
        for number in range(self.samples):
            yield torch.full((2,), number)


class SharedStream(IterableDataset):
    """Each worker sleeps for each of its own samples."""

    def __iter__(self) -> Iterator[int]:
        info = torch.utils.data.get_worker_info()
        for number in range(info.id if info else 0, 100_000, info.num_workers if info else 1):
            time.sleep(HELD_COST)
            yield number


def nap(index: int) -> int:
    time.sleep(HELD_COST)
    return index


@loader()
def orphans(index: int) -> torch.Tensor:
    """Starts a process in a session of its own, and says which."""
    if index == 0:
        import subprocess

        child = subprocess.Popen(["sleep", "1000"], start_new_session=True)
        Path(os.environ["ORPHAN_FILE"]).write_text(str(child.pid))
    return number_of(index)


def collate_fails(samples: list[torch.Tensor]) -> torch.Tensor:
    raise TypeError("these do not go together")


class PairSampler(BatchSampler):
    pass


numbers = DataLoader(Numbers(), batch_size=8, drop_last=True)
shuffled = DataLoader(Numbers(), batch_size=8, shuffle=True, num_workers=1)
collates = DataLoader(Numbers(), batch_size=4, collate_fn=collate_fails)
patient = loader(batch_size=8, num_workers=1, timeout=30, multiprocessing_context="spawn")(
    number_of
)
crashes = loader()(crash)
unpicklable = loader(num_workers=1, multiprocessing_context="spawn")(lambda index: index)
empty = DataLoader([], batch_size=4)
short = DataLoader(Naps(0.005, 64, 24), batch_size=4)
held_up = loader(collate_fn=HeldUp)(nap)
held_up_stream = DataLoader(SharedStream(), batch_size=4, collate_fn=HeldUp)
stream = DataLoader(Stream(1000), batch_size=10)
own_batches = DataLoader(
    Numbers(), batch_sampler=PairSampler(SequentialSampler(range(99)), 3, False)
)
unbatched = DataLoader(Numbers(), batch_size=None)
dataset = Numbers()
number = 7
generator = (number for number in range(3))
model = torch.nn.Linear(2, 2)


def opinionated() -> DataLoader:
    return DataLoader(
        Numbers(), batch_size=16, num_workers=3, prefetch_factor=4, persistent_workers=True
    )


def both() -> tuple[DataLoader, DataLoader]:
    return numbers, shuffled


def needs(root: str) -> DataLoader:
    return numbers


def fails() -> DataLoader:
    raise FileNotFoundError("no such folder: data/train")


def step(batch: torch.Tensor) -> None:
    time.sleep(0.01)


def bad_step(batch: torch.Tensor) -> None:
    raise RuntimeError("shapes cannot be multiplied")


if __name__ == "__main__":
    only_here = numbers
    sys.exit(0)
