"""The sentences a person reads when the driver, a GPU or a reading is in trouble."""

from collections.abc import Sequence

from gpuwatch.core import units
from gpuwatch.core.model import GpuIdentity, Problem
from gpuwatch.sources.nvml import tables

SOURCE = "nvml"

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
        "is no GPU to show; `gpuwatch --demo` has simulated ones. If there is an NVIDIA card, "
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


def cannot_start(code: int, in_container: bool, kernel: str = "") -> str:
    """Why ``nvmlInit`` failed and what to do."""
    sentence = _START_SENTENCES.get(code) or (
        f"The NVIDIA driver does not start ({error_words(code)}), so no GPU can be read: look "
        "in `dmesg`, and see whether `nvidia-smi` works."
    )
    absent = code in (tables.LIBRARY_NOT_FOUND, tables.DRIVER_NOT_LOADED, tables.NO_PERMISSION)
    hint = _IN_CONTAINER if in_container else _IN_WSL if "microsoft" in kernel.lower() else ""
    return sentence + hint if absent else sentence


def error_words(code: int) -> str:
    return tables.ERROR_WORDS.get(code, f"error {code}")


def labels(gpus: Sequence[GpuIdentity]) -> str:
    return units.gpus_named(sorted(gpus, key=lambda gpu: gpu.index))


def problem(
    sentence: str,
    gpus: Sequence[GpuIdentity] = (),
    *,
    reading: str | None = None,
    since: float | None = None,
    severity: str = "error",
) -> Problem:
    """A problem of these GPUs; of none: of the driver as a whole."""
    return Problem(
        source=SOURCE,
        message=sentence,
        target=gpus[0].uuid if len(gpus) == 1 else None,
        reading=reading,
        since_unix_seconds=since,
        severity=severity,
    )


def cannot_count(why: str) -> Problem:
    """The driver runs but does not say how many GPUs it has."""
    return problem(
        f"The NVIDIA driver does not list its GPUs ({why}): look in `dmesg`, and see whether "
        "`nvidia-smi` works."
    )


def lost(gpus: Sequence[GpuIdentity], code: int, since: float | None) -> Problem:
    """GPUs that are lost for the same reason."""
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


def cannot_open(code: int, indexes: Sequence[int]) -> Problem:
    """GPUs that the driver counts and does not hand out, all for the same reason."""
    subject = units.gpus_called([str(index) for index in indexes])
    return problem(
        f"{subject} cannot be opened ({error_words(code)}) and so cannot be shown: check "
        "`dmesg` for Xid errors, and whether this user was granted access."
    )


READINGS_NAMED = 3


def cannot_read(
    readings: Sequence[tuple[str, str | None]],
    gpus: Sequence[GpuIdentity],
    code: int,
    since: float | None,
) -> Problem:
    """Readings (a name for a person, the field) that keep failing alike on the same GPUs. Of many
    the first few are named; the problem carries a field only when it is about one."""
    names = [name for name, _ in readings]
    if len(names) > READINGS_NAMED + 1:
        names[READINGS_NAMED:] = [f"{len(names) - READINGS_NAMED} more readings"]
    subject = f"{units.listed(names)} of {labels(gpus)}"
    subject = subject[0].upper() + subject[1:]
    if code == tables.NO_PERMISSION:
        message = f"{subject} cannot be read without more rights (as root it may work)."
    else:
        far = " in full" if code == tables.INCOMPLETE else ""
        message = f"{subject} cannot be read{far} ({error_words(code)}); gpuwatch keeps trying."
    fields = {field for _, field in readings if field is not None}
    field = fields.pop() if len(fields) == 1 else None
    severity = "info" if code == tables.NO_PERMISSION else "warning"
    return problem(message, gpus, reading=field, since=since, severity=severity)


def slow_driver(gpus: Sequence[GpuIdentity], call_seconds: float, period_seconds: float) -> Problem:
    """A driver is too slow for all readings: ``call_seconds`` is what a call for those that are put
    off takes, ``period_seconds`` how far apart the most seldom of them are."""
    # Rounded, so that the sentence does not change with every call.
    milliseconds = float(f"{call_seconds * 1000:.1g}")
    period = round(period_seconds, -1 if period_seconds >= 20 else 0)
    return problem(
        f"The NVIDIA driver takes about {milliseconds:g} ms a call, so some readings of "
        f"{labels(gpus)} are refreshed less often, the most seldom every {period:.0f} s.",
        severity="info",
    )


def unsupported(sentence: str, field: str, gpus: Sequence[GpuIdentity]) -> Problem:
    """Something a person would look for that these GPUs do not have; ``{gpus}`` is filled in."""
    filled = sentence.format(gpus=labels(gpus), verb="has" if len(gpus) == 1 else "have")
    return problem(filled, gpus, reading=field, severity="info")


def cannot_be(
    said: Sequence[tuple[str, str, str]], gpus: Sequence[GpuIdentity], since: float | None
) -> Problem:
    """Values (the reading, its field, the value with its unit) that the driver gives of these GPUs
    and that cannot be true."""
    names = list(dict.fromkeys(name for name, _, _ in said))
    values = list(dict.fromkeys(value for _, _, value in said))
    for many in (names, values):
        if len(many) > READINGS_NAMED + 1:
            many[READINGS_NAMED:] = [f"{len(many) - READINGS_NAMED} more"]
    one = len(values) == 1
    fields = {field for _, field, _ in said}
    return problem(
        f"The driver gives {'a value' if one else 'values'} for {units.listed(names)} of "
        f"{labels(gpus)} that cannot be true ({units.listed(values)}), so "
        f"{'it is' if one else 'they are'} not shown.",
        gpus,
        reading=fields.pop() if len(fields) == 1 else None,
        since=since,
        severity="warning",
    )


def power_from_elsewhere(
    doubted: str, said: str, instead: str, gpus: Sequence[GpuIdentity]
) -> Problem:
    """A driver call says a power that cannot be, and another is believed."""
    return problem(
        f"The driver says that {doubted} of {labels(gpus)} is {said}, which cannot be true, so "
        f"{instead} is shown as its power instead.",
        gpus,
        reading="power_watts",
        severity="info",
    )


def no_utilisation(gpus: Sequence[GpuIdentity], divided: bool) -> Problem:
    """GPUs of which the driver does not say how busy they are; ``divided``: into MIG instances."""
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


NO_SAMPLES = (
    "{gpus} {verb} no fine utilisation samples: the busy percentage is polled instead, and dips "
    "shorter than the interval can be missed."
)
NO_PROCESS_BUSY = "{gpus} {verb} no record of each process's share of the SMs."
NO_PROCESS_LIST = "{gpus} {verb} no list of processes under this driver."
