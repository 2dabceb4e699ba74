"""Messages between gpuwatch and its measuring processes: JSON objects, one a packet.

A socket of the kind SEQPACKET keeps messages apart and whole, so a process that dies while it
writes one leaves nothing half said. Standard library only.
"""

from __future__ import annotations

import json
import socket
from typing import Any

PACKET_BYTES = 128 * 1024
"""Under the kernel's usual buffer (208 KiB), within which a packet must lie."""


class ClosedError(Exception):
    """The other end has gone."""


class Channel:
    def __init__(self, end: socket.socket) -> None:
        self.socket = end

    @staticmethod
    def pair() -> tuple[Channel, Channel]:
        one, other = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        return Channel(one), Channel(other)

    @classmethod
    def of_descriptor(cls, descriptor: int) -> Channel:
        return cls(socket.socket(fileno=descriptor))

    def fileno(self) -> int:
        return self.socket.fileno()

    def send(self, message: dict[str, Any]) -> None:
        """Raises ``ClosedError``."""
        data = json.dumps(message, separators=(",", ":")).encode("utf-8", "replace")
        if len(data) > PACKET_BYTES:
            raise ValueError("the message is too long")
        try:
            self.socket.sendall(data)
        except OSError as error:
            raise ClosedError from error

    def receive(self) -> dict[str, Any]:
        """The next message, waited for. Raises ``ClosedError``."""
        try:
            data = self.socket.recv(PACKET_BYTES)
        except OSError as error:
            raise ClosedError from error
        if not data:
            raise ClosedError
        message = json.loads(data)
        assert isinstance(message, dict)
        return message

    def close(self) -> None:
        self.socket.close()
