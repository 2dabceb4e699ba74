"""``record``, ``replay``, ``report``, ``compare`` and ``export``."""
