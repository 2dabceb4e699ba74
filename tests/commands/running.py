"""``gpuwatch run`` as a program of its own, for tests."""

import contextlib
import os
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.support.children import ran
from tests.tui.terminal.pseudo_terminal import clean_environment

ROOT = Path(__file__).resolve().parents[2]

GPUWATCH_RUN = (sys.executable, "-m", "gpuwatch", "run")


def environment_in(folder: Path) -> dict[str, str]:
    """This one, quiet, and with whatever gpuwatch keeps below ``folder``."""
    return {**clean_environment(), "XDG_STATE_HOME": str(folder / "state"), "PYTHONPATH": str(ROOT)}


def program(*arguments: str, **settings: Any) -> subprocess.CompletedProcess[str]:
    """The real program, with no terminal anywhere."""
    return ran("-m", "gpuwatch", *arguments, **settings)


def start(
    folder: Path,
    *arguments: str | bytes,
    environment: dict[str, str] | None = None,
    **options: object,
) -> subprocess.Popen[bytes]:
    """``gpuwatch run ARGUMENTS`` in ``folder``, with pipes and without a controlling terminal."""
    given = {
        "stdin": subprocess.PIPE,
        "stdout": subprocess.PIPE,
        "stderr": subprocess.PIPE,
        "start_new_session": True,
        "cwd": folder,
        "env": environment_in(folder) if environment is None else environment,
        **options,
    }
    return subprocess.Popen([*GPUWATCH_RUN, *arguments], **given)  # type: ignore[call-overload,no-any-return]


def run(
    folder: Path, *arguments: str | bytes, given: bytes = b"", **options: object
) -> tuple[int, bytes, bytes]:
    """Run it to its end with ``given`` as its input; exit code, output and errors."""
    process = start(folder, *arguments, **options)  # type: ignore[arg-type]
    out, errors = process.communicate(given, timeout=120)
    return process.returncode, out or b"", errors or b""


def job(code: str, *arguments: str) -> tuple[str, ...]:
    """The command line of a small Python job."""
    return (sys.executable, "-S", "-c", code, *arguments)


def ends(pid: int) -> bool:
    """Whether there is no such process any more."""
    try:
        state = Path(f"/proc/{pid}/stat").read_bytes().rpartition(b")")[2].split()[0]
    except (OSError, IndexError):
        return True
    return state in (b"Z", b"X")


def everything(terminal: int) -> str:
    """What was written to a terminal that nobody holds any more."""
    parts = []
    with os.fdopen(terminal, "rb", buffering=0) as file, contextlib.suppress(OSError):
        while part := file.read(4096):
            parts.append(part)
    return b"".join(parts).decode()
