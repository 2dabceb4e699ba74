"""What a recording keeps of a stream: nothing that names this machine or its users, and nothing
that no rule reads."""

from __future__ import annotations

from collections.abc import Collection
from typing import Any

JOBS_USER, OTHER_USER = "ada", "margaret"
OTHERS_COMMAND = "python serve.py"
_OF_THE_HOST = (
    "cpu_percent", "core_percents", "load_average_1_minute", "load_average_5_minutes",
    "load_average_15_minutes", "pressure_cpu_some_percent"
)  # fmt: skip
"""What else the machine does shows in these."""
_OF_THE_GPU = (
    "sm_active_percent", "sm_occupancy_percent", "tensor_active_percent", "dram_active_percent",
    "energy_joules"
)  # fmt: skip
"""The virtual GPU's do not follow what the job says it fills and draws."""
_WORKER_NAMES = ("pt_data_worker", "pt_data_pin")


def scrubbed(
    line: dict[str, Any], knob: str, own: Collection[int], other: int | None
) -> dict[str, Any]:
    """One line of a stream, changed in place. ``own``: PIDs of the job; ``other``: of the tenant.
    What belongs to neither is left out."""
    if line["kind"] == "header":
        return {**line, "machine": "box"}
    line["host"].update({"name": "box", **dict.fromkeys(_OF_THE_HOST)})
    line["own_cost"] = None
    line["problems"] = []
    for gpu in line["gpus"]:
        gpu.update(dict.fromkeys(_OF_THE_GPU))
    command = f"python train.py --{knob.replace('_', '-')}"
    known = dict.fromkeys(own, (JOBS_USER, command))
    if other is not None:
        known[other] = (OTHER_USER, OTHERS_COMMAND)
    line["processes"] = [one for one in line["processes"] if one["pid"] in known]
    for process in line["processes"]:
        user, told = known[process["pid"]]
        process.update(command=told, user=user, container=None, slurm_job=None)
        process["name"] = _name(process["name"])
    line["jobs"] = [job for job in line["jobs"] if _pids(job) & known.keys()]
    for job in line["jobs"]:
        user, told = known[min(_pids(job) & known.keys())]
        job.update(
            command=told, user=user, working_directory=None, container=None, pod=None,
            environment=None, slurm_job=None
        )  # fmt: skip
        for member in job["members"]:
            member.update(command=told, name=_name(member["name"]))
    return line


def _pids(job: dict[str, Any]) -> set[int]:
    return {job["pid"], *[member["pid"] for member in job["members"]]}


def _name(name: str) -> str:
    return name if name in _WORKER_NAMES else "python"
