"""``gpuwatch status --csv``: one row a GPU, one column a reading.

The titles are the names of the model, units included: the time and whether it is simulated,
then the GPU's identity, ``lost``, then its readings. What was not read is an empty cell, and
zero is ``0``. ``throttle_reasons`` are joined with ``;``, ``throttle_durations`` are
``reason=seconds`` joined with ``;``, ``late_readings`` likewise ``field=seconds``. The driver's
fine samples fit in no cell and are left out: ``--json`` and ``gpuwatch stream`` have them.
"""

import csv
import io
import math
from typing import Any

from gpuwatch.core.model import GpuIdentity, GpuReading, Snapshot
from gpuwatch.outputs.export import guarded, names, values

_IDENTITY, _READINGS = names(GpuIdentity), names(GpuReading, "busy_samples")
_TITLES = ("taken_at_unix_seconds", "simulated", *_IDENTITY, "lost", *_READINGS)


def csv_text(snapshot: Snapshot) -> str:
    """Title row and GPU rows (none: only the titles), each with a line end."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_TITLES)
    for gpu in snapshot.gpus:
        known = (*values(gpu.identity, _IDENTITY), gpu.lost, *values(gpu.reading, _READINGS))
        writer.writerow(map(_cell, (snapshot.taken_at_unix_seconds, snapshot.simulated, *known)))
    return out.getvalue()


def _cell(value: Any) -> Any:
    if isinstance(value, bool):
        return "true" if value else "false"
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, tuple):
        value = ";".join(
            item if isinstance(item, str) else "=".join(map(str, item)) for item in value
        )
    return guarded(value) if isinstance(value, str) else value
