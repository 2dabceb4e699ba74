"""Makes untrusted text safe to show.

Process names, command lines, user names and driver strings are written by anyone who can
start a process. Nothing in them may reach a terminal as a control sequence: ``clean`` is the
one door they pass, and every source calls it before a string enters the model.
"""

import os
from collections.abc import Iterator
from itertools import groupby
from pathlib import PurePath

REPLACEMENT = "\N{REPLACEMENT CHARACTER}"


class SentenceError(Exception):
    """Refusal of what was asked for: a sentence for a person, and a command's exit code."""

    def __init__(self, sentence: str, exit_code: int = 2) -> None:
        super().__init__(sentence)
        self.exit_code = exit_code


def clean(text: str, limit: int = 4096) -> str:
    """Return ``text`` with everything a terminal could obey made visible and harmless.

    White space of any kind becomes one space. Any other character that holds no picture of its
    own and changes what surrounds it (not printable: control characters, bidirectional overrides
    and other formats, bytes that are not UTF-8, private use) becomes U+FFFD, and what is longer
    than ``limit`` characters is cut with an ellipsis. Markup is not touched: the screens never
    parse it.
    """
    cut = len(text) > limit
    if cut:
        text = text[: limit - 1]
    if not text.isprintable():
        text = "".join(
            [one if one.isprintable() else " " if one.isspace() else REPLACEMENT for one in text]
        )
    return text + "…" if cut else text


def bug_place(error: BaseException) -> str:
    """Return ``KeyError in nvml_parse.py line 88``, where it was raised. Without its own words,
    which can quote whatever was read: a command line, a path, a name."""
    what = type(error).__name__
    if isinstance(error, OSError) and error.errno is not None:
        what += f" ({os.strerror(error.errno)})"
    trace = error.__traceback__
    while trace is not None and trace.tb_next is not None:
        trace = trace.tb_next
    if trace is None:
        return what
    file = PurePath(trace.tb_frame.f_code.co_filename).name
    return f"{what} in {file} line {trace.tb_lineno}"


def paragraphs(docstring: str) -> Iterator[tuple[str, str]]:
    """Indent and text of each heading and paragraph; no text: a blank line."""

    def indent(line: str) -> str:
        # A line without words has one of its own.
        return line[: len(line) - len(line.lstrip())] if line else "\n"

    for before, lines in groupby(docstring.splitlines(), indent):
        yield before, " ".join(lines).strip()
