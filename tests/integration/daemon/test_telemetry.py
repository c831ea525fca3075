"""Traces of decisions and all metrics arrive at an OTLP receiver; without `otlp` OpenTelemetry is not imported."""

import gzip
import subprocess
import sys
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer

import pytest
import structlog
from prometheus_client import CollectorRegistry, Counter, Gauge, Histogram

from exporter.clock import WallClock
from exporter.model import Failure, FailureKind, Role, ScrapeResult, Target, WorkloadKey
from scaler.config import Otlp, parse
from scaler.daemon import MissingExtra, _telemetry
from scaler.engine.context import DecisionPass
from scaler.model import Decision, Evidence, Objective, Reason
from tests.fakes.waiting import until

metrics_service = pytest.importorskip(
    "opentelemetry.proto.collector.metrics.v1.metrics_service_pb2",
    reason="OpenTelemetry is not installed: pip install 'tidegate[otel]'. Traces and metrics by OTLP are NOT TESTED",
)
from opentelemetry.proto.collector.trace.v1.trace_service_pb2 import ExportTraceServiceRequest  # noqa: E402

CHAT = WorkloadKey("ai", "chat")


class Receiver:
    """Decodes what is posted to it: spans, metrics by name, and attributes of the resource."""

    def __init__(self):
        self.spans, self.metrics, self.resource, self.status = [], {}, {}, 200

    def take(self, path, body):
        if path == "/v1/traces":
            for group in ExportTraceServiceRequest.FromString(body).resource_spans:
                self.resource = attributes(group.resource)
                self.spans += [span for scope in group.scope_spans for span in scope.spans]
        elif path == "/v1/metrics":
            for group in metrics_service.ExportMetricsServiceRequest.FromString(body).resource_metrics:
                self.metrics |= {metric.name: metric for scope in group.scope_metrics for metric in scope.metrics}


def attributes(thing):
    return {each.key: getattr(each.value, each.value.WhichOneof("value")) for each in thing.attributes}


def number(point):
    return getattr(point, point.WhichOneof("value"))


@pytest.fixture
def receiver():
    received = Receiver()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self):
            body = self.rfile.read(int(self.headers["Content-Length"]))
            received.take(self.path, gzip.decompress(body) if self.headers["Content-Encoding"] == "gzip" else body)
            self.send_response(received.status)
            self.send_header("Content-Length", "0")
            self.end_headers()

        def log_message(self, *arguments):
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    received.url = f"http://127.0.0.1:{server.server_address[1]}"
    thread = threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield received
    server.shutdown()
    thread.join()
    server.server_close()


@pytest.fixture
def telemetry(receiver):
    return lambda registry=None, traces=1.0: _telemetry(
        Otlp(endpoint=receiver.url, traces=traces), registry or CollectorRegistry(), WallClock()
    )


def decision(replicas):
    evidence = Evidence(objectives=(Objective("work", 20.0, 16.0, 1.25),))
    return Decision(CHAT, replicas, True, Reason.SERVING, 1000.0, published=replicas, evidence=evidence)


async def test_running_daemon_sends_traces_and_metrics(daemon, targets, vllm, receiver):
    targets["engine"].body = vllm(running=20, finished=1)
    workload = f'  - {{namespace: ai, name: chat, engine: vllm, pods: {{url: "{targets.url("engine")}"}}}}\n'
    async with daemon(workload, f'otlp: {{endpoint: "{receiver.url}", traces: 1, metrics: 200ms}}') as running:

        async def received():
            replicas = receiver.metrics.get("tidegate_replicas")
            points = () if replicas is None else replicas.gauge.data_points
            return {span.name for span in receiver.spans} | {number(point) for point in points}

        async def in_progress():
            running = receiver.metrics.get("tidegate_requests_running")
            return {number(point) for point in (() if running is None else running.gauge.data_points)}

        await until(received, lambda found: found >= {"decision", "scrape", "decide", "publish", 2})
        # The decision stays; the metrics are those of the last tick, though nobody else reads them.
        targets["engine"].body = vllm(running=21, finished=1)
        await until(in_progress, lambda found: 21 in found)
        text = (await running.get("/metrics"))[1]
    assert receiver.resource["service.name"] == "tidegate"
    point = receiver.metrics["tidegate_replicas"].gauge.data_points[0]
    assert (attributes(point), number(point)) == ({"namespace": "ai", "workload": "chat"}, 2)
    # The names are those of /metrics.
    shown = {line.split()[2] for line in text.splitlines() if line.startswith("# HELP")}
    histograms = {name for name, metric in receiver.metrics.items() if metric.WhichOneof("data") == "histogram"}
    assert receiver.metrics.keys() - histograms <= shown
    assert histograms >= {"tidegate_tick_duration_seconds"}
    roots = {span.span_id: span for span in receiver.spans if span.name == "decision"}
    assert all(span.parent_span_id in roots for span in receiver.spans if span.name != "decision")


async def test_trace_of_a_decision_has_its_scrapes_with_their_times(telemetry, receiver):
    target = Target("http://u:secret@10.0.0.7:8000/metrics", "vllm", Role.PODS, CHAT)
    silent = Target("http://10.0.0.8:8000/metrics", "vllm", Role.PODS, CHAT)
    scrapes = [
        ScrapeResult(target, 1000.5, 0.25, None),
        ScrapeResult(silent, 1000.75, 0.5, Failure(FailureKind.TIMEOUT, "no response within 3 s")),
    ]
    sent = telemetry()
    sent.trace(DecisionPass("scrape", scrapes, 1000.75, 1000.875, 1001.0, [decision(2)]))
    await sent.close()
    spans = {(span.name, attributes(span).get("url.full")): span for span in receiver.spans}
    root = spans["decision", None]
    assert {name: (span.start_time_unix_nano / 1e9, span.end_time_unix_nano / 1e9) for name, span in spans.items()} == {
        ("decision", None): (1000.25, 1001.0),
        ("scrape", "http://10.0.0.7:8000/metrics"): (1000.25, 1000.5),
        ("scrape", "http://10.0.0.8:8000/metrics"): (1000.25, 1000.75),
        ("decide", None): (1000.75, 1000.875),
        ("publish", None): (1000.875, 1001.0),
    }
    assert {span.trace_id for span in receiver.spans} == {root.trace_id}
    assert attributes(root.events[0]) == {
        "workload": "ai/chat", "reason": "serving", "active": True, "published": 2, "demand": 1.25,
    }  # fmt: skip
    failed = spans["scrape", "http://10.0.0.8:8000/metrics"]
    assert (attributes(failed)["error.type"], failed.status.code) == ("timeout", failed.status.STATUS_CODE_ERROR)
    assert "secret" not in str(receiver.spans)


async def test_unknown_decision_has_no_number(telemetry, receiver):
    sent = telemetry()
    unknown = Decision(CHAT, None, True, Reason.UNKNOWN, 1000.0)
    sent.trace(DecisionPass("tick", (), 1000.0, 1000.0, 1000.0, [unknown]))
    await sent.close()
    (event,) = next(span for span in receiver.spans if span.name == "decision").events
    assert attributes(event) == {"workload": "ai/chat", "reason": "unknown", "active": True}


async def test_decisions_that_are_not_sampled_are_not_sent(telemetry, receiver):
    sent = telemetry(traces=0.0)
    sent.trace(DecisionPass("tick", (), 1000.0, 1000.0, 1000.0, [decision(2)]))
    await sent.close()
    assert receiver.spans == []


async def test_metrics_keep_their_names_values_and_buckets(telemetry, receiver):
    registry = CollectorRegistry()
    Counter("c", "Counts.", ("how",), registry=registry).labels("well").inc(3)
    Gauge("g", "Stands.", registry=registry).set(2.5)
    histogram = Histogram("h_seconds", "Spreads.", buckets=(0.1, 1.0), registry=registry)
    for value in (0.05, 0.5, 0.6, 7.0):
        histogram.observe(value)
    sent = telemetry(registry)
    sent._send(tuple(registry.collect()), 1_000_000_000_000)
    await sent.close()
    counter = receiver.metrics["c_total"].sum
    assert (attributes(counter.data_points[0]), number(counter.data_points[0])) == ({"how": "well"}, 3.0)
    assert counter.is_monotonic
    assert receiver.metrics["g"].gauge.data_points[0].as_double == 2.5
    point = receiver.metrics["h_seconds"].histogram.data_points[0]
    assert (list(point.explicit_bounds), list(point.bucket_counts), point.count) == ([0.1, 1.0], [1, 2, 1], 4)
    assert point.sum == pytest.approx(8.15)
    assert not point.HasField("min")
    assert receiver.metrics.keys() == {"c_total", "g", "h_seconds"}


async def test_refusing_collector_is_one_line_in_the_log_until_it_works_again(telemetry, receiver):
    sent = telemetry()
    with structlog.testing.capture_logs() as logged:
        for status in (400, 400, 200, 200):
            receiver.status = status
            sent._send((), 1_000_000_000_000)
    await sent.close()
    assert [line["event"] for line in logged] == ["OTLP export failed", "OTLP export recovered"]


def test_without_otlp_nothing_of_opentelemetry_is_imported():
    code = "import sys, scaler.daemon, scaler.engine.loop; print([name for name in sys.modules if 'telemetry' in name])"
    shown = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert shown.stdout == "[]\n"


def test_missing_extra_is_an_error_with_the_remedy(monkeypatch):
    monkeypatch.setitem(sys.modules, "scaler.telemetry", None)
    with pytest.raises(MissingExtra, match=r"otlp: needs pip install 'tidegate\[otel\]'"):
        _telemetry(Otlp(endpoint="http://localhost:4318"), CollectorRegistry(), WallClock())


def test_otlp_is_off_by_default():
    assert parse("tick: 1s", "c.yaml")[0].otlp is None
