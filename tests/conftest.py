"""Settings for all tests."""

import os
import signal
from collections.abc import Iterator

import pytest
from hypothesis import HealthCheck, settings

from tests.support.children import Children, children

# A busy machine is no failure. Other examples each time: pytest --hypothesis-profile=search
settings.register_profile(
    "search", deadline=None, suppress_health_check=[HealthCheck.too_slow], print_blob=True
)
settings.register_profile("gpuwatch", settings.get_profile("search"), derandomize=True)
settings.load_profile("gpuwatch")


def pytest_xdist_auto_num_workers() -> int:
    """Return twice the cores: more than half of a test's time is spent waiting for a process."""
    return 2 * len(os.sched_getaffinity(0))


@pytest.fixture(scope="session", autouse=True)
def nothing_is_ignored_by_what_tests_start() -> None:
    """Who starts tests in the background, or under nohup, has these ignored, and so would all that
    they start; what is handled here, to no effect, is not."""
    for number in (signal.SIGINT, signal.SIGQUIT, signal.SIGHUP):
        if signal.getsignal(number) is signal.SIG_IGN:
            signal.signal(number, lambda *_: None)


@pytest.fixture(scope="session", autouse=True)
def own_runtime_folder(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    """Jobs that tell of themselves are seen by every gpuwatch of their user: those that a test
    starts tell in a folder of its worker's own."""
    before = os.environ.get("XDG_RUNTIME_DIR")
    folder = tmp_path_factory.mktemp("runtime")
    folder.chmod(0o700)
    os.environ["XDG_RUNTIME_DIR"] = str(folder)
    yield
    if before is None:
        del os.environ["XDG_RUNTIME_DIR"]
    else:
        os.environ["XDG_RUNTIME_DIR"] = before


@pytest.fixture
def started() -> Iterator[Children]:
    with children() as made:
        yield made
