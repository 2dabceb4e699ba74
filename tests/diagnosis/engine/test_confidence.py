"""How sure a finding is."""

from hypothesis import given
from hypothesis import strategies as st

from gpuwatch.diagnosis.catalogue import find
from gpuwatch.diagnosis.rule_state import confidence
from tests.diagnosis.engines import firing

SHARES = st.floats(0.0, 1.0)
RULES = st.sampled_from([find(name).trust for name in ("oscillation", "gpu_lost", "straggler")])


@given(RULES, SHARES, SHARES)
def test_stronger_evidence_is_never_less_sure(trust: float, one: float, other: float) -> None:
    """The map is monotone."""
    low, high = sorted((one, other))
    assert confidence(trust, firing(), low) <= confidence(trust, firing(), high)


@given(RULES, SHARES, st.integers(0, 8))
def test_it_is_a_probability_and_never_certain(trust: float, strength: float, missing: int) -> None:
    """Whatever is missing."""
    said = firing(missing=tuple(str(number) for number in range(missing)))
    assert 0.0 < confidence(trust, said, strength) < 1.0


@given(RULES, st.floats(0.1, 1.0))
def test_each_missing_reading_makes_it_less_sure(trust: float, strength: float) -> None:
    """Named readings count."""
    whole, part = firing(), firing(missing=("power",))
    assert confidence(trust, part, strength) < confidence(trust, whole, strength)
