"""HTML pages looked at: as a parser sees them, and in a real headless browser."""

import contextlib
import json
import os
import re
import shutil
import signal
import subprocess
import xml.etree.ElementTree as ET
from html.parser import HTMLParser
from pathlib import Path

import pytest

VOID = frozenset({"meta", "br", "hr", "img", "input", "link", "path", "rect", "line"})
BROWSERS = ("chromium", "chromium-browser", "google-chrome", "chrome")
BROWSER_SECONDS = 120


class Page(HTMLParser):
    """Tags that match, everything that is text, every attribute; the SVG parts as XML."""

    def __init__(self, text: str) -> None:
        super().__init__()
        self.tags: list[str] = []
        self.attributes: list[tuple[str, str, str | None]] = []
        self.texts: list[str] = []
        self.faults: list[str] = []
        self._open: list[str] = []
        self.feed(text)
        self.close()
        self.faults += [f"<{tag}> is not closed" for tag in self._open]
        self.drawings = [ET.fromstring(svg) for svg in re.findall(r"<svg.*?</svg>", text, re.S)]

    def handle_starttag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]
        if tag not in VOID:
            self._open.append(tag)

    def handle_startendtag(self, tag: str, attrs: list[tuple[str, str | None]]) -> None:
        self.tags.append(tag)
        self.attributes += [(tag, name, value) for name, value in attrs]

    def handle_endtag(self, tag: str) -> None:
        if not self._open or self._open.pop() != tag:
            self.faults.append(f"</{tag}> closes nothing")

    def handle_data(self, data: str) -> None:
        if not self._open or self._open[-1] != "style":
            self.texts.append(data)

    @property
    def text(self) -> str:
        return " ".join(" ".join(self.texts).split())

    def ids(self) -> list[str]:
        return [value or "" for _, name, value in self.attributes if name == "id"]


def browser() -> str:
    """A headless browser's program; the test is skipped where there is none."""
    for name in BROWSERS:
        path = shutil.which(name)
        if path is not None:
            return path
    pytest.skip("no headless browser (chromium) is installed")


def browse(folder: Path, page: Path, *options: str) -> str:
    """What the browser prints of ``page``; its profile is in ``folder``."""
    process = subprocess.Popen(
        [
            browser(),
            "--headless=new",
            "--no-sandbox",
            "--disable-gpu",
            "--disable-dev-shm-usage",
            "--hide-scrollbars",
            "--no-first-run",
            f"--user-data-dir={folder / 'profile'}",
            *options,
            page.as_uri(),
        ],
        stdout=subprocess.PIPE,
        stderr=subprocess.DEVNULL,
        start_new_session=True,
    )
    try:
        out, _ = process.communicate(timeout=BROWSER_SECONDS)
    finally:
        # Its helpers can outlive it.
        with contextlib.suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
    return out.decode("utf-8", "replace")


def measure(folder: Path, page: Path, width: int) -> dict[str, int]:
    """How wide the page's content is in a window of this width, and of its drawings how many are
    seen and how many reach out of it."""
    frame = folder / f"frame{width}.html"
    frame.write_text(
        f"""<!doctype html><iframe id="f" src="{page.as_uri()}" width="{width}" height="4000"
        style="border:0"></iframe><p id="told"></p><script>
        document.getElementById("f").addEventListener("load", (event) => {{
          const inner = event.target.contentDocument;
          const boxes = [...inner.querySelectorAll("svg")].map((s) => s.getBoundingClientRect());
          document.getElementById("told").textContent = "told " + JSON.stringify({{
            width: inner.documentElement.scrollWidth,
            drawn: boxes.filter((b) => b.width > 20 && b.height > 5).length,
            outside: boxes.filter((b) => b.right > {width} + 1).length,
          }});
        }});</script>""",
        encoding="utf-8",
    )
    printed = browse(
        folder, frame, "--allow-file-access-from-files", "--virtual-time-budget=5000", "--dump-dom"
    )
    found = re.search(r"told (\{[^}]*\})", printed.replace("&quot;", '"'))
    assert found is not None, printed[-500:]
    measured: dict[str, int] = json.loads(found[1])
    return measured
