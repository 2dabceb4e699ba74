"""A target is found, or a sentence says why not."""

import re
import sys
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.target import load, parse


@pytest.fixture(autouse=True)
def as_a_program(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each test has a folder, a path, arguments and modules of its own."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", list(sys.path))
    monkeypatch.setattr(sys, "argv", ["pytest"])
    monkeypatch.setattr(sys, "dont_write_bytecode", True)
    before = set(sys.modules)
    for name in ("train", "parts", "package"):
        assert name not in before
    monkeypatch.setattr(sys, "modules", dict(sys.modules))


def refused(text: str) -> str:
    with pytest.raises(MeasureError) as caught:
        load(text)
    assert "\x1b" not in str(caught.value)
    assert "Traceback" not in str(caught.value)
    return str(caught.value)


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("train.py", "write file.py:name"),
        ("train.py:", "write file.py:name"),
        ("train.py:a b", "names no object"),
        ("missing.py:loader", "missing.py cannot be read: no such file"),
        (".:loader", "neither a file"),
        ("./:loader", "is a directory"),
        ("\x1b[31m.py:loader", "no such file"),
    ],
)
def test_text_that_names_nothing(text: str, says: str) -> None:
    """What cannot be a target is refused before anything is run, without its control characters."""
    with pytest.raises(MeasureError, match=says) as caught:
        parse(text)
    assert "\x1b" not in str(caught.value)


def test_file_and_module_are_imported_as_a_program_would_be(tmp_path: Path) -> None:
    """Modules beside the file are found, its arguments are its name alone, and a dotted name is
    looked for where ``python -m`` would look."""
    for folder in ("project", "package"):
        Path(folder).mkdir()
    Path("project/parts.py").write_text("value = [1, 2]")
    Path("project/train.py").write_text("import parts\nclass A:\n    value = parts.value\n")
    Path("package/data.py").write_text("loader = 'here'")
    found: Any = load("project/train.py:A.value")
    assert found == [1, 2]
    assert sys.argv == ["project/train.py"]
    assert sys.path[0] == str(tmp_path / "project")
    assert load("package.data:loader") == "here"


@pytest.mark.parametrize(
    ("code", "says"),
    [
        ("x = 1\nraise ValueError('bad\x1b[2J')", "ValueError: bad\ufffd.2J at train.py:2"),
        ("def f(:\n", "SyntaxError: .* at train.py:1"),
        ("import sys\nsys.exit(3)", "ended the program .*train.py:2.*__main__"),
        ("import missing_module", "No module named 'missing_module' at train.py:1"),
        ("other = 1\nloadre = 2", "has no 'loader' when it is imported; it has other, loadre"),
        ("if __name__ == '__main__':\n    loader = 1", "under if __name__ == '__main__': is not"),
    ],
)
def test_failed_import_names_the_own_line(code: str, says: str) -> None:
    """Every way an import fails is one sentence with the user's own line."""
    Path("train.py").write_text(code)
    sentence = refused("train.py:loader")
    assert re.search(says, sentence), sentence


def test_file_called_as_a_module_in_use() -> None:
    """A file with the name of a module that is loaded already does not replace it."""
    Path("json.py").write_text("loader = 'mine'")
    assert load("json.py:loader") == "mine"
    assert "No module named 'nowhere'" in refused("nowhere.data:loader")
