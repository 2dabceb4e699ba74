"""The driver reported an error (Xid) of a GPU that ends programs or stops the card.

What it checks
    Whether the driver reported Xid errors of the GPU since its job began, in the last half hour,
    other than those of its memory (hardware_errors) and of a card that is gone (gpu_lost).

Why it matters
    Most of them end the process that they hit. Of a job on several GPUs the other ranks then wait
    in their next collective until it times out, often half an hour later.

Evidence needed
    The driver's events (NVML, no rights needed; some cards and WSL have none), or the kernel's log
    where it may be read (root, CAP_SYSLOG), which also has what came before gpuwatch was started.

When it is wrong
    Xid 45 follows when a program is killed, also by Ctrl-C: alone it is only information. A
    program's own error (13, 31, 43) says nothing against the card unless sound programs have it
    too.

What to do
    It depends on the number. 13, 31, 43 and 69: find the kernel that failed
    (CUDA_LAUNCH_BLOCKING=1, compute-sanitizer). 74 and 144 to 150: look at the NVLinks. 119 and 120
    (the GPU's system processor): reset the GPU or restart the machine. 154: do what nvidia-smi -q
    says under "GPU Recovery Action". 121: nothing.

Thresholds
    30 minutes: as long as ranks wait for one that has died, by the collectives' usual timeout
    (torch.distributed: 10 to 30 minutes).

Sources
    NVIDIA, "Xid Errors" and its Xid catalogue; NVML, nvmlEventSetWait_v2
    (nvmlEventTypeXidCriticalError).
"""

from gpuwatch.core.xids import cure_in_short, xid_of
from gpuwatch.diagnosis.rule import Advice, Firing, Rule, Verdict, Window
from gpuwatch.diagnosis.rules.shared import cards
from gpuwatch.diagnosis.rules.shared.words import clear_if, keys, unknown_if
from gpuwatch.diagnosis.sentence import GPUS

# There is nothing to weigh.
RULE = Rule(
    title="driver errors (Xid)", severity="error", trust=1.03, has_look_alikes=False, after_end=True
)
KINDS = ("program", "card", "none")
IDLE_PERCENT = 1.0
"""A GPU that runs nothing any more waits for what the error ended."""


def check(window: Window) -> Verdict:
    known = [gpu for gpu in cards.present(window) if gpu.xid_errors is not None]
    unknown_if(not known, *cards.XIDS_UNREAD)
    errors = [(gpu, one) for gpu in known for one in cards.recent_xids(window, gpu, KINDS)]
    clear_if(not errors, "the driver has reported no error", at_once=True)
    gpus = list({gpu.uuid: gpu for gpu, _ in errors}.values())
    cures = dict.fromkeys([xid_of(error.code).cure for _, error in errors])
    codes = "Xid " + " ".join(dict.fromkeys([str(error.code) for _, error in errors]))
    meaning = xid_of(errors[0][1].code).meaning.partition(":")[0]
    grave = any(xid_of(error.code).kind != "none" for _, error in errors)
    ends_work = grave and max([gpu.busy_percent or 0.0 for gpu in gpus]) < IDLE_PERCENT
    return Firing(
        severity=None if grave else "info",
        summary=f"The driver reported {cards.xid_words([error for _, error in errors])} on {GPUS}",
        short=(f"{codes} on {GPUS}: {meaning}", f"{codes} on {GPUS}"),
        evidence=[cards.xid_evidence(window, gpu, error) for gpu, error in errors],
        advice=[Advice(cure, brief=cure_in_short(cure)) for cure in cures],
        gpus=keys(gpus),
        explains=cards.WAITING | {"collective_wait"} if ends_work else frozenset(),
    )
