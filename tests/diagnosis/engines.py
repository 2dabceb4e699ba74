"""An engine whose rules say what a test wrote down, second by second."""

from collections.abc import Callable, Container, Iterable, Iterator, Mapping
from dataclasses import replace
from typing import Any

from gpuwatch.core.model import Gpu, GpuReading, Host, Snapshot
from gpuwatch.diagnosis.catalogue import known
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.diagnosis.facts.observer import Observer, SubjectKey
from gpuwatch.diagnosis.facts.window import Window
from gpuwatch.diagnosis.finding import Diagnosis, Evidence
from gpuwatch.diagnosis.rule import Check, Clear, Firing, Rule, Verdict
from tests.diagnosis.windows import NOW, window
from tests.support.simulated import looks

Say = Verdict | Callable[[float], Verdict]
"""Always the same, or by the second."""
CLEAR = Clear("not so")


def firing(summary: str = "It is so", **fields: Any) -> Firing:
    made = Firing(summary=summary, evidence=(Evidence("reading", 1.0),), strength=0.9)
    return replace(made, **fields)


def between(start: float, end: float, said: Verdict, otherwise: Verdict = CLEAR) -> Say:
    """``said`` from one second to another."""
    return lambda second: said if start <= second < end else otherwise


class Script(Observer):
    """Windows of one or more subjects, as an observer would make them."""

    def __init__(self, *windows: Window) -> None:
        super().__init__()
        self._windows = windows or (window(),)
        self._at = 0.0

    def show(self, *windows: Window) -> None:
        self._windows = windows

    def gpus(self) -> tuple[Gpu, ...]:
        """As busy as the windows say."""
        every = {gpu.uuid: gpu for one in self._windows for gpu in one.gpus}
        return tuple(
            [
                Gpu(
                    identity=gpu.identity,
                    reading=GpuReading(busy_percent=gpu.busy and gpu.busy.mean_percent),
                    lost=gpu.lost,
                )
                for gpu in every.values()
            ]
        )

    def push(self, snapshot: Snapshot) -> None:
        self._at = snapshot.taken_at_unix_seconds

    def windows(self, without: Container[SubjectKey] = ()) -> tuple[Window, ...]:
        return tuple(
            [
                replace(one, taken_at_unix_seconds=self._at)
                for one in self._windows
                if _key(one) not in without
            ]
        )


def _key(one: Window) -> SubjectKey:
    gpus = tuple([gpu.uuid for gpu in one.gpus])
    return (None, gpus) if one.job is None else (one.job.key, ())


class Scripted(Engine):
    """Whose snapshots have the GPUs of the script, which have been watched for a minute."""

    def __init__(self, rules: list[Rule], *windows: Window) -> None:
        self._script = Script(*windows)
        super().__init__(rules, observer=self._script)
        for gpu in self._script.gpus():
            busy = gpu.reading.busy_percent
            # The first snapshot speaks for the second up to it.
            idle = 59.0 if busy is None else 59.0 - 0.59 * busy
            self._time.add(gpu.uuid, -1.0, 59.0, idle)

    def windows_are(self, *windows: Window) -> None:
        """From now on."""
        self._script.show(*windows)

    def push(self, snapshot: Snapshot) -> None:
        super().push(replace(snapshot, gpus=self._script.gpus()))


def rule_of(name: str, check: Check) -> Rule:
    """What is known of the rule of this name, if there is one, with another check."""
    return replace(known(name), check=check)


def scripted(says: Mapping[str, Say], *windows: Window) -> Scripted:
    def rule(name: str, say: Say) -> Rule:
        return rule_of(
            name, lambda one: say(one.taken_at_unix_seconds - NOW) if callable(say) else say
        )

    return Scripted([rule(name, say) for name, say in says.items()], *windows)


def snapshot(second: float, interval: float = 1.0) -> Snapshot:
    return Snapshot(
        sequence=int(second),
        taken_at_unix_seconds=NOW + second,
        monotonic_seconds=second,
        interval_seconds=interval,
        simulated=True,
        host=Host(name="box"),
    )


def play(engine: Engine, seconds: Iterable[float], interval: float = 1.0) -> list[Diagnosis]:
    """What is said after each of these seconds."""
    said = []
    for second in seconds:
        engine.push(snapshot(second, interval))
        said.append(engine.diagnosis)
    return said


def after(seconds: int, says: Mapping[str, Say], *windows: Window) -> Diagnosis:
    """What is said when so many have passed."""
    return play(scripted(says, *windows), range(seconds))[-1]


def rules_of(diagnosis: Diagnosis) -> list[str]:
    return [finding.rule for finding in diagnosis.findings]


def machine(scenario: str, seconds: int, gpus: int = 1) -> Iterator[Snapshot]:
    """A simulated one, each second."""
    return looks(scenario, seconds, gpus=gpus)


def leaking(made: Iterable[Snapshot]) -> Iterator[Snapshot]:
    """Yield them with 2.4 GiB more in use on every GPU each six seconds."""
    for second, one in enumerate(made):
        used = (38.0 + 2.4 * (second // 6)) * 2**30
        yield replace(
            one,
            gpus=tuple(
                replace(gpu, reading=replace(gpu.reading, memory_used_bytes=int(used)))
                for gpu in one.gpus
            ),
        )


def told(made: Iterable[Snapshot]) -> list[Diagnosis]:
    """What is said after each."""
    engine, said = Engine(), []
    for one in made:
        engine.push(one)
        said.append(engine.diagnosis)
    return said


def simulate(scenario: str, seconds: int, gpus: int = 1) -> list[Diagnosis]:
    return told(machine(scenario, seconds, gpus))
