"""The vocabulary of one look at a machine.

Every type is frozen (``records``). ``None`` always means "not read" and never zero: the part does
not have it, the driver refused it, or the call failed, and a ``Problem`` says which where a person
should know. Units are in the names. Field names are also the names in the JSON (see ``codec``).
"""

from gpuwatch.core.model.gpu import (
    BusySample,
    Gpu,
    GpuIdentity,
    GpuKey,
    GpuReading,
    ReadingAge,
    ReasonSeconds,
    XidError,
)
from gpuwatch.core.model.job import JOB_ROLES, Job, JobMember, JobRank, TrainingLoop
from gpuwatch.core.model.process import PIDS_OF_A_MACHINE, Identified, Process, ProcessKey
from gpuwatch.core.model.snapshot import Host, NetworkMount, OwnCost, Problem, RdmaPort, Snapshot

__all__ = [
    "JOB_ROLES", "PIDS_OF_A_MACHINE", "BusySample", "Gpu", "GpuIdentity", "GpuKey", "GpuReading",
    "Host", "Identified", "Job", "JobMember", "JobRank", "NetworkMount", "OwnCost", "Problem",
    "Process", "ProcessKey", "RdmaPort", "ReadingAge", "ReasonSeconds", "Snapshot",
    "TrainingLoop", "XidError",
]  # fmt: skip
