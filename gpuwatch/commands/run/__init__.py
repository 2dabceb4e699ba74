"""``gpuwatch run`` and ``demo-job``: jobs that gpuwatch starts."""
