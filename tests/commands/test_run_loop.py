"""``gpuwatch run`` of a job that reports its own loop: that is in its report."""

import json
import re
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.commands.running import environment_in, job, program, start
from tests.support.installed import needs

pytestmark = needs("torch")

TRAIN = """
import sys, time
import torch
from gpuwatch.torch import watch

class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 100_000
    def __getitem__(self, number):
        time.sleep(0.005)
        return torch.ones(4)

begin = asked = time.monotonic()
waited = samples = 0.0
for batch in watch(torch.utils.data.DataLoader(Slow(), batch_size=8)):
    waited += time.monotonic() - asked
    time.sleep(0.02)
    samples += len(batch)
    asked = time.monotonic()
    # A file that a job reports in is looked for every two seconds, and on a busy machine less
    # often: a loop that is over by then was never seen to run.
    if asked - begin > 6.0:
        break
took = time.monotonic() - begin
print(samples / took, 100.0 * waited / took, samples / 8, took)
time.sleep(2.0)
"""


def reported_by(folder: Path, *command: str) -> tuple[dict[str, Any], list[float], str]:
    """The report, what the job's own stopwatch said, and the text of the report."""
    process = start(folder, "-i", "0.2", "--plain", "--", *command)
    # A busy machine takes long to import PyTorch.
    out, errors = process.communicate(timeout=300)
    assert process.returncode == 0, errors
    environment = environment_in(folder)
    report = json.loads(program("report", "--json", env=environment).stdout)
    text = program("report", env=environment).stdout
    return report["jobs"][0]["loop"], [float(word) for word in out.split()], text


def test_a_watched_torch_job_is_reported_as_its_own_stopwatch_says(tmp_path: Path) -> None:
    """Samples a second, the share of the time that it waited, its steps, as far as a busy machine
    lets it see all of them; the time after its loop is none of its."""
    loop, (speed, wait, steps, took), text = reported_by(tmp_path, sys.executable, "-c", TRAIN)
    assert loop["samples_per_second"] == pytest.approx(speed, rel=0.25)
    assert loop["data_wait_percent"] == pytest.approx(wait, abs=12.0)
    assert loop["steps"] == pytest.approx(steps, abs=1)
    assert loop["ranks"] == 1
    assert 0.0 < loop["reported_seconds"] < took + 1.5
    assert (loop["copy_percent"], loop["compute_on_device"]) == (None, False)
    assert loop["memory_allocated_peak_bytes"] is None
    (line,) = re.findall(r"Training  (.*?)\nLoading", text, re.S)
    words = " ".join(line.split())
    assert f"waited for data {loop['data_wait_percent']:.0f}% of the time" in words
    assert words.endswith(" steps")
    assert "waits for data, % of the time" in text


def test_a_job_that_reports_nothing_has_no_line_for_it(tmp_path: Path) -> None:
    """Unknown is empty, and no chart of zeros."""
    loop, _, text = reported_by(tmp_path, *job("import time; time.sleep(1)"))
    assert loop["reported_seconds"] == 0
    assert {loop[name] for name in ("samples_per_second", "data_wait_percent", "steps")} == {None}
    assert "Training" not in text
    assert "waits for data" not in text
