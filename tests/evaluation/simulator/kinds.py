"""All kinds: the faults, and what is healthy, plainly or oddly."""

import math

from tests.evaluation.simulator import others
from tests.evaluation.simulator.faults import FAULTS
from tests.evaluation.simulator.machine import CARDS
from tests.evaluation.simulator.setting import Kind, Setting, save, send, validation

_GAPS = "python_bound sync_every_step"
_SMALL = f"{_GAPS} validation_pauses checkpoint_pauses network_calls"


def _small_losses(s: Setting) -> None:
    """A little here and there, a fifth in all: no single thing is worth a warning."""
    pauses = ((25.0, validation(1.5, 0.7)), (9.0, send(0.4)), (33.0, save(1.2e9, remote=False)))
    s.train(gpu=0.2, gap=0.2 * s.some(0.04, 0.09), awaited=1, pauses=pauses)


def _rough_edges(s: Setting) -> None:
    """Bookkeeping between the steps."""
    s.train(gpu=0.2, gap=0.2 * s.some(0.08, 0.25), awaited=1)


def _variable_lengths(s: Setting) -> None:
    draw = s.world.random
    s.train(scale=lambda _now: min(3.0, draw.lognormvariate(0.0, 0.45)), gpu=0.25, host=0.05)


def _curriculum(s: Setting) -> None:
    period = s.some(40.0, 200.0)
    s.train(scale=lambda now: 1.1 + 0.4 * math.sin(6.28 * now / period), gpu=0.3, host=0.05)


def _compiles(s: Setting) -> None:
    s.young, s.machine.age = True, 0.0
    s.train(import_seconds=6.0, compile_seconds=s.some(60.0, 400.0))


def _tunes(s: Setting) -> None:
    s.young, s.machine.age = True, 0.0
    s.train(gpu=0.3, import_seconds=6.0, tune_seconds=s.some(60.0, 200.0))


def _answers_questions(s: Setting) -> None:
    s.computer(cards=CARDS[:2])
    s.run(others.language_server, s.pick((0.05, 0.3, 1.0, 3.0)))


def _feeds_from_threads(s: Setting) -> None:
    s.train(
        framework=s.pick(("tensorflow", "jax")), names_threads=False, workers=0, threads=4,
        gpu=0.15, loads=0.4, command="python train_input.py"
    )  # fmt: skip


def _streams_well(s: Setting) -> None:
    """More workers than cores is right where each waits for the network."""
    s.computer(cores=8).network.latency = 0.04
    s.train(workers=16, gpu=0.2, cached=0.0, remote=True, requests=30, batch_cpu=0.05)


def _many_actors(s: Setting) -> None:
    s.computer(cores=32)
    s.run(others.learner, 16, 0.06)


def _shares_with_itself(s: Setting) -> None:
    """Three programs of one person, one after the other's kernels or through MPS."""
    s.computer(cards=CARDS[:3])
    if s.pick((True, False)):
        s.run(others.mps)
    for share in (s.some(0.2, 0.45), s.some(0.2, 0.45)):
        s.run(others.tenant, share, "mira")
    s.train(gpu=s.pick((0.05, 0.1)), memory_gib=9.0)


def _one_of_four(s: Setting) -> None:
    s.computer(4, 32)
    for rank in s.train():
        if s.pick((True, False)):
            rank.proc.environment["CUDA_VISIBLE_DEVICES"] = "0"


def _desktop(s: Setting) -> None:
    s.computer(cards=CARDS[5:])
    s.run(others.graphics)


def _empty(s: Setting) -> None:
    s.computer(s.pick((1, 4)))
    if s.pick((True, False)):
        s.machine.hog(s.machine.cores.number * 0.7)


def _healthy(name: str, build: object, weight: int = 1, also: str = "", odd: bool = True) -> Kind:
    return Kind(name, "healthy", build, weight, also, odd=odd)  # type: ignore[arg-type]


KINDS = (
    *FAULTS,
    _healthy("plain", lambda s: s.train(), 4, _GAPS, odd=False),
    _healthy("plain_ranks", lambda s: s.train(ranks=s.several()), 2, _GAPS, odd=False),
    _healthy("small_losses", _small_losses, 2, _SMALL),
    _healthy("rough_edges", _rough_edges, 2, _GAPS),
    _healthy("variable_lengths", _variable_lengths),
    _healthy("accumulates", lambda s: s.train(gpu=1.6, awaited=0)),
    _healthy("curriculum", _curriculum),
    _healthy("compiles", _compiles, also="compiling"),
    _healthy("tunes", _tunes, also="compiling"),
    _healthy("answers_questions", _answers_questions, 2, "waiting_for_requests python_bound"),
    _healthy(
        "answers_requests",
        lambda s: s.run(others.model_server, s.pick((0.2, 2.0, 8.0, 20.0))),
        2,
        "waiting_for_requests",
    ),
    _healthy(
        "thinks", lambda s: s.run(others.notebook, s.pick((5.0, 25.0))), 1, "idle_holding_memory"
    ),
    _healthy("scores", lambda s: s.run(others.scoring)),
    _healthy("feeds_from_threads", _feeds_from_threads, 2),
    _healthy("streams_well", _streams_well),
    _healthy("many_actors", _many_actors),
    _healthy("sweeps", lambda s: s.run(others.sweep)),
    _healthy("simulates", lambda s: s.run(others.molecules)),
    # Where something is said, it is what they take together, which is no warning.
    _healthy("shares_with_itself", _shares_with_itself, 2, "other_tenant"),
    _healthy("one_of_four", _one_of_four, also="one_of_many_gpus " + _GAPS),
    _healthy("desktop", _desktop),
    _healthy("empty", _empty),
)
