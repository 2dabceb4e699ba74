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
    process that the driver does not list (in a container, say) shows only as memory in use, and
    below 1 GiB not at all. A MIG instance without a reading of utilisation is not judged.

What to do
    Check what the job is doing (gpuwatch --slurm JOBID). If its program uses only one GPU, ask for
    one (--gpus, --gres), or start one process per GPU (torchrun --nproc_per_node).

Thresholds
    5 minutes: most jobs have copied their data by then. They begin 15 s after the job got the GPU,
    so that the job before it does not count. Below 1% busy: monitoring alone causes a few tenths of
    a percent. Less than 1 GiB of memory in use: the driver's own.

Sources
    dcgm-exporter (HPC job mapping), jobstats (GPU job ownership).
"""

from gpuwatch.core import units
from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared.cards import UNUSED_PERCENT, required_load
from gpuwatch.diagnosis.rules.shared.words import GIB, clear_if, required
from gpuwatch.diagnosis.sentence import GPUS, IS, either

RULE = Rule(title="allocated, unused", of_rest=True, has_look_alikes=False)
HOLD_SECONDS = 300.0
NEW_SECONDS = 15.0
DRIVERS_BYTES = 1 * GIB


def check(window: Window) -> Verdict:
    clear_if(window.job is not None, "a job uses it")
    gpu = required_load(window)[0]
    clear_if(not gpu.allocated_to, "no scheduler is known to have given it to a job")
    is_new = (gpu.allocated_seconds or 0.0) < NEW_SECONDS
    clear_if(is_new, "it has only just been allocated", at_once=True)
    others = required(gpu.others, "the processes on the GPU")
    memory, busy = required(gpu.memory_used_bytes, "memory used"), gpu.busy_percent or 0.0
    clear_if(bool(others) or busy >= UNUSED_PERCENT or memory >= DRIVERS_BYTES, "it is used")
    jobs = units.listed([f"job {job}" for job in gpu.allocated_to or ()])
    ask = Advice(
        f"Ask for fewer GPUs (--gpus, --gres) if {jobs} cannot use more; else start one process "
        "per GPU.",
        brief="Ask for fewer GPUs, or start a process on each",
        why="nobody else gets the GPU until the job ends",
    )
    return Firing(
        summary=f"{GPUS} {IS} allocated to {jobs}, but no process uses {either('it', 'them')}",
        short=(
            f"{GPUS} {IS} allocated to a job, but no process uses {either('it', 'them')}",
            f"{GPUS} {IS} allocated, but unused",
        ),
        evidence=[
            Evidence("busy", busy, "%", UNUSED_PERCENT),
            Evidence("memory in use", memory, "bytes", float(DRIVERS_BYTES)),
            Evidence("processes on it", 0.0, "processes"),
        ],
        advice=(ask,),
        gpus=(gpu.uuid,),
        lost_share=1.0,
        hold_seconds=HOLD_SECONDS,
    )
