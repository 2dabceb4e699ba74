"""The knobs of a DataLoader, one way to set them, and what one measurement of it found.

These records are what gpuwatch and its measuring processes send each other, and parts of the JSON.
"""

from __future__ import annotations

from typing import Any, NamedTuple

from msgspec import Struct, structs

DEFAULT_PREFETCH = 2
"""DataLoader's own, where there are workers and nothing is said."""


class Knob(NamedTuple):
    """``plain``: its value where nothing is said, which a line to paste need not repeat."""

    name: str
    title: str
    """Of its column."""
    plain: Any
    values: tuple[int, int] | None
    """The least and the most that can be asked for; ``None``: yes or no."""
    help: str


KNOBS = (
    Knob("batch_size", "batch", None, (1, 10**8), "Samples in a batch; needed where TARGET is a "
         "Dataset.  [default: the loader's own]"),
    Knob("num_workers", "workers", 0, (0, 512), "Try these.  [default: searched for]"),
    Knob("prefetch_factor", "prefetch", 2, (1, 1024), "Try these.  [default: 2,4,8]"),
    Knob("pin_memory", "pinned", False, None, "Only with a GPU.  [default: no,yes]"),
    Knob("persistent_workers", "persistent", False, None, "[default: no,yes]"),
)  # fmt: skip
"""In the order in which they are shown, and in which the search tries them."""
WORKERS = "num_workers"
EVERYTHING = "everything"
"""In the place of a knob: what a grid compares."""


class Setting(Struct, frozen=True, kw_only=True):
    """Values of the knobs. ``batch_size`` ``None``: the loader's own way to make batches.

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
            return structs.replace(self, prefetch_factor=None, persistent_workers=False)
        if self.prefetch_factor is None:
            return structs.replace(self, prefetch_factor=DEFAULT_PREFETCH)
        return self

    def with_knobs(self, **values: Any) -> Setting:
        return structs.replace(self, **values).valid()

    def as_dict(self) -> dict[str, Any]:
        return structs.asdict(self)


NAMES = Setting.__struct_fields__
"""Of the knobs, in the order of the JSON and of the line to paste."""


class Visit(Struct, frozen=True, kw_only=True):
    """One measurement of one setting in a process of its own.

    Bytes and cores are of the measuring process with all its workers, within the window whose
    ``samples`` and ``seconds`` are given; ``None``: not read. ``cold``: a good part of what it
    read came from the disk. Shares are 0..1.
    """

    round: int
    samples: int
    batches: int
    seconds: float
    first_batch_seconds: float
    cores_used: float | None = None
    other_cores_used: float | None = None
    """Of everything else on the machine at the time."""
    workers_memory_bytes: int | None = None
    main_memory_bytes: int | None = None
    disk_read_bytes: int | None = None
    read_bytes: int | None = None
    """By system calls, from the disk or from memory."""
    shm_bytes: int | None = None
    """At most, while it ran, and beyond what was used before."""
    cold: bool = False
    whole_epochs: bool = False
    epoch_samples: int | None = None
    """Of an epoch that was seen from its start to its end."""
    restart_seconds: float | None = None
    """From asking for a second epoch to its first batch."""
    data_wait_share: float | None = None
    """With a train step: of the time, what it spent waiting for batches."""
    gpu_busy_percent: float | None = None

    @property
    def samples_per_second(self) -> float:
        return self.samples / self.seconds

    @property
    def disk_read_bytes_per_second(self) -> float | None:
        return None if self.disk_read_bytes is None else self.disk_read_bytes / self.seconds


class Failure(Struct, frozen=True, kw_only=True):
    """Why something could not be measured: a sentence for a person.

    ``code`` is one word for programs; ``line`` the user's own, as ``data.py:12``; ``output`` the
    last lines that the user's code printed.
    """

    code: str
    sentence: str
    line: str | None = None
    output: tuple[str, ...] = ()


class Description(Struct, frozen=True, kw_only=True):
    """A loader: enough to choose settings and to write the line to paste.

    ``base``: the setting as the user has it. ``fixed``: why a knob cannot be varied. ``takes``:
    parameters of the user's own function that are knobs, with their ``defaults``.
    """

    base: Setting
    fixed: dict[str, str]
    takes: tuple[str, ...]
    defaults: dict[str, bool | int | None]
    is_dataset: bool
    iterable: bool
    dataset: str
    samples: int | None
    start_method: str
    accelerator: str | None
    line_name: str
    line_arguments: tuple[tuple[str, str], ...]
    torch: str
