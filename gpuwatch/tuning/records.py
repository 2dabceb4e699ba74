"""The knobs of a DataLoader, measurements of it, and the messages between gpuwatch and its
measuring process, which are JSON."""

from __future__ import annotations

from multiprocessing.connection import Connection
from typing import Any, TypeVar

import msgspec
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
        if made.num_workers == 0:
            return structs.replace(made, prefetch_factor=None)
        return structs.replace(made, prefetch_factor=made.prefetch_factor or DEFAULT_PREFETCH)

    def as_dict(self) -> dict[str, Any]:
        return structs.asdict(self)


KNOBS = Setting.__struct_fields__


class Visit(Struct, frozen=True, kw_only=True):
    """One measurement of one setting: a window of whole batches after a warm-up.

    Cores and memory are those of the measuring process with its workers in that window; ``None``:
    not read. ``from_disk``: a good part of what was read came from the disk and not from memory.
    ``whole_epochs``: the dataset is so short that epochs were timed with their start.
    """

    samples: int
    batches: int
    seconds: float
    first_batch_seconds: float
    cores_used: float | None = None
    workers_memory_bytes: int | None = None
    from_disk: bool = False
    whole_epochs: bool = False
    data_wait_share: float | None = None

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds


class Failure(Struct, frozen=True, kw_only=True):
    """The reason why something could not be measured, as a sentence for a person.

    ``code`` is one word for programs; ``line`` the user's own, as ``data.py:12``; ``output`` the
    last lines that the user's code printed.
    """

    code: str
    sentence: str
    line: str | None = None
    output: tuple[str, ...] = ()


class Description(Struct, frozen=True, kw_only=True):
    """A loader: enough to choose settings. ``base``: the setting as the user has it; ``fixed``: why
    the batch size cannot be varied, a clause."""

    base: Setting
    fixed: str | None
    samples: int | None
    start_method: str
    cuda: bool
    torch: str


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


class Start(Struct, kw_only=True, omit_defaults=True):
    """The first message to a measuring process: what to import. ``device``: the only CUDA device
    that it is to see, as torch numbers them; ``None``: all of them."""

    target: str | None
    step: str | None = None
    batch_size: int | None = None
    device: int | None = None


class Order(Struct, kw_only=True, omit_defaults=True):
    """A visit to a setting. ``limit_seconds``: it ends by then with what it has. ``seed``: decides
    which samples."""

    setting: Setting
    seconds: float
    limit_seconds: float
    seed: int = 0


class MemoryOrder(Struct, kw_only=True, omit_defaults=True):
    """Steps at ``batch_size``; ``precision``: the autocast type around them, if any."""

    batch_size: int
    precision: str | None = None
    on_cpu: bool = False
    limit_bytes: int | None = None


class Request(Struct, kw_only=True, omit_defaults=True):
    """A message to a measuring process that is ready: one of these."""

    visit: Order | None = None
    memory: MemoryOrder | None = None


class Answer(Struct, kw_only=True, omit_defaults=True):
    """``kind``: ``alive`` while something goes on, then ``loaded``, ``result`` or ``failed``.
    ``gpus``: names of the CUDA devices; ``no_cuda``: why there are none, a clause."""

    kind: str
    description: Description | None = None
    failure: Failure | None = None
    visit: Visit | None = None
    point: MemoryPoint | None = None
    gpus: tuple[str, ...] = ()
    torch: str = ""
    no_cuda: str = ""


class ClosedError(Exception):
    """The other end has gone."""


M = TypeVar("M", bound=Struct)


def send(connection: Connection, message: Struct) -> None:
    """Raises ``ClosedError``."""
    try:
        connection.send_bytes(msgspec.json.encode(message))
    except OSError as error:
        raise ClosedError from error


def receive(connection: Connection, kind: type[M]) -> M:
    """Wait for the next message. Raises ``ClosedError``."""
    try:
        return msgspec.json.decode(connection.recv_bytes(), type=kind)
    except (OSError, EOFError) as error:
        raise ClosedError from error
