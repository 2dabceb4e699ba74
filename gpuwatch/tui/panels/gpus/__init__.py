"""GPUs: their numbers, limits and waveforms, in five densities."""
