"""``python -m tests.evaluation.record NAME...``: records ``real_jobs`` on the virtual GPU, young
(from their start on) and old (from the fifth minute on); prints how crowded the machine was."""

import json
import os
import subprocess
import sys
import tempfile
import time
from contextlib import ExitStack
from pathlib import Path

from gpuwatch.sources.logs.text import zstd
from tests.evaluation.experiments import ROOT, machine
from tests.evaluation.recorded import FOLDER

SECONDS = 75
OLD_SECONDS = 240
FIRST_PORT = 20_000
CLIENTS = {"server_saturated": "16 0", "server_waiting": "2 1", "server_batch_of_one": "16 0"}
"""People who ask, and for how long they rest."""


def record(name: str, stack: ExitStack) -> None:
    place = Path(stack.enter_context(tempfile.TemporaryDirectory()))
    environment = stack.enter_context(machine(place, real=False))
    port = str(FIRST_PORT + os.getpid() % 10_000)

    def start(module: str, *words: str) -> subprocess.Popen[bytes]:
        command = [sys.executable, "-m", module, *words]
        process = subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.DEVNULL)
        stack.callback(process.wait)
        stack.callback(process.terminate)
        return process

    job = start("tests.evaluation.real_jobs", name, *([port] if name in CLIENTS else []))
    began = time.monotonic()
    if name in CLIENTS:
        start("tests.evaluation.real_jobs", "client", port, *CLIENTS[name].split())
    for age, at in (("young", 0), ("old", OLD_SECONDS)):
        time.sleep(max(0.0, began + at - time.monotonic()))
        made = place / f"{name}_{age}.jsonl.zst"
        words = f"record --pid {job.pid} --for {SECONDS}s --redact -o {made}"
        start("gpuwatch", *words.split()).wait()
        whole = zstd.decompress(made.read_bytes())
        (FOLDER / made.name).write_bytes(zstd.compress(whole, level=19))
        load = round(os.getloadavg()[0], 1)
        entry = {"file": made.name, "age_seconds": at, "load_average": load}
        print(json.dumps(entry), flush=True)


if __name__ == "__main__":
    for one in sys.argv[1:]:
        with ExitStack() as everything:
            record(one, everything)
