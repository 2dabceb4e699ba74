"""What watching costs: gpuwatch beside nvitop, nvtop and an empty Textual program.

    python -m tests.benchmarks.monitors
    python -m tests.benchmarks.monitors --gpus 16 --processes 256 --repeat 3 --only gpuwatch,nvtop
    python -m tests.benchmarks.monitors --job 8x8
    python -m tests.benchmarks.monitors --readme

Each monitor runs in a real pseudo-terminal against the same simulated NVML library, one after
the other, refreshing once an interval. After the first paint and a warm-up, over ``--seconds``:
CPU time (user and system, of the whole process tree) of one core, bytes written to the terminal,
NVML calls and the time spent in them; at the end resident memory. Time to first paint is from
starting the program to the first character on its alternate screen; time to first GPU, to the
first GPU's name or memory there: both the median of ``--starts`` starts, which go round the
monitors in turn after one start of each that is not counted. A PCIe throughput reading takes
20 ms, as on real drivers; all else in the library takes microseconds. With ``--job`` the GPUs are
used by one job of so many ranks with so many loader workers each, and gpuwatch is measured
attached to it as well. ``--readme`` measures all that the README tells and prints its tables, in
about six minutes. Nothing here is asserted.
"""

import argparse
import contextlib
import importlib.util
import os
import shutil
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import replace
from pathlib import Path

from tests.benchmarks.tools import process_tree, report
from tests.benchmarks.tools.report import Result
from tests.benchmarks.tools.terminal import Terminal, visible_text
from tests.benchmarks.tools.workload import A_GPU, simulated_machine, training_job
from tests.support.fake_nvml import FakeNvml

ROOT = Path(__file__).parents[2]
MIB = 1 << 20
PAINT_SECONDS = 30.0


def _python(module: str, *arguments: str) -> Callable[[float], list[str]]:
    """A command by the interval in seconds."""
    return lambda interval: [
        sys.executable,
        "-m",
        module,
        "--interval",
        f"{interval:g}",
        *arguments,
    ]


ATTACHED, EMPTY = "gpuwatch --pid", "empty-textual"
"""Which is given the PID of the job on the machine, too; which shows no GPUs."""
MONITORS: dict[str, Callable[[float], list[str]]] = {
    "gpuwatch": _python("gpuwatch"),
    ATTACHED: _python("gpuwatch", "--pid"),
    "gpuwatch --slow-link": _python("gpuwatch", "--slow-link"),
    "nvitop": _python("nvitop"),
    # nvtop counts tenths of a second.
    "nvtop": lambda interval: ["nvtop", "-d", str(round(interval * 10))],
    EMPTY: _python("tests.benchmarks.tools.empty_app"),
}


_EVERYTHING = ("gpuwatch", "gpuwatch --slow-link", "nvitop", "nvtop", EMPTY)
_OF_A_JOB = ("gpuwatch", ATTACHED, "nvitop")
README = (
    ("8 GPUs, 64 jobs of one process each", _EVERYTHING, 8, 64, None),
    ("8 GPUs, one job of 8 ranks with 8 loader workers each", _OF_A_JOB, 8, 0, (8, 8)),
    ("16 GPUs, 256 jobs of one process each", _EVERYTHING[:-1], 16, 256, None),
)


def missing(name: str) -> str | None:
    """Why a monitor cannot run here, or ``None``."""
    there = {"nvitop": importlib.util.find_spec("nvitop"), "nvtop": shutil.which("nvtop")}
    return f"{name} is not installed" if there.get(name, name) is None else None


def environment(fake: FakeNvml, home: Path) -> dict[str, str]:
    """A current terminal, nobody's settings, not over SSH, nothing of a test runner's."""
    kept = {k: v for k, v in os.environ.items() if k in ("PATH", "LANG", "LC_ALL", "USER")}
    return fake.env(
        {
            "LANG": "C.UTF-8",
            **kept,
            "TERM": "xterm-256color",
            "COLORTERM": "truecolor",
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
        }
    )


def _failure(terminal: Terminal) -> str:
    code = terminal.exit_code
    ended = "nothing was painted" if code is None else f"it ended with exit code {code}"
    return f"{ended}; it last wrote: {visible_text(terminal.tail)[-300:]!r}"


Settings = argparse.Namespace
"""How to measure: what ``_arguments`` gives, and ``job_pid`` of the job that is attached to."""


@contextlib.contextmanager
def started(name: str, env: Mapping[str, str], settings: Settings) -> Iterator[Terminal]:
    """In a terminal, painted or given up, and ended at last."""
    terminal = Terminal(*settings.size, A_GPU)
    command = MONITORS[name](settings.interval)
    if name == ATTACHED:
        command.append(str(settings.job_pid))
    terminal.start(command, env, ROOT)
    try:
        terminal.wait_for_paint(PAINT_SECONDS, match=name != EMPTY)
        yield terminal
    finally:
        terminal.stop()


def run_once(name: str, fake: FakeNvml, env: Mapping[str, str], settings: Settings) -> Result:
    """Start the monitor, let it warm up, measure it over the window, end it."""
    with started(name, env, settings) as terminal:
        if terminal.paint.text_at is None or terminal.exit_code is not None:
            return Result(name, failure=_failure(terminal))

        def counters() -> tuple[float, ...]:
            cpu = process_tree.cpu_seconds(terminal.pid)
            counted = (100 * cpu, terminal.bytes_written, fake.calls(), 1000 * fake.seconds())
            return (*counted, time.monotonic())

        time.sleep(settings.warm_up)
        before = counters()
        time.sleep(settings.seconds)
        *spent, seconds = (now - was for now, was in zip(counters(), before, strict=True))
        memory = process_tree.memory(terminal.pid)
        if terminal.exit_code is not None:
            return Result(name, failure=_failure(terminal))
        rates = dict(zip(RATES, (one / seconds for one in spent), strict=True))
        return Result(name, rates | {"memory MiB": memory[0] / MIB, "PSS MiB": memory[1] / MIB})


RATES = ("CPU % of a core", "bytes/s to the terminal", "NVML calls/s", "NVML ms/s")


def start_once(name: str, env: Mapping[str, str], settings: Settings) -> Result:
    """Seconds to the first paint and to the first GPU, of one start."""
    with started(name, env, settings) as terminal:
        at = {"first paint s": terminal.paint.text_at, "first GPU s": terminal.paint.match_at}
        begun = terminal.started_at
    return Result(name, {what: one and one - begun for what, one in at.items()})


def measure_starts(
    names: Sequence[str], env: Mapping[str, str], settings: Settings
) -> dict[str, Result]:
    """Medians by monitor. In turns, so that a busy moment of the machine meets all alike; the first
    turn fills the file cache and is left out."""
    rounds = [
        {name: start_once(name, env, settings) for name in names}
        for _ in range(settings.starts + 1)
    ][1:]
    return {name: report.median_of([times[name] for times in rounds]) for name in names}


def measure_all(
    names: Sequence[str], gpus: int, processes: int, settings: Settings
) -> list[Result]:
    """Every monitor named, on one machine of this size."""
    results = []
    with tempfile.TemporaryDirectory() as folder:
        home = Path(folder, "home")
        home.mkdir()
        with contextlib.ExitStack() as stack:
            fake = stack.enter_context(simulated_machine(Path(folder, "machine"), gpus, processes))
            if settings.job is not None:
                settings.job_pid = stack.enter_context(training_job(fake, *settings.job))
            env = environment(fake, home)
            _say(f"starts, {gpus} GPUs, {processes} processes ...")
            starts = measure_starts(names, env, settings)
            for name in names:
                _say(f"{name}, {gpus} GPUs, {processes} processes ...")
                runs = [run_once(name, fake, env, settings) for _ in range(settings.repeat)]
                found = report.median_of(runs)
                both = {**starts[name].numbers, **found.numbers}
                results.append(replace(found, numbers=both))
    return results


def _say(text: str) -> None:
    print(text, file=sys.stderr, flush=True)


def _size(text: str) -> tuple[int, int]:
    columns, _, lines = text.partition("x")
    return int(columns), int(lines)


def _arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.benchmarks.monitors")
    parser.add_argument("--gpus", type=int, default=8)
    parser.add_argument("--processes", type=int, default=64)
    parser.add_argument("--size", type=_size, default=(200, 50), help="columns x lines")
    parser.add_argument("--seconds", type=float, default=30.0, help="the window measured")
    parser.add_argument("--warm-up", type=float, default=5.0, help="seconds before it")
    parser.add_argument("--interval", type=float, default=1.0)
    parser.add_argument("--only", help=f"some of {', '.join(MONITORS)}")
    parser.add_argument(
        "--job", type=_size, help="ranks x workers: one job on the GPUs instead of --processes"
    )
    parser.add_argument("--repeat", type=int, default=1, help="runs to take the median of")
    parser.add_argument("--starts", type=int, default=3, help="starts to take the median of")
    parser.add_argument("--readme", action="store_true", help="the tables of the README")
    return parser.parse_args()


def _chosen(arguments: argparse.Namespace) -> list[str]:
    usual = _OF_A_JOB if arguments.job else ("gpuwatch", "nvitop", "nvtop", EMPTY)
    names = [name.strip() for name in (arguments.only or ",".join(usual)).split(",")]
    if unknown := [name for name in names if name not in MONITORS]:
        raise SystemExit(f"unknown: {', '.join(unknown)} (there are {', '.join(MONITORS)})")
    if not arguments.job and ATTACHED in names:
        raise SystemExit(f"{ATTACHED} is measured on a job: add --job 8x8")
    for name in list(names):
        if why := missing(name):
            print(f"left out: {why}", file=sys.stderr)
            names.remove(name)
    return names


def main() -> None:
    """Measure and print the tables."""
    settings = _arguments()
    print(report.machine_line())
    if settings.readme:
        settings.seconds, settings.starts, settings.repeat = 15.0, 2, 1
        for title, names, gpus, processes, settings.job in README:
            there = [name for name in names if missing(name) is None]
            results = measure_all(there, gpus, processes, settings)
            print("\n" + report.table(title, results, report.OF_THE_README), flush=True)
        return
    processes, title = settings.processes, f"{settings.gpus} GPUs, "
    if settings.job:
        processes = 0
        title += f"one job of {settings.job[0]} ranks with {settings.job[1]} loader workers each"
    else:
        title += f"{processes} GPU processes"
    results = measure_all(_chosen(settings), settings.gpus, processes, settings)
    print(
        f"\n{settings.size[0]}x{settings.size[1]}, one refresh every {settings.interval:g} s, over "
        f"{settings.seconds:g} s after {settings.warm_up:g} s; runs {settings.repeat}, starts "
        f"{settings.starts} (medians); PCIe throughput takes 20 ms a call, as on real drivers\n"
    )
    print(report.table(title, results))


if __name__ == "__main__":
    main()
