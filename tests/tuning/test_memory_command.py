"""``tune memory`` end to end: real steps in real processes, on the host's memory."""

from __future__ import annotations

import json
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuwatch.commands.tune_memory import memory_command

pytest.importorskip("torch", reason="torch is not installed")

STEPS = """
import torch

def grows(batch_size):
    kept = torch.ones(batch_size * 250_000)
    kept.sum()

def hungry(batch_size):
    torch.ones(1 << 33)

def wrong(batch_size):
    raise ValueError("bad \\x1b[31mlabel")
"""


def run(folder: Path, *arguments: str) -> tuple[int, str, str]:
    (folder / "job.py").write_text(STEPS)
    done = CliRunner().invoke(memory_command, list(arguments), standalone_mode=False)
    code = done.return_value if done.exception is None else getattr(done.exception, "exit_code", 1)
    return int(code or 0), done.stdout, done.stderr + str(done.exception or "")


def test_host_memory_of_a_known_step(tmp_path: Path) -> None:
    """A step that keeps a million bytes a sample is measured as that, and the largest batch is
    confirmed by a step that fits into the limit."""
    code, out, err = run(
        tmp_path,
        *("--step", f"{tmp_path}/job.py:grows", "--device", "cpu", "--limit", "1G", "--json"),
        *("--batch-sizes", "20,100,200,400"),
    )
    assert code == 0, err
    report = json.loads(out)
    result = report["results"][0]
    assert result["fit"]["per_sample_bytes"] == pytest.approx(1_000_000, rel=0.1)
    assert result["largest_is_confirmed"]
    assert 400 <= result["largest_batch_size"] < 1074
    assert all(one["peak_bytes"] < 1 << 30 for one in result["points"])


def test_running_out_at_once_is_a_sentence(tmp_path: Path) -> None:
    """A step that does not fit even with one sample: memory runs out, is caught and told."""
    code, _out, err = run(
        tmp_path, "--step", f"{tmp_path}/job.py:hungry", "--device", "cpu", "--limit", "1G"
    )
    assert code == 2
    assert "Not even batch size 1 fits" in err


def test_a_step_that_raises_names_the_line(tmp_path: Path) -> None:
    """The user's own line and error, and nothing a terminal could obey."""
    code, _out, err = run(tmp_path, "--step", f"{tmp_path}/job.py:wrong", "--device", "cpu")
    assert code == 2
    assert "ValueError: bad" in err
    assert "job.py:12" in err
    assert "\x1b" not in err


def test_without_cuda_it_says_what_can_be_done(tmp_path: Path) -> None:
    """Without a CUDA device it says so, and offers the host's memory."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    code, _out, err = run(tmp_path, "--step", f"{tmp_path}/job.py:grows")
    assert code == 2
    assert "there is none" in err
    assert "--device cpu" in err
