"""``file.py:name`` or ``package.module:name``: finds what a user wants measured.

``load`` runs the user's module in this process, with ``sys.path`` and ``sys.argv`` as ``python
file.py`` would have them, so it is for measuring processes, never for the one that a person
types at. Standard library only: torch comes with the user's own imports.
"""

from __future__ import annotations

import ast
import difflib
import importlib
import importlib.util
import os
import sys
from dataclasses import dataclass
from pathlib import Path
from types import ModuleType
from typing import Any

from gpuwatch.core.text import clean
from gpuwatch.tuning.child import blame

NAMES_SHOWN = 8


class TargetError(Exception):
    """A target cannot be had; the message is a sentence for a person."""


@dataclass(frozen=True, slots=True)
class Place:
    """A target before it is loaded: ``module`` is a path if ``is_file``, else a dotted name."""

    text: str
    module: str
    name: str
    is_file: bool


@dataclass(frozen=True, slots=True)
class Target:
    """What was asked for and the object found there."""

    text: str
    found: Any


def parse(text: str) -> Place:
    """The two parts of a target, checked as far as can be without running anything.

    Raises ``TargetError``: no colon, no such file, a folder, a name that is none.
    """
    shown = clean(text, 200)
    module, colon, name = text.rpartition(":")
    if not colon or not module or not name:
        raise TargetError(
            f"{shown!r} names no object: write file.py:name or package.module:name, for example "
            "train.py:loader."
        )
    if not all(part.isidentifier() for part in name.split(".")):
        raise TargetError(f"{clean(name, 80)!r} in {shown!r} is not a Python name.")
    is_file = module.endswith(".py") or os.sep in module
    if is_file:
        _require_file(module)
    elif not all(part.isidentifier() for part in module.split(".")):
        raise TargetError(
            f"{clean(module, 120)!r} is neither a file ending in .py nor a module's dotted name."
        )
    return Place(text=text, module=module, name=name, is_file=is_file)


def _require_file(module: str) -> None:
    shown = clean(module, 200)
    try:
        path = Path(module)
        if path.is_dir():
            raise TargetError(f"{shown} is a folder: name a file in it.")
        if not path.exists():
            raise TargetError(f"There is no file {shown}.")
        with path.open("rb"):
            pass
    except ValueError:
        raise TargetError(f"{shown!r} cannot be a file's name.") from None
    except OSError as error:
        raise TargetError(f"{shown} cannot be read: {error.strerror}.") from None


def load(text: str) -> Target:
    """Import the target's module (again only if it has not been) and take the object out of it.

    Changes ``sys.path`` and ``sys.argv`` of this process. Raises ``TargetError`` for every way
    in which that can fail; of the user's exceptions only ``KeyboardInterrupt`` passes.
    """
    place = parse(text)
    module = _import(place)
    found: Any = module
    for part in place.name.split("."):
        try:
            found = getattr(found, part)
        except AttributeError:
            raise TargetError(_no_such_name(place, found, part)) from None
        except Exception as error:
            raise TargetError(
                f"{clean(place.name, 80)} of {_shown(place)} failed: {blame.told(error)}."
            ) from None
    return Target(text=text, found=found)


def _import(place: Place) -> ModuleType:
    try:
        return _import_file(Path(place.module)) if place.is_file else _import_name(place.module)
    except TargetError:
        raise
    except SystemExit as error:
        line = blame.own_line(error)
        raise TargetError(
            f"{_shown(place)} ended the program while it was imported"
            f"{f' ({line})' if line else ''}: put what trains or parses arguments under "
            "if __name__ == '__main__':."
        ) from None
    except ModuleNotFoundError as error:
        raise TargetError(_not_found(place, error)) from None
    except ImportError as error:
        raise TargetError(_import_failed(place, error)) from None
    except Exception as error:
        raise TargetError(f"{_shown(place)} cannot be imported: {blame.told(error)}.") from None


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
        raise TargetError(f"{clean(str(path), 200)} is no Python file: its name ends in .py.")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException:
        sys.modules.pop(name, None)
        raise
    return module


def _import_name(name: str) -> ModuleType:
    _first_on_path(str(Path.cwd()))
    sys.argv = [name]
    return importlib.import_module(name)


def _first_on_path(folder: str) -> None:
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)


def _file_of(module: ModuleType) -> Path | None:
    file = getattr(module, "__file__", None)
    return None if file is None else Path(file).resolve()


def _shown(place: Place) -> str:
    return clean(place.module, 200)


def _not_found(place: Place, error: ModuleNotFoundError) -> str:
    missing = clean(error.name or "?", 120)
    named = not place.is_file and (
        place.module == error.name or place.module.startswith(f"{error.name}.")
    )
    if named:
        return (
            f"There is no module {missing} to be imported from {clean(str(Path.cwd()), 200)} (as "
            "'python -m' would): write file.py:name, or go to the folder that it is in."
        )
    if (error.name or "").partition(".")[0] == "torch":
        return NO_TORCH
    line = blame.own_line(error)
    return (
        f"{_shown(place)} needs the module {missing}, which this Python ({clean(sys.executable)}) "
        f"does not have{f' ({line})' if line else ''}."
    )


NO_TORCH = (
    "PyTorch is not installed where gpuwatch runs: install it there "
    f"({clean(sys.executable, 200)} -m pip install torch), or install gpuwatch into your project's "
    "own environment."
)


def _import_failed(place: Place, error: ImportError) -> str:
    text = f"{_shown(place)} cannot be imported: {blame.told(error)}."
    if place.is_file and "relative import" in str(error):
        path = Path(place.module)
        text += (
            " A file of a package is named as a module, from the folder above the package: "
            f"{clean(path.resolve().parent.name, 80)}.{clean(path.stem, 80)}:"
            f"{clean(place.name, 80)}."
        )
    return text


def _no_such_name(place: Place, owner: object, part: str) -> str:
    shown = clean(part, 80)
    if not isinstance(owner, ModuleType):
        return (
            f"{clean(place.name, 80)} of {_shown(place)}: {clean(type(owner).__name__, 80)} has no "
            f"attribute {shown!r}."
        )
    where = _only_in_main(owner, part)
    if where is not None:
        return (
            f"{_shown(place)} has no {shown!r} when it is imported: line {where} makes it under if "
            "__name__ == '__main__':. Make it in a function that returns it, and name that."
        )
    names = [name for name in vars(owner) if not name.startswith("_")]
    close = difflib.get_close_matches(part, names, 3, 0.5)
    has = close or [n for n in names if not isinstance(getattr(owner, n, None), ModuleType)]
    listed = ", ".join(clean(name, 60) for name in has[:NAMES_SHOWN])
    return f"{_shown(place)} has no {shown!r}{f'; it has {listed}' if listed else ''}."


def _only_in_main(module: ModuleType, name: str) -> int | None:
    """The line that binds ``name`` in the part that only runs as a program."""
    file = _file_of(module)
    if file is None:
        return None
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return None
    for block in tree.body:
        if isinstance(block, ast.If) and "__main__" in ast.dump(block.test):
            for node in ast.walk(block):
                if isinstance(node, ast.Name) and node.id == name:
                    return node.lineno
    return None
