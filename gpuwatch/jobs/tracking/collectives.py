"""Ask NCCL, in the ranks of a job, which of them has launched the fewest collectives.

Since NCCL 2.24 its RAS service listens in every rank on a local TCP port and speaks lines of text;
the answer in JSON, which is read here, came with 2.28.7 (NCCL's user guide, "RAS", and
src/ras/client.cc). It is asked only where the rank itself is seen to listen there, seldom, and on
a thread of its own. What answers is the job's: its size, time and shape are limited.
"""

import socket
import threading
import time
from collections import Counter
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path
from typing import Annotated, NamedTuple

import msgspec

from gpuwatch.core.text import clean
from gpuwatch.jobs.identity.process_facts import read_inner_pid, read_link
from gpuwatch.jobs.identity.surroundings import Listeners
from gpuwatch.jobs.tracking.member import Member

PORT = 28028
SECONDS = 5.0
SECONDS_APART = 30.0
COST_SHARE = 0.01
"""Share of the time: its ranks collect an answer, over the network, for as long as it takes."""
REFUSED_SECONDS = 300.0
ANSWER_SECONDS = 4.0
ANSWER_BYTES = 16 * 2**20
"""Some 600 bytes per rank and communicator."""
_REQUEST = b"CLIENT PROTOCOL 2\nTIMEOUT 2\nSET FORMAT json\nSTATUS\n"


_Number = Annotated[int, msgspec.Meta(ge=0, lt=2**40)]


class _NcclRank(msgspec.Struct):
    rank: _Number
    host: str
    pid: _Number
    collective_counts: dict[str, _Number]


class _Communicator(msgspec.Struct):
    ranks: list[_NcclRank]


class _Answer(msgspec.Struct):
    communicators: list[_Communicator]


class Behind(NamedTuple):
    """Collectives that each had launched fewer than the rank that was ahead; ``elsewhere``
    names a rank of another machine that was further behind than all of these."""

    by_pid: Mapping[int, int]
    elsewhere: str | None = None


NOT_ASKED = Behind({})
_NO = (0, ("", 0))


def ask(port: int) -> bytes:
    """Return the JSON of one answer. Raises ``OSError``, and ``ValueError`` for what is none."""
    until, text = time.monotonic() + ANSWER_SECONDS, b""
    with socket.create_connection(("localhost", port), timeout=1.0) as link:
        link.sendall(_REQUEST)
        while len(text) <= ANSWER_BYTES and (left := until - time.monotonic()) > 0.0:
            link.settimeout(left)
            piece = link.recv(2**16)
            if not piece:
                break
            text += piece
        else:
            raise ValueError("too long, or too late")
    said, brace, rest = text.partition(b"{")
    if not brace or b"ERROR" in said:
        raise ValueError("no JSON: NCCL is older than 2.28.7")
    return brace + rest


def read_answer(answer: bytes, pids: Collection[int]) -> Behind:
    """Read how far the ranks with these PIDs are behind. Raises ``ValueError``."""
    behind: dict[tuple[str, int], int] = {}
    numbers: dict[tuple[str, int], int] = {}
    try:
        communicators = msgspec.json.decode(answer, type=_Answer).communicators
    except RecursionError:
        raise ValueError("nested too deeply") from None
    for one in communicators:
        counts = [sum(rank.collective_counts.values()) for rank in one.ranks]
        keys = [(rank.host, rank.pid) for rank in one.ranks]
        for key, count in zip(keys, counts, strict=True):
            behind[key] = max(behind.get(key, 0), max(counts) - count)
        if len(keys) > len(numbers):
            numbers = {key: rank.rank for key, rank in zip(keys, one.ranks, strict=True)}
    here = _here(Counter([host for host, pid in behind if pid in pids]))
    if here is None:
        return NOT_ASKED
    own = {pid: count for (host, pid), count in behind.items() if host == here and pid in pids}
    last, key = max([(count, key) for key, count in behind.items() if key[0] != here], default=_NO)
    if last <= max(own.values()):
        return Behind(own)
    # A communicator of a part of the job numbers its ranks anew.
    name = f"rank {numbers[key]}" if len(numbers) == len(behind) else f"PID {key[1]}"
    return Behind(own, f"{name} on {clean(key[0], 64)}")


def _here(hosts: Mapping[str, int]) -> str | None:
    """Find this machine: where most of the PIDs are, as they repeat from machine to machine. In
    containers that are made alike all do; then it is the one whose address is here."""
    most = [host for host, count in hosts.items() if count == max(hosts.values())]
    if len(most) > 1:
        import psutil  # noqa: PLC0415 - seldom needed, and 1 MiB

        addresses = {one.address for those in psutil.net_if_addrs().values() for one in those}
        most = [host for host in most if host in addresses]
    return most[0] if len(most) == 1 else None


class Collectives:
    """NCCL's count of collectives in the ranks of one job; ``behind`` is the latest answer."""

    def __init__(self, now: float, proc: Path, listeners: Listeners) -> None:
        self.behind = NOT_ASKED
        self._proc = proc
        self._listeners = listeners
        self._due = now
        self._asking: threading.Thread | None = None
        self._took = 0.0
        """Seconds, the last time; infinite where it was refused."""

    def read(self, now: float, ranks: Sequence[Member], attached: bool) -> None:
        """Take the answer that has come, and ask again where it is time. Never waits."""
        if self._asking is not None:
            if self._asking.is_alive():
                return
            self._asking = None
            every = max(SECONDS if attached else SECONDS_APART, self._took / COST_SHARE)
            self._due = now + min(every, REFUSED_SECONDS)
        if now < self._due:
            return
        if not any(rank.has_thread("pt_nccl_") for rank in ranks):
            self.behind = NOT_ASKED
            return
        first, self._due = ranks[0], now + SECONDS_APART
        _, _, port = (first.environment or {}).get("NCCL_RAS_ADDR", "").rpartition(":")
        number = int(port) if port.isdecimal() and len(port) <= len("65535") else PORT
        spaces = [read_link(pid, "ns/net", self._proc) for pid in ("self", first.pid)]
        listens = number in self._listeners.ports(first.pid, now)
        pids = {read_inner_pid(rank.pid, self._proc) or rank.pid: rank.pid for rank in ranks}
        # Ranks in containers of their own can have the same PID there.
        if not listens or spaces[0] != spaces[1] or len(pids) < len(ranks):
            self.behind = NOT_ASKED
            return
        self._asking = threading.Thread(target=self._ask, args=(number, pids), daemon=True)
        self._asking.start()

    def _ask(self, port: int, pids: Mapping[int, int]) -> None:
        began = time.monotonic()
        try:
            found = read_answer(ask(port), pids)
            by_pid = {pids[inner]: count for inner, count in found.by_pid.items()}
            self.behind, self._took = found._replace(by_pid=by_pid), time.monotonic() - began
        except (OSError, ValueError):
            self.behind, self._took = NOT_ASKED, float("inf")
