"""What ``nvidia-smi`` and gpustat print for people and programs, over time: the table of
``nvidia-smi -l``, the report of ``-q``, as text and as XML (``-q -x``), and the lines of gpustat.

Each format is a function from lines to rows; ``None`` among them ends a moment. They are read line
by line, so one that is cut off or has other text between its parts is read as far as it goes.
"""

import html
import re
from collections.abc import Iterable, Iterator
from typing import Any

from gpuwatch.sources.smi_log.rows import Rows, RowsOrEnds

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
    """The table with frames, in the layouts of all drivers since 2012."""
    gpu: dict[str, str] = {}
    cards: dict[str, dict[str, str]] = {}
    driver, dated = "", False
    for line in lines:
        if TABLE.match(line):
            yield None
            if not dated:
                rows.now_is(None)
            known = _DRIVER.search(line)
            gpu, dated, driver = {}, False, "" if known is None else known[1]
        elif line[:1] != "|":
            at = rows.stamps.alone(line)
            if at is not None:
                yield None
                rows.now_is(at)
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


# --- gpustat ---------------------------------------------------------------------------------

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
    """The lines of gpustat, with any of its options: a header (or none) and a line for each GPU."""
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
                rows.now_is(at)
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


# --- the report ------------------------------------------------------------------------------

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
    """``nvidia-smi -q``, with any ``-d``."""
    return _machines(_indented(lines), rows)


def xml(lines: Iterable[str], rows: Rows) -> RowsOrEnds:
    """``nvidia-smi -q -x``: one document after the other."""
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
