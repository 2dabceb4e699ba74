"""Checkpoints that are safely on the disk, as a careful job writes them."""

import copy
import os
import threading
from pathlib import Path
from typing import Any

import torch

MIB = 1 << 20


def save(folder: Path, state: dict[str, Any], mebibytes: int) -> None:
    """Write ``checkpoint.pt``, ``mebibytes`` at least, synced, in place of the one before."""
    padding = torch.frombuffer(bytearray(os.urandom(MIB)), dtype=torch.uint8).repeat(
        max(0, mebibytes)
    )
    path = folder / "checkpoint.pt"
    fresh = path.with_suffix(".new")
    with fresh.open("wb") as file:
        torch.save({**state, "padding": padding}, file)
        file.flush()
        os.fsync(file.fileno())
    fresh.replace(path)


class AsideSaver:
    """Saves in a thread, one at a time; one that comes too soon is left out."""

    def __init__(self) -> None:
        self._thread: threading.Thread | None = None

    def save(self, folder: Path, state: dict[str, Any], mebibytes: int) -> None:
        if self._thread is None or not self._thread.is_alive():
            # The training goes on with the originals.
            job = (folder, copy.deepcopy(state), mebibytes)
            self._thread = threading.Thread(target=save, args=job, daemon=True)
            self._thread.start()
