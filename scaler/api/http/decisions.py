"""Exposes the decisions of the Board and the readings behind them."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from scaler.model import Board, Decision

LABELS = ("namespace", "workload")

Value = Callable[[Decision, float], float | None]

# name, help, what of a Decision it shows. `now` is for ages.
FAMILIES: tuple[tuple[str, str, Value], ...] = (
    ("replicas", "Decided replicas.", lambda d, _: d.replicas),
    (
        "replicas_told",
        "Published replicas: the decision, rounded up where the HPA would ignore the step.",
        lambda d, _: d.told,
    ),
    (
        "active",
        "1: active. 0: may be scaled to zero.",
        lambda d, _: float(d.active) if d.known else None,
    ),
    ("reading_age_seconds", "Age of the oldest reading of the decision.", lambda d, now: _age(d.measured_at, now)),
    (
        "held_seconds",
        "Time on hold with stale readings; no sample while they are fresh.",
        lambda d, now: _age(d.held_since, now),
    ),
    (
        "idle_seconds",
        "Time without work; no sample while busy or unknown.",
        lambda d, now: _age(d.idle_since, now),
    ),
    ("requests_waiting", "Requests that wait in the engines.", lambda d, _: d.evidence.waiting),
    ("requests_running", "Requests in progress.", lambda d, _: d.evidence.running),
    ("requests_held", "Requests that the gateway holds.", lambda d, _: d.evidence.held_by_gateway),
    ("requests_per_second", "Rate of finished requests over a minute.", lambda d, _: d.evidence.requests_per_second),
    ("kv_cache_used_ratio", "Mean KV-cache usage of the replicas, 0 to 1.", lambda d, _: d.evidence.kv_cache_used),
    (
        "workload_gpu_engine_active_ratio",
        "Mean engine activity of its unshared GPUs, 0 to 1.",
        lambda d, _: d.evidence.gpu_engine_active,
    ),
    (
        "workload_gpu_engine_ceiling_ratio",
        "Highest possible engine activity, 0 to 1; only with MIG instances.",
        lambda d, _: d.evidence.gpu_engine_ceiling,
    ),
    (
        "workload_gpu_memory_held_bytes",
        "GPU memory that its pods hold, idle or not.",
        lambda d, _: d.evidence.gpu_memory_held_bytes,
    ),
    ("workload_gpus_lost", "GPUs without metrics after a fatal Xid error.", lambda d, _: d.evidence.gpus_lost),
    (
        "replicas_wanted_by_cluster",
        "Replicas that the cluster should run (spec.replicas).",
        lambda d, _: d.evidence.replicas_wanted,
    ),
    ("replicas_ready", "Ready replicas.", lambda d, _: d.evidence.replicas_ready),
    ("replicas_pending", "Replicas that no node has started.", lambda d, _: d.evidence.replicas_pending),
    ("replicas_sleeping", "Replicas with an engine in sleep mode.", lambda d, _: d.evidence.replicas_sleeping),
    (
        "keep_warm_seconds",
        "Keep-warm time: learned, or the value of `keep_warm`.",
        lambda d, _: d.evidence.keep_warm_s,
    ),
    (
        "starts_again_timestamp_seconds",
        "Time of the next predicted start; no sample if none is predicted.",
        lambda d, _: d.evidence.starts_again_at,
    ),
    (
        "keep_warm_saved_gpu_seconds_per_day",
        "Replica-seconds per day that the learned keep-warm time saves over the constant; negative: a loss.",
        lambda d, _: d.evidence.keep_warm_saves_gpu_seconds,
    ),
    (
        "keep_warm_saved_money_per_day",
        "The same with the cost of waiting for starts, in the currency of `prices`.",
        lambda d, _: d.evidence.keep_warm_saves_money,
    ),
    ("gpus_held", "GPUs that its running pods request.", lambda d, _: d.evidence.gpus_held),
    ("gpus_seen", "GPUs of these that a target attributes to this workload alone.", lambda d, _: d.evidence.gpus_seen),
    ("observed", "1: `mode: observe`; callers get an error. 0: `mode: act`.", lambda d, _: float(d.observed)),
    (
        "workload_brake_until_timestamp_seconds",
        "End of the effective brake; no sample without an end.",
        lambda d, _: d.evidence.brake_until,
    ),
    ("workload_schedule_floor", "Floor of the active schedules, in replicas.", lambda d, _: d.evidence.schedule_floor),
    (
        "workload_schedule_ceiling",
        "Ceiling of the active schedules, in replicas.",
        lambda d, _: d.evidence.schedule_ceiling,
    ),
    ("stale_sources", "Targets with stale readings. 0: all are fresh.", lambda d, _: float(len(d.evidence.stale))),
    (
        "incomplete_series",
        "Series that are missing, invalid, unparsable or conflicting. 0: all readings are complete.",
        lambda d, _: float(len(d.evidence.incomplete)),
    ),
)


def _labels(decision: Decision) -> tuple[str, str]:
    return decision.workload.namespace, decision.workload.label


def _age(since: float | None, now: float) -> float | None:
    return None if since is None else max(0.0, now - since)


class BoardCollector:
    """A Board never changes: that of the moment of collecting is written out later, in a thread."""

    def __init__(self, board: Callable[[], Board], now: Callable[[], float]) -> None:
        self._board, self._now = board, now

    def collect(self) -> Iterable[Metric]:
        board, now = self._board(), self._now()
        made = cache(lambda: {each.name: each.samples for each in families(board, now)})
        for family in families(replace(board, decisions={}), now):
            family.samples = _LazyDecisionSamples(made, family.name)  # type: ignore[assignment]
            yield family


class _LazyDecisionSamples:
    def __init__(self, made: Callable[[], Mapping[str, Iterable[Sample]]], name: str) -> None:
        self._made, self._name = made, name

    def __iter__(self) -> Iterator[Sample]:
        yield from self._made()[self._name]


def families(board: Board, now: float) -> Iterator[Metric]:
    """now: POSIX seconds. Five thousand workloads take half a second."""
    decisions = list(board.decisions.values())
    # A workload's labels are the same in all families: made once, they halve the time.
    labelled = [(decision, dict(zip(LABELS, _labels(decision), strict=True))) for decision in decisions]
    for name, text, value in FAMILIES:
        family = GaugeMetricFamily(f"tidegate_{name}", text, labels=LABELS)
        for decision, labels in labelled:
            number = value(decision, now)
            if number is not None:
                family.samples.append(Sample(family.name, labels, number))
        yield family
    yield from _objectives(decisions)
    yield _cold_starts(decisions)
    reasons = GaugeMetricFamily(
        "tidegate_reason",
        "1 for the current reason (docs/explanation/concepts.md).",
        labels=(*LABELS, "reason"),
    )
    for decision in decisions:
        reasons.add_metric((*_labels(decision), str(decision.reason)), 1.0)
    yield reasons
    yield _brakes(decisions)
    yield _provenance(decisions)
    yield GaugeMetricFamily("tidegate_board_version", "Version of the Board; each change adds one.", board.version)
    yield GaugeMetricFamily(
        "tidegate_board_age_seconds",
        "Time since the last sweep, normally at most one `tick`.",
        max(0.0, now - board.at),
    )


def _brakes(decisions: Iterable[Decision]) -> Metric:
    family = GaugeMetricFamily(
        "tidegate_workload_brake",
        "1 for the effective brake: freeze, never_down or floor.",
        labels=(*LABELS, "brake"),
    )
    for decision in decisions:
        if decision.evidence.brake is not None:
            family.add_metric((*_labels(decision), decision.evidence.brake.partition(" ")[0]), 1.0)
    return family


def _provenance(decisions: Iterable[Decision]) -> Metric:
    family = GaugeMetricFamily(
        "tidegate_workload_gpu_provenance",
        "1 for the source of its GPU activity: engine, utilisation, process, mixed or none.",
        labels=(*LABELS, "provenance"),
    )
    for decision in decisions:
        if decision.evidence.gpu_activity is not None:
            family.add_metric((*_labels(decision), decision.evidence.gpu_activity), 1.0)
    return family


def _cold_starts(decisions: Iterable[Decision]) -> Metric:
    family = GaugeMetricFamily(
        "tidegate_cold_start_seconds",
        "Start time from pod creation to first token, without the wait for a node.",
        labels=(*LABELS, "quantile"),
    )
    for decision in decisions:
        evidence = decision.evidence
        for quantile, seconds in (("0.5", evidence.cold_start_p50_s), ("0.9", evidence.cold_start_p90_s)):
            if seconds is not None:
                family.add_metric((*_labels(decision), quantile), seconds)
    return family


def _objectives(decisions: Iterable[Decision]) -> Iterable[Metric]:
    labels = (*LABELS, "objective")
    signal = GaugeMetricFamily(
        "tidegate_signal", "Smoothed signal of an objective: requests, or a ratio 0 to 1.", labels=labels
    )
    target = GaugeMetricFamily(
        "tidegate_signal_target", "Target of the signal per replica, in its unit.", labels=labels
    )
    demand = GaugeMetricFamily(
        "tidegate_demand_replicas", "Unrounded replicas that this objective requests.", labels=labels
    )
    for decision in decisions:
        for objective in decision.evidence.objectives:
            where = (*_labels(decision), objective.name)
            target.add_metric(where, objective.target)
            if objective.value is not None:
                signal.add_metric(where, objective.value)
            if objective.replicas is not None:
                demand.add_metric(where, objective.replicas)
    yield from (signal, target, demand)
