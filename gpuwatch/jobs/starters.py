"""Programs that start jobs and are none: shells, multiplexers, logins, the first process.

And what runs below one of them.
"""

from __future__ import annotations

import os
import re
from pathlib import Path
from typing import NamedTuple

from gpuwatch.sources import procfs
from gpuwatch.sources.process_details import clean_name, read_command
from gpuwatch.text import clean

LABEL_LENGTH = 60
"""Of a command line within a sentence."""

SHELL = "a shell"
MULTIPLEXER = "a terminal multiplexer"
TERMINAL = "a terminal"
LOGIN = "a login"
SERVICE = "a service that starts other programs"
OURSELVES = "gpuwatch itself"
REMOTE = "a connection to another machine: what runs there can be watched by a gpuwatch there"
CLIENT = (
    "only the client of a container engine: what it runs is below the engine's service, so give "
    "the PID of the training process itself"
)
ELSEWHERE = (REMOTE, CLIENT)
"""Kinds below which there is nothing of the job."""
WRAPPER = "a wrapper"
"""Starts one program and waits for it."""

_KINDS = {
    SHELL: "ash bash csh dash elvish fish ksh ksh93 mksh nu pwsh rbash sh tcsh yash zsh",
    MULTIPLEXER: "abduco byobu dtach dvtm screen SCREEN tmux zellij",
    TERMINAL: (
        "alacritty foot ghostty gnome-terminal konsole kitty st terminator tilix urxvt "
        "wezterm-gui xfce4-terminal xterm"
    ),
    LOGIN: "dropbear login mosh-server sshd sshd-auth sshd-session",
    SERVICE: (
        "atd catatonit conmon containerd containerd-shim crio cron crond crun docker-init dockerd "
        "dumb-init init kubelet openrc-init pause runc runsvdir s6-svscan sd-pam slurmd "
        "slurmstepd supervisord systemd tini"
    ),
    REMOTE: "mosh-client ssh",
    CLIENT: "docker kubectl nerdctl podman",
    WRAPPER: ("bwrap doas nsenter runuser script setsid strace su sudo time timeout unshare watch"),
}
_KIND_OF = {name: kind for kind, names in _KINDS.items() for name in names.split()}
# Titles such as "tmux: server", "sshd: ada@pts/3", "(sd-pam)", "SCREEN".
_TITLE_WORD = re.compile(r"[\w.+-]+")
_JOB_LIKE = re.compile(
    r"(?:\S*/)?(?:python|pypy|torchrun|accelerate|deepspeed|mpirun|mpiexec|orterun|prterun|srun"
    r"|horovodrun|julia|ray)[\d.]*(?=\s|$)"
)
_SWITCH = re.compile(r"-[A-Za-z]+")


class Candidate(NamedTuple):
    """A process that may be the job somebody means."""

    pid: int
    label: str
    """Its command line, shortened and made safe."""
    foreground: bool
    """Its terminal's keys reach it: nothing else was started there since."""


class _Seen(NamedTuple):
    parent_pid: int
    name: bytes
    state: str
    process_group: int
    foreground_group: int
    cpu_ticks: int


def kind_of(name: bytes, command: str | None) -> str | None:
    """One of the kinds above; ``None`` for everything else, jobs among it.

    ``name`` is the kernel's (cut at 15 bytes), ``command`` the command line where it is known.
    """
    if command is not None and _is_gpuwatch(command):
        return OURSELVES
    word = _TITLE_WORD.search(name.decode("utf-8", "replace"))
    if word is None:
        return None
    found = _KIND_OF.get(word[0])
    if found is None and len(name) == 15:
        found = next((kind for full, kind in _KIND_OF.items() if full.startswith(word[0])), None)
    return found


def _is_gpuwatch(command: str) -> bool:
    words = command.split()
    if words and words[0].rpartition("/")[2].startswith("python"):
        del words[0]
        while words and words[0] != "-m" and _SWITCH.fullmatch(words[0]):
            del words[0]
    if words[:1] == ["-m"]:
        return words[1:2] == ["gpuwatch"]
    return bool(words) and words[0].rpartition("/")[2] == "gpuwatch"


def label(pid: int, name: bytes, proc: Path = procfs.PROC) -> str:
    """The command line for a sentence, or the name where there is none."""
    command = read_command(pid, name, proc)
    return clean(command, LABEL_LENGTH) if command else clean_name(name)


def jobs_below(pid: int, proc: Path = procfs.PROC) -> list[Candidate]:
    """The topmost processes below ``pid`` that are no starters themselves.

    Those that look like training (an interpreter, a launcher) if there are any, else all; the
    foreground first, then by CPU time used. This process is never among them.
    """
    seen = _read_all(proc)
    children: dict[int, list[int]] = {}
    for child, process in seen.items():
        children.setdefault(process.parent_pid, []).append(child)
    found: list[tuple[int, Candidate]] = []
    waiting = list(children.get(pid, ()))
    while waiting:
        at = waiting.pop()
        process = seen[at]
        if at == os.getpid() or process.state in "ZX":
            continue
        if kind_of(process.name, read_command(at, process.name, proc)) is not None:
            waiting += children.get(at, ())
            continue
        foreground = process.foreground_group > 0 and (
            process.process_group == process.foreground_group
        )
        candidate = Candidate(at, label(at, process.name, proc), foreground)
        found.append((process.cpu_ticks, candidate))
    likely = [item for item in found if _JOB_LIKE.match(item[1].label)] or found
    likely.sort(key=lambda item: (not item[1].foreground, -item[0], item[1].pid))
    return [candidate for _ticks, candidate in likely]


def _read_all(proc: Path) -> dict[int, _Seen]:
    seen = {}
    for name in os.listdir(proc):  # noqa: PTH208 - names only
        if not name.isdigit():
            continue
        try:
            raw = procfs.read_once(f"{proc}/{name}/stat", 1024)
            stat = procfs.parse_process_stat(raw)
            # process group, session, terminal, the terminal's foreground group
            fields = raw[raw.rindex(b")") + 2 :].split(None, 7)
            seen[int(name)] = _Seen(
                stat.parent_pid,
                stat.name,
                stat.state,
                int(fields[2]),
                int(fields[5]),
                stat.cpu_ticks,
            )
        except (OSError, ValueError, IndexError):
            continue
    return seen
