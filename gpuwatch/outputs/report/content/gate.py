"""Conditions on two reports compared, for a script that is to stop when one holds:
``busy<-5%``, ``energy>10%``, ``new``, ``new:power_throttle``."""

import operator
import re
from typing import NamedTuple

from gpuwatch.core.text import SentenceError, clean
from gpuwatch.diagnosis.engine.catalogue import RULES
from gpuwatch.outputs.report.comparison import MEASURES, Comparison, Outcome, measured
from gpuwatch.outputs.report.content.changes import cell

METRICS = {
    "busy": "busy_percent",
    "duty": "duty_percent",
    "lost": "finding_percent",
    "throttled": "throttled_percent",
    "waits": "data_wait_percent",
    "samples/s": "samples_per_second",
    "duration": "seconds",
    "power": "power_mean_watts",
    "energy": "energy_joules",
    "memory": "gpu_memory_peak_bytes",
}
"""What can be asked of, and its figure."""
_HOLDS = {"<": operator.lt, "<=": operator.le, ">": operator.gt, ">=": operator.ge}
_CHANGE = re.compile(r"([a-z/]+)\s*(<=?|>=?)\s*([+-]?\d{1,9}(?:\.\d{1,9})?)\s*%", re.ASCII)


class Condition(NamedTuple):
    text: str
    metric: str
    """One of ``METRICS``, or ``new``."""
    operator: str = ">"
    value: float = 0.0
    rule: str | None = None

    @classmethod
    def parse(cls, text: str) -> "Condition":
        """Raises ``SentenceError``."""
        rules, (metric, colon, rule) = {one.name for one in RULES}, text.partition(":")
        if metric == "new" and (rule in rules or not colon):
            return cls(text, metric, rule=rule or None)
        found = _CHANGE.fullmatch(text)
        if found is not None and found[1] in METRICS:
            return cls(text, found[1], found[2], float(found[3]))
        raise SentenceError(
            f"{clean(text, 60)!r} is no condition: write busy<-5% (with one of "
            f"{', '.join(METRICS)}), new or new:RULE with a rule that gpuwatch explain lists."
        )

    def judge(self, comparison: Comparison) -> Outcome | None:
        """``None``: it does not hold."""
        change, says = (self._found if self.metric == "new" else self._changed)(comparison)
        if change is None or _HOLDS[self.operator](change, self.value):
            return Outcome(condition=self.text, says=says, change=change)
        return None

    def _changed(self, comparison: Comparison) -> tuple[float | None, str]:
        row = next(one for one in MEASURES if one[0] == METRICS[self.metric])
        figure = measured(row, comparison.before, comparison.after)
        label, before, change = figure.label, figure.before, figure.difference
        sides = {"before": before, "after": figure.after}
        if change is None:
            missing = [side for side, value in sides.items() if value is None]
            return None, f"unknown: {label} was not measured {' or '.join(missing)}."
        unit = " points"
        if figure.kind != "percent":
            if not before:
                return None, f"unknown: {label} was 0 before."
            change, unit = 100.0 * change / float(before), "%"
        both = ", ".join(f"{cell(figure, value)} {side}" for side, value in sides.items())
        return change, f"{label} {both} ({change:+.1f}{unit})."

    def _found(self, comparison: Comparison) -> tuple[float | None, str]:
        after, rule = comparison.after, self.rule
        names = [name for name in comparison.having("new") if rule in (None, name)]
        unchecked = not after.decided or rule in {one.rule for one in after.unknown}
        if not names and unchecked and rule not in {one.rule for one in after.findings}:
            return None, "unknown: what was read after does not decide it."
        return float(len(names)), f"{', '.join(names)} found after, not before."
