"""Steps at one batch size, measured by a bench."""

from gpuwatch.tuning.bench import Bench
from gpuwatch.tuning.failures import MeasureError
from gpuwatch.tuning.memory.plan import STEPS, Measure
from gpuwatch.tuning.memory.records import MemoryPoint
from gpuwatch.tuning.messages import Answer, Order
from gpuwatch.tuning.settings import Failure


def list_gpus(bench: Bench) -> Answer:
    """The devices that torch can measure on. Raises ``MeasureError``."""
    answer = bench.ask(Order(what="gpus"))
    if isinstance(answer, Failure):
        raise MeasureError(answer.sentence)
    return answer


def measurer(bench: Bench, *, device: int | None, limit_bytes: int | None) -> Measure:
    """``device``: a CUDA device as torch numbers it; ``None``: the CPU."""

    def measure(batch_size: int, precision: str) -> MemoryPoint:
        order = Order(
            what="memory",
            batch_size=batch_size,
            precision=precision,
            steps=STEPS,
            device=device,
            limit_bytes=limit_bytes,
        )
        answer = bench.ask(order)
        if isinstance(answer, Failure):
            raise _error(answer, on_cpu=device is None)
        assert answer.point is not None
        return answer.point

    return measure


def _error(failure: Failure, *, on_cpu: bool) -> MeasureError:
    code, sentence = failure.code, failure.sentence
    if code in ("killed", "out_of_memory") and ("SIGKILL" in sentence or code == "out_of_memory"):
        # The kernel ends it where memory runs out faster than an exception can be raised.
        sentence = (
            "The step's process was killed (SIGKILL), as the kernel does when memory runs out."
        )
        code = "no_memory" if on_cpu else "killed"
        if not on_cpu:
            sentence += " With a step on a GPU it is the host's memory that ran out."
    elif code in ("killed", "exited") and failure.line is None and failure.output:
        sentence += f" Its last line: {failure.output[-1]}"
    return MeasureError(sentence, code)
