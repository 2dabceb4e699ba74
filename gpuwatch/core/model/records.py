"""Dataclasses of which hundreds are made every second."""

import dataclasses
from typing import TYPE_CHECKING, Any

__all__ = ["dataclass"]

if TYPE_CHECKING:
    from dataclasses import dataclass
else:

    def dataclass(*, frozen: bool = False, **options: Any) -> Any:
        """As that of the standard library. What is frozen is held to that by the type checker
        alone: at run time it would make an object four times as dear to make."""
        return dataclasses.dataclass(unsafe_hash=frozen, **options)
