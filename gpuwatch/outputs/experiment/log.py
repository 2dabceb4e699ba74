"""Rows that are logged of a job, and the process that hands them to the tool.

A row covers 15 seconds, and none covers less: tools show the last row as a run's own value. What
the run shows instead is its summary, which covers all of it, also the seconds after the last row.

The tools' libraries take seconds to import, start servers and wait for networks: all that happens
in a process of its own (``writer``), so that none of it is waited for before the end. A packet that
it does not take in time is dropped, and counted.
"""

from __future__ import annotations

import contextlib
import json
import re
import select
import socket
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Mapping
from importlib.util import find_spec
from statistics import fmean

from gpuwatch import __version__
from gpuwatch.core.model import GpuKey, ProcessKey, Snapshot
from gpuwatch.core.store import Column, Stat
from gpuwatch.core.text import SentenceError, clean
from gpuwatch.core.units import gpu_label
from gpuwatch.diagnosis.ledger import Episode, Ledger
from gpuwatch.jobs.run.trees import kill_all
from gpuwatch.outputs.exporter.totals import busy_of
from gpuwatch.recording.redaction import program_name

EVERY_SECONDS = 15.0
FLUSH_SECONDS = 15.0
"""How long the end waits for the tool to take the rest."""
CHECK_SECONDS = 30.0
"""How long the job's start waits for MLflow to say whether it can be used."""
TEXT_MOST = 500
_WRITER = "gpuwatch.outputs.experiment.writer"
_CHECKING: list[subprocess.Popen[bytes]] = []
"""Checks that took too long and go on."""
_READINGS = {"memory_used_bytes": "high", "power_watts": "mean", "temperature_celsius": "high"}
"""Readings of a GPU, and which statistic of them is logged."""
_BUSY = "busy"


def checked(tool: str) -> str:
    """Return ``wandb``, ``mlflow``, ``tensorboard`` or ``tensorboard:FOLDER``. Raises
    ``SentenceError`` for others, and where the tool's library is not installed or, for MLflow,
    lacks what it needs to store runs where they are to go."""
    found = re.fullmatch(r"(wandb|mlflow|tensorboard)(?:(?<=board):.+)?", tool)
    if found is None:
        raise SentenceError(
            f"{clean(tool, 60)!r} is none of what --log-to takes: wandb, mlflow, tensorboard or "
            "tensorboard:FOLDER."
        )
    spec = find_spec(found[1])
    # A folder of that name (wandb makes one) is no package.
    if spec is None or spec.origin is None:
        needs = f"--log-to {found[1]} needs a package that is not installed"
        raise SentenceError(f"{needs}: pip install '.[{found[1]}]' in gpuwatch's folder")
    if tool == "mlflow" and (why := _why_mlflow_cannot_log()):
        raise SentenceError(f"--log-to mlflow {clean(why, 2 * TEXT_MOST)}")
    return tool


def _why_mlflow_cannot_log() -> str:
    """Return why not; empty if it can, and where it does not say in time, as of a database that
    is far away."""
    process = subprocess.Popen(
        [sys.executable, "-P", "-m", _WRITER, "--check"],
        stdin=subprocess.DEVNULL,
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        said, _ = process.communicate(timeout=CHECK_SECONDS)
    except subprocess.TimeoutExpired:
        # Ended now, it would leave a database half laid out, which no MLflow can use any more.
        # Whoever opens the database next waits for it: MLflow has a lock for that.
        _CHECKING.append(process)
        return ""
    return said.decode("utf-8", "replace").strip().rpartition("\n")[2] if process.returncode else ""


Stats = defaultdict[tuple[GpuKey, str], Stat]
"""Statistics by GPU and reading, in which every reading counts alike."""


class ExperimentLog:
    """Starts the process for a ``tool`` that was ``checked``. Nothing here waits before the end, or
    raises for what the tool does."""

    def __init__(self, tool: str, key: ProcessKey, command: str | None) -> None:
        self.said: list[str] = []
        """Sentences about what went wrong."""
        self._tool, _, folder = tool.partition(":")
        self._job, self._uuids = key, frozenset[GpuKey]()
        self._interval, self._run = Stats(Stat), Stats(Stat)
        """Readings since the last row, and in the whole run."""
        self._episodes: tuple[Episode, ...] = ()
        """Episodes of the job, by the ledger."""
        self._said: set[str] = set()
        """Rules whose sentences were sent."""
        self._began = self._due = 0.0
        self._began_at = self._row_at = 0.0
        """Unix seconds of the first snapshot, and of the last row."""
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

    def push(self, snapshot: Snapshot, ledger: Ledger | None) -> list[str]:
        """Take the newest snapshot, and the ledger if the machine is diagnosed. Return what went
        wrong since the last, in sentences."""
        known = len(self.said)
        now = snapshot.monotonic_seconds
        if self._last is None:
            self._began, self._due = now, now + EVERY_SECONDS
            self._began_at = self._row_at = snapshot.taken_at_unix_seconds
        self._last = snapshot
        for job in snapshot.jobs:
            if self._job in (job.key, *[one.key for one in job.members]) and job.gpu_uuids:
                self._uuids = frozenset(job.gpu_uuids)
        for gpu in snapshot.gpus:
            # The driver remembers the time before the job, too.
            for percent in busy_of(gpu, self._job[1] or 0.0):
                self._interval[gpu.uuid, _BUSY].add_value(percent, 1.0)
            for name in _READINGS:
                self._interval[gpu.uuid, name].add_value(getattr(gpu.reading, name), 1.0)
        if ledger is not None:
            self._episodes = tuple(
                [
                    one
                    for one in ledger.episodes(since=self._began_at)
                    if one.job == self._job or not self._uuids.isdisjoint(one.gpus)
                ]
            )
        if now >= self._due:
            self._due = now + EVERY_SECONDS
            shares = self._held_shares(self._row_at)
            held = {rule: float(share > 0.0) for rule, share in shares.items()}
            self._send(self._packet(self._interval, held))
            self._row_at = snapshot.taken_at_unix_seconds
            self._end_interval()
        return self.said[known:]

    def close(self, exit_code: int | None = None) -> None:
        """Send the run's summary, and give the tool at most ``FLUSH_SECONDS`` to take the rest."""
        until = time.monotonic() + FLUSH_SECONDS
        end: dict[str, object] = {"exit_code": exit_code}
        if self._last is not None:
            self._end_interval()
            end |= self._packet(self._run, self._held_shares(self._began_at))
        # A summary that is dropped would be missed more than a row.
        select.select([], [self._link], [], FLUSH_SECONDS)
        self._send(end)
        with contextlib.suppress(OSError):
            self._link.shutdown(socket.SHUT_WR)
        try:
            self._process.wait(max(0.0, until - time.monotonic()))
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

    def _end_interval(self) -> None:
        for key, stat in self._interval.items():
            # Before it had a GPU, what that did was not the job's.
            if key[0] in self._uuids:
                self._run[key].merge(stat)
        self._interval.clear()

    def _held_shares(self, since: float) -> dict[str, float]:
        """Return how much of the time from ``since`` to the last snapshot each finding held, 0 to
        1; those that held before are there as well."""
        assert self._last is not None
        now = self._last.taken_at_unix_seconds
        held = dict.fromkeys([one.rule for one in self._episodes], 0.0)
        for one in self._episodes:
            end = now if one.end_unix_seconds is None else one.end_unix_seconds
            seconds = end - max(since, one.begin_unix_seconds)
            # One that has just been found holds for no time yet.
            seconds = max(seconds, float(one.holds))
            held[one.rule] += max(0.0, seconds) / max(1.0, now - since)
        return {rule: min(1.0, share) for rule, share in held.items()}

    def _packet(self, stats: Stats, held: Mapping[str, float]) -> dict[str, object]:
        """A row, or the run's summary, as of the last snapshot. ``held``: how much of the time each
        finding did."""
        assert self._last is not None
        values: dict[str, float] = {}
        busy: list[Column] = []
        for gpu in self._last.gpus:
            if gpu.uuid not in self._uuids:
                continue
            place = f"gpu{gpu_label(gpu)}"
            if (one := stats[gpu.uuid, _BUSY].column) is not None:
                busy.append(one)
                values |= _busy_values(place, [one])
            for name, of in _READINGS.items():
                if (value := getattr(stats[gpu.uuid, name], of)) is not None:
                    values[f"gpuwatch/{place}/{name}"] = value
        values |= _busy_values("job", busy) if busy else {}
        values |= {f"gpuwatch/finding/{rule}": round(share, 4) for rule, share in held.items()}
        texts = {
            f"gpuwatch/finding/{one.rule}": clean(one.summary, TEXT_MOST)
            for one in self._episodes
            if one.rule not in self._said
        }
        self._said.update([one.rule for one in self._episodes])
        at = self._last.taken_at_unix_seconds
        step = round(self._last.monotonic_seconds - self._began)
        return {"at": at, "step": step, "values": values, "texts": texts}

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


def _busy_values(place: str, gpus: list[Column]) -> dict[str, float]:
    low, high = min(one.minimum for one in gpus), max(one.maximum for one in gpus)
    named = {"min": low, "mean": fmean([one.mean for one in gpus]), "max": high}
    return {
        f"gpuwatch/{place}/busy_{name}_percent": round(value, 2) for name, value in named.items()
    }
