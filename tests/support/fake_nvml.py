"""A simulated NVML, seen from a test: make a machine with GPUs, change it while it is watched.

    fake = FakeNvml.create(tmp_path, gpus=8, preset="h200")
    subprocess.run([...], env=fake.env())            # any NVML program, in its own process
    with fake.in_this_process():                     # or pynvml here
        pynvml.nvmlInit()
    fake.gpu[0].set(utilization=47, power_mw=312_000)
    fake.gpu[1].waveform("square", period_seconds=1.0, level_percent=80)
    fake.gpu[0].processes = [GpuProcess(pid=4242, used_bytes=3 << 30, sm_percent=20)]
    fake.fault("nvmlDeviceGetFanSpeed", "NOT_SUPPORTED", gpu=0)
    fake.calls("nvmlDeviceGetUtilizationRates")

The library is compiled C (``fake_nvml_library/``); it and this module share one memory-mapped
control file, whose layout ``state.h`` defines, so what is set here is what the next call answers,
in whichever process that call is made. Values keep NVML's own units, which the names say.
"""

from __future__ import annotations

import contextlib
import ctypes
import mmap
import os
import time
from collections.abc import Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, Literal

import pynvml

from tests.support.fake_nvml_build import DRIVERS, OLD_DRIVER, NoCompilerError, build
from tests.support.fake_nvml_layout import CONSTANTS, FUNCTIONS, State
from tests.support.fake_nvml_presets import (
    ALL_ONES_32,
    ALL_ONES_64,
    PRESETS,
    UNSUPPORTED,
    gpu_values,
)

__all__ = [
    "ALL_ONES_32", "ALL_ONES_64", "DRIVERS", "OLD_DRIVER", "PRESETS", "FakeGpu", "FakeNvml",
    "GpuProcess", "MigInstance", "NoCompilerError", "create_or_skip", "writing",
]  # fmt: skip

STATE_VARIABLE = "FAKE_NVML_STATE"
PCIE_DELAY_SECONDS = 0.020
"""How long a real driver takes to measure PCIe throughput."""

ERRORS = {
    name.removeprefix("NVML_").removeprefix("ERROR_"): value
    for name, value in vars(pynvml).items()
    if name.startswith("NVML_ERROR_") or name == "NVML_SUCCESS"
}

UTILIZATION_SAMPLES = 1
"""``nvmlSamplingType_t``."""

INIT_FUNCTIONS = ("nvmlInit", "nvmlInit_v2", "nvmlInitWithFlags")

Waveform = Literal["steady", "square", "flicker", "virtual"]
FLICKER_PERCENTS = [0, 50, 80, 99]
Answer = Literal["truth", "empty", "garbage", "garbage count"]


def _code(what: str, name: str) -> int:
    """Of a name here in the library's header."""
    return CONSTANTS[f"FAKE_{what}_{name.upper().replace(' ', '_')}"]


@dataclass(frozen=True, kw_only=True)
class GpuProcess:
    """A process as the driver lists it.

    ``used_bytes`` ``None`` is what the driver calls not available (all ones). ``sm_percent``
    ``None`` means that the driver has no utilisation sample of it (it idles); ``"share"`` gives
    it an equal share of what the GPU does. ``sample_at_us`` fixes the sample's time stamp (a
    stale one, say); 0 is the newest.
    """

    pid: int
    used_bytes: int | None = 1 << 30
    kinds: tuple[str, ...] = ("compute",)
    sm_percent: int | Literal["share"] | None = None
    sample_at_us: int = 0
    gpu_instance: int | None = None
    compute_instance: int | None = None


@dataclass(frozen=True, kw_only=True)
class MigInstance:
    """One MIG instance of a card."""

    uuid: str
    name: str = "NVIDIA H200 MIG 1g.18gb"
    gpu_instance: int = 7
    compute_instance: int = 0
    memory_total_bytes: int = 18 << 30
    memory_used_bytes: int = 0


def _assign(structure: Any, name: str, value: Any) -> None:
    """Set one member, taking text as UTF-8, sequences into arrays and whole numbers as they are."""
    current = getattr(structure, name)
    if isinstance(value, str):
        value = value.encode()
    if isinstance(current, ctypes.Array):
        for index, item in enumerate(value):
            current[index] = item
    else:
        setattr(structure, name, value)


@contextlib.contextmanager
def writing(structure: Any, sequence: str) -> Iterator[None]:
    """Marks a list as being written, so that the library reads it whole or waits."""
    setattr(structure, sequence, getattr(structure, sequence) + 1)
    try:
        yield
    finally:
        setattr(structure, sequence, getattr(structure, sequence) + 1)


class FakeGpu:
    """One simulated GPU. ``set`` takes the members of ``fake_gpu_t`` in ``state.h`` by name."""

    def __init__(self, state: Any, index: int) -> None:
        self.index = index
        self._gpu = state.gpus[index]
        self._processes: list[GpuProcess] = []

    def set(self, **values: Any) -> None:
        """Set members by name. ``power_mw`` alone also sets the instant reading."""
        if "power_mw" in values:
            values.setdefault("power_instant_mw", values["power_mw"])
        for name, value in values.items():
            if not hasattr(self._gpu, name):
                raise AttributeError(f"a simulated GPU has no {name!r}")
            _assign(self._gpu, name, value)

    def get(self, name: str) -> Any:
        """A member as set: text as bytes, arrays as lists."""
        value = getattr(self._gpu, name)
        return list(value) if isinstance(value, ctypes.Array) else value

    def waveform(
        self,
        kind: Waveform,
        *,
        level_percent: int = 99,
        period_seconds: float = 4.0,
        phase_seconds: float = 0.0,
    ) -> None:
        """Let the load move by itself, and power, heat, clocks, traffic and energy with it.

        ``steady`` holds ``level_percent``; ``square`` is that for half of each period and 0 for the
        rest; ``flicker`` goes through ``FLICKER_PERCENTS`` once a period; ``virtual`` follows what
        jobs mark through ``virtual_gpu``. All are functions of the clock alone. The memory,
        encoder, decoder, PCIe and NVLink rates and the GPM activities set on the GPU are their
        values at full load.
        """
        now_us = time.time_ns() // 1000
        self.set(
            level_percent=level_percent,
            period_us=round(period_seconds * 1e6),
            phase_us=round(phase_seconds * 1e6),
            step_percent=FLICKER_PERCENTS,
            step_count=len(FLICKER_PERCENTS),
            energy_since_us=self.get("energy_since_us") or now_us,
            nvlink_since_us=self.get("nvlink_since_us") or now_us,
            waveform=_code("WAVEFORM", "steps" if kind == "flicker" else kind),
        )

    @property
    def processes(self) -> list[GpuProcess]:
        """Those last assigned are what the driver lists; assigning replaces them at once."""
        return self._processes

    @processes.setter
    def processes(self, entries: Iterable[GpuProcess]) -> None:
        listed = self._processes = list(entries)
        if len(listed) > CONSTANTS["FAKE_MAX_PROCESSES"]:
            raise ValueError(f"a simulated GPU holds {CONSTANTS['FAKE_MAX_PROCESSES']} processes")
        with writing(self._gpu, "process_sequence"):
            for index, entry in enumerate(listed):
                _fill_process(self._gpu.processes[index], entry)
            self._gpu.process_count = len(listed)

    def set_samples(self, samples: Sequence[tuple[int, float]]) -> None:
        """Answer exactly these (time stamp in µs, percent) utilisation samples."""
        with writing(self._gpu, "samples_sequence"):
            self._gpu.samples_set[UTILIZATION_SAMPLES] = True
            for index, (at_us, value) in enumerate(samples):
                self._gpu.samples[UTILIZATION_SAMPLES][index].at_us = at_us
                self._gpu.samples[UTILIZATION_SAMPLES][index].value = value
            self._gpu.sample_count[UTILIZATION_SAMPLES] = len(samples)

    def set_mig(self, instances: Sequence[MigInstance]) -> None:
        """Divide the card; an empty sequence switches MIG off."""
        for index in range(CONSTANTS["FAKE_MAX_MIG"]):
            entry = self._gpu.mig[index]
            entry.present = index < len(instances)
            if index < len(instances):
                for name, value in vars(instances[index]).items():
                    _assign(entry, name, value)
        self.set(mig_supported=1, mig_mode=int(bool(instances)), mig_pending=int(bool(instances)))

    def report(self, code: int, *, kind: int = pynvml.nvmlEventTypeXidCriticalError) -> None:
        """Let the driver report an event: of an Xid ``code``, unless another ``kind`` is given."""
        place = self._gpu.event_count % CONSTANTS["FAKE_MAX_EVENTS"]
        self._gpu.events[place].kind, self._gpu.events[place].data = kind, code
        self._gpu.event_count += 1

    def field_error(self, field_id: int, error: str = "NOT_SUPPORTED") -> None:
        """Let one field value refuse, the others answer; ``SUCCESS`` takes that back."""
        self._gpu.field_error[field_id] = ERRORS[error]

    def calls(self, function: str) -> int:
        """How often ``function`` was called for this GPU."""
        return int(self._gpu.counters[FUNCTIONS[function]].calls)


def _fill_process(slot: Any, entry: GpuProcess) -> None:
    fixed = isinstance(entry.sm_percent, int)
    slot.pid = entry.pid
    slot.kinds = sum(_code("PROCESS", kind) for kind in entry.kinds)
    slot.used_bytes = ALL_ONES_64 if entry.used_bytes is None else entry.used_bytes
    slot.sample = _code("SAMPLE", "fixed" if fixed else entry.sm_percent or "none")
    slot.sm_percent = entry.sm_percent if fixed else 0
    slot.sample_at_us = entry.sample_at_us
    slot.gpu_instance = ALL_ONES_32 if entry.gpu_instance is None else entry.gpu_instance
    slot.compute_instance = (
        ALL_ONES_32 if entry.compute_instance is None else entry.compute_instance
    )


class FakeNvml:
    """A simulated machine with GPUs, and the library that reports it."""

    def __init__(self, path: Path, library: Path, state: Any, memory: mmap.mmap) -> None:
        self.path = path
        self.library = library
        self.gpu = [FakeGpu(state, index) for index in range(CONSTANTS["FAKE_MAX_GPUS"])]
        self._state = state
        self._memory = memory

    @classmethod
    def create(
        cls,
        folder: Path,
        *,
        gpus: int = 1,
        preset: str | Sequence[str] = "h200",
        missing: Iterable[str] = (),
        pcie_delay_seconds: float = 0.0,
    ) -> FakeNvml:
        """Make a control file in ``folder`` and build the library (once per machine).

        ``preset`` is one kind of card or a kind for each. ``missing`` names functions that the
        driver does not export (``OLD_DRIVER`` for a whole old one). ``pcie_delay_seconds`` is
        0 to keep tests quick; ``PCIE_DELAY_SECONDS`` is what real drivers take. Raises
        ``NoCompilerError`` where the library cannot be built.
        """
        library = build(missing)
        folder.mkdir(parents=True, exist_ok=True)
        path = folder / f"nvml-{time.monotonic_ns():x}.state"
        with path.open("w+b") as file:
            file.truncate(ctypes.sizeof(State))
            memory = mmap.mmap(file.fileno(), ctypes.sizeof(State))
        state: Any = State.from_buffer(memory)
        fake = cls(path, library, state, memory)
        kinds = [preset] * gpus if isinstance(preset, str) else list(preset)
        fake._fill(kinds)
        if pcie_delay_seconds:
            fake.delay("nvmlDeviceGetPcieThroughput", pcie_delay_seconds)
        return fake

    def _fill(self, kinds: Sequence[str]) -> None:
        state = self._state
        state.driver_version = b"570.124.06"
        state.nvml_version = b"12.570.124.06"
        state.cuda_version = 12080
        for index, kind in enumerate(kinds):
            self.gpu[index].set(**gpu_values(kind, index))
            for function in UNSUPPORTED.get(kind, ()):
                self.fault(function, "NOT_SUPPORTED", gpu=index)
        state.gpu_count = len(kinds)
        state.size = ctypes.sizeof(State)
        state.layout_version = CONSTANTS["FAKE_LAYOUT_VERSION"]
        state.magic = CONSTANTS["FAKE_MAGIC"]

    # -- the machine ---------------------------------------------------------------------------

    def set(self, **values: Any) -> None:
        """Set members of ``fake_state_t``: ``driver_version``, ``cuda_version``, ``gpu_count``."""
        for name, value in values.items():
            if not hasattr(self._state, name):
                raise AttributeError(f"a simulated machine has no {name!r}")
            _assign(self._state, name, value)

    def set_clock(self, unix_seconds: float | None) -> None:
        """Stop the library's clock at this time; ``None``: the machine's clock again.

        Waveforms, samples and counters then depend on nothing else.
        """
        self._state.now_us = 0 if unix_seconds is None else round(unix_seconds * 1e6)

    # -- loading it ----------------------------------------------------------------------------

    def env(self, base: Mapping[str, str] | None = None) -> dict[str, str]:
        """The environment a program needs to find this NVML, on top of ``base`` (default: ours)."""
        environment = dict(os.environ if base is None else base)
        others = environment.get("LD_LIBRARY_PATH")
        folder = str(self.library.parent)
        environment["LD_LIBRARY_PATH"] = f"{folder}:{others}" if others else folder
        environment[STATE_VARIABLE] = str(self.path)
        return environment

    @contextlib.contextmanager
    def in_this_process(self) -> Iterator[FakeNvml]:
        """Let pynvml, in this process, find this NVML from its next ``nvmlInit`` on; what came
        before is put back at the end.

        The loader searches ``LD_LIBRARY_PATH`` as it was when the process started, but it takes
        a library that is loaded already under the same SONAME. A variant built without some
        functions has the same SONAME, so pynvml is handed this very one.
        """
        before = (pynvml.nvmlLib, os.environ.get(STATE_VARIABLE))
        pynvml.nvmlLib = ctypes.CDLL(str(self.library), mode=ctypes.RTLD_GLOBAL)
        os.environ[STATE_VARIABLE] = str(self.path)
        pynvml._nvmlGetFunctionPointer_cache.clear()
        try:
            yield self
        finally:
            self.release()
            pynvml.nvmlLib = before[0]
            pynvml._nvmlGetFunctionPointer_cache.clear()
            if before[1] is None:
                os.environ.pop(STATE_VARIABLE, None)
            else:
                os.environ[STATE_VARIABLE] = before[1]

    # -- faults --------------------------------------------------------------------------------

    def _faults(self, function: str, gpu: int | None) -> Any:
        owner = self._state if gpu is None else self._state.gpus[gpu]
        return owner.faults[FUNCTIONS[function]]

    def fault(
        self, function: str, error: str, *, gpu: int | None = None, times: int | None = None
    ) -> None:
        """Let ``function`` answer an NVML error, for one GPU or for all and for calls that name
        none; ``times`` limits it to so many calls. ``SUCCESS`` takes it back."""
        fault = self._faults(function, gpu)
        fault.remaining = ALL_ONES_32 if times is None else times
        fault.error = ERRORS[error]

    def answer(
        self, function: str, what: Answer, *, gpu: int | None = None, times: int | None = None
    ) -> None:
        """Let ``function`` succeed with something else than the truth.

        ``empty``: zeros, and counts of 0; ``garbage``: rubbish for every value; ``garbage count``:
        rubbish for the number of records of a list alone. ``truth`` takes it back.
        """
        fault = self._faults(function, gpu)
        fault.remaining = ALL_ONES_32 if times is None else times
        fault.answer = 0 if what == "truth" else _code("ANSWER", what)

    def fault_init(self, error: str) -> None:
        """Let initialising fail, as with no driver or one out of step; ``SUCCESS`` mends it."""
        for function in INIT_FUNCTIONS:
            self.fault(function, error)

    def delay(self, function: str, seconds: float, *, gpu: int | None = None) -> None:
        """Let ``function`` take so long before it answers; 0 takes it back."""
        self._faults(function, gpu).delay_us = round(seconds * 1e6)

    def hang(self, function: str, *, gpu: int | None = None) -> None:
        """Let ``function`` not return until ``release``."""
        self._faults(function, gpu).hang = 1

    def release(self) -> None:
        """Let every call that hangs go on."""
        for owner in (self._state, *self._state.gpus[: self._state.gpu_count]):
            for index in range(len(FUNCTIONS)):
                if owner.faults[index].hang:
                    owner.faults[index].hang = 0

    # -- what was called -----------------------------------------------------------------------

    def calls(self, function: str | None = None) -> int:
        """How often ``function``, or any, was called, by every process together."""
        if function is not None:
            return int(self._state.counters[FUNCTIONS[function]].calls)
        return sum(int(self._state.counters[index].calls) for index in FUNCTIONS.values())

    def seconds(self) -> float:
        """Time spent in all functions, by every process together."""
        return sum(self._state.counters[index].nanoseconds for index in FUNCTIONS.values()) / 1e9

    def call_counts(self) -> dict[str, int]:
        """Calls by function, of those that were called."""
        return {name: count for name in FUNCTIONS if (count := self.calls(name))}

    def reset_counters(self) -> None:
        """Begin counting calls and time from zero."""
        for owner in (self._state, *self._state.gpus[: self._state.gpu_count]):
            ctypes.memset(ctypes.byref(owner.counters), 0, ctypes.sizeof(owner.counters))


def create_or_skip(folder: Path, **options: Any) -> FakeNvml:
    """``FakeNvml.create``; the test is skipped, saying why, where there is no C compiler."""
    import pytest

    try:
        return FakeNvml.create(folder, **options)
    except NoCompilerError as error:
        pytest.skip(str(error))
