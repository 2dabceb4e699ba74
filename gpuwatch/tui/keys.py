"""The keys: the bindings, the footers, the help and a test that presses them all read this.

An action is a method ``action_NAME`` of the screen or, with ``app.`` before it, of a controller.
"""

import re
from collections.abc import Sequence
from typing import NamedTuple

from textual.binding import Binding, BindingType

FIRST, NORMAL, SELDOM, BESIDE = range(4)
"""Places of keys in the help: those that a person needs first stand out, those that are seldom used
step back, and what the row of another key says has none."""


class Key(NamedTuple):
    """Keys for one action. ``keys``: Textual's names, comma separated. ``shown`` and ``help``: for
    a person, and empty where another row says it."""

    keys: str
    action: str
    shown: str = ""
    help: str = ""
    group: str = ""
    place: int = NORMAL


def bindings(keys: Sequence[Key]) -> list[BindingType]:
    """Return the keys as Textual binds them: Ctrl-C before all else."""
    return [
        Binding(key.keys, key.action, show=False, priority=key.action == "interrupt")
        for key in keys
    ]


def _quiet(*keys: Key) -> tuple[Key, ...]:
    """Return the keys for another screen, without help: it has them already."""
    return tuple(key._replace(shown="", help="") for key in keys)


TIMELINE_KEYS: tuple[Key, ...] = (
    Key(
        "left_square_bracket", "app.zoom(-1)", "[ ]", "shorter or longer time range", "Time", FIRST
    ),
    Key("right_square_bracket", "app.zoom(1)"),
    Key("less_than_sign", "app.scroll_time(-1)", "< >", "back or forward in time", "Time"),
    Key("greater_than_sign", "app.scroll_time(1)"),
    Key("0", "app.now", "0", "back to live", "Time"),
    Key("c", "app.cursor", "c", "exact values at a cursor; , . move it", "Time"),
    Key(
        "comma",
        "app.move_cursor(-1)",
        ", .",
        "move the cursor one column left or right",
        "Time",
        BESIDE,
    ),
    Key("full_stop", "app.move_cursor(1)"),
    Key(
        "left_curly_bracket,N", "app.to_mark(-1)", "{ }", "previous or next finding", "Time", SELDOM
    ),
    Key("right_curly_bracket,n", "app.to_mark(1)"),
)
"""Keys of every screen with charts: they all show the same stretch of time."""

_DIAGNOSIS_KEYS = (
    Key("d", "app.findings", "d", "the diagnosis: what is wrong, and why", "Diagnosis", FIRST),
    Key("m", "app.mark", "m", "mark a change and compare; M: stop", "Diagnosis"),
    Key("M", "app.forget_mark", "M", "stop comparing", "Diagnosis", BESIDE),
)
_SCROLL_KEYS = (
    Key("up", "scroll_body(-1)"),
    Key("down", "scroll_body(1)"),
    Key("pageup", "scroll_page(-1)"),
    Key("pagedown", "scroll_page(1)"),
    Key("home", "scroll_edge(0)"),
    Key("end", "scroll_edge(1)"),
)

OVERVIEW_KEYS: tuple[Key, ...] = (
    Key("up", "move(-1)", "up down", "move the selection", "Move", FIRST),
    Key("down", "move(1)"),
    Key("left", "gpu(-1)", "left right", "previous or next GPU, or finding", "Move"),
    Key("right", "gpu(1)"),
    Key("pageup", "page(-1)", "pgup pgdn", "a page; home end: first or last", "Move", SELDOM),
    Key("pagedown", "page(1)"),
    Key("home", "edge(0)", "home end", "first or last process", "Move", BESIDE),
    Key("end", "edge(1)"),
    Key("tab,shift+tab", "switch_focus", "tab", "GPUs, processes, output: the next one", "Move"),
    Key("enter", "app.open", "enter", "open the GPU, or the process's job", "Move", FIRST),
    Key("j", "app.job", "j", "the job of the process, or of the GPU", "Move", FIRST),
    Key("slash,f3,f4", "app.filter", "/", "filter: name, PID, user:ada; esc clears", "Processes"),
    Key("escape", "clear"),
    Key("s,f6", "sort", "s", "sort by the next column; r: other way", "Processes"),
    Key("r", "reverse", "r", "reverse the order", "Processes", BESIDE),
    Key("e", "app.command", "e", "the whole command line", "Processes", SELDOM),
    Key("t,f5", "tree", "t", "a tree, workers one by one, or a list", "Processes"),
    Key("a", "app.all_processes", "a", "all processes, or those that use a GPU", "Processes"),
    Key("k,f9", "app.end_process", "k", "kill the selected process (asks first)", "Processes"),
    Key(
        "exclamation_mark",
        "app.problems",
        "!",
        "messages: what could not be read",
        "General",
    ),
    *_DIAGNOSIS_KEYS,
    *TIMELINE_KEYS,
)

APP_KEYS: tuple[Key, ...] = (
    Key("p,space", "pause", "p", "pause the display; sampling continues", "General"),
    Key("plus,equals_sign", "speed(1)", "+ -", "refresh more or less often", "General", SELDOM),
    Key("minus", "speed(-1)"),
    Key("T", "theme", "T", "next theme: dark, light, 16 colours, ...", "General", SELDOM),
    Key("w", "save_picture", "w", "save a picture (SVG); a report as HTML", "General"),
    Key("W", "record", "W", "start or stop recording to a file", "General", SELDOM),
    Key("ctrl+p", "palette", "ctrl+p", "find a command by typing", "General"),
    Key("question_mark,f1,h", "help", "?", "this help", "General", BESIDE),
    Key("q", "leave", "q", "back; from the first page: quit", "General", FIRST),
    Key("f10", "quit"),
    Key(
        "ctrl+z", "suspend_process", "ctrl+z", "back to the shell; fg comes back", "General", SELDOM
    ),
    Key("ctrl+c", "interrupt"),
)
"""Keys of every screen; the action is the application's."""

JOB_KEYS: tuple[Key, ...] = (
    Key("j,escape", "back", "j esc", "the whole machine; j there returns here", "Job"),
    Key("up", "move(-1)", "up down", "select a process; scroll report, output", "Job"),
    Key("down", "move(1)"),
    Key("pageup", "page(-1)"),
    Key("pagedown", "page(1)"),
    Key("home", "edge(0)"),
    Key("end", "edge(1)"),
    Key("enter", "open_gpu", "enter", "details of the process's GPU", "Job"),
    Key("t", "fold", "t", "a rank's workers in one row, or each", "Job"),
    Key("R", "app.report", "R", "the job's report, so far or at its end", "Job"),
    Key("S", "app.stacks", "S", "stacks of its main threads, for 10 s", "Job"),
    Key("o", "pane", "o", "output of the job: small, large, hidden", "Job"),
    Key(
        "tab,shift+tab", "switch_focus", "tab", "switch between processes and output", "Job", BESIDE
    ),
    Key("k,f9", "app.end_process"),
    Key("e", "app.command"),
    Key("exclamation_mark", "app.problems"),
    *_quiet(*_DIAGNOSIS_KEYS, *TIMELINE_KEYS),
)

FINDINGS_KEYS: tuple[Key, ...] = (
    Key("escape,d,backspace", "back"),
    Key("up", "move(-1)"),
    Key("down", "move(1)"),
    Key("home", "edge(0)"),
    Key("end", "edge(1)"),
    Key("enter", "open", "enter", "in the list: open the evidence", "Diagnosis"),
    Key("y", "copy", "y", "in the list: copy the finding as text", "Diagnosis"),
    Key("u", "app.unknown", "u", "in the list: causes not checked, and why", "Diagnosis"),
    *_quiet(*_DIAGNOSIS_KEYS[1:]),
)

EVIDENCE_KEYS: tuple[Key, ...] = (
    Key("escape,d,enter,backspace", "back"),
    Key(
        "left",
        "other(-1)",
        "left right",
        "in evidence: previous or next finding",
        "Diagnosis",
        BESIDE,
    ),
    Key("right", "other(1)"),
    *_SCROLL_KEYS,
    Key("y", "app.copy_finding"),
    Key("u", "app.unknown"),
    *_quiet(*TIMELINE_KEYS),
)

DETAIL_KEYS: tuple[Key, ...] = (
    Key("escape,enter,backspace", "back"),
    Key("left", "other_gpu(-1)"),
    Key("right", "other_gpu(1)"),
    *_SCROLL_KEYS,
    *_quiet(*_DIAGNOSIS_KEYS, *TIMELINE_KEYS),
)

REPORT_KEYS: tuple[Key, ...] = (
    Key("escape,R,enter,backspace", "back"),
    Key("w", "app.save_report", "w", "in the report: save it as an HTML page", "Job", BESIDE),
    *_SCROLL_KEYS,
)

FLEET_KEYS: tuple[Key, ...] = (
    Key("up", "move(-1)", "up down", "move the selection", "Hosts"),
    Key("down", "move(1)"),
    Key("pageup", "page(-1)", "pgup pgdn", "a page of hosts", "Hosts"),
    Key("pagedown", "page(1)"),
    Key("home", "edge(0)", "home end", "first or last host", "Hosts"),
    Key("end", "edge(1)"),
    Key("enter", "open", "enter", "open the host's dashboard; q there returns", "Hosts"),
    Key("slash,f3,f4", "app.filter", "/", "filter by name, or by what was found", "Hosts"),
    Key("escape", "clear", "esc", "clear the filter", "Hosts"),
    Key("s", "sort", "s", "sort by name, busy, lost or finding", "Hosts"),
    Key("r", "reverse", "r", "reverse the order", "Hosts"),
    Key("y", "app.copy_host", "y", "copy what is said of it, or how to install gpuwatch", "Hosts"),
)
"""Keys of the list of machines; all other keys are those of one that is opened."""

REPLAY_KEYS: tuple[Key, ...] = (
    Key("p,space", "pause", "space p", "play or pause; at the end, play it again", "Replay"),
    Key("plus,equals_sign", "speed(1)", "+ -", "faster or slower, 0.5x to 1000x", "Replay"),
    Key("minus", "speed(-1)"),
    Key("n", "to_mark(1)", "n N  { }", "to the next or previous finding", "Replay"),
    Key("N", "to_mark(-1)"),
    Key("colon,at", "go_to", ":", "go to a time: 14:30  +5m  -30s  50%", "Replay"),
    Key("full_stop", "move_cursor(1)", ", .", "one snapshot back or forward (c: cursor)", "Replay"),
    Key("comma", "move_cursor(-1)"),
    Key("right_parenthesis", "seek_by(60)", "( )", "one minute back or forward", "Replay"),
    Key("left_parenthesis", "seek_by(-60)"),
)
"""Keys of every screen while a recording is played: beside the others, or in their place."""

NOT_IN_REPLAY = frozenset(
    {
        *("pause", "speed(1)", "pane", "app.end_process", "app.all_processes", "app.report"),
        *("app.save_report", "app.stacks", "app.to_mark(-1)", "app.move_cursor(-1)"),
    }
)
"""Actions that a replay has not, or that ``REPLAY_KEYS`` describes."""

Footer = Sequence[tuple[str, str, str]]
"""Keys, each with what it does in a word and its action: most needed first."""


def _footer(keys: Sequence[Key], *items: str) -> Footer:
    """Return a footer with actions of ``keys``, named by the action, or by a word before a colon.
    What is pressed is as the help has it, but short, unless another text stands before a bar."""
    texts = {_name(key.action): key.shown for key in reversed(keys) if key.shown}
    footer = []
    for item in items:
        text, _, rest = item.rpartition("|")
        word, _, action = rest.rpartition(":")
        if not text:
            parts = texts[_name(action)].split()
            text = "".join(parts) if all(len(part) == 1 for part in parts) else parts[0]
        footer.append((text, word or _name(action), action))
    return tuple(footer)


def _name(action: str) -> str:
    return action.removeprefix("app.").partition("(")[0]


_WHERE = (
    (JOB_KEYS, "on a job's page (j)"),
    (FINDINGS_KEYS, "in the diagnosis (d)"),
    (EVIDENCE_KEYS, "in the evidence of a finding (d, enter)"),
    (DETAIL_KEYS, "on a GPU's page (enter)"),
    (OVERVIEW_KEYS, "on the overview"),
    (REPLAY_KEYS, "where a recording is played"),
)


def elsewhere(pressed: str) -> str:
    """Return what a key that does nothing on the page in front does, and where; ``pressed`` is its
    name for Textual."""
    for keys, where in _WHERE:
        for key in keys:
            if pressed in key.keys.split(",") and key.help and key.action != "back":
                what = re.sub("^in [a-z ]+: ", "", key.help)
                return f"{key.shown.split()[0]} works {where}: {what}"
    return "this key does nothing here; ? shows those that do"


_TIME_ITEMS = ("range:zoom(1)", "time:scroll_time(-1)", "cursor")
OVERVIEW_FOOTER = _footer(
    (*OVERVIEW_KEYS, *APP_KEYS),
    *("quit:leave", "help", "why:findings", "open", "job", "pause", "filter", "sort", "tree"),
    *("kill:end_process", "speed(1)", *_TIME_ITEMS, "all:all_processes", "mark"),
    *("save:save_picture", "record", "theme"),
)
JOB_FOOTER = _footer(
    (*JOB_KEYS, *APP_KEYS, *OVERVIEW_KEYS),
    *(
        "back:leave",
        "quit:leave",
        "help",
        "j|machine:back",
        "up down|scroll:move(1)",
        "why:findings",
        "report",
        "stacks",
        "output:pane",
        "fold",
    ),
    *("GPU:open_gpu", "pause", "kill:end_process", *_TIME_ITEMS, "speed(1)", "mark"),
    *("save:save_picture", "theme"),
)
DETAIL_FOOTER = _footer(
    (*DETAIL_KEYS, *APP_KEYS, *OVERVIEW_KEYS),
    *(
        "q|back",
        "why:findings",
        "left right|other GPU:other_gpu(1)",
        "up down|scroll:scroll_body(1)",
    ),
    *(*_TIME_ITEMS, "pause", "save:save_picture", "help"),
)
FINDINGS_FOOTER = _footer(
    (*FINDINGS_KEYS, *APP_KEYS, *OVERVIEW_KEYS),
    *(
        "q|back",
        "enter|evidence:open",
        "up down|select:move(1)",
        "copy",
        "not checked:unknown",
        "mark",
    ),
    "help",
)
EVIDENCE_FOOTER = _footer(
    (*EVIDENCE_KEYS, *FINDINGS_KEYS, *APP_KEYS, *OVERVIEW_KEYS),
    *("q|back", "up down|scroll:scroll_body(1)", "y|copy:copy_finding"),
    *("left right|other finding:other(1)", "u|not checked:unknown", *_TIME_ITEMS, "help"),
)
REPORT_FOOTER = _footer(
    (*REPORT_KEYS, *APP_KEYS),
    *("q|back", "up down|scroll:scroll_body(1)", "save as HTML:save_report"),
)
FLEET_FOOTER = _footer(
    (*FLEET_KEYS, *APP_KEYS),
    *("quit:leave", "help", "open", "filter", "sort", "reverse", "copy:copy_host", "theme"),
    "save:save_picture",
)
_REPLAY_FOOTER = _footer(
    (*REPLAY_KEYS, *APP_KEYS),
    *("quit:leave", "help", "play:pause", "n N|finding:to_mark(1)", "go to:go_to"),
    *(", .|step:move_cursor(1)", "speed(1)"),
)


def replay_footer(others: Footer) -> Footer:
    """Return the keys of the player first, without those that do nothing here."""
    refused = {"end_process", "stacks", "report", "pane", *[key[2] for key in _REPLAY_FOOTER]}
    return (*_REPLAY_FOOTER, *[key for key in others if key[2] not in refused])


_GROUPS = ("Move", "Processes", "Time", "Diagnosis", "Job", "General")
_REPLAY_GROUPS = ("Replay", "Time", *[name for name in _GROUPS if name != "Time"])


NOT_IN_FLEET = frozenset({"pause", "speed", "record", "palette"})
"""Actions of the application that many machines at once have not."""


def described(*, replay: bool, fleet: bool = False) -> list[tuple[str, list[Key]]]:
    """Return the keys that the help describes, by group."""
    if fleet:
        others = [key for key in APP_KEYS if _name(key.action) not in NOT_IN_FLEET and key.shown]
        shown = [key for key in FLEET_KEYS if key.shown]
        return [("Hosts", shown), ("General", others)]
    keys = [*OVERVIEW_KEYS, *APP_KEYS, *JOB_KEYS, *FINDINGS_KEYS, *EVIDENCE_KEYS, *DETAIL_KEYS]
    keys += REPORT_KEYS
    groups: tuple[str, ...] = _GROUPS
    if replay:
        keys = [*REPLAY_KEYS, *[key for key in keys if key.action not in NOT_IN_REPLAY]]
        groups = _REPLAY_GROUPS
    found = [(name, [key for key in keys if key.group == name and key.shown]) for name in groups]
    return [(name, some) for name, some in found if some]
