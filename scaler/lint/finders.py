"""Which function looks at which objects. A table: the order is that of the rules, and no function knows of another.

Worked example: `remarks(thing, seen)` of a ScaledObject asks each of `OF_AUTOSCALERS`.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping

from ..config.remark import Remark
from . import of_bounds, of_conditions, of_hpa, of_monitors, of_pods, of_queries, of_zero
from .seen import Seen
from .things import PROMETHEUS, Thing
from .workloads import Workload, workload

OF_AUTOSCALERS = (
    of_zero.nothing_wakes,
    of_zero.zero_while_loading,
    of_zero.idle_replica_count,
    of_zero.activation_above_target,
    of_zero.polled_seldom,
    of_zero.queue_alone,
    of_bounds.two_writers,
    of_bounds.max_missing,
    of_bounds.min_above_max,
    of_bounds.zero_without_external,
    of_bounds.formula_replaces,
    of_hpa.smoothed_twice,
    of_hpa.default_window,
    of_hpa.lost_in_tolerance,
    of_hpa.direction_disabled,
    of_hpa.metric_type,
    of_hpa.cached_metrics,
    of_hpa.plain_text,
    of_queries.gpu_util_on_mig,
    of_queries.gpu_util_as_load,
    of_queries.memory_as_load,
    of_queries.ratio_against_percent,
    of_queries.empty_is_zero,
    of_queries.long_window,
    of_queries.renamed_metric,
    of_monitors.exporters_labels,
    of_pods.target_above_limit,
)
# In a live cluster.
OF_CONDITIONS = (
    of_conditions.metric_unread,
    of_conditions.target_missing,
    of_conditions.not_ready,
    of_conditions.at_maximum,
    of_conditions.on_fallback,
)
OF_WORKLOADS = (
    of_bounds.replicas_in_manifest,
    of_pods.target_above_limit_of_words,
)
# Of what works on GPUs or asks Tidegate.
OF_SERVERS = (
    of_pods.grace_too_short,
    of_pods.no_prestop,
    of_pods.no_drain,
    of_pods.no_readiness,
    of_pods.killed_while_loading,
    of_pods.metrics_off,
)
OF_OTHERS: Mapping[str, Callable[[Thing, Seen], Iterator[Remark]]] = {
    "PodDisruptionBudget": of_bounds.drain_blocked,
    "VerticalPodAutoscaler": of_bounds.restarted_by_vpa,
    "ServiceMonitor": of_monitors.scraped_seldom,
    "PodMonitor": of_monitors.scraped_seldom,
    PROMETHEUS: of_monitors.scraped_seldom,
}


def remarks(thing: Thing, seen: Seen) -> Iterator[Remark]:
    """What the rules say of one object among all others."""
    scaler = seen.autoscalers.get(thing)
    if scaler is not None:
        for of_autoscaler in (*(() if scaler.is_kedas else OF_AUTOSCALERS), *(OF_CONDITIONS if seen.live else ())):
            yield from of_autoscaler(scaler, seen)
    target = workload(thing)
    if target is not None:
        for of_workload in (*OF_WORKLOADS, *(OF_SERVERS if _serves(target, seen) else ())):
            yield from of_workload(target, seen)
    if thing.kind in OF_OTHERS:
        yield from OF_OTHERS[thing.kind](thing, seen)


def _serves(target: Workload, seen: Seen) -> bool:
    scalers = seen.scalers_of(target)
    return bool(scalers) and (target.on_gpus or any(one.ours for one in scalers))
