"""The knobs of a practice job: one table for the command line, the control file and the job."""

import argparse
from collections.abc import Mapping
from dataclasses import Field, dataclass, field, fields, replace
from itertools import groupby
from typing import Any

_SWITCH = {"1": True, "on": True, "yes": True, "0": False, "off": False, "no": False}


class KnobError(ValueError):
    """A knob cannot be set so; the message is a sentence."""


_USUAL = {"unit": "", "choices": (), "least": 0, "most": 1e6, "zero": "", "fixed": False}
"""``zero``: the word for that value. ``fixed``: not to be changed while the job runs."""


def _knob(default: Any, group: str, called: str, says: str, **more: Any) -> Any:
    """``called``: its name for a person; ``more``: what is not as usual."""
    metadata = {"group": group, "called": called, "says": says, **_USUAL, **more}
    return field(default=default, metadata=metadata)


# fmt: off
@dataclass(frozen=True, slots=True, kw_only=True)
class Knobs:
    """How a practice job trains. The defaults are those of a healthy one."""

    workers: int = _knob(2, "loading", "num_workers", "loader workers (0: the main process loads)",
                         most=256)
    transform_ms: float = _knob(2.0, "loading", "transforms", "CPU time of the transforms",
                                unit="ms per sample")
    batch: int = _knob(8, "loading", "batch_size", "batch size", unit="samples", least=1)
    sample_kib: int = _knob(4, "loading", "sample_kib", "size of a sample", unit="KiB", least=1)
    read: str = _knob("none", "loading", "reads from disk", "read each sample from disk; cold: the "
                      "page cache is made to forget it, so that every read is real; network: from "
                      "a slow HTTP server on this machine",
                      choices=("none", "cached", "cold", "network"))
    answer_ms: float = _knob(100.0, "loading", "answers after", "time until that server answers",
                             unit="ms", most=60_000)
    slow_every: int = _knob(0, "loading", "slow samples", "one in this many samples is slow",
                            zero="none")
    slow_ms: float = _knob(3000.0, "loading", "slow_ms", "CPU time of a slow one", unit="ms")
    read_kib: int = _knob(12288, "loading", "read_kib", "how much is read", unit="KiB per sample",
                          least=16)
    pin_memory: bool = _knob(True, "loading", "pin_memory",
                             "pinned memory, as DataLoader has it (not on the CPU)")
    prefetch: int = _knob(2, "loading", "prefetch", "batches that each worker makes ahead",
                          least=1, most=64)

    step_ms: float = _knob(120.0, "step", "step time", "work of the device in a step: so many "
                           "passes of the model as take this long on it; 0: one pass", unit="ms")
    model: str = _knob("mlp", "step", "model", "gru: a recurrent network, which does many small "
                       "kernels for a small batch", choices=("mlp", "gru"))
    width: int = _knob(256, "step", "width of layers", "width of the model's layers",
                       least=8, most=65536)
    pieces: int = _knob(1, "step", "parts of a step", "parts of a step, each launched by itself",
                        least=1, most=1000)
    python_ms: float = _knob(15.0, "step", "Python", "Python that launches the work",
                             unit="ms per step")
    sync: bool = _knob(False, "step", ".item() in each step", ".item() on the loss in each step")
    log: bool = _knob(False, "step", "logging over the network",
                      "send a line to a slow HTTP server in each step, and wait for its answer")
    spin_ms: float = _knob(0.0, "step", "a kernel that waits",
                           "a kernel that is on the device and only waits", unit="ms per step")

    save_every: float = _knob(0.0, "pauses", "checkpoints every", "time between checkpoints",
                              unit="s", zero="never")
    save_mib: int = _knob(500, "pauses", "save_mib", "size of a checkpoint", unit="MiB", most=65536)
    save_to: str = _knob("disk", "pauses", "checkpoints go to",
                         "network: to an HTTP server on this machine", choices=("disk", "network"))
    save_aside: bool = _knob(False, "pauses", "checkpoints in a thread",
                             "write checkpoints in a thread, beside the training")
    validate_every: float = _knob(0.0, "pauses", "validation every", "time between validations",
                                  unit="s", zero="never")
    validate_for: float = _knob(6.0, "pauses", "validate_for", "length of a validation", unit="s")

    gpu_leak_mib: float = _knob(0.0, "memory", "GPU memory kept", "device memory never freed",
                                unit="MiB per step")
    gpu_held_percent: float = _knob(0.0, "memory", "GPU memory held", "of the device's memory, "
                                    "held besides the model's", unit="%", most=97.5)
    host_leak_kib: float = _knob(0.0, "memory", "host memory kept",
                                 "host memory that workers never free", unit="KiB per sample",
                                 most=1e5)

    ranks: int = _knob(1, "ranks", "ranks", "ranks to start", least=1, most=64, fixed=True)
    slow_rank: int = _knob(-1, "ranks", "slow rank", "which one is slow (-1: none)", least=-1,
                           most=63)
    slow_loads: float = _knob(10.0, "ranks", "slow_loads", "slowdown factor of its transforms",
                              least=1, most=1000)
    slow_works: float = _knob(1.0, "ranks", "slow_works", "slowdown factor of its step", least=1,
                              most=1000)

    idle_after: float = _knob(0.0, "machine", "idle after",
                              "do nothing but hold memory from that moment on", unit="s",
                              zero="never")
    tenant: bool = _knob(False, "machine", "a second job", "a second job on the same device")
    orphans: bool = _knob(False, "machine", "orphaned workers",
                          "a job that is killed while its workers hang; off: they are ended")
# fmt: on


def parse(knob: Field[Any], text: str) -> Any:
    """The value that ``text`` stands for. Raises ``KnobError``."""
    text, meta = text.strip(), knob.metadata
    if isinstance(knob.default, bool):
        if text.lower() not in _SWITCH:
            raise KnobError(f"{knob.name} is on or off")
        return _SWITCH[text.lower()]
    if isinstance(knob.default, str):
        if text not in meta["choices"]:
            raise KnobError(f"{knob.name} is one of {', '.join(meta['choices'])}")
        return text
    kind: Any = int if isinstance(knob.default, int) else float
    try:
        value = kind(text)
    except ValueError:
        raise KnobError(f"{knob.name} is a {'whole ' * (kind is int)}number") from None
    if not meta["least"] <= value <= meta["most"]:
        raise KnobError(f"{knob.name} is between {meta['least']:g} and {meta['most']:g}")
    return value


def changed(knobs: Knobs, text: str) -> Knobs:
    """``knobs`` with the lines ``name = value`` of a control file. Raises ``KnobError``."""
    known = {knob.name: knob for knob in fields(Knobs)}
    values: dict[str, Any] = {}
    for line in text.splitlines():
        words = line.partition("#")[0].strip()
        if not words:
            continue
        name, equals, value = words.partition("=")
        if not equals:
            raise KnobError(f"write a knob as name=value, not {words[:60]!r}")
        knob = known.get(name.strip().replace("-", "_"))
        if knob is None:
            raise KnobError(f"there is no knob {name.strip()[:60]!r}")
        parsed = parse(knob, value)
        if knob.metadata["fixed"] and parsed != getattr(knobs, knob.name):
            raise KnobError(f"{knob.name} cannot be changed while the job runs")
        values[knob.name] = parsed
    return replace(knobs, **values)


def written(values: Mapping[str, Any]) -> str:
    return "".join(
        f"{name}={('on' if value else 'off') if isinstance(value, bool) else value}\n"
        for name, value in values.items()
    )


def in_words(before: Knobs, after: Knobs) -> str:
    """The knobs that differ, for somebody who does not know them: ``num_workers 1 -> 4, transforms
    30 -> 6 ms per sample``."""
    changes = []
    for knob in fields(Knobs):
        old, new = getattr(before, knob.name), getattr(after, knob.name)
        if old != new:
            (first, unit), (second, its_unit) = _shown(knob, old), _shown(knob, new)
            first += f" {unit}" if unit != its_unit else ""
            changes.append(f"{knob.metadata['called']} {first} -> {second} {its_unit}".rstrip())
    return ", ".join(changes)


def _shown(knob: Field[Any], value: Any) -> tuple[str, str]:
    """A value as a person writes it and its unit, which is empty where the value is a word."""
    if isinstance(value, bool):
        return "on" if value else "off", ""
    if value == 0 and knob.metadata["zero"]:
        return str(knob.metadata["zero"]), ""
    if knob.name == "slow_rank" and value < 0:
        return "none", ""
    return f"{value:g}" if isinstance(value, float) else str(value), knob.metadata["unit"]


def add_options(parser: argparse.ArgumentParser) -> None:
    """An option for each knob, in groups. One that is not given is not in the result."""
    for group, knobs in groupby(fields(Knobs), key=lambda knob: str(knob.metadata["group"])):
        section = parser.add_argument_group(group.capitalize())
        for knob in knobs:
            _add_option(section, knob)


def _add_option(section: Any, knob: Field[Any]) -> None:
    option, default = "--" + knob.name.replace("_", "-"), " ".join(_shown(knob, knob.default))
    says = f"{knob.metadata['says']}  [{default.rstrip()}]".replace("%", "%%")
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

    metavar = "|".join(knob.metadata["choices"]) or ("N" if isinstance(knob.default, int) else "X")
    section.add_argument(option, type=value, default=argparse.SUPPRESS, metavar=metavar, help=says)


def given(namespace: argparse.Namespace) -> dict[str, Any]:
    names = [knob.name for knob in fields(Knobs)]
    return {name: getattr(namespace, name) for name in names if hasattr(namespace, name)}
