"""``python -m tests.evaluation``: how good the diagnosis is."""

import argparse
import sys
import time
from collections.abc import Iterable, Iterator

from tests.evaluation import cases, recorded
from tests.evaluation.case import Case, Judged
from tests.evaluation.figures import report
from tests.evaluation.figures.look import look_into
from tests.evaluation.harness import Outcome, run
from tests.evaluation.jobs import long_runs


def main() -> int:
    options = _options()
    chosen: list[Judged] = []
    if not options.recorded:
        chosen += _generated(options)
        chosen += long_runs.healthy(options.seed, options.healthy_hours, held_out=options.held_out)
    if options.recorded or (not options.kind and not options.case):
        chosen += recorded.all_recordings()
    elif options.case and options.case.startswith("recorded/"):
        chosen += [one for one in recorded.all_recordings() if one.name == options.case]
    began = time.monotonic()
    everything = list(_with_progress(chosen, options.verbose))
    outcomes = [one for one in everything if one.kind != long_runs.KIND]
    if not outcomes:
        print("no such case", file=sys.stderr)
        return 2
    if options.case and chosen:
        for line in look_into(chosen[0]):
            print(line)
    split = "held-out parameters" if options.held_out else "parameters for choosing thresholds"
    of = f"{split}, seed {options.seed}, {time.monotonic() - began:.0f} s"
    print(report.whole(outcomes, of, most=40 if options.verbose else 12))
    if long := [one for one in everything if one.kind == long_runs.KIND]:
        print(f"\n{report.hours(long)}")
    return 0


def _generated(options: argparse.Namespace) -> list[Case]:
    if options.case and options.case.startswith("recorded/"):
        return []
    share, held_out = options.reporting, options.held_out
    if options.case:
        split, knob, seed = options.case.split("/", 2)
        return [cases.one(knob, seed, held_out=split == "held-out", reporting=share)]
    if options.kind:
        seeds = [f"{options.seed}/{number}" for number in range(options.cases)]
        return [cases.one(options.kind, seed, held_out=held_out, reporting=share) for seed in seeds]
    return list(cases.generate(options.seed, options.cases, held_out=held_out, reporting=share))


def _with_progress(chosen: Iterable[Judged], verbose: bool) -> Iterator[Outcome]:
    for case in chosen:
        for outcome in run(case):
            if verbose:
                print(report.one(outcome), flush=True)
            yield outcome


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.evaluation", description=__doc__)
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--cases", type=int, default=160, help="generated cases (default 160)")
    parser.add_argument("--held-out", action="store_true", help="with the held-out parameters")
    parser.add_argument(
        "--healthy-hours", type=float, default=20.0, help="healthy GPU-hours beside"
    )
    parser.add_argument(
        "--reporting",
        type=float,
        default=cases.REPORTING_SHARE,
        metavar="SHARE",
        help="jobs that report their own loop, 0 to 1 (default %(default)s)",
    )
    parser.add_argument("--kind", help="only cases of this knob")
    parser.add_argument("--case", help="only this case, by the name it is shown with")
    parser.add_argument("--recorded", action="store_true", help="only the recorded jobs")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each case")
    options = parser.parse_args()
    if options.kind is not None and options.kind not in cases.KNOBS:
        parser.error(f"no knob {options.kind!r}: choose one of {', '.join(cases.KNOBS)}")
    if options.kind or options.case:
        options.healthy_hours = 0.0
    return options


if __name__ == "__main__":
    sys.exit(main())
