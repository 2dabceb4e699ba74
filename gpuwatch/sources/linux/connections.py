"""TCP connections of processes: who waits for an answer, and how many bytes went through.

The kernel lists the connections of our network namespace with their counters (sock_diag(7)), for
which no privilege is needed; whose each is says ``/proc/PID/fd``. One on which something was sent
later than anything was received waits for an answer, however the process waits for it. What came on
connections that were made and closed between two looks is what else reached the namespace.
"""

import os
import socket
import struct
import time
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import NamedTuple

from gpuwatch.sources.linux import procfs

SHARE = 0.001
"""Share of one core that looking may take, on average: a look takes a millisecond or two, more
where connections are many."""
DESCRIPTORS_MOST = 256
"""Descriptors looked at for a process, the last ones opened."""
ARRIVING_MILLISECONDS = 20
"""Data that came so recently is still coming: a large answer takes many packets."""
ASKED_AGAIN_MILLISECONDS = 1000
"""A client that asks again as soon as it is answered does both within one tick of the kernel's
clock. So does one that is answered at once, and it has long done so where nobody asks any more."""
OPEN_MILLISECONDS = 10_000
"""One on which nothing has come for so long, whatever was sent, is open for messages."""

_REQUEST = struct.Struct("=IHHIIBBBxI48x")
"""``struct nlmsghdr`` and ``inet_diag_req_v2``."""
_HEADER = struct.Struct("=IHHII")
_MESSAGE = struct.Struct("=xBxx2s2s16s16s20xI4xI")
"""``struct inet_diag_msg``: state, ports, addresses, unsent bytes and inode."""
_INFO, _INFO_BYTES = 2, 136
_TIMES, _COUNTS = struct.Struct("=44xI4xI"), struct.Struct("=120xQQ")
"""``struct tcp_info``: milliseconds since data was sent and received; bytes acknowledged and
received."""
HEADERS_SHARE = 0.1
"""Packets' headers against the bytes in them, at most, on a connection that brings much."""
_SOCK_DIAG, _BY_FAMILY, _DUMP, _DONE = 4, 20, 0x301, 3
_ESTABLISHED, _SYN_SENT, _LISTEN = 1, 2, 10
_SOCKET = "socket:["


class Connection(NamedTuple):
    """A TCP connection of this network namespace, with its counters in bytes."""

    state: int
    ends: tuple[bytes, bytes]
    """Its own address and port, and the other end's."""
    waits: bool
    """Whether the connection waits for an answer, or data is on its way."""
    sent: int
    received: int


class Traffic(NamedTuple):
    """Network use of a process, by the field names of ``JobMember``."""

    awaits_network: bool | None = None
    network_receive_bytes_per_second: float | None = None
    network_send_bytes_per_second: float | None = None


UNSEEN = Traffic()


def parse(message: bytes) -> tuple[int, Connection]:
    """Parse a message of ``sock_diag`` into inode and connection. Raises ``struct.error``."""
    state, port, peer_port, own, peer, unsent, inode = _MESSAGE.unpack_from(message)
    since_sent = since_received = sent = received = 0
    at = _MESSAGE.size
    while at + 4 <= len(message):
        length, kind = struct.unpack_from("=HH", message, at)
        if kind == _INFO and length >= 4 + _INFO_BYTES:
            since_sent, since_received = _TIMES.unpack_from(message, at + 4)
            sent, received = _COUNTS.unpack_from(message, at + 4)
        at += max(4, length + 3 & ~3)
    recent = ASKED_AGAIN_MILLISECONDS if since_sent == since_received else ARRIVING_MILLISECONDS
    waits = since_sent < since_received < OPEN_MILLISECONDS or since_received < recent
    waits = state == _SYN_SENT or unsent > 0 or waits
    return inode, Connection(state, (own + port, peer + peer_port), waits, sent, received)


def connections() -> dict[int, Connection]:
    """Return the connections of our network namespace by inode; one that was accepted, not made,
    never waits. Raises ``OSError``."""
    found: dict[int, Connection] = {}
    states = 1 << _ESTABLISHED | 1 << _SYN_SENT | 1 << _LISTEN
    with socket.socket(socket.AF_NETLINK, socket.SOCK_RAW, _SOCK_DIAG) as link:
        link.settimeout(1.0)
        for family in (socket.AF_INET, socket.AF_INET6):
            link.send(
                _REQUEST.pack(
                    _REQUEST.size, _BY_FAMILY, _DUMP, 0, 0,
                    family, socket.IPPROTO_TCP, 1 << (_INFO - 1), states,
                )
            )  # fmt: skip
            found.update(map(parse, _messages(link)))
    listening = {one.ends[0][-2:] for one in found.values() if one.state == _LISTEN}
    return {
        inode: one._replace(waits=one.waits and one.ends[0][-2:] not in listening)
        for inode, one in found.items()
        if one.state != _LISTEN
    }


def arrived_bytes(proc: Path) -> int | None:
    """Return the bytes that reached our network namespace since it began, the loopback's among
    them; ``None`` where the kernel does not say."""
    try:
        rows = [line.split() for line in (proc / "self/net/netstat").read_text().splitlines()]
        names, values = [row for row in rows if row and row[0] == "IpExt:"]
        found = int(dict(zip(names, values, strict=False))["InOctets"])
        for line in procfs.read_if_possible(f"{proc}/self/net/snmp6", 1 << 16).splitlines():
            if line.startswith(b"Ip6InOctets"):
                found += int(line.split()[1])
    except (OSError, ValueError, KeyError):
        return None
    return found


def _messages(link: socket.socket) -> Iterator[bytes]:
    while True:
        data, at = link.recv(1 << 18), 0
        while at + _HEADER.size <= len(data):
            length, kind, *_ = _HEADER.unpack_from(data, at)
            if kind == _DONE:
                return
            if kind != _BY_FAMILY or length < _HEADER.size:
                raise OSError("the kernel does not list connections")
            yield data[at + _HEADER.size : at + length]
            at += length + 3 & ~3


class ConnectionWatch:
    """Looks at the connections of one job's processes, within its share of a core."""

    def __init__(self, proc: Path = procfs.PROC) -> None:
        self._proc = proc
        self.due = self._at = float("-inf")
        self._before: dict[int, Connection] = {}
        self._known: Mapping[int, frozenset[int]] = {}
        """Connections of each process at the look before."""
        self._arrived: int | None = None

    def look(self, now: float, parents: Mapping[int, int | None]) -> Mapping[int, Traffic]:
        """Return the traffic of these processes of the job, given with their parents there, and set
        when the next look is ``due``. Processes that may not be looked into, or are in another
        network namespace, are left out."""
        began = time.thread_time()
        try:
            found = self._look(now, parents)
        except (OSError, struct.error):
            found, self._known = {}, {}
        self.due = now + (time.thread_time() - began) / SHARE
        return found

    def _look(self, now: float, parents: Mapping[int, int | None]) -> dict[int, Traffic]:
        own = os.readlink(f"{self._proc}/self/ns/net")  # noqa: PTH115
        listed = connections()
        found_in = {pid: self._inodes(pid, own, any_at_all=bool(listed)) for pid in parents}
        held = {pid: inodes for pid, inodes in found_in.items() if inodes is not None}
        # Both ends in the job: ranks that meet, or a helper of its own.
        inside = {
            listed[inode].ends for inodes in held.values() for inode in inodes & listed.keys()
        }
        seen = {inode: one for inode, one in listed.items() if one.ends[::-1] not in inside}
        # A socket that it was forked with is its parent's.
        own_of = {
            pid: frozenset(inodes.difference(held.get(parents[pid] or 0, ())) & seen.keys())
            for pid, inodes in held.items()
        }
        passing = [pid for pid, inodes in own_of.items() if inodes != self._known.get(pid, inodes)]
        closed = self._on_closed(listed)
        found = {}
        for pid, inodes in own_of.items():
            new = [(seen[inode], self._before.get(inode)) for inode in inodes]
            rates: tuple[float | None, ...] = (None, None)
            if pid in self._known and now > self._at:
                seconds = now - self._at
                received = sum(one.received - (old.received if old else 0) for one, old in new)
                sent = sum(one.sent - (old.sent if old else 0) for one, old in new)
                rates = received / seconds, sent / seconds
                if pid in passing:
                    of_it = None if closed is None else received + closed / len(passing)
                    rates = None if of_it is None else of_it / seconds, sent / seconds
            found[pid] = Traffic(any(one.waits for one, _ in new), *rates)
        self._before, self._at, self._known = listed, now, own_of
        return found

    def _on_closed(self, listed: Mapping[int, Connection]) -> float | None:
        """Return the bytes that came since the look before on connections that are gone, as far as
        is known: all that came but what those brought that are listed."""
        before, self._arrived = self._arrived, arrived_bytes(self._proc)
        if before is None or self._arrived is None:
            return None
        stays = sum(
            one.received - self._before[inode].received
            for inode, one in listed.items()
            if inode in self._before
        )
        return max(0.0, self._arrived - before - (1.0 + HEADERS_SHARE) * stays)

    def _inodes(self, pid: int, space: str, *, any_at_all: bool) -> set[int] | None:
        """Return the inodes of a process's sockets; ``None`` where they may not be listed, or are
        in another ``space``. Where nobody has a connection they need not be found, which costs
        most."""
        folder = f"{self._proc}/{pid}/fd"
        try:
            if os.readlink(f"{self._proc}/{pid}/ns/net") != space:  # noqa: PTH115
                return None
            if not any_at_all:
                return set()
            names = sorted(map(int, os.listdir(folder)))[-DESCRIPTORS_MOST:]  # noqa: PTH208
        except (OSError, ValueError):
            return None
        found = set()
        for name in names:
            try:
                link = os.readlink(f"{folder}/{name}")  # noqa: PTH115
            except OSError:
                continue
            if link.startswith(_SOCKET):
                found.add(int(link[len(_SOCKET) : -1]))
        return found
