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


def tree(fake: FakeProc, text: str) -> None:
    """A process a line: its PID, its parent's and its command."""
    for line in text.strip().splitlines():
        pid, parent, command = line.split(None, 2)
        name = command.split()[0].rpartition("/")[2]
        line_of = command.replace(" ", "\0").encode() + b"\0"
        fake.process(int(pid), parent=int(parent), name=name, command=line_of)


def test_a_shell_is_refused_and_names_its_only_job(fake: FakeProc) -> None:
    """A person's shell: the job below it and the option to give; without one, what to do."""
    tree(fake, "42 1 bash")
    assert "is a shell" in refusal(42, fake.root)
    assert "no job runs below it" in refusal(42, fake.root)
    tree(fake, "43 42 python train.py")
    assert "The job below it is PID 43 (python train.py): use --pid 43." in refusal(42, fake.root)
    assert resolve(43, fake.root).pid == 43


@pytest.mark.parametrize("command", ["sh -c python_t.py;exit", "timeout 600 python t.py"])
def test_what_only_waits_leads_to_its_only_job(fake: FakeProc, command: str) -> None:
    """``sh -c``, or a wrapper: the program is watched, and a note says so."""
    tree(fake, f"42 1 {command}\n43 42 python t.py")
    found = resolve(42, fake.root)
    assert found.pid == 43
    assert (
        f"is {command.split(maxsplit=1)[0]}, which only waits for what it started" in found.notes[0]
    )


def test_a_command_of_a_script_leads_to_the_script(fake: FakeProc) -> None:
    """Which goes on when that command has ended: given its own PID, that of the command or of
    what the command started, and also between two commands."""
    tree(fake, "42 1 sh -u train.sh")
    assert resolve(42, fake.root) == Attachment(42, BOOTED_AT + 123.45, ())
    tree(fake, "43 42 python train.py\n44 43 python train.py")
    assert resolve(42, fake.root).notes == ()
    for pid in (43, 44):
        found = resolve(pid, fake.root)
        assert found.pid == 42
        assert f"PID {pid} (python train.py) is a command of the script" in found.notes[0]
        assert found.notes[0].endswith(", which is watched as a whole.")


TWO_JOBS = "42 1 sh both.sh\n43 42 sleep 600\n44 42 sleep 601"


def test_two_jobs_that_one_script_runs_at_a_time_stay_two(
    fake: FakeProc, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The one that was asked for is watched, and the script itself is no job; also where the
    script had but one a moment ago."""
    tree(fake, TWO_JOBS)
    assert [resolve(pid, fake.root).pid for pid in (43, 44)] == [43, 44]
    assert "one of those below it" in refusal(42, fake.root)
    seen: list[int] = []
    now = starters.jobs_below

    def a_moment_ago(pid: int, proc: Path) -> object:
        seen.append(pid)
        return now(pid, proc)[: len(seen)]

    monkeypatch.setattr(starters, "jobs_below", a_moment_ago)
    assert resolve(43, fake.root).pid == 43
    assert len(seen) > 1


def test_a_script_that_runs_gpuwatch_itself_is_not_the_job(fake: FakeProc) -> None:
    """It ends after gpuwatch does, which would wait for it for ever; a script that it started
    (``./train.sh &`` in a batch script) is one."""
    tree(fake, f"41 1 sh batch.sh\n42 41 sh train.sh\n43 42 sleep 9\n{os.getpid()} 41 gpuwatch x")
    assert resolve(43, fake.root).pid == 42
    tree(fake, "43 41 sleep 9")
    assert resolve(43, fake.root).pid == 43


def test_of_several_jobs_below_a_shell_all_are_named(fake: FakeProc) -> None:
    """Through shells in between, and without what is no Python when something is."""
    below = "43 42 python a.py 1\n44 42 sh -c x;y\n45 44 python a.py 2\n46 42 sleep 600"
    tree(fake, f"42 1 bash\n{below}")
    said = refusal(42, fake.root)
    assert re.findall(r"PID (\d+) \(", said) == ["42", "43", "45"]
    assert "one of those" in said
    assert "use --pid" not in said


def test_the_job_in_a_terminals_foreground_is_the_one_meant(fake: FakeProc) -> None:
    """An interactive shell with one job in the background and one in front."""
    tree(fake, "42 1 bash\n43 42 python behind.py\n44 42 python front.py")
    for pid in (43, 44):
        text = (fake.root / str(pid) / "stat").read_text()
        # Process group, session, terminal, the terminal's foreground group.
        fake.write(f"{pid}/stat", text.replace("S 42 0 0 0 0", f"S 42 {pid} 42 34816 44"))
    said = refusal(42, fake.root)
    assert "In its foreground runs PID 44 (python front.py): use --pid 44." in said
    assert "Below it there is also PID 43 (python behind.py)." in said


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
