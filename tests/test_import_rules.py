"""The direction of imports, as pyproject.toml states it for import-linter."""

from __future__ import annotations

import ast
from functools import cache
from pathlib import Path

import pytest

import gpuwatch

importlinter = pytest.importorskip("importlinter.application.use_cases")

PACKAGE = Path(gpuwatch.__file__).parent
PYPROJECT = PACKAGE.parent / "pyproject.toml"


@cache
def imported_roots(path: Path) -> set[str]:
    """The top-level packages a file imports anywhere in it, functions included."""
    roots = set()
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            roots.update(alias.name.split(".")[0] for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            roots.add(node.module.split(".")[0])
    return roots


@pytest.mark.skipif(not PYPROJECT.exists(), reason="needs the source tree")
def test_import_contracts_hold(capsys: pytest.CaptureFixture[str]) -> None:
    """Layers point one way, and the outer libraries stay where they belong."""
    from importlinter import configuration

    configuration.configure()
    kept = importlinter.lint_imports(config_filename=str(PYPROJECT), cache_dir=None)
    assert kept, capsys.readouterr().out


@pytest.mark.parametrize(
    ("library", "allowed"),
    [
        ("pynvml", ("sources/nvml/source",)),
        ("textual", ("tui/",)),
        ("rich", ("tui/",)),
        ("click", ("commands/",)),
    ],
)
def test_library_is_imported_in_one_place(library: str, allowed: tuple[str, ...]) -> None:
    """Also inside functions and under ``TYPE_CHECKING``, which an import graph may leave out."""
    users = {
        str(path.relative_to(PACKAGE))
        for path in PACKAGE.rglob("*.py")
        if library in imported_roots(path)
    }
    assert users
    assert {user for user in users if not user.startswith(allowed)} == set()
