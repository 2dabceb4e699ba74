"""``python -m gpuwatch.practice.train [CAUSE] [KNOBS]``: a real training job with knobs to turn.

    python -m gpuwatch.practice.train loader_cpu_bound          # a cause, as gpuwatch names it
    python -m gpuwatch.practice.train --workers 1 --transform-ms 30
    torchrun --nproc-per-node 2 -m gpuwatch.practice.train --slow-rank 1

It runs until it is ended. Knobs can be turned meanwhile: write name=value lines into the file it
names first, and take them out again.
"""

import argparse
import contextlib
import os
import shutil
import subprocess
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path

from gpuwatch.core.text import SentenceError, clean
from gpuwatch.practice import causes, ending, knobs
from gpuwatch.practice.control import FILE_NAME
from gpuwatch.practice.job import machine

_PATIENCE_SECONDS = 15.0


def main(arguments: list[str] | None = None) -> int:
    parser = make_parser()
    options = parser.parse_args(arguments)
    try:
        cause = causes.find(options.cause)
        ending.listen()
        if options.ends_with is not None:
            ending.end_with(options.ends_with)
        wanted = replace(cause.knobs, **knobs.given(options))
        return _run(sys.argv[1:] if arguments is None else arguments, options, wanted, cause)
    except KeyboardInterrupt:
        return 130
    except (SentenceError, OSError) as error:
        print(f"The job cannot run: {clean(str(error), 400)}", file=sys.stderr)
        return getattr(error, "exit_code", 1)


def _run(
    arguments: Sequence[str], options: argparse.Namespace, wanted: knobs.Knobs, cause: causes.Cause
) -> int:
    rank, ranks = int(os.environ.get("RANK", "0")), int(os.environ.get("WORLD_SIZE", "1"))
    is_first = not options.launched
    with contextlib.ExitStack() as stack:
        folder = options.folder or machine.scratch_folder()
        folder.mkdir(parents=True, exist_ok=True)
        if is_first:
            if options.folder is None or options.remove_folder:
                stack.callback(shutil.rmtree, folder, ignore_errors=True)
            stack.callback(_tidy, folder)
            if rank == 0:
                print(f"knobs: write name=value lines into {folder / FILE_NAME}", flush=True)
        if cause.name == "too_many_workers":
            # On a machine with more cores than workers they would not be too many.
            few = sorted(os.sched_getaffinity(0))[: causes.FEW_CORES]
            os.sched_setaffinity(0, few)
        if wanted.ranks > 1 and "RANK" not in os.environ:
            given = [*arguments, "--folder", str(folder)]
            return _launch(given, wanted.ranks)
        with ending.held():
            # They import PyTorch.
            from gpuwatch.practice.job.loop import Place  # noqa: PLC0415
            from gpuwatch.practice.job.ranks import run_rank  # noqa: PLC0415

        place = Place(
            folder=folder,
            device_name=options.device,
            rank=rank,
            ranks=ranks,
            reports=options.report,
            hangs=options.hangs,
            ends_with=options.ends_with,
        )
        run_rank(wanted, place)
        return 0


def _launch(arguments: Sequence[str], ranks: int) -> int:
    """Be the ranks' launcher by torchrun; the exit code. If one ends, all do."""
    command = [
        sys.executable, "-P", "-m", "torch.distributed.run", "--standalone", "--nproc-per-node",
        str(ranks), "-m", "gpuwatch.practice.train", *arguments, "--launched", "--ends-with",
        str(os.getpid()),
    ]  # fmt: skip
    environment = {
        "GLOO_SOCKET_IFNAME": "lo", **os.environ, "PYTHONSAFEPATH": "1", "OMP_NUM_THREADS": "1",
    }  # fmt: skip
    with subprocess.Popen(command, env=environment, stdin=subprocess.DEVNULL) as launcher:
        try:
            code = launcher.wait()
        finally:
            launcher.terminate()
            with contextlib.suppress(subprocess.TimeoutExpired):
                launcher.wait(_PATIENCE_SECONDS)
            launcher.kill()
    return code if code >= 0 else 128 - code


def _tidy(folder: Path) -> None:
    """Nobody has a use for what the job wrote."""
    for name in ("samples.bin", "checkpoint.pt", "checkpoint.new"):
        (folder / name).unlink(missing_ok=True)


def make_parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser(
        prog="python -m gpuwatch.practice.train",
        usage="%(prog)s [-h] [CAUSE] [KNOB ...]",
        description=__doc__.partition("\n")[2].strip("\n"),
        formatter_class=argparse.RawDescriptionHelpFormatter,
        epilog=_epilog(),
        allow_abbrev=False,
    )
    parser.add_argument(
        "cause",
        nargs="?",
        default="healthy",
        metavar="CAUSE",
        help="what is wrong with it, one of those below; knobs go on top  [healthy]",
    )
    job = parser.add_argument_group("The job")
    job.add_argument(
        "--device",
        default="auto",
        metavar="DEVICE",
        help="cpu, cuda, cuda:1, or module:name of your own (see gpuwatch/practice/job/device.py)  "
        "[cuda if it can be used]",
    )
    job.add_argument(
        "--folder",
        type=Path,
        metavar="FOLDER",
        help="for samples, checkpoints and the knobs  [a temporary one, on a disk]",
    )
    job.add_argument(
        "--report",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="report its loop to gpuwatch (gpuwatch.torch); --no-report: it is seen from outside "
        "only  [report]",
    )
    job.add_argument("--ends-with", type=int, metavar="PID", help=argparse.SUPPRESS)
    for flag in ("--remove-folder", "--launched", "--hangs"):
        job.add_argument(flag, action="store_true", help=argparse.SUPPRESS)
    knobs.add_options(parser)
    return parser


def _epilog() -> str:
    lines = [
        *("Causes:", *causes.listing()),
        "",
        "A quota or cores from outside:",
        "  systemd-run --user --scope -p CPUQuota=50% python -m gpuwatch.practice.train",
        "  taskset -c 0-3 python -m gpuwatch.practice.train",
        "  docker run --cpus=0.5 --shm-size=64m ...",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
