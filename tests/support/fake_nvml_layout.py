"""The control file's layout as ctypes structures, read from the C header that defines it."""

import ctypes
import re
from pathlib import Path
from typing import Any

LIBRARY_SOURCE = Path(__file__).with_name("fake_nvml_library")

_C_TYPES: dict[str, Any] = {
    "char": ctypes.c_char, "uint8_t": ctypes.c_uint8, "int32_t": ctypes.c_int32,
    "uint32_t": ctypes.c_uint32, "uint64_t": ctypes.c_uint64, "double": ctypes.c_double,
}  # fmt: skip


def _without_comments(text: str) -> str:
    return re.sub(r"/\*.*?\*/", "", text, flags=re.DOTALL)


def parse_constants(header: str) -> dict[str, int]:
    """The ``#define``s that are plain integers, by name."""
    found = re.findall(r"^#define (FAKE_\w+) (0x[0-9a-f]+|\d+)u?$", header, flags=re.MULTILINE)
    return {name: int(value, 0) for name, value in found}


def parse_structures(header: str) -> dict[str, type[ctypes.Structure]]:
    """The header's ``typedef struct``s as ctypes structures, by name, each with the C layout."""
    constants = parse_constants(header)
    types: dict[str, Any] = dict(_C_TYPES)
    structures: dict[str, type[ctypes.Structure]] = {}
    for body, name in re.findall(
        r"typedef struct \{(.*?)\}\s*(\w+);", _without_comments(header), flags=re.DOTALL
    ):
        fields: list[tuple[str, Any]] = []
        for c_type, member, sizes in re.findall(r"(\w+) (\w+)((?:\[\w+\])*);", body):
            kind: Any = types[c_type]
            for size in reversed(re.findall(r"\[(\w+)\]", sizes)):
                kind = kind * (constants[size] if size in constants else int(size))
            fields.append((member, kind))
        structure = type(name, (ctypes.Structure,), {"_fields_": fields})
        types[name] = structures[name] = structure
    return structures


def parse_functions(header: str) -> dict[str, int]:
    """Each exported function's index in the tables of faults and counters."""
    names = re.findall(r"X\((nvml\w+)\)", header)
    return {name: index for index, name in enumerate(names)}


_STATE_HEADER = (LIBRARY_SOURCE / "state.h").read_text()
CONSTANTS = parse_constants(_STATE_HEADER)
STRUCTURES = parse_structures(_STATE_HEADER)
State = STRUCTURES["fake_state_t"]
Process = STRUCTURES["fake_process_t"]
FUNCTIONS = parse_functions((LIBRARY_SOURCE / "functions.h").read_text())
