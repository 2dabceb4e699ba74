"""What was chosen on the screens stays for the next time."""

import tomllib
from pathlib import Path

import pytest

from gpuwatch.tui.preferences import Preferences
from tests.tui.driving import driven
from tests.tui.scenes import scene

BY_HAND = """# mine
theme = "light"  # for the office
"""


async def left_after(preferences: Preferences, *keys: str, scenario: str = "starved") -> str | None:
    """Press ``keys`` in a dashboard, leave it and save."""
    what = scene(scenario, 0 if scenario == "no_gpu" else 2)
    async with driven(what, (120, 40), theme=None, preferences=preferences) as drive:
        await drive.press(*keys)
    return preferences.save(drive.view, drive.app.theme)


async def test_what_was_chosen_is_there_again(tmp_path: Path) -> None:
    """Each setting, in a file that only its owner can read; nothing else is written."""
    path = tmp_path / "config" / "gpuwatch" / "config.toml"
    assert await left_after(Preferences(path), "j", "escape", "p") is None
    assert not path.exists()
    keys = ("T", "s", "r", "right_square_bracket", "plus")
    assert await left_after(Preferences(path), *keys) is None
    assert path.stat().st_mode & 0o777 == 0o600
    assert tomllib.loads(path.read_text()) == {
        "theme": "gpuwatch-light",
        "sort": "busy",
        "reverse": True,
        "range_seconds": 60,
        "interval_seconds": 0.5,
    }
    again = Preferences(path)
    async with driven(theme=None, preferences=again) as drive:
        view = drive.view
        assert (view.sort, view.reverse, view.timeline.span_seconds) == ("busy", True, 60.0)
        assert drive.app.theme == "gpuwatch-light"
        assert drive.sampler.interval_seconds == view.interval_seconds == 0.5


async def test_a_file_written_by_hand_keeps_its_comments(tmp_path: Path) -> None:
    """Only the values that were changed are; a link stays one; what is chosen for a machine without
    a GPU is not the person's choice."""
    path, link = tmp_path / "mine.toml", tmp_path / "config.toml"
    path.write_text(BY_HAND)
    link.symlink_to(path)
    assert await left_after(Preferences(link), scenario="no_gpu") is None
    assert path.read_text() == BY_HAND
    preferences = Preferences(link)
    preferences.values["sort"] = "pid"
    assert await left_after(preferences, "T", "s") is None
    assert link.is_symlink()
    assert path.read_text() == BY_HAND.replace('"light"', '"ansi-dark"') + 'sort = "user"\n'


@pytest.mark.parametrize(
    ("text", "says"),
    [
        ("theme == 3", "line 1"),
        ("\x1b[2J", "is not used"),
        ('theme = "pink"', "theme must be one of dark, light"),
        ('thema = "dark"', "thema is none of theme, sort"),
        ("range_seconds = 7", "range_seconds must be one of 15, 30"),
        ('interval_seconds = "1s"', "interval_seconds must be one of 0.1, 0.2"),
        ("sort = [[1]]", "sort must be one of gpu, busy"),
        ('price = "2.5"', "price must be a number from 0 to 10,000"),
        ("price = true", "price must be a number"),
        ("price = nan", "price must be a number"),
        (b"\xff".decode("latin-1") * 70_000, "not a small text file"),
    ],
)
async def test_a_bad_file_is_one_sentence(tmp_path: Path, text: str, says: str) -> None:
    """The dashboard begins as if there were none, and does not write over it."""
    path = tmp_path / "config.toml"
    path.write_text(text)
    preferences = Preferences(path)
    assert says in str(preferences.problem)
    assert "\x1b" not in str(preferences.problem)
    assert preferences.values == {}
    assert await left_after(preferences, "T") is None
    assert path.read_text() == text


async def test_a_file_that_cannot_be_written_is_a_sentence(tmp_path: Path) -> None:
    """Said once the screen is left."""
    (tmp_path / "file").write_text("")
    says = await left_after(Preferences(tmp_path / "file" / "config.toml"), "T")
    assert "cannot be written" in str(says)


async def test_a_price_is_preferred_or_given(tmp_path: Path) -> None:
    """It stays in the file, and losses are said in money."""
    path = tmp_path / "config.toml"
    path.write_text("price = 2.5\n")
    preferences = Preferences(path)
    assert preferences.problem is None
    async with driven(scene("starved", 1), (120, 40), theme=None, preferences=preferences) as drive:
        assert drive.app.view.price_per_gpu_hour == 2.5
    assert path.read_text() == "price = 2.5\n"
