"""Settings of a DataLoader, measurements of it, and why something could not be measured: what
gpuwatch and its measuring process say to each other."""

from __future__ import annotations

from typing import Any

from msgspec import Struct, structs

DEFAULT_PREFETCH = 2
"""DataLoader's own ``prefetch_factor``, where there are workers and nothing is said."""


class Setting(Struct, frozen=True, kw_only=True):
    """Values of the knobs, in the order in which they are tried and written.

    ``batch_size`` ``None``: the loader makes its batches in its own way. ``prefetch_factor`` is
    ``None`` without workers, as DataLoader wants it: ``changed`` sees to that.
    """

    num_workers: int = 0
    prefetch_factor: int | None = None
    pin_memory: bool = False
    batch_size: int | None = None

    def changed(self, **values: Any) -> Setting:
        """Return this setting with other values, as DataLoader accepts them."""
        made = structs.replace(self, **values)
        ahead = (made.prefetch_factor or DEFAULT_PREFETCH) if made.num_workers else None
        return structs.replace(made, prefetch_factor=ahead)


KNOBS = Setting.__struct_fields__


class Order(Struct, frozen=True, kw_only=True):
    """A visit to a setting. ``limit_seconds``: it ends by then with what it has. ``seed``: decides
    which samples."""

    setting: Setting
    seconds: float
    limit_seconds: float
    seed: int = 0


class Visit(Struct, frozen=True, kw_only=True):
    """One measurement of one setting: whole batches after a warm-up.

    Cores and memory are those of the measuring process with its workers in that time; ``None``:
    not read. ``whole_epochs``: the dataset is so short that epochs were timed with their start.
    """

    samples: int
    seconds: float
    first_batch_seconds: float
    cores_used: float | None = None
    workers_memory_bytes: int | None = None
    whole_epochs: bool = False
    data_wait_share: float | None = None

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds


class Failure(Struct, frozen=True, kw_only=True):
    """The reason why something could not be measured, as a sentence for a person.

    ``code`` is one word for programs: ``exception``, ``worker`` (one ended), ``killed``, ``exited``
    (the process), ``hang``, ``empty``, ``no_memory``, ``step``, ``target``. ``line`` is the
    user's own, as ``data.py:12``; ``output`` the last lines that the user's code printed.
    """

    code: str
    sentence: str
    line: str | None = None
    output: tuple[str, ...] = ()


class Loaded(Struct, frozen=True, kw_only=True):
    """A target that was imported: its loader's setting as the user has it (``base``), why its batch
    size cannot be varied (``fixed``, a clause), and the CUDA device's name, if there is one."""

    torch: str
    gpu: str | None = None
    base: Setting = Setting()
    fixed: str | None = None
    samples: int | None = None
    is_iterable: bool = False


class MemoryPoint(Struct, frozen=True, kw_only=True):
    """A few steps at one batch size in a process of their own.

    ``peak_bytes`` is what has to fit: on CUDA what torch's allocator reserved at most, on the CPU
    the largest resident size of the process. ``available_bytes`` is what it could have grown to:
    memory of others, and what the process needs beside it, is taken off. ``allocated_bytes``:
    tensors at most.
    """

    batch_size: int
    peak_bytes: int
    available_bytes: int
    total_bytes: int
    seconds_per_step: float
    allocated_bytes: int | None = None
