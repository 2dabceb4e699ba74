"""True if stacks can be taken at all: where py-spy is, and what the kernel allows.

Everything is asked before py-spy is started, so that a person gets the reason and not a "Try
running again with elevated permissions". The rules are those of ptrace(2), "Ptrace access mode
checking", and of Documentation/admin-guide/LSM/Yama.rst.
"""

import errno
import os
import re
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from gpuwatch.core.text import clean
from gpuwatch.jobs.identity.surroundings import read_link
from gpuwatch.sources.linux import cgroup, procfs
from gpuwatch.sources.linux.processes import user_name

SYS_PTRACE_BIT = 19
"""``CAP_SYS_PTRACE``, include/uapi/linux/capability.h."""


INSTALL = (
    "Stacks are taken by py-spy, which is not installed: add it to gpuwatch's own environment with "
    "pip install py-spy, or, if it was installed by pipx, pipx inject gpuwatch-tui py-spy."
)


class Refused(NamedTuple):
    """Facts about a refusal of the kernel."""

    pid: int
    user: str
    """The user the process belongs to."""
    own_user: bool
    """All of its user ids are ours."""
    capable: bool
    """We have ``CAP_SYS_PTRACE``."""
    ptrace_scope: int | None
    """``kernel.yama.ptrace_scope``; ``None``: this kernel has no Yama."""
    root: bool
    """We are root, at least inside our container."""
    contained: bool
    """We seem to run inside a container."""


def find_py_spy(folders: Sequence[str] | None = None, path: str | None = None) -> str | None:
    """The program py-spy: in ``folders`` (those of our own environment), else on ``path`` (the
    environment's ``PATH``)."""
    import shutil  # noqa: PLC0415 - only when stacks are asked for
    import sysconfig  # noqa: PLC0415

    if folders is None:
        folders = (sysconfig.get_path("scripts"), os.path.dirname(sys.executable))  # noqa: PTH120
    places = [*filter(None, folders), path]
    return next(filter(None, (shutil.which("py-spy", path=place) for place in places)), None)


def why_not(pid: int, py_spy: str, proc: Path = procfs.PROC) -> str | None:
    """Why the stacks of ``pid`` cannot be taken, as a sentence with what to do; ``None``: they
    can, as far as can be known before trying."""
    gone = _why_nothing_there(pid, proc)
    if gone is not None:
        return gone
    error = 0 if _has_rights_of_its_own(py_spy) else probe_memory(pid)
    if error in (errno.ESRCH, errno.ENOENT):
        return f"Process {pid} has ended."
    return explain_refusal(gather(pid, proc)) if error else _why_not_python(pid, proc)


def _why_nothing_there(pid: int, proc: Path) -> str | None:
    stat = procfs.read_stat(pid, proc)
    if stat is None:
        return f"There is no process {pid} (any more)."
    if stat.is_kernel_thread:
        return f"Process {pid} is a kernel thread: it has no Python stack."
    if stat.state in "ZX" and stat.threads <= 1:
        return f"Process {pid} has ended."
    if stat.state in "Tt":
        return (
            f"Process {pid} is stopped (by Ctrl-Z, SIGSTOP or a debugger), so its stack does not "
            f"change. Continue it with: kill -CONT {pid}"
        )
    return None


def probe_memory(pid: int) -> int:
    """Whether the kernel lets us read the memory of ``pid``: 0 or an error number. The check is the
    one that py-spy's process_vm_readv(2) meets (PTRACE_MODE_ATTACH); nothing is read."""
    try:
        os.close(os.open(f"/proc/{pid}/mem", os.O_RDONLY | os.O_CLOEXEC))
    except OSError as error:
        return error.errno or errno.EPERM
    return 0


def _has_rights_of_its_own(program: str) -> bool:
    """``setcap`` or a set-user-ID bit lets py-spy do what we may not."""
    try:
        if os.stat(program).st_mode & 0o4000:  # noqa: PTH116
            return True
        return bool(os.getxattr(program, "security.capability"))
    except OSError:
        return False


def gather(pid: int, proc: Path = procfs.PROC) -> Refused:
    """The facts that decide why. What cannot be read counts as not in the way."""
    status = procfs.read_if_possible(proc / str(pid) / "status")
    found = re.search(rb"^Uid:\s+(\d+)\s+(\d+)\s+(\d+)", status, re.MULTILINE)
    uids = {int(part) for part in found.groups()} if found else set()
    own = procfs.read_if_possible(proc / "self/status")
    capabilities = re.search(rb"^CapEff:\s+([0-9a-f]+)", own, re.MULTILINE)
    scope = procfs.read_if_possible(proc / "sys/kernel/yama/ptrace_scope").strip()
    return Refused(
        pid=pid,
        user=user_name(max(uids)) if uids else "another user",
        own_user=uids <= {os.getuid()},
        capable=bool(capabilities and int(capabilities[1], 16) >> SYS_PTRACE_BIT & 1),
        ptrace_scope=int(scope) if scope.isdigit() else None,
        root=os.geteuid() == 0,
        contained=cgroup.in_container(proc.parent),
    )


_CAPABILITY = (
    "start the container with --cap-add SYS_PTRACE (docker, podman), or with SYS_PTRACE under "
    "securityContext.capabilities.add (Kubernetes)"
)


def explain_refusal(facts: Refused) -> str:
    """Why the memory of another process may not be read, and what to do about it."""
    pid, user, scope = facts.pid, facts.user, facts.ptrace_scope or 0
    root = f'run it as root: sudo "$(command -v gpuwatch)" stacks {pid}'
    if facts.capable:
        return (
            f"The kernel refuses to let gpuwatch read the memory of process {pid}, though it has "
            f"the capability SYS_PTRACE: kernel.yama.ptrace_scope (it is {scope}; 3 forbids it to "
            "all), a seccomp filter, a security module or the process's own user namespace "
            "forbids it. Try it outside of this container or sandbox."
        )
    if facts.root or (facts.contained and facts.own_user):
        return (
            "gpuwatch lacks the capability SYS_PTRACE, so it may not read the memory of process "
            f"{pid}: {_CAPABILITY}."
        )
    if not facts.own_user:
        return (
            f"Process {pid} belongs to {user}: only {user} and root may read its memory. To see "
            f"its stacks, {root}"
        )
    if scope == 1:
        return (
            "A process may only inspect those that it started (kernel.yama.ptrace_scope is 1), and "
            f"py-spy did not start {pid}. Allow it until the machine restarts with: sudo sysctl "
            f"kernel.yama.ptrace_scope=0 - or {root}"
        )
    return (
        f"Process {pid} may not be inspected, though it is yours (kernel.yama.ptrace_scope is "
        f"{scope}): to see its stacks, {root}"
    )


_PYTHON_FILE = re.compile(rb"/[^/\n]*python[^/\n]*(?:/[^\n]*)?$", re.IGNORECASE | re.MULTILINE)
_MAPS_BYTES = 8 << 20


def _why_not_python(pid: int, proc: Path) -> str | None:
    """Only where it is sure: no file it maps has ``python`` in its name."""
    maps = procfs.read_if_possible(proc / str(pid) / "maps", _MAPS_BYTES)
    if not maps or _PYTHON_FILE.search(maps):
        return None
    program = clean(read_link(pid, "exe", proc) or "another program", 200)
    return f"Process {pid} is not Python: it runs {program}. Give the PID of the training process."


_FORBIDDEN = re.compile(r"Permission Denied|Operation not permitted|os error 1\b", re.IGNORECASE)


def is_refusal(text: str) -> bool:
    """True if py-spy, by what it printed, would say the same at every attempt."""
    return bool(_FORBIDDEN.search(text)) or "Unsupported version of Python" in text


def explain_failure(pid: int, text: str) -> str:
    """A sentence for what py-spy printed when it ended without a result."""
    if "Unsupported version of Python" in text:
        version = re.search(r"Unsupported version of Python: ([\w.+-]+)", text)
        which = f" {version[1]}" if version else ""
        return (
            f"This py-spy does not know the Python{which} of process {pid} yet: "
            "update it with: pip install --upgrade py-spy"
        )
    if re.search(r"process is running|No such process|os error 3\b", text):
        return f"Process {pid} ended before its stacks could be read."
    if _FORBIDDEN.search(text):
        return explain_refusal(gather(pid))
    lines = [line.strip() for line in text.splitlines()]
    said = next((line for line in lines if line.startswith("Error: ")), None)
    said = said or next((line for line in lines if line), "nothing")
    return f"py-spy could not read process {pid}: {clean(said.removeprefix('Error: '), 300)}"
