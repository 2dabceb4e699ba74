"""Settings are measured in processes of their own, with real loaders, and every way they fail."""

import contextlib
import os
import re
import signal
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.jobs.run.trees import tree_of
from gpuwatch.tuning import bench as bench_module
from gpuwatch.tuning import failures
from gpuwatch.tuning.bench import Bench
from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.records import Failure, Order, Setting, Visit
from tests.support.children import children_of, ran, wait_until
from tests.support.installed import needs
from tests.tuning.conftest import Silence

LOADERS = Path(__file__).with_name("loaders.py")
HELD_COST = 0.01
"""Seconds a sample of ``held_up`` and ``held_up_stream`` takes."""


# The tests of the command, and those that kill it, start theirs as everybody does.
pytestmark = [needs("torch"), pytest.mark.usefixtures("warm")]


@contextlib.contextmanager
def bench(target: str, **options: Any) -> Iterator[Bench]:
    """Of a name of ``loaders.py``, or of any target."""
    made = Bench(target if ":" in target else f"{LOADERS}:{target}", **options)
    with contextlib.closing(made):
        yield made


@contextlib.contextmanager
def opened(target: str, **options: Any) -> Iterator[Bench]:
    with bench(target, **options) as made:
        made.open()
        yield made


def visit(
    its: Bench, workers: int = 0, *, seconds: float = 0.05, limit: float = 60.0, **knobs: object
) -> Visit | Failure:
    setting = Setting().changed(num_workers=workers, **knobs)
    return its.visit(Order(setting=setting, seconds=seconds, limit_seconds=limit))


def measured(result: Visit | Failure) -> Visit:
    assert isinstance(result, Visit), result
    return result


def failed(result: Visit | Failure) -> Failure:
    assert isinstance(result, Failure), result
    assert "\x1b" not in result.sentence
    assert "Traceback" not in result.sentence
    return result


def test_measures_with_and_without_workers() -> None:
    """Batches, cores and memory are those of the setting; the loader's own size is kept."""
    with bench("numbers") as its:
        loaded = its.open()
        # Longer than the clock of CPU times ticks.
        alone, pair = measured(visit(its)), measured(visit(its, 2, seconds=0.3))
    assert loaded.samples == 100_000
    assert loaded.base.batch_size == 8
    assert alone.samples % 8 == 0
    assert alone.workers_memory_bytes == 0
    assert pair.samples % 16 == 0
    assert pair.workers_memory_bytes > 2**20
    assert pair.cores_used > 0


@pytest.mark.parametrize("name", ["held_up", "held_up_stream"])
def test_no_rate_is_above_what_the_workers_can_make(name: str) -> None:
    """Batches that were ready before the window do not count, but for a share of a burst, whatever
    the prefetch factor and however long the measuring process was held up."""
    with opened(name) as its:
        for prefetch in (2, 8):
            found = measured(visit(its, 4, seconds=0.5, prefetch_factor=prefetch))
            assert found.samples_per_second <= 1.05 * 4 / HELD_COST


def test_nothing_is_left_behind(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """At the end the workers are gone, and so is what they started in other sessions."""
    file = tmp_path / "orphan"
    monkeypatch.setenv("ORPHAN_FILE", str(file))
    with opened("orphans") as its:
        measured(visit(its, 1))
        pid = its.process.pid
    wait_until(lambda: not tree_of(pid) and not tree_of(int(file.read_text())))


def _line(text: str) -> int:
    lines = LOADERS.read_text().splitlines()
    return 1 + next(number for number, line in enumerate(lines) if text in line)


@pytest.mark.parametrize(
    ("name", "codes", "says", "at"),
    [
        ("raises", {0: "exception", 2: "exception"}, "ValueError: bad label", "raise ValueError"),
        ("collates", {0: "exception", 1: "exception"}, "TypeError: these do not go together",
         "these do not go together"),
        ("exits", {0: "exited", 1: "worker"}, "exit", None),
        ("crashes", {0: "killed", 1: "worker"}, "SIGSEGV|Segmentation fault", "ctypes.string_at"),
        ("killed", {1: "worker"}, "when memory runs out", None),
        ("unpicklable", {1: "exception"}, "sent the dataset pickled", None),
        ("empty", {0: "empty"}, "the dataset is empty", None),
    ],
)  # fmt: skip
def test_failures(name: str, codes: dict[int, str], says: str, at: str | None) -> None:
    """What raises, ends the process, crashes it or gives no batch is a sentence, with the user's
    own line also in a worker and what was printed; another setting goes on."""
    with opened(name) as its:
        for workers, code in codes.items():
            failure = failed(visit(its, workers))
            assert failure.code == code
            assert re.search(says, failure.sentence)
            assert not any("Unexpected segmentation fault" in line for line in failure.output)
            if at is not None:
                assert failure.line.endswith(f"loaders.py:{_line(at)}")
                assert failure.line in failure.sentence
            if name == "raises":
                assert any(line.startswith("reading") for line in failure.output)
        if name in ("killed", "unpicklable"):
            measured(visit(its, 0, seconds=0.01))


def test_hang_is_ended_and_placed(silence: Silence) -> None:
    """A worker that hangs is given up with the line it hangs at, and ended; others go on."""
    with opened("hangs") as its:
        silence(lambda: its.output().count("hangs") == 2, 60.0)
        failure = failed(visit(its, 2))
        assert failure.code == "hang"
        assert failure.line.endswith(f":{_line('time.sleep(1000 +')}")
        measured(visit(its, 0))


def test_function_gives_what_one_has() -> None:
    """What a function makes by its own defaults is what the user has; without workers it is not
    asked for what only workers can have."""
    from gpuwatch.tuning.loader_factory import LoaderFactory
    from tests.tuning import loaders

    factory = LoaderFactory("loaders.py:opinionated", loaders.opinionated, None)
    assert factory.base == Setting(num_workers=3, prefetch_factor=4, batch_size=16)
    made = factory.make(factory.base.changed(num_workers=0))
    assert (made.num_workers, made.prefetch_factor, made.persistent_workers) == (0, None, False)
    patient = LoaderFactory("loaders.py:patient", loaders.patient, None)
    assert patient.make(Setting(batch_size=8)).timeout == 0


def test_short_dataset_goes_through_its_epochs() -> None:
    """A dataset too short for a window after a warm-up is measured by whole epochs."""
    with opened("short") as its:
        found = measured(visit(its, 7, seconds=0.1))
        # An epoch of 24 samples takes 0.12 s or more.
        part = measured(visit(its, 7, seconds=10, limit=0.05))
    assert found.whole_epochs
    assert found.samples % 24 == 0
    assert 0 < part.samples <= 24


def test_other_kinds_of_loaders() -> None:
    """Iterable datasets, own batch samplers, no batches at all: each is measured as it is; a
    dataset is made into batches of the size that was said."""
    from gpuwatch.tuning.loader_factory import LoaderFactory
    from tests.tuning import loaders

    with bench("stream") as its:
        assert its.open().is_iterable
        measured(visit(its, 1, seconds=0.2))
    with bench("unbatched") as its:
        assert "batch_size=None" in its.open().fixed
        assert measured(visit(its)).samples
    with opened("dataset", batch_size=5) as its:
        assert measured(visit(its)).samples % 5 == 0
    own = LoaderFactory("loaders.py:own_batches", loaders.own_batches, None)
    assert own.fixed == "PairSampler makes the batches"
    assert len(next(iter(own.make(own.base)))) == 3


def test_batch_size_and_sampler_are_rebuilt() -> None:
    """Another batch size keeps the order of the samples and ``drop_last``."""
    from torch.utils.data import RandomSampler

    from gpuwatch.tuning.loader_factory import LoaderFactory
    from tests.tuning import loaders

    factory = LoaderFactory("loaders.py:shuffled", loaders.shuffled, None)
    made = factory.make(factory.base.changed(batch_size=32, num_workers=3))
    assert (made.batch_size, made.num_workers, made.prefetch_factor) == (32, 3, 2)
    assert isinstance(made.sampler, RandomSampler)
    assert made.dataset is loaders.shuffled.dataset
    assert len(made) == 3125
    assert loaders.shuffled.batch_size == 8
    assert len(next(iter(factory.make(factory.base.changed(num_workers=0))))) == 8


def test_step_is_measured_end_to_end() -> None:
    """With a train step the rate is the step's, with its wait for data; one that raises comes with
    its own line."""
    with opened("numbers", step=f"{LOADERS}:step") as its:
        found = measured(visit(its, 1, seconds=0.3))
    assert 0 <= found.data_wait_share <= 1
    assert found.samples_per_second <= 8 / 0.01
    with opened("numbers", step=f"{LOADERS}:bad_step") as its:
        failure = failed(visit(its))
    assert failure.code == "step"
    assert f":{_line('shapes cannot')}" in failure.sentence


@pytest.mark.parametrize(
    ("name", "says"),
    [
        ("number", "is an int"),
        ("generator", "is a generator"),
        ("model", "is a Linear"),
        ("both", "returned a tuple"),
        ("needs", "missing 1 required positional argument: 'root'"),
        ("fails", "FileNotFoundError: no such folder"),
        ("dataset", "--batch-size 64"),
    ],
)
def test_what_is_no_loader(name: str, says: str) -> None:
    """Anything else is refused in one sentence before a measurement."""
    from gpuwatch.tuning.loader_factory import LoaderFactory
    from tests.tuning import loaders

    with pytest.raises(MeasureError, match=says):
        LoaderFactory(f"loaders.py:{name}", getattr(loaders, name), None)


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("import os\nos._exit(1)", "ended the process with exit code 1"),
        ("import ctypes; ctypes.string_at(0)", "SIGSEGV at .*target.py:1"),
        ("import time, os; os.mkdir('begun'); time.sleep(1000)", "it was at .*target.py:1"),
    ],
)
def test_import_that_ends_or_hangs(
    code: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, silence: Silence
) -> None:
    """An import that kills its process or never ends comes with its line."""
    monkeypatch.chdir(tmp_path)
    Path("target.py").write_text(code)
    silence(Path("begun").exists)
    monkeypatch.setattr(bench_module, "LOAD_SECONDS", 0.0)
    with bench("target.py:loader") as its, pytest.raises(MeasureError, match=says):
        its.open()


OPENED = (
    "import sys\nfrom gpuwatch.tuning.bench import Bench\n"
    "from gpuwatch.tuning.records import Order, Setting\n"
    "bench = Bench(sys.argv[1])\nbench.open()\n"
)


def test_killed_gpuwatch_leaves_nothing(tmp_path: Path) -> None:
    """When gpuwatch is killed in the middle of a measurement, its processes end by themselves."""
    code = OPENED + (
        "print(bench.process.pid, flush=True)\n"
        "setting = Setting().changed(num_workers=2)\n"
        "bench.visit(Order(setting=setting, seconds=600, limit_seconds=600))\n"
    )
    child = subprocess.Popen(
        [sys.executable, "-c", code, f"{LOADERS}:numbers"], stdout=subprocess.PIPE
    )
    measuring = int(child.stdout.readline())
    wait_until(lambda: len(children_of(measuring)) >= 2)
    begun = [measuring, *children_of(measuring)]
    child.send_signal(signal.SIGKILL)
    child.wait()
    child.stdout.close()
    wait_until(lambda: not any(tree_of(one) for one in begun))


@pytest.mark.parametrize(
    ("message", "code", "says"),
    [
        ("DataLoader worker (pid 42) is killed by signal: Bus error. ", "worker", "--shm-size"),
        ("unable to write to file </torch_7_1>: No space left", "exception", "/dev/shm"),
        ("unable to open shared memory object </torch_7> in read-write mode", "exception", "shm"),
        ("DataLoader worker (pid 42) is killed by signal: Killed. ", "worker", "memory runs out"),
        ("DataLoader worker (pid(s) 42, 43) exited unexpectedly", "worker", "os._exit"),
        ("received 0 items of ancdata", "exception", "ulimit -n"),
        ("No space left on device: 'cache/7.npy'", "exception", "cache/7.npy"),
    ],
)  # fmt: skip
def test_what_pytorch_says_of_a_lack_is_explained(message: str, code: str, says: str) -> None:
    """Shared memory, memory and file descriptors that run out get what to do; others their text."""
    failure = failures.from_exception(RuntimeError(message))
    assert (failure.code, says in failure.sentence) == (code, True), failure


def test_missing_torch_is_one_sentence(tmp_path: Path) -> None:
    """Without torch the sentence says how to install it, where gpuwatch runs; the measuring
    processes are of this gpuwatch, not of another one that Python finds first."""
    (tmp_path / "torch.py").write_text("raise ModuleNotFoundError(name='torch')")
    (tmp_path / "target.py").write_text("loader = 1")
    (tmp_path / "gpuwatch").mkdir()
    (tmp_path / "gpuwatch" / "__init__.py").touch()
    code = (
        "import os, sys\nfrom gpuwatch.tuning.bench import Bench, MeasureError\n"
        "os.environ['PYTHONPATH'] = sys.argv[1]\nbench = Bench(f'{sys.argv[1]}/target.py:loader')\n"
        "try:\n    bench.open()\nexcept MeasureError as error:\n    print(error)\n"
        "finally:\n    bench.close()\n"
    )
    environment = {**os.environ, "PYTHONPATH": str(Path(__file__).parents[2])}
    done = ran("-c", code, str(tmp_path), env=environment)
    assert "PyTorch is not installed where gpuwatch runs" in done.stdout
    assert "-m pip install torch" in done.stdout
    assert done.stdout.count("\n") == 1


def test_what_python_says_of_the_end_is_not_what_the_user_printed() -> None:
    """Of the processes that were ended; the user's own lines stay."""
    text = "mine\nERROR: Unexpected segmentation fault\nresource_tracker: 2 leaked\nlast\n"
    assert failures.output_lines(text) == ("mine", "last")
