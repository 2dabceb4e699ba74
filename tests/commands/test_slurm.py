"""A real Slurm of one node, with the scripts that ``docs/hosts.md`` has for it."""

import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.recording.hosts.names import host_names
from tests.commands.conftest import Gpuwatch
from tests.commands.running import ROOT, environment_in, program
from tests.support.children import wait_until
from tests.support.fake_nvml import create_or_skip
from tests.support.servers import free_port, installed
from tests.support.servers import program as server
from tests.tui.terminal.pseudo_terminal import terminal

# A GPU that waits for the one worker of its loader.
JOB = """
import multiprocessing, pathlib, time
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
gpu = VirtualGpu.open(0, memory_bytes=6 << 30)
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
GresTypes=gpu
Prolog={folder}/Prolog
Epilog={folder}/Epilog
MailProg={folder}/MailProg
NodeName={node} NodeHostname={host} NodeAddr=127.0.0.1 CPUs=2 Gres=gpu:1
PartitionName=all Nodes={node} Default=YES
"""


def script(path: Path, text: str) -> Path:
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)
    return path


def said(*command: str, **options: Any) -> str:
    """What one of Slurm's commands answered."""
    done = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=False, **options)
    return done.stdout.strip()


def scripts_of_the_docs(folder: Path, environment: dict[str, str]) -> None:
    """As they stand there, but for where gpuwatch, mail and the shared folder are."""
    exported = "\n".join(f"export {name}={shlex.quote(environment[name])}" for name in PASSED)
    python = shlex.quote(sys.executable)
    places = {
        "/shared/gpuwatch": folder,
        "gpuwatch": script(folder / "called", f'{exported}\nexec {python} -m gpuwatch "$@"'),
        "mail": script(folder / "mail", f'cd {folder}; (echo "$@"; cat) > got; mv got mailed'),
    }
    text = (ROOT / "docs/hosts.md").read_text()
    found = re.findall(r"```sh\n(#!/bin/sh\n# (\w+).*?)```", text, re.DOTALL)
    assert [name for _, name in found] == ["Prolog", "Epilog", "MailProg"]
    for body, name in found:
        placed = re.sub(
            r"/shared/gpuwatch|\b(?:gpuwatch|mail)(?= )", lambda at: str(places[at[0]]), body
        )
        script(folder / name, placed)


@pytest.fixture
def slurm(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[dict[str, str]]:
    """The environment of its users, whose GPU is simulated; no job is left at the end."""
    munged, controller, node, _ = map(installed, ("munged", "slurmctld", "slurmd", "sbatch"))
    if os.geteuid() != 0:
        pytest.skip("only root can run a node of Slurm")
    fake = create_or_skip(tmp_path, gpus=1)
    fake.gpu[0].waveform("virtual")
    monkeypatch.setenv("SLURM_CONF", str(tmp_path / "slurm.conf"))
    environment = fake.env(environment_in(tmp_path))
    scripts_of_the_docs(tmp_path, environment)
    tracked_by = "cgroup" if os.access(FREEZER, os.W_OK) else "linuxproc"
    host = os.uname().nodename.partition(".")[0]
    ports = (free_port(), free_port())
    (tmp_path / "slurm.conf").write_text(
        CONFIGURATION.format(
            folder=tmp_path, host=host, ports=ports, node=NODE, tracked_by=tracked_by
        )
    )
    (tmp_path / "gres.conf").write_text("Name=gpu File=/dev/null\n")
    (tmp_path / "cgroup.conf").write_text("CgroupMountpoint=/sys/fs/cgroup\n")
    (tmp_path / "key").write_bytes(os.urandom(1024))
    (tmp_path / "key").chmod(0o600)
    munge = [f"--{name}-file={tmp_path}/{name}" for name in ("key", "pid", "log", "seed")]
    munge += [f"--socket={tmp_path}/munge.socket"]
    for name in ("state", "spool"):
        (tmp_path / name).mkdir()
    with ExitStack() as running:
        for command in (
            (munged, "--foreground", "--force", *munge),
            (controller, "-D"),
            (node, "-D", "-N", NODE),
        ):
            running.enter_context(server(*command, stdout=subprocess.DEVNULL))
        wait_until(lambda: said("sinfo", "--noheader", "--format=%T") == "idle")
        yield environment
        said("scancel", "--user=root")
        # Its epilog has ended, too.
        wait_until(lambda: said("squeue", "--noheader") == "")
    with suppress(OSError):
        (FREEZER / f"slurm_{NODE}").rmdir()


def test_the_mail_of_a_job_begins_with_the_cause(
    slurm: dict[str, str], tmp_path: Path, gpuwatch: Gpuwatch
) -> None:
    """By the scripts of the docs; while it runs, its processes are seen with its number, and Slurm
    says on which host it is."""
    (tmp_path / "job.py").write_text(JOB)
    options = ("--parsable", "--gres=gpu:1", "--cpus-per-task=2", "--output=job.out")
    mail = ("--mail-type=END", "--mail-user=ada", "--job-name=train")
    command = f"--wrap=exec {shlex.quote(sys.executable)} job.py"
    number = said("sbatch", *options, *mail, command, cwd=tmp_path, env=slurm)
    recording = str(tmp_path / f"{number}.jsonl.zst")
    wait_until(lambda: "loader worker" in gpuwatch("diagnose", recording, code=None).words[:200])
    status = json.loads(program("status", "--json", env=slurm).stdout)
    assert number in [one["slurm_job"] for one in status["jobs"]]
    seen = {one["name"]: one["slurm_job"] for one in status["processes"]}
    if os.access(FREEZER, os.W_OK):
        # Of a process, by its cgroup alone; here the job itself opens, without ssh.
        assert seen["pt_data_worker"] == number
        names = ("FAKE_NVML_STATE", "LD_LIBRARY_PATH", "SLURM_CONF", "XDG_STATE_HOME")
        passed = {"TERM": "xterm-256color", **{name: slurm[name] for name in names}}
        with terminal("-m", "gpuwatch", "--slurm", number, environment=passed) as screen:
            screen.until_it_says(f"slurm {number}")
    assert host_names((), None, number) == [NODE]
    (tmp_path / "enough").touch()
    wait_until((tmp_path / "mailed").exists)
    subject, *lines = (tmp_path / "mailed").read_text().splitlines()
    assert f"Job_id={number} Name=train Ended" in subject
    assert subject.endswith(" ada")
    begins = r"The GPU was busy \d+% of \d+s\. [^.]*: GPU 0 [^.]*: 1 loader worker "
    assert re.match(begins, " ".join(lines))
