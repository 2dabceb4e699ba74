"""What other programs than ``nvidia-smi`` write: JSON (gpustat, W&B and lines of objects), the text
that Prometheus reads (dcgm-exporter, nvidia_gpu_exporter), and one value a row (DCGM).

Each format is a function from lines to rows; ``None`` among them ends a moment.
"""

import heapq
import json
import re
from collections.abc import Iterable
from itertools import chain
from typing import Any

from gpuwatch.sources.files.log_text import LogError
from gpuwatch.sources.smi_log.columns import COLUMNS, named
from gpuwatch.sources.smi_log.headings import FIELD_HEADINGS, VALUE_HEADINGS
from gpuwatch.sources.smi_log.moments import SORT_FIRST
from gpuwatch.sources.smi_log.rows import Rows, RowsOrEnds, with_unit

DOCUMENT_LENGTH = 4 * 1024 * 1024
"""Of one JSON object; a machine's GPUs and processes take kilobytes."""
JSON = re.compile(r"\s*(?:\[\s*(?:$|\{)|\{\s*(?:$|\"))")


def objects(lines: Iterable[str], rows: Rows) -> RowsOrEnds:
    """JSON objects, each in one line or over many: of a machine with its ``gpus``, or of one time
    with a key for each reading."""
    held: list[str] = []
    for line in lines:
        if not held and line[:1] not in {"{", "["}:
            if line.strip(" ,]\t"):
                rows.stats.remark(line)
            continue
        held.append(line)
        ends = line.rstrip(", ")[-1:] in {"}", "]"} and (len(held) == 1 or line[:1] in {"}", "]"})
        if ends or sum(map(len, held[-1:])) + 80 * len(held) > DOCUMENT_LENGTH:
            try:
                found: Any = json.loads("\n".join(held).strip(" ,"))
            except (ValueError, RecursionError):
                rows.stats.remark(held[0])
                found = []
            held = []
            for each in found if isinstance(found, list) else [found]:
                if isinstance(each, dict):
                    yield from rows.machine(each)


# --- one value a line ------------------------------------------------------------------------

METRIC = re.compile(
    r"(?P<name>(?i:dcgm|nvidia)_\w+)\{(?P<labels>.*)\}\s+(?P<value>\S+)(?:\s+(?P<at>\d{10,13}))?\s*"
)
_LABEL = re.compile(r'(\w+)="((?:[^"\\]|\\.)*)"')
_LABELS = {
    **dict.fromkeys(("gpu", "minor_number", "index"), "index"),
    "uuid": "uuid",
    "modelname": "name",
    "pci_bus_id": "pci.bus_id",
    "gpu_i_id": "mig.instance",
}
_LATE_SECONDS = 30.0
"""A program asks for one field or GPU after the other, so values are not quite in order."""


def metrics(lines: Iterable[str], rows: Rows) -> RowsOrEnds:
    """The text of one look after the other, with times (``date`` between them, or in each line) or
    without."""
    seen: set[str] = set()
    for line in lines:
        found = METRIC.fullmatch(line)
        if found is None:
            now = None if line[:1] in {"", "#"} else rows.stamps.alone(line)
            if now is not None:
                rows.now_is(now)
            elif line[:1] not in {"", "#"}:
                rows.stats.remark(line)
            continue
        if found["name"] + found["labels"] in seen:
            # The next look begins.
            yield None
            seen.clear()
        seen.add(found["name"] + found["labels"])
        given = _LABEL.findall(found["labels"])
        which = {_LABELS[key.lower()]: value for key, value in given if key.lower() in _LABELS}
        metric = named(found["name"])
        if metric.name in COLUMNS:
            when = {} if found["at"] is None else {"timestamp": found["at"]}
            yield rows.record({**which, **when, with_unit(metric): found["value"]})


def tidy(
    split: Iterable[list[str]], names: tuple[str, ...], rows: Rows, interval_seconds: float
) -> RowsOrEnds:
    """Rows with a column for the field and one for its value, each at a time of its own: those of
    one interval are a moment."""
    places = {name: place for place, name in enumerate(names)}
    field = next(places[name] for name in names if name in FIELD_HEADINGS)
    value = next(places[name] for name in names if name in VALUE_HEADINGS)
    time = places.get("timestamp", places.get("time", places.get("elapsed")))
    held: list[tuple[float, int, dict[str, str]]] = []
    moment = newest = -1.0
    for number, cells in enumerate(chain(split, [None])):
        at = None if cells is None or time is None else rows.stamps.stamp(cells[time])
        name = "" if cells is None else named(cells[field]).name
        if cells is not None and name in COLUMNS and at is not None:
            newest = max(newest, at)
            which = {each: cells[places[each]] for each in _LABELS.values() if each in places}
            heapq.heappush(held, (at, number, {**which, name: cells[value]}))
        while held and (cells is None or held[0][0] < newest - _LATE_SECONDS):
            at, _, record = heapq.heappop(held)
            if at // interval_seconds < moment:
                raise LogError(SORT_FIRST)
            if at // interval_seconds > moment:
                yield None
                moment = at // interval_seconds
            yield rows.record({**record, "timestamp": repr(moment * interval_seconds)})
