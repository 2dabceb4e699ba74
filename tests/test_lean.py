"""Memory that is given back, and what stays."""

from __future__ import annotations

import subprocess
import sys


def _run(program: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_only_the_first_settling_counts() -> None:
    """A replay makes an engine for every moment that is gone to: what it shows then is to go."""
    program = """
import gc
from gpuwatch.core import lean

lean.settle()
before = gc.get_freeze_count()
shown = [[] for _ in range(10_000)]
lean.settle()
print("ok" if gc.get_freeze_count() <= before else "more stays")
"""
    assert _run(program) == "ok"


def test_what_is_settled_stays_and_new_garbage_goes() -> None:
    """Cycles that come later are still found."""
    program = """
import gc, weakref
from gpuwatch.core import lean

class Node:
    pass

lean.settle()
node = Node()
node.me = node
gone = weakref.ref(node)
del node
gc.collect()
assert gone() is None
assert gc.get_freeze_count() > 0
print("ok")
"""
    assert _run(program) == "ok"


def test_tidying_frees_what_has_become_old() -> None:
    """A cycle that outlived young collections goes, too, although nothing looks at old objects."""
    program = """
import gc, weakref
from gpuwatch.core import lean

class Node:
    pass

lean.settle()
node = Node()
node.me = node
gone = weakref.ref(node)
gc.collect(1)
del node
gc.collect(1)
assert gone() is not None
lean.tidy()
assert gone() is None
print("ok")
"""
    assert _run(program) == "ok"
