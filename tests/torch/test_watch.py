"""``watch`` and the marks beside it: what they leave alone, and what they report."""

from __future__ import annotations

import copy
import gc
import os
import pickle
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from pathlib import Path

import pytest

from gpuwatch.jobs.loop import step_file
from gpuwatch.jobs.loop.step_file import BETWEEN, IDLE, STEP, VALIDATION, WAIT
from gpuwatch.jobs.loop.writer import StepFile
from gpuwatch.torch import batches, checkpoint, copying, describe, epoch, step, validation, watch
from gpuwatch.torch.reporter import REPORTER
from tests.torch.support import ROOT, files_below, reported


class Loader:
    """Batches of lists; counts what is asked of it."""

    num_workers = 3
    pin_memory = True

    def __init__(self, count: int = 4, seconds: float = 0.0) -> None:
        self.count = count
        self.seconds = seconds

    def __len__(self) -> int:
        return self.count

    def __iter__(self) -> Iterator[list[int]]:
        for number in range(self.count):
            time.sleep(self.seconds)
            yield [number] * 8


def run(code: str) -> subprocess.CompletedProcess[str]:
    """In a process of its own, without site packages."""
    command = [sys.executable, "-S", "-c", code]
    return subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=False)


# What they leave alone


def test_the_batches_are_the_loaders() -> None:
    """All of them, themselves, in order; as often as asked. What is watched can be watched again,
    copied and pickled, as the trainers of some frameworks do."""
    loader = [object() for _ in range(5)]
    watched = watch(loader)
    for _ in range(2):
        got = list(watched)
        assert all(one is other for one, other in zip(got, loader, strict=True))
    again = watch([1, 2])
    assert watch(again) is again
    assert list(pickle.loads(pickle.dumps(again))) == list(copy.deepcopy(again)) == [1, 2]


def test_a_loader_without_length_has_none() -> None:
    """It is true, can be listed, and ``len`` says what it always said; a generator that is broken
    off leaves the rest for the next loop."""
    numbers = iter([1, 2, 3])
    watched = watch(numbers)
    assert watched
    with pytest.raises(TypeError, match=r"has no len\(\)"):
        len(watched)
    for number in watched:
        if number == 1:
            break
    assert list(watched) == [2, 3]


def test_the_loader_shows_through() -> None:
    """Its length, its attributes (to be set too), its truth, its items."""
    loader = Loader()
    watched = watch(loader)
    assert len(watched) == 4
    assert watched.num_workers == 3
    watched.count = 2
    assert loader.count == len(watched) == 2
    del watched.count
    with pytest.raises(AttributeError):
        _ = watched.count
    with pytest.raises(AttributeError, match="nothing_like_it"):
        _ = watched.nothing_like_it
    assert not watch([])
    assert watch(["a", "b"])[1] == "b"


def test_exceptions_of_the_loader_and_of_the_job_pass() -> None:
    """The very same ones, also those that end the process; and a loader can go on where it can."""
    error = ValueError("a broken sample")

    class Flaky:
        count = 0

        def __iter__(self) -> Flaky:
            return self

        def __next__(self) -> int:
            self.count += 1
            if self.count == 2:
                raise error
            return self.count

    passing = iter(watch(Flaky()))
    assert next(passing) == 1
    with pytest.raises(ValueError, match="a broken sample") as caught:
        next(passing)
    assert caught.value is error
    assert next(passing) == 3
    steps = reported().counters.steps
    marks = [mark() for mark in (validation, checkpoint, copying)]
    for mark in (step(), *marks):
        for mine in (error, KeyboardInterrupt(), SystemExit(3)):
            with pytest.raises(type(mine)) as raised, mark:
                raise mine
            assert raised.value is mine
    assert reported().counters.steps == steps


def test_a_broken_off_loop_ends_at_once(tmp_path: Path) -> None:
    """And closes the loader's generator, as without watch. Also when the first folders let nobody
    in (no runtime folder, as below sudo and in containers): what was tried holds nothing."""
    (tmp_path / "gpuwatch").write_text("in the way")
    closed = []

    class Generating:
        def __iter__(self) -> Iterator[int]:
            try:
                yield from range(10)
            finally:
                closed.append(True)

    gc.disable()
    try:
        for _ in watch(Generating()):
            if REPORTER.steps == 2:
                break
        assert closed == [True]
        assert (REPORTER.state, REPORTER.loop) == (IDLE, None)
        assert str(tmp_path) not in describe()
    finally:
        gc.enable()


def test_where_nothing_can_be_written_nothing_happens(monkeypatch: pytest.MonkeyPatch) -> None:
    """The job goes on, and a sentence says why nothing is reported."""

    def refuse() -> StepFile:
        raise PermissionError(13, "Permission denied")

    monkeypatch.setattr(StepFile, "create", refuse)
    assert list(watch([1, 2])) == [1, 2]
    assert describe() == "gpuwatch.torch reports nothing: Permission denied"


def test_a_mistake_of_ours_ends_the_reporting_only(tmp_path: Path) -> None:
    """The file goes, the job stays."""
    passing = iter(watch(Loader()))
    next(passing)
    assert len(files_below(tmp_path)) == 1
    REPORTER._spent = None  # type: ignore[assignment]
    assert len(list(passing)) == 3
    with step(), validation(), copying():
        pass
    assert files_below(tmp_path) == []
    assert describe().startswith("gpuwatch.torch has stopped reporting: TypeError")


def test_importing_it_imports_the_standard_library_only() -> None:
    """No torch, nothing of third parties, nothing else of gpuwatch."""
    code = (
        "import sys; before = set(sys.modules); import gpuwatch.torch\n"
        "roots = {name.split('.')[0] for name in set(sys.modules) - before}\n"
        "print(sorted(roots - set(sys.stdlib_module_names)))\n"
        "print(sorted(name for name in sys.modules if name.startswith('gpuwatch')))\n"
    )
    roots, own = run(code).stdout.splitlines()
    assert roots == "['gpuwatch']"
    assert set(eval(own)) == {
        "gpuwatch",
        "gpuwatch.jobs",
        "gpuwatch.jobs.loop",
        "gpuwatch.jobs.loop.step_file",
        "gpuwatch.jobs.loop.writer",
        "gpuwatch.torch",
        "gpuwatch.torch.batches",
        "gpuwatch.torch.device",
        "gpuwatch.torch.publisher",
        "gpuwatch.torch.reporter",
        "gpuwatch.torch.watching",
    }


# What they report


def test_the_body_of_the_loop_is_the_step() -> None:
    """Steps, samples, the loader's settings, and where the time went. A wait is reported when it
    begins, so that a reader sees one that lasts."""
    seen = []

    class Looking(Loader):
        def __iter__(self) -> Iterator[list[int]]:
            for batch in super().__iter__():
                seen.append(REPORTER.state)
                yield batch

    for _ in watch(Looking(seconds=0.02)):
        seen.append(reported().now.state)
        time.sleep(0.01)
    assert seen == [WAIT, STEP] * 4
    now, counters, base = reported()
    assert (counters.steps, counters.samples) == (4, 32)
    assert counters.wait_ns >= 80_000_000
    assert counters.step_ns >= 40_000_000
    assert counters.between_ns == counters.validation_ns == counters.checkpoint_ns == 0
    assert (now.state, now.epoch, now.step_in_epoch, now.steps_in_epoch) == (IDLE, 0, 4, 4)
    assert (now.batch_size, now.loader_workers, now.pinned_memory) == (8, 3, 1)
    # The counters of ten seconds ago; at first, those of the beginning.
    assert (base.steps, base.at_ns) == (0, now.began_ns)


def test_each_pass_is_an_epoch() -> None:
    """Unless the job counts them itself."""
    for _ in range(3):
        list(watch(Loader()))
    assert reported().now.epoch == 2
    epoch(7)
    list(watch(Loader()))
    assert (reported().now.epoch, reported().now.step_in_epoch) == (7, 4)


def test_with_step_the_rest_of_the_body_is_no_step() -> None:
    """Two steps to a batch here, and time between them that is neither step nor wait."""
    for _ in watch(Loader()):
        time.sleep(0.01)
        for _ in range(2):
            with step():
                assert reported().now.state == STEP
        assert reported().now.state in (BETWEEN, STEP)
    counters = reported().counters
    assert (counters.steps, counters.samples) == (8, 32)
    assert counters.between_ns >= 30_000_000


def test_steps_without_a_watched_loader() -> None:
    """Their samples can be given; waits are not known."""
    for _ in range(5):
        with step(16):
            pass
    now, counters, _ = reported()
    assert (counters.steps, counters.samples, now.state) == (5, 80, BETWEEN)
    assert not now.flags & step_file.WAITS_REPORTED


def test_batches_inside_one_step() -> None:
    """Gradient accumulation: the loop over micro-batches stands in the step."""
    for _ in range(3):
        with step():
            for _ in watch(Loader(2)):
                pass
    assert reported().counters.steps == 3
    assert reported().counters.samples == 48


def test_validation_and_saving_hold_no_steps() -> None:
    """A loop over validation data in the body of the training loop, and a save."""
    for _ in watch(Loader(3)):
        with validation():
            for _ in watch(Loader(5)):
                with step():
                    pass
                assert reported().now.state == VALIDATION
            time.sleep(0.01)
        assert reported().now.state == STEP
        with checkpoint():
            assert reported().now.state == step_file.CHECKPOINT
            time.sleep(0.01)
    now, counters, _ = reported()
    assert (counters.steps, counters.samples, now.steps_in_epoch) == (3, 24, 3)
    assert min(counters.validation_ns, counters.checkpoint_ns) >= 30_000_000


def test_a_loader_can_be_said_to_validate() -> None:
    """Broken off or not, the loop before it goes on."""
    for _ in watch(Loader(2)):
        for number, _ in enumerate(watch(Loader(5), validation=True)):
            assert reported().now.state == VALIDATION
            if number == 2:
                break
        assert reported().now.state == STEP
    assert reported().counters.steps == 2


def test_two_loaders_zipped_are_one_loop() -> None:
    """Both are waited for; the steps are not counted twice."""
    pairs = zip(watch(Loader(6)), watch(Loader(6, seconds=0.01)), strict=True)
    for _ in pairs:
        pass
    counters = reported().counters
    assert (counters.steps, counters.samples) == (6, 48)
    assert counters.wait_ns >= 60_000_000


def test_an_iterator_left_behind_does_not_count_for_ever() -> None:
    """The job keeps it and goes on with another."""
    left = iter(watch(Loader(10)))
    next(left)
    for _ in watch(Loader(20)):
        pass
    assert reported().counters.steps >= 18


@pytest.mark.parametrize(("before", "steps"), [(1, 1), (0, 4)])
def test_only_one_thread_reports(before: int, steps: int) -> None:
    """A thread that prefetches through a watched loader is not the training loop, unless nothing
    is marked outside of it: a framework can run the loop outside the main thread."""
    for _ in range(before):
        with step():
            pass
    thread = threading.Thread(target=lambda: list(watch(Loader())))
    thread.start()
    thread.join()
    assert reported().counters.steps == steps


def test_a_fork_reports_in_a_file_of_its_own(tmp_path: Path) -> None:
    """The parent's file stays the parent's, in the middle of a loop too."""
    code = (
        "import os, sys\nfrom gpuwatch.torch import step, watch\n"
        "for number, _ in enumerate(watch([[1]] * 6)):\n"
        "    if number == 2 and (child := os.fork()) == 0:\n"
        "        break\n"
        "else:\n    os.waitpid(child, 0)\n"
        "for _ in watch([[1]] * 5): pass\n"
        "os.write(1, f'{os.getpid()}\\n'.encode())\n"
        "os._exit(0)\n"
    )
    child, parent = run(code).stdout.split()
    steps = {}
    for path in files_below(tmp_path):
        record = step_file.parse_record(path.read_bytes())
        header = step_file.parse_header(path.read_bytes())
        assert record is not None
        assert header is not None
        steps[str(header.pid)] = record.counters.steps
        assert path.name.startswith(f"{header.pid}-")
    assert steps == {child: 5, parent: 11}


@pytest.mark.parametrize("method", ["fork", "spawn"])
def test_ranks_started_by_multiprocessing_report(tmp_path: Path, method: str) -> None:
    """Each its own number, and their files go when they end."""
    (tmp_path / "train.py").write_text(
        "import multiprocessing, os, sys\n"
        "from pathlib import Path\n"
        "from gpuwatch.torch import describe, watch\n"
        "def train(rank):\n"
        "    os.environ['RANK'] = str(rank)\n"
        "    for _ in watch([[1]] * 3): pass\n"
        "    path = Path(describe().rpartition(' ')[2])\n"
        "    from gpuwatch.jobs.loop import step_file\n"
        "    assert step_file.parse_record(path.read_bytes()).now.rank == rank\n"
        "    os.write(1, f'{path.name}\\n'.encode())\n"
        "if __name__ == '__main__':\n"
        f"    context = multiprocessing.get_context('{method}')\n"
        "    ranks = [context.Process(target=train, args=(rank,)) for rank in range(2)]\n"
        "    for rank in ranks: rank.start()\n"
        "    for rank in ranks: rank.join()\n"
        "    sys.exit(any(rank.exitcode for rank in ranks))\n"
    )
    done = subprocess.run(
        [sys.executable, str(tmp_path / "train.py")],
        env=os.environ | {"PYTHONPATH": str(ROOT)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert len(set(done.stdout.split())) == 2
    assert files_below(tmp_path) == []


def test_the_file_goes_with_the_process(tmp_path: Path) -> None:
    """At its end, and after an exception of its own; a kill leaves it to the next."""
    code = "from gpuwatch.torch import watch\nfor _ in watch([1, 2]): {}\n"
    ends = {
        "end": "pass",
        "exception": "1 / 0",
        "kill": "import os, signal; os.kill(os.getpid(), signal.SIGKILL)",
    }
    left = {
        name: (run(code.format(end)).returncode, len(files_below(tmp_path)))
        for name, end in ends.items()
    }
    assert left == {"end": (0, 0), "exception": (1, 0), "kill": (-signal.SIGKILL, 1)}


# What a batch holds


class Shaped:
    def __init__(self, *shape: int) -> None:
        self.shape = shape


class Graphs:
    num_graphs = 7


class Hostile:
    @property
    def shape(self) -> tuple[int, ...]:
        raise RuntimeError("not loaded")


@pytest.mark.parametrize(
    ("batch", "size"),
    [
        (Shaped(4, 3), 4),
        (Shaped(), None),
        ([Shaped(5, 2), Shaped(5)], 5),
        ((Shaped(6, 2), "labels"), 6),
        ({"name": "x", "ids": Shaped(3, 9)}, 3),
        ({"inputs": {"ids": Shaped(2, 9)}}, 2),
        (["a", "b", "c"], 3),
        ([1, 2], 2),
        (Graphs(), 7),
        (Hostile(), None),
        ("text", None),
        (None, None),
        ([], None),
        ({}, None),
    ],
)
def test_the_size_of_a_batch(batch: object, size: int | None) -> None:
    """As far as its form says it, and never an exception."""
    assert batches.size_of(batch) == size
