"""A real Slurm of one node of two GPUs, with the scripts that ``record --print`` has for it."""

import json
import os
import pwd
import re
import shlex
import shutil
import stat
import subprocess
import sys
import sysconfig
from collections.abc import Iterator, Sequence
from contextlib import ExitStack, suppress
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any

import pytest

from gpuwatch.commands.record import FILES
from gpuwatch.recording.file import open_any
from gpuwatch.recording.hosts.names import host_names
from tests.commands.conftest import Gpuwatch
from tests.commands.running import ROOT, environment_in, program
from tests.support.children import wait_until
from tests.support.fake_nvml import INIT_FUNCTIONS, FakeNvml, create_or_skip
from tests.support.servers import free_port, installed
from tests.support.servers import program as server
from tests.support.snapshots import stream_lines
from tests.tui.terminal.pseudo_terminal import terminal

# Takes the GPU that Slurm gave it, which waits for the one worker of its loader.
JOB = """
import multiprocessing, os, pathlib, time
from tests.support.virtual_gpu import VirtualGpu

def load(batches):
    pathlib.Path("/proc/self/comm").write_text("pt_data_worker")
    while True:
        until = time.process_time() + 0.3
        while time.process_time() < until:
            pass
        batches.send_bytes(b"batch")

context = multiprocessing.get_context("fork")
batches, made = context.Pipe(duplex=False)
context.Process(target=load, args=(made,), daemon=True).start()
gpu = VirtualGpu.open(int(os.environ["CUDA_VISIBLE_DEVICES"]), memory_bytes=6 << 30)
while not pathlib.Path("enough").exists():
    batches.recv_bytes()
    gpu.run(0.2)
"""
PASSED = ("LD_LIBRARY_PATH", "FAKE_NVML_STATE", "PYTHONPATH", "XDG_STATE_HOME")
FREEZER = Path("/sys/fs/cgroup/freezer")
"""Of the first version of cgroups: with the second, Slurm 22.05 needs systemd."""
NODE = f"node{os.getpid()}"
CONFIGURATION = """
ClusterName=gpuwatch
SlurmctldHost={host}(127.0.0.1)
SlurmctldPort={ports[0]}
SlurmdPort={ports[1]}
CommunicationParameters=NoCtldInAddrAny,NoInAddrAny
SlurmUser=root
AuthInfo=socket={folder}/munge.socket
StateSaveLocation={folder}/state
SlurmdSpoolDir={folder}/spool
SlurmctldPidFile={folder}/slurmctld.pid
SlurmdPidFile={folder}/slurmd.pid
ProctrackType=proctrack/{tracked_by}
SlurmdParameters=config_overrides
SelectType=select/cons_tres
SelectTypeParameters=CR_Core
GresTypes=gpu
Prolog={folder}/slurm-prolog.sh
Epilog={folder}/slurm-epilog.sh
MailProg={folder}/slurm-mail.sh
PrologEpilogTimeout=60
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=4 Gres=gpu:2
PartitionName=all Nodes={node} Default=YES
"""


OWNERS = ("nobody", "daemon")
"""Users of every Linux: nothing of theirs is at stake."""
PATH = "/usr/bin:/bin"


def said(*command: str, **options: Any) -> str:
    """What one of Slurm's commands answered."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, **options)
    return done.stdout.strip()


@dataclass
class Site:
    """A cluster's set-up: the scripts, a folder for recordings and a home for each user."""

    folder: Path
    fake: FakeNvml
    environment: dict[str, str]
    """Of the users, whose GPUs are simulated."""

    python: str = ""
    """Of this version, and one that they may run."""

    def find_python(self) -> bool:
        for self.python in (sys.executable, f"/usr/bin/python{sysconfig.get_python_version()}"):
            with suppress(OSError):
                done = subprocess.run(
                    [self.python, "-m", "gpuwatch", "--version"],
                    user=OWNERS[0],
                    group=pwd.getpwnam(OWNERS[0]).pw_gid,
                    extra_groups=[],
                    env=self.environment,
                    cwd="/",
                    capture_output=True,
                    check=False,
                )
                if done.returncode == 0:
                    return True
        return False

    @property
    def shared(self) -> Path:
        return self.folder / "shared"

    def records(self) -> bool:
        """Whether a recorder runs, or a program that stands for one."""
        return said("pgrep", "-f", f"gpuwatch record --slurm-job .*{self.folder}") != ""

    def script(self, path: Path, *lines: str) -> Path:
        path.parent.mkdir(exist_ok=True)
        path.write_text("\n".join(["#!/bin/sh", *lines, ""]))
        path.chmod(0o755)
        return path

    def exports(self, *left_out: str) -> list[str]:
        names = [name for name in PASSED if name not in left_out]
        return [f"export {name}={shlex.quote(self.environment[name])}" for name in names]

    def programs(self, name: str, *before: str, instead: Sequence[str] = ()) -> str:
        """A PATH on which gpuwatch runs ``before`` it begins, or does something ``instead``."""
        runs = instead or [*before, f'exec {shlex.quote(self.python)} -m gpuwatch "$@"']
        self.script(self.folder / name / "gpuwatch", *runs)
        kept = f"{self.folder}/mailed"
        # That a job began can be mailed after that it ended, on a busy machine.
        keeps = f'(echo "$@"; cat) > {kept}$$; case $2 in *Ended*) mv {kept}$$ {kept}-$3;; esac'
        self.script(self.folder / name / "mail", keeps)
        return f"{self.folder / name}:{PATH}"

    def place(self, path: str, shared: Path) -> None:
        """Install the scripts, with the two lines changed that an administrator changes."""
        for name in FILES:
            text = program("record", "--print", name).stdout
            for variable, value in (("PATH", path), ("FOLDER", str(shared))):
                text, found = re.subn(f"(?m)^{variable}=.*$", f"{variable}={value}", text)
                assert found == 1
            (self.folder / name).write_text(text)
            (self.folder / name).chmod(0o700)

    def home(self, owner: str) -> Path:
        home = self.folder / owner
        if not home.exists():
            home.mkdir()
            os.chown(home, pwd.getpwnam(owner).pw_uid, -1)
        return home

    def submit(self, owner: str, *options: str) -> str:
        """Give a job of this user to Slurm; its number (or what was said of it)."""
        user = pwd.getpwnam(owner)
        given = ("--parsable", f"--uid={owner}", f"--gid={user.pw_gid}", "--gres=gpu:1", *options)
        return said("sbatch", *given, cwd=self.home(owner), env=self.environment)


@pytest.fixture
def site(tmp_path: Path) -> Iterator[Site]:
    """Everything is where other users may read it, which is not so in ``tmp_path``."""
    if os.geteuid() != 0:
        pytest.skip("only root can run scripts for other users")
    installed("setpriv")
    with TemporaryDirectory(prefix="gpuwatch-slurm-", ignore_cleanup_errors=True) as made:
        folder = Path(made)
        folder.chmod(0o755)
        fake = create_or_skip(folder, gpus=2)
        fake.path.chmod(0o666)
        for gpu in fake.gpu[:2]:
            gpu.waveform("virtual")
        one = Site(folder, fake, fake.env(environment_in(folder)))
        # The library is built where its builder alone may read.
        (folder / "driver").mkdir()
        shutil.copy(fake.library, folder / "driver")
        one.environment["LD_LIBRARY_PATH"] = str(folder / "driver")
        one.environment["PYTHONPATH"] = f"{ROOT}:{sysconfig.get_path('purelib')}"
        one.shared.mkdir()
        one.shared.chmod(0o3773)
        if not one.find_python():
            pytest.skip("other users may not run this Python, or may not read this checkout")
        one.place(one.programs("bin", *one.exports()), one.shared)
        yield one
        fake.release()


@pytest.fixture
def slurm(site: Site, monkeypatch: pytest.MonkeyPatch) -> Iterator[Site]:
    """Slurm runs; no job is left at the end."""
    munged, controller, node, _ = map(installed, ("munged", "slurmctld", "slurmd", "sbatch"))
    folder = site.folder
    monkeypatch.setenv("SLURM_CONF", str(folder / "slurm.conf"))
    site.environment["SLURM_CONF"] = str(folder / "slurm.conf")
    tracked_by = "cgroup" if os.access(FREEZER, os.W_OK) else "linuxproc"
    host = os.uname().nodename.partition(".")[0]
    ports = (free_port(), free_port())
    (folder / "slurm.conf").write_text(
        CONFIGURATION.format(
            folder=folder, host=host, ports=ports, node=NODE, tracked_by=tracked_by
        )
    )
    for number in (0, 1):
        (folder / f"nvidia{number}").symlink_to("/dev/null")
    (folder / "gres.conf").write_text(f"Name=gpu File={folder}/nvidia[0-1]\n")
    (folder / "cgroup.conf").write_text("CgroupMountpoint=/sys/fs/cgroup\n")
    (folder / "key").write_bytes(os.urandom(1024))
    (folder / "key").chmod(0o600)
    munge = [f"--{name}-file={folder}/{name}" for name in ("key", "pid", "log", "seed")]
    munge += [f"--socket={folder}/munge.socket"]
    for name in ("state", "spool"):
        (folder / name).mkdir()
    with ExitStack() as running:
        for command in (
            (munged, "--foreground", "--force", *munge),
            (controller, "-D"),
            (node, "-D", "-N", NODE),
        ):
            running.enter_context(server(*command, stdout=subprocess.DEVNULL))
        wait_until(lambda: node_state() == "idle")
        yield site
        for owner in OWNERS:
            said("scancel", f"--user={owner}")
        # Its epilog has ended, too.
        wait_until(lambda: said("squeue", "--noheader") == "")
    with suppress(OSError):
        (FREEZER / f"slurm_{NODE}").rmdir()


def node_state() -> str:
    return said("sinfo", "--noheader", "--format=%T")


def job_state(number: str) -> str:
    return said("squeue", "--states=all", "--noheader", f"--jobs={number}", "--format=%T")


def test_the_mail_of_a_job_begins_with_the_cause(slurm: Site, gpuwatch: Gpuwatch) -> None:
    """Of two jobs of two users on one node, each is recorded alone: in files of its owner that the
    other may not read, with its own GPU and processes, and nothing of the other in its mail."""
    numbers, recordings = {}, {}
    for owner in OWNERS:
        (slurm.home(owner) / "job.py").write_text(JOB)
        command = f"--wrap=exec {shlex.quote(slurm.python)} job.py --of-{owner}"
        mail = ("--mail-type=BEGIN,END", f"--mail-user={owner}", "--job-name=train")
        number = slurm.submit(owner, *mail, "--cpus-per-task=2", "--output=job.out", command)
        numbers[owner] = number
        recordings[owner] = slurm.shared / f"{number}.{NODE}.jsonl.zst"
    for path in map(str, recordings.values()):
        wait_until(lambda path=path: "loader worker" in gpuwatch("diagnose", path, code=None).words)
    look_at_a_running_job(slurm, numbers[OWNERS[0]])
    used = set()
    for owner, other in (OWNERS, OWNERS[::-1]):
        (slurm.home(owner) / "enough").touch()
        mailed = slurm.folder / f"mailed-{owner}"
        wait_until(lambda mailed=mailed: mailed.exists() and "Ended" in mailed.read_text())
        subject, *lines = mailed.read_text().splitlines()
        assert f"Job_id={numbers[owner]} Name=train Ended" in subject
        # How long it took, and what else holds it up, is the machine's.
        assert re.match(r"The GPU was busy \d+% of [\dhms]+\. ", " ".join(lines))
        assert "1 loader worker " in " ".join(lines)
        with open_any(str(recordings[owner])) as log:
            seen = list(log.snapshots)
        (gpu,) = {gpu.identity.index for one in seen for gpu in one.gpus}
        used.add(gpu)
        assert {one.user for each in seen for one in each.processes} == {owner}
        whole = "\n".join(stream_lines(*seen) + lines)
        assert f"--of-{owner}" in whole
        assert f"--of-{other}" not in whole
        text = recordings[owner].with_name(f"{numbers[owner]}.{NODE}.txt")
        assert lines == text.read_text().splitlines()
        for path, mode in ((recordings[owner], 0o600), (text, 0o640)):
            found = path.stat()
            assert (pwd.getpwuid(found.st_uid).pw_name, stat.S_IMODE(found.st_mode)) == (
                owner,
                mode,
            )
    assert used == {0, 1}
    assert node_state() in ("idle", "completing")


def look_at_a_running_job(slurm: Site, number: str) -> None:
    """Its processes are seen with its number, and Slurm says on which host it is."""
    status = json.loads(program("status", "--json", env=slurm.environment).stdout)
    assert number in [one["slurm_job"] for one in status["jobs"]]
    seen = {one["name"]: one["slurm_job"] for one in status["processes"]}
    if os.access(FREEZER, os.W_OK):
        # Of a process, by its cgroup alone; here the job itself opens, without ssh.
        assert seen["pt_data_worker"] in (number, str(int(number) + 1))
        names = ("FAKE_NVML_STATE", "LD_LIBRARY_PATH", "SLURM_CONF", "XDG_STATE_HOME")
        passed = {"TERM": "xterm-256color", **{name: slurm.environment[name] for name in names}}
        with terminal("-m", "gpuwatch", "--slurm", number, environment=passed) as screen:
            screen.until_it_says(f"slurm {number}")
    assert host_names((), None, number) == [NODE]


def test_no_failure_of_gpuwatch_drains_the_node(slurm: Site) -> None:
    """Neither where it is not there, cannot write, finds no driver or hangs: the job runs, and so
    does the one after it. No recorder outlives its job, however short that was."""
    hangs = ["trap '' TERM", "while :; do sleep 1; done"]
    closed = slurm.folder / "closed"
    closed.mkdir(mode=0o700)
    faults = {
        "no gpuwatch": (PATH, slurm.shared),
        "no folder": (slurm.programs("plain", *slurm.exports()), slurm.folder / "none"),
        "no right to write": (slurm.programs("plain", *slurm.exports()), closed),
        "no room": (slurm.programs("full", *slurm.exports(), "ulimit -f 0"), slurm.shared),
        "no driver": (slurm.programs("bare", *slurm.exports("LD_LIBRARY_PATH")), slurm.shared),
        "nothing": (slurm.programs("plain", *slurm.exports()), slurm.shared),
        "it hangs": (slurm.programs("hangs", instead=hangs), slurm.shared),
    }
    faults["the driver hangs"] = faults["nothing"]
    for name, (path, shared) in faults.items():
        if name == "the driver hangs":
            for function in INIT_FUNCTIONS:
                slurm.fake.hang(function)
        slurm.place(path, shared)
        number = slurm.submit("nobody", "--wrap=true")
        wait_until(lambda n=number: "drain" in node_state() or job_state(n) == "COMPLETED")
        wait_until(lambda: node_state() not in ("allocated", "mixed", "completing"))
        assert node_state() == "idle", name
        wait_until(lambda: not slurm.records())


def run_script(site: Site, name: str, owner: str, *arguments: str) -> None:
    """Run one of the scripts as Slurm does for job 12, which has GPU 0."""
    user = pwd.getpwnam(owner)
    environment = {
        "SLURM_JOB_ID": "12",
        "SLURM_JOB_UID": str(user.pw_uid),
        "SLURM_JOB_GID": str(user.pw_gid),
        "SLURM_JOB_GPUS": "0",
        "SLURMD_NODENAME": "n1",
    }
    subprocess.run([site.folder / name, *arguments], env=environment, check=True)


def mail_to(site: Site, owner: str) -> str:
    """The mail that is sent when job 12 has ended."""
    subject = "Slurm Job_id=12 Name=train Ended, Run time 00:01:00, COMPLETED, ExitCode 0"
    run_script(site, "slurm-mail.sh", owner, "-s", subject, owner)
    return (site.folder / f"mailed-{owner}").read_text()


def test_the_scripts_work_with_the_rights_of_the_owner(site: Site) -> None:
    """A link that somebody has put where they write leads them nowhere, and one that leads to a
    file of somebody else does not bring it into the mail."""
    recording, text = site.shared / "12.n1.jsonl.zst", site.shared / "12.n1.txt"
    secret = site.folder / "secret"
    secret.write_text("of root alone\n")
    secret.chmod(0o600)
    logged = site.folder / "logged"
    site.script(site.folder / "bin" / "logger", f"cat > {logged}.part; mv {logged}.part {logged}")
    recording.symlink_to(secret)
    run_script(site, "slurm-prolog.sh", OWNERS[0])
    wait_until(logged.exists)
    assert "it is a symbolic link, which is not followed" in logged.read_text()
    recording.unlink()
    run_script(site, "slurm-prolog.sh", OWNERS[0])
    wait_until(lambda: recording.exists() and recording.stat().st_size > 0)
    text.symlink_to(secret)
    os.chown(text, pwd.getpwnam(OWNERS[0]).pw_uid, -1, follow_symlinks=False)
    assert "of root" not in mail_to(site, OWNERS[0])
    run_script(site, "slurm-epilog.sh", OWNERS[0])
    wait_until(lambda: not text.is_symlink())
    assert secret.read_text() == "of root alone\n"
    assert "GPU" in mail_to(site, OWNERS[0])
    assert "GPU" not in mail_to(site, OWNERS[1])


def test_a_job_without_gpus_is_not_recorded(site: Site) -> None:
    """The prolog starts nothing for it."""
    environment = {"SLURM_JOB_ID": "12", "SLURM_JOB_UID": "1", "SLURM_JOB_GID": "1"}
    started = site.folder / "started"
    site.script(site.folder / "bin" / "setsid", f"touch {started}")
    subprocess.run([site.folder / "slurm-prolog.sh"], env=environment, check=True)
    assert not started.exists()


@pytest.mark.parametrize("name", FILES)
def test_shellcheck_has_nothing_to_say(name: str, gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """Of none of the scripts, at its strictest default."""
    (tmp_path / name).write_text(gpuwatch("record", "--print", name).out)
    done = subprocess.run(
        [installed("shellcheck"), tmp_path / name], capture_output=True, text=True, check=False
    )
    assert (done.returncode, done.stdout) == (0, "")
