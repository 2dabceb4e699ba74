"""The callbacks, driven by the real trainers."""

import logging
import time
from pathlib import Path
from typing import Any

import pytest

from gpuwatch.jobs.loop import step_file
from gpuwatch.jobs.loop.step_file import Record
from gpuwatch.torch.reporter import REPORTER
from tests.support.installed import needs
from tests.torch.support import reported

MILLISECOND = 1_000_000
pytestmark = [needs("torch"), pytest.mark.filterwarnings("ignore")]


def check(record: Record) -> None:
    """16 batches of 4 in two epochs, 5 ms of work each; two validations and saves."""
    now, counters, _ = record
    assert counters.samples == 128
    assert (now.epoch, now.state, now.loader_workers) == (1, step_file.IDLE, 0)
    assert counters.wait_ns >= 128 * 2 * MILLISECOND
    assert counters.step_ns >= 32 * 5 * MILLISECOND
    assert counters.validation_ns >= 2 * 8 * 2 * MILLISECOND
    assert counters.checkpoint_ns >= 2 * 50 * MILLISECOND


def lightning_trainer(lightning: Any, folder: Path, **options: Any) -> Any:
    from gpuwatch.torch.lightning import GpuwatchCallback

    quiet = ("logger", "enable_progress_bar", "enable_model_summary")
    return lightning.Trainer(
        accelerator="cpu",
        default_root_dir=folder,
        callbacks=[GpuwatchCallback()],
        **(dict.fromkeys(quiet, False) | options),
    )


@pytest.mark.parametrize("package", ["lightning.pytorch", "pytorch_lightning"])
def test_a_lightning_trainer_reports(package: str, tmp_path: Path) -> None:
    """Waits, steps, validation, saving; and it leaves the trainer as it was."""
    import torch

    from tests.torch.parts import Slow

    lightning: Any = pytest.importorskip(package, reason="lightning is not installed")
    logging.getLogger(package).setLevel(logging.ERROR)

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def __init__(self) -> None:
            super().__init__()
            self.layer = torch.nn.Linear(4, 1)

        def training_step(self, batch: Any, number: int) -> Any:
            time.sleep(0.005)
            return self.layer(batch["x"]).mean()

        def validation_step(self, batch: Any, number: int) -> None:
            assert REPORTER.state == step_file.VALIDATION

        def on_save_checkpoint(self, checkpoint: Any) -> None:
            assert REPORTER.state == step_file.CHECKPOINT
            time.sleep(0.05)

        def configure_optimizers(self) -> Any:
            return torch.optim.SGD(self.parameters(), 0.1)

    trainer = lightning_trainer(lightning, tmp_path, max_epochs=2, num_sanity_val_steps=0)
    loaders = [torch.utils.data.DataLoader(Slow(count), batch_size=4) for count in (64, 8)]
    trainer.fit(Model(), *loaders)
    record = reported()
    check(record)
    assert record.counters.steps == 32
    assert (record.now.step_in_epoch, record.now.steps_in_epoch) == (16, 16)
    assert record.now.batch_size == 4
    for owner, name in ((trainer, "save_checkpoint"), (trainer.profiler, "start")):
        assert name not in vars(owner)


def test_an_exception_in_a_lightning_step_passes(tmp_path: Path) -> None:
    """And the trainer's own methods are back."""
    import torch

    from tests.torch.parts import Slow

    lightning: Any = pytest.importorskip("lightning.pytorch", reason="lightning is not installed")

    class Model(lightning.LightningModule):  # type: ignore[misc, name-defined]
        def training_step(self, batch: Any, number: int) -> Any:
            raise ZeroDivisionError("in my step")

        def configure_optimizers(self) -> None:
            return None

    trainer = lightning_trainer(lightning, tmp_path, max_epochs=1, enable_checkpointing=False)
    with pytest.raises(ZeroDivisionError, match="in my step"):
        trainer.fit(Model(), torch.utils.data.DataLoader(Slow(4), batch_size=4))
    assert "save_checkpoint" not in vars(trainer)
    assert reported().counters.steps == 0
    assert reported().now.state == step_file.IDLE


def train_transformers(folder: Path, model: Any, samples: int, **options: Any) -> None:
    """With a callback of ours, unless the options bring one."""
    from tests.torch.parts import Slow

    transformers: Any = pytest.importorskip("transformers", reason="transformers is not installed")
    pytest.importorskip("accelerate", reason="accelerate is not installed")
    from gpuwatch.torch.transformers import GpuwatchCallback

    callback = options.pop("callback", None) or GpuwatchCallback()
    settings = {"save_strategy": "no", "per_device_train_batch_size": 4, "report_to": []} | options
    arguments = transformers.TrainingArguments(
        str(folder / "out"), disable_tqdm=True, use_cpu=True, **settings
    )
    transformers.Trainer(
        model, arguments, train_dataset=Slow(samples), eval_dataset=Slow(8), callbacks=[callback]
    ).train()


def test_a_transformers_trainer_reports(tmp_path: Path) -> None:
    """A step of its own is one of two batches here."""
    from tests.torch.parts import Line

    class Working(Line):
        def forward(self, x: Any, labels: Any = None) -> dict[str, Any]:
            time.sleep(0.005)
            return super().forward(x, labels)

        def state_dict(self, *arguments: Any, **named: Any) -> Any:
            if REPORTER.state == step_file.CHECKPOINT:
                time.sleep(0.05)
            return super().state_dict(*arguments, **named)

    train_transformers(
        tmp_path,
        Working(),
        64,
        num_train_epochs=2,
        gradient_accumulation_steps=2,
        eval_strategy="steps",
        eval_steps=8,
        save_strategy="steps",
        save_steps=8,
        logging_steps=4,
    )
    record = reported()
    check(record)
    assert record.counters.steps == 16
    assert (record.now.step_in_epoch, record.now.steps_in_epoch) == (8, 8)
    assert record.now.batch_size == 8


def test_max_steps_end_an_epoch_of_transformers_early(tmp_path: Path) -> None:
    """Ten steps, eight of them in the first epoch: the second has two. The last step of an epoch
    has the batches that are left: ten of them, four to a step."""
    from tests.torch.parts import Line

    pytest.importorskip("transformers", reason="transformers is not installed")
    from gpuwatch.torch.transformers import GpuwatchCallback

    seen = set()

    class Looking(GpuwatchCallback):
        def on_step_begin(self, args: Any, state: Any, control: Any, **kwargs: Any) -> None:
            super().on_step_begin(args, state, control, **kwargs)
            seen.add(reported().now.steps_in_epoch)

    train_transformers(tmp_path, Line(), 32, max_steps=10, callback=Looking())
    now = reported().now
    assert seen == {8, 2}
    assert (now.epoch, now.step_in_epoch, now.steps_in_epoch) == (1, 2, 2)
    before = reported().counters
    train_transformers(tmp_path, Line(), 40, num_train_epochs=2, gradient_accumulation_steps=4)
    after = reported().counters
    assert (after.steps - before.steps, after.samples - before.samples) == (6, 80)
