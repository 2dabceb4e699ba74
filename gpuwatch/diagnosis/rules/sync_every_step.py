"""The training loop waits for the GPU in every step (.item(), .cpu(), print of a tensor).

What it checks
    With stacks: the main thread is in a call that waits for the device for 20% of its samples or
    more, and GPUs of the job idle all the same.

Why it matters
    CUDA runs ahead of Python only while Python does not ask for a result. After each question the
    GPU has nothing queued and waits until the next kernels are launched.

Evidence needed
    Stacks of the main thread (gpuwatch diagnose --stacks) and the GPUs' utilisation. Without
    stacks, a thread that spins for the GPU looks like one that computes.

When it is wrong
    Where the GPU is the bottleneck, Python waits at the first such call: that costs nothing, so the
    GPU must idle as well. Gradient clipping and loss scaling synchronise by design.

What to do
    Keep the loss on the GPU (loss.detach()) and read it every 50 or 100 steps; compute metrics on
    the GPU; copy results with non_blocking=True. The line to change is named.

Thresholds
    20% of the samples: below that, even if all of it were lost, a GPU would be 80% busy.
    idle 10%: see loader_cpu_bound.

Sources
    PyTorch, "Performance Tuning Guide", section "Avoid unnecessary CPU-GPU synchronization".
    torch.cuda.set_sync_debug_mode finds the calls from inside the job.
"""

from gpuwatch.diagnosis.rule import Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared.loading import underfed
from gpuwatch.diagnosis.rules.shared.words import clear_if, only, ramp, required, strength

_COPIES = Advice(
    "Copy results back with non_blocking=True, and compute metrics on the GPU.",
    brief="Copy results back with non_blocking=True",
    why="Python can then launch the next step meanwhile",
)
RULE = Rule(
    title="syncs every step",
    gives_back="all",
    cure=(_COPIES,),
    explains={"python_bound", "oscillation", "batch_too_small"},
    charts=("main",),
)
SYNCHRONISING_PERCENT = 20.0  # of the main thread's samples


def check(window: Window) -> Verdict:
    found = underfed(window)
    waits = required(found.job.stack_percent("synchronising"), "stacks of the main thread")
    seldom = f"the main thread waits for the device in {only(waits)} of its samples"
    clear_if(waits < SYNCHRONISING_PERCENT, seldom)
    data = found.job.stack_percent("waiting_for_data", "loading_data") or 0.0
    more = f"the main thread waits for data ({data:.0f}%) more than for the device"
    clear_if(data > waits, more)
    line = found.job.stack_line("synchronising")
    place = f" at {line}" if line else ""
    rarely = Advice(
        "Read results less often: keep the loss on the GPU and call .item() every 50 steps.",
        brief="Call .item() every 50 steps, not at each",
        why="each such call lets the GPU run dry",
    )
    return Firing(
        summary=f"{found.complaint}: the training loop waits for the GPU's results{place}",
        short=found.briefly("the training loop waits for the GPU's results", "syncs every step"),
        evidence=[
            found.evidence,
            Evidence("stacks that wait for the device", waits, "%", SYNCHRONISING_PERCENT,
                     f"Python asks for a result{place}"),
            Evidence("stacks that wait for or make data", data, "%",
                     says="less than for the device", supports=data < waits / 2.0),
        ],
        advice=(rarely, *RULE.cure),
        strength=strength(
            found.clearness,
            ramp(waits, SYNCHRONISING_PERCENT - 5.0, 50.0),
            1.0 - ramp(data, 0.0, waits),
        ),
        gpus=found.keys,
        lost_share=found.idle_share,
    )  # fmt: skip
