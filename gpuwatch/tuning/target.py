"""``file.py:name`` or ``package.module:name``: finds what a user wants measured.

``load`` runs the user's module in this process, with ``sys.path`` and ``sys.argv`` as ``python
file.py`` would have them, so it is for measuring processes, never for the one that a person
types at. Torch comes with the user's own imports.
"""

import importlib
import importlib.util
import inspect
import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from gpuwatch.core.text import clean
from gpuwatch.tuning import failures
from gpuwatch.tuning.failures import MeasureError

NAMES_SHOWN = 8
UNDER_MAIN = "under if __name__ == '__main__':"
NO_TORCH = (
    "PyTorch is not installed where gpuwatch runs: install it there "
    f"({clean(sys.executable, 200)} -m pip install torch), or install gpuwatch into your project's "
    "own environment."
)


def parse(text: str) -> tuple[str, str]:
    """Return module and name of a target, checked as far as can be without running anything.

    Raises ``MeasureError``: no colon, no such file, a folder, a name that is none.
    """
    module, _, name = text.rpartition(":")
    if not module or not _is_dotted(name):
        raise MeasureError(
            f"{clean(text, 200)!r} names no object: write file.py:name or package.module:name, for "
            "example train.py:loader."
        )
    if _is_file(module):
        try:
            with Path(module).open("rb"):
                pass
        except (OSError, ValueError) as error:
            why = str(getattr(error, "strerror", None) or error).lower()
            raise MeasureError(f"{clean(module, 200)} cannot be read: {why}.") from None
    elif not _is_dotted(module):
        raise MeasureError(
            f"{clean(module, 120)!r} is neither a file ending in .py nor a module's dotted name."
        )
    return module, name


def _is_file(module: str) -> bool:
    return module.endswith(".py") or os.sep in module


def _is_dotted(name: str) -> bool:
    return all(part.isidentifier() for part in name.split("."))


def load(text: str) -> Any:
    """Import the target's module (again only if it has not been) and take the object out of it.

    Changes ``sys.path`` and ``sys.argv`` of this process. Raises ``MeasureError`` for every way
    in which that can fail; of the user's exceptions only ``KeyboardInterrupt`` passes.
    """
    module, name = parse(text)
    shown, made, part = clean(module, 200), None, ""
    try:
        found: Any = _imported(module)
        for part in name.split("."):
            made = found
            found = getattr(made, part)
    except SystemExit as error:
        raise MeasureError(
            f"{shown} ended the program while it was imported"
            f"{failures.at(failures.own_line(error))}: put what trains or parses arguments "
            f"{UNDER_MAIN}."
        ) from None
    except Exception as error:
        if isinstance(error, AttributeError) and isinstance(made, ModuleType) and (
            not hasattr(made, part)):  # fmt: skip
            raise MeasureError(_no_such_name(shown, made, part)) from None
        if isinstance(error, ModuleNotFoundError) and (error.name or "").startswith("torch"):
            raise MeasureError(NO_TORCH) from None
        raise MeasureError(
            f"{shown} cannot be imported by {clean(sys.executable, 200)}: "
            f"{failures.described(error)}."
        ) from None
    return found


def _imported(module: str) -> ModuleType:
    path = Path(module).resolve()
    folder = str(path.parent) if _is_file(module) else str(Path.cwd())
    if sys.path[:1] != [folder]:
        sys.path.insert(0, folder)
    sys.argv = [module]
    if not _is_file(module):
        return importlib.import_module(module)
    name, known = path.stem, sys.modules.get(path.stem)
    if known is not None:
        if Path(getattr(known, "__file__", None) or "").resolve() == path:
            return known
        # A file may be called as a module that Python needs itself.
        name = f"gpuwatch_target_{name}"
    # With its own name in sys.modules: what it defines is pickled by that name, and a worker
    # that is spawned imports it by that name from the same sys.path.
    spec = importlib.util.spec_from_file_location(name, path)
    if spec is None or spec.loader is None:
        raise ImportError("its name does not end in .py")
    made = importlib.util.module_from_spec(spec)
    sys.modules[name] = made
    spec.loader.exec_module(made)
    return made


def _no_such_name(shown: str, module: ModuleType, part: str) -> str:
    has = [name for name, value in vars(module).items()
           if not name.startswith("_") and not isinstance(value, ModuleType)]  # fmt: skip
    listed = ", ".join(clean(name, 60) for name in has[:NAMES_SHOWN])
    return (
        f"{shown} has no {clean(part, 80)!r} when it is imported{f'; it has {listed}' * bool(has)}."
        f" What is made {UNDER_MAIN} is not there: make it in a function that returns it, and name "
        "that."
    )


# A train step


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
