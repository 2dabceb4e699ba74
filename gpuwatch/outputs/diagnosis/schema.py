"""The JSON Schema (draft 2020-12) of ``gpuwatch diagnose --json``.

``schema`` is raised when a name goes or changes its meaning; new names may come at any time.
"""

from __future__ import annotations

from typing import Any

from gpuwatch.diagnosis.finding import SEVERITIES

KINDS = ("live", "simulated", "recording", "query", "dmon", "pmon")

_Schema = dict[str, Any]


def _value(kind: str, says: str, *, null: bool = False, **bounds: object) -> _Schema:
    return {"type": [kind, "null"] if null else kind, "description": says, **bounds}


def _object(description: str, /, **properties: _Schema) -> _Schema:
    """All names are always there; what was not read is ``null``."""
    return {
        "type": "object",
        "description": description,
        "properties": properties,
        "required": list(properties),
    }


def _list(says: str, items: _Schema) -> _Schema:
    return {"type": "array", "description": says, "items": items}


def _count(says: str) -> _Schema:
    return _value("integer", says, minimum=0)


_JOB = {
    **_object(
        "The job it is about, by its first process.",
        pid=_count("Process number."),
        started_at_unix_seconds=_value("number", "When that process began."),
    ),
    "type": ["object", "null"],
}
_GPUS = _list("UUIDs of the GPUs.", _value("string", "As in gpus[].uuid."))
_MOMENT = "Unix seconds; logs without dates count from 1970."

_SOURCE = _object(
    "Where the readings came from and how well they could be read.",
    kind=_value("string", "What was read.", enum=list(KINDS)),
    name=_value("string", "Name of the file.", null=True),
    interval_seconds=_value("number", "Usual time between two readings.", null=True),
    snapshots=_count("Moments that were read."),
    seconds=_value("number", "From the first to the last.", minimum=0),
    started_at_unix_seconds=_value("number", f"The first moment. {_MOMENT}", null=True),
    lines=_count("Lines of the file; this and all counts below are 0 when live."),
    other_lines=_count("Lines that are not readings, skipped."),
    torn_lines=_count("Truncated lines, skipped."),
    overlong_lines=_count("Lines that are too long, skipped."),
    unread_values=_count("[N/A], [Unknown Error], - and the like."),
    incomplete_ticks=_count("Moments with too few rows to tell the GPUs apart, skipped."),
    missing_ticks=_count("Moments expected from the log's interval."),
    clock_jumps=_count("How often the clock went back or jumped."),
    notes=_list("What the reader should know about it.", _value("string", "A sentence.")),
)
_GPU = _object(
    "What a GPU did while it was watched.",
    uuid=_value("string", "UUID, or a made-up name where the log has none."),
    index=_count("Number of the GPU."),
    name=_value("string", "The card, or GPU."),
    readings=_count("Readings of its utilisation."),
    busy_percent=_value("number", "Mean utilisation.", null=True, minimum=0, maximum=100),
    busy_low_percent=_value("number", "The lowest.", null=True, minimum=0, maximum=100),
    busy_high_percent=_value("number", "The highest.", null=True, minimum=0, maximum=100),
    power_watts=_value("number", "Mean power.", null=True, minimum=0),
)
_FINDING = _object(
    "Something that is wrong. Those that hold at the end come first: errors, then the most costly.",
    rule=_value("string", "As in gpuwatch explain."),
    severity=_value(
        "string",
        "error: work is at risk; warning: time is lost; info: good to know.",
        enum=list(SEVERITIES),
    ),
    confidence=_value("number", "Confidence.", minimum=0, maximum=1),
    summary=_value("string", "A sentence."),
    gpus=_GPUS,
    job=_JOB,
    since_unix_seconds=_value("number", f"Since when. {_MOMENT}", null=True),
    until_unix_seconds=_value("number", "Until when; null while it holds.", null=True),
    evidence=_list(
        "The readings it rests on.",
        _object(
            "A reading.",
            name=_value("string", "What was read, in words."),
            value={
                "type": ["number", "string", "boolean", "null"],
                "description": "null: it was not read.",
            },
            unit=_value("string", "%, W, s, C, bytes, bytes/s, cores ...", null=True),
            threshold=_value("number", "The threshold it was compared with.", null=True),
            says=_value("string", "What that means."),
            supports=_value("boolean", "false: it is evidence against the finding."),
        ),
    ),
    ruled_out=_list(
        "What else it could have been.",
        _object(
            "Another rule.",
            rule=_value("string", "Its name."),
            why=_value("string", "Why it is not that, or a symptom of this."),
        ),
    ),
    advice=_list(
        "What to do.",
        _object(
            "A change.",
            action=_value("string", "A sentence."),
            setting=_value("string", "The setting to change.", null=True),
            **{
                "from": _value("string", "Its value now.", null=True),
                "to": _value("string", "The value to try.", null=True),
            },
            why=_value("string", "Why that helps."),
        ),
    ),
    cost=_object(
        "What it cost over the time watched.",
        share=_value(
            "number",
            "Of all GPU time of its job while watched; those of a job add up to at most 1.",
            null=True,
            minimum=0,
            maximum=1,
        ),
        gpu_seconds=_value("number", "GPU-seconds lost.", null=True, minimum=0),
    ),
)
_UNKNOWN = _object(
    "A rule that could not be checked.",
    rule=_value("string", "Its name."),
    missing=_list("The readings it needed.", _value("string", "In words.")),
    gpus=_GPUS,
    job=_JOB,
)
_STACKS = _object(
    "What a process of the job was doing (--stacks).",
    pid=_count("Process number."),
    rank=_value("integer", "Rank in the job.", null=True),
    problem=_value("string", "Why there are none.", null=True),
    shares=_list(
        "What its main thread did.",
        _object(
            "One kind of work.",
            category=_value("string", "What it is."),
            percent=_value("number", "Of the samples.", minimum=0, maximum=100),
            line=_value("string", "The line seen most often in it.", null=True),
        ),
    ),
)

DIAGNOSIS_SCHEMA: _Schema = {
    "$schema": "https://json-schema.org/draft/2020-12/schema",
    "title": "gpuwatch diagnose --json",
    **_object(
        "A diagnosis.",
        schema={"const": 1, "description": "Version of this schema."},
        gpuwatch=_value("string", "Version of the program."),
        verdict=_value("string", "The headline sentence."),
        decided=_value("boolean", "false: not enough data to say that nothing (else) is wrong."),
        taken_at_unix_seconds=_value("number", f"The last sample. {_MOMENT}"),
        watched_seconds=_value("number", "Time watched, without gaps.", minimum=0),
        simulated=_value("boolean", "Of a simulated machine."),
        source=_SOURCE,
        gpus=_list("The GPUs seen.", _GPU),
        findings=_list("What was found.", _FINDING),
        unknown=_list("What could not be checked.", _UNKNOWN),
        stacks=_list("Python stacks, if requested.", _STACKS),
    ),
}
"""Output of ``gpuwatch diagnose --schema``."""
