"""The process table: who uses the GPUs, and the children that feed them."""
