"""What a PID leads to: real threads, zombies, shells, wrappers and namespaces."""

import os
import shutil
import signal
from pathlib import Path

import pytest

from gpuwatch.jobs.identity.attach import (
    AttachError,
    Attachment,
    parse_pid,
    resolve,
    slurm_process,
)
from gpuwatch.sources.linux import procfs
from tests.support.children import Children, ran, wait_until
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
    """Its PID, and the start time that a later process of the same PID would not have. One that was
    stopped (Ctrl-Z) is said to be: nothing will move, which looks like a starved job."""
    child = started.waiting()
    found = resolve(child.pid)
    assert found == Attachment(child.pid, procfs.read_start(child.pid) or 0.0, ())
    os.kill(child.pid, signal.SIGSTOP)
    wait_until(lambda: b") T " in Path(f"/proc/{child.pid}/stat").read_bytes())
    assert "stopped" in " ".join(resolve(child.pid).notes)


@pytest.mark.parametrize("text", ["train.py", "", "4 2", "1.5", "²", "\x1b[31m", "0x10", "+-3"])
def test_what_is_no_number_is_said_to_be_none(text: str) -> None:
    """The sentence shows what was typed, made safe; white space around a number does no harm."""
    with pytest.raises(AttachError) as caught:
        parse_pid(text)
    assert "is not a PID" in str(caught.value)
    assert str(caught.value).isprintable()
    assert parse_pid(" 4242\n") == 4242


@pytest.mark.parametrize("pid", [0, -3, -(10**30), GONE, 10**30])
def test_a_number_that_no_process_has(pid: int) -> None:
    """Zero and less are process groups to the kernel, and nothing to a person; others may have
    ended, however large they are."""
    if pid > 0:
        assert f"No process has PID {pid}" in refusal(pid)
    else:
        assert f"{pid} is not the PID of a process" in refusal(pid)
        with pytest.raises(AttachError, match=r"-\d+ is not the PID|^0 is not the PID"):
            parse_pid(str(pid))


def test_a_zombie_has_nothing_left_to_watch(started: Children) -> None:
    """It ended, and its parent has not asked for its exit code."""
    child = started.python("pid = os.fork()\nif pid == 0: os._exit(3)\nready(pid)\nwait()\n")
    pid = int(started.ready(child))
    wait_until(lambda: b") Z " in Path(f"/proc/{pid}/stat").read_bytes())
    assert "has ended" in refusal(pid)


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


def test_gpuwatch_does_not_watch_itself() -> None:
    """This very process, and any other gpuwatch."""
    assert "gpuwatch itself" in refusal(os.getpid())


def tree(fake: FakeProc, text: str) -> None:
    """A process a line: its PID, its parent's and its command; a name of its own before ``|``."""
    for line in text.strip().splitlines():
        pid, parent, rest = line.split(None, 2)
        title, _, command = rest.rpartition(" | ")
        name = title or command.split()[0].rpartition("/")[2]
        line_of = command.replace(" ", "\0").encode() + b"\0"
        fake.process(int(pid), parent=int(parent), name=name, command=line_of)


BELOW = "42 41 bash\n43 42 python train.py"
REFUSED = {
    "a person's shell": (f"41 1 bash\n{BELOW}", "is a shell", "use --pid 43."),
    "a shell without a job": ("41 1 -bash", "is a shell", "no job runs below it"),
    "tmux": (f"41 1 tmux: server | tmux new\n{BELOW}", "is a terminal multiplexer", "--pid 43"),
    "screen": (f"41 1 SCREEN\n{BELOW}".replace("SCREEN", "screen | SCREEN"), "multiplexer", "43"),
    "a login": (f"41 1 sshd | sshd:_ada@pts/3\n{BELOW}", "is a login", "use --pid 43"),
    "a user's systemd": (f"41 1 /usr/lib/systemd/systemd --user\n{BELOW}", "a service", "--pid 43"),
    "a container's service": (
        f"41 1 containerd-shim | /usr/bin/containerd-shim-runc-v2\n{BELOW}", "is a service", "43"
    ),
    "Slurm's": (f"41 1 slurmstepd | slurmstepd:_[4711.0]\n{BELOW}", "is a service", "--pid 43"),
    "Jupyter": (
        f"41 1 jupyter-lab | /v/python /v/bin/jupyter-lab\n{BELOW}", "is a notebook server", "43"
    ),
    "gpuwatch run": (
        f"41 1 gpuwatch | /v/python /v/bin/gpuwatch run -- python\n{BELOW}", "gpuwatch itself", "43"
    ),
    # Through shells in between, and without what is no Python when something is.
    "several jobs below a shell": (
        "41 1 bash\n43 41 python a.py 1\n44 41 sh -c x;y\n45 44 python a.py 2\n46 41 sleep 600",
        "Give the PID of one of those below it",
        ": PID 43 (python a.py 1), PID 45 (python a.py 2).",
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", REFUSED)
def test_what_is_no_job_is_called_by_its_kind_and_its_job_is_named(
    fake: FakeProc, case: str
) -> None:
    """Each is refused under the name a person has for it, with what to do instead."""
    text, kind, instead = REFUSED[case]
    tree(fake, text)
    said = refusal(41, fake.root)
    assert kind in said
    assert instead in said
    if "python train.py" in text:
        assert resolve(43, fake.root).pid == 43


WATCHED = {
    "a shell's command line": ("42 1 sh -c python_t.py;exit\n43 42 python t.py", 42, 43, "sh"),
    "a wrapper": ("42 1 timeout 600 python t.py\n43 42 python t.py", 42, 43, "timeout"),
    "a launcher": ("42 1 torchrun | /v/python /v/bin/torchrun t.py", 42, 42, ""),
    "an actor of Ray": ("42 1 raylet\n43 42 ray::Trainer.st | ray::Trainer.step", 43, 43, ""),
    "a worker": (
        "42 1 torchrun | /v/python /v/bin/torchrun t.py\n43 42 pt_data_worker | python t.py",
        43, 43, "",
    ),
    "a container's first process: the training": ("1 0 python train.py", 1, 1, ""),
    "a container's init": (
        "1 0 docker-init | /sbin/docker-init -- python t.py\n7 1 python t.py", 1, 7, "docker-init"
    ),
}  # fmt: skip


@pytest.mark.parametrize("case", WATCHED)
def test_what_only_waits_leads_to_its_only_job(fake: FakeProc, case: str) -> None:
    """Any process of a job will do; of ``sh -c`` and wrappers the program is watched, and a note
    says so."""
    text, asked, watched, waits = WATCHED[case]
    if case.startswith("a container's"):
        fake.namespace("pid:[4026532777]")
    tree(fake, text)
    found = resolve(asked, fake.root)
    assert found[:2] == (watched, BOOTED_AT + 123.45)
    assert len(found.notes) == bool(waits)
    for note in found.notes:
        assert f"is {waits}, which only waits for what it started" in note


def test_what_is_on_a_gpu_is_watched_whatever_it_is(fake: FakeProc) -> None:
    """A task of Celery that trains, a shell's name for a program: the driver lists it."""
    tree(fake, "41 1 celery | /v/python /v/bin/celery -A app worker\n42 1 bash")
    assert "is a service" in refusal(41, fake.root)
    asked: list[int] = []
    found = resolve(41, fake.root, uses_gpu=lambda pid: asked.append(pid) or True)
    assert (found.pid, asked) == (41, [41])
    with pytest.raises(AttachError, match="is a shell"):
        resolve(42, fake.root, uses_gpu=lambda pid: pid == 41)


@pytest.mark.parametrize("command", ["systemd | /sbin/init", "/usr/bin/boot"])
def test_the_machines_first_process_is_no_job(fake: FakeProc, command: str) -> None:
    """PID 1 outside of containers, whatever it is."""
    tree(fake, f"1 0 {command}\n42 1 python train.py")
    said = refusal(1, fake.root)
    assert "starts everything else" in said
    assert "use --pid 42" in said


def test_inside_a_container_a_number_from_outside_is_explained(
    fake: FakeProc, tmp_path: Path
) -> None:
    """nvidia-smi can show the host's PIDs there; and a sandbox can leave out /proc as a whole."""
    fake.namespace("pid:[4026532777]")
    assert "container" in refusal(4242, fake.root)
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
    done = ran("-c", LOOK, PACKAGE, str(pid), *as_whom, under=how)
    if "Operation not permitted" in done.stderr or "ermission denied" in done.stderr:
        pytest.skip("may not make namespaces here")
    assert done.stderr == ""
    assert done.stdout.count("\n") == 1
    return done.stdout


def test_a_slurm_job_is_found_by_its_cgroup(fake: FakeProc) -> None:
    """What Slurm runs in it for itself is not the job."""
    for pid, name, step in (
        (41, "slurmstepd", "step_batch/slurm"),
        (42, "sleep", "step_extern/user/task_0"),
        (43, "python", "step_batch/user/task_0"),
    ):
        folder = f"0::/system.slice/slurmstepd.scope/job_12/{step}\n"
        fake.process(pid, name=name, command=f"{name}\0".encode(), cgroup=folder)
    assert slurm_process("12", fake.root) == 43
    assert slurm_process("1", fake.root) is None


def test_a_slurm_job_is_found_by_the_environment_of_its_tasks(fake: FakeProc) -> None:
    """Where no cgroup says it: not by that of the recorder that its prolog has started, nor of a
    shell of salloc elsewhere."""
    for pid, name, environment in (
        (41, "python", "SLURM_JOB_ID=12\0SLURMD_NODENAME=n1\0"),
        (42, "bash", "SLURM_JOB_ID=12\0SLURM_JOB_NODELIST=n7\0"),
        (43, "python", "SLURM_JOB_ID=13\0SLURM_PROCID=0\0"),
        (44, "python", "SLURM_JOB_ID=12\0SLURM_PROCID=0\0"),
    ):
        fake.process(pid, name=name, command=f"{name}\0".encode())
        fake.write(f"{pid}/environ", environment)
    assert slurm_process("12", fake.root) == 44
    assert slurm_process("14", fake.root) is None


@pytest.mark.parametrize("level", [1, 2])
def test_a_process_that_proc_hides_is_said_to_exist(started: Children, level: int) -> None:
    """hidepid: the PID is not unknown, and who can see it is named."""
    if os.geteuid() != 0 or UNSHARE is None:
        pytest.skip("needs to make namespaces")
    child = started.waiting()
    mount = f'mount -t proc -o hidepid={level} proc /proc && exec "$@"'
    said = look(child.pid, "nobody", how=(UNSHARE, "--mount", "sh", "-c", mount, "-"))
    assert said.startswith(f"refused PID {child.pid} exists")
    assert "hidepid" in said
    gone = look(GONE, "nobody", how=(UNSHARE, "--mount", "sh", "-c", mount, "-"))
    assert gone.startswith(f"refused No process has PID {GONE}")
