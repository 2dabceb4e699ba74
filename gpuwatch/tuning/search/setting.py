"""One way to set a DataLoader up, and what one measurement of it told.

Standard library only: the process that a person types at and the measuring ones share it.
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import asdict, dataclass, fields, replace
from typing import Any

KNOBS = ("num_workers", "pin_memory", "prefetch_factor", "persistent_workers", "batch_size")
DEFAULT_PREFETCH = 2
"""What DataLoader takes where there are workers and nothing is said."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Setting:
    """The knobs. ``batch_size`` ``None``: the loader's own way to make batches.

    ``prefetch_factor`` is ``None`` and ``persistent_workers`` false without workers, as
    DataLoader wants it: ``valid()`` gives it so.
    """

    num_workers: int = 0
    pin_memory: bool = False
    prefetch_factor: int | None = None
    persistent_workers: bool = False
    batch_size: int | None = None

    def valid(self) -> Setting:
        if self.num_workers == 0:
            return replace(self, prefetch_factor=None, persistent_workers=False)
        if self.prefetch_factor is None:
            return replace(self, prefetch_factor=DEFAULT_PREFETCH)
        return self

    def with_knob(self, knob: str, value: Any) -> Setting:
        return replace(self, **{knob: value}).valid()

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Setting:
        return cls(**{knob: values[knob] for knob in KNOBS})

    def differences(self, other: Setting) -> str:
        """``num_workers=4, prefetch_factor=8``: what is not as in ``other``."""
        mine, its = self.as_dict(), other.as_dict()
        return ", ".join(f"{knob}={mine[knob]}" for knob in KNOBS if mine[knob] != its[knob])


@dataclass(frozen=True, slots=True, kw_only=True)
class Visit:
    """One measurement of one setting in a process of its own.

    Bytes and cores are of the measuring process with all its workers, within the window whose
    ``samples`` and ``seconds`` are given; ``None``: not read. ``cold``: a good part of what it
    read came from the disk. ``step``: what ``--step`` adds (shares 0..1).
    """

    round: int
    samples: int
    batches: int
    seconds: float
    first_batch_seconds: float
    cores_used: float | None = None
    other_cores_used: float | None = None
    """What everything else on the machine used at the time."""
    workers_pss_bytes: int | None = None
    main_pss_bytes: int | None = None
    disk_read_bytes: int | None = None
    read_bytes: int | None = None
    """By system calls, from the disk or from memory."""
    shm_used_bytes: int | None = None
    """At most, while it ran, and beyond what was used before."""
    cold: bool = False
    whole_epochs: bool = False
    epoch_batches: int | None = None
    """Of an epoch that was seen from its start to its end."""
    epoch_samples: int | None = None
    epoch_seconds: float | None = None
    restart_seconds: float | None = None
    """From asking for a second epoch to its first batch."""
    data_wait_share: float | None = None
    gpu_busy_percent: float | None = None
    device_idle_share: float | None = None

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds

    @property
    def disk_bytes_per_second(self) -> float | None:
        return None if self.disk_read_bytes is None else self.disk_read_bytes / self.seconds

    def as_dict(self) -> dict[str, Any]:
        return asdict(self)

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Visit:
        return cls(**{one.name: values[one.name] for one in fields(cls)})


@dataclass(frozen=True, slots=True, kw_only=True)
class Failure:
    """Why a setting could not be measured: a sentence for a person.

    ``code`` is one word for programs; ``line`` the user's own, as ``data.py:12``; ``output`` the
    last lines that the user's code printed.
    """

    code: str
    sentence: str
    line: str | None = None
    output: tuple[str, ...] = ()
