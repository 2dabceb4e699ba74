"""``python -m tests.evaluation.second``: the diagnosis on the second generator's cases."""

import argparse
import sys

from tests.evaluation.case import HEALTHY, UNDECIDED
from tests.evaluation.figures import report
from tests.evaluation.harness import Outcome, run
from tests.evaluation.second.cases import ABOUT_LOADERS, Case, cases, odd_hours

LOADER_ADVICE = "loader advice"
STARVED = frozenset({"loader_cpu_bound", "loader_in_main_process", "loader_io_bound"})
SOON_SECONDS = 20.0
EVENTS = frozenset({"hardware_errors", "gpu_lost"})
"""Of these a report keeps what was said when they happened."""


def judge(case: Case) -> list[Outcome]:
    """As ``harness.run``; times count from its first step on, and advice on a loader to a job that
    has none, or a good one, is wrong at any moment, whatever was said with it."""
    watching = case.watch()
    outcomes = run(case, watching)
    for one, subject in zip(outcomes, case.subjects, strict=True):
        if one.seconds_to_detect is not None:
            begins = watching.begins(subject.gpus)
            one.seconds_to_detect = max(0.0, one.seconds_to_detect - begins)
            one.said = one.label if one.label in EVENTS else one.said
        if case.loader_fine and about_loaders(one):
            one.said, one.others = LOADER_ADVICE, (one.said, *one.others)
    return outcomes


def about_loaders(outcome: Outcome) -> list[str]:
    return [advice for advice in sorted(outcome.advice) if ABOUT_LOADERS.search(advice)]


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
    chosen = cases(options.seed, options.rounds)
    if options.case:
        chosen = [case for case in chosen if options.case in case.name]
    chosen = [case for case in chosen if options.half in (None, case.half)][: options.cases]
    outcomes: list[Outcome] = []
    advised: list[str] = []
    for case in chosen:
        found = judge(case)
        outcomes += found
        wrong = [one for one in found if one.said == LOADER_ADVICE]
        advised += [f"{one.case}: {' '.join(about_loaders(one))}" for one in wrong]
        for one in found if options.verbose else ():
            print(report.one(one, case.view), flush=True)
    if not outcomes:
        print("no such case", file=sys.stderr)
        return 2
    beside = f"\n{named(outcomes)}\n{in_time(outcomes)}\n"
    print(report.whole(outcomes, options.half or "both halves", beside))
    print(f"\ncases with advice on a loader that is fine: {len(advised)}")
    for line in advised[: None if options.verbose else 20]:
        print(f"  {line}")
    if options.odd_hours:
        print(f"\nodd healthy streams: {_odd(options)}")
    return 0


def _odd(options: argparse.Namespace) -> str:
    chosen = odd_hours(options.seed, options.odd_hours * (2 if options.half else 1))
    chosen = [case for case in chosen if options.half in (None, case.half)]
    return report.hours([one for case in chosen for one in judge(case)])


def _options() -> argparse.Namespace:
    parser = argparse.ArgumentParser(prog="python -m tests.evaluation.second", description=__doc__)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--half", choices=("dev", "held-out"), help="only this half of the cases")
    parser.add_argument("--rounds", type=int, default=4, help="of all kinds (default 4)")
    parser.add_argument("--cases", type=int, help="at most so many")
    parser.add_argument("--case", help="only those with this in their names")
    parser.add_argument("--odd-hours", type=float, default=0.0, help="hours of odd healthy streams")
    parser.add_argument("-v", "--verbose", action="store_true", help="a line for each case")
    return parser.parse_args()


if __name__ == "__main__":
    sys.exit(main())
