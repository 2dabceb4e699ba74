"""``file.py:name`` or ``package.module:name``: finds what a user wants measured.

``load`` runs the user's module in this process, with ``sys.path`` and ``sys.argv`` as ``python
file.py`` would have them, so it is for measuring processes, never for the one that a person
types at. Torch comes with the user's own imports.
"""

import ast
import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

from gpuwatch.core.text import clean
from gpuwatch.tuning import failures
from gpuwatch.tuning.failures import MeasureError

NAMES_SHOWN = 8
NO_TORCH = (
    "PyTorch is not installed where gpuwatch runs: install it there "
    f"({clean(sys.executable, 200)} -m pip install torch), or install gpuwatch into your project's "
    "own environment."
)


class Place(NamedTuple):
    """A target before it is loaded: ``module`` is a path if ``is_file``, else a dotted name."""

    module: str
    name: str
    is_file: bool

    @property
    def shown(self) -> str:
        return clean(self.module, 200)


def parse(text: str) -> Place:
    """Return the two parts of a target, checked as far as can be without running anything.

    Raises ``MeasureError``: no colon, no such file, a folder, a name that is none.
    """
    shown = clean(text, 200)
    module, colon, name = text.rpartition(":")
    if not colon or not module or not _is_dotted(name):
        raise MeasureError(
            f"{shown!r} names no object: write file.py:name or package.module:name, for example "
            "train.py:loader."
        )
    is_file = module.endswith(".py") or os.sep in module
    if is_file:
        _require_file(module)
    elif not _is_dotted(module):
        raise MeasureError(
            f"{clean(module, 120)!r} is neither a file ending in .py nor a module's dotted name."
        )
    return Place(module, name, is_file)


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def _require_file(module: str) -> None:
    shown = clean(module, 200)
    try:
        with Path(module).open("rb"):
            pass
    except FileNotFoundError:
        raise MeasureError(f"There is no file {shown}.") from None
    except (OSError, ValueError) as error:
        why = str(getattr(error, "strerror", "it is no file's name")).lower()
        raise MeasureError(f"{shown} cannot be read: {why}.") from None


def load(text: str) -> Any:
    """Import the target's module (again only if it has not been) and take the object out of it.

    Changes ``sys.path`` and ``sys.argv`` of this process. Raises ``MeasureError`` for every way
    in which that can fail; of the user's exceptions only ``KeyboardInterrupt`` passes.
    """
    place = parse(text)
    found: Any = _imported(place)
    for part in place.name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise MeasureError(_no_such_name(place, found, part)) from None
        except Exception as error:
            raise MeasureError(
                f"{clean(place.name, 80)} of {place.shown} failed: {failures.described(error)}."
            ) from None
    return found


def _imported(place: Place) -> ModuleType:
    try:
        if place.is_file:
            return _import_file(Path(place.module))
        _first_on_path(str(Path.cwd()))
        sys.argv = [place.module]
        return importlib.import_module(place.module)
    except SystemExit as error:
        raise MeasureError(
            f"{place.shown} ended the program while it was imported"
            f"{failures.at(failures.own_line(error))}: put what trains or parses arguments under "
            "if __name__ == '__main__':."
        ) from None
    except ModuleNotFoundError as error:
        raise MeasureError(_missing(place, error)) from None
    except Exception as error:
        text = f"{place.shown} cannot be imported: {failures.described(error)}."
        if isinstance(error, ImportError) and place.is_file and "relative import" in str(error):
            text += " A file of a package is named as a module: package.module:name."
        raise MeasureError(text) from None


def _import_file(path: Path) -> ModuleType:
    full = path.resolve()
    _first_on_path(str(full.parent))
    sys.argv = [str(path)]
    name = full.stem
    known = sys.modules.get(name)
    if known is not None:
        if _file_of(known) == full:
            return known
        # A file may be called as a module that Python needs itself.
        name = f"gpuwatch_target_{name}"
    # With its own name in sys.modules: what it defines is pickled by that name, and a worker
    # that is spawned imports it by that name from the same sys.path.
    spec = importlib.util.spec_from_file_location(name, full)
    if spec is None or spec.loader is None:
        raise ImportError("its name does not end in .py")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _first_on_path(folder: str) -> None:
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file).resolve()


def _missing(place: Place, error: ModuleNotFoundError) -> str:
    name = error.name or "?"
    if not place.is_file and f"{place.module}.".startswith(f"{name}."):
        return (
            f"There is no module {clean(name, 120)} to be imported from "
            f"{clean(str(Path.cwd()), 200)} (as 'python -m' would): write file.py:name, or go to "
            "the folder that it is in."
        )
    if name.partition(".")[0] == "torch":
        return NO_TORCH
    return (
        f"{place.shown} needs the module {clean(name, 120)}, which this Python "
        f"({clean(sys.executable)}) does not have{failures.at(failures.own_line(error))}."
    )


def _no_such_name(place: Place, owner: object, part: str) -> str:
    shown = clean(part, 80)
    if not isinstance(owner, ModuleType):
        kind = clean(type(owner).__name__, 80)
        return f"{clean(place.name, 80)} of {place.shown}: {kind} has no attribute {shown!r}."
    line = _line_under_main(owner, part)
    if line is not None:
        return (
            f"{place.shown} has no {shown!r} when it is imported: line {line} makes it under if "
            "__name__ == '__main__':. Make it in a function that returns it, and name that."
        )
    has = [name for name, value in vars(owner).items()
           if not name.startswith("_") and not isinstance(value, ModuleType)]  # fmt: skip
    listed = ", ".join(clean(name, 60) for name in has[:NAMES_SHOWN])
    return f"{place.shown} has no {shown!r}{f'; it has {listed}' if listed else ''}."


def _line_under_main(module: ModuleType, name: str) -> int | None:
    """Return the line that binds ``name`` in the part that only runs as a program."""
    file = _file_of(module)
    try:
        tree = ast.parse(b"" if file is None else file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    for block in tree.body:
        if isinstance(block, ast.If) and "__main__" in ast.dump(block.test):
            for node in ast.walk(block):
                if isinstance(node, ast.Name) and node.id == name:
                    return node.lineno
    return None


# --- a train step ----------------------------------------------------------------------------


def make_step(found: object, text: str) -> Callable[[Any], object]:
    """Return the callable that does one step: what a target names, or, where that takes no
    argument at all, what it returns. Raises ``MeasureError``."""
    made = found
    if callable(found) and _is_factory(found):
        try:
            made = found()
        except Exception as error:
            raise MeasureError(f"{text}() failed: {failures.described(error)}.", "step") from None
    if not callable(made):
        raise MeasureError(
            f"{text}{'' if made is found else '()'} is {kind_of(made)}, not a train step: name a "
            "function that takes a batch, or one without arguments that returns such a function.",
            "step",
        )
    step: Callable[[Any], object] = made
    return step


def _is_factory(found: Callable[..., object]) -> bool:
    """True if it takes no positional argument, not even an optional one."""
    try:
        parameters = inspect.signature(found).parameters.values()
    except (TypeError, ValueError):
        return False
    return all(one.kind in (one.KEYWORD_ONLY, one.VAR_KEYWORD) for one in parameters)


def kind_of(found: object) -> str:
    """``a Linear``, ``an int``, ``None``."""
    if found is None:
        return "None"
    name = clean(type(found).__name__, 80)
    return f"{'an' if name[:1].lower() in 'aeiou' else 'a'} {name}"
