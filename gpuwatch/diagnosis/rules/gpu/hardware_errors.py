"""A GPU's memory shows errors.

What it checks
    New uncorrectable ECC errors since watching began, row remappings that failed or wait for a
    reset, and corrected errors at a high rate.

Why it matters
    An uncorrectable error ends the process whose memory it hit (or, on older cards, every process
    on the GPU) and can leave wrong numbers in a checkpoint. A failed remapping means that the card
    has no spare rows left there.

Evidence needed
    The driver's ECC counters or its row remapper (data-center and workstation cards; GeForce cards
    have neither, so this cannot be checked). Uncorrectable errors are reported at once.

When it is wrong
    Errors from before the first reading (counters run since the driver was loaded) do not count as
    new. A single corrected error is harmless: that is what ECC is for.

What to do
    Uncorrectable: keep the last checkpoint from before it, drain the GPU, reset it, run the
    vendor's field diagnostic. Pending remapping: reset the GPU at the next opportunity, which
    applies it. Failed remapping: the card qualifies for replacement.

Thresholds
    One new uncorrectable error, one failed remapping, one that is pending: NVIDIA's note says what
    each means, and leaves no number to choose.

    10 corrected errors per minute, over a minute or more: information only, and this project's
    choice, since that note does not cover corrected errors. ECC repairs them; so many come from
    one bad cell that is read all the time.

Sources
    NVIDIA, "GPU Memory Error Management": row remapping takes effect with a GPU reset; a remapping
    failure is a criterion for replacing the card; corrected errors are outside its scope.
"""

from __future__ import annotations

from gpuwatch.diagnosis.facts.window import GpuFacts, Window
from gpuwatch.diagnosis.finding import Advice, Evidence
from gpuwatch.diagnosis.rule import Clear, Firing, Unknown, Verdict
from gpuwatch.diagnosis.rules.shared.gpus import named, verb, watched

CORRECTED_PER_MINUTE = 10.0
"""Cards in good order show a corrected error in days or weeks; ten in a minute are one bad cell
that is read all the time, which is what the row remapper then takes out."""

_DRAIN = Advice(
    action="Keep a checkpoint from before the errors, move the job to another GPU, reset this one "
    "and run the field diagnostic.",
    why="what was computed after an uncorrectable error cannot be trusted",
)
_RESET = Advice(
    action="Reset the GPU (nvidia-smi --gpu-reset) when nothing runs on it.",
    why="a row remapping takes effect with a reset",
)
_REPLACE = Advice(action="Have the card replaced.", why="it has no spare rows left for that bank")


def check(window: Window) -> Verdict:
    present = [gpu for gpu in window.gpus if not gpu.lost]
    known = [gpu for gpu in present if _readable(gpu)]
    if not known:
        return Unknown(("ECC counters", "the row remapper's state"))
    broken = [gpu for gpu in known if gpu.ecc_uncorrected_new or gpu.remapped_rows_failed]
    if broken:
        return _firing(broken, "error")
    waiting = [gpu for gpu in known if gpu.remapped_rows_pending]
    if waiting:
        return _firing(waiting, "warning")
    noisy = [gpu for gpu in known if _corrected_rate(window, gpu) >= CORRECTED_PER_MINUTE]
    if noisy:
        return _firing(noisy, "info")
    return Clear("no new memory errors")


def _readable(gpu: GpuFacts) -> bool:
    return not (
        gpu.ecc_uncorrected_new is None
        and gpu.remapped_rows_failed is None
        and gpu.remapped_rows_pending is None
    )


def _corrected_rate(window: Window, gpu: GpuFacts) -> float:
    return 60.0 * (gpu.ecc_corrected_new or 0) / max(60.0, watched(window))


def _firing(gpus: list[GpuFacts], severity: str) -> Firing:
    says = [text for gpu in gpus for text in _troubles(gpu)]
    failed = any(gpu.remapped_rows_failed for gpu in gpus)
    pending = any(gpu.remapped_rows_pending for gpu in gpus)
    advice = [_DRAIN] if severity == "error" else []
    advice += [_REPLACE] if failed else [_RESET] if pending else []
    if severity == "info":
        advice = [Advice(action="Watch whether they continue; plan a reset if they do.")]
    return Firing(
        severity=severity,
        summary=f"{named(gpus)} {verb(gpus, 'shows', 'show')} memory errors: "
        + "; ".join(dict.fromkeys(says)),
        evidence=tuple([item for gpu in gpus for item in _evidence(gpu)]),
        advice=tuple(advice),
        gpus=tuple([gpu.uuid for gpu in gpus]),
    )


def _troubles(gpu: GpuFacts) -> list[str]:
    out = []
    if gpu.ecc_uncorrected_new:
        out.append(f"{gpu.ecc_uncorrected_new} uncorrectable since watching began")
    if gpu.remapped_rows_failed:
        out.append("a row remapping failed")
    if gpu.remapped_rows_pending:
        out.append("a row remapping waits for a reset")
    if not out:
        out.append(f"{gpu.ecc_corrected_new} corrected, a high number")
    return out


def _evidence(gpu: GpuFacts) -> list[Evidence]:
    name = named([gpu])
    return [
        Evidence(
            name=f"{name} new uncorrectable ECC errors",
            value=gpu.ecc_uncorrected_new,
            threshold=1.0,
            supports=bool(gpu.ecc_uncorrected_new),
        ),
        Evidence(
            name=f"{name} new corrected ECC errors",
            value=gpu.ecc_corrected_new,
            supports=bool(gpu.ecc_corrected_new),
        ),
        Evidence(
            name=f"{name} row remapping failed",
            value=gpu.remapped_rows_failed,
            supports=bool(gpu.remapped_rows_failed),
        ),
        Evidence(
            name=f"{name} row remapping pending",
            value=gpu.remapped_rows_pending,
            supports=bool(gpu.remapped_rows_pending),
        ),
    ]
