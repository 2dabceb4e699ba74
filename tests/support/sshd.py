"""A real sshd on the loopback, with keys and a configuration of its own."""

import os
import shutil
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest


class Sshd:
    """``options`` lead ssh to it, as the host box1."""

    def __init__(self, folder: Path) -> None:
        sshd, keygen = shutil.which("sshd") or "/usr/sbin/sshd", shutil.which("ssh-keygen")
        if not Path(sshd).exists() or keygen is None or shutil.which("ssh") is None:
            pytest.skip("sshd is not installed")
        if os.geteuid() == 0:
            Path("/run/sshd").mkdir(exist_ok=True)
        for name in ("host", "user"):
            made = [keygen, "-q", "-t", "ed25519", "-N", "", "-f", str(folder / name)]
            subprocess.run(made, check=True)
        port = 20_000 + os.getpid() % 20_000
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
def serving(folder: Path) -> Iterator[Sshd]:
    server = Sshd(folder)
    try:
        yield server
    finally:
        server.end()
