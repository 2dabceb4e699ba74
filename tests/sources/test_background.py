"""The daemon worker: order, errors, waiting, and a call that never comes back."""

import subprocess
import sys
import threading

import pytest

from gpuwatch.core.background import DaemonWorker


def test_an_exception_goes_to_whoever_asks_and_the_thread_goes_on() -> None:
    """Also one that is meant to end a thread."""
    worker = DaemonWorker()

    def fail() -> None:
        raise SystemExit(3)

    failed = worker.submit(fail)
    after = worker.submit(lambda: "still here")
    assert after.wait(60)
    assert after.result() == "still here"
    with pytest.raises(SystemExit):
        failed.result()
    worker.stop()


def test_after_stop_nothing_is_taken_but_what_was_handed_in_is_done() -> None:
    """Stopping returns at once, also twice, also before anything ran."""
    worker = DaemonWorker()
    gate = threading.Event()
    running = worker.submit(lambda: gate.wait(60))
    waiting = worker.submit(lambda: 1)
    worker.stop()
    worker.stop()
    with pytest.raises(RuntimeError, match="stopped"):
        worker.submit(lambda: 2)
    gate.set()
    assert waiting.wait(60)
    assert running.result() is True
    DaemonWorker().stop()


def test_a_call_that_hangs_does_not_keep_the_program_from_ending() -> None:
    """The interpreter leaves the thread behind."""
    code = (
        "import threading\n"
        "from gpuwatch.core.background import DaemonWorker\n"
        "worker = DaemonWorker()\n"
        "started = threading.Event()\n"
        "def hang():\n"
        "    started.set()\n"
        "    threading.Event().wait()\n"
        "worker.submit(hang)\n"
        "started.wait()\n"
        "worker.stop()\n"
        "print('ended')\n"
    )
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, timeout=60, check=False
    )
    assert (done.returncode, done.stdout, done.stderr) == (0, "ended\n", "")
