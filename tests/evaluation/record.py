"""``python -m tests.evaluation.record [KNOB ...]``: makes the recordings under ``recordings/``.

Runs each job of ``recording_knobs`` on virtual GPUs while ``gpuwatch stream`` watches it, and
keeps what the stream printed, less the names of this machine. Needs PyTorch, a C compiler and two
cores; the CPU quota and the other user need root. As root the job runs before all else, so that
what else the machine does costs it little; the host's own CPU readings, which that would show in,
are left out. Look at each recording before it is kept: the knob must have done what it says.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
from collections.abc import Callable, Iterator
from dataclasses import dataclass, field
from pathlib import Path

import psutil

from tests.evaluation.recorded import FOLDER, INDEX
from tests.evaluation.recording_knobs import HANG_FILE, KNOBS, Knob
from tests.evaluation.recording_scrub import scrubbed
from tests.support.fake_nvml import FakeNvml

ROOT = Path(__file__).parents[2]
CGROUPS = Path("/sys/fs/cgroup")
PERIOD_US = 100_000
MOST_SHARES, MOST_WEIGHT = 1 << 18, 10_000
"""So that its quota, and nobody else, is what holds a job back."""


def main() -> None:
    wanted = sys.argv[1:] or list(KNOBS)
    for name in wanted:
        if name not in KNOBS:
            sys.exit(f"no knob {name!r}: choose of {', '.join(KNOBS)}")
    FOLDER.mkdir(exist_ok=True)
    for name in wanted:
        with tempfile.TemporaryDirectory(dir=os.environ.get("EVALUATION_DISK")) as place:
            record(name, KNOBS[name], Path(place))
    _index()


@dataclass(slots=True)
class Running:
    """The job of a recording, with all that it started."""

    main: subprocess.Popen[str]
    pids: set[int] = field(default_factory=set)
    """All it ever had."""

    def look(self) -> None:
        """Note what it has started, and let that come before all else."""
        with contextlib.suppress(psutil.NoSuchProcess):
            found = {child.pid for child in psutil.Process(self.main.pid).children(recursive=True)}
            for pid in (found | {self.main.pid}) - self.pids:
                _first(pid)
            self.pids |= found | {self.main.pid}

    def kill_main(self, hang: Path) -> None:
        """As a user does whose job hangs: its workers wait for storage and stay."""
        self.look()
        hang.touch()
        # They go on with the batch they are at.
        threading.Event().wait(1.5)
        self.main.kill()
        self.main.wait()

    def end(self) -> None:
        self.look()
        # Parents first: nobody is left to complain of a child that was killed.
        for process in sorted(self._alive(), key=lambda one: one.pid):
            with contextlib.suppress(psutil.NoSuchProcess):
                process.kill()
        self.main.wait()
        if self.main.stdout is not None:
            self.main.stdout.close()

    def _alive(self) -> Iterator[psutil.Process]:
        for pid in self.pids | {self.main.pid}:
            with contextlib.suppress(psutil.Error):
                process = psutil.Process(pid)
                # A number that was given to somebody else since has another environment.
                if "FAKE_NVML_STATE" in process.environ():
                    yield process


def record(name: str, knob: Knob, place: Path) -> None:
    """Run one job and write its recording."""
    fake = FakeNvml.create(place, gpus=knob.gpus, preset="h200")
    for gpu in fake.gpu:
        gpu.waveform("virtual")
    files, temporary = place / "files", place / "tmp"
    files.mkdir()
    temporary.mkdir()
    if name == "loader_io_bound":
        _fill(files)
    environment = fake.env(
        {**os.environ, "PYTHONPATH": str(ROOT), "TMPDIR": str(temporary), "OMP_NUM_THREADS": "1"}
    )
    with contextlib.ExitStack() as ending:
        group = ending.enter_context(_quota(knob.quota_cores))
        tenant = None
        if knob.tenant:
            theirs = ("-m", "tests.evaluation.real_tenant", name, str(files / "turns"))
            tenant = _start(theirs, place, environment)
            ending.callback(Running(tenant).end)
            _wait_for(tenant, "there")
        job = Running(_start(_command(name, knob, files), place, environment, group))
        ending.callback(job.end)
        job.look()
        _wait_for(job.main, "training")
        job.look()
        if knob.killed_after is not None:
            ending.enter_context(
                _after(knob.killed_after, lambda: job.kill_main(files / HANG_FILE))
            )
        said = _watch(knob, job, environment)
    other = None if tenant is None else tenant.pid
    told = [json.loads(line, parse_float=_short) for line in said.splitlines()]
    lines = [scrubbed(line, name, job.pids, other) for line in told]
    path = FOLDER / f"{name}.jsonl.gz"
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    # Without the time, so that the same text gives the same file.
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{name}: {len(lines)} lines, {path.stat().st_size // 1024} KiB", flush=True)


def _short(number: str) -> float:
    """Digits beyond are chance, and take up half of the file."""
    return round(float(number), 4)


def _command(name: str, knob: Knob, files: Path) -> tuple[str, ...]:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = str(free.getsockname()[1])
    launcher = [argument.format(port=port) for argument in knob.launcher]
    return (*launcher, "-m", f"tests.evaluation.{knob.program}", name, str(files))


def _start(
    arguments: tuple[str, ...], place: Path, environment: dict[str, str], group: Path | None = None
) -> subprocess.Popen[str]:
    process = subprocess.Popen(
        [sys.executable, *arguments],
        env=environment,
        cwd=place,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    if group is not None:
        # Long before it starts others.
        (group / "cgroup.procs").write_text(str(process.pid))
    return process


def _wait_for(process: subprocess.Popen[str], word: str) -> None:
    assert process.stdout is not None
    for line in process.stdout:
        if line.strip() == word:
            return
    sys.exit(f"{process.args!r} ended before it said {word!r}")


def _watch(knob: Knob, job: Running, environment: dict[str, str]) -> str:
    pid = () if knob.whole_machine else ("--pid", str(job.main.pid))
    stream = subprocess.Popen(
        [
            sys.executable, "-m", "gpuwatch", "stream", *pid, "-i", str(knob.interval),
            "-n", str(int(knob.seconds / knob.interval))
        ],
        env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True
    )  # fmt: skip
    _first(stream.pid)
    looking = threading.Event()
    # Workers of later epochs come and go.
    looker = threading.Thread(target=_keep_looking, args=(job, looking), daemon=True)
    looker.start()
    try:
        said, _ = stream.communicate(timeout=400)
    finally:
        looking.set()
        looker.join()
        stream.kill()
    if stream.returncode != 0:
        sys.exit("the stream failed")
    return said


def _keep_looking(job: Running, end: threading.Event) -> None:
    while not end.wait(0.5):
        job.look()


@contextlib.contextmanager
def _after(seconds: float, act: Callable[[], None]) -> Iterator[None]:
    timer = threading.Timer(seconds, act)
    timer.start()
    try:
        yield
    finally:
        timer.cancel()
        timer.join()


@contextlib.contextmanager
def _quota(cores: float | None) -> Iterator[Path | None]:
    """A group of processes that may use so much CPU; gone afterwards."""
    if cores is None:
        yield None
        return
    version_1 = CGROUPS / "cpu"
    group = (version_1 if version_1.is_dir() else CGROUPS) / f"evaluation-{os.getpid()}"
    group.mkdir()
    try:
        if group.parent == version_1:
            (group / "cpu.cfs_period_us").write_text(str(PERIOD_US))
            (group / "cpu.cfs_quota_us").write_text(str(round(cores * PERIOD_US)))
            (group / "cpu.shares").write_text(str(MOST_SHARES))
        else:
            (group / "cpu.max").write_text(f"{round(cores * PERIOD_US)} {PERIOD_US}")
            (group / "cpu.weight").write_text(str(MOST_WEIGHT))
        yield group
    finally:
        for _ in range(50):
            with contextlib.suppress(OSError):
                group.rmdir()
                break
            threading.Event().wait(0.1)


def _first(pid: int) -> None:
    """Its session comes before all others; the kernel shares out cores by session first."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{pid}/autogroup").write_text("-19")


def _fill(files: Path) -> None:
    """Files to read from, written through to the disk."""
    for number in range(8):
        path = files / f"{number}.bin"
        with path.open("wb") as file:
            for _ in range(48):
                file.write(os.urandom(1 << 20))
            file.flush()
            os.fsync(file.fileno())
    if shutil.disk_usage(files).free < 2 << 30:
        sys.exit("less than 2 GiB free: put EVALUATION_DISK elsewhere")


def _index() -> None:
    entries = [
        {
            "file": f"{name}.jsonl.gz",
            "label": knob.label,
            "accepted": knob.accepted,
            "gpus": knob.gpus,
            "from_seconds": knob.killed_after or 0.0,
        }
        for name, knob in KNOBS.items()
        if (FOLDER / f"{name}.jsonl.gz").exists()
    ]
    INDEX.write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    main()
