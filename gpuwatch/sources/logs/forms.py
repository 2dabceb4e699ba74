"""Forms of logs other than rows under a heading: what ``nvidia-smi`` and gpustat print over time,
JSON (gpustat, W&B and lines of objects), the text that Prometheus reads (dcgm-exporter,
nvidia_gpu_exporter), and one value a row (DCGM); and what people and programs put around a log.

Each form is a function from lines to rows; ``None`` among them ends a moment. They are read line by
line, so one that is cut off or has other text between its parts is read as far as it goes.
"""

import heapq
import html
import json
import re
from collections.abc import Callable, Iterable, Iterator
from itertools import chain
from typing import Any, NamedTuple

from gpuwatch.sources.logs.headings import COLUMNS, FIELD_HEADINGS, VALUE_HEADINGS, named
from gpuwatch.sources.logs.moments import SORT_FIRST
from gpuwatch.sources.logs.rows import Rows, RowsOrEnds, with_unit
from gpuwatch.sources.logs.text import LogError

# --- the table of ``nvidia-smi -l`` ---------------------------------------------------------------

_BUS = r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"
TABLE = re.compile(r"\|\s+NVIDIA-SMI\s+\d")
_DRIVER = re.compile(r"Driver Version:\s+([\d.]+)")
_PARTS = {
    "index name pci.bus_id": rf"\|\s+(\d+)\s+(\S.*?)\s+\S+\s*\|\s*({_BUS})\s",
    "fan.speed temperature.gpu pstate power.draw power.limit memory.used memory.total "
    "utilization.gpu": r"\|\s*(\S+)\s+(\S+)\s+(\S+)\s+(\S+)\s*/\s*(\S+)\s*"
    r"\|\s*(\S+)(?:\s*/\s*(\S+))?\s*\|\s*(\S+)\s",
    "index mig.instance memory.used memory.total": (
        r"\|\s+(\d+)\s+\d+\s+\d+\s+(\d+)\s+\|\s*(\d+MiB)\s*/\s*(\d+MiB)\s*\|"
    ),
    "index pmon.pid pmon.type pmon.command pmon.fb": (
        r"\|\s+(\d+)\s+(?:\S+\s+\S+\s+)?(\d+)\s+([CGM+]{1,5})\s+(\S.*?)\s+(\d+MiB|N/A)\s*\|"
    ),
}
"""The two lines of a GPU, that of a MIG instance, that of a process."""


def table(lines: Iterable[str], rows: Rows) -> RowsOrEnds:
    """Read the table with frames, in the layouts of all drivers since 2012."""
    gpu: dict[str, str] = {}
    cards: dict[str, dict[str, str]] = {}
    driver, dated = "", False
    for line in lines:
        if TABLE.match(line):
            yield None
            if not dated:
                rows.begin_time(None)
            known = _DRIVER.search(line)
            gpu, dated, driver = {}, False, "" if known is None else known[1]
        elif line[:1] != "|":
            at = rows.stamps.alone(line)
            if at is not None:
                yield None
                rows.begin_time(at)
                dated = True
            elif line and line[0] not in "+ " and "=" not in line:
                rows.stats.remark(line)
        for names, pattern in _PARTS.items() if line[:1] == "|" else ():
            found = re.match(pattern, line)
            if found is None or ("fan.speed" in names and not gpu):
                continue
            groups = zip(names.split(), found.groups(), strict=True)
            values = {name: value or "" for name, value in groups}
            if "pci.bus_id" in values:
                gpu = cards[values["index"]] = {**values, "driver_version": driver}
            elif "fan.speed" in values:
                yield rows.record({**gpu, **values})
                gpu = {}
            else:
                # Of a MIG instance nobody says how busy it is.
                own = cards.get(values["index"], {}) if "mig.instance" in values else {}
                yield rows.record({**own, **values})
            break


# --- gpustat --------------------------------------------------------------------------------------

_SPACE = r"\s{0,40}"
"""Bounded, as all that is repeated here: a line may be anything, and as long as one can be."""
_VALUE = rf"{_SPACE}(\d+|\?\?){_SPACE}"
GPUSTAT = re.compile(
    rf"\[(\d{{1,3}})\]\s{{1,4}}(?:(\S.{{0,100}}?){_SPACE}\|)?{_VALUE}.{{0,3}}?C,(?:{_VALUE}%,)?"
    rf"{_VALUE}%{_SPACE}(?:\((?:E:{_VALUE}%{_SPACE})?(?:D:{_VALUE}%{_SPACE})?\))?"
    rf"(?:,{_VALUE}(?:/{_VALUE})?W?)?{_SPACE}\|{_VALUE}/{_VALUE}MB"
)
_GPUSTAT_NAMES = (
    *("index", "name", "temperature.gpu", "fan.speed", "utilization.gpu", "utilization.encoder"),
    *("utilization.decoder", "power.draw", "power.limit", "memory.used", "memory.total"),
)
_GPUSTAT_PROCESS = re.compile(
    r"(?:[^\s:()/]{1,64}:([^()/]{1,64})|[^\s:()/]{1,64})/(\d{1,10})\((\d{1,9}|\?)M\)"
)
"""With its user and its command; where one of them stands alone nobody can tell which it is."""
_GPUSTAT_TIME = re.compile(r"\S+\s+(.*\d:\d\d.*?)(?:\s+\d+\.[\d.]+)?\s*")
_GPUSTAT_TIME_LENGTH = 200
"""The machine, the time, the driver's version."""


def gpustat(lines: Iterable[str], rows: Rows) -> RowsOrEnds:
    """Read the lines of gpustat, with any of its options: a header (or none) and a line for each
    GPU."""
    seen: set[str] = set()
    for line in lines:
        found = GPUSTAT.match(line)
        if found is None:
            heading = _GPUSTAT_TIME.fullmatch(line[:_GPUSTAT_TIME_LENGTH])
            said = [line] if heading is None else [line, heading[1]]
            # A machine's name before a date hides it, and only the time of day is read.
            at = max(filter(None, map(rows.stamps.alone, said)), default=None)
            if at is not None:
                yield None
                rows.begin_time(at)
                seen.clear()
            elif line[:1] != " ":
                # Below a GPU its processes' commands are indented.
                rows.stats.remark(line)
            continue
        values = dict(zip(_GPUSTAT_NAMES, found.groups(), strict=True))
        index = found[1]
        if index in seen:
            # Without a header the first GPU begins the next look.
            yield None
            seen.clear()
        seen.add(index)
        if "GPU is lost" in (found[2] or ""):
            yield rows.record({"index": index, "utilization.gpu": "[GPU is lost]"})
            continue
        yield rows.record({name: value for name, value in values.items() if value is not None})
        for command, pid, held in _GPUSTAT_PROCESS.findall(line, found.end()):
            process = {"index": index, "pmon.pid": pid, "pmon.fb": f"{held} MiB"}
            yield rows.record(process | ({"pmon.command": command} if command else {}))


# --- the report of ``nvidia-smi -q``, as text and as XML ------------------------------------------

REPORT = re.compile(r"=+NVSMI LOG=+")
XML = re.compile(r"\s*<(?:\?xml|!DOCTYPE nvidia_smi_log|nvidia_smi_log)")
_LEAF = re.compile(r"(\s*)(\S[^:]*?)\s*(?::\s*(.*))?")
_TAGS = re.compile(r"<(/?)(\w+)((?:\s[^<>]*)?)>([^<>]*)")
_ID = re.compile(r'id="([^"]*)"')
_DEPTH_MOST = 32

_Leaf = tuple[str, str]
"""A path such as ``utilization.gpu`` and its value, or one of these, which begin a part."""
_DOCUMENT, _GPU, _PROCESS = "<document>", "<gpu>", "<process>"


def report(lines: Iterable[str], rows: Rows) -> RowsOrEnds:
    """Read ``nvidia-smi -q``, with any ``-d``."""
    return _machines(_indented(lines), rows)


def xml(lines: Iterable[str], rows: Rows) -> RowsOrEnds:
    """Read ``nvidia-smi -q -x``: one document after the other."""
    return _machines(_tagged(lines), rows)


def _machines(leaves: Iterable[_Leaf], rows: Rows) -> RowsOrEnds:
    document: dict[str, Any] = {"gpus": []}
    place: dict[str, Any] = document
    for path, value in leaves:
        if path == _DOCUMENT:
            yield from rows.machine(document)
            place = document = {"gpus": []}
        elif path == _GPU:
            place = {"pci.bus_id": value, "processes": []}
            document["gpus"].append(place)
        elif path == _PROCESS and document["gpus"]:
            place = {}
            document["gpus"][-1]["processes"].append(place)
        else:
            place.setdefault(path, value)
    yield from rows.machine(document)


def _indented(lines: Iterable[str]) -> Iterator[_Leaf]:
    above: list[tuple[int, str]] = []
    for line in lines:
        found = _LEAF.fullmatch(line.rstrip())
        if found is None or REPORT.match(found[2]):
            if found is not None:
                yield _DOCUMENT, ""
            continue
        depth, name, value = len(found[1]), found[2], found[3]
        while above and above[-1][0] >= depth:
            above.pop()
        if depth == 0 and name.startswith("GPU "):
            yield _GPU, line.strip()[4:]
        elif value is None and len(above) < _DEPTH_MOST:
            above.append((depth, name))
        elif value is not None:
            process = any(section == "Processes" for _, section in above)
            if process and name == "Process ID":
                yield _PROCESS, ""
            yield name if process else ".".join([*(each for _, each in above), name]), value


def _tagged(lines: Iterable[str]) -> Iterator[_Leaf]:
    above: list[str] = []
    for line in lines:
        for closes, tag, attributes, text in _TAGS.findall(line):
            begins = {"nvidia_smi_log": _DOCUMENT, "gpu": _GPU, "process_info": _PROCESS}.get(tag)
            if closes:
                if above[-1:] == [tag]:
                    above.pop()
            elif begins is not None:
                found = _ID.search(attributes)
                yield begins, "" if found is None else html.unescape(found[1])
                above = []
            elif len(above) < _DEPTH_MOST and not attributes.endswith("/"):
                above.append(tag)
                if text.strip():
                    yield ".".join(above), html.unescape(text.strip())


# --- JSON -----------------------------------------------------------------------------------------

DOCUMENT_LENGTH = 4 * 1024 * 1024
"""Longest JSON object; a machine's GPUs and processes take kilobytes."""
JSON = re.compile(r"\s*(?:\[\s*(?:$|\{)|\{\s*(?:$|\"))")


def objects(lines: Iterable[str], rows: Rows) -> RowsOrEnds:
    """Read JSON objects, each in one line or over many: of a machine with its ``gpus``, or of one
    time with a key for each reading."""
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


# --- one value a line -----------------------------------------------------------------------------

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
    """Read the text of one look after the other, with times (``date`` between them, or in each
    line) or without."""
    seen: set[str] = set()
    for line in lines:
        found = METRIC.fullmatch(line)
        if found is None:
            now = None if line[:1] in {"", "#"} else rows.stamps.alone(line)
            if now is not None:
                rows.begin_time(now)
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
    """Read rows with a column for the field and one for its value, each at a time of its own: rows
    of one interval are a moment."""
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


class Form(NamedTuple):
    """A form of logs that has a telling line."""

    tells: re.Pattern[str]
    rows: Callable[[Iterable[str], Rows], RowsOrEnds]
    """Makes rows of all lines, and says where moments end."""


FORMS = {
    "table": Form(TABLE, table),
    "gpustat": Form(GPUSTAT, gpustat),
    "report": Form(REPORT, report),
    "xml": Form(XML, xml),
    "json": Form(JSON, objects),
    "prometheus": Form(METRIC, metrics),
}


# --- around a log: quotes (``> ``), indentation, comment signs, colours, the command line ---------

_QUOTED = re.compile(r"[ \t>]*")
_COMMENTED = re.compile(r"[ \t>#]*")
"""A heading of dmon begins with ``#`` itself."""
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-OQ-WYZ\\`-~])|[\x0e\x0f]"
)
"""ECMA-48: colours and moves of the cursor, titles of windows, character sets."""
_QUERY = re.compile(r"--query-gpu(?:=|\s+)(?:\"([^\"]*)\"|'([^']*)'|(\S+))")


def around(line: str, *, comments: bool = False) -> str:
    """Return the part of ``line`` before its text; ``comments``: with signs of a comment."""
    found = (_COMMENTED if comments else _QUOTED).match(line)
    return "" if found is None else found[0]


def without_escapes(line: str) -> str:
    return _ESCAPE.sub("", line) if "\x1b" in line else line


def unwrapped(lines: Iterable[str], before: str) -> Iterator[str]:
    """Yield ``lines`` without escape codes, and without ``before`` where they begin with it or with
    a part of it (an editor takes the space from an empty line)."""
    part = re.compile(f"[ \t>#]{{0,{len(before)}}}")
    for raw in lines:
        line = without_escapes(raw)
        yield line[len(before) :] if line.startswith(before) else part.sub("", line, count=1)


def query_columns(line: str) -> tuple[str, ...]:
    """Return the columns that a command line of ``nvidia-smi`` asks for; empty for any other
    line."""
    found = _QUERY.search(line)
    if found is None:
        return ()
    text = next(filter(None, found.groups()), "").strip("\"',])`;")
    return tuple([name.strip() for name in text.split(",")]) if text else ()
