"""Checks of NVIDIA's driver and of every reading of every GPU."""

import re
from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise
from pathlib import Path
from statistics import median
from typing import Any, TypeVar

from gpuwatch.core import units
from gpuwatch.core.model import Gpu
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
from gpuwatch.sources.nvml.survey import Answer, Samples

K = TypeVar("K")
V = TypeVar("V")
DRIVER, GPUS, READINGS = "Driver", "GPUs", "Readings"
CALL_MICROSECONDS = "call_microseconds"
"""Median of what a call of the driver took for a reading."""
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
_JUDGED = {
    "memory_used_bytes": 256 << 20, "power_limit_watts": 1.0, "temperature_celsius": 4.0,
    "fan_percent": 10.0, "pcie_width": 0,
}  # fmt: skip
"""Readings in which nvidia-smi must agree, give or take so much, where ours stood still meanwhile.
The others move from one moment to the next, or because nvidia-smi wakes the GPU."""
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
        if all(one == other for one, other in zip(*_parts(module, of_library), strict=False)):
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
    """By the name of its file, or as it says itself: the version of CUDA, a dot, its own."""
    maps = procfs.read_if_possible(facts.root / "proc/self/maps", procfs.LARGEST_BUFFER)
    found = _LIBRARY_FILE.search(maps)
    if found is not None:
        return found[1].decode()
    said = None if facts.survey is None else facts.survey.library_version
    return None if said is None else said.partition(".")[2] or None


def _parts(*versions: str) -> tuple[list[str], ...]:
    return tuple(version.split(".") for version in versions)


def nvidia_smi(facts: Facts) -> Iterator[Check]:
    smi, name = facts.smi, "nvidia-smi"
    if smi.path is None:
        reason = "not installed, so there is nothing to compare"
        yield Check(group=DRIVER, name=name, status=SKIP, reason=reason)
        return
    if smi.error is not None:
        status = WARN if _is_running(facts) or _is_there(facts) else SKIP
        check = Check(group=DRIVER, name=name, status=status, reason=smi.error)
        yield replace(check, private=not smi.error.startswith(_WORDS_OF_SMI))
        return
    compared = differing = 0
    for answer in _answers(facts):
        for field in answer.values.keys() & _JUDGED.keys():
            agrees = _agrees(facts, answer, field)
            compared += agrees is not None
            differing += agrees is False
    unknown = {gpu.uuid for gpu in facts.snapshot.gpus if gpu.identity.mig_parent_uuid is None}
    unknown -= smi.gpus.keys()
    reason = f"{smi.answer}; {compared - differing} of {compared} readings that stood still agree"
    if unknown:
        reason += f"; it does not list {units.plural(len(unknown), 'GPU')} that the library has"
    status = WARN if differing or unknown else PASS
    yield Check(group=DRIVER, name=name, status=status, reason=reason)


def gpus(facts: Facts) -> Iterator[Check]:
    if facts.driver_silent and not facts.snapshot.gpus:
        return
    by_name: dict[str, list[Gpu]] = {}
    for gpu in facts.snapshot.gpus:
        if not gpu.lost and gpu.identity.mig_parent_uuid is None:
            by_name.setdefault(gpu.identity.name, []).append(gpu)
    for name, alike in by_name.items():
        labels = units.gpus_named(gpu.identity for gpu in alike)
        total = alike[0].identity.memory_total_bytes
        memory = "the host's memory" if total is None else f"{units.size(total)} of memory"
        yield Check(group=GPUS, name=labels, status=PASS, reason=f"{name}, {memory}")
    instances = [one for one in facts.snapshot.gpus if one.identity.mig_parent_uuid is not None]
    if instances:
        names = dict.fromkeys(one.identity.name for one in instances)
        count = units.plural(len(instances), "MIG instance")
        cards = {gpu.uuid: gpu.identity for gpu in facts.snapshot.gpus}
        parents = {one.identity.mig_parent_uuid or "" for one in instances}
        divided = units.gpus_named(cards[uuid] for uuid in sorted(parents & cards.keys()))
        reason = f"{count} on {divided}: {units.listed(list(names))}"
        yield Check(group=GPUS, name="MIG", status=PASS, reason=reason)
    for problem in facts.snapshot.problems:
        about_gpus = problem.reading in (None, "lost") and problem.severity == "error"
        if problem.source == "nvml" and about_gpus and problem.message not in facts.said:
            facts.said.add(problem.message)
            status = FAIL
            if problem.message == messages.NO_DEVICES and not _nodes(facts.root):
                status = WARN if _is_there(facts) else SKIP
            yield of_problem(problem, GPUS, "lost" if facts.snapshot.gpus else "none", status)


def each_reading(facts: Facts) -> Iterator[Check]:
    for answer in _answers(facts):
        yield _reading(facts, answer)


def whatever_else(facts: Facts) -> Iterator[Check]:
    """Yield what the dashboard says of the driver and no check above has said."""
    survey = facts.survey
    if survey is not None and survey.broke_off is not None:
        reason = f"not everything could be asked for: {survey.broke_off}"
        yield Check(group=READINGS, name="all of it", status=FAIL, reason=reason)
    failing = set() if survey is None else survey.failing
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
    nothing = bool(reading.fields) and not answer.values and reading.name != readings.SAMPLES
    if answer.error or nothing:
        words = answer.error_words if answer.error else messages.error_words(tables.SENSELESS)
        if said and not answer.error:
            words = said[0].message
        cure = said[0].message if said and answer.error == tables.NO_PERMISSION else _REPORT
        status = FAIL if reading.importance == schedule.IMPORTANT else WARN
        return replace(check, status=status, reason=words, cure=cure, measured=costs)
    measured = [_measured(reading, name, value) for name, value in answer.values.items()]
    survey, uuid = facts.survey, answer.gpu.uuid
    if reading.name == readings.PROCESS_LIST and survey is not None and uuid in survey.lists:
        function, size = survey.lists[uuid]
        function = function.removeprefix("nvmlDeviceGet")
        if size is not None:
            measured.append(Measured("record_bytes", size, None, "", "bytes a record"))
        measured.append(Measured("function", function, None, "by"))
    if reading.name == readings.SAMPLES and survey is not None and uuid in survey.samples:
        check = _judged_samples(check, survey.samples[uuid])
        measured += check.measured
    if reading.fields in readings.COUNTED_FIELDS and not any(answer.values.values()):
        check = replace(check, reason="none")
    if said and check.status == PASS:
        # A part of it cannot be true, or is taken seldom.
        told = of_problem(said[0], READINGS, reading.name, WARN)
        check = replace(check, status=WARN, reason=told.reason.removesuffix("."), cure=told.cure)
    differing = [field for field in answer.values if _agrees(facts, answer, field) is False]
    check = replace(check, measured=(*measured, *costs, *_of_smi(facts, answer, differing)))
    if differing:
        cure = f"One of the two reads it wrong. {_REPORT}"
        check = replace(check, status=WARN, cure=cure)
    return check


def _judged_samples(check: Check, found: Samples) -> Check:
    """How many the driver's buffer holds, how far apart, and whether they are of this time."""
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


def _of_smi(facts: Facts, answer: Answer, differing: list[str]) -> Iterator[Measured]:
    """Values of nvidia-smi; said only where they differ, and there for programs."""
    gpu = facts.smi.gpus.get(answer.gpu.uuid)
    for field in answer.values:
        value = getattr(gpu.reading, field, None) if gpu is not None else None
        if isinstance(value, (int, float)):
            differs, unit = field in differing, _named(field)[1]
            name, label = f"nvidia_smi_{field}", "but nvidia-smi says"
            yield Measured(name, value, unit, label, said=differs)


def _agrees(facts: Facts, answer: Answer, field: str) -> bool | None:
    """Whether nvidia-smi's value is ours; ``None``: it cannot be told."""
    gpu = facts.smi.gpus.get(answer.gpu.uuid)
    if field not in _JUDGED or gpu is None or answer.gpu.mig_parent_uuid is not None:
        return None
    theirs = getattr(gpu.reading, field)
    before, after = answer.earlier.get(field), answer.values.get(field)
    if theirs is None or before is None or after is None or answer.gpu.memory_unified:
        return None
    room = _JUDGED[field]
    if abs(after - before) > room:
        return None
    return bool(min(before, after) - room <= theirs <= max(before, after) + room)


def _answers(facts: Facts) -> list[Answer]:
    """In the order of the readings, and of the GPUs."""
    survey = facts.survey
    return [] if survey is None else [answer for _, answer in _so_far(survey.answers)]


def _so_far(found: dict[K, V]) -> list[tuple[K, V]]:
    """A copy, made at once: a driver that is slow goes on answering."""
    return list(found.copy().items())


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
