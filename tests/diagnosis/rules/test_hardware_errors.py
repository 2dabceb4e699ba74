"""Errors in a GPU's memory."""

from __future__ import annotations

import pytest

from tests.diagnosis.windows import check_of, fires, gpu, gpu_only, is_clear, misses, window

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


def test_quiet_with_a_few_corrected_errors() -> None:
    """Correcting is what ECC is for."""
    is_clear(check(gpu_only(gpu(ecc_corrected_new=3))))


def test_unknown_where_the_card_has_neither_ecc_nor_a_row_remapper() -> None:
    """No counters are no errors that could be excluded."""
    misses(check(gpu_only(gpu(**NO_COUNTERS))), "ECC")
