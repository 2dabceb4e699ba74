"""A callback for Hugging Face's trainer: ``Trainer(..., callbacks=[GpuwatchCallback()])``.

A step is one of the trainer's own, gradient accumulation and all. Between the events the trainer's
own flags say what comes next: logging, evaluating, saving, or the next batches; so a wait for data
also holds the little that the trainer does around it, and the copy to the device that accelerate
makes. Copies are not separated.
"""

from typing import Any

from transformers import TrainerCallback

from gpuwatch.jobs.loop.step_file import BETWEEN, CHECKPOINT, STEP, VALIDATION, WAIT
from gpuwatch.torch.batches import about, first_loader
from gpuwatch.torch.reporter import REPORTER
from gpuwatch.torch.watching import quiet


class GpuwatchCallback(TrainerCallback):  # type: ignore[misc]
    def __init__(self) -> None:
        super().__init__()
        self._batch_size = 0
        self._together = 1
        self._batches: int | None = None
        """In an epoch."""
        self._left: int | None = None
        """Still to come in this one."""
        self._evaluation: int | None = None
        self._steps: int | None = None
        self._loader: tuple[int | None, bool | None] = (None, None)

    @quiet
    def on_train_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        together = self._together = args.gradient_accumulation_steps
        self._batch_size = getattr(state, "train_batch_size", None) or args.train_batch_size
        loader = first_loader(kwargs.get("train_dataloader"))
        batches, workers, pinned = about(loader)
        self._batches = self._left = batches
        self._steps = None if batches is None else -(-batches // together)
        self._loader = (workers, pinned)
        REPORTER.loop = self
        REPORTER.loop_begins(self._steps_to_come(state), workers, pinned)
        REPORTER.mark(WAIT)

    @quiet
    def on_epoch_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._left = self._batches
        if REPORTER.loop is self and state.epoch is not None:
            REPORTER.epoch_is(int(state.epoch + 0.001))
            REPORTER.loop_begins(self._steps_to_come(state), *self._loader)

    @quiet
    def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if REPORTER.loop is self:
            REPORTER.body_begins(self._batch_size * self._next_batches())

    @quiet
    def on_step_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if REPORTER.loop is self:
            REPORTER.body_ends()
            self._mark_next(control)

    @quiet
    def on_prediction_step(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if REPORTER.loop is self:
            if REPORTER.state != VALIDATION:
                REPORTER.mark(VALIDATION)
        elif self._evaluation is None and not REPORTER.is_aside:
            self._evaluation = REPORTER.enter(VALIDATION)

    @quiet
    def on_log(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        self._goes_on(control)

    @quiet
    def on_evaluate(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        depth, self._evaluation = self._evaluation, None
        if depth is not None:
            REPORTER.leave(depth)
        self._goes_on(control)

    def on_predict(self, args: Any, state: Any, control: Any, metrics: Any, **kwargs: Any) -> None:
        self.on_evaluate(args, state, control, **kwargs)

    on_save = on_epoch_end = on_log

    @quiet
    def on_train_end(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
        if REPORTER.loop is self:
            REPORTER.trainer_ends()

    def _steps_to_come(self, state: Any) -> int | None:
        """Steps in this epoch, which ``max_steps`` can end early."""
        if self._steps is None or state.max_steps <= 0:
            return self._steps
        left: int = state.max_steps - state.global_step
        return min(self._steps, max(0, left))

    def _next_batches(self) -> int:
        """Return the batches of the step that begins: the last of an epoch has what is left."""
        together, left = self._together, self._left or 0
        self._left = max(0, left - together)
        return min(together, left) if left > 0 else together

    def _goes_on(self, control: Any) -> None:
        # What a model logs in the middle of a step ends nothing.
        if REPORTER.loop is self and REPORTER.state != STEP:
            self._mark_next(control)

    def _mark_next(self, control: Any) -> None:
        """The trainer logs, evaluates and saves in this order, and clears each flag when done."""
        flags = (
            (control.should_log, BETWEEN),
            (control.should_evaluate, VALIDATION),
            (control.should_save, CHECKPOINT),
        )
        REPORTER.mark(next((state for is_set, state in flags if is_set), WAIT))
