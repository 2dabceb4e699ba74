"""``gpuwatch tune``, as a person runs it."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from gpuwatch.commands import cli
from gpuwatch.jobs.identity.roles import WORKER_NAME
from gpuwatch.jobs.run.trees import tree_of
from tests.support.children import children_of, ran, wait_until
from tests.support.installed import needs

LOADERS = Path(__file__).with_name("loaders.py")
ROOT = Path(__file__).parents[2]
LISTENING = (
    # Who starts tests in the background may have Ctrl-C ignored.
    "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from gpuwatch.commands.cli import main\n"
    "main(['tune', sys.argv[1], '--num-workers', '0,1', '--budget', '600s', '--json'])\n"
)
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(warm: None, capfd: pytest.CaptureFixture[str]) -> Run:
    """``gpuwatch tune``, in this process: its measuring process is started."""

    def run_it(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = cli.run(["tune", *arguments, "--timeout", "60s"])
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    return run_it


@needs("torch")
def test_finds_the_known_optimum(run: Run) -> None:
    """Beyond three workers they hinder each other: three are recommended, at no more than they can
    make."""
    done = run(f"{LOADERS}:limited", "--num-workers", "1,3,5", "--prefetch-factor", "2",
               "--budget", "20s", "--json")  # fmt: skip
    assert done.returncode == 0, done
    result = json.loads(done.stdout)
    assert result["recommended"]["num_workers"] == 3
    for row in result["settings"]:
        # Its cost for a sample is a lower bound whatever else the machine does.
        assert row["samples_per_second"] <= 1.05 * min(row["num_workers"], 3) / 0.02


@needs("torch")
def test_failures_are_shown_and_nothing_is_recommended(run: Run) -> None:
    """A dataset that always raises: its line, what it printed, exit code 2."""
    done = run(f"{LOADERS}:raises", "--budget", "5s")
    assert done.returncode == 2
    assert "No setting could be measured." in done.stdout
    assert "ValueError: bad label" in done.stdout
    assert "loaders.py:" in done.stdout
    assert "| reading" in done.stdout
    assert "\x1b" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


@needs("torch")
def test_interrupt_prints_what_is_measured() -> None:
    """Ctrl-C ends it with the result so far, exit code 130, and nothing left."""
    child = subprocess.Popen(
        [sys.executable, "-c", LISTENING, f"{LOADERS}:limited"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )

    def loads() -> bool:
        """A worker has come: the visit without any is over."""
        below = [one for each in children_of(child.pid) for one in children_of(each).values()]
        return any(one.name == WORKER_NAME.encode() for one in below)

    wait_until(loads, 180.0)
    measuring = children_of(child.pid)
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate()
    assert child.returncode == 130, errors
    result = json.loads(out)
    assert result["interrupted"]
    assert any(row["visits"] for row in result["settings"])
    assert result["recommended"] is not None
    wait_until(lambda: not any(tree_of(one) for one in measuring))


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Say what to measure"),
        (("train.py",), "file.py:name"),
        (("missing.py:loader",), "missing.py cannot be read"),
        (("a.b:c", "--num-workers", "two"), "whole numbers with commas"),
        (("a.b:c", "--num-workers", "1,9999"), "between 0 and 512"),
        (("a.b:c", "--budget", "soon"), "60s, 2m or 1h"),
    ],
)
def test_misuse_is_one_sentence(run: Run, arguments: tuple[str, ...], says: str) -> None:
    """What cannot be meant is refused, with exit code 2."""
    done = run(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_needs_no_torch() -> None:
    """The help is printed without importing torch or anything heavy."""
    code = (
        "import sys\nfrom gpuwatch.commands.cli import run\nrun(['tune', '--help'])\n"
        "assert not {'torch', 'textual'} & set(sys.modules)\n"
    )
    done = ran("-c", code, cwd=ROOT)
    assert done.returncode == 0, done
    assert "TARGET" in done.stdout
