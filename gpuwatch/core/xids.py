"""Xid errors, the numbers by which NVIDIA's driver says what went wrong: one table for screens,
rules, the exporter and ``doctor``. After NVIDIA's Xid catalogue; the sentences are our own.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Xid:
    meaning: str
    """A clause: what happened."""
    cure: str
    """A sentence: what to do."""
    kind: str = "card"
    """Part that is usually at fault: ``program``, ``memory`` (of the card), ``card``, ``lost`` (a
    card that is gone), or ``none`` where nothing need be done."""


_DEBUG = (
    "Find the kernel: run the program with CUDA_LAUNCH_BLOCKING=1, or under compute-sanitizer; if "
    "sound programs fail on this GPU too, have it tested (dcgmi diag -r 3)."
)
_AGAIN = "Start the program again; if it recurs, update the driver."
_RESET = (
    "Move the jobs to another GPU and reset this one (nvidia-smi --gpu-reset), or restart the "
    "machine; if it recurs, have the card tested (dcgmi diag -r 3)."
)
_RESTART = (
    "Restart the machine, and the job from its last checkpoint; if it recurs, check the power "
    "cables, the riser and the temperature, then have the card replaced."
)
_DRAIN = (
    "Restart the job on another GPU, from a checkpoint before it; reset this one "
    "(nvidia-smi --gpu-reset) and have it tested (dcgmi diag -r 3)."
)
_WATCH = "Watch whether it recurs; nothing else need be done now."
_LINK = (
    "Look at the links (nvidia-smi nvlink -e) and reset all GPUs that share them; if it recurs, "
    "have card, bridge or baseboard checked."
)

XIDS = {
    8: Xid("the GPU stopped working on a program's commands", _AGAIN, "program"),
    13: Xid("a kernel failed (illegal instruction or address)", _DEBUG, "program"),
    31: Xid("a program used GPU memory that it does not have", _DEBUG, "program"),
    32: Xid("a program's stream of commands was damaged", _AGAIN, "program"),
    43: Xid("a program's work was stopped after an error of its own", _DEBUG, "program"),
    45: Xid(
        "a program's work was removed: it was killed, or ended by an error before",
        "Look for another Xid just before it; a program that was killed on purpose needs nothing.",
        "none",
    ),
    48: Xid("an uncorrectable memory error (two bits)", _DRAIN, "memory"),
    61: Xid("the GPU's own controller reported a fault", _RESET),
    62: Xid("the GPU's own controller stopped", _RESET),
    63: Xid(
        "a bad row of memory is set to be replaced",
        "Reset the GPU (nvidia-smi --gpu-reset) when nothing runs on it: the replacement takes "
        "effect then.",
        "memory",
    ),
    64: Xid("a bad row of memory could not be replaced", _DRAIN, "memory"),
    69: Xid("a kernel used the GPU in a way that it does not allow", _DEBUG, "program"),
    74: Xid("an NVLink failed", _LINK),
    79: Xid("the GPU fell off the bus", _RESTART, "lost"),
    92: Xid("many memory errors were corrected", _WATCH, "memory"),
    94: Xid(
        "an uncorrectable memory error that ended the program it hit, and no other",
        _DRAIN,
        "memory",
    ),
    95: Xid("an uncorrectable memory error that ended all programs on the GPU", _DRAIN, "memory"),
    109: Xid("the GPU did not switch between programs in time", _AGAIN, "program"),
    110: Xid("the GPU detected a breach of its protection", _RESET),
    119: Xid("the GPU's system processor (GSP) did not answer", _RESET),
    120: Xid("the GPU's system processor (GSP) failed", _RESET),
    121: Xid("an error on the link to the CPU (C2C) was corrected", _WATCH, "none"),
    136: Xid("an NVLink could not be brought up", _LINK),
    140: Xid("an uncorrectable memory error was not recovered from", _DRAIN, "memory"),
    143: Xid("the GPU could not be started", _RESET),
    **dict.fromkeys(range(144, 151), Xid("an NVLink reported an error", _LINK)),
    154: Xid(
        "the driver asks for the GPU to be recovered",
        'See "GPU Recovery Action" in nvidia-smi -q: it asks for a reset of the GPU, or a restart '
        "of the machine.",
    ),
}
_IN_SHORT = {
    _DEBUG: "Find the kernel: CUDA_LAUNCH_BLOCKING=1",
    _AGAIN: "Start the program again",
    _RESET: "Move the jobs to another GPU; reset this one",
    _RESTART: "Restart the machine and the job",
    _DRAIN: "Restart the job elsewhere; reset this GPU",
    _WATCH: "Watch whether it recurs",
    _LINK: "Look at the links; reset the GPUs on them",
    XIDS[45].cure: "Look for another Xid just before it",
    XIDS[63].cure: "Reset the GPU when nothing runs on it",
    XIDS[154].cure: 'See "GPU Recovery Action" in nvidia-smi -q',
}
_UNLISTED = Xid(
    "the driver reported an error",
    "Look the number up in NVIDIA's Xid catalogue; the kernel's log has the rest of its lines.",
)


def xid_of(code: int) -> Xid:
    """Return what is known of an Xid code; of one that is not in the table, where to look."""
    return XIDS.get(code, _UNLISTED)


def cure_in_short(cure: str) -> str:
    """Return the cure of a code in about 45 characters."""
    return _IN_SHORT.get(cure, "Look the number up in NVIDIA's Xid catalogue")
