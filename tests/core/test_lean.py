"""Memory that is given back, and what stays."""

from __future__ import annotations

import subprocess
import sys

PROGRAM = """
import gc, weakref
from gpuwatch.core import lean

class Node:
    pass

def circle():
    node = Node()
    node.me = node
    return node

lean.settle()
kept = gc.get_freeze_count()
assert kept > 0

# A replay makes an engine for every moment that is gone to: what it shows then is to go.
shown = [[] for _ in range(10_000)]
lean.settle()
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
lean.tidy()
assert gone() is None
"""


def test_what_the_first_settling_finds_stays_and_later_garbage_goes() -> None:
    """Later settling keeps nothing; cycles are still found, and tidying frees old ones, too."""
    done = subprocess.run([sys.executable, "-c", PROGRAM], check=False, capture_output=True)
    assert done.returncode == 0, done.stderr.decode()
