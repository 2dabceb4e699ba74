"""gpuwatch: a terminal dashboard that says why a GPU sits idle."""

__version__ = "0.1.0"
