"""What stands in front of engines: Ray Serve, the Gateway API's endpoint picker (EPP), and Redis queues.

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

from .engines import UNNAMED, as_it_is
from .kind import Kind, compile_table
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
# Processing and ongoing are the same requests seen at two ends: the replicas' own count, or else the handles'.
# Every counter is printed twice, `x_total` and a gauge `x`: only the first is a counter.
_RAY_WAITING = ("ray_serve_deployment_queued_queries",)
_RAY_RUNNING = ("ray_serve_replica_processing_queries", "ray_serve_num_ongoing_requests_at_replicas")
_RAY_FINISHED = ("ray_serve_deployment_request_counter_total",)
_RAY_FAILED = ("ray_serve_deployment_error_counter_total",)
_RAY_ROWS = (
    Row(Q.REQUESTS_WAITING, _RAY_WAITING, _deployment),
    Row(Q.REQUESTS_RUNNING, _RAY_RUNNING, _deployment),
    Row(Q.REQUESTS_FINISHED, _RAY_FINISHED, _deployment, unit=COUNTER),
    Row(Q.REQUESTS_FAILED, _RAY_FAILED, _deployment, unit=COUNTER),
)


def _pools(keys: Sequence[Key]) -> list[Subject | None]:
    """A pool by its name. A series that names none is the pool's: an EPP serves one."""
    named = sorted({pool for (pool,) in keys if pool})
    lone = named[0] if len(named) == 1 else UNNAMED
    return [Queue(pool or lone) for (pool,) in keys]


def _pool_totals(columns: Columns, subjects: tuple[Subject, ...]) -> tuple[Columns, tuple[Subject, ...]]:
    """Averages become totals: times the ready pods, or else the sum over pods, or else unknown."""
    unknown = np.full(len(subjects), np.nan)
    ready = columns.get(Q.REPLICAS_READY, unknown)
    if "average_waiting" in columns or "waiting_at_each" in columns:
        waiting = columns.get("average_waiting", unknown) * ready
        columns[Q.REQUESTS_WAITING] = np.where(np.isnan(waiting), columns.get("waiting_at_each", unknown), waiting)
    if "average_running" in columns:
        columns[Q.REQUESTS_RUNNING] = columns["average_running"] * ready
    return columns, subjects


# EPP: pkg/epp/metrics/metrics.go of the inference extension (v1.5) and of llm-d, which prints its own names beside the
# old ones. Flow control's queue appears when it is switched on and something was queued: absent is unknown, not 0.
_POOL = label("inference_pool", "name")
_EPP_HELD = ("llm_d_epp_flow_control_queue_size", "inference_extension_flow_control_queue_size")
_EPP_EACH = ("llm_d_epp_per_endpoint_queue_size", "inference_pool_per_pod_queue_size")
_EPP_WAITING = ("llm_d_epp_average_queue_size", "inference_pool_average_queue_size")
_EPP_RUNNING = ("llm_d_epp_average_running_requests", "inference_pool_average_running_requests")
_EPP_KV = ("llm_d_epp_average_kv_cache_utilization", "inference_pool_average_kv_cache_utilization")
_EPP_READY = ("llm_d_epp_ready_endpoints", "inference_pool_ready_pods")
_EPP_ROWS = (
    Row(Q.REQUESTS_HELD, _EPP_HELD, _POOL),  # per flow and priority
    Row("waiting_at_each", _EPP_EACH, _POOL),
    Row("average_waiting", _EPP_WAITING, _POOL, Combine.COPY),
    Row("average_running", _EPP_RUNNING, _POOL, Combine.COPY),
    Row(Q.KV_CACHE_USED, _EPP_KV, _POOL, Combine.COPY, RATIO),
    Row(Q.REPLICAS_READY, _EPP_READY, _POOL, Combine.COPY),
)


def _redis_key(labels: Labels) -> Key:
    return (labels.get("db", ""), labels.get("key", ""))


def _redis_group(labels: Labels) -> Key:
    return (labels.get("db", ""), labels.get("stream", ""), labels.get("group", ""))


def _redis_subjects(keys: Sequence[Key]) -> list[Subject | None]:
    """Lists by key, streams by stream/group; with the database only where two have one of that name.

    The size of a key that is a stream is left out: it counts entries, read or not, and is no backlog.
    """
    streams = {key[:2] for key in keys if len(key) == len(("db", "stream", "group"))}
    names = ["/".join(key[1:]) for key in keys]
    return [
        None if key in streams else Queue(f"{key[0]}/{name}" if names.count(name) > 1 else name)
        for key, name in zip(keys, names, strict=True)
    ]


# redis_exporter: exporter/keys.go (--check-keys, --check-single-keys), exporter/streams.go (--check-streams). Lag is
# what no consumer has, pending what one has and has not acknowledged. A lag Redis cannot tell is printed as 0.
_REDIS_ROWS = (
    Row(Q.REQUESTS_WAITING, ("redis_key_size",), _redis_key),
    Row(Q.REQUESTS_WAITING, ("redis_stream_group_lag",), _redis_group),
    Row(Q.REQUESTS_RUNNING, ("redis_stream_group_messages_pending",), _redis_group),
)

RAY_SERVE = Kind(
    name="ray_serve",
    signs={"ray_serve_": 2},
    port=8080,  # --metrics-export-port as KubeRay sets it; Ray alone picks a free one
    path="/metrics",
    work=2.0,
    compile=partial(compile_table, "ray_serve", Table(_RAY_ROWS, _deployments, as_it_is)),
)
EPP = Kind(
    name="epp",
    signs={"inference_pool_": 2, "inference_extension_": 2, "inference_objective_": 2, "llm_d_epp_": 2},
    port=9090,
    path="/metrics",
    work=16.0,
    compile=partial(compile_table, "epp", Table(_EPP_ROWS, _pools, _pool_totals)),
    repeats_engines=True,
)
REDIS_EXPORTER = Kind(
    name="redis_exporter",
    signs={"redis_": 2},
    port=9121,
    path="/metrics",
    work=1.0,
    compile=partial(compile_table, "redis_exporter", Table(_REDIS_ROWS, _redis_subjects, as_it_is)),
)
