"""Memory that is given back, and what stays."""

import re
import subprocess
import sys
from pathlib import Path

from tests.tui.terminal.pseudo_terminal import terminal

PROGRAM = """
import gc, weakref
from gpuwatch.core import memory_trim

class Node:
    pass

def circle():
    node = Node()
    node.me = node
    return node

memory_trim.settle()
kept = gc.get_freeze_count()
assert kept > 0

# A replay makes an engine for every moment that is gone to: what it shows then is to go.
shown = [[] for _ in range(10_000)]
memory_trim.settle()
assert gc.get_freeze_count() <= kept

gone = weakref.ref(circle())
gc.collect()
assert gone() is None

node = circle()
gone = weakref.ref(node)
gc.collect(1)
del node
gc.collect(1)
assert gone() is not None
memory_trim.tidy()
assert gone() is None
"""

THREAD = """
import threading
from gpuwatch.core import memory_trim

memory_trim.share_one_heap()
kept = []
thread = threading.Thread(target=lambda: kept.append(bytes(100_000)))
thread.start()
thread.join()
(heap,) = [line.split()[0] for line in open("/proc/self/maps") if line.endswith("[heap]\\n")]
first, last = (int(end, 16) for end in heap.split("-"))
assert first < id(kept[0]) < last
"""


def run(program: str) -> None:
    done = subprocess.run([sys.executable, "-c", program], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()


def test_what_the_first_settling_finds_stays_and_later_garbage_goes() -> None:
    """Later settling keeps nothing; cycles are still found, and tidying frees old ones, too."""
    run(PROGRAM)


def test_threads_have_no_heaps_of_their_own() -> None:
    """What a thread allocates is in the heap of the program."""
    run(THREAD)


NOT_BEFORE_THE_FIRST_PICTURE = (
    "_hashlib", "psutil", "pynvml", "gpuwatch.commands.reading",
    "gpuwatch.commands.run", "gpuwatch.commands.tune", "gpuwatch.diagnosis.engine",
    "gpuwatch.diagnosis.rules", "gpuwatch.outputs.report", "gpuwatch.outputs.status",
    "gpuwatch.recording.file", "gpuwatch.recording.statistics", "gpuwatch.tuning",
    "textual.widgets._input", "textual.widgets._tree", "textual.widgets._select",
)  # fmt: skip


def test_the_first_picture_waits_for_no_module_that_it_does_not_show() -> None:
    """Nor is OpenSSL loaded later: the dashboard makes no encrypted connection."""
    with terminal("-X", "importtime", "-m", "gpuwatch", "--demo") as opened:
        opened.until(lambda: b"SIMULATED" in opened.raw)
        before, _, _ = opened.raw.partition(b"SIMULATED")
        loaded = {one.decode() for one in re.findall(rb"import time:[ \d|]+\| +(\S+)", before)}
        assert "gpuwatch.tui.app" in loaded
        assert {
            name
            for name in loaded
            if f"{name}.".startswith(tuple(f"{one}." for one in NOT_BEFORE_THE_FIRST_PICTURE))
        } == set()
        maps = Path(f"/proc/{opened.program.pid}/maps").read_text()
        assert not re.search("libssl|libcrypto", maps)


def test_three_threads_are_enough() -> None:
    """One draws and writes, one reads the machine, one waits for keys: each more is woken up once
    a second at least."""
    with terminal("-m", "gpuwatch", "--demo") as opened:
        opened.until(lambda: b"SIMULATED" in opened.raw)
        threads = Path(f"/proc/{opened.program.pid}/task")
        opened.until(lambda: len(list(threads.iterdir())) == 3)
