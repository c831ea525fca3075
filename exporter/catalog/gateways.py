"""Maps the metrics of gateways and proxies: Ray Serve, the Gateway API's endpoint picker (EPP), Envoy, LiteLLM,
Knative's activator and queue-proxy, KEDA's HTTP interceptor.

Gateways have requests that no engine has yet: `requests_held`. Their requests in flight, and EPP's averages, are the
engines' own waiting and running requests, so they repeat their engines: all but Ray Serve, whose queue is in front of
its replicas. A request that is rejected because no replica exists is in `requests_failed`: a counter that rises with
activity, and at zero replicas often the only sign of a request.

Worked example: `envoy_cluster_upstream_rq_pending_active{envoy_cluster_name="chat"} 3` and
`envoy_cluster_upstream_cx_none_healthy{envoy_cluster_name="chat"} 7` make, for `Queue("chat")`, 3 requests held and a
counter of 7 failed ones. `inference_pool_average_queue_size{name="p"} 0.5` with `inference_pool_ready_pods{name="p"} 4`
makes 2.0 requests waiting for `Queue("p")`.
"""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np

from exporter.model import Quantity, Queue, Subject

from .kind import Kind
from .schema import (
    COUNTER,
    RATIO,
    UNNAMED,
    Columns,
    Combine,
    Key,
    Labels,
    SeriesRow,
    in_full,
    label,
    labels_of,
    matching,
    whole_response,
)

Q = Quantity


def _deployment(labels: Labels) -> Key:
    return (labels.get("application", ""), labels.get("deployment", ""))


def _deployments(keys: Sequence[Key]) -> list[Subject | None]:
    """A deployment by its name; with its application only where two applications have one of that name.

    Without a name are the proxy's own routes.
    """
    names = [deployment for _, deployment in keys]
    return [
        Queue(f"{application}/{deployment}" if names.count(deployment) > 1 else deployment) if deployment else None
        for application, deployment in keys
    ]


# Ray Serve: python/ray/serve/_private, and 2.60 as it runs. A request waits in a handle (of a proxy, or of a deployment
# that calls another), and is ongoing there until its replica has answered. Meanwhile that replica counts it once more,
# as processing: often on another node, and reported at another moment. So ongoing requests are open ones, and where
# the replicas are scraped too, only those that they process are running (`scaler.signals.queues`).
# A replica counts a request that ended well or with an exception, also that of a client which left. One that no replica
# got (`max_queued_requests`, or a deployment that failed) only its proxy counts, by the status of its answer.
# Early versions expose every counter twice, `x_total` and a gauge `x`: only the first is a counter.
_NO_REPLICA = frozenset({"503", "429", "RESOURCE_EXHAUSTED", "UNAVAILABLE"})
_RAY_ROWS = (
    SeriesRow(Q.REQUESTS_WAITING, ("ray_serve_deployment_queued_queries",), _deployment),
    SeriesRow(Q.REQUESTS_RUNNING, ("ray_serve_replica_processing_queries",), _deployment),
    SeriesRow(Q.REQUESTS_OPEN, ("ray_serve_num_ongoing_requests_at_replicas",), _deployment),
    SeriesRow(Q.REQUESTS_FINISHED, ("ray_serve_deployment_request_counter_total",), _deployment, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FAILED, ("ray_serve_deployment_error_counter_total",), _deployment, unit=COUNTER),
    *(
        SeriesRow(
            Q.REQUESTS_FAILED,
            (f"ray_serve_num_deployment_{protocol}_error_requests_total",),
            _deployment,
            unit=COUNTER,
            keep=matching(lambda labels: labels.get("error_code") in _NO_REPLICA),
        )
        for protocol in ("http", "grpc")
    ),
)

RAY_SERVE = Kind(
    "ray_serve", {"ray_serve_": 2},
    port=8080,  # --metrics-export-port as KubeRay sets it; Ray alone picks a free one
    work=2.0, rows=_RAY_ROWS, subjects=_deployments,
    at_zero="queue",  # the handle in the proxy keeps the request
)  # fmt: skip


def _pools(keys: Sequence[Key]) -> list[Subject | None]:
    """A pool by its name. A series without a name belongs to the only pool: an EPP serves one."""
    named = sorted({pool for (pool,) in keys if pool})
    lone = named[0] if len(named) == 1 else UNNAMED
    return [Queue(pool or lone) for (pool,) in keys]


def _pool_totals(columns: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
    """Converts averages to totals: times the ready pods, or else the sum over pods, or else unknown.

    Without a ready pod the totals are unknown: an average keeps its last value, and anything times 0 pods is 0. Ready
    are pods whose metrics EPP has read within 2 s. A request that it has let through counts all the same.
    """
    unknown = np.full(len(subjects), np.nan)
    ready = columns.get(Q.REPLICAS_READY, unknown)
    none_ready, ready = ready == 0.0, np.where(ready > 0.0, ready, np.nan)
    if "average_waiting" in columns or "waiting_at_each" in columns:
        waiting = columns.get("average_waiting", unknown) * ready
        each = np.where(none_ready, np.nan, columns.get("waiting_at_each", unknown))
        columns[Q.REQUESTS_WAITING] = np.where(np.isnan(waiting), each, waiting)
    if "average_running" in columns or "running_through" in columns:
        running = columns.get("average_running", unknown) * ready
        through = columns.get("running_through", unknown)
        through = np.where(none_ready & ~(through > 0.0), np.nan, through)
        columns[Q.REQUESTS_RUNNING] = np.where(np.isnan(running), through, running)
    if Q.KV_CACHE_USED in columns:
        columns[Q.KV_CACHE_USED] = np.where(none_ready, np.nan, columns[Q.KV_CACHE_USED])
    return columns, subjects


# EPP: pkg/epp/metrics/metrics.go of the inference extension (v1.5) and of llm-d, which has its own names beside the
# old ones; compared with what v1.5.0 and llm-d 0.10.0 print. Flow control's queue appears once it is enabled and a
# request was queued: absent is unknown, not 0.
_POOL = label("inference_pool", "name")
_EPP_HELD = ("llm_d_epp_flow_control_queue_size", "inference_extension_flow_control_queue_size")
_EPP_EACH = ("llm_d_epp_per_endpoint_queue_size", "inference_pool_per_pod_queue_size")
_EPP_WAITING = ("llm_d_epp_average_queue_size", "inference_pool_average_queue_size")
_EPP_RUNNING = ("llm_d_epp_average_running_requests", "inference_pool_average_running_requests")
_EPP_THROUGH = ("llm_d_epp_request_running", "inference_objective_running_requests", "inference_model_running_requests")
_EPP_KV = ("llm_d_epp_average_kv_cache_utilization", "inference_pool_average_kv_cache_utilization")
_EPP_ERRORS = (
    "llm_d_epp_request_error_total",
    "inference_objective_request_error_total",
    "inference_model_request_error_total",
)
_EPP_READY = ("llm_d_epp_ready_endpoints", "inference_pool_ready_pods")
_EPP_ROWS = (
    SeriesRow(Q.REQUESTS_HELD, _EPP_HELD, _POOL),  # per flow and priority
    SeriesRow("waiting_at_each", _EPP_EACH, _POOL),
    SeriesRow("average_waiting", _EPP_WAITING, _POOL, Combine.COPY),
    SeriesRow("average_running", _EPP_RUNNING, _POOL, Combine.COPY),
    SeriesRow(Q.REQUESTS_OPEN, _EPP_THROUGH, _POOL),  # also where an engine that sleeps does not report them
    SeriesRow("running_through", _EPP_THROUGH, _POOL),  # open requests that it has let through, per model
    SeriesRow(Q.KV_CACHE_USED, _EPP_KV, _POOL, Combine.COPY, RATIO),
    SeriesRow(Q.REPLICAS_READY, _EPP_READY, _POOL, Combine.COPY),
    # Without flow control a request that finds no ready pod is rejected (ServiceUnavailable): only this shows it.
    SeriesRow(Q.REQUESTS_FAILED, _EPP_ERRORS, _POOL, unit=COUNTER),  # per model and error_code
)
_EPP_FEEDS = {
    "waiting_at_each": Q.REQUESTS_WAITING,
    "average_waiting": Q.REQUESTS_WAITING,
    "average_running": Q.REQUESTS_RUNNING,
    "running_through": Q.REQUESTS_RUNNING,
}
EPP = Kind(
    "epp", {"inference_pool_": 2, "inference_extension_": 2, "inference_objective_": 2, "llm_d_epp_": 2}, port=9090,
    work=16.0, rows=_EPP_ROWS, subjects=_pools, finish=_pool_totals, feeds=_EPP_FEEDS, repeats_engines=True,
    at_zero="queue", counts_open=True,
)  # fmt: skip


# Clusters that an Envoy's own bootstrap defines: its control plane (with streams that never end), its admin port
# (where its statistics are read), and the receivers of statistics, traces, access logs and filters. No application
# request passes through them. By author of the bootstrap:
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
# Istio's own agent in the pod. An application may have this name too, so it counts only beside Istio's control plane,
# which Istio's bootstrap always has in its statistics.
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
# are active at once, wherever they wait in the server. Without a healthy backend the response is 503 at once.
_CLUSTER = label("envoy_cluster_name", "cluster_name")
_ENVOY_ROWS = (
    SeriesRow(Q.REQUESTS_HELD, ("envoy_cluster_upstream_rq_pending_active",), _CLUSTER),
    SeriesRow(Q.REQUESTS_RUNNING, ("envoy_cluster_upstream_rq_active",), _CLUSTER),
    SeriesRow(Q.REQUESTS_FINISHED, ("envoy_cluster_upstream_rq_completed",), _CLUSTER, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FAILED, ("envoy_cluster_upstream_cx_none_healthy",), _CLUSTER, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FAILED, ("envoy_cluster_upstream_rq_pending_overflow",), _CLUSTER, unit=COUNTER),
)

ENVOY = Kind(
    "envoy", {"envoy_": 0}, port=9901, path="/stats/prometheus", work=16.0, rows=_ENVOY_ROWS, subjects=_clusters,
    repeats_engines=True, at_zero="refused", counts_open=True,
)  # fmt: skip


# LiteLLM: proxy/middleware/in_flight_requests_middleware.py, integrations/prometheus.py. In flight is every HTTP
# request, waiting or running, with health probes and the scrape itself: at least 1 in every scrape. Before the first
# failed request its counter is only declared. Without that zero a fresh proxy would show no refusals, and the first
# request after its restart would be the counter's first value, not a rise. With PROMETHEUS_MULTIPROC_DIR nothing is
# declared. Since 1.108 at the latest the page needs a key (`require_auth_for_metrics_endpoint`).
_LITELLM_TOTAL = ("litellm_proxy_total_requests_metric_total", "litellm_proxy_total_requests_metric")
_LITELLM_FAILED = ("litellm_proxy_failed_requests_metric_total", "litellm_proxy_failed_requests_metric")
_LITELLM_ROWS = (
    SeriesRow(Q.REQUESTS_RUNNING, ("litellm_in_flight_requests",), whole_response),  # one series per worker process
    SeriesRow(Q.REQUESTS_FINISHED, _LITELLM_TOTAL, whole_response, unit=COUNTER),
    SeriesRow(Q.REQUESTS_FAILED, _LITELLM_FAILED, whole_response, unit=COUNTER),
)
LITELLM = Kind(
    "litellm", {"litellm_": 2}, port=4000,
    path="/metrics/",  # without the slash the response is a redirect
    work=16.0, rows=_LITELLM_ROWS, repeats_engines=True, at_zero="refused",
    declares=(Q.REQUESTS_FAILED, Q.REQUESTS_FINISHED),
)  # fmt: skip

# Knative: pkg/activator/handler/metrics.go, pkg/queue/request_metric.go; OpenTelemetry's names since 1.19, OpenCensus'
# before. The activator is where requests wait at zero pods. The old one has only a concurrency, waiting or not.
# The queue-proxy's depth is left out: it is set when a request arrives, so the last value stays for ever.
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
    SeriesRow(Q.REQUESTS_HELD, ("kn_revision_request_queued",), _REVISION),
    SeriesRow(Q.REQUESTS_RUNNING, _KNATIVE_RUNNING, _REVISION),
    SeriesRow(Q.REQUESTS_FINISHED, _KNATIVE_FINISHED, _REVISION, unit=COUNTER),  # per response code
)
KNATIVE = Kind(
    "knative",
    {"kn_revision_request_": 2, "kn_serving_": 2, "activator_request_": 2, "revision_request_": 1,
     "revision_app_request_": 1, "revision_queue_depth": 1, "queue_proxy_": 1},
    port=9090,  # the activator's; a queue-proxy's is 9091
    work=16.0, rows=_KNATIVE_ROWS, subjects=in_full, repeats_engines=True, at_zero="in_flight", counts_open=True,
    namespaced=True,
)  # fmt: skip

# KEDA HTTP add-on: keda.sh/http-add-on reference/metrics (0.14 on) and interceptor/metrics (before: "pending", from the
# request's arrival to the end of its answer, per host). What waits for a replica and what one works on are one number.
_ROUTE = labels_of("route_namespace", ("route_name", "host"))
_HTTP_ADDON_IN_FLIGHT = ("interceptor_request_concurrency", "interceptor_pending_request_count")
_HTTP_ADDON_ROWS = (
    SeriesRow(Q.REQUESTS_RUNNING, _HTTP_ADDON_IN_FLIGHT, _ROUTE),
    # per method, path and code
    SeriesRow(Q.REQUESTS_FINISHED, ("interceptor_request_count_total",), _ROUTE, unit=COUNTER),
)
HTTP_ADDON = Kind(
    "http_addon", {"interceptor_pending_request_": 2, "interceptor_request_": 2}, port=2223, work=16.0,
    rows=_HTTP_ADDON_ROWS, subjects=in_full, repeats_engines=True, at_zero="in_flight", counts_open=True,
    namespaced=True,
)  # fmt: skip
