"""What a real Prometheus costs that scrapes many exporters, and how fast it answers the dashboard.

    python -m tests.benchmarks.fleet [--nodes 200] [--minutes 5]

One small server stands for all nodes: it serves the pages that an exporter made of a simulated
machine with 8 GPUs and 4 jobs, every 15 s of its time, with other GPUs, users and numbers of Slurm
jobs for each node. Prometheus scrapes them every 15 s, compressed, and evaluates the rules that
gpuwatch ships. Prints a Markdown table.
"""

import argparse
import gzip
import json
import os
import subprocess
import tempfile
import time
from contextlib import ExitStack, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from statistics import median
from threading import Thread
from typing import Any
from urllib.parse import quote
from urllib.request import urlopen

import psutil

from gpuwatch.diagnosis.engine import Engine
from gpuwatch.outputs.exporter.metrics import Metrics
from tests.commands.test_exporter import FILES, queries
from tests.support.servers import free_port, installed, program
from tests.support.simulated import looks

SCRAPE_SECONDS, INTERVAL_SECONDS = 15.0, 5.0
USERS = ("ada", "grace", "linus", "barbara")
USERS_EACH = 50
"""Users of the cluster by each name of the simulation."""
ASKED = 5
"""Times that each query is asked; the median counts."""


def pages(seconds: float) -> list[str]:
    """Return what an exporter serves a scraper that asks every 15 s."""
    engine, exporter, made = Engine(), Metrics(lambda: (0.5, False)), list[str]()
    count = round(seconds / INTERVAL_SECONDS)
    for number, one in enumerate(looks("starved", count, gpus=8, interval=INTERVAL_SECONDS)):
        jobs = [replace(job, slurm_job=f"{70000 + at}") for at, job in enumerate(one.jobs)]
        engine.push(replace(one, jobs=tuple(jobs)))
        exporter.push(replace(one, jobs=tuple(jobs)), engine.diagnosis, engine.ledger)
        if number * INTERVAL_SECONDS % SCRAPE_SECONDS == 0.0:
            made.append(exporter.page("10.0.0.1")[0].decode())
    return made


def page_of(page: str, node: int) -> str:
    """Return the page as another node would serve it."""
    page = page.replace("51d0-4eed-a000", f"51d0-4eed-{node:04x}").replace('="7000', f'="{node}7')
    for name in USERS:
        page = page.replace(f'user="{name}"', f'user="{name}{node % USERS_EACH}"')
    return page


class Nodes(ThreadingHTTPServer):
    """All exporters, by the number in the path."""

    request_queue_size = 256
    daemon_threads = True

    def __init__(self, made: list[str]) -> None:
        self.made, self.began = made, time.monotonic()
        self.plain_bytes = self.sent_bytes = self.served = 0
        super().__init__(("127.0.0.1", 0), Answer)


class Answer(BaseHTTPRequestHandler):
    def do_GET(self) -> None:
        nodes: Any = self.server
        turn = int((time.monotonic() - nodes.began) / SCRAPE_SECONDS) % len(nodes.made)
        page = page_of(nodes.made[turn], int(self.path.strip("/"))).encode()
        data = gzip.compress(page, 5)
        nodes.plain_bytes += len(page)
        nodes.sent_bytes += len(data)
        nodes.served += 1
        self.send_response(200)
        self.send_header("Content-Type", "text/plain; version=0.0.4")
        self.send_header("Content-Encoding", "gzip")
        self.send_header("Content-Length", str(len(data)))
        self.end_headers()
        # A scraper that cannot wait is gone.
        with suppress(ConnectionError):
            self.wfile.write(data)

    def log_message(self, *_: object) -> None:
        pass


def configuration(nodes: int, address: str) -> dict[str, Any]:
    """Return Prometheus' configuration: every node a target of its own."""
    return {
        "global": {"scrape_interval": "15s", "evaluation_interval": "15s"},
        "rule_files": [str(FILES / "alerts.yml")],
        "scrape_configs": [
            {
                "job_name": "gpus",
                "static_configs": [{"targets": [f"node{one:04}:19400" for one in range(nodes)]}],
                "relabel_configs": [
                    {"source_labels": ["__address__"], "target_label": "instance"},
                    {
                        "source_labels": ["__address__"], "regex": "node0*(\\d+):.*",
                        "target_label": "__metrics_path__", "replacement": "/$1",
                    },
                    {"target_label": "__address__", "replacement": address},
                ],
            }
        ],
    }  # fmt: skip


def asked(server: str, query: str) -> tuple[float, list[Any]]:
    """Return how many seconds the answer takes, and the answer."""
    began = time.monotonic()
    with urlopen(f"http://{server}/api/v1/query?query={quote(query)}", timeout=120) as answer:
        result = json.load(answer)["data"]["result"]
    return time.monotonic() - began, result


def number(server: str, query: str) -> float:
    result = asked(server, query)[1]
    return float(result[0]["value"][1]) if result else float("nan")


def disk_bytes(folder: Path) -> int:
    return sum([one.stat().st_size for one in folder.rglob("*") if one.is_file()])


def bytes_a_sample(made: list[str], folder: Path) -> float:
    """Return what a sample takes on disk in a block of two hours, by Prometheus' own tool."""
    began = 7200.0 * (time.time() // 7200.0 - 1.0)
    lines = []
    for turn in range(round(7200.0 / SCRAPE_SECONDS)):
        for line in made[turn % len(made)].splitlines():
            if line and not line.startswith("#"):
                lines.append(f"{line} {began + turn * SCRAPE_SECONDS:.3f}")
    (folder / "past").write_text("\n".join([*lines, "# EOF", ""]))
    command = [installed("promtool"), "tsdb", "create-blocks-from", "openmetrics", "past", "past.d"]
    subprocess.run(command, cwd=folder, check=True, capture_output=True)
    return disk_bytes(folder / "past.d") / len(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__.split("\n")[0])
    parser.add_argument("--nodes", type=int, default=200)
    parser.add_argument("--minutes", type=float, default=5.0)
    asked_for = parser.parse_args()
    made = pages(900.0)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        a_sample = bytes_a_sample(made, folder)
        nodes = stack.enter_context(Nodes(made))
        Thread(target=nodes.serve_forever, daemon=True).start()
        address = f"127.0.0.1:{nodes.server_address[1]}"
        (folder / "fleet.yml").write_text(json.dumps(configuration(asked_for.nodes, address)))
        server = f"127.0.0.1:{free_port()}"
        command = [
            installed("prometheus"), "--config.file=fleet.yml", "--storage.tsdb.path=data",
            f"--web.listen-address={server}",
        ]  # fmt: skip
        process = stack.enter_context(program(*command, cwd=folder))
        watched = psutil.Process(process.pid)
        time.sleep(60.0 * asked_for.minutes)
        rows = [
            ("nodes that answer, GPUs", f"{number(server, 'sum(up)'):.0f}, {asked_for.nodes * 8}"),
            ("samples a scrape", f"{number(server, 'avg(scrape_samples_scraped)'):.0f}"),
            (
                "a scrape, bytes: plain, gzip",
                f"{nodes.plain_bytes / nodes.served:,.0f}, {nodes.sent_bytes / nodes.served:,.0f}",
            ),
        ]
        used = watched.cpu_times()
        scraped, recorded = (
            number(server, f"count({{{one}}})") for one in ('job="gpus"', '__name__=~"gpuwatch:.+"')
        )
        rows += [
            ("series that are scraped, recorded", f"{scraped:,.0f}, {recorded:,.0f}"),
            ("Prometheus' memory, MiB", f"{watched.memory_info().rss / 2**20:,.0f}"),
            (
                "its CPU, % of one core",
                f"{100.0 * (used.user + used.system) / (60.0 * asked_for.minutes):.0f}%",
            ),
            ("on disk, bytes a sample", f"{a_sample:.2f}"),
        ]
        times, before = {}, watched.cpu_times()
        for query in queries(node="node0007:19400"):
            times[query] = median([asked(server, query)[0] for _ in range(ASKED)])
        used = watched.cpu_times()
        cpu = used.user + used.system - before.user - before.system
        slowest = max(times, key=lambda one: times[one])
        rows += [
            ("queries of the dashboard", f"{len(times)}"),
            ("CPU of all of them, with what is scraped meanwhile, s", f"{cpu / ASKED:.2f}"),
            ("all of them, one after the other, s", f"{sum(times.values()):.2f}"),
            ("the slowest, s", f"{times[slowest]:.3f}"),
            ("load of the machine (cores it has)", f"{os.getloadavg()[0]:.0f} ({os.cpu_count()})"),
        ]
        print(
            f"{subprocess.getoutput('prometheus --version').splitlines()[0]}; {time.strftime('%F')}"
        )
        print("\n| | |\n|---|---:|")
        for name, value in rows:
            print(f"| {name} | {value} |")
        print(f"\nThe slowest query: {slowest}")


if __name__ == "__main__":
    main()
