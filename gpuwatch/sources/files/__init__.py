"""Text files that anyone wrote: plain, compressed, damaged or in several parts. ``zstd`` is the
standard library's, also where Python is older than that."""

import sys

if sys.version_info >= (3, 14):
    from compression import zstd
else:
    from backports import zstd

__all__ = ["zstd"]
