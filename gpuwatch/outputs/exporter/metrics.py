"""The metrics of ``gpuwatch exporter``: snapshots and diagnoses in, Prometheus families out.

What was not read has no sample. GPUs are known by ``gpu_uuid`` (and ``gpu``, the number people
use), jobs by ``gpu_job``, a short name that holds no PID: Prometheus itself owns the label
``job``. Series of jobs and findings are capped, and what is left out is counted.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Mapping
from hashlib import blake2b
from math import sqrt
from statistics import fmean
from threading import Lock
from typing import Any

from prometheus_client import ProcessCollector
from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric
from prometheus_client.exposition import choose_encoder

from gpuwatch import __version__
from gpuwatch.core.model import Gpu, GpuReading, Job, ProcessKey, Snapshot
from gpuwatch.core.registry import GPU, GPU_FACTS, RDMA_PORT
from gpuwatch.core.store import without_late
from gpuwatch.core.text import clean
from gpuwatch.core.units import gpu_label
from gpuwatch.diagnosis.catalogue import RULES
from gpuwatch.diagnosis.finding import Diagnosis, Gain
from gpuwatch.diagnosis.ledger import Ledger
from gpuwatch.outputs.exporter.charges import JobCharges
from gpuwatch.outputs.exporter.totals import LINKS, BusyWindows, Percents, Totals, busy_of
from gpuwatch.sources.kernel_log import KernelLog, same_bus

JOBS_MOST, FINDINGS_MOST = 64, 256
TEXT_MOST = 120
"""Characters of a label."""
_NOTHING = GpuReading()
_RULES = [rule.name for rule in RULES]

_FACTS = [one for one in GPU_FACTS.values() if one.metric]
_READINGS = [one for one in GPU.values() if one.metric and one.metric not in LINKS]


def deviation(percents: Percents) -> float:
    mean = fmean(percents)
    return sqrt(fmean([(one - mean) ** 2 for one in percents]))


_BUSY: tuple[tuple[str, Callable[[Percents], float], str], ...] = (
    ("busy_ratio", fmean, "Time with a kernel resident since the last scrape: the mean."),
    ("busy_min_ratio", min, "The lowest of the driver's samples since the last scrape."),
    ("busy_max_ratio", max, "The highest of the driver's samples since the last scrape."),
    ("busy_deviation_ratio", deviation, "Their standard deviation: 0.5 of a swing 0 to 1."),
)


class Samples:
    """Families of metrics, made by their first samples; ``None`` is no sample."""

    def __init__(self, others: Iterable[Metric]) -> None:
        self._others = tuple(others)
        self._families: dict[str, Metric] = {}

    def add(
        self, name: str, says: str, value: float | None, factor: float = 1.0, /, **labels: str
    ) -> None:
        """A counter if the name ends in ``_total``, else a gauge."""
        if value is None:
            return
        family: Any = self._families.get(name)
        if family is None:
            kind: Any = CounterMetricFamily if name.endswith("_total") else GaugeMetricFamily
            family = kind(f"gpuwatch_{name}", says, labels=list(labels))
            self._families[name] = family
        family.add_metric(list(labels.values()), factor * value)

    def collect(self) -> Iterable[Metric]:
        return (*self._families.values(), *self._others)


class Metrics:
    """``push`` from one thread, ``page`` from any: it reads what is there and asks nobody. ``age``
    gives the seconds since the newest snapshot, and whether it is too old to be served."""

    def __init__(
        self,
        age: Callable[[], tuple[float | None, bool]],
        log: KernelLog | None = None,
        *,
        pids: bool = False,
        commands: bool = False,
    ) -> None:
        self._age, self._kernel_log = age, log
        self._pids, self._commands = pids, commands
        self._windows, self._totals, self._charges = BusyWindows(), Totals(), JobCharges()
        self._seen: tuple[Snapshot, Diagnosis] | None = None
        self._lost: dict[str, float] = {}
        """GPU seconds lost to the findings of each rule."""
        self._process = ProcessCollector(registry=None)
        self._lock = Lock()

    def push(self, snapshot: Snapshot, diagnosis: Diagnosis, ledger: Ledger) -> None:
        """Take the newest snapshot, its diagnosis, and the ledger of all diagnoses."""
        busy = {gpu.uuid: busy_of(gpu) for gpu in snapshot.gpus}
        with self._lock:
            if self._kernel_log is not None:
                self._kernel_log.read()
            is_new = self._seen is None or diagnosis is not self._seen[1]
            if is_new:
                self._lost = {**dict.fromkeys(_RULES, 0.0), **ledger.lost_by_rule()}
            self._seen = snapshot, diagnosis
            self._windows.push(snapshot.monotonic_seconds, busy)
            self._totals.push(snapshot, diagnosis, ledger)
            given = self._totals.take_given()
            self._charges.push(snapshot, given, ledger if is_new else None)

    def page(
        self, scraper: str, window_seconds: float | None = None, accept: str = ""
    ) -> tuple[bytes, str]:
        """The exposition and its content type, in the format that ``accept`` asks for.
        ``window_seconds``: how far back the busy band reaches; ``None``: to when ``scraper`` (an
        address) asked last."""
        encode, content_type = choose_encoder(accept)
        page: Any = Samples(self._process.collect())
        age_seconds, stale = self._age()
        with self._lock:
            up = not stale and self._seen is not None and any(map(_answers, self._seen[0].gpus))
            page.add("up", "1: the driver answers, and what is served is fresh.", up)
            page.add("build_info", "This exporter.", 1, version=__version__)
            page.add("last_collection_age_seconds", "Since GPUs were read last.", age_seconds)
            if self._seen is not None:
                snapshot, diagnosis = self._seen
                at, cost = snapshot.taken_at_unix_seconds, snapshot.own_cost
                page.add("last_collection_timestamp_seconds", "When GPUs were read last.", at)
                took, of_time = cost.read_milliseconds, cost.nvml_milliseconds_per_second
                page.add("last_collection_duration_seconds", "Time it took.", took, 1e-3)
                page.add("driver_time_ratio", "Time spent in the driver.", of_time, 1e-3)
                self._add_xids(page, snapshot)
                self._charges.add_to(page.add, scraper, lambda text: clean(text, TEXT_MOST))
                says, left_out = "Not served, because there are too many.", self._charges.left_out
                page.add("left_out", says, left_out, what="accounts")
                if not stale:
                    _add_rdma_ports(page, snapshot)
                    self._add_gpus(page, snapshot, self._windows.of(scraper, window_seconds))
                    self._add_jobs(page, snapshot, diagnosis)
        return encode(page), content_type

    def _add_gpus(self, page: Samples, snapshot: Snapshot, busy: Mapping[str, Percents]) -> None:
        processes = _process_counts(snapshot)
        for gpu in without_late(snapshot.gpus):
            identity, reading, totals = gpu.identity, gpu.reading, self._totals
            who = {"gpu": gpu_label(gpu), "gpu_uuid": gpu.uuid}
            facts = _texts(identity, "name", "pci_bus_id", "driver_version", "mig_parent_uuid")
            facts["name"] += " (simulated)" * snapshot.simulated
            page.add("gpu_info", "A GPU.", 1, **who, **facts)
            for job in gpu.allocated_to or ():
                says = "The batch job that it is allocated to."
                page.add("gpu_allocation_info", says, 1, **who, slurm_job_id=clean(job, TEXT_MOST))
            page.add("gpu_lost", "1: it does not answer any more.", gpu.lost, **who)
            if gpu.lost or not _answers(gpu):
                continue
            for item, served in ((identity, _FACTS), (reading, _READINGS)):
                for one in served:
                    kind = {"kind": one.kind} if one.kind else {}
                    value, factor = getattr(item, one.name), one.unit.factor
                    page.add(f"gpu_{one.metric}", one.help, value, factor, **who, **kind)
            for name, of, says in _BUSY if busy.get(gpu.uuid) else ():
                page.add(f"gpu_{name}", says, of(busy[gpu.uuid]), 0.01, **who)
            page.add("gpu_processes", "Processes that use it.", processes.get(gpu.uuid), **who)
            for cause, seconds in totals.idle_seconds(gpu.uuid).items():
                page.add("gpu_idle_seconds_total", "Without a kernel.", seconds, **who, cause=cause)
            for reason, seconds in totals.throttle_seconds(gpu.uuid).items():
                says = "With its clocks held down."
                page.add("gpu_throttle_seconds_total", says, seconds, **who, reason=reason)
            for name, count in totals.link_bytes(gpu.uuid).items():
                page.add(f"gpu_{name}", LINKS[name].help, count, **who)

    def _add_xids(self, page: Samples, snapshot: Snapshot) -> None:
        log = self._kernel_log
        cards = [gpu for gpu in snapshot.gpus if gpu.identity.mig_parent_uuid is None]
        here = {same_bus(gpu.identity.pci_bus_id or ""): gpu for gpu in cards}
        errors = {
            (bus, error.code): (error.times, error.last_unix_seconds)
            for bus, gpu in here.items()
            for error in gpu.xid_errors or ()
        }
        if log is not None:
            says = "0: Xid errors are seen from the exporter's start on, by the driver's events."
            page.add("kernel_log_readable", says, log.is_readable)
            # With those of cards that are gone.
            errors |= log.xids
        for (bus, code), (times, at) in errors.items():
            gpu = here.get(bus)
            label, uuid = ("", "") if gpu is None else (gpu_label(gpu), gpu.uuid)
            who = {"gpu": label, "gpu_uuid": uuid, "pci_bus_id": bus, "xid": str(code)}
            page.add("gpu_xid_errors_total", "Xid errors that the driver reported.", times, **who)
            page.add("gpu_xid_last_timestamp_seconds", "When it was reported last.", at, **who)

    def _add_jobs(self, page: Samples, snapshot: Snapshot, diagnosis: Diagnosis) -> None:
        running = [job for job in snapshot.jobs if job.ended_at_unix_seconds is None]
        shown = sorted(running, key=lambda job: not job.gpu_uuids)[:JOBS_MOST]
        for job in shown:
            name = job_name(job.key)
            page.add("job_info", "A job that runs.", 1, gpu_job=name, **self._facts(job))
            for uuid in job.gpu_uuids:
                page.add("job_gpu_info", "A GPU of a job.", 1, gpu_job=name, gpu_uuid=uuid)
        active = {
            (one.rule, one.severity, uuid, "" if one.job is None else job_name(one.job)): None
            for one in diagnosis.findings
            for uuid in one.gpus or ("",)
        }
        for rule, severity, uuid, name in list(active)[:FINDINGS_MOST]:
            labels = {"rule": rule, "severity": severity, "gpu_uuid": uuid, "gpu_job": name}
            page.add("finding_active", "What holds now: gpuwatch explain RULE.", 1, **labels)
        for (rule, uuid, name), gain in list(_gains(diagnosis).items())[:FINDINGS_MOST]:
            who = {"rule": rule, "gpu_uuid": uuid, "gpu_job": name}
            for bound, times in (("estimate", gain.factor), ("low", gain.low), ("high", gain.high)):
                says = (
                    "Times its speed of now that a job would have, with what the finding advises."
                )
                page.add("finding_gain", says, times, **who, bound=bound)
        for rule, seconds in self._lost.items():
            page.add("finding_cost_gpu_seconds_total", "GPU time lost to it.", seconds, rule=rule)
        says = "Not served, because there are too many."
        page.add("left_out", says, len(running) - len(shown), what="jobs")
        page.add("left_out", says, max(0, len(active) - FINDINGS_MOST), what="findings")

    def _facts(self, job: Job) -> dict[str, str]:
        names = ["user", "framework", "launcher", "container", "pod", "slurm_job"]
        facts = _texts(job, *names, *["command"] * self._commands)
        facts["slurm_job_id"] = facts.pop("slurm_job")
        facts["namespace"], _, facts["pod"] = facts["pod"].rpartition("/")
        return {**facts, "pid": str(job.pid)} if self._pids else facts


def _add_rdma_ports(page: Samples, snapshot: Snapshot) -> None:
    for port in snapshot.host.rdma_ports or ():
        who = {"device": port.device, "port": str(port.port)}
        active = None if port.state is None else port.state == "active"
        says = "1: an InfiniBand or RoCE port is active."
        page.add("rdma_port_active", says, active, **who, link_layer=port.link_layer or "")
        for one in RDMA_PORT.values():
            if one.metric:
                kind = {"kind": one.kind} if one.kind else {}
                value, factor = getattr(port, one.name), one.unit.factor
                page.add(f"rdma_port_{one.metric}", one.help, value, factor, **who, **kind)


def _gains(diagnosis: Diagnosis) -> dict[tuple[str, str, str], Gain]:
    """Return what is to be gained, by rule, GPU and job."""
    return {
        (one.rule, uuid, "" if one.job is None else job_name(one.job)): one.gain
        for one in diagnosis.findings
        if one.gain is not None
        for uuid in one.gpus or ("",)
    }


def job_name(key: ProcessKey) -> str:
    """Return a name that stays while the job runs, also after the exporter was started anew."""
    return blake2b(f"{key[0]} {key[1]}".encode(), digest_size=4).hexdigest()


def _answers(gpu: Gpu) -> bool:
    """Whether the driver says anything of it, be it that it is lost."""
    return gpu.lost or gpu.reading != _NOTHING


def _process_counts(snapshot: Snapshot) -> dict[str, int]:
    """Count processes by GPU, where they can be counted: a list that cannot be read is no empty
    one."""
    troubles = [one for one in snapshot.problems if one.source == "nvml"]
    doubted = {one.target for one in troubles if one.reading in (None, "processes")}
    counts = Counter(process.gpu_uuid or "" for process in snapshot.processes)
    for gpu in snapshot.gpus if None not in doubted else ():
        if gpu.uuid not in doubted:
            counts[gpu.uuid] += 0
    return counts


def _texts(item: object, *names: str) -> dict[str, str]:
    """Empty, as Prometheus has it, for what is not known."""
    return {name: clean(getattr(item, name) or "", TEXT_MOST) for name in names}
