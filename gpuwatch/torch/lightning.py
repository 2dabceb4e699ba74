"""A callback for Lightning: ``Trainer(callbacks=[GpuwatchCallback()])``.

Works with ``lightning.pytorch`` and with ``pytorch_lightning``. A step is a batch. Waits for data
are what the trainer's own profiler calls ``train_dataloader_next``; copies to the device and saved
checkpoints are those that the trainer makes.
"""

import importlib
import sys
from collections.abc import Callable
from typing import Any

from gpuwatch.jobs.loop.step_file import BETWEEN, VALIDATION, WAIT
from gpuwatch.torch import batches
from gpuwatch.torch.reporter import REPORTER
from gpuwatch.torch.watching import checkpoint, copying, quiet

_PACKAGES = ("lightning.pytorch", "pytorch_lightning")
_FETCH = "train_dataloader_next"


def _base() -> Any:
    """``Callback`` of the package that the job uses, as far as that shows by now."""
    for name in (*[name for name in _PACKAGES if name in sys.modules], *_PACKAGES):
        try:
            return importlib.import_module(name).Callback
        except ImportError:
            continue
    raise ImportError("neither lightning nor pytorch_lightning is installed")


_Base: Any = _base()


class GpuwatchCallback(_Base):  # type: ignore[misc]
    """Reports what a Lightning trainer's loop does. Several trainers one after another may share
    it."""

    def __init__(self) -> None:
        super().__init__()
        self._fetches_seen = False
        self._aside: int | None = None
        self._replaced: list[tuple[Any, str]] = []

    @quiet
    def on_train_start(self, trainer: Any, pl_module: Any) -> None:
        _, workers, pinned = batches.about(batches.first_loader(trainer.train_dataloader))
        count = trainer.num_training_batches
        REPORTER.loop = self
        REPORTER.loop_begins(count if isinstance(count, int) else None, workers, pinned)
        self._give_back()
        self._replace(trainer.profiler, "start", self._noticing(trainer.profiler.start, WAIT))
        self._replace(trainer.profiler, "stop", self._noticing(trainer.profiler.stop, BETWEEN))
        strategy = trainer.strategy
        self._replace(strategy, "batch_to_device", _within(copying, strategy.batch_to_device))
        self._replace(trainer, "save_checkpoint", _within(checkpoint, trainer.save_checkpoint))
        REPORTER.mark(WAIT)

    @quiet
    def on_train_epoch_start(self, trainer: Any, pl_module: Any) -> None:
        REPORTER.epoch_is(trainer.current_epoch)

    @quiet
    def on_train_batch_start(
        self, trainer: Any, pl_module: Any, batch: Any, batch_idx: int
    ) -> None:
        if REPORTER.loop is self:
            REPORTER.body_begins(batches.size_of(batch))

    @quiet
    def on_train_batch_end(
        self, trainer: Any, pl_module: Any, outputs: Any, batch: Any, batch_idx: int
    ) -> None:
        if REPORTER.loop is self:
            REPORTER.body_ends()
            REPORTER.mark(BETWEEN if self._fetches_seen else WAIT)

    @quiet
    def on_validation_start(self, trainer: Any, pl_module: Any) -> None:
        if self._aside is None and not REPORTER.is_aside:
            self._aside = REPORTER.enter(VALIDATION)

    @quiet
    def on_validation_end(self, trainer: Any, pl_module: Any) -> None:
        depth, self._aside = self._aside, None
        if depth is not None:
            REPORTER.leave(depth)

    on_test_start, on_test_end = on_validation_start, on_validation_end

    @quiet
    def on_train_end(self, trainer: Any, pl_module: Any, stage: str = "") -> None:
        self._end()

    teardown = on_train_end

    @quiet
    def on_exception(self, trainer: Any, pl_module: Any, exception: BaseException) -> None:
        self.on_validation_end(trainer, pl_module)
        self._end()

    def _end(self) -> None:
        self._give_back()
        if REPORTER.loop is self:
            REPORTER.trainer_ends()

    # What the trainer does between its hooks

    def _noticing(self, method: Callable[..., Any], state: int) -> Callable[..., Any]:
        """A profiler's ``start`` or ``stop`` that marks fetches of training batches."""

        def noticed(action_name: str, *arguments: Any, **named: Any) -> Any:
            if action_name.endswith(_FETCH) and REPORTER.loop is self and not REPORTER.is_aside:
                self._fetches_seen = True
                REPORTER.mark(state)
            return method(action_name, *arguments, **named)

        return noticed

    def _replace(self, owner: Any, name: str, method: Callable[..., Any]) -> None:
        """Wrap a method of this one object; what it can be asked for otherwise stays as it is."""
        if name not in vars(owner):
            setattr(owner, name, method)
            self._replaced.append((owner, name))

    def _give_back(self) -> None:
        while self._replaced:
            owner, name = self._replaced.pop()
            vars(owner).pop(name, None)

    def __getstate__(self) -> dict[str, Any]:
        return {**vars(self), "_replaced": [], "_aside": None}


def _within(mark: Callable[[], Any], method: Callable[..., Any]) -> Any:
    def marked(*arguments: Any, **named: Any) -> Any:
        with mark():
            return method(*arguments, **named)

    return marked
