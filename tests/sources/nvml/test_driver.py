"""The driver as a whole: absent, broken, updated under us, hanging; the wrong pynvml."""

import subprocess
import sys
from pathlib import Path

import pytest

from gpuwatch.sources.nvml.messages import cannot_start
from gpuwatch.sources.nvml.tables import LIBRARY_NOT_FOUND
from tests.sources.nvml.watch import Watch, watching

ROOT = Path(__file__).parents[3]

SAY_PROBLEMS = """
from gpuwatch.core.source import ReadOptions, SystemClock
from gpuwatch.sources.nvml.source import NvmlSource
source = NvmlSource(SystemClock(), ReadOptions())
source.open()
reading = source.read()
assert reading.gpus == ()
for problem in reading.problems:
    print(problem.severity, problem.message)
source.close()
"""


def run_python(code: str, *search_first: Path) -> str:
    """Output of ``code`` in a fresh interpreter that looks for modules in these folders first."""
    paths = [str(path) for path in (*search_first, ROOT)]
    code = f"import sys; sys.path[:0] = {paths!r}\n{code}"
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60
    )
    return done.stdout.strip()


@pytest.mark.parametrize(
    ("error", "says"),
    [
        ("LIBRARY_NOT_FOUND", "No NVIDIA driver was found"),
        ("DRIVER_NOT_LOADED", "kernel module is not loaded"),
        ("LIB_RM_VERSION_MISMATCH", "reboot, or unload and reload the nvidia module"),
        ("NO_PERMISSION", "/dev/nvidiactl"),
        ("FUNCTION_NOT_FOUND", "update the driver"),
        ("UNKNOWN", "does not start (unknown error)"),
    ],
)
def test_a_driver_that_does_not_start_is_one_clear_sentence(
    watch: Watch, error: str, says: str
) -> None:
    """No GPUs, no exception, and exactly one error that says what is wrong and what to do."""
    watch.fake.fault_init(error)
    watch.tick()
    assert watch.last.gpus == ()
    (problem,) = watch.last.problems
    assert says in problem.message
    assert problem.severity == "error"
    assert problem.since_unix_seconds is not None


def test_no_devices_is_said(tmp_path: Path) -> None:
    """A driver that works and has no GPU is a sentence of its own."""
    with watching(tmp_path, gpus=0) as watch:
        watch.tick()
        assert watch.last.gpus == ()
        assert "has no GPU" in watch.problem("driver works").message


def test_a_driver_that_appears_later_is_found(pair: Watch) -> None:
    """While it is not there it is looked for every few seconds, and then the GPUs are shown."""
    pair.fake.fault_init("DRIVER_NOT_LOADED")
    pair.ticks(4)
    attempts = pair.fake.calls("nvmlInitWithFlags")
    assert attempts == 1
    began = pair.last.problems[0].since_unix_seconds
    pair.ticks(10)
    assert pair.fake.calls("nvmlInitWithFlags") <= 4
    assert pair.last.problems[0].since_unix_seconds == began
    pair.fake.fault_init("SUCCESS")
    pair.ticks(6)
    assert len(pair.last.gpus) == 2
    assert pair.last.problems == ()


@pytest.mark.parametrize("error", ["UNINITIALIZED", "DRIVER_NOT_LOADED"])
def test_a_driver_reset_while_watching_is_started_again(pair: Watch, error: str) -> None:
    """When the driver goes away under us a sentence says so, and it is taken up when it is back."""
    pair.tick()
    pair.fake.fault("nvmlDeviceGetUtilizationRates", error)
    pair.tick()
    assert pair.last.gpus == ()
    assert pair.problem("went away").severity == "error"
    pair.fake.fault("nvmlDeviceGetUtilizationRates", "SUCCESS")
    pair.ticks(6)
    assert len(pair.last.gpus) == 2
    assert pair.reading().busy_percent is not None
    assert pair.last.problems == ()


def test_a_driver_updated_while_watching_says_restart(watch: Watch) -> None:
    """This process keeps the old library, so the advice is to start gpuwatch again."""
    watch.tick()
    watch.fake.fault("nvmlDeviceGetUtilizationRates", "LIB_RM_VERSION_MISMATCH")
    watch.fake.fault_init("LIB_RM_VERSION_MISMATCH")
    watch.tick()
    assert "restart gpuwatch" in watch.last.problems[0].message
    watch.ticks(6)
    assert "restart gpuwatch" in watch.last.problems[0].message


def test_closing_shuts_the_library_down(watch: Watch) -> None:
    """Init and shutdown are balanced, and closing twice is harmless."""
    watch.tick()
    watch.source.close()
    watch.source.close()
    assert watch.fake.calls("nvmlShutdown") == 1
    assert watch.source.read().gpus == ()


def test_pynvml_is_imported_only_when_the_source_opens() -> None:
    """Importing the source, as every command does, does not load the binding."""
    code = "import gpuwatch.sources.nvml.source; print('pynvml' in sys.modules)"
    assert run_python(code) == "False"


def test_a_missing_binding_says_what_to_install() -> None:
    """Without nvidia-ml-py the one sentence is the pip command."""
    output = run_python("sys.modules['pynvml'] = None\n" + SAY_PROBLEMS)
    assert output.startswith("error ")
    assert "pip install nvidia-ml-py" in output


def test_the_abandoned_pynvml_package_is_recognised(tmp_path: Path) -> None:
    """A package that shadows NVIDIA's module is named, with both pip commands."""
    package = tmp_path / "pynvml"
    package.mkdir()
    (package / "__init__.py").write_text("from .nvml import *\n")
    (package / "nvml.py").write_text(
        "class NVMLError(Exception): pass\n"
        "def _nvmlGetFunctionPointer(name): raise NVMLError\n"
        "def nvmlInit(): raise AssertionError('must not be called')\n"
    )
    output = run_python(SAY_PROBLEMS, tmp_path)
    assert output.count("\n") == 0
    assert "pip uninstall pynvml" in output
    assert "pip install --force-reinstall nvidia-ml-py" in output


def test_without_any_driver_library_the_sentence_says_so() -> None:
    """On a machine without NVIDIA's library the real loader's failure becomes the sentence."""
    loads = "try:\n ctypes.CDLL('libnvidia-ml.so.1'); print('yes')\nexcept OSError:\n print('no')"
    if run_python(f"import ctypes\n{loads}") == "yes":
        pytest.skip("this machine has NVIDIA's library")
    assert "No NVIDIA driver was found" in run_python(SAY_PROBLEMS)


def test_advice_fits_where_we_run() -> None:
    """A container is told of --gpus all, a plain machine is not."""
    assert "--gpus all" in cannot_start(LIBRARY_NOT_FOUND, True)
    assert "--gpus all" not in cannot_start(LIBRARY_NOT_FOUND, False)
    assert "wsl --shutdown" in cannot_start(LIBRARY_NOT_FOUND, False, "5.15-microsoft-WSL2")
