"""Messages between gpuwatch and its measuring processes: JSON, one in a packet.

A socket of the kind SEQPACKET keeps messages apart and whole, so a process that dies while it
writes one leaves nothing half written.
"""

from __future__ import annotations

import socket
from typing import TypeVar

import msgspec
from msgspec import Struct

from gpuwatch.tuning.memory import Gpu, MemoryPoint
from gpuwatch.tuning.settings import Description, Failure, Setting, Visit

PACKET_BYTES = 128 * 1024
"""Under the kernel's usual buffer (208 KiB), within which a packet must lie."""
M = TypeVar("M", bound=Struct)


class Start(Struct, kw_only=True, omit_defaults=True):
    """The task of a host process. ``target``: a loader or dataset; ``step``: a train step.
    ``load_first``: import them before measuring processes are forked."""

    target: str | None
    step: str | None = None
    batch_size: int | None = None
    load_first: bool = True


class Order(Struct, kw_only=True, omit_defaults=True):
    """A measurement: a ``visit`` to a setting, the ``memory`` of a step, or which
    ``gpus`` there are. ``abort`` ends a measurement."""

    what: str
    setting: Setting = Setting()
    round: int = 0
    seconds: float = 0.0
    limit_seconds: float = 0.0
    """A visit ends by then with what it has."""
    seed: int = 0
    whole_epochs: bool = False
    restart: bool = False
    """Also begin a second epoch, and time how long that takes to its first batch."""
    batch_size: int = 0
    precision: str = ""
    device: int | None = None
    """A CUDA device as torch numbers it; ``None``: the CPU."""
    limit_bytes: int | None = None


class Answer(Struct, kw_only=True, omit_defaults=True):
    """``kind``: ``alive`` and ``loaded`` while a target is imported; ``started`` and ``ended``
    around a measurement (``pid``, ``status``); ``alive``, ``result`` or ``failed`` from it."""

    kind: str
    pid: int = 0
    status: int = 0
    unsafe: str | None = None
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


class Channel:
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
        """The next message, waited for. Raises ``ClosedError``."""
        try:
            data = self._socket.recv(PACKET_BYTES)
        except OSError as error:
            raise ClosedError from error
        if not data:
            raise ClosedError
        return msgspec.json.decode(data, type=kind)

    def close(self) -> None:
        self._socket.close()
