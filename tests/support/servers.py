"""Real servers for tests, where they are installed; each listens on this machine alone."""

import os
import shutil
import socket
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
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


class Sshd:
    """OpenSSH's, with keys and a configuration of its own; ``options`` lead ssh to it, as the host
    box1."""

    def __init__(self, folder: Path) -> None:
        sshd, keygen, _ = map(installed, ("sshd", "ssh-keygen", "ssh"))
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        for name in ("host", "user"):
            made = [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(made, check=True)
        port = free_port()
        (folder / "sshd.conf").write_text(
            f"Port {port}\nListenAddress 127.0.0.1\nHostKey {folder}/host\nPidFile none\n"
            f"AuthorizedKeysFile {folder}/user.pub\nStrictModes no\nUsePAM no\n"
            "PermitRootLogin yes\n"
        )
        (folder / "ssh.conf").write_text(
            f"Host box1\n HostName 127.0.0.1\n Port {port}\n IdentityFile {folder}/user\n"
            " StrictHostKeyChecking no\n UserKnownHostsFile /dev/null\n LogLevel ERROR\n"
        )
        self.options = ("-F", str(folder / "ssh.conf"))
        self._serves = [sshd, "-D", "-e", "-f", str(folder / "sshd.conf")]
        self.start()

    def start(self) -> None:
        self._server = subprocess.Popen(
            self._serves, stderr=subprocess.DEVNULL, start_new_session=True
        )

    def kill(self) -> None:
        """With all its connections."""
        server = self._server.pid
        children = Path(f"/proc/{server}/task/{server}/children").read_text().split()
        for pid in map(int, [server, *children]):
            os.kill(pid, 9)
        self._server.wait()

    def end(self) -> None:
        self._server.kill()
        self._server.wait()


@contextmanager
def ssh_server(folder: Path) -> Iterator[Sshd]:
    server = Sshd(folder)
    try:
        yield server
    finally:
        server.end()
