"""``gpuwatch stream``: a header line, then a line a snapshot."""

from typing import TextIO

from gpuwatch.core.codec import header_line, identities, snapshot_line
from gpuwatch.core.model import GpuIdentity, Snapshot


class JsonLinesWriter:
    """Writes snapshots to ``out``, each flushed, so that a reader sees it at once.

    A header comes first, and again whenever the GPUs are others than before. Raises what the
    file raises: ``BrokenPipeError`` when its reader has gone.
    """

    def __init__(self, out: TextIO) -> None:
        self._out = out
        self._identities: tuple[GpuIdentity, ...] | None = None
        self.written = 0
        """Snapshots so far."""

    def write(self, snapshot: Snapshot) -> None:
        gpus = identities(snapshot)
        lines = snapshot_line(snapshot) + "\n"
        if gpus != self._identities:
            lines = header_line(snapshot) + "\n" + lines
        self._out.write(lines)
        self._out.flush()
        self._identities = gpus
        self.written += 1
