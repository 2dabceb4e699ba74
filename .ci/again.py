"""Runs the few tests that failed once more, with nothing beside them.

Many tests start real processes and watch them live, on whatever machine there is. One that fails
among others and passes alone is unsteady: it is named (here and at the end of the run) and mended,
and holds up nobody. Exit code 0: all passed alone; 1: one failed again, or too many had failed.
"""

from __future__ import annotations

import subprocess
import sys
from pathlib import Path
from xml.etree import ElementTree

MOST = 5
"""More than these are no chance."""


def main(path: str) -> int:
    if not Path(path).read_text().strip():
        return 1
    failed = [
        f"{case.get('classname')}::{case.get('name')}"
        for case in ElementTree.parse(path).iter("testcase")
        if case.find("failure") is not None or case.find("error") is not None
    ]
    if not 0 < len(failed) <= MOST:
        print(f"{len(failed)} tests failed: not run again")
        return 1
    print(f"== {len(failed)} failed: once more, alone")
    options = ["-q", "--last-failed", "--last-failed-no-failures=none"]
    if subprocess.run([sys.executable, "-m", "pytest", *options], check=False).returncode != 0:
        return 1
    for one in failed:
        print(f"UNSTEADY (passed alone): {one}")
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1]))
