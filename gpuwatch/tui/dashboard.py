"""Starts the dashboard and says how it ended."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from functools import partial
from typing import TYPE_CHECKING

from gpuwatch.core import lean
from gpuwatch.core.model import ProcessKey
from gpuwatch.core.sampler import Sampler
from gpuwatch.core.source import Source
from gpuwatch.tui.app import TERMINAL_GONE, GpuwatchApp
from gpuwatch.tui.controllers.diagnosis import Diagnoser
from gpuwatch.tui.terminal.terminal import let_go

if TYPE_CHECKING:
    from gpuwatch.jobs.launch.runner import RunningJob
    from gpuwatch.recording.running import RunningRecording
    from gpuwatch.tui.practice import Practice


def new_engine() -> Diagnoser:
    """The one that knows every rule: the last that is loaded of what stays."""
    from gpuwatch.diagnosis.engine.engine import Engine  # noqa: PLC0415

    engine = Engine()
    lean.settle()
    return engine


def _running() -> Sequence[RunningRecording]:
    from gpuwatch.recording.running import running_recordings  # noqa: PLC0415

    return running_recordings()


def run_dashboard(
    source: Source,
    sampler: Sampler,
    *,
    ascii_mode: bool | None = None,
    theme: str | None = None,
    slow_link: bool | None = None,
    attached: ProcessKey | None = None,
    running: RunningJob | None = None,
    message: str | None = None,
    practice: Practice | None = None,
) -> int:
    """Show the dashboard until the person quits; the exit code. ``message`` is said at first.

    ``attached``: a process (any of its job) whose job is the first picture. ``running``: a job that
    gpuwatch has started: its output is shown below it, and once it has ended, the exit code is
    its own (128 and more for a signal). ``practice``: what is wrong with it, and the knobs.
    """
    make: Callable[..., GpuwatchApp] = GpuwatchApp
    if practice is not None:
        from gpuwatch.tui.controllers.practice import PracticeApp  # noqa: PLC0415

        make = partial(PracticeApp, practice)
    app = make(
        source,
        sampler,
        make_engine=new_engine,
        find_recordings=_running,
        ascii_mode=ascii_mode,
        theme=theme,
        slow_link=slow_link,
        attached=attached,
        running=running,
    )
    if message:
        app.say(message)
    try:
        app.run()
    finally:
        sampler.close()
    return result_of(app)


def result_of(app: GpuwatchApp) -> int:
    """The exit code, after it has run. Raises what ended it."""
    if app.return_code == TERMINAL_GONE:
        let_go()
    if app.error is not None:
        raise app.error
    return app.return_code or 0
