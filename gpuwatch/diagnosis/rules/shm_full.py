"""/dev/shm, through which loader workers pass their batches, is nearly full.

What it checks
    The share of /dev/shm in use while a job with loader workers (or with several ranks) runs.

Why it matters
    A worker that finds no room dies with "Bus error" or "unable to write to file
    </torch_...>", and the job with it. Docker gives a container 64 MB by default.

Evidence needed
    The size and use of /dev/shm.

When it is wrong
    gpuwatch reads the /dev/shm of its own container; a job in another one has another. NCCL and
    other programs keep files there, too, and a crashed job may have left some.

What to do
    docker run --shm-size=8g (or --ipc=host); in Kubernetes an emptyDir with medium: Memory
    mounted on /dev/shm; otherwise mount -o remount,size=... /dev/shm. Or: fewer workers, a
    smaller prefetch_factor, smaller types (uint8), and remove what dead jobs left there.

Thresholds
    80% in use: one more batch per worker can fill the rest. 50% where its size is 128 MB or
    less: there one batch is a large part.

Sources
    PyTorch README, "Docker Image": needs --ipc=host or --shm-size since torch uses shared memory.
    Docker, docker run --shm-size: 64m by default.
"""

from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared.loaders import SMALL_SHM_BYTES
from gpuwatch.diagnosis.rules.shared.loading import job_of
from gpuwatch.diagnosis.rules.shared.words import (
    amount,
    clear_if,
    in_percent,
    ramp,
    required,
    strength,
)

_FEWER = Advice(
    "Lower num_workers or prefetch_factor, or pass smaller types (uint8).",
    brief="Lower num_workers or prefetch_factor",
    setting="prefetch_factor",
    why="num_workers x prefetch_factor batches can be there at once",
)
RULE = Rule(title="/dev/shm nearly full", cure=(_FEWER,), has_look_alikes=False)
FULL_SHARE = 0.80
ERROR_SHARE = 0.95
"""The next batch may not fit, and a worker that finds no room ends with a bus error."""
SMALL_FULL_SHARE = 0.5


def check(window: Window) -> Verdict:
    job, host, unread = job_of(window), window.host, "the size and use of /dev/shm"
    clear_if(job.has_ended, "the job has ended")
    alone = job.job.loader_workers == 0 and len(job.ranks) < 2
    clear_if(alone, "without loader workers the job hardly uses /dev/shm")
    total = required(host.shm_total_bytes or None, unread)
    used = required(host.shm_used_bytes, unread)
    share, small = used / total, total <= SMALL_SHM_BYTES
    limit = SMALL_FULL_SHARE if small else FULL_SHARE
    clear_if(share < limit, f"{share:.0%} of /dev/shm is in use")
    gigabytes = max(8, 2 * round(total / 1024**3))
    larger = f"Make it larger: mount -o remount,size={gigabytes}G /dev/shm."
    if job.job.container is not None or small:
        larger = f"Start the container with --shm-size={gigabytes}g (or --ipc=host)."
    enlarge = Advice(
        larger,
        setting="shm-size",
        present=amount(total),
        wanted=f"{gigabytes}g",
        why="it holds every batch that a worker has made and the job has not taken",
    )
    left = f"{amount(total - used)} are left for all batches in flight"
    kind = "a container's default" if small else "what all jobs here share"
    full = f"/dev/shm is {in_percent(share)} full"
    return Firing(
        summary=f"{full} ({amount(used)} of {amount(total)}): loader workers crash when it is full",
        short=(
            f"{full} ({amount(used)} of {amount(total)}): workers crash when it fills",
            full,
        ),
        evidence=(
            Evidence("/dev/shm in use", 100.0 * share, "%", 100.0 * limit, left),
            Evidence("size of /dev/shm", float(total), "bytes", says=kind),
        ),
        advice=(enlarge, *RULE.cure),
        severity="error" if share >= ERROR_SHARE else None,
        strength=strength(ramp(share, limit - 0.1, limit + 0.1), 1.0),
    )
