"""What requests pass through: Envoy, LiteLLM, Knative's activator and queue-proxy, KEDA's HTTP interceptor.

Their requests in flight are the engines' own waiting and running requests seen from the other end, so all of them
repeat their engines; what is kept back in front of an engine is `requests_held`. What is refused because nobody is
there is `requests_failed`: a counter whose rise is activity, and at zero replicas often the only sign of a request.

Worked example: `envoy_cluster_upstream_rq_pending_active{envoy_cluster_name="chat"} 3` and
`envoy_cluster_upstream_cx_none_healthy{envoy_cluster_name="chat"} 7` make, for `Queue("chat")`, 3 requests held and a
counter of 7 failed ones.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

from exporter.model import Quantity, Queue, Subject

from .kind import Kind, compile_table
from .naming import UNNAMED, as_it_is, labels_of, one_queue_each, shortest
from .words import COUNTER, Key, Labels, Row, Table, label

Q = Quantity

# Clusters of Envoy's own: control planes and side services. Their streams stay open for ever and are nobody's requests.
_CONTROL = frozenset({"xds_cluster", "xds-grpc", "sds-grpc", "ads_cluster", "agent", "prometheus_stats", "zipkin"})


def _clusters(keys: Sequence[Key]) -> list[Subject | None]:
    return [None if name in _CONTROL else Queue(name or UNNAMED) for (name,) in keys]


# Envoy: docs "Cluster manager, statistics"; Istio calls the label cluster_name and hides these stats unless its
# proxyStatsMatcher names them. A request is pending until it has a connection, then active: never both. Over HTTP/2 all
# are active at once, wherever they wait in the server. With no healthy backend a request is answered 503 at once.
_CLUSTER = label("envoy_cluster_name", "cluster_name")
_ENVOY_ROWS = (
    Row(Q.REQUESTS_HELD, ("envoy_cluster_upstream_rq_pending_active",), _CLUSTER),
    Row(Q.REQUESTS_RUNNING, ("envoy_cluster_upstream_rq_active",), _CLUSTER),
    Row(Q.REQUESTS_FINISHED, ("envoy_cluster_upstream_rq_completed",), _CLUSTER, unit=COUNTER),
    Row(Q.REQUESTS_FAILED, ("envoy_cluster_upstream_cx_none_healthy",), _CLUSTER, unit=COUNTER),
    Row(Q.REQUESTS_FAILED, ("envoy_cluster_upstream_rq_pending_overflow",), _CLUSTER, unit=COUNTER),
)


def _whole_proxy(_: Labels) -> Key:
    """One key for the page: its gauge names no model, so nothing may be kept apart by one."""
    return ("",)


# LiteLLM: proxy/middleware/in_flight_requests_middleware.py, integrations/prometheus.py. In flight is every HTTP
# request, waiting or running, health probes and the scrape itself among them: at least 1 on a page that was scraped.
_LITELLM_TOTAL = ("litellm_proxy_total_requests_metric_total", "litellm_proxy_total_requests_metric")
_LITELLM_FAILED = ("litellm_proxy_failed_requests_metric_total", "litellm_proxy_failed_requests_metric")
_LITELLM_ROWS = (
    Row(Q.REQUESTS_RUNNING, ("litellm_in_flight_requests",), _whole_proxy),  # one series per worker process
    Row(Q.REQUESTS_FINISHED, _LITELLM_TOTAL, _whole_proxy, unit=COUNTER),
    Row(Q.REQUESTS_FAILED, _LITELLM_FAILED, _whole_proxy, unit=COUNTER),
)

# Knative: pkg/activator/handler/metrics.go, pkg/queue/request_metric.go; OpenTelemetry's names since 1.19, OpenCensus'
# before. The activator is where requests wait at zero pods. The old one prints only a concurrency, waiting or not.
# The queue-proxy's depth is left out: it is noted when a request arrives, so the last one's value stays for ever.
_REVISION = labels_of(("k8s_namespace_name", "namespace_name"), ("kn_revision_name", "revision_name"))
_KNATIVE_RUNNING = ("kn_revision_request_active", "activator_request_concurrency")
_KNATIVE_FINISHED = (
    "kn_serving_invocation_duration_seconds_count",
    "revision_app_request_count",
    "revision_request_count",
    "activator_request_count",
    "queue_proxy_app_request_count_total",
    "activator_request_count_total",
)
_KNATIVE_ROWS = (
    Row(Q.REQUESTS_HELD, ("kn_revision_request_queued",), _REVISION),
    Row(Q.REQUESTS_RUNNING, _KNATIVE_RUNNING, _REVISION),
    Row(Q.REQUESTS_FINISHED, _KNATIVE_FINISHED, _REVISION, unit=COUNTER),  # per response code
)

# KEDA HTTP add-on: keda.sh/http-add-on reference/metrics (0.14 on) and interceptor/metrics (before: "pending", from the
# request's arrival to the end of its answer, per host). What waits for a replica and what one works on are one number.
_ROUTE = labels_of("route_namespace", ("route_name", "host"))
_HTTP_ADDON_IN_FLIGHT = ("interceptor_request_concurrency", "interceptor_pending_request_count")
_HTTP_ADDON_ROWS = (
    Row(Q.REQUESTS_RUNNING, _HTTP_ADDON_IN_FLIGHT, _ROUTE),
    Row(Q.REQUESTS_FINISHED, ("interceptor_request_count_total",), _ROUTE, unit=COUNTER),  # per method, path and code
)

ENVOY = Kind(
    name="envoy",
    signs={"envoy_": 0},
    port=9901,
    path="/stats/prometheus",
    work=16.0,
    compile=partial(compile_table, "envoy", Table(_ENVOY_ROWS, _clusters, as_it_is)),
    repeats_engines=True,
    at_zero="refused",
)
LITELLM = Kind(
    name="litellm",
    signs={"litellm_": 2},
    port=4000,
    path="/metrics/",  # without the slash it answers with a redirection
    work=16.0,
    compile=partial(compile_table, "litellm", Table(_LITELLM_ROWS, one_queue_each, as_it_is)),
    repeats_engines=True,
    at_zero="refused",
)
KNATIVE = Kind(
    name="knative",
    signs={
        "kn_revision_request_": 2,
        "kn_serving_": 2,
        "activator_request_": 2,
        "revision_request_": 1,
        "revision_app_request_": 1,
        "revision_queue_depth": 1,
        "queue_proxy_": 1,
    },
    port=9090,  # the activator's; a queue-proxy's is 9091
    path="/metrics",
    work=16.0,
    compile=partial(compile_table, "knative", Table(_KNATIVE_ROWS, shortest, as_it_is)),
    repeats_engines=True,
    at_zero="in_flight",
)
HTTP_ADDON = Kind(
    name="http_addon",
    signs={"interceptor_pending_request_": 2, "interceptor_request_": 2},
    port=2223,
    path="/metrics",
    work=16.0,
    compile=partial(compile_table, "http_addon", Table(_HTTP_ADDON_ROWS, shortest, as_it_is)),
    repeats_engines=True,
    at_zero="in_flight",
)
