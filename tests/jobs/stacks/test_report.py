"""What a process is said to be doing, from stacks as py-spy prints them.

The stacks are real (torch 2.13, Python 3.11), shortened to the frames that matter.
"""

import re

import pytest

from gpuwatch.jobs.stacks import categories, sampler
from gpuwatch.jobs.stacks import report as stacks
from gpuwatch.jobs.stacks.categories import Frame, Stack
from gpuwatch.jobs.stacks.report import StackReport

SITE = "/opt/venv/lib/python3.11/site-packages"
STD = "/usr/lib/python3.11"

SHARED = {
    "IN_PROCESS": (
        "LOOP; _SingleProcessDataLoaderIter._next_data (LOADER:785); "
        "_MapDatasetFetcher.fetch (@torch/utils/data/_utils/fetch.py:54)"
    ),
    "FROM_WORKERS": (
        "LOOP; _MultiProcessingDataLoaderIter._next_data (LOADER:1505); "
        "_MultiProcessingDataLoaderIter._get_data (LOADER:1464)"
    ),
    "FORWARD": (
        "Module._wrapped_call_impl (MODULE:1778); Module._call_impl (MODULE:1789); "
        "Net.forward (~model.py:25)"
    ),
    "LOOP": "MAIN; train_one_epoch (~train.py:28); _BaseDataLoaderIter.__next__ (LOADER:725)",
    "MAIN": "<module> (~train.py:62); main (~train.py:45)",
    "LOADER": "@torch/utils/data/dataloader.py",
    "MODULE": "@torch/nn/modules/module.py",
    "@": f"{SITE}/",
    "$": f"{STD}/",
    "~": "/home/ada/p/",
    "; ": ";",
}
"""Parts of stacks, written out in this order."""

TABLE = """
a transform in the training process: loading_data data.py:16
  IN_PROCESS
  _MapDatasetFetcher.fetch.<locals>.<listcomp> (@torch/utils/data/_utils/fetch.py:54)
  Images.__getitem__ (~data.py:11); augment (~data.py:16)
collating in the training process: loading_data train.py:28
  IN_PROCESS; default_collate (@torch/utils/data/_utils/collate.py:401)
waiting for workers: waiting_for_data train.py:28
  FROM_WORKERS
  _MultiProcessingDataLoaderIter._try_get_data (LOADER:1291)
  Queue.get ($multiprocessing/queues.py:113)
  _ConnectionBase.poll ($multiprocessing/connection.py:257)
waiting for the thread that pins memory: waiting_for_data train.py:28
  FROM_WORKERS; Queue.get ($queue.py:180); Condition.wait ($threading.py:331)
a sampler in the training process: loading_data data.py:40
  LOOP; _MultiProcessingDataLoaderIter._next_data (LOADER:1499)
  _MultiProcessingDataLoaderIter._try_put_index (LOADER:1557)
  Balanced.__iter__ (~data.py:40)
pinning in the training process: copying_to_device train.py:28
  IN_PROCESS; pin_memory (@torch/utils/data/_utils/pin_memory.py:60)
starting workers: starting_workers train.py:28
  MAIN; train_one_epoch (~train.py:28)
  DataLoader.__iter__ (LOADER:500)
  DataLoader._get_iterator (LOADER:435)
  _MultiProcessingDataLoaderIter.__init__ (LOADER:1170)
  BaseProcess.start ($multiprocessing/process.py:121)
  Popen._launch ($multiprocessing/popen_fork.py:66)
spawning workers, with the user's data to be pickled: starting_workers data.py:30
  MAIN; DataLoader._get_iterator (LOADER:435)
  Popen._launch ($multiprocessing/popen_spawn_posix.py:47); Images.__getstate__ (~data.py:30)
a rank that was spawned: computing train.py:70
  <module> (<string>:1); spawn_main ($multiprocessing/spawn.py:122)
  _wrap (@torch/multiprocessing/spawn.py:90); run (~train.py:70)
  Tensor.backward (@torch/_tensor.py:623)
a worker that loads: loading_data data.py:11
  MAIN; DataLoader.__iter__ (LOADER:500)
  BaseProcess._bootstrap ($multiprocessing/process.py:314)
  _worker_loop (@torch/utils/data/_utils/worker.py:349)
  _MapDatasetFetcher.fetch (@torch/utils/data/_utils/fetch.py:54)
  Images.__getitem__ (~data.py:11)
a forked worker without work: waiting_for_work -
  MAIN; DataLoader.__iter__ (LOADER:500)
  BaseProcess._bootstrap ($multiprocessing/process.py:314)
  _worker_loop (@torch/utils/data/_utils/worker.py:314)
  Queue.get ($multiprocessing/queues.py:113)
a spawned worker without work: waiting_for_work -
  <module> (<string>:1); spawn_main ($multiprocessing/spawn.py:122)
  _worker_loop (@torch/utils/data/_utils/worker.py:314)
  Queue.get ($multiprocessing/queues.py:113)
forward: computing model.py:25
  MAIN; train_one_epoch (~train.py:30); FORWARD
  Module._wrapped_call_impl (MODULE:1778)
  Linear.forward (@torch/nn/modules/linear.py:134)
backward: computing train.py:31
  MAIN; train_one_epoch (~train.py:31); Tensor.backward (@torch/_tensor.py:623)
  _engine_run_backward (@torch/autograd/graph.py:979)
the optimizer: computing train.py:32
  MAIN; train_one_epoch (~train.py:32)
  Optimizer.profile_hook_step.<locals>.wrapper (@torch/optim/optimizer.py:530)
  _single_tensor_adam (@torch/optim/adam.py:544)
the optimizer under a scaler: computing train.py:45
  MAIN; GradScaler._maybe_opt_step (@torch/amp/grad_scaler.py:372)
  Adam.step (@torch/optim/adam.py:248)
a scaler that looks for infinities: synchronising train.py:45
  MAIN; GradScaler.step (@torch/amp/grad_scaler.py:461)
  GradScaler._maybe_opt_step (@torch/amp/grad_scaler.py:371)
  GradScaler._maybe_opt_step.<locals>.<genexpr> (@torch/amp/grad_scaler.py:371)
printing a tensor: synchronising train.py:45
  MAIN; Tensor.__format__ (@torch/_tensor.py:1142)
torch.cuda.synchronize: synchronising train.py:45
  MAIN; synchronize (@torch/cuda/__init__.py:1219)
moving a model: copying_to_device train.py:45
  MAIN; Module.to (MODULE:1371)
  Module._apply (MODULE:930)
  Module.to.<locals>.convert (MODULE:1357)
torch.save: saving train.py:45
  MAIN; save (@torch/serialization.py:1003); _save (@torch/serialization.py:9)
loading a checkpoint: other train.py:45
  MAIN; load (@torch/serialization.py:1500)
safetensors: saving train.py:45
  MAIN; save_file (@safetensors/torch.py:285)
all_reduce: collective train.py:45
  MAIN; wrapper (@torch/distributed/c10d_logger.py:81)
  all_reduce (@torch/distributed/distributed_c10d.py:2810)
a queue of the user's own: waiting_for_data fetch.py:9
  MAIN; Prefetcher.next (~fetch.py:9); Queue.get ($queue.py:171)
  Condition.wait ($threading.py:327)
a pool of threads: waiting_for_data fetch.py:9
  MAIN; batches (~fetch.py:9)
  Executor.map.<locals>.result_iterator ($concurrent/futures/_base.py:619)
  Future.result ($concurrent/futures/_base.py:451); Condition.wait ($threading.py:327)
a pool of processes: waiting_for_data fetch.py:9
  MAIN; batches (~fetch.py:9); IMapIterator.next ($multiprocessing/pool.py:861)
  Condition.wait ($threading.py:327)
time of the user's own: other text.py:7
  MAIN; tokenize (~text.py:7)
evaluation: evaluating model.py:25
  MAIN; context.decorate_context (@torch/utils/_contextlib.py:124); evaluate (~train.py:37)
  FORWARD; Linear.forward (@torch/nn/modules/linear.py:134)
a checkpoint written by evaluation: saving train.py:39
  MAIN; evaluate (~train.py:39); save (@torch/serialization.py:1003)
Keras fetches: waiting_for_data train.py:45
  MAIN; OwnedIterator.__next__ (@tensorflow/python/data/ops/iterator_ops.py:826)
JAX waits for a value: synchronising train.py:45
  MAIN; ArrayImpl._value (@jax/_src/array.py:640)
"""
"""A name, its category and the user's line; then the frames."""


def _stacks() -> dict[str, tuple[str, tuple[str, str | None]]]:
    found: dict[str, tuple[str, tuple[str, str | None]]] = {}
    for entry in re.split(r"\n(?=\S)", TABLE.strip()):
        title, *lines = entry.split("\n")
        name, _, expected = title.rpartition(": ")
        text = "; ".join(map(str.strip, lines))
        for short, whole in SHARED.items():
            text = text.replace(short, whole)
        category, user = [None if part == "-" else part for part in expected.split()]
        found[name] = (text, (category or "", user))
    return found


STACKS = _stacks()


def frames_of(text: str) -> tuple[Frame, ...]:
    (stack,) = sampler.parse_raw(f"thread (7): MainThread;{text} 1\n")
    return stack.frames


@pytest.mark.parametrize("name", STACKS)
def test_a_stack_has_one_category_and_the_user_s_line(name: str) -> None:
    """Each kind of stack is told apart, with the user's innermost line."""
    text, (category, where) = STACKS[name]
    seen = categories.read_stack(frames_of(text))
    assert seen.category == category
    assert _where(seen.user) == where
    assert seen.doing == ("computing" if name == "evaluation" else category)


def _where(frame: Frame | None) -> str | None:
    return None if frame is None else f"{frame.file.rpartition('/')[2]}:{frame.line}"


def test_bare_function_names_of_older_pythons_are_known_too() -> None:
    """Before Python 3.11 a function's name comes without its class."""
    text = STACKS["waiting for workers"][0]
    for qualified in ("_BaseDataLoaderIter.", "_MultiProcessingDataLoaderIter.", "Queue."):
        text = text.replace(qualified, "")
    assert categories.read_stack(frames_of(text)).category == "waiting_for_data"


@pytest.mark.parametrize(
    ("line", "category"),
    [
        ("total += loss.item()", "synchronising"),
        ("print(f'loss {loss.item():.3f}')", "synchronising"),
        ("total += float(loss)", "synchronising"),
        ("correct += int((guess == label).sum())", "synchronising"),
        ("width = float(parse(text))", "other"),
        ("x = x.to(device, non_blocking=True)", "copying_to_device"),
        ("torch.save(state, path)", "saving"),
        ("out = a @ b", "computing"),
        ("batch = np.load(name)", "loading_data"),
        ("n += 1", "other"),
        ("print('.item()')  # x.cpu()", "other"),
    ],
)
def test_the_running_line_says_what_was_called_in_c(line: str, category: str) -> None:
    """C functions have no Python frame, so the text of the innermost line decides; strings and
    comments on it do not."""
    frames = frames_of("<module> (/home/ada/p/train.py:9);train (/home/ada/p/train.py:5)")
    seen = categories.read_stack(frames, lambda _file, _line: line)
    assert seen.category == category


def test_the_running_line_of_torch_itself_is_not_asked() -> None:
    """A library that is known by name needs no source text, which could mislead."""
    seen = categories.read_stack(
        frames_of(STACKS["the optimizer"][0]), lambda _f, _l: "step = t.item()"
    )
    assert seen.category == "computing"


USERS_FILES = """
/home/ada/p/src/train.py /home/ada/p/src/my-package/src/pkg/data.py <ipython-input-3-0a1b>
/tmp/ipykernel_881/123.py train.py /home/ada/p/torch/utils/data.py
"""
LIBRARIES = f"""
{SITE}/torch/nn/modules/linear.py, /usr/lib/python3/dist-packages/numpy/core.py,
/opt/conda/lib/python3.12/threading.py, /opt/python/3.13.0/lib/python3.13t/queue.py,
/usr/lib64/python3.9/runpy.py, <frozen importlib._bootstrap>, <eval_with_key>.12,
/tmp/torchinductor_ada/xy/cxy.py, <string>
"""


def test_files_of_the_user_and_of_libraries() -> None:
    """Scripts, packages installed in place and cells of notebooks are the user's; installed
    packages, any Python's standard library, generated code and ``python -c`` are not."""
    assert [file for file in USERS_FILES.split() if not categories.is_users(file)] == []
    libraries = [file.strip() for file in LIBRARIES.split(",")]
    assert [file for file in libraries if categories.is_users(file)] == []


EVALUATION = """
evaluate validate Trainer.validation_step eval_epoch test run_validation model_evaluation
validateEpoch Loop._evaluate.<locals>.<lambda> val_one_epoch
"""
NO_EVALUATION = "train validate_config latest retrieval test_loader_of valued step"


def test_names_of_evaluation() -> None:
    """Checking an argument is no evaluation, nor is a word that contains one."""
    assert [name for name in EVALUATION.split() if not categories.is_evaluation(name)] == []
    assert [name for name in NO_EVALUATION.split() if categories.is_evaluation(name)] == []


# Parsing


def test_hostile_names_are_kept_apart_as_far_as_can_be() -> None:
    """Semicolons, parentheses and line ends in names neither raise nor reach the result
    unclean."""
    text = (
        "thread (9): MainThread;<module> (/tmp/evil.py:8);e;v (q:3) il\n"
        " (/tmp/a;b (x:7);c d/\x1b[31m.py:3) 19\n"
        f"thread (9): MainThread;<module> (/tmp/my (old) {'x' * 20}/train.py:5) 4\n"
    )
    found = sampler.parse_raw(text)
    assert [stack.samples for stack in found] == [19, 4]
    assert found[1].frames[0].file.endswith("/train.py")
    for share in stacks.shares_of(found):
        for line in share.lines:
            assert all(part.isprintable() for part in (line.place.file, line.place.function))


NO_STACKS = (
    "", "\n\n", "thread (", "thread (1): x;", "thread (1) 5", "thread (1): a;b 5", "garbage 7",
    "thread (1): a;f (x:1) ²", "thread (1): a;f (x:1) 99999999999999999999",
)  # fmt: skip


@pytest.mark.parametrize("text", NO_STACKS)
def test_what_is_no_stack_is_left_out(text: str) -> None:
    """An empty, truncated or foreign file gives no stacks and no error."""
    assert sampler.parse_raw(text) == []


MAIN_THREADS = {
    "numbered as the process, whatever it is called": """40
        thread (41): MainThread;run (/w/a.py:1) 9
        thread (40): trainer;<module> (/w/b.py:2) 9""",
    "numbered as inside its container": """1 42
        thread (7): x;f (a:1) 1
        thread (1): y;g (b:2) 2""",
    "by its name before 3.11": """40
        thread (0x7F3): Thread-1;run (/usr/lib/python3.9/threading.py:1) 5
        thread (0x7FA): MainThread;<module> (/w/train.py:2) 5""",
    "without names, the one that began with a module": """40
        thread (0x7F3);_bootstrap (/usr/lib/python3.9/threading.py:1) 5
        thread (0x7FA);<module> (/w/train.py:2) 5""",
}


@pytest.mark.parametrize("case", MAIN_THREADS)
def test_the_main_thread_is_found(case: str) -> None:
    """It is the one at line 2."""
    pids, *lines = MAIN_THREADS[case].splitlines()
    stacks_of_all = sampler.parse_raw("".join(f"{line.strip()}\n" for line in lines))
    found = sampler.main_thread(stacks_of_all, [int(pid) for pid in pids.split()])
    assert [stack.frames[0].line for stack in found] == [2]


# Shares


def raw(*parts: tuple[str, int]) -> list[Stack]:
    return sampler.parse_raw(
        "".join(f"thread (1): MainThread;{STACKS[name][0]} {count}\n" for name, count in parts)
    )


def test_shares_add_up_with_what_could_not_be_read() -> None:
    """Attempts that failed count as a share of their own, so the others are not too large, and
    are never the largest. The lines of a share come with most samples first; a worker has none of
    the user's."""
    parts = (("forward", 30), ("a spawned worker without work", 10), ("backward", 20))
    shares = stacks.shares_of(raw(*parts), errors=140)
    assert [(share.category, share.percent) for share in shares] == [
        ("unread", 70.0),
        ("computing", 25.0),
        ("waiting_for_work", 5.0),
    ]
    _, computing, waiting = shares
    lines = [(line.place.where, line.percent) for line in computing.lines]
    forward, backward = "model.py:25 (Net.forward)", "train.py:31 (train_one_epoch)"
    assert (lines, waiting.lines) == ([(forward, 15.0), (backward, 10.0)], ())
    assert report(shares=shares).largest is computing


def report(**changes: object) -> StackReport:
    facts: dict[str, object] = {"pid": 10, "rank": 0, "samples": 100, "seconds": 10.0}
    return StackReport(**{**facts, **changes})


@pytest.mark.parametrize(
    ("parts", "sentence"),
    [
        (
            (("waiting for workers", 62), ("backward", 38)),
            "62% waiting for data at train.py:28 (train_one_epoch)",
        ),
        ((("forward", 60), ("backward", 40)), "100% computing (60% at model.py:25 (Net.forward))"),
        ((("evaluation", 9),), "100% evaluating (computing) at model.py:25 (Net.forward)"),
    ],
)
def test_the_sentence_names_the_largest_share_and_its_line(
    parts: tuple[tuple[str, int], ...], sentence: str
) -> None:
    """A share over several lines is not put down to one of them, and evaluation says what it does:
    computing and waiting for data need different changes."""
    assert report(shares=stacks.shares_of(raw(*parts))).sentence() == sentence


def test_the_rank_that_the_others_wait_for_is_named() -> None:
    """In a collective everybody waits for the last: the one that waits least is the cause."""
    waiting = stacks.shares_of(raw(("all_reduce", 80), ("backward", 20)))
    late = stacks.shares_of(raw(("a transform in the training process", 70), ("backward", 30)))
    ranks = [report(rank=at, shares=one) for at, one in enumerate((waiting, late, waiting))]
    sentence = stacks.compare_ranks(ranks)
    assert sentence.startswith("rank 1 waits least in collectives (0%, rank 0 80%)")
    assert "data.py:16 (augment)" in sentence
    # Differences within what chance does are none.
    one = stacks.shares_of(raw(("backward", 50), ("waiting for workers", 50)))
    other = stacks.shares_of(raw(("backward", 58), ("waiting for workers", 42)))
    assert stacks.compare_ranks([report(rank=0, shares=one), report(rank=1, shares=other)]) is None
