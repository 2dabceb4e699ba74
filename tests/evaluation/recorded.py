"""Cases that were recorded: real PyTorch jobs, one knob turned at a time."""

from __future__ import annotations

import json
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path

from gpuwatch.core.model import Snapshot
from gpuwatch.recording.file import open_any
from tests.evaluation.case import Judged, Subject

FOLDER = Path(__file__).parent / "recordings"
INDEX = FOLDER / "index.json"


@dataclass(frozen=True, kw_only=True)
class Recording(Judged):
    path: Path

    def watch(self) -> Iterator[Snapshot]:
        with open_any(str(self.path)) as opened:
            yield from opened.snapshots


def all_recordings() -> list[Recording]:
    """Those that are kept with the tests."""
    return [
        Recording(
            name=f"recorded/{entry['file'].partition('.')[0]}",
            subjects=(
                Subject(
                    gpus=tuple(range(entry["gpus"])),
                    label=entry["label"],
                    accepted=frozenset(entry["accepted"]),
                    from_seconds=entry["from_seconds"],
                ),
            ),
            path=FOLDER / entry["file"],
        )
        for entry in json.loads(INDEX.read_text())
    ]
