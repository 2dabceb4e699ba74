"""Practice jobs: the causes they make and their cures, and real ones that train."""

import contextlib
import importlib.util
import json
import os
import queue
import signal
import subprocess
import sys
import threading
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import psutil
import pytest

from gpuwatch.core.text import SentenceError
from gpuwatch.diagnosis.catalogue import RULES
from gpuwatch.practice import CAUSES, Cause, Settings, find, listing
from tests.support.children import is_gone, ran, wait_until
from tests.support.warm_torch import WarmTorch

ROOT = Path(__file__).resolve().parents[1]
needs_torch = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)
_LIMIT_SECONDS = 60.0
"""Only ends a failing test."""


# -- the causes ------------------------------------------------------------------------------------


def test_every_cause_is_one_that_the_diagnosis_knows() -> None:
    """By its rule's name, so that ``gpuwatch explain`` has it."""
    assert CAUSES.keys() <= {rule.name for rule in RULES}
    assert [line.split()[0] for line in listing()] == list(CAUSES)


@pytest.mark.parametrize("cause", CAUSES.values(), ids=lambda one: one.name)
def test_a_cause_makes_a_job_sick_and_its_cure_changes_that(cause: Cause) -> None:
    """Both are other jobs than the healthy one of the defaults, and it says what changes."""
    sick = cause.settings(fixed=False)
    assert sick != Settings()
    assert cause.settings(fixed=True) not in (sick, Settings(workers=0))
    assert " -> " in cause.cure


@needs_torch
def test_a_cause_is_found_by_its_name_with_dashes_too() -> None:
    """One that is not there is named without what it may do to a terminal."""
    assert find("batch-too-small") is CAUSES["batch_too_small"]
    with pytest.raises(SentenceError, match="choose one of loader_cpu_bound, ") as caught:
        find("no\x1b[2Jthing")
    assert "\x1b" not in str(caught.value)


@pytest.mark.parametrize("command", ["gpuwatch.practice", "gpuwatch demo-job"])
def test_without_pytorch_a_sentence_says_how_to_install_it(command: str) -> None:
    """And the exit code is 2."""
    code = (
        "import runpy, sys; sys.modules['torch'] = None; del sys.argv[0]\n"
        "runpy.run_module(sys.argv[0], run_name='__main__', alter_sys=True)"
    )
    done = ran("-c", code, *command.split(), "loader_cpu_bound", cwd=ROOT)
    assert done.returncode == 2
    assert done.stderr.count("\n") == 1
    assert "pip install '.[torch]' in gpuwatch's folder" in done.stderr


# -- jobs that train -------------------------------------------------------------------------------

CAUSE = "import sys; from gpuwatch import practice; sys.exit(practice.main(sys.argv[1:]))"
SETTINGS = """
import json, sys, torch
from gpuwatch import practice
torch.set_num_threads(1)
practice.SAY_EVERY_SECONDS = 0.0
settings = practice.Settings(**json.loads(sys.argv[1]))
practice.Job(settings, practice.Device("cpu"), reports=False).train()
"""
QUICK = {"step_ms": 0, "python_ms": 0, "transform_ms": 0, "batch_size": 4, "workers": 0}
"""Steps that cost next to nothing."""


@pytest.fixture(scope="module")
def warm_torch() -> Iterator[WarmTorch]:
    """PyTorch is imported once for all jobs."""
    warm = WarmTorch()
    yield warm
    warm.close()


class RunningJob:
    """One practice job, and what it prints."""

    def __init__(self, warm: WarmTorch, *words: str, environment: dict[str, str]) -> None:
        self._lines: queue.Queue[str | None] = queue.Queue()
        self.process = warm.popen(
            [sys.executable, "-c", *words],
            cwd=ROOT,
            env={**os.environ, "PYTHONPATH": str(ROOT), **environment},
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
            start_new_session=True,
        )
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        for line in self.process.stdout or ():
            self._lines.put(line.rstrip("\n"))
        self._lines.put(None)

    def lines(self) -> Iterator[str]:
        """Yield what it prints, up to its end."""
        while (line := self._lines.get(timeout=_LIMIT_SECONDS)) is not None:
            yield line

    def until_it_says(self, beginning: str) -> str:
        return next(line for line in self.lines() if line.startswith(beginning))

    def workers(self) -> list[psutil.Process]:
        """Return its loader workers, by the name that PyTorch gives them."""
        children = psutil.Process(self.process.pid).children()
        return [one for one in children if one.name().startswith("pt_data_worker")]

    def end(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(self.process.pid, signal.SIGKILL)
        self.process.wait()
        self._reader.join()
        if self.process.stdout is not None:
            self.process.stdout.close()


@contextmanager
def running(warm: WarmTorch, *words: str, **environment: str) -> Iterator[RunningJob]:
    job = RunningJob(warm, *words, environment=environment)
    try:
        yield job
    finally:
        job.end()


@contextmanager
def training(warm: WarmTorch, **settings: object) -> Iterator[RunningJob]:
    """A job with these settings, after its first step."""
    place = str(settings.pop("folder", "/tmp"))
    words = (SETTINGS, json.dumps({**QUICK, **settings}))
    with running(warm, *words, TMPDIR=place) as job:
        job.until_it_says("training")
        yield job


def cpu_seconds(process: psutil.Process) -> float:
    times = process.cpu_times()
    return float(times.user + times.system)


@needs_torch
class TestJobs:
    def test_a_job_says_what_is_wrong_and_ends_when_it_is_asked_to(
        self, warm_torch: WarmTorch, tmp_path: Path
    ) -> None:
        """And its workers with it; ``--fixed`` is the cure."""
        words = (CAUSE, "loader_in_main_process", "--device", "cpu", "--fixed")
        with running(warm_torch, *words, XDG_RUNTIME_DIR=str(tmp_path)) as job:
            lines = job.lines()
            assert next(lines) == f"{words[1]}: {CAUSES[words[1]].says}"
            assert next(lines) == "cured: workers 0 -> 2"
            job.until_it_says("training")
            workers = job.workers()
            assert len(workers) == 2
            job.process.terminate()
            # A worker that is ended amid a batch leaves a complaint of multiprocessing's own.
            assert "SystemExit" not in "\n".join(job.lines())
            assert job.process.wait(_LIMIT_SECONDS) == 143
            wait_until(lambda: all(map(is_gone, workers)))

    def test_transforms_cost_the_workers(self, warm_torch: WarmTorch) -> None:
        """What a sample costs is paid by the worker, not by the main process."""
        with training(warm_torch, workers=1, transform_ms=20) as job:
            (worker,), main = job.workers(), psutil.Process(job.process.pid)
            before, begun = cpu_seconds(main), cpu_seconds(worker)
            wait_until(lambda: cpu_seconds(worker) > begun + 0.5)
            assert cpu_seconds(main) - before < 0.25

    def test_without_workers_the_main_process_pays(self, warm_torch: WarmTorch) -> None:
        """For loading, for its Python and for the step, which take as long as was asked for."""
        with training(warm_torch, transform_ms=5, python_ms=20, step_ms=20) as job:
            main = psutil.Process(job.process.pid)
            before, first = cpu_seconds(main), int(job.until_it_says("step").split()[1])
            steps = 0
            while steps < 10:
                steps = int(job.until_it_says("step").split()[1]) - first
            assert cpu_seconds(main) - before > 0.055 * steps

    def test_a_checkpoint_is_written_and_left_nowhere(
        self, warm_torch: WarmTorch, tmp_path: Path
    ) -> None:
        """Of the size that was asked for at least; the training waits for it."""
        settings = {"save_every_seconds": 0.05, "save_mib": 20, "folder": tmp_path}
        with training(warm_torch, **settings) as job:
            job.until_it_says("saved 20 MiB")
            written = psutil.Process(job.process.pid).io_counters().write_chars
            assert written > 20 << 20
            assert list(tmp_path.iterdir()) == []

    def test_a_checkpoint_in_a_thread_stops_no_training(
        self, warm_torch: WarmTorch, tmp_path: Path
    ) -> None:
        """It is written as well, and no step waits for it."""
        settings = {"save_every_seconds": 0.05, "save_mib": 20, "folder": tmp_path}
        with training(warm_torch, **settings, save_in_thread=True) as job:
            main = psutil.Process(job.process.pid)
            wait_until(lambda: main.io_counters().write_chars > 20 << 20)
            assert job.until_it_says("s").startswith("step ")

    def test_all_else_trains(self, warm_torch: WarmTorch) -> None:
        """Settings that show on a GPU only are no trouble on the CPU."""
        settings = {"small_kernels": True, "width": 32}
        with training(warm_torch, **settings, workers=1, sample_kib=64) as job:
            assert job.until_it_says("step ")

    @pytest.mark.parametrize("job_is", ["asked to end", "killed"])
    def test_large_batches_are_not_left_in_dev_shm(
        self, warm_torch: WarmTorch, job_is: str
    ) -> None:
        """However the job ends while a worker makes a batch: all of its processes are asked to
        end, or itself is killed first."""
        with training(warm_torch, sample_kib=32768, workers=1) as job:
            (worker,) = job.workers()

            def half_made() -> bool:
                # Once it is all there PyTorch takes the name away.
                return bool(list(Path("/dev/shm").glob(f"torch_{worker.pid}_*")))

            wait_until(half_made)
            if job_is == "killed":
                job.process.kill()
            os.killpg(job.process.pid, signal.SIGTERM)
            try:
                wait_until(lambda: is_gone(worker))
                assert not half_made()
            finally:
                for file in Path("/dev/shm").glob(f"torch_{worker.pid}_*"):
                    file.unlink()

    def test_no_such_device(self, warm_torch: WarmTorch) -> None:
        """A device that cannot be used is a sentence, and the job ends."""
        with running(warm_torch, CAUSE, "batch_too_small", "--device", "abacus") as job:
            said = list(job.lines())
            assert job.process.wait(_LIMIT_SECONDS) == 2
        assert said[-1].startswith("The job cannot run: The device 'abacus' cannot be used: ")
        assert not any("Traceback" in line for line in said)
