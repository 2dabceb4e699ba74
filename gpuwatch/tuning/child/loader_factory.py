"""From a target to a DataLoader with any setting; runs in measuring processes, where torch is.

A loader is copied and only its knobs are changed, so its dataset, sampler, collate function and
whatever else it has stay the very same objects, also in subclasses of DataLoader.
"""

import contextlib
import copy
import inspect
import itertools
from collections.abc import Callable, Iterator, Mapping
from typing import Any

import torch
import torch.multiprocessing
from torch.utils.data import (
    BatchSampler,
    DataLoader,
    Dataset,
    IterableDataset,
    RandomSampler,
    SequentialSampler,
    default_collate,
    default_convert,
)

from gpuwatch.core.text import clean
from gpuwatch.tuning import failures
from gpuwatch.tuning.child.crash import WorkerStart
from gpuwatch.tuning.child.target import kind_of
from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.settings import DEFAULT_PREFETCH, NAMES, Description, Setting


class LoaderFactory:
    """Makes loaders from what a target names. Raises ``MeasureError`` where it is no loader.

    ``batch_size`` is for datasets (and what returns one). ``loader`` and ``base``: as the user has
    it. ``fixed``: why a knob cannot be varied.
    """

    def __init__(self, text: str, found: Any, batch_size: int | None) -> None:
        self._text = clean(text, 200)
        self._batch_size = batch_size
        self._function: Callable[..., Any] | None = None
        self.takes: frozenset[str] = frozenset()
        self.defaults: dict[str, Any] = {}
        """Of the function's parameters in ``takes``."""
        self.is_dataset = False
        if not isinstance(found, DataLoader) and not _is_dataset(found):
            self._function = self._checked(found)
            # With no more than it needs, so that what it makes is what the user has.
            needed = (self.takes - set(self.defaults)) | (self.takes & {"batch_size"})
            plain = Setting(batch_size=self._batch_size).as_dict()
            found = self._called({knob: plain[knob] for knob in NAMES if knob in needed})
        self.loader = self._as_loader(found)
        self.base = Setting(
            num_workers=self.loader.num_workers,
            pin_memory=bool(self.loader.pin_memory),
            prefetch_factor=self.loader.prefetch_factor or DEFAULT_PREFETCH,
            persistent_workers=bool(self.loader.persistent_workers),
            batch_size=self.loader.batch_size,
        ).valid()
        self.fixed = {} if "batch_size" in self.takes else _fixed(self.loader)

    def make(self, setting: Setting) -> Any:
        """A DataLoader of ``setting``. Raises ``MeasureError``."""
        if not self.takes:
            return _copied(self.loader, setting)
        values = {knob: value for knob, value in setting.as_dict().items() if knob in self.takes}
        if "batch_size" in values and values["batch_size"] is None:
            values["batch_size"] = self._batch_size
        return _copied(self._as_loader(self._called(values)), setting)

    def _checked(self, found: Any) -> Callable[..., Any]:
        if not callable(found) or isinstance(found, Iterator) or hasattr(found, "forward"):
            raise MeasureError(
                f"{self._text} is {kind_of(found)}: name a DataLoader, a Dataset, or a function "
                "that returns one."
            )
        try:
            parameters = list(inspect.signature(found).parameters.values())
        except (TypeError, ValueError):
            parameters = []
        for one in parameters:
            knob = one.name in NAMES and one.kind is not one.POSITIONAL_ONLY
            several = one.kind in (one.VAR_POSITIONAL, one.VAR_KEYWORD)
            if one.default is one.empty and not knob and not several:
                raise MeasureError(
                    f"{self._text} needs the argument {clean(one.name, 60)!r}: name a function "
                    "that can be called without arguments (it may take num_workers, batch_size, "
                    "...)."
                )
        knobs = [one for one in parameters if one.name in NAMES]
        self.takes = frozenset(one.name for one in knobs)
        self.defaults = {one.name: one.default for one in knobs if one.default is not one.empty}
        if "batch_size" in self.takes and self._batch_size is None:
            self._batch_size = self.defaults.get("batch_size")
            if self._batch_size is None:
                raise MeasureError(f"{self._text} takes a batch_size: say one, --batch-size 64.")
        function: Callable[..., Any] = found
        return function

    def _called(self, values: Mapping[str, Any]) -> Any:
        assert self._function is not None
        try:
            made = self._function(**values)
        except SystemExit as error:
            how = failures.described(error)
            raise MeasureError(f"{self._text}() ended the program: {how}.") from None
        except Exception as error:
            raise MeasureError(f"{self._text}() failed: {failures.described(error)}.") from error
        if not isinstance(made, DataLoader) and not _is_dataset(made):
            raise MeasureError(
                f"{self._text}() returned {kind_of(made)}: it should return one DataLoader or "
                "Dataset."
            )
        return made

    def _as_loader(self, found: Any) -> Any:
        if isinstance(found, DataLoader):
            return found
        self.is_dataset = True
        if self._batch_size is None:
            raise MeasureError(
                f"{self._text} is a dataset without a loader: say how many samples make a batch, "
                "--batch-size 64."
            )
        shuffle = None if isinstance(found, IterableDataset) else bool(len(found))
        return DataLoader(found, batch_size=self._batch_size, shuffle=shuffle)

    def describe(self) -> Description:
        """Without making a CUDA context: a process that has one cannot be forked."""
        accelerator = None
        with contextlib.suppress(Exception):
            accelerator = "cuda" if torch.cuda.is_available() else None
        by_function = self._function is not None and self.takes
        name = self._text.rpartition(":")[2] if by_function else _name(type(self.loader))
        return Description(
            base=self.base,
            fixed=self.fixed,
            takes=tuple(sorted(self.takes)),
            # A default that is no value of a knob is none.
            defaults={
                knob: value if isinstance(value, bool | int) else None
                for knob, value in self.defaults.items()
            },
            is_dataset=self.is_dataset,
            iterable=is_iterable(self.loader),
            dataset=kind_of(self.loader.dataset),
            samples=lengths(self.loader)[0],
            start_method=start_method(self.loader),
            accelerator=accelerator,
            line_name=name or "DataLoader",
            line_arguments=() if by_function else tuple(_arguments(self.loader)),
            torch=str(torch.__version__),
        )


def lengths(loader: Any) -> tuple[int | None, int | None]:
    """Samples and batches of an epoch, where they are known without iterating."""
    samples = batches = None
    # They are the user's own methods.
    with contextlib.suppress(Exception):
        samples = len(loader.dataset)
        if loader.batch_size is not None and _is_plain(loader):
            samples = len(loader.sampler)
    with contextlib.suppress(Exception):
        batches = len(loader)
    return samples, batches


def shortened(loader: Any, batches: int) -> Any | None:
    """The same loader with epochs of at most ``batches``; ``None`` for an iterable dataset."""
    if is_iterable(loader):
        return None
    short = copy.copy(loader)
    name = "batch_sampler" if loader.batch_sampler is not None else "sampler"
    # A list will do as a sampler.
    vars(short)[name] = list(itertools.islice(getattr(loader, name), batches))
    vars(short)["_iterator"] = None
    return short


def is_iterable(loader: Any) -> bool:
    return isinstance(loader.dataset, IterableDataset)


def start_method(loader: Any) -> str:
    """``fork``, ``spawn`` or ``forkserver``: how its workers start."""
    return str((_context(loader) or torch.multiprocessing).get_start_method())


def _context(loader: Any) -> Any:
    return vars(loader).get("_DataLoader__multiprocessing_context")


def _is_dataset(found: Any) -> bool:
    if isinstance(found, Dataset):
        return True
    if isinstance(found, type | str | bytes | Mapping) or hasattr(found, "forward"):
        return False
    # A list, or a dataset of another library that DataLoader takes just as well. A tuple is
    # mostly what a function returned that makes several loaders.
    if isinstance(found, tuple) and any(
        isinstance(one, DataLoader) or _is_dataset(one) for one in found
    ):
        return False
    return hasattr(type(found), "__getitem__") and hasattr(type(found), "__len__")


def _is_plain(loader: Any) -> bool:
    """True if its batch sampler is the one that DataLoader makes itself."""
    return type(loader.batch_sampler) is BatchSampler


def _fixed(loader: Any) -> dict[str, str]:
    if loader.batch_size is None and loader.batch_sampler is not None:
        name = clean(type(loader.batch_sampler).__name__, 80)
        return {"batch_size": f"the loader's batch sampler ({name}) makes the batches"}
    if loader.batch_size is None:
        return {"batch_size": "the dataset makes the batches (batch_size=None)"}
    if not is_iterable(loader) and not _is_plain(loader):
        return {"batch_size": "the loader has a batch sampler of its own kind"}
    return {}


def _copied(loader: Any, setting: Setting) -> Any:
    made = copy.copy(loader)
    # DataLoader refuses to have some of these assigned once it is made; a copy that has not
    # been iterated can take them.
    values = vars(made)
    values |= {knob: value for knob, value in setting.as_dict().items() if knob != "batch_size"}
    values["_iterator"] = None
    values["worker_init_fn"] = WorkerStart(loader.worker_init_fn)
    if not setting.num_workers:
        # Only workers can be late, and it refuses to wait for none.
        values["timeout"] = 0
    if setting.batch_size is not None and setting.batch_size != loader.batch_size:
        values["batch_size"] = setting.batch_size
        values["batch_sampler"] = BatchSampler(loader.sampler, setting.batch_size, loader.drop_last)
    return made


def _arguments(loader: Any) -> Iterator[tuple[str, str]]:
    """Arguments that stay as they are, as a person would write them; the knobs come from the
    setting."""
    if not is_iterable(loader):
        if not _is_plain(loader) and loader.batch_sampler is not None:
            yield "batch_sampler", "batch_sampler"
        elif type(loader.sampler) is RandomSampler and not loader.sampler.replacement:
            yield "shuffle", "True"
        elif type(loader.sampler) is not SequentialSampler:
            yield "sampler", "sampler"
    if loader.collate_fn not in (default_collate, default_convert):
        yield "collate_fn", _name(loader.collate_fn) or "collate_fn"
    if loader.drop_last:
        yield "drop_last", "True"
    if loader.timeout:
        yield "timeout", f"{loader.timeout:g}"
    if loader.worker_init_fn is not None:
        yield "worker_init_fn", _name(loader.worker_init_fn) or "worker_init_fn"
    if _context(loader) is not None:
        yield "multiprocessing_context", repr(_context(loader).get_start_method())
    if loader.generator is not None:
        yield "generator", "generator"
    if not getattr(loader, "in_order", True):
        yield "in_order", "False"


def _name(found: Any) -> str:
    name = getattr(found, "__name__", "")
    return clean(name, 80) if isinstance(name, str) and name.isidentifier() else ""


def why_empty(loader: Any) -> str:
    samples, _ = lengths(loader)
    if samples == 0:
        return "The dataset is empty: it has no samples."
    if samples is not None and loader.drop_last and loader.batch_size:
        return (
            f"No batch comes: drop_last leaves nothing of {samples} samples with a batch size of "
            f"{loader.batch_size}."
        )
    if is_iterable(loader):
        return "The dataset is empty: its iterator yields nothing."
    return "No batch comes: the sampler yields nothing."
