"""Every key, once: the bindings, the help screen and a test that presses them all read this."""

from __future__ import annotations

from typing import NamedTuple


class Key(NamedTuple):
    """``keys``: Textual's names, comma separated; ``shown``: as a person reads them."""

    keys: str
    action: str
    shown: str
    help: str
    group: str


TIMELINE_KEYS: tuple[Key, ...] = (
    Key("left_square_bracket", "app.zoom(-1)", "[ ]", "shorter or longer time range", "Time"),
    Key("right_square_bracket", "app.zoom(1)", "", "", "Time"),
    Key("less_than_sign", "app.scroll_time(-1)", "< >", "back and forward in time", "Time"),
    Key("greater_than_sign", "app.scroll_time(1)", "", "", "Time"),
    Key("0", "app.now", "0", "back to now", "Time"),
    Key("c", "app.cursor", "c", "a cursor that shows exact values", "Time"),
    Key("comma", "app.move_cursor(-1)", ", .", "move the cursor one column", "Time"),
    Key("full_stop", "app.move_cursor(1)", "", "", "Time"),
    Key("left_curly_bracket,N", "app.to_mark(-1)", "{ }", "previous or next finding", "Time"),
    Key("right_curly_bracket,n", "app.to_mark(1)", "", "", "Time"),
)
"""On every screen with charts: they all show the same stretch of time."""

_QUIET_TIMELINE_KEYS = tuple(key._replace(shown="", help="") for key in TIMELINE_KEYS)

OVERVIEW_KEYS: tuple[Key, ...] = (
    Key("up", "move(-1)", "up down", "move the selection", "Move"),
    Key("down", "move(1)", "", "", "Move"),
    Key("left", "gpu(-1)", "left right", "select the previous or next GPU", "Move"),
    Key("right", "gpu(1)", "", "", "Move"),
    Key("pageup", "page(-1)", "pgup pgdn", "a page of processes", "Move"),
    Key("pagedown", "page(1)", "", "", "Move"),
    Key("home", "edge(0)", "home end", "first or last process", "Move"),
    Key("end", "edge(1)", "", "", "Move"),
    Key("tab,shift+tab", "switch_focus", "tab", "switch between GPUs and processes", "Move"),
    Key("enter", "app.open", "enter", "open the GPU, or the process's job", "Move"),
    Key("j", "app.job", "j", "the job: of the process, of the GPU, or attached", "Move"),
    Key("slash", "filter", "/", "filter processes by typing: name, user, PID", "Processes"),
    Key("escape", "clear", "esc", "clear the filter", "Processes"),
    Key("s", "sort", "s", "sort by the next column", "Processes"),
    Key("r", "reverse", "r", "reverse the order", "Processes"),
    Key("t", "tree", "t", "children under their parents, or a flat list", "Processes"),
    Key("a", "app.all_processes", "a", "all processes, or those that use a GPU", "Processes"),
    Key("g", "this_gpu", "g", "only processes on the selected GPU", "Processes"),
    Key("k", "app.end_process", "k", "end the selected process (asks first)", "Processes"),
    Key("exclamation_mark", "app.problems", "!", "notes, and what could not be read", "View"),
    Key("d", "app.findings", "d", "the diagnosis: what is wrong, and why", "Diagnosis"),
    Key("m", "app.mark", "m", "mark a change: compare before and after", "Diagnosis"),
    Key("M", "app.forget_mark", "M", "stop comparing", "Diagnosis"),
    *TIMELINE_KEYS,
)

JOB_KEYS: tuple[Key, ...] = (
    Key("j,escape", "back", "j esc", "the whole machine; j there returns here", "Job"),
    Key("up", "move(-1)", "up down", "select a process, or scroll the report or the output", "Job"),
    Key("down", "move(1)", "", "", "Job"),
    Key("pageup", "page(-1)", "", "", "Job"),
    Key("pagedown", "page(1)", "", "", "Job"),
    Key("home", "edge(0)", "", "", "Job"),
    Key("end", "edge(1)", "", "", "Job"),
    Key("enter", "open_gpu", "enter", "details of the process's GPU", "Job"),
    Key("t", "fold", "t", "a rank's loader workers as one row, or separately", "Job"),
    Key("R", "app.report", "R", "the report: of the job so far, or of one that ended", "Job"),
    Key("S", "app.stacks", "S", "where its main threads are: 10 s of stacks", "Job"),
    Key("o", "pane", "o", "output of the job: small, large, hidden", "Job"),
    Key("tab,shift+tab", "switch_focus", "tab", "switch between processes and output", "Job"),
    Key("k", "app.end_process", "", "", "Job"),
    Key("exclamation_mark", "app.problems", "", "", "Job"),
    Key("d", "app.findings", "", "", "Diagnosis"),
    Key("m", "app.mark", "", "", "Diagnosis"),
    Key("M", "app.forget_mark", "", "", "Diagnosis"),
    *_QUIET_TIMELINE_KEYS,
)

FINDINGS_KEYS: tuple[Key, ...] = (
    Key("escape,d,backspace", "back", "", "", "Diagnosis"),
    Key("up", "move(-1)", "", "", "Diagnosis"),
    Key("down", "move(1)", "", "", "Diagnosis"),
    Key("home", "edge(0)", "", "", "Diagnosis"),
    Key("end", "edge(1)", "", "", "Diagnosis"),
    Key("enter", "open", "enter", "there: the evidence of the finding", "Diagnosis"),
    Key("y", "copy", "y", "there: copy the finding as text", "Diagnosis"),
    Key("u", "unknown", "u", "there: what was not checked, and why", "Diagnosis"),
    Key("m", "app.mark", "", "", "Diagnosis"),
    Key("M", "app.forget_mark", "", "", "Diagnosis"),
)

EVIDENCE_KEYS: tuple[Key, ...] = (
    Key("escape,d,enter,backspace", "back", "", "", "Diagnosis"),
    Key("left", "other(-1)", "left right", "there: previous or next finding", "Diagnosis"),
    Key("right", "other(1)", "", "", "Diagnosis"),
    Key("up", "scroll_body(-1)", "", "", "Diagnosis"),
    Key("down", "scroll_body(1)", "", "", "Diagnosis"),
    Key("pageup", "scroll_page(-1)", "", "", "Diagnosis"),
    Key("pagedown", "scroll_page(1)", "", "", "Diagnosis"),
    Key("home", "scroll_edge(0)", "", "", "Diagnosis"),
    Key("end", "scroll_edge(1)", "", "", "Diagnosis"),
    Key("y", "copy", "", "", "Diagnosis"),
    Key("u", "unknown", "", "", "Diagnosis"),
    *_QUIET_TIMELINE_KEYS,
)

REPORT_KEYS: tuple[Key, ...] = (
    Key("escape,R,enter,backspace", "back", "", "", "Job"),
    Key("up", "scroll_body(-1)", "", "", "Job"),
    Key("down", "scroll_body(1)", "", "", "Job"),
    Key("pageup", "scroll_page(-1)", "", "", "Job"),
    Key("pagedown", "scroll_page(1)", "", "", "Job"),
    Key("home", "scroll_edge(0)", "", "", "Job"),
    Key("end", "scroll_edge(1)", "", "", "Job"),
)

APP_KEYS: tuple[Key, ...] = (
    Key("p,space", "pause", "p", "pause the display; sampling continues", "View"),
    Key("plus,equals_sign", "faster", "+ -", "refresh more or less often", "View"),
    Key("minus", "slower", "", "", "View"),
    Key("T", "theme", "T", "next theme: dark, light, 16 colours, ...", "View"),
    Key("A", "ascii", "A", "plain ASCII characters, or blocks", "View"),
    Key("w", "save_picture", "w", "save a picture of the screen (SVG)", "General"),
    Key("W", "record", "W", "start or stop recording to a file", "General"),
    Key("question_mark,f1", "help", "?", "this help", "General"),
    Key("q", "quit", "q", "quit", "General"),
    Key("ctrl+z", "suspend_process", "ctrl+z", "back to the shell; fg comes back", "General"),
    Key("ctrl+c", "interrupt", "", "", "General"),
)

DETAIL_KEYS: tuple[Key, ...] = (
    Key("escape,enter,backspace", "back", "esc", "back to the overview", "Detail"),
    Key("left", "other_gpu(-1)", "left right", "previous or next GPU", "Detail"),
    Key("right", "other_gpu(1)", "", "", "Detail"),
    Key("up", "scroll_body(-1)", "up down", "scroll", "Detail"),
    Key("down", "scroll_body(1)", "", "", "Detail"),
    Key("pageup", "scroll_body(-10)", "", "", "Detail"),
    Key("pagedown", "scroll_body(10)", "", "", "Detail"),
    Key("d", "app.findings", "", "", "Diagnosis"),
    Key("m", "app.mark", "", "", "Diagnosis"),
    Key("M", "app.forget_mark", "", "", "Diagnosis"),
    *_QUIET_TIMELINE_KEYS,
)
