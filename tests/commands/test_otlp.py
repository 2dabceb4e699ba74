"""The metrics as an OpenTelemetry collector gets them."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from http.server import BaseHTTPRequestHandler, HTTPServer
from inspect import signature
from pathlib import Path
from threading import Thread
from typing import Any

import pytest

pytest.importorskip("prometheus_client")
pytest.importorskip("opentelemetry.exporter.otlp.proto.http")

from opentelemetry.proto.collector.metrics.v1 import metrics_service_pb2
from opentelemetry.semconv._incubating.metrics import hw_metrics

from gpuwatch.core.text import SentenceError
from gpuwatch.diagnosis.finding import Diagnosis
from gpuwatch.outputs.exporter.metrics import Metrics
from gpuwatch.outputs.exporter.otlp import Sender
from tests.commands.conftest import Gpuwatch
from tests.commands.running import ROOT, environment_in
from tests.support.children import wait_until
from tests.support.recordings import simulated
from tests.support.servers import program
from tests.support.snapshots import gpu, snapshot

NOTHING = Diagnosis(taken_at_unix_seconds=0.0, watched_seconds=0.0, verdict="")


@contextmanager
def collector(port: int = 0) -> Iterator[tuple[str, list[Any]]]:
    """Where it takes metrics, and what it got."""
    got: list[Any] = []

    class Receiver(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = self.rfile.read(int(self.headers["Content-Length"]))
            got.append(metrics_service_pb2.ExportMetricsServiceRequest.FromString(body))
            self.send_response(200 if self.path == "/v1/metrics" else 404)
            self.end_headers()

    with HTTPServer(("127.0.0.1", port), Receiver) as server:
        Thread(target=server.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{server.server_address[1]}", got
        server.shutdown()


def metrics_in(request: Any) -> dict[str, Any]:
    (resource,) = request.resource_metrics
    return {one.name: one for one in resource.scope_metrics[0].metrics}


def points(metric: Any) -> dict[str, float]:
    """Values by what their attributes say beyond what is the same for all of a GPU."""
    same = {"hw.id", "hw.model", "hw.vendor", "hw.driver_version", "hw.type"}
    found = getattr(metric, metric.WhichOneof("data")).data_points
    return {
        " ".join([one.value.string_value for one in point.attributes if one.key not in same]): (
            point.as_double or point.as_int
        )
        for point in found
    }


def sent(*snapshots: Any) -> Any:
    served = Metrics(lambda: (0.5, False))
    for one in snapshots:
        served.push(one, NOTHING)
    with collector() as (url, got):
        sender = Sender(url, "box1", lambda: served.samples("otlp").collect())
        assert sender.send() is None
    return got[0]


def test_hardware_goes_by_the_names_of_opentelemetry() -> None:
    """Each has the unit and the kind that OpenTelemetry's own library gives it."""

    class Meter:
        """Answers with what it was to make: name, kind and unit, the documentation aside."""

        def __getattr__(self, kind: str) -> Any:
            return lambda **made: (made["name"], kind.split("_", 1)[1], made["unit"])

    known = []
    found = metrics_in(sent(*simulated("starved", 3.0)))
    names = [name for name in found if name.startswith("hw.")]
    for name in names:
        make = getattr(hw_metrics, f"create_{name.replace('.', '_')}")
        known.append(make(Meter(), *[()] * (len(signature(make).parameters) - 1)))
    for name, kind, unit in known:
        one = found[name]
        sums = {True: "counter", False: "up_down_counter"}
        data = sums[one.sum.is_monotonic] if one.WhichOneof("data") == "sum" else "gauge"
        assert (data, one.unit) == (kind.removeprefix("observable_"), unit), name
    assert len(names) >= 10


def test_what_was_not_read_is_not_sent() -> None:
    """A measured zero is; a GPU that is lost is in a state of its own."""
    gpus = (gpu(busy_percent=0.0, memory_used_bytes=1 << 30, temperature_celsius=40.0),
            gpu("GPU-b", 1, lost=True))  # fmt: skip
    found = metrics_in(sent(snapshot(gpus=gpus)))
    assert points(found["hw.gpu.utilization"]) == {"GPU 0 general": 0.0}
    assert points(found["hw.temperature"]) == {"GPU 0 gpu": 40.0}
    status = {"GPU 0 failed": 0, "GPU 0 ok": 1, "GPU 1 failed": 1, "GPU 1 ok": 0}
    assert points(found["hw.status"]) == status
    assert not {"hw.power", "hw.energy", "hw.fan.speed_ratio"} & {*found}
    # Prometheus would make a ratio of a count in "1".
    assert (found["gpuwatch.gpu.busy_max"].unit, found["gpuwatch.up"].unit) == ("1", "")


def test_a_collector_that_is_away_is_said_to_be_once(tmp_path: Path) -> None:
    """And that it is back; the exporter serves on."""
    with collector() as (url, _):
        port = int(url.rpartition(":")[2])
    command = (sys.executable, "-m", "gpuwatch", "exporter", "--demo", "--listen", "127.0.0.1:0")
    variables = {
        "OTEL_METRIC_EXPORT_INTERVAL": "300",
        "OTEL_EXPORTER_OTLP_TIMEOUT": "10",
        "OTEL_RESOURCE_ATTRIBUTES": "host.name=box3",
    }
    with (
        (tmp_path / "said").open("wb") as said,
        program(*command, "--otlp", url, stderr=said, cwd=ROOT,
                env=environment_in(tmp_path) | variables),
    ):  # fmt: skip
        lines = (tmp_path / "said").read_text
        wait_until(lambda: "did not take the metrics: " in lines())
        with collector(port) as (_, got):
            wait_until(lambda: "takes the metrics again.\n" in lines())
        wait_until(lambda: lines().count("did not take") == 2)
    assert "host.name" in str(got[-1].resource_metrics[0].resource)
    assert "box3" in str(got[-1].resource_metrics[0].resource)
    assert lines().count("\n") == 4


def test_what_cannot_be_sent_to_is_refused(
    gpuwatch: Gpuwatch, monkeypatch: pytest.MonkeyPatch
) -> None:
    """An address, an interval or another variable that is none, a missing extra, in a sentence."""
    command = ("exporter", "--demo", "--listen", "127.0.0.1:0", "--otlp")
    assert "http://host:4318" in gpuwatch(*command, "box3:4318", code=2).err
    monkeypatch.setenv("OTEL_EXPORTER_OTLP_ENDPOINT", "box3:4318")
    assert "http://host:4318" in gpuwatch(*command, code=2).err
    monkeypatch.delenv("OTEL_EXPORTER_OTLP_ENDPOINT")
    for url in ("http://[::1]:4318/", "HTTPS://box3/v1/metrics"):
        posts_to = Sender(url, "", tuple)._exporter._endpoint
        assert posts_to in ("http://[::1]:4318/v1/metrics", "HTTPS://box3/v1/metrics")
    monkeypatch.setenv("OTEL_METRIC_EXPORT_INTERVAL", "1m")
    with pytest.raises(SentenceError, match="milliseconds"):
        Sender("", "", tuple)
    monkeypatch.setitem(sys.modules, "opentelemetry.sdk.metrics", None)
    monkeypatch.delitem(sys.modules, "gpuwatch.outputs.exporter.otlp")
    assert "pip install 'gpuwatch-tui[otlp]'" in gpuwatch(*command, code=2).err
