"""Colours of a terminal, and text of no more than ASCII."""

from collections.abc import Callable

BOLD, DIM, RED, YELLOW, CYAN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[36m"
COLOURS = {"error": RED, "warning": YELLOW, "info": CYAN}
"""Of a finding, by its severity."""
ASCII_FRAME = str.maketrans("┌┐└┘├┤┬┴┼─│", "+++++|+++-|")
"""For the frames of charts."""
_RESET = "\x1b[0m"
_ASCII = str.maketrans({"…": "~", "·": "-", "→": ">", "×": "x"})

Painter = Callable[[str, str], str]
"""Takes a text and its style; gives it painted, or as it is where there are no colours."""


def painter(colour: bool) -> Painter:
    return _painted if colour else _plain


def to_ascii(text: str) -> str:
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def _painted(text: str, style: str) -> str:
    return f"{style}{text}{_RESET}" if text and style else text


def _plain(text: str, _style: str) -> str:
    return text
