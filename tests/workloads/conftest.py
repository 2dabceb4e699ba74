"""PyTorch is imported once for all practice jobs that tests start from here."""

from __future__ import annotations

from tests.support.warm_torch import warm_torch

__all__ = ["warm_torch"]
