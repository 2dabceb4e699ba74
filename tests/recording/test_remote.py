"""Other machines over ssh: what comes in, connections that are lost, names, and a real sshd."""

import os
import shlex
import sys
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path

import pytest

from gpuwatch.core.model import Snapshot
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.recording import replay
from gpuwatch.recording.hosts import remote
from gpuwatch.recording.hosts.names import HostNameError, configured_hosts, host_names
from gpuwatch.recording.hosts.remote import SSH, RemoteHost, remote_command
from gpuwatch.recording.hosts.together import SharedJob, shared_jobs
from gpuwatch.recording.replay import KeptTape
from tests.support.servers import ssh_server
from tests.support.snapshots import gpu, snapshot, stream_lines

LONG_SECONDS = 30.0


@pytest.fixture(autouse=True)
def short_pauses(monkeypatch: pytest.MonkeyPatch) -> None:
    """Nobody waits for a second before the next connection."""
    monkeypatch.setattr(remote, "_PAUSE_SECONDS", 0.01)


@contextmanager
def connected(*command: str) -> Iterator[RemoteHost]:
    """Of a shell whose command is the last word, what it prints is the answer."""
    if command[:2] == ("sh", "-c") and "gpuwatch-begins" not in command[2]:
        command = ("sh", "-c", f"echo gpuwatch-begins; {command[2]}")
    host = RemoteHost("box1", command, 1.0)
    host.start()
    try:
        yield host
    finally:
        host.close()


def until(holds: Callable[[], object]) -> None:
    deadline = time.monotonic() + LONG_SECONDS
    while not holds():
        assert time.monotonic() < deadline
        time.sleep(0.005)


def tape_of(host: RemoteHost) -> KeptTape:
    until(lambda: host.tape)
    assert host.tape is not None
    return host.tape


def stream(folder: Path, *seconds: float) -> str:
    """A file with a stream of snapshots that were taken so long ago."""
    now = time.time()
    taken = [
        snapshot(1000.0 - ago, gpus=(gpu(busy_percent=40.0),), taken_at_unix_seconds=now - ago)
        for ago in seconds
    ]
    path = folder / "stream.jsonl"
    path.write_text("\n".join(stream_lines(*taken)) + "\n")
    return shlex.quote(str(path))


def test_what_a_machine_prints_is_its_tape(tmp_path: Path) -> None:
    """Snapshots come in as they are printed, and are kept in order."""
    text = stream(tmp_path, 3.0, 2.0, 1.0)
    with connected("sh", "-c", f"cat {text}; exec sleep 100") as host:
        tape = tape_of(host)
        until(lambda: host.latest is not None and tape.last_unix_seconds > time.time() - 60)
        until(lambda: host.latest.monotonic_seconds == 999.0)
        assert host.trouble is None
        assert not host.gpu_only
        assert not host.is_late
        # By the newest of three the clock is about a second behind; the others took longer.
        assert -1.9 < host.clock_ahead_seconds < -0.9
        found = tape.snapshots(0.0)
        assert [next(found).monotonic_seconds for _ in range(3)] == [997.0, 998.0, 999.0]


def test_a_lost_connection_is_made_again_and_keeps_what_there_was(tmp_path: Path) -> None:
    """The reason is the last line ssh printed; the next connection goes on with the same tape."""
    text, gate = stream(tmp_path, 5.0), tmp_path / "gate"
    script = (
        f"cat {text}; if [ -e {gate} ]; then exec sleep 100; fi; echo Broken pipe >&2; exit 255"
    )
    with connected("sh", "-c", script) as host:
        tape = tape_of(host)
        until(lambda: host.trouble == "Broken pipe")
        gate.touch()
        until(lambda: host.trouble is None)
        assert host.tape is tape
        assert tape.arriving


@pytest.mark.parametrize(
    ("script", "says"),
    [
        ("echo 'Permission denied (publickey).' >&2; exit 255", "Permission denied (publickey)."),
        ("printf 'a\\033[31mred\\n' >&2; exit 1", "a[31mred"),
        ("exit 0", "the connection was closed"),
        ("echo No devices were found; exit 6", "No devices were found"),
        ('echo \'{"kind": "header", "schema": 99}\'', "schema"),
        (
            'echo \'{"kind": "header", "schema": 99, "gpuwatch": "99.0"}\'',
            "here: upgrade it here.",
        ),
        (
            'echo \'{"kind":"brief","gpuwatch":"99.0","gpus":7}\'',
            "here: upgrade it here.",
        ),
        ("echo Warning: new key >&2; echo gone >&2; echo '  ' >&2; exit 255", "gone"),
        ("head -c 70000000 /dev/zero", "a line of it does not end"),
        ("head -c 300000 /dev/zero >&2; echo >&2; echo done >&2; exit 1", "done"),
    ],
)
def test_why_nothing_comes_in_is_a_clause(script: str, says: str) -> None:
    """What ssh or the machine printed last, without its escape codes; else what is wrong with what
    came in. Nothing that it prints holds the connection up."""
    with connected("sh", "-c", script) as host:
        until(lambda: host.trouble is not None)
        assert says in host.trouble.replace("\ufffd", "")
        assert "\x1b" not in host.trouble
        assert host.latest is None


def test_a_program_that_is_missing_is_named() -> None:
    """Without ssh the reason says so."""
    with connected("/nowhere/ssh") as host:
        until(lambda: host.trouble is not None)
        assert host.trouble.startswith("/nowhere/ssh cannot be run: No such file")


def script(folder: Path, name: str, text: str) -> None:
    path = folder / name
    path.write_text(f"#!/bin/sh\n{text}\n")
    path.chmod(0o755)


def test_without_gpuwatch_there_nvidia_smi_is_read(tmp_path: Path) -> None:
    """The same connection runs nvidia-smi where there is no gpuwatch; the machine has the name it
    was asked for by, and its readings the time at which they came in."""
    rows = [f"{n}, GPU-{n}, NVIDIA H200, 570.1, 9{n} %, 40 %, 4096 MiB, 143771 MiB" for n in (0, 1)]
    rest = ", 300.00 W, 700.00 W, 55, 1980 MHz, 1980 MHz, 5, 16"
    head = "index, uuid, name, driver_version, utilization.gpu [%], utilization.memory [%], "
    head += "memory.used [MiB], memory.total [MiB], power.draw [W], power.limit [W], "
    head += "temperature.gpu, clocks.current.sm [MHz], clocks.max.sm [MHz], "
    head += "pcie.link.gen.current, pcie.link.width.current"
    printed = "\n".join(f"echo '{row}{rest}'" for row in rows)
    loop = f"while sleep 0.05; do {printed}\ndone"
    script(tmp_path, "nvidia-smi", f"echo \"$*\" > {tmp_path}/asked; echo '{head}'\n{loop}")
    command = f"PATH={tmp_path}:/usr/bin:/bin; {remote_command(2.5, 'no-such-gpuwatch')}"
    with connected("sh", "-c", command) as host:
        tape_of(host)
        until(lambda: host.latest is not None and len(host.latest.gpus) == 2)
        assert host.gpu_only
        assert host.latest.host.name == "box1"
        assert [one.reading.busy_percent for one in host.latest.gpus] == [90.0, 91.0]
        assert abs(host.latest.taken_at_unix_seconds - time.time()) < LONG_SECONDS
        asked = (tmp_path / "asked").read_text()
        assert asked.startswith("--query-gpu=index,uuid,name")
        assert asked.strip().endswith("--format=csv -lms 2500")


def test_a_host_with_neither_is_told(tmp_path: Path) -> None:
    """A sentence of its own, which offers the way to install gpuwatch there."""
    command = f"PATH={tmp_path}; {remote_command(1.0, 'no-such-gpuwatch')}"
    command = command.replace("exec sh", "exec /bin/sh")
    with connected("/bin/sh", "-c", f"echo Welcome >&2; {command}") as host:
        until(lambda: host.trouble is not None)
        assert host.trouble == remote.NEITHER


def test_a_gpuwatch_that_cannot_start_is_no_reason_to_see_nothing(tmp_path: Path) -> None:
    """nvidia-smi is read, and why is kept; where there is none either, that is what is said."""
    script(tmp_path, "gw", "echo Traceback >&2; echo \"No module named 'msgspec'\" >&2; exit 1")
    command = f"PATH={tmp_path}:/usr/bin:/bin; {remote_command(1.0, 'gw')}"
    with connected("sh", "-c", command) as host:
        until(lambda: host.trouble is not None)
        assert host.trouble == "gpuwatch does not start there: No module named 'msgspec'"
    row = "echo '0, GPU-0, 90 %'"
    script(tmp_path, "nvidia-smi", f"echo 'index, uuid, utilization.gpu [%]'; {row}; exec sleep 9")
    with connected("sh", "-c", command) as host:
        until(lambda: host.latest)
        assert host.gpu_only
        assert host.why_gpu_only == "gpuwatch does not start there: No module named 'msgspec'"


def test_an_older_gpuwatch_goes_on_with_the_full_stream(tmp_path: Path) -> None:
    """It refuses --brief; its snapshots come in without being asked for, and its version is
    known."""
    text = stream(tmp_path, 3.0, 2.0, 1.0).strip("'")
    older = Path(text).read_text().replace('"gpuwatch":"', '"gpuwatch":"0.0.')
    Path(text).write_text(older)
    no = "echo 'Error: No such option: --brief' >&2; exit 2"
    script(tmp_path, "gw", f'case "$*" in *--brief*) {no};; esac; cat {text}; exec sleep 100')
    with connected("sh", "-c", remote_command(1.0, f"{tmp_path}/gw")) as host:
        tape_of(host)
        until(lambda: host.brief)
        assert host.version.startswith("0.0.")
        assert host.trouble is None
        assert [one.busy_percent.mean for one in host.brief.gpus] == [40.0]


def test_whole_snapshots_come_in_while_somebody_reads_them(tmp_path: Path) -> None:
    """With those from before it was asked; in brief again, the last of them is no longer now."""
    call = f"{sys.executable} -m gpuwatch"
    script(tmp_path, "gw", f'cd {shlex.quote(str(Path.cwd()))}; exec {call} "$@" --demo starved:2')
    with connected("sh", "-c", remote_command(0.2, f"{tmp_path}/gw")) as host:
        until(lambda: host.brief)
        began = host.brief.taken_at_unix_seconds
        until(lambda: host.brief.taken_at_unix_seconds > began + 0.5)
        assert host.tape is None
        host.read_in_full("one", from_past=True)
        host.read_in_full("other")
        tape = tape_of(host)
        assert tape.first_unix_seconds <= began
        host.read_in_brief("one")
        until(lambda: host.latest and host.latest.taken_at_unix_seconds > began + 1.0)
        host.read_in_brief("other")
        assert host.latest is None
        last = host.brief.taken_at_unix_seconds
        until(lambda: host.brief.taken_at_unix_seconds > last + 0.5)
        host.read_in_full("one", from_past=True)
        until(lambda: tape.last_unix_seconds > last + 0.5)
        times = [one.taken_at_unix_seconds for one in tape._open]
        assert times == sorted(set(times))


_NODE = """
import sys, threading, time
from gpuwatch.core.model import Job, JobRank
from gpuwatch.outputs.brief import BriefWriter
from tests.support.snapshots import gpu, snapshot

number, writer = int(sys.argv[1]), BriefWriter(sys.stdout)
ranks = (JobRank(pid=7, rank=number, gpu_uuids=(f"GPU-{number}",)),)
job = Job(pid=7, ranks=ranks, world_size=2, slurm_job="4711", gpu_uuids=(f"GPU-{number}",))
jobs = () if number == 2 else (job,)
threading.Thread(target=lambda: [*map(writer.answer, sys.stdin)], daemon=True).start()
while True:
    card = gpu(f"GPU-{number}", busy_percent=10.0 * number)
    now = {"taken_at_unix_seconds": time.time(), "interval_seconds": 0.1}
    writer.write(snapshot(time.monotonic(), gpus=(card,), jobs=jobs, **now))
    time.sleep(0.1)
"""


def test_a_job_on_several_hosts_reads_those_in_full_and_no_others(tmp_path: Path) -> None:
    """It is known by their brief lines; their snapshots are put together."""
    (tmp_path / "node.py").write_text(_NODE)
    here = shlex.quote(str(Path.cwd()))
    run = f"cd {here}; PYTHONPATH=. exec {sys.executable} {tmp_path}/node.py"
    with (
        connected("sh", "-c", f"{run} 0") as first,
        connected("sh", "-c", f"{run} 1") as second,
        connected("sh", "-c", f"{run} 2") as other,
    ):
        hosts = [first, second, other]
        until(lambda: all(host.brief for host in hosts))
        assert shared_jobs(hosts) == {("4711", 2): "job 4711"}
        job = SharedJob("job 4711", ("4711", 2), hosts)
        job.start()
        until(lambda: job.latest is not None and len(job.latest.gpus) == 2)
        assert other.latest is None
        assert other.tape is None
        job.close()
        until(lambda: first.latest is None and second.latest is None)


def test_gpuwatch_is_looked_for_where_it_is_said_to_be(tmp_path: Path) -> None:
    """It streams at the interval that was asked for."""
    text = stream(tmp_path, 1.0)
    script(tmp_path, "gw", f'echo "$*" > {tmp_path}/asked; cat {text}; exec sleep 100')
    with connected("sh", "-c", remote_command(0.5, f"{tmp_path}/gw")) as host:
        tape_of(host)
        assert (tmp_path / "asked").read_text() == "stream --interval 0.5s --brief\n"


def test_what_a_shell_prints_by_itself_is_passed_over(tmp_path: Path) -> None:
    """Neither a greeting of the host's own start-up file nor what comes after it makes a stream a
    log."""
    text = stream(tmp_path, 1.0)
    noise = "echo 'a module says hello, 1'; echo '['"
    command = f"echo Welcome; echo gpuwatch-begins; {noise}; cat {text}; exec sleep 100"
    with connected("sh", "-c", command) as host:
        tape_of(host)
        assert not host.gpu_only


def test_a_host_that_says_nothing_is_given_up(monkeypatch: pytest.MonkeyPatch) -> None:
    """After a while, so that others get its place among those that connect."""
    monkeypatch.setattr(remote, "_ANSWER_SECONDS", 0.05)
    with connected("sh", "-c", "exec sleep 100") as host:
        until(lambda: host.trouble is not None)
        assert host.trouble == "nothing that can be read came in 0 s"


def test_a_host_whose_clock_is_set_begins_anew(tmp_path: Path) -> None:
    """Two hours back, another tape takes the place of the first: each has times that ascend."""
    ahead = Path(stream(tmp_path, -7200.0).strip("'")).rename(tmp_path / "ahead")
    # Its other clock is not set.
    ahead.write_text(
        ahead.read_text().replace('"monotonic_seconds":8200.0', '"monotonic_seconds":998.0')
    )
    right = stream(tmp_path, 1.0)
    command = (
        f"cd {tmp_path}; if mkdir first; then cat {ahead}; sed 1d {right}; fi; cat {right};"
        " exec sleep 100"
    )
    with connected("sh", "-c", command) as host:
        first = tape_of(host)
        until(lambda: host.tape is not first)
        assert not first.arriving
        assert abs(host.tape.first_unix_seconds - time.time()) < LONG_SECONDS + 10.0


def test_a_host_that_was_silent_for_hours_goes_on(tmp_path: Path) -> None:
    """What was kept of it is older than all that is kept, and is no fault."""
    text = stream(tmp_path, 20_000.0, 19_990.0, 2.0, 1.0)
    log = remote.open_any(text.strip("'"))
    tape = KeptTape(log, diagnoses=False, chunk_seconds=10.0, kept_seconds=3600.0)
    until(lambda: not tape.arriving)
    assert tape.error is None
    assert [one.monotonic_seconds for one in tape.snapshots(0.0)][-1] == 999.0
    tape.close()


def test_a_closed_host_leaves_nothing_running(tmp_path: Path) -> None:
    """Its process ends, and it does not connect again."""
    text = stream(tmp_path, 1.0)
    with connected("sh", "-c", f"cat {text}; echo $$ > {tmp_path}/pid; exec sleep 100") as host:
        tape_of(host)
        until((tmp_path / "pid").exists)
        until(lambda: (tmp_path / "pid").read_text().strip())
    pid = int((tmp_path / "pid").read_text())
    until(lambda: not Path(f"/proc/{pid}").exists())
    (tmp_path / "pid").unlink()
    time.sleep(0.1)
    assert not (tmp_path / "pid").exists()


def test_findings_wait_for_the_history_to_come_in(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The first picture needs the snapshots alone."""
    monkeypatch.setattr(replay, "_PAUSE_SECONDS", LONG_SECONDS)
    monkeypatch.setattr(replay, "_FOLLOW_AFTER_SECONDS", LONG_SECONDS)
    taken, when, make = [], [], replay.new_engine

    def made() -> Engine:
        when.append(len(taken))
        return make()

    def counted() -> Iterator[Snapshot]:
        for one in log.snapshots:
            taken.append(one)
            yield one

    monkeypatch.setattr(replay, "new_engine", made)
    log = remote.open_any(stream(tmp_path, *range(60, 0, -1)).strip("'"))
    tape = KeptTape(replace(log, snapshots=counted()), chunk_seconds=10.0)
    until(lambda: tape.diagnosis is not None)
    assert when == [60]
    tape.close()


def test_what_is_old_is_forgotten(tmp_path: Path) -> None:
    """A tape that keeps a minute has nothing of an hour ago, and counts what is left."""
    text = stream(tmp_path, *range(3600, 0, -5))
    log = remote.open_any(text.strip("'"))
    tape = KeptTape(log, diagnoses=False, chunk_seconds=10.0, kept_seconds=60.0)
    until(lambda: not tape.arriving)
    kept = [one.monotonic_seconds for one in tape.snapshots(0.0)]
    assert kept[-1] == 995.0
    assert kept == sorted(kept)
    assert 60.0 <= kept[-1] - kept[0] <= 150.0
    assert len(tape.buckets) <= 4
    assert tape.first_unix_seconds > time.time() - LONG_SECONDS - 70.0
    tape.close()


def test_names_come_from_options_and_files(tmp_path: Path) -> None:
    """Each is there once, in the order given; a comment is none."""
    path = tmp_path / "hosts"
    path.write_text("# the lab\nbox2  # upstairs\n\nada@box3 slots=8\n")
    assert host_names(["box1,box2", "box1"], str(path), None) == ["box1", "box2", "ada@box3"]


@pytest.mark.parametrize(
    ("given", "file", "slurm", "says"),
    [
        (["-oProxyCommand=reboot"], None, None, "is not a valid host name"),
        (["a b"], None, None, "is not a valid host name"),
        (["box;reboot"], None, None, "is not a valid host name"),
        ([], "/nowhere", None, "/nowhere cannot be read: No such file"),
        ([","], None, None, "No hosts were given."),
        ([], None, "1; reboot", "is not the number of a Slurm job"),
        ([f"box{n}" for n in range(257)], None, None, "257 hosts were given: at most 256"),
    ],
)
def test_names_that_cannot_be_had_are_refused(
    given: list[str], file: str | None, slurm: str | None, says: str
) -> None:
    """Nothing that ssh or a shell would take for something else passes."""
    with pytest.raises(HostNameError, match=says):
        host_names(given, file, slurm)


def test_the_hosts_of_a_slurm_job(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """squeue names them in short, scontrol spells them out."""
    script(tmp_path, "squeue", 'test "$3" != 4711 || echo "node[1-2]\nnode7"; test "$3" != 13')
    script(tmp_path, "scontrol", 'test "$3" = "node[1-2],node7" && echo "node1\nnode2\nnode7"')
    monkeypatch.setenv("PATH", f"{tmp_path}:{os.environ['PATH']}")
    assert host_names([], None, "4711") == ["node1", "node2", "node7"]
    with pytest.raises(HostNameError, match="Slurm job 12 is not running on any host"):
        host_names([], None, "12")
    with pytest.raises(HostNameError, match="squeue: it failed"):
        host_names([], None, "13")
    monkeypatch.setenv("PATH", "/nowhere")
    with pytest.raises(HostNameError, match="squeue cannot be run: No such file"):
        host_names([], None, "4711")


def test_completion_knows_the_configuration_of_ssh(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Names, no patterns."""
    monkeypatch.setenv("HOME", str(tmp_path))
    assert configured_hosts("") == []
    (tmp_path / ".ssh").mkdir()
    (tmp_path / ".ssh" / "config").write_text("Host box1 *.lab # mine\n  Port 22\nhost gpu-7\n")
    assert configured_hosts("") == ["box1", "gpu-7"]
    assert configured_hosts("g") == ["gpu-7"]


def test_a_real_sshd_is_lost_and_comes_back(tmp_path: Path) -> None:
    """Through OpenSSH itself: brief lines come in, and snapshots once they are asked for; the
    server is killed, and once it is there again both go on."""
    command = remote_command(1.0, f"{sys.executable} -m gpuwatch")
    # The folder that gpuwatch is in is not the one that a login begins in.
    here = f"cd {shlex.quote(str(Path.cwd()))} && {command}"
    with (
        ssh_server(tmp_path) as server,
        connected(*SSH, *server.options, "--", "box1", here) as host,
    ):
        until(lambda: host.brief)
        assert host.tape is None
        assert host.latest is None
        host.read_in_full("test", from_past=True)
        tape = tape_of(host)
        assert host.latest.host.memory_total_bytes
        server.kill()
        until(lambda: host.trouble is not None)
        assert host.brief is not None
        before = tape.last_unix_seconds
        server.start()
        until(lambda: host.trouble is None)
        until(lambda: tape.last_unix_seconds > before)
        assert host.tape is tape
