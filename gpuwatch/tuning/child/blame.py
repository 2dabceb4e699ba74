"""Which of a user's own lines an exception comes from, and the sentence about it.

Standard library only (and ``gpuwatch.core.text``): measuring processes import it before torch.
"""

from __future__ import annotations

import os
import re
import sysconfig
import traceback
from pathlib import Path
from types import TracebackType

from gpuwatch.core.text import clean

MESSAGE_LENGTH = 300
_ADDRESS = re.compile(r"(?<=\w) at 0x[0-9a-f]{6,}")
"""Of an object: it tells nothing, and is another one each time."""


def installed_folders() -> tuple[str, ...]:
    """Where code lies that is not the user's own: the interpreter's, gpuwatch's."""
    found = [sysconfig.get_path(name) for name in ("stdlib", "platstdlib")]
    found.append(str(Path(__file__).parents[2]))
    return tuple({os.path.realpath(one) + os.sep for one in found if one})


def is_own(file: str) -> bool:
    """Whether ``file`` (of a frame) is the user's own code."""
    if file.startswith("<"):
        return False
    real = os.path.realpath(file)
    # Packages may also come from a virtual environment that this one builds on.
    installed = any(f"{os.sep}{name}-packages{os.sep}" in real for name in ("site", "dist"))
    return not installed and not real.startswith(installed_folders())


def own_line(error: BaseException) -> str | None:
    """``train.py:42`` of the innermost frame that is the user's own code; ``None``: none is.

    A syntax error is where it stands. The name is relative to the working folder if inside it.
    """
    if isinstance(error, SyntaxError) and error.filename and is_own(error.filename):
        return f"{shown_path(error.filename)}:{error.lineno}"
    return line_of(error.__traceback__)


def line_of(trace: TracebackType | None) -> str | None:
    for frame in reversed(traceback.extract_tb(trace)):
        if is_own(frame.filename):
            return f"{shown_path(frame.filename)}:{frame.lineno}"
    return None


def shown_path(file: str) -> str:
    try:
        path = Path(file).resolve()
        return clean(str(path.relative_to(Path.cwd())), 200)
    except (OSError, ValueError):
        return clean(file, 200)


def told(error: BaseException) -> str:
    """``ValueError: bad label at train.py:42``: what happened and the user's own line."""
    line = own_line(error)
    return f"{named(error)}{f' at {line}' if line else ''}"


def named(error: BaseException) -> str:
    """``ValueError: bad label``, without what a terminal could obey."""
    if isinstance(error, SyntaxError):
        text = error.msg or ""
    else:
        try:
            text = str(error)
        except Exception:
            text = ""
    name = clean(type(error).__name__, 80)
    message = clean(_ADDRESS.sub("", " ".join(text.split())), MESSAGE_LENGTH)
    return f"{name}: {message}" if message else name
