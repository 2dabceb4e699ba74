"""One sampled stack, read: a category, and the line of the user's own code behind it."""

from collections.abc import Callable, Sequence
from typing import NamedTuple

from gpuwatch.jobs.stacks import categories
from gpuwatch.jobs.stacks.categories import Frame


class SourceLine(NamedTuple):
    """One line of a source file, or why it cannot be shown."""

    text: str | None = None
    why_not: str | None = None


NO_SOURCE = SourceLine()


class Seen(NamedTuple):
    category: str
    doing: str
    user: Frame | None
    caller: Frame | None


ReadLine = Callable[[str, int], SourceLine]
"""Reads a line of a file by its name as the process knows it. It is asked for raw names."""


def no_source(_file: str, _line: int) -> SourceLine:
    """For stacks whose files cannot be read."""
    return NO_SOURCE


def read_stack(frames: Sequence[Frame], read_line: ReadLine = no_source) -> Seen:
    """Category, what is done inside, the user's innermost line and the one that called it."""
    frames = frames[categories.begins_at(frames) :]
    leaf, shown = frames[-1], None
    # Torch's own files are known by name.
    is_known = categories.marks_of(leaf.file, leaf.function) or leaf.file.startswith("<")
    if leaf.line is not None and not is_known:
        text = read_line(leaf.file, leaf.line).text
        shown = None if text is None else categories.line_category(text)
    category = doing = categories.activity(frames, shown)
    if doing not in {"saving", "waiting_for_work"} and categories.is_evaluating(frames):
        category = "evaluating"
    user, caller = user_frames(frames)
    return Seen(category, doing, user, caller)


def user_frames(frames: Sequence[Frame]) -> tuple[Frame | None, Frame | None]:
    """The innermost frame of the user's own code, and the next one outwards that is behind a
    library's. A program that is installed itself counts as the user's if nothing else does."""
    own = [_is_own(frames, at) for at in range(len(frames))]
    if not any(own) and (frames[0].function == "<module>" or frames[0].file.startswith("<frozen")):
        package = next(filter(None, (categories.package_of(frame.file) for frame in frames)), "")
        own = [package != "" and frame.file.startswith(package) for frame in frames]
    if not any(own):
        return None, None
    innermost = len(own) - 1 - own[::-1].index(True)
    library = next((at for at in range(innermost, -1, -1) if not own[at]), 0)
    caller = next((frames[at] for at in range(library, -1, -1) if own[at]), None)
    return frames[innermost], caller if library < innermost and not own[library] else None


def _is_own(frames: Sequence[Frame], at: int) -> bool:
    file = frames[at].file
    if not categories.is_users(file) or categories.is_entry_point(file):
        return False
    # The command line of a process that multiprocessing started.
    begins = at + 1 < len(frames) and frames[at + 1].file.endswith("/multiprocessing/spawn.py")
    return not (file == "<string>" and begins)
