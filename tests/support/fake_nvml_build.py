"""Compiles the simulated NVML library once per source, and links it once per variant.

What was built lies in folders under the system's temporary directory, named by a hash of the
source and of what the variant leaves out. A build is written beside it and renamed, so parallel
test workers never load half a file.
"""

import hashlib
import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterable
from pathlib import Path

from tests.support.fake_nvml_layout import FUNCTIONS, LIBRARY_SOURCE

SONAME = "libnvidia-ml.so.1"
"""The name under which pynvml, nvitop and nvtop ask the loader for NVML."""

OLD_DRIVER = frozenset(
    {
        "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetComputeRunningProcesses_v2",
        "nvmlDeviceGetComputeRunningProcesses_v3", "nvmlDeviceGetGraphicsRunningProcesses_v2",
        "nvmlDeviceGetGraphicsRunningProcesses_v3", "nvmlDeviceGetMPSComputeRunningProcesses_v2",
        "nvmlDeviceGetMPSComputeRunningProcesses_v3", "nvmlDeviceGetProcessesUtilizationInfo",
        "nvmlDeviceGetCurrentClocksEventReasons", "nvmlDeviceGetSupportedClocksEventReasons",
        "nvmlDeviceGetTemperatureV", "nvmlDeviceGetMarginTemperature", "nvmlDeviceGetFanSpeedRPM",
        "nvmlDeviceGetFieldValues", "nvmlDeviceGetNumGpuCores", "nvmlDeviceGetMemoryBusWidth",
        "nvmlDeviceGetNumaNodeId", "nvmlDeviceGetJpgUtilization", "nvmlDeviceGetOfaUtilization",
        *(name for name in FUNCTIONS if name.startswith("nvmlGpm")),
    }
)  # fmt: skip
"""What a driver of the 440 series does not export."""


_GPM = {name for name in FUNCTIONS if name.startswith("nvmlGpm")}
_LISTS_V3 = {
    f"nvmlDeviceGet{kind}RunningProcesses_v3" for kind in ("Compute", "Graphics", "MPSCompute")
}
_SINCE_510 = {"nvmlDeviceGetMemoryInfo_v2", *_LISTS_V3}
_SINCE_535 = {
    "nvmlDeviceGetCurrentClocksEventReasons",
    "nvmlDeviceGetSupportedClocksEventReasons",
    *_GPM,
}
_SINCE_555 = {
    "nvmlDeviceGetProcessesUtilizationInfo",
    "nvmlDeviceGetTemperatureV",
    "nvmlDeviceGetMarginTemperature",
    "nvmlDeviceGetFanSpeedRPM",
}
DRIVERS = {
    "450.36.06": _SINCE_510 | _SINCE_535 | _SINCE_555 | {name[:-1] + "2" for name in _LISTS_V3},
    "470.57.02": _SINCE_510 | _SINCE_535 | _SINCE_555,
    "510.39.01": _SINCE_535 | _SINCE_555,
    "530.41.03": _SINCE_535 | _SINCE_555,
    "535.54.03": _SINCE_555,
    "535.98": _SINCE_555 | _LISTS_V3,
    "535.104.05": _SINCE_555,
    "550.163.01": _SINCE_555,
    "580.95.05": set[str](),
}
"""What drivers do not export, of the functions here. The process lists are from nvitop (pull
requests 79, 89 and 94, which cite NVIDIA's nvidia-settings) and gpustat (issue 138), the memory
call and GPM from NVIDIA's mock of the library (k8s-test-infra, version.go). That the others came
with the version in their name is an assumption."""


class NoCompilerError(RuntimeError):
    """There is no C compiler, so the simulated library cannot be built."""


def compiler() -> str | None:
    """The C compiler to use (``$CC``, ``cc``, ``gcc`` or ``clang``), or ``None``."""
    candidates = [os.environ.get("CC"), "cc", "gcc", "clang"]
    return next((found for name in candidates if name and (found := shutil.which(name))), None)


def _sources() -> list[Path]:
    return sorted(LIBRARY_SOURCE.glob("*.[ch]"))


def _export_script(missing: Iterable[str]) -> str:
    hidden = "".join(f" {name};" for name in sorted(missing))
    return f"{{ global: nvml*; local:{hidden} *; }};\n"


def _key(*parts: str) -> str:
    digest = hashlib.sha256("\0".join(parts).encode())
    for source in _sources():
        digest.update(source.name.encode() + b"\0" + source.read_bytes())
    return digest.hexdigest()[:20]


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"the simulated NVML library does not compile:\n{done.stderr}")


def _compiled(cc: str, cache: Path) -> Path:
    """Return the one object file that every variant is linked from."""
    made = cache / _key() / "fake_nvml.o"
    if not made.exists():
        made.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
        with tempfile.TemporaryDirectory(dir=made.parent) as scratch:
            whole = Path(scratch, made.name)
            units = [str(source) for source in _sources() if source.suffix == ".c"]
            objects = [str(Path(scratch, f"{number}.o")) for number in range(len(units))]
            for unit, target in zip(units, objects, strict=True):
                _run([cc, "-std=gnu11", "-O1", "-fPIC", "-c", unit, "-o", target])
            _run([cc, "-r", "-nostdlib", "-o", str(whole), *objects])
            whole.replace(made)
    return made


def _link(cc: str, compiled: Path, target: Path, missing: frozenset[str]) -> None:
    with tempfile.TemporaryDirectory(dir=target.parent) as scratch:
        script = Path(scratch, "exports.map")
        script.write_text(_export_script(missing))
        built = Path(scratch, SONAME)
        command = [cc, "-shared", f"-Wl,-soname,{SONAME}", f"-Wl,--version-script={script}"]
        _run([*command, "-o", str(built), str(compiled), "-lm", "-lpthread"])
        built.replace(target)


def build(missing: Iterable[str] = ()) -> Path:
    """Return the path of the library without the functions named in ``missing``.

    Those are absent as symbols, so a caller meets what it meets on a driver too old for them.
    Raises ``NoCompilerError`` where there is no C compiler, ``ValueError`` for an unknown name.
    """
    absent = frozenset(missing)
    if unknown := absent - FUNCTIONS.keys():
        raise ValueError(f"the simulated library has no {', '.join(sorted(unknown))}")
    cache = Path(tempfile.gettempdir(), f"gpuwatch-fake-nvml-{os.getuid()}")
    library = cache / _key(_export_script(absent)) / SONAME
    if library.exists():
        return library
    cc = compiler()
    if cc is None:
        raise NoCompilerError("no C compiler (cc, gcc or clang): cannot build the simulated NVML")
    library.parent.mkdir(parents=True, exist_ok=True, mode=0o700)
    _link(cc, _compiled(cc, cache), library, absent)
    return library
