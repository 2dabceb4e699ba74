"""When a GPU came to be fed: what was before is left out from then on."""

from collections.abc import Iterator
from dataclasses import replace

import pytest

from gpuwatch.core.model import Snapshot
from gpuwatch.diagnosis.signals.stretches import Recovery, recovered
from tests.diagnosis.engines import machine, rules_of, told

WAITS = [99.0, 0.0, 0.0, 0.0]
"""A second each, again and again."""


def _after(*percents: float, recovery: Recovery | None = None) -> Recovery:
    made = Recovery() if recovery is None else recovery
    made.extend([(float(second), percent, 1.0) for second, percent in enumerate(percents, 1)])
    return made


def test_a_starved_gpu_that_is_fed_for_twelve_seconds() -> None:
    """It has been fed from their beginning, and stays so when it saves for a moment."""
    found = _after(*(WAITS * 10), *([98.0] * 12))
    assert found.at == pytest.approx(40.0)
    assert _after(*(WAITS * 10), *([98.0] * 12), *([0.0] * 6)).at == pytest.approx(40.0)


@pytest.mark.parametrize(
    "percents",
    [
        pytest.param([*(WAITS * 10), *([98.0] * 9)], id="not for long"),
        pytest.param([98.0] * 60, id="it always was"),
        pytest.param([*([98.0] * 40), *([0.0] * 10), *([98.0] * 30)], id="it paused"),
        pytest.param(([98.0] * 20 + [0.0] * 8) * 3, id="it pauses again and again"),
        pytest.param([*WAITS, *([98.0] * 30)], id="it had just begun"),
        pytest.param([*([88.0, 92.0] * 20), *([98.0] * 12)], id="it nearly was"),
    ],
)
def test_what_is_no_recovery(percents: list[float]) -> None:
    """Pauses, starts and small gaps are not: what was before still counts."""
    assert _after(*percents).at is None


def test_behind_a_gap_it_is_looked_at_anew() -> None:
    """Nobody knows what was in between."""
    made = _after(*(WAITS * 10))
    made.gap()
    assert _after(*([98.0] * 12), recovery=made).at is None


def test_all_of_a_job_must_be_fed() -> None:
    """The last of them says since when; one that never waited (it span) is fed as well."""
    cured, spun = _after(*(WAITS * 10), *([98.0] * 12)), _after(*([99.0] * 52))
    later = _after(*(WAITS * 11), *([98.0] * 12))
    starved = _after(*(WAITS * 13))
    assert recovered([cured, spun, later]) == pytest.approx(44.0)
    assert recovered([cured, starved]) is None
    assert recovered([spun]) is None


def _cured(scenario: str, seconds: int, cured_at: int, gpus: int = 1) -> Iterator[Snapshot]:
    """One job, that of ``scenario`` at first and a healthy one then."""
    ill, well = [machine(one, seconds, gpus) for one in (scenario, "healthy")]
    for second, (before, after) in enumerate(zip(ill, well, strict=True)):
        jobs = [
            replace(one, pid=was.pid, started_at_unix_seconds=was.started_at_unix_seconds)
            for one, was in zip(after.jobs, before.jobs, strict=True)
        ]
        yield before if second < cured_at else replace(after, jobs=tuple(jobs))


@pytest.mark.parametrize(
    ("scenario", "gpus", "rule"),
    [("starved", 1, "loader_cpu_bound"), ("starved", 2, "loader_cpu_bound")],
)
def test_a_finding_goes_soon_after_its_cure(scenario: str, gpus: int, rule: str) -> None:
    """Half a minute later, and nothing else is found in what is left of it."""
    said = [rules_of(one) for one in told(_cured(scenario, 170, 80, gpus))]
    assert said[79] == [rule]
    assert said[89] == [rule]
    assert {tuple(one) for one in said[80:]} == {(rule,), ()}
    assert said[115:] == [[]] * 55


def test_what_comes_back_is_found_again() -> None:
    """Fed for half a minute, then starved as before; what that costs is counted on."""
    made = enumerate(zip(_cured("starved", 160, 80), machine("starved", 160), strict=True))
    said = told(cured if 80 <= at < 114 else starved for at, (cured, starved) in made)
    assert rules_of(said[112]) == []
    assert rules_of(said[-1]) == ["loader_cpu_bound"]
    share = said[-1].findings[0].cost_share
    # It idles 70% of the 126 s of 160 in which it is starved.
    assert share == pytest.approx(0.55, abs=0.06)
