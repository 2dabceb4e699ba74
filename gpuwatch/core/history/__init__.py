"""What was seen before: bounded, in tiers, ready to be drawn.

The newest thousand or so readings of a series are kept as they came. What is older is folded
into buckets of 1 s, 5 s and 30 s, each with its minimum, mean and maximum, so that an
oscillation of the last hours is still one and never a mean. A reading that was missing is a gap
and stays one in every tier. Times are the source's monotonic seconds.
"""

from gpuwatch.core.history.columns import Band, Column, bucket_index
from gpuwatch.core.history.machine import (
    GAP_INTERVALS,
    GPU_SERIES,
    HOST_SERIES,
    History,
    without_late,
)
from gpuwatch.core.history.series import LONGEST_SAMPLE_SECONDS, Series
from gpuwatch.core.history.tiers import BLOCK_SECONDS

__all__ = [
    "BLOCK_SECONDS", "GAP_INTERVALS", "GPU_SERIES", "HOST_SERIES", "LONGEST_SAMPLE_SECONDS", "Band",
    "Column", "History", "Series", "bucket_index", "without_late",
]  # fmt: skip
