"""A process of its own: takes rows from standard input, a socket, and hands them to the tool.

Each tool is asked for a run beside the job's own, since two programs cannot write to one run of W&B
or TensorBoard. They can with MLflow (``MLFLOW_RUN_ID``).
"""

from __future__ import annotations

import json
import os
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from typing import Any

_PACKET_MOST = 1 << 20
Given = dict[str, Any]
Writers = tuple[Callable[[Given], object], Callable[[int | None], object]]
"""What takes a row (``at``, ``step``, ``values`` and ``texts`` by name), and what ends the run."""


def _wandb(name: str, facts: Given, _folder: str) -> Writers:
    import wandb  # noqa: PLC0415

    quiet = {"silent": True, "console": "off", "x_disable_stats": True}
    run = wandb.init(
        # Else a job's variables for its own run make this one join it.
        id=uuid.uuid4().hex[:8],
        resume="never",
        name=name,
        config={"gpuwatch": facts},
        tags=["gpuwatch"],
        settings={**quiet, "disable_git": True, "disable_code": True},
    )

    def row(given: Given) -> None:
        run.log({**given["values"], "gpuwatch/seconds": given["step"], "_timestamp": given["at"]})
        run.summary.update({f"{each}/says": says for each, says in given["texts"].items()})

    return row, run.finish


def _mlflow(name: str, facts: Given, _folder: str) -> Writers:
    import mlflow  # noqa: PLC0415
    from mlflow.entities import Metric, RunTag  # noqa: PLC0415

    client, joined = mlflow.MlflowClient(), os.environ.get("MLFLOW_RUN_ID")
    number, named = (os.environ.get(f"MLFLOW_EXPERIMENT_{one}") for one in ("ID", "NAME"))
    if not joined:
        number = number or (mlflow.set_experiment(named).experiment_id if named else "0")
        tags = {f"gpuwatch.{each}": str(fact) for each, fact in facts.items()}
    run = joined or client.create_run(number, tags=tags, run_name=name).info.run_id

    def row(given: Given) -> None:
        at, step = int(given["at"] * 1000), given["step"]
        metrics = [Metric(each, value, at, step) for each, value in given["values"].items()]
        tags = [RunTag(each, says) for each, says in given["texts"].items()]
        client.log_batch(run, metrics=metrics, tags=tags)

    def end(exit_code: int | None) -> None:
        if not joined:
            client.set_terminated(run, "FAILED" if exit_code else "FINISHED")

    return row, end


def _tensorboard(_name: str, _facts: Given, folder: str) -> Writers:
    from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415
    from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415
    from tensorboard.plugins.text.summary_v2 import text_pb  # noqa: PLC0415
    from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415

    writer = EventFileWriter(folder or time.strftime("runs/gpuwatch-%Y%m%d-%H%M%S"))

    def row(given: Given) -> None:
        values = given["values"].items()
        scalars = [Summary.Value(tag=each, simple_value=value) for each, value in values]
        # Text is drawn as Markdown: indented, all of it stands as it is.
        texts = [text_pb(f"{each}/says", f"    {says}") for each, says in given["texts"].items()]
        for summary in (Summary(value=scalars), *texts):
            event = Event(wall_time=given["at"], step=given["step"], summary=summary)
            writer.add_event(event)
        writer.flush()

    return row, lambda _: writer.close()


def main(tool: str, folder: str) -> None:
    # Those that gpuwatch waits for are blocked in what it starts.
    signal.pthread_sigmask(signal.SIG_SETMASK, ())
    link = socket.socket(fileno=os.dup(0))
    name, facts = json.loads(link.recv(_PACKET_MOST))
    writers: Writers | None = None
    given: Given = {}
    failed = False
    while "exit_code" not in given:
        try:
            if writers is None and not failed:
                opens = {"wandb": _wandb, "mlflow": _mlflow, "tensorboard": _tensorboard}
                writers = opens[tool](name, facts, folder)
            # gpuwatch was killed where nothing comes and no end was announced.
            given = json.loads(link.recv(_PACKET_MOST) or b'{"exit_code": null}')
            if writers is not None:
                row, end = writers
                end(given["exit_code"]) if "exit_code" in given else row(given)
        # Whatever a library raises, also to exit. What comes is read all the same: a socket that
        # is closed with something in it loses what was sent on it.
        except (Exception, SystemExit) as error:
            what = "nothing is logged" if writers is None else "some rows were not logged"
            words = " ".join(f"{what}: {type(error).__name__}: {error}".split())
            with suppress(OSError):
                if not failed:
                    link.send(words[:1000].encode())
            failed = True
    # What the library has begun is over, or is not waited for.
    os._exit(0)


if __name__ == "__main__":
    main(*sys.argv[1:])
