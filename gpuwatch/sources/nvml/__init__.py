"""NVIDIA GPUs through NVML: which there are, what is read of each, when, and what errors mean."""
