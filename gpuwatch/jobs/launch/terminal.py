"""The pseudo-terminal that a job prints to, and the process that keeps what comes out."""

import contextlib
import os
import sys
import termios
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from gpuwatch.jobs.launch import keeper
from gpuwatch.jobs.launch.spawn import EXIT_NOT_EXECUTABLE, CannotStartError

_KEEPERS_MAX = 5


class OutputTerminal:
    """``keep`` starts the keeper, ``let_go`` leaves the terminal to the job."""

    def __init__(
        self, output: int, path: Path, environment: Mapping[bytes, bytes], most_bytes: int | None
    ) -> None:
        self.path = path
        self._most_bytes = most_bytes
        self._environment = environment
        self._output = output
        self._near, self.far_end = os.openpty()
        self._keeper: int | None = None
        self._keepers = 0
        self._size: tuple[int, int] | None = None
        settings = termios.tcgetattr(self.far_end)
        # Bytes as they are: no carriage return before each line feed.
        settings[1] &= ~termios.OPOST
        settings[3] &= ~termios.ECHO
        termios.tcsetattr(self.far_end, termios.TCSANOW, settings)

    def keep(self) -> None:
        """Start the keeper. Raises ``CannotStartError``."""
        # The numbers after ours are free for the child.
        near = max(self._near, self._output) + 1
        said = [near, near + 1, *([] if self._most_bytes is None else [self._most_bytes])]
        # Neither site packages nor variables meant for the job lead it astray.
        command = [sys.executable, "-I", "-S", "-B", keeper.__file__, *map(str, said)]
        files: list[tuple[Any, ...]] = [
            (os.POSIX_SPAWN_OPEN, stream, os.devnull, os.O_RDWR, 0) for stream in range(3)
        ]
        files += [(os.POSIX_SPAWN_DUP2, self._near, near)]
        files += [(os.POSIX_SPAWN_DUP2, self._output, near + 1)]
        given: dict[str, Any] = {"file_actions": files, "setsid": True, "setsigmask": ()}
        try:
            self._keeper = os.posix_spawn(command[0], command, self._environment, **given)
        except OSError as error:
            raise CannotStartError(
                f"The job's output cannot be kept: {sys.executable}: {error.strerror}.",
                EXIT_NOT_EXECUTABLE,
            ) from None
        self._keepers += 1

    def is_kept(self) -> bool:
        """True if the keeper still waits for output; one that was killed is replaced."""
        if self._keeper is None:
            return False
        try:
            pid, status = os.waitpid(self._keeper, os.WNOHANG)
        except ChildProcessError:
            self._keeper = None
            return False
        if not pid:
            return True
        self._keeper = None
        if status != 0 and self._near >= 0 and self._keepers < _KEEPERS_MAX:
            with contextlib.suppress(CannotStartError):
                self.keep()
        return self._keeper is not None

    def resize(self, columns: int, rows: int) -> bool:
        """True if that is another size than before."""
        size = (max(1, columns), max(1, rows))
        if size == self._size or self._near < 0:
            return False
        self._size = size
        termios.tcsetwinsize(self._near, (size[1], size[0]))
        return True

    def let_go(self) -> None:
        """Close the job's end of the terminal, so that its last process closes it for good."""
        os.close(self.far_end)

    def close(self) -> None:
        if self._near >= 0:
            os.close(self._near)
            os.close(self._output)
            self._near = self._output = -1
