"""What ``gpuwatch doctor`` found, as a page for a person and as JSON.

The JSON is one object, ``schema`` 1::

    {"schema": 1, "kind": "doctor", "gpuwatch": version, "taken_at_unix_seconds",
     "worst": "pass", "warn" or "fail",
     "counts": {"pass", "skip", "warn", "fail"},
     "gpus": [{"index", "uuid", "name", "mig_instance" or null, "lost"}],
     "checks": [
        {"group", "name", "status", "reason": a sentence or less,
         "cure": what to do, or null,
         "target": a GPU's uuid, or null,
         "values": {name with its unit: number, text, true, false or null}}]}

A reading of a GPU is a check of the group ``Readings``. Its values are its fields as
``gpuwatch status --json`` has them, ``call_microseconds`` (what a call of the driver took, the
median), and ``nvidia_smi_FIELD`` where nvidia-smi was asked and answered.
"""

from collections.abc import Iterable, Sequence
from typing import Any

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.core.model import Gpu
from gpuwatch.doctor.check import FAIL, PASS, SKIP, STATUSES, WARN, Check, measured_text, worst
from gpuwatch.outputs.report.encoding import dumps
from gpuwatch.outputs.terminal import BOLD, DIM, RED, YELLOW, Page

SCHEMA = 1
GREEN = "\x1b[32m"
_STYLES = {PASS: GREEN, SKIP: DIM, WARN: YELLOW, FAIL: RED}
_MARKS = {PASS: "✓", SKIP: "-", WARN: "!", FAIL: "✗"}
_ASCII_MARKS = {PASS: "+", SKIP: "-", WARN: "!", FAIL: "X"}
NAME_MOST = 22
"""Cells of a name; a longer one has the reason below it."""


def doctor_json(checks: Sequence[Check], gpus: Sequence[Gpu], at_unix_seconds: float) -> str:
    return dumps(
        {
            "schema": SCHEMA,
            "kind": "doctor",
            "gpuwatch": __version__,
            "taken_at_unix_seconds": at_unix_seconds,
            "worst": worst(checks),
            "counts": {status: _count(checks, status) for status in STATUSES},
            "gpus": [
                {
                    "index": gpu.identity.index,
                    "uuid": gpu.uuid,
                    "name": gpu.identity.name,
                    "mig_instance": gpu.identity.mig_instance,
                    "lost": gpu.lost,
                }
                for gpu in gpus
            ],
            "checks": [_object(check) for check in checks],
        }
    )


def _object(check: Check) -> dict[str, Any]:
    return {
        "group": check.group,
        "name": check.name,
        "status": check.status,
        "reason": _reason([check]),
        "cure": check.cure,
        "target": None if check.gpu is None else check.gpu.uuid,
        "values": {one.name: one.value for one in check.measured},
    }


def doctor_page(
    checks: Sequence[Check], gpus: Sequence[Gpu], *, width: int, colour: bool, unicode: bool
) -> str:
    """A line for each check, those that are alike on several GPUs as one."""
    page = Page(width, colour)
    marks = _MARKS if unicode else _ASCII_MARKS
    for group in dict.fromkeys(check.group for check in checks):
        page.gap()
        page.lines.append(page.paint(group, BOLD))
        alike: dict[object, list[Check]] = {}
        for check in checks:
            if check.group == group:
                alike.setdefault((check.name, check.status, check.cure, check.reason), []).append(
                    check
                )
        for same in alike.values():
            _say(page, same, gpus, marks)
    page.gap()
    page.say(_closing(checks, gpus), style=BOLD)
    if worst(checks) in (WARN, FAIL):
        page.say("For a bug report: gpuwatch doctor --bundle doctor.zip")
    return page.text(unicode)


def _say(page: Page, same: list[Check], gpus: Sequence[Gpu], marks: dict[str, str]) -> None:
    check = same[0]
    status = page.paint(f"{marks[check.status]} {check.status}", _STYLES[check.status])
    where = _where(same, gpus)
    reason = ": ".join(filter(None, (where, _reason(same))))
    first = f"  {marks[check.status]} {check.status}  {check.name:<{NAME_MOST}}  "
    later = " " * (10 + NAME_MOST + 2)
    start = len(page.lines)
    page.say(reason, first=first, later=later)
    line = page.lines[start]
    plain = f"{marks[check.status]} {check.status}"
    page.lines[start] = line.replace(plain, status, 1)
    if check.cure is not None and check.status in (WARN, FAIL):
        page.say(check.cure, first=later, later=later)


def _where(same: list[Check], gpus: Sequence[Gpu]) -> str:
    """The GPUs, unless it is all that the machine has."""
    named = {check.gpu.uuid: check.gpu for check in same if check.gpu is not None}
    if not named or len(gpus) == 1:
        return ""
    if named.keys() >= {gpu.uuid for gpu in gpus if not gpu.lost}:
        return ""
    return units.gpus_named(named.values())


def _reason(same: Sequence[Check]) -> str:
    measured = measured_text([check.measured for check in same])
    return " ".join(filter(None, (same[0].reason, measured)))


def _closing(checks: Sequence[Check], gpus: Sequence[Gpu]) -> str:
    counted = [f"{count} {status}" for status in STATUSES if (count := _count(checks, status))]
    state = worst(checks)
    verdict = {
        PASS: "Nothing is wrong" if gpus else "Nothing is wrong, but there is no GPU to watch",
        WARN: "It works, with warnings",
        FAIL: "Something is broken",
    }[state]
    return f"{verdict}: {', '.join(counted)}."


def _count(checks: Iterable[Check], status: str) -> int:
    return sum(check.status == status for check in checks)
