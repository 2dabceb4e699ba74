"""``gpuwatch diagnose``: what it prints, and how it ends."""

import fcntl
import json
import os
import signal
import subprocess
import sys
import termios
import time
from dataclasses import replace
from functools import partial
from pathlib import Path

import psutil
import pytest

from gpuwatch.commands.diagnose import Collector, exit_code
from gpuwatch.sources.simulated.source import SCENARIOS
from tests.commands.conftest import Gpuwatch
from tests.commands.running import environment_in, everything, program
from tests.jobs.stacks.support import spinning, training_job
from tests.outputs.test_diagnosis import checked
from tests.sources.smi_writing import query_log, simulated, stamp
from tests.support.children import Children, children_of
from tests.support.recordings import written


@pytest.fixture
def diagnose(gpuwatch: Gpuwatch) -> Gpuwatch:
    return partial(gpuwatch, "diagnose")


def recorded(folder: Path) -> str:
    """A starved machine, for 31 seconds."""
    return str(written(folder / "recording.jsonl", simulated("starved", gpus=1, count=31)))


def logged(folder: Path, text: str) -> str:
    path = folder / "gpus.csv"
    path.write_text(text)
    return str(path)


@pytest.mark.parametrize(
    ("arguments", "code", "words"),
    [
        pytest.param(
            ("starved",), 1, ("loader is CPU-bound", "num_workers", "Because"), id="starved"
        ),
        pytest.param(("healthy",), 0, ("busy",), id="healthy"),
        pytest.param(("healthy", "--for", "2s"), 3, ("Needed for a diagnosis",), id="too short"),
        pytest.param(("no_gpu",), 3, ("driver",), id="no GPU"),
    ],
)
def test_a_machine_is_diagnosed(
    arguments: tuple[str, ...], code: int, words: tuple[str, ...], diagnose: Gpuwatch
) -> None:
    """What was found, or what would decide, with the exit code of that."""
    page = diagnose("--demo", *arguments, code=code).out
    assert all(word in page for word in words)


def test_the_json_has_the_finding(diagnose: Gpuwatch) -> None:
    """Of the job and the GPU it is about; the schema's test checks the rest."""
    found = diagnose("--demo", "starved", "--json", code=1).json
    finding = found["findings"][0]
    assert (found["kind"], found["schema"], found["simulated"]) == ("diagnosis", 2, True)
    assert (finding["rule"], finding["holds_at_end"]) == ("loader_cpu_bound", True)
    assert (finding["job"][0], found["decided"]) == (4242, True)
    assert finding["gpus"] == [found["gpus"][0]["uuid"]]


def test_the_gain_is_said_with_its_limit(diagnose: Gpuwatch) -> None:
    """In the verdict, and in numbers."""
    found = diagnose("--demo", "starved", "--json", code=1).json
    gain = found["findings"][0]["gain"]
    assert gain["low"] <= gain["factor"] <= gain["high"]
    assert f"about {gain['factor']:.1f}x as fast, limited by the GPU" in found["verdict"]


def test_a_price_is_given_or_preferred(
    diagnose: Gpuwatch, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The option comes before the preferences; a file that cannot be used has no price."""
    monkeypatch.setenv("XDG_CONFIG_HOME", str(tmp_path))
    preferences = tmp_path / "gpuwatch" / "config.toml"
    preferences.parent.mkdir()

    def price(*options: str) -> float | None:
        asked: float | None = diagnose("--demo", "starved", "--json", *options, code=1).json[
            "price_per_gpu_hour"
        ]
        return asked

    assert price() is None
    for text, preferred in (("price = 900", 900.0), ("price = 'x'", None), ("price =", None)):
        preferences.write_text(text)
        assert price() == preferred
    preferences.write_text("price = 900")
    assert price("--price", "500") == 500.0
    assert "at 900 a GPU-hour" in diagnose("--demo", "starved", code=1).words


@pytest.mark.parametrize("price", ["free", "-1", "nan", "1e9"])
def test_what_is_no_price_is_refused(price: str, diagnose: Gpuwatch) -> None:
    """In a sentence with what is one."""
    assert "no price of a GPU-hour" in diagnose("--demo", "starved", "--price", price, code=2).err


@pytest.mark.parametrize("scenario", SCENARIOS)
def test_the_json_keeps_to_its_schema(scenario: str, diagnose: Gpuwatch) -> None:
    """Every name is there, of the kind that is said, and no other."""
    checked(diagnose("--demo", scenario, "--json", code=None).out)


def test_one_job_of_the_machine_is_diagnosed_alone(diagnose: Gpuwatch) -> None:
    """--pid takes any of its processes."""
    options = ("--pid", "4242", "--json")
    findings = diagnose("--demo", "starved", *options, code=1).json["findings"]
    assert {finding["job"][0] for finding in findings if finding["job"]} == {4242}


def test_a_recording_gives_the_findings_of_the_machine(tmp_path: Path, diagnose: Gpuwatch) -> None:
    """No rule asks where a snapshot came from."""
    found = diagnose(recorded(tmp_path), "--json", code=1).json
    live = diagnose("--demo", "starved", "--json", code=1).json
    assert [x["rule"] for x in found["findings"]] == [x["rule"] for x in live["findings"]]
    assert found["source"]["kind"] == "recording"


def test_a_short_job_is_judged_to_its_end(tmp_path: Path, diagnose: Gpuwatch) -> None:
    """Its last seconds count, although the machine is watched for longer."""
    seen = [*simulated("starved", gpus=1, count=12)]
    gone = [replace(one, jobs=(), processes=()) for one in seen[9:]]
    path = written(tmp_path / "recording.jsonl", [*seen[:9], *gone])
    (finding,) = diagnose(str(path), "--json", code=1).json["findings"]
    assert (finding["rule"], finding["holds_at_end"]) == ("loader_cpu_bound", False)


def test_one_job_of_a_recording_is_diagnosed_alone(tmp_path: Path, diagnose: Gpuwatch) -> None:
    """And a job that is not in it is bad input."""
    path = recorded(tmp_path)
    diagnose(path, "--pid", "4242", code=1)
    assert "no job with a process 2" in diagnose(path, "--pid", "2", code=2).err


def test_a_log_of_a_waiting_gpu_shows_the_pattern(tmp_path: Path, diagnose: Gpuwatch) -> None:
    """From the GPU alone: what it may be, and what would decide."""
    path = logged(tmp_path, query_log(simulated("starved", gpus=2, count=300, interval=0.2)))
    page = diagnose(path, code=1).words
    assert "num_workers" not in page
    assert "pin_memory" not in page
    assert "GPUs 0 and 1 work in bursts, every 2 s" in page


def levels(*parts: tuple[float, float, float], every: float = 1.0, gpus: int = 1) -> str:
    """A log of GPUs that all do the same: (seconds, busy percent, MiB in use) one after another; a
    negative percent swings between 0 and 99 each second."""
    rows, at = ["timestamp, index, utilization.gpu [%], memory.used [MiB], power.draw [W]"], 0.0
    for seconds, percent, used in parts:
        for place in range(round(seconds / every)):
            busy = percent + place % 3 - 1 if percent > 1 else percent
            busy = 99.0 * (int(place * every) % 2) if percent < 0 else busy
            row = f"{busy:.0f} %, {used:.0f} MiB, {60 + 3 * busy:.2f} W"
            rows += [f"{stamp(1_772_359_200.0 + at)}, {gpu}, {row}" for gpu in range(gpus)]
            at += every
    return "\n".join(rows) + "\n"


WORK, FREE = 30_000.0, 3.0


@pytest.mark.parametrize(
    ("parts", "code", "kinds", "says"),
    [
        # A quarter busy; and then its end.
        ([(600, 26, 472)], 3, "steady", "GPU 0 was 26% busy; the cause cannot"),
        ([(900, 26, WORK), (600, 0, FREE)], 3, "steady end", "ran nothing for the last 9m59"),
        # Fed, then its end, or a pause.
        ([(900, 97, WORK), (600, 0, FREE)], 0, "steady end",
         "Nothing wrong was found. GPU 0 ran nothing for the last 9m59"),
        ([(900, 97, WORK), (20, 8, WORK)], 0, "steady end", "% busy for the last"),
        # A start with memory held.
        ([(60, 0, FREE), (90, 0, 8000), (900, 97, WORK)], 0, "start steady",
         "GPU 0 started for 2m"),
        # Two jobs.
        ([(600, 97, WORK), (200, 0, FREE), (600, 45, WORK)], 3, "steady idle steady",
         "GPU 0 was 45% busy"),
        # Pauses.
        ([(114, 97, WORK), (6, 0, WORK)] * 10 + [(60, 97, WORK)], 3, "steady",
         ("every 2 min, for up to 6 s (5% of the time): checkpoints, validation or a lack of "
         "requests; telling them apart needs the job's processes")),
        # A server that gives memory back between two requests.
        ([(300, 97, 11800), (100, 10, 6100), (220, 97, 11800), (60, 10, 6100), (300, 97, 11800)],
         3, "steady", ("memory was freed meanwhile, which speaks against saving and validation; it "
         "may have been waiting for data, requests, work on the CPU or other GPUs")),
        # Swings.
        ([(7, 98, WORK), (7, 0, WORK)] * 40, 1, "steady", "works in bursts, every 14 s"),
        ([(12, 98, WORK), (12, 0, WORK)] * 25 + [(12, 98, WORK)], 3, "steady",
         ("for up to 12 s (49% of the time): more than saving and validation usually take; "
         "it may have been waiting for data, requests")),
        ([(300, 0, FREE)], 0, "idle", "Nothing ran: idle"),
        # A service.
        ([(200, 97, WORK), (400, 0, WORK), (200, 97, WORK), (300, 0, WORK)], 3,
         "steady idle steady end",
         "held memory and ran nothing: a service that waits for requests"),
    ],
)  # fmt: skip
def test_a_file_is_judged_whole(
    parts: list[tuple[float, float, float]],
    code: int,
    kinds: str,
    says: str,
    tmp_path: Path,
    gpuwatch: Gpuwatch,
) -> None:
    """By what was lost in all of it, whatever its last minute was; the report says the same."""
    path = logged(tmp_path, levels(*parts))
    found = gpuwatch("diagnose", path, "--json", code=code).json
    assert says in found["verdict"]
    assert [phase["kind"] for phase in found["phases"]] == kinds.split()
    assert found["decided"] == (code != 3)
    assert "idle_holding_memory" not in [each["rule"] for each in found["findings"]]
    assert gpuwatch("report", path, "--json").json["verdict"] == found["verdict"]


def test_only_the_time_in_which_memory_is_held_counts_as_held(
    tmp_path: Path, diagnose: Gpuwatch
) -> None:
    """A minute of four, in each of these rests."""
    parts = [(180, 97, WORK), (30, 0, 9000), (180, 0, FREE), (30, 0, 6000)]
    found = diagnose(logged(tmp_path, levels(*parts * 4, (180, 97, WORK))), "--json", code=0).json
    rests = [phase for phase in found["phases"] if phase["kind"] == "idle"]
    assert len(rests) == 4
    for rest in rests:
        (lost,) = rest["lost"]
        assert lost["to"] == "held"
        assert lost["gpu_seconds"] == pytest.approx(60.0, abs=10.0)
    assert "held memory" not in found["verdict"]


def test_what_a_finding_cost_is_the_same_everywhere(tmp_path: Path, diagnose: Gpuwatch) -> None:
    """With the finding, in numbers and in words, and in the phase that it lost, half of the
    file."""
    parts = [(300, 97, WORK), (300, -1, WORK)]
    path = logged(tmp_path, levels(*parts, every=0.25, gpus=2))
    found = diagnose(path, "--json", code=1).json
    (first, second) = found["phases"]
    assert len(first["gpus"]) == 2
    # Where one phase ends is known to a second.
    assert sum(each["gpu_seconds"] for each in first["lost"]) < 1.0
    (lost,) = second["lost"]
    costs = [each["cost_gpu_seconds"] for each in found["findings"]]
    assert lost["to"] == "oscillation"
    assert lost["gpu_seconds"] == pytest.approx(sum(costs), abs=1.0)
    assert second["idle_gpu_seconds"] == pytest.approx(300, abs=10)
    assert f"{sum(costs):.0f} GPU-seconds" in diagnose(path, code=1).out


def test_one_moment_costs_nothing(tmp_path: Path, diagnose: Gpuwatch) -> None:
    """However many readings a log has of it that gives no parts of a second."""
    path = logged(tmp_path, "time,gpu_utilization\n" + "13:32:39,0\n" * 45)
    page = diagnose(path, "--gpus", "1", code=3).out
    assert page.startswith("At that moment GPU 0 was at 0%; one moment is no mean.")


@pytest.mark.parametrize("command", ["diagnose", "report"])
def test_one_table_says_the_values_of_its_moment(
    command: str, tmp_path: Path, gpuwatch: Gpuwatch
) -> None:
    """How busy each GPU was among them, before it is said that one moment is no mean."""
    table = "".join(
        f"|   {index}  Tesla V100  On | 00000000:00:1{index}.0 Off | 0 |\n"
        f"| N/A  61C  P0  {64 + index}W / 300W | 9174MiB / 16130MiB | {busy}%  Default |\n"
        for index, busy in enumerate((0, 100, 100))
    )
    head = "| NVIDIA-SMI 410.104  Driver Version: 410.104 |\n"
    done = gpuwatch(command, logged(tmp_path, head + table), code=None)
    page = " ".join(done.out.split())
    said = "At that moment GPU 0 was at 0% and GPUs 1, 2 were at 100%; one moment is no mean."
    assert said in page
    assert "1 V100 100% 9.0/15.8G 65/300W" in page
    assert "not reported" not in page


@pytest.mark.parametrize(
    ("log", "why"),
    [
        ("index, memory.used [MiB]\n" + "0, 100 MiB\n" * 5, "busy unknown: not in the log"),
        (
            "index, utilization.gpu [%], memory.used [MiB]\n" + "0, [N/A], 100 MiB\n" * 5,
            "busy unknown: not reported by the driver",
        ),
        (
            "index, utilization.gpu [%], memory.used [MiB]\n" + "0, 7 pct?, 100 MiB\n" * 5,
            "busy unknown: its values in the log could not be read",
        ),
        ("index, memory.used [MiB]\n0, 100 MiB\n", "busy unknown: not in the log"),
    ],
)
def test_a_log_without_the_utilisation_is_no_silent_driver(
    log: str, why: str, tmp_path: Path, diagnose: Gpuwatch
) -> None:
    """Only where the log has the column did somebody ask the driver."""
    assert why in diagnose(logged(tmp_path, log), code=3).out


def test_a_log_of_a_fed_gpu_ends_with_0(tmp_path: Path, diagnose: Gpuwatch) -> None:
    """Nothing is invented for want of readings."""
    path = logged(tmp_path, query_log(simulated("healthy", gpus=2, count=90)))
    assert "nvidia-smi query log of 2 GPUs" in diagnose(path).words


def test_what_was_left_out_of_a_log_is_said_and_counted(tmp_path: Path, diagnose: Gpuwatch) -> None:
    """On standard error, and in the JSON."""
    text = query_log(simulated("healthy", gpus=1, count=60))
    done = diagnose(logged(tmp_path, text + "Segmentation fault\n" + "2025/01/"), "--json")
    source = done.json["source"]
    assert (source["other_lines"], source["torn_lines"]) == (1, 1)
    assert "Segmentation fault" in done.err


def test_named_columns_make_an_ambiguous_log_readable(tmp_path: Path, diagnose: Gpuwatch) -> None:
    """It asks for them, and takes them."""
    path = logged(tmp_path, "0, 0, 41\n" * 60)
    assert "--columns" in diagnose(path, code=2).err
    named = ("--columns", "index,utilization.gpu,temperature.gpu", "--json")
    assert diagnose(path, *named, code=None).json["gpus"][0]["busy_percent"] == 0.0


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (("/nowhere/at/all",), "no such file"),
        (("/",), "folder"),
        (("--columns", "index"), "give its file"),
        (("x", "--demo"), "Choose either"),
        (("x", "--stacks"), "does not apply to a file"),
        (("x", "--for", "3s"), "read as a whole"),
        (("--for", "soon"), "60s, 2m or 1h"),
        (("--for", "0s"), "between 1 second and 24 hours"),
        (("--demo", "starved", "--stacks"), "no stacks"),
        (("--demo", "nothing-like-it"), "no scenario"),
        (("--demo", "starved", "--pid", "99999"), "no process 99999"),
        (("--interval", "0.01"), "too short"),
        (("--interval", "nan"), "is not a time"),
        (("x", "--columns", "nonsense!"), "no column that says anything"),
        (("x", "--gpus", "0"), "at least one GPU"),
    ],
)
def test_what_cannot_be_done_is_said_and_ends_with_2(
    arguments: tuple[str, ...], sentence: str, diagnose: Gpuwatch
) -> None:
    """One sentence on standard error, nothing on standard output."""
    assert sentence in diagnose(*arguments, code=2).err


def test_this_machine_is_watched_for_as_long_as_asked(diagnose: Gpuwatch) -> None:
    """With real readings, whether it has a GPU or not."""
    found = diagnose("--for", "1s", "--interval", "0.2", "--json", code=None).json
    assert found["source"] is None
    assert found["time"]["snapshots"] >= 2


def test_a_terminal_sees_how_far_it_is_and_then_nothing_of_it(tmp_path: Path) -> None:
    """The line is drawn over on standard error; standard output has the page alone."""
    main, other = os.openpty()
    done = program("diagnose", "--for", "1s", stderr=other, env=environment_in(tmp_path))
    os.close(other)
    shown = everything(main)
    assert "watching" in shown
    assert shown.endswith("\r")
    assert "watching" not in done.stdout


def started_diagnosis(folder: Path, *arguments: str, errors: int) -> subprocess.Popen[bytes]:
    return subprocess.Popen(
        [sys.executable, "-m", "gpuwatch", "diagnose", *arguments],
        stdin=subprocess.PIPE,
        stdout=subprocess.PIPE,
        stderr=errors,
        env=environment_in(folder),
        start_new_session=True,
    )


@pytest.mark.parametrize("number", [signal.SIGINT, signal.SIGTERM])
def test_a_long_watch_that_is_ended_early_shows_what_it_saw(
    tmp_path: Path, number: signal.Signals
) -> None:
    """With the exit code of that: ``timeout`` and batch systems send SIGTERM."""
    main, other = os.openpty()
    arguments = ("--for", "2h", "--interval", "0.1", "--json")
    process = started_diagnosis(tmp_path, *arguments, errors=other)
    os.close(other)
    # Its line says that it watches.
    assert b"watching" in os.read(main, 200)
    process.send_signal(number)
    out, _ = process.communicate(timeout=60)
    os.close(main)
    found = json.loads(out)
    assert found["time"]["snapshots"] >= 1
    assert process.returncode == (1 if found["findings"] else 0 if found["decided"] else 3)


def test_a_pipe_is_diagnosed_as_far_as_it_came(tmp_path: Path) -> None:
    """Ctrl-C ends ``nvidia-smi -l 1 | gpuwatch diagnose -``: what came before the last row, which
    may be cut off, is diagnosed."""
    with started_diagnosis(tmp_path, "-", "--json", errors=subprocess.PIPE) as process:
        text = "utilization.gpu [%], memory.used [MiB]\n" + "50 %, 100 MiB\n" * 100
        # It takes the second part when it is through with the first.
        for part in (text, "60 %, 100 MiB\n"):
            process.stdin.write(part.encode())
            process.stdin.flush()
            wait_until_read(process.stdin.fileno(), process.pid)
        process.send_signal(signal.SIGINT)
        out = process.stdout.read()
        process.stdin.close()
        assert process.wait(timeout=60) == 3
    assert json.loads(out)["time"]["snapshots"] >= 99


def wait_until_read(pipe: int, pid: int) -> None:
    """Until nothing is left in it and the process that reads it sleeps: it waits for more."""
    reader, deadline = psutil.Process(pid), time.monotonic() + 60.0
    before: object = None
    while time.monotonic() < deadline:
        left = int.from_bytes(fcntl.ioctl(pipe, termios.FIONREAD, bytes(4)), sys.byteorder)
        now = (left, reader.status(), reader.cpu_times()[:2])
        if now == before and now[:2] == (0, psutil.STATUS_SLEEPING):
            return
        before = now
        time.sleep(0.1)
    raise AssertionError("the pipe was not read")


def test_a_job_without_a_gpu_is_said_to_have_none() -> None:
    """Not that the machine has none."""
    (first, *_) = simulated(gpus=1, count=2)
    collector = Collector()
    collector.push(replace(first, gpus=()))
    report = collector.report()
    assert "process 4242 uses no GPU" in report.verdict
    assert exit_code(report) == 3


@pytest.mark.parametrize(
    ("column", "wanted"),
    [
        ("utilization.gpu", "on the machine while the job runs"),
        ("power.draw", "utilization.gpu in a log"),
    ],
)
def test_a_log_that_is_ambiguous_says_what_would_help(
    column: str, wanted: str, tmp_path: Path, diagnose: Gpuwatch
) -> None:
    """What is missing, or a better log."""
    half = []
    for snapshot in simulated("starved", gpus=1, count=60, interval=0.2):
        (gpu,) = snapshot.gpus
        reading = replace(gpu.reading, busy_percent=50.0)
        half.append(replace(snapshot, gpus=(replace(gpu, reading=reading),)))
    path = logged(tmp_path, query_log(half, ("timestamp", "index", column)))
    assert "data yet" not in diagnose(path, code=3).words
    _, _, decides = diagnose(path, code=3).words.partition("Needed for a diagnosis: ")
    assert wanted in decides


def test_stacks_are_sampled_while_it_watches(started: Children, diagnose: Gpuwatch) -> None:
    """The lines are shown with the findings."""
    pid = spinning(started)
    done = diagnose("--pid", str(pid), "--for", "5s", "--stacks", "--json", code=None)
    (stacks,) = done.json["stacks"]
    assert (stacks["pid"], stacks["problem"]) == (pid, None)
    assert stacks["shares"]


def test_a_worker_s_pid_finds_the_training_process_and_its_lines(diagnose: Gpuwatch) -> None:
    """With one of its workers: what it is busy with is the other half of a starved job."""
    with training_job() as job:
        job.do("starving")
        worker = next(iter(children_of(job.pid)))
        page = diagnose("--pid", str(worker), "--for", "5s", "--stacks", code=None).out
    for said in (
        f"PID {job.pid}: ", "waiting for data", "for _batch in loader:", "loader worker",
        "loading data in this process", "(augment)", "was never paused.",
    ):  # fmt: skip
        assert said in page
