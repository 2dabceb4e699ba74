"""The cases: programs on machines, drawn by a seed; half of them held out by a hash.

What is accepted was stated before anything was run. ``right``: rules that name the cause.
``hedge``: what is honest where the cause has no rule; ``undecided`` is a diagnosis that says so
itself, ``healthy`` one that warns of nothing. ``also``: true of it in a smaller way, neither right
nor a false alarm.
"""

from __future__ import annotations

import hashlib
import random
import re
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from gpuwatch.core.model import Snapshot
from tests.evaluation.case import HEALTHY, Judged, Subject
from tests.evaluation.simulator.gauges import View
from tests.evaluation.simulator.kinds import KINDS
from tests.evaluation.simulator.observe import Observer
from tests.evaluation.simulator.setting import Kind, Setting

_WARM_SECONDS = 25.0
LONG_SECONDS = 1800.0


ABOUT_LOADERS = re.compile(
    r"num_workers|loader workers|prefetch_factor|pin_memory|persistent_workers|DataLoader", re.I
)
"""Words of advice on a PyTorch loader, which harms where there is none, or where it is fine."""


class Truth(NamedTuple):
    right: frozenset[str]
    hedge: frozenset[str]
    also: frozenset[str]
    loader_fine: bool


_TABLE = """
healthy | healthy | undecided |
loader_cpu_bound | loader_cpu_bound | | oscillation | loader
loader_in_main_process | loader_in_main_process | | oscillation | loader
loader_io_bound | loader_io_bound | | oscillation | loader
loader_network | loader_io_bound | oscillation undecided | | loader
loader_threads | | oscillation undecided |
loader_tail | late_batches | oscillation undecided | loader_cpu_bound | loader
too_many_workers | too_many_workers loader_cpu_bound | | oscillation | loader
cores_taken | loader_cpu_bound | oscillation undecided | too_many_workers | loader
cpu_quota | cpu_quota | | loader_cpu_bound oscillation | loader
memory_not_pinned | memory_not_pinned | oscillation undecided | | loader
shm_full | shm_full | |  | loader
checkpoint_pauses | checkpoint_pauses | | oscillation
recompiles | recompiles | undecided | oscillation
validation_pauses | validation_pauses | | oscillation
workers_restart | workers_restart | validation_pauses | oscillation | loader
logging | network_calls | oscillation undecided |
late_rank | straggler collective_wait | | busy_without_work oscillation
late_loader | straggler collective_wait loader_cpu_bound | | busy_without_work | loader
saving_rank | checkpoint_pauses collective_wait straggler | | oscillation busy_without_work
gloo | collective_wait straggler | oscillation undecided |
pipeline | pipeline_bubbles | oscillation undecided collective_wait | busy_without_work
sync_every_step | sync_every_step python_bound | oscillation undecided |
python_bound | python_bound sync_every_step | oscillation undecided |
offload | | oscillation undecided |
batch_too_small | batch_too_small python_bound busy_without_work | oscillation |
environments | actors_cpu_bound | oscillation undecided |
processor | trains_on_cpu | undecided |
clocks | power_throttle | undecided | busy_without_work
other_tenant | other_tenant | | oscillation
thermal_throttle | thermal_throttle | |
power_throttle | power_throttle | |
pcie_degraded | pcie_degraded | |
gpu_lost | gpu_lost | |
hardware_errors | hardware_errors | |
memory_growing | memory_growing | | memory_nearly_full
memory_nearly_full | memory_nearly_full | |
host_memory_growing | host_memory_growing | |
orphaned_workers | orphaned_workers | | idle_holding_memory
job_stopped | job_stopped | | idle_holding_memory
idle_holding_memory | idle_holding_memory | healthy undecided |
"""


def _read(line: str) -> tuple[str, Truth]:
    cause, right, hedge, also, *loader = [part.strip() for part in line.split("|")]
    words = [frozenset(text.split()) for text in (right, hedge, also)]
    return cause, Truth(words[0], words[1], words[2], not loader)


TRUTHS = dict([_read(line) for line in _TABLE.strip().splitlines()])
_BY_THE_CARD = (
    "thermal_throttle power_throttle pcie_degraded gpu_lost hardware_errors memory_growing"
    " memory_nearly_full healthy"
)
"""Seen from the GPU alone; everything else is a guess without its job."""
_BY_THE_JOB = (
    "processor job_stopped orphaned_workers idle_holding_memory host_memory_growing other_tenant"
)
"""Without the job there is nothing to see."""


def truth_of(cause: str, view: View) -> Truth:
    """What is accepted of one who sees so much."""
    truth = TRUTHS[cause]
    more = frozenset[str]()
    if cause not in _BY_THE_CARD.split() and not (view.jobs and view.rights and view.links):
        more |= {"oscillation", "undecided"}
    if cause in _BY_THE_JOB.split() and not (view.jobs and view.links):
        more |= {"healthy"}
    if cause == "shm_full" and not view.host:
        more |= {"healthy"}
    if not view.jobs:
        # Spinning at low power is all that a log of GPUs shows of ranks that wait.
        more |= truth.also & {"busy_without_work", "idle_holding_memory"}
    if view.mig:
        more |= {"undecided"}
    return truth._replace(hedge=truth.hedge | more)


@dataclass(frozen=True, kw_only=True)
class Case(Judged):
    """A machine with programs on it, from a moment on at which somebody begins to watch."""

    of: Kind
    view: View
    long: bool = False
    """Half an hour of it."""

    @property
    def half(self) -> str:
        return "dev" if hashlib.sha256(self.name.encode()).digest()[0] % 2 else "held-out"

    @property
    def loader_fine(self) -> bool:
        return truth_of(self.of.cause, self.view).loader_fine

    def watch(self) -> Watch:
        return Watch(self)


class Watch:
    """One watching."""

    def __init__(self, case: Case) -> None:
        self._case, self._setting = case, staged(case.of, case.name)
        draw, young = self._setting.draw, self._setting.young
        self.start, self._seconds = _WARM_SECONDS, draw.uniform(60.0, 150.0)
        if young:
            self.start = draw.choice((draw.uniform(2.0, 12.0), draw.uniform(12.0, 120.0)))
            self._seconds = max(45.0, 40.0 - self.start) + draw.uniform(40.0, 80.0)
        if case.long:
            self._seconds = LONG_SECONDS

    def __iter__(self) -> Iterator[Snapshot]:
        return Observer(self._setting.machine, self._case.view, self.start).watch(self._seconds)

    def begins(self, gpus: Sequence[int]) -> float:
        """When the first step on these was done, in seconds from its start on."""
        first = self._setting.machine.first_steps
        return max(0.0, min([first[gpu] for gpu in gpus if gpu in first], default=0.0) - self.start)


def staged(kind: Kind, name: str) -> Setting:
    setting = Setting(name)
    kind.build(setting)
    return setting


def _view(name: str) -> View:
    """What can be read; of ten machines four are read in part."""
    draw = random.Random(name + "-view")
    often: dict[str, Any] = {
        "interval": draw.choice((1.0, 1.0, 1.0, 0.5, 2.0)),
        "window": draw.choice((1 / 6, 0.25, 0.5, 1.0)),
        "delays": draw.random() < 0.5,
    }
    views = (
        (32, View(**often)),
        (30, View(attached=True, **often)),
        (10, View(rights=False, **often)),
        (8, View(samples=False, **often)),
        (3, View(samples=False, shares=False, **often)),
        (4, View(samples=False, shares=False, links=False, **often)),
        (3, View(mig=True, **often)),
        (7, View(jobs=False, **often)),
        (7, View(jobs=False, host=False, samples=draw.random() < 0.5, **often)),
    )
    return draw.choices([view for _, view in views], [weight for weight, _ in views])[0]


def case(kind: Kind, number: int, seed: int, *, long: bool = False) -> Case:
    name = f"{kind.name}-{seed}-{number}"
    view, also = _view(name), frozenset(kind.also.split())
    gpus = tuple(range(len(staged(kind, name).machine.gpus)))
    truth = truth_of(kind.cause, view)
    accepted = truth.right | truth.hedge
    if kind.cause == HEALTHY or not view.jobs:
        accepted |= also
    if kind.odd and not view.jobs:
        # Without its job, a GPU that rests between requests or cells may be anything.
        accepted |= {"oscillation"}
    about = gpus if kind.gpu is None else (kind.gpu,)
    subjects = [Subject(gpus=about, label=kind.cause, accepted=accepted, beside=truth.also | also)]
    if rest := tuple(set(gpus) - set(about)):
        plain = truth_of(HEALTHY, view)
        subjects.append(Subject(gpus=rest, label=HEALTHY, accepted=plain.right | plain.hedge))
    return Case(
        name=name,
        subjects=tuple(subjects),
        of=kind,
        view=view,
        long=long,
    )


def cases(seed: int, rounds: int) -> list[Case]:
    """Every kind in turn, those with more weight more often."""
    return [
        case(kind, turn * kind.weight + number, seed)
        for turn in range(rounds)
        for kind in KINDS
        for number in range(kind.weight)
    ]


def odd_hours(seed: int, hours: float) -> list[Case]:
    """Healthy machines of the odd kinds, half an hour each: so many hours in all."""
    odd = [kind for kind in KINDS if kind.odd and kind.name != "compiles"]
    count = round(hours * 3600.0 / LONG_SECONDS)
    return [case(odd[place % len(odd)], 1000 + place, seed, long=True) for place in range(count)]
