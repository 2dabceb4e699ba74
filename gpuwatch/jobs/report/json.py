"""Reports as JSON: what is kept, and what ``gpuwatch report --json`` prints.

One object with ``kind`` ``report``, ``schema`` 1 and the fields of ``JobReport``, nested as there;
``throttled`` holds pairs ``[reason, seconds]``. Sums and shares that a reader would want
(``busy_percent``, ``idle_gpu_seconds``, ``duration_seconds`` ...) are written too, and not read.
A file may come from anyone: text is cleaned, numbers are checked, lengths are bounded, and fields
that a newer version added are ignored.
"""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Callable
from typing import Any, NoReturn, TypeVar

from gpuwatch import __version__
from gpuwatch.core import json_values
from gpuwatch.core.json_values import CodecError, Json
from gpuwatch.core.model import ReasonSeconds
from gpuwatch.core.text import clean
from gpuwatch.jobs.report.report import (
    COURSE_BUCKETS,
    Course,
    GpuReport,
    HostReport,
    JobReport,
    LoadingReport,
    LoopReport,
    ReportError,
)

SCHEMA_VERSION = 1
GPUS_MAX = 256
ITEMS_MAX = 64

# 31 December 9998: what a date can be made of in any time zone.
_UNIX_SECONDS_MAX = 253_370_764_800.0
_NUMBER_MAX = 1e18

T = TypeVar("T")


def report_object(report: JobReport) -> Json:
    """The report as an object that ``json`` can write."""
    value = {
        "kind": "report",
        "schema": SCHEMA_VERSION,
        "gpuwatch": __version__,
        **dataclasses.asdict(report),
        "duration_seconds": _rounded(report.duration_seconds),
        "busy_percent": _rounded(report.busy_percent),
        "idle_gpu_seconds": _rounded(report.idle_gpu_seconds),
        "energy_joules": _rounded(report.energy_joules),
    }
    for gpu, written in zip(report.gpus, value["gpus"], strict=True):
        written["busy_percent"] = _rounded(gpu.busy_percent)
        written["idle_seconds"] = _rounded(gpu.idle_seconds)
    return value


def _rounded(value: float | None) -> float | None:
    return None if value is None else round(value, 3)


def report_text_json(report: JobReport, *, indent: int | None = None) -> str:
    """``report_object`` as text, without a line end."""
    separators = (",", ":") if indent is None else None
    return json.dumps(report_object(report), indent=indent, separators=separators, allow_nan=False)


def decode_report(text: str) -> JobReport:
    """Read what ``report_text_json`` wrote; raises ``ReportError``."""
    return report_from_object(load_object(text))


def load_object(text: str) -> Json:
    """The JSON object in ``text``; raises ``ReportError``."""
    try:
        value = json.loads(text, parse_constant=_refuse_constant)
    except ReportError:
        raise
    except (ValueError, RecursionError) as error:
        raise ReportError(f"This is not a report: not JSON ({clean(str(error), 80)}).") from None
    if not isinstance(value, dict):
        raise ReportError("This is JSON, but not a gpuwatch report: it is not an object.")
    return value


def report_from_object(value: Json) -> JobReport:
    """The report that the object ``value`` holds; raises ``ReportError``."""
    if value.get("kind") != "report":
        raise ReportError('This is JSON, but not a gpuwatch report: its "kind" is not "report".')
    schema = value.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise ReportError('This report is damaged: its "schema" is not a number.')
    if schema > SCHEMA_VERSION:
        raise ReportError(
            f"This report was written in schema {clean(str(schema), 20)}, and this gpuwatch "
            f"({__version__}) reads up to schema {SCHEMA_VERSION}: update gpuwatch to read it."
        )
    try:
        report = _decode(JobReport, value, "report")
    except CodecError as error:
        raise ReportError(f"This report is damaged: {error}") from None
    for gpu in report.gpus:
        if gpu.busy_seconds is not None and gpu.busy_seconds > (gpu.watched_seconds or 0.0) + 0.1:
            raise ReportError(f"This report is damaged: GPU {gpu.label} was busy while unwatched.")
    return report


def _refuse_constant(name: str) -> NoReturn:
    raise ReportError(f"This report is damaged: {name} is not a number that gpuwatch writes.")


# --- values of a report ------------------------------------------------------------------------


def _whole(value: Any, where: str) -> int:
    found = json_values.whole(value, where)
    _check_range(found, where)
    return found


def _number(value: Any, where: str) -> float:
    found = json_values.number(value, where)
    _check_range(found, where)
    return found


_SIGNED = ("exit_code", "temperature_peak_celsius")


def _check_range(value: float, where: str) -> None:
    name = where.rpartition(".")[2]
    most = _UNIX_SECONDS_MAX if name.endswith("_unix_seconds") else _NUMBER_MAX
    least = -most if name in _SIGNED else 0
    if not least <= value <= most:
        raise CodecError(f"{where} cannot be {value:g}.")


def _list(value: Any, where: str, most: int) -> list[Any]:
    if len(json_values.json_list(value, where)) > most:
        raise CodecError(f"{where} has more than {most} entries.")
    return list(value)


def _texts(value: Any, where: str) -> tuple[str, ...]:
    return tuple([json_values.text(item, where) for item in _list(value, where, ITEMS_MAX)])


def _points(value: Any, where: str) -> tuple[float | None, ...]:
    items = _list(value, where, COURSE_BUCKETS)
    return tuple([None if item is None else _number(item, where) for item in items])


def _reasons(value: Any, where: str) -> tuple[ReasonSeconds, ...]:
    found = []
    for item in _list(value, where, ITEMS_MAX):
        reason, seconds = json_values.pair(item, where)
        found.append(ReasonSeconds(json_values.text(reason, where), _number(seconds, where)))
    return tuple(found)


def _part(made: type[T]) -> Callable[[Any, str], T]:
    def check(value: Any, where: str) -> T:
        return _decode(made, json_values.json_object(value, where), where)

    return check


def _course(value: Any, where: str) -> Course:
    course = _part(Course)(value, where)
    if not len(course.minimum) == len(course.mean) == len(course.maximum):
        raise CodecError(f"the lists of {where} differ in length.")
    return course


def _gpus(value: Any, where: str) -> tuple[GpuReport, ...]:
    items = _list(value, where, GPUS_MAX)
    decode = _part(GpuReport)
    return tuple([decode(item, f"gpus[{place}]") for place, item in enumerate(items)])


_CHECKS: dict[str, Callable[[Any, str], Any]] = {
    "str": json_values.text,
    "GpuKey": json_values.text,
    "bool": json_values.flag,
    "int": _whole,
    "float": _number,
    "tuple[str, ...]": _texts,
    "tuple[float | None, ...]": _points,
    "tuple[ReasonSeconds, ...]": _reasons,
    "tuple[GpuReport, ...]": _gpus,
    "Course": _course,
    "LoadingReport": _part(LoadingReport),
    "LoopReport": _part(LoopReport),
    "HostReport": _part(HostReport),
}
"""By a field's annotation, as written in ``report``, less its ``| None``."""


def _decode(made: type[T], value: Json, where: str) -> T:
    found = {}
    for field in dataclasses.fields(made):  # type: ignore[arg-type]
        item = value.get(field.name)
        if item is not None:
            check = _CHECKS[str(field.type).removesuffix(" | None")]
            found[field.name] = check(item, f"{where}.{field.name}")
        elif field.default is dataclasses.MISSING:
            raise CodecError(f'{where} lacks the field "{field.name}".')
    return made(**found)
