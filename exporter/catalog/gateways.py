"""What stands in front of engines and knows their number: Ray Serve and the Gateway API's endpoint picker (EPP).

These pages see requests that no engine has yet. They also repeat what the engines say (EPP's averages), which is kept
apart: `requests_held` is what the gateway itself keeps.

Worked example: `inference_pool_average_queue_size{name="p"} 0.5` and `inference_pool_ready_pods{name="p"} 4` make
2.0 requests waiting for `Queue("p")`: an average over ready pods means nothing without their number.
"""

from __future__ import annotations

from collections.abc import Sequence
from functools import partial

import numpy as np

from exporter.model import Quantity, Queue, Subject

from .kind import Kind, compile_table
from .naming import UNNAMED
from .words import COUNTER, RATIO, Columns, Combine, Key, Labels, Row, Table, label

Q = Quantity


def _deployment(labels: Labels) -> Key:
    return (labels.get("application", ""), labels.get("deployment", ""))


def _deployments(keys: Sequence[Key]) -> list[Subject | None]:
    """A deployment by its name; with its application only where two applications have one of that name."""
    names = [deployment for _, deployment in keys]
    return [
        Queue(f"{application}/{deployment}" if names.count(deployment) > 1 else deployment or UNNAMED)
        for application, deployment in keys
    ]


# Ray Serve: python/ray/serve/_private. A deployment's queue is spread over its handles, its work over its replicas.
# Processing and ongoing are the same requests seen at two ends, the replicas' own count and the handles', reported at
# different moments: with 7 requests ongoing a replica may say 1. They are not added, and the larger one counts.
# Every counter is printed twice, `x_total` and a gauge `x`: only the first is a counter.
_RAY_WAITING = ("ray_serve_deployment_queued_queries",)
_RAY_PROCESSING, _RAY_ONGOING = "ray_serve_replica_processing_queries", "ray_serve_num_ongoing_requests_at_replicas"
_RAY_FINISHED = ("ray_serve_deployment_request_counter_total",)
_RAY_FAILED = ("ray_serve_deployment_error_counter_total",)
_RAY_ROWS = (
    Row(Q.REQUESTS_WAITING, _RAY_WAITING, _deployment),
    Row(Q.REQUESTS_RUNNING, (_RAY_PROCESSING,), _deployment),
    Row("ongoing", (_RAY_ONGOING,), _deployment),
    Row(Q.REQUESTS_FINISHED, _RAY_FINISHED, _deployment, unit=COUNTER),
    Row(Q.REQUESTS_FAILED, _RAY_FAILED, _deployment, unit=COUNTER),
)


def _larger_view(columns: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
    """What runs, by the replicas or by the handles, whichever says more or says anything."""
    views = [columns[name] for name in (Q.REQUESTS_RUNNING, "ongoing") if name in columns]
    if views:
        columns[Q.REQUESTS_RUNNING] = np.fmax.reduce(views)
    return columns, subjects


def _pools(keys: Sequence[Key]) -> list[Subject | None]:
    """A pool by its name. A series that names none is the pool's: an EPP serves one."""
    named = sorted({pool for (pool,) in keys if pool})
    lone = named[0] if len(named) == 1 else UNNAMED
    return [Queue(pool or lone) for (pool,) in keys]


def _pool_totals(columns: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
    """Averages become totals: times the ready pods, or else the sum over pods, or else unknown.

    With no pod ready there is nobody to average over: an average of 0 is then what the code begins with, and times 0
    ready pods anything is 0. What waits in pods that are not ready nobody knows here.
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
        through = np.where(none_ready, np.nan, columns.get("running_through", unknown))
        columns[Q.REQUESTS_RUNNING] = np.where(np.isnan(running), through, running)
    return columns, subjects


# EPP: pkg/epp/metrics/metrics.go of the inference extension (v1.5) and of llm-d, which prints its own names beside the
# old ones. Flow control's queue appears when it is switched on and something was queued: absent is unknown, not 0.
_POOL = label("inference_pool", "name")
_EPP_HELD = ("llm_d_epp_flow_control_queue_size", "inference_extension_flow_control_queue_size")
_EPP_EACH = ("llm_d_epp_per_endpoint_queue_size", "inference_pool_per_pod_queue_size")
_EPP_WAITING = ("llm_d_epp_average_queue_size", "inference_pool_average_queue_size")
_EPP_RUNNING = ("llm_d_epp_average_running_requests", "inference_pool_average_running_requests")
_EPP_THROUGH = (
    "llm_d_epp_request_running",
    "inference_objective_running_requests",
    "inference_model_running_requests",
)
_EPP_KV = ("llm_d_epp_average_kv_cache_utilization", "inference_pool_average_kv_cache_utilization")
_EPP_ERRORS = (
    "llm_d_epp_request_error_total",
    "inference_objective_request_error_total",
    "inference_model_request_error_total",
)
_EPP_READY = ("llm_d_epp_ready_endpoints", "inference_pool_ready_pods")
_EPP_ROWS = (
    Row(Q.REQUESTS_HELD, _EPP_HELD, _POOL),  # per flow and priority
    Row("waiting_at_each", _EPP_EACH, _POOL),
    Row("average_waiting", _EPP_WAITING, _POOL, Combine.COPY),
    Row("average_running", _EPP_RUNNING, _POOL, Combine.COPY),
    Row("running_through", _EPP_THROUGH, _POOL),  # what it has let through and is not answered, per model
    Row(Q.KV_CACHE_USED, _EPP_KV, _POOL, Combine.COPY, RATIO),
    Row(Q.REPLICAS_READY, _EPP_READY, _POOL, Combine.COPY),
    # Without flow control a request that finds no ready pod is refused (ServiceUnavailable): all that shows of it.
    Row(Q.REQUESTS_FAILED, _EPP_ERRORS, _POOL, unit=COUNTER),  # per model and error_code
)
_EPP_FEEDS = {
    "waiting_at_each": Q.REQUESTS_WAITING,
    "average_waiting": Q.REQUESTS_WAITING,
    "average_running": Q.REQUESTS_RUNNING,
    "running_through": Q.REQUESTS_RUNNING,
}

RAY_SERVE = Kind(
    name="ray_serve",
    signs={"ray_serve_": 2},
    port=8080,  # --metrics-export-port as KubeRay sets it; Ray alone picks a free one
    path="/metrics",
    work=2.0,
    compile=partial(compile_table, "ray_serve", Table(_RAY_ROWS, _deployments, _larger_view)),
    at_zero="queue",  # the handle in the proxy keeps the request
)
EPP = Kind(
    name="epp",
    signs={"inference_pool_": 2, "inference_extension_": 2, "inference_objective_": 2, "llm_d_epp_": 2},
    port=9090,
    path="/metrics",
    work=16.0,
    compile=partial(compile_table, "epp", Table(_EPP_ROWS, _pools, _pool_totals, _EPP_FEEDS)),
    repeats_engines=True,
    at_zero="queue",
)
