"""A recording's overview on the charts: half minutes in a history, findings on the time axis."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING

from gpuwatch.core.history import BLOCK_SECONDS, History

if TYPE_CHECKING:
    from gpuwatch.recording.buckets import Bucket

REACH_SECONDS = 12 * 3600.0
"""The longest range of the charts."""


def half_minutes(buckets: Iterable[Bucket], since: float) -> list[Bucket]:
    """Those from ``since`` (unix seconds) on; an overview has longer ones too."""
    return [
        bucket
        for bucket in buckets
        if bucket.seconds == BLOCK_SECONDS and bucket.begin_unix_seconds >= since
    ]


def take_blocks(history: History, blocks: Sequence[Bucket]) -> None:
    """Fill ``history`` with them."""
    for block in blocks:
        history.take_block(block.begin_unix_seconds, block.gpus, block.host)
