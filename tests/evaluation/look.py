"""What each rule says of a case at its end, and the facts it saw: to mend a rule by."""

import dataclasses
from collections.abc import Iterator
from typing import Any

from gpuwatch.diagnosis.catalogue import RULES
from gpuwatch.diagnosis.facts.observer import Observer
from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.rule import Clear, Firing
from tests.evaluation.case import Judged

_MOST_GPUS = 2


def look_into(case: Judged) -> Iterator[str]:
    """Lines for a person."""
    observer = Observer()
    for snapshot in case.watch():
        observer.push(snapshot)
        # Start-up is recognised as time goes on.
        observer.windows()
    for window in observer.windows():
        yield f"window of {'a job' if window.job else 'a GPU'}, starting={window.starting}"
        yield from _facts(window)
        for rule in RULES:
            said = rule.check(window)
            if isinstance(said, Firing):
                yield f"  FIRES   {rule.name}: {said.summary} (lost {said.lost_share})"
            elif isinstance(said, Clear):
                yield f"  clear   {rule.name}: {said.why}"
            else:
                yield f"  unknown {rule.name}: {', '.join(said.missing)}"


def _facts(window: Window) -> Iterator[str]:
    for gpu in window.gpus[:_MOST_GPUS]:
        yield f"  gpu {_known(gpu, skip=('identity',))}"
    if len(window.gpus) > _MOST_GPUS:
        yield f"  and {len(window.gpus) - _MOST_GPUS} GPUs more"
    if window.job is not None:
        yield f"  job {_known(window.job, skip=('job',))}"
        yield f"  usable cores {window.job.job.usable_cores}"
    yield f"  host {_known(window.host)}"
    yield f"  pauses {window.pauses}"


def _known(facts: Any, skip: tuple[str, ...] = ()) -> str:
    pairs = []
    for field in dataclasses.fields(facts):
        value = getattr(facts, field.name)
        if field.name in skip or value is None or value == ():
            continue
        pairs.append(
            f"{field.name}={value:.4g}" if isinstance(value, float) else f"{field.name}={value}"
        )
    return ", ".join(pairs)
