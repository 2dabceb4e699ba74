"""Jobs that gpuwatch starts: their terminal, output, signals and end."""
