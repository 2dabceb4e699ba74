"""What people and programs put around a log that they paste: quotes (``> ``), indentation, comment
signs, code fences, colours, and the command line that made it.
"""

import re
from collections.abc import Iterable, Iterator

_QUOTED = re.compile(r"[ \t>]*")
_COMMENTED = re.compile(r"[ \t>#]*")
"""A heading of dmon begins with ``#`` itself."""
_ESCAPE = re.compile(
    r"\x1b(?:\[[0-?]*[ -/]*[@-~]|\][^\x07\x1b]*(?:\x07|\x1b\\)?|[ -/]*[0-OQ-WYZ\\`-~])|[\x0e\x0f]"
)
"""ECMA-48: colours and moves of the cursor, titles of windows, character sets."""
_QUERY = re.compile(r"--query-gpu(?:=|\s+)(?:\"([^\"]*)\"|'([^']*)'|(\S+))")


def around(line: str, *, comments: bool = False) -> str:
    """What stands before the text of ``line``; ``comments``: signs of a comment, too."""
    found = (_COMMENTED if comments else _QUOTED).match(line)
    return "" if found is None else found[0]


def without_escapes(line: str) -> str:
    return _ESCAPE.sub("", line) if "\x1b" in line else line


def unwrapped(lines: Iterable[str], before: str) -> Iterator[str]:
    """``lines`` without escape codes, and without ``before`` where they begin with it or with a
    part of it (an editor takes the space from an empty line); other lines stay as they are."""
    part = re.compile(f"[ \t>#]{{0,{len(before)}}}")
    for raw in lines:
        line = without_escapes(raw)
        yield line[len(before) :] if line.startswith(before) else part.sub("", line, count=1)


def query_columns(line: str) -> tuple[str, ...]:
    """The columns that a command line of ``nvidia-smi`` asks for; empty for any other line."""
    found = _QUERY.search(line)
    if found is None:
        return ()
    text = next(filter(None, found.groups()), "").strip("\"',])`;")
    return tuple([name.strip() for name in text.split(",")]) if text else ()
