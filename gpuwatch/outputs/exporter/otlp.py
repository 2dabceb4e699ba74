"""The metrics of ``gpuwatch exporter``, sent to an OpenTelemetry collector by OTLP over HTTP.

What OpenTelemetry has a name for goes by it: its conventions for hardware, whose status is
"development" (here as of 1.44.0: https://opentelemetry.io/docs/specs/semconv/hardware/gpu/). All
else keeps its name and has its unit beside it. Prometheus, where it takes OTLP, makes
``gpuwatch_gpu_busy_min_ratio`` of ``gpuwatch.gpu.busy_min`` with unit ``1`` again.
"""

import logging
import os
import re
import time
from collections.abc import Callable, Iterable, Mapping
from typing import Any

from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.sdk.metrics import export
from opentelemetry.sdk.resources import OTELResourceDetector, Resource
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from prometheus_client.core import Metric as Family

from gpuwatch import __version__
from gpuwatch.core.text import SentenceError, clean

Labels = Mapping[str, str]
_GPU = {"hw.type": "gpu"}
_HARDWARE: dict[str, tuple[str, str, dict[str, str]]] = {
    "gpu_busy_ratio": ("hw.gpu.utilization", "1", {"hw.gpu.task": "general"}),
    "gpu_ecc_errors": ("hw.errors", "{error}", _GPU),
    "gpu_energy_joules": ("hw.energy", "J", _GPU),
    "gpu_fan_ratio": ("hw.fan.speed_ratio", "1", {}),
    "gpu_lost": ("hw.status", "1", {**_GPU, "hw.state": "failed"}),
    "gpu_memory_temperature_celsius": ("hw.temperature", "Cel", {"hw.sensor_location": "memory"}),
    "gpu_memory_total_bytes": ("hw.gpu.memory.limit", "By", {}),
    "gpu_memory_used_bytes": ("hw.gpu.memory.usage", "By", {}),
    "gpu_pcie_receive_bytes": ("hw.gpu.io", "By", {"network.io.direction": "receive"}),
    "gpu_pcie_transmit_bytes": ("hw.gpu.io", "By", {"network.io.direction": "transmit"}),
    "gpu_power_watts": ("hw.power", "W", _GPU),
    "gpu_temperature_celsius": ("hw.temperature", "Cel", {"hw.sensor_location": "gpu"}),
}
"""By family: name, unit, and attributes that say which of several it is."""
_UP_AND_DOWN = {"hw.gpu.memory.limit", "hw.gpu.memory.usage", "hw.status"}
"""Sums that can fall, by the convention."""
_ATTRIBUTES = {
    "gpu_uuid": "hw.id", "kind": "error.type", "name": "hw.model",
    "driver_version": "hw.driver_version", "mig_parent_uuid": "hw.parent",
}  # fmt: skip
_UNITS = {
    "bytes": "By", "celsius": "Cel", "hertz": "Hz", "joules": "J", "ratio": "1", "seconds": "s",
    "watts": "W",
}  # fmt: skip
_ENDPOINTS = ("OTEL_EXPORTER_OTLP_METRICS_ENDPOINT", "OTEL_EXPORTER_OTLP_ENDPOINT")
_PATH = "/v1/metrics"
_INTERVAL = "OTEL_METRIC_EXPORT_INTERVAL"
FIRST_SECONDS = 5.0
"""A wrong address is to show soon."""
_LIMIT = "gpu_memory_total_bytes"
_NONE = Family("none", "", "gauge")
_SCHEMA = "https://opentelemetry.io/schemas/1.44.0"


class Sender(logging.Handler):
    """Sends to the collector at ``url``, or, if it is empty, at ``OTEL_EXPORTER_OTLP_ENDPOINT``.
    Headers, certificates, compression and the time limit are those of the other ``OTEL_``
    variables. Raises ``SentenceError``."""

    def __init__(self, url: str, host: str, collect: Callable[[], Iterable[Family]]) -> None:
        """``host`` is what is read; ``collect`` gives what a scrape would get."""
        super().__init__()
        given = url or next(filter(None, map(os.environ.get, _ENDPOINTS)), "http://")
        if not re.match(r"https?://[\w\[]|http://$", given, re.IGNORECASE):
            raise SentenceError(f"{clean(given, 60)!r} is not a URL: write it as http://host:4318.")
        endpoint = f"{url.rstrip('/').removesuffix(_PATH)}{_PATH}" if url else None
        # Why something was not taken, or a variable cannot be used, the library says only there.
        log = logging.getLogger("opentelemetry")
        log.addHandler(self)
        log.propagate = False
        self._why = ""
        self._collect, self._exporter = collect, OTLPMetricExporter(endpoint)
        facts = {"service.name": "gpuwatch", "service.version": __version__, "host.name": host}
        self._resource = Resource(facts).merge(OTELResourceDetector().detect())
        self._seconds = _interval_seconds()
        if self._why:
            raise SentenceError(f"OpenTelemetry: {clean(self._why, 200)}")

    def emit(self, record: logging.LogRecord) -> None:
        said = record.getMessage()
        errors = [one for one in record.args or () if isinstance(one, Exception)]
        if errors:
            self._why = _reason(errors[0])
        elif found := re.search("Transient error (.+?) encountered", said):
            self._why = found[1]
        elif "due to timeout" not in said:
            self._why = said

    def run(self, say: Callable[[str], None]) -> None:
        """Send for ever, and ``say`` when that fails and when it works again."""
        pause, failed = min(FIRST_SECONDS, self._seconds), False
        while True:
            time.sleep(pause)
            why = self.send()
            if why is not None and not failed:
                say(f"the OpenTelemetry collector did not take the metrics: {why}.")
            elif why is None and failed:
                say("the OpenTelemetry collector takes the metrics again.")
            pause, failed = self._seconds, why is not None

    def send(self) -> str | None:
        """Why it was not taken, if it was not. Takes up to 10 s, or as the environment has it."""
        self._why, scope = "", InstrumentationScope("gpuwatch", __version__)
        try:
            metrics = export.ScopeMetrics(scope, _metrics(self._collect(), time.time_ns()), _SCHEMA)
            sent = export.MetricsData([export.ResourceMetrics(self._resource, [metrics], _SCHEMA)])
            if self._exporter.export(sent) is export.MetricExportResult.SUCCESS:
                return None
        except Exception as error:
            self._why = _reason(error)
        return clean(self._why, 200).rstrip(".") or "it did not answer in time"


def _interval_seconds() -> float:
    text = os.environ.get(_INTERVAL) or "60000"
    if not re.fullmatch(r"[1-9]\d{2,8}", text, re.ASCII):
        raise SentenceError(
            f"{_INTERVAL} is {clean(text, 60)!r}: it must be a number of milliseconds, 100 or more."
        )
    return int(text) / 1000.0


def _reason(error: BaseException) -> str:
    while error.__context__ is not None:
        error = error.__context__
    return getattr(error, "strerror", None) or str(error)


def _metrics(families: Iterable[Family], at_nanoseconds: int) -> list[export.Metric]:
    mine = {one.name.removeprefix("gpuwatch_"): one for one in families if "gpuwatch_" in one.name}
    cards = {one.labels["gpu_uuid"]: one.labels for one in mine.pop("gpu_info", _NONE).samples}
    found: dict[str, export.Metric] = {}

    def add(name: str, says: str, unit: str, kind: str, value: float, labels: Labels) -> None:
        data: Any = export.Gauge([])
        if kind == "counter" or name in _UP_AND_DOWN:
            data = export.Sum([], export.AggregationTemporality.CUMULATIVE, kind == "counter")
        made: Any = found.setdefault(name, export.Metric(name, says, unit, data))
        # Since when it has counted is not known of all: 0 says so.
        made.data.data_points.append(export.NumberDataPoint(labels, 0, at_nanoseconds, value))

    limits = {one.labels["gpu_uuid"]: one.value for one in mine.get(_LIMIT, _NONE).samples}
    for short, family in mine.items():
        what, _, last = short.rpartition("_")
        own = re.sub("^(gpu|job|finding)_", r"\1.", what if last in _UNITS else short)
        name, unit, which = _HARDWARE.get(short, (f"gpuwatch.{own}", _UNITS.get(last, ""), None))
        says, kind = family.documentation, family.type
        for sample in family.samples:
            labels, value, uuid = sample.labels, sample.value, sample.labels.get("gpu_uuid", "")
            if which is not None:
                labels = {**_attributes({**cards[uuid], **labels}), **which}
            add(name, says, unit, kind, value, labels)
            if name == "hw.status":
                add(name, says, unit, kind, 1.0 - value, {**labels, "hw.state": "ok"})
            elif name == "hw.gpu.memory.usage" and limits.get(uuid):
                add("hw.gpu.memory.utilization", says, "1", kind, value / limits[uuid], labels)
    return [*found.values()]


def _attributes(labels: Labels) -> dict[str, str]:
    """Of a GPU, by the labels that it has for Prometheus."""
    named = {new: labels[name] for name, new in _ATTRIBUTES.items() if labels.get(name)}
    return {**named, "hw.name": f"GPU {labels['gpu']}", "hw.vendor": "NVIDIA"}
