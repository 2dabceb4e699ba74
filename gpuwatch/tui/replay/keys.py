"""The keys of the player: beside those of the dashboard, or in their place."""

from __future__ import annotations

from gpuwatch.tui.keys import Key

REPLAY_KEYS: tuple[Key, ...] = (
    Key("p,space", "pause", "space p", "play or pause; at the end, from the beginning", "Replay"),
    Key("plus,equals_sign", "faster", "+ -", "faster or slower, 0.5x to 1000x", "Replay"),
    Key("minus", "slower", "", "", "Replay"),
    Key("n", "to_mark(1)", "n N  { }", "to the next or previous finding", "Replay"),
    Key("N", "to_mark(-1)", "", "", "Replay"),
    Key("colon,at", "go_to", ":", "go to a time: 14:30  14:30:05  +5m  -30s  50%", "Replay"),
    Key(
        "full_stop",
        "move_cursor(1)",
        ", .",
        "one snapshot back or forward (c: cursor)",
        "Replay",
    ),
    Key("comma", "move_cursor(-1)", "", "", "Replay"),
    Key("right_parenthesis", "seek_by(60)", "( )", "one minute back or forward", "Replay"),
    Key("left_parenthesis", "seek_by(-60)", "", "", "Replay"),
    Key("shift+right", "seek_by(60)", "", "", "Replay"),
    Key("shift+left", "seek_by(-60)", "", "", "Replay"),
)
