"""What the application does about recordings: fills its past from one that runs, and makes one."""

from __future__ import annotations

import os
import time
from collections.abc import Callable, Sequence
from contextlib import ExitStack
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.core import units
from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.tui.charts.strips import StripCache
from gpuwatch.tui.controllers.backfill import Filling
from gpuwatch.tui.controllers.timeline import TimelineApp

if TYPE_CHECKING:
    from gpuwatch.recording.recorder import BackgroundRecorder
    from gpuwatch.recording.running import RunningRecording

_ENDING_SECONDS = 5.0


class RecorderApp(TimelineApp):
    """The part of ``GpuwatchApp`` that is about recordings."""

    def _begin_recordings(
        self, find: Callable[[], Sequence[RunningRecording]] | None, notes: Path | None
    ) -> None:
        """Part of the start. ``find`` gives the recordings that run; ``notes`` is where one of ours
        is announced (by default in the user's state folder)."""
        self._notes = notes
        self._recorder: BackgroundRecorder | None = None
        self._noticed: str | None = None
        self._announced = ExitStack()
        self._find_recordings = find
        self._filling: Filling | None = None
        self._early: list[Snapshot] = []

    def _leave_recordings(self) -> None:
        if self._filling is not None:
            self._filling.stop()
        if self._recorder is not None:
            self._stop_recording()

    def _take_for_recordings(self, snapshot: Snapshot) -> None:
        """Every snapshot, also while the picture is paused."""
        if self._find_recordings is not None:
            self._early.append(snapshot)
            if len(self._early) > 1:
                # The first picture does not wait for it.
                self._filling = Filling(self._find_recordings, self._source.simulated)
                for one in self._early:
                    self._filling.push(one)
                self._find_recordings = None
                self._early.clear()
        elif self._filling is not None:
            self._filling.push(snapshot)
        if self._recorder is not None:
            self._recorder.push(snapshot)

    def _look_at_recordings(self) -> bool:
        """Once a second; whether there is something new to draw."""
        changed = self._take_past()
        if self._recorder is not None:
            before = self.view.recording
            self.view.recording = self._recording_mark(self._recorder)
            changed = changed or before != self.view.recording
            state = self._recorder.state
            if state.trouble is not None and before != self.view.recording:
                self.say(state.trouble)
            if state.notice is not None and state.notice is not self._noticed:
                self.say(state.notice)
                changed = True
            self._noticed = state.notice
        return changed

    # -- the past -----------------------------------------------------------------------------

    def _take_past(self) -> bool:
        filling = self._filling
        if filling is None or not filling.done:
            return False
        self._filling = None
        filled = filling.take()
        if filled is None:
            return False
        view = self.view
        view.history, view.strips = filled.history, StripCache()
        view.job.series.clear()
        self._marks.add(filled.marks)
        view.spans = self._marks.spans
        since = time.strftime("%H:%M", time.localtime(filled.since_unix_seconds))
        self.say(f"the past since {since} comes from the recording {filled.path}")
        return True

    # -- a recording of our own ---------------------------------------------------------------

    def _recording_mark(self, recorder: BackgroundRecorder) -> str:
        state = recorder.state
        if recorder.error is not None or state.trouble is not None:
            return "REC fails"
        return f"REC {units.size(state.written_bytes)}"

    def action_record(self) -> None:
        """Begin a recording (asks for the file's name), or end it."""
        from gpuwatch.tui.screens.dialogs.record import RecordDialog  # noqa: PLC0415

        if self.view.replay is not None:
            self.say("this already is a recording")
            self.redraw()
        elif self._recorder is not None:
            self.say(self._stop_recording())
            self.redraw()
        else:
            name = time.strftime("gpuwatch-%Y%m%d-%H%M%S.jsonl.zst")
            self.push_screen(RecordDialog(name, self.palette, self.view.glyphs), self._named)

    def _named(self, name: str | None) -> None:
        if name:
            self.say(self._start_recording(name))
            self.redraw()

    def _start_recording(self, name: str) -> str:
        """What is to be said of it."""
        from gpuwatch.recording.recorder import (  # noqa: PLC0415
            BackgroundRecorder,
            Recorder,
            RecordingError,
        )
        from gpuwatch.recording.running import (  # noqa: PLC0415
            RunningRecording,
            announced,
        )

        path = Path(os.path.abspath(Path(name).expanduser()))  # noqa: PTH100 - links stay links
        try:
            self._recorder = BackgroundRecorder(Recorder(path))
        except RecordingError as error:
            # One line: the name as it was typed leaves room for the reason.
            return clean(str(error).replace(clean(str(path), 200), name))
        note = RunningRecording(
            pid=os.getpid(),
            path=str(path),
            started_at_unix_seconds=time.time(),
            interval_seconds=self.view.interval_seconds,
            simulated=self._source.simulated,
        )
        self._announced.enter_context(announced(note, self._notes))
        self.view.recording = "REC"
        return f"recording to {clean(str(path), 200)} (W ends it)"

    def _stop_recording(self) -> str:
        recorder, self._recorder = self._recorder, None
        assert recorder is not None
        self.view.recording = None
        whole = recorder.close(_ENDING_SECONDS)
        self._announced.close()
        state = recorder.state
        path = clean(str(state.path), 200)
        if not whole:
            return f"the end of {path} could not be written"
        if state.trouble is not None:
            return state.trouble
        lost = f"; {state.lost_snapshots} lost" if state.lost_snapshots else ""
        return f"{state.snapshots} snapshots are in {path}{lost}"
