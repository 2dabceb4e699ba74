"""A GPU no longer answers the driver.

What it checks
    Whether the driver still reaches every GPU it knew when watching began.

Why it matters
    A GPU that "fell off the bus" ends every process on it, and a job that spans several GPUs
    hangs in its next collective until that times out, often half an hour later.

Evidence needed
    Only the driver's answer. There is nothing to weigh: it is reported at once.

When it is wrong
    For the few seconds in which the card is reset or its driver reloaded on purpose.

What to do
    Follow the driver's error (Xid) where one was seen; else look for one in the kernel's log. Stop
    what still holds the card, restart the machine or reset the card (nvidia-smi --gpu-reset), and
    start again from the last checkpoint. If it recurs: power cables, riser, temperature, then the
    card itself.

Thresholds
    None: NVML answers yes or no, and the first reading is enough.

Sources
    NVML's NVML_ERROR_GPU_IS_LOST ("the GPU has fallen off the bus or has otherwise become
    inaccessible"); NVIDIA's Xid catalogue.
"""

from gpuwatch.core.xids import cure_in_short, xid_of
from gpuwatch.diagnosis.rule import NO_ANSWER, Advice, Evidence, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared.cards import WAITING, recent_xids, xid_evidence, xid_words
from gpuwatch.diagnosis.rules.shared.words import clear_if, keys, named, unknown_if
from gpuwatch.diagnosis.sentence import GPUS, either

RULE = Rule(
    title="GPU does not answer",
    means=NO_ANSWER,
    severity="error",
    cure=(
        Advice(
            "Reset the GPU or restart the machine (look for Xid in the kernel log first), and "
            "resume from the last checkpoint.",
            brief="Reset it or reboot; resume from a checkpoint",
            why="no process can use that GPU until then",
        ),
    ),
    # What the GPUs left look like while they wait for the one that is gone.
    explains=WAITING | {"collective_wait", "pcie_degraded"},
    # Of the time before.
    charts=("temperature_celsius",),
    # There is nothing to weigh.
    trust=1.03,
    has_look_alikes=False,
)

XID_KINDS = ("lost", "card", "memory")
"""Errors that can take a card off the bus; a program's own it survives."""


def check(window: Window) -> Verdict:
    unknown_if(not window.gpus, "a GPU")
    lost = [gpu for gpu in window.gpus if gpu.lost]
    clear_if(not lost, "every GPU answers", at_once=True)
    there, says = len(window.gpus) - len(lost), f"the driver no longer reaches {named(lost)}"
    errors = [(gpu, error) for gpu in lost for error in recent_xids(window, gpu, XID_KINDS)]
    cures = dict.fromkeys([xid_of(error.code).cure for _, error in errors])
    silent = f"{GPUS} {either('does', 'do')} not answer"
    why = f"; it reported {xid_words([error for _, error in errors])}" if errors else ""
    return Firing(
        summary=f"{GPUS} no longer {either('answers', 'answer')} the driver: "
        f"whatever ran there has died or hangs{why}",
        short=(f"{silent}: whatever ran there has died or hangs", silent),
        evidence=(
            Evidence("GPUs that answer", float(there), None, float(len(window.gpus)), says),
            *[xid_evidence(window, gpu, error) for gpu, error in errors],
        ),
        advice=[Advice(cure, brief=cure_in_short(cure)) for cure in cures] or None,
        gpus=keys(lost),
        lost_share=1.0,
    )
