"""Report what only a training job knows of its own loop, to any gpuwatch of this machine.

    from gpuwatch.torch import step, watch

    for images, labels in watch(loader, device="cuda"):
        loss = criterion(model(images), labels)
        ...

``watch`` reports how long the loop waits for data. All else is optional: ``step()`` where the body
of the loop holds more than the step, ``validation()`` and ``checkpoint()`` around those,
``copying()`` around a copy to the GPU, ``epoch(n)``; ``gpuwatch.torch.lightning.GpuwatchCallback``
and ``gpuwatch.torch.transformers.GpuwatchCallback`` do it for their trainers. ``describe()`` says
where it reports, or why it does not.

Importing this imports nothing but the standard library.
"""

from gpuwatch.torch.watching import checkpoint, copying, describe, epoch, step, validation, watch

__all__ = ["checkpoint", "copying", "describe", "epoch", "step", "validation", "watch"]
