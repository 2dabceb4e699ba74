"""What is logged of a job, a row every 15 seconds, and the process that hands it to the tool.

The tools' libraries take seconds to import, start servers and wait for networks: all that happens
in a process of its own (``writer``), so that none of it is waited for before the end. A packet that
it does not take in time is dropped, and counted.
"""

from __future__ import annotations

import contextlib
import json
import re
import socket
import subprocess
import sys
from collections import defaultdict
from collections.abc import Callable
from importlib.util import find_spec
from statistics import fmean

from gpuwatch import __version__
from gpuwatch.core.model import GpuKey, ProcessKey, Snapshot
from gpuwatch.core.text import SentenceError, clean
from gpuwatch.core.units import gpu_label
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.jobs.launch.tree_signals import kill_all
from gpuwatch.outputs.exporter.totals import busy_of
from gpuwatch.recording.redaction import program_name

EVERY_SECONDS = 15.0
FLUSH_SECONDS = 15.0
"""How long the end waits for the tool to take the rest."""
TEXT_MOST = 500
_WRITER = "gpuwatch.outputs.experiment.writer"
_READINGS: dict[str, Callable[[list[float]], float]] = {
    "memory_used_bytes": max,
    "power_watts": fmean,
    "temperature_celsius": max,
}
"""Of a GPU, and what a row has of those since the row before."""


def checked(tool: str) -> str:
    """``wandb``, ``mlflow``, ``tensorboard`` or ``tensorboard:FOLDER``. Raises ``SentenceError``
    for others, and where the tool's library is not installed."""
    found = re.fullmatch(r"(wandb|mlflow|tensorboard)(?:(?<=board):.+)?", tool)
    if found is None:
        raise SentenceError(
            f"{clean(tool, 60)!r} is none of what --log-to takes: wandb, mlflow, tensorboard or "
            "tensorboard:FOLDER."
        )
    spec = find_spec(found[1])
    # A folder of that name (wandb makes one) is no package.
    if spec is None or spec.origin is None:
        needs = f"--log-to {found[1]} needs a package that is not installed: pip install"
        raise SentenceError(f"{needs} 'gpuwatch-tui[{found[1]}]'")
    return tool


class ExperimentLog:
    """Starts the process for a ``tool`` that was ``checked``. Nothing here waits before the end, or
    raises for what the tool does."""

    def __init__(self, tool: str, key: ProcessKey, command: str | None) -> None:
        self.said: list[str] = []
        """Sentences about what went wrong."""
        self._tool, _, folder = tool.partition(":")
        self._job, self._uuids = key, frozenset[GpuKey]()
        self._readings: defaultdict[tuple[GpuKey, str], list[float]] = defaultdict(list)
        self._findings: dict[str, str] = {}
        self._ever: set[str] = set()
        self._began = self._due = 0.0
        self._last: Snapshot | None = None
        self._dropped = 0
        self._link, its = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
        self._link.setblocking(False)
        with its:
            self._process = subprocess.Popen(
                # Nothing is imported from the current folder.
                [sys.executable, "-P", "-m", _WRITER, self._tool, folder],
                stdin=its.fileno(),
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
                start_new_session=True,
            )
        # Arguments can hold what is secret: only the program is named.
        name = clean(program_name(command) or "job", 60)
        facts = {"gpuwatch": __version__, "host": socket.gethostname(), "pid": key[0]}
        self._send([f"gpuwatch {name}", facts])

    def push(self, snapshot: Snapshot, diagnosis: Diagnosis | None) -> list[str]:
        """What went wrong since the last, in sentences."""
        known = len(self.said)
        now = snapshot.monotonic_seconds
        if self._last is None:
            self._began, self._due = now, now + EVERY_SECONDS
        self._last = snapshot
        for job in snapshot.jobs:
            if self._job in (job.key, *[one.key for one in job.members]) and job.gpu_uuids:
                self._uuids = frozenset(job.gpu_uuids)
        for gpu in snapshot.gpus:
            # The driver remembers the time before the job, too.
            self._readings[gpu.uuid, "busy"] += busy_of(gpu, self._job[1] or 0.0)
            for name in _READINGS:
                if (value := getattr(gpu.reading, name)) is not None:
                    self._readings[gpu.uuid, name].append(float(value))
        for one in () if diagnosis is None else diagnosis.findings:
            if one.job == self._job or not self._uuids.isdisjoint(one.gpus):
                self._findings[one.rule] = one.summary
        if now >= self._due:
            self._due = now + EVERY_SECONDS
            self._log(snapshot)
        return self.said[known:]

    def close(self, exit_code: int | None = None) -> None:
        """The rest, and at most ``FLUSH_SECONDS`` for the tool to take it."""
        if self._last is not None and self._readings:
            self._log(self._last)
        self._send({"exit_code": exit_code})
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(FLUSH_SECONDS)
        except subprocess.TimeoutExpired:
            self.said.append(f"{self._tool} did not take everything within {FLUSH_SECONDS:.0f} s.")
            kill_all(lambda _pid, one: one.session == self._process.pid)
            self._process.wait()
        self._hear()
        if self._dropped:
            self.said.append(
                f"{self._dropped} rows for {self._tool} were dropped: it was too slow."
            )
        self._link.close()

    def _log(self, snapshot: Snapshot) -> None:
        values: dict[str, float] = {}
        everywhere: list[list[float]] = []
        for gpu in snapshot.gpus:
            if gpu.uuid not in self._uuids:
                continue
            place = f"gpu{gpu_label(gpu)}"
            if busy := self._readings[gpu.uuid, "busy"]:
                everywhere.append(busy)
                values |= _spread(place, [busy])
            for name, of in _READINGS.items():
                if read := self._readings[gpu.uuid, name]:
                    values[f"gpuwatch/{place}/{name}"] = of(read)
        if everywhere:
            values |= _spread("job", everywhere)
        self._readings.clear()
        new = {f"gpuwatch/finding/{rule}": says for rule, says in self._findings.items()}
        texts = {name: clean(new[name], TEXT_MOST) for name in new.keys() - self._ever}
        self._ever |= new.keys()
        values |= {name: float(name in new) for name in self._ever}
        self._findings.clear()
        at = snapshot.taken_at_unix_seconds
        step = round(snapshot.monotonic_seconds - self._began)
        self._send({"at": at, "step": step, "values": values, "texts": texts})

    def _send(self, packet: object) -> None:
        self._hear()
        try:
            self._link.send(json.dumps(packet).encode())
        except BlockingIOError:
            self._dropped += 1
        except OSError:
            # It has ended, and said why.
            self._hear()

    def _hear(self) -> None:
        with contextlib.suppress(OSError):
            while said := self._link.recv(4096):
                self.said.append(
                    f"{self._tool}: {clean(said.decode('utf-8', 'replace'), TEXT_MOST)}"
                )


def _spread(place: str, gpus: list[list[float]]) -> dict[str, float]:
    low, high = min(map(min, gpus)), max(map(max, gpus))
    named = {"min": low, "mean": fmean(map(fmean, gpus)), "max": high}
    return {
        f"gpuwatch/{place}/busy_{name}_percent": round(value, 2) for name, value in named.items()
    }
