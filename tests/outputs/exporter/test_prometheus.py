"""What a real Prometheus, with the rules that are shipped, makes of an exporter's pages. Time is
virtual: the pages have the times of their snapshots, and are given to Prometheus as its past."""

import json
import re
import subprocess
import time
from collections.abc import Iterator, Sequence
from contextlib import ExitStack
from dataclasses import replace
from functools import cache
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from tempfile import TemporaryDirectory
from threading import Thread
from typing import Any, NamedTuple

import pytest

pytest.importorskip("prometheus_client")

from gpuwatch.core.model import Snapshot
from gpuwatch.core.source import ManualClock
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.outputs.exporter import metrics
from gpuwatch.outputs.exporter.metrics import Metrics
from gpuwatch.outputs.report.ranking import Ranker, Ranking
from gpuwatch.recording.recorder import Recorder
from tests.outputs.exporter.test_charges import SERIES, charged
from tests.support.children import wait_until
from tests.support.servers import free_port, installed, program
from tests.support.simulated import looks
from tests.support.snapshots import gpu

RULES = Path(metrics.__file__).with_name("files") / "alerts.yml"

SECONDS, INTERVAL, SCRAPE = 2400.0, 5.0, 15.0
ENDS = 1500.0
"""Seconds after which grace's job is over."""


class Told(NamedTuple):
    ranking: Ranking
    pages: list[str]


def two_users() -> Iterator[Snapshot]:
    """Ada's job is starved on two GPUs all the time, grace's on two others for a part of it."""
    count = round(SECONDS / INTERVAL)
    for number, one in enumerate(looks("starved", count, gpus=4, interval=INTERVAL)):
        jobs = [replace(each, slurm_job={"ada": "17"}.get(each.user or "")) for each in one.jobs]
        processes, gpus = one.processes, one.gpus
        if number * INTERVAL >= ENDS:
            jobs = [each for each in jobs if each.user == "ada"]
            processes = tuple([each for each in processes if each.user == "ada"])
            idle = [gpu(each.uuid, index, busy_percent=0.0) for index, each in enumerate(one.gpus)]
            gpus = (*one.gpus[:2], *idle[2:])
        yield replace(one, jobs=tuple(jobs), processes=processes, gpus=gpus)


@cache
def told() -> Told:
    """What is recorded, and what an exporter serves meanwhile, every 15 seconds."""
    engine, exporter, pages = Engine(), Metrics(lambda: (0.5, False)), list[str]()
    with TemporaryDirectory() as folder:
        recorder = Recorder(Path(folder, "node1.jsonl.zst"))
        for number, one in enumerate(two_users()):
            engine.push(one)
            exporter.push(one, engine.diagnosis, engine.ledger)
            recorder.push(one, engine.diagnosis)
            if (number * INTERVAL) % SCRAPE == 0.0:
                pages.append(exporter.page("10.0.0.1")[0].decode())
        recorder.close()
        ranker = Ranker()
        ranker.add_file(Path(folder, "node1.jsonl.zst"))
    return Told(ranker.ranking("user"), pages)


def input_series(pages: Sequence[str]) -> list[dict[str, str]]:
    """All charges, in the notation of promtool."""
    seen: dict[str, list[str]] = {}
    for number, page in enumerate(pages):
        for lost, labels, value in SERIES.findall(page):
            name = f'gpuwatch_job_{lost}gpu_seconds_total{{instance="node1",{labels}}}'
            values = seen.setdefault(name, [])
            values += ["_"] * (number - len(values)) + [value]
    return [{"series": name, "values": " ".join(values)} for name, values in seen.items()]


def test_prometheus_ranks_users_as_the_report_does(tmp_path: Path) -> None:
    """Within 2%, by the counters without a join, and by the recording rules that are shipped."""
    ranking, pages = told()
    assert [row.user for row in ranking.rows] == ["ada", "grace"]
    assert all(row.lost_gpu_seconds > 300.0 for row in ranking.rows)
    asked = []
    for row in ranking.rows:
        of = f'{{user="{row.user}"}}'
        for query, seconds in (
            (f"increase(gpuwatch_job_lost_gpu_seconds_total{of}[7d])", row.lost_gpu_seconds),
            (f"increase(gpuwatch_job_gpu_seconds_total{of}[7d])", row.given_gpu_seconds),
            (
                f"sum_over_time(gpuwatch:user_lost_gpu_seconds:increase5m{of}[7d])",
                row.lost_gpu_seconds,
            ),
            (f"sum_over_time(gpuwatch:user_gpu_seconds:increase5m{of}[7d])", row.given_gpu_seconds),
        ):
            near = f"abs(sum({query}) / {seconds} - 1) <= bool 0.02"
            asked.append({"expr": near, "eval_time": "50m", "exp_samples": [{"value": 1}]})
    first = "topk(1, sum by (user) (increase(gpuwatch_job_lost_gpu_seconds_total[7d]))) > bool 0"
    answer = {"labels": '{user="ada"}', "value": 1}
    asked.append({"expr": first, "eval_time": "50m", "exp_samples": [answer]})
    case: dict[str, Any] = {
        "interval": f"{SCRAPE:.0f}s",
        "input_series": input_series(pages),
        "promql_expr_test": [
            {**one, "exp_samples": [{"labels": "{}", **each} for each in one["exp_samples"]]}
            for one in asked
        ],
    }
    cases = {"rule_files": [str(RULES)], "evaluation_interval": "5m", "tests": [case]}
    (tmp_path / "cases.yml").write_text(json.dumps(cases))
    command = [installed("promtool"), "test", "rules", str(tmp_path / "cases.yml")]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stdout + done.stderr


def test_no_charge_ever_falls() -> None:
    """From page to page, as long as a series is there."""
    before: dict[str, float] = {}
    for page in told().pages:
        now = charged(page)
        assert [key for key, value in now.items() if value < before.get(key, 0.0)] == []
        before = now
    assert "grace " not in before


# -- alerts ----------------------------------------------------------------------------------------

WATCHED = 1200.0
SAMPLE = re.compile(r"(?m)^(\w+)(?:\{(.*)\})? (\S+)$")


def faults(began: float) -> Iterator[Snapshot]:
    """Ada's job is starved on GPUs 0 and 1; GPU 2 is lost; GPU 3 is allocated to a batch job that
    does not use it."""
    clock = ManualClock(unix_epoch_seconds=began)
    count = round(WATCHED / INTERVAL)
    for one in looks("starved", count, gpus=4, interval=INTERVAL, clock=clock):
        jobs = [replace(each, slurm_job="17") for each in one.jobs if each.user == "ada"]
        processes = [each for each in one.processes if each.user == "ada"]
        lost = gpu(one.gpus[2].uuid, 2, lost=True)
        unused = gpu(one.gpus[3].uuid, 3, busy_percent=0.0, memory_used_bytes=2**28)
        gpus = (*one.gpus[:2], lost, replace(unused, allocated_to=("18",)))
        yield replace(one, jobs=tuple(jobs), processes=tuple(processes), gpus=gpus)


def past(began: float) -> Iterator[str]:
    """All samples of an exporter with their times, in the text format that promtool takes."""
    engine, exporter = Engine(), Metrics(lambda: (0.5, False))
    for number, one in enumerate(faults(began)):
        engine.push(one)
        exporter.push(one, engine.diagnosis, engine.ledger)
        if (number * INTERVAL) % SCRAPE == 0.0:
            for name, labels, value in SAMPLE.findall(exporter.page("10.0.0.1")[0].decode()):
                told = ",".join(filter(None, ['instance="node1:19400"', 'job="gpus"', labels]))
                yield f"{name}{{{told}}} {value} {one.taken_at_unix_seconds:.3f}"
    yield "# EOF"


def test_a_starved_a_lost_and_an_unused_gpu_reach_whoever_is_on_call(tmp_path: Path) -> None:
    """Through Prometheus and Alertmanager, with the node, the GPU, the user and the batch job to
    route them by. How long each fault must last is left out: other tests have that."""
    sent: dict[str, dict[str, str]] = {}

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            told = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            for one in told["alerts"]:
                labels = one["labels"]
                if labels.get("gpu") != "1":
                    sent[labels["alertname"]] = labels | one["annotations"]
            self.send_response(200)
            self.end_headers()

    promtool, prometheus = installed("promtool"), installed("prometheus")
    manager = installed("prometheus-alertmanager")
    (tmp_path / "past").write_text("\n".join(past(time.time() - WATCHED)) + "\n")
    made = [promtool, "tsdb", "create-blocks-from", "openmetrics", "past", "data"]
    subprocess.run(made, cwd=tmp_path, check=True, capture_output=True)
    rules = re.sub(r"(?m)^ *(for|interval): .*\n", "", RULES.read_text())
    (tmp_path / "rules.yml").write_text(rules)
    with ExitStack() as servers:
        hook = servers.enter_context(HTTPServer(("127.0.0.1", 0), Hook))
        Thread(target=hook.serve_forever, daemon=True).start()
        servers.callback(hook.shutdown)
        address, alerting = f"127.0.0.1:{free_port()}", f"127.0.0.1:{free_port()}"
        url = f"http://127.0.0.1:{hook.server_address[1]}"
        receivers = [{"name": "hook", "webhook_configs": [{"url": url}]}]
        route = {"receiver": "hook", "group_wait": "0s", "group_by": ["..."]}
        routes = {"route": route, "receivers": receivers}
        (tmp_path / "manager.yml").write_text(json.dumps(routes))
        config = {
            "global": {"evaluation_interval": "1s"},
            "rule_files": ["rules.yml"],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [alerting]}]}]},
        }
        (tmp_path / "server.yml").write_text(json.dumps(config))
        alone = ["--cluster.listen-address=", "--storage.path=alerts"]
        # What fires before Prometheus knows of Alertmanager is sent again, by default in a minute.
        at_once = ["--rules.alert.resend-delay=1s"]
        for name, file, where, more in (
            (manager, "manager.yml", alerting, alone),
            (prometheus, "server.yml", address, [*at_once, "--storage.tsdb.path=data"]),
        ):
            options = [f"--config.file={file}", f"--web.listen-address={where}"]
            servers.enter_context(program(name, *options, *more, cwd=tmp_path))
        wanted = {"GpuStarved": "17", "GpuLost": None, "GpuAllocatedWithoutProcess": "18"}
        wait_until(
            lambda: all(
                name in sent and sent[name].get("slurm_job_id") == number
                for name, number in wanted.items()
            ),
            240,
        )
    assert {one["node"] for one in sent.values()} == {"node1"}
    assert {name: sent[name]["gpu"] for name in wanted} == {
        "GpuStarved": "0", "GpuLost": "2", "GpuAllocatedWithoutProcess": "3"
    }  # fmt: skip
    assert sent["GpuStarved"]["user"] == "ada"
    assert "(mostly loader_cpu_bound)" in sent["GpuStarved"]["summary"]
    assert "Check the job (18)" in sent["GpuAllocatedWithoutProcess"]["action"]
