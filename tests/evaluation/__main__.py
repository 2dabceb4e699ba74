"""``python -m tests.evaluation``: how good the diagnosis is."""

import argparse
import sys

from tests.evaluation import recorded, report
from tests.evaluation.case import HEALTHY, UNDECIDED
from tests.evaluation.harness import LOADER_ADVICE, Outcome, about_loaders, judge, run
from tests.evaluation.look import look_into
from tests.evaluation.simulator.cases import Case, cases, odd_hours

STARVED = frozenset({"loader_cpu_bound", "loader_in_main_process", "loader_io_bound"})
SOON_SECONDS = 20.0


def named(outcomes: list[Outcome]) -> str:
    """Hedges count as right where they are all that can be said: here they are told apart."""
    faults = [one for one in outcomes if one.label != HEALTHY]
    right = [one for one in faults if one.right]
    hedged = sum(one.said in (HEALTHY, UNDECIDED, "oscillation") for one in right)
    return f"of {len(faults)} faults {len(right) - hedged} named, {hedged} rightly left open"


def in_time(outcomes: list[Outcome]) -> str:
    """How soon a starved loader was named; one that never was counts as late."""
    starved = [one for one in outcomes if one.label in STARVED and UNDECIDED not in one.accepted]
    times = [one.seconds_to_detect for one in starved if one.seconds_to_detect is not None]
    soon = sum(seconds <= SOON_SECONDS for seconds in times)
    slowest = max(times, default=0.0)
    return (
        f"starved loaders named within {SOON_SECONDS:.0f} s of their first steps: {soon} of "
        f"{len(starved)}, never {len(starved) - len(times)}, slowest {slowest:.0f} s"
    )


def main() -> int:
    options = _options()
    chosen = _chosen(options)
    outcomes: list[Outcome] = []
    advised: list[str] = []
    for case in chosen:
        found = judge(case) if isinstance(case, Case) else run(case)
        outcomes += found
        wrong = [one for one in found if one.said == LOADER_ADVICE]
        advised += [f"{one.case}: {' '.join(about_loaders(one))}" for one in wrong]
        for one in found if options.verbose else ():
            view = case.view if isinstance(case, Case) else ""
            print(report.one(one, view), flush=True)
    if not outcomes:
        print("no such case", file=sys.stderr)
        return 2
    for line in look_into(chosen[0]) if options.case else ():
        print(line)
    beside = f"\n{named(outcomes)}\n{in_time(outcomes)}\n"
    of = "recordings" if options.recorded else options.half or "both halves"
    print(report.whole(outcomes, of, beside))
    print(f"\ncases with advice on a loader that is fine: {len(advised)}")
    for line in advised[: None if options.verbose else 20]:
        print(f"  {line}")
    if options.odd_hours:
        print(f"\nodd healthy streams: {_odd(options)}")
    return 0


def _chosen(options: argparse.Namespace) -> list[Case] | list[recorded.Recording]:
    name = options.case or ""
    if options.recorded:
        return [one for one in recorded.all_recordings() if name in one.name]
    named = [case for case in cases(options.seed, options.rounds) if name in case.name]
    return [case for case in named if options.half in (None, case.half)][: options.cases]


def _odd(options: argparse.Namespace) -> str:
    chosen = odd_hours(options.seed, options.odd_hours * (2 if options.half else 1))
    chosen = [case for case in chosen if options.half in (None, case.half)]
    return report.hours([one for case in chosen for one in judge(case)])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.evaluation", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--half", choices=("dev", "held-out"), help="only this half of the cases")
    parser.add_argument("--rounds", type=int, default=4, help="of all kinds (default 4)")
    parser.add_argument("--cases", type=int, help="at most so many")
    parser.add_argument(
        "--case", help="only those with this in their names, and what every rule says of the first"
    )
    parser.add_argument("--odd-hours", type=float, default=0.0, help="hours of odd healthy streams")
    parser.add_argument("--recorded", action="store_true", help="the recorded jobs instead")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each case")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
