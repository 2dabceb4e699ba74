"""``tune memory`` end to end: real steps in real processes, on the host's memory."""

import json
import re
from pathlib import Path

import pytest
from click.testing import CliRunner

from gpuwatch.commands.tune import memory_command
from gpuwatch.tuning.bench import Bench
from gpuwatch.tuning.failures import MeasureError
from tests.support.installed import needs
from tests.tuning.conftest import Silence

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


pytestmark = [needs("torch"), pytest.mark.usefixtures("warm")]


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
    )
    assert code == 0, err
    result = json.loads(out)
    assert result["fit"]["per_sample_bytes"] == pytest.approx(1_000_000, rel=0.1)
    assert 200 <= result["largest_batch_size"] < 1074
    assert all(one["peak_bytes"] < 1 << 30 for one in result["points"])


@pytest.mark.parametrize(
    ("step", "says"),
    [("hungry", "Not even batch size 1 fits"), ("wrong", r"ValueError: bad.* at .*job\.py:12")],
)
def test_a_step_that_never_works_is_a_sentence(tmp_path: Path, step: str, says: str) -> None:
    """Memory that runs out even with one sample, and the user's own error with its line; nothing a
    terminal could obey."""
    code, _out, err = run(
        tmp_path, "--step", f"{tmp_path}/job.py:{step}", "--device", "cpu", "--limit", "1G"
    )
    assert code == 2
    assert re.search(says, err), err
    assert "\x1b" not in err


def test_without_cuda_it_says_what_can_be_done(tmp_path: Path) -> None:
    """Without a CUDA device it says so, and offers the host's memory."""
    import torch

    if torch.cuda.is_available():
        pytest.skip("this machine has CUDA")
    code, _out, err = run(tmp_path, "--step", f"{tmp_path}/job.py:grows")
    assert code == 2
    assert "PyTorch sees none" in err
    assert "--device cpu" in err


def test_a_step_that_hangs_is_placed(tmp_path: Path, silence: Silence) -> None:
    """It is ended when its time is over, and the line that it was at is named."""
    path, begun = tmp_path / "hangs.py", tmp_path / "begun"
    path.write_text(
        "import os, time\n\ndef hangs(batch_size):\n"
        f"    os.mkdir({str(begun)!r}); time.sleep(1000)\n"
    )
    silence(begun.exists, 60.0)
    bench = Bench(None, step=f"{path}:hangs")
    try:
        with pytest.raises(MeasureError, match=r"it was at .*hangs\.py:4") as caught:
            bench.measure_memory(8, on_cpu=True)
        assert caught.value.code == "hang"
    finally:
        bench.close()
