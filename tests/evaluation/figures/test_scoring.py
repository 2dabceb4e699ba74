"""The figures: from outcomes made by hand."""

from dataclasses import replace

import pytest

from tests.evaluation.calibrate import isotonic, on
from tests.evaluation.case import HEALTHY, UNDECIDED
from tests.evaluation.figures.report import markdown
from tests.evaluation.figures.scoring import confusions, score, score_baseline
from tests.evaluation.harness import Outcome


def outcome(label: str, said: str, *others: str, **more: object) -> Outcome:
    made = Outcome(
        case=f"{label}-{said}", kind=label, label=label, accepted=frozenset({label, *others}),
        said=said, confidence=None if said in (HEALTHY, UNDECIDED) else 0.8,
        seconds_to_detect=6.0 if said == label else None, alarms=(), others=(), gpu_hours=0.5,
        log=False, baselines={"fluctuation": said, "threshold": HEALTHY},
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


def test_precision_recall_and_f1_of_a_cause() -> None:
    """Two of three found, two of three claims true."""
    loader = next(one for one in score(OUTCOMES).causes if one.label == "loader_cpu_bound")
    assert loader.cases == 3
    assert loader.precision == pytest.approx(2 / 3)
    assert loader.recall == pytest.approx(2 / 3)
    assert loader.f1 == pytest.approx(2 / 3)


def test_the_figures_over_all() -> None:
    """Each as its name says."""
    overall = score(OUTCOMES)
    assert overall.top_1 == pytest.approx(3 / 6)
    assert overall.abstained == pytest.approx(1 / 6)
    assert overall.false_alarms_per_hour == pytest.approx(2 / 1.0)
    assert overall.blamed_loading == 1
    assert overall.seconds_to_detect == 9.0
    assert overall.brier == pytest.approx((2 * 0.04 + 2 * 0.64) / 4)


def test_any_accepted_answer_counts_as_the_label() -> None:
    """Where evidence leaves two causes, naming either is right."""
    some = [outcome("straggler", "collective_wait", "collective_wait")]
    assert score(some).top_1 == 1.0
    assert confusions(some) == []


def test_the_rules_from_elsewhere_have_the_same_figures() -> None:
    """One that never says anything finds only what is healthy."""
    silent = score_baseline(OUTCOMES, "threshold")
    assert silent.top_1 == pytest.approx(2 / 6)
    assert silent.false_alarms == 0


def test_the_table_names_every_cause() -> None:
    """Each has a row."""
    for cause in ("loader_cpu_bound", "checkpoint_pauses", HEALTHY):
        assert f"| {cause} |" in markdown(OUTCOMES)


def test_a_fitted_curve_never_falls() -> None:
    """Neighbours out of order are pooled."""
    blocks = isotonic([(0.1, False), (0.2, True), (0.3, False), (0.9, True)])
    shares = [share for _, share, _ in blocks]
    assert shares == sorted(shares)
    assert sum(count for _, _, count in blocks) == 4
    assert on([(0.0, 0.2), (1.0, 0.8)], 0.5) == pytest.approx(0.5)
