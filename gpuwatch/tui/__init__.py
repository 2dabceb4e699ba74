"""The Textual dashboard."""

import sys
from types import ModuleType
from typing import Any


class _Unused(ModuleType):
    """Textual's command palette, which nothing here opens (ours is a menu). The real one would load
    nine widgets: 1.2 MiB, and a tenth of the time to the first picture."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return type(name, (), {})


sys.modules.setdefault("textual.command", _Unused("textual.command"))
