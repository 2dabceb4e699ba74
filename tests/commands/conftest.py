"""The command line, run in this process."""

import json
from collections.abc import Callable
from typing import Any, NamedTuple

import pytest

from gpuwatch.commands import cli


class Ran(NamedTuple):
    """What a command printed."""

    out: str
    err: str
    code: int

    @property
    def json(self) -> Any:
        return json.loads(self.out)

    @property
    def words(self) -> str:
        """With one space between two."""
        return " ".join(self.out.split())


Gpuwatch = Callable[..., Ran]


@pytest.fixture
def gpuwatch(capsys: pytest.CaptureFixture[str]) -> Gpuwatch:
    """``gpuwatch("report", "x", code=2)``: it must end with that code, 0 if none is given. What
    cannot be done (2) is said in a sentence, and nothing else is printed."""

    def ran(*arguments: str, code: int | None = 0) -> Ran:
        found = cli.run(arguments)
        out, err = capsys.readouterr()
        assert found == (found if code is None else code), err
        if found == 2:
            assert out == ""
            assert err.startswith("gpuwatch: ")
            assert "\x1b" not in err
            assert "Traceback" not in err
        return Ran(out, err, found)

    return ran
