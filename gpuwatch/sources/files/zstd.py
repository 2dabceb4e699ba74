"""The standard library's ``compression.zstd``, also where Python is older than that."""

import sys

if sys.version_info >= (3, 14):
    from compression.zstd import (
        CompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
        compress,
        decompress,
    )
else:
    from backports.zstd import (
        CompressionParameter,
        ZstdCompressor,
        ZstdDecompressor,
        ZstdError,
        compress,
        decompress,
    )

__all__ = [
    "CompressionParameter", "ZstdCompressor", "ZstdDecompressor", "ZstdError", "compress",
    "decompress",
]  # fmt: skip
