"""What a PID leads to: real threads, zombies, shells, wrappers and namespaces."""

from __future__ import annotations

import os
import re
import shutil
import signal
import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.jobs.identity import starters
from gpuwatch.jobs.identity.attach import AttachError, Attachment, parse_pid, resolve
from gpuwatch.sources.linux import procfs
from tests.support.children import Children, wait_until
from tests.support.fake_proc import BOOTED_AT, FakeProc

ID = "0123456789abcdef" * 4
GONE = 2**22 + 1
"""Above any PID that Linux gives out."""

PACKAGE = str(Path(__file__).parents[2])


def refusal(pid: int, proc: Path = procfs.PROC) -> str:
    """The sentence that says why not; one line, with an end."""
    with pytest.raises(AttachError) as caught:
        resolve(pid, proc)
    said = str(caught.value)
    assert said.isprintable()
    assert said.endswith(".")
    return said


def below(pid: int) -> list[int]:
    return [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]


def only_child(pid: int) -> int:
    """The child, once there is one that runs a program of its own."""

    def has_begun() -> bool:
        found = below(pid)
        if len(found) != 1:
            return False
        mine = Path(f"/proc/{pid}/cmdline").read_bytes()
        return Path(f"/proc/{found[0]}/cmdline").read_bytes() not in (b"", mine)

    wait_until(has_begun)
    return below(pid)[0]


def test_a_process_is_watched_as_it_is(started: Children) -> None:
    """Its PID, and the start time that a later process of the same PID would not have."""
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    found = resolve(child.pid)
    stat = procfs.parse_process_stat(Path(f"/proc/{child.pid}/stat").read_bytes())
    assert found == Attachment(child.pid, procfs.start_unix_seconds(stat), ())


@pytest.mark.parametrize("pid", [0, -1, -(10**30)])
def test_a_number_that_is_no_pid_is_said_to_be_none(pid: int) -> None:
    """Zero and less are process groups to the kernel, and nothing to a person."""
    assert f"{pid} is not the PID of a process" in refusal(pid)


@pytest.mark.parametrize("text", ["train.py", "", "4 2", "1.5", "²", "\x1b[31m", "0x10", "+-3"])
def test_what_is_no_number_is_said_to_be_none(text: str) -> None:
    """The sentence shows what was typed, made safe."""
    with pytest.raises(AttachError) as caught:
        parse_pid(text)
    assert "is not a PID" in str(caught.value)
    assert str(caught.value).isprintable()


def test_a_typed_number_is_a_pid() -> None:
    """White space around it does no harm; less than one is refused at once."""
    assert parse_pid(" 4242\n") == 4242
    with pytest.raises(AttachError, match="-3 is not the PID"):
        parse_pid("-3")


@pytest.mark.parametrize("pid", [GONE, 10**30])
def test_a_pid_that_nobody_has_may_have_ended(pid: int) -> None:
    """However large the number is."""
    said = refusal(pid)
    assert f"No process has PID {pid}" in said


def test_a_zombie_has_nothing_left_to_watch(started: Children) -> None:
    """It ended, and its parent has not asked for its exit code: the parent is named."""
    child = started.python("pid = os.fork()\nif pid == 0: os._exit(3)\nready(pid)\nwait()\n")
    pid = int(started.ready(child))
    wait_until(lambda: b") Z " in Path(f"/proc/{pid}/stat").read_bytes())
    said = refusal(pid)
    assert "has ended" in said
    assert f"PID {child.pid}" in said


def test_a_main_thread_that_ended_leaves_a_process_to_watch(started: Children) -> None:
    """The kernel calls it a zombie while its other threads work on."""
    child = started.python(
        "import ctypes, threading\n"
        "threading.Thread(target=time.sleep, args=(600,)).start()\n"
        "ready()\n"
        "ctypes.CDLL(None).pthread_exit(None)\n"
    )
    started.ready(child)
    wait_until(lambda: b") Z " in Path(f"/proc/{child.pid}/stat").read_bytes())
    found = resolve(child.pid)
    assert found.pid == child.pid
    assert "main thread" in " ".join(found.notes)


def test_a_thread_leads_to_its_process(started: Children) -> None:
    """A number from ``ps -L`` or ``htop``: the whole process is watched, with a note."""
    child = started.python(
        "import threading\n"
        "thread = threading.Thread(target=time.sleep, args=(600,), daemon=True)\n"
        "thread.start()\nready(thread.native_id)\nwait()\n"
    )
    thread = int(started.ready(child))
    assert thread != child.pid
    found = resolve(thread)
    assert found.pid == child.pid
    assert found.started_at_unix_seconds == resolve(child.pid).started_at_unix_seconds
    assert f"{thread} is a thread" in found.notes[0]
    assert str(child.pid) in found.notes[0]


def test_a_stopped_process_is_watched_and_said_to_be_stopped(started: Children) -> None:
    """Ctrl-Z: nothing will move, which looks like a starved job."""
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    os.kill(child.pid, signal.SIGSTOP)
    wait_until(lambda: b") T " in Path(f"/proc/{child.pid}/stat").read_bytes())
    assert "stopped" in " ".join(resolve(child.pid).notes)


def test_gpuwatch_does_not_watch_itself() -> None:
    """This very process, and any other gpuwatch."""
    assert "gpuwatch itself" in refusal(os.getpid())


def test_another_gpuwatch_is_recognised_by_its_command(fake: FakeProc) -> None:
    """The PID of ``gpuwatch run``: the job it started is named."""
    fake.process(42, name="gpuwatch", command=b"/v/bin/python\0/v/bin/gpuwatch\0run\0--\0python\0")
    fake.process(43, parent=42, command=b"python\0train.py\0")
    said = refusal(42, fake.root)
    assert "gpuwatch itself" in said
    assert "use --pid 43" in said


PYTHON_FORKS = f"{sys.executable} -S -c 'import os, time; os.fork(); time.sleep(600)'"
PYTHON_WAITS = f"{sys.executable} -S -c 'import sys; sys.stdin.read()'"


def test_a_shell_is_refused_and_names_its_only_job(started: Children) -> None:
    """A person's shell: the job below it and the option to give."""
    shell = started.run(["sh"])
    assert shell.stdin is not None
    shell.stdin.write(f"{PYTHON_WAITS}\n".encode())
    shell.stdin.flush()
    job = only_child(shell.pid)
    said = refusal(shell.pid)
    assert "is a shell" in said
    assert f"PID {job} (" in said
    assert f"use --pid {job}." in said
    assert resolve(job).pid == job


def test_the_shell_of_a_script_leads_to_its_only_job(started: Children) -> None:
    """It only waits for it; a note says so."""
    shell = started.run(["sh", "-c", f"{PYTHON_WAITS}; exit 0"])
    job = only_child(shell.pid)
    found = resolve(shell.pid)
    assert found.pid == job
    assert "only waits" in found.notes[0]


def test_a_command_of_a_script_leads_to_the_script(started: Children, tmp_path: Path) -> None:
    """Which goes on when that command has ended: given its own PID, that of the command or of
    what the command started, and also between two commands."""
    script = tmp_path / "train.sh"
    script.write_text(f"{PYTHON_WAITS}; read line; {PYTHON_FORKS}; true\n")
    shell = started.run(["sh", "-u", str(script)])
    assert shell.stdin is not None
    first = only_child(shell.pid)
    for pid in (shell.pid, first):
        assert resolve(pid).pid == shell.pid
    assert resolve(shell.pid).notes == ()
    assert f"PID {first} (" in resolve(first).notes[0]
    assert ", which is watched as a whole." in resolve(first).notes[0]
    os.kill(first, signal.SIGKILL)
    wait_until(lambda: not below(shell.pid))
    assert resolve(shell.pid).pid == shell.pid
    shell.stdin.write(b"\n")
    shell.stdin.flush()
    second = only_child(shell.pid)
    wait_until(lambda: len(below(second)) == 1)
    assert resolve(below(second)[0]).pid == shell.pid


def test_two_jobs_that_one_script_runs_at_a_time_stay_two(
    started: Children, tmp_path: Path
) -> None:
    """The one that was asked for is watched, and the script itself is no job."""
    script = tmp_path / "both.sh"
    script.write_text("sleep 600 & sleep 601 & wait\n")
    shell = started.run(["sh", str(script)])
    wait_until(lambda: [resolves(pid) for pid in below(shell.pid)].count(True) == 2)
    assert "one of those below it" in refusal(shell.pid)


def test_a_script_that_starts_another_job_meanwhile_is_not_watched(
    started: Children, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The process that was asked for is, although its script had one job a moment ago."""
    script = tmp_path / "both.sh"
    script.write_text("sleep 600 & sleep 601 & wait\n")
    shell = started.run(["sh", str(script)])
    wait_until(lambda: [resolves(pid) for pid in below(shell.pid)].count(True) == 2)
    seen: list[int] = []
    now = starters.jobs_below

    def a_moment_ago(pid: int, proc: Path) -> object:
        seen.append(pid)
        return now(pid, proc)[: len(seen)]

    monkeypatch.setattr(starters, "jobs_below", a_moment_ago)
    pid = below(shell.pid)[0]
    assert resolve(pid).pid == pid
    assert len(seen) > 1


def resolves(pid: int) -> bool:
    """To itself, as a program of its own."""
    # Until then it is the shell's fork.
    has_begun = Path(f"/proc/{pid}/cmdline").read_bytes().startswith(b"sleep")
    return has_begun and resolve(pid).pid == pid


def test_a_script_that_runs_gpuwatch_itself_is_not_the_job(
    started: Children, tmp_path: Path
) -> None:
    """It ends after gpuwatch does, which would wait for it for ever."""
    script = tmp_path / "train.sh"
    look = (
        "import sys; from gpuwatch.jobs.identity.attach import resolve; "
        "print(resolve(int(sys.argv[1])))"
    )
    script.write_text(f"sleep 600 &\n'{sys.executable}' -c '{look}' $!\nwait\n")
    shell = started.run(["sh", str(script)])
    said = started.ready(shell)
    assert f"pid={only_child(shell.pid)}," in said


def test_a_script_started_by_the_one_that_runs_gpuwatch_is_the_job(
    started: Children, tmp_path: Path
) -> None:
    """As in a batch script: ``./train.sh &``, then gpuwatch with its PID."""
    inner, outer = tmp_path / "train.sh", tmp_path / "batch.sh"
    inner.write_text("sleep 600; true\n")
    look = (
        "import sys, time; from gpuwatch.jobs.identity import attach, starters\n"
        "while not starters.jobs_below(int(sys.argv[1])): time.sleep(0.01)\n"
        "print(attach.resolve(int(sys.argv[1])))"
    )
    outer.write_text(f"sh '{inner}' &\n'{sys.executable}' -c '{look}' $!\nwait\n")
    shell = started.run(["sh", str(outer)])
    said = started.ready(shell)
    assert f"pid={only_child(shell.pid)}," in said


def test_a_shell_without_a_job_says_so(started: Children) -> None:
    """Nothing below it: what to do instead."""
    shell = started.run(["sh", "-c", "read line; exit 0"])
    wait_until(lambda: b"read line" in Path(f"/proc/{shell.pid}/cmdline").read_bytes())
    said = refusal(shell.pid)
    assert "is a shell" in said
    assert "no job runs below it" in said


def test_of_several_jobs_below_a_shell_all_are_named(started: Children, tmp_path: Path) -> None:
    """Through shells in between, and without what is no Python when something is."""
    program = tmp_path / "a.py"
    program.write_text("import time\ntime.sleep(600)\n")
    python = tmp_path / "python"
    python.symlink_to(sys.executable)
    inner = f"sh -c '{python} -S {program} 2; exit 0'"
    shell = started.run(["sh", "-c", f"{python} -S {program} 1 & {inner} & sleep 600 & wait"])

    def named() -> set[bytes]:
        try:
            resolve(shell.pid)
        except AttachError as error:
            pids = re.findall(r"PID (\d+) \(", str(error))[1:]
        else:
            # Only one of them has begun.
            return set()
        return {Path(f"/proc/{pid}/cmdline").read_bytes()[-3:] for pid in pids}

    wait_until(lambda: named() == {b"\x001\0", b"\x002\0"})
    said = refusal(shell.pid)
    assert "one of those" in said
    assert "use --pid" not in said


def test_the_job_in_a_terminals_foreground_is_the_one_meant(started: Children) -> None:
    """An interactive shell with one job in the background and one in front."""
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("bash is not installed")
    spawn = f"import pty; pty.spawn([{bash!r}, '--norc', '--noprofile', '-i'])"
    terminal = started.run([sys.executable, "-S", "-c", spawn])
    shell = only_child(terminal.pid)
    waits = f"{sys.executable} -S -c 'import time; time.sleep(600)'"
    assert terminal.stdin is not None
    terminal.stdin.write(f"{waits} behind &\n{waits} front\n".encode())
    terminal.stdin.flush()
    said = ""

    def both_run() -> bool:
        nonlocal said
        said = refusal(shell)
        return len(re.findall(r"PID \d+ \(\S*python", said)) == 2 and "foreground" in said

    wait_until(both_run)
    front = re.search(r"foreground runs PID (\d+)", said)
    assert front is not None
    assert f"use --pid {front[1]}" in said
    assert Path(f"/proc/{front[1]}/cmdline").read_bytes().endswith(b"\0front\0")
    # Its own session: ending the terminal ends it and its jobs, which this only makes sure of.
    os.kill(shell, signal.SIGHUP)


def test_a_wrapper_leads_to_what_it_started(started: Children) -> None:
    """``timeout 1h python train.py``: its program is watched, with a note."""
    if shutil.which("timeout") is None:
        pytest.skip("timeout is not installed")
    wrapper = started.run(["timeout", "600", sys.executable, "-c", "input()"])
    job = only_child(wrapper.pid)
    found = resolve(wrapper.pid)
    assert found.pid == job
    assert "timeout" in found.notes[0]
    assert str(job) in found.notes[0]


FIRST = {
    "systemd": (b"/sbin/init\0", "systemd"),
    "something of its own": (b"/usr/bin/boot\0", "boot"),
}


@pytest.mark.parametrize("case", FIRST)
def test_the_machines_first_process_is_no_job(fake: FakeProc, case: str) -> None:
    """PID 1 outside of containers, whatever it is."""
    command, name = FIRST[case]
    fake.process(1, name=name, parent=0, command=command)
    fake.process(42, command=b"python\0train.py\0")
    said = refusal(1, fake.root)
    assert "starts everything else" in said
    assert "use --pid 42" in said


def test_a_containers_first_process_can_be_the_training(fake: FakeProc) -> None:
    """``docker run image python train.py``, with gpuwatch inside the container."""
    fake.namespace("pid:[4026532777]")
    fake.process(1, parent=0, command=b"python\0train.py\0")
    assert resolve(1, fake.root).pid == 1


def test_a_containers_init_leads_to_the_training(fake: FakeProc) -> None:
    """``docker run --init``: tini waits for the one program."""
    fake.namespace("pid:[4026532777]")
    fake.process(1, name="docker-init", parent=0, command=b"/sbin/docker-init\0--\0python\0t.py\0")
    fake.process(7, parent=1, command=b"python\0t.py\0")
    assert resolve(1, fake.root).pid == 7


STARTERS = {
    "tmux": ("tmux: server", b"tmux\0new\0", "a terminal multiplexer"),
    "screen": ("screen", b"SCREEN\0", "a terminal multiplexer"),
    "a login": ("sshd", b"sshd: ada@pts/3\0", "a login"),
    "a login shell": ("bash", b"-bash\0", "a shell"),
    "systemd of a user": ("systemd", b"/usr/lib/systemd/systemd\0--user\0", "a service"),
    "a container's service": (
        "containerd-shim",
        b"/usr/bin/containerd-shim-runc-v2\0",
        "a service",
    ),
    "Slurm's": ("slurmstepd", b"slurmstepd: [4711.0]\0", "a service"),
    "Jupyter": ("jupyter-lab", b"/v/bin/python\0/v/bin/jupyter-lab\0", "a notebook server"),
}


@pytest.mark.parametrize("case", STARTERS)
def test_what_starts_jobs_is_called_by_its_kind(fake: FakeProc, case: str) -> None:
    """Each is refused under the name a person has for it, and its job is named."""
    name, command, kind = STARTERS[case]
    fake.process(41, name=name, command=command)
    fake.process(42, parent=41, name="bash", command=b"bash\0")
    fake.process(43, parent=42, command=b"python\0train.py\0")
    said = refusal(41, fake.root)
    assert f"is {kind}" in said
    assert "use --pid 43" in said


ELSEWHERE = {
    "ssh": (b"ssh\0gpu7\0python\0train.py\0", "another machine"),
    "docker": (b"docker\0run\0image\0", "container engine"),
}


@pytest.mark.parametrize("case", ELSEWHERE)
def test_a_client_of_something_elsewhere_says_where_the_job_is(fake: FakeProc, case: str) -> None:
    """``ssh host python train.py`` and ``docker run``: the job is not below them."""
    command, where = ELSEWHERE[case]
    fake.process(42, name=case, command=command)
    assert where in refusal(42, fake.root)


def test_a_launcher_and_a_worker_are_watched(fake: FakeProc) -> None:
    """Any process of a job will do."""
    fake.process(42, name="torchrun", command=b"/v/bin/python\0/v/bin/torchrun\0t.py\0")
    fake.process(43, parent=42, name="pt_data_worker", command=b"python\0t.py\0")
    assert resolve(42, fake.root) == Attachment(42, BOOTED_AT + 123.45, ())
    assert resolve(43, fake.root).pid == 43


def inner(fake: FakeProc, pid: int, numbers: str, **options: str) -> None:
    fake.process(pid, **options)  # type: ignore[arg-type]
    fake.write(f"{pid}/status", f"Name:\tx\nTgid:\t{pid}\nUid:\t7\t7\t7\t7\nNSpid:\t{numbers}\n")


def test_a_containers_own_number_is_translated(fake: FakeProc) -> None:
    """PID 7 of one container, unknown here: the one it is here, and the option to give."""
    inner(fake, 4312, "4312\t7", cgroup=f"0::/docker/{ID}\n")
    said = refusal(7, fake.root)
    assert f"known here as 4312 (python train.py, container {ID[:12]}): use --pid 4312." in said


def test_a_number_that_several_containers_know_names_all(fake: FakeProc) -> None:
    """Each container has its own PID 7, at any depth."""
    inner(fake, 4312, "4312\t7")
    inner(fake, 4400, "4400\t9\t7")
    said = refusal(7, fake.root)
    assert "4312 (" in said
    assert "4400 (" in said
    assert "use --pid" not in said


def test_a_kernel_threads_number_can_be_a_containers(fake: FakeProc) -> None:
    """PID 7 here is the kernel's; the person read it inside a container."""
    fake.process(7, name="kworker/0:1", flags=procfs.KERNEL_THREAD_FLAG, command=b"")
    inner(fake, 4312, "4312\t7")
    said = refusal(7, fake.root)
    assert "kernel" in said
    assert "use --pid 4312" in said


def test_inside_a_container_a_number_from_outside_is_explained(fake: FakeProc) -> None:
    """nvidia-smi can show the host's PIDs there."""
    fake.namespace("pid:[4026532777]")
    assert "container" in refusal(4242, fake.root)


def test_without_proc_the_sentence_says_that(tmp_path: Path) -> None:
    """A sandbox can leave it out: not every number is then unknown."""
    assert "not mounted" in refusal(42, tmp_path)


def test_hostile_names_come_out_harmless(fake: FakeProc) -> None:
    """In the sentence about a shell's job, and about the shell itself."""
    fake.process(42, name=b"bash", command=b"bash\0-\x1b]0;x\x07\0")
    fake.process(43, parent=42, name=b"\x1b[2Jpy", command=b"python\0\x1b[31m\n")
    assert "use --pid 43" in refusal(42, fake.root)


UNSHARE = shutil.which("unshare")
LOOK = """
import os, sys
sys.path.insert(0, sys.argv[1])
from gpuwatch.jobs.identity.attach import AttachError, resolve
if "nobody" in sys.argv:
    os.setgroups([]), os.setgid(65534), os.setuid(65534)
try:
    found = resolve(int(sys.argv[2]))
    print("watched", found.pid, *found.notes)
except AttachError as error:
    print("refused", error)
"""


def look(pid: int, *as_whom: str, how: tuple[str, ...] = ()) -> str:
    """What a gpuwatch of its own says of a PID."""
    done = subprocess.run(
        [*how, sys.executable, "-c", LOOK, PACKAGE, str(pid), *as_whom],
        capture_output=True,
        text=True,
        timeout=60,
        check=False,
    )
    if "Operation not permitted" in done.stderr or "ermission denied" in done.stderr:
        pytest.skip("may not make namespaces here")
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    return done.stdout


def test_another_users_process_is_watched_with_a_note(started: Children) -> None:
    """What will be missing and how to see it; nobody looks at root's process."""
    if os.geteuid() != 0:
        pytest.skip("needs to act as another user")
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    said = look(child.pid, "nobody")
    assert said.startswith(f"watched {child.pid} PID {child.pid} belongs to root")
    assert "environment" in said
    assert "run gpuwatch with sudo to see them." in said


def test_a_process_of_ones_own_that_is_protected_is_watched_with_a_note(
    started: Children,
) -> None:
    """It changed its user, so the kernel forbids to look into it even as that user."""
    if os.geteuid() != 0:
        pytest.skip("needs to act as another user")
    child = started.python("os.setgid(65534); os.setuid(65534)\nready()\nwait()\n")
    started.ready(child)
    said = look(child.pid, "nobody")
    assert said.startswith(f"watched {child.pid} PID {child.pid} is protected")


@pytest.mark.parametrize("level", [1, 2])
def test_a_process_that_proc_hides_is_said_to_exist(started: Children, level: int) -> None:
    """hidepid: the PID is not unknown, and who can see it is named."""
    if os.geteuid() != 0 or UNSHARE is None:
        pytest.skip("needs to make namespaces")
    child = started.python("ready()\nwait()\n")
    started.ready(child)
    mount = f'mount -t proc -o hidepid={level} proc /proc && exec "$@"'
    said = look(child.pid, "nobody", how=(UNSHARE, "--mount", "sh", "-c", mount, "-"))
    assert said.startswith(f"refused PID {child.pid} exists")
    assert "hidepid" in said
    gone = look(GONE, "nobody", how=(UNSHARE, "--mount", "sh", "-c", mount, "-"))
    assert gone.startswith(f"refused No process has PID {GONE}")
