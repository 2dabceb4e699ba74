"""The JSON Schema (draft 2020-12) of ``gpuwatch report FILE --json``.

``schema`` is raised when a name goes or changes its meaning; new names may come at any time.
"""

from __future__ import annotations

from copy import deepcopy
from typing import Any

from gpuwatch.outputs.diagnosis.schema import DIAGNOSIS_SCHEMA

KINDS = ("recording", "query", "dmon", "pmon")

Schema = dict[str, Any]


def value(kind: str, says: str, *, null: bool = False, **bounds: object) -> Schema:
    return {"type": [kind, "null"] if null else kind, "description": says, **bounds}


def record(description: str, /, **properties: Schema) -> Schema:
    """All names are always there; what was not read is ``null``."""
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(properties),
    }


def many(says: str, items: Schema) -> Schema:
    return {"type": "array", "description": says, "items": items}


def amount(says: str) -> Schema:
    """Zero or more; ``null`` where it was not read."""
    return value("number", says, null=True, minimum=0)


def count(says: str) -> Schema:
    return value("integer", says, minimum=0)


def text(says: str, *, null: bool = False) -> Schema:
    return value("string", says, null=null)


def or_null(schema: Schema) -> Schema:
    return {**schema, "type": [schema["type"], "null"]}


_MOMENT = "Unix seconds; logs without dates count from 1970."
_UUIDS = many("UUIDs of the GPUs.", text("As in gpus[].uuid."))
_JOB_KEY = or_null(
    record(
        "The job it is about, by its first process.",
        pid=count("Process number."),
        started_at_unix_seconds=value("number", "When that process began.", null=True),
    )
)
STRETCH = record(
    "A span of time.",
    begin_unix_seconds=value("number", f"Its start. {_MOMENT}"),
    end_unix_seconds=value("number", "Its end."),
    cost_gpu_seconds=amount("What was lost in it, if known."),
)
_COURSE = or_null(
    record(
        "A reading over time, one value per bucket; null where nothing was measured.",
        **{
            name: many(f"The {name} in each bucket.", value("number", "Of the reading.", null=True))
            for name in ("minimum", "mean", "maximum")
        },
    )
)


def percent(says: str) -> Schema:
    return value("number", says, null=True, minimum=0, maximum=100)


_GPU = record(
    "One GPU over the time it was in the recording.",
    uuid=text("UUID, or a made-up name where the log has none."),
    index=count("Number of the GPU."),
    mig_instance=value("integer", "Number of the MIG instance.", null=True),
    mig_parent_uuid=text("The card that a MIG instance is a part of.", null=True),
    name=text("The card."),
    memory_total_bytes=value("integer", "Its memory.", null=True),
    seen_seconds=amount("Time it was in the recording, without gaps."),
    watched_seconds=amount("How much of that its utilisation is known for."),
    busy_percent=percent("Share of the time with a kernel resident."),
    busy_seconds=amount("The same as time."),
    idle_seconds=amount("Time without a kernel."),
    busy_from_samples=value("boolean", "From the driver's fine samples, at least in part."),
    busy_missing=text("Why it was never read.", null=True),
    sm_active_percent=percent("Mean SM activity (Hopper and later)."),
    tensor_active_percent=percent("Mean tensor activity."),
    memory_peak_bytes=value("integer", "Peak memory used.", null=True, minimum=0),
    power_mean_watts=amount("Mean power."),
    power_peak_watts=amount("The most."),
    power_limit_watts=amount("The limit, as last read."),
    energy_joules=amount("Energy used."),
    energy_from=text("counter, power, or counter and power.", null=True),
    temperature_peak_celsius=amount("The highest temperature."),
    duty=value("number", "Share of the time in busy runs.", null=True, minimum=0, maximum=1),
    rhythm_seconds=amount("For how long the shape of the busy signal was known."),
    oscillating_seconds=amount("For how long of that it swung between idle and busy."),
    period_seconds=amount("From one busy run to the next, the median."),
    cycles=amount("Busy runs, in the time in which there was a period."),
    memory_mean_bytes=amount("Mean memory used."),
    sm_clock_mean_mhz=amount("Mean SM clock."),
    sm_clock_peak_mhz=amount("The highest."),
    memory_clock_mean_mhz=amount("Mean memory clock."),
    received_bytes=amount("Host to GPU over PCIe: rates read, times the time."),
    sent_bytes=amount("GPU to host."),
    throttled={
        **many(
            "How long each reason held, the longest first; they overlap.",
            record(
                "A reason.",
                reason=text("NVML's name for it, in snake case."),
                seconds=value("number", "For how long.", minimum=0),
            ),
        ),
        "type": ["array", "null"],
    },
    lost=many("When it had fallen off the bus.", STRETCH),
)


def _finding() -> Schema:
    """As the diagnosis writes it, with when it held."""
    schema: Schema = deepcopy(DIAGNOSIS_SCHEMA["properties"]["findings"]["items"])
    for name in ("since_unix_seconds", "until_unix_seconds", "cost"):
        del schema["properties"][name]
        schema["required"].remove(name)
    schema["properties"]["job"] = _JOB_KEY
    added = record(
        "",
        holds_at_end=value("boolean", "It held when the recording ended."),
        seconds=value("number", "How long it held.", minimum=0),
        cost_gpu_seconds=amount("GPU-seconds lost."),
        stretches=many("When it held.", STRETCH),
    )
    schema["properties"] |= added["properties"]
    schema["required"] += added["required"]
    schema["description"] = "Something that was wrong: errors first, then the most costly."
    return schema


FINDING = _finding()
_USED = {
    "gpus": _UUIDS,
    "gpu_held_seconds": value("number", "Time on GPUs, each counted.", minimum=0),
    "gpu_busy_seconds": amount("GPU time used (of a job: of its GPUs, whoever used them)."),
    "gpu_memory_peak_bytes": value("integer", "On all GPUs together.", null=True, minimum=0),
    "cpu_core_seconds": amount("CPU time."),
    "memory_peak_bytes": value("integer", "Peak memory.", null=True, minimum=0),
    "read_bytes": amount("From storage."),
    "written_bytes": amount("To storage."),
    "first_unix_seconds": value("number", f"First seen. {_MOMENT}"),
    "last_unix_seconds": value("number", "Last seen."),
}
_WHO = {
    "pid": count("Process number."),
    "started_at_unix_seconds": value("number", "When it began.", null=True),
    "user": text("Whose it is.", null=True),
}
_JOB = record(
    "What a job used.",
    **_WHO,
    command=text("Its command line.", null=True),
    slurm_job=text("Its number in Slurm.", null=True),
    ranks=count("Training processes, the most seen."),
    loader_workers=value("integer", "As last seen.", null=True, minimum=0),
    pinned_memory=value("boolean", "As last seen.", null=True),
    samples_per_second=amount("As reported by its own loops, on average."),
    data_wait_percent=percent("Share of the time that its loops waited for data, as reported."),
    data_wait_most_percent=percent(
        "The same for the rank that waited most, where several reported."
    ),
    data_wait_most_rank=value("integer", "Which rank that is, if known.", null=True),
    told_seconds=value("number", "For how long its loops reported.", minimum=0),
    exit_code=value("integer", "If known.", null=True),
    **_USED,
)
_PROCESS = record(
    "What a process used.",
    **_WHO,
    name=text("Its name.", null=True),
    command=text("Its command line.", null=True),
    role=text("In its job: rank, loader_worker ...", null=True),
    **_USED,
)
_HOST = record(
    "The machine.",
    cpu_mean_percent=percent("Of all cores."),
    cpu_peak_percent=percent("The most."),
    cpu_iowait_mean_percent=percent("Waiting for disks."),
    core_count=value("integer", "Cores.", null=True, minimum=0),
    usable_cores=amount("Cores that a job here may use."),
    memory_total_bytes=value("integer", "Memory.", null=True, minimum=0),
    memory_mean_bytes=amount("Used, on average."),
    memory_peak_bytes=value("integer", "The most used.", null=True, minimum=0),
    swap_peak_bytes=value("integer", "The most swap used.", null=True, minimum=0),
    shm_total_bytes=value("integer", "Size of /dev/shm.", null=True, minimum=0),
    shm_peak_bytes=value("integer", "The most of it used.", null=True, minimum=0),
    disk_read_bytes=amount("Read from disks."),
    disk_written_bytes=amount("Written to disks."),
    disk_read_peak_bytes_per_second=amount("The fastest."),
    disk_write_peak_bytes_per_second=amount("The fastest."),
    network_received_bytes=amount("Received."),
    network_sent_bytes=amount("Sent."),
)
TOTAL = record(
    "All GPUs together; MIG instances are not added to their card.",
    busy_percent=percent("Share of the time with a kernel resident."),
    watched_gpu_seconds=amount("GPU time of which it is known."),
    busy_gpu_seconds=amount("Of that busy."),
    idle_gpu_seconds=amount("Of that idle."),
    duty=value("number", "Share in busy runs.", null=True, minimum=0, maximum=1),
    oscillating_share=value(
        "number", "Share of the time in swings.", null=True, minimum=0, maximum=1
    ),
    period_seconds=amount("From one busy run to the next."),
    cycles_per_minute=amount("Of a GPU, while it had a period."),
    energy_joules=amount("Energy."),
    power_mean_watts=amount("The sum of the GPUs' means."),
    received_bytes_per_second=amount("Host to GPU, while it was read."),
    finding_gpu_seconds=amount("What the findings cost together."),
)

RECORDING_SCHEMA: Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "gpuwatch report FILE --json",
    **record(
        "The report of a recording.",
        kind={"const": "recording_report", "description": "What this object is."},
        schema={"const": 1, "description": "Version of this schema."},
        gpuwatch=text("Version of the program."),
        verdict=text("The headline sentence."),
        decided=value("boolean", "false: not enough data to say that nothing (else) is wrong."),
        simulated=value("boolean", "Of a simulated machine."),
        machine=text("Name of the machine."),
        pid=value("integer", "The report covers only this process's job.", null=True),
        source=record(
            "What was read.",
            name=text("Name of the file."),
            kind=value("string", "What it is.", enum=list(KINDS)),
            lines=count("Its lines."),
            left_out_lines=count("Lines that could not be read."),
            notes=many("What the reader should know about it.", text("A sentence.")),
        ),
        time=record(
            "The time covered.",
            begin_unix_seconds=value("number", f"The first moment. {_MOMENT}"),
            end_unix_seconds=value("number", "The last."),
            seconds=value("number", "Between the two.", minimum=0),
            has_dates=value("boolean", "false: times count from 1970."),
            zone=text("The time zone of the texts."),
            snapshots=count("Moments that were read."),
            interval_seconds=amount("Usual time between two."),
            covered_seconds=value("number", "The time without gaps.", minimum=0),
            gap_count=count("Gaps."),
            gap_seconds=value("number", "Time in them.", minimum=0),
            gaps=many("The longest of them.", STRETCH),
            clock_set_back=count("How often the wall clock went back."),
        ),
        total=TOTAL,
        gpus=many("The GPUs seen.", _GPU),
        findings=many("What was found.", FINDING),
        jobs=many("Those that used most GPU time first.", _JOB),
        processes=many("The same of processes.", _PROCESS),
        left_out_processes=count("How many processes with little use are not listed."),
        host=_HOST,
        problems=many("What could not be read on the machine.", text("A sentence.")),
        unknown=many(
            "Rules that could not be checked at the end.",
            record(
                "A rule.",
                rule=text("Its name."),
                missing=many("The readings it needed.", text("In words.")),
                gpus=_UUIDS,
                job=_JOB_KEY,
            ),
        ),
        courses=record(
            "How busy it was over time.",
            begin_unix_seconds=value("number", "Where the first bucket begins."),
            bucket_seconds=value("number", "Width of a bucket."),
            gpus=many(
                "A course for each GPU.",
                record("A GPU.", uuid=text("As in gpus[].uuid."), busy_percent=_COURSE),
            ),
            cpu_percent=_COURSE,
        ),
    ),
}
"""What ``gpuwatch report --schema`` prints."""
