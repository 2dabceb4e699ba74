"""One file a fault; the docstring of each is its documentation (``gpuwatch explain``)."""
