"""``gpuwatch status`` and ``stream``: one snapshot as a page, CSV or JSON lines."""
