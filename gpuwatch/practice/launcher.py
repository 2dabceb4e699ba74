"""Starts the ranks of a practice job on this machine, as torchrun does; needs no PyTorch itself."""

from __future__ import annotations

import os
import socket
import subprocess
import sys
import time
from collections.abc import Sequence

_LOOK_SECONDS = 0.1
_PATIENCE_SECONDS = 5.0


def launch(arguments: Sequence[str], ranks: int, most_seconds: float | None = None) -> int:
    """Run ``python -m gpuwatch.practice.train ARGUMENTS`` as each rank and wait for them; the
    exit code: that of the first that failed. If one ends, all do."""
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    until = None if most_seconds is None else time.monotonic() + most_seconds
    started: list[subprocess.Popen[bytes]] = []
    try:
        for rank in range(ranks):
            started.append(_start(arguments, rank, ranks, port))
        while True:
            codes = [one.poll() for one in started]
            failed = next((rank for rank, code in enumerate(codes) if code), None)
            if failed is not None:
                code = codes[failed] or 0
                how = f"with exit code {code}" if code > 0 else f"by signal {-code}"
                print(f"Rank {failed} ended {how}.", file=sys.stderr, flush=True)
                return code if code > 0 else 128 - code
            if None not in codes or (until is not None and time.monotonic() >= until):
                return 0
            time.sleep(_LOOK_SECONDS)
    finally:
        _end(started)


def _start(arguments: Sequence[str], rank: int, ranks: int, port: int) -> subprocess.Popen[bytes]:
    environment = {
        "GLOO_SOCKET_IFNAME": "lo",
        **os.environ,
        "RANK": str(rank),
        "LOCAL_RANK": str(rank),
        "WORLD_SIZE": str(ranks),
        "LOCAL_WORLD_SIZE": str(ranks),
        "MASTER_ADDR": "127.0.0.1",
        "MASTER_PORT": str(port),
    }
    command = [
        sys.executable, "-P", "-m", "gpuwatch.practice.train", *arguments, "--launched",
        "--ends-with", str(os.getpid()),
    ]  # fmt: skip
    return subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL)


def _end(started: Sequence[subprocess.Popen[bytes]]) -> None:
    for one in started:
        one.terminate()
    for one in started:
        try:
            one.wait(_PATIENCE_SECONDS)
        except subprocess.TimeoutExpired:
            one.kill()
            one.wait()
