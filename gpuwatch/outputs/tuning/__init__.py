"""Results of ``gpuwatch tune`` and ``tune memory``, as text and charts."""
