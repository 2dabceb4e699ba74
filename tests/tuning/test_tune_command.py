"""``gpuwatch tune``, as a person runs it."""

import json
import signal
import subprocess
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec
import pytest

from gpuwatch.commands import cli
from gpuwatch.outputs.tuning.text import text
from gpuwatch.tuning import processes
from gpuwatch.tuning.bench import Bench
from gpuwatch.tuning.messages import Order
from gpuwatch.tuning.search.result import Comparison, FirstPass, Result, Row
from gpuwatch.tuning.search.visits import Progress, Visits
from gpuwatch.tuning.settings import Failure, Setting, Visit
from tests.support.children import children_of, ran, wait_until

LOADERS = Path(__file__).with_name("loaders.py")
ROOT = Path(__file__).parents[2]


LISTENING = (
    # Who starts tests in the background may have Ctrl-C ignored.
    "import signal, sys\nsignal.signal(signal.SIGINT, signal.default_int_handler)\n"
    "from gpuwatch.commands.cli import main\n"
    "main(['tune', sys.argv[1], '--num-workers', '0,1', '--budget', '60s', '--json'])\n"
)
Run = Callable[..., subprocess.CompletedProcess[str]]


@pytest.fixture
def run(warm: None, capfd: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> Run:
    """``gpuwatch tune``, in this process: what it measures in is started. Each visit uses half a
    second of the budget up, so that the machine does not decide how many there are."""
    orders: list[Order] = []

    def visit(its: Bench, order: Order) -> Visit | Failure:
        orders.append(order)
        return plain(its, order)

    plain = Bench.visit
    monkeypatch.setattr(Bench, "visit", visit)
    monkeypatch.setitem(Visits.__init__.__kwdefaults__, "clock", lambda: len(orders) / 2)

    def run_it(*arguments: str) -> subprocess.CompletedProcess[str]:
        code = cli.run(["tune", *arguments, "--timeout", "60s"])
        return subprocess.CompletedProcess(arguments, code, *capfd.readouterr())

    return run_it


def needs_torch() -> None:
    pytest.importorskip("torch", reason="torch is not installed")


def rates(result: Mapping[str, Any]) -> dict[int, Mapping[str, Any]]:
    return {row["num_workers"]: row for row in result["settings"] if row["visits"]}


def test_finds_the_known_optimum_and_a_grid_confirms(run: Run) -> None:
    """Beyond three workers they hinder each other: three are recommended, by the search and by the
    grid, and each lies in the other's interval. The text says what to take and the line to
    paste."""
    needs_torch()
    # They end as soon as the intervals have settled.
    counts = ("--num-workers", "1,3,5", "--budget", "8s")
    fixed = ("--prefetch-factor", "2", "--persistent-workers", "no")
    target = f"{LOADERS}:limited"
    done = run(target, *fixed, *counts, "--json")
    assert done.returncode == 0, done
    shown = text(msgspec.json.decode(done.stdout, type=Result), width=80, unicode=True)
    assert "  limited(batch_size=2, num_workers=3)\n" in shown
    assert "pin_memory: not measured" in shown
    assert max(len(line) for line in shown.splitlines()) <= 80
    grid = run(target, *fixed, *counts, "--grid", "--json")
    both = [json.loads(each.stdout) for each in (done, grid)]
    for result in both:
        assert (result["target"], result["schema"]) == (target, 1)
        assert result["recommended"]["num_workers"] == 3
        assert result["line"] == "limited(batch_size=2, num_workers=3)"
        # Its cost for a sample is a lower bound whatever else the machine does.
        for count, row in rates(result).items():
            assert row["samples_per_second"] <= min(count, 3) / 0.02
    mine, its = (rates(result)[3] for result in both)
    # A machine that gets busy in between is no disagreement.
    assert mine["low"] <= 1.1 * its["high"]
    assert its["low"] <= 1.1 * mine["high"]


def test_failures_are_shown_and_nothing_is_recommended(run: Run) -> None:
    """A dataset that always raises: its line, what it printed, exit code 2."""
    needs_torch()
    done = run(f"{LOADERS}:raises", "--budget", "5s")
    assert done.returncode == 2
    assert "No setting could be measured." in done.stdout
    assert "ValueError: bad label" in done.stdout
    assert "loaders.py:" in done.stdout
    assert "| reading" in done.stdout
    assert "\x1b" not in done.stdout
    assert "Traceback" not in done.stdout + done.stderr


def test_working_settings_are_recommended_beside_failing_ones(run: Run) -> None:
    """Workers are killed, the main process is not: num_workers=0 is recommended."""
    needs_torch()
    done = run(f"{LOADERS}:killed", "--num-workers", "0,1", "--budget", "2s", "--json")
    result = json.loads(done.stdout)
    assert done.returncode == 0
    assert result["recommended"]["num_workers"] == 0
    codes = {row["num_workers"]: row["failure"] for row in result["settings"]}
    assert codes[1]["code"] == "worker_killed"
    assert result["unmeasured"] == []


def test_counts_that_the_budget_does_not_suffice_for_are_named(run: Run) -> None:
    """Of three counts asked for two are visited in this time: the third is named."""
    needs_torch()
    done = run(f"{LOADERS}:limited", "--num-workers", "0,1,2", "--budget", "1s")
    assert "Not measured, as the budget ended: num_workers=2" in done.stdout


def test_interrupt_prints_what_is_measured() -> None:
    """Ctrl-C ends it with the result so far, exit code 130, and nothing left."""
    needs_torch()
    child = subprocess.Popen(
        [sys.executable, "-c", LISTENING, f"{LOADERS}:numbers"],
        cwd=ROOT,
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
    )
    seen: set[int] = set()

    def third_visit() -> bool:
        """A third measuring process has come: two visits are over."""
        for host in children_of(child.pid):
            seen.update(children_of(host))
        return len(seen) >= 3

    wait_until(third_visit, 180.0)
    hosts = children_of(child.pid)
    child.send_signal(signal.SIGINT)
    out, errors = child.communicate()
    assert child.returncode == 130, errors
    result = json.loads(out)
    assert result["interrupted"]
    assert any(row["visits"] for row in result["settings"])
    assert result["recommended"] is not None
    for host in hosts:
        assert processes.of_session(host) == []
    assert all(not processes.of_session(session) for session in seen)


@pytest.mark.parametrize(
    ("arguments", "says"),
    [
        ((), "Say what to measure"),
        (("train.py",), "file.py:name"),
        (("missing.py:loader",), "There is no file missing.py"),
        (("a.b:c", "--num-workers", "two"), "whole numbers with commas"),
        (("a.b:c", "--num-workers", "1,9999"), "between 0 and 512"),
        (("a.b:c", "--pin-memory", "maybe"), "yes, no or no,yes"),
        (("a.b:c", "--budget", "soon"), "60s, 2m or 1h"),
    ],
)
def test_misuse_is_one_sentence(run: Run, arguments: tuple[str, ...], says: str) -> None:
    """What cannot be meant is refused, with exit code 2."""
    done = run(*arguments)
    assert done.returncode == 2
    assert says in done.stderr
    assert done.stderr.count("\n") == 1


def test_help_needs_no_torch() -> None:
    """The help is printed without importing torch or anything heavy."""
    code = (
        "import sys\nfrom gpuwatch.commands.cli import run\nrun(['tune', '--help'])\n"
        "assert not {'torch', 'plotext', 'textual'} & set(sys.modules)\n"
    )
    done = ran("-c", code, cwd=ROOT)
    assert done.returncode == 0, done
    assert "TARGET" in done.stdout


def row(workers: int, rate: float | None, **more: Any) -> Row:
    measured: dict[str, Any] = {
        "num_workers": workers, "batch_size": 64, "prefetch_factor": 2 if workers else None,
        "visits": 3, "samples_per_second": rate, "low": rate and rate * 0.97,
        "high": rate and rate * 1.03, "of_best": rate and rate / 800,
    }  # fmt: skip
    return Row(**{**measured, **more})


ROWS = (row(0, 210, own=True), row(2, 420), row(4, 790, recommended=True), row(8, 800))


def found(*rows: Row, settings: tuple[Row, ...] = ROWS, **more: Any) -> Result:
    """A result with some rows more."""
    arguments = ("dataset", "batch_size=64", "shuffle=True", "num_workers=4")
    plain: dict[str, Any] = {
        "target": "train.py:loader", "step": None, "taken_at_unix_seconds": 1e9, "machine": "m",
        "usable_cores": 8.0, "torch": "2.13", "folder": "/home/ada/train", "accelerator": None,
        "start_method": "fork", "dataset": "a D", "is_dataset": False, "samples": 1000,
        "budget_seconds": 120.0, "seconds": 100.0, "settled": True, "interrupted": False,
        "whole_epochs": False, "grid": False, "settings": (*settings, *rows),
        "comparisons": (Comparison("num_workers", tuple(one.setting for one in settings)),),
        "restart_seconds": None, "recommended": ROWS[2].setting,
        "call": ("DataLoader", arguments), "line": f"DataLoader({', '.join(arguments)})",
        "also_set": (), "reasons": ("Fewer: 2 workers reach 53% of it.",), "unmeasured": (),
        "notes": (),
    }  # fmt: skip
    return Result(**{**plain, **more})


def test_text_begins_with_what_to_change() -> None:
    """The recommendation comes first, against what the user has."""
    lines = text(found(), width=80, unicode=True).splitlines()
    assert " 1,000 samples · 8 usable cores · " in lines[0]
    one = text(found(samples=1, usable_cores=1.0), width=100, unicode=True)
    assert " 1 sample · 1 usable core · " in one
    assert lines[2].startswith("num_workers=4: 790 samples/s from the loader (95%: 766 to 814)")
    assert "3.8 times what you have (210)" in " ".join(lines[2:4])
    assert "  DataLoader(dataset, batch_size=64, shuffle=True, num_workers=4)" in lines


@pytest.mark.parametrize("width", [40, 60, 80, 120, 200])
@pytest.mark.parametrize("unicode", [True, False])
def test_text_fits_its_width(width: int, unicode: bool) -> None:
    """No line is wider than the terminal; without Unicode there is only ASCII."""
    cold = FirstPass(samples_per_second=100.0, disk_read_bytes_per_second=1e8)
    failure = Failure(code="hang", sentence="No batch came " * 9, output=("x" * 99,))
    result = found(
        row(4, 790, prefetch_factor=8, first_pass=cold),
        row(16, None, visits=0, failure=failure),
        notes=("A note that is long enough to be broken into more than one line, twice over.",),
        unmeasured=("prefetch_factor",),
        interrupted=True,
    )
    shown = text(result, width=width, unicode=unicode)
    assert max(len(line) for line in shown.splitlines()) <= width
    assert unicode or shown.isascii()


def test_failures_name_what_was_set_otherwise() -> None:
    """Settings with the same workers are named with the knob that differs; those that were too
    slow to be measured have not failed."""
    slow = Failure(code="too_slow", sentence="Too slow for the time.", output=("a warning",))
    shm = Failure(code="shm", sentence="Too little /dev/shm.")
    result = found(
        row(4, None, visits=0, prefetch_factor=8, failure=shm),
        row(16, None, visits=0, failure=slow),
        row(32, None, visits=0, failure=slow),
    )
    lines = text(result, width=120, unicode=True).splitlines()
    assert "Failed with num_workers=4, prefetch_factor=8: Too little /dev/shm." in lines
    assert "Not measured with num_workers=16, 32: Too slow for the time." in lines
    assert "a warning" not in "\n".join(lines)


def test_what_was_measured_once_is_called_so() -> None:
    """Without an interval nothing is said about what is faster."""
    once = row(0, 210, own=True, recommended=True, low=None, high=None, visits=1)
    result = found(settings=(once,), settled=False)
    shown = " ".join(text(result, width=200, unicode=True).split())
    assert (
        "210 samples/s from the loader (measured once); no other setting has been shown to be"
        in shown
    )


def test_text_says_what_is_too_close_to_call() -> None:
    """Settings of which it is not known whether they are as fast as the fastest are named with
    what they may reach, and what to do."""
    close = row(4, 790, recommended=True, undecided=True, of_best_low=0.84, of_best_high=1.04)
    result = found(settings=(*ROWS[:2], close, row(8, 800, fastest=True)), settled=False)
    shown = " ".join(text(result, width=80, unicode=True).split())
    assert (
        "Too close to call against the fastest (num_workers=8): num_workers=4 (84% to 104% of it). "
        "A longer --budget may decide it."
    ) in shown


def test_columns_of_what_was_never_measured_are_left_out() -> None:
    """A knob whose other values were not reached has no column."""
    result = found(row(4, None, visits=0, prefetch_factor=8))
    assert "prefetch" not in text(result, width=120, unicode=True)


def test_bar_shows_the_time_that_is_left() -> None:
    """Half of the budget used, then two seconds more: what is left goes on sinking."""
    from gpuwatch.commands.tune.command import bar

    progress = Progress("num_workers", Setting(num_workers=4).valid(), 0.5, 1234.5)
    shown = bar(progress, 20.0, 0.0)
    assert shown == ("gpuwatch: [#####.....] at most 10s left, num_workers=4, best 1,234/s")
    assert "at most 8s left" in bar(progress, 20.0, 2.0)
    over = bar(progress._replace(phase="prefetch_factor"), 20.0, 99.0)
    assert "[##########] ending, prefetch_factor=2" in over
    kept = progress._replace(phase="persistent_workers")
    assert "persistent_workers=no" in bar(kept, 120.0, 0.0)
    assert len(bar(kept, 120.0, 0.0)) < 80


def test_hostile_words_are_made_harmless() -> None:
    """Nothing that a user's code says reaches the terminal as a control sequence."""
    evil = "\x1b]0;owned\x07"
    failure = Failure(code="exception", sentence=evil, line=evil, output=(evil,))
    result = found(
        row(16, None, visits=0, failure=failure),
        target=f"{evil}.py:x",
        line=f"{evil}(x)",
        call=(evil, (evil,)),
        reasons=(evil,),
        notes=(evil,),
    )
    shown = text(result, width=80, unicode=True)
    assert "\x1b" not in shown
    assert "\x07" not in shown
