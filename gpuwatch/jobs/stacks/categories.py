"""Categories of what a training process is doing, by its Python stack: one table, one precedence.

A sample of a stack gets exactly one category. The widest thing comes first, since what it calls on
its way belongs to it:

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
8. ``waiting_for_data``: a ``get`` of a queue, the result of a pool.
9. ``computing``: forward, backward, optimizer.
10. ``other``.

Function names are qualified (``DataLoader.__iter__``) from Python 3.11 on and bare before, so
the table looks at the last part.
"""

import keyword
import re
from collections.abc import Callable, Sequence
from functools import lru_cache
from typing import NamedTuple


class Frame(NamedTuple):
    """One Python frame; text as the process gave it (not yet ``clean``)."""

    function: str
    file: str
    line: int | None


class Stack(NamedTuple):
    """One distinct stack of one thread, outermost frame first, and how often it was seen."""

    thread: str
    """py-spy's number of the thread: the kernel's (3.11 on) or ``0x`` and the pthread's."""
    name: str
    frames: tuple[Frame, ...]
    samples: int


class Category(NamedTuple):
    says: str
    frames: str = ""
    """Frames that show it, a line each: a mark; a regular expression that the path ends with, from
    a folder's or file's name on; one for the last part of the function's name, unless any will
    do."""
    calls: str | None = None
    """A regular expression for names that the running line calls."""


CATEGORIES = {
    "waiting_for_data": Category(
        "waiting for data",
        r"""
        loader  torch/utils/data/dataloader\.py
        wait    tensorflow/python/data/ops/iterator_ops\.py
        wait    (nvidia/dali|grain|ffcv|petastorm|ray/data)/.*
        wait    keras/.*(data_adapter|data_adapters/).*
        queue   python\d[\d.]*t?/(queue|multiprocessing/queues)\.py  get
        queue   python\d[\d.]*t?/multiprocessing/pool\.py  next|get|wait|map|starmap
        queue   python\d[\d.]*t?/concurrent/futures/_base\.py  result\w*|wait
        """,
    ),
    "loading_data": Category(
        "loading data in this process",
        r"""
        fetch   torch/utils/data/(_utils/(fetch|collate)|sampler|dataset|distributed)\.py
        fetch   torch/utils/data/datapipes/.*
        fetch   (datasets/(arrow_dataset|iterable_dataset|formatting/.*)|webdataset/.*)\.py
        fetch   streaming/base/.*|torchdata/.*|PIL/(?!ImageShow).*  (?!save).*
        """,
        r"(np|numpy|torch|json|pickle|yaml|sf|soundfile|torchaudio|librosa)\.loads?"
        r"|(cv2\.|io\.|imageio\.)?imread|Image\.open|h5py\.File"
        r"|.*\.(read_csv|read_parquet|read_table|read_image|decode_jpeg|read|readline|imdecode)",
    ),
    "starting_workers": Category(
        "starting or ending loader workers",
        r"""
        start   torch/utils/data/dataloader\.py  __init__|_get_iterator|_shutdown_workers
        process python\d[\d.]*t?/multiprocessing/(process|popen_\w+|context|spawn)\.py
        """,
    ),
    "copying_to_device": Category(
        "copying to the device",
        r"""
        pin     torch/utils/data/_utils/pin_memory\.py
        copy    torch/nn/modules/module\.py  to|cuda|_apply|convert
        copy    accelerate/utils/operations\.py  \w*send_to_device\w*
        copy    \w*lightning\w*/.*apply_func\.py  \w*(to_device|batch_to)\w*
        copy    jax/_src/(api|dispatch)\.py  _?device_put\w*
        """,
        r".*\.(to|cuda|pin_memory|copy_|device_put)|device_put",
    ),
    "synchronising": Category(
        "synchronising with the device",
        r"""
        sync    torch/(cuda|xpu|mps|npu)/.*  synchronize
        sync    torch/_tensor\.py  __format__|__repr__|tolist|__array__
        sync    torch/_tensor_str\.py
        sync    torch/amp/grad_scaler\.py  _maybe_opt_step|get_scale|_get_growth_tracker
        sync    tensorflow/python/framework/ops\.py  _?numpy(_internal)?
        sync    jax/_src/(array|api)\.py  block_until_ready|_value|item|tolist
        sync    jax/_src/(array|api)\.py  __(array|float|int|bool)__
        """,
        r".*\.(item|tolist|numpy|cpu|synchronize|block_until_ready|nonzero)|nonzero",
    ),
    "computing": Category(
        "computing",
        r"""
        compute torch/(nn|optim|autograd|amp|func|_dynamo|_inductor|_functorch|_refs|_prims)/.*
        compute torch/(_tensor|_ops|functional|_compile|utils/checkpoint|_jit_internal)\.py
        compute torchinductor_[^/]*/.*
        compute torch/distributed/(fsdp|pipelining|tensor|_composable)/.*
        compute tensorflow/python/eager/.*|keras/.*(trainers|layers|optimizers|models)/.*
        compute (jax/_src|flax|optax|equinox|triton|xformers|flash_attn|apex)/.*
        """,
        r"(F|nn|torch|jnp|tf|lax|optax)\..*|model|net|network|criterion|loss_fn|loss_func"
        r"|@|self|.*\.(backward|step|zero_grad|forward|matmul|mm|bmm|softmax|log_softmax"
        r"|einsum|clip_grad_norm_)",
    ),
    "collective": Category(
        "in a collective",
        r"""
        collective  torch/distributed/(distributed_c10d|_functional_collectives\w*)\.py
        collective  torch/(nn/parallel/distributed|distributed/utils)\.py  _sync\w*
        collective  (deepspeed/comm|horovod/torch)/.*
        """,
    ),
    "saving": Category(
        "saving",
        r"""
        saving  torch/serialization\.py  save|_save|_legacy_save|_open_zipfile_writer
        saving  (torch/distributed/checkpoint|safetensors|orbax)/.*  \w*sav(e|ing)\w*
        saving  numpy/lib/.*npyio.*  _?save\w*
        saving  (transformers|accelerate|deepspeed|diffusers|peft)/.*  _?save_{WHAT}\w*
        saving  (lightning|pytorch_lightning|composer|timm|flax|keras)/.*  _?save_{WHAT}\w*
        """.replace("{WHAT}", "(pretrained|checkpoint|model|state|weights|file)"),
        r"torch\.save|(pickle|joblib|dill|cloudpickle)\.dump|(np|numpy)\.save\w*|save_file"
        r"|.*\.(save_pretrained|save_checkpoint|save_model|save_state|save_weights)",
    ),
    "evaluating": Category(
        "evaluating",
        r"""
        evaluation  (lightning|pytorch_lightning)/.*loops/evaluation_loop\.py
        evaluation  transformers/.*trainer\w*\.py  evaluate|evaluation_loop|predict\w*
        evaluation  keras/.*trainer\w*\.py  evaluate|test_step
        """,
    ),
    "waiting_for_work": Category(
        "waiting for the training process",
        r"worker  torch/utils/data/_utils/worker\.py  _worker_loop",
    ),
    "other": Category("other code"),
    "unread": Category("not readable: the stack changed meanwhile"),
}
"""Every category, in the order in which equal shares are shown."""

_CALLS_IN_ORDER = ("saving", "synchronising", "copying_to_device", "loading_data", "computing")
"""A line that calls several is of the first."""

_FRAMES = [
    (mark, re.compile(rf"(?:.*/)?(?:{path})"), re.compile("|".join(functions) or ".*", re.DOTALL))
    for category in CATEGORIES.values()
    for mark, path, *functions in map(str.split, category.frames.strip().splitlines())
]


@lru_cache(maxsize=4096)
def marks_of(file: str, function: str) -> frozenset[str]:
    """Return the marks that the table has for a function of a library, by its file and name."""
    name = last_part(function)
    return frozenset(
        [
            mark
            for mark, path, functions in _FRAMES
            if path.fullmatch(file) and functions.fullmatch(name)
        ]
    )


def last_part(function: str) -> str:
    """Return the last part that is a name: ``train`` for ``train.<locals>.<lambda>``."""
    return next((part for part in reversed(function.split(".")) if part[:1] != "<"), function)


# The user's own code

_EVALUATION = re.compile(
    r"_*(?:run_|do_|_)*(?:"
    r"eval(?:uat(?:e|ion))?(?:_\w+)?"
    r"|(?:validat(?:e|ion)|valid|val|test)(?:_?(?:one_)?(?:epoch|step|loop|model|batch|net|run))?"
    r"|on_validation_\w+|\w+_(?:evaluate|evaluation|validation)(?:_(?:epoch|step|loop))?"
    r")"
)


def is_evaluation(function: str) -> bool:
    """True if a function of the user's is named as evaluation is: ``validate``, ``eval_epoch``,
    ``validation_step``, ``test``."""
    return bool(_EVALUATION.fullmatch(last_part(function).lower()))


_LIBRARY = re.compile(
    r".*/(?:site|dist)-packages/.*"
    r"|.*/lib(?:64)?/(?:python|pypy)\d[\d.]*t?/.*"
    r"|.*/python\d+\.zip/.*"
    r"|.*/(?:\.pex|torchinductor_[^/]*)/.*"
)
_USERS_NAMES = re.compile(r"<(?:stdin|ipython-input|command|cell|console|input).*")


@lru_cache(maxsize=4096)
def is_users(file: str) -> bool:
    """True if a file is the user's own: not in site-packages, dist-packages or the standard
    library of whatever Python the job runs, nor generated code, nor ``python -c`` (a process that
    multiprocessing started).

    Judged by the path alone, since the job's Python is another than ours. What was installed in
    place (``pip install -e``) and cells of a notebook are the user's.
    """
    if file.startswith("<"):
        return bool(_USERS_NAMES.fullmatch(file))
    return not _LIBRARY.fullmatch(file)


# From the stack to its category


def begins_at(frames: Sequence[Frame]) -> int:
    """Return the index of the first frame of the process's own: a forked loader worker still has
    those of the training process, as they were when it was forked."""
    found = (at for at, one in enumerate(frames) if "worker" in marks_of(one.file, one.function))
    return next(found, 0)


def is_evaluating(frames: Sequence[Frame]) -> bool:
    """True if evaluation, validation or a test is on the stack."""
    return any(
        "evaluation" in marks_of(frame.file, frame.function)
        or (is_users(frame.file) and is_evaluation(frame.function))
        for frame in frames
    )


_COMPUTING = re.compile(r"forward|training_step|compute_loss|backward|optimizer_step|loss_fn")


def activity(frames: Sequence[Frame], line_category: str | None) -> str:
    """Return the category of a stack's innermost work, the frames outermost first (precedence
    above, without evaluation). ``line_category`` is what ``line_category()`` says of the leaf's
    line."""
    marks = [marks_of(frame.file, frame.function) for frame in frames]
    on_stack = frozenset[str]().union(*marks)
    if "worker" in on_stack:
        return "loading_data" if "fetch" in on_stack else "waiting_for_work"
    if on_stack & {"loader", "wait"} and "saving" not in on_stack:
        return _in_loader(frames, marks)
    computes = "compute" in on_stack or any(
        _COMPUTING.fullmatch(last_part(frame.function)) for frame in frames
    )
    shown = (
        ("saving", "saving" in on_stack),
        ("collective", "collective" in on_stack),
        # What waits for the device can also compute: GradScaler runs the optimizer's step.
        ("synchronising", _innermost(marks, "sync", "compute") == "sync"),
        ("copying_to_device", "copy" in on_stack),
        (line_category, line_category not in (None, "computing")),
        ("waiting_for_data", "queue" in on_stack),
        ("computing", computes or line_category == "computing"),
        ("loading_data", "fetch" in on_stack),
    )
    return next((category for category, is_shown in shown if category and is_shown), "other")


def _innermost(marks: Sequence[frozenset[str]], *wanted: str) -> str | None:
    found = (name for mark in reversed(marks) for name in wanted if name in mark)
    return next(found, None)


def _in_loader(frames: Sequence[Frame], marks: Sequence[frozenset[str]]) -> str:
    first = next(at for at, mark in enumerate(marks) if mark & {"loader", "wait"})
    inside = frozenset[str]().union(*marks[first:])
    if "pin" in inside:
        return "copying_to_device"
    if {"start", "process"} <= inside:
        return "starting_workers"
    if "fetch" in inside or any(is_users(frame.file) for frame in frames[first:]):
        return "loading_data"
    return "starting_workers" if "start" in inside else "waiting_for_data"


# The running line

LINE_LENGTH = 2000
"""No line that a person wrote is longer; generated ones can be megabytes."""
_TEXT = re.compile(r"""(\w*)('(?:[^'\\]|\\.)*'|"(?:[^"\\]|\\.)*")|\#.*""")
_REPLACED = re.compile(r"\{([^{}]*)\}")
_CALLED = re.compile(r"((?:[^\W\d]\w*)?(?:\.[^\W\d]\w*)*)\(|(?<=[\w)\]])\s*(@)")
_IMPLICIT = frozenset({"float", "int", "bool"})
_REDUCTIONS = re.compile(r".*\.(sum|mean|max|min|any|all|norm)")


@lru_cache(maxsize=1024)
def line_category(source: str) -> str | None:
    """Return the category of what a line calls and Python frames cannot show; ``None`` if it says
    nothing.

    The text is never run. ``float(loss)`` and the like count as waiting for the device: the value
    has to come from there, and nothing else on the line takes time.
    """
    names = called_names(source)
    others = [name for name in names if name not in _IMPLICIT]
    reads = len(others) < len(names) and all(_REDUCTIONS.fullmatch(name) for name in others)
    for category in _CALLS_IN_ORDER:
        pattern = CATEGORIES[category].calls or ""
        called = any(re.fullmatch(pattern, name) for name in names)
        if called or (category == "synchronising" and reads):
            return category
    return None


def called_names(source: str) -> list[str]:
    """Return the dotted names called on one line of Python, ``.item`` where what comes before it is
    no name, and ``@`` for a matrix product. Strings and comments do not count, f-strings do."""
    code = _TEXT.sub(_code_in_text, source[:LINE_LENGTH].strip())
    names = [called or product for called, product in _CALLED.findall(code)]
    return [name for name in names if name and name not in keyword.kwlist]


def _code_in_text(text: re.Match[str]) -> str:
    """Return nothing for a comment or a string, and for an f-string what it shows."""
    is_f_string = text[1] is not None and text[1].lower() in ("f", "fr", "rf")
    return " ".join(_REPLACED.findall(text[2])) if is_f_string else "''"


# From the stack to the line behind it


class ReadStack(NamedTuple):
    """A stack's category, the category of what it does inside (evaluation computes, say), and the
    user's innermost line."""

    category: str
    doing: str
    user: Frame | None


ReadLine = Callable[[str, int], str | None]
"""Returns a line of a file by its raw name as the process knows it."""


def no_source(_file: str, _line: int) -> None:
    """Return nothing: for stacks whose files cannot be read."""


def read_stack(frames: Sequence[Frame], read_line: ReadLine = no_source) -> ReadStack:
    """Find a stack's category and the user's lines behind it; ``frames`` outermost first."""
    frames = frames[begins_at(frames) :]
    leaf, shown = frames[-1], None
    # Torch's own files are known by name.
    is_known = marks_of(leaf.file, leaf.function) or leaf.file.startswith("<")
    if leaf.line is not None and not is_known:
        text = read_line(leaf.file, leaf.line)
        shown = None if text is None else line_category(text)
    category = doing = activity(frames, shown)
    if doing not in {"saving", "waiting_for_work"} and is_evaluating(frames):
        category = "evaluating"
    return ReadStack(category, doing, user_frame(frames))


def user_frame(frames: Sequence[Frame]) -> Frame | None:
    """Return the innermost frame of the user's own code."""
    return next((frame for frame in reversed(frames) if is_users(frame.file)), None)
