"""From what went wrong in a measuring process to a sentence with the user's own line."""

from __future__ import annotations

import re
import signal
from collections.abc import Callable, Iterator
from dataclasses import replace
from time import monotonic, sleep
from typing import Any

from gpuwatch.core import units
from gpuwatch.core.text import clean
from gpuwatch.tuning.bench import usage
from gpuwatch.tuning.child import blame
from gpuwatch.tuning.search.setting import Failure

STACKS_SECONDS = 5.0
"""At most, until those that are stuck have written where they are: on a machine whose cores are
all taken they are woken late."""
_STACK = "(most recent call first):"
_FRAME = re.compile(r'^\s*File "([^"\n]+)", line (\d+)', re.MULTILINE)
_CAUGHT = re.compile(r"Caught (\S+) in (DataLoader worker process \d+|pin memory thread)[^.]*\.")
_KILLED = re.compile(r"DataLoader worker \(pid \(?(\d+)\)?\) is killed by signal: ([^.]+)\.")
_EXITED = re.compile(
    r"DataLoader worker \(pid[^)]*\)(?: [^)]*\))? exited unexpectedly(?: with exit code (\d+))?"
)
_PICKLE = re.compile(r"pickle|Can't get (local object|attribute)", re.IGNORECASE)
_SHM = re.compile(r"shared memory|\bshm\b|bus error", re.IGNORECASE)
_DESCRIPTORS = re.compile(r"Too many open files|received \d+ items of ancdata", re.IGNORECASE)


def from_exception(error: BaseException, pickled: str | None = None) -> Failure:
    """What a loader, dataset or step raised. ``pickled`` says which part cannot be pickled."""
    text = _text(error)
    for one in (error.__cause__, error):
        if isinstance(one, RuntimeError) and _is_of_workers(_text(one)):
            return _worker_ended(_text(one))
    caught = _CAUGHT.search(text)
    if caught is not None and not _DESCRIPTORS.search(text):
        return _raised_in_worker(text, caught[2])
    return _raised_here(error, text, pickled)


def _raised_here(error: BaseException, text: str, pickled: str | None) -> Failure:
    if _DESCRIPTORS.search(text):
        return Failure(code="descriptors", sentence=_NO_DESCRIPTORS)
    line = blame.own_line(error)
    if pickled is not None:
        return Failure(code="pickle", sentence=pickled, line=line)
    if _SHM.search(text):
        return shm_full()
    if isinstance(error, MemoryError):
        return Failure(code="memory", sentence=f"Memory ran out{_at(line)}.", line=line)
    return Failure(code="exception", sentence=f"{blame.named(error)}{_at(line)}.", line=line)


_NO_DESCRIPTORS = (
    "The process ran out of file descriptors for the batches that workers hand over: raise the "
    "limit (ulimit -n 65535), or call torch.multiprocessing.set_sharing_strategy('file_system')."
)


def _is_of_workers(text: str) -> bool:
    return bool(_KILLED.search(text) or _EXITED.search(text))


def _raised_in_worker(text: str, where: str) -> Failure:
    """DataLoader hands a worker's exception on as text, with its traceback inside."""
    if _SHM.search(text) and ("No space left" in text or "unable to" in text):
        return shm_full()
    line = line_in(text)
    lines = [one.strip() for one in text.strip().splitlines() if one.strip()]
    last = _final_exception(text) or (lines[-1] if lines else "it failed")
    said = clean(last, blame.MESSAGE_LENGTH)
    place = "a worker" if "worker" in where else "the thread that pins memory"
    return Failure(
        code="exception", sentence=f"{said}{_at(line)}, in {place}.".replace(".,", ","), line=line
    )


def _final_exception(text: str) -> str | None:
    """``ValueError: bad label`` (with further lines of its message) of the last traceback."""
    lines = text.rstrip().splitlines()
    for number in range(len(lines) - 1, -1, -1):
        if re.match(
            r"^[A-Za-z_][\w.]*(Error|Exception|Warning|Interrupt|Exit|\b)(:|$)", lines[number]
        ):
            return " ".join(" ".join(lines[number:]).split())
    return None


def line_in(text: str, *, innermost_last: bool = True) -> str | None:
    """The user's own line in a traceback that is text (faulthandler's has the innermost first)."""
    frames = [(found[1], found[2]) for found in _FRAME.finditer(text)]
    for file, number in reversed(frames) if innermost_last else iter(frames):
        if blame.is_own(file):
            return f"{blame.shown_path(file)}:{int(number)}"
    return None


def await_stacks(read: Callable[[], str], count: int) -> str:
    """What ``read`` gives once faulthandler has written ``count`` stacks into it, and nothing more
    is added to the last."""
    deadline = monotonic() + STACKS_SECONDS
    text = seen = ""
    while monotonic() < deadline and (text.count(_STACK) < count or text != seen):
        seen = text
        sleep(0.05)
        text = read()
    return text


def _worker_ended(text: str) -> Failure:
    killed = _KILLED.search(text)
    if killed is not None:
        name = clean(killed[2].strip(), 60)
        if "bus" in name.lower():
            return shm_full()
        number = _number_of(name)
        return Failure(
            code="worker_killed",
            sentence=f"A worker was killed by {_signal_words(number, name)}.",
        )
    exited = _EXITED.search(text)
    code = None if exited is None else exited[1]
    return Failure(
        code="worker_exited",
        sentence="A worker ended without a word"
        + (f" (exit code {code})" if code else "")
        + ": something in the dataset ends the process (os._exit, sys.exit, a crash in a library).",
    )


def from_status(status: int, *, out_of_memory: bool, output: str) -> Failure:
    """The measuring process itself ended before it had told anything; ``status`` as waitpid's."""
    code = os_exit_code(status)
    line = crashed_at(output)
    if code < 0:
        words = _signal_words(-code, "")
        hint = " (the kernel was out of memory)" if out_of_memory and -code == 9 else ""
        return Failure(
            code="killed",
            sentence=f"The process was killed by {words}{hint}{_at(line)}.",
            line=line,
        )
    return Failure(
        code="exited",
        sentence=f"The code ended the process with exit code {code}"
        f"{_at(line) or ' while it was measured (os._exit or a library)'}.",
        line=line,
    )


def crashed_at(output: str) -> str | None:
    """The user's own line in what ``crash`` has a process write."""
    return line_in(output, innermost_last=False) if "Fatal Python error" in output else None


def placed(failure: Failure, output: str) -> Failure:
    """The same with the user's line at which the worker ended, if it has told."""
    line = crashed_at(output)
    if line is None:
        return failure
    sentence = f"{failure.sentence.removesuffix('.')}, at {line}."
    return replace(failure, sentence=sentence, line=line)


def os_exit_code(status: int) -> int:
    import os  # noqa: PLC0415

    return os.waitstatus_to_exitcode(status)


def hung(seconds: float, stacks: str) -> Failure:
    line = line_in(stacks, innermost_last=False)
    return Failure(
        code="hang",
        sentence=f"No batch came within {seconds:.0f} s (--timeout)"
        + (f"; it was at {line}." if line else "."),
        line=line,
    )


def shm_full() -> Failure:
    size = usage.shm_size()
    has = f" has {units.size(size)} in all" if size is not None else " is too small"
    return Failure(
        code="shm",
        sentence=f"There is too little shared memory: /dev/shm{has}, and workers hand their "
        "batches over in it. Make it larger (docker run --shm-size=8g, or --ipc=host), or take "
        "fewer workers or smaller batches.",
    )


def memory_killed(failure: Failure) -> Failure:
    return Failure(
        code="out_of_memory",
        sentence="The kernel was out of memory and killed a process of this setting: each worker "
        "needs memory of its own; take fewer.",
        line=failure.line,
        output=failure.output,
    )


_PLAIN = {
    "Killed": signal.SIGKILL,
    "Segmentation fault": signal.SIGSEGV,
    "Aborted": signal.SIGABRT,
    "Terminated": signal.SIGTERM,
    "Floating point exception": signal.SIGFPE,
    "Illegal instruction": signal.SIGILL,
    "Hangup": signal.SIGHUP,
    "Interrupt": signal.SIGINT,
}


def _number_of(name: str) -> int:
    return _PLAIN.get(name, 0)


def _signal_words(number: int, otherwise: str) -> str:
    try:
        name = signal.Signals(number).name
    except ValueError:
        return otherwise or f"signal {number}"
    more = {
        signal.SIGKILL: ", which is what the kernel does when memory runs out",
        signal.SIGSEGV: ": a crash in a library's own code",
        signal.SIGABRT: ": a library gave up",
        signal.SIGBUS: ": /dev/shm may be full, or a file that is mapped got shorter",
    }.get(signal.Signals(number), "")
    return f"{name}{more}"


def _at(line: str | None) -> str:
    return f" at {line}" if line else ""


def _text(error: BaseException | None) -> str:
    try:
        return str(error)
    except Exception:
        return ""


# --- what cannot be pickled ------------------------------------------------------------------

_DEPTH = 5


def unpicklable(loader: Any, method: str) -> str | None:
    """A sentence on which part of a loader workers cannot be given; ``None``: all can be."""
    parts = {
        "dataset": loader.dataset,
        "collate_fn": loader.collate_fn,
        "worker_init_fn": loader.worker_init_fn,
    }
    for name, part in parts.items():
        error = _pickle_error(part)
        if error is None:
            continue
        path, culprit, inner = _narrowed(name, part, error, _DEPTH)
        return (
            f"Workers that start by {method} are sent the dataset pickled, and {path} cannot be: "
            f"{blame.named(inner)}{_made_at(culprit)}."
        )
    return None


def looks_unpicklable(error: BaseException) -> bool:
    import pickle  # noqa: PLC0415

    return isinstance(error, pickle.PicklingError) or bool(_PICKLE.search(_text(error)))


def _pickle_error(part: object) -> Exception | None:
    import io  # noqa: PLC0415
    from multiprocessing.reduction import ForkingPickler  # noqa: PLC0415

    try:
        ForkingPickler(io.BytesIO()).dump(part)
    except Exception as error:
        return error
    return None


def _narrowed(
    path: str, part: object, error: Exception, depth: int
) -> tuple[str, object, Exception]:
    """The innermost attribute or item that cannot be pickled by itself."""
    if depth:
        for name, inner in _inside(part):
            its = _pickle_error(inner)
            if its is not None:
                return _narrowed(f"{path}{name}", inner, its, depth - 1)
    return path, part, error


def _inside(part: object) -> Iterator[tuple[str, object]]:
    if isinstance(part, dict):
        yield from ((f"[{clean(repr(key), 40)}]", value) for key, value in list(part.items())[:200])
    elif isinstance(part, list | tuple):
        yield from ((f"[{number}]", value) for number, value in enumerate(part[:200]))
    elif hasattr(part, "__dict__") and not isinstance(part, type):
        yield from ((f".{clean(name, 60)}", value) for name, value in list(vars(part).items()))


def _made_at(culprit: object) -> str:
    code = getattr(culprit, "__code__", None)
    if code is None or not blame.is_own(code.co_filename):
        return ""
    return f" ({blame.shown_path(code.co_filename)}:{code.co_firstlineno})"


def output_lines(text: str, most: int = 5) -> tuple[str, ...]:
    """The last lines of what the user's code printed, made safe; not the dump after a crash."""
    text = text.split("Fatal Python error:", 1)[0].replace("\0", "")
    lines = [clean(line, 200) for line in _own_lines(text) if line.strip()]
    return tuple(lines[-most:])


_WARNING = re.compile(r"^(\S.*?):\d+: \w*Warning: ")
_NOT_OWN = ("resource_tracker", "ERROR: Unexpected ")


def _own_lines(text: str) -> Iterator[str]:
    """Without the warnings of libraries, which come with the line of the library's code."""
    passing = False
    for line in text.splitlines():
        warning = _WARNING.match(line)
        if warning is not None:
            passing = not blame.is_own(warning[1])
        elif not line.startswith("  "):
            passing = False
        if not passing and not any(word in line for word in _NOT_OWN):
            yield line
