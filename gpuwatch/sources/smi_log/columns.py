"""What logs call their columns, where each goes in a snapshot, and in what unit it is.

``_TABLE`` is all that is known: a further name is a word there. A name is known by its words in any
order (``utilization.gpu [%]``, ``DCGM_FI_DEV_GPU_UTIL`` and ``gpu_util_pct`` are one); only short
tags (``dmon``, ``pmon``, ``dcgmi dmon``) have tables of their own. Sources: ``nvidia-smi
--help-query-gpu`` (drivers 450 to 610), ``dmon -h``, ``pmon -h``, ``-q``, ``-q -x``, ``dcgmi dmon
-l``, and headings of logs in public repositories.
"""

import difflib
import re
from collections.abc import Mapping
from functools import lru_cache
from typing import NamedTuple

from gpuwatch.core.text import clean
from gpuwatch.sources.files.log_text import LogError
from gpuwatch.sources.nvml.tables import EVENT_REASONS
from gpuwatch.sources.smi_log.values import QUANTITIES, bare_unit

COLUMNS_MAX = 256
SKIPPED = "-"

_REASONS = [name for _, name in EVENT_REASONS]
_TABLE = {
    "other": """
timestamp text: timestamp, datetime, date time, epoch!, epoch time, unix time, ts, query time,
  time stamp
date text: date; time text: time; elapsed elapsed: elapsed, elapsed time, relative time, runtime,
  uptime, t, seconds
memory_free bytes: memory.free, memory usage free
memory_reserved bytes: memory.reserved, memory usage reserved
power_violation_percent percent: dmon.pviol; thermal_violation flag: dmon.tviol""",
    "identity": """
index index: index; uuid text: uuid; name text: name, product name, model name, model?
pci_bus_id text: pci.bus_id, bus id; driver_version text: driver_version
compute_capability text: compute_cap; mig_mode flag: mig.mode.current
mig_instance index: mig.instance
memory_total_bytes bytes: memory.total, memory usage total, memory max, memory limit
power_limit_default_watts watts: power.default_limit; power_limit_max_watts watts: power.max_limit
sm_clock_max_mhz mhz: clocks.max.sm, clocks.max.graphics
memory_clock_max_mhz mhz: clocks.max.memory
pcie_generation_max link: pcie.link.gen.max, pcie.link.gen.gpumax, pci link info pcie gen max
pcie_width_max link: pcie.link.width.max, pci link info width max""",
    # On drivers since 535 power.draw is the average of a second on most cards.
    "reading": """
busy_percent percent: utilization.gpu, usage?, load?, duty cycle?, dcgm.gr_engine_active [ratio]
memory_controller_percent percent: utilization.memory, copy memory utilization
encoder_percent percent: utilization.encoder; decoder_percent percent: utilization.decoder
memory_used_bytes bytes: memory.used, memory usage used, memory usage!, memory!
power_watts draw: power.draw.instant, power usage instant, power.draw, power, power usage,
  power used, power consumption, power.draw.average
power_limit_watts draw: enforced.power.limit, power.limit, power max
energy_joules joules: total_energy_consumption [mj]
temperature_celsius celsius: temperature.gpu
memory_temperature_celsius celsius: temperature.memory
fan_percent fan: fan.speed, fan; performance_state state: pstate, performance state
sm_clock_mhz mhz: clocks.current.sm, clocks.current.graphics, clock?
memory_clock_mhz mhz: clocks.current.memory
pcie_generation link: pcie.link.gen.current, pcie.link.gen.gpucurrent, pci link info pcie gen
pcie_width link: pcie.link.width.current, pci link info width
pcie_rx_bytes_per_second bytes_per_second: pcie.rx [mb/s], dcgm.pcie_rx_bytes [b/s],
  pcie.rx_throughput [kb/s], pci.rx_util [kb/s]
pcie_tx_bytes_per_second bytes_per_second: pcie.tx [mb/s], dcgm.pcie_tx_bytes [b/s],
  pcie.tx_throughput [kb/s], pci.tx_util [kb/s]
nvlink_rx_bytes_per_second bytes_per_second: dcgm.nvlink_rx_bytes [b/s]
nvlink_tx_bytes_per_second bytes_per_second: dcgm.nvlink_tx_bytes [b/s]
sm_active_percent percent: sm.active!, dcgm.sm_active [ratio]
sm_occupancy_percent percent: sm.occupancy!, dcgm.sm_occupancy [ratio]
tensor_active_percent percent: tensor.active!, dcgm.pipe_tensor_active [ratio]
dram_active_percent percent: dram.active!, dcgm.dram_active [ratio]
throttle_reasons reasons: clocks_event_reasons.active, clock event reasons
ecc_corrected_count count: ecc.errors.corrected.volatile.total, ecc sbe vol total
ecc_uncorrected_count count: ecc.errors.uncorrected.volatile.total, ecc dbe vol total
remapped_rows_correctable count: remapped_rows.correctable
remapped_rows_uncorrectable count: remapped_rows.uncorrectable
remapped_rows_pending flag: remapped_rows.pending
remapped_rows_failed flag: remapped_rows.failure, remapped rows failed""",
    "process": """
pid pid: pmon.pid; gpu_kind text: pmon.type; gpu_busy_percent percent: pmon.sm
gpu_memory_bytes bytes: pmon.fb; name text: pmon.command""",
    "reason": "\n".join(f"{name} flag: clocks_event_reasons.{name}" for name in _REASONS),
    "counter": "\n".join(
        f"{name} seconds: clocks_event_reasons_counters.{name} [us]" for name in _REASONS
    ),
}
"""By parts of a snapshot (``other`` is worked out from): ``field kind: name, name [unit]``, best
first; words without a dot mean the name before them. ``!``: only with a unit (else a share of 1, of
100, or a size); ``?``: only of a GPU."""


def _tags(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


class Column(NamedTuple):
    """Of several columns for the same field the one with the lowest ``rank`` is taken."""

    part: str
    field: str
    kind: str
    """A key of ``QUANTITIES``, or ``text``, ``flag``, ``state`` or ``reasons``."""
    rank: int = 0
    unit: str = ""
    """Of a number without one, where it is not the usual one of its kind."""


class Named(NamedTuple):
    """A heading as this module knows it."""

    name: str
    """A key of ``COLUMNS``; else as it is written."""
    unit: str = ""
    gpu: int | None = None
    """Whose it is, where a log has a column for each GPU."""
    about_gpus: bool = False
    """It says so, in any words."""


_SAME = _tags(
    "mem=memory vram=memory fb=memory util=utilization utilisation=utilization temp=temperature "
    "pwr=power clk=clock clocks=clock gr=graphics idx=index id=index gpuid=index cap=limit "
    "enc=encoder dec=decoder throttle=event reason=reasons idle=gpu_idle percentage=% percent=% "
    "pct=% watts=w milliwatts=mw celsius=c bytes=b sec=s seconds=s instantaneous=instant "
    "generation=gen modelname=model volatile=vol widths=width"
)
_BY_UNIT = _tags(
    "%=utilization.gpu w=power.draw mw=power.draw c=temperature.gpu mhz=clocks.current.sm "
    "mib=memory.used mb=memory.used gib=memory.used gb=memory.used"
)
"""What a heading means that says no more than that it is a GPU's: ``gpu_watts``, ``GPU0 (%)``."""
_UNITS = frozenset(unit for quantity in QUANTITIES.values() for unit in quantity.units) - {"", "#"}
_ABOUT = frozenset({"gpu", "gpus", "gpuid", "cuda", "nvidia", "vram"})
_FILLERS = _ABOUT | set(
    _tags("fi= dev= prof= smi= core= value= current= device= readings= dcgm= rate=")
)
_WORD = re.compile(r"[A-Z]+(?![a-z])|[A-Z]?[a-z]+|%")
_IN_UNIT = re.compile(r"\s*[\[(]([^\])]*)[\])]\s*:?\s*$")
_NUMBERED = re.compile(r"(?i)(?<![a-z])(?:gpu|cuda)[ ._:#-]?(\d{1,2})(?!\d)")
_WANDB = re.compile(r"(?i)(?:.* - )?system[./]gpu\.(\d+)\.(\w+)")
_WANDB_NAMES = _tags(
    "gpu=utilization.gpu memory=utilization.memory memoryAllocatedBytes=memory.used[b] "
    "smActive=sm.active[%] temp=temperature.gpu powerWatts=power.draw"
)
_LABELLED = re.compile(r'(\w+)\{(?:.*[,{ ])??(?:(?:gpu|index|minor_number)="(\d+)".*)?\}')


def _words(text: str) -> tuple[list[str], str, bool]:
    """The words that tell; the unit they end in; whether they speak of GPUs."""
    bracket = _IN_UNIT.search(text)
    unit = "" if bracket is None else bracket[1].strip()
    raw = [word.lower() for word in _WORD.findall(_IN_UNIT.sub("", text))]
    words = [_SAME.get(word, word) for word in raw]
    if words[-2:-1] == ["per"] and len(words) > 3:
        words[-3:] = [f"{words[-3]}/{words[-1]}"]
    while len(words) > 1 and words[-1] in _UNITS:
        unit = unit or words[-1]
        words.pop()
    told = [word for word in words if word not in _FILLERS]
    return told, unit, not _ABOUT.isdisjoint(raw)


def _columns() -> tuple[dict[str, Column], dict[frozenset[str], str]]:
    columns: dict[str, Column] = {}
    phrases: dict[frozenset[str], str] = {}
    for part, text in _TABLE.items():
        for entry in text.replace(",\n ", ",").replace(";", "\n").strip().splitlines():
            head, _, names = entry.partition(": ")
            field, kind = head.split()
            own = ""
            for rank, name in enumerate(names.split(", ")):
                bare, _, unit = name.rstrip("]").partition(" [")
                mark = bare[-1] if bare[-1] in "!?" else ""
                bare = bare.rstrip("!?")
                if unit or "." in bare or not own:
                    columns[bare] = Column(part, field, kind, rank, unit)
                    own = own if unit else bare
                prof = ["prof"] if bare.startswith("dcgm.") else []
                meant = bare if bare in columns else own
                phrases.setdefault(frozenset(_words(bare)[0] + prof), meant + mark)
    return columns, phrases


COLUMNS: Mapping[str, Column]
COLUMNS, _PHRASES = _columns()
DMON: Mapping[str, str] = _tags(
    "date=date time=time gpu=index pwr=power.draw temp=temperature.gpu gtemp=temperature.gpu "
    "mtemp=temperature.memory sm=utilization.gpu mem=utilization.memory enc=utilization.encoder "
    "dec=utilization.decoder mclk=clocks.current.memory pclk=clocks.current.sm fb=memory.used "
    "sbecc=ecc.errors.corrected.volatile.total dbecc=ecc.errors.uncorrected.volatile.total "
    "rxpci=pcie.rx txpci=pcie.tx smutil=sm.active smocc=sm.occupancy pviol=dmon.pviol "
    "tviol=dmon.tviol"
)
PMON: Mapping[str, str] = _tags(
    "date=date time=time gpu=index pid=pmon.pid type=pmon.type sm=pmon.sm fb=pmon.fb "
    "command=pmon.command name=pmon.command"
)
DCGMI: Mapping[str, str] = _tags(
    "entity=index gputl=utilization.gpu mcutl=utilization.memory ecutl=utilization.encoder "
    "dcutl=utilization.decoder fbusd=memory.used fbttl=memory.total fbfre=memory.free "
    "power=power.draw powin=power.draw.instant totec=total_energy_consumption "
    "tmptr=temperature.gpu mmtmp=temperature.memory smclk=clocks.current.sm "
    "mmclk=clocks.current.memory dvcctr=clocks_event_reasons.active gract=dcgm.gr_engine_active "
    "smact=dcgm.sm_active smocc=dcgm.sm_occupancy tenso=dcgm.pipe_tensor_active "
    "drama=dcgm.dram_active pcirx=dcgm.pcie_rx_bytes pcitx=dcgm.pcie_tx_bytes "
    "nvlrx=dcgm.nvlink_rx_bytes nvltx=dcgm.nvlink_tx_bytes"
)
"""What the short headings of ``nvidia-smi dmon``, ``pmon`` and ``dcgmi dmon`` stand for."""


@lru_cache(maxsize=4096)
def named(heading: str) -> Named:
    """``clocks.sm [MHz]`` is ``clocks.current.sm`` in MHz; ``gpu0_mem_used_mb``, GPU 0's memory."""
    text = heading.strip(' \t"\ufeff')
    found = _WANDB.fullmatch(text)
    if found is not None:
        return named(_WANDB_NAMES.get(found[2], found[2]))._replace(
            gpu=int(found[1]), about_gpus=True
        )
    found = _LABELLED.fullmatch(text)
    if found is not None:
        return named(found[1])._replace(gpu=None if found[2] is None else int(found[2]))
    told, unit, about = _words(text)
    about = about or ("." in text and _IN_UNIT.sub("", text) in COLUMNS)
    numbered = _NUMBERED.search(text)
    key = frozenset(told) | ({"prof"} if "_PROF_" in text or text.startswith("dcgm.") else set())
    phrase = _PHRASES.get(key, "")
    if told in (["w"], ["mw"]) and len(text) > 2:
        # In full: W alone can be a width.
        unit, phrase = told[0], "power.draw"
    elif not told and about:
        rest = "" if numbered or bare_unit(unit) in _UNITS else "index"
        phrase = _BY_UNIT.get(bare_unit(unit), rest)
    elif text == "T":
        # A time or a temperature.
        phrase = ""
    # A memory's utilization is a share of it, or of the time that it was busy.
    doubtful = told == ["memory", "utilization"] or (phrase[-1:] == "!" and not unit)
    name = "" if doubtful or (phrase[-1:] == "?" and not about) else phrase.rstrip("!?")
    column = COLUMNS.get(name)
    if column is not None and unit and not column.unit:
        quantity = QUANTITIES.get(column.kind)
        if quantity is None or bare_unit(unit) not in quantity.units:
            # Times say by their size what they count.
            text_of_time = quantity is None and column.part == "other"
            name, unit = (name, "") if text_of_time else ("", unit)
    gpu = None if numbered is None or name == "index" else int(numbered[1])
    other = SKIPPED if text.lower() in COLUMNS else text.lower()
    return Named(name or other, unit, gpu, about or name == "utilization.gpu")


def parse_columns(text: str) -> tuple[str, ...]:
    """``timestamp,utilization.gpu,-`` to names of ``COLUMNS``, each with the unit that was written.
    Raises ``LogError``."""
    names = [part.strip() for part in text.split(",")]
    if len(names) > COLUMNS_MAX:
        raise LogError(f"--columns names more than {COLUMNS_MAX} columns.")
    found = [SKIPPED if name in {"", SKIPPED} else _column(name) for name in names]
    if COLUMNS.keys().isdisjoint(named(name).name for name in found):
        raise LogError("--columns names no column that says anything about a GPU.")
    return tuple(found)


def _column(text: str) -> str:
    found = named(DMON.get(text.lower(), text))
    if found.name in COLUMNS:
        return f"{found.name} [{found.unit}]" if found.unit else found.name
    near = difflib.get_close_matches(found.name, COLUMNS, 1, 0.8)
    if near or not text.isprintable():
        hint = f" (is it {near[0]}?)" if near else ""
        raise LogError(
            f"{clean(text, 60)!r} in --columns is not known{hint}: write the names of nvidia-smi "
            "--help-query-gpu, and - for a column to skip."
        )
    return found.name
