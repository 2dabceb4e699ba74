"""A job computes on the CPU beside idle GPUs.

What it checks
    Whether a job with a training library loaded computes on several cores and uses no GPU, while
    GPUs of the machine idle.

Why it matters
    Nothing fails: PyTorch without CUDA takes the CPU, and training is many times slower.

Evidence needed
    The CPU of its processes, and the machine's GPUs. The libraries that are loaded, its
    CUDA_VISIBLE_DEVICES and what its loop reports show the reason.

When it is wrong
    Preparing data with PyTorch, or a model too small for a GPU, look the same: without a known
    reason it is only information. GPUs may be hidden on purpose.

What to do
    PyTorch built without CUDA: install the build for this driver's CUDA. Hidden GPUs: unset
    CUDA_VISIBLE_DEVICES, or ask the scheduler for one. Else: model.to("cuda"), and the batches.

Thresholds
    1.5 cores for each training process, without its loader workers and with its wait for cores:
    Python alone uses one. GPUs below 1% busy. For 30 s if no reason is known: loading a model
    computes, too. All are this project's choice.

Sources
    PyTorch, "Start Locally" (builds with and without CUDA). CUDA, environment variables.
"""

from gpuwatch.diagnosis.facts.window import JobFacts
from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import cards, loading, words
from gpuwatch.diagnosis.signals.waveform import SILENT_PERCENT

_INSTALL = Advice(
    "Install the PyTorch that is built for this driver's CUDA (pytorch.org).",
    brief="Install the PyTorch built for its CUDA",
)
_SHOW = Advice(
    "Unset CUDA_VISIBLE_DEVICES, or ask the scheduler for a GPU, if none was hidden on purpose.",
    brief="Unset CUDA_VISIBLE_DEVICES, or ask for a GPU",
    setting="CUDA_VISIBLE_DEVICES",
)
_MOVE = Advice(
    'Move the model and each batch to the GPU (.to("cuda")).',
    brief="Move the model and each batch to the GPU",
)
RULE = Rule(
    title="trains on the CPU",
    cure=(_MOVE, _INSTALL, _SHOW),
    has_look_alikes=False,
    charts=("main",),
)
LEAST_CORES = 1.5
HOLD_SECONDS = 30.0


def check(window: Window) -> Verdict:
    job = loading.job_of(window)
    model, there = job.job, cards.with_known_load(window.unused)
    idle = [gpu for gpu in there if words.is_below(gpu.busy_percent, SILENT_PERCENT)]
    reports = any(loop.compute_on_device is False for loop in model.loops)
    is_training = model.framework is not None or reports
    none = "it uses a GPU, or no GPU is idle, or no training library is loaded in it"
    words.clear_if(not idle or bool(model.gpu_uuids) or not is_training, none)
    cores = _cores(job)
    rests = f"a training process uses only {words.cores_of(cores)}"
    words.clear_if(cores < LEAST_CORES, rests)
    idles = f"{words.briefly(idle)} {words.verb(idle, 'idles', 'idle')}"
    why, briefly, cure = "", "", RULE.cure
    if model.cpu_build:
        why, briefly = ": its PyTorch is built without CUDA", " (PyTorch without CUDA)"
        cure = (_INSTALL,)
    elif model.is_without_gpus:
        why = f": CUDA_VISIBLE_DEVICES hides {words.verb(idle, 'it', 'them')}"
        briefly, cure = " (CUDA_VISIBLE_DEVICES)", (_SHOW,)
    known = bool(why) or reports
    return Firing(
        severity=None if known else "info",
        summary=f"The job computes on the CPU while {words.named(idle)} "
        f"{words.verb(idle, 'sits', 'sit')} idle{why}",
        short=(f"{idles}: the job computes on the CPU{briefly}", f"{idles}: the job uses the CPU"),
        evidence=[Evidence("CPU of a training process", cores, "cores", LEAST_CORES)],
        advice=cure,
        strength=(0.8 if known else 0.4) + 0.2 * words.ramp(cores, LEAST_CORES, 4.0),
        missing=() if known else ("why it uses no GPU",),
        gpus=words.keys(idle),
        hold_seconds=0.0 if known else HOLD_SECONDS,
    )


def _cores(job: JobFacts) -> float:
    """Return the cores of a training process, loader workers left out and waits for cores in."""
    workers, cores = job.workers, words.required(job.cpu_cores, "the CPU of its processes")
    loading_cores = 0.0 if workers is None else workers.count * (workers.cpu_percent or 0.0) / 100.0
    waits = words.mean([rank.run_queue_wait_percent for rank in job.ranks]) or 0.0
    return (cores - loading_cores) / (max(1, len(job.job.ranks)) * max(0.1, 1.0 - waits / 100.0))
