"""Who waits for the network, seen on real connections of this machine."""

import os
import signal
import socket
import struct
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

from gpuwatch.sources.linux.connections import UNSEEN, ConnectionWatch, Traffic, connections, parse
from tests.support.children import wait_until

try:
    connections()
except OSError as error:
    pytest.skip(f"connections are not listed here: {error}", allow_module_level=True)

OWN = os.getpid()
PAST_A_TICK_SECONDS = 0.05
"""Later than what counts as still arriving, and in another tick of the kernel's clock."""
SAMPLE = 1 << 20
"""Bytes of a sample."""


class Pair:
    """A connection that this process made, and a process that accepted it."""

    def __init__(self) -> None:
        listener = socket.create_server(("127.0.0.1", 0))
        self.order, orders = socket.socketpair()
        self.pid = os.fork()
        if self.pid == 0:
            self.order.close()
            accepted, _ = listener.accept()
            orders.send(b"here")
            while order := orders.recv(16):
                accepted.recv(1 << 24) if order == b"take" else accepted.send(bytes(5000))
                orders.send(b"done")
            os._exit(0)
        orders.close()
        self.made = socket.create_connection(listener.getsockname())
        self.order.recv(16)
        listener.close()

    def other_end(self, order: bytes) -> None:
        self.order.send(order)
        self.order.recv(16)
        time.sleep(PAST_A_TICK_SECONDS)


@pytest.fixture
def pair() -> Iterator[Pair]:
    made = Pair()
    yield made
    made.order.close()
    made.made.close()
    os.waitpid(made.pid, 0)


def look(watch: ConnectionWatch, *pids: int, parent: int | None = None) -> dict[int, Traffic]:
    return watch._look(time.monotonic(), dict.fromkeys(pids, parent))


def waits(*pids: int) -> Callable[[], bool | None]:
    return lambda: look(ConnectionWatch(), *pids)[OWN].awaits_network


def test_who_asked_waits_until_it_is_answered(pair: Pair) -> None:
    """The one that made the connection, and never the one that accepted it."""
    watch = ConnectionWatch()
    look(watch, OWN)
    time.sleep(PAST_A_TICK_SECONDS)
    pair.made.send(b"x" * 300)
    pair.other_end(b"take")
    asked = look(watch, OWN)[OWN]
    served = look(ConnectionWatch(), pair.pid)[pair.pid].awaits_network
    pair.other_end(b"answer")
    answered = look(watch, OWN)[OWN]
    assert (asked.awaits_network, served, answered.awaits_network) == (True, False, False)
    assert (asked.network_send_bytes_per_second or 0.0) > 0.0
    assert asked.network_receive_bytes_per_second == 0.0
    assert (answered.network_receive_bytes_per_second or 0.0) > 0.0


def told(since_sent: int, since_received: int) -> bytes:
    """What the kernel says of a connection: milliseconds since data was sent and received."""
    ends = bytes(16)
    head = struct.pack("=xBxx2s2s16s16s20xI4xI", 1, b"\x10\x00", b"\x20\x00", ends, ends, 0, 77)
    info = struct.pack("=44xI4xI64xQQ", since_sent, since_received, 100, 0)
    return head + struct.pack("=HH", 4 + len(info), 2) + info


@pytest.mark.parametrize(
    ("since_sent", "since_received", "waits"), [(200, 900, True), (200, 30_000, False)]
)
def test_what_is_never_answered_is_open_for_messages(
    since_sent: int, since_received: int, waits: bool
) -> None:
    """A stream of log lines that nobody answers is not waited for."""
    assert parse(told(since_sent, since_received))[1].waits is waits


def test_both_ends_in_the_job_are_no_network(pair: Pair) -> None:
    """Ranks that meet on one machine wait for each other."""
    pair.made.send(b"x")
    wait_until(waits(OWN))
    assert waits(OWN, pair.pid)() is False


def test_what_a_worker_was_forked_with_is_its_parents(pair: Pair) -> None:
    """The connection of the training process is open in its workers, too."""
    pair.made.send(b"x")
    wait_until(waits(OWN))
    worker = os.fork()
    if worker == 0:
        time.sleep(60.0)
    try:
        found = ConnectionWatch().look(0.0, {OWN: None, worker: OWN})
    finally:
        os.kill(worker, 9)
        os.waitpid(worker, 0)
    assert (found[OWN].awaits_network, found[worker].awaits_network) == (True, False)


def test_what_cannot_be_looked_into_is_left_out(tmp_path: Path) -> None:
    """A process that has ended, and one whose descriptors may not be listed."""
    assert ConnectionWatch().look(0.0, {2**22 + 1: None}) == {}
    assert ConnectionWatch(tmp_path).look(0.0, {OWN: None}) == {}
    assert UNSEEN.awaits_network is None


def test_what_connections_brought_that_are_closed_again_is_received() -> None:
    """A dataset that asks a server anew for each sample has received its samples, though no look
    finds a connection that brought one."""
    listener = socket.create_server(("127.0.0.1", 0))
    server = os.fork()
    if server == 0:
        while True:
            accepted, _ = listener.accept()
            if accepted.recv(16) == b"sample":
                accepted.sendall(bytes(SAMPLE))
                accepted.close()
    try:
        watch, address = ConnectionWatch(), listener.getsockname()
        with socket.create_connection(address):
            watch.look(100.0, {OWN: None})
        for _ in range(4):
            with socket.create_connection(address) as made:
                made.sendall(b"sample")
                while made.recv(1 << 16):
                    pass
        with socket.create_connection(address) as waits_for_one:
            waits_for_one.sendall(b"wait")
            traffic = watch.look(102.0, {OWN: None})[OWN]
    finally:
        os.kill(server, signal.SIGKILL)
        os.waitpid(server, 0)
        listener.close()
    assert traffic.network_receive_bytes_per_second is not None
    assert traffic.network_receive_bytes_per_second >= 4 * SAMPLE / 2.0
    assert (traffic.network_send_bytes_per_second or 0.0) < 100.0


def test_what_they_brought_is_unknown_where_the_kernel_does_not_count(
    pair: Pair, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Unknown is not zero: a rate is given only of connections that are still the same."""
    monkeypatch.setattr("gpuwatch.sources.linux.connections.arrived_bytes", lambda _proc: None)
    watch = ConnectionWatch()
    watch.look(100.0, {OWN: None})
    pair.made.sendall(b"question")
    assert watch.look(101.0, {OWN: None})[OWN].network_receive_bytes_per_second == 0.0
    listener = socket.create_server(("127.0.0.1", 0))
    with listener, socket.create_connection(listener.getsockname()):
        found = watch.look(102.0, {OWN: None})[OWN]
    assert found.network_receive_bytes_per_second is None
