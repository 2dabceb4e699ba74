"""Dialogs: the help, what could not be read or checked, questions, and lists to choose from.

Loaded when the first of them opens.
"""

from __future__ import annotations

import re
from collections.abc import Collection, Iterator, Sequence
from itertools import zip_longest
from typing import TYPE_CHECKING, NamedTuple

from rich.text import Text
from textual import events

from gpuwatch.core import units
from gpuwatch.core.model import Gpu, Process
from gpuwatch.core.text import clean
from gpuwatch.diagnosis.finding import Unchecked, severity_place
from gpuwatch.diagnosis.rule import IDLE, NO_ANSWER, THROTTLED, UNDERUSED, WAITING, GpuState
from gpuwatch.tui.charts.strips import (
    BESIDE as SHADE_BESIDE,
)
from gpuwatch.tui.charts.strips import (
    FLOOR,
    HIGHEST,
    ON_PALE,
    Glyphs,
)
from gpuwatch.tui.charts.timeline import SPANS, span_words
from gpuwatch.tui.keys import BESIDE, FIRST, NORMAL, SELDOM, Key, described
from gpuwatch.tui.pages.layout import in_columns, scrolled
from gpuwatch.tui.pages.screen import WIDTH, Dialog
from gpuwatch.tui.panels.findings import SEVERITY_STYLES, how_to_read, undecided
from gpuwatch.tui.panels.gpus import FED, IN_USE, STATES, UNKNOWN
from gpuwatch.tui.terminal.frame import (
    Line,
    Row,
    Run,
    blank,
    edited,
    plain,
    width_of,
    wrapped,
)
from gpuwatch.tui.terminal.palette import THEMES
from gpuwatch.tui.view import INTERVALS, SORT_KEYS, View

if TYPE_CHECKING:
    from gpuwatch.jobs.stacks.report import StackReport


# -- texts and questions ---------------------------------------------------------------------------


class Section(NamedTuple):
    """Part of the help: its title, and rows of a key or a word, what that means, and the style of
    this. Those without a meaning stand one behind the other."""

    title: str
    rows: Sequence[tuple[Sequence[Run], str, str]]


def _words(rows: Sequence[tuple[str, str]]) -> list[tuple[Sequence[Run], str, str]]:
    return [([(word, "label")], meaning, "text") for word, meaning in rows]


_OF_RECORDING = Section(
    "The whole recording",
    _words(
        [
            ("busy", "solid: the idlest GPU; pale: the busiest"),
            ("click", "goes there"),
        ]
    ),
)
_OF_HOSTS = Section(
    "The columns",
    _words(
        [
            ("BUSY", "mean of its GPUs over the last 30 readings; pale: up to the busiest GPU"),
            ("LOST", "GPUs' worth of time that is lost to what was found"),
            (
                "GPU only",
                "no gpuwatch there: nvidia-smi is read, and CPUs, disks, jobs are unknown",
            ),
        ]
    ),
)
_OF_NUMBERS = Section(
    "Numbers",
    _words(
        [
            ("busy", "a kernel was resident: 100% can be a wait"),
            ("blank, -", "not measured, never zero"),
            ("rx tx", "from the host to the GPU, and back"),
            ("CPU", "100% is one core; MAIN: the main thread"),
            ("CPU-WAIT", "runnable, and no core is free"),
            ("DATA", "waits for data, as the job reports"),
            ("PSS", "memory; of n that share it each has 1/n"),
            ("role?", "a guess: nothing names the process"),
        ]
    ),
)


def help_dialog(view: View) -> Help:
    """Return the help: what charts show, the keys by group, and what words and numbers mean."""
    replay = view.replay is not None
    sections, legend = list[Section](), list[Section]()
    for group, keys in described(replay=replay, fleet=view.fleet):
        rows = [
            ([(key.shown, _LOOKS[key.place][0])], key.help, _LOOKS[key.place][1])
            for key in keys
            if key.place != BESIDE
        ]
        sections.append(Section(group, rows))
    if view.fleet:
        legend.append(_OF_HOSTS)
    else:
        states = [
            ([(_swatch(state, view.glyphs)), (f" {state.word}", state.hue)], state.meaning, "text")
            for state in STATES
        ]
        legend += [Section("Charts", _samples(view.glyphs)), Section("What a GPU does", states)]
        legend += [_OF_RECORDING] if replay else []
        legend.append(_OF_NUMBERS)
    title = "gpuwatch replay: keys" if replay else "gpuwatch: keys"
    return Help(view, title, sections, legend)


_LOOKS = {FIRST: ("key", "value"), NORMAL: ("key", "text"), SELDOM: ("label", "label")}
"""Styles of a key and of what it does, by its place."""


def _swatch(state: GpuState, glyphs: Glyphs) -> Run:
    """Return two cells of a chart of a GPU in that state."""
    hue, low = state.hue, glyphs.solid[1]
    text, style = low, f"{hue}/{hue}.{FLOOR}"
    if state is FED:
        text, style = glyphs.solid[8], f"{hue}.{glyphs.fill[8]}"
    elif state is IN_USE:
        text, style = glyphs.solid[4], f"{FED.hue}.{glyphs.fill[4]}"
    elif state in _BUSY_WITHOUT_WORK:
        text, style = glyphs.solid[4], f"{FED.hue}+{hue}.{ON_PALE}"
    elif state is IDLE:
        style = f"{hue}.{FLOOR}"
    elif state in (NO_ANSWER, UNKNOWN):
        text, style = " ", "text"
    return text * 2, style


_BUSY_WITHOUT_WORK = (THROTTLED, WAITING, UNDERUSED)


def _samples(glyphs: Glyphs) -> list[tuple[Sequence[Run], str, str]]:
    """Return what charts are made of, each with its word."""
    full, low = glyphs.solid[8] * 2, glyphs.solid[1] * 2
    above = (
        ("─" * 2, f"fed.{HIGHEST}")
        if glyphs.tones
        else ((glyphs.pale or glyphs.ranges[0][8]) * 2, f"fed.{glyphs.pale_tone}")
    )
    samples = (
        (full, f"fed.{glyphs.fill[8]}", "mean" if glyphs.solid_to else "lowest"),
        (*above, "highest"),
        (low, f"idle.{FLOOR}", "idle"),
        (low, f"starved/starved.{FLOOR}", "lost time"),
        (full, f"worker.{glyphs.fill[8]}{SHADE_BESIDE}", "cause"),
        (full, f"area.{glyphs.fill[8]}{SHADE_BESIDE}", "the rest"),
        (glyphs.warning, "warn", "finding"),
        (glyphs.mark, "marker", "change"),
    )
    return [([(text, style), (f" {word}  ", "text")], "", "") for text, style, word in samples]


class Help(Dialog):
    """Dialog of sections, in as many columns as there is room for."""

    CELLS_MOST = 175

    def __init__(
        self, view: View, title: str, keys: Sequence[Section], legend: Sequence[Section]
    ) -> None:
        super().__init__(view, title, Text())
        self._keys, self._legend = keys, legend

    @property
    def text(self) -> str:
        every = [*self._keys, *self._legend]
        rows = [f"{plain(tuple(runs))} {text}" for one in every for runs, text, _ in one.rows]
        return "\n".join([*rows, *[one.title for one in every]])

    def lines(self, width: int) -> list[Line]:
        count = 1 + sum(width >= least for least in _COLUMNS)
        cells = (width - _COLUMN_GAP * (count - 1)) // count
        rule = self._view.glyphs.rule
        # In one column they are on the first screen: nothing beside charts has room to say it.
        first = 1 if count == 1 and len(self._legend) > 1 else 0
        every = [*self._legend[:first], *self._keys, *self._legend[first:]]
        parts = [_section_lines(one, cells, rule) for one in every]
        columns = in_columns(parts, count, apart=1)
        if max(map(len, columns)) > self.app.size.height - 2:
            columns = in_columns(parts, count, apart=0)
        lines = []
        for each in zip_longest(*columns):
            row = Row(width, prefix="b:")
            for place, line in enumerate(each):
                row.pad_to(place * (cells + _COLUMN_GAP)).add_runs(line or blank(cells), cells)
            lines.append(row.line())
        return lines


_COLUMNS, _COLUMN_GAP = (102, 175), 2
"""Widths from which on there is one column more, and cells between two."""
_MEANING_AT = 15
"""Cell in which what a row means begins."""


def _section_lines(section: Section, width: int, rule: str) -> list[Line]:
    heading = Row(width).add(f"{section.title} ", "title")
    rows = [heading.add(rule * heading.room, "rule")]
    follows = False
    for runs, meaning, style in section.rows:
        cells = sum(width_of(text) for text, _ in runs)
        if not (follows and cells <= rows[-1].room):
            rows.append(Row(width).add("  "))
        rows[-1].add_runs(runs, cells)
        follows = not meaning
        for place, text in enumerate(wrapped(meaning, width - _MEANING_AT)):
            rows += [Row(width)] if place else []
            rows[-1].pad_to(_MEANING_AT).add(text, style)
    return [row.line() for row in rows]


def problems_dialog(view: View) -> Dialog:
    """Return a dialog with everything that could not be read, and what is merely good to know."""
    problems = () if view.snapshot is None else view.snapshot.problems
    text = Text()
    if not problems:
        text.append("Everything this machine reports is being read.")
    for problem in sorted(problems, key=lambda one: severity_place(one.severity)):
        text.append(f"{problem.severity}  ", SEVERITY_STYLES.get(problem.severity, "label"))
        text.append(problem.source, "label")
        if problem.since_unix_seconds is not None:
            since = units.clock(problem.since_unix_seconds)
            text.append(f"  since {since}", "dim")
        text.append(f"\n  {problem.message}\n")
    return Dialog(view, units.plural(len(problems), "message"), text)


def unknown_dialog(view: View, unknown: Sequence[Unchecked]) -> Dialog:
    """Return a dialog with the checks that lack data, by the readings that were missing, with the
    GPUs or jobs it is about where not all are."""
    text, gpus = Text(), view.gpus
    if not unknown:
        text.append("Every cause was checked." if gpus else "There is no GPU to check.")
    for missing, causes in undecided(unknown).items():
        here = [one for one in unknown if clean(", ".join(one.missing)) == missing]
        text.append(missing, "title")
        where = list(dict.fromkeys(name for one in here for name in _where(one, gpus)))
        if 0 < len(where) < max(2, len(gpus)):
            text.append(f"  ({', '.join(where)})", "label")
        text.append(f"{how_to_read(missing)}\n  needed for: {', '.join(causes)}\n")
    text.rstrip()
    return Dialog(view, "not checked, for lack of data", text)


def _where(one: Unchecked, gpus: Sequence[Gpu]) -> list[str]:
    named = [f"GPU {gpu.identity.index}" for gpu in gpus if gpu.uuid in one.gpus]
    if named or one.job is None:
        return named
    return [f"PID {one.job[0]}"]


def command_dialog(view: View, process: Process) -> Dialog:
    command = process.command or process.name or "-"
    text = Text.assemble((f"user {clean(process.user or '-')}\n\n", "label"), command)
    return Dialog(view, f"PID {process.pid}", text)


def stacks_dialog(view: View, reports: Sequence[StackReport]) -> Dialog:
    """Return a dialog with what ``gpuwatch diagnose --stacks`` prints of these processes."""
    from gpuwatch.outputs.stacks import stacks_page  # noqa: PLC0415 - seldom asked for

    text = Text(stacks_page(reports, width=WIDTH, ascii_only=view.glyphs.is_ascii))
    text.highlight_regex("[█▏▎▍▌▋▊▉#]+", "host")
    return Dialog(view, "where the main threads are", text)


def end_process_dialog(view: View, process: Process, force: bool) -> Dialog:
    """Return a dialog that asks before a process is ended; the answer is empty for no."""
    text = Text.assemble(
        ("PID ", "label"),
        (str(process.pid), "value"),
        (f"   user {process.user or '-'}\n", "label"),
        f"{(process.command or process.name or '-')[:400]}\n\n",
    )
    if force:
        text.append("It got SIGTERM and is still running. ", "warn")
        text.append("SIGKILL ends it at once; nothing is saved.\n\n")
    else:
        text.append("SIGTERM asks it to exit and clean up. ")
        text.append("If it does not, press k again for SIGKILL.\n\n")
    text.append("y", "key").append(f" send {'SIGKILL' if force else 'SIGTERM'}     ")
    text.append("n", "key").append(" cancel")
    answers = {"y": "yes", "n,escape,q": ""}
    return Dialog(view, "kill this process?", text, "y / n", answers)


def leave_job_dialog(view: View, command: str, *, ends: bool) -> Dialog:
    """Return a dialog that asks, when the dashboard is left, what shall become of the job it
    started: ``leave``, ``interrupt`` or ``stay``. ``ends``: it ends with the dashboard."""
    leaving = "leave it running and quit; its output still goes to its file"
    if ends:
        leaving = "quit, and end it (SIGTERM), as --kill-on-exit asks"
    interrupting = "interrupt it (as Ctrl-C does) and quit once it has ended"
    text = Text(f"{command[:400]}\n\n")
    for key, what in (("l", leaving), ("i", interrupting), ("s", "stay")):
        text.append(f"  {key}", "key").append(f"  {what}\n")
    answers = {"l": "leave", "i": "interrupt", "s,n,escape,q": "stay"}
    return Dialog(view, "the job is still running", text, "l / i / s", answers)


# -- lists to choose from --------------------------------------------------------------------------


_HEAD_ROWS = 2
"""The line that is typed into, and a blank one below it."""


class Choice(NamedTuple):
    """Line of a menu. ``note``: at the right."""

    name: str
    text: str
    note: str = ""


def _match(words: Sequence[str], choice: Choice) -> tuple[int, Collection[int]] | None:
    """Return how far ``choice`` is from what was typed, and which of its characters were; ``None``:
    some word is not in it. Nearest: its key, or a word of it that begins so; then any part of it,
    and the name of its action."""
    also = _ALSO_NAMED.get(choice.name, "")
    text, named = choice.text.lower(), f"{choice.name} {also}".replace("_", " ")
    keys = choice.note.lower().split()
    far, places = 0, set[int]()
    for word in words:
        begins = re.search(rf"\b{re.escape(word)}", text)
        at = text.find(word) if begins is None else begins.start()
        if word in keys:
            far -= 1
        elif at >= 0:
            far += begins is None
            places.update(range(at, at + len(word)))
        elif word in named:
            far += 2
        else:
            return None
    return far, places


class Menu(Dialog):
    """List to choose from, which ends with the name of what was chosen, an empty one for
    nothing."""

    def __init__(self, view: View, title: str, choices: Sequence[Choice]) -> None:
        self._choices = choices
        self._typed = ""
        self._position, self._offset = 0, 0
        super().__init__(view, title, Text(), "enter chooses, esc closes", {})

    @property
    def text(self) -> str:
        return "\n".join(map(plain, self.lines(WIDTH)))

    @property
    def _found(self) -> list[tuple[Choice, Collection[int]]]:
        """Return the choices that have every word that was typed, the nearest first, and where they
        have it."""
        words = self._typed.lower().split()
        matches = [(_match(words, one), one) for one in self._choices]
        found = [(match, one) for match, one in matches if match is not None]
        found.sort(key=lambda each: each[0][0])
        return [(one, places) for (_, places), one in found]

    def on_key(self, event: events.Key) -> None:
        event.stop()
        event.prevent_default()
        match event.key:
            case "escape" | "ctrl+c":
                self.dismiss("")
            case "enter":
                self._choose()
            case "up" | "down" | "pageup" | "pagedown" | "home" | "end":
                page = self._rows
                steps = {"up": -1, "down": 1, "pageup": -page, "pagedown": page}
                self._move(steps.get(event.key, len(self._choices) * (event.key == "end" or -1)))
            case key:
                text = edited(self._typed, key, event.character)
                if text is not None:
                    self._typed, self._position = text, 0
                    self.redraw()

    def on_click(self, event: events.Click) -> None:
        """Choose what was clicked; a click beside the window closes it."""
        place = event.screen_y - self.box.y - 1 - _HEAD_ROWS
        if not self.box.contains(event.screen_x, event.screen_y):
            self.dismiss("")
        elif 0 <= place < min(self._rows, len(self._found) - self._offset):
            self._position = self._offset + place
            self._choose()

    def on_mouse_scroll_down(self) -> None:
        self._move(1)

    def on_mouse_scroll_up(self) -> None:
        self._move(-1)

    def _move(self, step: int) -> None:
        self._position = max(0, min(self._position + step, len(self._found) - 1))
        self.redraw()

    def _choose(self) -> None:
        found = self._found
        if found:
            self.dismiss(found[self._position][0].name)

    @property
    def _rows(self) -> int:
        return max(1, self.app.size.height - _HEAD_ROWS - 2)

    def lines(self, width: int) -> list[Line]:
        glyphs, found = self._glyphs, self._found
        rows = min(self._rows, len(self._choices))
        self._offset = scrolled(self._offset, self._position, rows, len(found))
        line = Row(width, prefix="b:")
        line.add(f"{self._typed}{glyphs.cursor}", "key")
        line.add("" if self._typed else " type to search", "dim")
        lines = [line.line(), Row(width, prefix="b:").line()]
        for place in range(self._offset, self._offset + rows):
            chosen = place == self._position
            line = Row(width, prefix="s:" if chosen else "b:")
            if place < len(found):
                one, typed = found[place]
                line.add(f"{glyphs.marker} " if chosen else "  ", "marker")
                for at, character in enumerate(one.text):
                    line.add(character, "key" if at in typed else "text")
                if line.room > len(one.note) + 1:
                    line.pad_to(width - len(one.note)).add(one.note, "label")
            elif not found and place == self._offset:
                line.add("  nothing of that name", "label")
            lines.append(line.line())
        return lines


# -- the command palette ---------------------------------------------------------------------------


_TWO_WAYS = re.compile(r"(\S+) or (\S+?)(,.*)?(?= |$)")
_STEP = re.compile(r"\((-?\d+)\)$")


_FIRST = ("app.findings", "app.job", "app.report", "app.record", "app.theme")
"""Commands that people look for, which come first."""
_EVERYWHERE = (
    Choice("app.report", "the report of the job", "R"),
    Choice("app.unknown", "causes that could not be checked, and why", "u"),
    Choice("app.stacks", "where the job's main threads are: their stacks", "S"),
)
"""Commands that find or say what they need on pages that have no key for them."""
_ALSO_NAMED = {
    "app.report": "share html",
    "app.save_report": "share",
    "app.save_picture": "share screenshot image",
}
"""Other words that people look for a command by."""


def command_palette(view: View, actions: Collection[str]) -> Menu:
    """Return the command palette, which ends with an action of a screen whose keys have
    ``actions``."""
    return Menu(view, "commands", list(_commands(view, actions)))


def _commands(view: View, actions: Collection[str]) -> Iterator[Choice]:
    known = _of_keys(view, actions)
    yield from [known.pop(name) for name in _FIRST if name in known]
    yield from known.values()
    if "sort" in actions:
        for name in SORT_KEYS:
            yield Choice(f"sort_by({name!r})", f"sort by {name}", "s")
    for span in SPANS:
        yield Choice(f"app.range({span})", f"range: {span_words(span)}", "[ ]")
    for seconds in INTERVALS if view.replay is None else ():
        text = f"refresh interval: {units.interval(seconds)}"
        yield Choice(f"app.interval({seconds})", text, "+ -")
    for name in THEMES:
        yield Choice(f"app.theme({name!r})", f"theme: {name}", "T")


def _of_keys(view: View, actions: Collection[str]) -> dict[str, Choice]:
    """Return what the keys of the screen do, by action, and what people look for elsewhere."""
    known = dict[str, Choice]()
    # The first that names an action is about this screen.
    for key in [key for _, some in described(replay=view.replay is not None) for key in some]:
        action = key.action if key.action in actions else f"app.{key.action}"
        if action in actions and action != "app.palette":
            for one in _ways(key._replace(action=action)):
                known.setdefault(one.name, one)
    for choice in _EVERYWHERE:
        known.setdefault(choice.name, choice)
    return known


def _ways(key: Key) -> Iterator[Choice]:
    """Yield what the key does; of a pair that goes to and fro each of both, if its help names
    them."""
    text = re.sub("^in [a-z ]+: ", "", key.help)
    step, ways = _STEP.search(key.action), _TWO_WAYS.search(text)
    if step is None:
        yield Choice(key.action, text, key.shown)
    elif ways is not None:
        other = 1 if step[1] == "0" else -int(step[1])
        back = key.action[: step.start()] + f"({other})"
        both = key.shown.split()
        shown = both if len(both) == 2 else [key.shown] * 2
        for action, way, press in zip((key.action, back), ways.groups(), shown, strict=False):
            yield Choice(action, text[: ways.start()] + way + text[ways.end() :], press)
