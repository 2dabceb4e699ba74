"""``gpuwatch exporter``: GPU metrics, and why GPUs idle, for Prometheus."""

from __future__ import annotations

import contextlib
import re
from pathlib import Path
from typing import TYPE_CHECKING

import click

from gpuwatch.commands.options import (
    Watched,
    option_demo,
    option_gpu,
    option_interval,
    option_refused,
)
from gpuwatch.commands.printing import complain, print_text
from gpuwatch.commands.watching import terminated_as_interrupted, watch
from gpuwatch.core import memory_trim
from gpuwatch.core.text import SentenceError, clean

if TYPE_CHECKING:
    from gpuwatch.core.model import Snapshot
    from gpuwatch.outputs.exporter.metrics import Metrics
    from gpuwatch.outputs.exporter.server import Server, WebConfig

PORT = 19400
"""Prometheus' own list of exporters has no free number left (9100 to 9999)."""
STALE_INTERVALS, STALE_SECONDS = 3.0, 5.0
"""Age beyond both of which a snapshot is not served as if it held."""
FILES = ["alerts.yml", "dashboard.json", "gpuwatch.service", "Containerfile", "daemonset.yml"]


def _address(_context: object, _option: object, value: str) -> tuple[str, int]:
    """``host:port``, ``[::1]:port``; ``:port`` is that of all interfaces."""
    host, colon, port = value.rpartition(":")
    if not colon or not re.fullmatch(r"\d+", port, re.ASCII):
        raise click.BadParameter(f"{clean(value, 60)!r} is not an address: write it as host:port.")
    if len(port) > 5 or int(port) > 65535:
        raise click.BadParameter(
            f"{clean(port, 20)} is not a port: write a number from 0 to 65535."
        )
    return host.removeprefix("[").removesuffix("]"), int(port)


@click.command("exporter")
@click.option(
    "--listen",
    callback=_address,
    metavar="HOST:PORT",
    default=f"127.0.0.1:{PORT}",
    show_default=True,
    help="Address to serve on; :PORT means all interfaces.",
)
@click.option(
    "--web-config",
    # access() ignores the capabilities of a service: only opening the file tells.
    type=click.Path(path_type=Path, dir_okay=False, readable=False),
    metavar="FILE",
    help="TLS and passwords, in the format of Prometheus' exporters (YAML).",
)
@click.option(
    "--allow-host",
    multiple=True,
    metavar="NAME",
    help="A name that requests may use, besides this machine's host name and addresses (*: any).",
)
@click.option("--pids", is_flag=True, help="Serve the PIDs of jobs.")
@click.option("--commands", is_flag=True, help="Serve the command lines of jobs.")
@click.option(
    "--print",
    "printed",
    type=click.Choice(FILES),
    help="Print a file to start from, and exit: alert rules, a Grafana dashboard, ways to run it.",
)
@option_interval(0.5, help_text="How often GPUs are read, 0.5s to 1h.")
@option_demo()
@option_gpu()
@option_refused(
    "--pid",
    why="The exporter serves all jobs, each by its name: choose one in the query, or serve their "
    "PIDs with --pids.",
)
@option_refused(
    "-u",
    "--user",
    why="The exporter serves the jobs of all users, and says whose each is: choose one in the "
    'query, as in gpuwatch_job_lost_gpu_seconds_total{user="ada"}.',
)
def exporter_command(
    listen: tuple[str, int],
    web_config: Path | None,
    allow_host: tuple[str, ...],
    pids: bool,
    commands: bool,
    printed: str | None,
    interval_seconds: float,
    demo: str | None,
    only: tuple[str, ...],
) -> None:
    """Serve metrics and findings to Prometheus, or to an OpenTelemetry collector that scrapes.

    Needs an extra: pip install '.[prometheus]' in gpuwatch's folder. GPUs are read at their own
    interval; a scrape gets the latest readings. The busy minimum and maximum cover the time since
    the same address last scraped, or ?window=SECONDS. See docs/exporter.md.
    """
    if printed is not None:
        import gpuwatch.outputs.exporter as folder

        print_text(Path(folder.__path__[0], "files", printed).read_text("utf-8"))
        return
    memory_trim.load_encryption()
    try:
        from gpuwatch.outputs.exporter.metrics import Metrics
        from gpuwatch.outputs.exporter.server import WebConfig

        web = WebConfig(web_config)
    except ImportError as error:
        needs = "The exporter needs packages that are not installed: "
        install = "pip install '.[prometheus]' in gpuwatch's folder"
        raise SentenceError(f"{needs}{install}") from error

    import asyncio
    from threading import Thread

    from gpuwatch.core.sampler import Sampler
    from gpuwatch.diagnosis.engine import Engine
    from gpuwatch.sources.kernel_log import KernelLog

    source, _ = Watched(False, demo, None, interval_seconds, only).open()
    sampler, engine = Sampler(source, interval_seconds), Engine()

    def age() -> tuple[float | None, bool]:
        seconds = sampler.age_seconds
        most = max(STALE_SECONDS, STALE_INTERVALS * sampler.effective_interval_seconds)
        return seconds, seconds is None or seconds > most

    log = None if source.simulated else KernelLog()
    metrics = Metrics(age, log, pids=pids, commands=commands)

    def take(snapshot: Snapshot, _passed: float) -> None:
        engine.push(snapshot)
        metrics.push(snapshot, engine.diagnosis, engine.ledger)
        memory_trim.settle()
        if snapshot.sequence % 600 == 599:
            memory_trim.tidy()

    server = _bound(listen, metrics, web, allow_host)
    # To be stopped is how it ends.
    with server, contextlib.suppress(KeyboardInterrupt), terminated_as_interrupted():
        Thread(target=server.serve_forever, args=(0.1,), daemon=True).start()
        try:
            asyncio.run(watch(None, sampler, take))
        finally:
            server.shutdown()


def _bound(
    listen: tuple[str, int], metrics: Metrics, web: WebConfig, allow_host: tuple[str, ...]
) -> Server:
    """The server, which has said where it serves. Raises ``SentenceError``."""
    from gpuwatch.outputs.exporter.server import Server

    try:
        server = Server(listen, metrics.page, web, allow_host)
    except (OSError, UnicodeError) as error:
        where = f"{clean(listen[0], 100)}:{listen[1]}"
        why = getattr(error, "strerror", None) or "this is no name"
        raise SentenceError(f"Cannot serve on {where}: {why}.") from error
    host, port = map(str, server.server_address[:2])
    scheme, shown = "https" if web.tls else "http", f"[{host}]" if ":" in host else host
    complain(f"serving {scheme}://{shown}:{port}/metrics")
    if not web.users and not host.startswith(("127.", "::1")):
        complain("anyone who can reach this port can read it; --web-config adds TLS and passwords.")
    return server
