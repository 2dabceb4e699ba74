"""What is used of Textual beyond its public interface: in one file, and there."""

import ast
from pathlib import Path

import pytest
from textual._styles_cache import StylesCache
from textual._xterm_parser import XTermParser
from textual.app import App
from textual.driver import Driver
from textual.drivers import linux_driver
from textual.drivers.linux_driver import LinuxDriver
from textual.screen import ModalScreen, Screen
from textual.widget import Widget

import gpuwatch.tui
from gpuwatch.tui.terminal import driver

TUI = Path(gpuwatch.tui.__file__).parent
OWN = Path(driver.__file__)
TEXTUALS = (App, Screen, ModalScreen, Widget, Driver, LinuxDriver)


def private_names(path: Path) -> set[str]:
    """Of all attributes that a file gets or sets, those with one underscore in front."""
    tree = ast.parse(path.read_text())
    names = {node.attr for node in ast.walk(tree) if isinstance(node, ast.Attribute)}
    return {name for name in names if name.startswith("_") and not name.startswith("__")}


def test_private_names_of_textual_are_used_in_one_file() -> None:
    """Nor has any class of ours an attribute that would take the place of a private one."""
    for path in sorted(TUI.rglob("*.py")):
        if path != OWN:
            taken = {
                name for name in private_names(path) for kind in TEXTUALS if hasattr(kind, name)
            }
            assert taken == set(), path
            assert "textual._" not in path.read_text(), path


@pytest.mark.parametrize(
    ("kind", "name"),
    [
        *((LinuxDriver, "run_input_thread"), (LinuxDriver, "disable_input")),
        *((StylesCache, "get_inner_outer"), (LinuxDriver, "stop_application_mode")),
        *((LinuxDriver, "suspend_application_mode"), (LinuxDriver, "resume_application_mode")),
        (linux_driver, "WriterThread"),
    ],
)
def test_textual_has_what_is_used_of_it(kind: object, name: str) -> None:
    """A new Textual without one of these would draw dearer, or not at all."""
    assert hasattr(kind, name)


async def test_a_running_application_has_what_is_used_of_it() -> None:
    """What only objects have."""
    app: App[None] = App()
    async with app.run_test():
        assert app._driver is not None
        assert driver.terminal_of(app) is None
        assert not driver.is_ending(app)
        assert app._batch_count == 0
        assert not app._sync_available
        assert driver.strips_of(app.screen)
        assert not driver.write_directly(app, "x")
    parser = XTermParser()
    assert list(parser.feed("\x1b")) == []
    assert parser._timeout_time is not None
