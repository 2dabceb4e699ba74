"""``gpuwatch tune``: measure a DataLoader with other settings, and the memory of a train step.

The process that a person types at imports neither torch nor the user's module: a measuring process
does (``child``), and is started anew where it crashes, hangs or runs out of memory (``bench``).
"""
