"""Time: the charts' range, scrolling, the cursor, the marks."""

from dataclasses import replace

from gpuwatch.core.text import clean
from gpuwatch.tui.charts.timeline import SPANS, Timeline, mark_beside, span_words
from gpuwatch.tui.controllers.controller import Controller
from gpuwatch.tui.panels.findings import chosen_finding
from gpuwatch.tui.panels.time_axis import clock

_SCROLL_SHARE = 0.5
"""Share of the range that a press scrolls: what was at one edge is in the middle then."""


class TimelineController(Controller):
    """The stretch of time that all charts show."""

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
        self._show_time(after)

    def action_range(self, seconds: float) -> None:
        self._share_range()
        self._show_time(replace(self.view.timeline, span_seconds=seconds))

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
