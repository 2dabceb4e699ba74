"""From an exception, a dead process or a hang to a sentence with the user's own line.

Measuring processes and their workers import this before torch: they have a crash, and a signal,
write where they are, for ``line_in`` to read.
"""

import contextlib
import ctypes
import faulthandler
import multiprocessing
import os
import re
import signal
import sysconfig
import traceback
from collections.abc import Callable
from pathlib import Path

import psutil
from msgspec import structs

from gpuwatch.core import units
from gpuwatch.core.text import SentenceError, clean
from gpuwatch.tuning.records import Failure

MESSAGE_LENGTH = 300
OUTPUT_LINES = 5
SHM = "/dev/shm"
"""Workers hand their batches over in it."""
STACKS_SIGNAL = signal.SIGUSR2
_PR_SET_PDEATHSIG = 1
_ADDRESS = re.compile(r"(?<=\w) at 0x[0-9a-f]{6,}")
"""Address of an object: it means nothing, and is another one each time."""
_CRASHED = "Fatal Python error"
_CRASH = re.compile(f"{_CRASHED}: ([^\\n]+)")
_FRAME = re.compile(r'^\s*File "([^"\n]+)", line (\d+)', re.MULTILINE)
_EXCEPTION = re.compile(r"^[A-Za-z_][\w.]*(Error|Exception|Warning|Interrupt|Exit|\b)(:|$)")
_CAUGHT = re.compile(r"Caught (\S+) in (DataLoader worker process \d+|pin memory thread)[^.]*\.")
_KILLED = re.compile(r"DataLoader worker \(pid \(?(\d+)\)?\) is killed by signal: ([^.]+)\.")
_EXITED = re.compile(
    r"DataLoader worker \(pid[^)]*\)(?: [^)]*\))? exited unexpectedly(?: with exit code (\d+))?"
)
_PICKLE = re.compile(r"pickle|Can't get (local object|attribute)", re.IGNORECASE)
_SHM = re.compile(
    r"(unable to|insufficient|out of|no space)[^\n]*(shared memory|\bshm\b|</torch_)"
    r"|(shared memory|\bshm\b|</torch_)[^\n]*(unable to|insufficient|no space)|bus error",
    re.IGNORECASE,
)
_DESCRIPTORS = re.compile(r"Too many open files|received \d+ items of ancdata", re.IGNORECASE)
_NOT_OWN = ("resource_tracker", "ERROR: Unexpected ")
NO_DESCRIPTORS = (
    "The process ran out of file descriptors for the batches that workers hand over: raise the "
    "limit (ulimit -n 65535), or call torch.multiprocessing.set_sharing_strategy('file_system')."
)
_SIGNALS = {signal.strsignal(number): number for number in signal.Signals}
"""By the names that PyTorch prints."""
_MEANS = {
    signal.SIGKILL: ", which is what the kernel does when memory runs out",
    signal.SIGSEGV: ": a crash in a library's own code",
    signal.SIGABRT: ": a library gave up",
}


class MeasureError(SentenceError):
    """Something cannot be measured; ``code`` is one word, ``output`` the last lines that the
    user's code printed."""

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


def end_with_parent() -> None:
    """Have the kernel kill this process when the one that started it ends (prctl(2))."""
    with contextlib.suppress(OSError, AttributeError):
        ctypes.CDLL(None).prctl(_PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


class WorkerStart:
    """A loader's ``worker_init_fn`` that also has the worker write where it crashes, and end with
    the measuring process, even one that ended while the worker started."""

    def __init__(self, own: Callable[[int], object] | None) -> None:
        self._own = own

    def __call__(self, worker_id: int) -> None:
        write_stacks()
        end_with_parent()
        parent = multiprocessing.parent_process()
        if parent is not None and not parent.is_alive():
            os._exit(1)
        if self._own is not None:
            self._own(worker_id)


# --- the user's own lines --------------------------------------------------------------------


def is_own(file: str) -> bool:
    """Return whether the file of a frame is the user's own code: not the interpreter's, not an
    installed package's, not gpuwatch's."""
    if file.startswith("<"):
        return False
    real = os.path.realpath(file)
    # Packages may also come from a virtual environment that this one builds on.
    installed = any(f"{os.sep}{name}-packages{os.sep}" in real for name in ("site", "dist"))
    folders = [sysconfig.get_path("stdlib"), sysconfig.get_path("platstdlib")]
    folders.append(str(Path(__file__).parents[1]))
    return not installed and not real.startswith(
        tuple(os.path.realpath(one) + os.sep for one in folders)
    )


def _place(file: str, line: object) -> str:
    """``train.py:42``, relative to the working folder if inside it."""
    with contextlib.suppress(OSError, ValueError):
        file = str(Path(file).resolve().relative_to(Path.cwd()))
    return f"{clean(file, 200)}:{line}"


def own_line(error: BaseException) -> str | None:
    """Return ``train.py:42``: the innermost frame that is the user's own code, or where a syntax
    error stands; ``None``: there is none."""
    if isinstance(error, SyntaxError) and error.filename and is_own(error.filename):
        return _place(error.filename, error.lineno)
    frames = reversed(traceback.extract_tb(error.__traceback__))
    return next((_place(one.filename, one.lineno) for one in frames if is_own(one.filename)), None)


def line_in(text: str, *, innermost_last: bool = False) -> str | None:
    """Return the user's own line in a traceback that is text (faulthandler's has the innermost
    first)."""
    frames = _FRAME.findall(text)
    ordered = reversed(frames) if innermost_last else frames
    return next((_place(file, number) for file, number in ordered if is_own(file)), None)


def crashed_at(output: str) -> str | None:
    """Return the user's own line in the stack that a process writes when it crashes."""
    return line_in(output) if _CRASHED in output else None


def named(error: BaseException) -> str:
    """``ValueError: bad label``, without what a terminal could obey."""
    text = (error.msg or "") if isinstance(error, SyntaxError) else _text(error)
    name = clean(type(error).__name__, 80)
    message = clean(_ADDRESS.sub("", " ".join(text.split())), MESSAGE_LENGTH)
    return f"{name}: {message}" if message else name


def described(error: BaseException) -> str:
    """``ValueError: bad label at train.py:42``: what happened and the user's own line."""
    return f"{named(error)}{at(own_line(error))}"


def _text(error: BaseException) -> str:
    try:
        return str(error)
    except Exception:
        return ""


def at(line: str | None) -> str:
    return f" at {line}" if line else ""


# --- exceptions ------------------------------------------------------------------------------


def from_exception(error: BaseException, start_method: str = "fork") -> Failure:
    """Return the failure of a loader, dataset or step; ``start_method``: how workers are
    started."""
    text, line = _text(error), own_line(error)
    code, sentence = "exception", f"{named(error)}{at(line)}."
    texts = (_text(error.__cause__ or error), text) if isinstance(error, RuntimeError) else ()
    ended = [one for one in texts if _KILLED.search(one) or _EXITED.search(one)]
    caught = _CAUGHT.search(text)
    if isinstance(error, MeasureError):
        code, sentence = error.code, text
        line = own_line(error.__cause__) if error.__cause__ else None
    elif ended:
        return _worker_ended(ended[0])
    elif _DESCRIPTORS.search(text):
        code, sentence = "descriptors", NO_DESCRIPTORS
    elif _SHM.search(text):
        return shm_full()
    elif caught is not None:
        return _raised_in_worker(text, caught[2])
    elif start_method != "fork" and _PICKLE.search(f"{type(error).__name__} {text}"):
        code = "pickle"
        sentence = (
            f"Workers that start by {start_method} are sent the dataset pickled, and a part of it "
            f"cannot be: {named(error)}."
        )
    return Failure(code=code, sentence=sentence, line=line)


def _raised_in_worker(text: str, where: str) -> Failure:
    """DataLoader hands a worker's exception on as text, with its traceback inside."""
    line = line_in(text, innermost_last=True)
    lines = text.strip().splitlines()
    # The last exception, with further lines of its message.
    starts = [number for number, one in enumerate(lines) if _EXCEPTION.match(one)]
    last = " ".join(" ".join(lines[starts[-1] if starts else -1 :]).split()).rstrip(".")
    place = "a worker" if "worker" in where else "the thread that pins memory"
    said = f"{clean(last, MESSAGE_LENGTH)}{at(line)}, in {place}."
    return Failure(code="exception", sentence=said, line=line)


def _worker_ended(text: str) -> Failure:
    killed, exited = _KILLED.search(text), _EXITED.search(text)
    if killed is not None:
        name = clean(killed[2].strip(), 60)
        if "bus" in name.lower():
            return shm_full()
        words = _signal_words(_SIGNALS.get(name, 0), name)
        return Failure(code="worker_killed", sentence=f"A worker was killed by {words}.")
    code = f" (exit code {exited[1]})" if exited is not None and exited[1] else ""
    return Failure(
        code="worker_exited",
        sentence=f"A worker ended without an error message{code}: something in the dataset "
        "ends the process (os._exit, sys.exit, a crash in a library).",
    )


def _signal_words(number: int, otherwise: str) -> str:
    try:
        one = signal.Signals(number)
    except ValueError:
        return otherwise or f"signal {number}"
    return f"{one.name}{_MEANS.get(one, '')}"


def shm_full() -> Failure:
    try:
        size = f" has {units.size(psutil.disk_usage(SHM).total)} in all"
    except OSError:
        size = " is too small"
    return Failure(
        code="shm",
        sentence=f"There is too little shared memory: {SHM}{size}, and workers hand their batches "
        "over in it. Make it larger (docker run --shm-size=8g, or --ipc=host), or use fewer "
        "workers or smaller batches.",
    )


# --- processes -------------------------------------------------------------------------------


def from_exit_code(code: int, output: str) -> Failure:
    """Return the failure of a measuring process that ended before it had an answer; ``code`` below
    0: by that signal."""
    line = crashed_at(output)
    if code < 0:
        sentence = f"The process was killed by {_signal_words(-code, '')}{at(line)}."
        return Failure(code="killed", sentence=sentence, line=line)
    sentence = (
        f"The code ended the process with exit code {code} while it was measured (os._exit or a "
        "library)."
    )
    return Failure(code="exited", sentence=sentence)


def hung(doing: str, seconds: float, line: str | None) -> Failure:
    sentence = f"{doing} took longer than {units.age(seconds)} (--timeout)"
    sentence += f"; it was at {line}." if line else "."
    return Failure(code="hang", sentence=sentence, line=line)


def completed(failure: Failure, output: str) -> Failure:
    """Return the failure with what was printed last, and how and where a worker crashed: PyTorch
    does not always hear of the signal."""
    crash = _CRASH.search(output)
    if crash is not None and failure.code in ("worker_killed", "worker_exited"):
        name, line = clean(crash[1].strip(), 60), crashed_at(output)
        words = _signal_words(_SIGNALS.get(name, 0), name)
        sentence = f"A worker was killed by {words}{f', at {line}' if line else ''}."
        failure = Failure(code="worker_killed", sentence=sentence, line=line)
    return structs.replace(failure, output=output_lines(output))


def output_lines(text: str) -> tuple[str, ...]:
    """Return the last lines that the user's code printed, made safe; not the dump after a
    crash."""
    text = text.split(f"{_CRASHED}:", 1)[0].replace("\0", "")
    lines = [line for line in text.splitlines() if not any(word in line for word in _NOT_OWN)]
    return tuple([clean(line, 200) for line in lines if line.strip()][-OUTPUT_LINES:])
