"""The memory of a train step, as it is sent, reported and written as JSON."""

from msgspec import Struct, structs

AS_IS = "as is"
"""The step as its author wrote it; any other precision is an autocast type around it."""


class Gpu(Struct, frozen=True, kw_only=True):
    """A CUDA device as torch sees it."""

    name: str
    total_bytes: int
    bfloat16: bool


class MemoryPoint(Struct, frozen=True, kw_only=True):
    """A few steps at one batch size in a process of their own.

    ``peak_bytes`` is what has to fit: on CUDA what torch's allocator held at most (reserved), on
    the CPU the largest resident size of the process. ``available_bytes`` is what ``peak_bytes``
    could have grown to then: what others hold, and what the process needs beside it, is taken
    off. ``allocated_bytes``: the most that tensors took at once. ``process_bytes`` and
    ``device_used_bytes``: what NVML says of the process and of the device after the steps.
    """

    batch_size: int
    precision: str
    peak_bytes: int
    available_bytes: int
    total_bytes: int
    allocated_bytes: int | None = None
    process_bytes: int | None = None
    device_used_bytes: int | None = None
    seconds_per_step: float | None = None
    samples_per_second: float | None = None

    def __post_init__(self) -> None:
        if self.seconds_per_step is not None and self.seconds_per_step > 0:
            rate = self.batch_size / self.seconds_per_step
            structs.force_setattr(self, "samples_per_second", rate)


class LineFit(Struct, frozen=True, kw_only=True):
    """A line through (batch size, bytes). Errors are standard errors; ``None``: two points.

    ``left_out``: batch sizes on the floor below the line, ``floor_bytes`` their largest memory.
    ``spread_bytes``: the standard deviation of what was measured from the line. ``quality``:
    ``fits``, ``roughly`` or ``not``, by the largest deviation as a share of the memory there.
    """

    fixed_bytes: float
    per_sample_bytes: float
    fixed_error_bytes: float | None
    per_sample_error_bytes: float | None
    r_squared: float | None
    sizes: tuple[int, ...]
    left_out: tuple[int, ...]
    floor_bytes: float | None
    spread_bytes: float | None
    quality: str
    largest_deviation_bytes: float
    largest_deviation_share: float
    largest_deviation_at: int

    def at(self, batch_size: float) -> float:
        """Bytes on the line, not below the floor."""
        line = self.fixed_bytes + self.per_sample_bytes * batch_size
        return line if self.floor_bytes is None else max(line, self.floor_bytes)


class Prediction(Struct, frozen=True, kw_only=True):
    """The largest batch size by the line.

    ``batch_size`` leaves ``margin_bytes`` of the ``available_bytes`` free, ``without_margin``
    would use them up. ``margin_is_interval``: the prediction is so uncertain that its interval
    is the margin. ``measured_to``: the largest batch size that the line comes from.
    """

    batch_size: int
    margin_bytes: float
    margin_is_interval: bool
    available_bytes: int
    without_margin: int
    measured_to: int


class PrecisionResult(Struct, frozen=True, kw_only=True):
    """One precision. ``largest_batch_size``: the largest that was seen to fit with what is to be
    left free. ``too_large``: the smallest that was seen not to, ``ran_out_at`` the smallest that
    ran out of memory. ``first_prediction``: that of the line before the search for the largest
    began. ``stopped``: why there is no more, a sentence."""

    precision: str
    points: tuple[MemoryPoint, ...] = ()
    fit: LineFit | None = None
    prediction: Prediction | None = None
    first_prediction: int | None = None
    largest_batch_size: int | None = None
    too_large: int | None = None
    ran_out_at: int | None = None
    stopped: str | None = None


class Subject(Struct, frozen=True, kw_only=True):
    """The step that was measured, and where. ``device``: ``cuda:1`` or ``cpu``. ``limit_bytes``:
    memory the device was taken to have, less than it has."""

    step: str
    loader: str | None
    device: str
    device_name: str
    torch_version: str
    limit_bytes: int | None = None

    @property
    def is_gpu(self) -> bool:
        return self.device != "cpu"


class MemoryReport(Struct, frozen=True, kw_only=True):
    """Everything measured, the step as it is first. ``ended``: why it ended before it was done
    (``interrupted``, ``budget``)."""

    subject: Subject
    margin_share: float
    results: tuple[PrecisionResult, ...]
    seconds: float
    ended: str | None = None
