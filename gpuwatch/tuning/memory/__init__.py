"""``gpuwatch tune memory``: how memory grows with the batch size, and the largest that fits."""
