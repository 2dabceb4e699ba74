"""``python -m tests.evaluation.gains``: predicted gains beside measured ones.

Real PyTorch jobs on the virtual GPU, at each setting of one knob. Each is recorded by gpuwatch,
which sees it from outside only, while it counts its own steps; then the recording of each setting
predicts how much faster the others would be, and their steps say how much faster they are.

    python -m tests.evaluation.gains measure FOLDER [KIND...]    # minutes for each kind; appends
    python -m tests.evaluation.gains compare FOLDER              # the table

On a machine with other work, run ``measure`` as root: the jobs then run at nice -15, where they get
the cores that they ask for, and what else the machine does is left out of their recordings.
"""

from __future__ import annotations

import argparse
import io
import json
import os
import re
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass, field, replace
from functools import partial
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from itertools import chain, repeat
from pathlib import Path
from typing import Any

import torch
from torch.utils.data import DataLoader, Dataset

from gpuwatch.core.bounds import total
from gpuwatch.core.model import Snapshot
from gpuwatch.diagnosis.finding import Gain
from gpuwatch.practice import CAUSES, Job, Settings, save
from gpuwatch.recording.file import open_any
from tests.evaluation.experiments import ROOT, machine
from tests.evaluation.predicted import CLOSE, Seen

WARM_SECONDS = 6.0
NICE = -15
BATCH = 8
QUOTA_FOLDER = Path("/sys/fs/cgroup/cpu/gpuwatch-gains")
"""Of the first version of control groups."""


# -- what is measured ------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Knob:
    """One kind of job at several settings of one knob; others are the same for all of them."""

    setting: str
    values: tuple[Any, ...]
    job: Mapping[str, Any] = field(default_factory=dict)
    seconds: int = 40
    """Longer where it does not go on evenly."""


def _workers(*values: int, **job: Any) -> Knob:
    return Knob(setting="workers", values=values, job=job)


def _epochs(**job: Any) -> Knob:
    job = {"loads": "pictures", "repeat": 1, "step_ms": 40.0, **job}
    return Knob(setting="persistent", values=(False, True), job=job, seconds=100)


KINDS: Mapping[str, Knob] = {
    "pictures": _workers(0, 1, 2, 3, 4, 8, 12, loads="pictures", repeat=3, step_ms=30.0),
    "pictures, large steps": _workers(0, 1, 2, 4, loads="pictures", repeat=1, step_ms=60.0),
    "text": _workers(0, 1, 2, 4, loads="text", repeat=12, step_ms=20.0),
    "sleeping": _workers(0, 1, 2, 3, 4, 8, loads="sleep", repeat=25, step_ms=30.0),
    "network": _workers(0, 1, 2, 4, 8, loads="network", repeat=20, step_ms=30.0),
    "child processes": _workers(1, 2, 4, loads="child", repeat=1, step_ms=30.0),
    "threads in workers": Knob(
        setting="threads", values=(8, 1), job={"loads": "threads", "repeat": 4, "workers": 2}
    ),
    "CPU quota": Knob(
        setting="quota", values=(0.8, 1.2, 2.0),
        job={"loads": "pictures", "repeat": 2, "workers": 2},
    ),
    "saving": Knob(
        setting="saves", values=("in the loop", "in a thread"), job={"loads": "little"}
    ),
    "reading the loss": Knob(
        setting="reads_loss", values=(True, False),
        job={"loads": "little", "python_ms": 30.0, "step_ms": 60.0},
    ),
    "logging": Knob(
        setting="logs", values=("in the loop", "in a thread"),
        job={"loads": "little", "step_ms": 60.0, "log_ms": 100},
    ),
    "logging slowly": Knob(
        setting="logs", values=("in the loop", "in a thread"),
        job={"loads": "little", "step_ms": 200.0, "log_ms": 250},
    ),
    "epochs, spawned workers": _epochs(method="spawn", workers=2, epoch_steps=250),
    "epochs, four spawned workers": _epochs(method="spawn", workers=4, epoch_steps=400),
    "epochs, spawned workers that are slow": _epochs(
        method="spawn", workers=2, epoch_steps=60, loads="pictures", repeat=3
    ),
    "epochs, forked workers that open files": _epochs(
        method="fork", workers=2, epoch_steps=250, opens_seconds=2.0
    ),
    "epochs, forked workers": _epochs(method="fork", workers=2, epoch_steps=250),
    "held out: sound": _workers(0, 1, 2, loads="sound", repeat=24, step_ms=30.0),
    "held out: records": _workers(0, 1, 3, loads="records", repeat=250, step_ms=60.0),
    "held out: fetched and decoded": _workers(1, 2, 3, 6, loads="fetched", repeat=1, step_ms=30.0),
    "held out: arrays": _workers(0, 1, 2, loads="arrays", repeat=4, step_ms=50.0),
    "held out: sound, CPU quota": Knob(
        setting="quota", values=(0.6, 1.0, 1.6), job={"loads": "sound", "repeat": 16, "workers": 3}
    ),
    "held out: logging over a slow line": Knob(
        setting="logs", values=("in the loop", "in a thread"),
        job={"loads": "little", "step_ms": 120.0, "log_ms": 60},
    ),
    "held out: a smaller save": Knob(
        setting="saves", values=("in the loop", "in a thread"),
        job={"loads": "little", "save_mib": 250, "save_seconds": 4.0},
    ),
    "held out: epochs of sound": _epochs(
        method="spawn", workers=3, epoch_steps=300, loads="sound", repeat=8
    ),
    **{
        f"practice: {name}": Knob(setting="fixed", values=(False, True), job={"practice": name})
        for name, cause in CAUSES.items()
        if not cause.needs_gpu
    },
}  # fmt: skip


# -- the job ---------------------------------------------------------------------------------------


def _picture() -> bytes:
    from PIL import Image

    noise = (torch.rand(60, 80, 3) * 255).byte().numpy()
    file = io.BytesIO()
    Image.fromarray(noise).resize((640, 480)).save(file, "jpeg")
    return file.getvalue()


class Loads(Dataset[Any]):
    """Samples that cost the same work each, in ``repeat`` parts (milliseconds where they sleep)."""

    def __init__(self, what: str, repeat: int, port: int) -> None:
        self._make = getattr(self, f"_{what}")
        self._repeat, self._port = repeat, port
        self._jpeg = _picture()
        self._text = "It was the best of times, it was the worst of times. " * 40
        self._packed = zlib.compress(torch.rand(1 << 16).numpy().tobytes())

    def __len__(self) -> int:
        return 1 << 30

    def __getitem__(self, index: int) -> torch.Tensor:
        made: torch.Tensor = self._make(index)
        return made

    def _pictures(self, _index: int) -> torch.Tensor:
        from PIL import Image, ImageFilter

        for _ in range(self._repeat):
            image = Image.open(io.BytesIO(self._jpeg)).convert("RGB")
            image = image.filter(ImageFilter.GaussianBlur(1)).resize((224, 224))
        return torch.frombuffer(bytearray(image.tobytes()), dtype=torch.uint8).float().div(255)

    def _text(self, index: int) -> torch.Tensor:
        ids: list[int] = []
        for _ in range(self._repeat):
            words = re.findall(r"\w+|[^\w\s]", self._text.lower())
            ids = [hash(word) % 50_000 for word in words]
        return torch.tensor(ids[:256])

    def _sleep(self, _index: int) -> torch.Tensor:
        time.sleep(self._repeat / 1000)
        return torch.zeros(1 << 12)

    def _network(self, _index: int) -> torch.Tensor:
        with socket.create_connection(("127.0.0.1", self._port)) as server:
            server.sendall(f"GET /{self._repeat} HTTP/1.0\r\n\r\n".encode())
            got = b""
            while more := server.recv(1 << 16):
                got += more
        return torch.frombuffer(bytearray(got[-4096:]), dtype=torch.uint8).float()

    def _child(self, _index: int) -> torch.Tensor:
        data = self._packed * self._repeat
        made = subprocess.run(["xz", "-c", "-3"], input=data, capture_output=True, check=True)
        return torch.zeros(1 << 12) + len(made.stdout)

    def _threads(self, _index: int) -> torch.Tensor:
        image = torch.rand(1, 3, 224, 224)
        for _ in range(self._repeat):
            image = torch.nn.functional.interpolate(image, scale_factor=1.5, mode="bicubic")
            image = torch.nn.functional.avg_pool2d(image, 3, 1)[..., :224, :224]
        return image.flatten()[:4096].clone()

    def _sound(self, index: int) -> torch.Tensor:
        for _ in range(self._repeat):
            wave = torch.sin(torch.arange(48_000) * (0.01 + 1e-5 * (index % 100)))
            spectrum = torch.stft(wave, 1024, 256, return_complex=True, window=torch.ones(1024))
        return spectrum.abs().log1p().flatten()[: 1 << 14].clone()

    def _records(self, index: int) -> torch.Tensor:
        line = json.dumps({"id": index, "features": [index * one % 97 for one in range(400)]})
        for _ in range(self._repeat):
            features = json.loads(line)["features"]
        return torch.tensor(features, dtype=torch.float32)

    def _fetched(self, index: int) -> torch.Tensor:
        time.sleep(0.015)
        return self._pictures(index)

    def _arrays(self, index: int) -> torch.Tensor:
        volume = torch.rand(32, 96, 96)
        for _ in range(self._repeat):
            volume = (volume - volume.mean()) / volume.std()
            volume = torch.roll(volume, index % 32, 0).flip(1).permute(0, 2, 1).contiguous()
        return volume[:16].clone()

    def _little(self, _index: int) -> torch.Tensor:
        return torch.rand(1 << 10)


def train(job: Mapping[str, Any]) -> None:
    """Train until it is ended, and print the number of steps once in a second."""
    from tests.support.virtual_device import VirtualDevice

    torch.set_num_threads(1)
    if "practice" in job:
        settings = CAUSES[job["practice"]].settings(fixed=job["fixed"])
        made: Any = VirtualDevice()
        Job(settings, made, reports=False).train()
    if job.get("quota"):
        (QUOTA_FOLDER / "cgroup.procs").write_text("0")
    workers = job.get("workers", 2)
    device = VirtualDevice()
    device.prepare(Settings(workers=workers, pin_memory=True))
    samples = Loads(job["loads"], job.get("repeat", 1), job["port"])
    begin = partial(_begin, job.get("threads", 1), job.get("opens_seconds", 0.0))
    loader = DataLoader(
        samples, BATCH, num_workers=workers, worker_init_fn=begin,
        sampler=range(BATCH * job["epoch_steps"]) if "epoch_steps" in job else None,
        persistent_workers=job.get("persistent", False),
        multiprocessing_context=job.get("method") if workers else None,
    )  # fmt: skip
    python_seconds = job.get("python_ms", 2.0) / 1000
    beside: threading.Thread | None = None
    said = saved = time.monotonic()

    def work_in(where: str, what: Any, *arguments: Any) -> None:
        nonlocal beside
        if where == "in the loop":
            what(*arguments)
        elif beside is None or not beside.is_alive():
            beside = threading.Thread(target=what, args=arguments, daemon=True)
            beside.start()

    epochs = chain.from_iterable(repeat(loader))
    for step, batch in enumerate(epochs, 1):
        until = time.thread_time() + python_seconds
        while time.thread_time() < until:
            pass
        device.launch(batch, job.get("step_ms", 30.0))
        if job.get("reads_loss"):
            device.read_loss()
        device.end_step()
        now = time.monotonic()
        if "logs" in job:
            work_in(job["logs"], _log, job["port"], job["log_ms"])
        if "saves" in job and now - saved >= job.get("save_seconds", 5.0):
            device.synchronize()
            work_in(job["saves"], save, device.state(), job.get("save_mib", 400))
            saved = time.monotonic()
        if now - said >= 1.0:
            print(f"step {step}", flush=True)
            said = now


def _begin(threads: int, opens_seconds: float, _worker: int) -> None:
    """Begin a worker, which may read an index or open many files first."""
    torch.set_num_threads(threads)
    until = time.thread_time() + opens_seconds
    while time.thread_time() < until:
        pass


def _log(port: int, milliseconds: int) -> None:
    url = f"http://127.0.0.1:{port}/{milliseconds}"
    urllib.request.urlopen(url, data=b"loss 0.5", timeout=10).read()


class _Server(BaseHTTPRequestHandler):
    """Answers with 100 kB after as many milliseconds as the path says."""

    def do_GET(self) -> None:
        time.sleep(int(self.path[1:]) / 1000)
        self.send_response(200)
        self.end_headers()
        with suppress(OSError):
            self.wfile.write(bytes(100_000))

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers["Content-Length"]))
        time.sleep(int(self.path[1:]) / 1000)
        self.send_response(204)
        self.end_headers()

    def log_message(self, *_: object) -> None:
        pass


class _ManyAtOnce(ThreadingHTTPServer):
    request_queue_size = 64


# -- measuring -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Measured:
    kind: str
    value: Any
    steps_per_second: float
    file: str
    load_average: float


def measure(folder: Path, kind: str) -> Iterator[Measured]:
    knob = KINDS[kind]
    with ExitStack() as stack:
        server = stack.enter_context(_ManyAtOnce(("127.0.0.1", 0), _Server))
        stack.callback(server.shutdown)
        threading.Thread(target=server.serve_forever, daemon=True).start()
        for value in knob.values:
            job = {**knob.job, knob.setting: value, "port": server.server_address[1]}
            name = re.sub(r"\W+", "_", f"{kind} {value}")
            file = folder / f"{name}.jsonl.zst"
            rate = _run(job, file, knob.seconds)
            load = round(os.getloadavg()[0], 1)
            yield Measured(
                kind=kind, value=value, steps_per_second=round(rate, 3), file=file.name,
                load_average=load
            )  # fmt: skip


@contextmanager
def _quota(cores: float | None) -> Iterator[None]:
    if cores is None:
        yield
        return
    QUOTA_FOLDER.mkdir(exist_ok=True)
    try:
        (QUOTA_FOLDER / "cpu.shares").write_text("262144")
        (QUOTA_FOLDER / "cpu.cfs_quota_us").write_text(f"{cores * 100_000:.0f}")
        yield
    finally:
        for _ in range(50):
            with suppress(OSError):
                QUOTA_FOLDER.rmdir()
                break
            time.sleep(0.1)


def _run(job: Mapping[str, Any], file: Path, seconds: int) -> float:
    """Record the job; return its steps per second meanwhile."""
    file.unlink(missing_ok=True)
    with (
        tempfile.TemporaryDirectory() as place,
        machine(Path(place), real=False) as environment,
        _quota(job.get("quota")),
    ):
        command = [sys.executable, "-m", "tests.evaluation.gains", "job", json.dumps(job)]
        process = subprocess.Popen(
            command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True,
            start_new_session=True
        )  # fmt: skip
        _hurry(process)
        steps: list[tuple[float, int]] = []

        def count() -> None:
            assert process.stdout is not None
            for line in process.stdout:
                if line.startswith("step "):
                    steps.append((time.monotonic(), int(line.split()[1])))

        counting = threading.Thread(target=count)
        counting.start()
        try:
            while not steps and process.poll() is None:
                time.sleep(0.2)
            time.sleep(WARM_SECONDS)
            began = len(steps)
            words = f"record --pid {process.pid} --for {seconds}s -o {file}"
            recorder = subprocess.Popen(
                [sys.executable, "-m", "gpuwatch", *words.split()], cwd=ROOT, env=environment,
                stdout=subprocess.DEVNULL, start_new_session=True
            )  # fmt: skip
            _hurry(recorder)
            recorder.wait()
            (first, one), (last, other) = steps[began - 1], steps[-1]
        finally:
            process.terminate()
            process.wait()
            counting.join()
    return (other - one) / (last - first)


def _hurry(process: subprocess.Popen[Any]) -> None:
    """Let it come before all else on this machine; it leads a session, which has a group of its own
    for the scheduler (sched(7), autogroups)."""
    with suppress(OSError):
        os.setpriority(os.PRIO_PROCESS, process.pid, NICE)
        Path(f"/proc/{process.pid}/autogroup").write_text(str(NICE))


# -- comparing -------------------------------------------------------------------------------------


@dataclass(frozen=True, kw_only=True)
class Compared:
    kind: str
    change: str
    said: str
    """Rule that speaks first of the slow one; ``-``: none does."""
    predicted: Gain | None
    measured: float

    @property
    def is_close(self) -> bool | None:
        """``None``: nothing was promised."""
        if self.predicted is None or self.predicted.factor is None:
            return None
        return abs(self.predicted.factor / self.measured - 1.0) <= CLOSE


def compare(folder: Path) -> Iterator[Compared]:
    """Yield each change of a setting to each other one of its kind."""
    rows = [json.loads(line) for line in (folder / "measured.jsonl").read_text().splitlines()]
    measured = [Measured(**row) for row in rows]
    for one in measured:
        same = [it for it in measured if it.kind == one.kind]
        # Nobody is advised to load in the main process.
        others = [it for it in same if str(it.value) not in ("0", str(one.value))]
        with open_any(str(folder / one.file)) as opened:
            seen = Seen(map(_alone, opened.snapshots))
        for other in others:
            yield Compared(
                kind=one.kind,
                change=f"{KINDS[one.kind].setting} {one.value} -> {other.value}",
                said=seen.rule.name if seen.rule else "-",
                predicted=_predicted(KINDS[one.kind], one, other, seen),
                measured=other.steps_per_second / one.steps_per_second,
            )


def _predicted(knob: Knob, one: Measured, other: Measured, seen: Seen) -> Gain | None:
    names = {"workers": "num_workers", "quota": "cpu quota", "persistent": "persistent_workers"}
    if knob.setting in names:
        return seen.gain_of(names[knob.setting], str(one.value), str(other.value))
    return seen.gain if other.value == knob.values[-1] else None


def _alone(snapshot: Snapshot) -> Snapshot:
    """Leave out what else the machine did: the job came before it."""
    used = total(job.cpu_percent for job in snapshot.jobs)
    if used is None or not snapshot.host.core_count:
        return snapshot
    host = replace(snapshot.host, cpu_percent=min(100.0, used / snapshot.host.core_count))
    return replace(snapshot, host=host)


def table(rows: Iterable[Compared]) -> Iterator[str]:
    yield "| job | change | said of it | predicted | range | limited by | measured | within 25% |"
    yield "|---|---|---|---|---|---|---|---|"
    for one in rows:
        gain = one.predicted
        figures = ["-", "-", "-"]
        if gain is not None:
            factor = "at most" if gain.factor is None else f"{gain.factor:.2f}"
            figures = [factor, f"{gain.low:.2f} to {gain.high:.2f}", gain.limited_by]
        close = {None: "-", True: "yes", False: "no"}[one.is_close]
        cells = [one.kind, one.change, one.said, *figures, f"{one.measured:.2f}", close]
        yield f"| {' | '.join(cells)} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("what", choices=("measure", "compare", "job"))
    parser.add_argument("where")
    parser.add_argument("kinds", nargs="*")
    options = parser.parse_args()
    if options.what == "job":
        train(json.loads(options.where))
        return
    folder = Path(options.where)
    folder.mkdir(parents=True, exist_ok=True)
    if options.what == "measure":
        with (folder / "measured.jsonl").open("a") as file:
            for kind in options.kinds or KINDS:
                for one in measure(folder, kind):
                    print(json.dumps(vars(one)), file=file, flush=True)
                    print(json.dumps(vars(one)), flush=True)
        return
    rows = list(compare(folder))
    print("\n".join(table(rows)))
    promised = [one for one in rows if one.is_close is not None]
    close = sum(one.is_close is True for one in promised)
    print(f"\n{close} of {len(promised)} predictions within {CLOSE:.0%} of what was measured")


if __name__ == "__main__":
    main()
