"""Predicted gains, held against what was measured where one knob of a real job was turned."""

import json
from typing import Any

import pytest

from tests.evaluation.predicted import CLOSE, Seen
from tests.evaluation.recorded import FOLDER, INDEX, all_recordings

MEASURED = [one for one in json.loads(INDEX.read_text()) if "times_as_fast" in one]


@pytest.mark.parametrize("entry", MEASURED, ids=lambda one: str(one["file"].partition(".")[0]))
def test_the_predicted_gain_is_near_the_measured_one(entry: dict[str, Any]) -> None:
    """Within a quarter, of each other setting that was tried."""
    (recording,) = [one for one in all_recordings() if one.path == FOLDER / entry["file"]]
    seen = Seen(recording.watch())
    for wanted, times in entry["times_as_fast"].items():
        gain = seen.gain_of(entry["setting"], entry["present"], wanted)
        assert gain is not None
        assert gain.factor == pytest.approx(times, rel=CLOSE)
