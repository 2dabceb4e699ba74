"""``gpuwatch demo-job`` in a terminal: its list, its key, and its end."""

import importlib.util
import signal
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest
from click.testing import CliRunner

from gpuwatch.commands.demo_job import demo_job_command
from gpuwatch.practice.causes import CAUSES, UNPRACTISED
from tests.commands.running import environment_in, program
from tests.practice.jobs import is_gone
from tests.support.children import ran, wait_until
from tests.tui.terminal.pseudo_terminal import PseudoTerminal, terminal

needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)
CTRL_C = "\x03"


@contextmanager
def demo_job(
    folder: Path, *arguments: str, size: tuple[int, int] = (120, 40), python: tuple[str, ...] = ()
) -> Iterator[PseudoTerminal]:
    """In a terminal; with what it writes below ``folder``. ``python``: options of Python's."""
    settings = environment_in(folder) | {"TERM": "xterm-256color", "TMPDIR": str(folder)}
    command = (*python, "-m", "gpuwatch", "demo-job", *arguments, "--device", "cpu")
    with terminal(*command, size=size, environment=settings, folder=folder) as it:
        yield it


def jobs_in(folder: Path) -> list[psutil.Process]:
    """Practice jobs, their ranks and workers, with their folder below this one."""
    found = []
    for one in psutil.process_iter(["cmdline"]):
        line = " ".join(one.info["cmdline"] or ())
        if "gpuwatch.practice.train" in line and str(folder) in line:
            found.append(one)
    return found


@needs_torch
class TestKey:
    def test_it_cures_and_makes_ill_again(self, tmp_path: Path) -> None:
        """x turns the knobs of the running job, and before and after appear; pressed again it
        turns them back."""
        with demo_job(tmp_path, "loader_in_main_process", "--", "--step-ms", "1") as it:
            it.until_it_says("PRACTICE  loader_in_main_process")
            it.until_it_says("x fixes it: num_workers 0 -> 2  (diagnosed in about 20 s)")
            it.until_it_says("Not visible on the CPU: the bursts of a GPU")
            # Its pace, without which there is nothing to compare.
            it.until(lambda: "samples/s" in it.text and "waits for data" in it.text)
            it.type("x")
            it.until_it_says("x breaks it again: num_workers 2 -> 0")
            it.until_it_says("2 loader workers")
            it.until(lambda: "changed" in it.text and " samples/s  waits " in it.text)
            it.until(lambda: len(jobs_in(tmp_path)) == 3)
            left = jobs_in(tmp_path)
            it.type("x")
            it.until_it_says("x fixes it: num_workers 0 -> 2")
            it.until(lambda: sum(not is_gone(one) for one in left) == 1)
            _ends(it, CTRL_C, 130, tmp_path)

    def test_a_job_that_ended_cannot_be_turned(self, tmp_path: Path) -> None:
        """The bar says that it has ended, and so does the key; what it said last is printed."""
        with demo_job(tmp_path, "loader_in_main_process", size=(100, 30)) as it:
            it.until_it_says("knobs: write")
            jobs_in(tmp_path)[0].kill()
            it.until_it_says("The job has ended: q leaves.")
            it.type("x")
            it.until_it_says("the job has ended: its settings can no longer be changed")
            it.type("q")
            assert it.end() == 137
        assert list(tmp_path.glob("gpuwatch-practice-*")) == []

    def test_health_has_no_cure(self, tmp_path: Path) -> None:
        """There is nothing to turn, and the key says so; on a small screen it is one line. Started
        as ``gpuwatch``, nothing is imported from the current folder."""
        _plant(tmp_path)
        with demo_job(tmp_path, "healthy", size=(80, 16), python=("-P",)) as it:
            it.until_it_says("There is nothing to fix.")
            it.type("x")
            it.until_it_says("nothing is wrong: there is nothing to fix")
            _ends(it, "q", 0, tmp_path)
        assert list(tmp_path.glob("*.ran")) == []


def _ends(it: PseudoTerminal, how: str | signal.Signals, code: int, folder: Path) -> None:
    """gpuwatch ends with this exit code, and with it the job, its workers and its folder."""
    left = jobs_in(folder)
    assert left
    if isinstance(how, str):
        it.type(how)
    else:
        it.program.send_signal(how)
    assert it.end() == code
    wait_until(lambda: all(is_gone(one) for one in left))
    assert list(folder.glob("gpuwatch-practice-*")) == []


@needs_torch
@pytest.mark.parametrize(("how", "code"), [(signal.SIGHUP, 129), (signal.SIGKILL, -9)])
def test_the_job_ends_with_gpuwatch(tmp_path: Path, how: signal.Signals, code: int) -> None:
    """However that ends, and nobody is asked."""
    with demo_job(tmp_path, "loader_cpu_bound") as it:
        it.until(lambda: len(jobs_in(tmp_path)) == 2)
        it.until_it_says("q quit")
        _ends(it, how, code, tmp_path)


def _plant(folder: Path) -> None:
    """Modules that others import, which leave a file where they are imported from here."""
    for name in ("select", "subprocess", "shutil", "click", "torch"):
        (folder / f"{name}.py").write_text("open(__file__ + '.ran', 'w')\nraise SystemExit(9)")


@needs_torch
def test_nothing_is_imported_from_the_current_folder(tmp_path: Path) -> None:
    """Neither by gpuwatch, started as ``python -m gpuwatch``, nor by the practice job, nor by what
    that starts; SIGTERM ends them all."""
    _plant(tmp_path)
    with demo_job(tmp_path, "other_tenant") as it:
        it.until(lambda: "training" in it.text or "job has ended" in it.text)
        it.until(lambda: len(jobs_in(tmp_path)) > 1)
        _ends(it, signal.SIGTERM, 143, tmp_path)
    assert list(tmp_path.glob("*.ran")) == []


def test_an_end_that_is_asked_for_amid_an_import_comes_after_it() -> None:
    """Where an exception would be lost, or end the process without giving back what it took."""
    code = (
        "import os, signal\n"
        "from gpuwatch.practice import ending\n"
        "ending.listen()\n"
        "try:\n"
        "    with ending.held():\n"
        "        os.kill(os.getpid(), signal.SIGTERM)\n"
        "        print('imported')\n"
        "    print('trains')\n"
        "finally:\n"
        "    print('gives back')\n"
    )
    ended = ran("-c", code)
    assert ended.stdout.splitlines() == ["imported", "gives back"]
    assert ended.returncode == 143
    assert ended.stderr == ""


def test_the_list_names_every_cause() -> None:
    """With what each needs that a CPU does not have; those that no job can have, with why."""
    shown = CliRunner().invoke(demo_job_command, [])
    assert shown.exit_code == 0
    said = [text for one in CAUSES.values() for text in (f"  {one.name} ", one.says)]
    said += [why for why, _ in UNPRACTISED.values()]
    assert [text for text in said if text not in shown.output] == []


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (["no\x1b[2Jthing"], "There is no cause 'no"),
        (["gpu_lost"], "gpu_lost cannot be practised: a job cannot take a card off the bus"),
        (["healthy"], "The dashboard needs a terminal."),
    ],
)
def test_what_cannot_be_shown_is_a_sentence(arguments: list[str], says: str) -> None:
    """One line, without what a name may do to a terminal, and exit code 2."""
    if arguments == ["healthy"] and importlib.util.find_spec("torch") is None:
        pytest.skip("torch is not installed")
    done = program("demo-job", *arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1
    assert "\x1b" not in done.stderr
