"""Settings for all tests."""

import gc
import os
import signal
import sys
import time
from collections.abc import Iterator
from itertools import count
from pathlib import Path

import pytest
from hypothesis import HealthCheck, settings

from tests.support.children import Children, children

# A busy machine is no failure. More examples, others each time: pytest --hypothesis-profile=search
settings.register_profile(
    "search", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile(
    "gpuwatch", settings.get_profile("search"), derandomize=True, max_examples=25
)
settings.load_profile("gpuwatch")
_NUMBERS = count()
# Where no compiled files may be kept, each of four workers would compile all tests, and each of the
# hundreds of processes that they start all of gpuwatch and Textual.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
sys.dont_write_bytecode = False
# Times on screens and in reports are local: wherever tests run, local is UTC.
os.environ["TZ"] = "UTC"
time.tzset()


def pytest_xdist_auto_num_workers() -> int:
    """Return twice the cores: more than half of a test's time is spent waiting for a process."""
    return 2 * len(os.sched_getaffinity(0))


# Real servers, most of whose time is waited for.
_LONGEST = ("test_slurm.py", "test_exporter.py")


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Begin with the tests that wait longest, so that they are not waited for alone at the end."""
    items.sort(key=lambda item: item.path.name not in _LONGEST)


def pytest_collection() -> None:
    """Have no garbage collector look again and again at thousands of tests that are all kept."""
    gc.disable()


def pytest_collection_finish() -> None:
    """Have the garbage collector pass over the tests themselves: they are all kept to the end."""
    gc.freeze()
    gc.enable()


@pytest.fixture(scope="session", autouse=True)
def nothing_is_ignored_by_what_tests_start() -> None:
    """Who starts tests in the background, or under nohup, has these ignored, and so would all that
    they start; what is handled here, Ctrl-C as Python does and the others to no effect, is not."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            interrupts = number == signal.SIGINT
            signal.signal(number, signal.default_int_handler if interrupts else lambda *_: None)


@pytest.fixture(scope="session", autouse=True)
def users_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """What gpuwatch keeps for its user, and jobs that tell of themselves, are seen by every
    gpuwatch of that user: those of a test are in a folder of its worker's own."""
    names = ("XDG_RUNTIME_DIR", "XDG_STATE_HOME", "XDG_CONFIG_HOME")
    before = {name: os.environ.get(name) for name in names}
    folder = tmp_path_factory.mktemp("user")
    folder.chmod(0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    yield folder
    for name, value in before.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


@pytest.fixture(autouse=True)
def nothing_is_kept_yet(users_folder: Path) -> None:
    """No reports, recordings or preferences, neither of another test nor of who runs the tests."""
    fresh = users_folder / str(next(_NUMBERS))
    os.environ |= {"XDG_STATE_HOME": f"{fresh}/state", "XDG_CONFIG_HOME": f"{fresh}/config"}


@pytest.fixture
def started() -> Iterator[Children]:
    with children() as made:
        yield made
