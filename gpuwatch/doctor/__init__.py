"""``gpuwatch doctor``: what a careful colleague would check where gpuwatch is to run."""
