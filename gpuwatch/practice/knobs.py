"""The knobs of a practice job: one list for the command line, the control file and the job."""

from __future__ import annotations

import argparse
import re
from collections.abc import Iterable, Mapping
from dataclasses import Field, dataclass, field, fields, replace
from typing import Any

GROUPS: Mapping[str, str] = {
    "loading": "Loading",
    "step": "The step",
    "pauses": "Checkpoints, validation, epochs",
    "memory": "Memory",
    "ranks": "Several ranks",
    "machine": "The machine",
}
"""In the order of the help."""


class KnobError(ValueError):
    """A knob cannot be set so; the message is a sentence."""


def _knob(
    default: Any,
    group: str,
    says: str,
    *,
    unit: str = "",
    choices: tuple[str, ...] = (),
    least: float = 0,
    most: float = 1e6,
    zero: str = "",
    fixed: bool = False,
    called: str = "",
) -> Any:
    """``fixed``: not to be changed while the job runs. ``unit`` is for a person, ``zero`` is what
    he calls that value, and ``called`` the knob itself, where its name does not say it."""
    metadata = {
        "group": group,
        "says": says,
        "unit": unit,
        "choices": choices,
        "least": least,
        "most": most,
        "zero": zero,
        "fixed": fixed,
        "called": called,
    }
    return field(default=default, metadata=metadata)


@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """How a practice job trains. The defaults are those of a healthy one."""

    workers: int = _knob(
        2, "loading", "loader workers (0: the main process loads)", most=256, called="num_workers"
    )
    transform_ms: float = _knob(
        2.0, "loading", "CPU time of the transforms", unit="ms a sample", called="transforms"
    )
    batch: int = _knob(8, "loading", "batch size", unit="samples", least=1, called="batch_size")
    sample_kib: int = _knob(4, "loading", "size of a sample", unit="KiB", least=1)
    read: str = _knob(
        "none",
        "loading",
        "read each sample from disk; cold: the page cache is made to forget it, so that every "
        "read is real",
        choices=("none", "cached", "cold"),
        called="reads from disk",
    )
    read_kib: int = _knob(12288, "loading", "how much is read", unit="KiB a sample", least=16)
    pin_memory: bool = _knob(
        True, "loading", "pinned memory, as DataLoader has it (not on the CPU)"
    )
    prefetch: int = _knob(2, "loading", "batches that each worker makes ahead", least=1, most=64)

    step_ms: float = _knob(
        120.0,
        "step",
        "work of the device in a step: so many passes of the model as take this long on it; 0: "
        "one pass",
        unit="ms",
        called="a step",
    )
    model: str = _knob(
        "mlp",
        "step",
        "gru: a recurrent network, which does many small kernels for a small batch",
        choices=("mlp", "gru"),
    )
    width: int = _knob(
        256, "step", "width of the model's layers", least=8, most=65536, called="width of layers"
    )
    pieces: int = _knob(
        1,
        "step",
        "parts of a step, each launched by itself",
        least=1,
        most=1000,
        called="parts of a step",
    )
    python_ms: float = _knob(
        15.0, "step", "Python that launches the work", unit="ms a step", called="Python"
    )
    sync: bool = _knob(
        False, "step", ".item() on the loss in each step", called=".item() in each step"
    )
    spin_ms: float = _knob(
        0.0,
        "step",
        "a kernel that is on the device and only waits",
        unit="ms a step",
        called="a kernel that waits",
    )

    save_every: float = _knob(
        0.0,
        "pauses",
        "time between checkpoints",
        unit="s",
        zero="never",
        called="checkpoints every",
    )
    save_mib: int = _knob(500, "pauses", "size of a checkpoint", unit="MiB", most=65536)
    save_aside: bool = _knob(
        False,
        "pauses",
        "write checkpoints in a thread, beside the training",
        called="checkpoints in a thread",
    )
    validate_every: float = _knob(
        0.0, "pauses", "time between validations", unit="s", zero="never", called="validation every"
    )
    validate_for: float = _knob(6.0, "pauses", "length of a validation", unit="s")
    epoch_steps: int = _knob(
        0, "pauses", "steps of an epoch, after which the workers start anew", zero="endless"
    )

    gpu_leak_mib: float = _knob(
        0.0, "memory", "device memory never freed", unit="MiB a step", called="GPU memory kept"
    )
    gpu_held_percent: float = _knob(
        0.0,
        "memory",
        "of the device's memory, held besides the model's",
        unit="%",
        most=97.5,
        called="GPU memory held",
    )
    host_leak_kib: float = _knob(
        0.0,
        "memory",
        "host memory that workers never free",
        unit="KiB a sample",
        most=1e5,
        called="host memory kept",
    )
    shm_percent: float = _knob(
        0.0, "memory", "of /dev/shm, filled", unit="%", most=99.0, called="/dev/shm filled"
    )

    ranks: int = _knob(1, "ranks", "ranks to start", least=1, most=64, fixed=True)
    backend: str = _knob(
        "auto",
        "ranks",
        "how they meet; auto: nccl with a GPU for each, else gloo",
        choices=("auto", "gloo", "nccl"),
        fixed=True,
    )
    slow_rank: int = _knob(
        -1, "ranks", "which one is slow (-1: none)", least=-1, most=63, called="slow rank"
    )
    slow_loads: float = _knob(10.0, "ranks", "its transforms, times as slow", least=1, most=1000)
    slow_works: float = _knob(1.0, "ranks", "its step, times as long", least=1, most=1000)

    cores: str = _knob(
        "", "machine", "cores to run on, as 0-3,8 (empty: as it was started)", called="cores"
    )
    quota_cores: float = _knob(
        0.0,
        "machine",
        "CPU quota of a cgroup of its own; can be changed if there was one at the start",
        unit="cores",
        zero="none",
        most=4096,
        called="CPU quota",
    )
    threads: int = _knob(1, "machine", "threads of PyTorch in the main process", least=1, most=1024)
    idle_after: float = _knob(
        0.0,
        "machine",
        "do nothing but hold memory from then on",
        unit="s",
        zero="never",
        called="idle after",
    )
    tenant: bool = _knob(False, "machine", "a second job on the same device", called="a second job")
    orphans: bool = _knob(
        False,
        "machine",
        "a job that is killed while its workers hang; off: they are ended",
        called="orphaned workers",
    )


def of(name: str) -> Field[Any]:
    """The knob of this name, also with dashes. Raises ``KnobError``."""
    wanted = name.strip().replace("-", "_")
    for knob in fields(Knobs):
        if knob.name == wanted:
            return knob
    raise KnobError(f"there is no knob {name.strip()[:60]!r}")


def parse(knob: Field[Any], text: str) -> Any:
    """The value that ``text`` stands for. Raises ``KnobError``."""
    text, meta = text.strip(), knob.metadata
    if isinstance(knob.default, bool):
        words = {"1": True, "on": True, "yes": True, "0": False, "off": False, "no": False}
        if text.lower() not in words:
            raise KnobError(f"{knob.name} is on or off")
        return words[text.lower()]
    if isinstance(knob.default, str):
        if meta["choices"] and text not in meta["choices"]:
            raise KnobError(f"{knob.name} is one of {', '.join(meta['choices'])}")
        if knob.name == "cores":
            parse_cores(text)
        return text
    kind: Any = int if isinstance(knob.default, int) else float
    try:
        value = kind(text)
    except ValueError:
        raise KnobError(f"{knob.name} is a {'whole ' * (kind is int)}number") from None
    if not meta["least"] <= value <= meta["most"]:
        raise KnobError(f"{knob.name} is between {meta['least']:g} and {meta['most']:g}")
    return value


def parse_cores(text: str) -> frozenset[int]:
    """The cores of ``0-3,8``. Raises ``KnobError``."""
    cores: set[int] = set()
    for part in filter(None, text.split(",")):
        found = re.fullmatch(r"\s*(\d{1,4})(?:-(\d{1,4}))?\s*", part, re.ASCII)
        if found is None or int(found[2] or found[1]) < int(found[1]):
            raise KnobError("cores are written as 0-3,8")
        cores.update(range(int(found[1]), int(found[2] or found[1]) + 1))
    return frozenset(cores)


def changed(knobs: Knobs, text: str) -> Knobs:
    """``knobs`` with the lines ``name = value`` of a control file. Raises ``KnobError``."""
    values: dict[str, Any] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].strip()
        if not words:
            continue
        name, equals, value = words.partition("=")
        if not equals:
            raise KnobError(f"write a knob as name=value, not {words[:60]!r}")
        knob = of(name)
        parsed = parse(knob, value)
        if knob.metadata["fixed"] and parsed != getattr(knobs, knob.name):
            raise KnobError(f"{knob.name} cannot be changed while the job runs")
        values[knob.name] = parsed
    return replace(knobs, **values)


def told(name: str, value: Any) -> str:
    """A value as a person writes it."""
    text, unit = _told(of(name), value)
    return f"{text} {unit}" if unit else text


def _told(knob: Field[Any], value: Any) -> tuple[str, str]:
    """With the unit apart, empty where the value is a word."""
    if isinstance(value, bool):
        return "on" if value else "off", ""
    if value == "":
        return "any", ""
    if value == 0 and knob.metadata["zero"]:
        return str(knob.metadata["zero"]), ""
    if knob.name == "slow_rank" and value < 0:
        return "none", ""
    return f"{value:g}" if isinstance(value, float) else str(value), knob.metadata["unit"]


def written(values: Mapping[str, Any]) -> str:
    """The lines of a control file."""
    return "".join(
        f"{name}={('on' if value else 'off') if isinstance(value, bool) else value}\n"
        for name, value in values.items()
    )


def differences(before: Knobs, after: Knobs) -> list[str]:
    """``workers: 1 -> 4`` for each that differs."""
    return [
        f"{knob.name}: {told(knob.name, old)} -> {told(knob.name, new)}"
        for knob in fields(Knobs)
        if (old := getattr(before, knob.name)) != (new := getattr(after, knob.name))
    ]


def in_words(before: Knobs, after: Knobs) -> str:
    """The same for somebody who does not know the knobs: ``num_workers 1 -> 4, transforms 30 -> 6
    ms a sample``."""
    return ", ".join(
        [
            _in_words(knob, old, new)
            for knob in fields(Knobs)
            if (old := getattr(before, knob.name)) != (new := getattr(after, knob.name))
        ]
    )


def _in_words(knob: Field[Any], old: Any, new: Any) -> str:
    (first, unit), (second, other) = _told(knob, old), _told(knob, new)
    begin = f"{first} {unit}" if unit and unit != other else first
    end = f"{second} {other}" if other else second
    return f"{knob.metadata['called'] or knob.name} {begin} -> {end}"


def add_options(parser: argparse.ArgumentParser) -> None:
    """An option for each knob, in groups. One that is not given is not in the result."""
    for group, title in GROUPS.items():
        section = parser.add_argument_group(title)
        for knob in fields(Knobs):
            if knob.metadata["group"] == group:
                _add_option(section, knob)


def _add_option(section: Any, knob: Field[Any]) -> None:
    meta, option = knob.metadata, "--" + knob.name.replace("_", "-")
    default = told(knob.name, knob.default)
    says = f"{meta['says']}  [{default}]".replace("%", "%%")
    if isinstance(knob.default, bool):
        section.add_argument(
            option, action=argparse.BooleanOptionalAction, default=argparse.SUPPRESS, help=says
        )
        return

    def value(text: str) -> Any:
        try:
            return parse(knob, text)
        except KnobError as error:
            raise argparse.ArgumentTypeError(str(error)) from None

    if meta["choices"]:
        metavar = "|".join(meta["choices"])
    else:
        metavar = {int: "N", float: "X"}.get(type(knob.default), "LIST")
    section.add_argument(option, type=value, default=argparse.SUPPRESS, metavar=metavar, help=says)


def given(namespace: argparse.Namespace) -> dict[str, Any]:
    """Those that were given on the command line."""
    names: Iterable[str] = (knob.name for knob in fields(Knobs))
    return {name: getattr(namespace, name) for name in names if hasattr(namespace, name)}
