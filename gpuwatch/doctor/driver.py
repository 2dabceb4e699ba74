"""Checks of NVIDIA's driver and of every reading of every GPU."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any

from gpuwatch.core import units
from gpuwatch.core.model import GpuIdentity, Problem
from gpuwatch.core.registry import OF_GPU, unit_of
from gpuwatch.doctor.check import (
    FAIL,
    PASS,
    SKIP,
    WARN,
    Check,
    Facts,
    Measured,
    of_problem,
)
from gpuwatch.sources.linux import cgroup, procfs
from gpuwatch.sources.nvml import messages, readings, schedule, tables
from gpuwatch.sources.nvml.schedule import Reading
from gpuwatch.sources.nvml.survey import Answer, Samples, Survey

DRIVER, GPUS, READINGS = "Driver", "GPUs", "Readings"
CALL_MICROSECONDS = "call_microseconds"
"""Time that a call of the driver took for a reading."""
SLOW_WAKE_SECONDS = 1.0
OLD_SAMPLE_SECONDS, FUTURE_SAMPLE_SECONDS = 10.0, 1.0
"""The driver adds samples several times a second, and stamps them by the machine's clock."""
_NVIDIA, _DISPLAY = "0x10de", "0x03"
_VERSION = re.compile(r"\b\d{3}\.\d{1,3}(?:\.\d{1,3})?\b")
_LIBRARY_FILE = re.compile(rb"/libnvidia-ml\.so\.(\d{3}\.\d{1,3}(?:\.\d{1,3})?)\b")
_WORDS_OF_SMI = (
    "Failed to initialize NVML", "NVIDIA-SMI has failed", "No devices were found",
    "Unable to determine the device handle", "it has not answered", "it ended with exit code",
)  # fmt: skip
"""Words of its answer that are safe to hand on: a script in its place can print anything."""
_REPORT = (
    "See whether `nvidia-smi -q` has it, and look in `dmesg`; `gpuwatch doctor --bundle FILE` "
    "collects what a bug report needs."
)
_FIELDS_OF_PROBLEMS = {
    readings.PROCESS_LIST: ("processes",), readings.PROCESS_BUSY: ("gpu_busy_percent",),
}  # fmt: skip


def devices(facts: Facts) -> Iterator[Check]:
    nodes, cards = _nodes(facts.root), _pci_cards(facts.root)
    found = [units.listed([f"/dev/{name}" for name in nodes])] if nodes else []
    if cards:
        found.append(f"{units.plural(cards, 'NVIDIA card')} on the PCI bus")
    if facts.wsl and (facts.root / "dev/dxg").exists():
        found.append("/dev/dxg (WSL)")
    there = PASS if found else SKIP
    reason = "; ".join(found) or "no NVIDIA GPU: neither /dev/nvidia0 nor a card on the PCI bus"
    yield Check(group=DRIVER, name="devices", status=there, reason=reason)


def library(facts: Facts) -> Iterator[Check]:
    name, survey = "library", facts.survey
    problems = facts.problems("nvml") if not _is_running(facts) else []
    if facts.driver_silent:
        for problem in problems:
            check = of_problem(problem, DRIVER, name, FAIL)
            asked = None if survey is None else survey.doing
            hangs = f" It was asked for: {asked}." if asked else ""
            yield replace(check, reason=check.reason + hangs)
            return
    if survey is None or not survey.running:
        status = _status_without_library(facts)
        for problem in problems:
            check = of_problem(problem, DRIVER, name, status)
            yield replace(check, reason=problem.message, cure=None) if status == SKIP else check
        return
    known = dict[str, str | None]()
    for gpu in facts.snapshot.gpus:
        known |= {"driver": gpu.identity.driver_version, "CUDA": gpu.identity.cuda_version}
    reason = ", ".join(f"{what} {version}" for what, version in known.items() if version)
    woke = Measured("wake_seconds", survey.wake_seconds, "s", "started in")
    check = Check(group=DRIVER, name=name, status=PASS, reason=reason, measured=(woke,))
    if survey.wake_seconds is not None and survey.wake_seconds > SLOW_WAKE_SECONDS:
        cure = (
            "Nothing keeps the driver awake, so each program waits for it: enable the persistence "
            "daemon (sudo systemctl enable --now nvidia-persistenced, or sudo nvidia-smi -pm 1)."
        )
        check = replace(check, status=WARN, cure=cure)
    yield check


def versions(facts: Facts) -> Iterator[Check]:
    """The driver in the kernel, and the one that the library is of."""
    survey, name = facts.survey, "versions in step"
    text = procfs.read_if_possible(facts.root / "proc/driver/nvidia/version")
    found = _VERSION.search(text.decode(errors="replace").partition("\n")[0])
    module = None if found is None else found[0]
    of_library = _library_version(facts)
    check = Check(
        group=DRIVER,
        name=name,
        status=PASS,
        measured=(
            Measured("kernel_module_version", module, None, "kernel module"),
            Measured("library_version", of_library, None, "library"),
        ),
    )
    if module is not None and of_library is not None:
        # The library can leave out the last part of its version.
        parts = zip(module.split("."), of_library.split("."), strict=False)
        if all(one == other for one, other in parts):
            yield check
            return
        said = messages.cannot_start(tables.LIB_RM_VERSION_MISMATCH, in_container=False)
        cure = said.partition(": ")[2]
        status = WARN if _is_running(facts) else FAIL
        cure = f"{cure[:1].upper()}{cure[1:]}"
        yield replace(check, status=status, reason="they differ:", cure=cure)
        return
    reason = "no driver is loaded" if module is None else "no library was found:"
    if module is None and facts.wsl:
        reason = "under WSL the kernel's part is that of Windows"
    elif module is None and survey is not None and survey.running:
        reason = "/proc/driver/nvidia/version is not there:"
    measured = tuple(one for one in check.measured if one.value is not None)
    yield replace(check, status=SKIP, reason=reason, measured=measured)


def _library_version(facts: Facts) -> str | None:
    """Return NVML's version: of the name of its file, or as it says itself (CUDA's, a dot, its
    own)."""
    maps = procfs.read_if_possible(facts.root / "proc/self/maps", procfs.LARGEST_BUFFER)
    found = _LIBRARY_FILE.search(maps)
    if found is not None:
        return found[1].decode()
    said = None if facts.survey is None else facts.survey.library_version
    return None if said is None else said.partition(".")[2] or None


def nvidia_smi(facts: Facts) -> Iterator[Check]:
    smi, check = facts.smi, Check(group=DRIVER, name="nvidia-smi", status=PASS)
    if smi is None:
        yield replace(check, status=SKIP, reason="not installed")
    elif smi.error is not None:
        status = WARN if _is_running(facts) or _is_there(facts) else SKIP
        private = not smi.error.startswith(_WORDS_OF_SMI)
        yield replace(check, status=status, reason=smi.error, private=private)
    else:
        cards = [gpu for gpu in facts.snapshot.gpus if gpu.identity.mig_parent_uuid is None]
        reason = f"it works, and lists {units.plural(smi.gpu_count, 'GPU')}"
        if facts.survey is not None and facts.survey.running and smi.gpu_count != len(cards):
            reason += f", of which the library has {len(cards)}"
            check = replace(check, status=WARN)
        yield replace(check, reason=reason)


def gpus(facts: Facts) -> Iterator[Check]:
    if facts.driver_silent and not facts.snapshot.gpus:
        return
    found = [gpu.identity for gpu in facts.snapshot.gpus if not gpu.lost]
    by_name = dict[str, list[GpuIdentity]]()
    for gpu in found:
        if gpu.mig_parent_uuid is None:
            by_name.setdefault(gpu.name, []).append(gpu)
    for name, alike in by_name.items():
        total = alike[0].memory_total_bytes
        memory = "the host's memory" if total is None else f"{units.size(total)} of memory"
        reason = f"{name}, {memory}"
        yield Check(group=GPUS, name=units.gpus_named(alike), status=PASS, reason=reason)
    instances = [gpu for gpu in found if gpu.mig_parent_uuid is not None]
    if instances:
        count = units.plural(len(instances), "MIG instance")
        parents = {gpu.mig_parent_uuid for gpu in instances}
        divided = units.gpus_named(gpu for gpu in found if gpu.uuid in parents)
        names = units.listed(list(dict.fromkeys(gpu.name for gpu in instances)))
        reason = f"{count} on {divided}: {names}"
        yield Check(group=GPUS, name="MIG", status=PASS, reason=reason)
    yield from _missing(facts)


def _missing(facts: Facts) -> Iterator[Check]:
    """Yield why GPUs are lost, or why there is none."""
    for problem in facts.snapshot.problems:
        about_gpus = problem.reading in (None, "lost") and problem.severity == "error"
        if problem.source == "nvml" and about_gpus and problem.message not in facts.said:
            facts.said.add(problem.message)
            status = FAIL
            if problem.message == messages.NO_DEVICES and not _nodes(facts.root):
                status = WARN if _is_there(facts) else SKIP
            yield of_problem(problem, GPUS, "lost" if facts.snapshot.gpus else "none", status)


def each_reading(facts: Facts) -> Iterator[Check]:
    """Yield the answers in the order of the GPUs, and of the readings."""
    for answer in () if facts.survey is None else facts.survey.answers.values():
        yield _reading(facts, answer)


def whatever_else(facts: Facts) -> Iterator[Check]:
    """Yield what the dashboard says of the driver and no check above has said."""
    failing = set() if facts.survey is None else facts.survey.failing
    for problem in facts.snapshot.problems:
        if problem.source == "nvml" and problem.message not in facts.said | failing:
            facts.said.add(problem.message)
            yield of_problem(problem, READINGS, "answers of the driver")


CHECKS = (
    devices, library, versions, nvidia_smi, gpus, each_reading, whatever_else,
)  # fmt: skip


def _reading(facts: Facts, answer: Answer) -> Check:
    reading = answer.reading
    check = Check(group=READINGS, name=reading.name, status=PASS, gpu=answer.gpu)
    fields = _FIELDS_OF_PROBLEMS.get(reading.name, reading.fields)
    said = facts.problems("nvml", fields, answer.gpu.uuid) if fields else []
    if not answer.supported:
        # In the dashboard's words where it says so at all.
        reason = said[0].message if said else "this GPU or this driver does not have it"
        return replace(check, status=SKIP, reason=reason)
    if not answer.needed:
        return replace(check, status=SKIP, reason="not taken: another reading gives the same")
    cost = answer.seconds_per_call
    microseconds = None if cost is None else round(cost * 1e6, 1)
    costs = (Measured(CALL_MICROSECONDS, microseconds, "us", said=False),)
    gave_nothing = bool(reading.fields) and not answer.values and reading.name != readings.SAMPLES
    if answer.error or gave_nothing:
        return replace(_failed(check, answer, said), measured=costs)
    measured = [_measured(reading, name, value) for name, value in answer.values.items()]
    if reading.fields in readings.COUNTED_FIELDS and not any(answer.values.values()):
        check = replace(check, reason="none")
    if facts.survey is not None:
        measured += _record(facts.survey, answer)
        check = _judged_samples(check, facts.survey.samples.get(answer.gpu.uuid))
    if said and check.status == PASS:
        # A part of it cannot be true, or is taken seldom.
        told = of_problem(said[0], READINGS, reading.name, WARN)
        check = replace(check, status=WARN, reason=told.reason.removesuffix("."), cure=told.cure)
    return replace(check, measured=(*measured, *check.measured, *costs))


def _failed(check: Check, answer: Answer, said: list[Problem]) -> Check:
    """Return the check of a reading that failed, or gave nothing."""
    words = messages.error_words(answer.error or tables.SENSELESS)
    if said and not answer.error:
        words = said[0].message
    cure = said[0].message if said and answer.error == tables.NO_PERMISSION else _REPORT
    status = FAIL if answer.reading.importance == schedule.IMPORTANT else WARN
    return replace(check, status=status, reason=words, cure=cure)


def _record(survey: Survey, answer: Answer) -> Iterator[Measured]:
    """Yield by what the driver lists processes."""
    listed = survey.lists.get(answer.gpu.uuid)
    if listed is not None and answer.reading.name == readings.PROCESS_LIST:
        function, size = listed
        if size is not None:
            yield Measured("record_bytes", size, None, "", "bytes a record")
        yield Measured("function", function.removeprefix("nvmlDeviceGet"), None, "by")


def _judged_samples(check: Check, found: Samples | None) -> Check:
    """Return the check of fine samples (any other as it is) with how many the driver's buffer
    holds, how far apart, and whether they are of this time."""
    if found is None or check.name != readings.SAMPLES:
        return check
    stamps = [sample.at_unix_seconds for sample in found.samples]
    if not stamps:
        return replace(check, status=WARN, reason="the driver's buffer is empty")
    gaps = [later - earlier for earlier, later in pairwise(stamps)]
    oldest, newest = (found.asked_at_unix_seconds - one for one in (stamps[0], stamps[-1]))
    measured = (
        Measured("samples", len(stamps)),
        Measured("spacing_seconds", median(gaps) if gaps else None, "s", "one every"),
        Measured("oldest_age_seconds", oldest, "s", "the oldest", "old"),
        Measured("newest_age_seconds", newest, "s", "the newest", "old"),
    )
    check = replace(check, measured=measured)
    cure = "Set the clock right (timedatectl shows whether it is), then restart the jobs."
    if found.shift_seconds:
        off = units.duration(abs(found.shift_seconds))
        side = "behind" if found.shift_seconds > 0 else "ahead of"
        reason = f"stamped {off} {side} this machine's clock, so the newest is taken for now:"
        return replace(check, status=WARN, reason=reason, cure=cure)
    if newest < -FUTURE_SAMPLE_SECONDS:
        reason = f"they are {units.duration(-newest)} ahead of this machine's clock:"
        return replace(check, status=WARN, reason=reason, cure=cure)
    if newest > OLD_SAMPLE_SECONDS:
        reason = "the driver adds none, or this machine's clock is ahead of its own:"
        return replace(check, status=WARN, reason=reason)
    return check


def _measured(reading: Reading, name: str, value: Any) -> Measured:
    label, unit = _named(name)
    if name == "processes":
        return Measured(name, value, None, "", "listed")
    if name == "xid_errors":
        return Measured(name, value, None, "Xid errors:")
    if name == "performance_state":
        return Measured(name, f"P{value}")
    if name == "throttle_reasons":
        return Measured(name, units.listed([one.replace("_", " ") for one in value]) or "none")
    if name == "throttle_durations":
        held = [
            f"{one.reason.replace('_', ' ')} {one.seconds:.2g} s" for one in value if one.seconds
        ]
        return Measured(name, units.listed(held) or "none", None, "throttled:", said=bool(held))
    # Of errors only those that there were.
    counts = reading.fields in readings.COUNTED_FIELDS
    said = bool(value) if counts else name in reading.fields
    return Measured(name, value, unit, label if len(reading.fields) > 1 else "", said=said)


def _named(name: str) -> tuple[str, str | None]:
    """Return the label of a field, and its unit."""
    field = OF_GPU.get(name)
    bare, unit = unit_of(name)
    return (field and field.label) or bare.replace("_", " "), unit.symbol or None


def _is_running(facts: Facts) -> bool:
    return facts.survey is not None and facts.survey.running and not facts.driver_silent


def _nodes(root: Path) -> list[str]:
    return sorted(path.name for path in (root / "dev").glob("nvidia[0-9]*"))


def _pci_cards(root: Path) -> int:
    count = 0
    for folder in (root / "sys/bus/pci/devices").glob("*"):
        vendor = procfs.read_if_possible(folder / "vendor").decode(errors="replace").strip()
        kind = procfs.read_if_possible(folder / "class").decode(errors="replace")
        count += vendor == _NVIDIA and kind.startswith(_DISPLAY)
    return count


def _is_there(facts: Facts) -> bool:
    return bool(_nodes(facts.root) or _pci_cards(facts.root))


def _status_without_library(facts: Facts) -> str:
    """A machine without a GPU is in order; a GPU without a driver is not. A container sees the
    cards of its host on the bus, though none was given to it."""
    if _nodes(facts.root):
        return FAIL
    if _pci_cards(facts.root):
        return WARN if cgroup.in_container(facts.root) else FAIL
    # A cluster's image can have the driver on its machines without a GPU, too.
    error = None if facts.survey is None else facts.survey.start_error
    absent = error in (None, tables.LIBRARY_NOT_FOUND, tables.DRIVER_NOT_LOADED)
    return SKIP if absent else FAIL
