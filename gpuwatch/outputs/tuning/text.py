"""What ``gpuwatch tune`` found, as text: the recommendation first, then what it stands on."""

from __future__ import annotations

import json
import time
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from gpuwatch.core import units
from gpuwatch.core.text import clean
from gpuwatch.outputs.terminal.table import Heading, table, wrap
from gpuwatch.outputs.tuning.chart import Point, chart
from gpuwatch.tuning.search.setting import KNOBS

INDENT = "  "
UNDECIDED_SHOWN = 4
Row = Mapping[str, Any]


def text(result: Mapping[str, Any], *, width: int, unicode: bool) -> str:
    """Lines no wider than ``width``; ``result`` as ``tuning.result`` makes it."""
    lines: list[str] = []
    for part in (
        _head(result, width),
        _recommendation(result, width),
        _tables(result, width),
        _chart(result, width, unicode),
        _why(result, width),
        _failures(result, width),
        _rest(result, width),
    ):
        found = list(part)
        if found and lines:
            lines.append("")
        lines += found
    shown = "\n".join(lines)
    return shown if unicode else shown.translate(_ASCII)


_ASCII = str.maketrans({"▸": ">", "…": "~", "·": "-"})


def summary(result: Mapping[str, Any]) -> dict[str, Any] | None:
    """What a job's report says of a kept result; ``None`` where it recommends nothing."""
    try:
        chosen = _chosen(result)
        if chosen is None:
            return None
        said = {
            "target": str(result["target"]),
            "step": None if result["step"] is None else str(result["step"]),
            "taken_at_unix_seconds": float(result["taken_at_unix_seconds"]),
            "recommended": {knob: result["recommended"][knob] for knob in KNOBS},
            "samples_per_second": float(chosen["samples_per_second"]),
            "low": chosen["low"],
            "high": chosen["high"],
            "line": str(result["line"]),
            "says": f"{_differences(result, None)}: {_rate(chosen)} samples/s{_interval(chosen)}",
        }
        json.dumps(said, allow_nan=False)
        time.gmtime(said["taken_at_unix_seconds"])
    except (KeyError, TypeError, ValueError, OverflowError, OSError):
        # Written by another version of gpuwatch.
        return None
    return said


def _head(result: Mapping[str, Any], width: int) -> Iterator[str]:
    count, cores = result["samples"], result["usable_cores"]
    of = "unknown number of samples" if count is None else f"{count:,} sample{'s'[count == 1 :]}"
    what = [clean(result["target"], 200), of, f"{cores:g} usable core{'s'[cores == 1 :]}"]
    what.append(f"torch {clean(result['torch'], 40)}")
    if result["step"] is not None:
        what.insert(1, f"with {clean(result['step'], 200)}")
    yield from wrap("  ".join(what).replace("  ", " · "), width)


def _recommendation(result: Mapping[str, Any], width: int) -> Iterator[str]:
    chosen = _chosen(result)
    if chosen is None:
        failed = any(row["failure"] for row in result["settings"])
        yield "No setting could be measured." if failed else "Nothing was measured."
        return
    own = next((row for row in result["settings"] if row["own"] and row["visits"]), None)
    yield from wrap(_sentence(result, chosen, own), width)
    yield ""
    yield from _call(result, width)
    if result["also_set"]:
        yield from wrap(f"and inside it: {', '.join(result['also_set'])}", width, first=INDENT)


def _sentence(result: Mapping[str, Any], chosen: Row, own: Row | None) -> str:
    measured = "end to end" if result["step"] is not None else "from the loader"
    rate = f"{_rate(chosen)} samples/s {measured}{_interval(chosen)}"
    if own is chosen:
        if not result["settled"]:
            return f"Keep what you have: {rate}; no other setting has been shown to be faster."
        return f"Keep what you have: {rate}, and no setting is more than 3% faster."
    text = f"{_differences(result, own)}: {rate}"
    if own is not None and own["failure"] is None:
        times = chosen["samples_per_second"] / own["samples_per_second"]
        text += f", {times:.2g} times what you have ({_rate(own)})"
    return f"{text}."


def _differences(result: Mapping[str, Any], own: Row | None) -> str:
    """What to change, the number of workers always."""
    recommended = result["recommended"]
    found = [f"num_workers={recommended['num_workers']}"]
    for knob in ("batch_size", "pin_memory", "prefetch_factor", "persistent_workers"):
        value = recommended[knob]
        plain = (
            {"pin_memory": False, "prefetch_factor": 2, "persistent_workers": False}.get(knob)
            if own is None or own[knob] is None
            else own[knob]
        )
        if value is not None and value != plain and (knob != "batch_size" or _varied(result, knob)):
            found.append(f"{knob}={value}")
    return ", ".join(found)


def _varied(result: Mapping[str, Any], knob: str) -> bool:
    rows = [row for row in result["settings"] if row["visits"]]
    return len({row[knob] for row in rows if row[knob] is not None}) > 1


def _call(result: Mapping[str, Any], width: int) -> Iterator[str]:
    line = clean(result["line"], 2000)
    if len(INDENT) + len(line) <= width:
        yield f"{INDENT}{line}"
        return
    name, arguments = result["call"]
    yield f"{INDENT}{clean(name, 200)}("
    for argument in arguments:
        yield f"{INDENT}    {clean(argument, 200)},"
    yield f"{INDENT})"


# --- tables ----------------------------------------------------------------------------------

_HEADINGS = (
    Heading("", text=True),
    Heading("samples/s"),
    Heading("95%", text=True),
    Heading("of best"),
    Heading("waits", rank=1),
    Heading("GPU", rank=1),
    Heading("first batch", rank=2),
    Heading("cores", rank=1),
    Heading("memory", rank=1),
    Heading("disk", rank=2),
    Heading("/dev/shm", rank=3),
    Heading("visits", rank=4),
)


def _tables(result: Mapping[str, Any], width: int) -> Iterator[str]:
    rows = [row for row in result["settings"] if row["visits"]]
    if not rows:
        return
    varied = [
        knob
        for knob in ("batch_size", "num_workers", "prefetch_factor", "pin_memory",
                     "persistent_workers")
        if _varied(result, knob) or knob == "num_workers"
    ]  # fmt: skip
    cells = [[*(_knob(row, knob) for knob in varied), *_cells(row)] for row in rows]
    headings = [Heading(_TITLES[knob]) for knob in varied]
    marked = [
        ["▸" if row["recommended"] else " ", *line] for row, line in zip(rows, cells, strict=True)
    ]
    yield from table([_HEADINGS[0], *headings, *_HEADINGS[1:]], marked, width)


_TITLES = {
    "num_workers": "workers",
    "batch_size": "batch",
    "prefetch_factor": "prefetch",
    "pin_memory": "pinned",
    "persistent_workers": "persistent",
}


def _knob(row: Row, knob: str) -> str:
    value = row[knob]
    return (
        "-" if value is None else "yes" if value is True else "no" if value is False else str(value)
    )


def _cells(row: Row) -> list[str]:
    share = row["data_wait_share"]
    disk = row["disk_read_bytes_per_second"]
    low, high = row["low"], row["high"]
    return [
        _rate(row),
        "-" if low is None else f"{_number(low)} to {_number(high)}",
        "-" if row["of_best"] is None else f"{100 * row['of_best']:.0f}%",
        "-" if share is None else units.percent(100 * share),
        units.percent(row["gpu_busy_percent"]),
        _seconds(row["first_batch_seconds"]),
        "-" if row["cores_used"] is None else f"{row['cores_used']:.1f}",
        units.size(row["workers_memory_bytes"]) if row["num_workers"] else "-",
        "-" if not disk else units.rate(disk),
        units.size(row["shm_bytes"]) if row["num_workers"] else "-",
        str(row["visits"]),
    ]


def _rate(row: Row) -> str:
    return _number(row["samples_per_second"])


def _number(value: float | None) -> str:
    """Three digits: ``12.3``, ``812``, ``12,300``."""
    if value is None:
        return "-"
    if value < 100:
        return f"{value:.3g}"
    return f"{value:,.0f}"


def _interval(row: Row) -> str:
    if row["low"] is None:
        times = {1: "once", 2: "twice"}.get(row["visits"], f"{row['visits']} times")
        return f" (measured {times})"
    return f" (95%: {_number(row['low'])} to {_number(row['high'])})"


def _seconds(value: float | None) -> str:
    if value is None:
        return "-"
    return f"{value:.1f}s" if value >= 1 else f"{1000 * value:.0f}ms"


# --- the curve -------------------------------------------------------------------------------


def _chart(result: Mapping[str, Any], width: int, unicode: bool) -> Iterator[str]:
    points = [
        Point(row["num_workers"], row["samples_per_second"], row["low"], row["high"])
        for row in _curve(result)
    ]
    if len(points) > 1:
        yield "samples/s over num_workers"
        yield from chart(points, width=width, unicode=unicode)


def _curve(result: Mapping[str, Any]) -> list[Row]:
    """The settings that differ by their workers alone, as in the first comparison."""
    if not result["comparisons"]:
        return []
    first = result["comparisons"][0]["settings"]
    keys = ("batch_size", "pin_memory")
    chosen = _chosen(result)
    found: dict[int, Row] = {}
    for row in result["settings"]:
        here = {knob: row[knob] for knob in first[0]}
        if not row["visits"] or row["failure"] is not None or here not in first:
            continue
        alike = chosen is None or all(row[key] == chosen[key] for key in keys)
        if result["grid"] and not alike:
            continue
        found.setdefault(row["num_workers"], row)
    return list(found.values())


# --- words -----------------------------------------------------------------------------------


def _why(result: Mapping[str, Any], width: int) -> Iterator[str]:
    for reason in result["reasons"]:
        yield from wrap(clean(reason, 600), width, later=INDENT)
    yield from _cold(result, width)
    yield from _copies(result, width)


def _cold(result: Mapping[str, Any], width: int) -> Iterator[str]:
    rows = [row for row in result["settings"] if row["first_pass"] and row["visits"]]
    if not rows:
        return
    row = next((row for row in rows if row["recommended"]), rows[-1])
    first = row["first_pass"]
    rate = units.rate(first["disk_read_bytes_per_second"])
    text = (
        f"First pass: with num_workers={row['num_workers']} "
        f"{_number(first['samples_per_second'])} samples/s while files were read from the disk "
        f"({rate})"
    )
    if all(one["all_passes_cold"] for one in rows):
        text += ", as in every pass."
    else:
        text += "; the table is of later passes, which find them in memory."
    yield from wrap(text, width, later=INDENT)


def _copies(result: Mapping[str, Any], width: int) -> Iterator[str]:
    copies = result["copies"]
    if copies is None:
        return
    yield from wrap(
        f"Copies to the GPU: pinned {units.rate(copies['pinned_bytes_per_second'])}, not pinned "
        f"{units.rate(copies['pageable_bytes_per_second'])}; beside kernels "
        f"{units.rate(copies['pinned_overlapped_bytes_per_second'])} and "
        f"{units.rate(copies['pageable_overlapped_bytes_per_second'])}.",
        width,
        later=INDENT,
    )


def _failures(result: Mapping[str, Any], width: int) -> Iterator[str]:
    """Each failure once, with all the settings that met it."""
    met: dict[str, list[Row]] = {}
    for row in result["settings"]:
        if row["failure"] is not None:
            met.setdefault(row["failure"]["sentence"], []).append(row)
    for sentence, rows in met.items():
        slow = rows[0]["failure"]["code"] == "too_slow"
        how = "Not measured" if slow else "Failed"
        who = _who(result, rows)
        yield from wrap(f"{how} with {who}: {clean(sentence, 900)}", width, later=INDENT)
        output = () if slow else rows[0]["failure"]["output"]
        if output:
            yield f"{INDENT}Its last output:"
            for line in output:
                yield from wrap(clean(line, 300), width, first=f"{INDENT}| ", later=f"{INDENT}| ")


def _who(result: Mapping[str, Any], rows: Sequence[Row]) -> str:
    """``num_workers=2, 4``, and the other knobs where the same workers were measured otherwise."""
    counts = sorted({row["num_workers"] for row in rows})
    told = [f"num_workers={', '.join(str(count) for count in counts)}"]
    known = [row for row in result["settings"] if row["visits"] or row["failure"]]
    for knob in KNOBS[1:]:
        others = {row[knob] for row in known if row["num_workers"] in counts}
        if len(others) > 1:
            own = sorted({str(row[knob]) for row in rows})
            told.append(f"{knob}={', '.join(own)}")
    return ", ".join(told)


def _rest(result: Mapping[str, Any], width: int) -> Iterator[str]:
    if result["interrupted"] and _chosen(result) is None:
        yield "Interrupted."
    elif result["interrupted"]:
        yield from wrap("Interrupted: this was measured until then.", width, later=INDENT)
    undecided = [row for row in result["settings"] if row.get("undecided")]
    if undecided:
        fastest = next(row for row in result["settings"] if row["fastest"])
        listed = [f"{_name(result, row)}{_share(row)}" for row in undecided[:UNDECIDED_SHOWN]]
        more = len(undecided) - len(listed)
        yield from wrap(
            f"Cannot be told apart from the fastest ({_name(result, fastest)}) yet: "
            f"{'; '.join(listed)}{f'; and {more} more' if more else ''}. A longer --budget may "
            "tell them apart.",
            width,
            later=INDENT,
        )
    elif not (result["settled"] or result["interrupted"] or _chosen(result) is None):
        yield from wrap(
            f"The budget of {units.age(result['budget_seconds'])} ended before all intervals had "
            "settled: a longer --budget narrows them.",
            width,
            later=INDENT,
        )
    if result["unmeasured"]:
        yield from wrap(f"Not measured: {', '.join(result['unmeasured'])}.", width, later=INDENT)
    for note in result["notes"]:
        yield from wrap(clean(note, 600), width, later=INDENT)


def _name(result: Mapping[str, Any], row: Row) -> str:
    """``num_workers=4, prefetch_factor=2``: what was varied."""
    knobs = [knob for knob in KNOBS if knob == "num_workers" or _varied(result, knob)]
    return ", ".join(f"{knob}={row[knob]}" for knob in knobs if row[knob] is not None)


def _share(row: Row) -> str:
    if row["of_best_low"] is None:
        return " (measured too few times)"
    return f" ({100 * row['of_best_low']:.0f}% to {100 * row['of_best_high']:.0f}% of it)"


def _chosen(result: Mapping[str, Any]) -> Row | None:
    return next((row for row in result["settings"] if row["recommended"]), None)
