"""The figures: from outcomes made by hand."""

from dataclasses import replace

import pytest

from tests.evaluation.calibrate import isotonic, on
from tests.evaluation.case import HEALTHY, UNDECIDED
from tests.evaluation.harness import Outcome
from tests.evaluation.report import markdown, worst


def outcome(label: str, said: str, *others: str, **more: object) -> Outcome:
    made = Outcome(
        case=f"{label}-{said}", label=label, accepted=frozenset({label, *others}),
        said=said, confidence=None if said in (HEALTHY, UNDECIDED) else 0.8,
        seconds_to_detect=6.0 if said == label else None, alarms=(), others=(), gpu_hours=0.5,
    )  # fmt: skip
    return replace(made, **more)  # type: ignore[arg-type]


OUTCOMES = [
    outcome("loader_cpu_bound", "loader_cpu_bound"),
    outcome("loader_cpu_bound", "loader_cpu_bound", seconds_to_detect=12.0),
    outcome("loader_cpu_bound", UNDECIDED),
    outcome("checkpoint_pauses", "loader_cpu_bound"),
    outcome(HEALTHY, HEALTHY),
    outcome(HEALTHY, "straggler", alarms=("straggler", "straggler")),
]


FIGURES = """\
| overall | |
|---|---|
| macro F1 | 0.444 |
| top-1 | 0.500 |
| abstained | 0.167 |
| false alarms / GPU-hour | 2.000 (2/1 h) |
| blamed on loading wrongly | 1 |
| s to detect loading | 9 |
| s to detect all | 6 |
| Brier score | 0.340 |

| cause | cases | precision | recall | F1 |
|---|---|---|---|---|
| checkpoint_pauses | 1 | - | 0.00 (0.00-0.79) | 0.00 |
| healthy | 2 | 1.00 (0.21-1.00) | 0.50 (0.09-0.91) | 0.67 |
| loader_cpu_bound | 3 | 0.67 (0.21-0.94) | 0.67 (0.21-0.94) | 0.67 |"""


def test_the_figures_are_as_their_names_say() -> None:
    """Two of three starved loaders were found, and two of three claims were true."""
    assert markdown(OUTCOMES) == FIGURES


def test_any_accepted_answer_counts_as_the_label() -> None:
    """Where evidence leaves two causes, naming either is right."""
    some = [outcome("straggler", "collective_wait", "collective_wait")]
    assert "| top-1 | 1.000 |" in markdown(some)
    assert worst(some) == ""
    assert worst(OUTCOMES).startswith("   1  loader_cpu_bound -> undecided: loader_cpu_bound-und")


def test_a_fitted_curve_never_falls() -> None:
    """Neighbours out of order are pooled."""
    blocks = isotonic([(0.1, False), (0.2, True), (0.3, False), (0.9, True)])
    shares = [share for _, share, _ in blocks]
    assert shares == sorted(shares)
    assert sum(count for _, _, count in blocks) == 4
    assert on([(0.0, 0.2), (1.0, 0.8)], 0.5) == pytest.approx(0.5)
