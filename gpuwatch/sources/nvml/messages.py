"""The sentences a person reads when the driver, a GPU or a reading is in trouble.

``troubles`` says each thing once: GPUs with the same trouble are one sentence, and so are readings
that fail alike.
"""

from collections.abc import Iterable, Sequence
from typing import TypeVar

from gpuwatch.core import units
from gpuwatch.core.model import GpuIdentity, Problem
from gpuwatch.core.registry import unit_of
from gpuwatch.sources.nvml import readings, tables
from gpuwatch.sources.nvml.readings import NvmlDevice
from gpuwatch.sources.nvml.schedule import (
    IMPORTANT,
    LASTED_READS,
    NOTABLE,
    SELDOM_SECONDS,
    Reading,
    Slot,
)

K = TypeVar("K")
V = TypeVar("V")

SOURCE = "nvml"
READINGS_NAMED = 3

NO_BINDING = (
    "The Python package nvidia-ml-py is not installed, so no GPU can be read: "
    "pip install nvidia-ml-py."
)
WRONG_BINDING = (
    "Another package named pynvml hides NVIDIA's own, so no GPU can be read: "
    "pip uninstall pynvml, then pip install --force-reinstall nvidia-ml-py."
)
NO_DEVICES = (
    "The NVIDIA driver works but has no GPU to show. In a container or a batch job, none may "
    "have been granted; otherwise look for the card with `lspci` and in `dmesg`."
)
WENT_AWAY = (
    "The NVIDIA driver went away (unloaded, reset or updated); gpuwatch looks for it every few "
    "seconds."
)
UPDATED_MEANWHILE = (
    "The NVIDIA driver was updated while gpuwatch ran: restart gpuwatch. If that does not help, "
    "reboot, or unload and reload the nvidia module."
)

_IN_CONTAINER = (
    " Inside a container the host's driver must be passed in: start it with `--gpus all` (NVIDIA "
    "Container Toolkit)."
)
_IN_WSL = " Under WSL the driver is the one of Windows: update it there and run `wsl --shutdown`."

_START_SENTENCES = {
    tables.LIBRARY_NOT_FOUND: (
        "No NVIDIA driver was found (libnvidia-ml.so.1 is not there or cannot be loaded), so there "
        "is no GPU to show; gpuwatch --demo has simulated ones. If there is an NVIDIA card, "
        "install a driver."
    ),
    tables.DRIVER_NOT_LOADED: (
        "The NVIDIA driver is installed but its kernel module is not loaded, so no GPU can be "
        "read: try `sudo modprobe nvidia`, and look in `dmesg` if that fails."
    ),
    tables.LIB_RM_VERSION_MISMATCH: (
        # What to do comes first: a small terminal cuts the rest.
        "The NVIDIA driver was updated: reboot, or unload and reload the nvidia module. Until "
        "then no GPU can be read, because the old kernel module is still loaded."
    ),
    tables.NO_PERMISSION: (
        "This user may not open the NVIDIA driver, so no GPU can be read: check who may read and "
        "write /dev/nvidiactl and /dev/nvidia0 (a group such as video or render)."
    ),
    tables.FUNCTION_NOT_FOUND: (
        "The NVIDIA driver's library is too old or not NVIDIA's own (it lacks the start-up call), "
        "so no GPU can be read: update the driver."
    ),
}


NO_SAMPLES = (
    "{gpus} {verb} no fine utilisation samples: the busy percentage is polled instead, and dips "
    "shorter than the interval can be missed."
)
NO_PROCESS_BUSY = "{gpus} {verb} no record of each process's share of the SMs."
NO_PROCESS_LIST = "{gpus} {verb} no list of processes under this driver."
_WORTH_SAYING = (
    (readings.SAMPLES, "busy_samples", NO_SAMPLES),
    (readings.PROCESS_BUSY, "gpu_busy_percent", NO_PROCESS_BUSY),
    (readings.PROCESS_LIST, "processes", NO_PROCESS_LIST),
)
"""Readings whose absence changes what the screen can be trusted to show."""


def problem(
    sentence: str,
    gpus: Sequence[GpuIdentity] = (),
    *,
    reading: str | None = None,
    since: float | None = None,
    severity: str = "error",
) -> Problem:
    """Make a problem of these GPUs; without any, of the driver as a whole."""
    return Problem(
        source=SOURCE,
        message=sentence,
        target=gpus[0].uuid if len(gpus) == 1 else None,
        reading=reading,
        since_unix_seconds=since,
        severity=severity,
    )


def error_words(code: int) -> str:
    return tables.ERROR_WORDS.get(code, f"error {code}")


def labels(gpus: Sequence[GpuIdentity]) -> str:
    return units.gpus_named(sorted(gpus, key=lambda gpu: gpu.index))


# --- the driver as a whole -------------------------------------------------------------------


def cannot_start(code: int, in_container: bool, kernel: str = "") -> str:
    """Say why ``nvmlInit`` failed and what to do."""
    sentence = _START_SENTENCES.get(code) or (
        f"The NVIDIA driver does not start ({error_words(code)}), so no GPU can be read: look "
        "in `dmesg`, and see whether `nvidia-smi` works."
    )
    absent = code in (tables.LIBRARY_NOT_FOUND, tables.DRIVER_NOT_LOADED, tables.NO_PERMISSION)
    hint = _IN_CONTAINER if in_container else _IN_WSL if "microsoft" in kernel.lower() else ""
    return sentence + hint if absent else sentence


def cannot_count(why: str) -> Problem:
    """Say that the driver runs but does not say how many GPUs it has."""
    return problem(
        f"The NVIDIA driver does not list its GPUs ({why}): look in `dmesg`, and see whether "
        "`nvidia-smi` works."
    )


def cannot_open(code: int, indexes: Sequence[int]) -> Problem:
    """Name GPUs that the driver counts and does not hand out, all for the same reason."""
    subject = units.gpus_called([str(index) for index in indexes])
    return problem(
        f"{subject} cannot be opened ({error_words(code)}) and so cannot be shown: check "
        "`dmesg` for Xid errors, and whether this user was granted access."
    )


# --- GPUs and their readings -----------------------------------------------------------------


def troubles(devices: list[NvmlDevice]) -> list[Problem]:
    """Name lost GPUs, then readings that fail, cannot be true, are seldom taken, or do not exist
    on these GPUs."""
    there = [device for device in devices if not device.lost_error]
    return [
        *_lost([device for device in devices if device.lost_error]),
        *failing(there),
        *_impossible(there),
        *_seldom(there),
        *_lacking(devices),
    ]


def _grouped(pairs: Iterable[tuple[K, V]]) -> dict[K, list[V]]:
    groups: dict[K, list[V]] = {}
    for key, value in pairs:
        groups.setdefault(key, []).append(value)
    return groups


def _identities(devices: Iterable[NvmlDevice]) -> list[GpuIdentity]:
    return [device.identity for device in devices]


def _shortened(words: Iterable[str], more: str) -> list[str]:
    """Return the words, each once, with the last ones counted where they are many."""
    found = list(dict.fromkeys(words))
    if len(found) > READINGS_NAMED + 1:
        found[READINGS_NAMED:] = [f"{len(found) - READINGS_NAMED} {more}"]
    return found


def _only(fields: Iterable[str | None]) -> str | None:
    """Return the field that a problem is about, where it is about one."""
    found = {field for field in fields if field is not None}
    return found.pop() if len(found) == 1 else None


def _lost(devices: list[NvmlDevice]) -> list[Problem]:
    together = _grouped((device.lost_error, device) for device in devices)
    return [
        lost(_identities(gone), code, min(device.lost_since_unix for device in gone))
        for code, gone in together.items()
    ]


def lost(gpus: Sequence[GpuIdentity], code: int, since: float) -> Problem:
    """Say that GPUs are lost, all for the same reason."""
    one = len(gpus) == 1
    name = f"{labels(gpus)} ({gpus[0].name}) is" if one else f"{labels(gpus)} are"
    it, them = ("it", "it") if one else ("they", "them")
    if code == tables.RESET_REQUIRED:
        indexes = ",".join(str(index) for index in sorted({gpu.index for gpu in gpus}))
        message = (
            f"{name} lost until reset: stop the jobs on {them}, then "
            f"`sudo nvidia-smi --gpu-reset -i {indexes}`, or reboot."
        )
    else:
        message = (
            f"{name} lost: {it} fell off the bus, and the jobs on {them} have died. Check "
            "`dmesg` for Xid errors; a reset or reboot is needed."
        )
    return problem(message, gpus, reading=None if one else "lost", since=since)


def failing(devices: list[NvmlDevice]) -> list[Problem]:
    """Name readings that fail, or leave out a value that they gave before."""
    together: dict[tuple[Reading, int], list[tuple[NvmlDevice, float]]] = {}
    for device in devices:
        for slot in () if device.lost_error else device.slots:
            # Nearly always none of them: this is asked of each slot every second.
            if not slot.failures and (slot.lacking_reads < LASTED_READS or slot.refused):
                continue
            if slot.reading.is_fact:
                continue
            error, since = slot.error, slot.failed_since_unix
            worth_saying = slot.lasted or error == tables.NO_PERMISSION
            if not slot.failures:
                none = all(device.values.get(name) is None for name in slot.gave)
                error = tables.SENSELESS if none else tables.INCOMPLETE
                since, worth_saying = slot.lacking_since_unix, True
            if worth_saying:
                together.setdefault((slot.reading, error), []).append((device, since))
    # A list of processes that cannot be read must not be taken for an empty one: these are apart.
    alike = _grouped(
        ((error, tuple(device for device, _ in affected), reading.name in readings.LISTS), reading)
        for (reading, error), affected in together.items()
    )
    return [
        cannot_read(
            [(reading.name, _field(reading)) for reading in same],
            _identities(affected),
            error,
            min(since for reading in same for _, since in together[reading, error]),
        )
        for (error, affected, _), same in alike.items()
    ]


def cannot_read(
    failed: Sequence[tuple[str, str | None]],
    gpus: Sequence[GpuIdentity],
    code: int,
    since: float,
) -> Problem:
    """Say that readings (a name for a person, the field) fail alike on the same GPUs."""
    names = _shortened([name for name, _ in failed], "more readings")
    subject = f"{units.listed(names)} of {labels(gpus)}"
    subject = subject[0].upper() + subject[1:]
    refused = code == tables.NO_PERMISSION
    if refused:
        message = f"{subject} cannot be read without more rights (as root it may work)."
    else:
        far = " in full" if code == tables.INCOMPLETE else ""
        message = f"{subject} cannot be read{far} ({error_words(code)}); gpuwatch keeps trying."
    severity = "info" if refused else "warning"
    return problem(
        message, gpus, reading=_only(field for _, field in failed), since=since, severity=severity
    )


def _field(reading: Reading) -> str | None:
    """Return the field that a problem of this reading is about."""
    if reading.name == readings.PROCESS_LIST:
        return "processes"
    return reading.fields[0] if reading.fields else None


def _impossible(devices: list[NvmlDevice]) -> list[Problem]:
    """Name values that the driver gives and that cannot be true."""
    together = _grouped(
        (slot.reading, (device, slot))
        for device in devices
        for slot in device.slots
        if slot.refused and not slot.failures and _is_impossible(device, slot)
    )
    alike = _grouped(
        (tuple(device for device, _ in affected), affected) for affected in together.values()
    )
    problems = []
    for gpus, same in alike.items():
        pairs = [pair for affected in same for pair in affected]
        refused = [(device, name) for device, slot in pairs for name in slot.refused]
        names = _shortened([slot.reading.name for _, slot in pairs], "more")
        values = _shortened(
            [_with_unit(name, device.values.refused[name]) for device, name in refused], "more"
        )
        one = len(values) == 1
        problems.append(
            problem(
                f"The driver gives {'a value' if one else 'values'} for {units.listed(names)} of "
                f"{labels(_identities(gpus))} that cannot be true ({units.listed(values)}), so "
                f"{'it is' if one else 'they are'} not shown.",
                _identities(gpus),
                reading=_only(name for _, name in refused),
                since=min(slot.lacking_since_unix for _, slot in pairs),
                severity="warning",
            )
        )
    return problems


def _is_impossible(device: NvmlDevice, slot: Slot) -> bool:
    """Return True where it is no hiccup, and not a minor reading of which the driver says "not
    available" by a number."""
    if slot.reading.importance < NOTABLE and not device.values.senseless(slot.refused):
        return False
    return slot.lacking_reads >= LASTED_READS or not slot.gave.issuperset(slot.refused)


def _with_unit(field: str, value: float) -> str:
    return units.quantity(value, unit_of(field)[1].symbol or None)


def _seldom(devices: list[NvmlDevice]) -> list[Problem]:
    """Name readings that the driver is slow to give, so that their shown values can be old."""
    put_off = [
        (device, slot)
        for device in devices
        for slot in device.slots
        if slot.seldom and (slot.reading.needed is None or slot.reading.needed(device))
    ]
    if not any(
        slot.period > SELDOM_SECONDS or slot.reading.importance == IMPORTANT for _, slot in put_off
    ):
        return []
    gpus = _identities(dict.fromkeys(device for device, _ in put_off))
    calls = sum(slot.reading.calls for _, slot in put_off)
    # Rounded, so that the sentence does not change with every call.
    milliseconds = float(f"{sum(slot.cost for _, slot in put_off) / calls * 1000:.1g}")
    longest = max(slot.period for _, slot in put_off)
    period = round(longest, -1 if longest >= 20 else 0)
    sentence = (
        f"The NVIDIA driver takes about {milliseconds:g} ms a call, so some readings of "
        f"{labels(gpus)} are refreshed less often, the most seldom every {period:.0f} s."
    )
    return [problem(sentence, gpus, severity="info")]


def _lacking(devices: list[NvmlDevice]) -> list[Problem]:
    """Name readings that a person would look for and that these GPUs do not have."""
    cards = [device for device in devices if device.identity.mig_parent_uuid is None]
    # Where the utilisation is not reported at all, the rest follows.
    silent = [
        device for device in cards if {readings.UTILISATION, readings.SAMPLES} <= device.unsupported
    ]
    problems = []
    for divided in (False, True):
        gpus = [gpu for gpu in _identities(silent) if bool(gpu.mig_mode) is divided]
        if gpus:
            problems.append(no_utilisation(gpus, divided=divided))
    for name, field, sentence in _WORTH_SAYING:
        implied = silent if name in (readings.SAMPLES, readings.PROCESS_BUSY) else []
        gpus = _identities(
            device for device in cards if name in device.unsupported and device not in implied
        )
        if gpus:
            problems.append(unsupported(sentence, field, gpus))
    return problems


def unsupported(sentence: str, field: str, gpus: Sequence[GpuIdentity]) -> Problem:
    """Name a reading that a person would look for and that these GPUs do not have; ``sentence`` has
    places for ``{gpus}`` and ``{verb}``."""
    filled = sentence.format(gpus=labels(gpus), verb="has" if len(gpus) == 1 else "have")
    return problem(filled, gpus, reading=field, severity="info")


def no_utilisation(gpus: Sequence[GpuIdentity], *, divided: bool) -> Problem:
    """Say that how busy GPUs are is not reported; ``divided``: into MIG instances."""
    one = len(gpus) == 1
    why = (
        f" while {'it is' if one else 'they are'} divided into MIG instances; where an instance "
        "shows its SM activity (Hopper and later), that says how busy it is"
        if divided
        else ", so gpuwatch cannot tell whether "
        f"{'it waits' if one else 'they wait'}; power, clocks and memory are shown where the "
        "driver gives them"
    )
    return problem(
        f"The driver does not report the utilisation of {labels(gpus)}{why}.",
        gpus,
        reading="busy_percent",
        severity="info",
    )
