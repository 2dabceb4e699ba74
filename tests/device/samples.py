"""The driver's fine samples of utilisation, held against the times at which kernels ran."""

import csv
import io
import itertools
import statistics
import threading
import time
from bisect import bisect_right
from collections.abc import Iterator, Sequence
from typing import Any

import pynvml

Sample = tuple[float, float, float]
"""When it was read and its stamp, in Unix seconds, and its percentage."""


class Reader:
    """Reads the driver's fine samples of utilisation as soon as they can be read."""

    def __init__(self, handle: Any) -> None:
        self.samples: list[Sample] = []
        self._handle, self._ended = handle, threading.Event()
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def _read(self) -> None:
        last = round(time.time() * 1e6)
        kind = pynvml.NVML_GPU_UTILIZATION_SAMPLES
        while not self._ended.wait(0.02):
            try:
                _, found = pynvml.nvmlDeviceGetSamples(self._handle, kind, last)
            except pynvml.NVMLError:
                continue
            now = time.time()
            new = [one for one in found if one.timeStamp > last]
            self.samples += [
                (now, one.timeStamp / 1e6, float(one.sampleValue.uiVal)) for one in new
            ]
            last = max([last, *[one.timeStamp for one in new]])

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(5.0)


def busy_share(ran: Sequence[Sequence[float]], begin: float, end: float) -> float:
    """The share of a time in which a kernel ran."""
    at = max(0, bisect_right(ran, begin, key=lambda one: one[0]) - 1)
    held = 0.0
    for first, last in ran[at:]:
        if first >= end:
            break
        held += max(0.0, min(end, last) - max(begin, first))
    return held / (end - begin)


def pairs_of(samples: Sequence[Sample], ran: Sequence[Sequence[float]]) -> Iterator[Sequence[Any]]:
    """Each sample in the time of the kernels with the stamp before it, whose time it covers."""
    for (_, before, _), (read, stamp, percent) in itertools.pairwise(samples):
        if 0 < stamp - before < 1.0 and ran[0][0] <= before and stamp <= ran[-1][1]:
            yield read, before, stamp, percent


def judge(samples: Sequence[Sample], ran: Sequence[Sequence[float]]) -> dict[str, Any]:
    pairs = list(pairs_of(samples, ran))
    if not pairs:
        return {"samples": 0}

    def error(lag: float) -> float:
        return statistics.fmean(
            abs(percent - 100 * busy_share(ran, before - lag, stamp - lag))
            for _, before, stamp, percent in pairs
        )

    lags = [step / 100 for step in range(-30, 31)]
    best = min(lags, key=lambda lag: (error(lag), abs(lag)))
    late = [read - stamp for read, _, stamp, _ in pairs]
    mixed = [
        percent for _, before, stamp, percent in pairs if 0.2 < busy_share(ran, before, stamp) < 0.8
    ]
    extreme = [percent <= 0 or percent >= 99 for *_, percent in pairs]
    return {
        "samples": len(pairs),
        "spacing_ms": 1000 * statistics.median(stamp - before for _, before, stamp, _ in pairs),
        "late_ms": 1000 * statistics.median(late),
        "late_most_ms": 1000 * max(late),
        "error_points": error(0.0),
        "best_lag_ms": 1000 * best,
        "best_error_points": error(best),
        "mean_percent": statistics.fmean(percent for *_, percent in pairs),
        "mean_truth_percent": 100 * busy_share(ran, pairs[0][1], pairs[-1][2]),
        "extreme_share": statistics.fmean(extreme),
        "half_busy": len(mixed),
        "half_busy_said_extreme": sum(percent <= 0 or percent >= 99 for percent in mixed),
    }


def table(samples: Sequence[Sample], ran: Sequence[Sequence[float]]) -> str:
    text = io.StringIO()
    rows = csv.writer(text)
    rows.writerow(["read_unix_seconds", "stamp_unix_seconds", "percent", "kernels_percent"])
    for read, before, stamp, percent in pairs_of(samples, ran):
        truth = 100 * busy_share(ran, before, stamp)
        rows.writerow([f"{read:.4f}", f"{stamp:.4f}", f"{percent:g}", f"{truth:.1f}"])
    return text.getvalue()
