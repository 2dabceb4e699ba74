"""The dashboard over a source that answers a few times and then hangs, as a broken driver does.

``python -m tests.support.hanging_dashboard ANSWERS`` answers that many reads, then never again.
"""

import sys
import threading

from gpuwatch.core.model import Snapshot
from gpuwatch.core.sampler import Sampler
from gpuwatch.sources.simulated.source import SimulatedSource
from gpuwatch.tui.app import run_dashboard


class HangingSource(SimulatedSource):
    """A simulated machine whose driver stops answering."""

    def __init__(self, answers: int) -> None:
        super().__init__("starved", 2)
        self._answers = answers

    def read(self) -> Snapshot:
        if self._answers == 0:
            threading.Event().wait()
        self._answers -= 1
        return super().read()

    def close(self) -> None:
        threading.Event().wait()


def main() -> int:
    source = HangingSource(int(sys.argv[1]))
    return run_dashboard(source, Sampler(source, 0.2))


if __name__ == "__main__":
    sys.exit(main())
