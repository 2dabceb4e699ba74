"""A GPU's memory shows errors.

What it checks
    New uncorrectable ECC errors since watching began, errors of memory that the driver reported
    since the job began (Xid 48, 63, 64, 92, 94, 95, 140), row remappings that failed or wait for a
    reset, and corrected errors at a high rate.

Why it matters
    An uncorrectable error ends the process whose memory it hit (on older cards all on the GPU) and
    can leave wrong numbers in a checkpoint. A failed remapping: no spare rows are left there.

Evidence needed
    The driver's errors (Xid), its ECC counters or its row remapper (the latter two of data-center
    and workstation cards; GeForce cards have neither). Uncorrectable errors are reported at once.

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

    10 corrected errors per minute, over a minute or more: information only, this project's choice.
    ECC repairs them; so many come from one bad cell that is read all the time.

Sources
    NVIDIA, "GPU Memory Error Management": row remapping takes effect with a GPU reset; a remapping
    failure is a criterion for replacing the card; corrected errors are outside its scope.
"""

from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared.cards import present, recent_xids, xid_evidence, xid_words
from gpuwatch.diagnosis.rules.shared.words import keys, named, unknown_if
from gpuwatch.diagnosis.sentence import GPUS, either, number

# There is nothing to weigh.
RULE = Rule(title="hardware errors", trust=1.03, has_look_alikes=False)
CORRECTED_PER_MINUTE = 10.0
ROW_REPLACED, MANY_CORRECTED = 63, 92
"""Xid errors after which the memory still works: what they announce takes a reset, or nothing."""

_DRAIN = Advice(
    "Restart the job on another GPU, from a checkpoint before the errors; reset this one and run "
    "the field diagnostic.",
    brief="Restart the job elsewhere; reset this GPU",
    why="what was computed after an uncorrectable error cannot be trusted",
)
_RESET = Advice(
    "Reset the GPU (nvidia-smi --gpu-reset) when nothing runs on it.",
    brief="Reset the GPU when nothing runs on it",
    why="a row remapping takes effect with a reset",
)
_REPLACE = Advice("Have the card replaced.", why="it has no spare rows left for that bank")
_WATCH = Advice(
    "Watch whether they continue; plan a reset if they do.",
    brief="Watch whether they continue",
)


def check(window: Window) -> Verdict:
    cards = [_Card(window, gpu) for gpu in present(window)]
    known = [card for card in cards if card.is_known]
    unknown_if(not known, "ECC counters", "the row remapper's state")
    broken = [card for card in known if card.is_broken]
    pending = [card for card in known if card.waits_for_reset]
    noisy = [card for card in known if card.is_noisy]
    if broken:
        return _firing(window, broken, "error", [_DRAIN, *_after_drain(broken)])
    if pending:
        return _firing(window, pending, "warning", [_RESET])
    return _firing(window, noisy, "info", [_WATCH]) if noisy else Clear("no new memory errors")


def _after_drain(cards: "list[_Card]") -> list[Advice]:
    if any(card.gpu.remapped_rows_failed for card in cards):
        return [_REPLACE]
    return [_RESET] if any(card.gpu.remapped_rows_pending for card in cards) else []


class _Card:
    """Memory errors of one GPU, as far as they were read."""

    def __init__(self, window: Window, gpu: GpuFacts) -> None:
        self.gpu = gpu
        self.errors = recent_xids(window, gpu, ("memory",))
        self.codes = {error.code for error in self.errors}
        self.minutes = max(60.0, window.watched_seconds) / 60.0

    @property
    def is_known(self) -> bool:
        gpu = self.gpu
        read = (gpu.ecc_uncorrected_new, gpu.remapped_rows_failed, gpu.remapped_rows_pending)
        return read != (None, None, None) or bool(self.errors)

    @property
    def is_broken(self) -> bool:
        grave = self.codes - {ROW_REPLACED, MANY_CORRECTED}
        return bool(self.gpu.ecc_uncorrected_new or self.gpu.remapped_rows_failed or grave)

    @property
    def waits_for_reset(self) -> bool:
        return bool(self.gpu.remapped_rows_pending) or ROW_REPLACED in self.codes

    @property
    def is_noisy(self) -> bool:
        rate = (self.gpu.ecc_corrected_new or 0) / self.minutes
        return rate >= CORRECTED_PER_MINUTE or MANY_CORRECTED in self.codes

    @property
    def troubles(self) -> list[str]:
        gpu, found = self.gpu, []
        if gpu.ecc_uncorrected_new:
            found.append(f"{number(gpu.ecc_uncorrected_new)} uncorrectable since watching began")
        if gpu.remapped_rows_failed:
            found.append("a row remapping failed")
        if gpu.remapped_rows_pending:
            found.append("a row remapping is pending (it needs a reset)")
        if gpu.ecc_corrected_new and not found:
            found.append(f"{number(gpu.ecc_corrected_new)} corrected, unusually many")
        return found

    @property
    def evidence(self) -> list[Evidence]:
        gpu = self.gpu
        rows = (
            ("new uncorrectable ECC errors", gpu.ecc_uncorrected_new),
            ("new corrected ECC errors", gpu.ecc_corrected_new),
            ("row remapping failed", gpu.remapped_rows_failed),
            ("row remapping pending", gpu.remapped_rows_pending),
        )
        return [Evidence(f"{named([gpu])} {name}", value) for name, value in rows if value]


def _firing(window: Window, cards: list[_Card], severity: str, advice: list[Advice]) -> Firing:
    errors = [(card.gpu, error) for card in cards for error in card.errors]
    says = dict.fromkeys([text for card in cards for text in card.troubles])
    if errors:
        says[xid_words([error for _, error in errors])] = None
    shows = f"{GPUS} {either('shows', 'show')} memory errors"
    codes = dict.fromkeys([f"Xid {error.code}" for _, error in errors])
    first = next((text for card in cards for text in card.troubles), ", ".join(codes))
    return Firing(
        severity=severity,
        summary=f"{shows}: {'; '.join(says)}",
        short=(f"{shows}: {first}", shows),
        evidence=[
            *[xid_evidence(window, gpu, error) for gpu, error in errors],
            *[item for card in cards for item in card.evidence],
        ],
        advice=advice,
        gpus=keys([card.gpu for card in cards]),
    )
