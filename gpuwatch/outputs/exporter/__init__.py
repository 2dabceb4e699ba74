"""``gpuwatch exporter``: what Prometheus is served."""
