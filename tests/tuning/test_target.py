"""A target is found, or a sentence says why not."""

import json
from pathlib import Path

import pytest

from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.target import parse
from tests.support.children import ran

ASK = (
    "import sys, json\n"
    "from gpuwatch.tuning.target import load\n"
    "from gpuwatch.tuning.failures import MeasureError\n"
    "try:\n    print(json.dumps(['found', repr(load(sys.argv[1])), sys.argv, sys.path[0]]))\n"
    "except MeasureError as error:\n    print(json.dumps(['error', str(error)]))\n"
)


def ask(folder: Path, text: str) -> list[str]:
    """What ``load`` says in a process of its own, started in ``folder``."""
    root = str(Path(__file__).parents[2])
    done = ran("-c", f"import sys; sys.path[0] = {root!r}\n{ASK}", text, cwd=folder)
    return list(json.loads(done.stdout.splitlines()[-1]))


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("train.py", "write file.py:name"),
        ("train.py:", "write file.py:name"),
        ("train.py:a b", "names no object"),
        ("missing.py:loader", "There is no file missing.py"),
        (".:loader", "neither a file"),
        ("./:loader", "is a directory"),
        ("a b:loader", "neither a file"),
        ("\x1b[31m.py:loader", "There is no file"),
    ],
)
def test_text_that_names_nothing(
    text: str, says: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What cannot be a target is refused before anything is run, without its control characters."""
    monkeypatch.chdir(tmp_path)
    with pytest.raises(MeasureError, match=says) as caught:
        parse(text)
    assert "\x1b" not in str(caught.value)


def test_file_is_imported_as_a_program_would_be(tmp_path: Path) -> None:
    """Modules beside the file are found, and its arguments are its name alone."""
    folder = tmp_path / "project"
    folder.mkdir()
    (folder / "parts.py").write_text("value = [1, 2]")
    (folder / "train.py").write_text("import parts\nclass A:\n    value = parts.value\n")
    found = ask(tmp_path, "project/train.py:A.value")
    assert found[:3] == ["found", "[1, 2]", ["project/train.py"]]
    assert found[3] == str(folder)


def test_module_is_imported_from_here(tmp_path: Path) -> None:
    """A dotted name is looked for where ``python -m`` would look."""
    (tmp_path / "package").mkdir()
    (tmp_path / "package" / "data.py").write_text("loader = 'here'")
    assert ask(tmp_path, "package.data:loader")[1] == "'here'"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("x = 1\nraise ValueError('bad\\x1b[2J')", "ValueError: bad\ufffd.2J at train.py:2"),
        ("def f(:\n", "SyntaxError: .* at train.py:1"),
        ("import sys\nsys.exit(3)", "ended the program .*train.py:2.*__main__"),
        ("import missing_module", "needs the module missing_module"),
        ("from . import parts", "named as a module"),
        ("other = 1\nloadre = 2", "has no 'loader'; it has other, loadre"),
        ("if __name__ == '__main__':\n    loader = 1", "line 2 makes it under if __name__"),
    ],
)
def test_failed_import_names_the_own_line(code: str, says: str, tmp_path: Path) -> None:
    """Every way an import fails is one sentence with the user's own line."""
    import re

    (tmp_path / "train.py").write_text(code)
    kind, sentence = ask(tmp_path, "train.py:loader")
    assert kind == "error"
    assert re.search(says, sentence), sentence
    assert "Traceback" not in sentence


def test_unknown_module_says_where_it_looked(tmp_path: Path) -> None:
    """A module that is not there is not confused with one that it imports."""
    assert "There is no module nowhere" in ask(tmp_path, "nowhere.data:loader")[1]


def test_file_called_as_a_module_in_use(tmp_path: Path) -> None:
    """A file with the name of a module that is loaded already does not replace it."""
    (tmp_path / "json.py").write_text("loader = 'mine'")
    assert ask(tmp_path, "json.py:loader")[1] == "'mine'"
