"""A process of its own: takes rows from standard input, a socket, and hands them to the tool.

Each tool is asked for a run beside the job's own, since two programs cannot write to one run of W&B
or TensorBoard. They can with MLflow (``MLFLOW_RUN_ID``).

The run's summary comes at the end. W&B keeps one beside the rows, under the same names. MLflow and
TensorBoard show a metric's last value, so there it has names of its own (``gpuwatch/run/...``).
"""

from __future__ import annotations

import json
import os
import re
import signal
import socket
import sys
import time
import uuid
from collections.abc import Callable
from contextlib import suppress
from importlib.util import find_spec
from typing import Any

_PACKET_MOST = 1 << 20
Given = dict[str, Any]
Writers = tuple[Callable[[Given], object], Callable[[Given], object]]
"""Two functions: one takes a row (``at``, ``step``, ``values`` and ``texts`` by name), one ends the
run, with the ``exit_code`` and, if gpuwatch saw the job and its end, the summary as a row."""
_DATABASES = ("sqlite", "postgresql", "mysql", "mssql")


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
        tell(given)

    def tell(given: Given) -> None:
        run.summary.update({f"{each}/says": says for each, says in given["texts"].items()})

    def end(given: Given) -> None:
        if "values" in given:
            # Else a name has the last row's value.
            run.summary.update(given["values"])
            tell(given)
        run.finish(given["exit_code"])

    return row, end


def check() -> str:
    """Return why MLflow cannot log with what is installed, to where its variables point, as the end
    of a sentence; empty if it can, or if only trying can tell.

    A new database is laid out here, before the job's own MLflow can do the same beside it.
    """
    import mlflow  # noqa: PLC0415

    try:
        mlflow.MlflowClient()
    except (ImportError, mlflow.MlflowException) as error:
        scheme = re.split(r"\W", mlflow.get_tracking_uri())[0]
        if scheme in _DATABASES and not all(map(find_spec, ("sqlalchemy", "alembic"))):
            needs = "needs packages that are not installed, to store runs in a database"
            return f"{needs}: pip install '.[mlflow]' in gpuwatch's folder"
        return f"cannot log: {' '.join(str(error).split())}"
    return ""


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

    def end(given: Given) -> None:
        if "values" in given:
            row({**given, "values": _renamed(given["values"])})
        if not joined:
            client.set_terminated(run, "FAILED" if given["exit_code"] else "FINISHED")

    return row, end


def _tensorboard(name: str, facts: Given, folder: str) -> Writers:
    from tensorboard.compat.proto.event_pb2 import Event  # noqa: PLC0415
    from tensorboard.compat.proto.summary_pb2 import Summary  # noqa: PLC0415
    from tensorboard.plugins.hparams import summary_v2 as hparams  # noqa: PLC0415
    from tensorboard.plugins.text.summary_v2 import text_pb  # noqa: PLC0415
    from tensorboard.summary.writer.event_file_writer import EventFileWriter  # noqa: PLC0415

    folder = folder or time.strftime("runs/gpuwatch-%Y%m%d-%H%M%S")
    writer = EventFileWriter(folder)

    def row(given: Given, *others: Summary) -> None:
        values = given["values"].items()
        scalars = [Summary.Value(tag=each, simple_value=value) for each, value in values]
        # Text is drawn as Markdown: indented, all of it stands as it is.
        texts = [text_pb(f"{each}/says", f"    {says}") for each, says in given["texts"].items()]
        for summary in (Summary(value=scalars), *texts, *others):
            event = Event(wall_time=given["at"], step=given["step"], summary=summary)
            writer.add_event(event)
        writer.flush()

    def end(given: Given) -> None:
        if "values" in given:
            values = _renamed(given["values"])
            # What the tab HPARAMS lists runs by.
            shown = [hparams.Metric(each) for each in values]
            known = {"job": name, **facts}
            config = hparams.hparams_config_pb([hparams.HParam(each) for each in known], shown)
            row({**given, "values": values}, config, hparams.hparams_pb(known, trial_id=folder))
        writer.close()

    return row, end


def _renamed(values: Given) -> Given:
    return {each.replace("gpuwatch/", "gpuwatch/run/", 1): value for each, value in values.items()}


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
                end(given) if "exit_code" in given else row(given)
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
    if sys.argv[1:] == ["--check"]:
        said = check()
        print(said)
        sys.exit(bool(said))
    main(*sys.argv[1:])
