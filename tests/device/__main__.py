"""``tests/device/run``: what gpuwatch says of one GPU, held against what was done to it.

Real jobs with one fault each train on the GPU; each is recorded, diagnosed while it runs, cured and
measured again. Beside them: ``gpuwatch doctor``, what each driver call costs, the dashboard, and
the driver's fine samples against the times at which kernels ran. The exit code is 0 when all parts
came to their end, whatever gpuwatch said, and 1 when one did not.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import json
import os
import platform
import re
import shutil
import signal
import socketserver
import statistics
import subprocess
import sys
import tarfile
import tempfile
import threading
import time
import traceback
from collections import defaultdict
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path
from typing import Any

import pynvml

from gpuwatch.core.source import ReadOptions, SystemClock
from gpuwatch.practice import Settings
from gpuwatch.sources.nvml.source import NvmlSource
from tests.benchmarks.tools import process_tree
from tests.benchmarks.tools.terminal import Terminal, visible_text
from tests.device import samples

ROOT = Path(__file__).parents[2]
FILE_MOST_BYTES = 16 << 20
SETTLE_SECONDS = 1.0
"""After a cure, before it is measured: queued batches are from before."""
MOST_OVERHEAD_SECONDS = 10.0
"""Of a job, besides the times that it is watched and measured."""
TOLERANCE_WATTS = 1.0
FINDING = ("rule", "severity", "confidence", "summary", "gain")
RIGHT, WRONG, OPEN, NOT_RUN, NOT_JUDGED = "right", "WRONG", "undecided", "not run", "not judged"


@dataclass(frozen=True, kw_only=True)
class Workload:
    """A job, what is wrong with it, and what may be said of it."""

    name: str
    truth: tuple[str, ...]
    """Rules of which the first finding is one; empty: nothing is wrong."""
    sick: Mapping[str, Any]
    cure: Mapping[str, Any] = field(default_factory=dict)
    virtual: Mapping[str, Any] = field(default_factory=dict)
    """Settings that differ on the simulated driver, of which two cores do the work."""
    leaks: bool = False
    """Memory grows as well: that finding is a row of its own, wherever it stands."""
    only_real: bool = False
    """The simulated driver has no such fault to show."""
    stacks: bool = False
    answer_ms: float | None = None
    """Samples come from a server that takes so long to answer."""
    watch_seconds: float | None = None
    """On a real GPU; ``None``: the usual time."""
    measure: float = 1.0
    """How long it is measured after its cure, in parts of the usual time."""

    def settings(self, simulated: bool) -> dict[str, Any]:
        return {**USUAL, **self.sick, **(self.virtual if simulated else {})}


# A step of 120 ms on weights of 256 MiB, which fills the card; from outside only (--no-report).
USUAL = {"width": 8192, "batch_size": 32, "step_ms": 120.0, "python_ms": 10.0, "transform_ms": 0.2}
# fmt: off
HEALTHY = Workload(
    name="healthy matmul loop", truth=(), watch_seconds=58.0,
    sick={"workers": 4, "batch_size": 256, "transform_ms": 0.05, "sample_kib": 1})
WORKLOADS = (
    Workload(name="starved: one worker", truth=("loader_cpu_bound",),
             sick={"workers": 1, "transform_ms": 8.0}, cure={"workers": 4}),
    Workload(name="starved: workers sleep", truth=("loader_io_bound",),
             sick={"workers": 2}, cure={"workers": 8}, answer_ms=20.0),
    Workload(name="num_workers=0", truth=("loader_in_main_process",),
             sick={"workers": 0, "transform_ms": 8.0}, cure={"workers": 4}),
    Workload(name=".item() in each step", truth=("sync_every_step",), only_real=True,
             sick={"item_in_each_step": True, "python_ms": 60.0, "step_ms": 80.0},
             cure={"item_in_each_step": False}, stacks=True),
    Workload(name="unpinned copies", truth=("memory_not_pinned",), only_real=True,
             sick={"pin_memory": False, "sample_kib": 32768, "batch_size": 8, "workers": 8,
                   "step_ms": 60.0, "transform_ms": 0.0},
             cure={"pin_memory": True}, virtual={"sample_kib": 64, "workers": 2}),
    Workload(name="small batches", truth=("batch_too_small",),
             sick={"small_kernels": True, "batch_size": 1, "width": 64, "workers": 1,
                   "step_ms": 60.0, "python_ms": 1.0}, cure={"batch_size": 64}),
    Workload(name="spin in an all-reduce", truth=("busy_without_work", "collective_wait"),
             sick={"step_ms": 5.0, "spin_ms": 120.0, "gpu_held_percent": 80.0,
                   "in_collective": True}, cure={"spin_ms": 0.0}),
    # Together: 45 s are the least of which a trend of memory is believed.
    Workload(name="synchronous checkpoint", truth=("checkpoint_pauses",), leaks=True,
             sick={"save_every_seconds": 6.0, "save_mib": 1500, "gpu_leak_mib": 24.0},
             cure={"save_in_thread": True, "gpu_leak_mib": 0.0},
             virtual={"save_every_seconds": 3.0, "save_mib": 200}, watch_seconds=56.0,
             measure=2.0),
    Workload(name="starved: costly transforms", truth=("loader_cpu_bound",),
             sick={"workers": 4, "transform_ms": 25.0}, cure={"transform_ms": 5.0}),
)
# fmt: on
GROWS = "memory_growing"


def main() -> int:
    parser = argparse.ArgumentParser(prog="tests/device/run", description=__doc__.split("\n\n")[1])
    parser.add_argument("--out", type=Path, help="where to write  [$OUT, build/device]")
    parser.add_argument("--limit", type=float, default=350.0, help="seconds for all of it  [350]")
    parser.add_argument("--watch", type=float, help="seconds of watching a job  [17, simulated 3]")
    parser.add_argument("--only", help="only jobs whose names hold this; none: no job")
    parser.add_argument("--simulated", action="store_true", help="dry run on a simulated driver")
    options = parser.parse_args()
    out = options.out or Path(os.environ.get("OUT") or ROOT / "build/device")
    out.mkdir(parents=True, exist_ok=True)
    watch = options.watch or (3.0 if options.simulated else 17.0)
    with contextlib.ExitStack() as stack:
        # On a disk, where a checkpoint takes its time.
        place = os.environ.get("TMPDIR") or "/var/tmp"
        made = tempfile.TemporaryDirectory(prefix="gpuwatch-device-", dir=place)
        scratch = Path(stack.enter_context(made))
        path = ":".join(filter(None, [str(ROOT), os.environ.get("PYTHONPATH")]))
        # CUDA then numbers GPUs as the driver does.
        environment = {
            **os.environ,
            "CUDA_DEVICE_ORDER": "PCI_BUS_ID",
            "CUDA_VISIBLE_DEVICES": chosen(os.environ.get("CUDA_VISIBLE_DEVICES")),
            "PYTHONPATH": path,
            "XDG_STATE_HOME": str(scratch),
        }
        if options.simulated:
            from tests.support.fake_nvml import FakeNvml

            fake = FakeNvml.create(scratch / "driver", gpus=1, preset="h200")
            stack.enter_context(fake.in_this_process())
            environment = fake.env(environment)
        proof = Proof(out, scratch, environment, options.simulated, options.limit, watch)
        try:
            proof.run(options.only)
        finally:
            proof.write()
            print("\n" + proof.summary(), end="", flush=True)
    return 1 if proof.crashed else 0


def chosen(visible: str | None) -> str:
    """The GPU to use, by its number or UUID: the first of those that CUDA may use."""
    first = (visible or "").split(",")[0].strip()
    return first if re.fullmatch(r"\d+|GPU-[\w-]+", first) else "0"


class Proof:
    """All parts, one after the other, and what they found."""

    def __init__(
        self,
        out: Path,
        scratch: Path,
        environment: dict[str, str],
        simulated: bool,
        limit_seconds: float,
        watch_seconds: float,
    ) -> None:
        self.out, self.scratch, self.environment = out, scratch, environment
        self.simulated, self.watch_seconds = simulated, watch_seconds
        self.deadline = time.monotonic() + limit_seconds
        self.began = time.monotonic()
        self.results: dict[str, Any] = {}
        self.rows: list[list[str]] = []
        self.notes: list[str] = []
        self.crashed: list[str] = []
        self.texts: dict[str, str] = {}
        """Files to write, by name."""
        self.job_lines: list[str] = []
        self.handle: Any = None
        self.gpu_name = "no GPU"

    # -- parts ------------------------------------------------------------------------------

    def run(self, only: str | None) -> None:
        self.part("driver", self.driver)
        if self.handle is None:
            self.part("doctor", self.doctor)
            return
        watching = Gauge(self.handle)
        torch = importlib.util.find_spec("torch") is not None and only != "none"
        wanted = [one for one in (HEALTHY, *WORKLOADS) if only is None or only in one.name]
        if not torch:
            why = "none was wanted" if only == "none" else "PyTorch is not installed"
            self.notes.append(f"no job was run: {why}.")
            wanted = []
        bursts = Job(self, "bursts", "bursts") if torch else None
        job = self.prepared(wanted[0]) if wanted else None
        self.part("doctor", self.doctor)
        self.part("driver calls, idle", lambda: self.driver_calls("idle"))
        self.part("power limit", self.power_limit)
        if bursts is not None:
            self.part("fine samples", lambda: self.fine_samples(bursts))
            bursts.end()
        else:
            self.part("dashboards", lambda: self.dashboards(None))
        for number, one in enumerate(wanted):
            # The next imports PyTorch meanwhile.
            following = wanted[number + 1] if number + 1 < len(wanted) else None
            after = None if following is None else self.prepared(following)
            this, here = job, one
            assert this is not None
            self.part(one.name, lambda: self.workload(here, this, watching))  # noqa: B023
            this.end()
            job = after
        watching.stop()

    def part(self, name: str, do: Callable[[], None]) -> None:
        began = time.monotonic()
        try:
            do()
        except Exception as error:
            self.crashed.append(name)
            self.results.setdefault("crashed", {})[name] = traceback.format_exc()
            self.notes.append(f"{name} CRASHED: {type(error).__name__}: {error}"[:300])
        self.results.setdefault("seconds", {})[name] = round(time.monotonic() - began, 1)
        print(f"-- {name}: {time.monotonic() - began:.0f} s", flush=True)
        self.write()

    def driver(self) -> None:
        """Which driver and card this is."""
        try:
            pynvml.nvmlInit()
            which = self.environment["CUDA_VISIBLE_DEVICES"]
            self.handle = (
                pynvml.nvmlDeviceGetHandleByIndex(int(which))
                if which.isdigit()
                else pynvml.nvmlDeviceGetHandleByUUID(which)
            )
        except pynvml.NVMLError as error:
            self.notes.append(f"there is no GPU to prove it on: {error}")
            self.crashed.append("driver")
            return
        self.gpu_name = pynvml.nvmlDeviceGetName(self.handle)
        self.results["machine"] = {
            "simulated": self.simulated,
            "gpu": self.gpu_name,
            "driver": pynvml.nvmlSystemGetDriverVersion(),
            "nvml": pynvml.nvmlSystemGetNVMLVersion(),
            "python": platform.python_version(),
            "torch": _version("torch"),
            "cores": len(os.sched_getaffinity(0)),
            "date": time.strftime("%Y-%m-%d"),
        }
        with contextlib.suppress(pynvml.NVMLError):
            if others := pynvml.nvmlDeviceGetComputeRunningProcesses(self.handle):
                self.notes.append(f"{len(others)} other processes used the GPU: trust no figure.")

    def doctor(self) -> None:
        """``gpuwatch doctor``, which asks nvidia-smi beside it, and what that says in full."""
        if shutil.which("nvidia-smi", path=self.environment.get("PATH")) and not self.simulated:
            said = self.command(["nvidia-smi", "-q"], seconds=30)
            self.texts["nvidia-smi.txt"] = said.stdout
        if self.gpuwatch("doctor", "--help").returncode:
            self.notes.append("gpuwatch doctor was skipped: this version has none.")
            return
        done = self.gpuwatch("doctor", "--json", seconds=60)
        found = json.loads(done.stdout)
        self.texts["doctor.json"] = done.stdout
        counts = ", ".join(f"{count} {status}" for status, count in found["counts"].items())
        self.notes.append(f"gpuwatch doctor: {counts}")
        for one in found["checks"]:
            if one["status"] in ("warn", "fail"):
                self.notes.append(f"  {one['status']}: {one['name']}: {one['reason']}"[:200])

    def power_limit(self) -> None:
        """As gpuwatch has it, beside nvidia-smi where there is one, else beside the driver."""
        status = json.loads(self.gpuwatch("status", "--json", seconds=30).stdout)
        uuid = pynvml.nvmlDeviceGetUUID(self.handle)
        (said,) = [one["power_limit_watts"] for one in status["gpus"] if one["uuid"] == uuid]
        asked, by = pynvml.nvmlDeviceGetEnforcedPowerLimit(self.handle) / 1000, "driver"
        if "nvidia-smi.txt" in self.texts:
            query = ["--query-gpu=enforced.power.limit", "--format=csv,noheader,nounits"]
            command = ["nvidia-smi", *query, "-i", self.environment["CUDA_VISIBLE_DEVICES"]]
            asked = float(self.command(command, seconds=30).stdout)
            by = "nvidia-smi"
        right = said is not None and abs(said - asked) < TOLERANCE_WATTS
        shown = "not read" if said is None else f"{said:.0f} W"
        self.row("power limit", f"{asked:.0f} W ({by})", shown, RIGHT if right else WRONG)

    def driver_calls(self, when: str) -> None:
        """What each NVML call costs that gpuwatch makes, at twice the usual pace."""
        seconds = 1.5 if self.simulated else 4.0
        costs: defaultdict[str, list[float]] = defaultdict(list)
        clock = SystemClock()
        with _timed_calls(costs):
            source = NvmlSource(clock, ReadOptions(interval_seconds=0.5))
            source.open()
            until = time.monotonic() + seconds
            while time.monotonic() < until:
                source.read()
                time.sleep(0.25)
            source.close()
        self.results.setdefault("driver calls", {})[when] = {
            name: {
                "calls": len(took),
                "median_ms": round(1000 * statistics.median(took), 4),
                "max_ms": round(1000 * max(took), 4),
                "first_ms": round(1000 * took[0], 4),
            }
            for name, took in sorted(costs.items(), key=lambda one: -max(one[1]))
        }

    def fine_samples(self, job: Job) -> None:
        """The driver's samples against the times at which kernels ran: whether they are true, how
        far apart, and how late they can be read."""
        reader = samples.Reader(self.handle)
        job.begin()
        line = job.until("bursts ", 60.0)
        time.sleep(1.0)
        reader.stop()
        ran = json.loads(line.removeprefix("bursts "))
        judged = samples.judge(reader.samples, ran)
        self.results["fine samples"] = judged
        self.texts["samples.csv"] = samples.table(reader.samples, ran)
        if not judged["samples"]:
            self.notes.append("fine samples: the driver gave none.")
            return
        self.notes.append(
            "fine samples: {samples}, one each {spacing_ms:.0f} ms, read {late_ms:.0f} ms late "
            "({late_most_ms:.0f} at most); wrong by {error_points:.0f} points on average, by "
            "{best_error_points:.0f} if their stamps are taken to be {best_lag_ms:.0f} ms late; "
            "{extreme_share:.0%} are 0 or 99 and more".format(**judged)
        )

    def workload(self, one: Workload, job: Job, gauge: Gauge) -> None:
        """The job with its fault: watched, diagnosed, recorded; then cured, and measured again."""
        watch = self.watch_seconds
        if not self.simulated:
            watch = one.watch_seconds or watch
        elif one is HEALTHY:
            # As long as what is measured beside it takes.
            watch = max(watch, 14.0)
        measure = (1.5 if self.simulated else 2.5) * one.measure
        if reason := self.reason_against(one, watch + measure + MOST_OVERHEAD_SECONDS):
            self.row(one.name, _named(one), reason, NOT_RUN)
            return
        job.begin()
        pid, began = str(job.pid), time.time()
        path = self.scratch / f"{re.sub('[^a-z0-9]+', '_', one.name.lower()).strip('_')}.jsonl.zst"
        span = f"{watch:g}s"
        record = self.started("record", "--pid", pid, "--for", span, "--redact", "-o", str(path))
        stacks = ["--stacks"] if one.stacks and self.py_spy() else []
        diagnose = self.started("diagnose", "--pid", pid, "--for", span, "--json", *stacks)
        job.until("training", 60.0)
        first = time.monotonic() + 1.0
        if one is HEALTHY:
            self.part("driver calls, busy", lambda: self.driver_calls("busy"))
            self.part("dashboards", lambda: self.dashboards(pid))
        said = self.finished(diagnose, watch + 60.0)
        self.finished(record, 60.0)
        before = job.pace(first, time.monotonic()), gauge.idle_share(first)
        self.job_lines.append(f"{one.name}: {began:.1f} to {time.time():.1f}")
        measured, after = None, None
        if one.cure:
            known = job.lines()
            job.tell()
            job.until("turned", 60.0)
            job.until("training", 60.0, since=known)
            time.sleep(SETTLE_SECONDS)
            cured = time.monotonic()
            job.until("step", 30.0, since=job.lines(), count=2)
            time.sleep(max(0.0, cured + measure - time.monotonic()))
            pace, after = job.pace(cured, time.monotonic()), gauge.idle_share(cured)
            if before[0] and pace:
                settings = one.settings(self.simulated)
                batches = settings["batch_size"], {**settings, **one.cure}["batch_size"]
                measured = pace * batches[1] / (before[0] * batches[0])
        self.judge(one, said, (before[1], after), measured)
        if one is HEALTHY:
            self.part("SIGSTOP", lambda: self.stopped(job))

    def reason_against(self, one: Workload, seconds: float) -> str:
        """Why a job cannot be run here and now; empty: it can."""
        if self.deadline - time.monotonic() < seconds:
            return "no time was left"
        settings = {**asdict(Settings()), **one.settings(self.simulated)}
        # Each worker makes two ahead, and one more is being used.
        batches = settings["workers"] * 2 + 1
        needed = batches * settings["batch_size"] * settings["sample_kib"] * 1024
        free = shutil.disk_usage("/dev/shm").free
        return "" if needed < 0.9 * free else f"/dev/shm is too small: {free >> 20} MiB"

    def stopped(self, job: Job) -> None:
        """The healthy job, stopped by a signal; its cure is the other signal."""
        os.kill(job.pid, signal.SIGSTOP)
        try:
            # Six seconds of it are the least that is believed.
            diagnose = self.started("diagnose", "--pid", str(job.pid), "--for", "9s", "--json")
            said = self.finished(diagnose, 90.0)
        finally:
            os.kill(job.pid, signal.SIGCONT)
        continued = time.monotonic()
        time.sleep(2.0)
        runs_again = job.pace(continued, time.monotonic()) is not None
        stop = Workload(name="SIGSTOP", truth=("job_stopped",), sick={})
        self.judge(stop, said, (None, None), None)
        self.notes.append(f"SIGSTOP: the job {'runs' if runs_again else 'hangs'} after SIGCONT.")

    def dashboards(self, pid: str | None) -> None:
        """In a pseudo-terminal each: the first paint, and what it costs then."""
        seconds = 2.0 if self.simulated else 6.0
        commands = {"gpuwatch": ["gpuwatch"]}
        if pid is not None:
            commands["gpuwatch --pid"] = [*commands["gpuwatch"], "--pid", pid]
        if importlib.util.find_spec("nvitop"):
            commands["nvitop"] = ["nvitop", "--interval", "1"]
        else:
            self.notes.append("nvitop was skipped: it is not installed.")
        environment = {**self.environment, "TERM": "xterm-256color", "LANG": "C.UTF-8"}
        for size in ("COLUMNS", "LINES"):
            # They would count for more than the size of the terminal.
            environment.pop(size, None)
        for name, (module, *options) in commands.items():
            terminal = Terminal(120, 40, "|".join(re.findall(r"[A-Z]*\d+", self.gpu_name)) or "GPU")
            terminal.start(
                [sys.executable, "-m", module, *options],
                environment,
                ROOT,
            )
            try:
                painted = terminal.wait_for_paint(20.0, match=True)
                time.sleep(1.0)
                cpu, began = process_tree.cpu_seconds(terminal.pid), time.monotonic()
                time.sleep(seconds)
                used = process_tree.cpu_seconds(terminal.pid) - cpu
                share = used / (time.monotonic() - began)
                if terminal.exit_code is not None or not painted:
                    shown = visible_text(terminal.tail)[-200:]
                    raise RuntimeError(f"{name} showed no GPU; it last wrote {shown!r}")
            finally:
                terminal.stop()
            text, gpu = terminal.paint.text_at, terminal.paint.match_at
            assert text is not None
            assert gpu is not None
            found = {
                "first_paint_seconds": round(text - terminal.started_at, 2),
                "first_gpu_seconds": round(gpu - terminal.started_at, 2),
                "cpu_percent": round(100 * share, 1),
            }
            self.results.setdefault("dashboards", {})[name] = found
            self.notes.append(
                "{0}: first paint after {first_paint_seconds} s, first GPU after "
                "{first_gpu_seconds} s, {cpu_percent}% of a core".format(name, **found)
            )

    # -- jobs and programs ------------------------------------------------------------------

    def prepared(self, one: Workload) -> Job:
        """The job, about to begin."""
        settings = one.settings(self.simulated)
        if one.answer_ms is not None:
            settings["server_port"] = self.slow_server(one.answer_ms)
        return Job(self, one.name, "train", json.dumps(settings), json.dumps(dict(one.cure)))

    def slow_server(self, milliseconds: float) -> int:
        """The port of a server that sends 4 KiB so long after it was asked; no part of the job."""

        class Answer(socketserver.BaseRequestHandler):
            def handle(self) -> None:
                time.sleep(milliseconds / 1000)
                self.request.sendall(bytes(4096))

        server = socketserver.ThreadingTCPServer(("127.0.0.1", 0), Answer)
        server.daemon_threads = True
        threading.Thread(target=server.serve_forever, daemon=True).start()
        return int(server.server_address[1])

    def py_spy(self) -> bool:
        from gpuwatch.jobs.stacks.sampler import find_py_spy

        if find_py_spy() is None:
            self.notes.append("stacks were not sampled: py-spy is not installed.")
            return False
        return True

    def command(self, words: Sequence[str], seconds: float) -> subprocess.CompletedProcess[str]:
        return subprocess.run(
            words, cwd=ROOT, env=self.environment, capture_output=True, text=True,
            timeout=seconds, check=False, stdin=subprocess.DEVNULL,
        )  # fmt: skip

    def gpuwatch(self, *words: str, seconds: float = 60.0) -> subprocess.CompletedProcess[str]:
        return self.command([sys.executable, "-m", "gpuwatch", *words], seconds)

    def started(self, *words: str) -> subprocess.Popen[str]:
        command = [sys.executable, "-m", "gpuwatch", *words]
        return subprocess.Popen(
            command, cwd=ROOT, env=self.environment, stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True,
        )  # fmt: skip

    def finished(self, process: subprocess.Popen[str], seconds: float) -> str:
        """What it printed. Raises ``RuntimeError`` where it could not do what it was asked."""
        try:
            printed, errors = process.communicate(timeout=seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.communicate()
            raise
        if process.returncode not in (0, 1, 3):
            ended = f"gpuwatch ended with exit code {process.returncode}"
            raise RuntimeError(f"{ended}: {errors[-200:]}")
        return printed

    # -- what was found ---------------------------------------------------------------------

    def judge(
        self,
        one: Workload,
        printed: str,
        idle: tuple[float | None, float | None],
        measured: float | None,
    ) -> None:
        report = json.loads(printed)
        findings = report["findings"]
        others = [found for found in findings if not (one.leaks and found["rule"] == GROWS)]
        told = [found for found in others if found["severity"] != "info"] or others
        first = told[0] if told else None
        if first is not None:
            said = f"{first['rule']} ({first['confidence']:.0%} sure)"
            harmless = not one.truth and first["severity"] == "info"
            judged = RIGHT if harmless or first["rule"] in one.truth else WRONG
        elif report["decided"]:
            said, judged = "nothing is wrong", WRONG if one.truth else RIGHT
        else:
            said, judged = "nothing yet", OPEN
        if one.only_real and self.simulated:
            judged = NOT_JUDGED
        gain = ((first or {}).get("gain") or {}).get("factor")
        self.results.setdefault("workloads", {})[one.name] = {
            "truth": list(one.truth),
            "judged": judged,
            "verdict": report["verdict"],
            "findings": [
                {key: found.get(key) for key in FINDING}
                | {"advice": [advice["action"] for advice in found["advice"]]}
                for found in findings
            ],
            "sick": dict(one.sick),
            "cure": dict(one.cure),
            "idle_share": idle[0],
            "idle_share_cured": idle[1],
            "gain_predicted": gain,
            "gain_measured": measured,
        }
        shares = ["-" if share is None else f"{share:.0%}" for share in idle]
        predicted = "-" if gain is None else f"{gain:.2f}x"
        gained = "-" if measured is None else f"{measured:.2f}x"
        self.row(one.name, _named(one), said, judged, predicted, gained, *shares)
        if one.leaks:
            grows = any(found["rule"] == GROWS for found in findings)
            unknown = any(missing["rule"] == GROWS for missing in report["unknown"])
            judged = RIGHT if grows else OPEN if unknown else WRONG
            self.row("  and memory growth", GROWS, GROWS if grows else "nothing", judged)

    def row(self, name: str, truth: str, said: str, judged: str, *more: str) -> None:
        self.rows.append([name, truth, said, judged, *more, *["-"] * (4 - len(more))])

    def summary(self) -> str:
        heads = ["workload", "truth", "gpuwatch said", "", "gain predicted", "measured"]
        table = [[*heads, "idle", "idle, cured"], *self.rows]
        widths = [max(len(row[at]) for row in table) for at in range(len(table[0]))]
        lines = [
            "  ".join(cell.ljust(width) for cell, width in zip(row, widths, strict=True)).rstrip()
            for row in table
        ]
        machine = self.results.get("machine", {})
        known = [key for key in ("driver", "torch", "date") if machine.get(key)]
        where = ", ".join(f"{key} {machine[key]}" for key in known)
        title = f"{self.gpu_name}, {where}" if machine else "no GPU"
        if self.simulated:
            title = f"SIMULATED driver, no real GPU ({title}): no figure here says anything of a"
            title += f" card. Jobs were watched for {self.watch_seconds:g} s each."
        judged = [row[3] for row in self.rows]
        kinds = (RIGHT, WRONG, OPEN, NOT_JUDGED, NOT_RUN)
        counts = ", ".join(f"{judged.count(kind)} {kind.lower()}" for kind in kinds)
        ended = f"{time.monotonic() - self.began:.0f} s; " + (
            f"CRASHED: {', '.join(self.crashed)}" if self.crashed else "no part crashed"
        )
        calls = [
            f"{when}: " + ", ".join(f"{name} {one['median_ms']:g} ms" for name, one in top)
            for when, found in self.results.get("driver calls", {}).items()
            for top in [sorted(found.items(), key=lambda one: -one[1]["median_ms"])[:4]]
        ]
        parts = [title, "", *lines, "", counts, *self.notes]
        parts += ["dearest driver calls, median:", *[f"  {one}" for one in calls]] if calls else []
        return "\n".join([*parts, ended]) + "\n"

    def write(self) -> None:
        """Everything so far: at most eight files, none of them over 16 MiB."""
        texts = self.texts | {"summary.txt": self.summary(), "jobs.txt": "\n".join(self.job_lines)}
        texts["results.json"] = json.dumps(self.results, indent=1)
        for name, text in texts.items():
            (self.out / name).write_bytes(text.encode()[:FILE_MOST_BYTES])
        with tarfile.open(self.out / "recordings.tar", "w") as archive:
            room = FILE_MOST_BYTES - (1 << 20)
            for path in sorted(self.scratch.glob("*.jsonl.zst")):
                room -= path.stat().st_size + 1024
                if room > 0:
                    archive.add(path, path.name)


class Job:
    """A process that waits until it is told to begin, and what it says."""

    def __init__(self, proof: Proof, name: str, *words: str) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-m", "tests.device.job", *words],
            cwd=ROOT, env=proof.environment, stdin=subprocess.PIPE, stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT, text=True, start_new_session=True,
        )  # fmt: skip
        self.pid = self._process.pid
        self._name, self._log = name, proof.job_lines
        self._said: list[tuple[float, str]] = []
        self._news = threading.Condition()
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self._process.stdout is not None
        for line in self._process.stdout:
            with self._news:
                self._said.append((time.monotonic(), line.rstrip("\n")))
                self._log.append(f"{self._name}: {line.rstrip()}"[:300])
                self._news.notify_all()
        with self._news:
            self._said.append((time.monotonic(), "ended"))
            self._news.notify_all()

    def begin(self) -> None:
        self.until("ready", 90.0)
        self.tell()

    def tell(self) -> None:
        """Let it go on to what it is to do next."""
        assert self._process.stdin is not None
        self._process.stdin.write("\n")
        self._process.stdin.flush()

    def lines(self) -> int:
        """How many lines it has said."""
        return len(self._said)

    def until(self, beginning: str, seconds: float, *, since: int = 0, count: int = 1) -> str:
        """The last of the first ``count`` lines that begin so, after ``since`` others. Raises
        ``RuntimeError`` where they do not come."""

        def found() -> str | None:
            lines = [line for _, line in self._said[since:]]
            such = [line for line in lines if line.startswith(beginning)]
            return such[count - 1] if len(such) >= count else "ended" if "ended" in lines else None

        with self._news:
            line = self._news.wait_for(found, seconds)
        if line is None or not line.startswith(beginning):
            last = [line for _, line in self._said[-3:]]
            raise RuntimeError(f"{self._name} did not say {beginning!r}; it last said {last}")
        return line

    def pace(self, begin: float, end: float) -> float | None:
        """Steps a second between two moments, by its own count; ``None``: its lines cover less than
        half of that time, and may be those of a burst."""
        steps = [
            (at, int(line.split()[1]))
            for at, line in list(self._said)
            if begin <= at <= end and line.startswith("step ")
        ]
        if not steps or steps[-1][0] - steps[0][0] < 0.5 * (end - begin):
            return None
        return (steps[-1][1] - steps[0][1]) / (steps[-1][0] - steps[0][0])

    def end(self) -> None:
        """With all that it started."""
        for number in (signal.SIGTERM, signal.SIGKILL):
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, number)
            with contextlib.suppress(subprocess.TimeoutExpired):
                self._process.wait(3.0)
        self._reader.join(3.0)


class Gauge:
    """How busy the GPU is, as the driver says it, four times a second."""

    def __init__(self, handle: Any) -> None:
        self._handle, self._ended = handle, threading.Event()
        self._seen: list[tuple[float, float]] = []
        self._thread = threading.Thread(target=self._look, daemon=True)
        self._thread.start()

    def _look(self) -> None:
        while not self._ended.wait(0.25):
            with contextlib.suppress(pynvml.NVMLError):
                busy = pynvml.nvmlDeviceGetUtilizationRates(self._handle).gpu
                self._seen.append((time.monotonic(), busy / 100))

    def idle_share(self, since: float) -> float | None:
        busy = [share for at, share in list(self._seen) if at >= since]
        return 1.0 - statistics.fmean(busy) if busy else None

    def stop(self) -> None:
        self._ended.set()
        self._thread.join(5.0)


@contextlib.contextmanager
def _timed_calls(costs: defaultdict[str, list[float]]) -> Iterator[None]:
    """Times every call of a device that goes through ``pynvml`` meanwhile."""
    find: Any = pynvml._nvmlGetFunctionPointer

    def timed(name: str) -> Any:
        function = find(name)
        if not name.startswith(("nvmlDevice", "nvmlGpm")):
            return function

        def call(*arguments: Any) -> Any:
            began = time.perf_counter()
            try:
                return function(*arguments)
            finally:
                costs[name].append(time.perf_counter() - began)

        return call

    pynvml._nvmlGetFunctionPointer = timed
    try:
        yield
    finally:
        pynvml._nvmlGetFunctionPointer = find


def _named(one: Workload) -> str:
    return " or ".join(one.truth) or "healthy"


def _version(module: str) -> str | None:
    from importlib.metadata import PackageNotFoundError, version

    with contextlib.suppress(PackageNotFoundError):
        return version(module)
    return None


if __name__ == "__main__":
    sys.exit(main())
