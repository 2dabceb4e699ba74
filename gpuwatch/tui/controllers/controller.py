"""Controllers react to snapshots and to keys: their shape, and those of typing, time, recording."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING

from textual.events import Click, Event, Key, Paste

from gpuwatch.core import units
from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.tui.charts.timeline import SPANS, Timeline, mark_beside, span_words
from gpuwatch.tui.display import Display
from gpuwatch.tui.keys import Key as KeyRow
from gpuwatch.tui.panels.findings import chosen_finding
from gpuwatch.tui.panels.time_axis import clock
from gpuwatch.tui.terminal.frame import edited
from gpuwatch.tui.view import Prompt

if TYPE_CHECKING:
    from gpuwatch.recording.recorder import BackgroundRecorder


_LENGTH = 200
"""Characters that can be pasted."""


class Controller:
    """Concern of the application. A method ``action_NAME`` is what the key table calls NAME."""

    keys: Sequence[KeyRow] = ()
    """Keys that are there only with this controller, on every screen."""

    def __init__(self, display: Display) -> None:
        self.display = display
        self.view = display.view

    def start(self) -> None:
        """Called once the application runs."""

    def on_snapshot(self, snapshot: Snapshot) -> None:
        """Take each snapshot, also while the picture is paused."""

    def every_second(self) -> bool:
        """Look after what changes without a snapshot; return whether there is something new to
        draw."""
        return False

    def takes(self, event: Event) -> bool:
        """Say of a typed key or pasted text that it is for this controller alone."""
        del event
        return False

    def on_click(self, event: Click) -> None:
        """Take a click that a screen has seen too."""

    def close(self) -> None:
        """Keep what there is to keep, and leave nothing running."""


class TypingController(Controller):
    """Controller of a line that is typed. Keys are taken here rather than by an input widget: one
    would be mounted a moment later, and what is typed in that moment would act as commands."""

    def __init__(self, display: Display) -> None:
        super().__init__(display)
        self.openers: dict[str, Callable[[], None]] = {"filter": self.action_filter}
        """Actions that open a line. Their keys do so at once: bindings run a moment later, after
        what is typed behind them."""

    def open(self, prompt: Prompt) -> None:
        self.view.prompt = prompt
        self.display.redraw()

    def action_filter(self) -> None:
        def take(text: str | None) -> None:
            self.view.filter_text = text or ""

        hints = ("enter keeps it, esc clears it",)
        self.open(Prompt(" / ", hints, take, take, self.view.filter_text))

    def takes(self, event: Event) -> bool:
        """Take all that is typed into an open line, and the keys that open one."""
        prompt = self.view.prompt
        if event.is_forwarded or not isinstance(event, Key | Paste):
            return False
        if prompt is None:
            return isinstance(event, Key) and self._opens(event.key)
        text: str | None = None
        if isinstance(event, Paste):
            text = prompt.text + clean(event.text.strip(), _LENGTH)
        elif event.key == "ctrl+c":
            return False
        elif event.key in {"enter", "escape"} or (event.key == "backspace" and not prompt.text):
            self.view.prompt = None
            prompt.done(prompt.text if event.key == "enter" else None)
        else:
            text = edited(prompt.text, event.key, event.character)
        if text is not None:
            prompt.text = text
            prompt.changed(text)
        self.display.redraw()
        return True

    def _opens(self, key: str) -> bool:
        bound = self.display.app.screen.active_bindings.get(key)
        name = "" if bound is None else bound.binding.action.removeprefix("app.")
        if name in self.openers:
            self.openers[name]()
        return name in self.openers


def actions_of(parts: list[object]) -> dict[str, Callable[..., object]]:
    """Return the actions of ``parts`` by name; a later one takes the place of an earlier."""
    prefix = "action_"
    return {
        name.removeprefix(prefix): getattr(part, name)
        for part in parts
        for name in dir(part)
        if name.startswith(prefix)
    }


# -- time: the range of the charts, scrolling, the cursor, the marks -------------------------------


_SCROLL_SHARE = 0.5
"""Share of the range that a press scrolls: what was at one edge is in the middle then."""


class TimelineController(Controller):
    """Controller of the stretch of time that all charts show."""

    def _now(self) -> float:
        snapshot = self.view.snapshot
        return 0.0 if snapshot is None else snapshot.monotonic_seconds

    def _earliest(self) -> float:
        earliest = self.view.history.earliest_at
        return self._now() if earliest is None else earliest

    def _show_time(self, timeline: Timeline) -> None:
        self.view.timeline = timeline
        self.display.redraw()

    def _share_range(self) -> None:
        """Have the charts of a finding's evidence show the common range, beginning with their
        own."""
        from gpuwatch.tui.pages.findings import EvidenceScreen, own_span  # noqa: PLC0415

        view = self.view
        if not isinstance(self.display.app.screen, EvidenceScreen) or not view.own_range:
            return
        one = chosen_finding(view)
        if one is not None:
            view.timeline = replace(view.timeline, span_seconds=own_span(view, one))
        view.own_range = False

    def action_zoom(self, step: int) -> None:
        """Show a shorter or a longer range on all charts."""
        self._share_range()
        before = self.view.timeline
        after = before.zoomed(step, self._now())
        if after.span_seconds == before.span_seconds:
            which, span = ("longest", SPANS[-1]) if step > 0 else ("shortest", SPANS[0])
            self.display.say(f"the {which} range is {span_words(span)}")
        else:
            self.display.say(f"range: {span_words(after.span_seconds)}")
        self._choose_range(after)

    def action_range(self, seconds: float) -> None:
        self._share_range()
        self._choose_range(replace(self.view.timeline, span_seconds=seconds))

    def _choose_range(self, timeline: Timeline) -> None:
        if self.view.given_range is not None:
            self.view.given_range.is_refused = True
        self._show_time(timeline)

    def action_scroll_time(self, step: int) -> None:
        """Scroll half a range back or forth."""
        self._share_range()
        before, now = self.view.timeline, self._now()
        after = before.scrolled(step * _SCROLL_SHARE, now, self._earliest())
        if after == before:
            begin = clock(self.view, self._earliest())
            older = f"nothing older: the history begins at {begin}"
            self.display.say(older if step < 0 else "already live")
        self._show_time(after)

    def action_now(self) -> None:
        """Follow the newest again, without a cursor."""
        if self.view.timeline.moment is None:
            self.display.say("already live")
        self._show_time(Timeline(self.view.timeline.span_seconds))

    def action_cursor(self) -> None:
        """Put a cursor in the middle of what is shown, or take it away."""
        before = self.view.timeline
        if before.cursor_seconds is not None:
            self._show_time(before.without_cursor())
            return
        self._share_range()
        timeline, now = self.view.timeline, self._now()
        # Where there is something to see: the middle of what has been read of the range.
        end = now if timeline.end_seconds is None else timeline.end_seconds
        begin = max(self._earliest(), end - timeline.span_seconds)
        self._show_time(timeline.with_cursor((begin + end) / 2, now))

    def action_move_cursor(self, step: int) -> None:
        """Move the cursor by a column of the widest chart; without one, put it at the newest."""
        self._share_range()
        timeline, now = self.view.timeline, self._now()
        cursor = now if timeline.moment is None else timeline.moment
        if timeline.cursor_seconds is not None:
            cursor += step * self.view.column_seconds
        self._show_time(timeline.with_cursor(max(self._earliest(), min(now, cursor)), now))

    def action_point(self, x: int, start: int, cells: int) -> None:
        """Put the cursor where a chart was clicked that begins at ``start``."""
        self._share_range()
        grid, now = self.view.window.grid(cells), self._now()
        at = grid.begin_seconds + (x - start + 0.5) * grid.column_seconds
        self._show_time(self.view.timeline.with_cursor(min(at, now), now))

    def action_to_mark(self, step: int) -> None:
        """Go to where the finding before or after this moment began."""
        view = self.view
        self._share_range()
        timeline, now = view.timeline, self._now()
        start = now if timeline.moment is None else timeline.moment
        mark = mark_beside(view.spans, start, step)
        if mark is None:
            way = "before this" if step < 0 else "later"
            none = f"no finding began {way}" if view.spans else "no findings so far"
            self.display.answer(none)
            return
        self.display.say(f"{clock(view, mark.begin_seconds)} {clean(mark.summary)}")
        present = [gpu.uuid for gpu in view.gpus if gpu.uuid in mark.gpus]
        if present and view.selected_gpu not in mark.gpus:
            view.selected_gpu = next(uuid for uuid in mark.gpus if uuid in present)
        self._show_time(timeline.with_cursor(mark.begin_seconds, now))


# -- a key starts a recording, and ends it ---------------------------------------------------------


_CLOSE_SECONDS = 5.0


class RecordingController(Controller):
    def __init__(self, display: Display, newest: Callable[[], Diagnosis | None]) -> None:
        super().__init__(display)
        self.recorder: BackgroundRecorder | None = None
        self._newest = newest
        self._said: str | None = None

    def on_snapshot(self, snapshot: Snapshot) -> None:
        if self.recorder is not None:
            # What is found is known here: no second engine looks at the same snapshots.
            self.recorder.push(snapshot, self._newest())

    def every_second(self) -> bool:
        if self.recorder is None:
            return False
        before, state = self.view.recording, self.recorder.state
        fails = self.recorder.error is not None or state.trouble is not None
        self.view.recording = "REC fails" if fails else f"REC {units.size(state.written_bytes)}"
        changed = before != self.view.recording
        if state.trouble is not None and before != self.view.recording:
            self.display.say(state.trouble)
        if state.notice is not None and state.notice is not self._said:
            self.display.say(state.notice)
            changed = True
        self._said = state.notice
        return changed

    def close(self) -> None:
        if self.recorder is not None:
            # Where it is, is asked for when the picture has gone.
            self.display.farewell = self._stop()

    def action_record(self) -> None:
        """Begin a recording in the current folder, or end it."""
        if self.recorder is not None:
            self.display.answer(self._stop())
        else:
            self.display.answer(self._start(time.strftime("gpuwatch-%Y%m%d-%H%M%S.jsonl.zst")))

    def _start(self, name: str) -> str:
        """Begin; a sentence about it."""
        from gpuwatch.recording.recorder import BackgroundRecorder, Recorder, RecordingError  # noqa: PLC0415

        try:
            path = Path(os.path.abspath(name))  # noqa: PTH100 - links stay links
            self.recorder = BackgroundRecorder(Recorder(path))
        except RecordingError as error:
            return clean(str(error))
        except OSError as error:
            return f"nothing can be recorded in this folder: {error.strerror}"
        self.view.recording = "REC"
        return f"recording (W ends it) to {clean(str(path), 200)}"

    def _stop(self) -> str:
        """End it; a sentence about it."""
        recorder, self.recorder = self.recorder, None
        assert recorder is not None
        self.view.recording = None
        whole = recorder.close(_CLOSE_SECONDS, self._newest())
        state = recorder.state
        path = clean(str(state.path), 200)
        if not whole:
            return f"the end of {path} could not be written"
        if state.trouble is not None:
            return state.trouble
        lost = f"; {state.lost_snapshots} lost" if state.lost_snapshots else ""
        return f"recorded {units.plural(state.snapshots, 'snapshot')} to {path}{lost}"
