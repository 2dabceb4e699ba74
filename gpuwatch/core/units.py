"""Numbers to text, in one place, so that a width or a prefix is decided once.

Every function gives ``"-"`` for ``None`` and keeps its width for the values it is meant for,
so that nothing on a screen jumps. Memory is in binary units written as nvidia-smi, htop and
nvtop write them: ``G`` is 2**30 bytes.
"""

from __future__ import annotations

import math
import re
import signal
import time
from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from gpuwatch.core.model import Gpu, GpuIdentity

UNKNOWN = "-"

_PREFIXES = ("B", "K", "M", "G", "T", "P")


def percent(value: float | None) -> str:
    """Return ``47%``; more than 100 as it is (a process can use several cores)."""
    return UNKNOWN if value is None else f"{value:.0f}%"


def fine_percent(value: float) -> str:
    """Return ``4.2%``, ``42%``: below ten percent another digit says something."""
    return f"{value:.{1 if abs(value) < 9.95 and round(value, 1) % 1 else 0}f}%"


def size(value: float | None, digits: int = 1) -> str:
    """Return bytes in at most five characters: ``512B``, ``9.8M``, ``139.8G``, ``1.5T``; below 100
    with so many ``digits``."""
    if value is None:
        return UNKNOWN
    amount, prefix = _with_prefix(value)
    if prefix == "B" or abs(amount) >= 999.5:
        # A slope of nothing is not written -0.
        return f"{round(amount)}{prefix}"
    return f"{amount:.{digits if abs(amount) < 99.995 else 1}f}{prefix}"


def _with_prefix(value: float) -> tuple[float, str]:
    amount, place = float(value), 0
    # 999.95 would round to "1000.0": the next prefix reads better and keeps the width.
    while abs(amount) >= 999.5 and place < len(_PREFIXES) - 1:
        amount, place = amount / 1024, place + 1
    return amount, _PREFIXES[place]


def size_of(used: float | None, total: float | None) -> str:
    """Return ``31.2/139.8G``: both in the unit of the total, to be compared at a glance; but
    ``41G/2.0T`` rather than hundredths of a terabyte."""
    if total is None:
        return size(used)
    text = size(total)
    unit = text[-1]
    scale = 1024 ** _PREFIXES.index(unit)
    if used is None:
        return f"{UNKNOWN}/{text}"
    if unit in "TP" and 0 < used < 0.97 * scale:
        amount, prefix = _with_prefix(used)
        return f"{amount:.{1 if amount < 9.95 else 0}f}{prefix}/{text}"
    return f"{used / scale:.{0 if unit == 'B' else 1}f}/{text}"


def gpu_memory(gpu: Gpu) -> str:
    """Return ``31.2/139.8G``, ``9.8G by processes``."""
    used = gpu.reading.memory_used_bytes
    if gpu.reading.memory_used_is_process_sum:
        return f"{size(used)} by processes"
    return size_of(used, gpu.identity.memory_total_bytes)


def rate(bytes_per_second: float | None) -> str:
    """Return ``1.2G/s``."""
    return UNKNOWN if bytes_per_second is None else f"{size(bytes_per_second)}/s"


def samples(per_second: float | None) -> str:
    """Return samples (or steps) a second in at most five characters, three digits or more of them:
    ``0.53``, ``57.3``, ``512``, ``12345``, ``123k``."""
    if per_second is None:
        return UNKNOWN
    if per_second < 99.95:
        return f"{per_second:.{2 if per_second < 9.995 else 1}f}"
    if per_second < 99_999.5:
        return f"{per_second:.0f}"
    thousands = per_second / 1000
    return f"{thousands:.0f}k" if thousands < 9999.5 else f"{thousands / 1000:.0f}M"


def share(value: float | None) -> str:
    """Return a share of 1 as ``43%``."""
    return UNKNOWN if value is None else percent(100.0 * value)


def plural(number: int, noun: str) -> str:
    """Return ``1 snapshot``, ``1,204 snapshots``, ``2 processes``."""
    ending = "" if number == 1 else "es" if noun.endswith("s") else "s"
    return f"{number:,} {noun}{ending}"


def count(value: int | None) -> str:
    return UNKNOWN if value is None else str(value)


def watts(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}W"


def energy(joules: float | None) -> str:
    """Return ``0.10Wh``, ``38.2Wh``, ``1.24kWh``: one unit, so that two can be compared."""
    if joules is None:
        return UNKNOWN
    hours = joules / 3600
    if hours < 0.995:
        return f"{hours:.2f}Wh"
    # 999.5 would round to "1000Wh".
    if hours >= 999.5:
        return f"{hours / 1000:.2f}kWh"
    return f"{hours:.1f}Wh" if hours < 99.95 else f"{hours:.0f}Wh"


def celsius(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}C"


def megahertz(value: float | None) -> str:
    return UNKNOWN if value is None else f"{value:.0f}MHz"


def clock(unix_seconds: float) -> str:
    """Return ``22:30:00``, in local time."""
    return time.strftime("%H:%M:%S", time.localtime(unix_seconds))


def age(seconds: float | None) -> str:
    """Return whole seconds in at most six characters, what is nearest to an hour or more to the
    nearest minute, from a day on to the nearest hour: ``42s``, ``3m07``, ``5h12``, ``3d04h``."""
    if seconds is None:
        return UNKNOWN
    # Forty readings that are each a hair early are 40 seconds, not 39.
    whole = max(0, int(seconds + 0.05))
    if whole < 60:
        return f"{whole}s"
    if whole < 3570:
        return f"{whole // 60}m{whole % 60:02d}"
    minutes = (whole + 30) // 60
    if minutes < 1440:
        return f"{minutes // 60}h{minutes % 60:02d}"
    hours = (whole + 1800) // 3600
    return f"{hours // 24}d{hours % 24:02d}h" if hours < 2400 else f"{hours // 24}d"


def duration(seconds: float | None) -> str:
    """Return how long one thing took, in three digits: ``12.3 ms``, ``1.2 s``."""
    if seconds is None:
        return UNKNOWN
    if seconds < 0.9995:
        return f"{1000 * seconds:.3g} ms"
    return f"{seconds:.3g} s" if seconds < 99.95 else age(seconds)


def interval(seconds: float) -> str:
    """Return ``0.5s``, ``1s``, ``10s``: a refresh interval without needless digits."""
    return f"{seconds:g}s"


def gpu_label(gpu: Gpu) -> str:
    """Return ``0``; ``0.3`` for MIG instance 3 of GPU 0."""
    identity = gpu.identity
    instance = "" if identity.mig_instance is None else f".{identity.mig_instance}"
    return f"{identity.index}{instance}"


def ranges(labels: Iterable[str]) -> str:
    """Return labels of GPUs in their order, three and more in a row as one: ``0-3,5``; ``-`` for
    none."""
    runs: list[list[str]] = []
    for label in labels:
        last = runs[-1][-1] if runs else ""
        if last.isdigit() and label.isdigit() and int(label) == int(last) + 1:
            runs[-1].append(label)
        else:
            runs.append([label])
    parts = [",".join(run) if len(run) < 3 else f"{run[0]}-{run[-1]}" for run in runs]
    return ",".join(parts) or UNKNOWN


def round_marks(start: float, seconds: float, least: float) -> tuple[int, list[float]]:
    """Return the shortest round step of at least so many seconds, and its multiples in a time."""
    step = next((one for one in _STEPS if one >= least), _DAY * -(-int(least) // _DAY))
    first = -(-start // step) * step
    count = int((start + seconds - first) // step) + 1
    return step, [first + number * step for number in range(count)]


_DAY = 86400
_STEPS = (
    *(1, 2, 5, 10, 15, 20, 30, 60, 120, 300, 600, 900, 1200, 1800),
    *(3600, 7200, 10800, 14400, 21600, 43200),
)


def listed(words: Sequence[str], last: str = "and") -> str:
    """Return ``a``, ``a and b``, ``a, b and c``."""
    return "".join(words) if len(words) < 2 else f"{', '.join(words[:-1])} {last} {words[-1]}"


def gpus_called(numbers: Sequence[str]) -> str:
    """Return ``GPU 3``, ``GPUs 0 and 2``, ``GPUs 0, 1 and 4``, ``GPUs 0 to 7``."""
    runs = ranges(numbers).split(",") if numbers else []
    parts = [run.replace("-", " to ") for run in runs]
    return f"GPU{'' if len(numbers) == 1 else 's'} {listed(parts)}"


def gpus_named(gpus: Iterable[GpuIdentity]) -> str:
    """Return the GPUs as ``gpus_called`` does; a MIG instance is ``GPU 0 (MIG 3)``."""
    return gpus_called(
        [
            f"{gpu.index}{'' if gpu.mig_instance is None else f' (MIG {gpu.mig_instance})'}"
            for gpu in gpus
        ]
    )


def gpu_time(seconds: float | None) -> str:
    """Return ``1 GPU-second``, ``42 GPU-seconds``, ``13 GPU-minutes``, ``4.7 GPU-hours``."""
    if seconds is None or not math.isfinite(seconds):
        return UNKNOWN
    if round(seconds) == 1:
        return "1 GPU-second"
    if seconds < 7200:
        return f"{seconds:.0f} GPU-seconds" if seconds < 600 else f"{seconds / 60:.0f} GPU-minutes"
    return f"{seconds / 3600:.1f} GPU-hours"


PRICE_MOST = 10_000.0
"""Highest price of a GPU-hour that is taken for one."""


def is_price(value: object) -> bool:
    """Whether this is a price of a GPU-hour: a number, and not beyond any."""
    number = isinstance(value, int | float) and not isinstance(value, bool)
    return number and 0.0 <= float(value) <= PRICE_MOST  # type: ignore[arg-type]


def worth(gpu_seconds: float, price_per_gpu_hour: float | None, joules: float | None) -> str:
    """Return ``, 11.75 at 2.5 a GPU-hour`` at a price, ``, 38.2Wh`` without one; empty where
    neither is known, or it is next to nothing."""
    if price_per_gpu_hour is not None:
        money = gpu_seconds / 3600.0 * price_per_gpu_hour
        return f", {money:,.2f} at {price_per_gpu_hour:g} a GPU-hour" if money >= 0.005 else ""
    return f", {energy(joules)}" if joules is not None and joules >= 3600.0 else ""


def exit_words(code: int) -> str:
    """Return ``exit code 3``, ``ended by SIGKILL``."""
    known = -code in {one.value for one in signal.Signals}
    name = signal.Signals(-code).name if known else f"signal {-code}"
    return f"exit code {code}" if code >= 0 else f"ended by {name}"


def quantity(value: float | str | bool | None, unit: str | None) -> str:
    """Return a reading with its unit: ``47%``, ``2.9G/s``, ``88 C``, ``yes``; ``-`` where it was
    not read."""
    if value is None:
        return UNKNOWN
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, str) or unit is None:
        return value if isinstance(value, str) else _number(value)
    if unit in _WRITERS:
        return _WRITERS[unit](value)
    if unit.startswith("%"):
        return f"{fine_percent(value)}{unit[1:]}"
    return f"{_number(value)} {unit}"


_WRITERS: dict[str, Callable[[float], str]] = {"bytes": size, "bytes/s": rate}


def _number(value: float) -> str:
    return f"{value:.0f}" if abs(value) >= 100 or value % 1 == 0 else f"{value:.3g}"


_SECONDS = {"s": 1.0, "m": 60.0, "min": 60.0, "h": 3600.0, "d": 86400.0}
_PART = r"\s*(\d{1,6}(?:\.\d{0,6})?|\.\d{1,6})\s*(s|min|m|h|d)\s*"


def seconds_in(text: str) -> float | None:
    """Return the seconds in ``90``, ``90s``, ``15m``, ``1h30m``, ``2d``; ``None`` for what is none
    of these."""
    text = f"{text}s" if re.fullmatch(r"\s*[\d.]+\s*", text, re.ASCII) else text
    if re.fullmatch(f"(?:{_PART}){{1,4}}", text, re.ASCII) is None:
        return None
    return sum(float(number) * _SECONDS[unit] for number, unit in re.findall(_PART, text))


def gpu_name(name: str) -> str:
    """Shorten a GPU's name by maker and family, which every row would repeat."""
    for word in ("NVIDIA ", "GeForce ", "Graphics Device ", "Tesla ", "Quadro "):
        name = name.removeprefix(word)
    return name
