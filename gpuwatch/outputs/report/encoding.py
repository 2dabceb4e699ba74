"""Reports as JSON: what is kept, and what ``gpuwatch report --json`` prints.

A file may come from anyone: text is cleaned, numbers are checked, lengths are bounded, and fields
that a newer version added are ignored.
"""

import json
from typing import Any

import msgspec

from gpuwatch import __version__
from gpuwatch.core.codec import cleaned
from gpuwatch.core.text import SentenceError, clean
from gpuwatch.outputs.report.model import SCHEMA_VERSION, Report

TEXT_MAX = 65_536


class ReportError(SentenceError):
    """A file or text is no report."""


def encode(report: msgspec.Struct) -> bytes:
    """As it is kept: exact, on one line, without a line end."""
    return msgspec.json.encode(report)


def dumps(value: object, indent: int | None = 2) -> str:
    """As it is printed: numbers rounded to what means something, without a line end."""
    return json.dumps(
        _rounded(msgspec.to_builtins(value)), ensure_ascii=False, allow_nan=False, indent=indent
    )


def _rounded(value: Any) -> Any:
    if isinstance(value, float):
        return round(value, 4) if value - value == 0.0 else None
    if isinstance(value, dict):
        return {name: _rounded(one) for name, one in value.items()}
    return [_rounded(one) for one in value] if isinstance(value, (list, tuple)) else value


def decode(data: bytes) -> Report:
    """Read what ``encode`` or ``dumps`` wrote; raises ``ReportError``."""
    try:
        value = msgspec.json.decode(data)
    except (msgspec.DecodeError, RecursionError) as error:
        raise ReportError(f"This is not a report: not JSON ({clean(str(error), 80)}).") from None
    if not isinstance(value, dict) or value.get("kind") != "report":
        raise ReportError('This is JSON, but not a gpuwatch report: its "kind" is not "report".')
    schema = value.get("schema")
    if schema != SCHEMA_VERSION or isinstance(schema, bool):
        raise ReportError(
            f"This report is of schema {clean(str(schema), 20)}, and this gpuwatch ({__version__}) "
            f"reads schema {SCHEMA_VERSION} only."
        )
    try:
        return msgspec.convert(cleaned(value, TEXT_MAX), Report)
    except (msgspec.ValidationError, ValueError, RecursionError) as error:
        raise ReportError(f"This report is damaged: {clean(str(error), 200)}.") from None
