"""Results of ``gpuwatch doctor``, as a page for a person and as JSON.

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
``gpuwatch status --json`` has them, and ``call_microseconds`` (what a call of the driver took).
"""

import io
import tarfile
import time
import zipfile
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from gpuwatch import __version__
from gpuwatch.core import units
from gpuwatch.core.model import Gpu
from gpuwatch.doctor.check import FAIL, PASS, SKIP, STATUSES, WARN, Check, measured_text, worst
from gpuwatch.doctor.driver import CALL_MICROSECONDS
from gpuwatch.outputs.report.model import dumps
from gpuwatch.outputs.terminal import BOLD, DIM, RED, YELLOW, Page, cell_width, cut, wrap

SCHEMA = 1
GREEN = "\x1b[32m"
_STYLES = {PASS: GREEN, SKIP: DIM, WARN: YELLOW, FAIL: RED}
_MARKS = {PASS: "✓", SKIP: "-", WARN: "!", FAIL: "✗"}
NAME = 26
"""Cells of a name; a longer one has what was found below it."""
NARROW = 70
"""In fewer columns everything stands below the name."""
COST = 7
NAMED = 5
"""Lines that the last one names."""


def doctor_json(checks: Sequence[Check], gpus: Sequence[Gpu], at_unix_seconds: float) -> str:
    statuses = [check.status for check in checks]
    return dumps(
        {
            "schema": SCHEMA,
            "kind": "doctor",
            "gpuwatch": __version__,
            "taken_at_unix_seconds": at_unix_seconds,
            "worst": worst(checks),
            "counts": {status: statuses.count(status) for status in STATUSES},
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


README = """\
What gpuwatch doctor found on a machine, for a bug report.
gpuwatch {version}, {time} UTC

  doctor.txt, doctor.json   what was checked
  recording.jsonl.zst       {seconds:.0f} seconds of readings: gpuwatch replay recording.jsonl.zst

In it are: readings of the GPUs, the machine and the processes on the GPUs; versions of the kernel,
the driver, Python and libraries; names of GPUs with their UUIDs and PCI addresses; names of
programs, PIDs, numbers of Slurm jobs; TERM and the terminal's size.

Not in it are: names of users, hosts, folders, files and containers, network addresses, arguments
of commands, other environment variables, and what jobs print.

doctor.txt is text, and so is the recording: zstdcat recording.jsonl.zst
"""


def archive(path: Path, files: Mapping[str, bytes]) -> bytes:
    """The files in a folder, as a zip or a tar.gz, by the ending of ``path``."""
    folder, at, whole = path.name.partition(".")[0] or "doctor", time.time(), io.BytesIO()
    if path.suffix == ".zip":
        with zipfile.ZipFile(whole, "w", zipfile.ZIP_DEFLATED) as zipped:
            for name, data in files.items():
                zipped.writestr(f"{folder}/{name}", data)
    else:
        with tarfile.open(fileobj=whole, mode="w:gz") as tar:
            for name, data in files.items():
                # Of no user: it names none.
                entry = tarfile.TarInfo(f"{folder}/{name}")
                entry.size, entry.mtime = len(data), int(at)
                tar.addfile(entry, io.BytesIO(data))
    return whole.getvalue()


ARCHIVES = (".zip", ".tar.gz", ".tgz")


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
    names: dict[str, list[str]] = {status: [] for status in (FAIL, WARN, PASS, SKIP)}
    for group in dict.fromkeys(check.group for check in checks):
        page.gap()
        alike: dict[object, list[Check]] = {}
        for check in checks:
            if check.group == group:
                kind = (check.name, check.status, check.cure, check.reason)
                alike.setdefault(kind, []).append(check)
        timed = any(_cost(same) for same in alike.values())
        title = f"{group:<{width - COST}}{'a call':>{COST}}" if timed else group
        page.lines.append(page.paint(title, BOLD))
        cures = set[str | None]()
        for same in alike.values():
            names[same[0].status].append(same[0].name.removeprefix("the "))
            _say(page, same, gpus, COST + 2 if timed else 0, again=same[0].cure in cures)
            cures.add(same[0].cure)
    page.gap()
    page.say(_closing(names, gpus), style=BOLD)
    return page.text(unicode)


def _say(page: Page, same: list[Check], gpus: Sequence[Gpu], room: int, again: bool) -> None:
    """Print a check. ``room``: cells on the right for what a call costs; ``again``: its cure was
    said above."""
    check = same[0]
    name = check.name.removeprefix("the ")
    status = f"{_MARKS[check.status]} {check.status}"
    narrow = page.width < NARROW
    first = f"  {status}  {name if narrow else name.ljust(NAME)}  "
    later = " " * (len(f"  {status}  ") + (0 if narrow else NAME + 2))
    reason = ": ".join(filter(None, (_where(same, gpus), _reason(same))))
    lines = wrap(reason, page.width - room, first=first, later=later) or [first.rstrip()]
    if narrow or cell_width(name) > NAME:
        lines = [first.rstrip(), *wrap(reason, page.width - room, first=later, later=later)]
    cost = _cost(same)
    if cost:
        lines[0] = f"{cut(lines[0], page.width - COST):<{page.width - COST}}{cost:>{COST}}"
    lines[0] = lines[0].replace(status, page.paint(status, _STYLES[check.status]), 1)
    page.lines += lines
    if check.cure is not None and check.status in (WARN, FAIL) and not again:
        page.say(check.cure, first=later, later=later)


def _cost(same: Sequence[Check]) -> str:
    """Return ``6 µs``: the most that a call takes on any of the GPUs."""
    costs = [
        one.value
        for check in same
        for one in check.measured
        if one.name == CALL_MICROSECONDS and isinstance(one.value, float)
    ]
    if not costs:
        return ""
    most = max(costs)
    return f"{most:.0f} µs" if most < 999.5 else units.duration(most / 1e6)


def _where(same: list[Check], gpus: Sequence[Gpu]) -> str:
    """Return the names of the GPUs, unless it is all that answer."""
    named = {check.gpu.uuid: check.gpu for check in same if check.gpu is not None}
    cards = {gpu.uuid for gpu in gpus if not gpu.lost and gpu.identity.mig_parent_uuid is None}
    if not named or named.keys() >= cards:
        return ""
    return units.gpus_named(named.values())


def _reason(same: Sequence[Check]) -> str:
    """Return what was found and what was measured, as one sentence or less."""
    reason, measured = same[0].reason, measured_text([check.measured for check in same])
    between = " " if reason.endswith(":") else ", "
    return between.join(filter(None, (reason, measured)))


def _closing(names: Mapping[str, Sequence[str]], gpus: Sequence[Gpu]) -> str:
    """Return the conclusion, and which lines to look for: the first may have scrolled away."""
    verdict = "Nothing is wrong" if gpus else "Nothing is wrong, but there is no GPU to watch"
    verdict = "It works, with warnings" if names[WARN] else verdict
    verdict = "Something is broken" if names[FAIL] else verdict
    counted = []
    for status, lines in names.items():
        which = list(dict.fromkeys(lines)) if status in (WARN, FAIL) else []
        more = [f"{len(which) - NAMED} more"] if len(which) > NAMED else []
        said = f" ({', '.join([*which[:NAMED], *more])})" if which else ""
        counted += [f"{len(lines)} {status}{said}"] if lines else []
    return f"{verdict}: {', '.join(counted)}."
