"""Sentences on why a measurement failed: an exception, a dead process, a hang. They name the line.

Measuring processes and their workers have a crash, and a signal, write where they are (faulthandler
of the standard library), for ``line_in`` to read.
"""

import contextlib
import faulthandler
import multiprocessing
import os
import re
import signal
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path

from msgspec import structs

from gpuwatch.core.text import SentenceError, clean
from gpuwatch.jobs.run.trees import end_with_parent
from gpuwatch.tuning.records import Failure

MESSAGE_LENGTH = 300
OUTPUT_LINES = 5
STACKS_SIGNAL = signal.SIGUSR2
_CRASH = re.compile(r"Fatal Python error: ([^\n]+)")
# Not one of which only the beginning has come.
_FRAME = re.compile(r'^\s*File "([^"\n]+)", line (\d+)(?!\d|\Z)', re.MULTILINE)
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Warning|Interrupt|Exit|\b)(:|$)")
_CAUGHT = re.compile(r"Caught \S+ in (?:DataLoader (worker)|pin memory thread)")
_WORKER_ENDED = re.compile(
    r"DataLoader worker \(pid[^A-Za-z]*(?:\(s\))?[^A-Za-z]*\)? ((?:is killed|exited)[^.]*)"
)
_NOT_OWN = ("resource_tracker", "ERROR: Unexpected ")
_HINTS = {
    r"(unable to|insufficient|out of|no space)[^\n]*(shared memory|\bshm\b|</torch_)"
    r"|(shared memory|\bshm\b|</torch_)[^\n]*(unable to|insufficient|no space)|bus error": (
        "Workers hand their batches over in /dev/shm: make it larger (docker run --shm-size=8g, or "
        "--ipc=host), or use fewer workers or smaller batches."
    ),
    r"Too many open files|received \d+ items of ancdata": (
        "Raise the limit of open files (ulimit -n 65535), or call "
        "torch.multiprocessing.set_sharing_strategy('file_system')."
    ),
    r"by signal: Killed|SIGKILL": "The kernel does that when memory runs out.",
    r"exited unexpectedly": (
        "Something in the dataset ends the process: os._exit, sys.exit, a crash in a library."
    ),
    r"pickle|Can't get (local object|attribute)": (
        "Workers that are spawned are sent the dataset pickled."
    ),
}
"""Meaning or cure of an error, by words of PyTorch or the kernel."""


class MeasureError(SentenceError):
    """Error for what cannot be measured; ``code`` is as in ``Failure``, ``output`` the last lines
    that the user's code printed."""

    def __init__(self, sentence: str, code: str = "target", output: tuple[str, ...] = ()) -> None:
        super().__init__(sentence)
        self.code = code
        self.output = output


def write_stacks() -> None:
    """Have a crash of this process, and ``STACKS_SIGNAL``, print its stack from now on."""
    # It would keep the handlers that torch gives its workers since, which name no line.
    faulthandler.disable()
    faulthandler.enable(2, all_threads=False)
    faulthandler.register(STACKS_SIGNAL, 2, all_threads=False)


class WorkerStart:
    """A loader's ``worker_init_fn`` that also has the worker write where it crashes, and end with
    the measuring process, even one that ended while the worker started."""

    def __init__(self, own: Callable[[int], object] | None) -> None:
        self._own = own

    def __call__(self, worker_id: int) -> None:
        write_stacks()
        end_with_parent(signal.SIGKILL)
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():
            os._exit(1)
        if self._own is not None:
            self._own(worker_id)


# The user's own lines


def is_own(file: str) -> bool:
    """Return whether the file of a frame is the user's own code: not the interpreter's, not an
    installed package's, not gpuwatch's."""
    real = os.path.realpath(file)
    # Packages may also come from a virtual environment that this one builds on.
    if file.startswith("<") or re.search(r"/(site|dist)-packages/", real):
        return False
    folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    folders.append(str(Path(__file__).parents[1]))
    return not real.startswith(tuple(os.path.realpath(one) + os.sep for one in folders))


def _place(file: str, line: object) -> str:
    """``train.py:42``, relative to the working folder if inside it."""
    with contextlib.suppress(OSError, ValueError):
        file = str(Path(file).resolve().relative_to(Path.cwd()))
    return f"{clean(file, 200)}:{line}"


def own_line(error: BaseException) -> str | None:
    """Return ``train.py:42``: the innermost frame that is the user's own code, or where a syntax
    error stands; ``None``: there is none."""
    frames = [(one.filename, one.lineno) for one in traceback.extract_tb(error.__traceback__)]
    if isinstance(error, SyntaxError) and error.filename:
        frames.append((error.filename, error.lineno))
    return next((_place(*frame) for frame in reversed(frames) if is_own(frame[0])), None)


def line_in(text: str, *, innermost_last: bool = False) -> str | None:
    """Return the user's own line in a traceback that is text (faulthandler's has the innermost
    first)."""
    frames = _FRAME.findall(text)
    ordered = reversed(frames) if innermost_last else frames
    return next((_place(file, number) for file, number in ordered if is_own(file)), None)


def at(line: str | None) -> str:
    return f" at {line}" if line else ""


def described(error: BaseException) -> str:
    """``ValueError: bad label at train.py:42``: what happened and the user's own line, without what
    a terminal could obey."""
    text = (error.msg or "") if isinstance(error, SyntaxError) else _text(error)
    name = clean(type(error).__name__, 80)
    message = clean(" ".join(text.split()), MESSAGE_LENGTH).rstrip(".")
    return f"{name}: {message}{at(own_line(error))}" if message else f"{name}{at(own_line(error))}"


def _text(error: BaseException | None) -> str:
    try:
        return "" if error is None else str(error)
    except Exception:
        return ""


# Failures


def from_exception(error: BaseException) -> Failure:
    """Return the failure of a loader, dataset or step, with what to do where that is known."""
    text, line = _text(error), own_line(error)
    if isinstance(error, MeasureError):
        return Failure(code=error.code, sentence=text, line=own_line(error.__cause__ or error))
    texts = f"{_text(error.__cause__)}\n{text}"
    ended, caught = _WORKER_ENDED.search(texts), _CAUGHT.search(text)
    code, sentence = "exception", described(error)
    if ended is not None:
        code, sentence, line = "worker", f"A worker {clean(ended[1], MESSAGE_LENGTH)}", None
    elif caught is not None:
        line = line_in(text, innermost_last=True)
        where = "a worker" if caught[1] else "the thread that pins memory"
        sentence = f"{_last_exception(text)}{at(line)}, in {where}"
    return Failure(code=code, sentence=_with_hint(sentence, texts), line=line)


def _last_exception(text: str) -> str:
    """Return the last exception of a worker, with further lines of its message: DataLoader hands it
    on as text, with its traceback inside."""
    lines = text.strip().splitlines()
    starts = [number for number, one in enumerate(lines) if _EXCEPTION.match(one)]
    last = " ".join(" ".join(lines[starts[-1] if starts else -1 :]).split())
    return clean(last.rstrip("."), MESSAGE_LENGTH)


def _with_hint(sentence: str, text: str) -> str:
    hints = [hint for pattern, hint in _HINTS.items() if re.search(pattern, text, re.IGNORECASE)]
    return " ".join([f"{sentence}.", *hints[:1]])


def from_exit_code(code: int, output: str) -> Failure:
    """Return the failure of a measuring process that ended before it had an answer; ``code`` below
    0: by that signal."""
    if code < 0:
        name, line = signal.Signals(-code).name, line_in(output) if _CRASH.search(output) else None
        sentence = _with_hint(f"The process was killed by {name}{at(line)}", name)
        return Failure(code="killed", sentence=sentence, line=line)
    sentence = f"The code ended the process with exit code {code} (os._exit, or a library)."
    return Failure(code="exited", sentence=sentence)


def completed(failure: Failure, output: str) -> Failure:
    """Return the failure with what was printed last, and how and where a worker crashed: PyTorch
    does not always hear of the signal."""
    crash = _CRASH.search(output)
    if crash is not None and failure.code == "worker":
        line = line_in(output)
        sentence = f"A worker crashed: {clean(crash[1].strip(), 60)}{at(line)}."
        failure = Failure(code="worker", sentence=sentence, line=line)
    return structs.replace(failure, output=output_lines(output))


def output_lines(text: str) -> tuple[str, ...]:
    """Return the last lines that the user's code printed, made safe; not the dump after a
    crash."""
    text = text.split("Fatal Python error:", 1)[0].replace("\0", "")
    lines = [line for line in text.splitlines() if not any(word in line for word in _NOT_OWN)]
    return tuple([clean(line, 200) for line in lines if line.strip()][-OUTPUT_LINES:])
