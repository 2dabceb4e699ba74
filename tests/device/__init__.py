"""What gpuwatch says on a real GPU, held against what was done to it (see README.md)."""
