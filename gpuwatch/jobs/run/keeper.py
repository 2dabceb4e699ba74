"""Keeps what a job prints: a program of its own, which outlives gpuwatch as the job does.

``python -I -S keeper.py MASTER FILE [BYTES]`` reads the far end of the job's pseudo-terminal
(descriptor ``MASTER``) and appends the bytes, as they are, to descriptor ``FILE``, until nobody has
the terminal open any more. The job must never wait for a full disk: what cannot be written is
dropped and counted, and the file says so where the bytes are missing, once it can. A file of more
than ``BYTES`` loses its middle: how a job began and how it ended are what is asked for later.

Next to nothing is imported: this is a process beside every job (9 MiB, of which 3 are its own).
"""

import os
import signal
import sys

_CHUNK_BYTES = 65536


class Keeper:
    """Appends to ``descriptor``, and counts what it could not write."""

    def __init__(self, descriptor: int, most_bytes: int | None = None) -> None:
        self.lost_bytes = 0
        self._descriptor = descriptor
        self._most_bytes = most_bytes
        self._size = os.fstat(descriptor).st_size
        self._left_out = 0
        self._why = ""

    def keep(self, data: bytes) -> None:
        """Append ``data``; never raises, never tries twice."""
        if self.lost_bytes and not self.note_loss():
            self.lost_bytes += len(data)
            return
        self.lost_bytes += len(data) - self._write(data)
        if self._most_bytes is not None and self._size > self._most_bytes:
            try:
                self._leave_out_the_middle(self._most_bytes // 4)
            except OSError:
                # A file that cannot be cut is kept as it is.
                self._most_bytes = None

    def _leave_out_the_middle(self, quarter: int) -> None:
        """Keep the first quarter of what the file may hold, and the latest quarter."""
        reader = os.open(f"/proc/self/fd/{self._descriptor}", os.O_RDONLY | os.O_CLOEXEC)
        try:
            latest = os.pread(reader, quarter, self._size - quarter)
            first = os.pread(reader, quarter, 0).rfind(b"\n") + 1 or quarter
        finally:
            os.close(reader)
        latest = latest[latest.find(b"\n") + 1 :]
        self._left_out += self._size - first - len(latest)
        os.ftruncate(self._descriptor, first)
        self._size = first
        note = f"[gpuwatch: {self._left_out >> 20} MiB of output are omitted here: the file is "
        self._write(f"{note}kept below {(4 * quarter) >> 20} MiB]\n".encode() + latest)

    def note_loss(self) -> bool:
        """Say in the file what is missing from it; whether that was possible."""
        note = f"\n[gpuwatch: {self.lost_bytes} bytes of output are missing here: {self._why}]\n"
        data = note.encode()
        written = self._write(data)
        if written < len(data):
            # Half a note is output too: the next one begins on a line of its own.
            return False
        self.lost_bytes = 0
        return True

    def _write(self, data: bytes) -> int:
        """Write; returns how many of the bytes were written."""
        done = 0
        while done < len(data):
            try:
                written = os.write(self._descriptor, data[done:])
                done, self._size = done + written, self._size + written
            except OSError as error:
                self._why = error.strerror or str(error)
                break
        return done


def _let_go_of_the_rest(first: int, last: int) -> None:
    """Hold nothing but the two descriptors, and end with nothing but the job: not when the
    machine asks all to end either, since the job may have last words."""
    for number in (signal.SIGHUP, signal.SIGINT, signal.SIGTERM, signal.SIGQUIT):
        signal.signal(number, signal.SIG_IGN)
    os.chdir("/")
    os.closerange(3, first)
    os.closerange(last + 1, os.sysconf("SC_OPEN_MAX"))


def main(arguments: list[str]) -> int:
    master, output = int(arguments[0]), int(arguments[1])
    _let_go_of_the_rest(master, output)
    keeper = Keeper(output, int(arguments[2]) if len(arguments) > 2 else None)
    while True:
        try:
            data = os.read(master, _CHUNK_BYTES)
        except OSError:
            # EIO: the last process that had the terminal open has let go of it.
            break
        if not data:
            break
        keeper.keep(data)
    if keeper.lost_bytes:
        keeper.note_loss()
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
