"""``gpuwatch exporter`` as a program: what it serves, and beside the real Prometheus."""

import json
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from http.server import BaseHTTPRequestHandler, HTTPServer
from pathlib import Path
from threading import Thread
from typing import Any
from urllib.error import URLError
from urllib.parse import quote
from urllib.request import urlopen

import pytest

from gpuwatch.commands.exporter import PORT
from gpuwatch.core.model import RdmaPort, XidError
from gpuwatch.diagnosis.catalogue import RULES
from gpuwatch.diagnosis.engine import Engine
from gpuwatch.jobs.identity.surroundings import POD_LOGS
from tests.commands.conftest import Gpuwatch
from tests.commands.running import ROOT, environment_in
from tests.support.children import wait_until
from tests.support.fake_nvml import GpuProcess, create_or_skip
from tests.support.recordings import simulated
from tests.support.servers import free_port, installed, program

FILES = ROOT / "gpuwatch/outputs/exporter/files"
ALERT_TESTS = ROOT / "tests/outputs/exporter/alerts_test.yml"


@contextmanager
def exporter(folder: Path, *arguments: str, env: dict[str, str] | None = None) -> Iterator[str]:
    """The URL at which it serves, until it is stopped, as a service is."""
    pytest.importorskip("prometheus_client")
    command = (sys.executable, "-m", "gpuwatch", "exporter", "--listen", "127.0.0.1:0", *arguments)
    options = {"env": environment_in(folder) | (env or {}), "stderr": subprocess.PIPE, "cwd": ROOT}
    with program(*command, **options) as made:
        yield re.findall("serving (.*)/metrics", made.stderr.readline().decode())[0]
    assert made.returncode == 0


def got(url: str) -> str:
    with urlopen(url, timeout=60) as answer:
        return answer.read().decode()


def test_a_machine_is_served_until_its_driver_hangs(tmp_path: Path) -> None:
    """Then a scrape is answered as fast as ever, with no reading of a GPU that is not known."""

    def values(name: str, asked: str = "") -> list[float]:
        page = got(f"{url}/metrics{asked}")
        return [float(one) for one in re.findall(rf"(?m)^gpuwatch_{name}(?:{{.*}})? (\S+)$", page)]

    fake = create_or_skip(tmp_path, gpus=2)
    fake.gpu[0].waveform("square", period_seconds=1.0)
    fake.gpu[0].processes = [GpuProcess(pid=1)]
    with exporter(tmp_path, env=fake.env()) as url:
        wait_until(lambda: values("gpu_processes") == [1.0, 0.0])
        wait_until(lambda: max(values("gpu_busy_deviation_ratio"), default=0.0) > 0.3)
        assert values("gpu_busy_min_ratio", "?window=300")[0] < 0.1
        assert values("gpu_busy_max_ratio", "?window=300")[0] > 0.8
        assert values("up") == [1.0]
        fake.hang("nvmlDeviceGetUtilizationRates")
        wait_until(lambda: values("up") == [0.0])
        assert values("gpu_busy_ratio") == []
        fake.release()


def test_what_cannot_be_served_is_refused(gpuwatch: Gpuwatch) -> None:
    """In a sentence, at once."""
    pytest.importorskip("prometheus_client")
    for options, says in (
        ("--listen 19400", "host:port"), ("--listen localhost:99999", "not a port"),
        ("--listen no.host.invalid:0", "Cannot serve on no.host.invalid:0"),
        ("--listen 192.0.2.1:0", "Cannot serve on 192.0.2.1:0"),
        ("--web-config none.yml", "none.yml"), ("--interval 0.1", "between"),
        ("--pid 7", "serve their PIDs with --pids"), ("-u ada", 'in the query, as in'),
    ):  # fmt: skip
        assert says in gpuwatch("exporter", "--demo", *options.split(), code=2).err


def test_a_missing_extra_is_named(gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch) -> None:
    """With the command that installs it; the files are printed without."""
    monkeypatch.setitem(sys.modules, "prometheus_client", None)
    monkeypatch.delitem(sys.modules, "gpuwatch.outputs.exporter.metrics", raising=False)
    assert "pip install '.[prometheus]'" in gpuwatch("exporter", code=2).err
    assert gpuwatch("exporter", "--print", "alerts.yml").out == (FILES / "alerts.yml").read_text()


def promtool(*arguments: str, **options: Any) -> None:
    command = [installed("promtool"), *arguments]
    done = subprocess.run(command, capture_output=True, text=True, check=False, **options)
    assert done.returncode == 0, done.stdout + done.stderr


def test_ways_to_run_it_name_the_port_and_folder_that_it_uses() -> None:
    """In the image, the service and the DaemonSet."""
    for name in ("Containerfile", "gpuwatch.service"):
        assert re.search(rf"\bexporter\W.*--listen\W.*:{PORT}\b", (FILES / name).read_text())
    yaml = pytest.importorskip("yaml")
    pod = yaml.safe_load((FILES / "daemonset.yml").read_text())["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    assert pod["metadata"]["annotations"]["prometheus.io/port"] == str(PORT)
    assert container["ports"][0]["containerPort"] == PORT
    for probe in ("readinessProbe", "livenessProbe"):
        assert container[probe]["httpGet"]["path"] == "/healthz"
    assert container["volumeMounts"][0]["mountPath"] == str(POD_LOGS)


def test_systemd_has_nothing_against_the_service(tmp_path: Path) -> None:
    """All options of the unit are known to it, with values that it takes."""
    unit = tmp_path / "gpuwatch.service"
    unit.write_text(
        (FILES / unit.name).read_text().replace("/opt/gpuwatch/bin/gpuwatch", "/bin/sh")
    )
    command = [installed("systemd-analyze"), "verify", "--man=no", str(unit)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert unit.name not in done.stderr


def test_alert_rules_fire_on_their_faults() -> None:
    """Each has a summary and what to do, and cases in which it fires and in which it does not."""
    promtool("check", "rules", str(FILES / "alerts.yml"))
    promtool("test", "rules", str(ALERT_TESTS))
    rules = (FILES / "alerts.yml").read_text()
    names = re.findall(r"- alert: (\w+)\n", rules)
    assert len(re.findall(r" summary: .*\n *action: ", rules)) == len(names)
    assert set(re.findall(r'alertname="(\w+)"', ALERT_TESTS.read_text())) == set(names)


def test_alerts_name_findings_that_there_are() -> None:
    """A cause under another name would never count."""
    known = {rule.name for rule in RULES}
    named = re.findall(r'\b(?:cause|rule)=~?"([^"]+)', (FILES / "alerts.yml").read_text())
    assert len(named) == 2
    for pattern in "|".join(named).split("|"):
        assert any(re.fullmatch(pattern, name) for name in known), pattern


def test_the_scrape_configurations_of_the_docs_are_taken_by_prometheus(tmp_path: Path) -> None:
    """Also that for an OpenTelemetry collector, whose receiver takes what Prometheus takes."""
    yaml = pytest.importorskip("yaml")
    text = (ROOT / "docs/exporter.md").read_text()
    given = [yaml.safe_load(one) for one in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    (collector,) = [one for one in given if "receivers" in one]
    (alone,) = [one for one in given if "scrape_configs" in one]
    scraped = collector["receivers"]["prometheus"]["config"]
    assert scraped["scrape_configs"] == alone["scrape_configs"]
    (tmp_path / "scraped.yml").write_text(json.dumps(scraped))
    promtool("check", "config", str(tmp_path / "scraped.yml"))
    (pipeline,) = collector["service"]["pipelines"].values()
    assert collector.keys() - {"service"} == pipeline.keys()
    assert all([*collector[kind]] == names for kind, names in pipeline.items())


def test_the_configurations_for_a_fleet_are_taken_by_prometheus(tmp_path: Path) -> None:
    """Nodes that Slurm lists, pods, and what goes on to another engine."""
    yaml = pytest.importorskip("yaml")
    text = (ROOT / "docs/fleet.md").read_text()
    given = [yaml.safe_load(one) for one in re.findall(r"```yaml\n(.*?)```", text, re.DOTALL)]
    assert {name for one in given for name in one} >= {"scrape_configs", "remote_write"}
    for number, one in enumerate(given):
        rules = [str(FILES / "alerts.yml")] if "rule_files" in one else []
        file = tmp_path / f"{number}.yml"
        written = json.dumps({**one, "rule_files": rules})
        # Debian's Prometheus does not know Kubernetes.
        discovery = '"kubernetes_sd_configs": [{"role": "pod"}]'
        file.write_text(written.replace(discovery, '"static_configs": []'))
        promtool("check", "config", str(file))


class Servers(ExitStack):
    """Real servers in ``folder`` until the end, and two machines to scrape: one is starved, the
    other has lost a GPU."""

    def __init__(self, folder: Path) -> None:
        super().__init__()
        self.folder = folder
        demos = [("--demo", f"{name}:2") for name in ("starved", "lost")]
        self.machines = [self.enter_context(exporter(folder, *one)).split("/")[2] for one in demos]
        targets = [{"targets": self.machines}]
        self.scraping = {
            "global": {"scrape_interval": "1s"},
            "scrape_configs": [{"job_name": "gpus", "static_configs": targets}],
        }

    def started(self, name: str, config: dict[str, Any], options: str) -> str:
        """Its address; ``options`` name that and the file of its configuration."""
        (self.folder / f"{name}.yml").write_text(json.dumps(config))
        address = f"127.0.0.1:{free_port()}"
        placed = options.format(config=f"{name}.yml", address=address).split()
        self.enter_context(program(installed(name), *placed, cwd=self.folder))
        return address


def queries(*, recorded: bool = True, node: str = ".*") -> list[str]:
    """All queries of the dashboard, for all machines that can be selected; those of recording rules
    only if they are ``recorded``."""
    text = (FILES / "dashboard.json").read_text()
    for name in ("$__rate_interval", "$__range", "$instance", "$gpu"):
        text = text.replace(name, {"$__rate_interval": "1m", "$__range": "1h"}.get(name, ".*"))
    text = text.replace("$node", node)
    board = json.loads(text)
    assert board["schemaVersion"] >= 39
    panels = [one for panel in board["panels"] for one in (panel, *panel.get("panels", ()))]
    asked = [target["expr"] for panel in panels for target in panel.get("targets", ())]
    return [one for one in asked if recorded or "gpuwatch:" not in one]


def answers_the_dashboard(server: str, *, recorded: bool = True) -> bool:
    """Every query is understood, and has an answer where the two machines have what it is about:
    no Xid error, nothing that is throttled, and no batch job."""
    quiet = re.compile('gpu_xid|gpu_throttle_seconds|severity="info"|slurm_job_id')
    with suppress(URLError):
        found = {
            one: json.loads(got(f"http://{server}/api/v1/query?query={quote(one)}"))
            for one in queries(recorded=recorded)
        }
        assert all(one["status"] == "success" for one in found.values())
        return all(one["data"]["result"] for asked, one in found.items() if not quiet.search(asked))
    return False


def test_every_metric_that_is_asked_for_is_served() -> None:
    """By the dashboard, the alerts, and the rules that record; those name what is recorded."""
    pytest.importorskip("prometheus_client")
    from gpuwatch.outputs.exporter.metrics import Metrics

    engine, exporter = Engine(), Metrics(lambda: (0.5, False))
    port = RdmaPort(device="mlx5_0", port=1, state="active", link_downed_count=0)
    for one in simulated("starved", 60.0, gpus=1):
        card = replace(one.gpus[0], allocated_to=("17",), xid_errors=(XidError(31, 4, 1.7e9),))
        shown = replace(one, gpus=(card,), host=replace(one.host, rdma_ports=(port,)))
        engine.push(shown)
        exporter.push(shown, engine.diagnosis, engine.ledger)
    served = set(re.findall(r"(?m)^(\w+)[{ ]", exporter.page("a")[0].decode()))
    rules = (FILES / "alerts.yml").read_text()
    recorded = set(re.findall(r"- record: (\S+)", rules))
    for text in (rules, (FILES / "dashboard.json").read_text()):
        assert set(re.findall(r"\b(?:gpuwatch|process)_\w+", text)) <= served
        assert set(re.findall(r"\bgpuwatch:[\w:]+", text)) <= recorded


def test_no_query_of_the_fleet_is_a_line_for_each_gpu() -> None:
    """Beyond what is selected: of all machines only sums, and the first 20, are drawn."""
    board = json.loads((FILES / "dashboard.json").read_text())
    fleet = [one for panel in board["panels"] for one in panel.get("targets", ())]
    assert len(fleet) > 20
    few = re.compile(r"topk\(20|(sort_desc\()?(sum|count)( by \((cause|rule, severity)\) )?\(")
    for target in fleet:
        asked = target["expr"]
        assert few.search(asked), asked
        assert "$node" not in asked
    (row,) = [panel for panel in board["panels"] if panel["type"] == "row"]
    assert row["collapsed"]
    for panel in row["panels"]:
        assert all("$node" in target["expr"] for target in panel["targets"]), panel["title"]
    (node,) = [one for one in board["templating"]["list"] if one["name"] == "node"]
    assert not node["multi"]


def quick_rules(folder: Path) -> str:
    """The rules that are shipped, all evaluated every second."""
    text = re.sub(r"(?m)^ *interval: .*\n", "", (FILES / "alerts.yml").read_text())
    (folder / "rules.yml").write_text(text)
    return str(folder / "rules.yml")


def test_a_real_prometheus_alerts_and_answers_the_dashboard(tmp_path: Path) -> None:
    """A GPU that falls off the bus reaches a webhook, with what to do; every query of the dashboard
    has an answer; names are in order."""
    actions: list[str] = []

    class Hook(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            sent = json.loads(self.rfile.read(int(self.headers["Content-Length"])))
            actions.extend([one["annotations"]["action"] for one in sent["alerts"]])
            self.send_response(200)
            self.end_headers()

    with Servers(tmp_path) as servers:
        hook = servers.enter_context(HTTPServer(("127.0.0.1", 0), Hook))
        Thread(target=hook.serve_forever, daemon=True).start()
        servers.callback(hook.shutdown)
        url = f"http://127.0.0.1:{hook.server_address[1]}"
        receiver = {"name": "hook", "webhook_configs": [{"url": url}]}
        routes = {"route": {"receiver": "hook", "group_wait": "0s"}, "receivers": [receiver]}
        options = "--config.file={config} --web.listen-address={address} "
        alone = "--cluster.listen-address= --storage.path=alerts"
        manager = servers.started("prometheus-alertmanager", routes, options + alone)
        config = servers.scraping | {
            "global": {"scrape_interval": "1s", "evaluation_interval": "1s"},
            "rule_files": [quick_rules(tmp_path)],
            "alerting": {"alertmanagers": [{"static_configs": [{"targets": [manager]}]}]},
        }
        server = servers.started("prometheus", config, options + "--storage.tsdb.path=data")
        wait_until(lambda: answers_the_dashboard(server), 240)
        wait_until(lambda: any("Drain the node, look" in one for one in actions), 240)
        for machine in servers.machines:
            promtool("check", "metrics", input=got(f"http://{machine}/metrics"))


def test_a_real_victoria_metrics_answers_the_dashboard(tmp_path: Path) -> None:
    """It scrapes by the same configuration; rules are evaluated by vmalert, a program apart."""
    options = "-promscrape.config={config} -httpListenAddr={address} -search.latencyOffset=1ms"
    with Servers(tmp_path) as servers:
        server = servers.started("victoria-metrics", servers.scraping, options)
        wait_until(lambda: answers_the_dashboard(server, recorded=False), 240)
