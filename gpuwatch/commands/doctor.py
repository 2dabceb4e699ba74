"""``gpuwatch doctor``: what a careful colleague would check on this machine.

Exit codes: 0 nothing is wrong, 1 something is broken, 3 it works, with warnings.
"""

from __future__ import annotations

import os
import sys
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.commands.options import Watched, option_ascii, option_json
from gpuwatch.commands.printing import (
    complain,
    drawing,
    is_terminal,
    open_output,
    print_text,
    shown,
    writing,
)

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import TextIO

    from gpuwatch.core.model import Snapshot
    from gpuwatch.core.source import Source
    from gpuwatch.doctor.check import Check, Facts, Terminal

EXIT_CODES = {"pass": 0, "warn": 3, "fail": 1}
PATIENCE_SECONDS = 30.0
RECORDED_SECONDS = 30.0
ROOT = Path("/")


@click.command("doctor")
@option_json()
@click.option(
    "--bundle",
    metavar="FILE",
    help="Also write what a bug report needs, with 30 seconds of recording (.zip or .tar.gz).",
)
@option_ascii()
def doctor_command(as_json: bool, bundle: str | None, ascii_mode: bool | None) -> int:
    """Check the driver, every reading, rights and the terminal.

    Each line says pass, skip (it is not here, which is no fault), warn or fail, why, and what to
    do. The exit code is 0 if nothing is wrong, 1 if something failed, 3 if there are warnings.

    The bundle is redacted: it names no user, host, folder, address or argument. The README.txt in
    it says what is there.
    """
    out = open_output()
    import tempfile

    from gpuwatch.doctor.check import FAIL, WARN, worst
    from gpuwatch.doctor.examination import checked, examine
    from gpuwatch.outputs.doctor import ARCHIVES, doctor_json, doctor_page
    from gpuwatch.outputs.terminal import wrap

    if bundle is not None and not bundle.endswith(ARCHIVES):
        raise click.UsageError(
            f"A bundle is a .zip or .tar.gz file: name it {shown(bundle)}.zip, for example."
        )
    if bundle is not None:
        # Before the checks and half a minute of recording, which would be for nothing.
        with writing(bundle):
            tempfile.TemporaryFile(dir=Path(bundle).parent).close()
    facts = examine(_look, _terminal(out, ascii_mode), root=ROOT)
    checks, gpus = checked(facts), facts.snapshot.gpus
    look = drawing(out, ascii_mode)
    page = doctor_page(checks, gpus, width=look.width, colour=look.colour, unicode=look.unicode)
    at_unix = facts.snapshot.taken_at_unix_seconds
    print_text(doctor_json(checks, gpus, at_unix) if as_json else page, out)
    if bundle is not None:
        said = _write_bundle(Path(bundle), checks, facts)
        if as_json:
            complain(said)
        else:
            print_text(said, out)
    elif not as_json and worst(checks) in (WARN, FAIL):
        hint = wrap("For a bug report: gpuwatch doctor --bundle doctor.zip", look.width)
        print_text("\n".join(hint), out)
    return EXIT_CODES[worst(checks)]


def _look(source: Source) -> Snapshot:
    from gpuwatch.commands.watching import look_once

    waits = _say_waiting if is_terminal(sys.stderr) else None
    return look_once(source, patience_seconds=PATIENCE_SECONDS, on_wait=waits)


def _say_waiting() -> None:
    complain("asking the driver for everything (Ctrl-C ends) ...")


def _terminal(out: TextIO, ascii_mode: bool | None) -> Terminal:
    from gpuwatch.doctor.check import Terminal

    look, terminal = drawing(out, ascii_mode), is_terminal(out)
    return Terminal(
        is_terminal=terminal,
        width=look.width,
        height=os.get_terminal_size(out.fileno()).lines if terminal else 0,
        unicode=look.unicode,
        encoding=out.encoding,
    )


def _write_bundle(path: Path, checks: Sequence[Check], facts: Facts) -> str:
    """Record for a while, and write it with what was found; a sentence that says so."""
    import tempfile
    import time

    from gpuwatch import __version__
    from gpuwatch.core import units
    from gpuwatch.core.private_files import write_whole
    from gpuwatch.doctor.check import redacted
    from gpuwatch.outputs.doctor import README, archive, doctor_json, doctor_page

    if is_terminal(sys.stderr):
        complain(f"recording for {RECORDED_SECONDS:.0f} s (Ctrl-C ends it early) ...")
    found, gpus = [redacted(check) for check in checks], facts.snapshot.gpus
    at_unix = facts.snapshot.taken_at_unix_seconds
    with tempfile.TemporaryDirectory(prefix="gpuwatch-") as folder:
        recording = Path(folder, "recording.jsonl.zst")
        seconds = _record(recording)
        taken = time.strftime("%Y-%m-%d %H:%M", time.gmtime(at_unix))
        readme = README.format(version=__version__, time=taken, seconds=seconds)
        page = doctor_page(found, gpus, width=100, colour=False, unicode=False)
        files = {
            "README.txt": readme.encode(),
            "doctor.txt": f"{page}\n".encode(),
            "doctor.json": doctor_json(found, gpus, at_unix).encode(),
        }
        if recording.exists():
            files[recording.name] = recording.read_bytes()
    data = archive(path, files)
    with writing(str(path)):
        write_whole(path, data)
    what = f"Wrote {shown(path)} ({units.size(len(data))}): {units.listed(list(files))}."
    return f"{what} It names no user, host or folder; look into it, then attach it to the report."


def _record(path: Path) -> float:
    """Record, redacted, for some seconds or until Ctrl-C; how many it were."""
    from gpuwatch.commands.record import Request, recorded

    request = Request(
        path=path,
        seconds=RECORDED_SECONDS,
        rotate=None,
        keep=None,
        redact=True,
        watched=Watched(),
    )
    _, seconds, _ = recorded(request)
    return seconds
