"""The loader's workers start anew with every epoch, and the GPU waits for them.

What it checks
    Loader workers that took the place of others, and how long the GPU idled since they began, up
    to its first work on what they made.

Why it matters
    Without persistent_workers a DataLoader ends its workers with each epoch and starts others for
    the next. One that is spawned imports all that the script imports, one after the other where
    the dataset is larger than a pipe's 64 KiB; one that is forked may have files to open or an
    index to read. With short epochs (a small dataset) this takes a good part of the time, and the
    CPU that it costs looks like loading.

Evidence needed
    The loader workers' processes and the GPU's utilisation. Surer from the second restart on.

When it is wrong
    The first batch of an epoch takes its time with workers that stay, too: that much is left out,
    as far as the workers' load and the rhythm of the steps show it. A loader that was made for
    something else (a first phase, a test) is followed by another once, not again and again.

What to do
    Set persistent_workers=True. Where that is not possible (a dataset that changes with each
    epoch): longer epochs (a sampler that goes over the data several times), fewer imports at the
    top of the script, a dataset that is cheap to open.

Thresholds
    Idling of 1.5 s: a first batch often takes one second. 5% of the time.

Sources
    PyTorch, torch.utils.data.DataLoader: persistent_workers, worker_init_fn. Python,
    multiprocessing: what a spawned process imports.
"""

from collections.abc import Sequence

from gpuwatch.diagnosis.facts.window import JobFacts
from gpuwatch.diagnosis.finding import Pause
from gpuwatch.diagnosis.rule import PAUSES, Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import cards, loaders, pauses, words
from gpuwatch.diagnosis.rules.shared.loading import NO_WORKERS, job_of
from gpuwatch.diagnosis.sentence import either

RULE = Rule(
    title="workers restart",
    means=PAUSES,
    gives_back="all",
    cure=(
        Advice(
            "Set persistent_workers=True.",
            setting="persistent_workers",
            present="False",
            wanted="True",
            why="the loader's workers are restarted at every epoch",
        ),
    ),
    explains={"oscillation"},
    of_pauses=True,
    look_alike=6,
    charts=("worker",),
    chart_seconds=180.0,
)
LOST_SHARE = 0.05
"""Share of the time: what TensorFlow's profiler calls moderately input-bound."""
STEP_SECONDS = 0.5
"""Length of a step where no rhythm shows it: that of most jobs is not far from it."""
MANY_SWINGS = 3.0
"""Idle runs for each restart, from which on they show the steps, and not the restarts."""


def check(window: Window) -> Verdict:
    job = job_of(window)
    found = [pause for pause in window.pauses if pause.restart_seconds > 0.0]
    if not found:
        words.required(loaders.workers_of_a_rank(job, job.ranks), *NO_WORKERS)
    words.clear_if(not found, "no GPU was seen to wait for new loader workers")
    first = _first_batch_seconds(window, job, found)
    lost = sum([max(0.0, pause.restart_seconds - first) for pause in found])
    share = min(1.0, lost / max(1.0, sum([pause.epoch_seconds for pause in found])))
    little = f"it waits for new loader workers {words.only(100.0 * share)} of the time"
    words.clear_if(share < LOST_SHARE, little)
    longest = max(pause.restart_seconds for pause in found)
    times = words.counted(len(found), "time")
    waits = f"{cards.subject_briefly(window)} {either('waits', 'wait')} {words.in_percent(share)}"
    return Firing(
        summary=f"{pauses.who_paused(window)} waited for new loader workers {times}, for up to "
        f"{words.lasting(longest)}: they are restarted at every epoch ({words.in_percent(share)} "
        "of the time)",
        short=(
            f"{waits} of the time for workers that restart at every epoch",
            f"{waits} for new workers",
        ),
        evidence=[
            Evidence("restarts", float(len(found)), says="loader workers took the place of others"),
            Evidence("longest wait", longest, "s",
                     says="from the start of the new processes to the GPU's next work"),
            Evidence("first batch", first, "s",
                     says="about, and left out: workers that stay take as long for it"),
            Evidence("time lost", 100.0 * share, "%", 100.0 * LOST_SHARE,
                     "of the time from one start of workers to the next"),
        ],
        strength=words.strength(
            words.ramp(len(found), 0.0, 2.0), words.ramp(share, 0.0, 2.0 * LOST_SHARE)
        ),
        lost_share=share,
        pauses=tuple(found),
    )  # fmt: skip


def _first_batch_seconds(window: Window, job: JobFacts, restarts: Sequence[Pause]) -> float:
    """Return about how long a worker takes for one batch: while it makes one, each of the others
    makes one, too, and the job takes a step for each."""
    workers, waves = job.workers, [gpu.busy for gpu in window.gpus if gpu.busy is not None]
    if workers is None or not waves:
        return 0.0
    begin = window.taken_at_unix_seconds - window.seconds
    lately = sum([pause.at_unix_seconds >= begin for pause in restarts])
    swings = [
        wave.swing_seconds
        for wave in waves
        if wave.is_swinging and wave.idle.count > MANY_SWINGS * lately
    ]
    hidden = [2.0 * wave.sample_seconds for wave in waves if wave.faster_than_seen]
    step = words.mean(swings) or min([STEP_SECONDS, *hidden])
    at_work = max(workers.at_work_share or 0.0, (loaders.wanted(workers) or 0.0) / 100.0)
    return workers.count / max(1, len(job.ranks)) * at_work * step
