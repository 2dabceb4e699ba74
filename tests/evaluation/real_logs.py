"""Logs of GPUs from public repositories, with a truth argued from each, and what is said of them.

    python -m tests.evaluation.real_logs FOLDER     # the table, from the logs themselves
    python -m tests.evaluation.real_logs            # from their courses, drawn again

The logs are not kept here: most come without a licence. ``real_logs.json`` says where each is from,
what its job was, what may be said of it, and its course, from which one like it is drawn.
"""

import contextlib
import io
import json
import random
import sys
from collections import Counter
from collections.abc import Iterator
from datetime import UTC, datetime
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any, TypeAlias

from gpuwatch.commands import cli

Log: TypeAlias = dict[str, Any]
LOGS: list[Log] = json.loads(Path(__file__).with_name("real_logs.json").read_text())["logs"]
OFF_BY_PERCENT = 5.0
"""Of a mean load: more means that the log was misread."""
REFUSES, ABSTAINS = 2, 3
"""Exit codes: of what is not read, and of a diagnosis that decides nothing."""
LISTED = "cannot be determined"
"""Such a verdict names causes: the true one must be among them."""
OPPOSITES = {
    "fed": ("GPU 0 is idle", LISTED), "idle": ("kept busy", LISTED), "bursts": ("kept busy",),
    "partly": ("nothing waits", "kept busy", "Nothing wrong"),
}  # fmt: skip
"""What the verdict must not say of it, sure or not."""


def judged(log: Log, path: Path) -> tuple[str, str]:
    """``right``, ``hedged``, ``refused``, ``misread``, ``harmful`` or ``wrong``, and why."""
    out, err = io.StringIO(), io.StringIO()
    with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
        code = cli.run(["diagnose", str(path), *log.get("options", ()), "--json"])
    if out.getvalue():
        report = json.loads(out.getvalue())
        return mark(log, code, report), report["verdict"]
    refused = "right" if log["truth"] == "refuse" else "refused"
    return refused if code == REFUSES else "wrong", err.getvalue().replace(str(path), "FILE")


def mark(log: Log, code: int, report: dict[str, Any]) -> str:
    truth, findings, verdict = log["truth"], report["findings"], report["verdict"]
    busy = sorted(gpu["busy_percent"] for gpu in report["gpus"] if gpu["busy_percent"] is not None)
    pairs = zip(busy, sorted(log["busy"]), strict=False)
    same = len(busy) == len(log["busy"]) and all(abs(a - b) <= OFF_BY_PERCENT for a, b in pairs)
    vague = truth in ("unknown", "refuse")
    if truth != "refuse" and (len(report["gpus"]) != log["gpus"] or not (same or vague)):
        return "misread"
    said = json.dumps([verdict, findings], ensure_ascii=False)
    if any(word in said for word in log["never"]):
        return "harmful"
    blamed = {one["rule"] for one in findings if one["severity"] != "info"}
    contradicted = any(words in verdict for words in OPPOSITES.get(truth, ()))
    incomplete = LISTED in said and log.get("must", "") not in said
    if contradicted or incomplete or not blamed <= set(log["blames"]):
        return "wrong"
    undecided = code == ABSTAINS or not report["decided"]
    if vague or undecided or blamed:
        return "right" if vague and undecided else "hedged"
    lost = any(phase["lost"] for phase in report.get("phases") or ())
    return "right" if lost or code != 0 or truth in ("fed", "idle") else "wrong"


def drawn_again(log: Log, path: Path) -> Log:
    """Writes a log of the same course, as nvidia-smi would; with its own means."""
    chance = random.Random(log["path"])
    courses = [list(_loads(course, log["every"], chance)) for course in log["course"]]
    lines = ["timestamp, index, utilization.gpu [%], memory.used [MiB]"]
    for number, loads in enumerate(zip(*courses, strict=False)):
        at = datetime.fromtimestamp(1.8e9 + number * log["every"], UTC)
        for index, (load, held) in enumerate(loads):
            lines.append(f"{at:%Y/%m/%d %H:%M:%S.%f}, {index}, {load} %, {held}")
    path.write_text("\n".join(lines) + "\n")
    busy = [sum(load for load, _ in loads) / len(loads) for loads in courses]
    return log | {"busy": busy, "options": ()}


def _loads(course: Any, every: float, chance: random.Random) -> Iterator[tuple[int, str]]:
    for seconds, low, high, resting, rest_seconds, held in course:
        rest = max(1, round(rest_seconds / every))
        work = max(1, round(rest * (1 - resting) / resting)) if resting else 0
        left, rests = 0, chance.random() >= resting
        for _ in range(max(1, round(seconds / every))):
            if left == 0:
                rests = resting == 1 or (resting > 0 and not rests)
                left = rest if rests else work
            left -= 1
            used = "[N/A]" if held is None else f"{held} MiB"
            yield (0 if rests else round(chance.uniform(low, high))), used


def main(folder: Path | None = None) -> None:
    marks: Counter[str] = Counter()
    print("| log | truth | judged | what is said |\n|---|---|---|---|")
    with TemporaryDirectory() as scratch:
        for log in LOGS:
            if folder is not None or log["course"]:
                path = Path(scratch) / "log.csv" if folder is None else folder / log["path"]
                known = drawn_again(log, path) if folder is None else log
                one, said = judged(known, path)
                marks[one] += 1
                print(f"| {log['path']} | {log['truth']} | {one} | {' '.join(said.split())} |")
    print(f"\n{marks['right'] + marks['hedged']} of {marks.total()} are right or hedged: {marks}")


if __name__ == "__main__":
    main(*map(Path, sys.argv[1:2]))
