"""The Board as Prometheus metrics. An unknown value has no sample: absence is what Prometheus has for unknown."""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping
from dataclasses import replace
from functools import cache

from prometheus_client.core import GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from ..board import Board, Decision

LABELS = ("namespace", "workload")

Value = Callable[[Decision, float], float | None]

# name, help, what of a Decision it shows. `now` is for ages.
FAMILIES: tuple[tuple[str, str, Value], ...] = (
    ("replicas", "Replicas wanted: the decision.", lambda d, _: d.replicas),
    (
        "replicas_told",
        "What KEDA and HPA are told: the decision, rounded outward where the HPA would drop a step up as too small.",
        lambda d, _: d.told,
    ),
    (
        "active",
        "1 if the workload is active, 0 if it may be at zero.",
        lambda d, _: float(d.active) if d.known else None,
    ),
    ("reading_age_seconds", "Age of the oldest reading behind the decision.", lambda d, now: _age(d.measured_at, now)),
    (
        "held_seconds",
        "How long the decision has been held on stale readings; no sample while they are fresh.",
        lambda d, now: _age(d.held_since, now),
    ),
    (
        "idle_seconds",
        "How long nothing has been to be done; no sample while busy or unknown.",
        lambda d, now: _age(d.idle_since, now),
    ),
    ("requests_waiting", "Requests waiting in the engines.", lambda d, _: d.evidence.waiting),
    ("requests_running", "Requests being worked on.", lambda d, _: d.evidence.running),
    ("requests_held", "Requests held by the gateway.", lambda d, _: d.evidence.held_by_gateway),
    ("requests_per_second", "Requests finished per second over a minute.", lambda d, _: d.evidence.requests_per_second),
    ("kv_cache_used_ratio", "KV-cache use, mean over replicas, 0..1.", lambda d, _: d.evidence.kv_cache_used),
    (
        "workload_gpu_engine_active_ratio",
        "GPU engine activity, mean over GPUs that are wholly the workload's, 0..1.",
        lambda d, _: d.evidence.gpu_engine_active,
    ),
    (
        "workload_gpu_engine_ceiling_ratio",
        "What the engine activity may top at, where MIG instances are among its GPUs.",
        lambda d, _: d.evidence.gpu_engine_ceiling,
    ),
    (
        "workload_gpu_memory_held_bytes",
        "GPU memory that its pods hold. Residency, never activity.",
        lambda d, _: d.evidence.gpu_memory_held_bytes,
    ),
    ("workload_gpus_lost", "GPUs of its own that fell silent after a fatal Xid.", lambda d, _: d.evidence.gpus_lost),
    ("replicas_wanted_by_cluster", "Replicas the cluster was told to run.", lambda d, _: d.evidence.replicas_wanted),
    ("replicas_ready", "Replicas that serve.", lambda d, _: d.evidence.replicas_ready),
    ("replicas_pending", "Replicas that no node has begun to run.", lambda d, _: d.evidence.replicas_pending),
    ("replicas_sleeping", "Replicas whose engines are in sleep mode.", lambda d, _: d.evidence.replicas_sleeping),
    (
        "keep_warm_seconds",
        "How long the workload is kept warm when idle: learned, or the constant of the configuration.",
        lambda d, _: d.evidence.keep_warm_s,
    ),
    (
        "starts_again_timestamp_seconds",
        "When a start in advance of the next request begins; no sample where none is foreseen.",
        lambda d, _: d.evidence.starts_again_at,
    ),
    (
        "keep_warm_saved_gpu_seconds_per_day",
        "Seconds of a replica that the learned keep-warm time saves a day against the constant; below 0 is a loss.",
        lambda d, _: d.evidence.keep_warm_saves_gpu_seconds,
    ),
    (
        "keep_warm_saved_money_per_day",
        "The same with what waiting for starts costs, in the money of `prices`.",
        lambda d, _: d.evidence.keep_warm_saves_money,
    ),
    ("gpus_held", "GPUs that the workload's running pods asked for.", lambda d, _: d.evidence.gpus_held),
    ("gpus_seen", "Of those, the ones that a page shows as wholly its own.", lambda d, _: d.evidence.gpus_seen),
    ("observed", "1 if it is observed only: who asks for its number gets an error.", lambda d, _: float(d.observed)),
    (
        "workload_brake_until_timestamp_seconds",
        "When the brake that decides ends; no sample for one without an end.",
        lambda d, _: d.evidence.brake_until,
    ),
    ("workload_schedule_floor", "Replicas that schedules keep at least.", lambda d, _: d.evidence.schedule_floor),
    ("workload_schedule_ceiling", "Replicas that schedules allow at most.", lambda d, _: d.evidence.schedule_ceiling),
    ("stale_sources", "Sources whose readings are too old to believe.", lambda d, _: float(len(d.evidence.stale))),
    (
        "incomplete_series",
        "Series of its sources that are missing, invalid, unparsable or conflicting. 0: all readings are complete.",
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
            family.samples = _Later(made, family.name)  # type: ignore[assignment]
            yield family


class _Later:
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
        "1 for the reason that holds, of the list in docs/explanation/concepts.md.",
        labels=(*LABELS, "reason"),
    )
    for decision in decisions:
        reasons.add_metric((*_labels(decision), str(decision.reason)), 1.0)
    yield reasons
    yield _brakes(decisions)
    yield _provenance(decisions)
    yield GaugeMetricFamily("tidegate_board_version", "Rises with every change of the Board, by one.", board.version)
    yield GaugeMetricFamily(
        "tidegate_board_age_seconds",
        "Time since the last sweep over all workloads: a tick at the most, as a rule.",
        max(0.0, now - board.at),
    )


def _brakes(decisions: Iterable[Decision]) -> Metric:
    family = GaugeMetricFamily(
        "tidegate_workload_brake",
        "1 for the brake that decides: freeze, never_down or floor.",
        labels=(*LABELS, "brake"),
    )
    for decision in decisions:
        if decision.evidence.brake is not None:
            family.add_metric((*_labels(decision), decision.evidence.brake.partition(" ")[0]), 1.0)
    return family


def _provenance(decisions: Iterable[Decision]) -> Metric:
    family = GaugeMetricFamily(
        "tidegate_workload_gpu_provenance",
        "1 for how the activity of its GPUs is known: engine, utilisation, process, mixed or none.",
        labels=(*LABELS, "provenance"),
    )
    for decision in decisions:
        if decision.evidence.gpu_activity is not None:
            family.add_metric((*_labels(decision), decision.evidence.gpu_activity), 1.0)
    return family


def _cold_starts(decisions: Iterable[Decision]) -> Metric:
    family = GaugeMetricFamily(
        "tidegate_cold_start_seconds",
        "How long a start takes, from its pod's creation to its first token, less the time without a node for it.",
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
        "tidegate_signal", "An objective's smoothed signal: requests, or a ratio 0..1.", labels=labels
    )
    target = GaugeMetricFamily(
        "tidegate_signal_target", "What one replica should carry of the signal, in its unit.", labels=labels
    )
    demand = GaugeMetricFamily(
        "tidegate_demand_replicas", "Replicas that an objective alone asks for, unrounded.", labels=labels
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
