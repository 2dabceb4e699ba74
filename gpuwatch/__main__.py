"""Runs the command line: ``python -m gpuwatch``."""

from gpuwatch.cli import main

if __name__ == "__main__":
    main()
