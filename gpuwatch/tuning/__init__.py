"""``gpuwatch tune``: which loader settings are fastest, and the largest batch that fits.

``Bench`` starts processes (``child``) that measure; ``Search`` decides what they measure.
"""
