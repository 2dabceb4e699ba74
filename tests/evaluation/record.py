"""``python -m tests.evaluation.record [KNOB ...]``: makes the recordings under ``recordings/``.

Runs each job of ``real_job`` on a virtual GPU for about 45 s while ``gpuwatch stream`` watches it,
and keeps what the stream printed, less the names of this machine. Needs PyTorch, a C compiler and
two cores. As root the job runs before all else, so that what else the machine does costs it
little; the host's own CPU readings, which that would show in, are left out. Look at each
recording before it is kept: the knob must have done what it says.
"""

from __future__ import annotations

import contextlib
import gzip
import json
import os
import shutil
import signal
import subprocess
import sys
import tempfile
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.evaluation.recorded import FOLDER, INDEX
from tests.support.fake_nvml import FakeNvml

ROOT = Path(__file__).parents[2]
SECONDS = 45
LONGER = {"memory_growing": 120, "idle_holding_memory": 150, "checkpoint_pauses": 60}
"""What takes its time."""
INTERVAL = 0.5
_OF_THE_HOST = (
    "cpu_percent", "core_percents", "load_average_1_minute", "load_average_5_minutes",
    "load_average_15_minutes", "pressure_cpu_some_percent",
)  # fmt: skip
_ACTIVITIES = (
    "sm_active_percent", "sm_occupancy_percent", "tensor_active_percent", "dram_active_percent",
)  # fmt: skip

KNOBS: Mapping[str, tuple[str, tuple[str, ...]]] = {
    "healthy": ("healthy", ()),
    "loader_cpu_bound": ("loader_cpu_bound", ()),
    "loader_in_main_process": ("loader_in_main_process", ()),
    "loader_in_main_process_light": ("loader_in_main_process", ()),
    "loader_io_bound": ("loader_io_bound", ()),
    # On two cores twelve workers are short of cores, and fewer would be as well.
    "too_many_workers": ("too_many_workers", ()),
    "checkpoint_pauses": ("checkpoint_pauses", ()),
    "validation_pauses": ("validation_pauses", ("healthy",)),
    "python_bound": ("python_bound", ()),
    # Nobody took stacks.
    "sync_every_step": ("sync_every_step", ("python_bound",)),
    "batch_too_small": ("batch_too_small", ("busy_without_work",)),
    "busy_without_work": ("busy_without_work", ()),
    "memory_growing": ("memory_growing", ()),
    # So young a process may still be reading its data.
    "idle_holding_memory": ("idle_holding_memory", ("undecided",)),
}
"""Knob: (label, what else is right to say first)."""


def main() -> None:
    wanted = sys.argv[1:] or list(KNOBS)
    for name in wanted:
        if name not in KNOBS:
            sys.exit(f"no knob {name!r}: choose of {', '.join(KNOBS)}")
    FOLDER.mkdir(exist_ok=True)
    with tempfile.TemporaryDirectory(dir=os.environ.get("EVALUATION_DISK")) as place:
        fake = FakeNvml.create(Path(place), gpus=1, preset="h200")
        fake.gpu[0].waveform("virtual")
        files = Path(place) / "files"
        files.mkdir()
        for knob in wanted:
            if knob == "loader_io_bound":
                _fill(files)
            record(knob, fake, files)
    _index()


def record(knob: str, fake: FakeNvml, files: Path) -> None:
    """Run one job and write its recording."""
    seconds = LONGER.get(knob, SECONDS)
    environment = fake.env({**os.environ, "PYTHONPATH": str(ROOT)})
    job = subprocess.Popen(
        [sys.executable, "-m", "tests.evaluation.real_job", knob, str(files)],
        env=environment,
        cwd=files.parent,
        stdout=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    assert job.stdout is not None
    try:
        if job.stdout.readline() != "training\n":
            sys.exit(f"{knob}: the job did not start")
        _first(job)
        stream = subprocess.Popen(
            [
                sys.executable, "-m", "gpuwatch", "stream", "--pid", str(job.pid),
                "-i", str(INTERVAL), "-n", str(int(seconds / INTERVAL)),
            ],
            env=environment, cwd=ROOT, stdout=subprocess.PIPE, text=True, start_new_session=True,
        )  # fmt: skip
        _first(stream)
        said, _ = stream.communicate(timeout=400)
        if stream.returncode != 0:
            sys.exit(f"{knob}: the stream failed")
    finally:
        os.killpg(job.pid, signal.SIGKILL)
        job.wait()
        job.stdout.close()
    lines = [_scrubbed(json.loads(line), knob) for line in said.splitlines()]
    path = FOLDER / f"{knob}.jsonl.gz"
    text = "".join(json.dumps(line, separators=(",", ":")) + "\n" for line in lines)
    # Without the time, so that the same text gives the same file.
    path.write_bytes(gzip.compress(text.encode(), 9, mtime=0))
    print(f"{knob}: {len(lines)} lines, {path.stat().st_size // 1024} KiB", flush=True)


def _first(process: subprocess.Popen[str]) -> None:
    """Its session comes before all others; the kernel shares out cores by session first."""
    with contextlib.suppress(OSError):
        Path(f"/proc/{process.pid}/autogroup").write_text("-19")


def _scrubbed(line: dict[str, Any], knob: str) -> dict[str, Any]:
    """Without what names this machine and its users, and without what no rule reads."""
    command = f"python train.py --{knob.replace('_', '-')}"
    if line["kind"] == "header":
        return {**line, "machine": "box"}
    line["host"].update({"name": "box", **dict.fromkeys(_OF_THE_HOST)})
    line["own_cost"] = None
    for gpu in line["gpus"]:
        # The virtual GPU's do not follow what the job says it fills.
        gpu.update(dict.fromkeys(_ACTIVITIES))
    for process in line["processes"]:
        process.update(command=command, user="ada", container=None, slurm_job=None)
    for job in line["jobs"]:
        job.update(
            command=command, user="ada", working_directory=None, container=None, pod=None,
            environment=None, slurm_job=None,
        )  # fmt: skip
        for member in job["members"]:
            member["command"] = command
            if member["name"] not in ("pt_data_worker", "pt_data_pin"):
                member["name"] = "python"
    line["problems"] = []
    return line


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
        {"file": f"{knob}.jsonl.gz", "label": label, "accepted": sorted({label, *others})}
        for knob, (label, others) in KNOBS.items()
        if (FOLDER / f"{knob}.jsonl.gz").exists()
    ]
    INDEX.write_text(json.dumps(entries, indent=1) + "\n")


if __name__ == "__main__":
    main()
