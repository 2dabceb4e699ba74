"""From a target to a DataLoader with any setting; runs in measuring processes, where torch is.

A loader is copied and only its knobs are changed, so its dataset, sampler, collate function and
whatever else it has stay the very same objects, also in subclasses of DataLoader.
"""

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.multiprocessing
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset

from gpuwatch.core.text import clean
from gpuwatch.tuning import failures
from gpuwatch.tuning.failures import MeasureError, WorkerStart
from gpuwatch.tuning.records import DEFAULT_PREFETCH, KNOBS, Description, Setting
from gpuwatch.tuning.target import kind_of


class LoaderFactory:
    """Makes loaders from what a target names. Raises ``MeasureError`` where it is no loader.

    ``batch_size`` is for datasets (and functions that return one). ``loader`` and ``base``: as the
    user has it.
    """

    def __init__(self, text: str, found: Any, batch_size: int | None) -> None:
        self._text = clean(text, 200)
        self._batch_size = batch_size
        self._function: Callable[..., Any] | None = None
        self._parameters: Mapping[str, inspect.Parameter] = {}
        if isinstance(found, DataLoader) or _is_dataset(found):
            self.loader = self._as_loader(found)
        else:
            self._check(found)
            # With no more than it needs, so that what it makes is what the user has.
            plain = Setting(batch_size=self._batch_size).as_dict()
            needs = {name for name, one in self._parameters.items() if one.default is one.empty}
            needed = (needs | {"batch_size"}) & self._parameters.keys() & set(KNOBS)
            self.loader = self._called({knob: plain[knob] for knob in KNOBS if knob in needed})
        self.base = Setting(
            num_workers=self.loader.num_workers,
            pin_memory=bool(self.loader.pin_memory),
            prefetch_factor=self.loader.prefetch_factor or DEFAULT_PREFETCH,
            batch_size=self.loader.batch_size,
        ).changed()

    def make(self, setting: Setting) -> Any:
        """Return a DataLoader of ``setting``. Raises ``MeasureError``."""
        values = {
            knob: value for knob, value in setting.as_dict().items() if knob in self._parameters
        }
        if not values:
            return _copied(self.loader, setting)
        if "batch_size" in values:
            values["batch_size"] = setting.batch_size or self._batch_size
        if "persistent_workers" in self._parameters and not setting.num_workers:
            values["persistent_workers"] = False
        return _copied(self._called(values), setting)

    def _check(self, found: Any) -> None:
        if not callable(found) or isinstance(found, Iterator) or hasattr(found, "forward"):
            raise MeasureError(
                f"{self._text} is {kind_of(found)}: name a DataLoader, a Dataset, or a function "
                "that returns one."
            )
        self._function = found
        with contextlib.suppress(TypeError, ValueError):
            self._parameters = inspect.signature(found).parameters
        for name, one in self._parameters.items():
            several = one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
            if one.default is one.empty and name not in KNOBS and not several:
                raise MeasureError(
                    f"{self._text} needs the argument {clean(name, 60)!r}: name a function that "
                    "can be called without arguments (it may take num_workers, batch_size, ...)."
                )
        size = self._parameters.get("batch_size")
        if size is not None and self._batch_size is None:
            if not isinstance(size.default, int):
                raise MeasureError(f"{self._text} takes a batch_size: say one, --batch-size 64.")
            self._batch_size = size.default

    def _called(self, values: Mapping[str, Any]) -> Any:
        assert self._function is not None
        try:
            made = self._function(**values)
        except (Exception, SystemExit) as error:
            raise MeasureError(f"{self._text}() failed: {failures.described(error)}.") from error
        if not isinstance(made, DataLoader) and not _is_dataset(made):
            raise MeasureError(
                f"{self._text}() returned {kind_of(made)}: it should return one DataLoader or "
                "Dataset."
            )
        return self._as_loader(made)

    def _as_loader(self, found: Any) -> Any:
        if isinstance(found, DataLoader):
            return found
        if self._batch_size is None:
            raise MeasureError(
                f"{self._text} is a dataset without a loader: say how many samples make a batch, "
                "--batch-size 64."
            )
        shuffle = None if isinstance(found, IterableDataset) else bool(len(found))
        return DataLoader(found, batch_size=self._batch_size, shuffle=shuffle)

    def describe(self) -> Description:
        return Description(
            base=self.base,
            fixed=None if "batch_size" in self._parameters else _fixed(self.loader),
            samples=lengths(self.loader)[0],
            start_method=start_method(self.loader),
            cuda=torch.cuda.is_available(),
            torch=clean(str(torch.__version__), 40),
        )


def lengths(loader: Any) -> tuple[int | None, int | None]:
    """Return samples and batches of an epoch, where they are known without iterating."""
    samples = batches = None
    # They are the user's own methods.
    with contextlib.suppress(Exception):
        samples = len(loader.dataset)
        if loader.batch_size is not None and _is_plain(loader):
            samples = len(loader.sampler)
    with contextlib.suppress(Exception):
        batches = len(loader)
    return samples, batches


def is_iterable(loader: Any) -> bool:
    return isinstance(loader.dataset, IterableDataset)


def start_method(loader: Any) -> str:
    """``fork``, ``spawn`` or ``forkserver``: how its workers start."""
    context = vars(loader).get("_DataLoader__multiprocessing_context")
    return str((context or torch.multiprocessing).get_start_method())


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


def _fixed(loader: Any) -> str | None:
    """Return why the batch size cannot be varied, a clause."""
    if loader.batch_size is None and loader.batch_sampler is None:
        return "the dataset makes the batches (batch_size=None)"
    if loader.batch_size is None or (not is_iterable(loader) and not _is_plain(loader)):
        name = clean(type(loader.batch_sampler).__name__, 80)
        return f"the loader's batch sampler ({name}) makes the batches"
    return None


def _copied(loader: Any, setting: Setting) -> Any:
    made = copy.copy(loader)
    # DataLoader refuses to have some of these assigned once it is made; a copy that has not
    # been iterated can take them.
    values = vars(made)
    values |= {knob: value for knob, value in setting.as_dict().items() if knob != "batch_size"}
    values["_iterator"] = None
    values["worker_init_fn"] = WorkerStart(loader.worker_init_fn)
    if not setting.num_workers:
        # Only workers can be late or stay, and it refuses these without any.
        values |= {"timeout": 0, "persistent_workers": False}
    if setting.batch_size is not None and setting.batch_size != loader.batch_size:
        values["batch_size"] = setting.batch_size
        values["batch_sampler"] = BatchSampler(loader.sampler, setting.batch_size, loader.drop_last)
    return made


def why_empty(loader: Any) -> str:
    samples, _ = lengths(loader)
    if samples and loader.drop_last and loader.batch_size:
        return (
            f"No batch comes: drop_last leaves nothing of {samples} samples with a batch size of "
            f"{loader.batch_size}."
        )
    return "No batch comes: the dataset is empty, or its sampler yields nothing."
