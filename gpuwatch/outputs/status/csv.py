"""``gpuwatch status --csv``: one row a GPU, one column a reading.

The titles are the names of the model, units included: the time and whether it is simulated,
then the GPU's identity, ``lost``, then its readings. What was not read is an empty cell, and
zero is ``0``. ``throttle_reasons`` are joined with ``;``, ``throttle_durations`` are
``reason=seconds`` joined with ``;``, ``late_readings`` likewise ``field=seconds``. The driver's
fine samples fit in no cell and are left out: ``--json`` and ``gpuwatch stream`` have them.
"""

from __future__ import annotations

import csv
import io
import math
from dataclasses import fields
from typing import Any

from gpuwatch.core.model import Gpu, GpuIdentity, GpuReading, Snapshot
from gpuwatch.outputs.export import guarded

_LEFT_OUT = "busy_samples"


def csv_text(snapshot: Snapshot) -> str:
    """Title row and GPU rows (none: only the titles), each with a line end."""
    out = io.StringIO()
    writer = csv.writer(out, lineterminator="\n")
    writer.writerow(_titles())
    for gpu in snapshot.gpus:
        readings = _readings(gpu)
        writer.writerow(
            [
                snapshot.taken_at_unix_seconds,
                _cell(snapshot.simulated),
                *map(_cell, readings.values()),
            ]
        )
    return out.getvalue()


def _titles() -> list[str]:
    nobody = GpuIdentity(index=0, uuid="", name="")
    names = _readings(Gpu(identity=nobody, reading=GpuReading()))
    return [
        "taken_at_unix_seconds",
        "simulated",
        *names,
    ]


def _readings(gpu: Gpu) -> dict[str, Any]:
    """In the order of the model."""
    values = {field.name: getattr(gpu.identity, field.name) for field in fields(GpuIdentity)}
    values["lost"] = gpu.lost
    values |= {field.name: getattr(gpu.reading, field.name) for field in fields(GpuReading)}
    del values[_LEFT_OUT]
    return values


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
