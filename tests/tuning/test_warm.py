"""Copies of a process that has imported PyTorch are what ``subprocess.Popen`` would have begun."""

from __future__ import annotations

import importlib.util
import json
import os
import signal
import sys
import types
from pathlib import Path
from typing import Any

import pytest

from tests.support.warm_torch import WarmTorch

pytestmark = pytest.mark.skipif(
    importlib.util.find_spec("torch") is None, reason="torch is not installed"
)

SAYS = """
import json, os, sys
print(json.dumps({
    "warm": "torch" in sys.modules, "pid": os.getpid(), "parent": os.getppid(),
    "session": os.getsid(0), "folder": os.getcwd(), "arguments": sys.argv[1:],
    "environment": dict(os.environ), "path": sys.path[0], "main": __name__,
    "open": [int(name) for name in os.listdir("/proc/self/fd")],
}))
print("and this", file=sys.stderr)
sys.exit(3)
"""


@pytest.fixture
def popen(warm_torch: WarmTorch) -> Any:
    module = types.ModuleType("starter")
    module.subprocess = __import__("subprocess")  # type: ignore[attr-defined]
    with warm_torch.instead_of(module):
        return module.subprocess


def test_a_copy_is_a_process_of_its_own(popen: Any, tmp_path: Path) -> None:
    """With the files, the folder, the environment and the arguments it was given, a session, and
    an exit code for the process that started it."""
    reading, writing = os.pipe()
    process = popen.Popen(
        [sys.executable, "-c", SAYS, "a b", "c"],
        stdin=popen.DEVNULL,
        stdout=popen.PIPE,
        stderr=popen.STDOUT,
        pass_fds=[writing],
        start_new_session=True,
        cwd=tmp_path,
        env={"ONE": "1"},
    )
    os.close(writing)
    os.close(reading)
    out, _ = process.communicate()
    first, second = out.decode().splitlines()
    said = json.loads(first)
    assert (process.returncode, second) == (3, "and this")
    assert said["warm"]
    assert said["pid"] == said["session"] == process.pid
    assert said["parent"] == os.getpid()
    assert (said["folder"], said["arguments"]) == (str(tmp_path), ["a b", "c"])
    assert (said["environment"], said["path"], said["main"]) == ({"ONE": "1"}, "", "__main__")
    # Without the one that it looked by.
    assert len(said["open"]) == 5
    assert {0, 1, 2, writing} < set(said["open"])


def test_a_copy_that_is_killed_says_so(popen: Any) -> None:
    """As any child does."""
    code = "import time; print(flush=True); time.sleep(1000)"
    with popen.Popen([sys.executable, "-c", code], stdout=popen.PIPE) as process:
        process.stdout.readline()
        assert process.poll() is None
        process.kill()
    assert process.returncode == -signal.SIGKILL
