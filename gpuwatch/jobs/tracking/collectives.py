"""Asks NCCL, in the ranks of a job, which of them has launched the fewest collectives.

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
from typing import NamedTuple

import msgspec

from gpuwatch.core.text import clean
from gpuwatch.jobs.identity.services import Listeners
from gpuwatch.jobs.identity.surroundings import read_inner_pid, read_link
from gpuwatch.jobs.tracking.members import Member

PORT = 28028
SECONDS = 5.0
SECONDS_APART = 30.0
COST_SHARE = 0.01
"""Of the time: its ranks collect an answer, over the network, for as long as it takes."""
REFUSED_SECONDS = 300.0
ANSWER_SECONDS = 4.0
ANSWER_BYTES = 16 * 2**20
"""Some 600 bytes per rank and communicator."""
_REQUEST = b"CLIENT PROTOCOL 2\nTIMEOUT 2\nSET FORMAT json\nSTATUS\n"


class _Rank(msgspec.Struct):
    rank: int
    host: str
    pid: int
    collective_counts: dict[str, int]


class _Communicator(msgspec.Struct):
    ranks: list[_Rank]


class _Answer(msgspec.Struct):
    communicators: list[_Communicator]


class Behind(NamedTuple):
    """How many collectives fewer than the rank that was ahead each had launched; ``elsewhere``
    names a rank of another machine that was further behind than all of these."""

    by_pid: Mapping[int, int]
    elsewhere: str | None = None


NOT_ASKED = Behind({})


def ask(port: int) -> bytes:
    """The JSON of one answer. Raises ``OSError``, and ``ValueError`` for what is none."""
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
    """Of the ranks with these PIDs. Raises ``ValueError``."""
    behind: dict[tuple[str, int], tuple[int, int]] = {}
    for one in msgspec.json.decode(answer, type=_Answer).communicators:
        counts = [sum(rank.collective_counts.values()) for rank in one.ranks]
        for rank, count in zip(one.ranks, counts, strict=True):
            key = (rank.host, rank.pid)
            behind[key] = max(behind.get(key, (0, 0)), (max(counts) - count, rank.rank))
    # PIDs repeat from machine to machine: this one is where most of them are.
    here = Counter([host for host, pid in behind if pid in pids]).most_common(1)
    if not here:
        return NOT_ASKED
    own = {pid: n for (host, pid), (n, _) in behind.items() if host == here[0][0] and pid in pids}
    away = [(n, rank, host) for (host, _), (n, rank) in behind.items() if host != here[0][0]]
    last, number, host = max(away, default=(0, 0, ""))
    found = last > max(own.values())
    return Behind(own, f"rank {number} on {clean(host, 64)}" if found else None)


class Collectives:
    """Of one job; ``behind`` is what the latest answer said."""

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
        if now < self._due or not any(rank.has_thread("pt_nccl_") for rank in ranks):
            return
        first, self._due = ranks[0], now + SECONDS_APART
        _, _, port = (first.environment or {}).get("NCCL_RAS_ADDR", "").rpartition(":")
        number = int(port) if port.isdigit() else PORT
        spaces = [read_link(pid, "ns/net", self._proc) for pid in ("self", first.pid)]
        listens = number in self._listeners.ports(first.pid, now)
        if not listens or spaces[0] != spaces[1]:
            self.behind = NOT_ASKED
            return
        pids = {read_inner_pid(rank.pid, self._proc) or rank.pid: rank.pid for rank in ranks}
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
