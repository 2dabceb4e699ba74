"""``gpuwatch run --log-to``: how busy a job kept its GPUs, in the tool that tracks experiments."""
