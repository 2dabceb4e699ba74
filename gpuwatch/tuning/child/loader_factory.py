"""From a target to a DataLoader with any setting; runs in measuring processes, where torch is.

A loader is copied and only its knobs are changed, so its dataset, sampler, collate function and
whatever else it has stay the very same objects, also in subclasses of DataLoader.
"""

from __future__ import annotations

import contextlib
import copy
import inspect
from collections.abc import Callable, Iterable, Iterator, Mapping
from typing import Any

from gpuwatch.core.text import clean
from gpuwatch.tuning.bench.crash import WorkerStart
from gpuwatch.tuning.child import blame
from gpuwatch.tuning.child.target import Target, TargetError
from gpuwatch.tuning.search.setting import DEFAULT_PREFETCH, KNOBS, Setting


class Maker:
    """Makes loaders from what a target names. Raises ``TargetError`` where it is no loader.

    ``batch_size`` is for datasets (and what returns one). ``base`` is the setting as the user has
    it, ``fixed`` tells of knobs that cannot be varied why.
    """

    def __init__(self, target: Target, batch_size: int | None) -> None:
        self._text = clean(target.text, 200)
        self._batch_size = batch_size
        self._function: Callable[..., Any] | None = None
        self.takes: frozenset[str] = frozenset()
        self.defaults: dict[str, Any] = {}
        """Of the function's parameters in ``takes``."""
        self.is_dataset = False
        found = target.found
        if not _is_loader(found) and not _is_dataset(found):
            self._function = self._callable(found)
            found = self._call_as_it_is()
        self._template = self._as_loader(found)
        self.base = _setting_of(self._template)
        self.fixed = _fixed(self._template, self.takes)

    @property
    def loader(self) -> Any:
        """The loader as the user has it."""
        return self._template

    def make(self, setting: Setting) -> Any:
        """A DataLoader of ``setting``. Raises ``TargetError``."""
        if self.takes:
            return _copied(self._as_loader(self._call(setting)), setting)
        return _copied(self._template, setting)

    def _callable(self, found: Any) -> Callable[..., Any]:
        if not callable(found) or isinstance(found, Iterator) or hasattr(found, "forward"):
            raise TargetError(
                f"{self._text} is {_kind(found)}: name a DataLoader, a Dataset, or a function "
                "that returns one."
            )
        try:
            parameters = inspect.signature(found).parameters.values()
        except (TypeError, ValueError):
            parameters = {}.values()
        self.takes = frozenset(one.name for one in parameters if one.name in KNOBS)
        needed = [
            one.name
            for one in parameters
            if one.default is one.empty
            and one.kind in (one.POSITIONAL_ONLY, one.POSITIONAL_OR_KEYWORD, one.KEYWORD_ONLY)
            and (one.name not in KNOBS or one.kind is one.POSITIONAL_ONLY)
        ]
        if needed:
            raise TargetError(
                f"{self._text} needs the argument {clean(needed[0], 60)!r}: name a function that "
                "can be called without arguments (it may take num_workers, batch_size, ...)."
            )
        function: Callable[..., Any] = found
        self.defaults = {
            one.name: one.default
            for one in parameters
            if one.name in KNOBS and one.default is not one.empty
        }
        if "batch_size" in self.takes and self._batch_size is None:
            self._batch_size = self.defaults.get("batch_size")
            if self._batch_size is None:
                raise TargetError(f"{self._text} takes a batch_size: say one, --batch-size 64.")
        return function

    def _call_as_it_is(self) -> Any:
        """With no more than it needs, so that what it makes is what the user has."""
        plain = Setting(batch_size=self._batch_size).valid().as_dict()
        needed = self.takes - set(self.defaults)
        if "batch_size" in self.takes:
            needed |= {"batch_size"}
        return self._called({knob: plain[knob] for knob in KNOBS if knob in needed})

    def _call(self, setting: Setting) -> Any:
        values = {knob: value for knob, value in setting.as_dict().items() if knob in self.takes}
        if "batch_size" in values and values["batch_size"] is None:
            values["batch_size"] = self._batch_size
        return self._called(values)

    def _called(self, values: Mapping[str, Any]) -> Any:
        assert self._function is not None
        try:
            made = self._function(**values)
        except SystemExit as error:
            raise TargetError(f"{self._text}() ended the program: {blame.told(error)}.") from None
        except Exception as error:
            raise TargetError(f"{self._text}() failed: {blame.told(error)}.") from error
        if not _is_loader(made) and not _is_dataset(made):
            raise TargetError(
                f"{self._text}() returned {_kind(made)}: it is to return one DataLoader or Dataset."
            )
        return made

    def _as_loader(self, found: Any) -> Any:
        from torch.utils.data import DataLoader, IterableDataset  # noqa: PLC0415

        if _is_loader(found):
            return found
        self.is_dataset = True
        if self._batch_size is None:
            raise TargetError(
                f"{self._text} is a dataset without a loader: say how many samples make a batch, "
                "--batch-size 64."
            )
        shuffle = None if isinstance(found, IterableDataset) else bool(len(found))
        return DataLoader(found, batch_size=self._batch_size, shuffle=shuffle)

    def line(self) -> tuple[str, list[tuple[str, str]]]:
        """How the loader is made in code: the callable's name and its arguments but the knobs."""
        if self._function is not None and self.takes:
            return f"{self._text.rpartition(':')[2]}", []
        return _name(type(self._template), "DataLoader"), _arguments(self._template)


def lengths(loader: Any) -> tuple[int | None, int | None]:
    """Samples and batches of an epoch, where they are known without iterating."""
    samples = batches = None
    # They are the user's own methods.
    with contextlib.suppress(Exception):
        samples = len(loader.dataset)
        if loader.batch_size is not None and _own_sampler(loader) is not None:
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
    vars(short)[name] = First(getattr(loader, name), batches)
    vars(short)["_iterator"] = None
    return short


class First:
    """The first of what another sampler gives."""

    def __init__(self, sampler: Iterable[Any], count: int) -> None:
        self._sampler = sampler
        self._count = count

    def __iter__(self) -> Iterator[Any]:
        for number, item in enumerate(self._sampler):
            if number >= self._count:
                return
            yield item

    def __len__(self) -> int:
        return self._count


def is_iterable(loader: Any) -> bool:
    from torch.utils.data import IterableDataset  # noqa: PLC0415

    return isinstance(loader.dataset, IterableDataset)


def start_method(loader: Any) -> str:
    """``fork``, ``spawn`` or ``forkserver``: how its workers start."""
    import torch.multiprocessing  # noqa: PLC0415

    context = vars(loader).get("_DataLoader__multiprocessing_context")
    if context is not None:
        method = context.get_start_method()
    else:
        method = torch.multiprocessing.get_start_method()
    return str(method)


def _is_loader(found: Any) -> bool:
    from torch.utils.data import DataLoader  # noqa: PLC0415

    return isinstance(found, DataLoader)


def _is_dataset(found: Any) -> bool:
    from torch.utils.data import Dataset  # noqa: PLC0415

    if isinstance(found, Dataset):
        return True
    if isinstance(found, type | str | bytes | Mapping) or hasattr(found, "forward"):
        return False
    # A list, or a dataset of another library that DataLoader takes just as well. A tuple is
    # mostly what a function returned that makes several loaders.
    if isinstance(found, tuple) and any(_is_loader(one) or _is_dataset(one) for one in found):
        return False
    return hasattr(type(found), "__getitem__") and hasattr(type(found), "__len__")


def _kind(found: object) -> str:
    if found is None:
        return "None"
    if inspect.isgenerator(found):
        return "a generator"
    name = clean(type(found).__name__, 80)
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"


def _setting_of(loader: Any) -> Setting:
    return Setting(
        num_workers=loader.num_workers,
        pin_memory=bool(loader.pin_memory),
        prefetch_factor=loader.prefetch_factor or DEFAULT_PREFETCH,
        persistent_workers=bool(loader.persistent_workers),
        batch_size=loader.batch_size,
    ).valid()


def _own_sampler(loader: Any) -> Any | None:
    """The batch sampler, if it is the plain one that DataLoader makes itself."""
    from torch.utils.data import BatchSampler  # noqa: PLC0415

    return loader.batch_sampler if type(loader.batch_sampler) is BatchSampler else None


def _fixed(loader: Any, takes: frozenset[str]) -> dict[str, str]:
    if "batch_size" in takes:
        return {}
    if loader.batch_size is None and loader.batch_sampler is not None:
        name = clean(type(loader.batch_sampler).__name__, 80)
        return {"batch_size": f"the loader's batch sampler ({name}) makes the batches"}
    if loader.batch_size is None:
        return {"batch_size": "the dataset makes the batches (batch_size=None)"}
    if not is_iterable(loader) and _own_sampler(loader) is None:
        return {"batch_size": "the loader has a batch sampler of its own kind"}
    return {}


def _copied(loader: Any, setting: Setting) -> Any:
    from torch.utils.data import BatchSampler  # noqa: PLC0415

    made = copy.copy(loader)
    # DataLoader refuses to have some of these assigned once it is made; a copy that has not
    # been iterated can take them.
    values = vars(made)
    values["_iterator"] = None
    values["num_workers"] = setting.num_workers
    values["worker_init_fn"] = WorkerStart(loader.worker_init_fn)
    if not setting.num_workers:
        # Only workers can be late, and it refuses to wait for none.
        values["timeout"] = 0
    values["pin_memory"] = setting.pin_memory
    values["prefetch_factor"] = setting.prefetch_factor
    values["persistent_workers"] = setting.persistent_workers
    if setting.batch_size is not None and setting.batch_size != loader.batch_size:
        values["batch_size"] = setting.batch_size
        values["batch_sampler"] = BatchSampler(loader.sampler, setting.batch_size, loader.drop_last)
    return made


def _arguments(loader: Any) -> list[tuple[str, str]]:
    """What stays as it is, as a person would write it; the knobs come from the setting."""
    from torch.utils.data import (  # noqa: PLC0415
        RandomSampler,
        SequentialSampler,
        default_collate,
        default_convert,
    )

    out: list[tuple[str, str]] = []
    plain = _own_sampler(loader) is not None or loader.batch_sampler is None
    if not is_iterable(loader):
        if not plain:
            out.append(("batch_sampler", "batch_sampler"))
        elif type(loader.sampler) is RandomSampler and not loader.sampler.replacement:
            out.append(("shuffle", "True"))
        elif type(loader.sampler) is not SequentialSampler:
            out.append(("sampler", "sampler"))
    if loader.collate_fn not in (default_collate, default_convert):
        out.append(("collate_fn", _name(loader.collate_fn, "collate_fn")))
    if loader.drop_last:
        out.append(("drop_last", "True"))
    if loader.timeout:
        out.append(("timeout", f"{loader.timeout:g}"))
    if loader.worker_init_fn is not None:
        out.append(("worker_init_fn", _name(loader.worker_init_fn, "worker_init_fn")))
    context = vars(loader).get("_DataLoader__multiprocessing_context")
    if context is not None:
        out.append(("multiprocessing_context", repr(context.get_start_method())))
    if loader.generator is not None:
        out.append(("generator", "generator"))
    if not getattr(loader, "in_order", True):
        out.append(("in_order", "False"))
    return out


def _name(found: Any, otherwise: str) -> str:
    name = getattr(found, "__name__", "")
    return clean(name, 80) if isinstance(name, str) and name.isidentifier() else otherwise
