"""``gpuwatch tune`` and ``tune memory``."""
