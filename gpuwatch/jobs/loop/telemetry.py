"""Turns a record of a step file into the model's ``TrainingLoop``."""

from gpuwatch.core.model import ProcessKey, TrainingLoop
from gpuwatch.jobs.loop import step_file
from gpuwatch.jobs.loop.step_file import NONE, Counters, Now, Record

WORKERS_AT_MOST = 1 << 20
"""Nobody has more: a job can report any number."""
IDLE_AFTER_SECONDS = 30.0
"""A loop of steps alone says nothing when it ends: this long after its last step it is idle."""
_NS = 1_000_000_000
RATE_MOST = 1e15
_PHASES = ("idle", "train", "train", "train", "train", "validation", "checkpoint")
_FIRST_STATE = Counters._fields.index("idle_ns")


def loop_of(key: ProcessKey, record: Record, now_ns: int, unix: float) -> TrainingLoop | None:
    """A record as ``model.TrainingLoop``; ``now_ns`` on the writer's clock (``CLOCK_MONOTONIC``).

    What goes on since the record was written (a wait that lasts) is counted up to now. ``None``
    where it was written in the future, by another machine's clock.
    """
    now, counters, base = record
    since = now_ns - counters.at_ns
    if since < -_NS:
        return None
    since = max(since, 0)
    window = counters.at_ns + since - base.at_ns
    grown = Counters(*[new - old for new, old in zip(counters, base, strict=True)])

    def state_share(state: int) -> float | None:
        spent = grown[_FIRST_STATE + state] + (since if state == now.state else 0)
        return min(spent / window, 1.0) if window > 0 else None

    def device_share(ns: int, measured: int, skipped: int) -> float | None:
        """The stretches that were skipped count like the mean of the others."""
        if window <= 0 or (measured == 0 and skipped > 0):
            return None
        return min(ns * (measured + skipped) / max(measured, 1) / window, 1.0)

    on_device = bool(now.flags & step_file.DEVICE_TIMED)
    device_steps, copies = device_share(*grown[-6:-3]), device_share(*grown[-3:])
    return TrainingLoop(
        pid=key[0],
        started_at_unix_seconds=key[1],
        window_seconds=window / _NS,
        steps=counters.steps,
        steps_per_second=_rate(counters, base, since, grown.steps),
        samples_per_second=(
            _rate(counters, base, since, grown.samples) if counters.samples > 0 else None
        ),
        data_wait_share=(
            state_share(step_file.WAIT) if now.flags & step_file.WAITS_REPORTED else None
        ),
        copy_share=copies if now.flags & step_file.COPIES_TIMED else None,
        compute_share=device_steps if on_device else state_share(step_file.STEP),
        compute_on_device=on_device,
        phase=_phase(now, counters, since),
        validation_share=state_share(step_file.VALIDATION),
        checkpoint_share=state_share(step_file.CHECKPOINT),
        epoch=_known(now.epoch),
        step_in_epoch=_known(now.step_in_epoch),
        steps_in_epoch=_known(now.steps_in_epoch),
        batch_size=_known(now.batch_size),
        loader_workers=(
            now.loader_workers if NONE < now.loader_workers < WORKERS_AT_MOST else None
        ),
        pinned_memory=None if now.pinned_memory == NONE else now.pinned_memory > 0,
        memory_allocated_bytes=_known(now.memory_allocated_bytes),
        memory_reserved_bytes=_known(now.memory_reserved_bytes),
        memory_peak_bytes=_known(now.memory_peak_bytes),
        reported_at_unix_seconds=round(unix - since / _NS, 3),
    )


def _rate(counters: Counters, base: Counters, since: int, count: int) -> float | None:
    """A second: from step to step, so that few slow ones give no jumps, and less and less once
    the next is overdue."""
    end = counters.at_ns + since
    over = end - base.at_ns
    if count > 0 and 0 < base.last_step_ns < counters.last_step_ns <= end:
        between = counters.last_step_ns - base.last_step_ns
        overdue = end - counters.last_step_ns
        steps = max(counters.steps - base.steps, 1)
        over = max(between, between + overdue - between // steps)
    # What no loop can do is not said: a snapshot may not hold it.
    return count * _NS / over if over > 0 and count < RATE_MOST * over / _NS else None


def _phase(now: Now, counters: Counters, since: int) -> str:
    if now.state == step_file.BETWEEN and since > IDLE_AFTER_SECONDS * _NS:
        mean = counters.step_ns // max(counters.steps, 1)
        if since > 3 * mean:
            return "idle"
    return _PHASES[now.state]


def _known(number: int) -> int | None:
    return None if number == NONE else number
