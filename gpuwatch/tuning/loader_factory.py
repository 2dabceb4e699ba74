"""Factory of DataLoaders with any setting, from a target; for measuring processes, with PyTorch.

A loader is copied and only its knobs are changed, so its dataset, sampler, collate function and
whatever else it has stay the very same objects, also in subclasses of DataLoader.
"""

import contextlib
import copy
from collections.abc import Iterator, Mapping
from typing import Any

from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset

from gpuwatch.core.text import clean
from gpuwatch.tuning import failures
from gpuwatch.tuning.failures import MeasureError, WorkerStart
from gpuwatch.tuning.records import DEFAULT_PREFETCH, KNOBS, Setting
from gpuwatch.tuning.target import kind_of


class LoaderFactory:
    """Makes loaders from what a target names: a DataLoader, a dataset, or a function without
    arguments that returns one of them. Raises ``MeasureError`` where it is none.

    ``batch_size`` is for datasets. ``loader`` and ``base``: as the user has it. ``fixed``: why the
    batch size cannot be varied, a clause.
    """

    def __init__(self, text: str, found: Any, batch_size: int | None) -> None:
        shown = clean(text, 200)
        if not isinstance(found, DataLoader) and not _is_dataset(found):
            shown, found = f"{shown}()", _called(shown, found)
        if not isinstance(found, DataLoader):
            if batch_size is None:
                raise MeasureError(
                    f"{shown} is a dataset without a loader: say how many samples make a batch, "
                    "--batch-size 64."
                )
            shuffle = None if isinstance(found, IterableDataset) else bool(len(found))
            found = DataLoader(found, batch_size=batch_size, shuffle=shuffle)
        self.loader: Any = found
        self.base = Setting(
            num_workers=found.num_workers,
            pin_memory=bool(found.pin_memory),
            prefetch_factor=found.prefetch_factor or DEFAULT_PREFETCH,
            batch_size=found.batch_size,
        ).changed()
        self.is_iterable = isinstance(found.dataset, IterableDataset)
        self.fixed: str | None = None
        if found.batch_size is None or not (self.is_iterable or _is_plain(found)):
            self.fixed = f"{clean(type(found.batch_sampler).__name__, 80)} makes the batches"
            if found.batch_sampler is None:
                self.fixed = "the dataset makes the batches (batch_size=None)"

    @property
    def samples(self) -> int | None:
        """Samples of an epoch, where they are known without iterating."""
        # They are the user's own methods.
        with contextlib.suppress(Exception):
            return len(self.loader.sampler if _is_plain(self.loader) else self.loader.dataset)
        return None

    def make(self, setting: Setting) -> Any:
        """Return a copy of the loader with ``setting``, which has not been iterated."""
        loader, made = self.loader, copy.copy(self.loader)
        # DataLoader refuses to have some of these assigned once it is made.
        values = vars(made)
        values |= {knob: getattr(setting, knob) for knob in KNOBS if knob != "batch_size"}
        values |= {"_iterator": None, "worker_init_fn": WorkerStart(loader.worker_init_fn)}
        if not setting.num_workers:
            # Only workers can be late or stay, and it refuses these without any.
            values |= {"timeout": 0, "persistent_workers": False}
        size = setting.batch_size
        if size is not None and size != loader.batch_size:
            batches = BatchSampler(loader.sampler, size, loader.drop_last)
            values |= {"batch_size": size, "batch_sampler": batches}
        return made


def _called(shown: str, function: Any) -> Any:
    if not callable(function) or isinstance(function, Iterator) or hasattr(function, "forward"):
        raise MeasureError(
            f"{shown} is {kind_of(function)}: name a DataLoader, a Dataset, or a function without "
            "arguments that returns one."
        )
    try:
        made = function()
    except (Exception, SystemExit) as error:
        raise MeasureError(f"{shown}() failed: {failures.described(error)}.") from error
    if not isinstance(made, DataLoader) and not _is_dataset(made):
        raise MeasureError(
            f"{shown}() returned {kind_of(made)}: it should return one DataLoader or Dataset."
        )
    return made


def _is_dataset(found: Any) -> bool:
    if isinstance(found, Dataset):
        return True
    # A tuple is mostly what a function returned that makes several loaders.
    if isinstance(found, type | str | bytes | tuple | Mapping) or hasattr(found, "forward"):
        return False
    # A list, or a dataset of another library that DataLoader takes just as well.
    return hasattr(type(found), "__getitem__") and hasattr(type(found), "__len__")


def _is_plain(loader: Any) -> bool:
    """True if its batch sampler is the one that DataLoader makes itself."""
    return type(loader.batch_sampler) is BatchSampler
