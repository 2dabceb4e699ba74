"""No imports go in a circle."""

import ast
from collections.abc import Iterator
from pathlib import Path

import gpuwatch

PACKAGE = Path(gpuwatch.__file__).parent

FILES = sorted(PACKAGE.rglob("*.py"))


def import_circles() -> set[frozenset[str]]:
    names = {module_name(path): path for path in FILES}
    return circles({name: set(imported(path, set(names))) - {name} for name, path in names.items()})


def test_no_import_circle() -> None:
    """Files import each other in no circle, not even inside functions or for types alone."""
    assert import_circles() == set()


def module_name(path: Path) -> str:
    parts = [PACKAGE.name, *path.relative_to(PACKAGE).with_suffix("").parts]
    return ".".join(parts[:-1] if parts[-1] == "__init__" else parts)


def imported(path: Path, names: set[str]) -> Iterator[str]:
    for node in ast.walk(ast.parse(path.read_text())):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names if alias.name in names)
        elif isinstance(node, ast.ImportFrom) and node.module:
            for alias in node.names:
                full = f"{node.module}.{alias.name}"
                if full in names or node.module in names:
                    yield full if full in names else node.module


def circles(graph: dict[str, set[str]]) -> set[frozenset[str]]:
    """The groups of more than one file in which each reaches each other."""

    def reached(start: str) -> set[str]:
        seen: set[str] = set()
        waiting = [start]
        while waiting:
            for name in graph[waiting.pop()] - seen:
                seen.add(name)
                waiting.append(name)
        return seen

    reach = {name: reached(name) for name in graph}
    groups = (frozenset(other for other in reach[name] if name in reach[other]) for name in graph)
    return {group for group in groups if len(group) > 1}
