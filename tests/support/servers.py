"""Real servers for tests, where they are installed; each listens on this machine alone."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import pytest


def installed(name: str) -> str:
    """Where the program is; without it the test is skipped."""
    found = shutil.which(name, path=f"{os.environ['PATH']}:/usr/sbin")
    return found or pytest.skip(f"{name} is not installed")


def free_port() -> int:
    with socket.create_server(("127.0.0.1", 0)) as free:
        return int(free.getsockname()[1])


@contextmanager
def program(*command: str, **options: Any) -> Iterator[subprocess.Popen[bytes]]:
    """It runs until it is terminated, and has ended when this has."""
    with subprocess.Popen(command, **{"stderr": subprocess.DEVNULL, **options}) as made:
        try:
            yield made
        finally:
            made.terminate()
