"""``python -m gpuwatch.practice.train [CAUSE] [KNOBS]``: a real training job with knobs to turn.

    python -m gpuwatch.practice.train loader_cpu_bound          # a cause, as gpuwatch names it
    python -m gpuwatch.practice.train --workers 1 --transform-ms 30
    torchrun --nproc-per-node 2 -m gpuwatch.practice.train --slow-rank 1

It runs until it is ended. Knobs can be turned meanwhile: write name=value lines into the file it
names first, and take them out again.
"""

from __future__ import annotations

import argparse
import contextlib
import importlib.util
import os
import shutil
import sys
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

from gpuwatch.core.text import clean
from gpuwatch.practice import causes, knobs, launcher, leaving, lifeline
from gpuwatch.practice.control import FILE_NAME
from gpuwatch.practice.job import machine


def main(arguments: list[str] | None = None) -> int:
    """Run a job; the exit code."""
    parser = make_parser()
    options = parser.parse_args(arguments)
    cause = causes.find(options.cause)
    if cause is None:
        parser.error(
            f"there is no cause {options.cause[:60]!r}: choose of {', '.join(causes.CAUSES)}"
        )
    if isinstance(cause, causes.Unpractised):
        print(causes.sentence_of(cause), file=sys.stderr)
        return 2
    wanted = replace(cause.knobs, **knobs.given(options))
    if importlib.util.find_spec("torch") is None:
        print(causes.NO_TORCH, file=sys.stderr)
        return 2
    leaving.listen()
    if options.ends_with is not None:
        lifeline.end_with(options.ends_with)
    try:
        return _run(sys.argv[1:] if arguments is None else arguments, options, wanted, cause)
    except KeyboardInterrupt:
        return 130
    except (machine.MachineError, OSError) as error:
        print(f"The job cannot run: {clean(str(error), 400)}", file=sys.stderr)
        return 1


def _run(
    given_arguments: Sequence[str],
    options: argparse.Namespace,
    wanted: knobs.Knobs,
    cause: causes.Cause,
) -> int:
    is_rank, quota = "RANK" in os.environ, None
    if wanted.quota_cores and not options.launched:
        # Before there are threads: only what starts later is in the cgroup from the beginning.
        quota = machine.enter_quota(wanted.quota_cores)
    with contextlib.ExitStack() as ending:
        if quota is not None:
            ending.callback(quota.leave)
        folder = options.folder
        if folder is None:
            folder = machine.scratch_folder()
        if (options.folder is None or options.remove_folder) and not options.launched:
            ending.callback(shutil.rmtree, folder, ignore_errors=True)
        folder.mkdir(parents=True, exist_ok=True)
        if not options.launched:
            ending.callback(_tidy, folder)
        if not options.launched and os.environ.get("RANK", "0") == "0":
            print(f"knobs: write name=value lines into {folder / FILE_NAME}", flush=True)
        if cause.name == "cpu_misplaced" and not wanted.cores:
            wanted = replace(wanted, cores=_far_cores())
        if cause.name == "too_many_workers" and not wanted.cores:
            wanted = replace(wanted, cores=_few_cores())
        if wanted.ranks > 1 and not is_rank:
            return launcher.launch(
                [*given_arguments, "--folder", str(folder)], wanted.ranks, options.seconds
            )
        with leaving.held():
            from gpuwatch.practice.job import ranks  # noqa: PLC0415 - brings PyTorch

        job = ranks.JobOptions(
            knobs=wanted,
            folder=folder,
            device=options.device,
            tells=options.tell,
            hangs=options.hangs,
            ends_with=options.ends_with,
            most_steps=options.steps,
            most_seconds=options.seconds,
        )
        if is_rank:
            return ranks.run_rank(job, int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"]))
        return ranks.run_rank(job, 0, 1, quota)


def _tidy(folder: Path) -> None:
    """What the job wrote is of no use to anybody."""
    for name in ("samples.bin", "checkpoint.pt", "checkpoint.new"):
        (folder / name).unlink(missing_ok=True)


def _few_cores() -> str:
    """On a machine with more cores than workers they would not be too many; empty: it has few."""
    allowed = sorted(os.sched_getaffinity(0))
    few = allowed[: causes.FEW_CORES]
    return "" if len(few) == len(allowed) else ",".join(map(str, few))


def _far_cores() -> str:
    import torch  # noqa: PLC0415

    if not torch.cuda.is_available():
        raise machine.MachineError("cpu_misplaced needs a GPU; see gpuwatch --demo")
    found: Any = torch.cuda.get_device_properties(0)
    address = f"{found.pci_domain_id:04x}:{found.pci_bus_id:02x}:{found.pci_device_id:02x}.0"
    cores = machine.far_cores(address)
    if cores is None:
        raise machine.MachineError(
            "no cores are far from the GPU: cpu_misplaced needs two NUMA nodes"
        )
    return cores


def make_parser() -> argparse.ArgumentParser:
    """The command line."""
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
    job.add_argument("--steps", type=int, metavar="N", help="end after so many")
    job.add_argument("--seconds", type=float, metavar="X", help="end after so long")
    job.add_argument(
        "--tell",
        action=argparse.BooleanOptionalAction,
        default=True,
        help="tell gpuwatch of its loop (gpuwatch.torch); --no-tell: it is seen from outside only  "
        "[tell]",
    )
    job.add_argument("--ends-with", type=int, metavar="PID", help=argparse.SUPPRESS)
    job.add_argument("--remove-folder", action="store_true", help=argparse.SUPPRESS)
    job.add_argument("--launched", action="store_true", help=argparse.SUPPRESS)
    job.add_argument("--hangs", action="store_true", help=argparse.SUPPRESS)
    knobs.add_options(parser)
    return parser


def _epilog() -> str:
    lines = ["Causes:"]
    lines += [f"  {one.name:<23} {one.says}" for one in causes.CAUSES.values()]
    lines += ["", "Cannot be practised:"]
    for other in causes.UNPRACTISED:
        demo = "" if other.demo is None else f" (gpuwatch --demo {other.demo})"
        lines.append(f"  {other.name:<23} {other.why}{demo}")
    lines += [
        "",
        "A quota or cores from outside:",
        "  systemd-run --user --scope -p CPUQuota=50% python -m gpuwatch.practice.train",
        "  taskset -c 0-3 python -m gpuwatch.practice.train",
        "  docker run --cpus=0.5 --shm-size=64m ...",
    ]
    return "\n".join(lines)


if __name__ == "__main__":
    sys.exit(main())
