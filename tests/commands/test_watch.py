"""``gpuwatch watch``: its lines, its command, its webhook, and how it ends."""

import json
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Event as Flag
from threading import Thread

import pytest

from gpuwatch.commands import watching
from gpuwatch.commands.watch import OUTPUT_BYTES, WAITING_MOST, Command, Webhook
from gpuwatch.commands.watching import attached_only
from gpuwatch.core.model import Snapshot
from gpuwatch.outputs.alerts import AlertFinding, Event
from tests.commands.conftest import Gpuwatch
from tests.commands.running import ROOT, ends, environment_in
from tests.support.children import wait_until

FOUND = AlertFinding(
    rule="gpu_lost",
    severity="error",
    confidence=0.99,
    summary="GPU 1; $(id) is gone",
    gpus=("1",),
    gpu_uuids=("GPU-1",),
    late=(),
    jobs=(),
    since_unix_seconds=None,
    cost_share=None,
    cost_gpu_seconds=None,
    gain=None,
    evidence=(),
    advice=(),
)
EVENT = Event(
    event="raised",
    text="box3: raised error gpu_lost: GPU 1 is gone.",
    machine="box3",
    simulated=False,
    at_unix_seconds=1e9,
    finding=FOUND,
)
STARVED = ("watch", "--demo", "starved", "--held", "1s")


def script(code: str, *arguments: str) -> str:
    return " ".join([sys.executable, "-S", "-c", f"'{code}'", *arguments])


def given(command: Command | Webhook, *events: Event) -> None:
    for one in events or [EVENT]:
        command.give(one)
    command.finish()


# -- the command line ---------------------------------------------------------------------------


def test_it_ends_with_1_on_a_rule_and_the_command_has_got_it(
    gpuwatch: Gpuwatch, tmp_path: Path
) -> None:
    """A line with time, machine, finding and advice; the same as JSON for the command."""
    copied = tmp_path / "event.json"
    options = ("--on-finding", f"tee {copied}", "--exit-on", "loader-cpu-bound")
    said = gpuwatch(*STARVED, *options, code=1)
    (line,) = said.out.splitlines()
    assert "sim-box (simulated): raised warning loader_cpu_bound: GPU 0 waited for data" in line
    assert "Raise num_workers from 2 to" in line
    event = json.loads(copied.read_text())
    assert (event["kind"], event["event"], event["simulated"]) == ("alert", "raised", True)
    assert line.endswith(event["text"])
    assert event["finding"]["rule"] == "loader_cpu_bound"
    assert event["finding"]["advice"][0]["setting"] == "num_workers"
    assert event["finding"]["gpus"] == ["0"]
    assert event["finding"]["jobs"][0]["user"] == "ada"
    assert not re.search(r"\{[a-z0-9.]+(\||\})", copied.read_text())


def test_json_is_a_line_for_each_event(gpuwatch: Gpuwatch) -> None:
    """Errors are raised at once, whatever ``--for`` says."""
    said = gpuwatch("watch", "--demo", "lost", "--held", "1h", "--exit-on", "any", "--json", code=1)
    assert said.json["finding"]["rule"] == "gpu_lost"
    assert len(said.out.splitlines()) == 1


def test_it_ends_with_its_job(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """With 0, in its own time."""
    with subprocess.Popen(["sleep", "600"]) as job:
        reaper = Thread(target=job.wait)
        reaper.start()

        def seen(snapshot: Snapshot, pid: int) -> Snapshot:
            job.terminate()
            return attached_only(snapshot, pid)

        monkeypatch.setattr(watching, "attached_only", seen)
        assert gpuwatch("watch", "--pid", str(job.pid), "--interval", "0.1").out == ""
        reaper.join()


@pytest.mark.parametrize("number", [signal.SIGTERM, signal.SIGINT])
def test_a_signal_ends_it_and_its_command(tmp_path: Path, number: signal.Signals) -> None:
    """With 0, although the command hangs, of which nothing stays."""
    begun = tmp_path / "begun"
    code = f'import os, time; open("{begun}", "w").write(str(os.getpid())); time.sleep(600)'
    command = [sys.executable, "-m", "gpuwatch", *STARVED, "--on-finding", script(code)]
    with subprocess.Popen(command, env=environment_in(tmp_path), cwd=ROOT) as program:
        wait_until(lambda: begun.exists() and bool(begun.read_text()))
        program.send_signal(number)
        assert program.wait(60) == 0
    wait_until(lambda: ends(int(begun.read_text())))


def test_a_bad_request_is_a_sentence(gpuwatch: Gpuwatch) -> None:
    """Before anything is watched; an address is not repeated, since it can be a secret."""
    for options, says in (
        (("--exit-on", "loader_cpu"), "did you mean loader_cpu_bound"),
        (("--rule", "any"), "There is no rule 'any'"),
        (("--on-finding", "no-such-command -x"), "There is no command 'no-such-command'"),
        (("--on-finding", ""), "There is no command ''"),
        (("--on-finding", "a 'b"), "--on-finding cannot be split into words"),
        (("--webhook", "file:///s3cret"), "--webhook takes an address such as https://"),
        (("--webhook", "https://me:s3cret@host/"), "without a user name"),
        (("--webhook", "https://host/s3cret\n"), "--webhook takes an address"),
    ):
        said = gpuwatch("watch", "--demo", *options, code=2).err
        assert says in said
        assert "s3cret" not in said


# -- the command --------------------------------------------------------------------------------


def test_a_command_is_no_shells(capfd: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    """What an event says is never part of a command line; a shell runs it where it is asked for.
    The environment says what happened, and what is printed goes to standard error."""
    given(
        Command(script("import sys; print(sys.argv[1:])", "$GPUWATCH_RULE", ";", "id"), shell=False)
    )
    assert capfd.readouterr() == ("", "['$GPUWATCH_RULE', ';', 'id']\n")
    words = "$GPUWATCH_EVENT $GPUWATCH_SEVERITY $GPUWATCH_RULE"
    given(Command(f"echo {words} | tr a-z A-Z", shell=True))
    assert capfd.readouterr() == ("", "RAISED ERROR GPU_LOST\n")


def test_a_command_that_fails_or_hangs_is_a_sentence(
    capfd: pytest.CaptureFixture[str], tmp_path: Path
) -> None:
    """One that hangs is killed with what it has started; those behind it get their turn."""
    given(Command(script("raise SystemExit(3)"), shell=False))
    assert capfd.readouterr().err == f"gpuwatch: {sys.executable} failed: exit code 3.\n"
    command = Command(f"sleep 600 & echo $! > {tmp_path}/child; wait", shell=True, seconds=0.5)
    given(command)
    assert (
        capfd.readouterr().err == "gpuwatch: the shell failed: it took over 0.5 s and was ended.\n"
    )
    wait_until(lambda: ends(int((tmp_path / "child").read_text())))
    program = tmp_path / "program"
    program.write_text("#!/no/such/interpreter\n")
    program.chmod(0o700)
    given(Command(str(program), shell=False))
    assert "failed: No such file or directory." in capfd.readouterr().err


def test_a_command_that_prints_without_end_does_not_fill_a_log(
    capfd: pytest.CaptureFixture[str],
) -> None:
    """The beginning is shown, with a sentence; neither the command nor what it leaves running is
    held up."""
    given(Command("yes | head -c 3000000; echo >&2; (sleep 600 &)", shell=True))
    said = capfd.readouterr().err
    cut = f"gpuwatch: the shell printed more than {OUTPUT_BYTES:,} bytes: cut here.\n"
    assert said == "y\n" * (OUTPUT_BYTES // 2) + cut


def test_few_events_wait_for_a_command_that_hangs(capfd: pytest.CaptureFixture[str]) -> None:
    """Others are left out, with a sentence; whoever gives them never waits."""
    command = Command("sleep 600", shell=False)
    for _ in range(WAITING_MOST + 2):
        command.give(EVENT)
    assert capfd.readouterr().err.count("missed an event: 32 are already waiting.") == 2
    wait_until(lambda: command._process is not None)
    command.stop()


# -- the webhook --------------------------------------------------------------------------------


@contextmanager
def server(*codes: int, other: str = "") -> Iterator[tuple[str, list[bytes]]]:
    """Its address, and what it has been sent. It answers ``codes`` one after the other; 0 is never
    answered."""
    left, sent, over = list(codes), [], Flag()

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent.append(self.rfile.read(int(self.headers["Content-Length"])))
            assert self.headers["Content-Type"] == "application/json"
            code = left.pop(0)
            if code == 0:
                over.wait()
                return
            self.send_response(code)
            self.send_header("Location", other)
            self.end_headers()

        def log_message(self, *_: object) -> None:
            """Print nothing."""

    with HTTPServer(("127.0.0.1", 0), Hook) as made:
        Thread(target=made.serve_forever, args=(0.01,), daemon=True).start()
        try:
            yield f"http://127.0.0.1:{made.server_address[1]}", sent
        finally:
            over.set()
            made.shutdown()


def test_a_webhook_is_tried_again_while_it_is_broken(capfd: pytest.CaptureFixture[str]) -> None:
    """After pauses that grow, a few times; not where the request itself is refused."""
    pauses: list[float] = []
    with server(500, 429, 204) as (address, sent):
        given(Webhook(f"{address}/s3cret", pauses.append))
    assert json.loads(sent[0])["text"] == EVENT.text
    assert (len(sent), pauses, capfd.readouterr().err) == (3, [0.0, 1.0, 4.0], "")
    with server(404) as (address, sent):
        given(Webhook(f"{address}/s3cret", pauses.append))
    assert capfd.readouterr().err == f"gpuwatch: {address} failed: it answered 404.\n"
    with server(*[503] * 4) as (address, sent):
        given(Webhook(f"{address}/s3cret", pauses.append))
    assert capfd.readouterr().err == f"gpuwatch: {address} failed: it answered 503.\n"
    given(Webhook(f"{address}/s3cret", pauses.append))
    assert capfd.readouterr().err == f"gpuwatch: {address} failed: Connection refused.\n"


def test_a_webhook_sends_nothing_elsewhere(capfd: pytest.CaptureFixture[str]) -> None:
    """A redirect is not followed."""
    with server(200) as (other, elsewhere), server(307, other=other) as (address, sent):
        given(Webhook(address))
    assert (len(sent), elsewhere) == (1, [])
    assert "it answered 307." in capfd.readouterr().err


def test_a_webhook_that_hangs_is_given_up(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The next event goes out all the same."""
    monkeypatch.setattr("gpuwatch.commands.watch.ANSWER_SECONDS", 0.2)
    monkeypatch.setattr("gpuwatch.commands.watch.AGAIN_AFTER_SECONDS", ())
    with server(0) as (address, sent):
        given(Webhook(address))
    assert capfd.readouterr().err == f"gpuwatch: {address} failed: it is too slow.\n"
    assert len(sent) == 1


@pytest.mark.parametrize("begins", [b"", b"HTTP/1.1 200 OK\r\nX-Slow: "])
def test_a_webhook_that_answers_in_drips_is_given_up(
    capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, begins: bytes
) -> None:
    """A byte now and then begins the time limit of a socket anew, but not that of the answer."""
    monkeypatch.setattr("gpuwatch.commands.watch.ANSWER_SECONDS", 0.3)
    monkeypatch.setattr("gpuwatch.commands.watch.AGAIN_AFTER_SECONDS", ())
    over = Flag()
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def drip() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.sendall(begins)
                while not over.wait(0.02):
                    connection.sendall(b"H")

        dripping = Thread(target=drip)
        dripping.start()
        address = f"http://127.0.0.1:{listening.getsockname()[1]}"
        given(Webhook(address))
        assert capfd.readouterr().err == f"gpuwatch: {address} failed: it is too slow.\n"
        over.set()
        dripping.join()


def test_an_answer_that_goes_on_for_ever_is_not_read(capfd: pytest.CaptureFixture[str]) -> None:
    """The code is enough."""
    with socket.create_server(("127.0.0.1", 0)) as listening:

        def pour() -> None:
            connection, _ = listening.accept()
            with connection, suppress(OSError):
                connection.recv(65_536)
                connection.sendall(b"HTTP/1.1 200 OK\r\n\r\n")
                while True:
                    connection.sendall(b"x" * 4096)

        pouring = Thread(target=pour)
        pouring.start()
        given(Webhook(f"http://127.0.0.1:{listening.getsockname()[1]}"))
        pouring.join()
    assert capfd.readouterr().err == ""
