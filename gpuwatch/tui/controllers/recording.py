"""A key starts a recording, and ends it."""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import TYPE_CHECKING

from gpuwatch.core import units
from gpuwatch.core.model import Snapshot
from gpuwatch.core.text import clean
from gpuwatch.tui.controllers.controller import Controller
from gpuwatch.tui.controllers.diagnosis import DiagnosisController
from gpuwatch.tui.display import Display

if TYPE_CHECKING:
    from gpuwatch.recording.recorder import BackgroundRecorder

_CLOSE_SECONDS = 5.0


class RecordingController(Controller):
    def __init__(self, display: Display, diagnosis: DiagnosisController) -> None:
        super().__init__(display)
        self.recorder: BackgroundRecorder | None = None
        self._diagnosis = diagnosis
        self._said: str | None = None

    def on_snapshot(self, snapshot: Snapshot) -> None:
        if self.recorder is not None:
            # What is found is known here: no second engine looks at the same snapshots.
            self.recorder.push(snapshot, self._diagnosis.latest)

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
            self._stop()

    def action_record(self) -> None:
        """Begin a recording (asks for the file's name), or end it."""
        from gpuwatch.tui.pages.dialogs import RecordDialog  # noqa: PLC0415

        if self.recorder is not None:
            self.display.answer(self._stop())
        else:
            name = time.strftime("gpuwatch-%Y%m%d-%H%M%S.jsonl.zst")
            self.display.show(RecordDialog(self.view, name), self._start_named)

    def _start_named(self, name: str | None) -> None:
        if name:
            self.display.answer(self._start(name))

    def _start(self, name: str) -> str:
        """Begin; a sentence about it."""
        from gpuwatch.recording.recorder import BackgroundRecorder, Recorder, RecordingError  # noqa: PLC0415

        path = Path(os.path.abspath(Path(name).expanduser()))  # noqa: PTH100 - links stay links
        try:
            self.recorder = BackgroundRecorder(Recorder(path))
        except RecordingError as error:
            # One line: the name as it was typed leaves room for the reason.
            return clean(str(error).replace(clean(str(path), 200), name))
        self.view.recording = "REC"
        return f"recording to {clean(str(path), 200)} (W ends it)"

    def _stop(self) -> str:
        """End it; a sentence about it."""
        recorder, self.recorder = self.recorder, None
        assert recorder is not None
        self.view.recording = None
        whole = recorder.close(_CLOSE_SECONDS)
        state = recorder.state
        path = clean(str(state.path), 200)
        if not whole:
            return f"the end of {path} could not be written"
        if state.trouble is not None:
            return state.trouble
        lost = f"; {state.lost_snapshots} lost" if state.lost_snapshots else ""
        return f"recorded {units.plural(state.snapshots, 'snapshot')} to {path}{lost}"
