"""Names of other machines, as ssh takes them: given, in a file, of a Slurm job, configured."""

from __future__ import annotations

import json
import re
import shlex
import subprocess
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from urllib.parse import unquote, urlsplit

from gpuwatch import __version__
from gpuwatch.core.text import SentenceError, clean

_NAME = re.compile(r"(?!-)[\w.@:%\[\]/+-]{1,255}")
_HOSTS_MOST = 256
_HOST_LINE = re.compile(r"[ \t]*host[ \t]", re.IGNORECASE)
_FILE_LENGTH = 1 << 20


class HostNameError(SentenceError):
    """Host names cannot be found, or are not valid."""


def _checked(names: Sequence[str], where: str) -> list[str]:
    for name in names:
        if _NAME.fullmatch(name) is None:
            raise HostNameError(f"{where}: {clean(name, 60)!r} is not a valid host name.")
    return [*names]


def _lines_of(command: Sequence[str]) -> list[str]:
    try:
        found = subprocess.run(
            command, capture_output=True, text=True, check=False, timeout=20, errors="replace"
        )
    except OSError as error:
        why = f"{error.strerror}. --slurm needs Slurm's commands."
        raise HostNameError(f"{command[0]} cannot be run: {why}") from None
    except subprocess.TimeoutExpired:
        raise HostNameError(f"{command[0]} did not answer in 20 seconds.") from None
    if found.returncode:
        said = clean((found.stderr.strip().splitlines() or ["it failed"])[-1], 200)
        raise HostNameError(f"{command[0]}: {said.removeprefix(f'{command[0]}: ')}")
    return found.stdout.split()


def host_names(given: Sequence[str], file: str | None, slurm_job: str | None) -> list[str]:
    """Return the hosts asked for, each once: ``given`` (also comma separated), one a line of
    ``file``, those that Slurm runs a job on. Raises ``HostNameError``."""
    names = _checked([name for one in given for name in one.split(",") if name], "--host")
    if file is not None:
        try:
            with Path(file).open(errors="replace") as opened:
                lines = opened.read(_FILE_LENGTH).splitlines()
        except OSError as error:
            raise HostNameError(f"{clean(file, 200)} cannot be read: {error.strerror}.") from None
        words = [line.partition("#")[0].split() for line in lines]
        names += _checked([one[0] for one in words if one], clean(file, 200))
    if slurm_job is not None:
        if re.fullmatch(r"\d+(_\d+)?(\+\d+)?", slurm_job, re.ASCII) is None:
            raise HostNameError(f"{clean(slurm_job, 60)!r} is not the number of a Slurm job.")
        nodes = _lines_of(("squeue", "--noheader", "--jobs", slurm_job, "--format", "%N"))
        if not nodes:
            raise HostNameError(f"Slurm job {slurm_job} is not running on any host.")
        # Of a heterogeneous job, and of an array, there are several.
        named = _lines_of(("scontrol", "show", "hostnames", ",".join(nodes)))
        names += _checked(named, "Slurm")
    names = list(dict.fromkeys(names))
    if not names:
        raise HostNameError("No hosts were given.")
    if len(names) > _HOSTS_MOST:
        raise HostNameError(f"{len(names)} hosts were given: at most {_HOSTS_MOST} can be watched.")
    return names


def configured_hosts(begun: str) -> list[str]:
    """Return the names in ``~/.ssh/config`` that begin so, without patterns, for completion."""
    try:
        with Path("~/.ssh/config").expanduser().open(errors="replace") as opened:
            lines = opened.read(_FILE_LENGTH).splitlines()
    except (OSError, RuntimeError):
        return []
    found = [line.partition("#")[0].split()[1:] for line in lines if _HOST_LINE.match(line)]
    names = [name for line in found for name in line if _NAME.fullmatch(name)]
    return [name for name in names if name.startswith(begun)]


def install_command(name: str) -> str:
    """Return the command that installs this gpuwatch on a host, where it is found (``remote``): no
    package index has it. Debian's and Ubuntu's pip installs nothing outside a virtual
    environment."""
    host, source = shlex.quote(name), _source()
    install = "python3 -m venv ~/.gpuwatch && ~/.gpuwatch/bin/pip install"
    if source.is_dir():
        parts = f"tar -C {shlex.quote(str(source))} --exclude=__pycache__ -c {_PARTS}"
        there = "mkdir -p ~/.gpuwatch/source && tar -xC ~/.gpuwatch/source"
        return f"{parts} | ssh {host} '{there} && {install} ~/.gpuwatch/source'"
    wheel = shlex.quote(str(source))
    return f"scp {wheel} {host}:/tmp/ && ssh {host} '{install} /tmp/{shlex.quote(source.name)}'"


_PARTS = "gpuwatch pyproject.toml README.md LICENSE"
"""Parts of the source folder that make a package."""


def _source() -> Path:
    """Return the folder of the source or the wheel that this gpuwatch was installed from; where
    neither is known, the name of the wheel that ``pip wheel`` makes of it."""
    folder = Path(__file__).resolve().parents[3]
    if (folder / "pyproject.toml").is_file():
        return folder
    from importlib import metadata  # noqa: PLC0415 - for those who lack it elsewhere alone

    wheel = Path(f"gpuwatch_tui-{__version__}-py3-none-any.whl")
    with suppress(metadata.PackageNotFoundError, ValueError):
        # Where pip says what it installed (PEP 610).
        said = json.loads(metadata.distribution("gpuwatch-tui").read_text("direct_url.json") or "")
        url = urlsplit(said["url"])
        given = Path(unquote(url.path))
        if url.scheme == "file" and given.exists():
            return given
    return wheel
