"""A GPU's memory is held for a process that no longer exists.

What it checks
    Whether the driver lists memory for a PID that this machine does not have.

Why it matters
    Nobody can free it by ending anything, and the next job finds too little memory.

Evidence needed
    The driver's list of processes, and a look from the machine's own PID namespace: inside a
    container the driver names processes by their PIDs outside, and with hidepid /proc shows only
    one's own. From there nobody can tell one that is elsewhere from one that is gone.

When it is wrong
    For seconds after a process has ended, while the driver takes its memory back. A process of a
    virtual machine that shares the GPU is not in this machine's list either.

What to do
    See that nothing else has the card open (sudo fuser -v /dev/nvidia*): a child of the dead
    process may hold its context, and ending that frees the memory. Else reset the GPU when nobody
    uses it (nvidia-smi --gpu-reset), or restart the machine.

Thresholds
    256 MB: a CUDA context takes about as much. For 30 s: drivers free tens of gigabytes in a few
    seconds.

Sources
    NVML, nvmlDeviceGetComputeRunningProcesses; proc(5), hidepid; pid_namespaces(7).
"""

from gpuwatch.core.model import Process
from gpuwatch.diagnosis.facts.window import GpuFacts
from gpuwatch.diagnosis.rule import Advice, Clear, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import words
from gpuwatch.diagnosis.rules.shared.cards import present
from gpuwatch.diagnosis.rules.shared.words import unknown_if
from gpuwatch.diagnosis.sentence import GPUS, either

_FREE = Advice(
    "See what still has the card open (sudo fuser -v /dev/nvidia*) and end it; reset the GPU if "
    "nothing has, when nobody uses it: nvidia-smi --gpu-reset.",
    brief="See who holds it: sudo fuser -v /dev/nvidia*",
    why="the process that the memory is held for has ended, so nothing will free it by itself",
)
RULE = Rule(
    title="memory left behind",
    cure=(_FREE,),
    explains={"idle_holding_memory"},
    covers={"idle_holding_memory"},
    has_look_alikes=False,
    charts=("memory_used_bytes",),
)
LEFT_BYTES = 256e6
HOLD_SECONDS = 30.0


def check(window: Window) -> Verdict:
    listed = [gpu for gpu in present(window) if gpu.others is not None]
    unknown_if(not listed, "the processes on the GPU")
    left = {gpu.uuid: _left(gpu, "gone") for gpu in listed}
    gpus = [gpu for gpu in listed if _memory(left[gpu.uuid]) >= LEFT_BYTES]
    if not gpus:
        unseen = any(_left(gpu, "elsewhere", "hidden") for gpu in listed)
        unknown_if(unseen, "processes outside this container or of other users")
        return Clear("every process that the driver lists is there")
    gone = [process for gpu in gpus for process in left[gpu.uuid]]
    pids = list(dict.fromkeys([str(process.pid) for process in gone]))
    who = f"PID {pids[0]}, which no longer exists"
    who = f"PIDs {' '.join(pids)}, which no longer exist" if len(pids) > 1 else who
    holds = f"{GPUS} {either('holds', 'hold')} {words.amount(_memory(gone))}"
    return Firing(
        summary=f"{holds} of memory for {who}",
        short=(
            f"{holds} of memory for processes that no longer exist", f"{holds} of dead processes",
        ),
        evidence=[
            Evidence(f"{words.named([gpu])} memory of processes that are gone",
                     _memory(left[gpu.uuid]), "bytes", LEFT_BYTES,
                     "the driver lists them, but the machine has no such process")
            for gpu in gpus
        ],
        gpus=words.keys(gpus),
        hold_seconds=HOLD_SECONDS,
    )  # fmt: skip


def _left(gpu: GpuFacts, *how: str) -> list[Process]:
    return [process for process in gpu.others or () if process.unseen in how]


def _memory(processes: list[Process]) -> float:
    return float(sum([process.gpu_memory_bytes or 0 for process in processes]))
