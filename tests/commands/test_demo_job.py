"""``gpuwatch demo-job`` in a terminal: its list, its dashboard, and its end."""

import importlib.util
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from gpuwatch.commands.demo_job import demo_job_command
from gpuwatch.practice import CAUSES
from tests.commands.running import environment_in, program
from tests.support.children import is_gone, wait_until
from tests.tui.terminal.pseudo_terminal import PseudoTerminal, terminal

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)


@contextmanager
def demo_job(folder: Path, *arguments: str) -> Iterator[PseudoTerminal]:
    """In a terminal; with what it writes below ``folder``."""
    settings = environment_in(folder) | {"TERM": "xterm-256color", "TMPDIR": str(folder)}
    command = ("-m", "gpuwatch", "demo-job", *arguments, "--device", "cpu")
    with terminal(*command, size=(120, 40), environment=settings, folder=folder) as it:
        yield it


def jobs_of(it: PseudoTerminal) -> list[psutil.Process]:
    """Return the practice job that gpuwatch started, and its workers."""
    below = psutil.Process(it.program.pid).children(recursive=True)
    return [one for one in below if "gpuwatch.practice" in " ".join(one.cmdline())]


@needs_torch
def test_the_fixed_job_is_watched_until_the_dashboard_is_left(tmp_path: Path) -> None:
    """Its name, its workers and what it prints are there; it ends with the dashboard."""
    with demo_job(tmp_path, "loader_in_main_process", "--fixed") as it:
        it.until_it_says("cured: workers 0 -> 2")
        it.until_it_says("2 loader workers")
        it.until(lambda: len(jobs_of(it)) == 3)
        left = jobs_of(it)
        it.type("q")
        it.until_it_says("the job is still running")
        it.type("l")
        assert it.end() == 128 + signal.SIGTERM
        wait_until(lambda: all(map(is_gone, left)))


@needs_torch
@pytest.mark.parametrize(("how", "code"), [(signal.SIGHUP, 143), (signal.SIGKILL, -9)])
def test_the_job_ends_with_gpuwatch(tmp_path: Path, how: signal.Signals, code: int) -> None:
    """However that ends, and nobody is asked. Neither imports anything from the current folder."""
    for name in ("select", "subprocess", "shutil", "click", "torch"):
        (tmp_path / f"{name}.py").write_text("open(__file__ + '.ran', 'w')\nraise SystemExit(9)")
    with demo_job(tmp_path, "loader_cpu_bound") as it:
        it.until_it_says("training")
        left = jobs_of(it)
        assert left
        it.program.send_signal(how)
        assert it.end() == code
        wait_until(lambda: all(map(is_gone, left)))
    assert list(tmp_path.glob("*.ran")) == []


def test_the_list_names_every_cause() -> None:
    """With what is wrong, and what a CPU cannot show."""
    shown = CliRunner().invoke(demo_job_command, [])
    assert shown.exit_code == 0
    for cause in CAUSES.values():
        needs = "; needs a GPU" * cause.needs_gpu
        assert f"  {cause.name:<23} {cause.says}{needs}\n" in shown.output


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no\x1b[2Jthing"], "There is no practice job 'no"),
        (["batch-too-small"], "The job alone: python -m gpuwatch.practice batch_too_small"),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(arguments: list[str], says: str) -> None:
    """One line, without what a name may do to a terminal, and exit code 2."""
    if arguments == ["batch-too-small"] and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    done = program("demo-job", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr
