"""Errors in a GPU's memory."""

from __future__ import annotations

import pytest

from tests.diagnosis.windows import check_of, fires, gpu, gpu_only, window

check = check_of("hardware_errors")

NO_COUNTERS = {
    "ecc_uncorrected_new": None,
    "ecc_corrected_new": None,
    "remapped_rows_failed": None,
    "remapped_rows_pending": None,
}


@pytest.mark.parametrize("facts", [{"ecc_uncorrected_new": 1}, {"remapped_rows_failed": True}])
def test_uncorrectable_errors_and_failed_remappings_are_errors(facts: dict[str, object]) -> None:
    """Either is said at once, of that GPU."""
    said = fires(check(window(gpus=(gpu(0), gpu(1, **facts)))))
    assert said.severity == "error"
    assert said.gpus == ("GPU-1",)


def test_a_pending_remapping_asks_for_a_reset() -> None:
    """Nothing is lost yet: a warning, whose advice is the reset."""
    said = fires(check(gpu_only(gpu(remapped_rows_pending=True))))
    assert said.severity == "warning"
    assert any("Reset" in advice.action for advice in said.advice)


def test_a_failed_remapping_asks_for_another_card() -> None:
    """No spare rows are left."""
    said = fires(check(gpu_only(gpu(remapped_rows_failed=True))))
    assert any("replaced" in advice.action for advice in said.advice)


def test_many_corrected_errors_are_information() -> None:
    """They cost nothing, and are worth a line."""
    assert fires(check(gpu_only(gpu(ecc_corrected_new=40)))).severity == "info"


QUIET = {"with a few corrected errors": gpu_only(gpu(ecc_corrected_new=3))}


UNKNOWN = {
    "where the card has neither ecc nor a row remapper": (gpu_only(gpu(**NO_COUNTERS)), "ECC")
}
