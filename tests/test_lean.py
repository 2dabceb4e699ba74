"""What the dashboard does without, and that all works without it."""

from __future__ import annotations

import hashlib
import inspect
import re
import subprocess
import sys

from gpuwatch.core import lean

_WITHOUT = """
import sys
from gpuwatch.core import lean

with lean.without_openssl():
    import asyncio
    import hashlib
assert not {"ssl", "_ssl", "_hashlib"} & sys.modules.keys(), "OpenSSL was loaded"

async def answer():
    await asyncio.sleep(0)
    return hashlib.sha256(b"").hexdigest()[:8]

assert asyncio.run(answer()) == "e3b0c442"
import ssl
print(ssl.OPENSSL_VERSION.split()[0])
"""

_DASHBOARD = """
import sys
from gpuwatch.commands import cli; from gpuwatch.core import lean

cli._require_terminal = lambda: None
import gpuwatch.commands.common

def run(*_, **__):
    print(sorted({"_ssl", "_hashlib"} & sys.modules.keys()))
    return 0

with lean.without_openssl():
    import gpuwatch.tui.dashboard
gpuwatch.tui.dashboard.run_dashboard = run
cli.cli.main(["--demo"], standalone_mode=False)
"""


def _run(program: str) -> str:
    command = [sys.executable, "-c", program]
    done = subprocess.run(command, check=False, capture_output=True, text=True)
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


def test_without_openssl_the_rest_works() -> None:
    """An event loop runs, a hash is right, and who asks for OpenSSL later gets it."""
    assert _run(_WITHOUT) in ("OpenSSL", "LibreSSL")


def test_the_dashboard_starts_without_openssl() -> None:
    """Nothing it loads before or with the interface needs it: 4 MiB of memory."""
    assert _run(_DASHBOARD) == "[]"


def test_all_of_pythons_own_hashes_must_be_there() -> None:
    """Those that ``hashlib`` of this Python looks for when there is no OpenSSL."""
    wanted = set(re.findall(r"^ +(?:import|from) (_\w+)", inspect.getsource(hashlib), re.M))
    assert wanted - {"_hashlib"} == set(lean.HASHES)


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
