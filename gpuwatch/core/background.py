"""One daemon thread for calls that may never come back.

A driver call can hang for ever in the kernel, where no signal ends it. The thread that made it
must then be abandoned: nothing here joins, and unlike ``concurrent.futures`` nothing waits for
the thread when the interpreter ends.
"""

import threading
import time
from collections.abc import Callable
from queue import SimpleQueue
from typing import Generic, TypeVar

T = TypeVar("T")


class Task(Generic[T]):
    """One call handed to a ``DaemonWorker``: pending, then done with a result or an error."""

    __slots__ = ("_done", "_function", "_result", "error", "run_seconds")

    def __init__(self, function: Callable[[], T]) -> None:
        self._function: Callable[[], T] | None = function
        self._done = threading.Event()
        self._result: T | None = None
        self.error: BaseException | None = None
        """Exception that the call raised."""
        self.run_seconds: float | None = None
        """How long the call took on its thread, once it is done."""

    @property
    def done(self) -> bool:
        return self._done.is_set()

    def wait(self, timeout: float | None) -> bool:
        """Wait up to ``timeout`` seconds (``None``: for ever); whether the call is done."""
        return self._done.wait(timeout)

    def result(self) -> T:
        """The call's result; raises what the call raised, ``RuntimeError`` while it is pending."""
        if not self._done.is_set():
            raise RuntimeError("the call is not done yet")
        if self.error is not None:
            raise self.error
        return self._result  # type: ignore[return-value]

    def _run(self) -> None:
        function, self._function = self._function, None
        assert function is not None
        started = time.perf_counter()
        try:
            self._result = function()
        # The thread must outlive whatever the call does; result() raises it to whoever asks.
        except BaseException as error:
            self.error = error
        finally:
            self.run_seconds = time.perf_counter() - started
            self._done.set()


class DaemonWorker:
    """Runs submitted calls one after the other on a daemon thread of its own.

    The thread starts with the first call. ``stop`` lets it end after the calls already handed
    in and returns at once; a call that hangs keeps its thread, which dies with the process.
    """

    def __init__(self, name: str = "gpuwatch-worker") -> None:
        self._name = name
        self._queue: SimpleQueue[Task[object] | None] = SimpleQueue()
        self._thread: threading.Thread | None = None
        self._lock = threading.Lock()
        self._stopped = False

    def submit(self, function: Callable[[], T]) -> Task[T]:
        """Queue ``function``; raises ``RuntimeError`` after ``stop``."""
        task = Task(function)
        with self._lock:
            if self._stopped:
                raise RuntimeError("the worker is stopped")
            self._queue.put(task)  # type: ignore[arg-type]
            if self._thread is None:
                self._thread = threading.Thread(target=self._loop, name=self._name, daemon=True)
                self._thread.start()
        return task

    def stop(self) -> None:
        """Take no more calls; returns at once, whatever the thread is doing."""
        with self._lock:
            if not self._stopped:
                self._stopped = True
                self._queue.put(None)

    def _loop(self) -> None:
        while (task := self._queue.get()) is not None:
            task._run()
            # Else the last result would stay alive until the next call comes.
            del task
