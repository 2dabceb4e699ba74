"""The report of a job as plain text for a terminal, and two reports side by side."""

from __future__ import annotations

import signal
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from datetime import UTC, datetime
from typing import Any

from gpuwatch import units
from gpuwatch.jobs.report import GpuReport, JobReport
from gpuwatch.outputs import report_charts as charts
from gpuwatch.outputs.table import Heading, cell_width, cut, table
from gpuwatch.text import clean

WIDTH_MIN = 40
WIDTH_MAX = 140
"""Wider charts and sentences are no easier to read."""
COMMAND_LINES = 3
LABEL = 10

_BOLD, _DIM, _RED, _YELLOW, _CYAN = "\x1b[1m", "\x1b[2m", "\x1b[31m", "\x1b[33m", "\x1b[36m"
_RESET = "\x1b[0m"
_KEEP = "\N{NO-BREAK SPACE}"
_ASCII = str.maketrans({"…": "~", "·": "-", "→": ">", "×": "x"})

Painter = Callable[[str, str], str]

_GPU_HEADINGS = (
    Heading("GPU"),
    Heading("NAME", text=True, rank=5),
    Heading("BUSY"),
    Heading("IDLE"),
    Heading("JOB-MEM", rank=1),
    Heading("GPU-MEM", rank=4),
    Heading("POWER", rank=2),
    Heading("PEAK", rank=6),
    Heading("ENERGY", rank=2),
    Heading("TEMP", rank=3),
    Heading("SM", rank=7),
    Heading("TENSOR", rank=8),
)

REASONS = {
    "sw_power_cap": "its power limit",
    "hw_power_brake_slowdown": "the power supply (hardware brake)",
    "hw_slowdown": "the hardware",
    "sw_thermal_slowdown": "its temperature",
    "hw_thermal_slowdown": "its temperature (hardware)",
    "sync_boost": "another GPU of its boost group",
}


def report_text(
    report: JobReport,
    *,
    width: int = 80,
    colour: bool = False,
    unicode: bool = True,
    previous: JobReport | None = None,
    tuning: Mapping[str, Any] | None = None,
) -> str:
    """The report in lines of at most ``width`` cells (40 or more), without a line end.

    ``tuning``: what was measured of its loader, as ``outputs.tuning.summary`` has it.
    """
    width = min(max(width, WIDTH_MIN), WIDTH_MAX)
    paint = _paint if colour else _plain
    blocks = [
        _head(report, width, paint, previous),
        _gpus(report, width, paint),
        _sections(report, width, paint, tuning),
        _charts(report, width, paint, unicode),
        [] if previous is None else _comparison(previous, report, width, paint),
    ]
    text = "\n\n".join("\n".join(block) for block in blocks if block)
    return text if unicode else to_ascii(text)


def compare_text(
    before: JobReport,
    after: JobReport,
    width: int = 80,
    *,
    colour: bool = False,
    unicode: bool = True,
) -> str:
    """Two reports side by side, in lines of at most ``width`` cells."""
    width = min(max(width, WIDTH_MIN), WIDTH_MAX)
    paint = _paint if colour else _plain
    lines = _comparison(before, after, width, paint)
    if before.run_digest is None or before.run_digest != after.run_digest:
        lines += ["", *_wrapped("before: ", _command(before), width)]
        lines += _wrapped("after:  ", _command(after), width)
    text = "\n".join(lines)
    return text if unicode else to_ascii(text)


def list_text(
    numbered: Sequence[tuple[int, JobReport]],
    width: int = 80,
    *,
    colour: bool = False,
    unicode: bool = True,
) -> str:
    """One line a report, in lines of at most ``width`` cells."""
    width = max(width, WIDTH_MIN)
    newest = max((report.started_at_unix_seconds or 0.0 for _, report in numbered), default=0.0)
    year = _clock(newest, "%Y")
    rows = [_list_row(number, report, year) for number, report in numbered]
    titles, *lines = table(_LIST_HEADINGS, rows, width)
    text = "\n".join([(_paint if colour else _plain)(titles, _BOLD), *lines])
    return text if unicode else to_ascii(text)


_LIST_HEADINGS = (
    Heading("NO"),
    Heading("STARTED", text=True, rank=1),
    Heading("TOOK"),
    Heading("EXIT", text=True, rank=3),
    Heading("GPUS", rank=4),
    Heading("BUSY"),
    Heading("IDLE GPU-S", rank=2),
    Heading("COMMAND", text=True),
)


def _list_row(number: int, report: JobReport, year: str) -> list[str]:
    return [
        str(number),
        _moment(report.started_at_unix_seconds, year),
        units.age(report.duration_seconds),
        _end(report).removeprefix("exit "),
        str(len(report.gpus)),
        units.percent(report.busy_percent),
        _optional_grouped(report.idle_gpu_seconds),
        _short_command(report),
    ]


def _moment(unix_seconds: float | None, year: str) -> str:
    """To the minute; with its year where that is not ``year``."""
    if unix_seconds is None:
        return units.UNKNOWN
    return _clock(unix_seconds, "%F %H:%M").removeprefix(f"{year}-")


def _short_command(report: JobReport) -> str:
    """Without the path of the program: ``python train.py``."""
    program, *rest = _command(report).split(" ")
    return " ".join([program.rpartition("/")[2] or program, *rest])


def to_ascii(text: str) -> str:
    return text.translate(_ASCII).encode("ascii", "replace").decode("ascii")


def _paint(text: str, code: str) -> str:
    return f"{code}{text}{_RESET}" if text else ""


def _plain(text: str, _code: str) -> str:
    return text


# --- the head --------------------------------------------------------------------------------


def _head(report: JobReport, width: int, paint: Painter, previous: JobReport | None) -> list[str]:
    command = _wrapped("", _command(report), width)
    if len(command) > COMMAND_LINES:
        command = [*command[: COMMAND_LINES - 1], cut("".join(command[COMMAND_LINES - 1 :]), width)]
    lines = [paint(line, _BOLD) for line in command]
    if report.simulated:
        lines.insert(0, paint("SIMULATED: no such job ran", _YELLOW))
    lines += _listed(_when(report), width)
    lines += _listed(_where(report), width)
    if _failed(report):
        lines.append(paint(_exit_sentence(report), _RED))
    lines += [paint(line, _YELLOW) for line in _watched_lines(report, width)]
    if previous is not None:
        lines += _wrapped("", _since_last(previous, report), width)
    return lines


def _command(report: JobReport) -> str:
    return report.command or f"process {report.pid}"


def _when(report: JobReport) -> list[str]:
    start, end = report.started_at_unix_seconds, report.ended_at_unix_seconds
    facts = []
    if start is not None and end is not None:
        same_day = _clock(start, "%F") == _clock(end, "%F")
        facts.append(f"{_clock(start, '%F %T')} to {_clock(end, '%T' if same_day else '%F %T')}")
    elif start is not None:
        facts.append(f"since {_clock(start, '%F %T')}")
    duration = units.age(report.duration_seconds)
    facts.append(f"still running after {duration}" if end is None else f"took {duration}")
    if report.end_is_last_seen:
        facts.append("ended unseen")
    if report.exit_code is not None and not _failed(report):
        facts.append("exit code 0")
    return facts


def _where(report: JobReport) -> list[str]:
    facts = [f"PID {report.pid}"]
    if report.user:
        facts.append(report.user)
    if report.machine:
        facts.append(f"on {report.machine}")
    if report.ranks is not None and report.ranks > 1:
        world = report.world_size
        of = f" of {world}" if world is not None and world > report.ranks else ""
        facts.append(f"{report.ranks}{of} ranks")
    known = (
        (report.launcher, "{}"),
        (report.framework, "{}"),
        (report.environment, "{}"),
        (report.slurm_job, "Slurm job {}"),
        (report.pod, "pod {}"),
        (report.container, "container {}"),
    )
    return facts + [form.format(value) for value, form in known if value]


def _failed(report: JobReport) -> bool:
    return report.exit_code is not None and report.exit_code != 0


def _exit_sentence(report: JobReport) -> str:
    code = report.exit_code
    if code is None:
        return units.UNKNOWN
    if code >= 0:
        return f"exit code {code}"
    try:
        return f"ended by {signal.Signals(-code).name}"
    except ValueError:
        return f"ended by signal {-code}"


def _watched_lines(report: JobReport, width: int) -> list[str]:
    duration = report.duration_seconds
    if duration is None or duration - report.watched_seconds <= max(2.0, 0.02 * duration):
        return []
    share = units.percent(100.0 * report.watched_seconds / duration)
    return _wrapped(
        "",
        f"Watched for {units.age(report.watched_seconds)} of it ({share}): what is said below "
        "is of that time.",
        width,
    )


def _clock(unix_seconds: float, form: str) -> str:
    form = form.replace("%F", "%Y-%m-%d").replace("%T", "%H:%M:%S")
    return datetime.fromtimestamp(unix_seconds, tz=UTC).astimezone().strftime(form)


# --- GPUs ------------------------------------------------------------------------------------


def _gpus(report: JobReport, width: int, paint: Painter) -> list[str]:
    if not report.gpus:
        return _wrapped("", "The job was on no GPU while it was watched.", width)
    rows = [_gpu_row(gpu) for gpu in report.gpus]
    if len(rows) > 1:
        rows.append(_all_row(report))
    titles, *lines = table(_GPU_HEADINGS, rows, width)
    notes = [paint(line, _YELLOW) for line in _notes(report, width)]
    return [paint(titles, _BOLD), *lines, *_idle_line(report, width), *notes]


def _gpu_row(gpu: GpuReport) -> list[str]:
    return [
        gpu.label,
        gpu.name,
        units.percent(gpu.busy_percent),
        units.age(gpu.idle_seconds),
        units.size(gpu.job_memory_peak_bytes),
        units.size_of(gpu.memory_peak_bytes, gpu.memory_total_bytes),
        units.watts_of(gpu.power_mean_watts, gpu.power_limit_watts),
        units.watts(gpu.power_peak_watts),
        units.energy(gpu.energy_joules),
        units.celsius(gpu.temperature_peak_celsius),
        units.percent(gpu.sm_active_percent),
        units.percent(gpu.tensor_active_percent),
    ]


def _all_row(report: JobReport) -> list[str]:
    blank = [""] * len(_GPU_HEADINGS)
    row = dict(zip((heading.title for heading in _GPU_HEADINGS), blank, strict=True))
    row["GPU"] = "all"
    row["BUSY"] = units.percent(report.busy_percent)
    row["IDLE"] = units.age(report.idle_gpu_seconds)
    row["ENERGY"] = units.energy(report.energy_joules)
    return list(row.values())


def _idle_line(report: JobReport, width: int) -> list[str]:
    idle, busy = report.idle_gpu_seconds, report.busy_percent
    if idle is None or busy is None:
        return []
    return _wrapped(
        "",
        f"{_grouped(idle)} GPU-seconds idle, {units.percent(100.0 - busy)} of the time watched.",
        width,
    )


def _grouped(value: float) -> str:
    return f"{value:.1f}" if value < 10 else f"{value:,.0f}"


def _notes(report: JobReport, width: int) -> list[str]:
    """What a number in the table needs beside it, alike for several GPUs in one line."""
    found: dict[str, list[tuple[GpuReport, float | None]]] = {}
    for gpu in report.gpus:
        for text, seconds in _gpu_notes(gpu, report):
            found.setdefault(text, []).append((gpu, seconds))
    lines = []
    for text, places in found.items():
        labels = _span([gpu.label for gpu, _ in places], len(report.gpus))
        lines += _wrapped("  ", f"{labels}: {text}{_for_seconds(places)}", width)
    return lines


def _gpu_notes(gpu: GpuReport, report: JobReport) -> Iterable[tuple[str, float | None]]:
    if gpu.lost_at_unix_seconds is not None:
        yield f"lost at {_clock(gpu.lost_at_unix_seconds, '%T')}", None
    if gpu.busy_percent is None and gpu.busy_missing:
        yield f"busy unknown: {gpu.busy_missing}", None
    elif gpu.busy_percent is not None and gpu.watched_seconds is not None:
        missed = gpu.held_seconds - gpu.watched_seconds
        if missed > max(2.0, 0.05 * gpu.held_seconds):
            yield "busy not known", missed
    for reason, seconds in gpu.throttled or ():
        if seconds >= 0.5:
            yield f"slowed down by {REASONS.get(reason, reason.replace('_', ' '))}", seconds
    if gpu.other_tenants_peak > 0:
        others = gpu.other_tenants_peak
        users = f" ({', '.join(gpu.other_users)})" if gpu.other_users else ""
        processes = "another process" if others == 1 else f"up to {others} other processes"
        yield f"shared with {processes}{users}", gpu.other_tenant_seconds
    if gpu.energy_from not in {None, "counter"}:
        yield f"energy from {_ENERGY[gpu.energy_from or '']}", None
    if gpu.held_seconds < _MOST_OF_IT * (report.duration_seconds or 0.0):
        of = units.age(report.duration_seconds)
        yield f"the job was on it for {units.age(gpu.held_seconds)} of {of}", None


_MOST_OF_IT = 0.75
"""Importing libraries and loading a model comes before the first use of a GPU in any job."""

_ENERGY = {
    "power": "power readings, not from a counter",
    "counter and power": "a counter that was missing or reset for a part, and power readings",
}


def _for_seconds(places: Sequence[tuple[GpuReport, float | None]]) -> str:
    known = [(gpu, seconds) for gpu, seconds in places if seconds is not None]
    if not known:
        return ""
    times = [seconds for _, seconds in known]
    least, most = units.age(min(times)), units.age(max(times))
    if len(known) > 1 and least != most:
        return f" for {least} to {most}"
    held = max(gpu.held_seconds for gpu, _ in known)
    share = f" ({units.percent(100.0 * max(times) / held)})" if held > 0 else ""
    return f" for {most}{share}"


def _span(labels: Sequence[str], of: int) -> str:
    """``GPU 0``, ``GPUs 0-3, 6``, ``all GPUs``."""
    if len(labels) == of and of > 1:
        return "all GPUs"
    if len(labels) == 1:
        return f"GPU {labels[0]}"
    spans: list[list[str]] = []
    for label in labels:
        if spans and label.isdigit() and _follows(spans[-1][-1], label):
            spans[-1].append(label)
        else:
            spans.append([label])
    return "GPUs " + ", ".join(s[0] if len(s) == 1 else f"{s[0]}-{s[-1]}" for s in spans)


def _follows(one: str, other: str) -> bool:
    return one.isdigit() and int(other) == int(one) + 1


# --- loading, CPU, memory, storage -----------------------------------------------------------


def _sections(
    report: JobReport, width: int, paint: Painter, tuning: Mapping[str, Any] | None
) -> list[str]:
    lines = []
    for label, text in (
        ("Training", ", ".join(_loop_facts(report))),
        ("Loading", _loading(report)),
        ("  workers", ", ".join(_worker_facts(report))),
        ("  main", ", ".join(_main_facts(report))),
        ("CPU", ", ".join(_cpu_facts(report))),
        ("Memory", ", ".join(_memory_facts(report))),
        ("Storage", ", ".join(_storage_facts(report))),
        ("Tuned", _tuned(tuning)),
    ):
        if text:
            first, *rest = _listed_text(label.ljust(LABEL), text, width)
            lines += [paint(first[:LABEL], _BOLD) + first[LABEL:], *rest]
    return lines


def _tuned(tuning: Mapping[str, Any] | None) -> str:
    """What ``gpuwatch tune`` measured in the job's folder."""
    if tuning is None:
        return ""
    step = "" if tuning["step"] is None else f" with {clean(tuning['step'], 80)}"
    when = _clock(tuning["taken_at_unix_seconds"], "%Y-%m-%d %H:%M")
    target = clean(tuning["target"], 80)
    return f"{target}{step}, measured {when}: {clean(tuning['says'], 200)}"


def _loading(report: JobReport) -> str:
    sentence = report.loading.sentence or "no training process was seen"
    return sentence.removeprefix("loading ")


def _loop_facts(report: JobReport) -> list[str]:
    """What the job told of its own loop; nothing where it told nothing."""
    loop = report.loop
    if loop.told_seconds <= 0:
        return []
    facts = []
    if loop.samples_per_second is not None:
        facts.append(f"{units.samples(loop.samples_per_second)} samples/s")
    if loop.data_wait_percent is not None:
        facts.append(f"waited for data {units.percent(loop.data_wait_percent)} of the time")
    most, mean = loop.data_wait_most_percent, loop.data_wait_percent
    if most is not None and mean is not None and most - mean >= APART_POINTS:
        which = (
            "one rank" if loop.data_wait_most_rank is None else f"rank {loop.data_wait_most_rank}"
        )
        facts.append(f"{which} {units.percent(most)}")
    word = "in steps" if loop.compute_on_device is False else "computing"
    for name, value in (
        (word, loop.compute_percent),
        ("copying to the GPU", loop.copy_percent),
        ("validating", loop.validation_percent),
        ("saving checkpoints", loop.checkpoint_percent),
    ):
        if value is not None and value >= 0.5:
            facts.append(f"{name} {units.percent(value)}")
    if loop.steps is not None:
        facts.append(f"{loop.steps:,} steps")
    if loop.memory_reserved_peak_bytes is not None:
        both = units.size_of(loop.memory_allocated_peak_bytes, loop.memory_reserved_peak_bytes)
        facts.append(f"{both} allocated/reserved at most")
    return facts


APART_POINTS = 5.0
"""Ranks that wait alike are told as one."""


def _worker_facts(report: JobReport) -> list[str]:
    loading = report.loading
    if not loading.loader_workers_peak:
        return []
    facts = [f"{units.percent(loading.loader_worker_cpu_percent)} of a core each"]
    limit = loading.loader_worker_at_limit_percent
    if limit is not None and limit >= 0.5:
        facts.append(f"at the limit of a core {units.percent(limit)} of the time")
    facts += _waits(loading.loader_worker_queue_wait_percent, "a core")
    facts += _waits(loading.loader_worker_disk_wait_percent, "storage")
    started, peak = loading.loader_workers_started, loading.loader_workers_peak
    if started is not None and started > peak:
        facts.append(f"{started} started, {peak} at once")
    return facts


def _main_facts(report: JobReport) -> list[str]:
    loading = report.loading
    if loading.main_thread_cpu_percent is None:
        return []
    several = report.ranks is not None and report.ranks > 1
    which = "each main thread" if several else "the main thread"
    facts = [f"{units.percent(loading.main_thread_cpu_percent)} of a core in {which}"]
    limit = loading.main_thread_at_limit_percent
    if limit is not None and limit >= 0.5:
        facts.append(f"at its limit {units.percent(limit)} of the time")
    return facts + _waits(loading.main_thread_queue_wait_percent, "a core")


def _waits(percent: float | None, what: str) -> list[str]:
    if percent is None or percent < 0.5:
        return []
    return [f"waiting for {what} {units.percent(percent)}"]


def _cpu_facts(report: JobReport) -> list[str]:
    host = report.host
    if host.cpu_mean_cores is None:
        return [f"{host.usable_cores:g} usable cores"] if host.usable_cores is not None else []
    of = "" if host.usable_cores is None else f" of {host.usable_cores:g} usable"
    facts = [f"{host.cpu_mean_cores:.1f}{of} cores busy"]
    if host.cpu_peak_cores is not None:
        facts.append(f"{host.cpu_peak_cores:.1f} at most")
    if host.cpu_core_seconds is not None:
        facts.append(f"{_grouped(host.cpu_core_seconds)} core-seconds")
    if host.quota_cores is not None:
        held_back = host.cpu_throttled_percent
        facts.append(
            f"quota of {host.quota_cores:g} cores"
            + ("" if held_back is None else f" held it back {units.percent(held_back)} of the time")
        )
    return facts


def _memory_facts(report: JobReport) -> list[str]:
    shared = report.host.memory_proportional_peak_bytes
    resident = report.host.memory_resident_peak_bytes
    if shared is not None:
        return [f"{units.size(shared)} at most (PSS)"]
    if resident is not None:
        return [f"{units.size(resident)} at most (sum of RSS: shared pages count several times)"]
    return []


def _storage_facts(report: JobReport) -> list[str]:
    host = report.host
    known = ((host.read_bytes, "read"), (host.write_bytes, "written"))
    return [f"{units.size(value)} {word}" for value, word in known if value is not None]


# --- charts ----------------------------------------------------------------------------------


def _charts(report: JobReport, width: int, paint: Painter, unicode: bool) -> list[str]:
    known = [gpu for gpu in report.gpus if charts.has_values(gpu.busy_course)]
    drawn = []
    if known:
        name = f"GPU {known[0].label} busy"
        if len(known) > 1:
            name = f"GPUs busy, mean of {len(known)}"
        drawn.append((name, charts.together([gpu.busy_course for gpu in known]), 6))
    if charts.has_values(report.loop.data_wait_course):
        drawn.append(("waits for data, of the time", report.loop.data_wait_course, 4))
    loading = report.loading
    if charts.has_values(loading.loader_worker_course):
        drawn.append(("loader workers, of a core each", loading.loader_worker_course, 4))
    if charts.has_values(loading.main_thread_course):
        drawn.append(("main thread, of a core", loading.main_thread_course, 4))
    if not drawn:
        return []
    buckets = max(len(course.mean) for _, course, _ in drawn)
    start, lead = _course_start(report, buckets)
    time = charts.TimeAxis(start, (lead + buckets) * report.course_seconds)
    lines = []
    for place, (name, course, rows) in enumerate(drawn):
        said = name if place else f"{name} (filled: mean, dots: highest)"
        lines.append(paint(cut(said, width), _BOLD))
        last = place == len(drawn) - 1
        picture = charts.chart(
            charts.stretched(course, lead, buckets),
            time,
            width=width,
            rows=rows,
            unicode=unicode,
            time_labels=last,
        )
        lines += [_painted_chart(line, paint) for line in picture]
        if not place and len(known) > 1:
            named = [
                (_short_label(gpu), charts.stretched(gpu.busy_course, lead, buckets))
                for gpu in known
            ]
            lines += charts.strips(named, width=width, unicode=unicode)
    return lines


def _short_label(gpu: GpuReport) -> str:
    return f"GPU {gpu.label}" if len(gpu.label) == 1 else gpu.label


def _course_start(report: JobReport, buckets: int) -> tuple[float, int]:
    """Seconds from the job's start to the left edge of the charts, and the buckets of nothing
    before the first that was watched: where only little was missed, charts begin at 0 s."""
    start, first = report.started_at_unix_seconds, report.course_from_unix_seconds
    offset = 0.0 if start is None or first is None else max(0.0, first - start)
    if report.course_seconds <= 0:
        return offset, 0
    lead = offset / report.course_seconds
    return (0.0, round(lead)) if lead <= 0.1 * buckets else (offset, 0)


def _painted_chart(line: str, paint: Painter) -> str:
    edge = charts.LABEL_CELLS
    return paint(line[:edge], _DIM) + paint(line[edge:], _CYAN)


# --- one report against another --------------------------------------------------------------


def _since_last(before: JobReport, after: JobReport) -> str:
    changes = []
    workers, now = before.loading.loader_workers, after.loading.loader_workers
    if workers != now and workers is not None and now is not None:
        changes.append(f"loader workers {workers} -> {now}")
    speed, faster = before.loop.samples_per_second, after.loop.samples_per_second
    if speed is not None and faster is not None:
        changes.append(f"samples/s {units.samples(speed)} -> {units.samples(faster)}")
    if before.busy_percent is not None and after.busy_percent is not None:
        changes.append(
            f"busy {units.percent(before.busy_percent)} -> {units.percent(after.busy_percent)}"
        )
    changes.append(
        f"duration {units.age(before.duration_seconds)} -> {units.age(after.duration_seconds)}"
    )
    return f"Since the last run{_began(before)}: {', '.join(changes)}"


def _began(report: JobReport) -> str:
    """When, and how it ended if not well: then its duration says little."""
    start = report.started_at_unix_seconds
    facts = [] if start is None else [_clock(start, "%F %H:%M")]
    if _failed(report):
        facts.append(_exit_sentence(report))
    return f" ({', '.join(facts)})" if facts else ""


def _comparison(before: JobReport, after: JobReport, width: int, paint: Painter) -> list[str]:
    rows = [row for row in _compared(before, after) if _worth_a_row(*row)]
    headings = (
        Heading("COMPARED", text=True),
        Heading("BEFORE"),
        Heading("AFTER"),
        Heading("CHANGE", text=True, rank=1),
    )
    titles, *lines = table(headings, rows, width)
    return [paint(titles, _BOLD), *lines]


def _worth_a_row(name: str, before: str, after: str, _change: str) -> bool:
    if before == after == units.UNKNOWN:
        return False
    # Of these only a difference says something.
    return before != after or name not in {"GPUs", "throttled"}


def _compared(before: JobReport, after: JobReport) -> Iterable[list[str]]:
    def row(name: str, show: Callable[[JobReport], str], change: str = "") -> list[str]:
        return [name, show(before), show(after), change]

    def ratio(
        name: str, value: Callable[[JobReport], float | None], show: Callable[[float | None], str]
    ) -> list[str]:
        return row(name, lambda report: show(value(report)), _ratio(value(before), value(after)))

    year = _clock(after.started_at_unix_seconds or 0.0, "%Y")
    yield row("started", lambda r: _moment(r.started_at_unix_seconds, year))
    yield ratio("duration", lambda r: r.duration_seconds, units.age)
    yield row("end", _end)
    yield row("GPUs", lambda r: str(len(r.gpus)))
    yield ratio("samples/s", lambda r: r.loop.samples_per_second, units.samples)
    yield row(
        "waits for data",
        lambda r: units.percent(r.loop.data_wait_percent),
        _difference(before.loop.data_wait_percent, after.loop.data_wait_percent),
    )
    yield row("GPU busy", lambda r: units.percent(r.busy_percent), _points(before, after))
    yield ratio("idle GPU-s", lambda r: r.idle_gpu_seconds, _optional_grouped)
    yield ratio("GPU energy", lambda r: r.energy_joules, units.energy)
    yield ratio("job GPU memory", _job_memory, units.size)
    yield row("throttled", lambda r: units.age(_throttled_seconds(r)))
    yield row("loader workers", lambda r: _count(r.loading.loader_workers))
    yield row("pinned memory", lambda r: _flag(r.loading.pinned_memory))
    yield row("worker CPU", lambda r: units.percent(r.loading.loader_worker_cpu_percent))
    yield row("main CPU", lambda r: units.percent(r.loading.main_thread_cpu_percent))
    yield ratio("cores busy", lambda r: r.host.cpu_mean_cores, _cores)
    if None in [r.host.memory_proportional_peak_bytes for r in (before, after)]:
        # What only one of them has cannot be compared.
        yield ratio("memory (RSS)", lambda r: r.host.memory_resident_peak_bytes, units.size)
    else:
        yield ratio("memory (PSS)", lambda r: r.host.memory_proportional_peak_bytes, units.size)
    yield ratio("storage read", lambda r: r.host.read_bytes, units.size)


def _end(report: JobReport) -> str:
    if report.ended_at_unix_seconds is None:
        return "running"
    if report.exit_code is None:
        return "ended"
    return _exit_sentence(report).removeprefix("ended by ").replace("exit code", "exit")


def _job_memory(report: JobReport) -> float | None:
    """The most of any GPU."""
    known = [g.job_memory_peak_bytes for g in report.gpus if g.job_memory_peak_bytes is not None]
    return max(known, default=None)


def _throttled_seconds(report: JobReport) -> float | None:
    """The longest of any GPU and reason: reasons overlap."""
    known = [gpu.throttled for gpu in report.gpus if gpu.throttled is not None]
    if not known:
        return None
    return max((seconds for reasons in known for _, seconds in reasons), default=0.0)


def _points(before: JobReport, after: JobReport) -> str:
    return _difference(before.busy_percent, after.busy_percent)


def _difference(before: float | None, after: float | None) -> str:
    return "" if before is None or after is None else f"{after - before:+.0f} points"


def _ratio(before: float | None, after: float | None) -> str:
    if before is None or after is None or before <= 0:
        return ""
    ratio = after / before
    if abs(ratio - 1) < 0.005:
        return "same"
    if ratio >= 10:
        return f"{min(ratio, 9999):.0f} times"
    return f"{100 * (ratio - 1):+.0f}%"


def _optional_grouped(value: float | None) -> str:
    return units.UNKNOWN if value is None else _grouped(value)


def _cores(value: float | None) -> str:
    return units.UNKNOWN if value is None else f"{value:.1f}"


def _count(value: int | None) -> str:
    return units.UNKNOWN if value is None else str(value)


def _flag(value: bool | None) -> str:
    return units.UNKNOWN if value is None else "on" if value else "off"


# --- lines that fit --------------------------------------------------------------------------


def _listed(facts: Sequence[str], width: int) -> list[str]:
    """Facts with dots between; no line ends within a fact that fits one."""
    kept = " · ".join(fact.replace(" ", _KEEP) for fact in facts)
    return [line.replace(_KEEP, " ") for line in _wrapped("", kept, width)]


def _listed_text(label: str, text: str, width: int) -> list[str]:
    first, *rest = _wrapped(" " * LABEL, text, width)
    return [label + first[LABEL:], *rest]


def _wrapped(indent: str, text: str, width: int) -> list[str]:
    """``text`` in lines of at most ``width`` cells, each after ``indent`` (or as deep)."""
    room = width - cell_width(indent)
    lines = textwrap.wrap(text, room, break_on_hyphens=False) or [""]
    if not text.isascii():
        # Wide characters take two cells, which textwrap does not know.
        lines = [part for line in lines for part in _folded(line, room)]
    deep = " " * cell_width(indent)
    return [(indent if place == 0 else deep) + line for place, line in enumerate(lines)]


def _folded(line: str, room: int) -> list[str]:
    parts, part, used = [], "", 0
    for character in line:
        cells = cell_width(character)
        if used + cells > room:
            parts.append(part)
            part, used = "", 0
        part += character
        used += cells
    return [*parts, part]
