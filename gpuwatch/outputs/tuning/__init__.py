"""What ``gpuwatch tune`` and ``tune memory`` found, as text and charts."""
