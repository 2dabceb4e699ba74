"""Columns of logs: their names, where each goes in a snapshot, and in what unit it is; and the
headings of logs in rows and columns.

``_TABLE`` is all that is known: a further name is a word there. A name is known by its words in any
order (``utilization.gpu [%]``, ``DCGM_FI_DEV_GPU_UTIL`` and ``gpu_util_pct`` are one); only short
tags (``dmon``, ``pmon``, ``dcgmi dmon``) have tables of their own. Sources: ``nvidia-smi
--help-query-gpu`` (drivers 450 to 610), ``dmon -h``, ``pmon -h``, ``-q``, ``-q -x``, ``dcgmi dmon
-l``, and headings of logs in public repositories. A log without headings needs ``--columns``,
unless its units leave no choice.
"""

import csv
import difflib
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import lru_cache
from typing import NamedTuple

from gpuwatch.core.registry import OF_GPU, UNITS
from gpuwatch.core.text import clean
from gpuwatch.sources.logs.stamps import StampReader
from gpuwatch.sources.logs.text import LogError, LogStats
from gpuwatch.sources.nvml.tables import EVENT_REASONS

# --- cells: what is measured, in which unit, and within which bounds it can be --------------------

TEXT_LENGTH = 200
CARD_WATTS_MOST = 3000.0
"""No card draws as much: the largest announced are below 2,500 W."""
MIB, GIB = 1024.0**2, 1024.0**3

Value = float | int | str | bool | tuple[str, ...] | None
Parse = Callable[[str], Value]
"""Reads the text of a cell."""

_UNREAD = {"", "-", "n/a", "not supported", "not available", "unknown error", "gpu is lost"}
_UNREAD |= {"err!", "nan", "none", "null", "unknown", "not found"}
"""Texts, beside those in brackets, by which a log says that it has no value."""
_AMOUNT = re.compile(r"P?([-+]?(?:\d+\.?\d*|\.\d+)(?:[eE][-+]?\d+)?)\s*([^\d\s,.].*)?", re.ASCII)
_DEGREES = " °º\N{REPLACEMENT CHARACTER}"
_OF_TOTAL = re.compile(r"([\d.]+)\s*/\s*[\d.]+\s*([A-Za-z%]*)(?:\s*\(.*\))?", re.ASCII)
"""``7554 / 32768 MiB (23%)``: the first is meant."""
_NOT_KNOWN = float("nan")
"""Size of an unknown unit: a value in it is none."""


class Quantity(NamedTuple):
    """The size of each unit of a log in the model's unit, the first of which is that of a number
    without one; and bounds, of what is no field of the model or has others here."""

    units: Mapping[str, float]
    bounds: tuple[float, float] | None = None
    whole: bool = False


# NVML counts in MiB, which dmon and most programs write as MB.
_BYTES = {"mib": MIB, "mb": MIB, "kib": 1024.0, "kb": 1024.0, "gib": GIB, "gb": GIB, "b": 1.0}
_RATES = {f"{unit}/s": factor for unit, factor in _BYTES.items()}
_TIMES = {"us": 1e-6, "ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
QUANTITIES = {
    "percent": Quantity({"%": 1.0, "ratio": 100.0}),
    "bytes": Quantity(_BYTES, whole=True),
    "bytes_per_second": Quantity(_RATES),
    "watts": Quantity({"w": 1.0, "mw": 0.001}, (0.0, CARD_WATTS_MOST)),
    "joules": Quantity({"j": 1.0, "mj": 0.001}),
    "celsius": Quantity({"c": 1.0}),
    "mhz": Quantity({"mhz": 1.0, "ghz": 1000.0, "hz": 1e-6}, whole=True),
    "seconds": Quantity(_TIMES, (0.0, 1e9)),
    "elapsed": Quantity({"s": 1.0, **_TIMES}, (0.0, 1e9)),
    "count": Quantity({"": 1.0}, whole=True),
    "index": Quantity({"": 1.0}, (0, 4095), whole=True),
    "link": Quantity({"": 1.0, "x": 1.0}, whole=True),
    "pid": Quantity({"#": 1.0}, (1, 1 << 32), whole=True),
}
_FLAGS = {
    **dict.fromkeys(("yes", "enabled", "active", "1", "true"), True),
    **dict.fromkeys(("no", "disabled", "not active", "0", "false"), False),
}


def number(text: str) -> float | None:
    """Return a finite number, with or without a unit after it."""
    return _amount(text)[0]


def _amount(text: str) -> tuple[float | None, str]:
    """Split ``212.34 W``, ``212.34W``, or ``212,34 W`` of a country that writes so."""
    found = (_OF_TOTAL.fullmatch(text) if "/" in text else None) or _AMOUNT.fullmatch(text)
    if found is None and text.count(",") == 1 and text[:1].isdecimal():
        found = _AMOUNT.fullmatch(text.replace(",", "."))
    value = _NOT_KNOWN if found is None else float(found[1])
    # Neither NaN nor infinity is a measurement.
    return (value if value - value == 0.0 else None), (found and found[2]) or ""


def parser(kind: str, unit: str = "", field: str = "") -> Parse:
    """Make a reader of cells of this kind, which gives ``None`` for no value and for one out of
    the range of the ``field``. ``unit`` is the heading's; a cell's own goes before it."""
    quantity = QUANTITIES.get(kind)
    if quantity is None:
        return _TEXTS[kind]
    units, bounds, whole = quantity
    known = OF_GPU.get(field)
    low, high = bounds or (known and known.range) or (UNITS[kind].low, UNITS[kind].high)
    usual = units.get(bare_unit(unit), _NOT_KNOWN) if unit else next(iter(units.values()))

    def parse(text: str) -> float | int | None:
        amount, _, own = text.partition(" ")
        value: float | None
        try:
            value = float(amount)
        except ValueError:
            value, own = _amount(text)
            if value is None:
                return None
        value *= units.get(bare_unit(own), _NOT_KNOWN) if own else usual
        # Neither NaN nor infinity is within bounds.
        if low <= value <= high:
            return round(value) if whole else value
        return None

    return parse


@lru_cache(maxsize=256)
def bare_unit(unit: str) -> str:
    """Return ``c`` for ``°C``, however its sign is encoded: a byte that is not UTF-8 has become
    U+FFFD."""
    return unit.replace("\N{DEGREE CELSIUS}", "c").strip(_DEGREES).lower()


def _text(text: str) -> str | None:
    unread = text[:1] in {"[", "<"} or text.lower() in _UNREAD
    return None if unread else clean(text, TEXT_LENGTH)


def _reasons(text: str) -> tuple[str, ...] | None:
    """Parse ``0x0000000000000004``, or the same in decimal."""
    try:
        bits = int(text, 16) if text[:2].lower() == "0x" else int(float(text))
    except (ValueError, OverflowError):
        return None
    # All ones is the driver's "not available", and from here on DCGM's blanks.
    known = 0 <= bits < 2**31 - 16
    return tuple([name for bit, name in EVENT_REASONS if bits & bit]) if known else None


_TEXTS: Mapping[str, Parse] = {
    "text": _text,
    "flag": lambda text: _FLAGS.get(text.lower()),
    "reasons": _reasons,
}


# --- columns: their names, and where they go ------------------------------------------------------

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
power_watts watts: power.draw.instant, power usage instant, power.draw, power, power usage,
  power used, power consumption, power.draw.average
power_limit_watts watts: enforced.power.limit, power.limit, power max
energy_joules joules: total_energy_consumption [mj]
temperature_celsius celsius: temperature.gpu
memory_temperature_celsius celsius: temperature.memory
fan_percent percent: fan.speed, fan; performance_state count: pstate, performance state
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
"""Columns by the part of a snapshot (``other`` is worked out from): ``field kind: name, name
[unit]``, best first; words without a dot mean the name before them. ``!``: only with a unit (else a
share of 1, of 100, or a size); ``?``: only of a GPU."""


def _tags(text: str) -> dict[str, str]:
    return dict(pair.split("=") for pair in text.split())


class Column(NamedTuple):
    """The place of a column in a snapshot. The column with the lowest ``rank`` is taken where
    several have the same field."""

    part: str
    field: str
    kind: str
    """A key of ``QUANTITIES``, or ``text``, ``flag`` or ``reasons``."""
    rank: int = 0
    unit: str = ""
    """Unit of a number without one, where it is not the usual one of its kind."""


class Named(NamedTuple):
    """A heading by its canonical name and unit."""

    name: str
    """A key of ``COLUMNS``; else as it is written."""
    unit: str = ""
    gpu: int | None = None
    """Number of the GPU, where a log has a column for each."""
    about_gpus: bool = False
    """Whether the heading says, in any words, that it is about GPUs."""


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
"""Meaning of a heading that says no more than that it is a GPU's: ``gpu_watts``, ``GPU0 (%)``."""
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
    """Return the words that tell, the unit they end in, and whether they speak of GPUs."""
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
"""Names for the short headings of ``nvidia-smi dmon``, ``pmon`` and ``dcgmi dmon``."""


@lru_cache(maxsize=4096)
def named(heading: str) -> Named:
    """Return what a heading means: ``clocks.sm [MHz]`` is ``clocks.current.sm`` in MHz, and
    ``gpu0_mem_used_mb`` is GPU 0's memory."""
    text = heading.strip(' \t"\ufeff')
    found = _WANDB.fullmatch(text)
    if found is not None:
        meant = named(_WANDB_NAMES.get(found[2], found[2]))
        return meant._replace(gpu=int(found[1]), about_gpus=True)
    found = _LABELLED.fullmatch(text)
    if found is not None:
        return named(found[1])._replace(gpu=None if found[2] is None else int(found[2]))
    told, unit, about = _words(text)
    about = about or ("." in text and _IN_UNIT.sub("", text) in COLUMNS)
    numbered = _NUMBERED.search(text)
    if told in (["w"], ["mw"]) and len(text) > 2:
        # In full: W alone can be a width.
        unit, name = told[0], "power.draw"
    elif text == "T" or told == ["memory", "utilization"]:
        # A time or a temperature; a share of the memory, or of the time that it was busy.
        name = ""
    elif not told and about:
        rest = "" if numbered or bare_unit(unit) in _UNITS else "index"
        name = _BY_UNIT.get(bare_unit(unit), rest)
    else:
        name = _by_words(told, text, unit, about)
    name, unit = _with_fitting_unit(name, unit)
    gpu = None if numbered is None or name == "index" else int(numbered[1])
    other = SKIPPED if text.lower() in COLUMNS else text.lower()
    return Named(name or other, unit, gpu, about or name == "utilization.gpu")


def _by_words(told: list[str], text: str, unit: str, about: bool) -> str:
    """Return the column that these words name; empty for none, and where more would have to be said
    (``_TABLE``)."""
    profiled = "_PROF_" in text or text.startswith("dcgm.")
    phrase = _PHRASES.get(frozenset(told) | ({"prof"} if profiled else set()), "")
    vague = (phrase[-1:] == "!" and not unit) or (phrase[-1:] == "?" and not about)
    return "" if vague else phrase.rstrip("!?")


def _with_fitting_unit(name: str, unit: str) -> tuple[str, str]:
    """Return no name where its column is not measured in such a unit."""
    column = COLUMNS.get(name)
    if column is None or not unit or column.unit:
        return name, unit
    quantity = QUANTITIES.get(column.kind)
    if quantity is None and column.part == "other":
        # Times say by their size what they count.
        return name, ""
    fits = quantity is not None and bare_unit(unit) in quantity.units
    return name if fits else "", unit


def parse_columns(text: str) -> tuple[str, ...]:
    """Parse ``timestamp,utilization.gpu,-`` into names of ``COLUMNS``, each with the unit that was
    written. Raises ``LogError``."""
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


# --- headings: what a log in rows and columns is --------------------------------------------------

ALIGNED = "  "
"""Separator of columns that ``column -t`` has put under each other: two spaces or more."""
BARS = "|"
"""Separator of the cells of a Markdown table, which may stand at both ends of a line, too."""
CHARACTERS = (",", ";", "\t")
SEPARATORS = (*CHARACTERS, ALIGNED, BARS)
SPACES = " "
"""Separator of dmon, pmon and dcgmi: white space of any length."""
CELL_EDGES = ' \t"\ufeff\x00'
_GAP = re.compile(r"\s{2,}")
has_digit = re.compile(r"\d").search
_FORMS = (
    (re.compile(r"\d{4}[/-]\d{1,2}[/-]\d{1,2}[ T]\d{1,2}:\d\d:.*|1\d{9}(\.\d+)?"), ["timestamp"]),
    (re.compile(r"(?:GPU|MIG)-[0-9a-fA-F-]{8,}"), ["uuid"]),
    (re.compile(r"[0-9A-Fa-f]{4,8}:[0-9A-Fa-f]{2}:[0-9A-Fa-f]{2}\.[0-9A-Fa-f]"), ["pci.bus_id"]),
    (re.compile(r"P(?:1[0-5]|[0-9])"), ["pstate"]),
    (re.compile(r"0x[0-9A-Fa-f]{16}"), ["clocks_event_reasons.active"]),
    (re.compile(r"\d{3}\.\d{1,4}\.\d{1,4}"), ["driver_version"]),
    (re.compile(r"[\d.]+ %"), ["utilization.gpu", "utilization.memory"]),
    (re.compile(r"[\d.]+ MiB"), ["memory.used", "memory.total"]),
    (re.compile(r"[\d.]+ W"), ["power.draw", "power.limit"]),
    (re.compile(r"[\d.]+ MHz"), ["clocks.current.sm", "clocks.current.memory"]),
    (re.compile(r"[A-Z][A-Za-z]{2}.*"), ["name"]),
)
"""Cells of a log without headings: its columns in nvidia-smi's own order."""
_CARD = re.compile(r"NVIDIA|GeForce|Tesla|Quadro")
_TAGGED = (("dcgm", {"entity"}, DCGMI), ("pmon", {"gpu", "pid"}, PMON), ("dmon", {"gpu"}, DMON))
_CELL = re.compile(
    r"(?:[A-Za-z_%][\w .%/#()\[\]°º\u2103\ufffd+-]{0,80}|.*system[./]gpu\.\d.*|\w*\{.*\})?",
    re.ASCII,
)
_TELLING = frozenset({"reading", "reason", "counter"})
FIELD_HEADINGS = frozenset({"field", "metric", "metric_name", "field_name"})
VALUE_HEADINGS = frozenset({"value", "values"})


class Heading(NamedTuple):
    """The columns of a log in rows and columns."""

    kind: str
    """``query``, ``csv``, ``dmon``, ``pmon`` or ``dcgm``."""
    names: tuple[str, ...]
    """Names of ``COLUMNS``; anything else is left out."""
    units: tuple[str, ...] = ()
    separator: str = ","
    line: str = ""
    fixed: bool = False
    """The names are a person's, or come from the forms of cells: other headings do not count."""
    cells: tuple[str, ...] = ()
    """Names as they are written, where there is a column for each GPU."""

    @property
    def tidy(self) -> bool:
        """Whether a column says what is measured and another gives the value."""
        names = set(self.names)
        return not (names.isdisjoint(FIELD_HEADINGS) or names.isdisjoint(VALUE_HEADINGS))


def stripped(line: str) -> str:
    line = line.strip(" \r\ufeff\x00")
    return "" if line.isspace() else line


def named_by(names: tuple[str, ...], line: str) -> Heading | None:
    """Return ``names`` as the heading of a log that has ``line``; ``None`` where it is no such
    row."""
    for separator in SEPARATORS if "," in line else (*SEPARATORS, SPACES):
        cells = split_cells(line, separator, len(names))
        if len(cells) == len(names) and has_digit(line):
            kind = "dmon" if separator == SPACES else "query"
            return _made(kind, names, separator)._replace(fixed=True)
    return None


def of_query(names: Sequence[str]) -> Heading | None:
    """Return the columns of a query as a heading; ``None`` where they say nothing of how a GPU
    does."""
    made = _made("query", names, ",")
    tells = any(COLUMNS[name].part in _TELLING for name in made.names if name in COLUMNS)
    return made if tells else None


def asked_for(names: Sequence[str], line: str) -> Heading | None:
    """Return the columns of a query as the heading of a log that has ``line``; ``None`` where its
    cells are not values of theirs."""
    heading = None if line[:1] == "#" else of_query(names)
    found = None if heading is None else named_by(heading.names, line)
    if heading is None or found is None:
        return None
    cells = split_cells(line, found.separator, len(names))
    values = [
        parser(column.kind, column.unit, column.field)(cell)
        for name, cell in zip(heading.names, cells, strict=True)
        if (column := COLUMNS.get(name)) is not None and column.part in _TELLING
    ]
    return heading._replace(separator=found.separator) if values != [None] * len(values) else None


def _made(kind: str, cells: Sequence[str], separator: str, line: str = "") -> Heading:
    found = list(map(named, cells))
    wide = any(each.gpu is not None and each.name in COLUMNS for each in found)
    names, units = tuple([each.name for each in found]), tuple([each.unit for each in found])
    return Heading(kind, names, units, separator, line, cells=tuple(cells) if wide else ())


def find_heading(line: str) -> Heading | None:
    """Return the heading that ``line`` is; ``None`` for any other line."""
    # Markdown's escape.
    line = line.removeprefix("\\")
    if line.startswith("#") and (tagged := _tagged_heading(line)) is not None:
        return tagged
    for separator in SEPARATORS:
        cells = split_cells(line.lstrip("# "), separator)
        if len(cells) > COLUMNS_MAX or not all(map(_CELL.fullmatch, cells)):
            continue
        made = _made("query" if "." in line else "csv", cells, separator, line)
        parts = {COLUMNS[name].part for name in made.names if name in COLUMNS}
        about = any(each.about_gpus and each.name in COLUMNS for each in map(named, cells))
        # A row can say as much of a card alone ("name").
        tells = not parts.isdisjoint(_TELLING) or "memory.free" in made.names
        if (about and tells) or (made.tidy and parts):
            return made
    return None


def _tagged_heading(line: str) -> Heading | None:
    """Return the heading of ``dmon``, ``pmon`` or ``dcgmi dmon`` that ``line`` is."""
    tokens = line.lstrip("#").replace(",", " ").lower().split()
    for kind, tags, table in _TAGGED:
        if tags <= set(tokens) and sum(token in table for token in tokens) > 1:
            names = tuple([table.get(token, SKIPPED) for token in tokens])
            return Heading(kind, names, separator="," if "," in line else SPACES, line=line)
    return None


def surplus(heading: Heading, cells: Sequence[str]) -> int | None:
    """Return which of ``cells``, one more than ``heading`` names, is none of its columns: without
    it all others are values of theirs. ``None`` where no cell, or any of several, can be."""
    found: dict[tuple[str, ...], int] = {}
    for place in range(len(cells)):
        rest = [*cells[:place], *cells[place + 1 :]]
        units = heading.units or ("",) * len(rest)
        known = [
            (column, unit, cell)
            for name, unit, cell in zip(heading.names, units, rest, strict=True)
            if (column := COLUMNS.get(name)) is not None
        ]
        if all(_fits(column, unit, cell) for column, unit, cell in known):
            # Either of two times that stand side by side can be left out.
            values = tuple([cell for column, _, cell in known if column.part != "other"])
            found.setdefault(values, place)
    return next(iter(found.values())) if len(found) == 1 else None


def _fits(column: Column, unit: str, cell: str) -> bool:
    if column.field in {"timestamp", "time", "date"}:
        return StampReader().stamp(cell) is not None
    if column.kind == "text":
        return any(map(str.isalpha, cell))
    unread = cell != "" and parser("text")(cell) is None
    return unread or parser(column.kind, unit or column.unit, column.field)(cell) is not None


def split_cells(line: str, separator: str = ",", width: int = 0) -> list[str]:
    if separator == SPACES:
        # A command (the last column of pmon) may hold spaces; "GPU 0" of dcgmi is one cell.
        return line.removeprefix("GPU ").split(None, width - 1)
    if separator == ALIGNED:
        parts = _GAP.split(line.strip())
    elif separator == BARS:
        row = line.strip(" \t").removeprefix(BARS).removesuffix(BARS)
        # A heading may be bold or code.
        return [cell.strip(" \t*`") for cell in row.split(BARS)]
    elif '"' in line:
        parts = _quoted(line, separator)
    else:
        parts = line.split(separator)
    return [cell.strip(CELL_EDGES) for cell in parts]


def _quoted(line: str, separator: str) -> list[str]:
    """Split a line of another program: a name in quotes may hold the separator."""
    try:
        return next(csv.reader([line], delimiter=separator, skipinitialspace=True))
    except (csv.Error, StopIteration):
        return line.split(separator)


def without_heading(
    lines: Sequence[str], wanted: Sequence[str] | None, shown: str, stats: LogStats
) -> Heading:
    """Return the columns by their units, where no other reading of them is possible. Raises
    ``LogError`` with a sentence where one is, or where these are no rows."""
    if not lines and stats.damage is not None:
        raise LogError(f"{shown} is not a log: {stats.damage}.")
    if not lines:
        raise LogError(f"{shown} holds no text." if stats.lines else f"{shown} is empty.")
    if wanted is not None:
        raise LogError(f"{shown} does not begin with a row of {len(wanted)} columns.")
    spaced = [line.split() for line in lines if "," not in line]
    numbers = [cells for cells in spaced if len(cells) > 2 and all(map(_is_value, cells))]
    if len(numbers) * 10 >= len(lines) * 9:
        what = "looks like nvidia-smi dmon without its header"
        raise _unnamed(shown, what, numbers[0], "gpu,pwr,gtemp,mtemp,sm,mem,...")
    rows = _rows_of_values(lines)
    if len(rows) * 2 < len(lines) or not rows:
        raise LogError(_strange(shown, lines[0]))
    names, sure = _by_form(rows)
    if not sure:
        proposed = ",".join(names) if "utilization.gpu" in names else "timestamp,index,-,..."
        what = f'begins with "{clean(lines[0], 120)}", which are not column names of nvidia-smi'
        raise _unnamed(shown, what, rows[0], proposed)
    return Heading("query", names, fixed=True)


def _rows_of_values(lines: Sequence[str]) -> list[list[str]]:
    """Return the rows of the usual number of cells; none where the first are no values."""
    rows = [split_cells(line) for line in lines if len(line) < 12 or "," in line]
    width = Counter(map(len, rows)).most_common(1)[0][0] if rows else 0
    rows = [row for row in rows if len(row) == width and has_digit("".join(row))]
    values = rows and (all(map(_is_value, rows[0])) or any(map(_CARD.match, rows[0])))
    return rows if values else []


def _by_form(rows: Sequence[Sequence[str]]) -> tuple[tuple[str, ...], bool]:
    """Return names in nvidia-smi's own order of columns with a form or unit, and whether each is
    sure: no other column has its unit, and one is the utilisation."""
    forms = [
        next((names for form, names in _FORMS if form.fullmatch(cell)), [SKIPPED])
        for cell in rows[0]
    ]
    found = [
        dict(enumerate(names)).get(forms[:place].count(names), SKIPPED)
        for place, names in enumerate(forms)
    ]
    if {"memory.used", "memory.total"} <= set(found):
        used, total = found.index("memory.used"), found.index("memory.total")
        sizes = {(number(row[used]) or 0.0) + (number(row[total]) or 0.0) for row in rows}
        if len({row[used] for row in rows}) > 1 and max(sizes) - min(sizes) < 64.0:
            found[total] = "memory.free"
    sure = all(forms.count(names) == 1 or len(names) == 1 for names in forms)
    return tuple(found), sure and "utilization.gpu" in found


def _is_value(cell: str) -> bool:
    return cell == SKIPPED or number(cell) is not None or any(f.fullmatch(cell) for f, _ in _FORMS)


def _unnamed(shown: str, what: str, row: Sequence[str], proposed: str) -> LogError:
    return LogError(
        f"{shown} {what}: if it is a log of GPUs, name its {len(row)} columns with gpuwatch "
        f"diagnose --columns, as in the query, with - for those to skip; for instance --columns "
        f"{proposed}"
    )


def _strange(shown: str, line: str) -> str:
    text = clean(line[:80]).replace("\ufffd", "")
    # Text of any language has few characters that cannot be shown.
    if len(text) < 0.8 * len(line[:80]):
        return f"{shown} is not text: neither a recording of gpuwatch nor a log of GPUs."
    return (
        f"{shown} is neither a recording of gpuwatch nor a log of GPUs that can be read: it begins "
        f'with "{clean(line, 80)}". Log with nvidia-smi --query-gpu=timestamp,index,'
        "utilization.gpu,... --format=csv -l 1"
    )
