"""Exposes decisions, controller outcomes, the Kubernetes API data, leader election and checkpoints on /metrics.

`collect` runs in the event loop and copies what changes. Samples of whole fleets are made when they are written, in a
thread: those of 5,000 workloads take half a second, in which no call would be answered.

Worked example: `OutcomeCollector(view.all)` exposes
`tidegate_controller_outcome{namespace="ai",workload="chat",code="paused"} 1`.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import replace
from functools import cache, partial

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
from prometheus_client.metrics_core import Metric
from prometheus_client.samples import Sample

from exporter.kubernetes.cache import Cluster
from exporter.kubernetes.resources import RESOURCES
from exporter.scrape.metrics import LazySamples, lazily
from scaler.engine.checkpoint_store import CheckpointStore
from scaler.explain.outcome import OutcomeRow
from scaler.ha.replica import Replica
from scaler.model import Board, Decision
from scaler.workloads import ObjectError

LABELS = ("namespace", "workload")

Value = Callable[[Decision, float], float | None]

# name, help, value by Decision and `now` (POSIX seconds, for ages); None is no sample.
FAMILIES: tuple[tuple[str, str, Value], ...] = (
    ("replicas", "Decided replicas.", lambda d, _: d.replicas),
    (
        "published_replicas",
        "Published replicas: the decision, rounded up where the HPA would ignore the step.",
        lambda d, _: d.published,
    ),
    (
        "active",
        "1: active. 0: may be scaled to zero.",
        lambda d, _: float(d.active) if d.replicas is not None else None,
    ),
    ("reading_age_seconds", "Age of the oldest reading of the decision.", lambda d, now: _age(d.measured_at, now)),
    (
        "held_seconds",
        "Time on hold with stale readings; no sample while they are fresh.",
        lambda d, now: _age(d.held_since, now),
    ),
    ("idle_seconds", "Time without work; no sample while busy or unknown.", lambda d, now: _age(d.idle_since, now)),
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
    ("spec_replicas", "Replicas that the cluster should run (spec.replicas).", lambda d, _: d.evidence.replicas_wanted),
    ("replicas_ready", "Ready replicas.", lambda d, _: d.evidence.replicas_ready),
    ("replicas_pending", "Replicas that no node has started.", lambda d, _: d.evidence.replicas_pending),
    ("replicas_sleeping", "Replicas with an engine in sleep mode.", lambda d, _: d.evidence.replicas_sleeping),
    ("wake_seconds", "Median time of a wake from sleep mode.", lambda d, _: d.evidence.wake_s),
    (
        "gpu_share_replicas",
        "Replicas that its share of the GPUs has room for; no sample without `sharing`.",
        lambda d, _: d.evidence.gpu_share_replicas,
    ),
    (
        "keep_warm_seconds",
        "Keep-warm time: estimated, or the value of `keep_warm`.",
        lambda d, _: d.evidence.keep_warm_s,
    ),
    (
        "prewarm_timestamp_seconds",
        "Time of the next predicted start; no sample if none is predicted.",
        lambda d, _: d.evidence.starts_again_at,
    ),
    (
        "keep_warm_saved_gpu_seconds_per_day",
        "Replica-seconds per day that the estimated keep-warm time saves over the constant; negative: a loss.",
        lambda d, _: d.evidence.keep_warm_saves_gpu_seconds,
    ),
    (
        "keep_warm_saved_money_per_day",
        "The same with the cost of waiting for starts, in the currency of `prices`.",
        lambda d, _: d.evidence.keep_warm_saves_money,
    ),
    (
        "slo_error_budget_ratio",
        "Part of the 3-day error budget that is left; below 0: overspent.",
        lambda d, _: d.evidence.slo_error_budget,
    ),
    (
        "request_replica_seconds",
        "Replica-seconds that one request takes, estimated.",
        lambda d, _: d.evidence.request_replica_s,
    ),
    ("gpus_held", "GPUs that its running pods request.", lambda d, _: d.evidence.gpus_held),
    (
        "gpus_attributed",
        "GPUs of these that a target attributes to this workload alone.",
        lambda d, _: d.evidence.gpus_attributed,
    ),
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
    ("stale_targets", "Targets with stale readings. 0: all are fresh.", lambda d, _: float(len(d.evidence.stale))),
    (
        "incomplete_series",
        "Series that are missing, invalid, unparsable or conflicting. 0: all readings are complete.",
        lambda d, _: float(len(d.evidence.incomplete)),
    ),
)
COUNTERS: tuple[tuple[str, str, Value], ...] = (
    (
        "slo_requests",
        "Requests that are measured against the SLO. No sample: none is.",
        lambda d, _: d.evidence.slo_requests_total,
    ),
    (
        "slo_misses",
        "Requests that missed the SLO; one that missed both latencies counts twice.",
        lambda d, _: d.evidence.slo_misses_total,
    ),
)
OUTCOME_FAMILIES = (
    ("tidegate_hpa_desired_replicas", "Desired replicas of the workload's HPA.", ()),
    ("tidegate_hpa_condition", "1 for each condition of the workload's HPA.", ("type", "status", "reason")),
    (
        "tidegate_controller_outcome",
        "1 for the current controller outcome (docs/explanation/controller-outcome.md).",
        ("code",),
    ),
)


class BoardCollector:
    """Exposes the decisions of the Board and the readings behind them.

    now: POSIX seconds.
    """

    def __init__(self, board: Callable[[], Board], now: Callable[[], float]) -> None:
        self._board, self._now = board, now

    def collect(self) -> Iterable[Metric]:
        board, now = self._board(), self._now()
        yield from lazily(lambda: families(board, now), families(replace(board, decisions={}), now))


def families(board: Board, now: float) -> Iterator[Metric]:
    """All metric families of one Board. now: POSIX seconds."""
    decisions = list(board.decisions.values())
    # One dict of labels per workload for all families: that halves the time.
    labelled = [(decision, dict(zip(LABELS, _labels(decision), strict=True))) for decision in decisions]
    for kind, suffix, table in ((GaugeMetricFamily, "", FAMILIES), (CounterMetricFamily, "_total", COUNTERS)):
        for name, text, value in table:
            family = kind(f"tidegate_{name}", text, labels=LABELS)
            for decision, labels in labelled:
                number = value(decision, now)
                if number is not None:
                    family.samples.append(Sample(family.name + suffix, labels, number))
            yield family
    yield from _objectives(decisions)
    yield _attainment(decisions)
    yield from _cold_starts(decisions)
    yield _coded(
        "reason",
        "1 for the current reason (docs/explanation/concepts.md).",
        decisions,
        lambda d: str(d.reason),
        "reason",
    )
    yield _coded(
        "sleep_tier",
        "1 for the state of `sleep_mode`: ready, asleep or zero.",
        decisions,
        lambda d: d.evidence.sleep_tier,
        "tier",
    )
    yield _coded(
        "workload_brake",
        "1 for the effective brake: freeze, never_down or floor.",
        decisions,
        lambda d: None if d.evidence.brake is None else d.evidence.brake.partition(" ")[0],
        "brake",
    )
    yield _coded(
        "workload_gpu_provenance",
        "1 for the source of its GPU activity: engine, utilisation, process, mixed or none.",
        decisions,
        lambda d: d.evidence.gpu_activity,
        "provenance",
    )
    yield GaugeMetricFamily("tidegate_board_version", "Version of the Board; each change adds one.", board.version)
    yield GaugeMetricFamily(
        "tidegate_board_age_seconds",
        "Time since the last sweep.",
        max(0.0, now - board.at),
    )


def _labels(decision: Decision) -> tuple[str, str]:
    return decision.workload.namespace, decision.workload.label


def _age(since: float | None, now: float) -> float | None:
    return None if since is None else max(0.0, now - since)


def _coded(
    name: str, text: str, decisions: Iterable[Decision], code: Callable[[Decision], str | None], label: str
) -> Metric:
    """A family with a sample of 1 for the code of each decision that has one."""
    family = GaugeMetricFamily(f"tidegate_{name}", text, labels=(*LABELS, label))
    for decision in decisions:
        if (value := code(decision)) is not None:
            family.add_metric((*_labels(decision), value), 1.0)
    return family


def _split(name: str, text: str, decisions: Iterable[Decision], label: str, fields: Mapping[str, str]) -> Metric:
    """A family with a sample for each field of the evidence that is known. fields: by the value of the label."""
    family = GaugeMetricFamily(f"tidegate_{name}", text, labels=(*LABELS, label))
    for decision in decisions:
        for value, field in fields.items():
            if (number := getattr(decision.evidence, field)) is not None:
                family.add_metric((*_labels(decision), value), number)
    return family


def _cold_starts(decisions: Sequence[Decision]) -> Iterable[Metric]:
    text = "Start time from pod creation to first token, without the wait for a node."
    fields = {"0.5": "cold_start_p50_s", "0.9": "cold_start_p90_s"}
    yield _split("cold_start_seconds", text, decisions, "quantile", fields)
    text = "Start time of the first replica after zero: mean and 90th percentile."
    fields = {"mean": "zero_start_mean_s", "p90": "zero_start_p90_s"}
    yield _split("zero_start_seconds", text, decisions, "statistic", fields)


def _attainment(decisions: Iterable[Decision]) -> Metric:
    text = "Requests of the window that met the SLO, 0 to 1; no sample: none is measured."
    fields = {"1h": "slo_attainment_hour", "3d": "slo_attainment"}
    return _split("slo_attainment_ratio", text, decisions, "window", fields)


def _objectives(decisions: Iterable[Decision]) -> Iterable[Metric]:
    labels = (*LABELS, "objective")
    signal = GaugeMetricFamily(
        "tidegate_signal",
        "Smoothed signal of an objective: requests, a ratio 0 to 1, or (slo) replicas of the work.",
        labels=labels,
    )
    target = GaugeMetricFamily(
        "tidegate_signal_target", "Target of the signal per replica, in its unit; 1 for slo.", labels=labels
    )
    demand = GaugeMetricFamily(
        "tidegate_demand_replicas",
        "Unrounded replicas that this objective requests; for slo with headroom, backlog and hold.",
        labels=labels,
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


class OutcomeCollector:
    """Exposes the controller outcome: what KEDA and the HPA do with the published replicas.

    outcomes: copies the cluster; what it returns computes the row of every workload. 10,000 take a second.
    """

    def __init__(self, outcomes: Callable[[], Callable[[], Iterable[OutcomeRow]]]) -> None:
        self._outcomes = outcomes

    def collect(self) -> Iterable[Metric]:
        rows = cache(self._outcomes())
        for (name, text, labels), samples in zip(OUTCOME_FAMILIES, (_desired, _conditions, _codes), strict=True):
            family = GaugeMetricFamily(name, text, labels=(*LABELS, *labels))
            family.samples = LazySamples(partial(_of_rows, rows, name, samples))  # type: ignore[assignment]
            yield family


def _of_rows(
    rows: Callable[[], Iterable[OutcomeRow]],
    name: str,
    samples: Callable[[OutcomeRow], Iterator[tuple[dict[str, str], float]]],
) -> Iterator[Sample]:
    for row in rows():
        labels = dict(zip(LABELS, _labels(row.decision), strict=True))
        for more, value in samples(row):
            yield Sample(name, {**labels, **more}, value)


def _desired(row: OutcomeRow) -> Iterator[tuple[dict[str, str], float]]:
    status = None if row.facts.hpa is None else row.facts.hpa.status
    if status is not None and status.desired is not None:
        yield {}, float(status.desired)


def _conditions(row: OutcomeRow) -> Iterator[tuple[dict[str, str], float]]:
    status = None if row.facts.hpa is None else row.facts.hpa.status
    for each in () if status is None else status.conditions:
        yield {"type": each.type, "status": each.status, "reason": each.reason}, 1.0


def _codes(row: OutcomeRow) -> Iterator[tuple[dict[str, str], float]]:
    yield {"code": str(row.outcome.code)}, 1.0


class ClusterCollector:
    """Exposes the state of the Kubernetes API data, GPUs of nodes, and invalid objects.

    object_errors: errors and warnings of the current workload registry. now: POSIX seconds.
    """

    def __init__(
        self, cluster: Cluster, object_errors: Callable[[], Sequence[ObjectError]], now: Callable[[], float]
    ) -> None:
        self._cluster, self._object_errors, self._now = cluster, object_errors, now

    def collect(self) -> Iterable[Metric]:
        complete = GaugeMetricFamily(
            "tidegate_kubernetes_synced",
            "1: its data is complete and current. 0: dependent decisions are held.",
            labels=("resource",),
        )
        malformed = CounterMetricFamily(
            "tidegate_kubernetes_malformed_objects", "Objects that could not be parsed.", labels=("resource",)
        )
        for resource in RESOURCES:
            complete.add_metric((resource.name,), float(self._cluster.synced(resource, self._now())))
            malformed.add_metric((resource.name,), self._cluster.malformed[resource.name])
        yield from (complete, malformed, self._allocatable(), self._invalid())

    def _allocatable(self) -> Metric:
        family = GaugeMetricFamily(
            "tidegate_node_gpus_allocatable",
            "Allocatable GPUs or MIG instances of a node, by resource name.",
            labels=("node", "resource", "ready"),
        )
        for node in self._cluster.nodes():
            usable = str(node.ready and node.schedulable).lower()
            for resource, count in sorted(node.gpus.items()):
                family.add_metric((node.name, resource, usable), float(count))
        return family

    def _invalid(self) -> Metric:
        family = GaugeMetricFamily(
            "tidegate_object_errors",
            "Problems of an object; the log has the details. With severity error it defines no workload.",
            labels=("namespace", "kind", "name", "severity"),
        )
        object_errors = Counter((*error.ref, error.severity) for error in self._object_errors())
        for labels, number in sorted(object_errors.items()):
            family.add_metric(labels, float(number))
        return family


class ReplicaCollector:
    """Exposes leader election and replication of the leader's Board.

    replica: None before the first election.
    """

    def __init__(self, replica: Callable[[], Replica | None], now: Callable[[], float]) -> None:
        self._replica, self._now = replica, now

    def collect(self) -> Iterable[Metric]:
        replica, now = self._replica(), self._now()
        leads = replica is not None and replica.role(now) == "leader"
        yield GaugeMetricFamily("tidegate_leader", "1: this replica is the leader. 0: it is not.", float(leads))
        age = GaugeMetricFamily("tidegate_peer_board_age_seconds", "Age of the last Board from the leader.", labels=())
        if replica is not None and (seconds := replica.board_age_s(now)) is not None:
            age.add_metric((), seconds)
        yield age
        failed = CounterMetricFamily("tidegate_peer_fetch_failures", "Failed requests to the leader.", labels=("kind",))
        for kind, count in replica.failures.items() if replica is not None else ():
            failed.add_metric((kind,), count)
        yield failed


class CheckpointCollector:
    """Exposes age, size and failures of checkpoints."""

    def __init__(self, store: CheckpointStore, now: Callable[[], float]) -> None:
        self._store, self._now = store, now

    def collect(self) -> Iterable[Metric]:
        store = self._store
        if not store.on:
            return
        yield GaugeMetricFamily(
            "tidegate_checkpoint_age_seconds",
            "Time since the last checkpoint, or since the start.",
            value=max(0.0, self._now() - store.written_at),
        )
        yield CounterMetricFamily("tidegate_checkpoint_failures", "Failed checkpoints.", value=store.failures)
        yield GaugeMetricFamily(
            "tidegate_checkpoint_size_bytes", "Compressed size of the last checkpoint.", value=store.size
        )
        yield GaugeMetricFamily(
            "tidegate_checkpoint_directory_owned",
            "1: this process holds the lock of its state directory. 0: another process does.",
            value=float(store.owned),
        )
