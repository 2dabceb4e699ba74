"""The knobs of a DataLoader, measurements of it, and the messages between gpuwatch and its
measuring process, which are JSON."""

from __future__ import annotations

import socket
from typing import Any, TypeVar

import msgspec
from msgspec import Struct, structs

DEFAULT_PREFETCH = 2
"""DataLoader's own ``prefetch_factor``, where there are workers and nothing is said."""
PACKET_BYTES = 128 * 1024
"""Under the kernel's usual buffer (208 KiB), within which a packet must lie."""


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

    Cores and bytes are those of the measuring process with its workers in that window; ``None``:
    not read. ``whole_epochs``: the dataset is so short that epochs were timed with their start.
    """

    samples: int
    batches: int
    seconds: float
    first_batch_seconds: float
    cores_used: float | None = None
    other_cores_used: float | None = None
    workers_memory_bytes: int | None = None
    disk_read_bytes: int | None = None
    read_bytes: int | None = None
    whole_epochs: bool = False
    data_wait_share: float | None = None
    gpu_busy_percent: float | None = None

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds

    @property
    def from_disk(self) -> bool:
        """True if a good part of what was read came from the disk and not from memory."""
        disk = self.disk_read_bytes or 0
        return disk >= 2**20 and disk >= 0.05 * max(self.read_bytes or 0, disk)


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


class Gpu(Struct, frozen=True, kw_only=True):
    """A CUDA device as torch sees it; ``bfloat16``: it computes with it."""

    name: str
    bfloat16: bool


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
    """A measurement: a ``visit`` to a setting, or the ``memory`` of steps at ``batch_size``.
    ``limit_seconds``: a visit ends by then with what it has. ``seed``: decides which samples."""

    what: str
    setting: Setting = Setting()
    seconds: float = 0.0
    limit_seconds: float = 0.0
    seed: int = 0
    batch_size: int = 0
    precision: str = ""
    on_cpu: bool = False
    limit_bytes: int | None = None


class Answer(Struct, kw_only=True, omit_defaults=True):
    """``kind``: ``alive`` while something goes on, then ``loaded``, ``result`` or ``failed``."""

    kind: str
    description: Description | None = None
    failure: Failure | None = None
    visit: Visit | None = None
    point: MemoryPoint | None = None
    gpus: tuple[Gpu, ...] = ()
    torch: str = ""
    no_cuda: str = ""
    """Why there are no GPUs, a clause."""


class ClosedError(Exception):
    """The other end has gone."""


M = TypeVar("M", bound=Struct)


class Channel:
    """One end of a socket that keeps messages apart and whole (SEQPACKET), so a process that dies
    while it writes one leaves nothing half written."""

    def __init__(self, end: socket.socket) -> None:
        self._socket = end

    @classmethod
    def pair(cls) -> tuple[Channel, Channel]:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return cls(one), cls(other)

    def fileno(self) -> int:
        return self._socket.fileno()

    def send(self, message: Struct) -> None:
        """Raises ``ClosedError``."""
        try:
            self._socket.sendall(msgspec.json.encode(message))
        except OSError as error:
            raise ClosedError from error

    def receive(self, kind: type[M]) -> M:
        """Wait for the next message. Raises ``ClosedError``."""
        try:
            data = self._socket.recv(PACKET_BYTES)
        except OSError as error:
            raise ClosedError from error
        if not data:
            raise ClosedError
        return msgspec.json.decode(data, type=kind)

    def close(self) -> None:
        self._socket.close()
