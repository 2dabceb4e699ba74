"""Runs the command line: ``python -m gpuwatch``."""

import os
import sys

# python -m puts the current folder first, where a file could stand in for any module.
if not sys.flags.safe_path and sys.path[0] == os.path.realpath("/proc/self/cwd"):
    del sys.path[0]

from gpuwatch.commands.cli import main

if __name__ == "__main__":
    main()
