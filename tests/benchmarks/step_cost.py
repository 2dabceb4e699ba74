"""Cost of a reported step for the job: ``python -m tests.benchmarks.step_cost``.

The time of a watched loop over an empty body, less that of the same loop unwatched, for each step;
the least and the median of several rounds, since a busy machine only ever adds.
"""

import os
import statistics
import tempfile
import time
from collections.abc import Callable, Iterable

STEPS = 5000
ROUNDS = 15


def _seconds(run: Callable[[], None]) -> float:
    began = time.perf_counter()
    run()
    return time.perf_counter() - began


def _loop(batches: Iterable[object]) -> None:
    for _ in batches:
        pass


def _loop_with_steps(batches: Iterable[object]) -> None:
    from gpuwatch.torch import step

    for _ in batches:
        with step():
            pass


def measure() -> dict[str, tuple[float, float]]:
    """Microseconds per step, least and median: ``watch`` alone, and with ``step()`` in it."""
    from gpuwatch.torch import watch

    batches = [[0] * 8] * STEPS
    plain, watched, stepped = [], [], []
    for _ in range(ROUNDS):
        plain.append(_seconds(lambda: _loop(batches)))
        watched.append(_seconds(lambda: _loop(watch(batches))))
        stepped.append(_seconds(lambda: _loop_with_steps(watch(batches))))
    base = min(plain)
    return {
        name: ((min(found) - base) / STEPS * 1e6, (statistics.median(found) - base) / STEPS * 1e6)
        for name, found in (("watch", watched), ("watch and step", stepped))
    }


def main() -> None:
    with tempfile.TemporaryDirectory() as folder:
        os.environ["XDG_RUNTIME_DIR"] = folder
        for name, (least, median) in measure().items():
            print(f"{name}: {least:.1f} us per step at least, {median:.1f} us in the median")
        from gpuwatch.torch import describe

        print(describe())


if __name__ == "__main__":
    main()
