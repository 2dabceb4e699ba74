"""Diagnoses made by hand, as the engine would make them of a scene."""

from dataclasses import replace
from typing import Any

from gpuwatch.core.model import ProcessKey, Snapshot
from gpuwatch.diagnosis.finding import Advice, Diagnosis, Evidence, Finding, RuledOut, Unchecked
from gpuwatch.diagnosis.ledger import Ledger
from tests.tui.scenes import KEY, machine, one_job


class HandEngine:
    """Says what it was told to say."""

    def __init__(self, diagnosis: Diagnosis | None = None) -> None:
        self.diagnosis = diagnosis
        self.pushed: list[Snapshot] = []

        self.stacks: list[object] = []
        self.ledger = Ledger(newest=True)

    def push(self, snapshot: Snapshot) -> None:
        self.pushed.append(snapshot)
        if self.diagnosis is not None:
            self.ledger.add_diagnosis(self.diagnosis, snapshot.taken_at_unix_seconds)

    def finish(self) -> None:
        """It has looked at everything."""

    def go_on_from(self, lost: object) -> None:
        """Keep the answer."""

    def note_stacks(self, job: ProcessKey, stacks: object) -> None:
        self.stacks.append((job, stacks))


def starved(what: Snapshot, gpu: int = 0, **fields: object) -> Finding:
    """A loader that is at its limit."""
    settings: dict[str, object] = {
        "rule": "loader_cpu_bound",
        "severity": "warning",
        "confidence": 0.92,
        "summary": f"GPU {gpu} waits for data 38% of the time: 2 loader workers are at their "
        "limit, 12 cores are free.",
        "short": (
            "{gpus} {gpus|waits|wait} for data {38}%: 2 workers maxed out, 12 cores idle",
            "{gpus} starved: workers maxed out",
        ),
        "gpus": (what.gpus[gpu].uuid,),
        "job": next((job.key for job in what.jobs if what.gpus[gpu].uuid in job.gpu_uuids), None),
        "since_unix_seconds": what.taken_at_unix_seconds - 127.0,
        "evidence": (
            Evidence("busy", 47.0, "%", 80.0, "the GPU swings between 0 and 99% every 1.8 s"),
            Evidence(
                "loader workers' CPU",
                98.6,
                "%",
                90.0,
                "the workers are at the limit of a core each",
            ),
            Evidence("usable cores", 14, "cores", says="12 of them have no work"),
            Evidence(
                "disk read",
                21.6e6,
                "bytes/s",
                500e6,
                "the disk is far from its rate",
                supports=False,
            ),
            Evidence("pinned memory", value=False, says="a copy waits for the GPU"),
        ),
        "advice": (
            Advice(
                "Raise num_workers from 2 to 8.",
                setting="num_workers",
                present="2",
                wanted="8",
                why="each worker takes a core, and 12 are free",
            ),
            Advice(
                "Pass pin_memory=True to the DataLoader.",
                setting="pin_memory",
                wanted="True",
                why="it costs nothing here",
            ),
        ),
        "ruled_out": (
            RuledOut(rule="loader_io_bound", why="no worker waits for a disk"),
            RuledOut(rule="checkpoint_pauses", why="nothing is written while the GPU is idle"),
        ),
        "cost_share": 0.38,
        "cost_gpu_seconds": 46.0,
    }
    return Finding(**(settings | fields))  # type: ignore[arg-type]


def _of_gpu(what: Snapshot, gpu: int, says: str, **fields: Any) -> Finding:
    return Finding(summary=f"GPU {gpu} {says}", gpus=(what.gpus[gpu].uuid,), **fields)


def degraded(what: Snapshot, gpu: int = 0) -> Finding:
    """A link that runs at a fraction of its width."""
    width = Evidence(name="link width", value=4, unit="lanes", threshold=16)
    fields = {"rule": "pcie_degraded", "severity": "info", "confidence": 0.7, "evidence": (width,)}
    return _of_gpu(what, gpu, "runs at PCIe 4x4 under load, and could at 5x16.", **fields)


def broken(what: Snapshot, gpu: int = 0) -> Finding:
    """Memory that is failing."""
    since = what.taken_at_unix_seconds - 10.0
    advice = (Advice(action="Save, stop the job, and have the GPU reset or replaced."),)
    fields = {"rule": "hardware_errors", "severity": "error", "confidence": 0.99, "advice": advice}
    says = "has 3 uncorrected memory errors since the driver was loaded."
    return _of_gpu(what, gpu, says, since_unix_seconds=since, **fields)


def found_on_cpu() -> Finding:
    """The same of the job of ``scenes.one_job``, which uses no GPU."""
    says = "PID 4242: waited for data 31% of the time: its only loader worker is maxed out"
    return replace(starved(machine(one_job())), gpus=(), job=KEY, summary=says, short=())


def nothing(what: Snapshot, verdict: str = "GPU 0 is kept busy: 97%.") -> Diagnosis:
    return Diagnosis(
        taken_at_unix_seconds=what.taken_at_unix_seconds, watched_seconds=120.0, verdict=verdict
    )


def diagnosis(what: Snapshot, *findings: Finding) -> Diagnosis:
    """``findings``, and two rules that could not be decided."""
    every = tuple(gpu.uuid for gpu in what.gpus)
    return Diagnosis(
        taken_at_unix_seconds=what.taken_at_unix_seconds,
        watched_seconds=312.0,
        verdict=findings[0].summary if findings else "GPU 0 is kept busy: 97%.",
        findings=findings,
        unknown=(
            Unchecked(rule="busy_without_work", missing=("SM activity (GPM)",), gpus=every),
            Unchecked(
                rule="sync_every_step",
                missing=("stacks of the main thread",),
                gpus=every[:1],
                job=what.jobs[0].key if what.jobs else None,
            ),
        ),
    )


def several(what: Snapshot) -> Diagnosis:
    """As many findings as the machine's GPUs give cause for, worst first."""
    found = [starved(what)]
    if len(what.gpus) > 1:
        found = [broken(what, 1), *found, degraded(what, 1)]
    if len(what.gpus) > 4:
        found += [starved(what, 3, rule="loader_io_bound", cost_share=0.07), degraded(what, 2)]
    return diagnosis(what, *found)
