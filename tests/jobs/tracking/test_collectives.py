"""NCCL's RAS service, as a server on this machine that speaks its documented protocol."""

import json
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from itertools import repeat
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.jobs.tracking import collectives
from gpuwatch.jobs.tracking.collectives import NOT_ASKED, Behind, ask, read_answer
from tests.jobs.tracking.test_tracker import FIRST, Machine

HELLO = b"SERVER PROTOCOL 2\nOK\nOK\n"
OLDER = b"SERVER PROTOCOL 2\nOK\nERROR: Unknown command SET FORMAT json\nJob summary\n"


def rank(number: int, pid: int, launched: int, host: str = "10.0.0.1") -> dict[str, Any]:
    return {
        "rank": number, "host": host, "pid": pid, "cuda_dev": 0, "nvml_dev": 0,
        "status": {"init_state": 0, "async_error": 0, "abort_flag": False},
        "collective_counts": {"Broadcast": 7, "AllGather": 0, "AllReduce": launched},
    }  # fmt: skip


def answer(*communicators: Sequence[dict[str, Any]]) -> bytes:
    """With the fields that the user guide shows, and those that are not read."""
    made = [
        {"hash": "0xae94", "size": len(ranks), "ranks": ranks, "missing_ranks": [{"rank": 9}]}
        for ranks in communicators
    ]
    said = {"nccl_version": "2.29.1", "communicators": made, "ras": {"timeouts_count": 0}}
    return json.dumps(said, indent=2).encode()


@contextmanager
def serving(pieces: Sequence[bytes] | Iterator[bytes]) -> Iterator[tuple[int, list[bytes]]]:
    """A port on which one client gets these pieces; and what that client asked."""
    asked: list[bytes] = []
    with socket.create_server(("localhost", 0)) as server:

        def serve() -> None:
            with suppress(OSError), server.accept()[0] as client:
                while not b"".join(asked).endswith(b"STATUS\n"):
                    asked.append(client.recv(100))
                for piece in pieces:
                    client.sendall(piece)

        thread = threading.Thread(target=serve)
        thread.start()
        yield server.getsockname()[1], asked
        thread.join()


def test_it_is_asked_in_lines_of_text() -> None:
    """And answers in pieces, behind its own lines."""
    said = answer([rank(0, 7, 12), rank(1, 8, 9)])
    with serving([HELLO[:20], HELLO[20:] + said[:50], said[50:]]) as (port, asked):
        assert ask(port) == said
    assert b"".join(asked).splitlines()[-2:] == [b"SET FORMAT json", b"STATUS"]


@pytest.mark.parametrize(
    "pieces", [[], [b"HTTP/1.1 400 Bad Request\n"], [OLDER], repeat(b" " * 999)]
)
def test_what_is_no_answer_is_refused(pieces: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    """Another service, an older NCCL, one that never ends."""
    monkeypatch.setattr(collectives, "ANSWER_BYTES", 10_000)
    with serving(pieces) as (port, _), pytest.raises((OSError, ValueError)):
        ask(port)


HERE, ELSEWHERE = [rank(0, 7, 12), rank(1, 8, 9)], [rank(2, 7, 12, "b"), rank(3, 8, 2, "\x1b[1mb")]


@pytest.mark.parametrize(
    ("said", "behind"),
    [
        (answer(HERE), Behind({7: 0, 8: 3})),
        (answer(HERE, [rank(0, 7, 1), rank(1, 8, 6)]), Behind({7: 5, 8: 3})),
        (answer([*HERE, *ELSEWHERE[:1]]), Behind({7: 0, 8: 3})),
        (answer([*HERE, *ELSEWHERE, rank(4, 6, 12)]), Behind({7: 0, 8: 3}, "rank 3 on \ufffd[1mb")),
        (answer([*HERE, *ELSEWHERE[:1]], ELSEWHERE[:1]), Behind({7: 0, 8: 3})),
        (answer(HERE, [HERE[1], rank(1, 9, 2, "b")]), Behind({7: 0, 8: 3}, "PID 9 on b")),
        (answer([*HERE, rank(2, 7, 1, "b"), rank(3, 8, 1, "b")]), NOT_ASKED),
        (answer([rank(0, 7, 4, "127.0.0.1"), rank(1, 7, 1, "b")]), Behind({7: 0}, "rank 1 on b")),
        (answer([rank(0, 70, 12), rank(1, 80, 9)]), NOT_ASKED),
        (answer(), NOT_ASKED),
        (answer([]), NOT_ASKED),
    ],
)
def test_a_rank_is_behind_the_one_that_is_ahead(said: bytes, behind: Behind) -> None:
    """In the communicator where it is furthest behind; PIDs repeat from machine to machine, and
    ranks of a part of the job are numbered anew."""
    assert read_answer(said, {7, 8}) == behind


@pytest.mark.parametrize(
    "said",
    [
        b"{",
        b"{}",
        b'{"communicators":[{"ranks":[{"rank":-1}]}]}',
        b'{"other":' + 9999 * b"[",
        answer([rank(0, 7, 2**62)]),
    ],
)
def test_another_shape_is_refused(said: bytes) -> None:
    """Where fields are missing, the text is cut or nested without end, or a count is none."""
    with pytest.raises(ValueError):  # noqa: PT011 - of msgspec's own kind
        read_answer(said, {7})


def test_a_rank_is_asked_where_it_listens_itself(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """On the port that its environment names, on a thread that nobody waits for."""
    asked = []

    def answering(port: int) -> bytes:
        asked.append(port)
        return answer([rank(0, FIRST, 12), rank(1, FIRST + 1, 9)])

    monkeypatch.setattr(collectives, "ask", answering)
    machine = Machine(tmp_path)
    launcher = machine.add(FIRST + 9, name="torchrun", command=b"torchrun\0train.py\0")
    for number in range(2):
        variables = f"RANK={number}\0WORLD_SIZE=2\0NCCL_RAS_ADDR=localhost:28029\0"
        threads = ("pt_nccl_watchdg",)
        machine.add(FIRST + number, launcher, environment=variables, threads=threads)
        machine.proc.write(
            f"{FIRST + number}/net/tcp",
            f"head\n 0: 0100007F:{28029:04X} 0:0 0A 0:0 0:0 0 0 0 4711 1\n",
        )
    (tmp_path / str(FIRST) / "fd").mkdir(exist_ok=True)
    (tmp_path / str(FIRST) / "fd" / "3").symlink_to("socket:[4711]")
    machine.attach(FIRST)
    until = time.monotonic() + 30.0
    while time.monotonic() < until:
        job = machine.watch.job(FIRST, FIRST + 1, after=2.0)
        if job.ranks[0].collectives_behind is not None:
            break
        time.sleep(0.01)
    machine.watch.close()
    assert [one.collectives_behind for one in job.ranks] == [0, 3]
    assert set(asked) == {28029}
