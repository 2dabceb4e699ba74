"""The real program in a pseudo-terminal: start, keys, colours, the end, and a terminal that
answers nothing or goes away."""

import os
import re
import select
import shlex
import signal
import sys
import threading
from pathlib import Path

import psutil
import pytest
from textual.events import Key
from textual.message import Message

from gpuwatch.tui.terminal.driver import TerminalDriver
from tests.support.children import wait_until
from tests.tui.terminal.pseudo_terminal import PseudoTerminal, terminal

DEMO = ("-m", "gpuwatch", "--demo", "starved:2")

LEAVE_ALTERNATE_SCREEN = b"\x1b[?1049l"


def look_at_the_help(opened: PseudoTerminal) -> None:
    """Open it and close it again. (A key right behind Esc would be taken for Alt with that key.)"""
    opened.type("?")
    opened.until_it_says("gpuwatch: keys")
    opened.type("\x1b")
    opened.until(lambda: "gpuwatch: keys" not in opened.text)


def first_picture(opened: PseudoTerminal) -> None:
    opened.until(lambda: "SIMULATED" in opened.text and "H200" in opened.text)


def gives_the_terminal_back(opened: PseudoTerminal) -> None:
    """It left the alternate screen, shows the cursor and lets the mouse go, without a traceback."""
    assert b"\x1b[?1049h" in opened.raw
    assert opened.raw.rindex(LEAVE_ALTERNATE_SCREEN) > opened.raw.rindex(b"SIMULATED")
    assert b"\x1b[?25h" in opened.raw
    for mode in set(re.findall(rb"\x1b\[\?(100[0-9]|1015|2004)h", opened.raw)):
        assert b"\x1b[?%sl" % mode in opened.raw
    assert b"Traceback" not in opened.raw


def test_keys_and_sizes_in_a_real_terminal() -> None:
    """The first picture comes although the terminal answers no question, at its own size: what some
    shells export as COLUMNS and LINES is not believed. Arrow keys, Enter and Esc arrive as
    terminals send them; a new size is drawn whole; q ends it with code 0."""
    exported = {"TERM": "xterm-256color", "COLUMNS": "70", "LINES": "12"}
    with terminal(*DEMO, size=(120, 40), environment=exported) as opened:
        first_picture(opened)
        opened.until(lambda: "q quit" in opened.lines[39])
        opened.type("\x1b[C")
        opened.type("\r")
        opened.until_it_says("GPU 1 of 2")
        opened.type("\x1b")
        opened.until(lambda: "GPU 1 of 2" not in opened.text)
        opened.resize(60, 15)
        opened.until(lambda: "quit" in opened.lines[-1] and "SIMULATED" in opened.lines[0])
        opened.type("p")
        opened.until_it_says("PAUSED")
        opened.type("q")
        assert opened.end() == 0
        gives_the_terminal_back(opened)


def test_without_a_shell_only_ctrl_c_ends_it() -> None:
    """Ctrl-Z does not stop it, since nobody could have it go on again, and says so."""
    with terminal(*DEMO) as opened:
        first_picture(opened)
        opened.type("\x1a")
        opened.until_it_says("no shell to return to")
        opened.type("\x03")
        assert opened.end() == 0
        gives_the_terminal_back(opened)


def test_a_letter_may_come_in_two_parts() -> None:
    """As over a slow connection: what is typed behind it is understood, too."""
    typed, terminal = os.pipe()
    woken, wake = os.pipe()
    messages: list[Message] = []
    driver = object.__new__(TerminalDriver)
    driver.fileno, driver._wakes, driver._debug = typed, woken, False
    driver.exit_event = threading.Event()
    driver.process_message = messages.append  # type: ignore[assignment,method-assign]
    thread = threading.Thread(target=driver.run_input_thread, daemon=True)
    thread.start()
    for part in ("é".encode()[:1], "é".encode()[1:], b"q"):
        os.write(terminal, part)
        wait_until(lambda: not select.select([typed], [], [], 0)[0])
    wait_until(lambda: len(messages) == 2)
    driver.exit_event.set()
    os.write(wake, b".")
    thread.join()
    assert [message.key for message in messages if isinstance(message, Key)][1:] == ["q"]


def test_no_color_is_kept() -> None:
    """With NO_COLOR not one colour is written, from the first byte to the last, on any screen."""
    environment = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "NO_COLOR": "1"}
    with terminal(*DEMO, environment=environment) as opened:
        first_picture(opened)
        look_at_the_help(opened)
        for key, said in (("T", "theme"), ("\r", "GPU 0 of 2")):
            opened.type(key)
            opened.until_it_says(said)
        opened.type("qq")
        assert opened.end() == 0
        written = {int(code) for codes in opened.colours() for code in codes.split(";") if code}
        assert written <= {0, 1, 2, 3, 4, 7, 9, 22, 23, 24, 27, 29, 39, 49}


@pytest.mark.parametrize(
    "locale",
    [
        {"LC_ALL": "POSIX", "PYTHONUTF8": "0", "PYTHONCOERCECLOCALE": "0"},
        {"PYTHONIOENCODING": "latin-1"},
    ],
    ids=["posix", "latin-1"],
)
def test_a_terminal_without_utf_8_gets_ascii(locale: dict[str, str]) -> None:
    """Where the locale's encoding has no blocks, not one byte outside ASCII is written, nor an
    escape of one spelt out; on any screen."""
    with terminal(*DEMO, environment={"TERM": "xterm", **locale}) as opened:
        first_picture(opened)
        look_at_the_help(opened)
        opened.type("\r")
        opened.until_it_says("GPU 0 of 2")
        opened.type("qq")
        assert opened.end() == 0
        assert opened.raw.isascii()
        assert b"\\u" not in opened.raw
        assert b"\\x" not in opened.raw


@pytest.mark.parametrize("goes_away", [True, False], ids=["hang-up", "SIGTERM"])
def test_it_takes_no_terminal_while_it_ends(goes_away: bool) -> None:
    """A shell that ends with its terminal has it woken up (SIGCONT) while it ends already: it does
    not begin to read keys again, which would never end."""
    with terminal(*DEMO) as opened:
        first_picture(opened)
        if goes_away:
            opened.hang_up()
        else:
            opened.program.terminate()

        def has_ended() -> bool:
            opened.program.send_signal(signal.SIGCONT)
            opened.read(0)
            return opened.program.poll() is not None

        wait_until(has_ended)
        assert opened.program.returncode == (129 if goes_away else 143)


# It is started where nobody tells it that the terminal has gone, and draws often.
_DEAF = "import signal\nsignal.signal(signal.SIGHUP, signal.SIG_IGN)\n"
_OFTEN = "run(['--demo', 'starved:2', '--interval', '0.1'])"
UNHEARD = ("-c", f"{_DEAF}import sys\nfrom gpuwatch.commands.cli import run\nsys.exit({_OFTEN})")


@pytest.mark.parametrize("stalls", [False, True], ids=["read", "stalled"])
def test_a_terminal_that_goes_away_without_a_word_ends_it(stalls: bool) -> None:
    """No SIGHUP comes (nohup), and what was written before may never have been taken: a
    connection that is down, and then closed."""
    with terminal(*UNHEARD, size=(200, 50)) as opened:
        first_picture(opened)
        if stalls:
            opened.until_nothing_more_fits()
        opened.hang_up()
        assert opened.end() == 129


def test_a_terminal_that_takes_nothing_can_be_left_by_a_signal() -> None:
    """SIGTERM ends it, although what it has written is not read; what gives the terminal back
    is there for whoever reads later."""
    with terminal(*UNHEARD, size=(200, 50)) as opened:
        first_picture(opened)
        opened.until_nothing_more_fits()
        opened.program.terminate()
        wait_until(lambda: opened.program.poll() is not None)
        assert opened.end() == 143
        assert LEAVE_ALTERNATE_SCREEN in opened.raw


def test_a_terminal_that_takes_nothing_for_a_while_goes_on_when_it_does() -> None:
    """The keys work again, and the terminal is given back at the end."""
    with terminal(*UNHEARD, size=(200, 50)) as opened:
        first_picture(opened)
        opened.until_nothing_more_fits()
        look_at_the_help(opened)
        opened.type("q")
        assert opened.end() == 0
        assert LEAVE_ALTERNATE_SCREEN in opened.raw


def test_a_terminal_that_goes_away_ends_it(tmp_path: Path) -> None:
    """The SSH session closes: the program ends by itself, and what is left of its standard error
    then holds no traceback."""
    noise = tmp_path / "stderr"
    code = (
        "import os, sys\n"
        "from gpuwatch.commands.cli import run\n"
        # Faults are reported on descriptor 2 once the terminal is gone: keep them.
        "import threading\n"
        f"keep = os.open({str(noise)!r}, os.O_WRONLY | os.O_CREAT)\n"
        "def report(*error):\n"
        "    import traceback\n"
        "    os.write(keep, ''.join(traceback.format_exception(*error)).encode())\n"
        "sys.excepthook = report\n"
        "threading.excepthook = lambda found: report(*found[:3])\n"
        "sys.exit(run(['--demo']))\n"
    )
    with terminal("-c", code) as opened:
        first_picture(opened)
        opened.hang_up()
        wait_until(lambda: opened.program.poll() is not None)
    assert noise.read_text() == ""


def test_a_machine_that_stops_answering_does_not_freeze_the_screen() -> None:
    """The read hangs for ever: the screen says how old its data is, answers keys, and q quits."""
    with terminal("-m", "tests.support.hanging_dashboard", "2") as opened:
        first_picture(opened)
        opened.until(lambda: bool(re.search(r"data is \d+s old", opened.text)))
        look_at_the_help(opened)
        opened.type("q")
        assert opened.end() == 0
        assert opened.raw.rindex(LEAVE_ALTERNATE_SCREEN) > 0


def test_a_machine_that_never_answers_can_be_left() -> None:
    """Not even the first read comes back: that is said, and q quits at once."""
    with terminal("-m", "tests.support.hanging_dashboard", "0") as opened:
        opened.until_it_says("gpuwatch")
        opened.until_it_says("has not answered")
        opened.type("q")
        assert opened.end() == 0


@pytest.mark.parametrize("name", ["TERM", "USR1"])
def test_a_signal_to_end_gives_the_terminal_back(name: str) -> None:
    """Ended from outside, it leaves the alternate screen, sets the terminal as it was and says by
    its code what ended it."""
    number = signal.Signals[f"SIG{name}"]
    with terminal(*DEMO) as opened:
        before = opened.settings()
        first_picture(opened)
        opened.program.send_signal(number)
        assert opened.end() == 128 + number
        gives_the_terminal_back(opened)
        assert opened.settings() == before


@pytest.mark.parametrize("how", ["ctrl+z", "STOP"])
def test_a_shell_gets_the_terminal_for_a_while(how: str) -> None:
    """Stopped by its key or a signal it gives way to the shell; ``fg`` brings the whole picture
    back, and the keys work."""
    shell = "import os; os.execlp('bash', 'bash', '--norc', '--noprofile', '-i')"
    environment = {"TERM": "xterm-256color", "COLORTERM": "truecolor", "PS1": "shell> "}
    with terminal("-c", shell, size=(100, 24), environment=environment) as opened:
        opened.type(f"{shlex.join([sys.executable, *DEMO])}\n")
        first_picture(opened)
        if how == "ctrl+z":
            opened.type("\x1a")
        else:
            (child,) = psutil.Process(opened.program.pid).children()
            child.send_signal(signal.Signals[f"SIG{how}"])
        # A signal stops it anywhere in a picture: the shell's words go where the cursor stands.
        opened.until(lambda: b"Stopped" in opened.raw)
        opened.type("clear; echo the shell $((20 + 1)) times\n")
        opened.until_it_says("the shell 21 times")
        before = len(opened.raw)
        opened.type("fg\n")
        # What was under way when it was stopped comes first.
        opened.until(lambda: b"\x1b[?1049h" in opened.raw[before:])
        opened.until(lambda: "quit" in opened.lines[-1])
        opened.until(lambda: "gpuwatch   SIMULATED" in opened.lines[0])
        opened.until(lambda: "H200" in opened.text and "rank 0" in opened.text)
        assert "the shell 21 times" not in opened.text
        look_at_the_help(opened)
        opened.type("q")
        opened.until(lambda: opened.raw.endswith(b"shell> "))
        opened.type("exit $?\n")
        assert opened.end() == 0
