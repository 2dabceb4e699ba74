"""Other machines from the command line: the screen of all, one of them, commands that run there."""

import io
import json
import os
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from types import SimpleNamespace

import pytest

from gpuwatch.commands.watch import Elsewhere
from gpuwatch.core.model import Host, Snapshot
from gpuwatch.core.source import ManualClock
from gpuwatch.outputs.brief import BriefWriter
from gpuwatch.recording.hosts.brief import Found, decode
from gpuwatch.recording.hosts.names import install_command
from tests.commands.conftest import Gpuwatch
from tests.commands.running import environment_in, program
from tests.support.children import wait_until
from tests.support.servers import ssh_server
from tests.support.simulated import looks
from tests.support.snapshots import gpu, snapshot, stream_lines
from tests.tui.terminal.pseudo_terminal import clean_environment, terminal

ROOT = Path(__file__).resolve().parents[2]


def found_lines(taken: Sequence[Snapshot]) -> str:
    """Lines of a host that judges itself."""
    out = io.StringIO()
    writer = BriefWriter(out, findings=True)
    for one in taken:
        writer.write(one)
    return out.getvalue()


CALLED = f"{sys.executable} -m gpuwatch"


@pytest.fixture
def ssh(tmp_path: Path) -> dict[str, str]:
    """An ``ssh`` that runs the command here, unless the host is called lost."""
    path = tmp_path / "ssh"
    path.write_text(
        "#!/bin/sh\n"
        f'echo "$@" >> {tmp_path}/asked\n'
        'while [ "$1" != -- ]; do shift; done\n'
        'if [ "$2" = lost ]; then echo "ssh: no route to lost" >&2; exit 255; fi\n'
        f'cd {ROOT}; exec sh -c "$3"\n'
    )
    path.chmod(0o755)
    found = {"PATH": f"{tmp_path}:{os.environ['PATH']}", "TERM": "xterm-256color"}
    return found | {"COLORTERM": "truecolor", "XDG_CONFIG_HOME": str(tmp_path)}


def test_one_of_many_hosts_is_opened_and_left(ssh: dict[str, str]) -> None:
    """Enter shows its own dashboard, q returns to all of them, and q there quits."""
    options = ("--host", "box1,lost", "--host", "box2", "--remote-command", CALLED)
    with terminal("-m", "gpuwatch", *options, size=(120, 30), environment=ssh) as screen:
        screen.until_it_says("ssh: no route to lost")
        screen.until_it_says("3 hosts")
        screen.until(lambda: "1 not connected" in screen.text)
        screen.type("\x1b[F\r")
        screen.until_it_says("box2: q returns to the list of hosts")
        screen.type("q")
        screen.until_it_says("WORST FINDING")
        screen.type("q")
        assert screen.end() == 0


def test_the_job_of_one_host_opens_by_itself(ssh: dict[str, str], tmp_path: Path) -> None:
    """Not all that runs there."""
    for name in ("squeue", "scontrol", "stream"):
        path = tmp_path / name
        said = (
            f"cd {ROOT}; exec {CALLED} stream --demo imbalanced"
            if name == "stream"
            else "echo box1"
        )
        path.write_text(f"#!/bin/sh\n{said}\n")
        path.chmod(0o755)
    options = ("--slurm", "48213", "--remote-command", str(tmp_path / "stream"))
    with terminal("-m", "gpuwatch", *options, size=(120, 30), environment=ssh) as screen:
        screen.until_it_says("slurm 48213")


def test_a_command_runs_on_other_machines(ssh: dict[str, str], tmp_path: Path) -> None:
    """With the options that are not about them, words kept whole; the exit code is theirs."""
    settings = {"env": {**clean_environment(), **ssh, "PYTHONPATH": str(ROOT)}, "cwd": ROOT}
    options = ("--host=box1", "--remote-command", CALLED, "--demo", "--json")
    done = program("status", *options, **settings)
    assert done.returncode == 0, done.stderr
    assert '"simulated": true' in done.stdout
    asked = (tmp_path / "asked").read_text()
    assert "BatchMode=yes" in asked
    assert " -- box1 exec sh -c" in asked
    there = ("--host", "box1,lost", "--remote-command", CALLED)
    done = program("report", *there, "no such; file", **settings)
    assert done.returncode == 255
    assert "no such; file" in done.stderr
    assert "ssh: no route to lost" in done.stderr
    assert "gpuwatch: lost: ssh failed (exit code 255)." in done.stderr


def test_why_a_command_did_not_run_is_said_with_the_name_of_the_host(tmp_path: Path) -> None:
    """By a real ssh: a key that is not known and one that changed, a name that is none, no gpuwatch
    there, and one whose Python is gone."""
    broken, ssh = tmp_path / "broken", tmp_path / "ssh"
    broken.write_text("#!/nowhere/python\n")
    with ssh_server(tmp_path) as server:
        port = re.search(r"Port (\d+)", (tmp_path / "ssh.conf").read_text())[1]
        key = "ssh-ed25519 AAAAC3NzaC1lZDI1NTE5AAAAI" + "A" * 42 + "A"
        (tmp_path / "known").write_text(f"[127.0.0.1]:{port} {key}\n")
        strict = "StrictHostKeyChecking yes\n UserKnownHostsFile"
        at = f" HostName 127.0.0.1\n Port {port}\n"
        (tmp_path / "ssh.conf").write_text(
            f"Host unk\n{at} {strict} {tmp_path}/none\n"
            f"Host changed\n{at} {strict} {tmp_path}/known\n"
            f"Host dead\n HostName 127.0.0.1\n Port 1\n" + (tmp_path / "ssh.conf").read_text()
        )
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {" ".join(server.options)} "$@"\n')
        for one in (broken, ssh):
            one.chmod(0o755)
        environment = environment_in(tmp_path) | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        settings = {"env": environment, "cwd": ROOT}
        options = ("--host", "unk,changed,dead,box1", "--remote-command")
        done = program("status", *options, "no-such-gpuwatch", **settings)
        assert done.returncode == 255
        said = done.stderr.splitlines()
        assert said[0].startswith("gpuwatch: unk: its host key is not in ~/.ssh/known_hosts: run")
        assert said[1].startswith("gpuwatch: changed: its host key is not the one in ~/.ssh/known")
        assert said[2].startswith("gpuwatch: dead: ssh: connect to host 127.0.0.1 port 1: Conn")
        assert said[3].startswith("gpuwatch: box1: there is no gpuwatch there. To install it: tar")
        done = program("status", "--host", "box1", "--remote-command", str(broken), **settings)
        assert done.returncode in (126, 127)
        assert "gpuwatch: box1: gpuwatch does not start there: its Python is missing" in done.stderr
        broken.write_text(f"#!{sys.executable}\nimport no_such_module\n")
        done = program("status", "--host", "box1", "--remote-command", str(broken), **settings)
        assert done.returncode == 127
        assert "gpuwatch: box1: gpuwatch does not start there: its Python cannot" in done.stderr


def test_a_recording_elsewhere_ends_with_the_connection(
    ssh: dict[str, str], tmp_path: Path
) -> None:
    """Also where there is no terminal, and nothing could tell it to stop."""
    file = tmp_path / "run.jsonl"
    options = ("--host", "box1", "--remote-command", CALLED, "-o", str(file), "--demo")
    with subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "record", *options],
        **{"env": {**environment_in(tmp_path), **ssh}, "stderr": subprocess.PIPE},
    ) as started:
        wait_until(lambda: file.exists() and file.read_text().count("\n") > 1)
        started.kill()
        # Whoever records has this open until it ends.
        _, said = started.communicate(timeout=60)
    assert b"Traceback" not in said


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        (("--host", "-x"), "--host: '-x' is not a valid host name."),
        (("--host", "box1", "--pid", "1"), "--pid cannot be used with hosts."),
        (("--host", "box1", "--demo"), "--demo cannot be used with hosts."),
        (("--hosts", "/nowhere"), "/nowhere cannot be read: No such file or directory."),
        (("--host", "box1", "status"), "--host goes after the command"),
        (("stream", "--host", "a,b"), "stream takes one --host"),
        (("status", "--host", "a b"), "--host: 'a b' is not a valid host name."),
    ],
)
def test_what_cannot_be_watched_is_said(
    gpuwatch: Gpuwatch, arguments: tuple[str, ...], says: str
) -> None:
    """One sentence, before anything is drawn."""
    assert says in gpuwatch(*arguments, code=2).err


def test_recordings_of_several_hosts_are_one_report(gpuwatch: Gpuwatch, tmp_path: Path) -> None:
    """With the GPUs of both, for report and diagnose; a file that is none is said."""
    files = []
    for name in ("node1", "node2"):
        taken = [
            snapshot(
                at,
                host=Host(name=name),
                gpus=(gpu(f"GPU-{name}", busy_percent=40.0),),
                taken_at_unix_seconds=at,
            )
            for at in (100.0, 101.0, 102.0)
        ]
        files.append(tmp_path / f"{name}.jsonl")
        files[-1].write_text("\n".join(stream_lines(*taken)) + "\n")
    both = [str(file) for file in files]
    for command in ("report", "diagnose"):
        found = gpuwatch(command, *both, "--json", code=None).json
        assert [one["uuid"] for one in found["gpus"]] == ["GPU-node1", "GPU-node2"]
        assert found["source"]["name"] == " and ".join(both)
        assert "/nowhere" in gpuwatch(command, both[0], "/nowhere", code=2).err
    assert "of the same host" in gpuwatch("report", both[0], both[0], code=2).err
    assert "1 is no recording: name one report" in gpuwatch("report", "1", "2", code=2).err


SAYS = {"its readings": lambda taken: "\n".join(stream_lines(*taken)), "what it found": found_lines}


@pytest.mark.parametrize("said", SAYS)
def test_findings_of_another_machine_are_raised_here(tmp_path: Path, said: str) -> None:
    """By the name it was given, over a real sshd; one line when it cannot be reached any more, and
    one when it is back. A host that has an older gpuwatch, or none, is judged here."""
    clock = ManualClock(unix_epoch_seconds=time.time())
    taken = list(looks("lost", 30, clock=clock))
    for name, part in (("first", taken[:10]), ("then", taken[10:])):
        (tmp_path / name).write_text(SAYS[said](part) + "\n")
    there, ssh = tmp_path / "there", tmp_path / "ssh"
    once = f"mkdir {tmp_path}/once 2>/dev/null && print=first || print=then"
    there.write_text(
        f"#!/bin/sh\n{once}; cat {tmp_path}/$print; exec tail -f /dev/null --pid {os.getpid()}\n"
    )
    with ssh_server(tmp_path) as server:
        ssh.write_text(f'#!/bin/sh\nexec {shutil.which("ssh")} {" ".join(server.options)} "$@"\n')
        for one in (there, ssh):
            one.chmod(0o755)
        environment = environment_in(tmp_path) | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
        options = ("--host", "box1", "--remote-command", str(there), "--exit-on", "any", "--json")
        with subprocess.Popen(
            [sys.executable, "-m", "gpuwatch", "watch", *options],
            **{"env": environment, "stdout": subprocess.PIPE, "stderr": subprocess.PIPE},
        ) as watching:
            wait_until((tmp_path / "once").exists)
            server.kill()
            spoken = watching.stderr.readline() + watching.stderr.readline()
            server.start()
            out, more = watching.communicate(timeout=60)
        assert watching.returncode == 1
        assert b"gpuwatch: box1 is not watched: " in spoken
        assert more == b"gpuwatch: box1 is back.\n"
        event = json.loads(out)
        assert (event["machine"], event["finding"]["rule"]) == ("box1", "gpu_lost")
        assert event["finding"]["gpus"] == ["0"]


def test_a_host_that_starts_anew_clears_nothing_that_still_holds() -> None:
    """Its gpuwatch looks at a minute before it finds the same again; what it does not find by then
    is gone."""
    taken = list(looks("starved", 60))
    one = Elsewhere(SimpleNamespace(found=None, tape=None, latest=None, brief=None))
    writer = BriefWriter(out := io.StringIO(), findings=True)

    def rules(*snapshots: Snapshot) -> list[str]:
        for each in snapshots:
            out.seek(0)
            out.truncate()
            writer.write(each)
            for line in out.getvalue().splitlines():
                said = decode(line)
                setattr(one.host, "found" if isinstance(said, Found) else "brief", said)
            one.has_news()
        return [each.rule for each in one.ledger.open]

    assert "loader_cpu_bound" in rules(*taken)
    writer = BriefWriter(out, findings=True)
    rested = [
        replace(
            taken[-1],
            jobs=(),
            processes=(),
            taken_at_unix_seconds=taken[-1].taken_at_unix_seconds + 5.0 + second,
            monotonic_seconds=float(second),
        )
        for second in range(90)
    ]
    assert "loader_cpu_bound" in rules(*rested[:50])
    assert "loader_cpu_bound" not in rules(*rested[50:])


def test_what_a_login_prints_is_none_of_the_answer(tmp_path: Path) -> None:
    """Neither greetings nor a module that says hello come before the JSON; a reader that has gone
    is no fault."""
    ssh = tmp_path / "ssh"
    ssh.write_text(
        f"#!/bin/sh\necho Welcome; printf '{{'; echo; cd {ROOT}\n"
        'while [ "$1" != -- ]; do shift; done; exec sh -c "$3"\n'
    )
    ssh.chmod(0o755)
    environment = environment_in(tmp_path) | {"PATH": f"{tmp_path}:{os.environ['PATH']}"}
    settings = {"env": environment, "cwd": ROOT}
    options = ("--host", "box1", "--remote-command", CALLED, "--demo", "--json")
    done = program("status", *options, **settings)
    assert (done.returncode, done.stderr) == (0, "")
    assert json.loads(done.stdout)["simulated"] is True
    command = (
        f"{CALLED} stream {' '.join(options[:2])} --remote-command '{CALLED}' --demo | head -n1"
    )
    piped = subprocess.run(["sh", "-c", command], capture_output=True, check=False, **settings)
    assert piped.stdout.startswith(b'{"kind":"header"')
    assert piped.stderr == b""


def test_the_command_that_installs_gpuwatch_elsewhere_brings_its_source(tmp_path: Path) -> None:
    """No package index has it: the command is run as it stands, with an ssh and a python that only
    say what they were given."""
    bin_, home = tmp_path / "bin", tmp_path / "home"
    bin_.mkdir()
    home.mkdir()
    (bin_ / "ssh").write_text(f'#!/bin/sh\n[ "$1" = box1 ] && HOME={home} exec sh -c "$2"\n')
    # As venv makes it: a folder with a pip, which here says what it is to install.
    (bin_ / "python3").write_text(
        '#!/bin/sh\nmkdir -p "$3/bin"; printf \'#!/bin/sh\\nls "$2"\\n\' > "$3/bin/pip"\n'
        'chmod +x "$3/bin/pip"\n'
    )
    for one in ("ssh", "python3"):
        (bin_ / one).chmod(0o755)
    done = subprocess.run(
        ["sh", "-c", install_command("box1")],
        env={"PATH": f"{bin_}:{os.environ['PATH']}"},
        capture_output=True,
        text=True,
        check=True,
    )
    assert {"gpuwatch", "pyproject.toml", "README.md", "LICENSE"} <= {*done.stdout.split()}
    assert (home / ".gpuwatch/source/gpuwatch/__main__.py").exists()
