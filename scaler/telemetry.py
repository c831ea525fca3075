"""Sends traces of decisions and the metrics of `/metrics` to an OTLP collector. Imported only if `otlp` is configured.

A trace is one pass from samples to the Board: `decision` with the spans `scrape` (one for each target), `decide` and
`publish`. A pass that decides nothing new has no trace. The SDK samples, batches and sends on threads of its own; a
collector that does not answer costs the traces and one line in the log, and never a decision.

Worked example: with `otlp: {endpoint: "http://otel-collector:4318", traces: 1}` a response of 20 requests that arrives
becomes a trace of four spans, posted to /v1/traces within 5 s, and every minute all metrics go to /v1/metrics.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Awaitable, Callable, Iterable, Iterator, Mapping, Sequence
from itertools import groupby, pairwise
from typing import Any

import structlog
from opentelemetry import trace as otel
from opentelemetry.exporter.otlp.proto.http.metric_exporter import OTLPMetricExporter
from opentelemetry.exporter.otlp.proto.http.trace_exporter import OTLPSpanExporter
from opentelemetry.sdk.metrics.export import (
    AggregationTemporality,
    Gauge,
    Histogram,
    HistogramDataPoint,
    MetricExportResult,
    MetricsData,
    NumberDataPoint,
    ResourceMetrics,
    ScopeMetrics,
    Sum,
)
from opentelemetry.sdk.metrics.export import Metric as OtlpMetric
from opentelemetry.sdk.resources import Resource
from opentelemetry.sdk.trace import ReadableSpan, TracerProvider
from opentelemetry.sdk.trace.export import BatchSpanProcessor, SpanExporter, SpanExportResult
from opentelemetry.sdk.trace.sampling import TraceIdRatioBased
from opentelemetry.sdk.util.instrumentation import InstrumentationScope
from opentelemetry.trace import Span, Status, StatusCode
from prometheus_client import CollectorRegistry
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from exporter.clock import Clock
from exporter.model import Failure, ScrapeResult, without_user
from scaler.config import Otlp
from scaler.engine.context import DecisionPass
from scaler.model import Decision

TIMEOUT_S = 5.0  # of one request
# A sweep of a large fleet changes thousands of decisions at once.
MOST_EVENTS = 20
_NS = 1_000_000_000


class Telemetry:
    """registry: of `/metrics`. version: of Tidegate."""

    def __init__(self, settings: Otlp, registry: CollectorRegistry, clock: Clock, version: str) -> None:
        # The SDK's own messages are not JSON.
        logging.getLogger("opentelemetry").setLevel(logging.CRITICAL + 1)
        base, self._settings, self._registry, self._clock = settings.endpoint.rstrip("/"), settings, registry, clock
        self._resource = Resource.create({"service.name": "tidegate", "service.version": version})
        self._scope = InstrumentationScope("tidegate", version)
        self._begun_ns = _ns(clock.now())
        self._metrics = OTLPMetricExporter(endpoint=f"{base}/v1/metrics", timeout=TIMEOUT_S)
        self._sent_metrics = _Outcome("metrics")
        self._provider = TracerProvider(
            resource=self._resource, sampler=TraceIdRatioBased(settings.traces), shutdown_on_exit=False
        )
        exporter = _Reported(OTLPSpanExporter(endpoint=f"{base}/v1/traces", timeout=TIMEOUT_S))
        self._provider.add_span_processor(BatchSpanProcessor(exporter))
        self._tracer = self._provider.get_tracer("tidegate", version)

    def trace(self, done: DecisionPass) -> None:
        """Records one pass."""
        begun = min((scrape.at - scrape.took_s for scrape in done.scrapes), default=done.began_at)
        root = self._tracer.start_span("decision", start_time=_ns(begun))
        if root.is_recording():
            root.set_attributes({"tidegate.cause": done.cause, "tidegate.decisions": len(done.changed)})
            parent = otel.set_span_in_context(root)
            for scrape in done.scrapes:
                span = self._tracer.start_span("scrape", parent, start_time=_ns(scrape.at - scrape.took_s))
                _describe(span, scrape)
                span.end(_ns(scrape.at))
            for name, start, end in (
                ("decide", done.began_at, done.decided_at),
                ("publish", done.decided_at, done.published_at),
            ):
                span = self._tracer.start_span(name, parent, start_time=_ns(start))
                span.end(_ns(end))
            for decision in done.changed[:MOST_EVENTS]:
                root.add_event("decided", _attributes(decision), _ns(done.decided_at))
        root.end(_ns(done.published_at))

    async def send_metrics(self, renew: Callable[[], Awaitable[None]]) -> None:
        """Sends all metrics at each interval until it is cancelled. renew: awaited before, see `Publisher.renew`."""
        while True:
            await asyncio.sleep(self._settings.metrics)
            await renew()
            # Collecting reads what this loop writes; encoding takes much longer.
            families = tuple(self._registry.collect())
            await asyncio.to_thread(self._send, families, _ns(self._clock.now()))

    async def close(self) -> None:
        """Sends what is left, for at most two requests' time."""
        await asyncio.to_thread(self._provider.shutdown)
        await asyncio.to_thread(self._metrics.shutdown, TIMEOUT_S * 1000)

    def _send(self, families: Iterable[Metric], now_ns: int) -> None:
        metrics = [metric for family in families for metric in to_otlp(family, self._begun_ns, now_ns)]
        scope = ScopeMetrics(self._scope, metrics, "")
        result = self._metrics.export(MetricsData([ResourceMetrics(self._resource, [scope], "")]))
        self._sent_metrics.note(ok=result is MetricExportResult.SUCCESS)


class _Outcome:
    """Logs one line when sending begins to fail, and one when it works again."""

    def __init__(self, what: str) -> None:
        self._what, self._failing = what, False

    def note(self, *, ok: bool) -> None:
        if ok == self._failing:
            log = structlog.get_logger()
            (log.info if ok else log.warning)("OTLP export recovered" if ok else "OTLP export failed", what=self._what)
        self._failing = not ok


class _Reported(SpanExporter):
    """Reports the outcome of another exporter."""

    def __init__(self, exporter: SpanExporter) -> None:
        self._exporter, self._sent = exporter, _Outcome("traces")

    def export(self, spans: Sequence[ReadableSpan]) -> SpanExportResult:
        result = self._exporter.export(spans)
        self._sent.note(ok=result is SpanExportResult.SUCCESS)
        return result

    def shutdown(self) -> None:
        self._exporter.shutdown()


def to_otlp(family: Metric, begun_ns: int, now_ns: int) -> Iterator[OtlpMetric]:
    """A metric family of Prometheus as metrics of OTLP, with the same names. A family without samples has none."""
    if family.type == "histogram":
        points = list(_histograms(family.samples, begun_ns, now_ns))
        if points:
            yield _metric(family, family.name, Histogram(points, AggregationTemporality.CUMULATIVE))
        return
    samples = sorted((each for each in family.samples if not each.name.endswith("_created")), key=_name)
    for name, group in groupby(samples, key=_name):
        numbers = [NumberDataPoint(dict(each.labels), begun_ns, now_ns, each.value) for each in group]
        if family.type == "counter":
            yield _metric(family, name, Sum(numbers, AggregationTemporality.CUMULATIVE, is_monotonic=True))
        else:
            yield _metric(family, name, Gauge(numbers))


def _histograms(samples: Iterable[Sample], begun_ns: int, now_ns: int) -> Iterator[HistogramDataPoint]:
    """Prometheus counts up to each bound, OTLP between two: 3, 5, 9 are 3, 2, 4."""
    buckets: dict[frozenset[tuple[str, str]], dict[float, float]] = {}
    sums: dict[frozenset[tuple[str, str]], float] = {}
    for sample in samples:
        key = frozenset((name, value) for name, value in sample.labels.items() if name != "le")
        if sample.name.endswith("_bucket"):
            buckets.setdefault(key, {})[float(sample.labels["le"])] = sample.value
        elif sample.name.endswith("_sum"):
            sums[key] = sample.value
    for key, counts in buckets.items():
        bounds = sorted(counts)
        upto = [0, *(int(counts[bound]) for bound in bounds)]
        between = [after - before for before, after in pairwise(upto)]
        yield HistogramDataPoint(
            attributes=dict(key),
            start_time_unix_nano=begun_ns,
            time_unix_nano=now_ns,
            count=upto[-1],
            sum=sums.get(key, 0.0),
            bucket_counts=between,
            explicit_bounds=bounds[:-1],  # the last one is infinite
            min=None,  # type: ignore[arg-type]  # unknown: left out of the message
            max=None,  # type: ignore[arg-type]
        )


def _name(sample: Sample) -> str:
    return sample.name


def _metric(family: Metric, name: str, data: Any) -> OtlpMetric:
    return OtlpMetric(name, family.documentation, family.unit, data)


def _describe(span: Span, scrape: ScrapeResult) -> None:
    target = scrape.target
    named: Mapping[str, object] = {"tidegate.workload": target.owner, "k8s.pod.name": target.pod and target.pod.pod}
    span.set_attributes(
        {
            "url.full": without_user(target.url),
            "tidegate.role": str(target.role),
            "tidegate.kind": target.kind,
            **{name: str(value) for name, value in named.items() if value is not None},
        }
    )
    if isinstance(scrape.outcome, Failure):
        span.set_attribute("error.type", str(scrape.outcome.kind))
        span.set_status(Status(StatusCode.ERROR, scrape.outcome.detail))


def _attributes(decision: Decision) -> dict[str, str | bool | int | float]:
    """The attributes of a decision. An unknown number has none."""
    numbers = {"published": decision.published, "demand": decision.evidence.demand}
    return {
        "workload": str(decision.workload),
        "reason": str(decision.reason),
        "active": decision.active,
        **{name: value for name, value in numbers.items() if value is not None},
    }


def _ns(seconds: float) -> int:
    return int(seconds * _NS)
