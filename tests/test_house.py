"""How large files, classes and folders may be, and that no imports go in a circle.

python -m tests.test_house      # prints the sizes
"""

import ast
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import gpuwatch

PACKAGE = Path(gpuwatch.__file__).parent
TESTS = Path(__file__).parent
FILE_LINES_MAX = 350
CLASS_LINES_MAX = 250
FOLDER_ENTRIES_MAX = 12
PACKAGE_LINES_MAX = 69_248
"""It is to become 45,000."""
TESTS_LINES_MAX = 50_484
"""They are to become 36,000."""


FILES = sorted(PACKAGE.rglob("*.py"))


def name_of(path: Path) -> str:
    return str(path.relative_to(PACKAGE))


def lines_in(path: Path) -> int:
    return len(path.read_text().splitlines())


def file_sizes() -> dict[str, int]:
    """Lines per file."""
    return {name_of(path): lines_in(path) for path in FILES}


def lines_of_tests() -> int:
    return sum(lines_in(path) for path in TESTS.rglob("*.py"))


def class_sizes() -> dict[str, int]:
    """Lines per class."""
    return {
        f"{name_of(path)}:{node.name}": (node.end_lineno or node.lineno) - node.lineno + 1
        for path in FILES
        for node in ast.walk(ast.parse(path.read_text()))
        if isinstance(node, ast.ClassDef)
    }


def folder_sizes() -> dict[str, int]:
    """Entries per folder, beside its ``__init__.py``."""
    return Counter(
        name_of(path.parent)
        for path in PACKAGE.rglob("*")
        if (path.suffix == ".py" and path.name != "__init__.py")
        or (path.is_dir() and (path / "__init__.py").exists())
    )


def import_circles() -> set[frozenset[str]]:
    names = {module_name(path): path for path in FILES}
    return circles({name: set(imported(path, set(names))) - {name} for name, path in names.items()})


def over(sizes: dict[str, int], limit: int) -> dict[str, int]:
    """What is larger than it may be."""
    return {name: size for name, size in sizes.items() if size > limit}


def test_the_package_does_not_grow() -> None:
    """All lines of the package together stay within their limit."""
    assert sum(file_sizes().values()) <= PACKAGE_LINES_MAX


def test_the_tests_do_not_grow() -> None:
    """All lines of the tests together stay within their limit."""
    assert lines_of_tests() <= TESTS_LINES_MAX


def test_files_are_short() -> None:
    """No file is longer than its limit."""
    assert over(file_sizes(), FILE_LINES_MAX) == {}


def test_classes_are_short() -> None:
    """No class is longer than its limit."""
    assert over(class_sizes(), CLASS_LINES_MAX) == {}


def test_folders_are_small() -> None:
    """No folder has more than twelve entries, beside its ``__init__.py``."""
    assert over(folder_sizes(), FOLDER_ENTRIES_MAX) == {}


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


def main() -> None:
    """Print the sizes beside their limits."""
    files, classes, folders = file_sizes(), class_sizes(), folder_sizes()
    totals: Counter[str] = Counter()
    for name, lines in files.items():
        totals[name.partition("/")[0] if "/" in name else ""] += lines
    for folder, lines in sorted(totals.items()):
        print(f"{lines:7,} gpuwatch/{folder}")
    print(f"{sum(files.values()):7,} gpuwatch")
    print(f"{lines_of_tests():7,} tests")
    for what, sizes, limit in (
        ("lines in a file", files, FILE_LINES_MAX),
        ("lines in a class", classes, CLASS_LINES_MAX),
        ("entries in a folder", folders, FOLDER_ENTRIES_MAX),
    ):
        largest = max(sizes, key=lambda name: sizes[name])
        beyond = len(over(sizes, limit))
        print(f"{what}: {limit} allowed, {beyond} over it, at most {sizes[largest]} ({largest})")
    print(f"import circles: {len(import_circles())}")


if __name__ == "__main__":
    main()
