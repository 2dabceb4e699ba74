"""What is said of logs of real machines is right, or says what it does not know."""

from pathlib import Path
from typing import Any

import pytest

from tests.evaluation.real_logs import LOGS, Log, drawn_again, judged, mark

SERVER: Log = {"truth": "bursts", "gpus": 1, "busy": [40.0], "never": ["num_workers"],
               "must": "request", "blames": ["oscillation"]}  # fmt: skip


def rows(log: Log) -> float:
    return max(sum(part[0] for part in course) for course in log["course"]) / log["every"]


# The longest are for ``python -m tests.evaluation.real_logs``.
DRAWN = [log for log in LOGS if log["course"] and rows(log) < 1500]


@pytest.mark.parametrize("log", DRAWN, ids=lambda log: log["path"])
def test_of_a_log_drawn_again(log: Log, tmp_path: Path) -> None:
    """No loader is blamed for a server that waits, and a quarter-used hour is not called idle."""
    judgement, said = judged(drawn_again(log, tmp_path / "log.csv"), tmp_path / "log.csv")
    assert judgement in ("right", "hedged"), said


@pytest.mark.parametrize(("expected", "said", "rule"), [
    ("hedged", "cannot be determined: a loader or requests", "oscillation"),
    ("wrong", "cannot be determined: a loader", "oscillation"),
    ("wrong", "a loader or requests", "loader_cpu_bound"),
    ("harmful", "raise num_workers, or wait for requests", "oscillation"),
])  # fmt: skip
def test_marks(expected: str, said: str, rule: str) -> None:
    """A cause blamed on what is not there is never right, however sure."""
    report: dict[str, Any] = {"verdict": said, "decided": True, "gpus": [{"busy_percent": 41.0}]}
    report["findings"] = [{"rule": rule, "severity": "warning"}]
    assert mark(SERVER, 1, report) == expected
