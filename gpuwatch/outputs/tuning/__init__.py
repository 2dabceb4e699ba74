"""What ``gpuwatch tune`` and ``tune memory`` found, as text, charts and JSON."""
