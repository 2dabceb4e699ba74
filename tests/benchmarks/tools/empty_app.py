"""The least a Textual program can be: one word on the screen. What Textual itself costs."""

from textual.app import App, ComposeResult
from textual.widgets import Static


class EmptyApp(App[None]):
    """Shows a word and does nothing; ends on ``q``."""

    BINDINGS = [("q", "quit", "quit")]  # noqa: RUF012

    def compose(self) -> ComposeResult:
        yield Static("empty")


if __name__ == "__main__":
    EmptyApp().run()
