"""What a training process is doing, told from a Python stack: the rules, as tables.

A sample of a stack gets exactly one category. Precedence, the widest thing first, since what it
calls on its way belongs to it:

1. ``waiting_for_work``: a loader worker that waits for its training process.
2. ``saving``: ``torch.save``, safetensors, checkpoint libraries on the stack.
3. ``evaluating``: a function of the user named ``evaluate``, ``validate``, ``test_step`` ... or a
   library's evaluation loop. What it does inside is kept as ``doing``.
4. The loader: copying to pinned memory in the training process is ``copying_to_device``; starting
   or ending workers ``starting_workers``; dataset, collate, sampler or user code under it
   ``loading_data``; the rest of it ``waiting_for_data``.
5. ``collective``: a Python function of torch.distributed or the like.
6. ``synchronising`` and ``copying_to_device``: Python functions that do it.
7. The running line, where it called straight into C (``.item()``, ``.to()``, ``.cpu()``: such
   functions have no Python frame): what it calls, by name.
8. ``waiting_for_data``: a ``get`` of a queue.
9. ``computing``: forward, backward, optimizer.
10. ``other``.

Function names are qualified (``DataLoader.__iter__``) from Python 3.11 on and bare before, so
rules look at the last part.
"""

from __future__ import annotations

import ast
import io
import keyword
import re
import tokenize
from collections.abc import Iterator, Sequence
from functools import lru_cache
from typing import NamedTuple

CATEGORIES = {
    "waiting_for_data": "waiting for data",
    "loading_data": "loading data in this process",
    "starting_workers": "starting or ending loader workers",
    "copying_to_device": "copying to the device",
    "synchronising": "synchronising with the device",
    "computing": "computing",
    "collective": "in a collective",
    "saving": "saving",
    "evaluating": "evaluating",
    "waiting_for_work": "waiting for the training process",
    "other": "other code",
    "unread": "not readable: the stack changed meanwhile",
}
"""Every category and its plain words, in the order in which equal shares are shown."""


class Frame(NamedTuple):
    """One Python frame; text as the process gave it (not yet ``clean``)."""

    function: str
    file: str
    line: int | None


class _Rule(NamedTuple):
    tag: str
    path: str
    """A regular expression that the path ends with, from a folder's or file's name on."""
    functions: str | None = None
    """A regular expression for the last part of the function's name; ``None``: any."""


_RULES = (
    # torch.utils.data: dataloader.py, _utils/{fetch,collate,pin_memory,worker}.py, sampler.py
    _Rule("worker", r"torch/utils/data/_utils/worker\.py", "_worker_loop"),
    _Rule("pin", r"torch/utils/data/_utils/pin_memory\.py"),
    _Rule("fetch", r"torch/utils/data/(_utils/(fetch|collate)|sampler|dataset|distributed)\.py"),
    _Rule("start", r"torch/utils/data/dataloader\.py", r"__init__|_get_iterator|_shutdown_workers"),
    _Rule("process", r"python\d[\d.]*t?/multiprocessing/(process|popen_\w+|context|spawn)\.py"),
    _Rule("loader", r"torch/utils/data/dataloader\.py"),
    _Rule("fetch", r"torch/utils/data/datapipes/.*"),
    _Rule("fetch", r"(datasets/(arrow_dataset|iterable_dataset|formatting/.*)|webdataset/.*)\.py"),
    _Rule("fetch", r"streaming/base/.*|torchdata/.*|PIL/(?!ImageShow).*", r"(?!save).*"),
    _Rule("wait", r"tensorflow/python/data/ops/iterator_ops\.py"),
    _Rule("wait", r"(nvidia/dali|grain|ffcv|petastorm|ray/data)/.*"),
    _Rule("wait", r"keras/.*(data_adapter|data_adapters/).*"),
    _Rule("saving", r"torch/serialization\.py", r"save|_save|_legacy_save|_open_zipfile_writer"),
    _Rule("saving", r"(torch/distributed/checkpoint|safetensors|orbax)/.*", r"\w*sav(e|ing)\w*"),
    _Rule("saving", r"numpy/lib/.*npyio.*", r"_?save\w*"),
    _Rule(
        "saving",
        r"(transformers|accelerate|deepspeed|lightning|pytorch_lightning|flax|keras|diffusers|peft"
        r"|composer|timm)/.*",
        r"_?save_(pretrained|checkpoint|model|state|weights|file)\w*",
    ),
    _Rule("evaluation", r"(lightning|pytorch_lightning)/.*loops/evaluation_loop\.py"),
    _Rule("evaluation", r"transformers/.*trainer\w*\.py", r"evaluate|evaluation_loop|predict\w*"),
    _Rule("evaluation", r"keras/.*trainer\w*\.py", r"evaluate|test_step"),
    _Rule("collective", r"torch/distributed/(distributed_c10d|_functional_collectives\w*)\.py"),
    _Rule("collective", r"torch/nn/parallel/distributed\.py", r"_sync\w*"),
    _Rule("collective", r"torch/distributed/utils\.py", r"_sync\w*"),
    _Rule("collective", r"(deepspeed/comm|horovod/torch)/.*"),
    _Rule("sync", r"torch/(cuda|xpu|mps|npu)/.*", r"synchronize"),
    _Rule("sync", r"torch/_tensor\.py", r"__format__|__repr__|tolist|__array__"),
    _Rule("sync", r"torch/_tensor_str\.py"),
    _Rule("sync", r"torch/amp/grad_scaler\.py", r"_maybe_opt_step|get_scale|_get_growth_tracker"),
    _Rule("sync", r"tensorflow/python/framework/ops\.py", r"_?numpy(_internal)?"),
    _Rule(
        "sync",
        r"jax/_src/(array|api)\.py",
        r"block_until_ready|_value|__array__|item|tolist|__float__|__int__|__bool__",
    ),
    _Rule("copy", r"torch/nn/modules/module\.py", r"to|cuda|_apply|convert"),
    _Rule("copy", r"accelerate/utils/operations\.py", r"\w*send_to_device\w*"),
    _Rule("copy", r"\w*lightning\w*/.*apply_func\.py", r"\w*(to_device|batch_to)\w*"),
    _Rule("copy", r"jax/_src/(api|dispatch)\.py", r"_?device_put\w*"),
    _Rule("queue", r"python\d[\d.]*t?/(queue|multiprocessing/queues)\.py", r"get"),
    _Rule(
        "compute",
        r"torch/(nn|optim|autograd|amp|func|_dynamo|_inductor|_functorch|_refs|_prims)/.*"
        r"|torch/(_tensor|_ops|functional|_compile|utils/checkpoint|_jit_internal)\.py"
        r"|torchinductor_[^/]*/.*",
    ),
    _Rule("compute", r"torch/distributed/(fsdp|pipelining|tensor|_composable)/.*"),
    _Rule("compute", r"tensorflow/python/eager/.*|keras/.*(trainers|layers|optimizers|models)/.*"),
    _Rule("compute", r"(jax/_src|flax|optax|equinox|triton|xformers|flash_attn|apex)/.*"),
)

_COMPILED = tuple(
    (
        rule.tag,
        re.compile(rf"(?:.*/)?(?:{rule.path})"),
        None if rule.functions is None else re.compile(rule.functions),
    )
    for rule in _RULES
)

_EVALUATION = re.compile(
    r"_*(?:run_|do_|_)*(?:"
    r"eval(?:uat(?:e|ion))?(?:_\w+)?"
    r"|(?:validat(?:e|ion)|valid|val|test)(?:_?(?:one_)?(?:epoch|step|loop|model|batch|net|run))?"
    r"|on_validation_\w+|\w+_(?:evaluate|evaluation|validation)(?:_(?:epoch|step|loop))?"
    r")"
)
_COMPUTING = re.compile(r"forward|training_step|compute_loss|backward|optimizer_step|loss_fn")


@lru_cache(maxsize=4096)
def tags(file: str, function: str) -> frozenset[str]:
    """What the rules know about a function of a library, by where it is and what it is called."""
    name = last_part(function)
    return frozenset(
        [
            tag
            for tag, path, functions in _COMPILED
            if path.fullmatch(file) and (functions is None or functions.fullmatch(name))
        ]
    )


def last_part(function: str) -> str:
    """``train.<locals>.<lambda>`` is a lambda of ``train``: the part that has a name."""
    for part in reversed(function.split(".")):
        if not part.startswith("<"):
            return part
    return function


def is_evaluation(function: str) -> bool:
    """Whether a function of the user's is named as evaluation is: ``validate``, ``eval_epoch``,
    ``validation_step``, ``test``."""
    return bool(_EVALUATION.fullmatch(last_part(function).lower()))


_LIBRARY = re.compile(
    r".*/(?:site|dist)-packages/.*"
    r"|.*/lib(?:64)?/(?:python|pypy)\d[\d.]*t?/.*"
    r"|.*/python\d+\.zip/.*"
    r"|.*/(?:\.pex|torchinductor_[^/]*)/.*"
    # Torch from a source tree.
    r"|.*/torch/(?:nn/modules|nn/parallel|autograd|utils/data/_utils|_dynamo|_inductor)/.*"
    r"|.*/torch/(?:_tensor|_ops|_compile|serialization|nn/functional|utils/data/dataloader"
    r"|optim/optimizer|distributed/distributed_c10d)\.py"
)
_USERS_NAMES = re.compile(r"<(?:string|stdin|ipython-input|command|cell|console|input).*")


@lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """Whether a file is the user's own: not in site-packages, dist-packages or the standard
    library of whatever Python the job runs, nor generated code.

    Judged by the path alone, since the job's Python is another than ours. What was installed in
    place (``pip install -e``) and cells of a notebook are the user's.
    """
    if file.startswith("<"):
        return bool(_USERS_NAMES.fullmatch(file))
    return not _LIBRARY.fullmatch(file)


def is_entry_point(file: str) -> bool:
    """A script that an installer wrote to start a program: ``/opt/venv/bin/train``."""
    folder, _, name = file.rpartition("/")
    return folder.endswith("/bin") and "." not in name


def package_of(file: str) -> str | None:
    """The folder of the top package of an installed file, with ``/`` at its end."""
    found = re.match(r"(.*/(?:site|dist)-packages/[^/]+/)", file)
    return found[1] if found else None


def begins_at(frames: Sequence[Frame]) -> int:
    """Which frame is the first of the process's own: a forked loader worker still has those of
    the training process, as they were when it was forked."""
    return next(
        (at for at, frame in enumerate(frames) if "worker" in tags(frame.file, frame.function)), 0
    )


def activity(frames: Sequence[Frame], line_category: str | None) -> str:
    """What the innermost work of a stack is, the frames outermost first (precedence above,
    without evaluation). ``line_category`` is what ``line_category()`` says of the leaf's line."""
    marks = [tags(frame.file, frame.function) for frame in frames]
    on_stack = frozenset().union(*marks)
    if "worker" in on_stack:
        return "loading_data" if "fetch" in on_stack else "waiting_for_work"
    if "saving" in on_stack:
        return "saving"
    if on_stack & {"loader", "wait"}:
        return _in_loader(frames, marks)
    return _in_device_work(marks) or _at_the_leaf(frames, on_stack, line_category)


def _in_device_work(marks: Sequence[frozenset[str]]) -> str | None:
    if any("collective" in mark for mark in marks):
        return "collective"
    if _ends_in_sync(marks):
        return "synchronising"
    return "copying_to_device" if any("copy" in mark for mark in marks) else None


def _ends_in_sync(marks: Sequence[frozenset[str]]) -> bool:
    # What waits for the device can also compute: GradScaler runs the optimizer's step.
    for mark in reversed(marks):
        if "sync" in mark:
            return True
        if "compute" in mark:
            return False
    return False


def _in_loader(frames: Sequence[Frame], marks: Sequence[frozenset[str]]) -> str:
    first = next(at for at, mark in enumerate(marks) if mark & {"loader", "wait"})
    inside = frozenset().union(*marks[first:])
    if "pin" in inside:
        return "copying_to_device"
    if {"start", "process"} <= inside:
        return "starting_workers"
    if "fetch" in inside or any(is_users(frame.file) for frame in frames[first:]):
        return "loading_data"
    return "starting_workers" if "start" in inside else "waiting_for_data"


def _at_the_leaf(
    frames: Sequence[Frame], on_stack: frozenset[str], line_category: str | None
) -> str:
    if line_category is not None and line_category != "computing":
        return line_category
    if "queue" in on_stack:
        return "waiting_for_data"
    computes = line_category == "computing" or "compute" in on_stack
    if computes or any(_COMPUTING.fullmatch(last_part(frame.function)) for frame in frames):
        return "computing"
    return "loading_data" if "fetch" in on_stack else "other"


def is_evaluating(frames: Sequence[Frame]) -> bool:
    """Whether evaluation, validation or a test is on the stack."""
    return any(
        "evaluation" in tags(frame.file, frame.function)
        or (is_users(frame.file) and is_evaluation(frame.function))
        for frame in frames
    )


_CALLS: tuple[tuple[str, re.Pattern[str]], ...] = (
    (
        "saving",
        re.compile(
            r"torch\.save|(pickle|joblib|dill|cloudpickle)\.dump|(np|numpy)\.save\w*|save_file"
            r"|.*\.(save_pretrained|save_checkpoint|save_model|save_state|save_weights)"
        ),
    ),
    (
        "synchronising",
        re.compile(r".*\.(item|tolist|numpy|cpu|synchronize|block_until_ready|nonzero)|nonzero"),
    ),
    ("copying_to_device", re.compile(r".*\.(to|cuda|pin_memory|copy_|device_put)|device_put")),
    (
        "loading_data",
        re.compile(
            r"(np|numpy|torch|json|pickle|yaml|sf|soundfile|torchaudio|librosa)\.loads?"
            r"|(cv2\.|io\.|imageio\.)?imread|Image\.open|h5py\.File"
            r"|.*\.(read_csv|read_parquet|read_table|read_image|decode_jpeg|read|readline|imdecode)"
        ),
    ),
    (
        "computing",
        re.compile(
            r"(F|nn|torch|jnp|tf|lax|optax)\..*|model|net|network|criterion|loss_fn|loss_func"
            r"|@|self|.*\.(backward|step|zero_grad|forward|matmul|mm|bmm|softmax|log_softmax"
            r"|einsum|clip_grad_norm_)"
        ),
    ),
)
"""What a called name says about the line it is on, the first that any call matches."""

_NOT_CALLED = frozenset(keyword.kwlist)
_IMPLICIT = frozenset({"float", "int", "bool"})
_REDUCTIONS = re.compile(r".*\.(sum|mean|max|min|any|all|norm)")
LINE_LENGTH = 2000
"""No line that a person wrote is longer; generated ones can be megabytes."""


@lru_cache(maxsize=1024)
def line_category(source: str) -> str | None:
    """What the line calls that Python frames cannot show; ``None`` if it says nothing.

    The text is read as tokens and never run. ``float(loss)`` and the like count as waiting for
    the device: the value has to come from there, and nothing else on the line takes time.
    """
    names = list(called_names(source))
    for category, pattern in _CALLS:
        if any(pattern.fullmatch(name) for name in names):
            return category
        if category == "synchronising" and _reads_a_value(names):
            return category
    return None


def _reads_a_value(names: Sequence[str]) -> bool:
    others = [name for name in names if name not in _IMPLICIT]
    return len(others) < len(names) and all(_REDUCTIONS.fullmatch(name) for name in others)


def called_names(source: str) -> Iterator[str]:
    """The dotted names called on one line of Python, ``.item`` where what comes before it is no
    name, and ``@`` for a matrix product. Strings and comments do not count, f-strings do."""
    chain = ""
    previous = None
    for token in _tokens(source[:LINE_LENGTH].strip()):
        if token.type == tokenize.STRING:
            yield from _called_in_string(token.string)
        if token.type == tokenize.NAME and token.string not in _NOT_CALLED:
            chain = f"{chain}{token.string}" if previous == "." else token.string
        elif token.string == ".":
            chain = f"{chain}." if chain else "."
        else:
            if token.string == "(" and chain and not chain.endswith("."):
                yield chain
            elif token.string == "@" and previous is not None:
                yield "@"
            chain = ""
        previous = token.string


def _tokens(source: str) -> Iterator[tokenize.TokenInfo]:
    # Half a statement (a call over several lines) ends in an error; what came before is good.
    tokens = tokenize.generate_tokens(io.StringIO(source).readline)
    while True:
        try:
            yield next(tokens)
        except (StopIteration, tokenize.TokenError, SyntaxError, ValueError):
            return


def _called_in_string(text: str) -> Iterator[str]:
    # Before Python 3.12 an f-string is one token.
    if "f" not in text[:2].lower():
        return
    try:
        tree = ast.parse(text, mode="eval")
    except (SyntaxError, ValueError, RecursionError, MemoryError):
        return
    for node in ast.walk(tree):
        if isinstance(node, ast.Call):
            if isinstance(node.func, ast.Attribute):
                yield f".{node.func.attr}"
            elif isinstance(node.func, ast.Name):
                yield node.func.id
