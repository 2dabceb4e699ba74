"""A GPU is allocated to a batch job, and no process uses it.

What it checks
    Whether a GPU that a scheduler has allocated to a job runs nothing and has no process on it.

Why it matters
    Nobody else gets the card until the job ends. It is a common waste on clusters: a job asks for
    four GPUs and its program uses one, or the job hung before it reached the GPU.

Evidence needed
    The files in which a prolog records the job of each GPU, for dcgm-exporter
    (DCGM_HPC_JOB_MAPPING_DIR, /run/dcgm_job_maps) or jobstats (/run/gpustat); the processes on the
    GPU and its utilisation.

When it is wrong
    A job that copies its data to the node, compiles, or prepares data on the CPU will use the GPU
    later. A job whose epilog did not run leaves its file behind; squeue no longer lists it. A
    process that the driver does not list (of a container) still shows as memory in use.

What to do
    Check what the job is doing (gpuwatch --slurm JOBID). If its program uses only one GPU, ask for
    one (--gpus, --gres), or start one process per GPU (torchrun --nproc_per_node).

Thresholds
    5 minutes: most jobs have copied their data by then. Below 1% busy: a monitor causes tenths.
    Less than 2 GiB of memory in use: the driver's own.

Sources
    dcgm-exporter (HPC job mapping), jobstats (GPU job ownership).
"""

from gpuwatch.core import units
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Unknown, Verdict, Window
from gpuwatch.diagnosis.rules.shared.cards import UNUSED_PERCENT, with_load
from gpuwatch.diagnosis.rules.shared.words import GIB, keys, named, rounded
from gpuwatch.diagnosis.sentence import GPUS, IS, either

RULE = Rule(
    title="allocated, unused",
    of_rest=True,
    has_look_alikes=False,
)
HOLD_SECONDS = 300.0
DRIVERS_BYTES = 2 * GIB


def check(window: Window) -> Verdict:
    if window.job is not None:
        return Clear("a job uses it")
    given = [gpu for gpu in with_load(window) if gpu.allocated_to]
    if not given:
        return Clear("no scheduler is known to have given it to a job")
    if all(gpu.others is None for gpu in given):
        return Unknown(("the processes on the GPU",))
    unused = [
        gpu
        for gpu in given
        if gpu.others == ()
        and (gpu.busy_percent or 0.0) < UNUSED_PERCENT
        and (gpu.memory_used_bytes or 0.0) < DRIVERS_BYTES
    ]
    if not unused:
        return Clear("it is used")
    jobs = units.listed(sorted({f"job {job}" for gpu in unused for job in gpu.allocated_to or ()}))
    return Firing(
        summary=f"{GPUS} {IS} allocated to {jobs}, and no process uses {either('it', 'them')}",
        evidence=[
            *[
                Evidence(f"{named([gpu])} busy", rounded(gpu.busy_percent), "%", UNUSED_PERCENT)
                for gpu in unused
            ],
            Evidence("processes on it", 0.0, "processes"),
        ],
        advice=(
            Advice(
                f"Check what {jobs} is doing. If its program uses fewer GPUs, ask for fewer "
                "(--gpus, --gres), or start one process per GPU.",
                why="nobody else gets the GPU until the job ends",
            ),
        ),
        gpus=keys(unused),
        lost_share=1.0,
        hold_seconds=HOLD_SECONDS,
    )
