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

# Clusters that an Envoy's own bootstrap defines: its control plane (whose streams stay open for ever), its admin port
# (where its statistics are read), and what it sends statistics, traces, access logs and filters' questions to. No
# request of an application passes through them. By who writes the bootstrap:
_BOOTSTRAP = frozenset(
    {
        # Istio's is tools/packaging/common/envoy_bootstrap.json.
        *("xds-grpc", "sds-grpc", "prometheus_stats", "zipkin", "lightstep", "datadog_agent"),
        *("envoy_metrics_service", "envoy_accesslog_service"),
        # Envoy Gateway: internal/xds/bootstrap/bootstrap.yaml.tpl, internal/xds/translator
        *("xds_cluster", "wasm_cluster"),
        # Consul: agent/xds, command/connect/envoy/bootstrap_config.go; consul-dataplane pkg/consuldp/bootstrap.go
        *("local_agent", "consul-dataplane", "self_admin", "prometheus_backend"),
        "ads_cluster",
    }
)
_NUMBERED = "otel_metric_sink_"  # Envoy Gateway, as above: otel_metric_sink_0, _1, ...
_CONTOUR = ("_contour_", "_envoy-admin_")  # Contour internal/envoy/v3/bootstrap.go: NAMESPACE_contour_PORT
# Istio's own agent in the pod. Also what somebody may call an application, so only beside Istio's control plane, which
# Istio's bootstrap always has in its statistics.
_ISTIO, _ISTIO_AGENT = "xds-grpc", "agent"


def _is_bootstrap(name: str, *, istio: bool) -> bool:
    if name in _BOOTSTRAP or (istio and name == _ISTIO_AGENT):
        return True
    before, _, number = name.rpartition("_")
    return number.isdecimal() and (f"{before}_" == _NUMBERED or f"{before}_".endswith(_CONTOUR))


def _clusters(keys: Sequence[Key]) -> list[Subject | None]:
    istio = (_ISTIO,) in keys
    return [None if _is_bootstrap(name, istio=istio) else Queue(name or UNNAMED) for (name,) in keys]


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
