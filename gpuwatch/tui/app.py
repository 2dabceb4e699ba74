"""The Textual application: one view, one sampler, and the screens on it."""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

from rich.terminal_theme import DIMMED_MONOKAI, TerminalTheme
from textual._styles_cache import StylesCache
from textual.app import App
from textual.binding import Binding, BindingType
from textual.driver import Driver
from textual.drivers.linux_driver import LinuxDriver
from textual.events import CursorPosition
from textual.screen import Screen

from gpuwatch.core import lean
from gpuwatch.core.model import Process, ProcessKey, Snapshot
from gpuwatch.core.sampler import Sampler
from gpuwatch.core.source import Source
from gpuwatch.core.text import clean
from gpuwatch.tui.charts.glyphs import ASCII, DOTS, UNICODE
from gpuwatch.tui.controllers.diagnosis import Diagnoser
from gpuwatch.tui.controllers.following import job_of_selected_process
from gpuwatch.tui.controllers.recording import RecorderApp
from gpuwatch.tui.keys import APP_KEYS
from gpuwatch.tui.panels.processes.order import rows
from gpuwatch.tui.screens.overview import OverviewScreen
from gpuwatch.tui.terminal import picture
from gpuwatch.tui.terminal.link import LinkProbe, over_ssh
from gpuwatch.tui.terminal.palette import GPUWATCH_DARK, GPUWATCH_LIGHT, THEMES, Palette
from gpuwatch.tui.terminal.terminal import TerminalDriver
from gpuwatch.tui.view import View, row_key

if TYPE_CHECKING:
    from gpuwatch.jobs.launch.runner import RunningJob
    from gpuwatch.outputs.report.store import ReportStore
    from gpuwatch.recording.running import RunningRecording

# What direct writing needs of Textual beyond its public interface; without it, its own way is
# taken, which is right too and only dearer.
_CAN_WRITE = all(hasattr(App, name) for name in ("_begin_update", "_end_update"))

INTERVALS = (0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0)
_MESSAGE_SECONDS = 6.0
_TIDY_SECONDS = 60.0
_SLOW_LINK_LEAST_SECONDS = 2.0
"""A slow link is drawn to at most this often; sampling goes on at its own pace."""
_AGAIN_SECONDS = 0.1
"""Until a terminal that was behind is looked at again."""
_ALWAYS_ENDING = (signal.SIGTERM, signal.SIGINT)
_ENDING_SIGNALS = (
    *_ALWAYS_ENDING,
    *(signal.SIGHUP, signal.SIGQUIT, signal.SIGABRT, signal.SIGALRM),
    *(signal.SIGUSR1, signal.SIGUSR2),
)
TERMINAL_GONE = 128 + signal.SIGHUP


class GpuwatchApp(RecorderApp):
    """Shows what ``sampler`` delivers. Give ``ascii_mode`` or ``slow_link`` to override what is
    detected; ``theme`` is a Textual theme's name or ``dark``, ``light``, ``ansi``."""

    TITLE = "gpuwatch"
    ENABLE_COMMAND_PALETTE = False
    BINDINGS: ClassVar[list[BindingType]] = [
        Binding(key.keys, key.action, key.help, show=False, priority=key.action == "interrupt")
        for key in APP_KEYS
    ]

    def __init__(
        self,
        source: Source,
        sampler: Sampler,
        *,
        ascii_mode: bool | None = None,
        theme: str | None = None,
        slow_link: bool | None = None,
        environment: Mapping[str, str] = os.environ,
        attached: ProcessKey | None = None,
        running: RunningJob | None = None,
        reports: ReportStore | None = None,
        make_engine: Callable[[], Diagnoser] | None = None,
        find_recordings: Callable[[], Sequence[RunningRecording]] | None = None,
        notes: Path | None = None,
    ) -> None:
        no_color = bool(environment.get("NO_COLOR"))
        if not no_color:
            # Set but empty means not set (no-color.org); Textual would take it for set.
            os.environ.pop("NO_COLOR", None)
        # A shell that exports these freezes the size: Textual would believe them, and no resize.
        os.environ.pop("COLUMNS", None)
        os.environ.pop("LINES", None)
        super().__init__(ansi_color=True if no_color else None)
        self._source = source
        self._no_color = no_color
        self._sampler = sampler
        self._sampling: asyncio.Task[None] | None = None
        self.error: BaseException | None = None
        self._term_sent: set[tuple[int, float | None]] = set()
        self._message: str | None = None
        self._message_until = 0.0
        self._drawn_at = float("-inf")
        self._drawing_later = False
        self._link = LinkProbe() if slow_link is None and over_ssh(environment) else None
        if ascii_mode is None:
            ascii_mode = not speaks_unicode(environment)
        self.view = View(
            interval_seconds=sampler.interval_seconds,
            all_processes=source.options.all_processes,
        )
        for own_theme in (GPUWATCH_DARK, GPUWATCH_LIGHT):
            self.register_theme(own_theme)
        self.theme = "ansi-dark" if no_color else theme_name(theme, environment)
        self.palette = Palette(self.current_theme, no_color)
        self._choose_glyphs(ascii_mode)
        self._overview = OverviewScreen(self.view, self.palette)
        self._watch_job(attached, running, reports)
        self._begin_diagnosis(make_engine)
        self._begin_recordings(find_recordings, notes)
        if slow_link:
            self._use_slow_link()

    def get_driver_class(self) -> type[Driver]:
        found = super().get_driver_class()
        return TerminalDriver if found is LinuxDriver else found

    def write_directly(self, text: str) -> bool:
        """Send ``text`` to the terminal, past the compositor; ``False`` where that cannot be done
        (no terminal, a batch of updates under way) and the usual way must be taken."""
        driver = self._driver
        if (
            not _CAN_WRITE
            or driver is None
            or self.is_headless
            or not self.is_running
            or self._batch_count
        ):
            return False
        self._begin_update()
        driver.write(text)
        self._end_update()
        driver.flush()
        return True

    # -- life -------------------------------------------------------------------------------

    def get_default_screen(self) -> Screen[None]:
        return self._overview

    def on_mount(self) -> None:
        self._begin_job()
        self._sampling = asyncio.create_task(self._sampler.run(self.deliver))
        self._sampling.add_done_callback(self._task_ended)
        self.set_interval(1.0, self._every_second)
        self.set_interval(_TIDY_SECONDS, tidy)
        # Asked to end from outside, the terminal must still be given back as it was.
        with contextlib.suppress(NotImplementedError, RuntimeError, ValueError):
            loop = asyncio.get_running_loop()
            for number in _ENDING_SIGNALS:
                before = signal.getsignal(number)
                hangs_up = number == signal.SIGHUP and before != signal.SIG_IGN
                # nohup has it ignore one, and a job that it runs may be sent others.
                if number in _ALWAYS_ENDING or before is signal.SIG_DFL or hangs_up:
                    loop.add_signal_handler(number, self.exit, None, 128 + number)
            if isinstance(self._driver, TerminalDriver):
                # Textual's own handlers write from wherever the program happens to be.
                loop.add_signal_handler(signal.SIGTSTP, self._driver.lend)
                loop.add_signal_handler(signal.SIGCONT, self._driver.take_back)
                self.app_resume_signal.subscribe(self, self._draw_anew)
        if self._link is not None:
            self.call_after_refresh(self._link.start, self._driver)

    async def on_unmount(self) -> None:
        if self._sampling is not None:
            self._sampling.cancel()
        self._leave_job()
        self._leave_recordings()

    def _task_ended(self, task: asyncio.Task[None]) -> None:
        """A bug in drawing must end the program with its error, not freeze the picture."""
        if not task.cancelled() and (error := task.exception()) is not None:
            self.error = error
            self.exit(70)

    def deliver(self, snapshot: Snapshot) -> None:
        """Keep every snapshot; draw the newest, unless the person paused the picture."""
        view = self.view
        view.history.push(snapshot)
        self._take_for_recordings(snapshot)
        self._follow_job(snapshot)
        self._diagnose(snapshot)
        first = view.snapshot is None
        if view.paused and not first:
            return
        view.snapshot = snapshot
        view.stale_seconds = None
        view.interval_seconds = self._sampler.interval_seconds
        if first:
            self._begin(snapshot)
        if snapshot.gpus and view.selected_gpu not in {gpu.uuid for gpu in snapshot.gpus}:
            view.selected_gpu = snapshot.gpus[0].uuid
        if view.slow_link and snapshot.monotonic_seconds - self._drawn_at < (
            _SLOW_LINK_LEAST_SECONDS - 0.05
        ):
            return
        self._drawn_at = snapshot.monotonic_seconds
        self.redraw()

    def _begin(self, snapshot: Snapshot) -> None:
        """Choose what a person most likely wants to see of this machine."""
        view = self.view
        view.focus = "gpus" if snapshot.gpus else "processes"
        if not snapshot.gpus:
            # "Processes on a GPU" is an empty list then: show the machine's, busiest first.
            self._source.options.all_processes = view.all_processes = True
            view.sort, view.tree = "cpu", False

    def _every_second(self) -> None:
        """What changes without a snapshot: the age of old data, a message that has been read."""
        if isinstance(self._driver, TerminalDriver) and self._driver.is_gone:
            self.exit(return_code=TERMINAL_GONE)
            return
        view = self.view
        age = self._sampler.age_seconds
        stale = age if self._sampler.overdue and not view.paused else None
        changed = stale is not None or (view.stale_seconds is not None and stale is None)
        view.stale_seconds = stale
        changed = self._look_at_recordings() or changed
        progress = self._stacking.progress()
        if progress is not None:
            self.say(progress)
            changed = True
        if view.message != self._message:
            # Said by a screen: it gets its time from now on.
            self._message, self._message_until = view.message, time.monotonic() + _MESSAGE_SECONDS
        elif view.message and time.monotonic() > self._message_until:
            view.message = self._message = None
            changed = True
        if view.snapshot is None and self._sampler.overdue:
            waited = self._sampler.in_flight_seconds or 0.0
            view.message = (
                f"the machine has not answered for {waited:.0f}s; still waiting (q quits)"
            )
            self._message_until = time.monotonic() + 2
            changed = True
        if self._link is not None and self._link.is_slow():
            self._link = None
            self._use_slow_link()
            self.say("slow connection: drawing less often (--no-slow-link turns this off)")
            changed = True
        if changed:
            self.redraw()

    def redraw(self) -> None:
        """Draw the screen in front (a dialog over it keeps its own picture)."""
        if self._exit:
            # Its parts are being taken down, and a snapshot can still come in between.
            return
        if self._terminal_is_behind:
            # What it shows next is then the newest picture, and not one after the other.
            if not self._drawing_later:
                self._drawing_later = True
                self.set_timer(_AGAIN_SECONDS, self._draw_later)
            return
        for screen in reversed(self.screen_stack):
            draw = getattr(screen, "redraw", None)
            if draw is not None:
                draw()
                return

    @property
    def _terminal_is_behind(self) -> bool:
        return isinstance(self._driver, TerminalDriver) and self._driver.is_behind

    def _draw_anew(self, _: object) -> None:
        """The terminal shows nothing of what was sent to it before."""
        for widget in self.screen.walk_children(with_self=True):
            widget.refresh()

    def action_suspend_process(self) -> None:
        if not isinstance(self._driver, TerminalDriver) or not self._driver.can_be_lent:
            self.say("no shell to return to")
            self.redraw()
        else:
            # To what feeds this through a pipe, too, as the terminal itself would.
            os.killpg(os.getpgrp(), signal.SIGTSTP)

    def _draw_later(self) -> None:
        self._drawing_later = False
        self.redraw()

    def _choose_glyphs(self, ascii_mode: bool) -> None:
        # A tone costs a colour change of some twenty bytes, a dotted cell three.
        has_tones = not (self._no_color or self.current_theme.ansi or self.view.slow_link)
        self.view.glyphs = ASCII if ascii_mode else UNICODE if has_tones else DOTS

    def say(self, message: str) -> None:
        """Show ``message`` in place of the keys for a few seconds."""
        self.view.message = self._message = message
        self._message_until = time.monotonic() + _MESSAGE_SECONDS

    def _use_slow_link(self) -> None:
        self.view.slow_link = True
        self._choose_glyphs(self.view.glyphs is ASCII)

    # -- keys -------------------------------------------------------------------------------

    def check_action(self, action: str, parameters: tuple[object, ...]) -> bool | None:
        """While a filter is typed, keys are text; only Ctrl-C still quits."""
        del parameters
        return not self.view.filtering or action == "interrupt"

    def action_pause(self) -> None:
        view = self.view
        view.paused = not view.paused
        if not view.paused and self._sampler.latest is not None:
            view.snapshot = self._sampler.latest
            self._show_diagnosis()
        self.redraw()

    def action_faster(self) -> None:
        self._change_interval(-1)

    def action_slower(self) -> None:
        self._change_interval(1)

    def _change_interval(self, step: int) -> None:
        present = self._sampler.interval_seconds
        if step < 0:
            choices = [seconds for seconds in INTERVALS if seconds < present - 1e-9]
            wanted = choices[-1] if choices else None
        else:
            choices = [seconds for seconds in INTERVALS if seconds > present + 1e-9]
            wanted = choices[0] if choices else None
        if wanted is not None:
            self._sampler.interval_seconds = wanted
            self.view.interval_seconds = wanted
        self.redraw()

    def action_all_processes(self) -> None:
        options = self._source.options
        options.all_processes = self.view.all_processes = not options.all_processes
        self.say("all processes" if options.all_processes else "processes that use a GPU")
        self.redraw()

    def action_theme(self) -> None:
        position = THEMES.index(self.theme) if self.theme in THEMES else -1
        self.theme = THEMES[(position + 1) % len(THEMES)]
        self.palette = Palette(self.current_theme, self._no_color)
        self._choose_glyphs(self.view.glyphs is ASCII)
        self.say(f"theme: {self.theme}")
        for screen in self.screen_stack:
            repaint = getattr(screen, "repaint", None)
            if repaint is not None:
                repaint(self.palette)
        self.redraw()

    def action_ascii(self) -> None:
        self._choose_glyphs(self.view.glyphs is not ASCII)
        self.redraw()

    def action_save_picture(self) -> None:
        try:
            path = picture.save(self.picture(), time.time())
        except OSError as error:
            self.say(f"the picture could not be saved: {error.strerror or error}")
        else:
            self.say(f"saved {clean(str(path))}")
        self.redraw()

    def picture(self) -> str:
        """The screen as it stands, dialogs and all, as SVG."""
        strips = self.screen._compositor.render_strips()
        return picture.svg([list(strip) for strip in strips], self._picture_theme())

    def _picture_theme(self) -> TerminalTheme:
        """What "the terminal's own colours" are in a picture."""
        if not self.native_ansi_color:
            text = self.palette["text"]
            assert text.bgcolor is not None
            assert text.color is not None
            ground, ink = text.bgcolor.get_truecolor(), text.color.get_truecolor()
            return TerminalTheme((*ground,), (*ink,), [(0, 0, 0)] * 8)
        return DIMMED_MONOKAI

    def action_help(self) -> None:
        from gpuwatch.tui.screens.dialogs.windows import help_dialog  # noqa: PLC0415

        self.push_screen(help_dialog(self.palette, self.view.glyphs, self._source.simulated))

    def action_problems(self) -> None:
        from gpuwatch.tui.screens.dialogs.windows import problems_dialog  # noqa: PLC0415

        snapshot = self.view.snapshot
        if snapshot is not None:
            simulated = self._source.simulated
            self.push_screen(
                problems_dialog(snapshot.problems, self.palette, self.view.glyphs, simulated)
            )

    def action_open(self) -> None:
        """What is under the cursor: a finding, a GPU, or a process's job (its GPU without one)."""
        view = self.view
        if view.in_findings:
            self.action_evidence()
            return
        if view.focus == "processes" and view.selected_row is not None:
            job = job_of_selected_process(view)
            if job is not None:
                self.open_job(job)
                return
            uuid = view.selected_row[2]
            if uuid is None:
                self.say("this process belongs to no job and uses no GPU")
                self.redraw()
                return
            view.selected_gpu = uuid
        self.action_open_gpu()

    def action_open_gpu(self) -> None:
        """The detail of the selected GPU."""
        from gpuwatch.tui.screens.detail import DetailScreen  # noqa: PLC0415

        if self.view.gpus:
            self.push_screen(DetailScreen(self.view, self.palette, self._source.options))
        else:
            self.say("no GPU to open")
            self.redraw()

    # -- ending a process -------------------------------------------------------------------

    def action_end_process(self) -> None:
        from gpuwatch.tui.screens.dialogs.windows import EndProcessDialog  # noqa: PLC0415

        process = self._selected_process()
        snapshot = self.view.snapshot
        if process is None or snapshot is None:
            self.say("select a process first (up and down)")
            self.redraw()
            return
        if snapshot.simulated:
            self.say("a simulated process cannot be ended")
            self.redraw()
            return
        force = process.key in self._term_sent

        def decided(answer: bool | None) -> None:
            if answer:
                self._end(process, force)

        self.push_screen(EndProcessDialog(process, force, self.palette, self.view.glyphs), decided)

    def _selected_process(self) -> Process | None:
        """The one under the cursor of the screen in front; without a cursor the only one listed."""
        from gpuwatch.tui.screens.job import JobScreen  # noqa: PLC0415

        if isinstance(self.screen, JobScreen):
            return self.screen.selected_process()
        table = rows(self.view)
        for row in table:
            if row_key(row.process) == self.view.selected_row:
                return row.process
        return table[0].process if len(table) == 1 else None

    def _end(self, process: Process, force: bool) -> None:
        from gpuwatch.sources.linux.signals import end_process  # noqa: PLC0415

        result = end_process(process.pid, process.started_at_unix_seconds, force=force)
        if result.ok:
            self._term_sent.add(process.key)
        self.say(result.message)
        self.redraw()

    def on_cursor_position(self, event: CursorPosition) -> None:
        """The terminal's answer to the link probe."""
        del event
        if self._link is not None:
            self._link.answered()


def theme_name(wanted: str | None, environment: Mapping[str, str]) -> str:
    """The Textual theme for ``wanted``; sixteen-colour terminals get the terminal's own colours."""
    if wanted is None:
        return "ansi-dark" if _few_colours(environment) else GPUWATCH_DARK.name
    return {
        "dark": GPUWATCH_DARK.name,
        "light": GPUWATCH_LIGHT.name,
        "ansi": "ansi-dark",
    }.get(wanted, wanted)


def _few_colours(environment: Mapping[str, str]) -> bool:
    term = environment.get("TERM", "")
    if environment.get("COLORTERM") in {"truecolor", "24bit"}:
        return False
    return not any(mark in term for mark in ("256", "direct", "kitty", "alacritty", "ghostty"))


def speaks_unicode(environment: Mapping[str, str]) -> bool:
    """Whether block and braille characters will arrive: the output's encoding must be UTF-8, and
    the Linux console's font has none of them."""
    if environment.get("TERM") == "linux":
        return False
    stream = sys.__stdout__
    encoding = (stream.encoding if stream is not None else None) or "ascii"
    return encoding.lower().replace("-", "") == "utf8"


def tidy() -> None:
    """Free what would pile up over hours."""
    # By mistake this is kept for each widget, with the lines drawn of it, long after it has gone.
    forget = getattr(getattr(StylesCache, "get_inner_outer", None), "cache_clear", None)
    if forget is not None:
        forget()
    lean.tidy()
